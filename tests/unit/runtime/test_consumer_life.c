/*
 * The life of a consumer on the scripted broker: handlers that overstay, leases, the connection, shutdown (contract 3,
 * 7.7).
 */
#include "bq_test.h"

#include "worker_test.h"

#include <signal.h>

/* ---- timeouts ------------------------------------------------------------------------------------------------------------------- */

static void a_late_handler_counts_as_failed(void **state)
{
    worker *w = *state;
    w->o.handler_timeout_ms = 30;
    w->o.max_attempts = 1;
    w_gate(w, true); /* until it is cancelled; then it says done */
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    assert_true(W(w, saw_cancel));
    assert_non_null(strstr(fake_body("q.dlq", 0), "\"error\":\"The handler did not finish within 30 ms.\","
                                                  "\"exception\":\"HandlerTimeout\""));
}

static void a_late_handler_may_name_its_error(void **state)
{
    worker *w = *state;
    w->o.handler_timeout_ms = 30;
    w->o.max_attempts = 1;
    w->error = "killed";
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    assert_non_null(strstr(fake_body("q.dlq", 0), "\"error\":\"killed\",\"exception\":null"));
}

/* It ignores the cancellation: settled over its head, while its message stays readable. */
static void a_hanging_handler_is_settled_without_it(void **state)
{
    worker *w = *state;
    w->o.handler_timeout_ms = 20;
    w->o.max_attempts = 1;
    w->obeys = false;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_int_equal(W(w, running), 1);
    assert_int_equal(fake_live(), 1);
    assert_string_equal(w->reports[0].exception, "HandlerTimeout");
    w_gate(w, false);
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_ops(BQ_OP_ACK), 0); /* it said done, too late */
    assert_true(w_calm(w));
}

/* Where the driver cannot keep it, it is settled as failed when it returns, and until then its lease may lapse. */
static void a_hanging_handler_on_a_driver_that_keeps_nothing(void **state)
{
    worker *w = *state;
    w->o.handler_timeout_ms = 20;
    w->o.max_attempts = 2;
    w->o.prefetch = 1; /* or it would be taken again */
    w->obeys = false;
    fake_lease(300);
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakefixed:x");
    FAKE_AWAIT(W(w, running) == 1 && W(w, last_lost));
    assert_int_equal(fake_out(), 0); /* it is ready for somebody else */
    assert_int_equal(fake_ready("q"), 1);
    w_gate(w, false);
    FAKE_AWAIT(W(w, report_count) >= 1);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_LOST);
}

/* The same for one that was deferred and never settled; when it is after all, that only lets go of it. */
static void a_deferred_outcome_that_never_comes(void **state)
{
    worker *w = *state;
    w->o.handler_timeout_ms = 20;
    w->o.max_attempts = 1;
    w->o.prefetch = 1;
    w->outcome = BQ_DEFERRED;
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    assert_true(bq_delivery_cancelled(w->deferred[0]));
    assert_int_equal(bq_delivery_body(w->deferred[0]).len, strlen(body_of("urn:a", 0)));
    /* Until then it keeps its place of the prefetch. */
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(W(w, calls), 1);
        fake_pause();
    }
    bq_delivery_settle(w->deferred[0], BQ_DONE);
    FAKE_AWAIT(W(w, deferred_count) == 2);
    bq_delivery_settle(w->deferred[1], BQ_DONE);
    W_AWAIT_SETTLED(w, 2);
    assert_int_equal(fake_ops(BQ_OP_ACK), 1);
}

/* ---- leases ------------------------------------------------------------------------------------------------------------------------ */

static void leases_are_extended_while_handlers_run(void **state)
{
    worker *w = *state;
    fake_lease(900);
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_put("q", body_of("urn:a", 0), NULL, 0); /* waits for the one handler */
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_EXTEND) >= 6);
    assert_int_equal(w_metrics(w).leases_lost, 0);
    assert_int_equal(fake_out(), 2);
    w_gate(w, false);
    W_AWAIT_SETTLED(w, 2);
    assert_int_equal(w_metrics(w).acked, 2);
    assert_int_equal(W(w, calls), 2);
}

static void an_extension_that_is_lost_sets_the_flag(void **state)
{
    worker *w = *state;
    fake_lease(60);
    fake_when(BQ_OP_EXTEND, FAKE_LOST, -1);
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1 && W(w, last_lost));
    FAKE_AWAIT(w_metrics(w).leases_lost == 1);
}

