/*
 * lines.c - one line of `bq publish --lines`, or the DATA of `bq publish --raw`, as a message to publish.
 *
 * Two kinds of object are read: a message to make, with the members urn, data, trace_id, id, queue, headers, delay_ms,
 * key and group; and a message as `--format full` prints it, with the members queue, route, headers, key, attempts,
 * body and body_encoding, whose body is sent as it is. A member of neither kind is an error: a misspelt one must not
 * vanish.
 */
#include "lines.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum member {
    M_URN,
    M_DATA,
    M_TRACE_ID,
    M_ID,
    M_DELAY_MS,
    M_GROUP,
    M_QUEUE,
    M_HEADERS,
    M_KEY,
    M_ROUTE,
    M_ATTEMPTS,
    M_BODY,
    M_BODY_ENCODING,
    M_COUNT
} member;

static const char *const member_names[M_COUNT] = {"urn",      "data",  "trace_id",     "id",  "delay_ms",
                                                  "group",    "queue", "headers",      "key", "route",
                                                  "attempts", "body",  "body_encoding"};

/* Which members belong to a message as `full` prints it, and which only there. */
#define IN_FULL(m) ((m) >= M_QUEUE)
#define ONLY_FULL(m) ((m) >= M_ROUTE)

void line_parser_init(line_parser *parser)
{
    *parser = (line_parser){0};
    bq_json_init(&parser->doc);
    bq_buf_init(&parser->body, 0);
}

void line_parser_clear(line_parser *parser)
{
    bq_json_clear(&parser->doc);
    bq_buf_clear(&parser->body);
    free(parser->headers);
    parser->headers = NULL;
    parser->header_cap = 0;
}

static bool fail(line_parser *parser, const char *format, ...) BQ_PRINTF(2, 3);
static bool fail(line_parser *parser, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(parser->why, sizeof(parser->why), format, args);
    va_end(args);
    return false;
}

/* ---- members ------------------------------------------------------------------------------------------------------- */

/* Finds the known members of the object; null counts as absent. False when one is unknown or repeated. */
static bool find_members(line_parser *parser, bq_json_ref found[M_COUNT])
{
    size_t it = 0;
    bq_json_ref key, value;
    bq_str name;
    bool seen[M_COUNT] = {false};
    for (int m = 0; m < M_COUNT; m++)
        found[m] = BQ_JSON_MISSING;
    while (bq_json_next(&parser->doc, BQ_JSON_ROOT, &it, &key, &value)) {
        int m = 0;
        if (bq_json_text(&parser->doc, key, &name, NULL) != BQ_OK)
            return fail(parser, "a member's name is not text");
        while (m < M_COUNT && !bq_str_equal(name, bq_str_of(member_names[m])))
            m++;
        if (m == M_COUNT)
            return fail(parser, "unknown member \"%.*s\"", (int)(name.len < 60 ? name.len : 60), name.ptr);
        if (seen[m])
            return fail(parser, "member \"%s\" stands twice", member_names[m]);
        seen[m] = true;
        if (bq_json_typeof(&parser->doc, value) != BQ_JSON_NULL)
            found[m] = value;
    }
    return true;
}

static bool text_member(line_parser *parser, const bq_json_ref found[M_COUNT], member m, bq_str *out)
{
    if (found[m] == BQ_JSON_MISSING)
        return true;
    if (bq_json_typeof(&parser->doc, found[m]) != BQ_JSON_STRING)
        return fail(parser, "\"%s\" is not a string", member_names[m]);
    if (bq_json_text(&parser->doc, found[m], out, NULL) != BQ_OK)
        return fail(parser, "\"%s\" holds an unpaired surrogate escape", member_names[m]);
    return true;
}

/* Takes the place of one among the first `given`, those of the command line. A name that the line itself repeats is left
 * to the library, for which the last of them counts: a stranger's line may have very many. */
static bool add_header(line_parser *parser, bq_message_spec *spec, size_t given, bq_header header)
{
    size_t at = 0;
    while (at < given && !bq_str_equal(parser->headers[at].name, header.name))
        at++;
    if (at == given)
        at = spec->header_count;
    if (at == parser->header_cap) {
        size_t cap = parser->header_cap * 2 + 8;
        bq_header *headers = realloc(parser->headers, cap * sizeof(*headers));
        if (!headers)
            return fail(parser, "out of memory");
        parser->headers = headers;
        parser->header_cap = cap;
    }
    parser->headers[at] = header;
    spec->header_count += at == spec->header_count;
    spec->headers = parser->headers;
    return true;
}

/* The line's headers beside those of the command line, which they replace name by name. */
static bool headers_member(line_parser *parser, bq_json_ref object, bq_message_spec *spec)
{
    size_t it = 0;
    bq_json_ref key, value;
    const bq_header *given = spec->headers;
    size_t given_count = spec->header_count;
    if (object == BQ_JSON_MISSING)
        return true;
    if (bq_json_typeof(&parser->doc, object) != BQ_JSON_OBJECT)
        return fail(parser, "\"headers\" is not an object");
    spec->header_count = 0;
    for (size_t i = 0; i < given_count; i++)
        if (!add_header(parser, spec, i, given[i]))
            return false;
    while (bq_json_next(&parser->doc, object, &it, &key, &value)) {
        bq_header header;
        if (bq_json_typeof(&parser->doc, value) != BQ_JSON_STRING)
            return fail(parser, "a value in \"headers\" is not a string");
        if (bq_json_text(&parser->doc, key, &header.name, NULL) != BQ_OK ||
            bq_json_text(&parser->doc, value, &header.value, NULL) != BQ_OK)
            return fail(parser, "\"headers\" holds an unpaired surrogate escape");
        if (!add_header(parser, spec, given_count, header))
            return false;
    }
    return true;
}

