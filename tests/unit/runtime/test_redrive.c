/*
 * Redrive (contract 6) on the scripted broker, and end to end on memory, SQLite and their stripped twins: what goes
 * back and how it looks, every reason to skip, the watermark, dry runs, and what happens when something fails.
 */
#include "bq_test.h"

#include "unit/transport/scratch.h"
#include "unit/transport_kit.h"
#include "worker_test.h"

#include <babelqueue/redrive.h>

#define DEAD(reason, queue, attempts)                                                                                  \
    "\"attempts\":" attempts ",\"dead_letter\":{\"reason\":\"" reason "\",\"error\":null,\"exception\":null,"          \
    "\"failed_at\":1,\"original_queue\":\"" queue "\",\"attempts\":" attempts ",\"lang\":\"go\"}}"
#define HEAD(id)                                                                                                       \
    "{\"job\":\"urn:a\",\"trace_id\":\"t-" id "\",\"data\":{\"big\":18446744073709551615},\"meta\":{\"id\":\"" id      \
    "\",\"queue\":\"home\",\"schema_version\":1,\"created_at\":5},"
#define RECORD(id) HEAD(id) DEAD("failed", "orders", "3")
#define RESET(id) HEAD(id) "\"attempts\":0}"

typedef struct seen {
    int count;
    struct {
        char id[64], trace_id[64], urn[64], reason[64], from[64], to[64], body[1024];
        bq_skip skip;
        bool redriven, bypassed, enveloped;
    } item[64];
    const char *only; /* `select` takes this id */
    int stop_after;   /* -1: never */
    int asked;
    char log[4096];
} seen;

static seen got;
static bq_redrive_options o;
static bq_redrive_result result;
static bq_error err;

static void report(const bq_redrive_item *i, void *arg)
{
    seen *s = arg;
    if (s->count < 64) {
        W_TEXT(s->item[s->count].id, i->id);
        W_TEXT(s->item[s->count].trace_id, i->trace_id);
        W_TEXT(s->item[s->count].urn, i->urn);
        W_TEXT(s->item[s->count].reason, i->reason);
        W_TEXT(s->item[s->count].from, i->from);
        W_TEXT(s->item[s->count].to, i->to);
        W_TEXT(s->item[s->count].body, i->body);
        s->item[s->count].skip = i->skip;
        s->item[s->count].redriven = i->redriven;
        s->item[s->count].bypassed = i->bypassed;
        s->item[s->count].enveloped = i->envelope != NULL;
    }
    s->count++;
}

static bool select_one(const bq_redrive_item *i, void *arg)
{
    seen *s = arg;
    return bq_str_equal(i->id, bq_str_of(s->only));
}

static bool stop(void *arg)
{
    seen *s = arg;
    return s->asked++ >= s->stop_after;
}

static void log_line(bq_log_level level, const char *line, void *arg)
{
    seen *s = arg;
    size_t at = strlen(s->log);
    snprintf(s->log + at, sizeof s->log - at, "%d %s\n", (int)level, line);
}

static int setup(void **state)
{
    (void)state;
    fake_reset();
    memset(&got, 0, sizeof got);
    memset(&err, 0, sizeof err);
    BQ_REDRIVE_OPTIONS_INIT(&o);
    o.report = report;
    o.arg = &got;
    o.logger = (bq_logger){log_line, &got, BQ_LOG_WARN};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    size_t live = fake_live();
    fake_clear();
    return live ? -1 : 0;
}

static bq_status run(const char *url)
{
    return bq_redrive(url, "q.dlq", &o, &result, &err);
}

static void expect_result(uint64_t seen_count, uint64_t redriven, uint64_t skipped)
{
    if (result.seen != seen_count || result.redriven != redriven || result.skipped != skipped)
        fail_msg("seen %d, redriven %d, skipped %d", (int)result.seen, (int)result.redriven, (int)result.skipped);
    assert_int_equal(got.count, seen_count);
}

/* ---- what goes back ------------------------------------------------------------------------------------------------------ */

