/*
 * The scanner: what RFC 8259 accepts and rejects, strings and escapes at every position of a block, UTF-8 against the
 * base layer's table, names, members, and the ends of the buffer.
 */
#include "unit/cmocka_all.h"

#include "base/utf8.h"
#include "unit/guarded.h"
#include "json/scan.h"

#include <stdio.h>
#include <string.h>

static guarded pages;

static int setup(void **state)
{
    (void)state;
    pages = guarded_new(1 << 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    guarded_free(&pages);
    return 0;
}

static bool scan(const char *text, size_t len, bq_scanned *out)
{
    bool ok = bq_scan_document(out, guarded_end(&pages, text, len), len, true);
    assert_int_equal(ok, out->ok);
    assert_int_equal(out->reason[0] == '\0', ok);
    assert_true(out->fault <= len);
    bq_scanned again;
    assert_int_equal(bq_scan_document(&again, guarded_start(&pages, text, len), len, true), ok);
    assert_string_equal(again.reason, out->reason);
    return ok;
}

static bool valid(const char *text)
{
    bq_scanned out;
    return scan(text, strlen(text), &out);
}

/* ---- the grammar ----------------------------------------------------------------------------------------------- */

static const char *const ACCEPTED[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "10",
    "1.5",
    "0.0",
    "-0.0",
    "1e1",
    "1E1",
    "1e+1",
    "1e-1",
    "1.0e10",
    "0e0",
    "123456789012345678901234567890",
    "0.123456789012345678901234567890",
    "1e99999",
    "-1e-99999",
    "\"\"",
    "\"a\"",
    "\" \"",
    "\"\\\"\"",
    "\"\\\\\"",
    "\"\\/\"",
    "\"\\b\\f\\n\\r\\t\"",
    "\"\\u0000\"",
    "\"\\uABCD\\uabcd\"",
    "\"\\ud83d\\ude9a\"",
    "\"\\ud800\"",
    "\"\x7f\"",
    "\"\xC2\x80\"",
    "\"\xEF\xBF\xBF\"",
    "\"\xF4\x8F\xBF\xBF\"",
    "\"'\"",
    "\"{}[]:,\"",
    "[]",
    "[ ]",
    "[\n]",
    "[1]",
    "[1,2]",
    "[ 1 , 2 ]",
    "[[]]",
    "[[],[]]",
    "[{}]",
    "[null,true,false,\"\",0,{},[]]",
    "{}",
    "{ }",
    "{\"\":0}",
    "{\"a\":1}",
    "{\"a\":1,\"a\":2}",
    "{ \"a\" : 1 , \"b\" : 2 }",
    "{\"a\":{\"b\":[{\"c\":null}]}}",
    "\t\n\r [] \t\n\r ",
    "[\r\n\t\"x\"\r\n]",
    "{\"a\\u0062\":\"c\"}",
    "[-0,-0.0,-0e0]",
    "[1 ]",
    "[1\t]",
    "[1\n,\n2\n]",
    "{\"a\":[]}",
    "{\"a\":{}}",
    "[\"\\\\\\\"\"]",
    "[0]",
    "[0.5]",
    "[0e1]",
    "[123456789012345]",
    "[1234567890123456]",
    "[12345678901234567]",
    "[123456789012345.5]",
    "[0.123456789012345]",
    "[0.1234567890123456]",
    "[-123456789012345678.123456789012345678e-12]",
};

static const char *const REJECTED[] = {
    "",
    " ",
    "\n",
    "\v",
    "\f",
    "\xA0",
    "nul",
    "nulll",
    "NULL",
    "True",
    "tru",
    "truee",
    "falsey",
    "fals",
    "undefined",
    "NaN",
    "-NaN",
    "Infinity",
    "-Infinity",
    "-",
    "+",
    "+1",
    "--1",
    "-a",
    "01",
    "-01",
    "00",
    "1.",
    "-1.",
    ".5",
    "1.e1",
    "1.5.5",
    "1e",
    "1e+",
    "1e-",
    "1e1.5",
    "1e1e1",
    "1ee1",
    "1 2",
    "0x1",
    "1_000",
    "1a",
    "0a",
    "- 1",
    "1,",
    "\"",
    "\"a",
    "a\"",
    "'a'",
    "\"\\\"",
    "\"\\",
    "\"\\x\"",
    "\"\\u\"",
    "\"\\u1\"",
    "\"\\u12\"",
    "\"\\u123\"",
    "\"\\u123g\"",
    "\"\\u 123\"",
    "\"\\U0041\"",
    "\"\\u+123\"",
    "\"\\0\"",
    "\"\\'\"",
    "\"\\a\"",
    "\"\\ud83d\\u\"",
    "\"\\ud83d\\uXYZW\"",
    "\"\n\"",
    "\"\t\"",
    "\"\x01\"",
    "\"\x1f\"",
    "\"a\"b",
    "\"a\" \"b\"",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[,]",
    "[1,,2]",
    "[1 2]",
    "[\"a\" \"b\"]",
    "[1:2]",
    "[1}",
    "[}",
    "[\"a]",
    "[]]",
    "[[]",
    "[1]x",
    "[] []",
    "[\v]",
    "[\f]",
    "[01]",
    "[1.]",
    "[-]",
    "[tru]",
    "[truefalse]",
    "[1;2]",
    "{",
    "}",
    "{]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{,}",
    "{,\"a\":1}",
    "{\"a\":1,,\"b\":2}",
    "{\"a\" 1}",
    "{\"a\"::1}",
    "{\"a\",1}",
    "{a:1}",
    "{'a':1}",
    "{1:2}",
    "{null:1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1]",
    "{\"a\":[1}",
    "{\"a\":1}}",
    "{\"a\":1}x",
    "{\"a\":\"b}",
    "{\"a:1}",
    "{\"a\":1;}",
    "{[]:1}",
    "{{}:1}",
    "{\"a\":b}",
    "{\"a\":-}",
    "{\"\\x\":1}",
    "{\"a\":01}",
    "//x\n1",
    "/**/1",
    "1//x",
    "#\n1",
    "[1]//",
    "{\"a\":1}/**/",
    "\xEF\xBB\xBF[]",
    "\xFE\xFF",
    "[\"\\ud83d\\\"]",
    "{\"a\":\"\\\"}",
    "[\"\\\\\\\"]",
    "{} {}",
    "{}\v",
    "\v{}",
    "[1]\f",
    "{\"a\":tru}",
    "{\"a\":nul}",
    "{\"a\":fals}",
    "{\"a\":+1}",
    "{\"a\":.5}",
    "{\"a\":1.}",
    "{\"a\":1e}",
    "[1e]",
    "[1e+]",
    "[0.]",
    "[1234567890123456.]",
    "[123456789012345678e]",
    "[\"\x02\"]",
    "{\"\x02\":1}",
};

static void grammar(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ACCEPTED / sizeof ACCEPTED[0]; i++) {
        bq_scanned out;
        if (!scan(ACCEPTED[i], strlen(ACCEPTED[i]), &out))
            fail_msg("%s is rejected: %s at %zu", ACCEPTED[i], out.reason, out.fault);
    }
    for (size_t i = 0; i < sizeof REJECTED / sizeof REJECTED[0]; i++) {
        if (valid(REJECTED[i]))
            fail_msg("%s is accepted", REJECTED[i]);
    }
}

