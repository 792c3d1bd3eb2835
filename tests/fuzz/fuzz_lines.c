/*
 * fuzz_lines.c - lines of `bq publish --lines` and answers of a coprocess from any bytes. The first byte chooses what is
 * read, the rest is the line. Properties beside "no crash, no leak": a refusal says why; what was read are views that
 * can be read to their ends; data and bodies are bytes of the line or decoded from it; a raw body that is not a message
 * as `full` prints it is the line itself; and what `full` prints is read back byte for byte.
 */
#include "../../cli/lines.h"
#include "../../cli/protocol.h"
#include "../../cli/text.h"

#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void touch(bq_str view)
{
    unsigned char sum = 0;
    CHECK(view.ptr || view.len == 0);
    for (size_t i = 0; i < view.len; i++)
        sum ^= (unsigned char)view.ptr[i];
    sink = sum;
}

static bool within(bq_str part, bq_str whole)
{
    return part.ptr >= whole.ptr && part.len <= whole.len && part.ptr <= whole.ptr + (whole.len - part.len);
}

static void check_spec(const bq_message_spec *spec, bq_str line)
{
    touch(spec->urn);
    touch(spec->trace_id);
    touch(spec->id);
    touch(spec->queue);
    touch(spec->key);
    touch(spec->group);
    touch(spec->data);
    touch(spec->body);
    for (size_t i = 0; i < spec->header_count; i++) {
        touch(spec->headers[i].name);
        touch(spec->headers[i].value);
        for (size_t j = 0; j < i; j++)
            CHECK(!bq_str_equal(spec->headers[i].name, spec->headers[j].name));
    }
    CHECK(spec->delay_ms >= 0);
    CHECK(!spec->data.ptr || within(spec->data, line));
    CHECK((spec->data.ptr != NULL) != (spec->body.ptr != NULL));
}

/* A body printed as `full` is the same body when it is read again. */
static void round_trip(line_parser *parser, bq_str body)
{
    bq_envelope env;
    bq_buf line = {0};
    bq_message_spec spec = BQ_MESSAGE_SPEC_INIT;
    (void)bq_envelope_decode(&env, body.ptr, body.len);
    printed_message message = {.queue = BQ_STR("q"), .route = BQ_STR("u"), .body = body, .envelope = &env};
    message_add(&line, FORMAT_FULL, &message);
    CHECK(!line.failed && !memchr(line.ptr, '\n', line.len));
    CHECK(line_parse(parser, LINE_OBJECT, bq_buf_str(&line), &spec));
    CHECK(bq_str_equal(spec.body, body));
    bq_buf_reset(&line);
    message_add(&line, FORMAT_BODY, &message);
    message_add(&line, FORMAT_DATA, &message);
    CHECK(!memchr(line.ptr, '\n', line.len));
    bq_buf_clear(&line);
}

static void read_answer(bq_str line)
{
    bq_json doc;
    protocol_answer answer;
    const char *why = "";
    bq_json_init(&doc);
    if (protocol_read_answer(&doc, line, &answer, &why)) {
        CHECK(answer.n > 0 && answer.retry_after_ms >= -1);
        CHECK(answer.outcome == BQ_DONE || answer.outcome == BQ_FAILED || answer.outcome == BQ_REJECTED);
        touch(answer.error);
        touch(answer.exception);
        touch(answer.result);
    } else {
        CHECK(*why);
    }
    bq_json_clear(&doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    /* A copy of its own, so that reading past its end is seen. */
    char *copy = malloc(size);
    CHECK(copy);
    memcpy(copy, data + 1, size - 1);
    bq_str line = {copy, size - 1};
    bq_header header = {BQ_STR("a"), BQ_STR("b")};
    bq_message_spec spec = BQ_MESSAGE_SPEC_INIT;
    line_parser parser;
    line_parser_init(&parser);
    spec.headers = &header;
    spec.header_count = data[0] & 8 ? 1 : 0;
    unsigned what = data[0] & 3;
    if (what == 3) {
        read_answer(line);
    } else if (line_parse(&parser, (line_mode)what, line, &spec)) {
        check_spec(&spec, line);
        if (what == LINE_RAW)
            CHECK(spec.body.ptr == line.ptr || spec.queue.ptr);
    } else {
        CHECK(what != LINE_DATA && parser.why[0] && strnlen(parser.why, sizeof(parser.why)) < sizeof(parser.why));
    }
    round_trip(&parser, line);
    line_parser_clear(&parser);
    free(copy);
    return 0;
}
