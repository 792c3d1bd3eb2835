/* The table of messages in a coprocess's hands, against a model: found by number, kept in order, never lost. */
#include "unit/cmocka_all.h"

#include "inflight.h"

#include <string.h>

enum { MOST = 3000 };

static void in_order(const inflight *table, const bool *there, uint64_t numbers)
{
    size_t count = 0;
    uint64_t before = 0;
    const inflight_job *older = NULL;
    for (const inflight_job *job = table->oldest; job; job = job->newer) {
        assert_true(job->n > before && job->n < numbers && there[job->n]);
        assert_ptr_equal(job->older, older);
        before = job->n;
        older = job;
        count++;
    }
    assert_ptr_equal(table->newest, older);
    assert_int_equal(table->count, count);
}

/* Rounds of random answers, so that chains of neighbours form and break at every place, across growth and the end of
 * the slots. */
static void random_answers(void **state)
{
    (void)state;
    static bool there[40 * MOST];
    inflight table;
    uint64_t next = 1, seed = 42;
    memset(there, 0, sizeof(there));
    assert_true(inflight_init(&table));
    for (int round = 0; round < 30; round++) {
        size_t wanted = (size_t)(round % 7) * 400 + 1;
        while (table.count < wanted) {
            inflight_job *job = inflight_add(&table, next);
            assert_non_null(job);
            assert_int_equal(job->n, next);
            there[next++] = true;
        }
        for (uint64_t n = 1; n < next; n++) {
            inflight_job *job = inflight_find(&table, n);
            assert_true((job != NULL) == there[n]);
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            if (!job || (seed >> 33) % 3 == 0)
                continue;
            inflight_remove(&table, job);
            there[n] = false;
            assert_null(inflight_find(&table, n));
        }
        in_order(&table, there, next);
    }
    assert_null(inflight_find(&table, next));
    assert_null(inflight_find(&table, UINT64_MAX));
    inflight_clear(&table);
    inflight_clear(&table);
}

/* One message that is never answered, and a hundred thousand after it: the table does not grow for it. */
static void one_stays(void **state)
{
    (void)state;
    inflight table;
    assert_true(inflight_init(&table));
    inflight_job *first = inflight_add(&table, 1);
    size_t mask = table.mask;
    for (uint64_t n = 2; n < 100000; n++) {
        inflight_job *job = inflight_add(&table, n);
        assert_ptr_equal(inflight_find(&table, n), job);
        inflight_remove(&table, job);
    }
    assert_ptr_equal(inflight_find(&table, 1), first);
    assert_ptr_equal(table.oldest, first);
    assert_int_equal(table.mask, mask);
    inflight_clear(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_answers), cmocka_unit_test(one_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