/* The same texts inside of a document, close to its end and far from it, since the code for the two differs. */
static void grammar_inside(void **state)
{
    (void)state;
    static const char *const AROUND[][2] = {
        {"[", "]"},
        {"{\"a\":", "}"},
        {"[1,", ",2]"},
        {"{\"x\":1,\"a\":", ",\"y\":2}"},
        {"[\n  ", "\n]"},
        {"{\"a\" : ", " }"},
        {"[", ",\"....................................................................\"]"},
        {"{\"a\":", ",\"....................................................................\":0}"},
        {"{\"a\":", "                                                                      }"},
    };
    char text[512];
    for (size_t a = 0; a < sizeof AROUND / sizeof AROUND[0]; a++) {
        for (size_t i = 0; i < sizeof ACCEPTED / sizeof ACCEPTED[0]; i++) {
            snprintf(text, sizeof text, "%s%s%s", AROUND[a][0], ACCEPTED[i], AROUND[a][1]);
            if (!valid(text))
                fail_msg("%s is rejected", text);
        }
        for (size_t i = 0; i < sizeof REJECTED / sizeof REJECTED[0]; i++) {
            static const char *const FINE[] = {"",       " ", "\n", "1,",  "[] []",      "a\"",
                                               "\"a\"b", "]", "}",  "[]]", "{\"a\":1}}", "\"a\" \"b\""};
            bool becomes_fine = false;
            for (size_t f = 0; f < sizeof FINE / sizeof FINE[0]; f++)
                becomes_fine = becomes_fine || strcmp(REJECTED[i], FINE[f]) == 0;
            snprintf(text, sizeof text, "%s%s%s", AROUND[a][0], REJECTED[i], AROUND[a][1]);
            if (!becomes_fine && valid(text))
                fail_msg("%s is accepted", text);
        }
    }
}

