/*
 * json/walk.h - the grammar, once, for every reader that walks any value: the validating skipper (scan.c) and the
 * tape's builder (tape.c) are the same code with and without a tape. The inline tokens are also what the envelope's
 * decoder reads its own members with.
 *
 * How it is fast: a modern processor is not busy with the bytes but waits, for the end of one token before it can begin
 * the next, or for a branch that it guessed wrongly. So what ends predictably (names, numbers, indentation) ends in
 * branches, whose outcome the processor guesses and goes on; what does not (values of strings) is searched 16 bytes at
 * a time and its end computed. Objects and arrays have separate code for their values, which gives the predictor the
 * context that it needs. docs/decisions.md says what else was tried; bench/run-codec measures.
 */
#ifndef BQ_JSON_WALK_H
#define BQ_JSON_WALK_H

#include <string.h>

#include "json/scan.h"
#include "json/tape.h"
#include "json/vec.h"

/* Collects whether a string held a byte above 0x7F. */
#if BQ_VEC
typedef bq_vec bq_highs;
#define BQ_HIGHS_NONE bq_vec_of(0)
#define bq_highs_any(h) (bq_vec_high(h) != 0)
#else
typedef unsigned bq_highs;
#define BQ_HIGHS_NONE 0
#define bq_highs_any(h) (((h)&0x80) != 0)
#endif

/* Makes the compiler forget what it knows of *p. Without it, gcc keeps the byte that ended an unrolled loop, and its
 * class, in registers, which doubles the instructions of every step that did not end it. */
#define BQ_FORGET(p) __asm__ volatile("" : "+r"(p))

/* Before this point a token may be read SAFE bytes ahead. A pointer, so that asking costs one comparison. */
enum { BQ_WALK_SAFE = 32 };
BQ_INLINE const uint8_t *bq_walk_safe(const uint8_t *p, const uint8_t *end)
{
    return end - p > BQ_WALK_SAFE ? end - BQ_WALK_SAFE : p;
}

/* What the inline code leaves: the rest of a string, wherever plain text ended; a number, from its start; what has to
 * be there around white space. */
const uint8_t *bq_walk_rest(bq_scan *s, const uint8_t *p, bool *escaped);
const uint8_t *bq_walk_long_number(bq_scan *s, const uint8_t *p, bool finite, bool *integer);
const uint8_t *bq_walk_short_literal(bq_scan *s, const uint8_t *p);
const uint8_t *bq_walk_colon(bq_scan *s, const uint8_t *p);
const uint8_t *bq_walk_blanks(const uint8_t *p, const uint8_t *safe);

/* From behind the opening quote to the closing one; NULL at a fault. */
BQ_INLINE const uint8_t *bq_walk_string(bq_scan *s, const uint8_t *p, const uint8_t *safe, bq_highs *highs,
                                        bool *escaped)
{
#if BQ_VEC
    while (BQ_LIKELY(p < safe)) {
        bq_vec v = bq_vec_load(p);
        bq_vec_mask mask = bq_vec_high(bq_vec_stops(v));
        *highs = bq_vec_or(*highs, v);
        if (mask) {
            p += bq_vec_first(mask);
            if (BQ_LIKELY(*p == '"'))
                return p;
            break;
        }
        p += 16;
    }
#else
    (void)safe;
    (void)highs;
#endif
    return bq_walk_rest(s, p, escaped);
}

/* Sixteen times over, as cases of a switch or steps of a loop. */
#define BQ_SIXTEEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

/* The same for a name, which is short and one of few: its length is turned into a jump, which the processor predicts,
 * so that what follows need not wait until the length is known. (For values that would be wrong: their lengths are
 * hard to predict, and a wrong guess costs more than the wait.) */
BQ_INLINE const uint8_t *bq_walk_key(bq_scan *s, const uint8_t *p, const uint8_t *safe, bq_highs *highs, bool *escaped)
{
    while (BQ_LIKELY(p < safe)) {
#if BQ_VEC
        bq_vec v = bq_vec_load(p);
        bq_vec_mask mask = bq_vec_high(bq_vec_stops(v));
        *highs = bq_vec_or(*highs, v);
#define CASE(i)                                                                                                        \
    case i:                                                                                                            \
        p += (i);                                                                                                      \
        BQ_FORGET(p);                                                                                                  \
        goto stop;
        if (BQ_LIKELY(mask)) {
            switch (bq_vec_first(mask)) {
                BQ_SIXTEEN(CASE)
            default: __builtin_unreachable();
            }
        }
#undef CASE
#else
#define STEP(i)                                                                                                        \
    if (bq_scan_class[p[i]] & (BQ_CLASS_STOP | BQ_CLASS_HIGH)) {                                                       \
        p += (i);                                                                                                      \
        goto stop;                                                                                                     \
    }
        BQ_SIXTEEN(STEP)
#undef STEP
#endif
        p += 16;
    }
    return bq_walk_rest(s, p, escaped);
stop:
    BQ_FORGET(p);
    if (BQ_LIKELY(*p == '"'))
        return p;
#if !BQ_VEC
    (void)highs;
#endif
    return bq_walk_rest(s, p, escaped);
}

