/* transport_kit_leases.c - what every transport is expected to do: leases (contract 7.1, 7.7, 7.11) and taking. See transport_kit.h. */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- leases (contract 7.1, 7.7, 7.11) -------------------------------------------------------------------------------- */

static void lease_lapses(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 300);
    kit_client b;
    kit_open(&b, a_url, KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "m"));
    int64_t start = bq_now_ms();
    bq_incoming *first = kit_expect(&a, "m");
    assert_true(first->lease_until_ms > start);
    bq_incoming *second = kit_expect(&b, "m");
    assert_true(bq_now_ms() - start >= 290);
    if (kit_can(&b, BQ_CAP_LAPSES))
        assert_int_equal(second->lapses, 1);
    kit_assert(kit_settle(&a, BQ_OP_ACK, first), BQ_LOST);
    /* What the first one did touched nothing. */
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, second));
    kit_expect_none(&b, 400);
    kit_close(&a);
    kit_close(&b);
}

static void lapses_are_counted(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 200);
    kit_assert_ok(kit_publish(&a, "q", "killer"));
    for (uint32_t i = 0; i < 3; i++) {
        bq_incoming *in = kit_expect(&a, "killer");
        assert_int_equal(in->lapses, i);
        a.target.ops->forget(a.state, in); /* the worker died */
    }
    bq_incoming *in = kit_expect(&a, "killer");
    assert_int_equal(in->lapses, 3);
    if (kit_can(&a, BQ_CAP_RELEASE)) { /* the same message still */
        kit_assert_ok(kit_settle(&a, BQ_OP_RELEASE, in));
        in = kit_expect(&a, "killer");
        assert_int_equal(in->lapses, 3);
    }
    if (kit_can(&a, BQ_CAP_RETRY)) { /* another one: its attempts count from here on */
        kit_assert_ok(kit_replace(&a, BQ_OP_RETRY, in, "q", "killer 1", 0));
        in = kit_expect(&a, "killer 1");
        assert_int_equal(in->lapses, 0);
    }
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, in));
    kit_close(&a);
}

/* Contract 3, crash loops: what a killed worker had merely taken ahead lapses beside the guilty message. At its last
 * chance (the kit's limit is 3) a message is taken when nothing else is in hand, and nothing beside it. */
static void last_chances_are_taken_alone(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 200);
    static const char *const suspects[] = {"suspect 1", "suspect 2", "suspect 3"};
    for (int i = 0; i < 3; i++)
        kit_assert_ok(kit_publish(&a, "q", suspects[i]));
    for (int round = 0; round < 2; round++) {
        bq_incoming *in[3];
        for (int i = 0; i < 3; i++) {
            in[i] = kit_expect(&a, NULL);
            assert_int_equal(in[i]->lapses, round);
        }
        for (int i = 0; i < 3; i++) /* the worker died */
            a.target.ops->forget(a.state, in[i]);
    }
    kit_close(&a);
    kit_open(&a, a_url, KIT_BOTH, 0, "q other");
    kit_assert_ok(kit_publish(&a, "other", "innocent"));
    bq_incoming *first = kit_take(&a, KIT_PATIENCE_MS), *next;
    assert_non_null(first);
    /* Whichever came first: while it is held the suspects wait, or it is one and all else does. */
    for (int i = 0; i < 3; i++) {
        kit_expect_none(&a, 50);
        kit_assert_ok(kit_settle(&a, BQ_OP_ACK, first));
        next = kit_take(&a, KIT_PATIENCE_MS);
        assert_non_null(next);
        first = next;
    }
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, first));
    kit_expect_none(&a, 20);
    kit_close(&a);
}

