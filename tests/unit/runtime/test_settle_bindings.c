/*
 * How a decision is carried out on each binding: which operations the driver sees, in which order, with what body and
 * which properties (contract 3 and 7), natively and by the fallback, on the scripted broker. The decisions themselves
 * are test_decide_matrix's; here it is what settle.c makes of them.
 */
#include "bq_test.h"

#include "worker_test.h"

#define ENVELOPE(attempts)                                                                                             \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{\"n\":1.0},\"meta\":{\"id\":\"m\",\"queue\":\"q\",\"lang\":"      \
    "\"go\","                                                                                                          \
    "\"schema_version\":1,\"created_at\":5},\"attempts\":" attempts "}"

typedef struct cell {
    const char *name;
    const char *url;
    const char *body;
    const bq_prop *props;
    size_t prop_count;
    int64_t native_count;
    void (*configure)(bq_consumer_options *o);
    bq_outcome outcome;
    int64_t retry_after_ms; /* -1: none */
    /* afterwards */
    const char *ops;   /* as `show` prints them */
    const char *wrote; /* part of the first write's body; NULL: nothing is written */
    const char *with;  /* the first write's properties; NULL: any */
    int reports;
    bq_settled settled;
} cell;

#define HEADER(header, value)                                                                                          \
    {                                                                                                                  \
        .place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = {header, sizeof(header) - 1}, .text = {              \
            value,                                                                                                     \
            sizeof(value) - 1                                                                                          \
        }                                                                                                              \
    }
static const bq_prop GATED[] = {HEADER("bq-schema-version", "2"), HEADER("bq-job", "urn:z"), HEADER("mine", "1")};
static const bq_prop ROUTED[] = {HEADER("bq-job", "urn:a"), HEADER("bq-attempts", "1"), HEADER("mine", "1")};
static const bq_prop DELAYED[] = {HEADER("bq-job", "urn:a"), HEADER("bq-attempts", "0"), HEADER("bq-delay", "5000"),
                                  HEADER("bq-original-topic", "first")};

static void plain(bq_consumer_options *o)
{
    (void)o;
}

static void dead_on(bq_consumer_options *o)
{
    o->dead_lettering = BQ_DEAD_LETTER_ON;
}

static void dead_off(bq_consumer_options *o)
{
    o->dead_lettering = BQ_DEAD_LETTER_OFF;
}

static void dead_at_once(bq_consumer_options *o)
{
    o->dead_lettering = BQ_DEAD_LETTER_ON;
    o->max_attempts = 1;
}

static void backoff(bq_consumer_options *o)
{
    o->retry_base_ms = 60;
}

static void backoff_at_once(bq_consumer_options *o)
{
    o->retry_base_ms = 60;
    o->dead_lettering = BQ_DEAD_LETTER_ON;
    o->max_attempts = 9;
}

static void release(bq_consumer_options *o)
{
    o->routes = NULL;
    o->route_count = 0;
    o->unknown = BQ_UNKNOWN_URN_RELEASE;
    o->unknown_delay_ms = 60;
}

#define P(list) list, sizeof list / sizeof *list
#define NONE NULL, 0
#define DROPS 0, BQ_SETTLED_DROPPED

