/* transport_kit_loop.c - what every transport is expected to do: the loop, administration, and everything at once. See transport_kit.h. */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the loop --------------------------------------------------------------------------------------------------------- */

static void every_operation_completes_once(const kit_suite *suite)
{
    enum { COUNT = 20000 };
    kit_op *ops = calloc(COUNT, sizeof(*ops));
    bq_op **list = calloc(COUNT, sizeof(*list));
    assert_non_null(ops);
    assert_non_null(list);
    KIT_WORKER(c, suite, 0);
    for (size_t i = 0; i < COUNT; i++) {
        ops[i] = kit_make_publish("q", BQ_STR("{\"job\":\"urn:x\",\"data\":{}}"));
        list[i] = &ops[i].op;
    }
    kit_do(&c, ops, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        kit_assert_ok(ops[i].status);
    if (c.target.ops->admin && c.target.ops->admin->stats) {
        bq_queue_stats stats = kit_stats(&c, "q");
        assert_true(stats.ready + stats.in_flight == COUNT);
    }
    kit_close(&c);
    free(list);
    free(ops);
}

/* A full window of publishes leaves room for settlements. */
static void settlements_have_room(const kit_suite *suite)
{
    enum { COUNT = 50000 };
    kit_op *ops = calloc(COUNT, sizeof(*ops));
    bq_op **list = calloc(COUNT, sizeof(*list));
    assert_non_null(ops);
    assert_non_null(list);
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    bq_incoming *in = kit_expect(&c, "a");
    for (size_t i = 0; i < COUNT; i++) {
        ops[i] = kit_make_publish("other", BQ_STR("x"));
        list[i] = &ops[i].op;
    }
    size_t taken = 0, now;
    while (taken < COUNT && (now = c.target.ops->submit(c.state, list + taken, COUNT - taken)) > 0)
        taken += now;
    assert_true(taken > 0);
    kit_op ack = kit_make(BQ_OP_ACK, in);
    bq_op *one = &ack.op;
    assert_int_equal(c.target.ops->submit(c.state, &one, 1), 1);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.finished < taken + 2) {
        assert_true(bq_now_ms() < end);
        kit_turn(&c, 50);
    }
    kit_assert_ok(ack.status);
    kit_close(&c);
    free(list);
    free(ops);
}

/* Operations under way are dropped by close, without a completion and without a trace in memory. */
static void closing_with_work_under_way(const kit_suite *suite)
{
    enum { COUNT = 100 };
    kit_op ops[COUNT];
    bq_op *list[COUNT];
    KIT_WORKER(c, suite, 0);
    for (size_t i = 0; i < COUNT; i++) {
        ops[i] = kit_make_publish("q", BQ_STR("x"));
        list[i] = &ops[i].op;
    }
    assert_true(c.target.ops->submit(c.state, list, COUNT) > 0);
    (void)kit_take(&c, 0);
    int64_t start = bq_now_ms();
    kit_close(&c);
    assert_true(bq_now_ms() - start < 6000);
}

/* Ready messages that nobody wants, and silence, cost no turns of the loop. */
static void nothing_spins(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    c.want = 0;
    for (int i = 0; i < 3; i++)
        kit_assert_ok(kit_publish(&c, "q", "x"));
    for (int round = 0; round < 2; round++) {
        /* Let it settle: what it fetched before goes back, what it has to tidy up is tidied up. */
        for (int64_t end = bq_now_ms() + 2200; bq_now_ms() < end;)
            kit_turn(&c, 500);
        unsigned before = c.turns;
        for (int64_t end = bq_now_ms() + 600; bq_now_ms() < end;)
            kit_turn(&c, 600);
        assert_true(c.turns - before <= 8);
        c.want = 16;
        for (int i = 0; i < 3 && round == 0; i++)
            kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "x")));
    }
    kit_close(&c);
}

typedef struct waker {
    const char *url;
    int64_t published_us;
} waker;

static void *publish_after_a_while(void *arg)
{
    waker *w = arg;
    kit_client c;
    kit_open(&c, w->url, BQ_ROLE_PUBLISH, 0, NULL);
    /* Until the other one is asleep for certain. */
    (void)poll(NULL, 0, 300);
    kit_op op = kit_make_publish("q", BQ_STR("wake up"));
    w->published_us = bq_now_us();
    kit_do(&c, &op, 1);
    kit_close(&c);
    return NULL;
}

