/*
 * json/scan.h - strict RFC 8259 scanning over somebody's bytes: what the envelope's decoder, the tape, the writer and
 * the rewrites share. Nothing recurses or reads past the end of the buffer, and nothing but a tape allocates.
 *
 * The trick that keeps bounds checks out of the inner loops is a sentinel. White space behind the document is cut
 * off, and its last byte must then be the `}` or `]` that closes it (or, when the document is one string, its `"`).
 * Numbers, literals, escapes and the gaps between tokens stop at such a byte by themselves, so only two places ask
 * where the end is: the body of a string, which may hold any byte, and the byte behind a closing bracket.
 *
 * UTF-8 is not checked on the way. A string that holds a byte above 0x7F sets BQ_SCAN_HIGH, and whoever scans
 * validates everything once at the end (outside of strings such a byte is a syntax error anyway).
 *
 * Thread rule: pure functions over the caller's state.
 */
#ifndef BQ_JSON_SCAN_H
#define BQ_JSON_SCAN_H

#include <babelqueue/types.h>

#define BQ_JSON_DEPTH 10000 /* nested containers that pass (contract 2) */

/* What scanning saw. */
enum {
    BQ_SCAN_HIGH = 1 << 0,      /* a byte above 0x7F in a string */
    BQ_SCAN_LONE = 1 << 1,      /* an unpaired surrogate escape */
    BQ_SCAN_NONFINITE = 1 << 2, /* a number that is no finite double, where the caller asked to look */
};

typedef struct bq_scan {
    const uint8_t *end;   /* behind the last byte, which is the sentinel */
    const uint8_t *fault; /* where it went wrong */
    const char *reason;   /* and how: static English text */
    unsigned seen;        /* BQ_SCAN_* */
} bq_scan;

/* ---- tokens: `p` stands on the first byte; they return what follows the token, NULL at a fault ------------------ */

extern const uint8_t bq_scan_class[256];
extern const int8_t bq_scan_hex[256]; /* -1: no hexadecimal digit */
enum {
    BQ_CLASS_STOP = 1 << 0,  /* ends plain text in a string: `"`, `\` and U+0000-U+001F */
    BQ_CLASS_HIGH = 1 << 1,  /* above 0x7F */
    BQ_CLASS_SPACE = 1 << 2, /* JSON's white space: space, TAB, LF, CR */
    BQ_CLASS_DIGIT = 1 << 3,
    BQ_CLASS_MINUS = 1 << 4,
    BQ_CLASS_FRACTION = 1 << 5, /* `.`, `e`, `E`: the number is no integer */
    BQ_CLASS_ESCAPE = 1 << 6,   /* what may follow a backslash, `u` left out */
};

static inline bool bq_is_digit(uint8_t c)
{
    return (uint8_t)(c - '0') < 10;
}

static inline const uint8_t *bq_scan_space(const uint8_t *p)
{
    while (bq_scan_class[*p] & BQ_CLASS_SPACE)
        p++;
    return p;
}

/* Notes the fault; always NULL. */
const uint8_t *bq_scan_fault(bq_scan *s, const uint8_t *at, const char *reason);

/* A string from behind its opening quote; returns its closing quote. `escaped` is set when it holds an escape. */
const uint8_t *bq_scan_string(bq_scan *s, const uint8_t *p, bool *escaped);

/* A number; `integer` says whether it has neither fraction nor exponent. */
const uint8_t *bq_scan_number(bq_scan *s, const uint8_t *p, bool *integer);

/* Any value that lies inside `depth` containers. With `finite` its numbers are checked for BQ_SCAN_NONFINITE. */
const uint8_t *bq_scan_value(bq_scan *s, const uint8_t *p, unsigned depth, bool finite);

/* ---- a whole document ------------------------------------------------------------------------------------------ */

typedef struct bq_scanned {
    bool ok;
    bool bad_utf8; /* not ok because of its bytes */
    unsigned seen; /* BQ_SCAN_* */
    size_t off;    /* the value's first byte and length, white space around it left out */
    size_t len;
    size_t fault;       /* offset of the fault */
    const char *reason; /* "" when ok */
} bq_scanned;

/* Judges `text`: exactly one JSON value in valid UTF-8. `finite` as above. */
bool bq_scan_document(bq_scanned *out, const void *text, size_t len, bool finite);

/* The same for a document that gets a tape (tape.c). */
struct bq_tape;
bool bq_scan_document_tape(bq_scanned *out, const void *text, size_t len, struct bq_tape *tape);
const uint8_t *bq_scan_tape(bq_scan *s, const uint8_t *p, struct bq_tape *tape);

/* Offset of the first byte that is no valid UTF-8, or len; quick when there is none. */
size_t bq_scan_utf8(const void *text, size_t len);

/* ---- tokens that were already judged ------------------------------------------------------------------------- */

/* True when the integer literal at `p` fits an int64, which is then in `out` (NULL: only asked). */
bool bq_scan_int64(const uint8_t *p, size_t len, int64_t *out);
/* True when the number literal at `p` is a finite double, by its digits alone. */
bool bq_scan_finite(const uint8_t *p, size_t len);
/* The double nearest to the number literal at `p`; false when that is infinite. */
bool bq_scan_double(const uint8_t *p, size_t len, double *out);
/* Resolves the escapes of a valid string's inner bytes into `out`, which needs `len` bytes; returns the length.
 * Unpaired surrogate escapes become U+FFFD, and `lone` (may be NULL) is set. */
size_t bq_scan_unescape(const uint8_t *p, size_t len, char *out, bool *lone);
/* True when the valid string's inner bytes, escapes resolved, are `name`. */
bool bq_scan_is(const uint8_t *p, size_t len, bq_str name);
/* The same for a token of a JSON Pointer, where ~ is written ~0 and / ~1. */
bool bq_scan_is_token(const uint8_t *p, size_t len, bq_str token);

/* Walks the members of a valid object, in order, without a tape: for rewriting it. */
typedef struct bq_member {
    size_t off; /* the key's opening quote */
    size_t key; /* the key's inner bytes */
    size_t key_len;
    size_t value; /* the value's first byte */
    size_t value_len;
} bq_member;

typedef struct bq_members {
    const uint8_t *base;
    const uint8_t *p;
    bq_scan s;
} bq_members;

/* `object` is the offset of a `{` in a body that was judged valid. */
void bq_members_start(bq_members *it, const void *body, size_t len, size_t object);
/* False behind the last member. */
bool bq_members_next(bq_members *it, bq_member *out);
/* Offset of the object's closing brace, after bq_members_next returned false. */
size_t bq_members_end(const bq_members *it);

#endif