static const cell CELLS[] = {
    /* ours, fallbacks of a driver that only publishes and acknowledges */
    {"retry by copy", "fakebare:x", ENVELOPE("0"), NONE, -1, plain, BQ_FAILED, -1, "publish q; ack", "\"attempts\":1}",
     "", 1, BQ_SETTLED_RETRIED},
    {"dead letter by copy", "fakebare:x", ENVELOPE("0"), NONE, -1, dead_at_once, BQ_FAILED, -1, "publish q.dlq; ack",
     "\"dead_letter\":", "", 1, BQ_SETTLED_DEAD_LETTERED},
    {"release by copy", "fakebare:x", ENVELOPE("1"), P(ROUTED), -1, release, BQ_DONE, -1, "publish q; ack",
     ENVELOPE("1"), "bq-job=urn:a;bq-attempts=1;mine=1;", 0, BQ_SETTLED_RELEASED},
    {"delay held by the worker", "fakebare:x", ENVELOPE("0"), NONE, -1, backoff, BQ_FAILED, -1, "publish q; ack",
     "\"attempts\":1}", "", 1, BQ_SETTLED_RETRIED},
    {"native", "fake:x", ENVELOPE("0"), NONE, -1, backoff, BQ_FAILED, -1, "retry q +60", "\"attempts\":1}", "", 1,
     BQ_SETTLED_RETRIED},
    {"retry with delay, published", "fakenative:x", ENVELOPE("0"), NONE, -1, backoff, BQ_FAILED, -1,
     "publish q +60; ack", "\"attempts\":1}", "", 1, BQ_SETTLED_RETRIED},
    /* Redis (7.1): poison is dead-lettered in every configuration */
    {"redis poison, off", "fake:x?binding=redis", "[]", NONE, -1, dead_off, BQ_DONE, -1, "dead_letter q.dlq",
     "{\"raw\":\"[]\",\"dead_letter\":", "", 1, BQ_SETTLED_DEAD_LETTERED},
    /* RabbitMQ (7.10): typed properties are kept, the count is set */
    {"rabbitmq retry", "fake:x?binding=rabbitmq", ENVELOPE("1"), P(ROUTED), -1, plain, BQ_FAILED, -1, "retry q",
     "\"attempts\":2}",
     "bq-job=urn:a;bq-attempts=1;mine=1;type=urn:a;correlation_id=t;message_id=m;app_id=babelqueue;"
     "content_type=application/"
     "json;content_encoding=utf-8;delivery_mode=2;x-schema-version=1;x-source-lang=go;x-attempts=2;",
     1, BQ_SETTLED_RETRIED},
    /* SQS (7.4): never re-sent, the broker counts */
    {"sqs failed", "fake:x?binding=sqs", ENVELOPE("0"), NONE, 1, backoff, BQ_FAILED, -1, "native_retry +60", NULL, NULL,
     1, BQ_SETTLED_RETRIED},
    {"sqs failed, its own delay", "fake:x?binding=sqs", ENVELOPE("0"), NONE, 1, plain, BQ_FAILED, 90,
     "native_retry +90", NULL, NULL, 1, BQ_SETTLED_RETRIED},
    {"sqs poison, off", "fake:x?binding=sqs", "[]", NONE, 1, plain, BQ_DONE, -1, "leave", NULL, NULL, 1,
     BQ_SETTLED_LEFT},
    {"sqs gated, off", "fake:x?binding=sqs", ENVELOPE("0"), P(GATED), 1, plain, BQ_DONE, -1, "leave", NULL, NULL, 1,
     BQ_SETTLED_LEFT},
    {"sqs gated", "fake:x?binding=sqs", "\xff raw", P(GATED), 1, dead_on, BQ_DONE, -1, "dead_letter q-dlq", "\xff raw",
     "bq-schema-version=2;bq-job=urn:z;mine=1;", 1, BQ_SETTLED_DEAD_LETTERED},
    {"sqs rejected, off", "fake:x?binding=sqs", ENVELOPE("0"), NONE, 1, plain, BQ_REJECTED, -1, "leave", NULL, NULL, 1,
     BQ_SETTLED_LEFT},
    {"sqs exhausted", "fake:x?binding=sqs", ENVELOPE("0"), NONE, 1, dead_at_once, BQ_FAILED, -1, "dead_letter q-dlq",
     "\"attempts\":1,\"dead_letter\":", NULL, 1, BQ_SETTLED_DEAD_LETTERED},
    /* Service Bus (7.5): held for the delay, then abandoned; native rejects */
    {"sb failed", "fakenative:x?binding=sb", ENVELOPE("0"), NONE, 0, backoff, BQ_FAILED, -1, "native_retry", NULL, NULL,
     1, BQ_SETTLED_RETRIED},
    {"sb poison, off", "fakenative:x?binding=sb", "[]", NONE, 0, plain, BQ_DONE, -1, "reject (poison)", NULL, NULL, 1,
     BQ_SETTLED_REJECTED},
    {"sb gated, off", "fakenative:x?binding=sb", ENVELOPE("0"), P(GATED), 0, plain, BQ_DONE, -1,
     "reject (unsupported schema version)", NULL, NULL, 1, BQ_SETTLED_REJECTED},
    {"sb unknown, release", "fakenative:x?binding=sb", ENVELOPE("0"), NONE, 0, release, BQ_DONE, -1, "release", NULL,
     NULL, 0, BQ_SETTLED_RELEASED},
    {"sb exhausted", "fakenative:x?binding=sb", ENVELOPE("0"), NONE, 0, dead_at_once, BQ_FAILED, -1,
     "publish q.dlq; ack", "\"dead_letter\":", NULL, 1, BQ_SETTLED_DEAD_LETTERED},
    {"sb on a driver that cannot reject", "fakebare:x?binding=sb", "[]", NONE, 0, plain, BQ_DONE, -1, "ack", NULL, NULL,
     1, BQ_SETTLED_DROPPED},
    {"sb on a driver that cannot abandon", "fakebare:x?binding=sb", ENVELOPE("0"), NONE, 0, plain, BQ_FAILED, -1,
     "publish q; ack", "\"attempts\":1}", NULL, 1, BQ_SETTLED_RETRIED},
    /* Pulsar (7.6) */
    {"pulsar retry", "fakebare:x?binding=pulsar", ENVELOPE("0"), P(ROUTED), 0, plain, BQ_FAILED, -1, "publish q; ack",
     "\"attempts\":2}",
     "bq-job=urn:a;mine=1;bq-trace-id=t;bq-message-id=m;bq-schema-version=1;bq-source-lang=go;bq-attempts=2;", 1,
     BQ_SETTLED_RETRIED},
    {"pulsar poison, off", "fakebare:x?binding=pulsar", "[]", P(ROUTED), 0, plain, BQ_DONE, -1, "publish q; ack", "[]",
     NULL, 1, BQ_SETTLED_RETRIED},
    {"pulsar gated, off", "fakebare:x?binding=pulsar", "[]", P(GATED), 0, plain, BQ_DONE, -1, "ack", NULL, NULL, 1,
     BQ_SETTLED_DROPPED},
    /* Kafka (7.8) */
    {"kafka retry", "fakebare:x?binding=kafka&tiers=2", ENVELOPE("1"), P(ROUTED), -1, backoff, BQ_FAILED, -1,
     "publish q ^2; ack", "\"attempts\":2}",
     "bq-job=urn:a;mine=1;bq-trace-id=t;bq-message-id=m;bq-schema-version=1;bq-source-lang=go;bq-attempts=2;"
     "bq-original-topic=q;",
     1, BQ_SETTLED_RETRIED},
    {"kafka record", "fakebare:x?binding=kafka", ENVELOPE("0"), P(DELAYED), -1, dead_on, BQ_FAILED, -1,
     "publish q.dlq; ack", "\"original_queue\":\"first\"",
     "bq-job=urn:a;bq-original-topic=first;bq-trace-id=t;bq-message-id=m;bq-schema-version=1;bq-source-lang=go;"
     "bq-attempts=1;",
     1, BQ_SETTLED_DEAD_LETTERED},
    {"kafka no tiers, no DLQ", "fake:x?binding=kafka", ENVELOPE("0"), P(ROUTED), -1, plain, BQ_FAILED, -1,
     "release +1000", NULL, NULL, 1, BQ_SETTLED_RELEASED},
    {"kafka unknown, parked", "fakebare:x?binding=kafka&tiers=2", ENVELOPE("0"), P(ROUTED), -1, release, BQ_DONE, -1,
     "publish q ^2; ack", ENVELOPE("0"), "bq-job=urn:a;bq-attempts=1;mine=1;", 0, BQ_SETTLED_RELEASED},
    {"kafka bare null", "fakebare:x?binding=kafka&tiers=1", "null", P(ROUTED), -1, plain, BQ_DONE, -1,
     "publish q ^1; ack", "null", NULL, 1, BQ_SETTLED_RETRIED},
    /* Artemis (7.9) */
    {"artemis failed", "fakenative:x?binding=artemis", ENVELOPE("0"), NONE, 0, backoff, BQ_FAILED, -1, "native_retry",
     NULL, NULL, 1, BQ_SETTLED_RETRIED},
    {"artemis poison, off", "fakenative:x?binding=artemis", "[]", NONE, 0, plain, BQ_DONE, -1, "ack", NULL, NULL, 1,
     BQ_SETTLED_DROPPED},
    /* BullMQ (7.3): the job's own backoff; poison is recorded, then the job fails all the same */
    {"bullmq failed", "fake:x?binding=bullmq", ENVELOPE("0"), NONE, 0, plain, BQ_FAILED, -1, "native_retry +-1", NULL,
     NULL, 1, BQ_SETTLED_RETRIED},
    {"bullmq failed, its own delay", "fake:x?binding=bullmq", ENVELOPE("0"), NONE, 0, plain, BQ_FAILED, 70,
     "native_retry +70", NULL, NULL, 1, BQ_SETTLED_RETRIED},
    {"bullmq poison", "fake:x?binding=bullmq", "[]", NONE, 2, dead_on, BQ_DONE, -1, "publish q.dlq; reject (poison)",
     "\"attempts\":2", NULL, 1, BQ_SETTLED_DEAD_LETTERED},
    {"bullmq rejected", "fake:x?binding=bullmq", ENVELOPE("0"), NONE, 0, plain, BQ_REJECTED, -1, "reject (failed)",
     NULL, NULL, 1, BQ_SETTLED_REJECTED},
    {"backoff below the limit", "fake:x?binding=redis", ENVELOPE("0"), NONE, -1, backoff_at_once, BQ_FAILED, -1,
     "retry q +60", "\"attempts\":1}", "", 1, BQ_SETTLED_RETRIED},
};

