/*
 * babelqueue/json.h - reading JSON without copying it, and writing it.
 *
 * bq_json is a tape over somebody's bytes, built only when a reader asks for more than the envelope's own members:
 * `data` by JSON Pointer, a command's input lines, an answer of a coprocess. Strict RFC 8259, 10,000 nested
 * containers, no recursion, numbers and strings kept as the bytes they are.
 */
#ifndef BABELQUEUE_JSON_H
#define BABELQUEUE_JSON_H

#include <babelqueue/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum bq_json_type {
    BQ_JSON_NONE, /* no such value */
    BQ_JSON_NULL,
    BQ_JSON_BOOL,
    BQ_JSON_NUMBER,
    BQ_JSON_STRING,
    BQ_JSON_ARRAY,
    BQ_JSON_OBJECT
} bq_json_type;

/* The document: caller-owned, reused from parse to parse (the tape's memory is kept). */
typedef struct bq_json {
    const char *text; /* borrowed: must outlive the use of the document */
    size_t len;
    struct bq_json_entry *tape;
    size_t count;
    size_t cap;
    bq_buf strings; /* unescaped strings that were asked for */
} bq_json;

/* A value: a position on the tape. BQ_JSON_ROOT is the document's; BQ_JSON_MISSING is none. */
typedef size_t bq_json_ref;
#define BQ_JSON_ROOT ((bq_json_ref)0)
#define BQ_JSON_MISSING ((bq_json_ref)-1)

BQ_API void bq_json_init(bq_json *doc);
BQ_API void bq_json_clear(bq_json *doc);
/* BQ_DATA with the offset in `err` when `text` is not exactly one JSON value in valid UTF-8. */
BQ_API bq_status bq_json_parse(bq_json *doc, bq_str text, bq_error *err) BQ_MUST_CHECK;

BQ_API bq_json_type bq_json_typeof(const bq_json *doc, bq_json_ref ref);
/* The value's bytes as received, strings with their quotes. */
BQ_API bq_str bq_json_raw(const bq_json *doc, bq_json_ref ref);
/* A string as text, escapes resolved; valid until the document is parsed again or cleared. BQ_DATA when it is no
 * string or holds an unpaired surrogate escape. */
BQ_API bq_status bq_json_text(bq_json *doc, bq_json_ref ref, bq_str *out, bq_error *err);
/* False when it is not an int64 literal / not a boolean. */
BQ_API bool bq_json_int(const bq_json *doc, bq_json_ref ref, int64_t *out);
BQ_API bool bq_json_bool(const bq_json *doc, bq_json_ref ref, bool *out);
/* Finite double; false otherwise. Locale-independent. */
BQ_API bool bq_json_double(const bq_json *doc, bq_json_ref ref, double *out);

/* The last member called `name` (compared after unescaping, case-sensitively), as the envelope's own rule. */
BQ_API bq_json_ref bq_json_member(const bq_json *doc, bq_json_ref object, bq_str name);
/* RFC 6901, from `ref`: "" is `ref` itself, "/items/0/sku". */
BQ_API bq_json_ref bq_json_pointer(const bq_json *doc, bq_json_ref ref, bq_str pointer);

/* Iterates the members of an object or the elements of an array: start with *it = 0; false at the end. `key`
 * (may be NULL) receives the member's key as a string ref, BQ_JSON_MISSING in arrays. */
BQ_API bool bq_json_next(const bq_json *doc, bq_json_ref container, size_t *it, bq_json_ref *key, bq_json_ref *value);

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* Appends `text` as a JSON string with its quotes: only `"`, `\` and U+0000-U+001F are escaped (contract section
 * 1). Bytes that are not UTF-8 become U+FFFD. */
BQ_API bq_status bq_json_add_string(bq_buf *out, bq_str text);
BQ_API bq_status bq_json_add_int(bq_buf *out, int64_t value);
/* Appends one JSON value without the white space between its tokens. `value` must be valid JSON (checked). */
BQ_API bq_status bq_json_add_compact(bq_buf *out, bq_str value, bq_error *err) BQ_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
