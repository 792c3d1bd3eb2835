/*
 * memory/admin.c - stats, queues, peek and purge of memory:NAME. The caller's functions are called without the
 * store's mutex, so they may use the same store.
 */
#include "transport/memory/memory.h"

#include "base/error.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int64_t count_all(const mem_queue *queue)
{
    return (int64_t)(queue->ready.count + queue->timed_count + queue->leased.count + queue->endless.count);
}

static bq_status mem_stats(void *state, bq_str name, int64_t timeout_ms, bq_queue_stats *out, bq_error *err)
{
    (void)timeout_ms;
    mem_store *store = bq_memory_store(state);
    int64_t now = bq_memory_now(state);
    bq_status status = BQ_OK;
    bq_buf dead;
    bq_buf_init(&dead, 0);
    *out = (bq_queue_stats){0};
    if (bq_dead_letter_queue(bq_binding_find(BQ_STR("memory")), name, &dead) != BQ_OK) {
        status = bq_fail_nomem(err);
        goto out;
    }
    pthread_mutex_lock(&store->mutex);
    mem_queue *queue = bq_mem_queue_find(store, name), *dlq = bq_mem_queue_find(store, bq_buf_str(&dead));
    if (queue) {
        bq_mem_sweep(store, queue, now);
        size_t due = 0;
        for (size_t i = 0; i < queue->timed_count; i++)
            due += queue->timed[i]->due_ms <= now;
        out->ready = (int64_t)(queue->ready.count + due);
        out->delayed = (int64_t)(queue->timed_count - due);
        out->in_flight = (int64_t)(queue->leased.count + queue->endless.count);
    }
    if (dlq)
        out->dead = count_all(dlq);
    pthread_mutex_unlock(&store->mutex);
out:
    bq_buf_clear(&dead);
    return status;
}

static int by_name(const void *a, const void *b)
{
    bq_str x = (*(mem_queue *const *)a)->name, y = (*(mem_queue *const *)b)->name;
    int order = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    return order != 0 ? order : (x.len > y.len) - (x.len < y.len);
}

static bq_status mem_queues(void *state, int64_t timeout_ms, bq_queue_fn fn, void *arg, bq_error *err)
{
    (void)timeout_ms;
    mem_store *store = bq_memory_store(state);
    pthread_mutex_lock(&store->mutex);
    size_t count = 0;
    /* A queue lives as long as its store, which this transport keeps open. */
    mem_queue **queues = bq_malloc(store->queue_count * sizeof(*queues));
    for (size_t i = 0; queues && i < store->bucket_count; i++)
        for (mem_queue *queue = store->buckets[i]; queue; queue = queue->next)
            queues[count++] = queue;
    pthread_mutex_unlock(&store->mutex);
    if (!queues)
        return bq_fail_nomem(err);
    if (count > 0)
        qsort(queues, count, sizeof(*queues), by_name);
    for (size_t i = 0; i < count && fn(queues[i]->name, arg); i++)
        continue;
    bq_free(queues);
    return BQ_OK;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = (*(mem_node *const *)a)->id, y = (*(mem_node *const *)b)->id;
    return (x > y) - (x < y);
}

static size_t collect(mem_queue *queue, uint64_t after, mem_node **nodes)
{
    size_t count = 0;
    for (mem_node *node = queue->ready.head; node; node = node->next)
        if (node->id > after)
            nodes[count++] = node;
    for (size_t i = 0; i < queue->timed_count; i++)
        if (queue->timed[i]->id > after)
            nodes[count++] = queue->timed[i];
    return count;
}

/* What waits, delayed messages too, in the order of its ids: that of publication. */
static bq_status mem_peek(void *state, bq_str name, uint64_t after, size_t max, int64_t timeout_ms, bq_peek_fn fn,
                          void *arg, bq_error *err)
{
    (void)timeout_ms;
    mem_store *store = bq_memory_store(state);
    mem_node **nodes = NULL;
    size_t count = 0;
    pthread_mutex_lock(&store->mutex);
    mem_queue *queue = bq_mem_queue_find(store, name);
    if (queue) {
        bq_mem_sweep(store, queue, bq_memory_now(state));
        nodes = bq_malloc((queue->ready.count + queue->timed_count) * sizeof(*nodes));
        if (!nodes) {
            pthread_mutex_unlock(&store->mutex);
            return bq_fail_nomem(err);
        }
        count = collect(queue, after, nodes);
        if (count > 0)
            qsort(nodes, count, sizeof(*nodes), by_id);
        if (count > max)
            count = max;
        for (size_t i = 0; i < count; i++)
            atomic_fetch_add_explicit(&nodes[i]->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&store->mutex);
    bool more = true;
    for (size_t i = 0; i < count; i++) {
        const mem_node *node = nodes[i];
        bq_incoming in = {.body = node->body,
                          .key = node->key,
                          .props = node->props,
                          .prop_count = node->prop_count,
                          .native_count = -1,
                          .timestamp_ms = node->timestamp_ms,
                          .position = (int64_t)node->id};
        more = more && fn(&in, arg);
        bq_mem_node_unref(nodes[i]);
    }
    bq_free(nodes);
    return BQ_OK;
}

static void drop(mem_node *node)
{
    bq_mem_unlink(node);
    bq_mem_node_unref(node);
}

/* All of it, what is in a consumer's hands too: its settlement will find it LOST. */
static bq_status mem_purge(void *state, bq_str name, int64_t timeout_ms, int64_t *count, bq_error *err)
{
    (void)timeout_ms;
    (void)err;
    mem_store *store = bq_memory_store(state);
    *count = 0;
    pthread_mutex_lock(&store->mutex);
    mem_queue *queue = bq_mem_queue_find(store, name);
    if (queue) {
        *count = count_all(queue);
        while (queue->ready.head)
            drop(queue->ready.head);
        while (queue->timed_count > 0)
            drop(queue->timed[queue->timed_count - 1]);
        while (queue->leased.head)
            drop(queue->leased.head);
        while (queue->endless.head)
            drop(queue->endless.head);
    }
    pthread_mutex_unlock(&store->mutex);
    return BQ_OK;
}

const bq_admin_ops bq_memory_admin = {.stats = mem_stats, .queues = mem_queues, .peek = mem_peek, .purge = mem_purge};
