/* The bounded queue between the I/O thread and the handlers: order, limits, and many producers and consumers. */
#include "bq_test.h"

#include "runtime/ring.h"

#include <pthread.h>
#include <sched.h>

static void first_in_first_out(void **state)
{
    (void)state;
    bq_ring ring;
    int items[5];
    assert_int_equal(bq_ring_init(&ring, 5), BQ_OK);
    assert_true(bq_ring_empty(&ring));
    assert_null(bq_ring_pop(&ring));
    /* Around the end of the array several times. */
    for (int turn = 0; turn < 7; turn++) {
        for (int i = 0; i < 5; i++)
            assert_true(bq_ring_push(&ring, &items[i]));
        assert_int_equal(bq_ring_count(&ring), 5);
        assert_false(bq_ring_empty(&ring));
        for (int i = 0; i < 5; i++)
            assert_ptr_equal(bq_ring_pop(&ring), &items[i]);
        assert_null(bq_ring_pop(&ring));
    }
    bq_ring_clear(&ring);
}

static void full_is_full(void **state)
{
    (void)state;
    bq_ring ring;
    int item;
    assert_int_equal(bq_ring_init(&ring, 3), BQ_OK); /* rounded up to four */
    for (int i = 0; i < 4; i++)
        assert_true(bq_ring_push(&ring, &item));
    assert_false(bq_ring_push(&ring, &item));
    assert_non_null(bq_ring_pop(&ring));
    assert_true(bq_ring_push(&ring, &item));
    bq_ring_clear(&ring);
}

enum { THREADS = 3, EACH = 20000 };

static bq_ring shared;
static unsigned char seen[THREADS][EACH];
static unsigned char marks[THREADS * EACH];
static atomic_int popped;

static void *produce(void *arg)
{
    size_t first = (size_t)(uintptr_t)arg * EACH;
    for (size_t i = 0; i < EACH; i++)
        while (!bq_ring_push(&shared, &marks[first + i]))
            (void)sched_yield();
    return NULL;
}

static void *consume(void *arg)
{
    unsigned char *mine = arg;
    size_t last[THREADS] = {0};
    while (atomic_load(&popped) < THREADS * EACH) {
        unsigned char *mark = bq_ring_pop(&shared);
        if (!mark) {
            (void)sched_yield();
            continue;
        }
        size_t number = (size_t)(mark - marks), producer = number / EACH, at = number % EACH;
        /* One producer's items come to one consumer in their order. */
        if (at + 1 <= last[producer])
            mine[0] = 255;
        last[producer] = at + 1;
        ++*mark;
        atomic_fetch_add(&popped, 1);
    }
    return NULL;
}

static void many_at_once(void **state)
{
    (void)state;
    pthread_t threads[2 * THREADS];
    assert_int_equal(bq_ring_init(&shared, 64), BQ_OK);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[2 * i], NULL, produce, (void *)(uintptr_t)i);
        pthread_create(&threads[2 * i + 1], NULL, consume, seen[i]);
    }
    for (int i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS * EACH; i++)
        if (marks[i] != 1)
            fail_msg("item %zu came %d times", i, marks[i]);
    for (int i = 0; i < THREADS; i++)
        assert_int_not_equal(seen[i][0], 255);
    bq_ring_clear(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out),
        cmocka_unit_test(full_is_full),
        cmocka_unit_test(many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