/* Every settlement of a lease that somebody else has now is LOST and touches nothing. */
static void stale_settlements(const kit_suite *suite)
{
    static const bq_op_kind kinds[] = {BQ_OP_ACK, BQ_OP_RETRY, BQ_OP_DEAD_LETTER, BQ_OP_RELEASE, BQ_OP_EXTEND};
    static const unsigned needed[] = {0, BQ_CAP_RETRY, BQ_CAP_DEAD_LETTER, BQ_CAP_RELEASE, BQ_CAP_EXTEND};
    KIT_WORKER(a, suite, 300);
    kit_client b;
    kit_open(&b, a_url, KIT_BOTH, 0, "q");
    for (size_t i = 0; i < 5; i++) {
        if (!kit_can(&a, needed[i]))
            continue;
        kit_assert_ok(kit_publish(&a, "q", "m"));
        bq_incoming *first = kit_expect(&a, "m");
        bq_incoming *second = kit_expect(&b, "m");
        kit_op op = kit_make(kinds[i], first);
        op.op.out = (bq_outgoing){.queue = BQ_STR("q.dlq"), .body = BQ_STR("stale")};
        kit_assert(kit_do_one(&a, &op), BQ_LOST);
        if (kinds[i] == BQ_OP_EXTEND) { /* held until it is settled or forgotten */
            assert_true(first->lease_lost);
            a.target.ops->forget(a.state, first);
        }
        bq_status status = kit_settle(&b, BQ_OP_ACK, second);
        while (status == BQ_LOST) { /* this machine was slower than the lease */
            second = kit_expect(&b, "m");
            status = kit_settle(&b, BQ_OP_ACK, second);
        }
        kit_assert_ok(status);
        kit_expect_none(&b, 350);
    }
    kit_close(&b);
    kit_open(&b, a_url, KIT_BOTH, 0, "q.dlq");
    kit_expect_none(&b, 50);
    kit_close(&a);
    kit_close(&b);
}

static void extending_keeps_a_lease(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 1000);
    kit_client b;
    kit_open(&b, a_url, KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "long"));
    bq_incoming *in = kit_expect(&a, "long");
    int64_t end = bq_now_ms() + 2200, until = in->lease_until_ms;
    while (bq_now_ms() < end) {
        kit_assert_ok(kit_settle(&a, BQ_OP_EXTEND, in));
        assert_true(in->lease_until_ms >= until);
        until = in->lease_until_ms;
        kit_expect_none(&b, 100);
    }
    assert_true(until > end);
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, in));
    kit_expect_none(&b, 1100);
    kit_close(&a);
    kit_close(&b);
}

/* Extended and settled in one breath, in either order. */
static void extending_and_settling(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 0);
    kit_assert_ok(kit_publish(&a, "q", "one"));
    kit_assert_ok(kit_publish(&a, "q", "two"));
    bq_incoming *one = kit_expect(&a, "one"), *two = kit_expect(&a, "two");
    kit_op ops[4] = {kit_make(BQ_OP_EXTEND, one), kit_make(BQ_OP_ACK, one), kit_make(BQ_OP_ACK, two),
                     kit_make(BQ_OP_EXTEND, two)};
    kit_do(&a, ops, 4);
    kit_assert_ok(ops[0].status);
    kit_assert_ok(ops[1].status);
    kit_assert_ok(ops[2].status);
    kit_assert(ops[3].status, BQ_LOST);
    kit_expect_none(&a, 50);
    kit_close(&a);
}

static void forgotten_comes_back(const kit_suite *suite)
{
    char url[2048];
    kit_client a;
    (void)snprintf(url, sizeof(url), "%s", kit_place(suite, 300));
    kit_open(&a, url, KIT_BOTH, 1, "q");
    kit_assert_ok(kit_publish(&a, "q", "one"));
    kit_assert_ok(kit_publish(&a, "q", "two"));
    bq_incoming *in = kit_expect(&a, "one");
    a.target.ops->forget(a.state, in);
    /* Forgetting gave its place in the prefetch free. */
    bool one = false, two = false;
    while (!one || !two) {
        in = kit_expect(&a, NULL);
        one = one || bq_str_equal(in->body, BQ_STR("one"));
        two = two || bq_str_equal(in->body, BQ_STR("two"));
        (void)kit_settle(&a, BQ_OP_ACK, in);
    }
    kit_close(&a);
}

