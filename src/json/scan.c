/*
 * json/scan.c - the scanner behind json/scan.h: tokens, a validating skipper for any value, and whole documents.
 *
 * The skipper keeps one bit per open container (object or array), 64 of them in a register and the rest spilled to a
 * fixed array on the stack, so that depth costs neither recursion nor memory.
 */
#include "json/scan.h"

#include <string.h>

#include "json/walk.h"

/* clang-format off */
#define S BQ_CLASS_STOP
#define H BQ_CLASS_HIGH
#define W (BQ_CLASS_SPACE | BQ_CLASS_STOP)
#define B BQ_CLASS_SPACE
#define D BQ_CLASS_DIGIT
#define M BQ_CLASS_MINUS
#define F BQ_CLASS_FRACTION
#define X BQ_CLASS_ESCAPE
#define H16 H, H, H, H, H, H, H, H, H, H, H, H, H, H, H, H
const uint8_t bq_scan_class[256] = {
    S, S, S, S, S, S, S, S, S, W, W, S, S, W, S, S,     /* 00: TAB, LF, CR */
    S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S,     /* 10 */
    B, 0, S | X, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, M, F, X, /* 20: space " - . / */
    D, D, D, D, D, D, D, D, D, D, 0, 0, 0, 0, 0, 0,     /* 30 */
    0, 0, 0, 0, 0, F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,     /* 40: E */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, S | X, 0, 0, 0, /* 50: \ */
    0, 0, X, 0, 0, F, X, 0, 0, 0, 0, 0, 0, 0, X, 0,     /* 60: b e f n */
    0, 0, X, 0, X, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,     /* 70: r t */
    H16, H16, H16, H16, H16, H16, H16, H16,
};
#undef S
#undef H
#undef W
#undef B
#undef D
#undef M
#undef F
#undef X
#undef H16
#define N10 N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N
#define N -1
const int8_t bq_scan_hex[256] = {
    N10, N10, N10,
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, N, N, N, N, N, N,
    N, 10, 11, 12, 13, 14, 15, N, N, N, N, N, N, N, N, N, N10,
    N, 10, 11, 12, 13, 14, 15, N, N, N, N, N, N, N, N, N, N10,
    N10, N10, N10, N10, N10, N10, N10, N10,
};
#undef N10
#undef N
/* clang-format on */

const uint8_t *bq_scan_fault(bq_scan *s, const uint8_t *at, const char *reason)
{
    s->fault = at;
    s->reason = reason;
    return NULL;
}

/* ---- strings ------------------------------------------------------------------------------------------------- */

/* Four hex digits, or -1. Stops at the first byte that is none, so the sentinel bounds it. */
static inline int hex4(const uint8_t *p)
{
    int a = bq_scan_hex[p[0]], b, c, d;
    if (a < 0 || (b = bq_scan_hex[p[1]]) < 0 || (c = bq_scan_hex[p[2]]) < 0 || (d = bq_scan_hex[p[3]]) < 0)
        return -1;
    return a << 12 | b << 8 | c << 4 | d;
}

/* A run of \u escapes, from the first backslash on. */
static const uint8_t *scan_unicode_escapes(bq_scan *s, const uint8_t *p)
{
    do {
        int unit = hex4(p + 2);
        if (unit < 0)
            return bq_scan_fault(s, p, "a \\u escape without four hexadecimal digits");
        p += 6;
        if (BQ_LIKELY((unit & 0xF800) != 0xD800))
            continue;
        if (unit < 0xDC00 && p != s->end && p[0] == '\\' && p[1] == 'u' && (hex4(p + 2) & 0xFC00) == 0xDC00)
            p += 6;
        else
            s->seen |= BQ_SCAN_LONE; /* what follows is judged by itself */
    } while (p != s->end && p[0] == '\\' && p[1] == 'u');
    return p;
}

#if BQ_VEC