static void framing(void **state)
{
    (void)state;
    bq_scanned out;
    assert_true(scan(" \n[1, 2] \t", 10, &out));
    assert_int_equal(out.off, 2);
    assert_int_equal(out.len, 6);
    assert_true(scan("  null", 6, &out));
    assert_int_equal(out.off, 2);
    assert_int_equal(out.len, 4);
    assert_false(scan("[1,\"a\xFF\"]", 8, &out));
    assert_true(out.bad_utf8);
    assert_int_equal(out.fault, 5);
    assert_false(scan("[1,\xFF]", 5, &out)); /* outside of a string it is UTF-8 first, too */
    assert_true(out.bad_utf8);
    assert_false(bq_scan_document(&out, NULL, 0, false));
    assert_string_equal(out.reason, "empty");
    assert_false(scan("[\"a\0b\"]", 7, &out));
    assert_false(scan("[]\0", 3, &out));
}

static void what_was_seen(void **state)
{
    (void)state;
    bq_scanned out;
    static const struct {
        const char *text;
        unsigned seen;
    } ROWS[] = {
        {"[\"a\"]", 0},
        {"[\"\xC3\xA9\"]", BQ_SCAN_HIGH},
        {"{\"\xC3\xA9\":1}", BQ_SCAN_HIGH},
        {"\"\xC3\xA9\"", BQ_SCAN_HIGH},
        {"[\"....................................................\xC3\xA9.............................................."
         "......\"]",
         BQ_SCAN_HIGH},
        {"[\"\\u0041 then \xC3\xA9 and a tail that is long enough for blocks\"]", BQ_SCAN_HIGH},
        {"[\"\\ud800\"]", BQ_SCAN_LONE},
        {"{\"\\udc00\":[]}", BQ_SCAN_LONE},
        {"\"\\ud800\\ud800\"", BQ_SCAN_LONE},
        {"[\"\\udbff\\udfff\"]", 0},
        {"[1e999]", BQ_SCAN_NONFINITE},
        {"{\"a\":[{\"b\":-1e999}]}", BQ_SCAN_NONFINITE},
        {"1e999", BQ_SCAN_NONFINITE},
        {"[1e-999,1e308]", 0},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        assert_true(scan(ROWS[i].text, strlen(ROWS[i].text), &out));
        if (out.seen != ROWS[i].seen)
            fail_msg("%s: seen %x, should be %x", ROWS[i].text, out.seen, ROWS[i].seen);
    }
    assert_true(bq_scan_document(&out, "[1e999]", 7, false));
    assert_int_equal(out.seen, 0);
}

/* ---- strings --------------------------------------------------------------------------------------------------- */

/* Something in a string at every offset, with every length behind it: each place of a block and of the tail. */
static void everything_at_every_offset(void **state)
{
    (void)state;
    static const struct {
        const char *piece;
        bool ok;
    } PIECES[] = {
        {"\\\"", true},
        {"\\\\", true},
        {"\\n", true},
        {"\\u00e9", true},
        {"\\ud83d\\ude9a", true},
        {"\xD0\xB6", true},
        {"\xE2\x82\xAC", true},
        {"\xF0\x9F\x9A\x9A", true},
        {"\\\\\\\\\\\\\\\"", true},
        {"\\\\\\\\\\n\\\\", true},
        {"\x7f", true},
        {"\x1f", false},
        {"\n", false},
        {"\x80", false},
        {"\xC3", false},
        {"\xF0\x9F\x9A", false},
        {"\\q", false},
        {"\\u00g0", false},
        {"\\u00e", false},
        {"\\ud83d\\u12", false},
        {"\"", false},
        {"\\\\\\\\\\\\\\q", false},
    };
    static const char *const FRAMES[][2] = {{"[\"", "\"]"}, {"{\"", "\":0}"}, {"{\"a\":\"", "\"}"}, {"\"", "\""}};
    char text[256];
    for (size_t f = 0; f < 4; f++) {
        for (size_t i = 0; i < sizeof PIECES / sizeof PIECES[0]; i++) {
            for (int before = 0; before < 40; before++) {
                for (int behind = 0; behind < 40; behind += 3) {
                    int n = snprintf(text, sizeof text, "%s%.*s%s%.*s%s", FRAMES[f][0], before,
                                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", PIECES[i].piece, behind,
                                     "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", FRAMES[f][1]);
                    bq_scanned out;
                    if (scan(text, (size_t)n, &out) != PIECES[i].ok)
                        fail_msg("%s is %s (%s)", text, out.ok ? "accepted" : "rejected", out.reason);
                }
            }
        }
    }
}

