/* redis/frame.c - see frame.h. */
#include "transport/redis/frame.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/scan.h"

#include <babelqueue/json.h>

#include <string.h>

static const char sentinel[] = "\"__bq_frame\"";

static bool is_header(const bq_prop *prop)
{
    return prop->place == BQ_PLACE_HEADER && prop->type == BQ_PROP_STRING && prop->name.len > 0 && prop->text.len > 0;
}

/* Cheap, and right for nearly every element: a frame is an object that names the sentinel. */
static bool may_be_frame(bq_str element)
{
    if (element.len < sizeof(sentinel) || *element.ptr != '{')
        return false;
    const char *at = element.ptr, *end = at + element.len;
    while (at && (size_t)(end - at) >= sizeof(sentinel) - 1) {
        if (memcmp(at, sentinel, sizeof(sentinel) - 1) == 0)
            return true;
        at = memchr(at + 1, '"', (size_t)(end - at - 1));
    }
    return false;
}

/* As every peer's language sees it: null, false, 0, "" and empty containers are not. */
static bool is_true(const bq_json *doc, bq_json_ref ref)
{
    double number;
    size_t it = 0;
    bq_json_ref value;
    switch (bq_json_typeof(doc, ref)) {
    case BQ_JSON_BOOL: {
        bool yes = false;
        return bq_json_bool(doc, ref, &yes) && yes;
    }
    case BQ_JSON_NUMBER: return !bq_json_double(doc, ref, &number) || number < 0 || number > 0;
    case BQ_JSON_STRING: return bq_json_raw(doc, ref).len > 2;
    case BQ_JSON_ARRAY:
    case BQ_JSON_OBJECT: return bq_json_next(doc, ref, &it, NULL, &value);
    default: return false;
    }
}

static bool is_frame(const bq_json *doc, bq_json_ref *body)
{
    if (bq_json_typeof(doc, BQ_JSON_ROOT) != BQ_JSON_OBJECT ||
        !is_true(doc, bq_json_member(doc, BQ_JSON_ROOT, BQ_STR("__bq_frame"))))
        return false;
    *body = bq_json_member(doc, BQ_JSON_ROOT, BQ_STR("body"));
    return bq_json_typeof(doc, *body) == BQ_JSON_STRING;
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static bool reads_as_frame(bq_str body)
{
    rd_frame frame;
    if (!may_be_frame(body))
        return false;
    bool framed = bq_rd_frame_read(body, &frame) != BQ_OK || frame.framed;
    bq_rd_frame_clear(&frame);
    return framed;
}

bool bq_rd_frame_needed(bq_str body, const bq_prop *props, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_header(&props[i]))
            return true;
    return reads_as_frame(body);
}

bq_status bq_rd_frame_make(bq_str body, const bq_prop *props, size_t count, bq_buf *out, bool *dropped)
{
    bool framed = bq_rd_frame_needed(body, props, count),
         fits = body.len == 0 || bq_scan_utf8(body.ptr, body.len) == body.len;
    if (dropped)
        *dropped = framed && !fits;
    if (!framed || !fits)
        return bq_buf_add_str(out, body);
    (void)bq_buf_add_lit(out, "{\"__bq_frame\":1,\"headers\":{");
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (!is_header(&props[i]))
            continue;
        if (!first)
            (void)bq_buf_add_byte(out, ',');
        first = false;
        (void)bq_json_add_string(out, props[i].name);
        (void)bq_buf_add_byte(out, ':');
        (void)bq_json_add_string(out, props[i].text);
    }
    (void)bq_buf_add_lit(out, "},\"body\":");
    (void)bq_json_add_string(out, body);
    return bq_buf_add_byte(out, '}');
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* A header's value as text: strings unescaped, other scalars as they are written; containers are left out. */
static bq_status header_text(bq_json *doc, bq_json_ref ref, bq_str *text)
{
    bq_json_type type = bq_json_typeof(doc, ref);
    *text = BQ_STR_NULL;
    if (type == BQ_JSON_STRING) {
        bq_status status = bq_json_text(doc, ref, text, NULL);
        return status == BQ_DATA ? BQ_OK : status;
    }
    if (type == BQ_JSON_NUMBER || type == BQ_JSON_BOOL)
        *text = bq_json_raw(doc, ref);
    return BQ_OK;
}

/* Appends to `text` and keeps the offset in the view's pointer: the buffer may move until it is whole. */
static bq_status keep(bq_buf *text, bq_str bytes, size_t *off)
{
    *off = text->len;
    return bq_buf_add_str(text, bytes);
}