static void goes_back_reset(void **state)
{
    (void)state;
    bq_prop props[] = {
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("traceparent"), .text = BQ_STR("00-1")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("bq-replay-bypass"), .text = BQ_STR("1")}};
    fake_put_bytes("q.dlq", BQ_STR(RECORD("1")), BQ_STR("key"), props, 2, -1, 0);
    assert_int_equal(run("fake:x"), BQ_OK);
    expect_result(1, 1, 0);
    assert_string_equal(fake_body("orders", 0), RESET("1"));
    assert_string_equal(fake_props("orders", 0), "traceparent=00-1;");
    fake_op op;
    assert_int_equal(fake_ops(-1), 1);
    assert_true(fake_op_at(-1, 0, &op));
    assert_int_equal(op.kind, BQ_OP_DEAD_LETTER); /* the driver's one guarded step, whatever the queue */
    assert_string_equal(op.key, "key");
    assert_string_equal(got.item[0].id, "1");
    assert_string_equal(got.item[0].trace_id, "t-1");
    assert_string_equal(got.item[0].urn, "urn:a");
    assert_string_equal(got.item[0].reason, "failed");
    assert_string_equal(got.item[0].from, "q.dlq");
    assert_string_equal(got.item[0].to, "orders");
    assert_true(got.item[0].redriven && got.item[0].enveloped);
    assert_false(got.item[0].bypassed);
}

static void acknowledges_only_after_the_confirmation(void **state)
{
    (void)state;
    fake_put("q.dlq", RECORD("1"), NULL, 0);
    fake_when(BQ_OP_PUBLISH, FAKE_LATE, 1);
    assert_int_equal(run("fakebare:x"), BQ_OK);
    fake_op op;
    assert_true(fake_op_at(-1, 0, &op));
    assert_int_equal(op.kind, BQ_OP_PUBLISH);
    assert_true(fake_op_at(-1, 1, &op));
    assert_int_equal(op.kind, BQ_OP_ACK);
    assert_int_equal(fake_ops(-1), 2);
    assert_string_equal(fake_body("orders", 0), RESET("1"));
    assert_int_equal(fake_ready("q.dlq") + fake_out(), 0);
}

static void targets(void **state)
{
    (void)state;
    fake_put("q.dlq", HEAD("1") "\"attempts\":3}", NULL, 0);
    o.require_dead_letter = false; /* meta.queue, where there is no dead_letter */
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(fake_ready("home"), 1);
    o.to_queue = "sandbox";
    fake_put("q.dlq", RECORD("2"), NULL, 0);
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(fake_ready("sandbox"), 1);
    o.to_queue = NULL;
    o.fallback_queue = "fallback";
    fake_put("q.dlq", "{\"job\":\"u\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"schema_version\":1},\"attempts\":0}",
             NULL, 0);
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(fake_ready("fallback"), 1);
}

/* Contract 6: `bq-replay-bypass: 1` only with bypass, and where the transport carries headers (not Kafka). */
static void bypass_is_a_header(void **state)
{
    (void)state;
    o.bypass = true;
    fake_put("q.dlq", RECORD("1"), NULL, 0);
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_string_equal(fake_props("orders", 0), "bq-replay-bypass=1;");
    assert_true(got.item[0].bypassed);
    fake_put("q.dlq", RECORD("2"), NULL, 0);
    assert_int_equal(run("fake:x?binding=laravel"), BQ_OK);
    assert_string_equal(fake_props("orders", 1), "");
    assert_false(got.item[1].bypassed);
    fake_put("q.dlq", RECORD("3"), NULL, 0);
    assert_int_equal(run("fake:x?binding=kafka"), BQ_OK);
    assert_null(strstr(fake_props("orders", 2), "bypass"));
    assert_false(got.item[2].bypassed);
    /* The handler's side: is_replay. */
    static worker w;
    w_init(&w);
    w.queues[0] = "orders";
    w.o.max_messages = 1;
    w_open(&w, "fake:x");
    assert_int_equal(bq_consumer_wait(w.consumer, 10000, &err), BQ_OK);
    w_close(&w);
    assert_true(w.last_replay);
}

static void dropped_members_are_warned_about(void **state)
{
    (void)state;
    fake_put("q.dlq",
             "{\"job\":\"u\",\"timestamp\":1,\"trace_id\":\"t\",\"data\":{},\"meta\":{\"id\":\"i\",\"schema_version\":"
             "1}," DEAD("failed", "orders", "1"),
             NULL, 0);
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_non_null(strstr(got.log, "message i: /timestamp is no member"));
    assert_null(strstr(fake_body("orders", 0), "timestamp"));
}