/* Digits from `p` on, which is one; `otherwise` when there are more than fifteen. */
#define BQ_WALK_DIGITS(p, otherwise)                                                                                   \
    do {                                                                                                               \
        BQ_FIFTEEN(BQ_WALK_DIGIT, p)                                                                                   \
        otherwise;                                                                                                     \
    } while (0);                                                                                                       \
    BQ_FORGET(p)
#define BQ_WALK_DIGIT(i, p)                                                                                            \
    if (!(bq_scan_class[(p)[i]] & BQ_CLASS_DIGIT)) {                                                                   \
        (p) += (i);                                                                                                    \
        break;                                                                                                         \
    }
#define BQ_FIFTEEN(X, p)                                                                                               \
    X(1, p)                                                                                                            \
    X(2, p)                                                                                                            \
    X(3, p) X(4, p) X(5, p) X(6, p) X(7, p) X(8, p) X(9, p) X(10, p) X(11, p) X(12, p) X(13, p) X(14, p) X(15, p)

/* A number whose first byte is a digit or a minus sign. */
BQ_INLINE const uint8_t *bq_walk_number(bq_scan *s, const uint8_t *start, const uint8_t *safe, bool finite,
                                        bool *integer)
{
    const uint8_t *p = start + (*start == '-');
    if (BQ_UNLIKELY(p >= safe))
        goto other;
    if (BQ_LIKELY((uint8_t)(*p - '1') < 9)) {
        BQ_WALK_DIGITS(p, goto other);
    } else if (*p++ != '0') {
        goto other;
    }
    if (!(bq_scan_class[*p] & (BQ_CLASS_DIGIT | BQ_CLASS_FRACTION))) {
        *integer = true;
        return p;
    }
    if (BQ_LIKELY(*p == '.' && bq_is_digit(p[1]))) {
        p++;
        BQ_WALK_DIGITS(p, goto other);
        if (BQ_LIKELY(!(bq_scan_class[*p] & BQ_CLASS_FRACTION))) {
            *integer = false;
            return p;
        }
    }
other:
    return bq_walk_long_number(s, start, finite, integer);
}

/* true, false, null. */
BQ_INLINE const uint8_t *bq_walk_literal(bq_scan *s, const uint8_t *p, const uint8_t *safe)
{
    if (BQ_LIKELY(p < safe)) {
        if (memcmp(p, "true", 4) == 0 || memcmp(p, "null", 4) == 0)
            return p + 4;
        if (memcmp(p, "false", 5) == 0)
            return p + 5;
    }
    return bq_walk_short_literal(s, p);
}

/* A number or literal. */
BQ_INLINE const uint8_t *bq_walk_bare(bq_scan *s, const uint8_t *p, const uint8_t *safe, bool finite)
{
    bool integer;
    if (bq_scan_class[*p] & (BQ_CLASS_DIGIT | BQ_CLASS_MINUS))
        return bq_walk_number(s, p, safe, finite, &integer);
    return bq_walk_literal(s, p, safe);
}

