/*
 * fuzz_json.c - any bytes through bq_json: what parses is walked value by value, every accessor is asked, and the text
 * put together from the walk must be what bq_json_add_compact makes of the input.
 */
#include <babelqueue/json.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_DEPTH = 200 }; /* of this program's own recursion */

static bool same(bq_str a, bq_str b)
{
    return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static void scalar(bq_json *doc, bq_json_ref ref, bq_buf *out)
{
    bq_str raw = bq_json_raw(doc, ref), text;
    int64_t integer;
    double number;
    bool flag;
    if (bq_json_text(doc, ref, &text, NULL) == BQ_OK && text.len > raw.len)
        abort();
    if (bq_json_int(doc, ref, &integer)) {
        bq_buf digits;
        bq_buf_init(&digits, 0);
        bq_json_add_int(&digits, integer);
        if (!same(raw, bq_buf_str(&digits)) && !same(raw, BQ_STR("-0")))
            abort();
        bq_buf_clear(&digits);
    }
    if (bq_json_double(doc, ref, &number) && !isfinite(number))
        abort();
    (void)bq_json_bool(doc, ref, &flag);
    bq_buf_add_str(out, raw);
}

static bool walk(bq_json *doc, bq_json_ref ref, bq_buf *out, int depth)
{
    bq_json_type type = bq_json_typeof(doc, ref);
    if (type != BQ_JSON_ARRAY && type != BQ_JSON_OBJECT) {
        scalar(doc, ref, out);
        return true;
    }
    if (depth == MAX_DEPTH)
        return false;
    bool object = type == BQ_JSON_OBJECT, first = true;
    bq_json_ref key, value;
    bq_buf_add_byte(out, object ? '{' : '[');
    for (size_t it = 0; bq_json_next(doc, ref, &it, &key, &value); first = false) {
        if (!first)
            bq_buf_add_byte(out, ',');
        if (object) {
            bq_str name;
            scalar(doc, key, out);
            bq_buf_add_byte(out, ':');
            if (bq_json_text(doc, key, &name, NULL) == BQ_OK && bq_json_member(doc, ref, name) == BQ_JSON_MISSING)
                abort();
        }
        if (!walk(doc, value, out, depth + 1))
            return false;
    }
    bq_buf_add_byte(out, object ? '}' : ']');
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bq_json doc;
    bq_buf walked, compact;
    char *text = malloc(size ? size : 1);
    if (!text || size > 20000)
        goto out;
    memcpy(text, data, size);
    bq_buf_init(&walked, 0);
    bq_buf_init(&compact, 0);
    bool parsed = bq_json_parse(&doc, (bq_str){text, size}, NULL) == BQ_OK;
    if (parsed != (bq_json_add_compact(&compact, (bq_str){text, size}, NULL) == BQ_OK))
        abort();
    if (parsed && walk(&doc, BQ_JSON_ROOT, &walked, 0) && !same(bq_buf_str(&walked), bq_buf_str(&compact)))
        abort();
    /* The input as a pointer into itself, and as text that is no JSON at all. */
    (void)bq_json_pointer(&doc, BQ_JSON_ROOT, (bq_str){text, size < 40 ? size : 40});
    bq_buf_reset(&compact);
    if (bq_json_add_string(&compact, (bq_str){text, size}) != BQ_OK ||
        bq_json_parse(&doc, bq_buf_str(&compact), NULL) != BQ_OK)
        abort();
    bq_buf_clear(&walked);
    bq_buf_clear(&compact);
out:
    free(text);
    return 0;
}