/* ---- what does not ---------------------------------------------------------------------------------------------------------- */

typedef struct skipped {
    const char *body;
    bq_skip skip;
} skipped;

static const skipped SKIPPED[] = {
    {"{\"job\":\"\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"schema_version\":1},\"attempts\":0}",
     BQ_SKIP_NO_IDENTITY},
    {"{\"raw\":\"x\",\"dead_letter\":{\"reason\":\"poison\",\"original_queue\":\"orders\"}}", BQ_SKIP_POISON},
    {"junk", BQ_SKIP_POISON},
    {HEAD("p") DEAD("poison", "orders", "0"), BQ_SKIP_POISON},
    {"{\"job\":\"u\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"schema_version\":1},\"attempts\":0,\"dead_letter\":{}}",
     BQ_SKIP_NO_TARGET},
    {HEAD("n") "\"attempts\":3}", BQ_SKIP_NO_DEAD_LETTER},
    {RECORD("other"), BQ_SKIP_NOT_SELECTED},
};
enum { SKIPS = sizeof SKIPPED / sizeof *SKIPPED };

/* Each is restored byte for byte, and none is met twice. */
static void every_reason_to_skip(const char *url)
{
    bq_prop prop = {.place = BQ_PLACE_HEADER, .type = BQ_PROP_INT, .name = BQ_STR("n"), .num = 7};
    for (int i = 0; i < SKIPS; i++)
        fake_put_bytes("q.dlq", bq_str_of(SKIPPED[i].body), BQ_STR("k"), &prop, 1, -1, 0);
    fake_put_bytes("q.dlq", BQ_STR(RECORD("1")), BQ_STR("k"), &prop, 1, -1, 0);
    got.only = "1";
    o.select = select_one;
    assert_int_equal(run(url), BQ_OK);
    expect_result(SKIPS + 1, 1, SKIPS);
    for (int i = 0; i < SKIPS; i++) {
        if (got.item[i].skip != SKIPPED[i].skip)
            fail_msg("%s: %s", SKIPPED[i].body, bq_skip_name(got.item[i].skip));
        if (o.batch == 0) /* the record that is met again goes to the end once more */
            assert_string_equal(fake_body("q.dlq", (size_t)i), SKIPPED[i].body);
        assert_string_equal(got.item[i].body, SKIPPED[i].body);
        assert_string_equal(fake_props("q.dlq", (size_t)i), "n=7;");
        assert_false(got.item[i].redriven);
    }
    assert_int_equal(fake_ready("q.dlq"), SKIPS);
    assert_int_equal(fake_ready("orders"), 1);
}

static void skips_with_a_known_depth(void **state)
{
    (void)state;
    every_reason_to_skip("fake:x");
}

/* Nobody knows the depth: the run ends when the first restored record is met again. */
static void skips_with_an_unknown_depth(void **state)
{
    (void)state;
    every_reason_to_skip("fakebare:x");
}

static void skips_in_small_batches(void **state)
{
    (void)state;
    o.batch = 2;
    every_reason_to_skip("fakebare:x");
}

static void gated_records(void **state)
{
    (void)state;
    bq_prop props[] = {
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("bq-schema-version"), .text = BQ_STR("2")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("bq-job"), .text = BQ_STR("urn:z")}};
    fake_put("q.dlq", "any bytes", props, 2);
    assert_int_equal(run("fake:x?binding=sqs"), BQ_OK);
    expect_result(1, 0, 1);
    assert_int_equal(got.item[0].skip, BQ_SKIP_GATED);
    assert_false(got.item[0].enveloped);
    /* By name they go back as they are. */
    o.include_gated = true;
    o.fallback_queue = "q";
    assert_int_equal(run("fake:x?binding=sqs"), BQ_OK);
    assert_string_equal(fake_body("q", 0), "any bytes");
    assert_string_equal(fake_props("q", 0), "bq-schema-version=2;bq-job=urn:z;");
    assert_int_equal(fake_ready("q.dlq"), 0);
}

static void poison_records_by_name(void **state)
{
    (void)state;
    o.include_poison = true;
    for (int i = 1; i < 4; i++)
        fake_put("q.dlq", SKIPPED[i].body, NULL, 0);
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(fake_ready("orders"), 2);
    assert_string_equal(fake_body("orders", 0), SKIPPED[1].body);
    assert_string_equal(fake_body("orders", 1), SKIPPED[3].body);
    assert_int_equal(got.item[1].skip, BQ_SKIP_NO_TARGET); /* junk names no queue */
    o.to_queue = "sandbox";
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_string_equal(fake_body("sandbox", 0), "junk");
}