static const char *kind_name(bq_op_kind kind)
{
    static const char *const names[] = {"publish", "ack",          "release", "retry", "dead_letter",
                                        "reject",  "native_retry", "leave",   "extend"};
    return names[kind];
}

static void show(char *out, size_t size)
{
    fake_op op;
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; fake_op_at(-1, i, &op) && at < size; i++) {
        at += (size_t)snprintf(out + at, size - at, "%s%s%s%s", i ? "; " : "", kind_name(op.kind),
                               op.queue[0] ? " " : "", op.queue);
        if (op.delay_ms)
            at += (size_t)snprintf(out + at, size - at, " +%lld", (long long)op.delay_ms);
        if (op.tier)
            at += (size_t)snprintf(out + at, size - at, " ^%d", op.tier);
        if (op.reason[0])
            at += (size_t)snprintf(out + at, size - at, " (%s)", op.reason);
    }
}

static bool is_write(bq_op_kind kind)
{
    return kind == BQ_OP_PUBLISH || kind == BQ_OP_RETRY || kind == BQ_OP_DEAD_LETTER;
}

static void run_cell(const cell *c)
{
    static worker w;
    char ops[512];
    fake_op op;
    bq_error err;
    fake_reset();
    w_init(&w);
    w.outcome = c->outcome;
    w.retry_after_ms = c->retry_after_ms;
    w.o.max_messages = 1; /* a copy that comes back is left alone */
    c->configure(&w.o);
    bool held = c->configure == backoff && strstr(c->ops, "+60") == NULL && !strstr(c->url, "kafka");
    int64_t began = fake_now_ms();
    fake_put_bytes("q", bq_str_of(c->body), BQ_STR("key"), c->props, c->prop_count, c->native_count, 0);
    w_open(&w, c->url);
    if (bq_consumer_wait(w.consumer, 10000, &err))
        fail_msg("%s: %s\n%s", c->name, err.text, w.log);
    int64_t took = fake_now_ms() - began;
    w_close(&w);
    show(ops, sizeof ops);
    if (strcmp(ops, c->ops) != 0)
        fail_msg("%s: %s instead of %s\n%s", c->name, ops, c->ops, w.log);
    if (held && took < 60)
        fail_msg("%s: not held for its delay (%lld ms)", c->name, (long long)took);
    assert_true(fake_op_at(-1, 0, &op));
    if (is_write(op.kind) != (c->wrote != NULL) || (c->wrote && !strstr(op.body, c->wrote)))
        fail_msg("%s: wrote %s", c->name, op.body);
    if (c->wrote && strcmp(op.key, "key") != 0)
        fail_msg("%s: the key did not travel", c->name);
    if (c->with && strcmp(op.props, c->with) != 0)
        fail_msg("%s: with %s", c->name, op.props);
    if (w.report_count != c->reports || (c->reports && w.reports[0].settled != c->settled))
        fail_msg("%s: %d reports, settled %d\n%s", c->name, w.report_count, (int)w.reports[0].settled, w.log);
    if (c->reports && strcmp(w.reports[0].body, c->body) != 0)
        fail_msg("%s: reported body %s", c->name, w.reports[0].body);
    if (fake_live() || strstr(w.why, "the reported"))
        fail_msg("%s: %zu deliveries left; %s", c->name, fake_live(), w.why);
    fake_clear();
}

