/*
 * The publisher on the scripted broker: batching, limits, deadlines, outcomes kept apart, flush, close, and what is
 * checked before anything is produced (contract 1, 5, 7; publisher.h).
 */
#include "bq_test.h"

#include "../fake_transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What `done` was told. */
typedef struct answers {
    pthread_mutex_t lock;
    int count, by_status[BQ_STATUS_COUNT_];
    char ids[2048][BQ_ID_SIZE];
    bq_error last;
    bq_publisher *publisher; /* not NULL: publishes once more from the callback */
    bq_status nested;
    int ups, downs;
    char why[256];
} answers;

static answers got;
static bq_publisher *publisher;

static void done(bq_status status, const char *id, const bq_error *err, void *arg)
{
    answers *a = arg;
    pthread_mutex_lock(&a->lock);
    if (a->count < 2048)
        snprintf(a->ids[a->count], BQ_ID_SIZE, "%s", id);
    a->count++;
    a->by_status[status]++;
    if (err)
        a->last = *err;
    bq_publisher *again = a->publisher;
    a->publisher = NULL;
    pthread_mutex_unlock(&a->lock);
    if (again) {
        bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
        bq_error nested;
        m.queue = BQ_STR("q");
        m.urn = BQ_STR("urn:a");
        m.data = BQ_STR("{}");
        a->nested = bq_publish_async(again, &m, NULL, NULL, &nested);
    }
}

static void on_connection(bool up, const bq_error *why, void *arg)
{
    answers *a = arg;
    pthread_mutex_lock(&a->lock);
    if (up)
        a->ups++;
    else {
        a->downs++;
        snprintf(a->why, sizeof a->why, "%.200s", why->text);
    }
    pthread_mutex_unlock(&a->lock);
}

static int count_of(int *member)
{
    pthread_mutex_lock(&got.lock);
    int n = *member;
    pthread_mutex_unlock(&got.lock);
    return n;
}
#define GOT(status) count_of(&got.by_status[status])
#define ALL() count_of(&got.count)

