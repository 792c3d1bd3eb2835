/*
 * json/number.c - what a number literal means, by its digits: an int64, a finite double, the nearest double. Nothing
 * here depends on the locale.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/scan.h"

bool bq_scan_int64(const uint8_t *p, size_t len, int64_t *out)
{
    bool negative = len > 0 && *p == '-';
    p += negative;
    len -= negative;
    if (len == 0 || len > 19)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (!bq_is_digit(p[i]))
            return false;
        value = value * 10 + (uint64_t)(p[i] - '0'); /* 19 digits always fit 64 bits */
    }
    if (value > (uint64_t)INT64_MAX + negative)
        return false;
    if (out)
        *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* 2^1024 - 2^970: halfway between the largest finite double and the next step. At or above it a number rounds to
 * infinity (ties go to the even significand, which is the infinite one). */
static const char THRESHOLD[] = "17976931348623158079372897140530341507993413271003782693617377898044"
                                "49682927647509466490179775872070963302864166928879109465555478519404"
                                "02630657488671505820681908902000708383676273854845817711531764475730"
                                "27006985557136695962284291481986083493647529271907416844436551070434"
                                "2711559699508093042880177904174497792";
enum { THRESHOLD_DIGITS = sizeof THRESHOLD - 1, THRESHOLD_EXPONENT = THRESHOLD_DIGITS - 1 };
_Static_assert(THRESHOLD_EXPONENT == 308, "2^1024 - 2^970 has 309 digits");

/* The exponent part, saturated well outside of what a body's digits could balance. */
static int64_t exponent_at(const uint8_t *p, const uint8_t *end)
{
    const int64_t limit = INT64_MAX / 4;
    bool negative = *p == '-';
    int64_t value = 0;
    for (p += *p == '-' || *p == '+'; p < end; p++)
        value = value >= limit / 10 ? limit : value * 10 + (*p - '0');
    return negative ? -value : value;
}

/* Compares the digits from the first non-zero one on (a point between them is skipped) with the threshold. */
static bool below_threshold(const uint8_t *p, const uint8_t *end)
{
    for (size_t i = 0; i < THRESHOLD_DIGITS; i++) {
        if (p < end && *p == '.')
            p++;
        uint8_t digit = p < end ? *p++ : '0';
        if (digit != (uint8_t)THRESHOLD[i])
            return digit < (uint8_t)THRESHOLD[i];
    }
    return false;
}

bool bq_scan_finite(const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len;
    p += len > 0 && *p == '-';
    const uint8_t *point = NULL, *first = NULL, *exponent = NULL, *q = p;
    for (; q < end; q++) {
        if (*q == '.')
            point = q;
        else if (!bq_is_digit(*q))
            break;
        else if (!first && *q != '0')
            first = q;
    }
    const uint8_t *mantissa_end = q;
    if (q < end)
        exponent = q + 1;
    if (!first)
        return true; /* zero, whatever its exponent */
    if (!point)
        point = mantissa_end;
    int64_t leading = first < point ? point - first - 1 : point - first; /* decimal exponent of the first digit */
    if (exponent)
        leading += exponent_at(exponent, end);
    if (leading != THRESHOLD_EXPONENT)
        return leading < THRESHOLD_EXPONENT;
    return below_threshold(first, mantissa_end);
}

/* More digits than the longest decimal midpoint of two doubles has (767): what follows them only matters by being
 * zero or not. */
enum { DIGITS_MAX = 800 };

/* The literal in a form that strtod reads alike in every locale: a sign, digits without a point, an exponent. */
static void normalise(const uint8_t *p, size_t len, char *out, size_t size)
{
    const uint8_t *end = p + len;
    size_t n = 0, digits = 0;
    int64_t exponent = 0;
    bool point = false, rest = false;
    if (*p == '-')
        out[n++] = (char)*p++;
    for (; p < end && (*p == '.' || bq_is_digit(*p)); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        exponent -= point;
        if (digits == 0 && *p == '0')
            continue; /* a leading zero */
        if (digits < DIGITS_MAX) {
            out[n++] = (char)*p;
            digits++;
        } else {
            rest = rest || *p != '0';
            exponent++;
        }
    }
    if (p < end)
        exponent += exponent_at(p + 1, end);
    if (rest) {
        out[n++] = '1';
        exponent--;
    }
    if (digits == 0)
        out[n++] = '0';
    /* Far outside of what a double can be, but still an int. */
    exponent = exponent > 99999 ? 99999 : exponent < -99999 ? -99999 : exponent;
    snprintf(out + n, size - n, "e%d", (int)exponent);
}

bool bq_scan_double(const uint8_t *p, size_t len, double *out)
{
    char text[DIGITS_MAX + 16];
    normalise(p, len, text, sizeof text);
    int before = errno;
    double value = strtod(text, NULL);
    errno = before;
    if (!isfinite(value))
        return false;
    *out = value;
    return true;
}
