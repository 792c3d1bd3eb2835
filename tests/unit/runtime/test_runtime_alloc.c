/*
 * Memory runs out at every point of the runtime: each call says so, nothing leaks, and no message is lost - one that
 * could not be processed stays on the broker and comes back.
 */
#include "bq_test.h"

#include "unit/alloc_fail.h"
#include "worker_test.h"

#include <babelqueue/redrive.h>

#define RECORD                                                                                                         \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"id\":\"\\u0031\",\"queue\":\"q\",\"schema_"         \
    "version\":1},"                                                                                                    \
    "\"attempts\":1,\"dead_letter\":{\"reason\":\"failed\",\"original_queue\":\"orders\"}}"

static bq_status publish_one(void *arg)
{
    const char *url = arg;
    bq_publisher *p;
    bq_error err;
    char id[BQ_ID_SIZE];
    bq_header header = {BQ_STR("h"), BQ_STR("v")};
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = BQ_STR("q");
    m.urn = BQ_STR("urn:a");
    m.data = BQ_STR("{\"n\":1}");
    m.headers = &header;
    m.header_count = 1;
    fake_reset();
    bq_status st = bq_publisher_open(&p, url, NULL, &err);
    if (!st) {
        st = bq_publish(p, &m, id, &err);
        if (!st)
            st = bq_publish(p, &m, id, &err);
        bq_publisher_close(p, 1000);
    }
    if (st && st != err.status)
        fail_msg("%s is not explained: %s", bq_status_name(st), err.text);
    if (!st && fake_ready("q") != 2)
        fail_msg("published, and not there");
    fake_clear();
    return st;
}

static worker w;
static atomic_int seen;

/* Whatever is reported as failed ends the run: without memory it would be tried for ever. */
static void stop_at_failure(const bq_failure *f, void *arg)
{
    (void)arg;
    if (f->settlement)
        seen = f->settlement->status;
    bq_consumer_stop(w.consumer);
}

static bq_outcome answer(bq_delivery *d, void *arg)
{
    bq_outcome *outcome = arg;
    (void)bq_delivery_id(d);
    bq_delivery_set_error(d, BQ_STR("E"), BQ_STR("text"));
    return *outcome;
}

typedef struct work {
    const char *url;
    const char *body;
    bq_outcome outcome;
} work;

/* One message, once through a worker. It is handled, or it is still there. */
static bq_status work_one(void *arg)
{
    work *k = arg;
    bq_error err;
    const bq_prop prop = {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("h"), .text = BQ_STR("v")};
    fake_reset();
    fake_put("q", k->body, &prop, 1);
    w_init(&w);
    w.routes[0] = (bq_route){"urn:a", answer, &k->outcome};
    w.o.max_attempts = 1;
    w.o.concurrency = 2;
    w.o.settle_pause_ms = -1;
    w.o.shutdown_timeout_ms = 2000;
    w.o.on_error = stop_at_failure;
    w.o.logger = (bq_logger){0};
    /* No message is ever taken before the consumer's address is known to the callback. */
    fake_down("not yet");
    seen = BQ_OK;
    bq_status st = bq_consumer_open(&w.consumer, k->url, &w.o, &err);
    if (st) {
        if (st != err.status)
            fail_msg("%s is not explained: %s", bq_status_name(st), err.text);
        if (fake_ready("q") != 1)
            fail_msg("lost by an open that failed");
        fake_clear();
        return st;
    }
    fake_up();
    /* A message that could not even be judged comes back without a report; then it is tried again. */
    FAKE_AWAIT(w_metrics(&w).taken > 0 && w_metrics(&w).in_flight == 0 &&
               (seen || w_metrics(&w).acked || w_metrics(&w).dead_lettered || w_metrics(&w).taken > 1));
    bq_consumer_stop(w.consumer);
    bq_metrics m = w_metrics(&w);
    bq_consumer_close(w.consumer);
    bool handled = k->outcome == BQ_DONE && fake_ready("q") == 0 && fake_ready("q.dlq") == 0;
    if (fake_ready("q") + fake_ready("q.dlq") + handled != 1)
        fail_msg("%zu on the queue, %zu on the dead-letter queue", fake_ready("q"), fake_ready("q.dlq"));
    fake_clear();
    return seen ? (bq_status)seen : m.acked || m.dead_lettered ? BQ_OK : BQ_NOMEM;
}

