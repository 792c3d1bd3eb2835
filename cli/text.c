/*
 * text.c - small writers: JSON objects member by member, base64, and the three formats in which a message is printed.
 */
#include "text.h"
#include "utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

json_object json_open(bq_buf *buf)
{
    bq_buf_add(buf, "{", 1);
    return (json_object){buf, false};
}

void json_close(json_object *object)
{
    bq_buf_add(object->buf, "}", 1);
}

void json_key(json_object *object, const char *name)
{
    if (object->comma)
        bq_buf_add(object->buf, ",", 1);
    object->comma = true;
    bq_json_add_string(object->buf, bq_str_of(name));
    bq_buf_add(object->buf, ":", 1);
}

void json_null(json_object *object, const char *name)
{
    json_key(object, name);
    bq_buf_add(object->buf, "null", 4);
}

void json_text(json_object *object, const char *name, bq_str value)
{
    if (!value.ptr) {
        json_null(object, name);
        return;
    }
    json_key(object, name);
    bq_json_add_string(object->buf, value);
}

void json_int(json_object *object, const char *name, int64_t value)
{
    json_key(object, name);
    bq_json_add_int(object->buf, value);
}

void json_bool(json_object *object, const char *name, bool value)
{
    json_key(object, name);
    buf_text(object->buf, value ? "true" : "false");
}

/* JSON on one line: as it is, unless a line break stands between its tokens. False when it is no JSON. */
static bool add_one_line(bq_buf *buf, bq_str json)
{
    if (!memchr(json.ptr, '\n', json.len) && !memchr(json.ptr, '\r', json.len))
        return bq_buf_add(buf, json.ptr, json.len) == BQ_OK;
    return bq_json_add_compact(buf, json, NULL) == BQ_OK;
}

void json_raw(json_object *object, const char *name, bq_str value)
{
    json_key(object, name);
    if (!value.ptr || !add_one_line(object->buf, value))
        bq_buf_add(object->buf, "null", 4);
}

void buf_text(bq_buf *buf, const char *text)
{
    bq_buf_add(buf, text, strlen(text));
}

void buf_printf(bq_buf *buf, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        buf->failed = true;
    else
        bq_buf_add(buf, text, (size_t)n);
    if (n >= 0)
        free(text);
}

void buf_name(bq_buf *buf, bq_str name)
{
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] < 0x20 || name.ptr[i] == 0x7f) {
            bq_json_add_string(buf, name);
            return;
        }
    bq_buf_add(buf, name.ptr, name.len);
}

/* ---- base64 (RFC 4648, section 4) ----------------------------------------------------------------------------------- */

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_add(bq_buf *buf, bq_str bytes)
{
    const unsigned char *p = (const unsigned char *)bytes.ptr;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t rest = bytes.len - i;
        unsigned a = p[i], b = rest > 1 ? p[i + 1] : 0, c = rest > 2 ? p[i + 2] : 0;
        char quad[4] = {base64_digits[a >> 2], base64_digits[(a & 3) << 4 | b >> 4],
                        base64_digits[(b & 15) << 2 | c >> 6], base64_digits[c & 63]};
        if (rest < 3)
            quad[3] = '=';
        if (rest < 2)
            quad[2] = '=';
        bq_buf_add(buf, quad, 4);
    }
}

static int base64_value(char c)
{
    const char *at = c ? strchr(base64_digits, c) : NULL;
    return at ? (int)(at - base64_digits) : -1;
}

bool base64_decode(bq_str text, bq_buf *out)
{
    if (text.len % 4 != 0)
        return false;
    for (size_t i = 0; i < text.len; i += 4) {
        const char *quad = text.ptr + i;
        bool last = i + 4 == text.len;
        size_t pad = last && quad[3] == '=' ? (quad[2] == '=' ? 2 : 1) : 0;
        unsigned bits = 0;
        for (size_t j = 0; j < 4; j++) {
            int value = j < 4 - pad ? base64_value(quad[j]) : 0;
            if (value < 0)
                return false;
            bits = bits << 6 | (unsigned)value;
        }
        /* The bits that the padding cuts off must be zero: one text for one sequence of bytes. */
        if (pad && (bits & ((1U << (8 * pad)) - 1)))
            return false;
        char bytes[3] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
        bq_buf_add(out, bytes, 3 - pad);
    }
    return !out->failed;
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */

static void add_wrapped(bq_buf *buf, bq_str body)
{
    json_object object = json_open(buf);
    if (utf8_valid(body)) {
        json_text(&object, "raw", body.ptr ? body : BQ_STR(""));
    } else {
        json_key(&object, "raw");
        bq_buf_add(buf, "\"", 1);
        base64_add(buf, body);
        bq_buf_add(buf, "\"", 1);
        json_text(&object, "raw_encoding", BQ_STR("base64"));
    }
    json_close(&object);
}

static bool has_control(bq_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < 0x20)
            return true;
    return false;
}

/* What is no JSON is printed as it is, so that `bq inspect --lines` judges the same bytes, unless a control byte would
 * break the line or reach a terminal. */
static void add_body(bq_buf *buf, const printed_message *message)
{
    bq_verdict verdict = message->envelope ? message->envelope->verdict : BQ_VERDICT_POISON_JSON;
    bool json = verdict != BQ_VERDICT_POISON_UTF8 && verdict != BQ_VERDICT_POISON_JSON;
    if (json && add_one_line(buf, message->body))
        return;
    if (has_control(message->body))
        add_wrapped(buf, message->body);
    else
        bq_buf_add(buf, message->body.ptr, message->body.len);
}

static void add_data(bq_buf *buf, const printed_message *message)
{
    bq_str data = message->envelope ? bq_envelope_raw(message->envelope, BQ_FIELD_DATA) : BQ_STR_NULL;
    if (!data.ptr || !add_one_line(buf, data))
        bq_buf_add(buf, "null", 4);
}

static void add_headers(json_object *object, const printed_message *message)
{
    bq_str name, value;
    json_key(object, "headers");
    bq_buf_add(object->buf, "{", 1);
    for (size_t i = 0; message->header && message->header(message->source, i, &name, &value); i++) {
        if (i > 0)
            bq_buf_add(object->buf, ",", 1);
        bq_json_add_string(object->buf, name);
        bq_buf_add(object->buf, ":", 1);
        bq_json_add_string(object->buf, value);
    }
    bq_buf_add(object->buf, "}", 1);
}

static void add_full(bq_buf *buf, const printed_message *message)
{
    json_object object = json_open(buf);
    json_text(&object, "queue", message->queue);
    json_text(&object, "route", message->route);
    add_headers(&object, message);
    json_text(&object, "key", message->key);
    json_int(&object, "attempts", message->attempts);
    if (!message->body.ptr || utf8_valid(message->body)) {
        json_text(&object, "body", message->body);
    } else {
        json_key(&object, "body");
        bq_buf_add(buf, "\"", 1);
        base64_add(buf, message->body);
        bq_buf_add(buf, "\"", 1);
        json_text(&object, "body_encoding", BQ_STR("base64"));
    }
    json_close(&object);
}

void message_add(bq_buf *buf, message_format format, const printed_message *message)
{
    if (format == FORMAT_FULL)
        add_full(buf, message);
    else if (format == FORMAT_DATA)
        add_data(buf, message);
    else
        add_body(buf, message);
}
