/* Strings and integers as JSON (contract 1), and values without the white space between their tokens. */
#include "unit/cmocka_all.h"

#include <babelqueue/json.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bq_buf out;

static int setup(void **state)
{
    (void)state;
    bq_buf_init(&out, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bq_buf_clear(&out);
    return 0;
}

static void check_string(const char *bytes, size_t len, const char *expected)
{
    bq_buf_reset(&out);
    assert_int_equal(bq_json_add_string(&out, (bq_str){bytes, len}), BQ_OK);
    assert_string_equal(out.ptr, expected);
}

static void strings(void **state)
{
    (void)state;
    check_string("", 0, "\"\"");
    check_string(NULL, 0, "\"\"");
    check_string("plain", 5, "\"plain\"");
    check_string("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\""); /* the slash stays */
    check_string("\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\"");
    check_string("\0\1\v\x1f\x7f", 5, "\"\\u0000\\u0001\\u000b\\u001f\x7f\"");
    check_string("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\x9A\xEF\xBF\xBE", 12,
                 "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\x9A\xEF\xBF\xBE\"");
    check_string("a\xFFz", 3, "\"a\xEF\xBF\xBDz\"");
    check_string("\xE2\x82", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    check_string("\xED\xA0\x80\n", 4, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\n\"");
}

/* Every control character is escaped as the contract spells it; what was written reads back as it was. */
static void every_byte(void **state)
{
    (void)state;
    bq_json doc;
    bq_json_init(&doc);
    for (int c = 0; c < 128; c++) {
        char bytes[3] = {'x', (char)c, 'y'}, expected[16];
        bq_str text;
        static const char FROM[] = "\"\\\b\f\n\r\t", TO[] = "\"\\bfnrt";
        const char *spot = c > 0 ? strchr(FROM, c) : NULL;
        if (spot)
            snprintf(expected, sizeof expected, "\"x\\%cy\"", TO[spot - FROM]);
        else
            snprintf(expected, sizeof expected, c < 0x20 ? "\"x\\u%04xy\"" : "\"x%cy\"", (unsigned)c);
        check_string(bytes, 3, expected);
        assert_int_equal(bq_json_parse(&doc, bq_buf_str(&out), NULL), BQ_OK);
        assert_int_equal(bq_json_text(&doc, BQ_JSON_ROOT, &text, NULL), BQ_OK);
        assert_int_equal(text.len, 3);
        assert_memory_equal(text.ptr, bytes, 3);
    }
    bq_json_clear(&doc);
}

/* Escapes anywhere in texts of every length read back as they were. */
static void long_strings(void **state)
{
    (void)state;
    char text[400];
    bq_json doc;
    bq_json_init(&doc);
    for (size_t len = 0; len < sizeof text; len++) {
        for (unsigned every = 1; every < 200; every += 33) {
            bq_str back;
            for (size_t i = 0; i < len; i++)
                text[i] = (char)(i % every == every - 1 ? "\"\\\n\x01\x1f\b"[i % 6] : 'a' + (int)(i % 26));
            bq_buf_reset(&out);
            assert_int_equal(bq_json_add_string(&out, (bq_str){text, len}), BQ_OK);
            assert_int_equal(bq_json_parse(&doc, bq_buf_str(&out), NULL), BQ_OK);
            assert_int_equal(bq_json_text(&doc, BQ_JSON_ROOT, &back, NULL), BQ_OK);
            assert_int_equal(back.len, len);
            assert_memory_equal(back.ptr, text, len);
        }
    }
    bq_json_clear(&doc);
}

static void integers(void **state)
{
    (void)state;
    static const int64_t VALUES[] = {0, 1, -1, 9, 10, -10, 1784000000000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    char expected[32];
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        bq_buf_reset(&out);
        assert_int_equal(bq_json_add_int(&out, VALUES[i]), BQ_OK);
        snprintf(expected, sizeof expected, "%" PRId64, VALUES[i]);
        assert_string_equal(out.ptr, expected);
    }
}

static void compact(void **state)
{
    (void)state;
    static const char *const ROWS[][2] = {
        {"{}", "{}"},
        {" { } ", "{}"},
        {"[ 1 , 2.50 , -0 , 1E+2 ]\n", "[1,2.50,-0,1E+2]"},
        {"{\r\n\t\"a b\" : \" c \\\" d \\\\\" ,\n \"e\":[ true,null ] }",
         "{\"a b\":\" c \\\" d \\\\\",\"e\":[true,null]}"},
        {"\t\"a\\u0020 b\"  ", "\"a\\u0020 b\""},
        {" 12345678901234567890.0 ", "12345678901234567890.0"},
        {" null", "null"},
        {"[\"\xC3\xA9 \xE2\x82\xAC\" ]", "[\"\xC3\xA9 \xE2\x82\xAC\"]"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bq_buf_reset(&out);
        bq_buf_add_lit(&out, "+");
        assert_int_equal(bq_json_add_compact(&out, bq_str_of(ROWS[i][0]), NULL), BQ_OK);
        assert_string_equal(out.ptr + 1, ROWS[i][1]);
    }
    static const char *const WRONG[] = {"", " ", "{", "[1 2]", "tru", "{} {}", "\"\xFF\"", "1 2"};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        bq_error err;
        bq_buf_reset(&out);
        bq_buf_add_lit(&out, "+");
        assert_int_equal(bq_json_add_compact(&out, bq_str_of(WRONG[i]), &err), BQ_DATA);
        assert_string_equal(out.ptr, "+");
        assert_non_null(strstr(err.text, "not valid JSON at byte"));
    }
    assert_int_equal(bq_json_add_compact(&out, BQ_STR_NULL, NULL), BQ_DATA);
}

static bq_status write_all(void *arg)
{
    bq_buf own;
    char text[600];
    (void)arg;
    memset(text, '\n', sizeof text);
    bq_buf_init(&own, 0);
    bq_status status = bq_json_add_int(&own, 7);
    size_t before = own.len;
    if (status == BQ_OK)
        status = bq_json_add_string(&own, (bq_str){text, sizeof text});
    if (status != BQ_OK)
        assert_int_equal(own.len, before); /* all of it or nothing */
    before = own.len;
    if (status == BQ_OK) {
        static char big[3000];
        memset(big, ' ', sizeof big);
        big[0] = '[';
        for (size_t i = 1; i < sizeof big - 3; i += 2)
            memcpy(big + i, i > 1 ? ",1" : " 1", 2);
        big[sizeof big - 1] = ']';
        status = bq_json_add_compact(&own, (bq_str){big, sizeof big}, NULL);
        if (status != BQ_OK)
            assert_int_equal(own.len, before);
    }
    bq_buf_clear(&own);
    return status;
}

static void failures_leave_the_buffer_as_it_was(void **state)
{
    (void)state;
    alloc_fail_each("bq_json_add_*", write_all, NULL);
    for (size_t max = 1; max < 14; max++) {
        bq_buf small;
        bq_buf_init(&small, max);
        assert_int_equal(bq_buf_add(&small, "x", 1), BQ_OK);
        bq_status status = bq_json_add_string(&small, BQ_STR("0123456789"));
        assert_int_equal(status, max < 13 ? BQ_DATA : BQ_OK);
        assert_int_equal(small.len, max < 13 ? 1 : 13);
        bq_buf_reset(&small);
        bq_error err;
        status = bq_json_add_compact(&small, BQ_STR("[1, 2, 3, 4]"), &err);
        assert_int_equal(status, max < 9 ? BQ_DATA : BQ_OK);
        assert_int_equal(small.len, max < 9 ? 0 : 9);
        bq_buf_clear(&small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings),  cmocka_unit_test(every_byte), cmocka_unit_test(long_strings),
        cmocka_unit_test(integers), cmocka_unit_test(compact),    cmocka_unit_test(failures_leave_the_buffer_as_it_was),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
