/*
 * The settlement matrix of contract 3, end to end: every cell that memory and SQLite have, on both drivers as they are
 * and as stripped twins, through the public API alone. A row says what arrives, what is configured and what the
 * handler answers; then what is on the queues, what was reported and what was counted.
 */
#include "bq_test.h"

#include "unit/transport/scratch.h"
#include "unit/transport_kit.h"
#include "worker_test.h"

#include "runtime/loop.h"

#include <babelqueue/redrive.h>

#define OK_0                                                                                                           \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":1},\"attempts\":"  \
    "0}"
#define OK_1                                                                                                           \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":1},\"attempts\":"  \
    "1}"
#define OK_2                                                                                                           \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":1},\"attempts\":"  \
    "2}"
#define NO_0                                                                                                           \
    "{\"job\":\"urn:x\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":1},\"attempts\":"  \
    "0}"
#define NO_1                                                                                                           \
    "{\"job\":\"urn:x\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":1},\"attempts\":"  \
    "1}"
#define NO_2                                                                                                           \
    "{\"job\":\"urn:x\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":1},\"attempts\":"  \
    "2}"
#define V2                                                                                                             \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"queue\":\"q\",\"schema_version\":2},\"attempts\":"  \
    "1}"
#define JUNK "{\"job\":"

#define NOTHING "-"
#define NO_TROUBLE ((bq_trouble)-1)

typedef struct row {
    const char *name;
    const char *body;
    bq_unknown_urn unknown;
    bq_dead_lettering dead;
    const char *dlq; /* configured name */
    bq_outcome outcome;
    bool hook;
    /* afterwards */
    const char *on_queue; /* NOTHING, or the body */
    const char *on_dlq;   /* NOTHING, or a part of the record */
    bq_trouble trouble;
    bq_settled settled;
    int attempts; /* as reported */
    const char *exception;
    bool enveloped;
} row;

#define UNSET BQ_UNKNOWN_URN_UNSET
#define FAIL BQ_UNKNOWN_URN_FAIL
#define DELETE BQ_UNKNOWN_URN_DELETE
#define RELEASE BQ_UNKNOWN_URN_RELEASE
#define DEAD BQ_UNKNOWN_URN_DEAD_LETTER
#define DEF BQ_DEAD_LETTER_DEFAULT
#define ON BQ_DEAD_LETTER_ON
#define OFF BQ_DEAD_LETTER_OFF

#define RECORD(reason, attempts) "\"attempts\":" attempts ",\"dead_letter\":{\"reason\":\"" reason "\""
#define NO_HANDLER "\"error\":\"No handler mapped for URN [urn:x].\",\"exception\":\"UnknownUrnError\""

