/*
 * alloc_fail.h - proof that a scenario survives the failure of each of its allocations. Include after cmocka.h.
 *
 *     static bq_status scenario(void *arg)   // does the work, frees all it made, returns what happened
 *     alloc_fail_each("decode", scenario, NULL);
 *
 * The scenario runs once as it is (what is made once per process is made then), once counted, and then, for each n,
 * with the n-th allocation failing, and with it and every later one failing. Each run must end in BQ_OK or in an
 * error that the scenario returned, with every block freed; at least one run must have ended in an error, so that a
 * scenario that allocates nothing, or hides its failures, does not pass for tested.
 *
 * The allocator is bq_set_allocator's, so only allocations through base/mem.h count; it may be called from any
 * thread. Between alloc_fail_begin and alloc_fail_end a test may use the parts by hand.
 */
#ifndef TESTS_ALLOC_FAIL_H
#define TESTS_ALLOC_FAIL_H

#include <babelqueue/types.h>

#include <stdatomic.h>
#include <stdlib.h>

typedef bq_status (*alloc_fail_scenario)(void *arg);

typedef struct alloc_fail_state {
    atomic_long live;     /* blocks allocated and not freed */
    atomic_long requests; /* allocations and growths asked for */
    atomic_long refused;
    long fail_at;  /* the n-th request fails, from 1; 0: none */
    bool for_good; /* and every later one */
} alloc_fail_state;

static inline void *alloc_fail_realloc(void *ptr, size_t size, void *arg)
{
    alloc_fail_state *state = arg;
    if (size == 0) {
        if (ptr)
            atomic_fetch_sub(&state->live, 1);
        free(ptr);
        return NULL;
    }
    long n = atomic_fetch_add(&state->requests, 1) + 1;
    if (state->fail_at > 0 && (n == state->fail_at || (state->for_good && n > state->fail_at))) {
        atomic_fetch_add(&state->refused, 1);
        return NULL;
    }
    void *result = realloc(ptr, size);
    if (!ptr && result)
        atomic_fetch_add(&state->live, 1);
    return result;
}

/* fail_at 0 only counts. */
static inline void alloc_fail_begin(alloc_fail_state *state, long fail_at, bool for_good)
{
    atomic_init(&state->live, 0);
    atomic_init(&state->requests, 0);
    atomic_init(&state->refused, 0);
    state->fail_at = fail_at;
    state->for_good = for_good;
    bq_set_allocator(alloc_fail_realloc, state);
}

/* Gives the default allocator back; returns the blocks that are still allocated. */
static inline long alloc_fail_end(alloc_fail_state *state)
{
    bq_set_allocator(NULL, NULL);
    return atomic_load(&state->live);
}

/* Returns how many allocations the scenario makes when none fails. */
static inline long alloc_fail_each(const char *name, alloc_fail_scenario scenario, void *arg)
{
    alloc_fail_state state;
    bq_status status = scenario(arg);
    if (status != BQ_OK)
        fail_msg("%s: %s although no allocation failed", name, bq_status_name(status));

    alloc_fail_begin(&state, 0, false);
    status = scenario(arg);
    long live = alloc_fail_end(&state), total = atomic_load(&state.requests);
    if (status != BQ_OK || live != 0)
        fail_msg("%s: %s, %ld blocks leaked, although no allocation failed", name, bq_status_name(status), live);

    long errors = 0;
    for (int for_good = 0; for_good < 2; for_good++) {
        for (long n = 1;; n++) {
            alloc_fail_begin(&state, n, for_good != 0);
            status = scenario(arg);
            live = alloc_fail_end(&state);
            if (live != 0)
                fail_msg("%s: %ld blocks leaked after allocation %ld of %ld failed%s (%s)", name, live, n, total,
                         for_good ? ", and all later ones" : "", bq_status_name(status));
            if (atomic_load(&state.refused) == 0) {
                if (status != BQ_OK)
                    fail_msg("%s: %s although allocation %ld was not reached", name, bq_status_name(status), n);
                break;
            }
            errors += status != BQ_OK;
        }
    }
    if (errors == 0)
        fail_msg("%s: no failing allocation (of %ld) was ever reported", name, total);
    return total;
}

#endif