static int setup(void **state)
{
    (void)state;
    fake_reset();
    memset(&got, 0, sizeof got);
    pthread_mutex_init(&got.lock, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bq_publisher_close(publisher, 100);
    publisher = NULL;
    fake_clear();
    return 0;
}

static void open_with(const char *url, bq_publisher_options *o)
{
    bq_error err;
    o->on_connection = on_connection;
    o->arg = &got;
    if (bq_publisher_open(&publisher, url, o, &err))
        fail_msg("%s", err.text);
}

static void open_plain(const char *url)
{
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    open_with(url, &o);
}

static bq_message_spec spec_of(void)
{
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = BQ_STR("q");
    m.urn = BQ_STR("urn:a");
    m.data = BQ_STR("{ \"n\" : 1.0 }");
    return m;
}

static void send_some(int n)
{
    bq_error err;
    bq_message_spec m = spec_of();
    for (int i = 0; i < n; i++)
        if (bq_publish_async(publisher, &m, done, &got, &err))
            fail_msg("%s", err.text);
}

/* ---- the straight road ------------------------------------------------------------------------------------------------- */

static void publishes_an_envelope(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.lang = "go";
    open_with("fake:x", &o);
    m.trace_id = BQ_STR(" t-1 ");
    m.meta_extra = BQ_STR("{\"tenant\":7}");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_int_equal(strlen(id), 36);
    const char *body = fake_body("q", 0);
    char expected[256];
    snprintf(expected, sizeof expected,
             "{\"job\":\"urn:a\",\"trace_id\":\"t-1\",\"data\":{\"n\":1.0},\"meta\":{\"id\":\"%s\",\"queue\":\"q\","
             "\"lang\":\"go\",\"schema_version\":1,\"created_at\":",
             id);
    assert_memory_equal(body, expected, strlen(expected));
    assert_non_null(strstr(body, ",\"tenant\":7},\"attempts\":0}"));
}

static void calls_back_once_each(void **state)
{
    (void)state;
    bq_error err;
    open_plain("fake:x");
    send_some(1000);
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(ALL(), 1000);
    assert_int_equal(GOT(BQ_OK), 1000);
    assert_int_equal(fake_ready("q"), 1000);
    /* Each with its own id. */
    for (int i = 1; i < 1000; i++)
        assert_string_not_equal(got.ids[i], got.ids[0]);
}

static void count_late(bq_status status, const char *id, const bq_error *err, void *arg)
{
    for (int i = 0; i < 100; i++) /* some 50 ms in the callback */
        fake_pause();
    done(status, id, err, arg);
}

/* "everything submitted before has been called back": not while the callback still runs. */
static void a_flush_outlasts_the_callbacks(void **state)
{
    (void)state;
    bq_error err;
    bq_message_spec m = spec_of();
    open_plain("fake:x");
    assert_int_equal(bq_publish_async(publisher, &m, count_late, &got, &err), BQ_OK);
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(ALL(), 1);
}

static void keeps_the_order(void **state)
{
    (void)state;
    bq_error err;
    open_plain("fake:x");
    fake_accept(3);
    for (int i = 0; i < 50; i++) {
        char data[32];
        bq_message_spec m = spec_of();
        snprintf(data, sizeof data, "{\"i\":%d}", i);
        m.data = bq_str_of(data);
        assert_int_equal(bq_publish_async(publisher, &m, done, &got, &err), BQ_OK);
    }
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    for (size_t i = 0; i < 50; i++) {
        char part[32];
        snprintf(part, sizeof part, "\"data\":{\"i\":%zu}", i);
        assert_non_null(strstr(fake_body("q", i), part));
    }
}

/* "all queued messages submitted in one call" */
static void batches_by_itself(void **state)
{
    (void)state;
    bq_error err;
    fake_down("not yet");
    open_plain("fake:x");
    send_some(500);
    /* Offered, and refused while it is down: without this the thread may have its batch from a moment before the end. */
    FAKE_AWAIT(fake_submit_max() == 500);
    if (ALL() != 0)
        fail_msg("%d answered already (%d ok, %d timed out), %d times up, down: %s", ALL(), GOT(BQ_OK), GOT(BQ_TIMEOUT),
                 count_of(&got.ups), got.why);
    fake_up();
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(GOT(BQ_OK), 500);
}

enum { THREADS = 4, EACH = 100 };

static void *publish_many(void *arg)
{
    atomic_int *bad = arg;
    for (int i = 0; i < EACH; i++) {
        bq_message_spec m = spec_of();
        char id[BQ_ID_SIZE];
        bq_error err;
        if (bq_publish(publisher, &m, id, &err) || strlen(id) != 36)
            atomic_fetch_add(bad, 1);
    }
    return NULL;
}

static void is_thread_safe(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    atomic_int bad = 0;
    open_plain("fake:x");
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, publish_many, &bad);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bad, 0);
    assert_int_equal(fake_ready("q"), THREADS * EACH);
}

/* ---- what is produced --------------------------------------------------------------------------------------------------- */

/* Contract 5 and 7.10: projected, contract names win, empty ones are dropped, the last of a repeated name counts. */
static void headers_and_projection(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE], expected[512];
    bq_error err;
    bq_header headers[] = {{BQ_STR("traceparent"), BQ_STR("00-1")}, {BQ_STR("empty"), BQ_STR("")},
                           {BQ_STR(""), BQ_STR("nameless")},        {BQ_STR("x-attempts"), BQ_STR("9")},
                           {BQ_STR("mine"), BQ_STR("1")},           {BQ_STR("mine"), BQ_STR("2")}};
    bq_message_spec m = spec_of();
    m.headers = headers;
    m.header_count = sizeof headers / sizeof *headers;
    m.trace_id = BQ_STR("t");
    m.key = BQ_STR("k");
    open_plain("fake:x?binding=rabbitmq");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    snprintf(expected, sizeof expected,
             "type=urn:a;correlation_id=t;message_id=%s;app_id=babelqueue;content_type=application/json;"
             "content_encoding=utf-8;delivery_mode=2;x-schema-version=1;x-source-lang=c;x-attempts=0;"
             "traceparent=00-1;mine=2;",
             id);
    assert_string_equal(fake_props("q", 0), expected);
    fake_op op;
    assert_true(fake_op_at(BQ_OP_PUBLISH, 0, &op));
    assert_string_equal(op.key, "k");
}

