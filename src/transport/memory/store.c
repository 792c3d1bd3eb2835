/*
 * memory/store.c - see store.h for the layout and the thread rule.
 */
#include "transport/memory/store.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t stores_mutex = PTHREAD_MUTEX_INITIALIZER;
static mem_store *stores;

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static size_t round_up(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

/* Copies `s` to *at and moves *at behind it. A present view stays present when it is empty. */
static bq_str copy_to(char **at, bq_str s)
{
    if (!s.ptr)
        return s;
    bq_str copy = {*at, s.len};
    if (s.len > 0)
        memcpy(*at, s.ptr, s.len);
    *at += s.len;
    return copy;
}

mem_node *bq_mem_node_new(const bq_outgoing *out)
{
    size_t props = round_up(sizeof(mem_node)), size;
    if (__builtin_mul_overflow(out->prop_count, sizeof(bq_prop), &size))
        return NULL;
    /* One byte more, so that an empty view at the end points into the block. */
    if (__builtin_add_overflow(size, props + 1, &size) || __builtin_add_overflow(size, out->body.len, &size) ||
        __builtin_add_overflow(size, out->key.len, &size))
        return NULL;
    for (size_t i = 0; i < out->prop_count; i++)
        if (__builtin_add_overflow(size, out->props[i].name.len, &size) ||
            __builtin_add_overflow(size, out->props[i].text.len, &size))
            return NULL;

    mem_node *node = bq_malloc(size);
    if (!node)
        return NULL;
    *node = (mem_node){.place = MEM_NOWHERE, .prop_count = out->prop_count, .timestamp_ms = out->timestamp_ms};
    atomic_init(&node->refs, 1);
    if (node->timestamp_ms == 0)
        node->timestamp_ms = bq_epoch_ms();
    node->props = (bq_prop *)(void *)((char *)node + props);
    char *at = (char *)(node->props + out->prop_count);
    node->body = copy_to(&at, out->body);
    node->key = copy_to(&at, out->key);
    for (size_t i = 0; i < out->prop_count; i++) {
        node->props[i] = out->props[i];
        node->props[i].name = copy_to(&at, out->props[i].name);
        node->props[i].text = copy_to(&at, out->props[i].text);
    }
    return node;
}

void bq_mem_node_unref(mem_node *node)
{
    if (node && atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) == 1)
        bq_free(node);
}

/* ---- lists and the heap ------------------------------------------------------------------------------------------ */

static void list_insert_after(mem_list *list, mem_node *before, mem_node *node)
{
    node->prev = before;
    node->next = before ? before->next : list->head;
    if (node->next)
        node->next->prev = node;
    else
        list->tail = node;
    if (before)
        before->next = node;
    else
        list->head = node;
    list->count++;
}

static void list_remove(mem_list *list, mem_node *node)
{
    if (node->prev)
        node->prev->next = node->next;
    else
        list->head = node->next;
    if (node->next)
        node->next->prev = node->prev;
    else
        list->tail = node->prev;
    node->prev = node->next = NULL;
    list->count--;
}

static bool earlier(const mem_node *a, const mem_node *b)
{
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->id < b->id;
}

static void heap_set(mem_queue *queue, size_t i, mem_node *node)
{
    queue->timed[i] = node;
    node->heap_index = i;
}

static void heap_up(mem_queue *queue, size_t i, mem_node *node)
{
    while (i > 0 && earlier(node, queue->timed[(i - 1) / 2])) {
        heap_set(queue, i, queue->timed[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_set(queue, i, node);
}

static void heap_down(mem_queue *queue, size_t i, mem_node *node)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= queue->timed_count)
            break;
        if (child + 1 < queue->timed_count && earlier(queue->timed[child + 1], queue->timed[child]))
            child++;
        if (!earlier(queue->timed[child], node))
            break;
        heap_set(queue, i, queue->timed[child]);
        i = child;
    }
    heap_set(queue, i, node);
}

static void heap_remove(mem_queue *queue, mem_node *node)
{
    size_t i = node->heap_index;
    mem_node *last = queue->timed[--queue->timed_count];
    if (last == node)
        return;
    if (i > 0 && earlier(last, queue->timed[(i - 1) / 2]))
        heap_up(queue, i, last);
    else
        heap_down(queue, i, last);
}

