/* Durations as people write them. */
#include "unit/cmocka_all.h"

#include <babelqueue/types.h>

#include <string.h>

static void accepted(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"0", 0},
        {"0ms", 0},
        {"0.0s", 0},
        {"250ms", 250},
        {"5s", 5000},
        {"5", 5000},
        {"007", 7000},
        {"2m", 120000},
        {"1h", 3600000},
        {"1.5", 1500},
        {"1.5s", 1500},
        {"0.1", 100},
        {"0.001", 1},
        {"1.5h", 5400000},
        {"0.5m", 30000},
        {"0.9999999999999999999999", 1000}, /* rounded up to the millisecond */
        {"1.0000000000000000000000", 1000},
        {"0.0000000000000000000001", 1}, /* never to nothing */
        {"1.2ms", 2},
        {"9223372036854ms", INT64_C(9223372036854)},
        {"9223372036.854", INT64_C(9223372036854)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ms = -1;
        if (!bq_parse_duration(bq_str_of(rows[i].text), &ms))
            fail_msg("%s was refused", rows[i].text);
        if (ms != rows[i].ms)
            fail_msg("%s gave %lld", rows[i].text, (long long)ms);
    }
}

static void refused(void **state)
{
    (void)state;
    const char *rows[] = {"",
                          " ",
                          "5 s",
                          " 5s",
                          "5s ",
                          "-1",
                          "+1",
                          "-0",
                          "s",
                          "ms",
                          ".5",
                          "5.",
                          "5.s",
                          "1.2.3",
                          "1,5",
                          "1e3",
                          "5S",
                          "5d",
                          "5sec",
                          "0x10",
                          "1h30m",
                          "nan",
                          "inf",
                          "off",
                          "9223372036855ms",
                          "9223372036.855",
                          "2562048h",
                          "9223372036854775807",
                          "99999999999999999999999999999999999999",
                          "99999999999999999999.5h"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ms = -1;
        if (bq_parse_duration(bq_str_of(rows[i]), &ms))
            fail_msg("\"%s\" was taken for %lld ms", rows[i], (long long)ms);
        assert_int_equal(ms, -1);
    }
    int64_t ms;
    assert_false(bq_parse_duration(BQ_STR_NULL, &ms));
    assert_false(bq_parse_duration(BQ_STR("5\0s"), &ms));
}

static void the_view_ends_the_number(void **state)
{
    (void)state;
    int64_t ms = 0;
    assert_true(bq_parse_duration((bq_str){"15s", 1}, &ms));
    assert_int_equal(ms, 1000);
    assert_false(bq_parse_duration((bq_str){"1.5s", 2}, &ms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(the_view_ends_the_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