/* Names that a stranger chose by the ten thousands must not be compared each with each: that took minutes. */
static void very_many_headers_take_no_long_time(void **state)
{
    (void)state;
    enum { MANY = 60000, TWICE = 10 };
    bq_error err;
    char id[BQ_ID_SIZE];
    char(*names)[16] = calloc(MANY, sizeof *names);
    bq_header *headers = calloc(MANY + TWICE, sizeof *headers);
    assert_non_null(names);
    assert_non_null(headers);
    for (size_t i = 0; i < MANY + TWICE; i++) {
        snprintf(names[i % MANY], sizeof *names, "h%zu", i % MANY);
        headers[i] = (bq_header){bq_str_of(names[i % MANY]), i < MANY ? BQ_STR("1") : BQ_STR("2")};
    }
    bq_message_spec m = spec_of();
    m.headers = headers;
    m.header_count = MANY + TWICE;
    open_plain("fake:x?binding=rabbitmq");
    struct timespec from, to;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from), 0);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to), 0);
    assert_in_range(to.tv_sec - from.tv_sec, 0, 2);
    const char *props = fake_props("q", 0);
    assert_non_null(strstr(props, ";h0=2;h1=2;"));
    assert_non_null(strstr(props, ";h9=2;h10=1;"));
    free(headers);
    free(names);
}

static void a_binding_without_headers_drops_them(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_header header = {BQ_STR("traceparent"), BQ_STR("00-1")};
    bq_message_spec m = spec_of();
    m.headers = &header;
    m.header_count = 1;
    open_plain("fake:x?binding=laravel");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_string_equal(fake_props("q", 0), "");
}

static void a_whole_body_goes_as_it_is(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = BQ_STR("q");
    open_plain("fake:x");
    m.body = BQ_STR("not json");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_string_equal(fake_body("q", 0), "not json");
    assert_string_equal(id, "");
    m.body = BQ_STR("{\"job\":\"u\",\"meta\":{\"id\":\"m-\\u0031\"}}");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_string_equal(id, "m-1");
    /* An id longer than its place is cut, not at half a character. */
    m.body =
        BQ_STR("{\"job\":\"u\",\"meta\":{\"id\":\"12345678901234567890123456789012345678901234567890123456789012é\"}}");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_int_equal(strlen(id), 62);
    m.body = BQ_STR("");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_string_equal(id, "");
}

static void refuses(bq_message_spec m, bq_status status, const char *part)
{
    bq_error err = {0};
    assert_int_equal(bq_publish_async(publisher, &m, done, &got, &err), status);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void checks_before_anything_is_produced(void **state)
{
    (void)state;
    bq_header bad = {BQ_STR("h"), BQ_STR("\xff")};
    open_plain("fake:x");
    bq_message_spec m = spec_of();
    m.queue = BQ_STR(" ");
    refuses(m, BQ_INVALID, "queue");
    m.queue = (bq_str){"a\0b", 3};
    refuses(m, BQ_INVALID, "queue");
    m.queue = BQ_STR("\xff");
    refuses(m, BQ_INVALID, "queue");
    m = spec_of();
    m.urn = BQ_STR(" \t");
    refuses(m, BQ_INVALID, "");
    m = spec_of();
    m.data = BQ_STR("[1]");
    refuses(m, BQ_DATA, "");
    m = spec_of();
    m.delay_ms = -1;
    refuses(m, BQ_INVALID, "negative");
    m = spec_of();
    m.headers = &bad;
    m.header_count = 1;
    refuses(m, BQ_INVALID, "header 1");
    m = spec_of();
    m.meta_extra = BQ_STR("{\"id\":1}");
    refuses(m, BQ_INVALID, "/meta/id");
    assert_int_equal(fake_ops(-1), 0);
    assert_int_equal(ALL(), 0);
}

static void delays(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    m.delay_ms = 5000;
    open_plain("fakebare:x");
    refuses(m, BQ_UNSUPPORTED, "delay");
    assert_int_equal(fake_ops(-1), 0);
    bq_publisher_close(publisher, 100);
    open_plain("fake:x");
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_int_equal(fake_delay("q", 0), 5000);
    bq_publisher_close(publisher, 100);
    /* Contract 7.4: whole seconds, 900 at most, none on FIFO. */
    open_plain("fake:x?binding=sqs");
    m.delay_ms = 900000;
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    m.delay_ms = 901000;
    refuses(m, BQ_INVALID, "900");
    m.delay_ms = 1500;
    refuses(m, BQ_INVALID, "whole");
    m.delay_ms = 1000;
    m.queue = BQ_STR("q.fifo");
    refuses(m, BQ_INVALID, "FIFO");
}

/* ---- outcomes ------------------------------------------------------------------------------------------------------------ */

static void refused_is_told(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    open_plain("fake:x");
    fake_when(BQ_OP_PUBLISH, FAKE_REFUSE, 1);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_REFUSED);
    assert_int_equal(err.status, BQ_REFUSED);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
}

