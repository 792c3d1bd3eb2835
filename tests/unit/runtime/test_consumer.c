/*
 * The consumer on the scripted broker: what a handler sees and says, the order of settling and reporting, every
 * misbehaviour of the broker, deferred outcomes, metrics and options (contract 3). What passes with time is in
 * test_consumer_life.c.
 */
#include "bq_test.h"

#include "worker_test.h"

#include <stdlib.h>

/* ---- the straight road ------------------------------------------------------------------------------------------------ */

static void handles_and_acknowledges(void **state)
{
    worker *w = *state;
    bq_prop props[] = {{.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("k"), .text = BQ_STR("v")}};
    fake_put("q", body_of("urn:a", 2), props, 1);
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(W(w, calls), 1);
    assert_string_equal(w->last_urn, "urn:a");
    assert_string_equal(w->last_queue, "q");
    assert_string_equal(w->last_id, ID);
    assert_string_equal(w->last_trace, "trace-1");
    assert_string_equal(w->last_data, "{\"n\":1.0}");
    assert_int_equal(w->last_attempts, 2);
    assert_false(w->last_replay);
    assert_int_equal(fake_ops(BQ_OP_ACK), 1);
    assert_int_equal(fake_ops(-1), 1);
    assert_int_equal(fake_ready("q") + fake_out(), 0);
    bq_metrics m = w_metrics(w);
    assert_int_equal(m.acked, 1);
    assert_int_equal(m.handled, 1);
    assert_true(m.connected);
    assert_int_equal(W(w, report_count), 0);
    w_close(w);
    assert_int_equal(fake_closed(), 1);
}

static bq_outcome read_headers(bq_delivery *d, void *arg)
{
    char *out = arg;
    bq_str name, value;
    size_t at = 0;
    for (size_t i = 0; bq_delivery_header_at(d, i, &name, &value); i++)
        at += (size_t)snprintf(out + at, 512 - at, "%.*s=%.*s;", (int)name.len, name.ptr, (int)value.len, value.ptr);
    bq_str one = bq_delivery_header(d, BQ_STR("n"));
    snprintf(out + at, 512 - at, "[%.*s]%s", (int)one.len, one.ptr, bq_delivery_is_replay(d) ? "replay" : "");
    return BQ_DONE;
}

/* Contract 5: without the contract's own; what is not a string is surfaced as text; empty ones are dropped. */
static void headers_as_a_handler_sees_them(void **state)
{
    worker *w = *state;
    char seen[512] = "";
    w->routes[0] = (bq_route){"urn:a", read_headers, seen};
    bq_prop props[] = {
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("traceparent"), .text = BQ_STR("00-1")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("x-source-lang"), .text = BQ_STR("c")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_INT, .name = BQ_STR("n"), .num = -42},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("empty"), .text = BQ_STR("")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_BOOL, .name = BQ_STR("b"), .num = 1},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_NULL, .name = BQ_STR("nothing")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_DOUBLE, .name = BQ_STR("d"), .real = 0.5},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_BINARY, .name = BQ_STR("bin"), .text = BQ_STR("bytes")},
        {.place = BQ_PLACE_NATIVE, .type = BQ_PROP_STRING, .name = BQ_STR("type"), .text = BQ_STR("urn:a")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("bq-replay-bypass"), .text = BQ_STR("1")},
    };
    fake_put("q", body_of("urn:a", 0), props, sizeof props / sizeof *props);
    w_open(w, "fake:x?binding=rabbitmq");
    W_AWAIT_SETTLED(w, 1);
    assert_string_equal(seen, "traceparent=00-1;n=-42;b=true;d=0.5;bin=bytes;bq-replay-bypass=1;[-42]replay");
}

typedef struct tally {
    size_t seen, wrong;
    time_t took_s;
} tally;

static bq_outcome read_very_many_headers(bq_delivery *d, void *arg)
{
    tally *t = arg;
    bq_str name, value;
    char expected[24];
    struct timespec from, to;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (; bq_delivery_header_at(d, t->seen, &name, &value); t->seen++) {
        snprintf(expected, sizeof expected, "%zu", t->seen);
        t->wrong += !bq_str_equal(value, bq_str_of(expected));
    }
    t->wrong += bq_delivery_header(d, BQ_STR("none")).ptr != NULL;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    t->took_s = to.tv_sec - from.tv_sec;
    /* In any order, and the same one again. */
    for (size_t i = 4; i-- > 1;) {
        snprintf(expected, sizeof expected, "%zu", i / 2);
        t->wrong += !bq_delivery_header_at(d, i / 2, &name, &value) || !bq_str_equal(value, bq_str_of(expected));
    }
    return BQ_DONE;
}