/* ---- where a message stands -------------------------------------------------------------------------------------- */

bool bq_mem_queue_room(mem_queue *queue)
{
    /* Every leased message may come back at a time of its own. */
    size_t need = queue->timed_count + queue->leased.count + queue->endless.count + 1;
    if (need <= queue->timed_cap)
        return true;
    size_t cap = queue->timed_cap < 32 ? 64 : queue->timed_cap * 2;
    if (cap < need)
        cap = need;
    mem_node **timed = bq_realloc_array(queue->timed, cap, sizeof(*timed));
    if (!timed)
        return false;
    queue->timed = timed;
    queue->timed_cap = cap;
    return true;
}

static void place(mem_store *store, mem_queue *queue, mem_node *node, mem_place where)
{
    if (node->id == 0)
        node->id = ++store->last_id;
    node->queue = queue;
    node->place = where;
    node->lease = 0;
}

void bq_mem_put_ready(mem_store *store, mem_queue *queue, mem_node *node, int64_t now_ms)
{
    place(store, queue, node, MEM_READY);
    /* Two threads may have read the clock in the other order than they come here. */
    node->due_ms = queue->ready.tail && queue->ready.tail->due_ms > now_ms ? queue->ready.tail->due_ms : now_ms;
    list_insert_after(&queue->ready, queue->ready.tail, node);
}

void bq_mem_put_timed(mem_store *store, mem_queue *queue, mem_node *node, int64_t due_ms)
{
    place(store, queue, node, MEM_TIMED);
    node->due_ms = due_ms;
    heap_up(queue, queue->timed_count++, node);
}

void bq_mem_put_leased(mem_queue *queue, mem_node *node, int64_t until_ms)
{
    node->place = MEM_LEASED;
    node->due_ms = until_ms;
    mem_list *list = until_ms == BQ_NEVER ? &queue->endless : &queue->leased;
    /* Deadlines grow as a rule, so the place is at or near the end. */
    mem_node *before = list->tail;
    while (before && before->due_ms > until_ms)
        before = before->prev;
    list_insert_after(list, before, node);
}

void bq_mem_unlink(mem_node *node)
{
    mem_queue *queue = node->queue;
    switch (node->place) {
    case MEM_READY: list_remove(&queue->ready, node); break;
    case MEM_TIMED: heap_remove(queue, node); break;
    case MEM_LEASED: list_remove(node->due_ms == BQ_NEVER ? &queue->endless : &queue->leased, node); break;
    case MEM_NOWHERE: break;
    }
    node->place = MEM_NOWHERE;
    node->lease = 0;
}

mem_node *bq_mem_first(const mem_queue *queue, int64_t now_ms)
{
    mem_node *ready = queue->ready.head;
    if (queue->timed_count == 0 || queue->timed[0]->due_ms > now_ms)
        return ready;
    return ready && earlier(ready, queue->timed[0]) ? ready : queue->timed[0];
}

void bq_mem_sweep(mem_store *store, mem_queue *queue, int64_t now_ms)
{
    while (queue->leased.head && queue->leased.head->due_ms <= now_ms) {
        mem_node *node = queue->leased.head;
        int64_t until = node->due_ms;
        bq_mem_unlink(node);
        if (node->lapses < UINT32_MAX)
            node->lapses++;
        bq_mem_put_timed(store, queue, node, until);
    }
}

int64_t bq_mem_next_due(const mem_queue *queue)
{
    int64_t due = queue->ready.head ? queue->ready.head->due_ms : BQ_NEVER;
    if (queue->timed_count > 0 && queue->timed[0]->due_ms < due)
        due = queue->timed[0]->due_ms;
    if (queue->leased.head && queue->leased.head->due_ms < due)
        due = queue->leased.head->due_ms;
    return due;
}

