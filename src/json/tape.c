/*
 * json/tape.c - building a bq_json's tape and reading values off it (babelqueue/json.h; the layout is in tape.h).
 *
 * A value's end is not on the tape: its token is read again when somebody asks for it, which costs as much as the
 * asking itself. Strings whose escapes were resolved live in a buffer as long as the text, each at its own offset there:
 * it is allocated once, so earlier answers stay where they are, and asking twice costs no memory.
 *
 * Thread rule: a document belongs to one thread at a time.
 */
#include <babelqueue/json.h>

#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "json/walk.h"

void bq_json_init(bq_json *doc)
{
    *doc = (bq_json){.text = ""};
    bq_buf_init(&doc->strings, 0);
}

void bq_json_clear(bq_json *doc)
{
    bq_free(doc->tape);
    bq_buf_clear(&doc->strings);
    bq_json_init(doc);
}

/* ---- building -------------------------------------------------------------------------------------------------- */

bool bq_tape_grow(bq_tape *tape)
{
    size_t cap = tape->cap < 32 ? 64 : tape->cap * 2;
    struct bq_json_entry *entries = bq_realloc_array(tape->entries, cap, sizeof *entries);
    if (!entries) {
        tape->no_memory = true;
        return false;
    }
    tape->entries = entries;
    tape->cap = cap;
    return true;
}

const uint8_t *bq_scan_tape(bq_scan *s, const uint8_t *p, bq_tape *tape)
{
    return bq_walk_value(s, p, 0, false, tape);
}