static void a_refused_extension_is_tried_again(void **state)
{
    worker *w = *state;
    fake_lease(900);
    fake_when(BQ_OP_EXTEND, FAKE_REFUSE, 1);
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_EXTEND) >= 3);
    assert_int_equal(w_metrics(w).leases_lost, 0);
    w_gate(w, false);
    W_AWAIT_SETTLED(w, 1);
}

/* Field, sqs-consumer 303: no extension after the end; the end waits for the one that is under way. */
static void the_end_waits_for_an_extension(void **state)
{
    worker *w = *state;
    fake_lease(900);
    fake_when(BQ_OP_EXTEND, FAKE_HOLD, 1);
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(fake_ops(BQ_OP_EXTEND) == 1);
    w_gate(w, false);
    FAKE_AWAIT(W(w, finished) == 1);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fake_ops(BQ_OP_ACK), 0);
        fake_pause();
    }
    fake_let_go();
    W_AWAIT_SETTLED(w, 1);
    fake_op op;
    assert_true(fake_op_at(-1, fake_ops(-1) - 1, &op));
    assert_int_equal(op.kind, BQ_OP_ACK);
}

static void a_lease_is_extended_while_a_write_is_slow(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.max_attempts = 1;
    fake_lease(900);
    fake_when(BQ_OP_PUBLISH, FAKE_HOLD, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakenative:x");
    FAKE_AWAIT(fake_ops(BQ_OP_PUBLISH) == 1 && fake_ops(BQ_OP_EXTEND) >= 3);
    fake_let_go();
    FAKE_AWAIT(fake_ready("q.dlq") == 1);
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(w_metrics(w).leases_lost, 0);
}

/* Contract 3: on Service Bus the worker holds the unsettled delivery for the delay, its lock renewed. */
static void a_lease_is_extended_while_a_delivery_is_held(void **state)
{
    worker *w = *state;
    w->outcome = BQ_FAILED;
    w->o.retry_base_ms = 1000;
    w->o.max_messages = 1;
    fake_lease(900);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakenative:x?binding=sb");
    FAKE_AWAIT(fake_ops(BQ_OP_NATIVE_RETRY) == 1);
    assert_true(fake_ops(BQ_OP_EXTEND) >= 2);
    assert_int_equal(w_metrics(w).leases_lost, 0);
}

/* A message whose lease ran out before a handler began is not handled: somebody else has it by now. */
static void an_expired_delivery_is_not_started(void **state)
{
    worker *w = *state;
    fake_lease(60);
    fake_when(BQ_OP_EXTEND, FAKE_LOST, -1);
    w->o.prefetch = 2;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_put("q", body_of("urn:a", 1), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(w_metrics(w).leases_lost == 2);
    fake_when(BQ_OP_EXTEND, FAKE_OK, 0);
    fake_lease(60000);
    w_gate(w, false);
    /* The first was running and is lost; the second comes again and is handled once. */
    FAKE_AWAIT(w_metrics(w).acked == 2);
    int second = 0;
    for (int i = 0; i < W(w, calls) && i < 16; i++)
        second += strstr(w->seen[i], "\"attempts\":1") != NULL;
    assert_int_equal(second, 1);
}

/* ---- the connection --------------------------------------------------------------------------------------------------------------- */

static void reconnects_and_says_so(void **state)
{
    worker *w = *state;
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, ups) == 1);
    fake_down("the cable");
    FAKE_AWAIT(W(w, downs) == 1);
    assert_string_equal(w->why, "the cable");
    assert_false(w_metrics(w).connected);
    assert_true(w_logged(w, "2 fake:x: connection down: the cable"));
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_up();
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(W(w, ups), 2);
    assert_int_equal(w_metrics(w).acked, 1);
    w->why[0] = 0;
}

static void settles_after_a_reconnect(void **state)
{
    worker *w = *state;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1);
    fake_down("the cable");
    FAKE_AWAIT(W(w, downs) == 1);
    w_gate(w, false);
    FAKE_AWAIT(W(w, finished) == 1);
    assert_int_equal(fake_ops(-1), 0);
    fake_up();
    W_AWAIT_SETTLED(w, 1);
    assert_int_equal(w_metrics(w).acked, 1);
    w->why[0] = 0;
}

