/*
 * utf8.c - validation by RFC 3629's table, with runs of ASCII skipped 16 or 8 bytes at a time; and the making of a
 * printable line out of whatever bytes were formatted.
 */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) && !defined(BQ_SCALAR)
#include <emmintrin.h>
#endif

/* Length of the valid sequence at p, 0 when there is none. The second byte's range depends on the first. */
static inline size_t sequence(const uint8_t *p, size_t left)
{
    uint8_t a = p[0];
    if (a < 0x80)
        return 1;
    if (a < 0xC2 || a > 0xF4 || left < 2)
        return 0;
    uint8_t b = p[1];
    if (a < 0xE0)
        return (b & 0xC0) == 0x80 ? 2 : 0;
    if (left < 3 || (p[2] & 0xC0) != 0x80)
        return 0;
    if (a < 0xF0) {
        uint8_t low = a == 0xE0 ? 0xA0 : 0x80, high = a == 0xED ? 0x9F : 0xBF;
        return b >= low && b <= high ? 3 : 0;
    }
    if (left < 4 || (p[3] & 0xC0) != 0x80)
        return 0;
    uint8_t low = a == 0xF0 ? 0x90 : 0x80, high = a == 0xF4 ? 0x8F : 0xBF;
    return b >= low && b <= high ? 4 : 0;
}

/* First index from i that may hold a byte above 0x7F; whole blocks only, the caller looks at the rest. */
static inline size_t skip_ascii(const uint8_t *p, size_t i, size_t len)
{
#if defined(__SSE2__) && !defined(BQ_SCALAR)
    for (; len - i >= 16; i += 16) {
        int mask = _mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + i)));
        if (mask)
            return i + (size_t)__builtin_ctz((unsigned)mask);
    }
#else
    for (; len - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        if (word & UINT64_C(0x8080808080808080))
            return i;
    }
#endif
    return i;
}

size_t bq_utf8_invalid(const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    size_t i = 0;
    while (i < len) {
        if (p[i] < 0x80) {
            i = skip_ascii(p, i, len);
            while (i < len && p[i] < 0x80)
                i++;
            if (i == len)
                break;
        }
        size_t n = sequence(p + i, len - i);
        if (n == 0)
            return i;
        i += n;
    }
    return len;
}

size_t bq_utf8_cut(const char *bytes, size_t len, size_t max)
{
    if (len <= max)
        return len;
    /* Back to the start of the sequence that the cut falls into: at most three continuation bytes belong to it. In
     * bytes that are not UTF-8 there is none to keep together, and the cut stays where it was asked for. */
    size_t cut = max;
    while (cut > 0 && max - cut < 3 && ((uint8_t)bytes[cut] & 0xC0) == 0x80)
        cut--;
    size_t n = cut < max ? sequence((const uint8_t *)bytes + cut, len - cut) : 0;
    return n > max - cut ? cut : max;
}

/* What a terminal or a log file would take for more than text: C0, DEL, C1, and the two separators that end a line. */
static char replacement(const uint8_t *p, size_t n)
{
    if (n == 0)
        return '?';
    if (n == 1 && (p[0] == '\n' || p[0] == '\r' || p[0] == '\t'))
        return ' ';
    if (n == 1 && (p[0] < 0x20 || p[0] == 0x7F))
        return '?';
    if (n == 2 && p[0] == 0xC2 && p[1] < 0xA0)
        return '?';
    if (n == 3 && p[0] == 0xE2 && p[1] == 0x80 && (p[2] == 0xA8 || p[2] == 0xA9))
        return ' ';
    return '\0';
}

/* Is this the beginning of a sequence whose end the caller did not keep? */
static bool is_cut_off(const uint8_t *p, size_t left)
{
    if (left > 3 || p[0] < 0xC2 || p[0] > 0xF4)
        return false;
    for (size_t i = 1; i < left; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return false;
    }
    return true;
}

size_t bq_utf8_line(char *out, size_t cap, const char *bytes, size_t len, bool more)
{
    static const char dots[] = "...";
    const uint8_t *p = (const uint8_t *)bytes;
    size_t used = 0, fit = 0; /* fit: how much stays when the dots must follow */
    size_t i = 0;
    while (i < len) {
        size_t n = sequence(p + i, len - i);
        if (n == 0 && more && is_cut_off(p + i, len - i))
            break;
        char instead = replacement(p + i, n);
        size_t width = instead ? 1 : n;
        if (used + width >= cap) {
            more = true;
            break;
        }
        if (instead)
            out[used] = instead;
        else
            memcpy(out + used, p + i, n);
        used += width;
        if (used + sizeof dots <= cap)
            fit = used;
        i += n ? n : 1;
    }
    if (more && cap >= sizeof dots) {
        memcpy(out + fit, dots, sizeof dots - 1);
        used = fit + sizeof dots - 1;
    }
    out[used] = '\0';
    return used;
}
