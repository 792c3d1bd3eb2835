/* The byte queue against a model, its moves and its memory. */
#include "unit/cmocka_all.h"

#include "net/fifo.h"
#include "unit/alloc_fail.h"

#include <stdlib.h>
#include <string.h>

static void behaves_like_its_model(void **state)
{
    (void)state;
    bq_fifo fifo = {0};
    size_t put = 0, taken = 0;
    srand(11);
    for (int i = 0; i < 50000; i++) {
        char bytes[3000];
        size_t n = (size_t)rand() % (i % 100 == 0 ? sizeof bytes : 60);
        if (rand() % 2) {
            assert_true(bq_fifo_reserve(&fifo, n));
            for (size_t j = 0; j < n; j++)
                bytes[j] = (char)((put + j) * 7);
            bq_fifo_put(&fifo, bytes, n);
            put += n;
        } else {
            bq_fifo_consume(&fifo, n);
            taken += n < put - taken ? n : put - taken;
            if (rand() % 8 == 0)
                bq_fifo_trim(&fifo);
        }
        bq_str content = bq_fifo_content(&fifo);
        assert_int_equal(content.len, put - taken);
        for (size_t j = 0; j < content.len; j += 97)
            assert_int_equal(content.ptr[j], (char)((taken + j) * 7));
    }
    bq_fifo_clear(&fifo);
    assert_null(bq_fifo_content(&fifo).ptr);
}

static void tail_and_produce(void **state)
{
    (void)state;
    bq_fifo fifo = {0};
    size_t room;
    assert_null(bq_fifo_tail(&fifo, &room));
    assert_int_equal(room, 0);
    assert_true(bq_fifo_reserve(&fifo, 10));
    char *tail = bq_fifo_tail(&fifo, &room);
    assert_true(room >= 10);
    memcpy(tail, "0123456789", 10);
    bq_fifo_produce(&fifo, 10);
    bq_fifo_consume(&fifo, 3);
    assert_int_equal(bq_fifo_content(&fifo).len, 7);
    assert_memory_equal(bq_fifo_content(&fifo).ptr, "3456789", 7);
    bq_fifo_clear(&fifo);
}

static void reserved_room_survives_consuming(void **state)
{
    (void)state;
    static char big[1024 * 1024];
    bq_fifo fifo = {0};
    assert_true(bq_fifo_reserve(&fifo, 10));
    bq_fifo_put(&fifo, "0123456789", 10);
    assert_true(bq_fifo_reserve(&fifo, sizeof big));
    bq_fifo_consume(&fifo, 10);
    bq_fifo_put(&fifo, big, sizeof big);
    assert_int_equal(bq_fifo_content(&fifo).len, sizeof big);
    bq_fifo_trim(&fifo); /* not empty: nothing happens */
    assert_int_equal(bq_fifo_content(&fifo).len, sizeof big);
    bq_fifo_consume(&fifo, sizeof big);
    bq_fifo_trim(&fifo);
    assert_int_equal(fifo.cap, 0);
    bq_fifo_clear(&fifo);
}

static void a_steady_flow_allocates_once(void **state)
{
    (void)state;
    static const char chunk[1000];
    bq_fifo fifo = {0};
    alloc_fail_state counter;
    alloc_fail_begin(&counter, 0, false);
    for (int i = 0; i < 10000; i++) {
        assert_true(bq_fifo_reserve(&fifo, sizeof chunk));
        bq_fifo_put(&fifo, chunk, sizeof chunk);
        if (i > 0)
            bq_fifo_consume(&fifo, sizeof chunk);
    }
    assert_true(atomic_load(&counter.requests) <= 2);
    bq_fifo_clear(&fifo);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void a_refused_block_changes_nothing(void **state)
{
    (void)state;
    bq_fifo fifo = {0};
    alloc_fail_state counter;
    alloc_fail_begin(&counter, 2, true);
    assert_true(bq_fifo_reserve(&fifo, 4));
    bq_fifo_put(&fifo, "kept", 4);
    assert_false(bq_fifo_reserve(&fifo, 100000));
    assert_false(bq_fifo_reserve(&fifo, SIZE_MAX));
    assert_false(bq_fifo_reserve(&fifo, PTRDIFF_MAX));
    assert_memory_equal(bq_fifo_content(&fifo).ptr, "kept", 4);
    bq_fifo_clear(&fifo);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaves_like_its_model),           cmocka_unit_test(tail_and_produce),
        cmocka_unit_test(reserved_room_survives_consuming), cmocka_unit_test(a_steady_flow_allocates_once),
        cmocka_unit_test(a_refused_block_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
