/*
 * memory/memory.c - memory:NAME, a broker inside the process (contract 7.11): the queues of store.c behind the
 * transport table. Everything a driver may do natively is done here, so it is also the reference of the transport kit.
 *
 * Operations are carried out as they are submitted and completed at the next reap; deliveries are handed over by
 * `take` straight from the queues, without a copy of the body. A consumer that finds nothing sleeps on an eventfd
 * (a pipe elsewhere), which is written to once, and only while it sleeps.
 *
 * Threads: a transport belongs to one thread as every driver does; the store's mutex is held while its queues are
 * touched. `forget` of a kept delivery after `close` touches only that delivery and its message's reference count.
 *
 * A forked child has a copy of the queues that nobody else sees: open transports after forking.
 */
#include "transport/memory/memory.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "transport/held.h"
#include "transport/memory/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/eventfd.h>
#endif

/* Operations accepted and not reaped, at most; the rest waits with the caller. Publishes leave some of it alone. */
#define OPS_MAX 8192
#define SETTLE_ROOM 2048
/* A message that there is no memory for is not tried again before. */
#define NOMEM_PAUSE_MS 10
/* Deliveries kept for reuse. */
#define SPARE_MAX 256

typedef struct mem_options {
    int64_t retry_after_ms; /* -1: off */
} mem_options;

typedef struct mem_delivery {
    bq_held held; /* first */
    mem_node *node;
    uint64_t lease;
} mem_delivery;

typedef struct mem_done {
    bq_op *op;
    bq_status status;
} mem_done;

typedef struct mem_transport {
    const bq_transport_config *config;
    const bq_transport_host *host;
    mem_store *store;
    mem_waiter waiter; /* its queues are those of config->queues */
    int wake_fds[2];   /* read end, write end; the same eventfd on Linux */
    bool open, announced, registered;
    bq_held_list held, spare;
    mem_queue *last_queue; /* most publishes go where the one before went */
    size_t next_queue;     /* whose turn it is */
    int64_t take_at;       /* not before: memory had run out */
    mem_done done[OPS_MAX];
    size_t done_head, done_count;
} mem_transport;

static int64_t now_of(const mem_transport *t)
{
    return t->host->now_ms();
}

/* ---- deliveries -------------------------------------------------------------------------------------------------- */

static mem_delivery *delivery_of(const bq_incoming *in)
{
    return (mem_delivery *)bq_held_of(in);
}

static void delivery_free(mem_delivery *d)
{
    bq_mem_node_unref(d->node);
    bq_free(d);
}

/* Out of the transport's hands: freed, or left to the runtime that asked to keep it. */
static void delivery_let_go(mem_transport *t, mem_delivery *d)
{
    if (!bq_held_let_go(&t->held, &d->held))
        return;
    if (t->spare.count >= SPARE_MAX) {
        delivery_free(d);
        return;
    }
    bq_mem_node_unref(d->node);
    d->node = NULL;
    bq_held_add_front(&t->spare, &d->held);
}

static mem_delivery *delivery_new(mem_transport *t)
{
    mem_delivery *d = (mem_delivery *)bq_held_pop(&t->spare);
    if (!d && !(d = bq_malloc(sizeof(*d))))
        return NULL;
    *d = (mem_delivery){.node = NULL};
    bq_held_add(&t->held, &d->held);
    return d;
}