static bool delay_member(line_parser *parser, bq_json_ref value, bq_message_spec *spec)
{
    int64_t delay;
    if (value == BQ_JSON_MISSING)
        return true;
    if (!bq_json_int(&parser->doc, value, &delay) || delay < 0)
        return fail(parser, "\"delay_ms\" is not a whole number of milliseconds");
    spec->delay_ms = delay;
    return true;
}

/* ---- the two kinds -------------------------------------------------------------------------------------------------- */

static bool body_member(line_parser *parser, const bq_json_ref found[M_COUNT], bq_message_spec *spec)
{
    bq_str encoding = BQ_STR_NULL, text = BQ_STR_NULL;
    if (!text_member(parser, found, M_BODY, &text) || !text_member(parser, found, M_BODY_ENCODING, &encoding))
        return false;
    spec->body = text;
    if (!encoding.ptr)
        return true;
    if (!bq_str_equal(encoding, BQ_STR("base64")))
        return fail(parser, "\"body_encoding\" is not \"base64\"");
    bq_buf_reset(&parser->body);
    if (!base64_decode(text, &parser->body))
        return fail(parser, "\"body\" is not base64");
    spec->body = parser->body.ptr ? bq_buf_str(&parser->body) : BQ_STR("");
    return true;
}

static bool shared_members(line_parser *parser, const bq_json_ref found[M_COUNT], bq_message_spec *spec)
{
    bq_str queue = BQ_STR_NULL;
    if (!text_member(parser, found, M_QUEUE, &queue) || !text_member(parser, found, M_KEY, &spec->key) ||
        !headers_member(parser, found[M_HEADERS], spec))
        return false;
    /* -q says where all of them go. */
    if (!spec->queue.ptr)
        spec->queue = queue;
    return true;
}

static bool full_line(line_parser *parser, const bq_json_ref found[M_COUNT], bq_message_spec *spec)
{
    for (int m = 0; m < M_COUNT; m++)
        if (found[m] != BQ_JSON_MISSING && !IN_FULL(m))
            return fail(parser, "\"%s\" beside \"body\"", member_names[m]);
    return shared_members(parser, found, spec) && body_member(parser, found, spec);
}

static bool made_line(line_parser *parser, const bq_json_ref found[M_COUNT], bq_message_spec *spec)
{
    for (int m = 0; m < M_COUNT; m++)
        if (found[m] != BQ_JSON_MISSING && ONLY_FULL(m))
            return fail(parser, "\"%s\" without \"body\"", member_names[m]);
    if (found[M_URN] == BQ_JSON_MISSING)
        return fail(parser, "no \"urn\"");
    if (found[M_DATA] == BQ_JSON_MISSING)
        return fail(parser, "no \"data\"");
    if (bq_json_typeof(&parser->doc, found[M_DATA]) != BQ_JSON_OBJECT)
        return fail(parser, "\"data\" is not an object");
    spec->data = bq_json_raw(&parser->doc, found[M_DATA]);
    return text_member(parser, found, M_URN, &spec->urn) && text_member(parser, found, M_TRACE_ID, &spec->trace_id) &&
           text_member(parser, found, M_ID, &spec->id) && text_member(parser, found, M_GROUP, &spec->group) &&
           delay_member(parser, found[M_DELAY_MS], spec) && shared_members(parser, found, spec);
}

/* A body that is sent as it is may well be a JSON object of any shape, so `full` is recognised only by exactly the
 * members that it always has. */
static bool is_full(line_parser *parser, bq_str line, bq_json_ref found[M_COUNT])
{
    if (bq_json_parse(&parser->doc, line, NULL) != BQ_OK ||
        bq_json_typeof(&parser->doc, BQ_JSON_ROOT) != BQ_JSON_OBJECT || !find_members(parser, found))
        return false;
    for (int m = 0; m < M_COUNT; m++)
        if (found[m] != BQ_JSON_MISSING && !IN_FULL(m))
            return false;
    return found[M_BODY] != BQ_JSON_MISSING && found[M_QUEUE] != BQ_JSON_MISSING &&
           found[M_ATTEMPTS] != BQ_JSON_MISSING && found[M_HEADERS] != BQ_JSON_MISSING;
}

bool line_parse(line_parser *parser, line_mode mode, bq_str line, bq_message_spec *spec)
{
    bq_json_ref found[M_COUNT];
    bq_error err;
    if (mode == LINE_DATA) {
        spec->data = line;
        return true;
    }
    if (mode == LINE_RAW) {
        if (is_full(parser, line, found))
            return full_line(parser, found, spec);
        spec->body = line;
        return true;
    }
    if (bq_json_parse(&parser->doc, line, &err) != BQ_OK)
        return fail(parser, "%s", err.text);
    if (bq_json_typeof(&parser->doc, BQ_JSON_ROOT) != BQ_JSON_OBJECT)
        return fail(parser, "not a JSON object");
    if (!find_members(parser, found))
        return false;
    return found[M_BODY] != BQ_JSON_MISSING ? full_line(parser, found, spec) : made_line(parser, found, spec);
}