static const row ROWS[] = {
    /* done */
    {"done", OK_0, UNSET, DEF, NULL, BQ_DONE, false, NOTHING, NOTHING, NO_TROUBLE, BQ_SETTLED_ACKED, 0, NULL, false},
    {"done, off", OK_2, DELETE, OFF, NULL, BQ_DONE, false, NOTHING, NOTHING, NO_TROUBLE, BQ_SETTLED_ACKED, 0, NULL,
     false},
    /* failed, not at the limit: the strategies and dead-lettering do not matter */
    {"failed", OK_0, UNSET, DEF, NULL, BQ_FAILED, false, OK_1, NOTHING, BQ_TROUBLE_FAILED, BQ_SETTLED_RETRIED, 1, "E",
     true},
    {"failed, off", OK_1, DELETE, OFF, NULL, BQ_FAILED, false, OK_2, NOTHING, BQ_TROUBLE_FAILED, BQ_SETTLED_RETRIED, 2,
     "E", true},
    /* failed, at the limit */
    {"exhausted", OK_2, UNSET, DEF, NULL, BQ_FAILED, false, NOTHING,
     RECORD("failed", "3") ",\"error\":\"said\",\"exception\":\"E\"", BQ_TROUBLE_FAILED, BQ_SETTLED_DEAD_LETTERED, 3,
     "E", true},
    {"exhausted, on", OK_2, DELETE, ON, NULL, BQ_FAILED, false, NOTHING, RECORD("failed", "3"), BQ_TROUBLE_FAILED,
     BQ_SETTLED_DEAD_LETTERED, 3, "E", true},
    {"exhausted, named", OK_2, UNSET, DEF, "morgue", BQ_FAILED, false, NOTHING, RECORD("failed", "3"),
     BQ_TROUBLE_FAILED, BQ_SETTLED_DEAD_LETTERED, 3, "E", true},
    {"exhausted, off", OK_2, UNSET, OFF, NULL, BQ_FAILED, false, NOTHING, NOTHING, BQ_TROUBLE_FAILED,
     BQ_SETTLED_DROPPED, 3, "E", true},
    {"exhausted, off although named", OK_2, DEAD, OFF, "morgue", BQ_FAILED, false, NOTHING, NOTHING, BQ_TROUBLE_FAILED,
     BQ_SETTLED_DROPPED, 3, "E", true},
    /* rejected */
    {"rejected", OK_0, UNSET, DEF, NULL, BQ_REJECTED, false, NOTHING, RECORD("failed", "1"), BQ_TROUBLE_FAILED,
     BQ_SETTLED_DEAD_LETTERED, 1, "E", true},
    {"rejected, off", OK_0, UNSET, OFF, NULL, BQ_REJECTED, false, NOTHING, NOTHING, BQ_TROUBLE_FAILED,
     BQ_SETTLED_DROPPED, 1, "E", true},
    /* unknown URN */
    {"unknown", NO_0, UNSET, DEF, NULL, BQ_DONE, false, NO_1, NOTHING, BQ_TROUBLE_UNKNOWN_URN, BQ_SETTLED_RETRIED, 1,
     "UnknownUrnError", true},
    {"unknown, fail", NO_1, FAIL, DEF, NULL, BQ_DONE, false, NO_2, NOTHING, BQ_TROUBLE_UNKNOWN_URN, BQ_SETTLED_RETRIED,
     2, "UnknownUrnError", true},
    {"unknown, fail, exhausted", NO_2, FAIL, DEF, NULL, BQ_DONE, false, NOTHING,
     RECORD("unknown_urn", "3") "," NO_HANDLER, BQ_TROUBLE_UNKNOWN_URN, BQ_SETTLED_DEAD_LETTERED, 3, "UnknownUrnError",
     true},
    {"unknown, fail, exhausted, off", NO_2, UNSET, OFF, NULL, BQ_DONE, false, NOTHING, NOTHING, BQ_TROUBLE_UNKNOWN_URN,
     BQ_SETTLED_DROPPED, 3, "UnknownUrnError", true},
    {"unknown, delete", NO_0, DELETE, DEF, NULL, BQ_DONE, false, NOTHING, NOTHING, NO_TROUBLE, BQ_SETTLED_DROPPED, 0,
     NULL, false},
    {"unknown, delete, off", NO_0, DELETE, OFF, NULL, BQ_DONE, false, NOTHING, NOTHING, NO_TROUBLE, BQ_SETTLED_DROPPED,
     0, NULL, false},
    {"unknown, release", NO_1, RELEASE, DEF, NULL, BQ_DONE, false, NO_1, NOTHING, NO_TROUBLE, BQ_SETTLED_RELEASED, 0,
     NULL, false},
    {"unknown, release, off", NO_1, RELEASE, OFF, NULL, BQ_DONE, false, NO_1, NOTHING, NO_TROUBLE, BQ_SETTLED_RELEASED,
     0, NULL, false},
    {"unknown, dead_letter", NO_1, DEAD, DEF, NULL, BQ_DONE, false, NOTHING,
     RECORD("unknown_urn", "1") ",\"error\":null,\"exception\":null", NO_TROUBLE, BQ_SETTLED_DEAD_LETTERED, 0, NULL,
     false},
    {"unknown, dead_letter, off", NO_1, DEAD, OFF, NULL, BQ_DONE, false, NOTHING, NOTHING, NO_TROUBLE,
     BQ_SETTLED_DROPPED, 0, NULL, false},
    {"unknown, hook", NO_0, DEAD, DEF, NULL, BQ_DONE, true, NOTHING, NOTHING, NO_TROUBLE, BQ_SETTLED_ACKED, 0, NULL,
     false},
    {"unknown, hook fails", NO_2, DELETE, DEF, NULL, BQ_FAILED, true, NOTHING, RECORD("failed", "3"), BQ_TROUBLE_FAILED,
     BQ_SETTLED_DEAD_LETTERED, 3, "E", true},
    /* poison: never a handler, never a retry */
    {"poison", JUNK, UNSET, DEF, NULL, BQ_DONE, true, NOTHING,
     "{\"raw\":\"{\\\"job\\\":\",\"dead_letter\":{\"reason\":\"poison\",\"error\":\"Undecodable BabelQueue body: ",
     BQ_TROUBLE_POISON, BQ_SETTLED_DEAD_LETTERED, 0, "BabelQueueError", false},
    {"poison, spliced", V2, FAIL, ON, NULL, BQ_DONE, true, NOTHING,
     "\"attempts\":1,\"dead_letter\":{\"reason\":\"poison\"", BQ_TROUBLE_POISON, BQ_SETTLED_DEAD_LETTERED, 1,
     "BabelQueueError", false},
    {"poison, delete", JUNK, DELETE, DEF, NULL, BQ_DONE, false, NOTHING, NOTHING, BQ_TROUBLE_POISON, BQ_SETTLED_DROPPED,
     0, "BabelQueueError", false},
    {"poison, release", JUNK, RELEASE, DEF, NULL, BQ_DONE, false, NOTHING, "\"reason\":\"poison\"", BQ_TROUBLE_POISON,
     BQ_SETTLED_DEAD_LETTERED, 0, "BabelQueueError", false},
    {"poison, dead_letter", JUNK, DEAD, DEF, "morgue", BQ_DONE, false, NOTHING, "\"reason\":\"poison\"",
     BQ_TROUBLE_POISON, BQ_SETTLED_DEAD_LETTERED, 0, "BabelQueueError", false},
    {"poison, off", JUNK, UNSET, OFF, NULL, BQ_DONE, true, NOTHING, NOTHING, BQ_TROUBLE_POISON, BQ_SETTLED_DROPPED, 0,
     "BabelQueueError", false},
    {"poison, dead_letter, off", V2, DEAD, OFF, NULL, BQ_DONE, true, NOTHING, NOTHING, BQ_TROUBLE_POISON,
     BQ_SETTLED_DROPPED, 1, "BabelQueueError", false},
};