/* High bits: what may follow a backslash, `u` left out. */
static inline bq_vec simple_escapes(bq_vec v)
{
    bq_vec bf = bq_vec_equal(bq_vec_or(v, bq_vec_of(4)), bq_vec_of('f'));
    bq_vec br = bq_vec_equal(bq_vec_or(v, bq_vec_of(16)), bq_vec_of('r'));
    bq_vec nt = bq_vec_or(bq_vec_equal(v, bq_vec_of('n')), bq_vec_equal(v, bq_vec_of('t')));
    bq_vec marks = bq_vec_or(bq_vec_equal(v, bq_vec_of('"')), bq_vec_equal(v, bq_vec_of('/')));
    return bq_vec_or(bq_vec_or(bf, br), bq_vec_or(bq_vec_or(nt, marks), bq_vec_equal(v, bq_vec_of('\\'))));
}

/* The lanes that a backslash escapes. `first` says whether lane 0 is one, and afterwards whether the block behind
 * this one begins with one. A run of backslashes escapes every second byte from its second on; adding the runs that
 * begin on an odd lane to the backslashes carries through each of them, which tells the two kinds of lanes apart. */
static inline unsigned escaped_lanes(unsigned slashes, unsigned *first)
{
    const unsigned even = 0x5555;
    slashes &= ~*first;
    unsigned follows = slashes << 1 | *first;
    unsigned odd_starts = slashes & ~even & ~follows;
    unsigned carried = odd_starts + slashes;
    *first = carried >> 16;
    return (even ^ carried << 1) & follows & 0xFFFF;
}

/* A string with escapes, 16 bytes at a time and without a branch per escape. Returns where the careful loop goes on:
 * the closing quote, something that is wrong, or a place near the end. */
static const uint8_t *scan_blocks(bq_scan *s, const uint8_t *p)
{
    const uint8_t *const end = s->end;
    bq_highs highs = BQ_HIGHS_NONE;
    unsigned first = 0;
    while (end - p > 16) {
        bq_vec v = bq_vec_load(p);
        unsigned escaped = first;
        unsigned stops = bq_vec_bits(bq_vec_stops(v)), slashes = bq_vec_bits(bq_vec_equal(v, bq_vec_of('\\')));
        highs = bq_vec_or(highs, v);
        if (slashes)
            escaped = escaped_lanes(slashes, &first);
        else
            first = 0;
        /* What stops: a quote or control character that is not escaped, an escaped byte that is no simple escape. */
        stops = (stops & ~slashes & ~escaped) | (escaped & ~bq_vec_bits(simple_escapes(v)));
        if (BQ_LIKELY(!stops)) {
            p += 16;
            continue;
        }
        unsigned i = (unsigned)__builtin_ctz(stops);
        p += i;
        first = 0;
        if (!(escaped >> i & 1))
            break;
        p--;
        if (p[1] != 'u' || !(p = scan_unicode_escapes(s, p)))
            break;
    }
    if (bq_highs_any(highs))
        s->seen |= BQ_SCAN_HIGH;
    return p ? p - first : NULL; /* back to a backslash whose other half comes later */
}
#endif

const uint8_t *bq_walk_rest(bq_scan *s, const uint8_t *p, bool *escaped)
{
    unsigned highs = 0;
#if BQ_VEC
    if (p != s->end && *p == '\\') {
        *escaped = true;
        p = scan_blocks(s, p);
        if (!p)
            return NULL;
    }
#endif
    for (;;) {
        while (p != s->end && !(bq_scan_class[*p] & BQ_CLASS_STOP))
            highs |= *p++;
        if (p == s->end)
            return bq_scan_fault(s, p, "a string that does not end");
        if (*p == '"')
            break;
        if (*p != '\\')
            return bq_scan_fault(s, p, "a raw control character in a string");
        *escaped = true;
        if (bq_scan_class[p[1]] & BQ_CLASS_ESCAPE)
            p += 2;
        else if (p[1] != 'u')
            return bq_scan_fault(s, p, "an unknown escape in a string");
        else if (!(p = scan_unicode_escapes(s, p)))
            return NULL;
    }
    if (highs & 0x80)
        s->seen |= BQ_SCAN_HIGH;
    return p;
}