void bq_mem_wake(mem_store *store, const mem_queue *queue)
{
    static const uint64_t one = 1;
    for (mem_waiter *w = store->waiters; w; w = w->next) {
        if (!w->asleep)
            continue;
        for (size_t i = 0; i < w->queue_count; i++) {
            if (w->queues[i] != queue)
                continue;
            w->asleep = false;
            /* EAGAIN: it has more wake-ups waiting than it can count, so it wakes. */
            while (write(w->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
                continue;
            break;
        }
    }
}

/* ---- queues by name ---------------------------------------------------------------------------------------------- */

static size_t hash_of(bq_str name)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (unsigned char)name.ptr[i]) * 1099511628211u;
    return (size_t)(h ^ (h >> 32));
}

mem_queue *bq_mem_queue_find(mem_store *store, bq_str name)
{
    if (store->bucket_count == 0)
        return NULL;
    mem_queue *queue = store->buckets[hash_of(name) & (store->bucket_count - 1)];
    while (queue && !bq_str_equal(queue->name, name))
        queue = queue->next;
    return queue;
}

static bool grow_buckets(mem_store *store)
{
    size_t count = store->bucket_count ? store->bucket_count * 2 : 16;
    mem_queue **buckets = bq_calloc(count, sizeof(*buckets));
    if (!buckets)
        return false;
    for (size_t i = 0; i < store->bucket_count; i++) {
        mem_queue *next;
        for (mem_queue *queue = store->buckets[i]; queue; queue = next) {
            next = queue->next;
            mem_queue **bucket = &buckets[hash_of(queue->name) & (count - 1)];
            queue->next = *bucket;
            *bucket = queue;
        }
    }
    bq_free(store->buckets);
    store->buckets = buckets;
    store->bucket_count = count;
    return true;
}

mem_queue *bq_mem_queue_get(mem_store *store, bq_str name)
{
    mem_queue *queue = bq_mem_queue_find(store, name);
    if (queue)
        return queue;
    if (store->queue_count == store->bucket_count && !grow_buckets(store))
        return NULL;
    queue = bq_calloc(1, sizeof(*queue) + name.len + 1);
    if (!queue)
        return NULL;
    char *text = (char *)(queue + 1);
    if (name.len > 0)
        memcpy(text, name.ptr, name.len);
    queue->name = (bq_str){text, name.len};
    mem_queue **bucket = &store->buckets[hash_of(name) & (store->bucket_count - 1)];
    queue->next = *bucket;
    *bucket = queue;
    store->queue_count++;
    return queue;
}

/* ---- stores by name ---------------------------------------------------------------------------------------------- */

static bool store_empty(const mem_store *store)
{
    for (size_t i = 0; i < store->bucket_count; i++)
        for (const mem_queue *queue = store->buckets[i]; queue; queue = queue->next)
            if (queue->ready.count + queue->timed_count + queue->leased.count + queue->endless.count > 0)
                return false;
    return true;
}

static void store_free(mem_store *store)
{
    for (size_t i = 0; i < store->bucket_count; i++) {
        mem_queue *next;
        for (mem_queue *queue = store->buckets[i]; queue; queue = next) {
            next = queue->next;
            bq_free(queue->timed);
            bq_free(queue);
        }
    }
    bq_free(store->buckets);
    pthread_mutex_destroy(&store->mutex);
    bq_free(store->name);
    bq_free(store);
}

mem_store *bq_mem_store_open(bq_str name)
{
    pthread_mutex_lock(&stores_mutex);
    mem_store *store = stores;
    while (store && !bq_str_equal(bq_str_of(store->name), name))
        store = store->next;
    if (!store && (store = bq_calloc(1, sizeof(*store)))) {
        store->name = bq_strndup(name);
        if (!store->name || pthread_mutex_init(&store->mutex, NULL) != 0) {
            bq_free(store->name);
            bq_free(store);
            store = NULL;
        } else {
            store->next = stores;
            stores = store;
        }
    }
    if (store)
        store->opens++;
    pthread_mutex_unlock(&stores_mutex);
    return store;
}

void bq_mem_store_close(mem_store *store)
{
    pthread_mutex_lock(&stores_mutex);
    if (--store->opens == 0 && store_empty(store)) {
        mem_store **at = &stores;
        while (*at != store)
            at = &(*at)->next;
        *at = store->next;
        store_free(store);
    }
    pthread_mutex_unlock(&stores_mutex);
}