/* Runs of backslashes of every length at every offset: an even run ends nothing, an odd one escapes the quote. */
static void backslash_runs(void **state)
{
    (void)state;
    char text[256];
    for (int before = 0; before < 34; before++) {
        for (int run = 0; run < 40; run++) {
            memset(text, 'a', sizeof text);
            text[0] = '[';
            text[1] = '"';
            memset(text + 2 + before, '\\', (size_t)run);
            size_t at = (size_t)(2 + before + run);
            memcpy(text + at, "\"]", 3);
            assert_int_equal(valid(text), run % 2 == 0);
            memcpy(text + at, "n\"]", 4);
            assert_true(valid(text)); /* n or \n */
            memcpy(text + at, "x aaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", 34);
            assert_int_equal(valid(text), run % 2 == 0);
            memcpy(text + at, "\",\"aaaaaaaaaaaaaaaaaaaaaaaaaaa\"]", 33);
            assert_int_equal(valid(text), run % 2 == 0);
        }
    }
}

static void every_byte_in_a_string(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        for (int pad = 0; pad <= 40; pad += 40) {
            char text[128];
            snprintf(text, sizeof text, "[\"%.*s%c%.*s\"]", pad, "........................................", c, pad,
                     "........................................");
            bool ok = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            assert_int_equal(valid(text), ok);
            snprintf(text, sizeof text, "[\"%.*s\\%c%.*s\"]", pad, "........................................", c, pad,
                     "........................................");
            ok = strchr("\"\\/bfnrt", c) != NULL;
            assert_int_equal(valid(text), ok);
        }
    }
}

static void unescaping(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *text;
        bool lone;
    } ROWS[] = {
        {"", "", false},
        {"plain", "plain", false},
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t", false},
        {"a\\u0062c", "abc", false},
        {"\\u00e9\\u20AC", "\xC3\xA9\xE2\x82\xAC", false},
        {"\\ud83d\\ude9a!", "\xF0\x9F\x9A\x9A!", false},
        {"\\udbff\\udfff", "\xF4\x8F\xBF\xBF", false},
        {"\\ud800", "\xEF\xBF\xBD", true},
        {"\\udc00\\ud800", "\xEF\xBF\xBD\xEF\xBF\xBD", true},
        {"\\ud83dx", "\xEF\xBF\xBDx", true},
        {"\\ud83d\\n", "\xEF\xBF\xBD\n", true},
        {"\\ud83d\\u0041",
         "\xEF\xBF\xBD"
         "A",
         true},
        {"\\ud83d\\ud83d\\ude9a", "\xEF\xBF\xBD\xF0\x9F\x9A\x9A", true},
        {"\\\\u0041", "\\u0041", false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        char out[64];
        bool lone = false;
        size_t len = strlen(ROWS[i].raw);
        const uint8_t *raw = (const uint8_t *)guarded_end(&pages, ROWS[i].raw, len);
        size_t n = bq_scan_unescape(raw, len, out, &lone);
        assert_int_equal(n, strlen(ROWS[i].text));
        assert_memory_equal(out, ROWS[i].text, n);
        assert_int_equal(lone, ROWS[i].lone);
        bq_str text = {ROWS[i].text, n}, longer = {ROWS[i].text, n + 1};
        assert_int_equal(bq_scan_is(raw, len, text), !lone);
        assert_false(bq_scan_is(raw, len, longer));
        if (n > 0)
            assert_false(bq_scan_is(raw, len, (bq_str){text.ptr, n - 1}));
    }
    assert_true(bq_scan_is_token((const uint8_t *)"a/b~c", 5, BQ_STR("a~1b~0c")));
    assert_true(bq_scan_is_token((const uint8_t *)"a\\/b\\u007ec", 11, BQ_STR("a~1b~0c")));
    assert_false(bq_scan_is_token((const uint8_t *)"a/b", 3, BQ_STR("a/b")));
    assert_false(bq_scan_is_token((const uint8_t *)"~", 1, BQ_STR("~")));
    assert_false(bq_scan_is_token((const uint8_t *)"~2", 2, BQ_STR("~2")));
    assert_true(bq_scan_is_token((const uint8_t *)"~1", 2, BQ_STR("~01")));
}

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------- */