static void unknown_is_kept_apart(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    open_plain("fake:x");
    fake_when(BQ_OP_PUBLISH, FAKE_UNKNOWN, 1);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_UNKNOWN);
    assert_int_equal(strlen(id), 36); /* so that it can be sent again with the same one */
    assert_int_equal(fake_ready("q"), 1);
}

static void a_late_confirmation_counts(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    open_plain("fake:x");
    fake_when(BQ_OP_PUBLISH, FAKE_LATE, 1);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
}

static void no_confirmation_is_unknown_in_time(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.timeout_ms = 50;
    open_with("fake:x", &o);
    fake_when(BQ_OP_PUBLISH, FAKE_NEVER, 1);
    int64_t began = fake_now_ms();
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_UNKNOWN);
    assert_true(err.flags & BQ_ERROR_MAYBE_DONE);
    assert_true(fake_now_ms() - began < 3000);
    /* The driver still has it; the next one goes through, and a flush does not wait for what was answered. */
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_int_equal(bq_publisher_flush(publisher, 1000, &err), BQ_OK);
}

static void not_sent_is_not_unknown(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.timeout_ms = 50;
    fake_down("no route");
    open_with("fake:x", &o);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no route"));
    assert_true(err.flags & BQ_ERROR_RETRYABLE);
    fake_accept(0);
    fake_up();
    assert_int_equal(bq_publisher_wait(publisher, 10000, &err), BQ_OK);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_TIMEOUT);
    assert_false(err.flags & BQ_ERROR_MAYBE_DONE);
    fake_accept(-1);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_OK);
    assert_int_equal(fake_ready("q"), 1);
}

static void a_lost_connection_ends_what_was_under_way(void **state)
{
    (void)state;
    bq_error err;
    open_plain("fake:x");
    fake_when(BQ_OP_PUBLISH, FAKE_HOLD, 5);
    send_some(5);
    FAKE_AWAIT(fake_ops(BQ_OP_PUBLISH) == 5);
    fake_down("cut");
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(GOT(BQ_UNKNOWN), 5);
    fake_up();
    send_some(1);
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(GOT(BQ_OK), 1);
    assert_int_equal(count_of(&got.ups), 2);
    assert_int_equal(count_of(&got.downs), 1);
    assert_string_equal(got.why, "cut");
}

static void a_fatal_error_fails_everything(void **state)
{
    (void)state;
    bq_error err;
    bq_message_spec m = spec_of();
    fake_down("wait");
    open_plain("fake:x");
    send_some(3);
    fake_fatal(BQ_AUTH, "wrong password");
    FAKE_AWAIT(GOT(BQ_AUTH) == 3);
    assert_int_equal(bq_publisher_wait(publisher, 10000, &err), BQ_AUTH);
    assert_string_equal(err.text, "wrong password");
    assert_int_equal(bq_publish_async(publisher, &m, done, &got, &err), BQ_AUTH);
    assert_true(err.flags & BQ_ERROR_FATAL);
    assert_int_equal(ALL(), 3);
}