/* ---- limits -------------------------------------------------------------------------------------------------------------------- */

static void takes_no_more_than_max(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        fake_put("q.dlq", RECORD("1"), NULL, 0);
    o.max = 3;
    assert_int_equal(run("fake:x"), BQ_OK);
    expect_result(3, 3, 0);
    assert_int_equal(fake_ready("q.dlq"), 2);
}

static void batches_are_bounded(void **state)
{
    (void)state;
    for (int i = 0; i < 25; i++)
        fake_put("q.dlq", RECORD("1"), NULL, 0);
    o.batch = 4;
    assert_int_equal(run("fake:x"), BQ_OK);
    expect_result(25, 25, 0);
    assert_in_range(fake_submit_max(), 1, 4);
    assert_int_equal(fake_ready("orders"), 25);
}

static void an_empty_queue_is_done_at_once(void **state)
{
    (void)state;
    int64_t began = fake_now_ms();
    assert_int_equal(run("fake:x"), BQ_OK);
    expect_result(0, 0, 0);
    assert_true(fake_now_ms() - began < 3000);
}

static void the_rate_is_a_limit(void **state)
{
    (void)state;
    fake_lease(40);
    for (int i = 0; i < 5; i++)
        fake_put("q.dlq", RECORD("1"), NULL, 0);
    o.rate = 50;
    int64_t began = fake_now_ms();
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_true(fake_now_ms() - began >= 75);
    expect_result(5, 5, 0);
    assert_true(fake_ops(BQ_OP_EXTEND) > 0); /* what waits for its turn keeps its lease */
}

static void stops_when_asked(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        fake_put("q.dlq", RECORD("1"), NULL, 0);
    o.stop = stop;
    got.stop_after = 2;
    assert_int_equal(run("fake:x"), BQ_OK);
    expect_result(2, 2, 0);
    assert_int_equal(fake_ready("q.dlq"), 4);
    assert_int_equal(fake_ready("orders"), 2);
    assert_int_equal(fake_out(), 0);
}

/* ---- dry runs -------------------------------------------------------------------------------------------------------------------- */

static void a_dry_run_only_reads(void **state)
{
    (void)state;
    char body[512];
    for (int i = 0; i < 130; i++) {
        snprintf(body, sizeof body, "%s", i % 2 ? RECORD("1") : "junk");
        fake_put("q.dlq", body, NULL, 0);
    }
    o.dry_run = true;
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(result.seen, 130);
    assert_int_equal(result.redriven, 0);
    assert_int_equal(fake_ops(-1), 0);
    assert_int_equal(fake_ready("q.dlq"), 130);
    assert_string_equal(got.item[1].to, "orders"); /* the plan */
    assert_int_equal(got.item[1].skip, BQ_SKIP_NONE);
    assert_int_equal(got.item[0].skip, BQ_SKIP_POISON);
    o.max = 7;
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(result.seen, 7);
}

static void a_dry_run_without_peeking_restores(void **state)
{
    (void)state;
    fake_put("q.dlq", RECORD("1"), NULL, 0);
    fake_put("q.dlq", RECORD("2"), NULL, 0);
    o.dry_run = true;
    assert_int_equal(run("fakebare:x"), BQ_OK);
    expect_result(2, 0, 2);
    assert_int_equal(fake_ready("q.dlq"), 2);
    assert_string_equal(fake_body("q.dlq", 0), RECORD("1"));
    assert_string_equal(fake_body("q.dlq", 1), RECORD("2"));
    assert_string_equal(got.item[0].to, "orders");
}

/* ---- faults -------------------------------------------------------------------------------------------------------------------------- */

static void three(void)
{
    fake_put("q.dlq", RECORD("1"), NULL, 0);
    fake_put("q.dlq", RECORD("2"), NULL, 0);
    fake_put("q.dlq", RECORD("3"), NULL, 0);
}

