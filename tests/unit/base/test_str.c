/* Views: equality and white space, which is exactly six ASCII bytes (contract, preamble). */
#include "unit/cmocka_all.h"

#include <babelqueue/types.h>

static void absent_is_not_empty_but_equal(void **state)
{
    (void)state;
    assert_null(bq_str_of(NULL).ptr);
    assert_int_equal(bq_str_of(NULL).len, 0);
    assert_non_null(bq_str_of("").ptr);
    assert_true(bq_str_equal(BQ_STR_NULL, BQ_STR("")));
    assert_true(bq_str_equal(BQ_STR_NULL, BQ_STR_NULL));
}

static void equality_is_of_bytes(void **state)
{
    (void)state;
    assert_true(bq_str_equal(BQ_STR("a\0b"), BQ_STR("a\0b")));
    assert_false(bq_str_equal(BQ_STR("a\0b"), BQ_STR("a\0c")));
    assert_false(bq_str_equal(BQ_STR("a"), BQ_STR("A")));
    assert_false(bq_str_equal(BQ_STR("a"), BQ_STR("ab")));
    assert_false(bq_str_equal(BQ_STR_NULL, BQ_STR("a")));
}

static void exactly_six_bytes_are_white_space(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool expected = c == 0x20 || c == 0x09 || c == 0x0A || c == 0x0B || c == 0x0C || c == 0x0D;
        assert_int_equal(bq_str_blank((bq_str){&byte, 1}), expected);
        char around[3] = {byte, 'x', byte};
        assert_int_equal(bq_str_trim((bq_str){around, 3}).len, expected ? 1 : 3);
    }
    assert_true(bq_str_blank(BQ_STR_NULL));
    assert_true(bq_str_blank(BQ_STR("")));
    assert_false(bq_str_blank(BQ_STR(" \xc2\xa0"))); /* NO-BREAK SPACE is text */
}

static void trim_keeps_the_inside(void **state)
{
    (void)state;
    bq_str s = bq_str_trim(BQ_STR(" \t a b \r\n"));
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.ptr, "a b", 3);
    assert_int_equal(bq_str_trim(BQ_STR(" \v\f ")).len, 0);
    assert_int_equal(bq_str_trim(BQ_STR_NULL).len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_is_not_empty_but_equal),
        cmocka_unit_test(equality_is_of_bytes),
        cmocka_unit_test(exactly_six_bytes_are_white_space),
        cmocka_unit_test(trim_keeps_the_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
