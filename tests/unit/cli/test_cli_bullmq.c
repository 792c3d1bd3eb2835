/* The job options of BullMQ: what is read, and what is refused. */
#include "unit/cmocka_all.h"

#include "args.h"
#include "bullmq.h"

#include <string.h>

const cli_option cli_common_options[] = {CLI_OPTIONS_END};
static const cli_verb verb = {.name = "publish", .operands = "", .values_size = sizeof(bullmq_values)};

static void backoffs(void **state)
{
    (void)state;
    bullmq_options o = {0};
    assert_true(bullmq_parse_backoff("fixed:5s", &o));
    assert_int_equal(o.backoff, BULLMQ_BACKOFF_FIXED);
    assert_int_equal(o.backoff_ms, 5000);
    assert_true(o.backoff_jitter == 0);
    assert_true(bullmq_parse_backoff("exponential:250ms:0.5", &o));
    assert_int_equal(o.backoff, BULLMQ_BACKOFF_EXPONENTIAL);
    assert_int_equal(o.backoff_ms, 250);
    assert_true(o.backoff_jitter == 0.5);
    assert_true(bullmq_parse_backoff("fixed:1:1", &o));
    static const char *const bad[] = {"",
                                      "fixed",
                                      "fixed:",
                                      "fixed:x",
                                      "linear:5s",
                                      "fixed:5s:",
                                      "fixed:5s:2",
                                      "fixed:5s:1.1",
                                      "fixed:5s:0.1.2",
                                      "fixed:5s:.",
                                      "fixed:5s:-0",
                                      "fixed:5s:nan",
                                      "fixed:5s:0:0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (bullmq_parse_backoff(bad[i], &o))
            fail_msg("'%s' was read", bad[i]);
}

static void keeps(void **state)
{
    (void)state;
    bullmq_keep k;
    assert_true(bullmq_parse_keep("yes", &k));
    assert_int_equal(k.kind, BULLMQ_KEEP_NONE);
    assert_true(bullmq_parse_keep("1000", &k));
    assert_int_equal(k.kind, BULLMQ_KEEP_COUNT);
    assert_int_equal(k.value, 1000);
    assert_true(bullmq_parse_keep("1h", &k));
    assert_int_equal(k.kind, BULLMQ_KEEP_AGE);
    assert_int_equal(k.value, 3600000);
    static const char *const bad[] = {"", "no", "-1", "1x", "h", "99999999999999", "yes1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (bullmq_parse_keep(bad[i], &k))
            fail_msg("'%s' was read", bad[i]);
}

static const bullmq_values none = {.attempts = -1, .priority = -1, .keep_logs = -1};

static void what_was_given(void **state)
{
    (void)state;
    bullmq_values v = none;
    assert_null(bullmq_given(&v));
    v.lifo = true;
    assert_string_equal(bullmq_given(&v), "lifo");
    v = none;
    v.priority = 0;
    assert_string_equal(bullmq_given(&v), "priority");
    v = none;
    v.dedup = "x";
    assert_string_equal(bullmq_given(&v), "dedup");
}

static void all_of_them(void **state)
{
    (void)state;
    bullmq_options o;
    bullmq_values v = {.attempts = 5,
                       .backoff = "fixed:1s",
                       .priority = 2,
                       .lifo = true,
                       .job_id = "job-1",
                       .remove_on_complete = "yes",
                       .remove_on_fail = "100",
                       .keep_logs = 0,
                       .dedup = "d"};
    assert_int_equal(bullmq_read(&verb, &v, &o), CLI_DONE);
    assert_int_equal(o.attempts, 5);
    assert_int_equal(o.keep_logs, 0);
    assert_int_equal(o.on_complete.kind, BULLMQ_KEEP_NONE);
    assert_int_equal(o.on_fail.value, 100);
    v.job_id = "17";
    assert_int_equal(bullmq_read(&verb, &v, &o), CLI_USAGE);
    v.job_id = "17a";
    assert_int_equal(bullmq_read(&verb, &v, &o), CLI_DONE);
    v.dedup = "";
    assert_int_equal(bullmq_read(&verb, &v, &o), CLI_USAGE);
    v.dedup = NULL;
    v.remove_on_fail = "no";
    assert_int_equal(bullmq_read(&verb, &v, &o), CLI_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoffs),
        cmocka_unit_test(keeps),
        cmocka_unit_test(what_was_given),
        cmocka_unit_test(all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