/* The opener may see the failure before it has seen the opening; it must not take it for its own, and wait for ever for
   a thread that nobody told to end. */
static void a_failure_right_after_the_opening_is_not_the_openings(void **state)
{
    (void)state;
    bq_error err;
    fake_fatal(BQ_AUTH, "wrong password");
    for (int n = 0; n < 300; n++) {
        open_plain("fake:x");
        assert_int_equal(bq_publisher_wait(publisher, 10000, &err), BQ_AUTH);
        bq_publisher_close(publisher, 100);
        publisher = NULL;
    }
}

/* ---- limits ---------------------------------------------------------------------------------------------------------------- */

static void past_the_limit_it_waits_and_then_is_busy(void **state)
{
    (void)state;
    bq_error err;
    bq_message_spec m = spec_of();
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.max_in_flight = 3;
    o.timeout_ms = 100;
    open_with("fake:x", &o);
    fake_when(BQ_OP_PUBLISH, FAKE_HOLD, 3);
    send_some(3);
    FAKE_AWAIT(fake_ops(-1) == 3);
    assert_int_equal(bq_publish_async(publisher, &m, done, &got, &err), BQ_BUSY);
    fake_let_go();
    FAKE_AWAIT(ALL() == 3);
    send_some(1);
    FAKE_AWAIT(ALL() == 4);
}

static void *let_go(void *arg)
{
    (void)arg;
    FAKE_AWAIT(fake_ops(-1) == 1);
    fake_let_go();
    return NULL;
}

static void bytes_are_limited_too(void **state)
{
    (void)state;
    bq_error err;
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    pthread_t thread;
    o.max_bytes = 100; /* less than one message: each goes alone */
    open_with("fake:x", &o);
    fake_when(BQ_OP_PUBLISH, FAKE_HOLD, 1);
    send_some(1);
    pthread_create(&thread, NULL, let_go, NULL);
    send_some(2);
    pthread_join(thread, NULL);
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(fake_submit_max(), 1);
    assert_int_equal(GOT(BQ_OK), 3);
}

/* From `done` it may be called as long as there is room; where it would have to wait it is busy instead. */
static void from_the_callback_it_never_waits(void **state)
{
    (void)state;
    bq_error err;
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.max_in_flight = 1;
    open_with("fake:x", &o);
    got.publisher = publisher;
    send_some(1);
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(got.nested, BQ_BUSY);
}

static void flush_waits_for_what_was_submitted_before(void **state)
{
    (void)state;
    bq_error err;
    open_plain("fake:x");
    assert_int_equal(bq_publisher_flush(publisher, 0, &err), BQ_OK);
    fake_when(BQ_OP_PUBLISH, FAKE_HOLD, 1);
    send_some(1);
    assert_int_equal(bq_publisher_flush(publisher, 20, &err), BQ_TIMEOUT);
    fake_let_go();
    assert_int_equal(bq_publisher_flush(publisher, 10000, &err), BQ_OK);
    assert_int_equal(ALL(), 1);
}

/* ---- the end ------------------------------------------------------------------------------------------------------------------ */

static void close_flushes(void **state)
{
    (void)state;
    open_plain("fake:x");
    send_some(200);
    bq_publisher_close(publisher, 10000);
    publisher = NULL;
    assert_int_equal(got.count, 200);
    assert_int_equal(got.by_status[BQ_OK], 200);
    assert_int_equal(fake_closed(), 1);
    bq_publisher_close(NULL, 0);
}

static void close_tells_sent_from_not_sent(void **state)
{
    (void)state;
    open_plain("fake:x");
    fake_accept(2);
    fake_when(BQ_OP_PUBLISH, FAKE_NEVER, -1);
    send_some(2);
    FAKE_AWAIT(fake_ops(-1) == 2);
    fake_accept(0);
    send_some(3);
    bq_publisher_close(publisher, 50);
    publisher = NULL;
    assert_int_equal(got.by_status[BQ_UNKNOWN], 2);
    assert_int_equal(got.by_status[BQ_CLOSED], 3);
    assert_int_equal(got.count, 5);
}