/* Field, bunny 142: what came on an older connection is never settled on a newer one. */
static void stale_deliveries_touch_nothing(void **state)
{
    worker *w = *state;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w->o.prefetch = 1;
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1);
    fake_renew();
    w_gate(w, false);
    /* The old one ends as lost, the message itself comes again. */
    FAKE_AWAIT(w_metrics(w).acked == 1);
    assert_int_equal(W(w, calls), 2);
    assert_int_equal(w->reports[0].settled, BQ_SETTLED_LOST);
}

static void revoked_deliveries_are_forgotten(void **state)
{
    worker *w = *state;
    w->o.prefetch = 3;
    w_gate(w, true);
    for (int i = 0; i < 3; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1 && fake_out() == 3);
    fake_revoke();
    FAKE_AWAIT(w_metrics(w).leases_lost == 3 && W(w, last_lost));
    assert_int_equal(fake_ready("q"), 3);
    w_gate(w, false);
    FAKE_AWAIT(w_metrics(w).acked == 3);
    /* None of the three settled anything; each came again. */
    assert_int_equal(fake_ops(-1), 3);
    assert_int_equal(fake_forgotten() >= 3, 1);
}

/* The same for a whole lane at once (Kafka): the event names no delivery. */
static void a_revoked_lane_is_forgotten(void **state)
{
    worker *w = *state;
    w->o.prefetch = 3;
    w_gate(w, true);
    for (int i = 0; i < 3; i++)
        fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1 && fake_out() == 3);
    fake_event(BQ_EVENT_REVOKED);
    FAKE_AWAIT(w_metrics(w).leases_lost == 3 && W(w, last_lost));
    w_gate(w, false);
    FAKE_AWAIT(w_metrics(w).acked == 3);
    assert_int_equal(fake_ops(-1), 3);
}

static void what_the_broker_tells_is_logged(void **state)
{
    worker *w = *state;
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, ups) == 1);
    fake_event(BQ_EVENT_BLOCKED);
    FAKE_AWAIT(w_logged(w, "refuses writes"));
    fake_event(BQ_EVENT_UNBLOCKED);
    FAKE_AWAIT(w_logged(w, "takes writes again"));
    fake_event(BQ_EVENT_SETTLE_FAILED);
    FAKE_AWAIT(w_logged(w, "come again"));
    assert_int_equal(w_metrics(w).settle_failed, 1);
}

/* Flush, commit, leave the group: the loop goes on until the driver has finished. */
static void the_end_is_orderly_where_the_driver_has_one(void **state)
{
    worker *w = *state;
    fake_finish(30);
    w_open(w, "fakenative:x");
    FAKE_AWAIT(W(w, ups) == 1);
    w_close(w);
    assert_int_equal(fake_finished(), 1);
    fake_finish(3600 * 1000); /* one that does not finish does not hold the close */
    w_open(w, "fakenative:x");
    FAKE_AWAIT(W(w, ups) == 2);
    w_close(w);
    assert_int_equal(fake_finished(), 1);
    assert_int_equal(fake_closed(), 2);
}

static void a_fatal_error_ends_it(void **state)
{
    worker *w = *state;
    bq_error err;
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, ups) == 1);
    fake_fatal(BQ_AUTH, "wrong password");
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_AUTH);
    assert_string_equal(err.text, "wrong password");
    assert_true(err.flags & BQ_ERROR_FATAL);
    assert_int_equal(bq_consumer_wait_connected(w->consumer, 0, &err), BQ_AUTH);
    w->why[0] = 0;
}

static void a_failure_right_after_the_opening_is_not_the_openings(void **state)
{
    worker *w = *state;
    bq_error err;
    fake_fatal(BQ_AUTH, "wrong password");
    for (int n = 0; n < 300; n++) {
        w_open(w, "fake:x");
        assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_AUTH);
        w_close(w);
    }
    w->why[0] = 0;
}

static void waits_for_the_connection(void **state)
{
    worker *w = *state;
    bq_error err;
    fake_down("nobody there");
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, downs) == 1);
    assert_int_equal(bq_consumer_wait_connected(w->consumer, 20, &err), BQ_UNAVAILABLE);
    assert_true(err.flags & BQ_ERROR_RETRYABLE);
    assert_non_null(strstr(err.text, "nobody there"));
    fake_up();
    assert_int_equal(bq_consumer_wait_connected(w->consumer, 10000, &err), BQ_OK);
    w->why[0] = 0;
}