static void a_sleeper_is_woken(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    waker w = {.url = c_url};
    pthread_t thread;
    kit_expect_none(&c, 0);
    assert_int_equal(pthread_create(&thread, NULL, publish_after_a_while, &w), 0);
    bq_incoming *in = NULL;
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (!in && bq_now_ms() < end)
        if (c.target.ops->take(c.state, &in, 1) == 0)
            kit_turn(&c, 5000); /* its own wake-up, or the test is slow */
    int64_t woken = bq_now_us();
    assert_non_null(in);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("           woken after %.1f ms\n", (double)(woken - w.published_us) / 1000);
    assert_true(woken - w.published_us < 900000); /* a slow machine; not the driver's poll of last resort */
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

typedef struct interrupter {
    kit_client *c;
    atomic_bool stop;
} interrupter;

static void *interrupt_all_the_time(void *arg)
{
    interrupter *i = arg;
    while (!atomic_load(&i->stop)) {
        i->c->target.ops->interrupt(i->c->state);
        (void)poll(NULL, 0, 1);
    }
    return NULL;
}

/* It may make operations fail; it loses no completion and no later work. */
static void interrupted_at_any_time(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    if (c.target.ops->interrupt) {
        interrupter i = {.c = &c};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, interrupt_all_the_time, &i), 0);
        kit_op ops[64];
        for (int round = 0; round < 10; round++) {
            for (int n = 0; n < 64; n++)
                ops[n] = kit_make_publish("other", BQ_STR("x"));
            kit_do(&c, ops, 64);
        }
        atomic_store(&i.stop, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (kit_publish(&c, "q", "after") != BQ_OK)
        assert_true(bq_now_ms() < end);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "after")));
    kit_close(&c);
}

/* A driver may have to ask the broker first. */
static void await_idle(kit_client *c, bool all)
{
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (!c->target.ops->idle(c->state, all)) {
        assert_true(bq_now_ms() < end);
        kit_expect_none(c, 5);
    }
}

static void tells_when_drained(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    const bq_transport_ops *ops = c.target.ops;
    await_idle(&c, false);
    await_idle(&c, true);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    assert_false(ops->idle(c.state, false));
    bq_incoming *in = kit_expect(&c, "a");
    assert_false(ops->idle(c.state, false)); /* in our hands */
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    await_idle(&c, false);
    if (kit_can(&c, BQ_CAP_PUBLISH_DELAY)) {
        kit_assert_ok(kit_publish_later(&c, "q", "later", 3600000));
        kit_expect_none(&c, 20);
        await_idle(&c, false);
        assert_false(ops->idle(c.state, true));
    }
    kit_close(&c);
}

/* What another worker holds may come back: a drain waits for it. */
static void is_not_drained_while_others_hold_some(const kit_suite *suite)
{
    KIT_WORKER(other, suite, 0);
    kit_client c;
    kit_assert_ok(kit_publish(&other, "q", "a"));
    bq_incoming *in = kit_expect(&other, "a");
    kit_open(&c, other_url, KIT_BOTH | BQ_ROLE_ADMIN, 0, "q");
    for (int n = 0; n < 20; n++) {
        kit_expect_none(&c, 5);
        assert_false(c.target.ops->idle(c.state, false));
    }
    kit_assert_ok(kit_settle(&other, BQ_OP_ACK, in));
    await_idle(&c, false);
    kit_close(&c);
    kit_close(&other);
}

/* ---- administration --------------------------------------------------------------------------------------------------- */