const uint8_t *bq_walk_blanks(const uint8_t *p, const uint8_t *safe)
{
    /* A line end and its indentation. The same few lengths come again and again: as with names, a jump for each. */
    if (*p == '\r') {
        p++;
        BQ_FORGET(p);
    }
    if (*p == '\n') {
        p++;
        BQ_FORGET(p);
    }
#if BQ_VEC
#define CASE(i)                                                                                                        \
    case i:                                                                                                            \
        p += (i);                                                                                                      \
        BQ_FORGET(p);                                                                                                  \
        goto stop;
    for (; p < safe; p += 16) {
        bq_vec others = bq_vec_without(bq_vec_of(0x80), bq_vec_equal(bq_vec_load(p), bq_vec_of(' ')));
        bq_vec_mask mask = bq_vec_high(others);
        if (BQ_LIKELY(mask)) {
            switch (bq_vec_first(mask)) {
                BQ_SIXTEEN(CASE)
            default: __builtin_unreachable();
            }
        }
    }
stop:
#undef CASE
#else
    (void)safe;
#endif
    BQ_FORGET(p);
    return *p > ' ' ? p : bq_scan_space(p);
}

const uint8_t *bq_walk_colon(bq_scan *s, const uint8_t *p)
{
    p = bq_scan_space(p);
    if (*p != ':')
        return bq_scan_fault(s, p, "a member name without a colon");
    return p + 1;
}

const uint8_t *bq_scan_string(bq_scan *s, const uint8_t *p, bool *escaped)
{
    bq_highs highs = BQ_HIGHS_NONE;
    p = bq_walk_string(s, p, bq_walk_safe(p, s->end), &highs, escaped);
    if (bq_highs_any(highs))
        s->seen |= BQ_SCAN_HIGH;
    return p;
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static const uint8_t *digits_end(const uint8_t *p)
{
    while (bq_is_digit(*p))
        p++;
    return p;
}

const uint8_t *bq_walk_long_number(bq_scan *s, const uint8_t *p, bool finite, bool *integer)
{
    const uint8_t *start = p;
    bool exponent = false;
    *integer = true;
    if (*p == '-' && !bq_is_digit(*++p))
        return bq_scan_fault(s, p, "a minus sign without a digit");
    if (*p == '0' && bq_is_digit(p[1]))
        return bq_scan_fault(s, p, "a number with a leading zero");
    p = digits_end(p);
    if (*p == '.') {
        *integer = false;
        if (!bq_is_digit(*++p))
            return bq_scan_fault(s, p, "a decimal point without a digit");
        p = digits_end(p);
    }
    if (*p == 'e' || *p == 'E') {
        exponent = true;
        *integer = false;
        p++;
        if (*p == '+' || *p == '-')
            p++;
        if (!bq_is_digit(*p))
            return bq_scan_fault(s, p, "an exponent without a digit");
        p = digits_end(p);
    }
    /* Up to 308 characters without an exponent are below 10^308. */
    if (finite && (exponent || p - start > 308) && !bq_scan_finite(start, (size_t)(p - start)))
        s->seen |= BQ_SCAN_NONFINITE;
    return p;
}

const uint8_t *bq_scan_number(bq_scan *s, const uint8_t *p, bool *integer)
{
    return bq_walk_long_number(s, p, false, integer);
}

const uint8_t *bq_walk_short_literal(bq_scan *s, const uint8_t *p)
{
    static const char *const WORDS[] = {"null", "true", "false"};
    size_t left = (size_t)(s->end - p);
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        size_t n = strlen(WORDS[i]);
        if (left >= n && memcmp(p, WORDS[i], n) == 0)
            return p + n;
    }
    return bq_scan_fault(s, p, "a byte that begins no value");
}

/* ---- any value ------------------------------------------------------------------------------------------------- */

const uint8_t *bq_scan_value(bq_scan *s, const uint8_t *p, unsigned depth, bool finite)
{
    return finite ? bq_walk_value(s, p, depth, true, NULL) : bq_walk_value(s, p, depth, false, NULL);
}

/* ---- documents ------------------------------------------------------------------------------------------------- */

static const uint8_t *bare_digits(const uint8_t *p, const uint8_t *end)
{
    while (p < end && bq_is_digit(*p))
        p++;
    return p;
}