/* Whoever publishes chooses how many there are: reading them all must not begin at the first for each. */
static void very_many_headers_take_no_long_time(void **state)
{
    worker *w = *state;
    enum { MANY = 60000 };
    tally t = {0};
    bq_prop *props = calloc(MANY, sizeof *props);
    char(*texts)[24] = calloc(MANY, sizeof *texts);
    assert_non_null(props);
    assert_non_null(texts);
    for (size_t i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof *texts, "%zu", i);
        props[i] = (bq_prop){.place = BQ_PLACE_HEADER, .name = BQ_STR("h"), .num = (int64_t)i};
        props[i].type = i % 2 ? BQ_PROP_INT : BQ_PROP_STRING;
        props[i].text = i % 2 ? BQ_STR_NULL : bq_str_of(texts[i]);
    }
    w->routes[0] = (bq_route){"urn:a", read_very_many_headers, &t};
    fake_put("q", body_of("urn:a", 0), props, MANY);
    w_open(w, "fake:x?binding=rabbitmq");
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(t.seen, MANY);
    assert_int_equal(t.wrong, 0);
    assert_in_range(t.took_s, 0, 2);
    free(texts);
    free(props);
}

static void several_queues_in_turn(void **state)
{
    worker *w = *state;
    w->queues[1] = "r";
    w->o.queue_count = 2;
    w->o.prefetch = 2;
    for (int i = 0; i < 10; i++) {
        fake_put("q", body_of("urn:a", 0), NULL, 0);
        fake_put("r", body_of("urn:a", 1), NULL, 0);
    }
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 20);
    int q = 0;
    for (int i = 0; i < 16; i++)
        q += strstr(w->seen[i], "\"attempts\":0") != NULL;
    assert_in_range(q, 6, 10); /* neither waits for the other */
}

static void concurrency_and_prefetch_are_limits(void **state)
{
    worker *w = *state;
    w->o.concurrency = 3;
    w->o.prefetch = 5;
    w_gate(w, true);
    for (int i = 0; i < 12; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 3 && fake_out() == 5);
    FAKE_AWAIT(w_metrics(w).in_flight == 5);
    w_gate(w, false);
    W_AWAIT_SETTLED(w, 12);
    assert_int_equal(W(w, max_running), 3);
    assert_int_equal(w_metrics(w).acked, 12);
}

/* A driver may ask for the next ones in the write that settles the last ones; but for no more than will be taken. */
static void what_will_be_free_soon_is_told(void **state)
{
    worker *w = *state;
    w->o.prefetch = 2;
    w->o.max_messages = 3;
    fake_when(BQ_OP_ACK, FAKE_HOLD, -1);
    for (int i = 0; i < 4; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_ACK) == 2 && fake_out() == 2);
    FAKE_AWAIT(fake_soon() == 1); /* two will be free, and one more may be settled */
    fake_let_go();
    FAKE_AWAIT(fake_ops(BQ_OP_ACK) == 3);
    FAKE_AWAIT(fake_soon() == 0);
    fake_let_go();
    W_AWAIT_SETTLED(w, 3);
}