static void every_cell(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CELLS / sizeof *CELLS; i++)
        run_cell(&CELLS[i]);
}

/* Contract 7.3, the one exception of section 3: the failed record is reported, and the job fails all the same. */
static void bullmq_fails_the_job_although_the_record_was_not_written(void **state)
{
    (void)state;
    static worker w;
    char ops[512];
    fake_reset();
    w_init(&w);
    w.o.dead_lettering = BQ_DEAD_LETTER_ON;
    fake_when(BQ_OP_PUBLISH, FAKE_REFUSE, 1);
    fake_put_bytes("q", BQ_STR("[]"), BQ_STR_NULL, NULL, 0, 0, 0);
    w_open(&w, "fake:x?binding=bullmq");
    W_AWAIT_SETTLED(&w, 1);
    w_close(&w);
    show(ops, sizeof ops);
    assert_string_equal(ops, "publish q.dlq; reject (poison)");
    assert_int_equal(w.report_count, 1);
    assert_int_equal(w.reports[0].settled, BQ_SETTLED_FAILED);
    assert_int_equal(w.reports[0].trouble, BQ_TROUBLE_POISON);
    fake_clear();
}

/* How a delivery comes back whose write failed: given back, abandoned, or left (contract 3). */
static void comes_back(const char *url, const char *expected)
{
    static worker w;
    char ops[512];
    fake_reset();
    w_init(&w);
    w.o.dead_lettering = BQ_DEAD_LETTER_ON;
    w.o.settle_pause_ms = 40;
    w.outcome = BQ_REJECTED;
    fake_when(BQ_OP_PUBLISH, FAKE_REFUSE, 1);
    fake_when(BQ_OP_DEAD_LETTER, FAKE_REFUSE, 1);
    fake_put_bytes("q", bq_str_of(ENVELOPE("0")), BQ_STR_NULL, NULL, 0, 0, 0);
    int64_t began = fake_now_ms();
    w.o.prefetch = 1;
    w_open(&w, url);
    FAKE_AWAIT(fake_ops(BQ_OP_RELEASE) + fake_ops(BQ_OP_NATIVE_RETRY) + fake_ops(BQ_OP_LEAVE) + fake_forgotten() > 0);
    int64_t took = fake_now_ms() - began;
    show(ops, sizeof ops);
    bool waits = !strstr(expected, "leave") && !strstr(expected, "+");
    w_close(&w);
    if (strncmp(ops, expected, strlen(expected)) != 0)
        fail_msg("%s: %s instead of %s", url, ops, expected);
    if (waits && took < 40)
        fail_msg("%s: came back after %lld ms", url, (long long)took);
    fake_clear();
}

