/*
 * test_memory.c - the memory driver: the kit, as it is and stripped, and what only it promises.
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "base/mem.h"
#include "unit/cmocka_all.h"

#include "unit/alloc_fail.h"

#include <pthread.h>
#include <stdio.h>

extern const bq_transport_ops bq_memory_ops;

static int places;
static char url[128];

static const char *place(const char *options)
{
    (void)snprintf(url, sizeof(url), "memory:kit-%d%s%s", ++places, *options ? "?" : "", options);
    return url;
}

#define BOTH (BQ_ROLE_PUBLISH | BQ_ROLE_CONSUME)

/* ---- names ----------------------------------------------------------------------------------------------------------- */

static void names_are_apart(void **state)
{
    (void)state;
    kit_client a, b, c;
    kit_open(&a, "memory:one", BOTH, 0, "q");
    kit_open(&b, "memory:two", BOTH, 0, "q");
    kit_open(&c, "memory:one", BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    kit_expect_none(&b, 20);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "x")));
    kit_close(&a);
    kit_close(&b);
    kit_close(&c);
}

static void no_name_is_a_name(void **state)
{
    (void)state;
    kit_client a, b;
    kit_open(&a, "memory:", BOTH, 0, "q");
    kit_open(&b, "memory:", BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "x")));
    kit_close(&a);
    kit_close(&b);
}

static void many_queues(void **state)
{
    (void)state;
    kit_client a;
    char name[16];
    kit_open(&a, "memory:many", BOTH | BQ_ROLE_ADMIN, 0, "q700");
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "q%d", i);
        kit_assert_ok(kit_publish(&a, name, name));
    }
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, kit_expect(&a, "q700")));
    int64_t count;
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "q%d", i);
        kit_assert_ok(a.target.ops->admin->purge(a.state, bq_str_of(name), 0, &count, NULL));
        assert_int_equal(count, i == 700 ? 0 : 1);
    }
    kit_close(&a);
}

