/*
 * Numbers by their digits: the int64 range, the border of the finite doubles (the threshold is computed here anew, with
 * a big integer), and conversion to the nearest double in any locale.
 */
#include "unit/cmocka_all.h"

#include "unit/guarded.h"
#include "json/scan.h"

#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool int64_of(const char *text, int64_t *out)
{
    return bq_scan_int64((const uint8_t *)text, strlen(text), out);
}

static void int64_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } ROWS[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"7", true, 7},
        {"-7", true, -7},
        {"999999999999999999", true, 999999999999999999},
        {"1000000000000000000", true, 1000000000000000000},
        {"9223372036854775806", true, INT64_MAX - 1},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"9300000000000000000", false, 0},
        {"9999999999999999999", false, 0},
        {"10000000000000000000", false, 0},
        {"18446744073709551615", false, 0},
        {"18446744073709551616", false, 0},
        {"18446744073709551623", false, 0},
        {"100000000000000000000000000000000000000", false, 0},
        {"-9223372036854775807", true, -INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"-9223372036854775809", false, 0},
        {"-10000000000000000000", false, 0},
        {"1.0", false, 0},
        {"1e1", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"x", false, 0},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        int64_t value = 0;
        assert_int_equal(int64_of(ROWS[i].text, &value), ROWS[i].ok);
        assert_true(value == ROWS[i].value);
        assert_int_equal(int64_of(ROWS[i].text, NULL), ROWS[i].ok);
    }
}

/* ---- finite ---------------------------------------------------------------------------------------------------- */

static bool is_finite(const char *text)
{
    return bq_scan_finite((const uint8_t *)text, strlen(text));
}

/* 2^1024 - 2^970 in decimal, by doubling and borrowing digit by digit. */
static void threshold(char out[310])
{
    int big[310] = {0}, small[310] = {0};
    big[309] = small[309] = 1;
    for (int power = 0; power < 1024; power++) {
        for (int pass = 0; pass < 2; pass++) {
            int *n = pass ? small : big, carry = 0;
            for (int i = 309; i >= 0 && (pass == 0 || power < 970); i--) {
                carry += n[i] * 2;
                n[i] = carry % 10;
                carry /= 10;
            }
        }
    }
    for (int i = 309, borrow = 0; i >= 0; i--) {
        int digit = big[i] - small[i] - borrow;
        borrow = digit < 0;
        big[i] = digit + 10 * borrow;
    }
    assert_int_equal(big[0], 0);
    for (int i = 0; i < 309; i++)
        out[i] = (char)('0' + big[i + 1]);
    out[309] = '\0';
}

/* A number's digits with a point after the n-th and the exponent that makes up for it. */
static void with_point(char *out, size_t size, const char *digits, int n)
{
    snprintf(out, size, "%.*s.%se%d", n, digits, digits + n, (int)strlen(digits) - n);
    if (!digits[n])
        snprintf(out, size, "%s", digits);
}

static void the_border_of_the_finite(void **state)
{
    (void)state;
    char at[310], below[310], text[800];
    threshold(at);
    strcpy(below, at);
    below[308]--; /* it ends in 0 … */
    for (int i = 308; below[i] < '0'; i--) {
        below[i] = '9';
        below[i - 1]--;
    }
    assert_false(is_finite(at));
    assert_true(is_finite(below));
    for (int n = 1; n <= 309; n++) {
        with_point(text, sizeof text, at, n);
        assert_false(is_finite(text));
        with_point(text, sizeof text, below, n);
        assert_true(is_finite(text));
    }
    /* Digits behind the tie do not bring it back, nines behind the last finite one do not lose it. */
    snprintf(text, sizeof text, "%s.000000", at);
    assert_false(is_finite(text));
    snprintf(text, sizeof text, "-%s.999999999999999", below);
    assert_true(is_finite(text));
    snprintf(text, sizeof text, "0.0000%se+313", at); /* 0.0000… = …e-313 */
    assert_false(is_finite(text));
    snprintf(text, sizeof text, "0.0000%se+312", at);
    assert_true(is_finite(text));
    snprintf(text, sizeof text, "%.*se%d", 17, at, 309 - 17);
    assert_true(is_finite(text)); /* 17 digits of the threshold, then zeros: below it */
}

