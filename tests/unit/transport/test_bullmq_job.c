/* test_bullmq_job.c - the options of a BullMQ job: what is read, what is stored, what is refused. */
#include "unit/cmocka_all.h"

#include "base/buf.h"
#include "transport/bullmq_job.h"

#include <string.h>

static void backoffs(void **state)
{
    (void)state;
    bq_bullmq_job o = BQ_BULLMQ_JOB_INIT;
    assert_true(bq_bullmq_parse_backoff("fixed:5s", &o));
    assert_int_equal(o.backoff, BQ_BULLMQ_BACKOFF_FIXED);
    assert_int_equal(o.backoff_ms, 5000);
    assert_true(o.backoff_jitter == 0);
    assert_true(bq_bullmq_parse_backoff("exponential:250ms:0.5", &o));
    assert_int_equal(o.backoff, BQ_BULLMQ_BACKOFF_EXPONENTIAL);
    assert_int_equal(o.backoff_ms, 250);
    assert_true(o.backoff_jitter == 0.5);
    assert_true(bq_bullmq_parse_backoff("fixed:1:1", &o));
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
        if (bq_bullmq_parse_backoff(bad[i], &o))
            fail_msg("'%s' was read", bad[i]);
}

static void keeps(void **state)
{
    (void)state;
    bq_bullmq_keep k;
    assert_true(bq_bullmq_parse_keep("yes", &k));
    assert_int_equal(k.kind, BQ_BULLMQ_KEEP_NONE);
    assert_true(bq_bullmq_parse_keep("1000", &k));
    assert_int_equal(k.kind, BQ_BULLMQ_KEEP_COUNT);
    assert_int_equal(k.value, 1000);
    assert_true(bq_bullmq_parse_keep("1h", &k));
    assert_int_equal(k.kind, BQ_BULLMQ_KEEP_AGE);
    assert_int_equal(k.value, 3600000);
    static const char *const bad[] = {"", "no", "-1", "1x", "h", "99999999999999", "yes1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (bq_bullmq_parse_keep(bad[i], &k))
            fail_msg("'%s' was read", bad[i]);
}

static void assert_opts(const bq_bullmq_job *job, int64_t delay_ms, const bq_prop *props, size_t count,
                        const char *json)
{
    bq_buf out;
    bq_buf_init(&out, 0);
    assert_int_equal(bq_job_opts(job, delay_ms, props, count, &out), BQ_OK);
    assert_int_equal(out.len, strlen(json));
    assert_memory_equal(out.ptr, json, out.len);
    bq_buf_clear(&out);
}

static void opts(void **state)
{
    (void)state;
    bq_bullmq_job job = BQ_BULLMQ_JOB_INIT;
    assert_opts(&job, 0, NULL, 0, "{\"attempts\":0}");
    job.attempts = 5;
    job.backoff = BQ_BULLMQ_BACKOFF_EXPONENTIAL;
    job.backoff_ms = 1000;
    job.backoff_jitter = 0.25;
    job.priority = 3;
    job.lifo = true;
    job.job_id = "a\"b";
    job.on_complete = (bq_bullmq_keep){BQ_BULLMQ_KEEP_NONE, 0};
    job.on_fail = (bq_bullmq_keep){BQ_BULLMQ_KEEP_AGE, 1500};
    job.keep_logs = 0;
    job.dedup_id = "d";
    job.dedup_ttl_ms = 7;
    assert_opts(
        &job, 250, NULL, 0,
        "{\"attempts\":5,\"delay\":250,\"backoff\":{\"type\":\"exponential\",\"delay\":1000,\"jitter\":0.250000},"
        "\"priority\":3,\"lifo\":true,\"jobId\":\"a\\\"b\",\"removeOnComplete\":true,\"removeOnFail\":{\"age\":2},"
        "\"kl\":0,\"de\":{\"id\":\"d\",\"ttl\":7}}");
    bq_bullmq_job plain = BQ_BULLMQ_JOB_INIT;
    plain.on_complete = (bq_bullmq_keep){BQ_BULLMQ_KEEP_COUNT, 100};
    bq_prop props[] = {{.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("k"), .text = BQ_STR("v")},
                       {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("e"), .text = BQ_STR("")}};
    assert_opts(&plain, 0, props, 2, "{\"attempts\":0,\"removeOnComplete\":100,\"tm\":\"{\\\"k\\\":\\\"v\\\"}\"}");
    assert_opts(&plain, 0, props + 1, 1, "{\"attempts\":0,\"removeOnComplete\":100}");
}

static void what_the_url_says(void **state)
{
    (void)state;
    bq_bullmq_job url = BQ_BULLMQ_JOB_INIT, own = BQ_BULLMQ_JOB_INIT;
    url.attempts = 3;
    url.priority = 9;
    url.backoff = BQ_BULLMQ_BACKOFF_FIXED;
    url.backoff_ms = 5;
    url.on_fail = (bq_bullmq_keep){BQ_BULLMQ_KEEP_COUNT, 7};
    assert_int_equal(bq_job_merge(NULL, &url).attempts, 3);
    own.attempts = 1;
    own.job_id = "x";
    bq_bullmq_job job = bq_job_merge(&own, &url);
    assert_int_equal(job.attempts, 1);
    assert_int_equal(job.priority, 9);
    assert_int_equal(job.backoff, BQ_BULLMQ_BACKOFF_FIXED);
    assert_int_equal(job.backoff_ms, 5);
    assert_int_equal(job.on_fail.value, 7);
    assert_string_equal(job.job_id, "x");
}

/* As BullMQ refuses them itself. */
static void refused(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "1a", "a:b:c", "-", "-x"}, *const bad[] = {"",   "1",   "007", "-7",
                                                                                       "0:", "0:a", "a:b", "a:b:c:d"};
    bq_bullmq_job job = BQ_BULLMQ_JOB_INIT;
    assert_int_equal(bq_job_check(&job, NULL), BQ_OK);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        job.job_id = good[i];
        if (bq_job_check(&job, NULL) != BQ_OK)
            fail_msg("'%s' was refused", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        job.job_id = bad[i];
        if (bq_job_check(&job, NULL) != BQ_INVALID)
            fail_msg("'%s' was taken", bad[i]);
    }
    job.job_id = NULL;
    job.priority = 2097153;
    assert_int_equal(bq_job_check(&job, NULL), BQ_INVALID);
    job.priority = 2097152;
    assert_int_equal(bq_job_check(&job, NULL), BQ_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backoffs),          cmocka_unit_test(keeps),   cmocka_unit_test(opts),
        cmocka_unit_test(what_the_url_says), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
