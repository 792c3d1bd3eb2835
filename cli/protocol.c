/*
 * protocol.c - the lines between `bq work --handle-stdio` and a coprocess. Tens of thousands of them pass every second,
 * so that a line is put together from ready pieces, strings that need no escaping are copied, and the usual answer is
 * read without a parser.
 */
#include "protocol.h"

#include <string.h>

/* ---- out ------------------------------------------------------------------------------------------------------------- */

static inline void put(bq_buf *out, const char *bytes, size_t len)
{
    if (out->cap - out->len > len && !out->failed) {
        memcpy(out->ptr + out->len, bytes, len);
        out->len += len;
        out->ptr[out->len] = '\0';
    } else {
        bq_buf_add(out, bytes, len);
    }
}

#define PUT(out, literal) put((out), "" literal, sizeof(literal) - 1)

static void put_number(bq_buf *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(out, digits + at, sizeof(digits) - at);
}

/* ASCII that stands for itself within quotes. */
static bool is_plain(bq_str text)
{
    unsigned bad = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bad |= (c < 0x20) | (c >= 0x7f) | (c == '"') | (c == '\\');
    }
    return !bad;
}

static void put_string(bq_buf *out, bq_str text)
{
    if (!is_plain(text)) {
        bq_json_add_string(out, text);
        return;
    }
    PUT(out, "\"");
    put(out, text.ptr, text.len);
    PUT(out, "\"");
}

static void put_text(bq_buf *out, bq_str text)
{
    if (text.ptr)
        put_string(out, text);
    else
        PUT(out, "null");
}

static void put_headers(bq_buf *out, const bq_delivery *delivery)
{
    bq_str name, value;
    PUT(out, "{");
    for (size_t i = 0; bq_delivery_header_at(delivery, i, &name, &value); i++) {
        if (i > 0)
            PUT(out, ",");
        put_string(out, name);
        PUT(out, ":");
        put_string(out, value);
    }
    PUT(out, "}");
}

static void put_envelope(bq_buf *out, bq_str body)
{
    bool broken = body.len > 0 && (memchr(body.ptr, '\n', body.len) || memchr(body.ptr, '\r', body.len));
    if (body.len == 0)
        PUT(out, "null");
    else if (!broken)
        put(out, body.ptr, body.len);
    else if (bq_json_add_compact(out, body, NULL) != BQ_OK)
        PUT(out, "null");
}

void protocol_add_message(bq_buf *out, uint64_t n, const bq_delivery *delivery)
{
    PUT(out, "{\"n\":");
    put_number(out, n);
    PUT(out, ",\"queue\":");
    put_string(out, bq_delivery_queue(delivery));
    PUT(out, ",\"urn\":");
    put_text(out, bq_delivery_urn(delivery));
    PUT(out, ",\"id\":");
    put_text(out, bq_delivery_id(delivery));
    PUT(out, ",\"trace_id\":");
    put_text(out, bq_delivery_trace_id(delivery));
    PUT(out, ",\"attempts\":");
    put_number(out, (uint64_t)bq_delivery_attempts(delivery));
    if (bq_delivery_is_replay(delivery))
        PUT(out, ",\"replay\":true,\"headers\":");
    else
        PUT(out, ",\"replay\":false,\"headers\":");
    put_headers(out, delivery);
    PUT(out, ",\"envelope\":");
    put_envelope(out, bq_delivery_body(delivery));
    PUT(out, "}\n");
}

/* ---- in -------------------------------------------------------------------------------------------------------------- */

static bool skip(bq_str *rest, const char *literal, size_t len)
{
    if (rest->len < len || memcmp(rest->ptr, literal, len) != 0)
        return false;
    *rest = (bq_str){rest->ptr + len, rest->len - len};
    return true;
}

#define SKIP(rest, literal) skip((rest), "" literal, sizeof(literal) - 1)