/* Closing gives up what was taken, to be taken again when its lease ends. */
static void taken_and_closed(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 400);
    kit_assert_ok(kit_publish(&a, "q", "m"));
    int64_t start = bq_now_ms();
    (void)kit_expect(&a, "m");
    kit_close(&a);
    kit_open(&a, a_url, KIT_BOTH, 0, "q");
    bq_incoming *in = kit_expect(&a, "m");
    assert_true(bq_now_ms() - start >= 390 || !(suite->broker->traits & KIT_LOCAL));
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, in));
    kit_close(&a);
}

/* ---- taking --------------------------------------------------------------------------------------------------------- */

static void prefetch_is_a_bound(const kit_suite *suite)
{
    enum { COUNT = 12, PREFETCH = 4 };
    char url[2048];
    bq_incoming *held[PREFETCH], *extra[COUNT];
    kit_client c;
    (void)snprintf(url, sizeof(url), "%s", kit_place(suite, 0));
    kit_open(&c, url, KIT_BOTH, PREFETCH, "q");
    for (int i = 0; i < COUNT; i++) {
        char body[2] = {(char)('a' + i), 0};
        kit_assert_ok(kit_publish(&c, "q", body));
    }
    for (int i = 0; i < PREFETCH; i++)
        held[i] = kit_expect(&c, NULL);
    for (int64_t end = bq_now_ms() + 200; bq_now_ms() < end;) {
        assert_int_equal(c.target.ops->take(c.state, extra, COUNT), 0);
        kit_turn(&c, 20);
    }
    for (int left = COUNT; left > 0; left--) {
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, held[left % PREFETCH]));
        if (left > PREFETCH)
            held[left % PREFETCH] = kit_expect(&c, NULL);
    }
    kit_expect_none(&c, 50);
    kit_close(&c);
}

/* What the driver had fetched ahead and nobody took is there for others, and has not lapsed. */
static void not_taken_is_given_back(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 0);
    for (int i = 0; i < 10; i++)
        kit_assert_ok(kit_publish(&a, "q", "x"));
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, kit_expect(&a, "x")));
    kit_close(&a);
    kit_open(&a, a_url, KIT_BOTH, 0, "q");
    for (int i = 0; i < 9; i++) {
        bq_incoming *in = kit_take(&a, 5000);
        assert_non_null(in);
        assert_int_equal(in->lapses, 0);
        kit_assert_ok(kit_settle(&a, BQ_OP_ACK, in));
    }
    kit_close(&a);
}

/* Nor may a runtime that pauses keep from others what it has not taken. */
static void a_pause_holds_nothing(const kit_suite *suite)
{
    KIT_WORKER(a, suite, 0);
    kit_client b;
    for (int i = 0; i < 10; i++)
        kit_assert_ok(kit_publish(&a, "q", "x"));
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, kit_expect(&a, "x")));
    kit_open(&b, a_url, KIT_BOTH, 0, "q");
    a.want = 0;
    size_t got = 0;
    for (int64_t end = bq_now_ms() + KIT_PATIENCE_MS; got < 9;) {
        assert_true(bq_now_ms() < end);
        kit_turn(&a, 10);
        bq_incoming *in = kit_take(&b, 10);
        if (in) {
            got++;
            kit_assert_ok(kit_settle(&b, BQ_OP_ACK, in));
        }
    }
    kit_close(&a);
    kit_close(&b);
}

