/*
 * json/vec.h - 16 bytes at a time, in the few operations that the scanner needs: SSE2 on x86-64 and NEON on 64-bit
 * ARM, both of which every such processor has, so nothing is decided at run time. Elsewhere BQ_VEC is 0 and plain C
 * does the work; BQ_SCALAR asks for that anywhere (the tests build it so).
 */
#ifndef BQ_JSON_VEC_H
#define BQ_JSON_VEC_H

#include <stdint.h>

#define BQ_INLINE static inline __attribute__((always_inline))
#define BQ_LIKELY(x) __builtin_expect(!!(x), 1)
#define BQ_UNLIKELY(x) __builtin_expect(!!(x), 0)

#if !defined(BQ_SCALAR) && defined(__SSE2__)
#include <emmintrin.h>
#define BQ_VEC 1
typedef __m128i bq_vec;

BQ_INLINE bq_vec bq_vec_load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
BQ_INLINE bq_vec bq_vec_of(uint8_t byte)
{
    return _mm_set1_epi8((char)byte);
}
BQ_INLINE bq_vec bq_vec_or(bq_vec a, bq_vec b)
{
    return _mm_or_si128(a, b);
}
BQ_INLINE bq_vec bq_vec_and(bq_vec a, bq_vec b)
{
    return _mm_and_si128(a, b);
}
BQ_INLINE bq_vec bq_vec_xor(bq_vec a, bq_vec b)
{
    return _mm_xor_si128(a, b);
}
/* a & ~b */
BQ_INLINE bq_vec bq_vec_without(bq_vec a, bq_vec b)
{
    return _mm_andnot_si128(b, a);
}
BQ_INLINE bq_vec bq_vec_equal(bq_vec a, bq_vec b)
{
    return _mm_cmpeq_epi8(a, b);
}
BQ_INLINE bq_vec bq_vec_at_most(bq_vec a, bq_vec b)
{
    return _mm_cmpeq_epi8(_mm_min_epu8(a, b), a);
}
BQ_INLINE bq_vec bq_vec_add(bq_vec a, bq_vec b)
{
    return _mm_add_epi8(a, b);
}
/* a - b, 0 where that would be negative */
BQ_INLINE bq_vec bq_vec_minus(bq_vec a, bq_vec b)
{
    return _mm_subs_epu8(a, b);
}
/* Not 0 when a lane has its high bit set; bq_vec_first says which is the first. */
typedef unsigned bq_vec_mask;
BQ_INLINE bq_vec_mask bq_vec_high(bq_vec a)
{
    return (unsigned)_mm_movemask_epi8(a);
}
BQ_INLINE unsigned bq_vec_first(bq_vec_mask mask)
{
    return (unsigned)__builtin_ctz(mask);
}
/* One bit a lane: its high bit. */
BQ_INLINE unsigned bq_vec_bits(bq_vec a)
{
    return (unsigned)_mm_movemask_epi8(a);
}

#elif !defined(BQ_SCALAR) && defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>
#define BQ_VEC 1
typedef uint8x16_t bq_vec;

BQ_INLINE bq_vec bq_vec_load(const uint8_t *p)
{
    return vld1q_u8(p);
}
BQ_INLINE bq_vec bq_vec_of(uint8_t byte)
{
    return vdupq_n_u8(byte);
}
BQ_INLINE bq_vec bq_vec_or(bq_vec a, bq_vec b)
{
    return vorrq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_and(bq_vec a, bq_vec b)
{
    return vandq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_xor(bq_vec a, bq_vec b)
{
    return veorq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_without(bq_vec a, bq_vec b)
{
    return vbicq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_equal(bq_vec a, bq_vec b)
{
    return vceqq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_at_most(bq_vec a, bq_vec b)
{
    return vcleq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_add(bq_vec a, bq_vec b)
{
    return vaddq_u8(a, b);
}
BQ_INLINE bq_vec bq_vec_minus(bq_vec a, bq_vec b)
{
    return vqsubq_u8(a, b);
}
/* Four bits a lane: a narrowing shift is the nearest thing to a movemask. It takes the high half of one lane and the low
 * half of the next, so the high bit is first spread over its lane. */
typedef uint64_t bq_vec_mask;
BQ_INLINE bq_vec_mask bq_vec_high(bq_vec a)
{
    uint8x16_t full = vcltzq_s8(vreinterpretq_s8_u8(a));
    uint8x8_t narrow = vshrn_n_u16(vreinterpretq_u16_u8(full), 4);
    return vget_lane_u64(vreinterpret_u64_u8(narrow), 0);
}
BQ_INLINE unsigned bq_vec_first(bq_vec_mask mask)
{
    return (unsigned)__builtin_ctzll(mask) >> 2;
}
BQ_INLINE unsigned bq_vec_bits(bq_vec a)
{
    static const uint8_t WEIGHTS[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t set = vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(a), 7));
    uint8x16_t weighed = vandq_u8(set, vld1q_u8(WEIGHTS));
    return vaddv_u8(vget_low_u8(weighed)) | (unsigned)vaddv_u8(vget_high_u8(weighed)) << 8;
}

#else
#define BQ_VEC 0
#endif

#if BQ_VEC
/* High bits: what ends plain text in a string. v ^ 2 moves the quote next to the control characters, so that one
 * comparison finds both. */
BQ_INLINE bq_vec bq_vec_stops(bq_vec v)
{
    bq_vec low = bq_vec_at_most(bq_vec_xor(v, bq_vec_of(2)), bq_vec_of(0x20));
    return bq_vec_or(low, bq_vec_equal(v, bq_vec_of('\\')));
}
#endif

#endif