static void max_messages_takes_no_more(void **state)
{
    worker *w = *state;
    bq_error err;
    w->o.max_messages = 5;
    for (int i = 0; i < 9; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(W(w, calls), 5);
    assert_int_equal(w_metrics(w).taken, 5);
    assert_int_equal(fake_ready("q"), 4);
}

static void drain_ends_when_empty(void **state)
{
    worker *w = *state;
    bq_error err;
    w->o.drain = 1;
    for (int i = 0; i < 40; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(W(w, calls), 40);
    w_close(w);
    /* An empty queue ends at once (field: kcat 313). */
    w_open(w, "fake:x");
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
}

static void drain_asks_the_statistics(void **state)
{
    worker *w = *state;
    bq_error err;
    w->o.drain = 2;
    w->outcome = BQ_FAILED;
    w->o.retry_base_ms = 50; /* a delayed retry: drained only after it */
    w->o.max_attempts = 2;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakefixed:x");
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(W(w, calls), 2);
    assert_int_equal(fake_ready("q.dlq"), 1);
}

static void drain_needs_somebody_who_knows(void **state)
{
    worker *w = *state;
    bq_error err;
    w->o.drain = 1;
    assert_int_equal(bq_consumer_open(&w->consumer, "fakebare:x", &w->o, &err), BQ_UNSUPPORTED);
    assert_null(w->consumer);
}

/* ---- outcomes ----------------------------------------------------------------------------------------------------------- */

static void failed_is_retried_with_the_count(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->exception = "ValueError";
    w->error = "no stock";
    w->o.max_attempts = 2;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    W_AWAIT_SETTLED(w, 2);
    fake_op op;
    assert_true(fake_op_at(-1, 0, &op));
    assert_int_equal(op.kind, BQ_OP_RETRY);
    assert_string_equal(op.body, body_of("urn:a", 1));
    assert_true(fake_op_at(-1, 1, &op));
    assert_int_equal(op.kind, BQ_OP_DEAD_LETTER);
    assert_non_null(strstr(op.body, "\"attempts\":2,\"dead_letter\":{\"reason\":\"failed\",\"error\":\"no stock\","
                                    "\"exception\":\"ValueError\",\"failed_at\":"));
    assert_non_null(strstr(op.body, "\"original_queue\":\"q\",\"attempts\":2,\"lang\":\"c\"}}"));
    assert_int_equal(W(w, report_count), 2);
    assert_int_equal(w->reports[0].trouble, BQ_TROUBLE_FAILED);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_RETRIED);
    assert_int_equal(w->reports[0].attempts, 1);
    assert_true(w->reports[0].enveloped);
    assert_string_equal(w->reports[0].exception, "ValueError");
    assert_string_equal(w->reports[0].error, "no stock");
    assert_string_equal(w->reports[0].route, "urn:a");
    assert_string_equal(w->reports[0].body, body_of("urn:a", 0));
    assert_int_equal(w->reports[1].settled, BQ_SETTLED_DEAD_LETTERED);
    assert_int_equal(w->reports[1].attempts, 2);
    assert_int_equal(w_metrics(w).retried, 1);
    assert_int_equal(w_metrics(w).dead_lettered, 1);
}

static void retry_after_beats_the_backoff(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->retry_after_ms = 60000;
    w->o.retry_base_ms = 10;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 1);
    fake_op op;
    assert_true(fake_op_at(BQ_OP_RETRY, 0, &op));
    assert_int_equal(op.delay_ms, 60000);
}

static void rejected_goes_to_the_dead_letter_queue(void **state)
{
    worker *w = *state;
    w->outcome = BQ_REJECTED;
    w->o.dead_letter_queue = "morgue";
    w->o.lang = "go";
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("morgue") == 1);
    assert_non_null(strstr(fake_body("morgue", 0), "\"reason\":\"failed\",\"error\":null,\"exception\":null,"));
    assert_non_null(strstr(fake_body("morgue", 0), "\"attempts\":1,\"lang\":\"go\"}}"));
}

static void released_is_given_back_unchanged(void **state)
{
    worker *w = *state;
    w->outcome = BQ_RELEASED;
    w->o.max_messages = 1;
    fake_put("q", body_of("urn:a", 1), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_RELEASE) >= 1 && fake_ready("q") == 1);
    w_close(w);
    assert_string_equal(fake_body("q", 0), body_of("urn:a", 1));
    assert_int_equal(W(w, report_count), 0);
}

static void result_goes_with_the_acknowledge(void **state)
{
    worker *w = *state;
    w->result = "{\"sum\":3}";
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 1);
    fake_op op;
    assert_true(fake_op_at(BQ_OP_ACK, 0, &op));
    assert_string_equal(op.result, "{\"sum\":3}");
}