/* "A failed write restores the record, then the run stops with the error" */
static void a_failed_write_restores_and_stops(void **state)
{
    (void)state;
    three();
    o.batch = 1;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_REFUSE, 1);
    assert_int_equal(run("fake:x"), BQ_REFUSED);
    assert_string_equal(err.text, "writing a record back: the fake says REFUSED");
    expect_result(0, 0, 0);
    assert_int_equal(fake_ready("q.dlq"), 3);
    assert_int_equal(fake_ready("orders"), 0);
    assert_int_equal(fake_ops(BQ_OP_RELEASE), 1);
    /* The next run does what this one did not. */
    assert_int_equal(run("fake:x"), BQ_OK);
    assert_int_equal(fake_ready("orders"), 3);
}

/* Where nothing can be given back natively a copy is written, and only then is the record acknowledged. */
static void a_failed_write_on_a_bare_driver(void **state)
{
    (void)state;
    three();
    o.batch = 1;
    fake_when(BQ_OP_PUBLISH, FAKE_REFUSE, 1);
    assert_int_equal(run("fakebare:x"), BQ_REFUSED);
    assert_int_equal(fake_ready("q.dlq"), 3);
    assert_int_equal(fake_out(), 0);
    fake_op op;
    assert_true(fake_op_at(-1, 1, &op));
    assert_int_equal(op.kind, BQ_OP_PUBLISH);
    assert_string_equal(op.queue, "q.dlq");
    assert_string_equal(op.body, RECORD("1"));
    assert_true(fake_op_at(-1, 2, &op));
    assert_int_equal(op.kind, BQ_OP_ACK);
}

/* In a batch the others are moved, what was not processed goes back, and all errors are told together. */
static void faults_are_told_together(void **state)
{
    (void)state;
    three();
    fake_put("q.dlq", "junk", NULL, 0);
    fake_when(BQ_OP_DEAD_LETTER, FAKE_REFUSE, 2);
    fake_when(BQ_OP_RELEASE, FAKE_REFUSE, 1);
    assert_int_equal(run("fake:x"), BQ_REFUSED);
    assert_string_equal(err.text, "writing a record back: the fake says REFUSED; writing a record back: the fake says "
                                  "REFUSED; giving a record back: the fake says REFUSED");
    expect_result(2, 1, 1);
    assert_int_equal(fake_ready("orders"), 1);
    /* One stays unacknowledged until its connection ends. */
    assert_int_equal(fake_ready("q.dlq"), 3);
}

static void a_failed_restore_stops_too(void **state)
{
    (void)state;
    fake_put("q.dlq", "junk", NULL, 0);
    fake_put("q.dlq", RECORD("1"), NULL, 0);
    o.batch = 1;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_REFUSE, 1);
    assert_int_equal(run("fake:x"), BQ_REFUSED);
    assert_string_equal(err.text, "restoring a record: the fake says REFUSED");
    assert_int_equal(fake_ready("q.dlq"), 2);
    assert_int_equal(fake_ready("orders"), 0);
}

static void a_failed_acknowledge_stops_too(void **state)
{
    (void)state;
    fake_put("q.dlq", RECORD("1"), NULL, 0);
    fake_when(BQ_OP_ACK, FAKE_LOST, 1);
    assert_int_equal(run("fakebare:x"), BQ_LOST);
    assert_int_equal(fake_ready("orders"), 1);
}

static void a_driver_that_does_not_answer(void **state)
{
    (void)state;
    three();
    o.timeout_ms = 50;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_NEVER, 1);
    int64_t began = fake_now_ms();
    assert_int_equal(run("fake:x"), BQ_UNKNOWN);
    assert_true(fake_now_ms() - began < 5000);
    assert_int_equal(result.redriven, 2);
}

static void a_driver_that_takes_nothing(void **state)
{
    (void)state;
    three();
    o.timeout_ms = 50;
    fake_accept(0);
    assert_int_equal(run("fake:x"), BQ_TIMEOUT);
    expect_result(0, 0, 0);
    assert_int_equal(fake_ready("q.dlq"), 3); /* given back by the connection's end */
}