static void finite_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool finite;
    } ROWS[] = {
        {"0", true},
        {"-0", true},
        {"0e999999999999999999999999", true},
        {"0.000e+400", true},
        {"-0.0e1000000", true},
        {"1e308", true},
        {"1E+308", true},
        {"-1e308", true},
        {"1e309", false},
        {"-1e309", false},
        {"1e400", false},
        {"1e-400", true},
        {"1e-99999999999999999999999999", true},
        {"1e99999999999999999999999999", false},
        {"1e+99999999999999999999999999", false},
        {"1.7976931348623157e308", true},
        {"1.7976931348623158e308", true},
        {"1.7976931348623159e308", false},
        {"-1.7976931348623159e308", false},
        {"17976931348623158e292", true},
        {"17976931348623159e292", false},
        {"0.00000000017976931348623159e318", false},
        {"0.00000000017976931348623158e318", true},
        {"10e307", true},
        {"10e308", false},
        {"0.1e309", true},
        {"0.1e310", false},
        {"0.9e309", false},
        {"9e307", true},
        {"1E+2", true},
        {"123456789.125", true},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (is_finite(ROWS[i].text) != ROWS[i].finite)
            fail_msg("%s should%s be finite", ROWS[i].text, ROWS[i].finite ? "" : " not");
    }
    char text[500];
    memset(text, '9', sizeof text);
    text[308] = '\0';
    assert_true(is_finite(text)); /* 308 digits are below 10^308 */
    text[308] = '9';
    text[309] = '\0';
    assert_false(is_finite(text)); /* 309 nines are not */
    memset(text, '0', sizeof text);
    text[0] = '1';
    text[309] = '\0';
    assert_true(is_finite(text)); /* 10^308 */
    text[309] = '0';
    text[310] = '\0';
    assert_false(is_finite(text)); /* 10^309 */
    /* 400 zeros behind the point, and the exponent that takes them back. */
    memset(text, '0', sizeof text);
    text[1] = '.';
    strcpy(text + 402, "1e401");
    assert_true(is_finite(text));
    strcpy(text + 402, "1e710");
    assert_false(is_finite(text));
    strcpy(text + 402, "1e709");
    assert_true(is_finite(text));
}

/* The same through the scanner, in `data`'s place, since it decides by itself when to look closer. */
static void finite_as_the_scanner_sees_it(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"[%s]", "[1,%s]", "{\"a\":%s}", "[%s,\"................................\"]",
                                        "{\"a\":%s,\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\":0}"};
    guarded pages = guarded_new(4096);
    char number[400], text[600];
    for (size_t t = 0; t < sizeof TEXTS / sizeof TEXTS[0]; t++) {
        for (int digits = 1; digits < 320; digits++) {
            for (int minus = 0; minus < 2; minus++) {
                memset(number, '9', (size_t)digits + 1);
                number[0] = minus ? '-' : '9';
                number[digits + minus] = '\0';
                int len = snprintf(text, sizeof text, TEXTS[t], number);
                bq_scanned out;
                assert_true(bq_scan_document(&out, guarded_end(&pages, text, (size_t)len), (size_t)len, true));
                assert_int_equal(out.seen, digits > 308 ? BQ_SCAN_NONFINITE : 0);
            }
        }
    }
    guarded_free(&pages);
}