/* A number that is the whole document: no sentinel stands behind it, so every step asks for the end. */
static const uint8_t *scan_bare_number(bq_scan *s, const uint8_t *p)
{
    const uint8_t *end = s->end, *q;
    p += *p == '-';
    q = bare_digits(p, end);
    if (q == p)
        return bq_scan_fault(s, p, "a minus sign without a digit");
    if (*p == '0' && q - p > 1)
        return bq_scan_fault(s, p + 1, "a number with a leading zero");
    p = q;
    if (p < end && *p == '.') {
        q = bare_digits(++p, end);
        if (q == p)
            return bq_scan_fault(s, p, "a decimal point without a digit");
        p = q;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        q = bare_digits(p, end);
        if (q == p)
            return bq_scan_fault(s, p, "an exponent without a digit");
        p = q;
    }
    return p;
}

/* A number or literal that is the whole document. */
static const uint8_t *scan_bare(bq_scan *s, const uint8_t *p, bool finite)
{
    size_t len = (size_t)(s->end - p);
    if (*p == '-' || bq_is_digit(*p)) {
        const uint8_t *q = scan_bare_number(s, p);
        if (finite && q && !bq_scan_finite(p, (size_t)(q - p)))
            s->seen |= BQ_SCAN_NONFINITE;
        return q;
    }
    static const char BOM[] = "\xEF\xBB\xBF";
    if (len >= 3 && memcmp(p, BOM, 3) == 0)
        return bq_scan_fault(s, p, "a byte order mark before the value");
    return bq_walk_short_literal(s, p);
}

static const uint8_t *scan_any(bq_scan *s, const uint8_t *p, bool finite, bq_tape *tape)
{
    return tape ? bq_scan_tape(s, p, tape) : bq_scan_value(s, p, 0, finite);
}

/* An object or array that is the whole document. When the last byte is no sentinel the document is wrong for sure;
 * scanning up to the last byte that is one tells where. */
static const uint8_t *scan_container(bq_scan *s, const uint8_t *p, bool finite, bq_tape *tape)
{
    const uint8_t *end = s->end, *last = end;
    while (last > p && last[-1] != '}' && last[-1] != ']')
        last--;
    if (last == p)
        return bq_scan_fault(s, end, "the body ends inside a container");
    s->end = last;
    const uint8_t *q = scan_any(s, p, finite, tape);
    s->end = end;
    if (!q && s->fault == last && last != end)
        s->fault = end;
    return q;
}

static const uint8_t *scan_root(bq_scan *s, const uint8_t *p, bool finite, bq_tape *tape)
{
    if (*p == '{' || *p == '[')
        return scan_container(s, p, finite, tape);
    if (*p == '"')
        return s->end[-1] == '"' ? scan_any(s, p, finite, tape)
                                 : bq_scan_fault(s, s->end, "a string that does not end");
    if (tape && !bq_tape_put(tape, bq_tape_type(*p), p, false))
        return bq_scan_fault(s, p, "out of memory");
    return scan_bare(s, p, finite);
}

static bool scan_document(bq_scanned *out, const uint8_t *base, size_t len, bool finite, bq_tape *tape)
{
    const uint8_t *p = base, *end = base + len, *q;
    bq_scan s = {NULL, NULL, "", 0};
    while (end > p && (bq_scan_class[end[-1]] & BQ_CLASS_SPACE))
        end--;
    while (p < end && (bq_scan_class[*p] & BQ_CLASS_SPACE))
        p++;
    s.end = end;
    if (p == end)
        q = bq_scan_fault(&s, p, len ? "nothing but white space" : "empty");
    else
        q = scan_root(&s, p, finite, tape);
    if (q && q != end)
        q = bq_scan_fault(&s, bq_scan_space(q), "trailing bytes after the value");
    *out = (bq_scanned){q != NULL, false, s.seen, (size_t)(p - base), (size_t)(end - p), 0, s.reason};
    if (!q)
        out->fault = (size_t)(s.fault - base);
    if (!q || (s.seen & BQ_SCAN_HIGH)) {
        size_t bad = bq_scan_utf8(base, len);
        if (bad != len) {
            out->ok = false;
            out->bad_utf8 = true;
            out->fault = bad;
            out->reason = "not valid UTF-8";
        }
    }
    return out->ok;
}