static void a_blocked_call_is_interrupted(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.timeout_ms = 100;
    open_with("fake:x", &o);
    assert_int_equal(bq_publisher_wait(publisher, 10000, &err), BQ_OK);
    fake_when(BQ_OP_PUBLISH, FAKE_BLOCK, 1);
    int64_t began = fake_now_ms();
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_REFUSED);
    assert_true(fake_now_ms() - began < 5000);
    assert_int_equal(fake_interrupts() >= 1, 1);
}

/* A client library that ignores even its interrupt: the caller and close return all the same. */
static void close_is_bounded_whatever_the_driver_does(void **state)
{
    (void)state;
    char id[BQ_ID_SIZE];
    bq_error err;
    bq_message_spec m = spec_of();
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.timeout_ms = 50;
    open_with("fake:x", &o);
    assert_int_equal(bq_publisher_wait(publisher, 10000, &err), BQ_OK);
    fake_ignore_interrupt(true);
    fake_when(BQ_OP_PUBLISH, FAKE_BLOCK, 1);
    assert_int_equal(bq_publish(publisher, &m, id, &err), BQ_UNKNOWN);
    send_some(1);
    int64_t began = fake_now_ms();
    bq_publisher_close(publisher, 50);
    publisher = NULL;
    assert_true(fake_now_ms() - began < 8000);
    int before = ALL();
    assert_int_equal(fake_closed(), 0);
    /* When it comes back after all it cleans up, and calls nobody. */
    fake_ignore_interrupt(false);
    FAKE_AWAIT(fake_closed() == 1);
    assert_int_equal(ALL(), before);
}

static void an_open_that_fails_is_final(void **state)
{
    (void)state;
    bq_error err;
    fake_open_fails(BQ_CONFIG);
    assert_int_equal(bq_publisher_open(&publisher, "fake:x", NULL, &err), BQ_CONFIG);
    assert_null(publisher);
    assert_int_equal(bq_publisher_open(&publisher, "fake:x?nosuch=1", NULL, &err), BQ_INVALID);
    assert_int_equal(bq_publisher_open(&publisher, "nosuch:x", NULL, &err), BQ_INVALID);
}

static void waits_for_the_connection(void **state)
{
    (void)state;
    bq_error err;
    fake_down("no route");
    open_plain("fake:x");
    FAKE_AWAIT(count_of(&got.downs) == 1);
    assert_int_equal(bq_publisher_wait(publisher, 20, &err), BQ_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no route"));
    fake_up();
    assert_int_equal(bq_publisher_wait(publisher, 10000, &err), BQ_OK);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(publishes_an_envelope),
        T(calls_back_once_each),
        T(a_flush_outlasts_the_callbacks),
        T(keeps_the_order),
        T(batches_by_itself),
        T(is_thread_safe),
        T(headers_and_projection),
        T(very_many_headers_take_no_long_time),
        T(a_binding_without_headers_drops_them),
        T(a_whole_body_goes_as_it_is),
        T(checks_before_anything_is_produced),
        T(delays),
        T(refused_is_told),
        T(unknown_is_kept_apart),
        T(a_late_confirmation_counts),
        T(no_confirmation_is_unknown_in_time),
        T(not_sent_is_not_unknown),
        T(a_lost_connection_ends_what_was_under_way),
        T(a_fatal_error_fails_everything),
        T(a_failure_right_after_the_opening_is_not_the_openings),
        T(past_the_limit_it_waits_and_then_is_busy),
        T(bytes_are_limited_too),
        T(from_the_callback_it_never_waits),
        T(flush_waits_for_what_was_submitted_before),
        T(close_flushes),
        T(close_tells_sent_from_not_sent),
        T(a_blocked_call_is_interrupted),
        T(close_is_bounded_whatever_the_driver_does),
        T(an_open_that_fails_is_final),
        T(waits_for_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
