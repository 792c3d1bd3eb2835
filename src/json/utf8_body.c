/*
 * json/utf8_body.c - UTF-8 of a whole body, judged at once: every byte against what its three predecessors ask for, 16
 * bytes at a time and without a branch per character.
 *
 * In the high bit of each lane: a byte must be a continuation exactly when the byte before it is C0 or above, or the
 * one two before E0 or above, or the one three before F0 or above. What that leaves are leads that are always wrong
 * (C0, C1, F5 and above) and four leads that narrow the byte after them: E0 (not below A0: overlong), ED (not above
 * 9F: surrogates), F0 (not below 90: overlong), F4 (not above 8F: beyond U+10FFFF). Texts rarely hold any of these, so
 * they are looked at only in blocks that do.
 */
#include <string.h>

#include "base/utf8.h"
#include "json/scan.h"
#include "json/vec.h"

#if BQ_VEC

enum { BLOCK = 64 };

/* High bits: bytes 90 to BF, where a lane is a continuation. */
BQ_INLINE bq_vec from_90(bq_vec c)
{
    bq_vec twice = bq_vec_add(c, c), five = bq_vec_add(twice, twice);
    return bq_vec_or(five, bq_vec_add(five, five));
}

/* The closer look at leads of two and three bytes: `c` is what follows each. High bits: errors. */
BQ_INLINE bq_vec wrong_short(bq_vec lead, bq_vec c)
{
    bq_vec twice = bq_vec_add(c, c), from_a0 = bq_vec_add(twice, twice);
    bq_vec bad = bq_vec_equal(bq_vec_and(lead, bq_vec_of(0xFE)), bq_vec_of(0xC0));
    bad = bq_vec_or(bad, bq_vec_without(bq_vec_equal(lead, bq_vec_of(0xE0)), from_a0));
    return bq_vec_or(bad, bq_vec_and(bq_vec_equal(lead, bq_vec_of(0xED)), from_a0));
}

/* The same at leads of four bytes. */
BQ_INLINE bq_vec wrong_long(bq_vec lead, bq_vec c)
{
    bq_vec high = from_90(c), bad = bq_vec_minus(lead, bq_vec_of(0xF5 - 0x80));
    bad = bq_vec_or(bad, bq_vec_without(bq_vec_equal(lead, bq_vec_of(0xF0)), high));
    return bq_vec_or(bad, bq_vec_and(bq_vec_equal(lead, bq_vec_of(0xF4)), high));
}

/* High bits: errors among the bytes p[0] to p[63] and in what they make of the three before them. */
BQ_INLINE bq_vec block_errors(const uint8_t *p)
{
    bq_vec any = bq_vec_load(p - 3);
    for (int i = 0; i < BLOCK; i += 16)
        any = bq_vec_or(any, bq_vec_load(p + i));
    if (!bq_vec_high(any))
        return bq_vec_of(0); /* ASCII, and nothing open before it */
    bq_vec bad = bq_vec_of(0), shorts = bad, longs = bad;
    for (int i = 0; i < BLOCK; i += 16) {
        bq_vec c = bq_vec_load(p + i), one = bq_vec_load(p + i - 1);
        bq_vec second = bq_vec_minus(one, bq_vec_of(0xC0 - 0x80));
        bq_vec third = bq_vec_minus(bq_vec_load(p + i - 2), bq_vec_of(0xE0 - 0x80));
        bq_vec fourth = bq_vec_minus(bq_vec_load(p + i - 3), bq_vec_of(0xF0 - 0x80));
        bq_vec is = bq_vec_without(c, bq_vec_add(c, c)); /* bit 7 without bit 6 */
        bad = bq_vec_or(bad, bq_vec_xor(bq_vec_or(second, bq_vec_or(third, fourth)), is));
        longs = bq_vec_or(longs, fourth);
        /* One comparison for C0, C1 and E0; that E1 is caught too costs it a look. */
        bq_vec low = bq_vec_equal(bq_vec_and(one, bq_vec_of(0xDE)), bq_vec_of(0xC0));
        shorts = bq_vec_or(shorts, bq_vec_or(low, bq_vec_equal(one, bq_vec_of(0xED))));
    }
    if (bq_vec_high(shorts)) {
        for (int i = 0; i < BLOCK; i += 16)
            bad = bq_vec_or(bad, wrong_short(bq_vec_load(p + i - 1), bq_vec_load(p + i)));
    }
    if (bq_vec_high(longs)) {
        for (int i = 0; i < BLOCK; i += 16)
            bad = bq_vec_or(bad, wrong_long(bq_vec_load(p + i - 3), bq_vec_load(p + i - 2)));
    }
    return bad;
}

static bool valid(const uint8_t *p, size_t len)
{
    /* The first block has nothing before it and the last is not full: zeros stand there in a copy. */
    uint8_t edge[16 + BLOCK] = {0};
    memcpy(edge + 16, p, len < BLOCK ? len : BLOCK);
    bq_vec bad = block_errors(edge + 16);
    if (len < BLOCK)
        return !bq_vec_high(bad);
    size_t i = BLOCK;
    for (; len - i >= BLOCK; i += BLOCK)
        bad = bq_vec_or(bad, block_errors(p + i));
    memcpy(edge + 13, p + i - 3, 3);
    memset(edge + 16, 0, BLOCK);
    memcpy(edge + 16, p + i, len - i);
    bad = bq_vec_or(bad, block_errors(edge + 16));
    return !bq_vec_high(bad);
}

size_t bq_scan_utf8(const void *text, size_t len)
{
    return valid(text, len) ? len : bq_utf8_invalid(text, len);
}

#else

size_t bq_scan_utf8(const void *text, size_t len)
{
    return bq_utf8_invalid(text, len);
}

#endif