/* ---- doubles --------------------------------------------------------------------------------------------------- */

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void check_double(const char *text)
{
    double is = 0, expected = strtod(text, NULL);
    bool ok = bq_scan_double((const uint8_t *)text, strlen(text), &is);
    assert_int_equal(ok, isfinite(expected) != 0);
    if (ok && !same_double(is, expected))
        fail_msg("%s is %.17g, should be %.17g", text, is, expected);
    assert_int_equal(bq_scan_finite((const uint8_t *)text, strlen(text)), ok);
}

static void nearest_doubles(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "0",
        "-0",
        "-0.0",
        "0e5",
        "1",
        "-1",
        "0.1",
        "0.2",
        "0.3",
        "1.5",
        "1e23",
        "8.5e22",
        "9007199254740993",
        "9007199254740992.999999",
        "9007199254740993.00000000000000000000000000001",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "4.9406564584124654e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1e-400",
        "1e400",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "123456789012345678901234567890",
        "0.000000000000000000000000000001",
        "1e-5",
        "100e-2",
        "0.00100e3",
        "3."
        "14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
        "3282306647",
        "6.02214076e23",
        "1E+2",
        "12.5E-1",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "0e99999999999999999999",
    };
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        check_double(TEXTS[i]);
    uint64_t bits = 88172645463325252u;
    char text[1200];
    for (int i = 0; i < 20000; i++) {
        double value;
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        double is;
        snprintf(text, sizeof text, i % 2 ? "%.17g" : "%.40e", value);
        assert_true(bq_scan_double((const uint8_t *)text, strlen(text), &is));
        assert_true(same_double(is, value));
    }
}

/* A tie of 1 and the next double, written with 20 to 1,150 digits, then broken by its very last digit. */
static void ties_with_many_digits(void **state)
{
    (void)state;
    static const char TIE[] = "1.00000000000000011102230246251565404236316680908203125";
    char text[1300];
    for (size_t zeros = 0; zeros < 1100; zeros += 7) {
        double is;
        size_t n = sizeof TIE - 1;
        memcpy(text, TIE, n);
        memset(text + n, '0', zeros);
        text[n + zeros] = '\0';
        assert_true(bq_scan_double((const uint8_t *)text, n + zeros, &is));
        assert_true(same_double(is, 1.0)); /* to even */
        text[n + zeros] = '1';
        assert_true(bq_scan_double((const uint8_t *)text, n + zeros + 1, &is));
        assert_true(same_double(is, 1.0 + DBL_EPSILON));
    }
    /* A thousand digits before the point, and as many zeros after it before the first digit. */
    memset(text, '7', sizeof text);
    strcpy(text + 1000, "e-1000");
    check_double(text);
    memset(text, '0', sizeof text);
    text[1] = '.';
    strcpy(text + 1002, "25e1000");
    check_double(text);
    text[1002] = '0';
    check_double(text);
}

/* A locale whose point is a comma, if this system has one; the conversion must not notice. */
static void the_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const LOCALES[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "tr_TR.UTF-8", "de_DE", "fr_FR"};
    bool comma = false;
    for (size_t i = 0; i < sizeof LOCALES / sizeof LOCALES[0] && !comma; i++)
        comma = setlocale(LC_ALL, LOCALES[i]) != NULL && strcmp(localeconv()->decimal_point, ".") != 0;
    double is = 0;
    errno = 7;
    assert_true(bq_scan_double((const uint8_t *)"1234.5e-1", 9, &is));
    assert_true(same_double(is, 123.45));
    assert_true(bq_scan_double((const uint8_t *)"1e-400", 6, &is));
    assert_int_equal(errno, 7);
    setlocale(LC_ALL, "C");
    if (!comma)
        print_message("no locale with a decimal comma is installed: tested with the C locale only\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int64_range),
        cmocka_unit_test(the_border_of_the_finite),
        cmocka_unit_test(finite_or_not),
        cmocka_unit_test(finite_as_the_scanner_sees_it),
        cmocka_unit_test(nearest_doubles),
        cmocka_unit_test(ties_with_many_digits),
        cmocka_unit_test(the_locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