static void hook_acknowledges_or_fails(void **state)
{
    worker *w = *state;
    w->o.unknown_hook = w_handle;
    w->o.unknown_hook_arg = w;
    w->o.max_attempts = 1;
    fake_put("q", body_of("urn:unknown", 0), NULL, 0);
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 1);
    assert_string_equal(w->last_urn, "urn:unknown");
    assert_int_equal(w_metrics(w).acked, 1);
    w_close(w);
    w->outcome = BQ_FAILED;
    fake_put("q", body_of("urn:unknown", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    assert_non_null(strstr(fake_body("q.dlq", 0), "\"reason\":\"failed\""));
}

static void any_serves_what_no_route_does(void **state)
{
    worker *w = *state;
    w->o.routes = NULL;
    w->o.route_count = 0;
    w->o.any = w_handle;
    w->o.any_arg = w;
    fake_put("q", body_of("urn:whatever", 0), NULL, 0);
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 1);
    assert_string_equal(w->last_urn, "urn:whatever");
}

/* ---- settle order and what can go wrong with it ------------------------------------------------------------------------- */

/* Contract 3.6: "settle, then report to on_error, never before". */
static void reports_only_after_settling(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_HOLD, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_DEAD_LETTER) == 1);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(W(w, report_count), 0);
        fake_pause();
    }
    fake_let_go();
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(w->reports[0].ops_done, 1);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_DEAD_LETTERED);
}

/* "confirmed write, then acknowledge": on a driver that can only publish and acknowledge. */
static void fallback_acknowledges_after_the_confirmation(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    fake_when(BQ_OP_PUBLISH, FAKE_HOLD, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakebare:x");
    FAKE_AWAIT(fake_ops(BQ_OP_PUBLISH) == 1);
    assert_int_equal(fake_ops(BQ_OP_ACK), 0);
    fake_let_go();
    FAKE_AWAIT(W(w, report_count) == 1);
    fake_op op;
    assert_true(fake_op_at(-1, 0, &op));
    assert_int_equal(op.kind, BQ_OP_PUBLISH);
    assert_string_equal(op.queue, "q.dlq");
    assert_true(fake_op_at(-1, 1, &op));
    assert_int_equal(op.kind, BQ_OP_ACK);
    assert_int_equal(fake_ops(-1), 2);
    assert_int_equal(fake_ready("q.dlq"), 1);
    assert_int_equal(fake_out(), 0);
    /* The driver frees a delivery with its acknowledge, and the report still has the message. */
    assert_string_equal(w->reports[0].body, body_of("urn:a", 0));
    assert_string_equal(w->reports[0].route, "urn:a");
    assert_true(w->reports[0].enveloped);
}

static void a_slow_write_stops_nobody_else(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_HOLD, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_DEAD_LETTER) == 1);
    for (int i = 0; i < 100; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    FAKE_AWAIT(fake_ready("q.dlq") == 100);
    FAKE_AWAIT(w_metrics(w).in_flight == 1); /* the others' completions have been reaped */
    fake_let_go();
    FAKE_AWAIT(fake_ready("q.dlq") == 101);
}

/* The write fails: reported, unsettled, back after the pause, and meanwhile the others go on. */
static void a_failed_write_comes_back_after_the_pause(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    w->o.settle_pause_ms = 200;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_REFUSE, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    int64_t began = fake_now_ms();
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_FAILED);
    assert_int_equal(w->reports[0].trouble, BQ_TROUBLE_FAILED);
    assert_int_equal(w->reports[0].settlement, BQ_REFUSED);
    assert_int_equal(fake_ops(BQ_OP_RELEASE), 0);
    assert_int_equal(fake_ready("q.dlq"), 0);
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    assert_true(fake_now_ms() - began >= 200);
    assert_int_equal(fake_ops(BQ_OP_RELEASE), 1);
    FAKE_AWAIT(W(w, report_count) == 2);
    assert_int_equal(w->reports[1].settled, BQ_SETTLED_DEAD_LETTERED);
    assert_int_equal(w_metrics(w).settle_failed, 1);
    assert_string_equal(w->seen[1], body_of("urn:a", 0));
}

static void a_failed_acknowledge_is_no_retry(void **state)
{
    worker *w = *state;
    fake_when(BQ_OP_ACK, FAKE_REFUSE, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(w->reports[0].trouble, BQ_TROUBLE_SETTLEMENT);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_FAILED);
    assert_true(w->reports[0].enveloped);
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(fake_ops(BQ_OP_RETRY) + fake_ops(BQ_OP_RELEASE) + fake_ops(BQ_OP_DEAD_LETTER), 0);
    assert_int_equal(W(w, calls), 1);
}