/* The grammar. With a tape (a constant NULL or not at each of its two uses) every token is put on it. */
BQ_INLINE const uint8_t *bq_walk_value(bq_scan *s, const uint8_t *p, unsigned depth, bool finite, bq_tape *tape)
{
    const uint8_t *const safe = bq_walk_safe(p, s->end);
    uint64_t spilled[BQ_JSON_DEPTH / 64 + 1], bits = 0; /* a bit per open container, 1: object */
    unsigned level = 0;
    const unsigned limit = BQ_JSON_DEPTH - depth;
    bq_highs highs = BQ_HIGHS_NONE;
    bool flag = false;
    const uint8_t *start;

/* On the tape: a number or literal at p; a string or name from behind its opening quote. */
#define PUT(type)                                                                                                      \
    do {                                                                                                               \
        if (tape && !bq_tape_put(tape, type, p, false))                                                                \
            return bq_scan_fault(s, p, "out of memory");                                                               \
    } while (0)
#define PUT_STRING(start)                                                                                              \
    do {                                                                                                               \
        if (tape && !bq_tape_put(tape, BQ_JSON_STRING, (start)-1, flag))                                               \
            return bq_scan_fault(s, p, "out of memory");                                                               \
        flag = false;                                                                                                  \
    } while (0)

    if (*p == '{')
        goto object;
    if (*p == '[')
        goto array;
    if (*p != '"') {
        PUT(bq_tape_type(*p));
        return bq_walk_bare(s, p, safe, finite);
    }
    start = ++p;
    p = bq_walk_string(s, p, safe, &highs, &flag);
    if (!p)
        return NULL;
    PUT_STRING(start);
    p++;
    goto done;

#define OPEN(object)                                                                                                   \
    do {                                                                                                               \
        if (BQ_UNLIKELY(level == limit))                                                                               \
            return bq_scan_fault(s, p, "more than 10000 nested containers");                                           \
        bits = bits << 1 | (object);                                                                                   \
        if (BQ_UNLIKELY(++level % 64 == 0))                                                                            \
            spilled[level / 64 - 1] = bits;                                                                            \
        if (tape && !bq_tape_open(tape, (object) ? BQ_JSON_OBJECT : BQ_JSON_ARRAY, p))                                 \
            return bq_scan_fault(s, p, "out of memory");                                                               \
    } while (0)

object:
    OPEN(1);
    p++;
    if (BQ_UNLIKELY(*p != '"')) {
        p = bq_walk_blanks(p, safe);
        if (*p == '}')
            goto close;
        if (*p != '"')
            return bq_scan_fault(s, p, "an object member without a name");
    }
    p++;
member: /* behind the opening quote of a name */
    start = p;
    p = bq_walk_key(s, p, safe, &highs, &flag);
    if (BQ_UNLIKELY(!p))
        return NULL;
    PUT_STRING(start);
    if (BQ_LIKELY(memcmp(p, "\":", 2) == 0)) {
        p += 2;
        if (BQ_UNLIKELY(*p == ' ')) {
            p++;
            BQ_FORGET(p);
        }
    } else {
        p = bq_walk_colon(s, p + 1);
        if (!p)
            return NULL;
    }
member_value:
    if (*p == '"') {
        start = p + 1;
        p = bq_walk_string(s, start, safe, &highs, &flag);
        if (BQ_UNLIKELY(!p))
            return NULL;
        PUT_STRING(start);
        if (BQ_LIKELY(memcmp(p, "\",", 2) == 0 && p[2] == '"')) {
            p += 3;
            goto member;
        }
        p++;
    } else if (*p == '{') {
        goto object;
    } else if (*p == '[') {
        goto array;
    } else {
        if (BQ_UNLIKELY(*p <= ' ')) {
            p = bq_walk_blanks(p, safe);
            if (*p > ' ')
                goto member_value;
        }
        PUT(bq_tape_type(*p));
        p = bq_walk_bare(s, p, safe, finite);
        if (BQ_UNLIKELY(!p))
            return NULL;
    }
after_member:
    if (BQ_LIKELY(*p == ',')) {
        if (BQ_LIKELY(p[1] == '"')) {
            p += 2;
            goto member;
        }
        if (p[1] == ' ' && p[2] == '"') {
            p += 3;
            BQ_FORGET(p);
            goto member;
        }
        p = bq_walk_blanks(p + 1, safe);
        if (BQ_LIKELY(*p++ == '"'))
            goto member;
        return bq_scan_fault(s, p - 1, "an object member without a name");
    }
    if (BQ_LIKELY(*p == '}'))
        goto close;
    if (bq_scan_class[*p] & BQ_CLASS_SPACE) {
        p = bq_walk_blanks(p, safe);
        goto after_member;
    }
    return bq_scan_fault(s, p, "neither a comma nor a closing brace after a member");

array:
    OPEN(0);
    p++;
    if (BQ_UNLIKELY(*p <= ' '))
        p = bq_walk_blanks(p, safe);
    if (*p == ']')
        goto close;
element:
    if (*p == '"') {
        p++;
    string_element: /* behind the opening quote */
        start = p;
        p = bq_walk_string(s, start, safe, &highs, &flag);
        if (BQ_UNLIKELY(!p))
            return NULL;
        PUT_STRING(start);
        if (BQ_LIKELY(memcmp(p, "\",", 2) == 0 && p[2] == '"')) {
            p += 3;
            goto string_element;
        }
        p++;
    } else if (*p == '{') {
        goto object;
    } else if (*p == '[') {
        goto array;
    } else {
        PUT(bq_tape_type(*p));
        p = bq_walk_bare(s, p, safe, finite);
        if (BQ_UNLIKELY(!p))
            return NULL;
    }
after_element:
    if (BQ_LIKELY(*p == ',')) {
        p++;
        if (BQ_UNLIKELY(*p == ' ')) {
            p++;
            BQ_FORGET(p);
        }
        if (BQ_UNLIKELY(*p <= ' '))
            p = bq_walk_blanks(p, safe);
        goto element;
    }
    if (BQ_LIKELY(*p == ']'))
        goto close;
    if (bq_scan_class[*p] & BQ_CLASS_SPACE) {
        p = bq_walk_blanks(p, safe);
        goto after_element;
    }
    return bq_scan_fault(s, p, "neither a comma nor a closing bracket after an element");

close:
    if (tape && !bq_tape_close(tape, p))
        return bq_scan_fault(s, p, "out of memory");
    p++;
    bits >>= 1;
    if (--level == 0)
        goto done;
    if (BQ_UNLIKELY(level % 64 == 0))
        bits = spilled[level / 64 - 1];
    if (BQ_UNLIKELY(p == s->end))
        return bq_scan_fault(s, p, "the body ends inside a container");
    if (bits & 1)
        goto after_member;
    goto after_element;

done:
    if (bq_highs_any(highs))
        s->seen |= BQ_SCAN_HIGH;
    return p;
#undef OPEN
#undef PUT
#undef PUT_STRING
}

#endif