/* ---- places --------------------------------------------------------------------------------------------------------------- */

typedef struct place {
    const char *scheme;
    bool sqlite, bare;
} place;

static char url[600];
static int places;

static const char *fresh(const place *p)
{
    if (p->sqlite)
        snprintf(url, sizeof url, "%s:%s?retry_after=60s", p->scheme, scratch_new());
    else
        snprintf(url, sizeof url, "%s:place-%d?retry_after=60s", p->scheme, ++places);
    return url;
}

static void put(const char *queue, const char *body)
{
    bq_publisher *p;
    bq_error err;
    char id[BQ_ID_SIZE];
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    bq_header header = {BQ_STR("tenant"), BQ_STR("7")};
    m.queue = bq_str_of(queue);
    m.body = bq_str_of(body);
    m.headers = &header;
    m.header_count = 1;
    if (bq_publisher_open(&p, url, NULL, &err) || bq_publish(p, &m, id, &err))
        fail_msg("%s", err.text);
    bq_publisher_close(p, 1000);
}

/* What is on a queue: bodies, and headers where the driver has them. */
typedef struct content {
    int count;
    char body[1024];
    char header[64];
} content;

static bool look_at(const bq_incoming *in, void *arg)
{
    content *k = arg;
    k->count++;
    W_TEXT(k->body, in->body);
    const bq_prop *h = bq_prop_find(in->props, in->prop_count, BQ_PLACE_HEADER, BQ_STR("tenant"));
    W_TEXT(k->header, h ? h->text : BQ_STR_NULL);
    return true;
}

/* The twin may not peek: the driver itself is asked, under its own scheme. */
static content content_of(const char *queue)
{
    content k = {0};
    char own[600];
    bq_error err;
    bq_link link;
    const char *colon = strchr(url, ':');
    snprintf(own, sizeof own, "%s%s", strncmp(url, "sqlite", 6) == 0 ? "sqlite" : "memory", colon);
    bq_link_spec spec = {.url = own, .roles = BQ_ROLE_ADMIN};
    if (bq_link_init(&link, &spec, &err) || bq_link_open(&link, &err) ||
        bq_link_connect(&link, fake_now_ms() + 10000, &err) ||
        link.ops->admin->peek(link.state, bq_str_of(queue), 0, 100, 10000, look_at, &k, &err))
        fail_msg("%s", err.text);
    bq_link_close(&link, 1000);
    bq_link_clear(&link);
    return k;
}

/* ---- one cell --------------------------------------------------------------------------------------------------------------- */

static uint64_t counted(const bq_metrics *m, bq_settled settled)
{
    switch (settled) {
    case BQ_SETTLED_ACKED: return m->acked;
    case BQ_SETTLED_RETRIED: return m->retried;
    case BQ_SETTLED_DEAD_LETTERED: return m->dead_lettered;
    case BQ_SETTLED_DROPPED: return m->dropped;
    case BQ_SETTLED_RELEASED: return m->released;
    default: return 0;
    }
}

static void expect(bool ok, const row *r, const place *p, const char *what, const char *found)
{
    if (!ok)
        fail_msg("%s on %s: %s (%s)", r->name, p->scheme, what, found);
}

