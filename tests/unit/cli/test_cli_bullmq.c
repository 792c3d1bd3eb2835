/* The job options of BullMQ: what is read, and what is refused. */
#include "unit/cmocka_all.h"

#include "args.h"
#include "bullmq.h"

#include <string.h>

const cli_option cli_common_options[] = {CLI_OPTIONS_END};
static const cli_verb verb = {.name = "publish", .operands = "", .values_size = sizeof(bullmq_values)};

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
    bq_bullmq_job o;
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
    assert_int_equal(o.on_complete.kind, BQ_BULLMQ_KEEP_NONE);
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
        cmocka_unit_test(what_was_given),
        cmocka_unit_test(all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