static bq_status read_headers(bq_json *doc, bq_json_ref headers, rd_frame *out)
{
    bq_json_ref key, value;
    size_t it = 0, count = 0, name_off, text_off;
    if (bq_json_typeof(doc, headers) != BQ_JSON_OBJECT)
        return BQ_OK;
    while (bq_json_next(doc, headers, &it, &key, &value))
        count++;
    if (count == 0)
        return BQ_OK;
    out->props = bq_calloc(count, sizeof(*out->props));
    if (!out->props)
        return BQ_NOMEM;
    it = 0;
    while (bq_json_next(doc, headers, &it, &key, &value)) {
        bq_str name = BQ_STR_NULL, text;
        bq_status status = bq_json_text(doc, key, &name, NULL);
        if (status == BQ_DATA || (status == BQ_OK && name.len == 0))
            continue;
        if (status == BQ_OK)
            status = keep(&out->text, name, &name_off);
        if (status == BQ_OK)
            status = header_text(doc, value, &text);
        if (status == BQ_OK && text.len == 0)
            continue;
        if (status == BQ_OK)
            status = keep(&out->text, text, &text_off);
        if (status != BQ_OK)
            return status;
        out->props[out->prop_count++] = (bq_prop){.place = BQ_PLACE_HEADER,
                                                  .type = BQ_PROP_STRING,
                                                  .name = {NULL, name.len},
                                                  .text = {NULL, text.len},
                                                  .num = (int64_t)name_off,
                                                  .width = 0};
        /* Both offsets: the text follows its name, perhaps behind names that were left out. */
        out->props[out->prop_count - 1].real = (double)text_off;
    }
    return BQ_OK;
}

/* Now that the buffer stays where it is. */
static void settle_views(rd_frame *out)
{
    for (size_t i = 0; i < out->prop_count; i++) {
        bq_prop *prop = &out->props[i];
        prop->name.ptr = out->text.ptr + prop->num;
        prop->text.ptr = out->text.ptr + (size_t)prop->real;
        prop->num = 0;
        prop->real = 0;
    }
    if (out->prop_count == 0) {
        bq_free(out->props);
        out->props = NULL;
    }
}

bq_status bq_rd_frame_read(bq_str element, rd_frame *out)
{
    *out = (rd_frame){.body = element};
    bq_buf_init(&out->text, 0);
    if (!may_be_frame(element))
        return BQ_OK;
    bq_json doc;
    bq_json_init(&doc);
    bq_json_ref body;
    bq_str text;
    bq_status status = bq_json_parse(&doc, element, NULL);
    if (status == BQ_DATA) { /* no JSON, so no frame */
        status = BQ_OK;
        goto out;
    }
    if (status != BQ_OK || !is_frame(&doc, &body))
        goto out;
    status = bq_json_text(&doc, body, &text, NULL);
    if (status == BQ_DATA) { /* an unpaired surrogate has no bytes: the element stays as it is */
        status = BQ_OK;
        goto out;
    }
    size_t len = text.len;
    if (status == BQ_OK)
        status = bq_buf_add_str(&out->text, text);
    if (status == BQ_OK)
        status = read_headers(&doc, bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("headers")), out);
    if (status == BQ_OK) {
        out->framed = true;
        settle_views(out);
        out->body = (bq_str){out->text.ptr ? out->text.ptr : "", len};
    }
out:
    bq_json_clear(&doc);
    if (status != BQ_OK)
        bq_rd_frame_clear(out);
    return status;
}

bq_status bq_rd_headers_read(bq_str object, rd_frame *out)
{
    bq_json doc;
    *out = (rd_frame){.body = out->body};
    bq_buf_init(&out->text, 0);
    if (object.len == 0)
        return BQ_OK;
    bq_json_init(&doc);
    bq_status status = bq_json_parse(&doc, object, NULL);
    if (status == BQ_OK)
        status = read_headers(&doc, BQ_JSON_ROOT, out);
    else if (status == BQ_DATA)
        status = BQ_OK; /* a telemetry of its own */
    if (status == BQ_OK)
        settle_views(out);
    bq_json_clear(&doc);
    if (status != BQ_OK)
        bq_rd_frame_clear(out);
    return status;
}

void bq_rd_frame_clear(rd_frame *frame)
{
    bq_free(frame->props);
    bq_buf_clear(&frame->text);
    *frame = (rd_frame){0};
}