/* {"n":123,"ok":true}, or with the blanks that Python's json puts there. Anything else is for the parser. */
static bool read_usual(bq_str line, uint64_t *n)
{
    uint64_t number = 0;
    size_t digits = 0;
    if (!SKIP(&line, "{\"n\":"))
        return false;
    SKIP(&line, " ");
    while (digits < line.len && digits < 18 && line.ptr[digits] >= '0' && line.ptr[digits] <= '9')
        number = number * 10 + (uint64_t)(line.ptr[digits++] - '0');
    if (digits == 0 || line.ptr[0] == '0')
        return false;
    line = (bq_str){line.ptr + digits, line.len - digits};
    *n = number;
    return (SKIP(&line, ",\"ok\":true}") || SKIP(&line, ", \"ok\": true}")) && line.len == 0;
}

/* A member that may be absent or null. False when it is something else than text. */
static bool optional_text(bq_json *doc, bq_json_ref object, bq_str name, bq_str *out)
{
    bq_json_ref ref = bq_json_member(doc, object, name);
    bq_json_type type = bq_json_typeof(doc, ref);
    if (type == BQ_JSON_NONE || type == BQ_JSON_NULL)
        return true;
    return type == BQ_JSON_STRING && bq_json_text(doc, ref, out, NULL) == BQ_OK;
}

static bool optional_bool(const bq_json *doc, bq_json_ref object, bq_str name, bool *given, bool *out)
{
    bq_json_ref ref = bq_json_member(doc, object, name);
    bq_json_type type = bq_json_typeof(doc, ref);
    if (type == BQ_JSON_NONE || type == BQ_JSON_NULL)
        return true;
    *given = true;
    return bq_json_bool(doc, ref, out);
}

static bool read_members(bq_json *doc, protocol_answer *answer, bool *ok, bool *reject, bool *says, const char **why)
{
    const bq_json_ref root = BQ_JSON_ROOT;
    bool given = false;
    int64_t n = 0;
    bq_json_ref delay = bq_json_member(doc, root, BQ_STR("retry_after_ms"));
    bq_json_type delay_type = bq_json_typeof(doc, delay);
    if (!bq_json_int(doc, bq_json_member(doc, root, BQ_STR("n")), &n) || n <= 0)
        return *why = "\"n\" is no message's number", false;
    answer->n = (uint64_t)n;
    if (!optional_bool(doc, root, BQ_STR("ok"), says, ok))
        return *why = "\"ok\" is neither true nor false", false;
    if (!optional_bool(doc, root, BQ_STR("reject"), &given, reject))
        return *why = "\"reject\" is neither true nor false", false;
    if (!optional_text(doc, root, BQ_STR("error"), &answer->error))
        return *why = "\"error\" is not a string", false;
    if (!optional_text(doc, root, BQ_STR("exception"), &answer->exception))
        return *why = "\"exception\" is not a string", false;
    if (delay_type != BQ_JSON_NONE && delay_type != BQ_JSON_NULL &&
        (!bq_json_int(doc, delay, &answer->retry_after_ms) || answer->retry_after_ms < 0))
        return *why = "\"retry_after_ms\" is not a number of milliseconds", false;
    *says = *says || given || answer->error.ptr || answer->exception.ptr || answer->retry_after_ms >= 0;
    return true;
}

bool protocol_read_answer(bq_json *doc, bq_str line, protocol_answer *answer, const char **why)
{
    bool ok = false, reject = false, says = false;
    *answer = (protocol_answer){.outcome = BQ_DONE, .retry_after_ms = -1};
    if (read_usual(line, &answer->n))
        return true;
    if (bq_json_parse(doc, line, NULL) != BQ_OK || bq_json_typeof(doc, BQ_JSON_ROOT) != BQ_JSON_OBJECT)
        return *why = "not a JSON object", false;
    if (!read_members(doc, answer, &ok, &reject, &says, why))
        return false;
    if (!says)
        return *why = "neither \"ok\" nor \"error\"", false;
    if (ok && (reject || answer->error.ptr || answer->exception.ptr || answer->retry_after_ms >= 0))
        return *why = "\"ok\" beside a failure", false;
    if (ok) {
        bq_json_ref result = bq_json_member(doc, BQ_JSON_ROOT, BQ_STR("result"));
        if (result != BQ_JSON_MISSING)
            answer->result = bq_json_raw(doc, result);
        return true;
    }
    answer->outcome = reject ? BQ_REJECTED : BQ_FAILED;
    return true;
}
