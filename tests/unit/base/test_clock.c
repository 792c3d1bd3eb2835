/* Clocks: replaceable, and deadlines that saturate rather than wrap. */
#include "unit/cmocka_all.h"

#include "base/clock.h"

#include <limits.h>
#include <time.h>

static int64_t fixed_us(void)
{
    return 5999999;
}

static int64_t fixed_epoch(void)
{
    return INT64_C(1700000000123);
}

static void real_clocks_are_the_systems(void **state)
{
    (void)state;
    int64_t a = bq_now_us(), b = bq_now_us();
    assert_true(a > 0 && b >= a);
    int64_t ms = bq_now_ms();
    assert_true(ms >= b / 1000 && ms - b / 1000 < 60000);
    int64_t before = (int64_t)time(NULL);
    int64_t epoch = bq_epoch_ms();
    assert_true(epoch / 1000 >= before && epoch / 1000 - before < 60);
}

static void overrides_are_taken_and_given_back(void **state)
{
    (void)state;
    bq_clock_override(fixed_us, fixed_epoch);
    assert_int_equal(bq_now_us(), 5999999);
    assert_int_equal(bq_now_ms(), 5999);
    assert_int_equal(bq_epoch_ms(), INT64_C(1700000000123));
    bq_clock_override(NULL, NULL);
    assert_true(bq_epoch_ms() != INT64_C(1700000000123));
}

static void deadlines_saturate(void **state)
{
    (void)state;
    assert_int_equal(bq_deadline(100, 50), 150);
    assert_int_equal(bq_deadline(100, 0), 100);
    assert_int_equal(bq_deadline(100, -1), BQ_NEVER);
    assert_int_equal(bq_deadline(100, INT64_MAX), BQ_NEVER);
    assert_int_equal(bq_deadline(INT64_MAX - 1, 1), BQ_NEVER);
}

static void poll_timeouts(void **state)
{
    (void)state;
    assert_int_equal(bq_poll_timeout(100, BQ_NEVER), -1);
    assert_int_equal(bq_poll_timeout(100, 100), 0);
    assert_int_equal(bq_poll_timeout(100, 99), 0);
    assert_int_equal(bq_poll_timeout(100, INT64_MIN), 0);
    assert_int_equal(bq_poll_timeout(100, 101), 1);
    assert_int_equal(bq_poll_timeout(0, INT64_MAX - 1), INT_MAX);
    assert_int_equal(bq_poll_timeout(-5, INT64_MAX - 1), INT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_clocks_are_the_systems),
        cmocka_unit_test(overrides_are_taken_and_given_back),
        cmocka_unit_test(deadlines_saturate),
        cmocka_unit_test(poll_timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
