/*
 * runtime/ring.h - a bounded queue of pointers for any number of producers and consumers, without locks.
 *
 * Every slot carries a sequence number that says whose turn it is: a producer may fill slot i when it reads i, a
 * consumer may empty it when it reads i + 1. What was pushed is visible to whoever pops it. A push that has
 * returned is seen by a later sequentially consistent look at the ring (bq_ring_empty), which is what the sleeping
 * side of wake.h and pool.c relies on.
 */
#ifndef BQ_RUNTIME_RING_H
#define BQ_RUNTIME_RING_H

#include <babelqueue/types.h>

#include <stdatomic.h>

typedef struct bq_ring_slot {
    atomic_size_t seq;
    void *item;
} bq_ring_slot;

typedef struct bq_ring {
    bq_ring_slot *slots;
    size_t mask;
    _Alignas(64) atomic_size_t tail; /* next place to fill */
    _Alignas(64) atomic_size_t head; /* next place to empty */
} bq_ring;

/* Room for at least `capacity` items. NOMEM otherwise. */
bq_status bq_ring_init(bq_ring *ring, size_t capacity);
void bq_ring_clear(bq_ring *ring);

/* False: full, or a consumer that was stopped in the middle of a pop still occupies the place. So a ring that can hold
 * everything there is may say so too, for as long as that thread does not run. */
bool bq_ring_push(bq_ring *ring, void *item) BQ_MUST_CHECK;
void *bq_ring_pop(bq_ring *ring); /* NULL: empty */
bool bq_ring_empty(bq_ring *ring);
size_t bq_ring_count(bq_ring *ring); /* a guess while others push and pop */

#endif