static void delivery_fill(const mem_transport *t, mem_delivery *d, size_t queue, mem_node *node, int64_t until_ms)
{
    (void)t;
    d->node = node;
    d->lease = node->lease;
    d->held.in = (bq_incoming){.queue = queue,
                               .body = node->body,
                               .key = node->key,
                               .props = node->props,
                               .prop_count = node->prop_count,
                               .native_count = -1,
                               .lapses = node->lapses,
                               .lease_until_ms = until_ms == BQ_NEVER ? 0 : until_ms,
                               .timestamp_ms = node->timestamp_ms,
                               .generation = 1,
                               .position = (int64_t)node->id,
                               .driver = d};
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static bq_status open_wake(mem_transport *t, bq_error *err)
{
#if defined(__linux__)
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return bq_fail_errno(err, BQ_IO, errno, "cannot make an eventfd");
    t->wake_fds[0] = t->wake_fds[1] = fd;
#else
    if (pipe(t->wake_fds) != 0) {
        t->wake_fds[0] = t->wake_fds[1] = -1;
        return bq_fail_errno(err, BQ_IO, errno, "cannot make a pipe");
    }
    for (int i = 0; i < 2; i++) {
        (void)fcntl(t->wake_fds[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(t->wake_fds[i], F_SETFL, O_NONBLOCK);
    }
#endif
    t->waiter.wake_fd = t->wake_fds[1];
    return BQ_OK;
}

static bq_status subscribe(mem_transport *t, bq_error *err)
{
    const bq_transport_config *config = t->config;
    if (config->queue_count == 0)
        return BQ_OK;
    t->waiter.queues = bq_calloc(config->queue_count, sizeof(*t->waiter.queues));
    if (!t->waiter.queues)
        return bq_fail_nomem(err);
    pthread_mutex_lock(&t->store->mutex);
    for (size_t i = 0; i < config->queue_count; i++) {
        t->waiter.queues[i] = bq_mem_queue_get(t->store, config->queues[i]);
        if (!t->waiter.queues[i]) {
            pthread_mutex_unlock(&t->store->mutex);
            return bq_fail_nomem(err);
        }
    }
    t->waiter.queue_count = config->queue_count;
    t->waiter.next = t->store->waiters;
    if (t->waiter.next)
        t->waiter.next->prev = &t->waiter;
    t->store->waiters = &t->waiter;
    t->registered = true;
    pthread_mutex_unlock(&t->store->mutex);
    return BQ_OK;
}

static bq_status mem_open(void *state, const bq_transport_config *config, bq_error *err)
{
    mem_transport *t = state;
    t->config = config;
    t->host = config->host;
    t->open = true;
    t->wake_fds[0] = t->wake_fds[1] = -1;
    for (size_t i = 0; i < config->queue_count; i++)
        if (config->queues[i].len == 0)
            return bq_fail(err, BQ_INVALID, "a queue needs a name");
    t->store = bq_mem_store_open(bq_str_of(config->url->path));
    if (!t->store)
        return bq_fail_nomem(err);
    bq_status status = open_wake(t, err);
    return status == BQ_OK ? subscribe(t, err) : status;
}

static void mem_close(void *state, int64_t timeout_ms)
{
    mem_transport *t = state;
    (void)timeout_ms; /* nothing here waits */
    if (!t->open)
        return;
    t->open = false;
    if (t->registered) {
        pthread_mutex_lock(&t->store->mutex);
        if (t->waiter.prev)
            t->waiter.prev->next = t->waiter.next;
        else
            t->store->waiters = t->waiter.next;
        if (t->waiter.next)
            t->waiter.next->prev = t->waiter.prev;
        pthread_mutex_unlock(&t->store->mutex);
    }
    while (t->held.head)
        delivery_let_go(t, (mem_delivery *)t->held.head);
    for (bq_held *h; (h = bq_held_pop(&t->spare)) != NULL;)
        delivery_free((mem_delivery *)h);
    bq_free(t->waiter.queues);
    for (int i = 0; i < 2; i++)
        if (t->wake_fds[i] >= 0 && (i == 0 || t->wake_fds[1] != t->wake_fds[0]))
            close(t->wake_fds[i]);
    if (t->store)
        bq_mem_store_close(t->store);
    t->store = NULL;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static mem_queue *queue_named(mem_transport *t, bq_str name)
{
    if (!t->last_queue || !bq_str_equal(t->last_queue->name, name)) {
        mem_queue *queue = bq_mem_queue_get(t->store, name);
        if (!queue)
            return NULL;
        t->last_queue = queue;
    }
    return t->last_queue;
}

static bool ours(const mem_delivery *d)
{
    return d && !d->held.detached && !d->held.settled && d->node->lease == d->lease && d->lease != 0;
}

/* Puts a message where its delay says, and wakes who waits for it. */
static void put(mem_transport *t, mem_queue *queue, mem_node *node, int64_t delay_ms)
{
    int64_t now = now_of(t);
    if (delay_ms > 0) {
        bq_mem_put_timed(t->store, queue, node, bq_deadline(now, delay_ms));
        if (queue->timed[0] != node)
            return; /* whoever sleeps already wakes earlier */
    } else {
        bq_mem_put_ready(t->store, queue, node, now);
    }
    bq_mem_wake(t->store, queue);
}

static bq_status publish(mem_transport *t, mem_queue *queue, const bq_outgoing *out, mem_node *replaced)
{
    if (!queue || (out->delay_ms > 0 && !bq_mem_queue_room(queue)))
        return BQ_NOMEM;
    mem_node *node = bq_mem_node_new(out);
    if (!node)
        return BQ_NOMEM;
    if (replaced) {
        bq_mem_unlink(replaced);
        bq_mem_node_unref(replaced);
    }
    put(t, queue, node, out->delay_ms);
    return BQ_OK;
}

static bq_status extend(mem_transport *t, mem_delivery *d)
{
    const mem_options *options = t->config->options;
    int64_t until = bq_deadline(now_of(t), options->retry_after_ms);
    mem_node *node = d->node;
    bq_mem_unlink(node);
    bq_mem_put_leased(node->queue, node, until);
    node->lease = d->lease;
    d->held.in.lease_until_ms = until == BQ_NEVER ? 0 : until;
    return BQ_OK;
}

static bq_status settle(mem_transport *t, bq_op *op, mem_delivery *d)
{
    mem_node *node = d->node;
    switch (op->kind) {
    case BQ_OP_ACK:
        bq_mem_unlink(node);
        bq_mem_node_unref(node);
        return BQ_OK;
    case BQ_OP_RELEASE:
        bq_mem_unlink(node);
        put(t, node->queue, node, op->out.delay_ms);
        return BQ_OK;
    case BQ_OP_RETRY: return publish(t, node->queue, &op->out, node);
    case BQ_OP_DEAD_LETTER:
        if (op->out.queue.len == 0)
            return BQ_INVALID;
        return publish(t, queue_named(t, op->out.queue), &op->out, node);
    default: return BQ_UNSUPPORTED;
    }
}

/* Carries one operation out, with the mutex held. */
static bq_status carry_out(mem_transport *t, bq_op *op)
{
    if (op->deadline_ms <= now_of(t))
        return BQ_TIMEOUT;
    if (op->kind == BQ_OP_PUBLISH) {
        if (op->out.queue.len == 0)
            return BQ_INVALID;
        return publish(t, queue_named(t, op->out.queue), &op->out, NULL);
    }
    if (op->kind == BQ_OP_REJECT || op->kind == BQ_OP_NATIVE_RETRY)
        return BQ_UNSUPPORTED;
    mem_delivery *d = delivery_of(op->in);
    if (op->kind == BQ_OP_LEAVE && d && !d->held.settled) {
        d->held.settled = true;
        return BQ_OK;
    }
    if (!ours(d)) {
        if (d && op->kind != BQ_OP_EXTEND)
            d->held.settled = true;
        if (d)
            d->held.in.lease_lost = true;
        return BQ_LOST;
    }
    if (op->kind == BQ_OP_EXTEND)
        return extend(t, d);
    bq_status status = settle(t, op, d);
    if (status == BQ_OK)
        d->held.settled = true;
    return status;
}

static size_t mem_submit(void *state, bq_op *const *ops, size_t count)
{
    mem_transport *t = state;
    size_t i = 0;
    pthread_mutex_lock(&t->store->mutex);
    for (; i < count; i++) {
        if (t->done_count >= (ops[i]->kind == BQ_OP_PUBLISH ? OPS_MAX - SETTLE_ROOM : OPS_MAX))
            break;
        mem_delivery *d = delivery_of(ops[i]->in);
        if (d)
            d->held.ops++;
        t->done[(t->done_head + t->done_count++) % OPS_MAX] = (mem_done){ops[i], carry_out(t, ops[i])};
    }
    pthread_mutex_unlock(&t->store->mutex);
    return i;
}

static void explain(bq_completion *completion)
{
    bq_error *err = &completion->error;
    switch (completion->status) {
    case BQ_NOMEM: (void)bq_fail_nomem(err); break;
    case BQ_INVALID: (void)bq_fail(err, BQ_INVALID, "a queue needs a name"); break;
    case BQ_TIMEOUT: (void)bq_fail(err, BQ_TIMEOUT, "the deadline had passed, nothing was done"); break;
    case BQ_LOST: (void)bq_fail(err, BQ_LOST, "the lease ran out and the message was given back to its queue"); break;
    default: (void)bq_fail(err, completion->status, "memory: does not do that natively"); break;
    }
}

static size_t mem_reap(void *state, bq_completion *out, size_t max)
{
    mem_transport *t = state;
    size_t count = 0;
    for (; count < max && t->done_count > 0; count++, t->done_count--) {
        mem_done *done = &t->done[t->done_head];
        t->done_head = (t->done_head + 1) % OPS_MAX;
        out[count].cookie = done->op->cookie;
        out[count].op = done->op;
        out[count].status = done->status;
        if (done->status != BQ_OK)
            explain(&out[count]);
        mem_delivery *d = delivery_of(done->op->in);
        if (d && bq_held_reaped(&d->held))
            delivery_let_go(t, d);
    }
    return count;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool hungry(const mem_transport *t)
{
    return t->waiter.queue_count > 0 && t->held.count < t->config->prefetch;
}

static size_t mem_prepare(void *state, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    mem_transport *t = state;
    int64_t due = BQ_NEVER, now = now_of(t);
    if (t->done_count > 0 || !t->announced)
        due = now;
    if (due != now && want > 0 && hungry(t)) {
        pthread_mutex_lock(&t->store->mutex);
        for (size_t i = 0; i < t->waiter.queue_count; i++) {
            int64_t next = bq_mem_next_due(t->waiter.queues[i]);
            if (next < due)
                due = next;
        }
        if (due < t->take_at)
            due = t->take_at;
        t->waiter.asleep = due > now;
        pthread_mutex_unlock(&t->store->mutex);
    }
    if (due < *deadline_ms)
        *deadline_ms = due;
    if (max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = t->wake_fds[0], .events = POLLIN};
    return 1;
}

static void mem_service(void *state, const struct pollfd *fds, size_t count)
{
    mem_transport *t = state;
    if (count > 0 && fds[0].revents != 0) {
        uint64_t drained[8];
        while (read(t->wake_fds[0], drained, sizeof(drained)) > 0 && t->wake_fds[0] != t->wake_fds[1])
            continue;
    }
    if (t->registered) {
        pthread_mutex_lock(&t->store->mutex);
        t->waiter.asleep = false;
        pthread_mutex_unlock(&t->store->mutex);
    }
    if (!t->announced) {
        t->announced = true;
        if (t->host->event)
            t->host->event(t->host, &(bq_event){.kind = BQ_EVENT_UP});
    }
}

/* Takes one message of the queue whose turn it is, or of the next one that has any. */
static bool take_one(mem_transport *t, int64_t now, int64_t until, bq_incoming **out)
{
    for (size_t n = 0; n < t->waiter.queue_count; n++) {
        size_t index = t->next_queue;
        t->next_queue = index + 1 < t->waiter.queue_count ? index + 1 : 0;
        mem_queue *queue = t->waiter.queues[index];
        mem_node *node = bq_mem_first(queue, now);
        if (!node)
            continue;
        mem_delivery *d = bq_mem_queue_room(queue) ? delivery_new(t) : NULL;
        if (!d) { /* out of memory: it stays where it is for a moment */
            t->take_at = bq_deadline(now, NOMEM_PAUSE_MS);
            return false;
        }
        bq_mem_unlink(node);
        bq_mem_put_leased(queue, node, until);
        node->lease = ++t->store->last_lease;
        atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
        delivery_fill(t, d, index, node, until);
        *out = &d->held.in;
        return true;
    }
    return false;
}

static size_t mem_take(void *state, bq_incoming **out, size_t max)
{
    mem_transport *t = state;
    const mem_options *options = t->config->options;
    if (!hungry(t))
        return 0;
    size_t room = t->config->prefetch - t->held.count, count = 0;
    if (max > room)
        max = room;
    int64_t now = now_of(t), until = bq_deadline(now, options->retry_after_ms);
    pthread_mutex_lock(&t->store->mutex);
    for (size_t i = 0; i < t->waiter.queue_count; i++)
        bq_mem_sweep(t->store, t->waiter.queues[i], now);
    while (count < max && take_one(t, now, until, &out[count]))
        count++;
    pthread_mutex_unlock(&t->store->mutex);
    return count;
}

static void mem_forget(void *state, bq_incoming *in)
{
    mem_delivery *d = delivery_of(in);
    if (d->held.detached) {
        delivery_free(d); /* perhaps after close and from another thread: the transport is not touched */
        return;
    }
    if (bq_held_forget(&d->held))
        delivery_let_go(state, d);
}

static bool mem_idle(void *state, bool all)
{
    mem_transport *t = state;
    if (!t->announced || t->held.count > 0 || t->done_count > 0)
        return false;
    int64_t now = now_of(t);
    bool idle = true;
    pthread_mutex_lock(&t->store->mutex);
    for (size_t i = 0; i < t->waiter.queue_count && idle; i++) {
        mem_queue *queue = t->waiter.queues[i];
        bq_mem_sweep(t->store, queue, now);
        idle = !bq_mem_first(queue, now) && !queue->leased.head && (!all || queue->timed_count == 0);
    }
    pthread_mutex_unlock(&t->store->mutex);
    return idle;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

mem_store *bq_memory_store(void *state)
{
    return ((mem_transport *)state)->store;
}

int64_t bq_memory_now(void *state)
{
    return now_of(state);
}

static const bq_binding *mem_binding(const void *options)
{
    (void)options;
    return bq_binding_find(BQ_STR("memory"));
}

static const char *const schemes[] = {"memory", NULL};

static const bq_option table[] = {
    {"retry_after", BQ_OPT_DURATION, offsetof(mem_options, retry_after_ms), "90s", -1, INT64_C(31536000000), NULL, 0,
     NULL, "the lease: how long a message may be worked before it is given to somebody else; off: for ever"},
    {.name = NULL},
};

const bq_transport_ops bq_memory_ops = {
    .size = sizeof(bq_transport_ops),
    .name = "memory",
    .schemes = schemes,
    .summary = "queues inside this process, shared by name, gone with it",
    .url_syntax = "memory:NAME",
    .table = table,
    .options_size = sizeof(mem_options),
    .state_size = sizeof(mem_transport),
    .capabilities = BQ_CAP_DEAD_LETTER | BQ_CAP_RETRY | BQ_CAP_RETRY_DELAY | BQ_CAP_RELEASE | BQ_CAP_RELEASE_DELAY |
                    BQ_CAP_EXTEND | BQ_CAP_PUBLISH_DELAY | BQ_CAP_HEADERS | BQ_CAP_KEY | BQ_CAP_PEEK | BQ_CAP_LAPSES |
                    BQ_CAP_IDLE | BQ_CAP_KEEP,
    .binding = mem_binding,
    .open = mem_open,
    .close = mem_close,
    .prepare = mem_prepare,
    .service = mem_service,
    .take = mem_take,
    .submit = mem_submit,
    .reap = mem_reap,
    .forget = mem_forget,
    .interrupt = NULL,
    .idle = mem_idle,
    .admin = &bq_memory_admin,
};