static void stats_add_up(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    if (!c.target.ops->admin || !c.target.ops->admin->stats) {
        kit_close(&c);
        return;
    }
    bq_queue_stats stats = kit_stats(&c, "nobody knows it");
    assert_true(stats.ready <= 0 && stats.in_flight <= 0 && stats.delayed <= 0 && stats.dead <= 0);
    for (int i = 0; i < 5; i++)
        kit_assert_ok(kit_publish(&c, "q", "x"));
    if (kit_can(&c, BQ_CAP_PUBLISH_DELAY))
        kit_assert_ok(kit_publish_later(&c, "q", "later", 3600000));
    bq_incoming *in = kit_expect(&c, "x");
    kit_assert_ok(kit_replace(&c, BQ_OP_DEAD_LETTER, in, "q.dlq", "dead", 0));
    in = kit_expect(&c, "x");
    stats = kit_stats(&c, "q");
    assert_true(stats.ready + stats.in_flight == 4);
    assert_true(stats.in_flight >= 1);
    assert_true(stats.delayed == (kit_can(&c, BQ_CAP_PUBLISH_DELAY) ? 1 : 0));
    assert_true(stats.dead == 1 || stats.dead == -1);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static bool remember_queue(bq_str queue, void *arg)
{
    char *seen = arg;
    (void)snprintf(seen + strlen(seen), 256 - strlen(seen), "[%.*s]", (int)queue.len, queue.ptr);
    return true;
}

static bool stop_at_once(bq_str queue, void *arg)
{
    (void)queue;
    (*(int *)arg)++;
    return false;
}

static void queues_are_listed(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    bq_error err;
    char seen[256] = "";
    int calls = 0;
    if (c.target.ops->admin && c.target.ops->admin->queues) {
        kit_assert_ok(kit_publish(&c, "alpha", "x"));
        kit_assert_ok(kit_publish(&c, "beta", "x"));
        kit_assert_ok(c.target.ops->admin->queues(c.state, 10000, remember_queue, seen, &err));
        assert_non_null(strstr(seen, "[alpha]"));
        assert_non_null(strstr(seen, "[beta]"));
        kit_assert_ok(c.target.ops->admin->queues(c.state, 10000, stop_at_once, &calls, &err));
        assert_int_equal(calls, 1);
    }
    kit_close(&c);
}

typedef struct peeked {
    char bodies[512];
    uint64_t last;
    size_t count, stop_after;
} peeked;

static bool remember_message(const bq_incoming *in, void *arg)
{
    peeked *p = arg;
    size_t len = strlen(p->bodies);
    (void)snprintf(p->bodies + len, sizeof(p->bodies) - len, "%.*s ", (int)in->body.len, in->body.ptr);
    assert_true((uint64_t)in->position > p->last);
    p->last = (uint64_t)in->position;
    p->count++;
    return p->count != p->stop_after;
}

static void peeking_changes_nothing(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    bq_error err;
    peeked p = {{0}, 0, 0, 0};
    c.want = 0;
    for (int i = 0; i < 7; i++) {
        char body[2] = {(char)('a' + i), 0};
        kit_assert_ok(kit_publish(&c, "q", body));
    }
    const bq_admin_ops *admin = c.target.ops->admin;
    kit_assert_ok(admin->peek(c.state, BQ_STR("q"), 0, 3, 10000, remember_message, &p, &err));
    assert_string_equal(p.bodies, "a b c ");
    kit_assert_ok(admin->peek(c.state, BQ_STR("q"), p.last, 100, 10000, remember_message, &p, &err));
    assert_string_equal(p.bodies, "a b c d e f g ");
    kit_assert_ok(admin->peek(c.state, BQ_STR("q"), p.last, 100, 10000, remember_message, &p, &err));
    assert_int_equal(p.count, 7);
    p = (peeked){.stop_after = 2};
    kit_assert_ok(admin->peek(c.state, BQ_STR("q"), 0, 100, 10000, remember_message, &p, &err));
    assert_int_equal(p.count, 2);
    p = (peeked){{0}, 0, 0, 0};
    kit_assert_ok(admin->peek(c.state, BQ_STR("no such queue"), 0, 100, 10000, remember_message, &p, &err));
    assert_int_equal(p.count, 0);
    c.want = 16;
    for (int i = 0; i < 7; i++) {
        char body[2] = {(char)('a' + i), 0};
        bq_incoming *in = kit_expect(&c, body);
        assert_int_equal(in->lapses, 0);
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    kit_close(&c);
}

static void purging_empties(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    bq_error err;
    int64_t count = -1;
    if (c.target.ops->admin && c.target.ops->admin->purge) {
        kit_assert_ok(kit_publish(&c, "kept", "x"));
        c.want = 0;
        for (int i = 0; i < 2500; i += 500) {
            kit_op ops[500];
            for (int n = 0; n < 500; n++)
                ops[n] = kit_make_publish("q", BQ_STR("x"));
            kit_do(&c, ops, 500);
        }
        if (kit_can(&c, BQ_CAP_PUBLISH_DELAY))
            kit_assert_ok(kit_publish_later(&c, "q", "later", 1000));
        kit_assert_ok(c.target.ops->admin->purge(c.state, BQ_STR("q"), 10000, &count, &err));
        assert_true(count == (kit_can(&c, BQ_CAP_PUBLISH_DELAY) ? 2501 : 2500) || count == -1);
        kit_assert_ok(c.target.ops->admin->purge(c.state, BQ_STR("q"), 10000, &count, &err));
        assert_true(count <= 0);
        kit_assert_ok(c.target.ops->admin->purge(c.state, BQ_STR("never seen"), 10000, &count, &err));
        assert_true(count <= 0);
        c.want = 16;
        kit_expect_none(&c, 1200);
        assert_true(kit_stats(&c, "kept").ready == 1);
    }
    kit_close(&c);
}

/* ---- everything at once ----------------------------------------------------------------------------------------------- */

/* A seeded walk through all operations: every message ends exactly once, acknowledged or on the dead-letter queue. */
static void nothing_is_lost_or_doubled(const kit_suite *suite)
{
    enum { COUNT = 400 };
    unsigned random = 20261130, ended[COUNT] = {0}, dead = 0;
    KIT_WORKER(c, suite, 0);
    int published = 0, open_count = 0;
    int64_t end = bq_now_ms() + 2 * KIT_PATIENCE_MS;
    while (published < COUNT || open_count > 0) {
        assert_true(bq_now_ms() < end);
        random = random * 1664525u + 1013904223u;
        unsigned roll = random >> 24;
        char body[32];
        if (published < COUNT && roll < 110) {
            (void)snprintf(body, sizeof(body), "%d:0", published++);
            kit_assert_ok(kit_publish(&c, "q", body));
            open_count++;
            continue;
        }
        bq_incoming *in = kit_take(&c, open_count > 0 ? 20 : 0);
        if (!in)
            continue;
        char *rest;
        (void)snprintf(body, sizeof(body), "%.*s", (int)in->body.len, in->body.ptr);
        int number = (int)strtol(body, &rest, 10), attempts = (int)strtol(rest + 1, NULL, 10);
        assert_true(number >= 0 && number < COUNT);
        assert_int_equal(ended[number], 0);
        if (roll < 80) {
            kit_assert_ok(kit_replace(&c, BQ_OP_RELEASE, in, "q", NULL, roll & 7));
        } else if (roll < 140 && attempts < 3) {
            (void)snprintf(body, sizeof(body), "%d:%d", number, attempts + 1);
            kit_assert_ok(kit_replace(&c, BQ_OP_RETRY, in, "q", body, roll & 7));
        } else {
            bool bury = roll < 160;
            kit_assert_ok(bury ? kit_replace(&c, BQ_OP_DEAD_LETTER, in, "q.dlq", NULL, 0)
                               : kit_settle(&c, BQ_OP_ACK, in));
            ended[number]++;
            dead += bury;
            open_count--;
        }
    }
    kit_expect_none(&c, 50);
    kit_close(&c);
    kit_open(&c, c_url, KIT_BOTH, 0, "q.dlq");
    for (; dead > 0; dead--)
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, NULL)));
    kit_expect_none(&c, 50);
    kit_close(&c);
}

const kit_case kit_loop_cases[] = {
    {"every_operation_completes_once", every_operation_completes_once, 0, 0, false},
    {"settlements_have_room", settlements_have_room, 0, 0, false},
    {"closing_with_work_under_way", closing_with_work_under_way, 0, 0, false},
    {"nothing_spins", nothing_spins, 0, 0, false},
    {"a_sleeper_is_woken", a_sleeper_is_woken, 0, 0, false},
    {"interrupted_at_any_time", interrupted_at_any_time, 0, 0, false},
    {"tells_when_drained", tells_when_drained, BQ_CAP_IDLE, 0, false},
    {"is_not_drained_while_others_hold_some", is_not_drained_while_others_hold_some, BQ_CAP_IDLE, KIT_SHARED, true},
    {"stats_add_up", stats_add_up, 0, 0, false},
    {"queues_are_listed", queues_are_listed, 0, 0, false},
    {"peeking_changes_nothing", peeking_changes_nothing, BQ_CAP_PEEK, KIT_FIFO, false},
    {"purging_empties", purging_empties, 0, 0, false},
    {"nothing_is_lost_or_doubled", nothing_is_lost_or_doubled, 0, KIT_SHARED, false},
    {NULL, NULL, 0, 0, false},
};