static void check(worker *w, const row *r, const place *p)
{
    const char *dlq = r->dlq ? r->dlq : "q.dlq";
    content q = content_of("q"), d = content_of(dlq);
    bool stays = strcmp(r->on_queue, NOTHING) != 0, dead = strcmp(r->on_dlq, NOTHING) != 0;
    expect(q.count == stays && (!stays || strcmp(q.body, r->on_queue) == 0), r, p, "queue", q.body);
    expect(d.count == dead && (!dead || strstr(d.body, r->on_dlq)), r, p, "dead-letter queue", d.body);
    if (dead)
        expect(strstr(d.body, "\"original_queue\":\"q\"") != NULL, r, p, "original queue", d.body);
    if (!p->bare) /* headers travel with every copy; the twin carries none */
        expect((!stays || strcmp(q.header, "7") == 0) && (!dead || strcmp(d.header, "7") == 0), r, p, "header", "");
    bq_metrics m = w_metrics(w);
    expect(counted(&m, r->settled) == 1, r, p, "counted", w->log);
    expect(m.acked + m.retried + m.dead_lettered + m.dropped + m.released == 1, r, p, "counted once", w->log);
    expect(m.settle_failed == 0 && m.leases_lost == 0, r, p, "trouble", w->log);
    expect(w->report_count == (r->trouble != NO_TROUBLE), r, p, "reports", w->log);
    if (r->trouble != NO_TROUBLE) {
        const reported *x = &w->reports[0];
        expect(x->trouble == r->trouble && x->settled == r->settled && x->attempts == r->attempts &&
                   x->settlement == BQ_OK && x->enveloped == r->enveloped,
               r, p, "report", w->log);
        expect(strcmp(x->exception, r->exception) == 0, r, p, "exception", x->exception);
        expect(strcmp(x->body, r->body) == 0 && strcmp(x->queue, "q") == 0, r, p, "reported body", x->body);
    }
    expect((strstr(w->log, "dropped a message of queue q") != NULL) == (r->settled == BQ_SETTLED_DROPPED), r, p,
           "drop warning", w->log);
}

static void run_row(const row *r, const place *p)
{
    static worker w;
    bq_error err;
    w_init(&w);
    (void)fresh(p);
    put("q", r->body);
    w.outcome = r->outcome;
    w.exception = "E";
    w.error = "said";
    w.o.unknown = r->unknown;
    w.o.dead_lettering = r->dead;
    w.o.dead_letter_queue = r->dlq;
    w.o.max_messages = 1;
    if (r->hook) {
        w.o.unknown_hook = w_handle;
        w.o.unknown_hook_arg = &w;
    }
    w_open(&w, url);
    if (bq_consumer_wait(w.consumer, 10000, &err))
        fail_msg("%s on %s: %s\n%s", r->name, p->scheme, err.text, w.log);
    check(&w, r, p);
    w_close(&w);
}

static const place MEMORY = {"memory", false, false}, SQLITE = {"sqlite", true, false},
                   MEMORY_BARE = {"memory-bare", false, true}, SQLITE_BARE = {"sqlite-bare", true, true};

static void run_all(const place *p)
{
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        run_row(&ROWS[i], p);
}

static void on_memory(void **state)
{
    (void)state;
    run_all(&MEMORY);
}

static void on_sqlite(void **state)
{
    (void)state;
    run_all(&SQLITE);
}

static void on_stripped_memory(void **state)
{
    (void)state;
    run_all(&MEMORY_BARE);
}

static void on_stripped_sqlite(void **state)
{
    (void)state;
    run_all(&SQLITE_BARE);
}

/* ---- crash loops -------------------------------------------------------------------------------------------------------------- */

/* Takes the message and lets its lease run out, as a worker that dies does. */
static void die_with_it(int times)
{
    bq_error err;
    bq_link link;
    bq_str queue = BQ_STR("q");
    char hasty[600]; /* the same place with short leases */
    snprintf(hasty, sizeof hasty, "%.*s?retry_after=40ms", (int)strcspn(url, "?"), url);
    bq_link_spec spec = {.url = hasty, .roles = BQ_ROLE_CONSUME, .queues = &queue, .queue_count = 1, .prefetch = 1};
    if (bq_link_init(&link, &spec, &err) || bq_link_open(&link, &err))
        fail_msg("%s", err.text);
    link.want = 1;
    for (int64_t until = fake_now_ms() + 20000; times > 0;) {
        bq_incoming *in;
        if (fake_now_ms() > until)
            fail_msg("the message does not come again");
        if (bq_link_take(&link, &in, 1)) {
            bq_link_forget(&link, in);
            times--;
        }
        bq_link_turn(&link, NULL, fake_now_ms() + 5, BQ_TURN_WAIT);
    }
    bq_link_close(&link, 1000);
    bq_link_clear(&link);
}