static void a_lease_without_end(void **state)
{
    (void)state;
    kit_client a;
    bq_queue_stats stats;
    int64_t count;
    kit_open(&a, "memory:off?retry_after=off", BOTH | BQ_ROLE_ADMIN, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    bq_incoming *in = kit_expect(&a, "x");
    assert_int_equal(in->lease_until_ms, 0);
    kit_assert_ok(kit_settle(&a, BQ_OP_EXTEND, in));
    assert_int_equal(in->lease_until_ms, 0);
    a.target.ops->forget(a.state, in);
    kit_expect_none(&a, 100);
    kit_assert_ok(a.target.ops->admin->stats(a.state, BQ_STR("q"), 0, &stats, NULL));
    assert_int_equal(stats.in_flight, 1);
    kit_assert_ok(a.target.ops->admin->purge(a.state, BQ_STR("q"), 0, &count, NULL));
    assert_int_equal(count, 1);
    kit_close(&a);
}

static void purged_in_hand_is_lost(void **state)
{
    (void)state;
    kit_client a;
    int64_t count;
    kit_open(&a, "memory:purge", BOTH | BQ_ROLE_ADMIN, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    bq_incoming *in = kit_expect(&a, "x");
    kit_assert_ok(a.target.ops->admin->purge(a.state, BQ_STR("q"), 0, &count, NULL));
    assert_int_equal(count, 1);
    assert_true(bq_str_equal(in->body, BQ_STR("x"))); /* its reader keeps it */
    kit_op op = kit_make(BQ_OP_RETRY, in);
    op.op.out.body = BQ_STR("y");
    kit_assert(kit_do_one(&a, &op), BQ_LOST);
    kit_expect_none(&a, 20);
    kit_close(&a);
}

static void a_queue_without_a_name(void **state)
{
    (void)state;
    kit_client a;
    bq_error err;
    bq_str none = BQ_STR("");
    kit_assert_ok(kit_try_open(&a, "memory:x", BOTH, 0, NULL, &err));
    kit_close(&a);
    bq_target target;
    kit_assert_ok(bq_target_parse(&target, "memory:x", &err));
    void *t = bq_calloc(1, target.ops->state_size);
    bq_transport_host host = {.now_ms = bq_now_ms};
    bq_transport_config config = {
        .url = &target.url, .options = target.options, .queues = &none, .queue_count = 1, .prefetch = 1, .host = &host};
    kit_assert(target.ops->open(t, &config, &err), BQ_INVALID);
    target.ops->close(t, 0);
    target.ops->close(t, 0);
    bq_free(t);
    bq_target_clear(&target);
}

/* ---- threads ----------------------------------------------------------------------------------------------------------- */

enum { PER_THREAD = 5000, THREADS = 3 };

static void *produce(void *arg)
{
    kit_client c;
    (void)arg;
    kit_open(&c, "memory:threads", BQ_ROLE_PUBLISH, 0, NULL);
    for (int i = 0; i < PER_THREAD; i += 100) {
        kit_op ops[100];
        for (int n = 0; n < 100; n++)
            ops[n] = kit_make_publish("q", BQ_STR("x"));
        kit_do(&c, ops, 100);
    }
    kit_close(&c);
    return NULL;
}

static void *consume(void *arg)
{
    _Atomic int *left = arg;
    kit_client c;
    kit_open(&c, "memory:threads", BOTH, 64, "q");
    while (atomic_load(left) > 0) {
        bq_incoming *in = kit_take(&c, 50);
        if (in && kit_settle(&c, BQ_OP_ACK, in) == BQ_OK)
            atomic_fetch_sub(left, 1);
    }
    kit_close(&c);
    return NULL;
}

/* Sleepers are woken whichever thread publishes; nothing is lost between falling asleep and waking. */
static void threads_share_a_store(void **state)
{
    (void)state;
    _Atomic int left = PER_THREAD * THREADS;
    pthread_t makers[THREADS], takers[THREADS];
    kit_client keep;
    kit_open(&keep, "memory:threads", BQ_ROLE_ADMIN, 0, NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&takers[i], NULL, consume, &left), 0);
        assert_int_equal(pthread_create(&makers[i], NULL, produce, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(makers[i], NULL), 0);
        assert_int_equal(pthread_join(takers[i], NULL), 0);
    }
    assert_int_equal(left, 0);
    kit_close(&keep);
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static bq_status one_life(void *arg)
{
    (void)arg;
    bq_error err;
    kit_client c;
    bq_status status = kit_try_open(&c, "memory:alloc", BOTH | BQ_ROLE_ADMIN, 0, "q", &err);
    if (status != BQ_OK)
        return status;
    const bq_prop prop = {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("n"), .text = BQ_STR("v")};
    kit_op ops[3];
    for (int i = 0; i < 3; i++) {
        ops[i] = kit_make_publish(i == 2 ? "other" : "q", BQ_STR("body"));
        ops[i].op.out.props = &prop;
        ops[i].op.out.prop_count = 1;
        ops[i].op.out.delay_ms = i == 1 ? 60000 : 0;
    }
    kit_do(&c, ops, 3);
    for (int i = 0; i < 3; i++)
        status = ops[i].status != BQ_OK ? ops[i].status : status;
    bq_incoming *in = kit_take(&c, 0);
    if (!in && status == BQ_OK)
        status = BQ_NOMEM;
    if (in) {
        kit_op op = kit_make(BQ_OP_DEAD_LETTER, in);
        op.op.out = (bq_outgoing){.queue = BQ_STR("q.dlq"), .body = BQ_STR("record"), .props = &prop, .prop_count = 1};
        bq_status moved = kit_do_one(&c, &op);
        status = moved != BQ_OK ? moved : status;
        if (moved != BQ_OK) /* still held */
            kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    int64_t count;
    static const char *const queues[] = {"q", "other", "q.dlq"};
    for (int i = 0; i < 3; i++)
        kit_assert_ok(c.target.ops->admin->purge(c.state, bq_str_of(queues[i]), 0, &count, NULL));
    kit_close(&c);
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(alloc_fail_each("a life of the memory driver", one_life, NULL) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_apart),
        cmocka_unit_test(no_name_is_a_name),
        cmocka_unit_test(many_queues),
        cmocka_unit_test(a_lease_without_end),
        cmocka_unit_test(purged_in_hand_is_lost),
        cmocka_unit_test(a_queue_without_a_name),
        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(each_allocation_may_fail),
    };
    const kit_broker broker = {.ops = &bq_memory_ops,
                               .place = place,
                               .lease_option = "retry_after",
                               .traits = KIT_NULL_BODY | KIT_EMPTY_BODY | KIT_TYPED_PROPS | KIT_FIFO | KIT_KEEPS_PLACE |
                                         KIT_SHARED | KIT_GIVES_BACK | KIT_LOCAL};
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL) + kit_run(&broker, "memory kit") +
           kit_run_stripped(&broker, "memory kit", "memory-bare");
}