static void a_lost_settlement_is_counted_and_reported(void **state)
{
    worker *w = *state;
    fake_when(BQ_OP_ACK, FAKE_LOST, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_LOST);
    assert_int_equal(w->reports[0].settlement, BQ_LOST);
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(w_metrics(w).leases_lost, 1);
    assert_int_equal(w_metrics(w).acked, 0);
    assert_true(w_logged(w, "no longer ours"));
}

static void an_unknown_write_comes_back(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    w->o.settle_pause_ms = -1;
    fake_when(BQ_OP_PUBLISH, FAKE_UNKNOWN, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakebare:x");
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_FAILED);
    assert_int_equal(w->reports[0].settlement, BQ_UNKNOWN);
    /* It was written after all, and it is never acknowledged: twice rather than never. */
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(fake_ops(BQ_OP_ACK), 0);
    assert_int_equal(fake_ready("q.dlq"), 1);
    assert_int_equal(fake_forgotten(), 1);
}

static void a_write_that_is_never_confirmed_is_answered_for(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    w->o.settle_timeout_ms = 50;
    w->o.shutdown_timeout_ms = -1;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_NEVER, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, report_count) == 2);
    int failed = w->reports[0].settled == BQ_SETTLED_FAILED ? 0 : 1;
    assert_int_equal(w->reports[failed].settled, BQ_SETTLED_FAILED);
    assert_int_equal(w->reports[failed].settlement, BQ_UNKNOWN);
    assert_int_equal(w->reports[1 - failed].settled, BQ_SETTLED_DEAD_LETTERED);
    /* The driver still has the operation, so the delivery stays with it until the connection ends. */
    FAKE_AWAIT(w_metrics(w).in_flight == 1);
}

static void an_operation_that_is_never_accepted_ends(void **state)
{
    worker *w = *state;
    w->o.settle_timeout_ms = 50;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_gate(w, true);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1);
    fake_accept(0);
    w_gate(w, false);
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(w->reports[0].settlement, BQ_TIMEOUT);
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(fake_ops(-1), 0);
}

static void operations_are_offered_again(void **state)
{
    worker *w = *state;
    w->o.concurrency = 4;
    fake_accept(1);
    for (int i = 0; i < 30; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    W_AWAIT_SETTLED(w, 30);
    assert_int_equal(w_metrics(w).acked, 30);
}

/* Contract 3: "a pause so that a broken DLQ is not a hot loop", and "one bad message never stops the worker". */
static void a_broken_dead_letter_queue_is_no_hot_loop(void **state)
{
    worker *w = *state;
    w->o.settle_pause_ms = 100;
    w->o.prefetch = 4;
    fake_when(BQ_OP_DEAD_LETTER, FAKE_REFUSE, -1);
    fake_put("q", "not json", NULL, 0);
    int64_t began = fake_now_ms();
    w_open(w, "fake:x");
    for (int i = 0; i < 50; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    FAKE_AWAIT(W(w, calls) == 50);
    FAKE_AWAIT(fake_ops(BQ_OP_DEAD_LETTER) >= 3);
    size_t tries = fake_ops(BQ_OP_DEAD_LETTER);
    assert_true((int64_t)tries <= (fake_now_ms() - began) / 100 + 1);
    fake_when(BQ_OP_DEAD_LETTER, FAKE_OK, 0);
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
}

/* ---- deferred --------------------------------------------------------------------------------------------------------------- */

static void deferred_is_settled_from_another_thread(void **state)
{
    worker *w = *state;
    w->outcome = BQ_DEFERRED;
    w->o.max_attempts = 1;
    for (int i = 0; i < 3; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, deferred_count) == 3);
    assert_int_equal(fake_ops(-1), 0);
    /* The message stays valid, and its handler thread is free. */
    assert_int_equal(bq_delivery_body(w->deferred[1]).len, strlen(body_of("urn:a", 0)));
    bq_delivery_set_error(w->deferred[1], BQ_STR("Later"), BQ_STR_NULL);
    bq_delivery_settle(w->deferred[1], BQ_REJECTED);
    bq_delivery_settle(w->deferred[0], BQ_DONE);
    bq_delivery_settle(w->deferred[2], BQ_FAILED);
    W_AWAIT_SETTLED(w, 3);
    assert_int_equal(fake_ops(BQ_OP_ACK), 1);
    assert_int_equal(fake_ready("q.dlq"), 2);
    assert_non_null(strstr(fake_body("q.dlq", 0), "\"exception\":\"Later\""));
    assert_non_null(strstr(fake_body("q.dlq", 1), "\"exception\":null"));
}

static bq_outcome settle_within(bq_delivery *d, void *arg)
{
    worker *w = arg;
    bq_delivery_settle(d, BQ_DONE);
    bq_delivery_settle(d, BQ_REJECTED); /* once is what counts */
    /* Until it returns, the message is its own. */
    char again[1024];
    W_TEXT(again, bq_delivery_body(d));
    pthread_mutex_lock(&w->lock);
    w->calls++;
    while (w->gate_closed)
        pthread_cond_wait(&w->changed, &w->lock);
    if (strcmp(again, body_of("urn:a", 0)) != 0)
        w->calls = -1000;
    pthread_mutex_unlock(&w->lock);
    return BQ_DEFERRED;
}

static void deferred_may_be_settled_before_the_handler_returns(void **state)
{
    worker *w = *state;
    w->routes[0] = (bq_route){"urn:a", settle_within, w};
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, calls) == 1);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fake_ops(-1), 0);
        fake_pause();
    }
    w_gate(w, false);
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(w_metrics(w).acked, 1);
    assert_int_equal(W(w, calls), 1);
}