static void a_broker_that_is_not_there(void **state)
{
    (void)state;
    o.timeout_ms = 50;
    fake_down("no route");
    assert_int_equal(run("fake:x"), BQ_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no route"));
    assert_int_equal(fake_closed(), 1);
    fake_open_fails(BQ_CONFIG);
    assert_int_equal(run("fake:x"), BQ_CONFIG);
    assert_int_equal(run("nosuch:x"), BQ_INVALID);
    assert_int_equal(bq_redrive("fake:x", " ", &o, &result, &err), BQ_INVALID);
    o.rate = -1;
    assert_int_equal(run("fake:x"), BQ_INVALID);
}

/* ---- end to end ------------------------------------------------------------------------------------------------------------------------ */

static void put(const char *url, const char *queue, const char *body, int times)
{
    bq_publisher *p;
    char id[BQ_ID_SIZE];
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = bq_str_of(queue);
    m.body = bq_str_of(body);
    if (bq_publisher_open(&p, url, NULL, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < times; i++)
        assert_int_equal(bq_publish(p, &m, id, &err), BQ_OK);
    bq_publisher_close(p, 1000);
}

static int64_t depth_of(const char *url, const char *queue)
{
    bq_admin *a;
    bq_stats s = {.size = sizeof s};
    if (bq_admin_open(&a, url, 0, NULL, &err) || bq_admin_stats(a, bq_str_of(queue), &s, &err))
        fail_msg("%s", err.text);
    bq_admin_close(a);
    return s.ready;
}

static void end_to_end(const char *url, const char *own)
{
    put(url, "q.dlq", RECORD("1"), 30);
    put(url, "q.dlq", "junk", 3);
    put(url, "q.dlq", RECORD("2"), 30);
    o.batch = 16;
    o.dry_run = true;
    assert_int_equal(run(url), BQ_OK);
    assert_int_equal(result.seen, 63);
    assert_int_equal(depth_of(own, "q.dlq"), 63);
    o.dry_run = false;
    assert_int_equal(run(url), BQ_OK);
    assert_int_equal(result.seen, 63);
    assert_int_equal(result.redriven, 60);
    assert_int_equal(depth_of(own, "q.dlq"), 3);
    assert_int_equal(depth_of(own, "orders"), 60);
    static worker w;
    w_init(&w);
    w.queues[0] = "orders";
    w.o.max_messages = 60;
    w_open(&w, url);
    assert_int_equal(bq_consumer_wait(w.consumer, 20000, &err), BQ_OK);
    w_close(&w);
    assert_int_equal(w.calls, 60);
    assert_string_equal(w.seen[0], RESET("1"));
}

static void on_memory(void **state)
{
    (void)state;
    end_to_end("memory:redrive", "memory:redrive");
    end_to_end("memory-bare:redrive-bare", "memory:redrive-bare");
}

static void on_sqlite(void **state)
{
    (void)state;
    char a[600], b[600];
    const char *path = scratch_new();
    snprintf(a, sizeof a, "sqlite:%s", path);
    end_to_end(a, a);
    path = scratch_new();
    snprintf(a, sizeof a, "sqlite:%s", path);
    snprintf(b, sizeof b, "sqlite-bare:%s", path);
    end_to_end(b, a);
    scratch_clear();
}

static const bq_transport_ops *driver(const char *name)
{
    const bq_transport_ops *ops;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++)
        if (strcmp(ops->name, name) == 0)
            return ops;
    return NULL;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(goes_back_reset),
        T(acknowledges_only_after_the_confirmation),
        T(targets),
        T(bypass_is_a_header),
        T(dropped_members_are_warned_about),
        T(skips_with_a_known_depth),
        T(skips_with_an_unknown_depth),
        T(skips_in_small_batches),
        T(gated_records),
        T(poison_records_by_name),
        T(takes_no_more_than_max),
        T(batches_are_bounded),
        T(an_empty_queue_is_done_at_once),
        T(the_rate_is_a_limit),
        T(stops_when_asked),
        T(a_dry_run_only_reads),
        T(a_dry_run_without_peeking_restores),
        T(a_failed_write_restores_and_stops),
        T(a_failed_write_on_a_bare_driver),
        T(faults_are_told_together),
        T(a_failed_restore_stops_too),
        T(a_failed_acknowledge_stops_too),
        T(a_driver_that_does_not_answer),
        T(a_driver_that_takes_nothing),
        T(a_broker_that_is_not_there),
        T(on_memory),
        T(on_sqlite),
    };
    if (!driver("sqlite"))
        return 77;
    (void)kit_twin(driver("memory"), "memory-bare");
    (void)kit_twin(driver("sqlite"), "sqlite-bare");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