bq_status bq_json_parse(bq_json *doc, bq_str text, bq_error *err)
{
    bq_scanned scanned;
    const char *bytes = text.ptr ? text.ptr : "";
    bq_tape tape = {.base = (const uint8_t *)bytes, .entries = doc->tape, .cap = doc->cap, .parent = SIZE_MAX};
    bool ok = bq_scan_document_tape(&scanned, bytes, text.len, &tape);
    doc->text = bytes;
    doc->len = text.len;
    doc->tape = tape.entries;
    doc->cap = tape.cap;
    doc->count = ok ? tape.count : 0;
    if (ok)
        return BQ_OK;
    if (tape.no_memory)
        return bq_fail_nomem(err);
    return bq_fail(err, BQ_DATA, "not valid JSON at byte %zu: %s", scanned.fault, scanned.reason);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static inline unsigned tag(const bq_json *doc, bq_json_ref ref)
{
    return ref < doc->count ? (unsigned)(doc->tape[ref].bits >> 60) : BQ_JSON_NONE;
}

static inline const uint8_t *token(const bq_json *doc, bq_json_ref ref)
{
    return (const uint8_t *)doc->text + (doc->tape[ref].bits & BQ_TAPE_OFFSET);
}

bq_json_type bq_json_typeof(const bq_json *doc, bq_json_ref ref)
{
    unsigned type = tag(doc, ref);
    return type < BQ_TAPE_END ? (bq_json_type)type : BQ_JSON_NONE;
}

/* A string's closing quote, from the opening one. */
static const uint8_t *string_end(const bq_json *doc, const uint8_t *p)
{
    bq_scan s = {(const uint8_t *)doc->text + doc->len, NULL, "", 0};
    bool escaped = false;
    return bq_scan_string(&s, p + 1, &escaped);
}

bq_str bq_json_raw(const bq_json *doc, bq_json_ref ref)
{
    bq_json_type type = bq_json_typeof(doc, ref);
    if (type == BQ_JSON_NONE)
        return BQ_STR_NULL;
    const uint8_t *p = token(doc, ref), *q = p, *end = (const uint8_t *)doc->text + doc->len;
    switch (type) {
    case BQ_JSON_STRING: q = string_end(doc, p) + 1; break;
    case BQ_JSON_ARRAY:
    case BQ_JSON_OBJECT: q = token(doc, (size_t)doc->tape[ref + 1].bits) + 1; break;
    case BQ_JSON_NUMBER:
        while (q < end && (*q == '+' || (bq_scan_class[*q] & (BQ_CLASS_DIGIT | BQ_CLASS_MINUS | BQ_CLASS_FRACTION))))
            q++;
        break;
    default: q = p + (*p == 'f' ? 5 : 4); break;
    }
    return (bq_str){(const char *)p, (size_t)(q - p)};
}

/* A string's bytes between its quotes. */
static bq_str inner(const bq_json *doc, bq_json_ref ref)
{
    const uint8_t *p = token(doc, ref);
    return (bq_str){(const char *)p + 1, (size_t)(string_end(doc, p) - p - 1)};
}

bq_status bq_json_text(bq_json *doc, bq_json_ref ref, bq_str *out, bq_error *err)
{
    *out = BQ_STR_NULL;
    if (bq_json_typeof(doc, ref) != BQ_JSON_STRING)
        return bq_fail(err, BQ_DATA, "not a string");
    bq_str raw = inner(doc, ref);
    if (!(doc->tape[ref].bits & BQ_TAPE_ESCAPED)) {
        *out = raw;
        return BQ_OK;
    }
    bq_status status = bq_buf_reserve(&doc->strings, doc->len);
    if (status != BQ_OK) {
        bq_buf_reset(&doc->strings); /* the next call may succeed */
        return bq_fail_nomem(err);
    }
    char *to = doc->strings.ptr + (raw.ptr - doc->text);
    bool lone = false;
    size_t len = bq_scan_unescape((const uint8_t *)raw.ptr, raw.len, to, &lone);
    if (lone)
        return bq_fail(err, BQ_DATA, "a string with an unpaired surrogate escape at byte %zu",
                       (size_t)(raw.ptr - doc->text));
    *out = (bq_str){to, len};
    return BQ_OK;
}

bool bq_json_int(const bq_json *doc, bq_json_ref ref, int64_t *out)
{
    if (bq_json_typeof(doc, ref) != BQ_JSON_NUMBER)
        return false;
    bq_str raw = bq_json_raw(doc, ref);
    return bq_scan_int64((const uint8_t *)raw.ptr, raw.len, out);
}

bool bq_json_bool(const bq_json *doc, bq_json_ref ref, bool *out)
{
    if (bq_json_typeof(doc, ref) != BQ_JSON_BOOL)
        return false;
    *out = *token(doc, ref) == 't';
    return true;
}

bool bq_json_double(const bq_json *doc, bq_json_ref ref, double *out)
{
    if (bq_json_typeof(doc, ref) != BQ_JSON_NUMBER)
        return false;
    bq_str raw = bq_json_raw(doc, ref);
    return bq_scan_double((const uint8_t *)raw.ptr, raw.len, out);
}

/* ---- containers ------------------------------------------------------------------------------------------------ */

bool bq_json_next(const bq_json *doc, bq_json_ref container, size_t *it, bq_json_ref *key, bq_json_ref *value)
{
    unsigned type = tag(doc, container);
    if (type != BQ_JSON_ARRAY && type != BQ_JSON_OBJECT)
        return false;
    size_t at = *it ? *it : container + 2;
    if (at >= doc->tape[container + 1].bits)
        return false;
    size_t child = type == BQ_JSON_OBJECT ? at + 1 : at;
    if (key)
        *key = type == BQ_JSON_OBJECT ? at : BQ_JSON_MISSING;
    *value = child;
    unsigned inside = tag(doc, child);
    *it = inside == BQ_JSON_ARRAY || inside == BQ_JSON_OBJECT ? (size_t)doc->tape[child + 1].bits + 1 : child + 1;
    return true;
}

typedef bool (*key_test)(const uint8_t *p, size_t len, bq_str name);

static bq_json_ref last_member(const bq_json *doc, bq_json_ref object, bq_str name, key_test same)
{
    bq_json_ref found = BQ_JSON_MISSING, key, value;
    if (bq_json_typeof(doc, object) != BQ_JSON_OBJECT)
        return found;
    for (size_t it = 0; bq_json_next(doc, object, &it, &key, &value);) {
        bq_str raw = inner(doc, key);
        if (same((const uint8_t *)raw.ptr, raw.len, name))
            found = value;
    }
    return found;
}

bq_json_ref bq_json_member(const bq_json *doc, bq_json_ref object, bq_str name)
{
    return last_member(doc, object, name, bq_scan_is);
}

/* RFC 6901: digits without a leading zero. */
static bq_json_ref element(const bq_json *doc, bq_json_ref array, bq_str index)
{
    int64_t wanted;
    if (index.len == 0 || !bq_is_digit((uint8_t)index.ptr[0]) || (index.ptr[0] == '0' && index.len > 1) ||
        !bq_scan_int64((const uint8_t *)index.ptr, index.len, &wanted))
        return BQ_JSON_MISSING;
    bq_json_ref value;
    for (size_t it = 0; bq_json_next(doc, array, &it, NULL, &value);) {
        if (wanted-- == 0)
            return value;
    }
    return BQ_JSON_MISSING;
}

bq_json_ref bq_json_pointer(const bq_json *doc, bq_json_ref ref, bq_str pointer)
{
    if (bq_json_typeof(doc, ref) == BQ_JSON_NONE)
        return BQ_JSON_MISSING;
    if (pointer.len == 0)
        return ref;
    const char *p = pointer.ptr, *end = p + pointer.len;
    while (p != end && ref != BQ_JSON_MISSING) {
        if (*p++ != '/')
            return BQ_JSON_MISSING;
        const char *slash = memchr(p, '/', (size_t)(end - p));
        bq_str step = {p, (size_t)((slash ? slash : end) - p)};
        p += step.len;
        if (bq_json_typeof(doc, ref) == BQ_JSON_ARRAY)
            ref = element(doc, ref, step);
        else
            ref = last_member(doc, ref, step, bq_scan_is_token);
    }
    return ref;
}