/* After the stop, within the shutdown's patience, a deferred outcome still counts. */
static void deferred_counts_while_stopping(void **state)
{
    worker *w = *state;
    bq_error err;
    w->outcome = BQ_DEFERRED;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, deferred_count) == 1);
    bq_consumer_stop(w->consumer);
    assert_int_equal(bq_consumer_wait(w->consumer, 20, &err), BQ_TIMEOUT);
    bq_delivery_settle(w->deferred[0], BQ_DONE);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(fake_ops(BQ_OP_ACK), 1);
}

/* After that it was given back, and settling it is safe and without effect, also after close. */
static void deferred_after_the_end_is_ignored(void **state)
{
    worker *w = *state;
    w->outcome = BQ_DEFERRED;
    w->o.shutdown_timeout_ms = -1;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, deferred_count) == 2);
    bq_consumer_stop(w->consumer);
    FAKE_AWAIT(fake_ready("q") == 2);
    bq_delivery_settle(w->deferred[0], BQ_DONE);
    w_close(w);
    assert_int_equal(fake_ops(BQ_OP_ACK), 0);
    /* The driver keeps the bytes of what somebody still reads. */
    assert_int_equal(fake_live(), 1);
    assert_int_equal(bq_delivery_body(w->deferred[1]).len, strlen(body_of("urn:a", 0)));
    bq_delivery_settle(w->deferred[1], BQ_DONE);
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_ready("q"), 2);
}

/* ---- metrics, options ------------------------------------------------------------------------------------------------------------------- */

static void metrics_are_told_in_time_and_at_the_end(void **state)
{
    worker *w = *state;
    w->o.on_metrics = w_on_metrics;
    w->o.metrics_interval_ms = 20;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_put("q", "nothing", NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, metrics_calls) >= 3);
    W_AWAIT_SETTLED(w, 2);
    w_close(w);
    assert_int_equal(w->metrics.taken, 2);
    assert_int_equal(w->metrics.poison, 1);
    assert_int_equal(w->metrics.acked, 1);
    assert_int_equal(w->metrics.dead_lettered, 1);
    assert_int_equal(w->metrics.in_flight, 0);
    assert_false(w->metrics.connected);
}