/* Contract 3, crash loops: dead-lettered at the limit without calling a handler. */
static void worker_lost(const place *p, bq_dead_lettering dead)
{
    static worker w;
    bq_error err;
    w_init(&w);
    (void)fresh(p);
    put("q", OK_1);
    die_with_it(3);
    w.o.dead_lettering = dead;
    w.o.max_messages = 1;
    w_open(&w, url);
    assert_int_equal(bq_consumer_wait(w.consumer, 20000, &err), BQ_OK);
    bq_metrics m = w_metrics(&w);
    w_close(&w);
    assert_int_equal(w.calls, 0);
    assert_int_equal(m.worker_lost, 1);
    assert_int_equal(w.report_count, 1);
    assert_int_equal(w.reports[0].trouble, BQ_TROUBLE_WORKER_LOST);
    assert_string_equal(w.reports[0].exception, "WorkerLost");
    content d = content_of("q.dlq");
    assert_int_equal(d.count, dead != OFF);
    if (dead != OFF) {
        assert_non_null(strstr(d.body, "\"attempts\":3,\"dead_letter\":{\"reason\":\"failed\""));
        assert_non_null(strstr(d.body, "\"exception\":\"WorkerLost\""));
    }
    assert_int_equal(content_of("q").count, 0);
}

static void a_crash_loop_ends(void **state)
{
    (void)state;
    worker_lost(&MEMORY, DEF);
    worker_lost(&MEMORY, OFF);
    worker_lost(&SQLITE, DEF);
    worker_lost(&SQLITE, OFF);
}

/* ---- more than one message --------------------------------------------------------------------------------------------------- */

/* Retries until the limit, in place, with every attempt visible to the handler. */
static void retries_to_the_end(const place *p)
{
    static worker w;
    bq_error err;
    w_init(&w);
    (void)fresh(p);
    put("q", OK_0);
    w.outcome = BQ_FAILED;
    w.o.drain = 1;
    w.o.on_error = NULL;
    w_open(&w, url);
    assert_int_equal(bq_consumer_wait(w.consumer, 20000, &err), BQ_OK);
    w_close(&w);
    assert_int_equal(w.calls, 3);
    assert_string_equal(w.seen[0], OK_0);
    assert_string_equal(w.seen[1], OK_1);
    assert_string_equal(w.seen[2], OK_2);
    assert_int_equal(content_of("q.dlq").count, 1);
}

static void every_attempt_is_seen(void **state)
{
    (void)state;
    retries_to_the_end(&MEMORY);
    retries_to_the_end(&SQLITE);
    retries_to_the_end(&MEMORY_BARE);
    retries_to_the_end(&SQLITE_BARE);
}

/* Several queues are served fairly: a long one does not keep another waiting. */
static void fair(const place *p)
{
    static worker w;
    bq_error err;
    w_init(&w);
    (void)fresh(p);
    for (int i = 0; i < 40; i++)
        put("q", OK_0);
    for (int i = 0; i < 10; i++)
        put("r", OK_1);
    w.queues[1] = "r";
    w.o.queue_count = 2;
    w.o.prefetch = 2;
    w.o.max_messages = 16;
    w_open(&w, url);
    assert_int_equal(bq_consumer_wait(w.consumer, 20000, &err), BQ_OK);
    w_close(&w);
    int second = 0;
    for (int i = 0; i < 16; i++)
        second += strcmp(w.seen[i], OK_1) == 0;
    assert_in_range(second, 5, 10);
}

static void queues_are_served_fairly(void **state)
{
    (void)state;
    fair(&MEMORY);
    fair(&SQLITE);
}

static int teardown(void **state)
{
    (void)state;
    scratch_clear();
    return 0;
}

static const bq_transport_ops *driver(const char *name)
{
    const bq_transport_ops *ops;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++)
        if (strcmp(ops->name, name) == 0)
            return ops;
    return NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_memory),
        cmocka_unit_test(on_sqlite),
        cmocka_unit_test(on_stripped_memory),
        cmocka_unit_test(on_stripped_sqlite),
        cmocka_unit_test(a_crash_loop_ends),
        cmocka_unit_test(every_attempt_is_seen),
        cmocka_unit_test(queues_are_served_fairly),
    };
    if (!driver("sqlite"))
        return 77;
    (void)kit_twin(driver("memory"), "memory-bare");
    (void)kit_twin(driver("sqlite"), "sqlite-bare");
    return cmocka_run_group_tests(tests, NULL, teardown);
}