static void an_open_that_fails_is_final(void **state)
{
    worker *w = *state;
    bq_error err;
    fake_open_fails(BQ_CONFIG);
    assert_int_equal(bq_consumer_open(&w->consumer, "fake:x", &w->o, &err), BQ_CONFIG);
    assert_string_equal(err.text, "the fake does not open");
    assert_null(w->consumer);
    assert_int_equal(fake_closed(), 1);
}

static void a_blocked_call_is_interrupted(void **state)
{
    worker *w = *state;
    w->o.settle_timeout_ms = 100;
    fake_when(BQ_OP_ACK, FAKE_BLOCK, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, report_count) == 1);
    assert_true(fake_interrupts() >= 1);
    assert_true(w_logged(w, "interrupting it"));
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    FAKE_AWAIT(w_metrics(w).acked == 1);
}

/* ---- shutdown ------------------------------------------------------------------------------------------------------------------------- */

/* The first stop: no more is taken, handlers finish and are settled, what was not started is given back unchanged. */
static void a_stop_lets_handlers_finish(void **state)
{
    worker *w = *state;
    bq_error err;
    w_gate(w, true);
    for (int i = 0; i < 4; i++)
        fake_put("q", body_of("urn:a", i), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1 && fake_out() == 4);
    bq_consumer_stop(w->consumer);
    FAKE_AWAIT(fake_ready("q") == 3);
    assert_int_equal(fake_ops(BQ_OP_RELEASE), 3);
    fake_put("q", body_of("urn:a", 9), NULL, 0);
    assert_int_equal(bq_consumer_wait(w->consumer, 30, &err), BQ_TIMEOUT);
    assert_false(W(w, saw_cancel));
    w_gate(w, false);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(W(w, calls), 1);
    assert_int_equal(fake_ops(BQ_OP_ACK), 1);
    assert_int_equal(fake_ready("q"), 4);
    assert_string_equal(fake_body("q", 0), body_of("urn:a", 1));
    assert_int_equal(W(w, report_count), 0);
    assert_int_equal(fake_closed(), 1); /* the connection closes with the stop */
}

static void a_second_stop_gives_back_at_once(void **state)
{
    worker *w = *state;
    bq_error err;
    w->obeys = false;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 5), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1);
    bq_consumer_stop(w->consumer);
    assert_int_equal(bq_consumer_wait(w->consumer, 30, &err), BQ_TIMEOUT);
    bq_consumer_stop(w->consumer);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    /* Its handler still runs, and has been told. */
    assert_int_equal(W(w, running), 1);
    assert_int_equal(fake_ready("q"), 1);
    assert_string_equal(fake_body("q", 0), body_of("urn:a", 5));
    w_gate(w, false);
    FAKE_AWAIT(W(w, finished) == 1);
    w_close(w);
    assert_int_equal(fake_ops(BQ_OP_ACK), 0);
    assert_true(w_calm(w));
}

static void the_shutdown_timeout_gives_back(void **state)
{
    worker *w = *state;
    bq_error err;
    w->o.shutdown_timeout_ms = 40;
    w->obeys = false;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1);
    bq_consumer_stop(w->consumer);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    FAKE_AWAIT(W(w, saw_cancel));
    assert_int_equal(fake_ready("q"), 1);
    w_gate(w, false);
    FAKE_AWAIT(W(w, finished) == 1);
}

/* On a driver that cannot give back, the end of the connection does. */
static void a_stop_on_a_bare_driver_forgets(void **state)
{
    worker *w = *state;
    bq_error err;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    fake_put("q", body_of("urn:a", 1), NULL, 0);
    w_open(w, "fakebare:x");
    FAKE_AWAIT(W(w, running) == 1 && fake_out() == 2);
    bq_consumer_stop(w->consumer);
    FAKE_AWAIT(fake_forgotten() == 1);
    w_gate(w, false);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(fake_ops(BQ_OP_ACK), 1);
    assert_int_equal(fake_ops(BQ_OP_PUBLISH), 0);
}

/* Holds end with the stop: nobody waits for a pause or a delay. */
static void a_stop_ends_holds(void **state)
{
    worker *w = *state;
    bq_error err;
    w->o.settle_pause_ms = 3600 * 1000;
    w->outcome = BQ_FAILED;
    fake_when(BQ_OP_RETRY, FAKE_REFUSE, 1);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, report_count) == 1);
    bq_consumer_stop(w->consumer);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    assert_int_equal(fake_ready("q"), 1);
}