static void what_was_not_written_comes_back(void **state)
{
    (void)state;
    comes_back("fake:x", "dead_letter q.dlq; release");
    comes_back("fakebare:x", "publish q.dlq"); /* its reservation ends with the connection */
    comes_back("fakenative:x?binding=sb", "publish q.dlq; native_retry");
    comes_back("fake:x?binding=pulsar", "dead_letter q.dlq; native_retry");
    comes_back("fake:x?binding=sqs", "dead_letter q-dlq; leave");
    comes_back("fake:x?binding=kafka", "dead_letter q.dlq; release +40");
}

/* Section 1: forbidden members go when a body is written again, with a warning each. */
static void forbidden_members_are_warned_about(void **state)
{
    (void)state;
    static worker w;
    fake_reset();
    w_init(&w);
    w.outcome = BQ_REJECTED;
    fake_put("q",
             "{\"job\":\"urn:a\",\"urn\":\"u\",\"timestamp\":1,\"trace_id\":\"t\",\"data\":{},"
             "\"meta\":{\"schema_version\":1,\"ts\":1},\"attempts\":0}",
             NULL, 0);
    w_open(&w, "fake:x");
    W_AWAIT_SETTLED(&w, 1);
    w_close(&w);
    assert_true(w_logged(&w, "2 queue q, route urn:a: /timestamp is no member of the contract"));
    assert_true(w_logged(&w, "/urn is no member"));
    assert_true(w_logged(&w, "/meta/ts is no member"));
    fake_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell),
        cmocka_unit_test(bullmq_fails_the_job_although_the_record_was_not_written),
        cmocka_unit_test(what_was_not_written_comes_back),
        cmocka_unit_test(forbidden_members_are_warned_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
