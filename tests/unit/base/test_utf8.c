/* UTF-8 against an independent decoder: every sequence of up to three bytes, all four-byte ones by their structure,
 * and every position within the blocks that the validator skips. */
#include "unit/cmocka_all.h"

#include "base/utf8.h"

#include <string.h>

/* Decodes by the definition: take the code point from the bit pattern, then encode it again. Returns its length. */
static size_t reference(const unsigned char *p, size_t left)
{
    static const unsigned char masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    size_t n = p[0] < 0x80 ? 1 : (p[0] & 0xE0) == 0xC0 ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : (p[0] & 0xF8) == 0xF0 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    uint32_t point = p[0] & masks[n];
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (p[i] & 0x3F);
    }
    size_t shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    bool scalar = point <= 0x10FFFF && !(point >= 0xD800 && point <= 0xDFFF);
    return n == shortest && scalar ? n : 0;
}

static size_t reference_invalid(const unsigned char *p, size_t len)
{
    size_t i = 0;
    while (i < len) {
        size_t n = reference(p + i, len - i);
        if (n == 0)
            return i;
        i += n;
    }
    return len;
}

static void check(const unsigned char *p, size_t len)
{
    size_t got = bq_utf8_invalid(p, len), expected = reference_invalid(p, len);
    if (got != expected)
        fail_msg("%02x %02x %02x %02x (%zu bytes): %zu instead of %zu", p[0], len > 1 ? p[1] : 0, len > 2 ? p[2] : 0,
                 len > 3 ? p[3] : 0, len, got, expected);
}

static void all_short_sequences(void **state)
{
    (void)state;
    unsigned char p[3];
    for (unsigned a = 0; a < 256; a++) {
        p[0] = (unsigned char)a;
        check(p, 1);
        for (unsigned b = 0; b < 256; b++) {
            p[1] = (unsigned char)b;
            check(p, 2);
            for (unsigned c = 0; c < 256; c += c < 0x7E || c > 0xC1 ? 9 : 1) {
                p[2] = (unsigned char)c;
                check(p, 3);
            }
        }
    }
}

static void all_four_byte_sequences_by_structure(void **state)
{
    (void)state;
    static const unsigned char tails[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0xBF, 0xC0, 0xFF};
    unsigned char p[5] = "";
    for (unsigned a = 0xEE; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            for (size_t c = 0; c < sizeof tails; c++) {
                for (size_t d = 0; d < sizeof tails; d++) {
                    p[0] = (unsigned char)a;
                    p[1] = (unsigned char)b;
                    p[2] = tails[c];
                    p[3] = tails[d];
                    check(p, 4);
                    check(p, 5);
                }
            }
        }
    }
}

static void every_position_in_a_block(void **state)
{
    (void)state;
    static const char *const inserts[] = {"\xff",         "\x80",        "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                          "\xf0\x9f\x98", "\xed\xa0\x80"};
    unsigned char text[80];
    for (size_t which = 0; which < sizeof inserts / sizeof *inserts; which++) {
        size_t n = strlen(inserts[which]);
        for (size_t len = n; len < 70; len++) {
            for (size_t at = 0; at + n <= len; at++) {
                memset(text, 'a', sizeof text);
                memcpy(text + at, inserts[which], n);
                check(text, len);
            }
        }
    }
}

static void reads_within_its_bounds(void **state)
{
    (void)state;
    /* A valid sequence continues beyond the end: it must not be looked at. */
    assert_int_equal(bq_utf8_invalid("a\xe2\x82\xac", 2), 1);
    assert_int_equal(bq_utf8_invalid("a\xe2\x82\xac", 3), 1);
    assert_int_equal(bq_utf8_invalid("a\xe2\x82\xac", 4), 4);
    assert_int_equal(bq_utf8_invalid(NULL, 0), 0);
    assert_int_equal(bq_utf8_invalid("a\0b", 3), 3);
}

static void cuts_fall_between_sequences(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80z";
    const size_t len = sizeof text - 1;
    const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    for (size_t max = 0; max <= len; max++) {
        assert_int_equal(bq_utf8_cut(text, len, max), expected[max]);
        assert_int_equal(bq_utf8_invalid(text, expected[max]), expected[max]);
    }
    assert_int_equal(bq_utf8_cut(text, len, len + 5), len);
    /* Bytes that are no UTF-8 are cut where asked. */
    assert_int_equal(bq_utf8_cut("\x80\x80\x80\x80\x80\x80", 6, 5), 5);
    assert_int_equal(bq_utf8_cut("ab\xff\xff", 4, 3), 3);
}

static void lines_fit_and_are_valid(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xbc\xe2\x82\xac\n\xf0\x9f\x98\x80\xff\x1b\xc2\x85z";
    const size_t len = sizeof text - 1;
    char out[64];
    for (size_t cap = 4; cap < sizeof out; cap++) {
        for (int more = 0; more < 2; more++) {
            memset(out, '#', sizeof out);
            size_t n = bq_utf8_line(out, cap, text, len, more != 0);
            assert_true(n < cap);
            assert_int_equal(out[n], '\0');
            assert_int_equal(out[cap], '#');
            assert_int_equal(bq_utf8_invalid(out, n), n);
            bool whole = strcmp(out, "a\xc3\xbc\xe2\x82\xac \xf0\x9f\x98\x80???z") == 0;
            assert_true(whole ? !more : strcmp(out + n - 3, "...") == 0);
            assert_int_equal(whole, !more && cap > 15);
        }
    }
    assert_int_equal(bq_utf8_line(out, sizeof out, "", 0, false), 0);
    assert_string_equal(out, "");
    (void)bq_utf8_line(out, sizeof out, "ab\xe2\x82", 4, true);
    assert_string_equal(out, "ab...");
    (void)bq_utf8_line(out, sizeof out, "ab\xe2\x82", 4, false);
    assert_string_equal(out, "ab??");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_short_sequences),         cmocka_unit_test(all_four_byte_sequences_by_structure),
        cmocka_unit_test(every_position_in_a_block),   cmocka_unit_test(reads_within_its_bounds),
        cmocka_unit_test(cuts_fall_between_sequences), cmocka_unit_test(lines_fit_and_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