/* A handler that never returns: close is bounded, and everything goes with the handler when it ends after all. */
static void close_does_not_wait_for_ever(void **state)
{
    worker *w = *state;
    w->o.shutdown_timeout_ms = -1;
    w->obeys = false;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, running) == 1);
    int64_t began = fake_now_ms();
    w_close(w);
    assert_true(fake_now_ms() - began < 8000);
    assert_true(w_logged(w, "do not return"));
    assert_int_equal(fake_ready("q"), 1);
    assert_int_equal(fake_live(), 1); /* it still reads it */
    size_t logged = strlen(w->log);
    w_gate(w, false);
    FAKE_AWAIT(W(w, finished) == 1 && fake_live() == 0);
    assert_int_equal(strlen(w->log), logged);
    assert_true(w_calm(w));
}

/* The same where the driver would free the message with the connection: then the connection waits. */
static void close_leaves_the_connection_to_a_hanging_handler(void **state)
{
    worker *w = *state;
    w->o.shutdown_timeout_ms = -1;
    w->obeys = false;
    w_gate(w, true);
    fake_put("q", body_of("urn:a", 0), NULL, 0);
    w_open(w, "fakefixed:x");
    FAKE_AWAIT(W(w, running) == 1);
    w_close(w);
    assert_int_equal(fake_closed(), 0);
    w_gate(w, false);
    FAKE_AWAIT(fake_closed() == 1);
    assert_true(w_calm(w));
    assert_int_equal(fake_ready("q"), 1);
}

static void close_interrupts_a_driver_that_stays(void **state)
{
    worker *w = *state;
    w_open(w, "fake:x");
    FAKE_AWAIT(W(w, ups) == 1);
    fake_block_close(true);
    w_close(w);
    assert_true(fake_interrupts() >= 1);
}

static void close_of_nothing(void **state)
{
    (void)state;
    bq_consumer_close(NULL);
}

static bq_consumer *signalled;

static void on_signal(int number)
{
    (void)number;
    bq_consumer_stop(signalled);
}

/* bq_consumer_stop is async-signal-safe. */
static void stops_from_a_signal_handler(void **state)
{
    worker *w = *state;
    bq_error err;
    struct sigaction act = {.sa_handler = on_signal}, old;
    w_open(w, "fake:x");
    signalled = w->consumer;
    sigaction(SIGUSR1, &act, &old);
    raise(SIGUSR1);
    assert_int_equal(bq_consumer_wait(w->consumer, 10000, &err), BQ_OK);
    sigaction(SIGUSR1, &old, NULL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, w_setup, w_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_late_handler_counts_as_failed),
        T(a_late_handler_may_name_its_error),
        T(a_hanging_handler_is_settled_without_it),
        T(a_hanging_handler_on_a_driver_that_keeps_nothing),
        T(a_deferred_outcome_that_never_comes),
        T(leases_are_extended_while_handlers_run),
        T(a_lease_is_extended_while_a_delivery_is_held),
        T(an_extension_that_is_lost_sets_the_flag),
        T(a_refused_extension_is_tried_again),
        T(the_end_waits_for_an_extension),
        T(a_lease_is_extended_while_a_write_is_slow),
        T(an_expired_delivery_is_not_started),
        T(reconnects_and_says_so),
        T(settles_after_a_reconnect),
        T(stale_deliveries_touch_nothing),
        T(revoked_deliveries_are_forgotten),
        T(a_revoked_lane_is_forgotten),
        T(what_the_broker_tells_is_logged),
        T(the_end_is_orderly_where_the_driver_has_one),
        T(a_fatal_error_ends_it),
        T(a_failure_right_after_the_opening_is_not_the_openings),
        T(waits_for_the_connection),
        T(an_open_that_fails_is_final),
        T(a_blocked_call_is_interrupted),
        T(a_stop_lets_handlers_finish),
        T(a_second_stop_gives_back_at_once),
        T(the_shutdown_timeout_gives_back),
        T(a_stop_on_a_bare_driver_forgets),
        T(a_stop_ends_holds),
        T(close_does_not_wait_for_ever),
        T(close_leaves_the_connection_to_a_hanging_handler),
        T(close_interrupts_a_driver_that_stays),
        T(close_of_nothing),
        T(stops_from_a_signal_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