static void queues_are_served_fairly(const kit_suite *suite)
{
    char url[2048];
    kit_client c;
    size_t seen[3] = {0};
    (void)snprintf(url, sizeof(url), "%s", kit_place(suite, 0));
    kit_open(&c, url, KIT_BOTH, 6, "busy calm quiet");
    for (int i = 0; i < 90; i++)
        kit_assert_ok(kit_publish(&c, "busy", "x"));
    for (int i = 0; i < 10; i++)
        kit_assert_ok(kit_publish(&c, "calm", "x"));
    for (int i = 0; i < 10; i++)
        kit_assert_ok(kit_publish(&c, "quiet", "x"));
    /* Ten rounds would do; a driver that fetches ahead may have begun before the others had any. */
    for (int i = 0; i < 60; i++) {
        bq_incoming *in = kit_expect(&c, "x");
        assert_true(in->queue < 3);
        seen[in->queue]++;
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    assert_int_equal(seen[1], 10);
    assert_int_equal(seen[2], 10);
    kit_close(&c);
}

static void consumers_share(const kit_suite *suite)
{
    enum { COUNT = 200 };
    unsigned char seen[COUNT] = {0};
    kit_op ops[COUNT];
    char bodies[COUNT][16];
    KIT_WORKER(a, suite, 0);
    kit_client b, *both[2] = {&a, &b};
    kit_open(&b, a_url, KIT_BOTH, 0, "q");
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(bodies[i], sizeof(bodies[i]), "%d", i);
        ops[i] = kit_make_publish("q", bq_str_of(bodies[i]));
    }
    kit_do(&a, ops, COUNT);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    for (int done = 0; done < COUNT;) {
        assert_true(bq_now_ms() < end);
        for (int i = 0; i < 2; i++) {
            bq_incoming *in = kit_take(both[i], 10);
            if (!in)
                continue;
            char text[16] = "";
            assert_true(in->body.len < sizeof(text));
            memcpy(text, in->body.ptr, in->body.len);
            int n = (int)strtol(text, NULL, 10);
            assert_true(n >= 0 && n < COUNT);
            assert_int_equal(seen[n]++, 0);
            kit_assert_ok(kit_settle(both[i], BQ_OP_ACK, in));
            done++;
        }
    }
    kit_close(&a);
    kit_close(&b);
}

static void delayed_publish(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    int64_t start = bq_now_ms();
    int64_t later = suite->broker->traits & KIT_EARLY_SECOND ? 2600 : 600; /* not in the same second */
    kit_assert_ok(kit_publish_later(&c, "q", "later", later));
    kit_assert_ok(kit_publish_later(&c, "q", "sooner", 300));
    kit_assert_ok(kit_publish(&c, "q", "now"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "now")));
    bq_incoming *in = kit_expect(&c, "sooner");
    assert_true(bq_now_ms() - start >= kit_at_least(suite, 300));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    in = kit_expect(&c, "later");
    assert_true(bq_now_ms() - start >= kit_at_least(suite, later));
    assert_int_equal(in->lapses, 0);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

/* One that was delayed comes before what was published after it became available. */
static void delayed_keeps_its_place(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    int64_t start = bq_now_ms();
    kit_assert_ok(kit_publish_later(&c, "q", "delayed", 100));
    c.want = 0;
    while (bq_now_ms() < start + 150)
        kit_turn(&c, 10);
    kit_assert_ok(kit_publish(&c, "q", "after"));
    c.want = 16;
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "delayed")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "after")));
    kit_close(&c);
}

const kit_case kit_lease_cases[] = {
    {"lease_lapses", lease_lapses, 0, 0, true},
    {"lapses_are_counted", lapses_are_counted, BQ_CAP_LAPSES, 0, true},
    {"last_chances_are_taken_alone", last_chances_are_taken_alone, BQ_CAP_LAPSES, KIT_LAST_ALONE, true},
    {"stale_settlements", stale_settlements, 0, KIT_SHARED, true},
    {"extending_keeps_a_lease", extending_keeps_a_lease, BQ_CAP_EXTEND, 0, true},
    {"extending_and_settling", extending_and_settling, BQ_CAP_EXTEND, KIT_FIFO, false},
    {"forgotten_comes_back", forgotten_comes_back, 0, KIT_FIFO, true},
    {"taken_and_closed", taken_and_closed, 0, KIT_SHARED, true},
    {"prefetch_is_a_bound", prefetch_is_a_bound, 0, 0, false},
    {"not_taken_is_given_back", not_taken_is_given_back, 0, KIT_SHARED | KIT_GIVES_BACK, false},
    {"a_pause_holds_nothing", a_pause_holds_nothing, 0, KIT_GIVES_BACK, false},
    {"queues_are_served_fairly", queues_are_served_fairly, 0, 0, false},
    {"consumers_share", consumers_share, 0, 0, false},
    {"delayed_publish", delayed_publish, BQ_CAP_PUBLISH_DELAY, 0, false},
    {"delayed_keeps_its_place", delayed_keeps_its_place, BQ_CAP_PUBLISH_DELAY, KIT_KEEPS_PLACE, false},
    {NULL, NULL, 0, 0, false},
};