static void check_utf8(const uint8_t *bytes, size_t len)
{
    size_t expected = bq_utf8_invalid(bytes, len);
    const char *at = guarded_end(&pages, bytes, len);
    if (bq_scan_utf8(at, len) != expected)
        fail_msg("UTF-8 of %zu bytes: %zu, should be %zu", len, bq_scan_utf8(at, len), expected);
}

/* Every sequence of two bytes, and every one of three and four around the borders, at places where a block begins,
 * ends, and in the tail. */
static void utf8_sequences(void **state)
{
    (void)state;
    static const uint8_t EDGES[] = {0x00, 0x22, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                                    0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF};
    static const size_t PLACES[] = {0, 1, 13, 15, 61, 62, 63, 64, 127, 190};
    enum { N = sizeof EDGES, SIZE = 200 };
    uint8_t bytes[SIZE + 8];
    for (size_t p = 0; p < sizeof PLACES / sizeof PLACES[0]; p++) {
        for (unsigned a = 0; a < 256; a++) {
            for (unsigned b = 0; b < 256; b++) {
                memset(bytes, 'x', sizeof bytes);
                bytes[PLACES[p]] = (uint8_t)a;
                bytes[PLACES[p] + 1] = (uint8_t)b;
                check_utf8(bytes, PLACES[p] < 64 ? 70 : SIZE);
            }
        }
        for (unsigned i = 0; i < (unsigned)N * N * N * N; i++) {
            memset(bytes, 'x', sizeof bytes);
            bytes[PLACES[p]] = EDGES[i % N];
            bytes[PLACES[p] + 1] = EDGES[i / N % N];
            bytes[PLACES[p] + 2] = EDGES[i / N / N % N];
            bytes[PLACES[p] + 3] = EDGES[i / N / N / N];
            if (i / N / N / N != 1 && EDGES[i % N] < 0xE0)
                continue; /* two bytes were done above */
            check_utf8(bytes, PLACES[p] < 64 ? 68 : SIZE);
        }
    }
}

static void utf8_every_length(void **state)
{
    (void)state;
    static const char TEXT[] =
        "a\xD0\xB6\xE2\x82\xAC\xF0\x9F\x9A\x9A\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\xE0\xA0\x80\xF0\x90\x80\x80";
    uint8_t bytes[400];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)TEXT[i % (sizeof TEXT - 1)];
    for (size_t from = 0; from < 30; from++) {
        for (size_t len = 0; len <= 300; len++)
            check_utf8(bytes + from, len);
    }
}

/* ---- members --------------------------------------------------------------------------------------------------- */

static void members_in_order(void **state)
{
    (void)state;
    static const char BODY[] = " { \"a\" : 1 ,\"b\\u0063\":{\"x\":[1,2]}, \"\" :\"s\\\"}\" , \"d\":null } ";
    static const char *const EXPECTED[][2] = {
        {"a", "1"}, {"b\\u0063", "{\"x\":[1,2]}"}, {"", "\"s\\\"}\""}, {"d", "null"}};
    bq_members it;
    bq_member m;
    size_t n = 0, len = sizeof BODY - 1;
    bq_members_start(&it, BODY, len, 1);
    for (; bq_members_next(&it, &m); n++) {
        assert_true(n < 4);
        assert_int_equal(BODY[m.off], '"');
        assert_int_equal(m.key_len, strlen(EXPECTED[n][0]));
        assert_memory_equal(BODY + m.key, EXPECTED[n][0], m.key_len);
        assert_int_equal(m.value_len, strlen(EXPECTED[n][1]));
        assert_memory_equal(BODY + m.value, EXPECTED[n][1], m.value_len);
    }
    assert_int_equal(n, 4);
    assert_int_equal(BODY[bq_members_end(&it)], '}');
    bq_members_start(&it, "{ }", 3, 0);
    assert_false(bq_members_next(&it, &m));
    assert_int_equal(bq_members_end(&it), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar),
        cmocka_unit_test(grammar_inside),
        cmocka_unit_test(framing),
        cmocka_unit_test(what_was_seen),
        cmocka_unit_test(everything_at_every_offset),
        cmocka_unit_test(backslash_runs),
        cmocka_unit_test(every_byte_in_a_string),
        cmocka_unit_test(unescaping),
        cmocka_unit_test(utf8_sequences),
        cmocka_unit_test(utf8_every_length),
        cmocka_unit_test(members_in_order),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