static void refuses(worker *w, bq_status status, const char *part)
{
    bq_error err = {0};
    assert_int_equal(bq_consumer_open(&w->consumer, "fake:x", &w->o, &err), status);
    assert_null(w->consumer);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void options_are_checked(void **state)
{
    worker *w = *state;
    bq_consumer_options good = w->o;
    bq_route twice[] = {{"urn:a", w_handle, w}, {"urn:a", w_handle, w}}, none[] = {{"urn:a", NULL, NULL}},
             blank[] = {{" ", w_handle, w}};
    const char *same[] = {"q", "q"}, *nameless[] = {""};
#define WITH(change, status, part)                                                                                     \
    do {                                                                                                               \
        w->o = good;                                                                                                   \
        change;                                                                                                        \
        refuses(w, status, part);                                                                                      \
    } while (0)
    WITH(w->o.queue_count = 0, BQ_INVALID, "no queue");
    WITH((w->o.queues = same, w->o.queue_count = 2), BQ_INVALID, "q is named twice");
    WITH(w->o.queues = nameless, BQ_INVALID, "no name");
    WITH(w->o.concurrency = -1, BQ_INVALID, "concurrency -1");
    WITH(w->o.prefetch = -1, BQ_INVALID, "prefetch -1");
    WITH(w->o.drain = 3, BQ_INVALID, "drain 3");
    WITH(w->o.max_attempts = 0, BQ_INVALID, "max_attempts");
    WITH((w->o.routes = twice, w->o.route_count = 2), BQ_INVALID, "two handlers for urn:a");
    WITH(w->o.routes = none, BQ_INVALID, "no handler");
    WITH(w->o.routes = blank, BQ_INVALID, "no URN");
    WITH(w->o.dead_letter_queue = "q", BQ_CONFIG, "consumed by the same worker");
#undef WITH
    bq_error err;
    w->o = good;
    assert_int_equal(bq_consumer_open(&w->consumer, "nosuch:x", &w->o, &err), BQ_INVALID);
    assert_int_equal(bq_consumer_open(&w->consumer, "fake:x?nosuch=1", &w->o, &err), BQ_INVALID);
    w->o.unknown = BQ_UNKNOWN_URN_DELETE;
    assert_int_equal(bq_consumer_open(&w->consumer, "fake:x?binding=bullmq", &w->o, &err), BQ_CONFIG);
}

/* The program's strings are copied: it may change them once open has returned. */
static void options_are_copied(void **state)
{
    worker *w = *state;
    char queue[] = "q", urn[] = "urn:a", dlq[] = "morgue", lang[] = "php";
    const char *queues[] = {queue};
    bq_route routes[] = {{urn, w_handle, w}};
    w->o.queues = queues;
    w->o.routes = routes;
    w->o.dead_letter_queue = dlq;
    w->o.lang = lang;
    w->outcome = BQ_REJECTED;
    w_open(w, "fake:x");
    memset(queue, 'x', 1);
    memset(urn, 'x', 5);
    memset(dlq, 'x', 6);
    memset(lang, 'x', 3);
    memset(routes, 0, sizeof routes);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    FAKE_AWAIT(fake_ready("morgue") == 1);
    assert_non_null(strstr(fake_body("morgue", 0), "\"lang\":\"php\""));
}

#define T(name) cmocka_unit_test_setup_teardown(name, w_setup, w_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(handles_and_acknowledges),
        T(headers_as_a_handler_sees_them),
        T(very_many_headers_take_no_long_time),
        T(several_queues_in_turn),
        T(concurrency_and_prefetch_are_limits),
        T(what_will_be_free_soon_is_told),
        T(max_messages_takes_no_more),
        T(drain_ends_when_empty),
        T(drain_asks_the_statistics),
        T(drain_needs_somebody_who_knows),
        T(failed_is_retried_with_the_count),
        T(retry_after_beats_the_backoff),
        T(rejected_goes_to_the_dead_letter_queue),
        T(released_is_given_back_unchanged),
        T(result_goes_with_the_acknowledge),
        T(hook_acknowledges_or_fails),
        T(any_serves_what_no_route_does),
        T(reports_only_after_settling),
        T(fallback_acknowledges_after_the_confirmation),
        T(a_slow_write_stops_nobody_else),
        T(a_failed_write_comes_back_after_the_pause),
        T(a_failed_acknowledge_is_no_retry),
        T(a_lost_settlement_is_counted_and_reported),
        T(an_unknown_write_comes_back),
        T(a_write_that_is_never_confirmed_is_answered_for),
        T(an_operation_that_is_never_accepted_ends),
        T(operations_are_offered_again),
        T(a_broken_dead_letter_queue_is_no_hot_loop),
        T(deferred_is_settled_from_another_thread),
        T(deferred_may_be_settled_before_the_handler_returns),
        T(deferred_counts_while_stopping),
        T(deferred_after_the_end_is_ignored),
        T(metrics_are_told_in_time_and_at_the_end),
        T(options_are_checked),
        T(options_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