static bq_status redrive_two(void *arg)
{
    const char *url = arg;
    bq_error err;
    bq_redrive_options o;
    bq_redrive_result r;
    BQ_REDRIVE_OPTIONS_INIT(&o);
    o.batch = 4;
    fake_reset();
    fake_put("q.dlq", RECORD, NULL, 0);
    fake_put("q.dlq", "junk", NULL, 0);
    bq_status st = bq_redrive(url, "q.dlq", &o, &r, &err);
    if (st && st != err.status)
        fail_msg("%s is not explained: %s", bq_status_name(st), err.text);
    if (fake_ready("q.dlq") + fake_ready("orders") != 2)
        fail_msg("%zu dead, %zu redriven", fake_ready("q.dlq"), fake_ready("orders"));
    if (!st && fake_ready("orders") != 1)
        fail_msg("done, and not redriven");
    fake_clear();
    return st;
}

static bool look(const bq_peeked *m, void *arg)
{
    int *n = arg;
    *n += m->envelope->verdict == BQ_VERDICT_OK;
    return true;
}

static bq_status administer(void *arg)
{
    bq_admin *a;
    bq_error err;
    bq_stats s = {.size = sizeof s};
    int n = 0;
    (void)arg;
    fake_reset();
    fake_put("q",
             "{\"urn\":\"urn:\\u0061\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"schema_version\":1},\"attempts\":0}",
             NULL, 0);
    bq_status st = bq_admin_open(&a, "fake:x?binding=rabbitmq", 1000, NULL, &err);
    if (!st) {
        st = bq_admin_stats(a, BQ_STR("q"), &s, &err);
        if (!st)
            st = bq_admin_peek(a, BQ_STR("q"), 0, 10, look, &n, &err);
        if (!st && (n != 1 || s.ready != 1))
            fail_msg("seen %d of %d", n, (int)s.ready);
        bq_admin_close(a);
    }
    fake_clear();
    return st;
}

static void publisher(void **state)
{
    (void)state;
    char url[] = "fake:x?binding=rabbitmq";
    assert_true(alloc_fail_each("publish", publish_one, url) > 5);
}

static void consumer_done(void **state)
{
    (void)state;
    work k = {"fake:x?binding=rabbitmq", body_of("urn:a", 0), BQ_DONE};
    assert_true(alloc_fail_each("done", work_one, &k) > 5);
}

static void consumer_failed(void **state)
{
    (void)state;
    work k = {"fake:x?binding=rabbitmq", body_of("urn:a", 0), BQ_FAILED};
    assert_true(alloc_fail_each("failed", work_one, &k) > 10);
}

static void consumer_failed_fallback(void **state)
{
    (void)state;
    work k = {"fakefixed:x?binding=kafka&tiers=1", body_of("urn:a", 0), BQ_FAILED};
    assert_true(alloc_fail_each("failed, kafka", work_one, &k) > 10);
}

static void consumer_poison(void **state)
{
    (void)state;
    work k = {"fake:x", "{\"job\":\"\\u0075\",\"meta\":3}", BQ_DONE};
    assert_true(alloc_fail_each("poison", work_one, &k) > 10);
}

/* The route itself needs memory: the message cannot be judged, and comes back. */
static void consumer_escaped(void **state)
{
    (void)state;
    work k = {"fake:x",
              "{\"job\":\"urn:\\u0061\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"id\":\"1\",\"schema_version\":1},"
              "\"attempts\":0}",
              BQ_FAILED};
    assert_true(alloc_fail_each("escaped", work_one, &k) > 10);
}

static void redrive(void **state)
{
    (void)state;
    char url[] = "fake:x?binding=rabbitmq", bare[] = "fakebare:x?binding=rabbitmq";
    assert_true(alloc_fail_each("redrive", redrive_two, url) > 10);
    assert_true(alloc_fail_each("redrive, bare", redrive_two, bare) > 10);
}

static void admin(void **state)
{
    (void)state;
    assert_true(alloc_fail_each("admin", administer, NULL) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publisher),       cmocka_unit_test(consumer_done),
        cmocka_unit_test(consumer_failed), cmocka_unit_test(consumer_failed_fallback),
        cmocka_unit_test(consumer_poison), cmocka_unit_test(consumer_escaped),
        cmocka_unit_test(redrive),         cmocka_unit_test(admin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