bool bq_scan_document(bq_scanned *out, const void *text, size_t len, bool finite)
{
    return scan_document(out, text ? text : "", len, finite, NULL);
}

bool bq_scan_document_tape(bq_scanned *out, const void *text, size_t len, bq_tape *tape)
{
    return scan_document(out, text ? text : "", len, false, tape);
}

/* ---- tokens that were already judged --------------------------------------------------------------------------- */

/* One code point in UTF-8; returns its length. */
static size_t put_utf8(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* The escape at p (a backslash) of a valid string that ends at `end`: its code point, and how many bytes it takes.
 * An unpaired surrogate gives U+FFFD and sets `lone`. */
static uint32_t read_escape(const uint8_t *p, const uint8_t *end, size_t *used, bool *lone)
{
    *used = 2;
    switch (p[1]) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return p[1];
    }
    *used = 6;
    uint32_t unit = (uint32_t)hex4(p + 2);
    if ((unit & 0xF800) != 0xD800)
        return unit;
    if (unit < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
        uint32_t low = (uint32_t)hex4(p + 8);
        if ((low & 0xFC00) == 0xDC00) {
            *used = 12;
            return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    *lone = true;
    return 0xFFFD;
}

size_t bq_scan_unescape(const uint8_t *p, size_t len, char *out, bool *lone)
{
    const uint8_t *end = p + len;
    size_t n = 0;
    bool unpaired = false;
    while (p < end) {
        const uint8_t *stop = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((stop ? stop : end) - p);
        memcpy(out + n, p, plain);
        n += plain;
        p += plain;
        while (p < end && *p == '\\') {
            size_t used;
            n += put_utf8(read_escape(p, end, &used, &unpaired), out + n);
            p += used;
        }
    }
    if (unpaired && lone)
        *lone = true;
    return n;
}

static bool is_name(const uint8_t *p, size_t len, bq_str name, bool pointer)
{
    const uint8_t *end = p + len;
    size_t n = 0;
    while (p < end) {
        char unit[4];
        size_t used = 1, units = 1;
        unit[0] = (char)*p;
        if (*p == '\\') {
            bool lone = false;
            units = put_utf8(read_escape(p, end, &used, &lone), unit);
            if (lone)
                return false; /* no text at all */
        }
        if (pointer && (unit[0] == '~' || unit[0] == '/')) {
            unit[1] = unit[0] == '~' ? '0' : '1';
            unit[0] = '~';
            units = 2;
        }
        if (units > name.len - n || memcmp(unit, name.ptr + n, units) != 0)
            return false;
        n += units;
        p += used;
    }
    return n == name.len;
}

bool bq_scan_is(const uint8_t *p, size_t len, bq_str name)
{
    return is_name(p, len, name, false);
}

bool bq_scan_is_token(const uint8_t *p, size_t len, bq_str token)
{
    return is_name(p, len, token, true);
}

void bq_members_start(bq_members *it, const void *body, size_t len, size_t object)
{
    it->base = body;
    it->s = (bq_scan){it->base + len, NULL, "", 0};
    it->p = bq_scan_space(it->base + object + 1);
}

bool bq_members_next(bq_members *it, bq_member *out)
{
    const uint8_t *p = it->p;
    if (*p == '}')
        return false;
    if (*p == ',')
        p = bq_scan_space(p + 1);
    bool escaped = false;
    const uint8_t *quote = bq_scan_string(&it->s, p + 1, &escaped);
    const uint8_t *value = bq_scan_space(bq_scan_space(quote + 1) + 1);
    const uint8_t *after = bq_scan_value(&it->s, value, 0, false);
    out->off = (size_t)(p - it->base);
    out->key = out->off + 1;
    out->key_len = (size_t)(quote - (p + 1));
    out->value = (size_t)(value - it->base);
    out->value_len = (size_t)(after - value);
    it->p = bq_scan_space(after);
    return true;
}

size_t bq_members_end(const bq_members *it)
{
    return (size_t)(it->p - it->base);
}
