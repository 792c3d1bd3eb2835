/*
 * runtime/ring.c - the bounded queue between the I/O thread and the handler threads (D. Vyukov's scheme of slots
 * with sequence numbers). See ring.h.
 */
#include "runtime/ring.h"

#include "base/mem.h"

bq_status bq_ring_init(bq_ring *ring, size_t capacity)
{
    size_t size = 2;
    while (size < capacity)
        size *= 2;
    ring->slots = bq_calloc(size, sizeof *ring->slots);
    if (!ring->slots)
        return BQ_NOMEM;
    ring->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        atomic_init(&ring->slots[i].seq, i);
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
    return BQ_OK;
}

void bq_ring_clear(bq_ring *ring)
{
    bq_free(ring->slots);
    ring->slots = NULL;
}

bool bq_ring_push(bq_ring *ring, void *item)
{
    size_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    for (;;) {
        bq_ring_slot *slot = &ring->slots[at & ring->mask];
        size_t seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
        ptrdiff_t turn = (ptrdiff_t)(seq - at);
        if (turn == 0) {
            if (atomic_compare_exchange_weak_explicit(&ring->tail, &at, at + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                slot->item = item;
                /* Sequentially consistent: the pusher next looks whether the popper sleeps. */
                atomic_store(&slot->seq, at + 1);
                return true;
            }
        } else if (turn < 0) {
            return false;
        } else {
            at = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        }
    }
}

void *bq_ring_pop(bq_ring *ring)
{
    size_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        bq_ring_slot *slot = &ring->slots[at & ring->mask];
        size_t seq = atomic_load(&slot->seq);
        ptrdiff_t turn = (ptrdiff_t)(seq - (at + 1));
        if (turn == 0) {
            if (atomic_compare_exchange_weak_explicit(&ring->head, &at, at + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                void *item = slot->item;
                atomic_store_explicit(&slot->seq, at + ring->mask + 1, memory_order_release);
                return item;
            }
        } else if (turn < 0) {
            return NULL;
        } else {
            at = atomic_load_explicit(&ring->head, memory_order_relaxed);
        }
    }
}

bool bq_ring_empty(bq_ring *ring)
{
    size_t at = atomic_load(&ring->head);
    return (ptrdiff_t)(atomic_load(&ring->slots[at & ring->mask].seq) - (at + 1)) < 0;
}

size_t bq_ring_count(bq_ring *ring)
{
    size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    return tail >= head ? tail - head : 0;
}
