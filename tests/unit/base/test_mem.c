/* Allocation: every call passes through the hook, sizes are checked, and nothing of it depends on the hook's state. */
#include "unit/cmocka_all.h"

#include "base/mem.h"
#include "unit/alloc_fail.h"

#include <string.h>

static void every_function_uses_the_hook(void **state)
{
    (void)state;
    alloc_fail_state counter;
    alloc_fail_begin(&counter, 0, false);
    void *a = bq_malloc(10), *b = bq_calloc(3, 7);
    char *c = bq_strndup(BQ_STR("text"));
    a = bq_realloc(a, 1000);
    b = bq_realloc_array(b, 10, 100);
    assert_non_null(a);
    assert_non_null(b);
    assert_string_equal(c, "text");
    assert_int_equal(atomic_load(&counter.live), 3);
    assert_int_equal(atomic_load(&counter.requests), 5);
    bq_free(a);
    bq_free(b);
    bq_free(c);
    bq_free(NULL);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void sizes_of_zero_give_a_block(void **state)
{
    (void)state;
    alloc_fail_state counter;
    for (int hooked = 0; hooked < 2; hooked++) {
        if (hooked)
            alloc_fail_begin(&counter, 0, false);
        void *blocks[] = {bq_malloc(0), bq_calloc(0, 8), bq_calloc(8, 0), bq_realloc(bq_malloc(8), 0)};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            assert_non_null(blocks[i]);
            bq_free(blocks[i]);
        }
        if (hooked)
            assert_int_equal(alloc_fail_end(&counter), 0);
    }
}

static void calloc_zeroes_under_a_hook(void **state)
{
    (void)state;
    static const char zero[64];
    alloc_fail_state counter;
    alloc_fail_begin(&counter, 0, false);
    /* A block that was dirty before is likely to come back. */
    char *dirty = bq_malloc(sizeof zero);
    memset(dirty, 'x', sizeof zero);
    bq_free(dirty);
    char *clean = bq_calloc(1, sizeof zero);
    assert_memory_equal(clean, zero, sizeof zero);
    bq_free(clean);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void products_that_overflow_are_refused(void **state)
{
    (void)state;
    assert_null(bq_calloc(SIZE_MAX / 2 + 1, 2));
    assert_null(bq_realloc_array(NULL, SIZE_MAX / 4 + 1, 4));
    assert_null(bq_strndup((bq_str){"", SIZE_MAX}));
}

static void a_failed_growth_keeps_the_block(void **state)
{
    (void)state;
    alloc_fail_state counter;
    alloc_fail_begin(&counter, 2, false);
    char *block = bq_strndup(BQ_STR("kept"));
    assert_null(bq_realloc(block, 100));
    assert_string_equal(block, "kept");
    bq_free(block);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void strndup_of_an_absent_view_is_empty(void **state)
{
    (void)state;
    char *copy = bq_strndup(BQ_STR_NULL);
    assert_string_equal(copy, "");
    bq_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_uses_the_hook),    cmocka_unit_test(sizes_of_zero_give_a_block),
        cmocka_unit_test(calloc_zeroes_under_a_hook),      cmocka_unit_test(products_that_overflow_are_refused),
        cmocka_unit_test(a_failed_growth_keeps_the_block), cmocka_unit_test(strndup_of_an_absent_view_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
