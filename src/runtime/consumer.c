/*
 * runtime/consumer.c - the life of a consumer: options, open, wait, stop, close. What it does in between is in work.c.
 *
 * Everything that two sides may outlive each other by hangs on one reference count: the owner, each handler thread,
 * each call of bq_delivery_settle, and each delivery that a handler or a deferring program still has when the consumer
 * is closed. Whoever is last frees. So a handler that never returns costs its own memory and nothing else.
 *
 * Thread rule: any thread, except that open and close are called once each, and close not from a callback.
 */
#include "runtime/worker.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { THREADS_MAX = 4096, PREFETCH_MAX = 1 << 20 };

/* ---- options -------------------------------------------------------------------------------------------------------- */

void bq_consumer_options_init(bq_consumer_options *options, size_t size)
{
    bq_consumer_options all = {.max_attempts = -1};
    all.size = size < sizeof all ? size : sizeof all;
    memcpy(options, &all, all.size);
}

static void options_copy(bq_consumer_options *out, const bq_consumer_options *given)
{
    BQ_CONSUMER_OPTIONS_INIT(out);
    memcpy(out, given, given->size && given->size < sizeof *out ? given->size : sizeof *out);
    out->size = sizeof *out;
    if (out->shutdown_timeout_ms == 0)
        out->shutdown_timeout_ms = 30000;
    if (out->metrics_interval_ms <= 0)
        out->metrics_interval_ms = 10000;
}

static bq_status check(const bq_consumer_options *o, bq_error *err)
{
    if (o->queue_count == 0 || !o->queues)
        return bq_fail(err, BQ_INVALID, "no queue is named");
    for (size_t i = 0; i < o->queue_count; i++) {
        if (bq_str_blank(bq_str_of(o->queues[i])))
            return bq_fail(err, BQ_INVALID, "queue %zu has no name", i + 1);
        for (size_t j = 0; j < i; j++)
            if (strcmp(o->queues[i], o->queues[j]) == 0)
                return bq_fail(err, BQ_INVALID, "queue %s is named twice", o->queues[i]);
    }
    if (o->concurrency < 0 || o->concurrency > THREADS_MAX)
        return bq_fail(err, BQ_INVALID, "concurrency %d is not between 1 and %d", o->concurrency, THREADS_MAX);
    if (o->prefetch < 0 || o->prefetch > PREFETCH_MAX)
        return bq_fail(err, BQ_INVALID, "prefetch %d is not between 1 and %d", o->prefetch, PREFETCH_MAX);
    if (o->drain < 0 || o->drain > 2)
        return bq_fail(err, BQ_INVALID, "drain %d is none of 0, 1 and 2", o->drain);
    if (o->route_count && !o->routes)
        return bq_fail(err, BQ_INVALID, "routes are counted but not given");
    return BQ_OK;
}

/* One block holds every name, with its NUL: queues, their dead-letter queues, the options' own texts. */
static bq_status copy_names(bq_consumer *c, bq_error *err)
{
    bq_consumer_options *o = &c->options;
    bq_buf all;
    bq_buf_init(&all, 0);
    bq_str lang = o->lang ? bq_str_of(o->lang) : BQ_STR("c");
    bq_status st = bq_buf_add(&all, lang.ptr, lang.len + 0);
    st = st ? st : bq_buf_add(&all, "", 1);
    for (size_t i = 0; !st && i < o->queue_count; i++) {
        bq_str name = bq_str_of(o->queues[i]);
        c->queues[i].name.len = name.len;
        st = bq_buf_add(&all, name.ptr, name.len + 1);
        size_t at = all.len;
        if (!st)
            st = o->dead_letter_queue && o->dead_letter_queue[0]
                     ? bq_buf_add(&all, o->dead_letter_queue, strlen(o->dead_letter_queue))
                     : bq_dead_letter_queue(c->link.binding, name, &all);
        c->queues[i].dead.len = all.len - at;
        st = st ? st : bq_buf_add(&all, "", 1);
    }
    if (st) {
        bq_buf_clear(&all);
        return bq_fail_nomem(err);
    }
    size_t len;
    c->strings = all.ptr;
    len = lang.len + 1;
    o->lang = c->strings;
    for (size_t i = 0; i < o->queue_count; i++) {
        c->queues[i].name.ptr = c->queue_names[i].ptr = c->strings + len;
        c->queue_names[i].len = c->queues[i].name.len;
        len += c->queues[i].name.len + 1;
        c->queues[i].dead.ptr = c->strings + len;
        len += c->queues[i].dead.len + 1;
    }
    return BQ_OK;
}

/* ---- making and freeing ------------------------------------------------------------------------------------------------ */

static void consumer_free(bq_consumer *c)
{
    if (c->left_open)
        bq_link_close(&c->link, BQ_CLOSE_MS); /* the handler that read from it has returned */
    for (size_t i = 0; c->deliveries && i < c->prefetch; i++)
        bq_delivery_clear(&c->deliveries[i]);
    bq_settle_clear(c);
    bq_free(c->deliveries);
    bq_ring_clear(&c->work);
    bq_ring_clear(&c->outcomes);
    bq_link_clear(&c->link);
    bq_wake_clear(&c->wake);
    bq_routes_clear(&c->routes);
    bq_free(c->queues);
    bq_free(c->queue_names);
    bq_free(c->strings);
    bq_free(c->threads);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_cond_destroy(&c->ready);
    (void)pthread_mutex_destroy(&c->lock);
    bq_free(c);
}

void bq_consumer_unref(bq_consumer *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1)
        consumer_free(c);
}

static bq_status make_deliveries(bq_consumer *c, bq_error *err)
{
    c->deliveries = bq_calloc(c->prefetch, sizeof *c->deliveries);
    c->pending.ops = bq_calloc(c->prefetch * 2, sizeof *c->pending.ops);
    if (!c->deliveries || !c->pending.ops || bq_ring_init(&c->work, c->prefetch) ||
        bq_ring_init(&c->outcomes, c->prefetch))
        return bq_fail_nomem(err);
    for (size_t i = c->prefetch; i-- > 0;) {
        bq_delivery *d = &c->deliveries[i];
        d->consumer = c;
        bq_buf_init(&d->scratch, 0);
        bq_buf_init(&d->shown, 0);
        bq_buf_init(&d->exception, 0);
        bq_buf_init(&d->error, 0);
        bq_buf_init(&d->result, 0);
        bq_delivery_reset(d);
        d->next_free = c->free;
        c->free = d;
    }
    return BQ_OK;
}

static bq_status need_drain(const bq_consumer *c, bq_error *err)
{
    if (!c->options.drain || bq_link_has_idle(&c->link) || (c->link.ops->admin && c->link.ops->admin->stats))
        return BQ_OK;
    return bq_fail(err, BQ_UNSUPPORTED, "%s cannot tell when a queue is drained", c->link.ops->name);
}

static bq_status prepare(bq_consumer *c, const char *url, bq_error *err)
{
    bq_consumer_options *o = &c->options;
    c->queues = bq_calloc(o->queue_count, sizeof *c->queues);
    c->queue_names = bq_calloc(o->queue_count, sizeof *c->queue_names);
    if (!c->queues || !c->queue_names)
        return bq_fail_nomem(err);
    c->threads_wanted = o->concurrency > 0 ? o->concurrency : 1;
    c->prefetch = o->prefetch > 0              ? (size_t)o->prefetch
                  : c->threads_wanted * 2 > 16 ? (size_t)c->threads_wanted * 2
                                               : 16;
    bq_link_spec spec = {.url = url,
                         .roles = BQ_ROLE_CONSUME | BQ_ROLE_PUBLISH,
                         .queues = c->queue_names,
                         .queue_count = o->queue_count,
                         .prefetch = (uint32_t)c->prefetch,
                         .logger = o->logger,
                         .on_event = bq_work_event,
                         .pending = bq_work_pending,
                         .owner = c};
    bq_status st = bq_link_init(&c->link, &spec, err);
    if (st)
        return st;
    int tiers = c->link.ops->tiers ? c->link.ops->tiers(c->link.target.options) : 0;
    st = bq_policy_init(&c->policy, c->link.binding, o, tiers, err);
    if (st)
        return st;
    c->link.spec.max_attempts = c->policy.max_attempts;
    if (o->drain && !bq_link_has_idle(&c->link))
        c->link.spec.roles |= BQ_ROLE_ADMIN;
    c->settle_timeout_ms = o->settle_timeout_ms > 0 ? o->settle_timeout_ms : bq_link_timeout(&c->link);
    bq_link_call_limit(&c->link, c->settle_timeout_ms);
    st = need_drain(c, err);
    st = st ? st : copy_names(c, err);
    st = st ? st : bq_routes_init(&c->routes, o->routes, o->route_count, err);
    st = st ? st : bq_wake_init(&c->wake, err);
    st = st ? st : make_deliveries(c, err);
    return st;
}

static bq_status start_io(bq_consumer *c, bq_error *err)
{
    bq_status st = bq_thread_start(&c->io, "bq-consumer", true, bq_work_main, c, err);
    if (st)
        return st;
    pthread_mutex_lock(&c->lock);
    while (!c->started)
        (void)pthread_cond_wait(&c->changed, &c->lock);
    /* A failure after the opening is told by bq_consumer_wait, however soon it comes. */
    st = c->opened ? BQ_OK : c->status;
    if (st && err)
        *err = c->error;
    pthread_mutex_unlock(&c->lock);
    if (st)
        (void)pthread_join(c->io, NULL);
    return st;
}

static void join_pool(bq_consumer *c, int64_t give_up_ms);

static bq_status consumer_new(bq_consumer **out, bq_error *err)
{
    bq_consumer *c = bq_calloc(1, sizeof *c);
    if (!c)
        return bq_fail_nomem(err);
    c->wake.fd = -1;
    c->stash_tail = &c->stash;
    atomic_init(&c->refs, 1);
    bq_status st = bq_cond_init(&c->changed, err);
    if (st) {
        bq_free(c);
        return st;
    }
    st = bq_cond_init(&c->ready, err);
    if (st) {
        (void)pthread_cond_destroy(&c->changed);
        bq_free(c);
        return st;
    }
    (void)pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return BQ_OK;
}

bq_status bq_consumer_open(bq_consumer **out, const char *url, const bq_consumer_options *options, bq_error *err)
{
    *out = NULL;
    bq_consumer *c = NULL;
    bq_status st = consumer_new(&c, err);
    if (st)
        return st;
    options_copy(&c->options, options);
    st = check(&c->options, err);
    st = st ? st : prepare(c, url, err);
    st = st ? st : bq_pool_start(c, err);
    st = st ? st : start_io(c, err);
    if (!st) {
        *out = c;
        return BQ_OK;
    }
    join_pool(c, BQ_NEVER);
    bq_consumer_unref(c);
    return st;
}

/* ---- waiting and stopping -------------------------------------------------------------------------------------------------- */

bq_status bq_consumer_wait_connected(bq_consumer *c, int64_t timeout_ms, bq_error *err)
{
    int64_t deadline = bq_deadline(bq_now_ms(), timeout_ms);
    bq_status st = bq_link_here(&c->link, err);
    if (st)
        return st;
    pthread_mutex_lock(&c->lock);
    while (!c->up && !c->status && !c->ended && bq_cond_wait_until(&c->changed, &c->lock, deadline))
        ;
    st = c->status;
    if (st && err)
        *err = c->error;
    else if (!st && !c->up && c->ended)
        st = bq_fail(err, BQ_CLOSED, "the consumer has stopped");
    else if (!st && !c->up)
        st = bq_fail_flags(err, BQ_UNAVAILABLE, BQ_ERROR_RETRYABLE, c->down.native,
                           "%s: not connected within %lld ms%s%s", c->link.target.url.safe, (long long)timeout_ms,
                           c->down.text[0] ? ": " : "", c->down.text);
    pthread_mutex_unlock(&c->lock);
    return st;
}

bq_status bq_consumer_wait(bq_consumer *c, int64_t timeout_ms, bq_error *err)
{
    int64_t deadline = bq_deadline(bq_now_ms(), timeout_ms);
    bq_status st = bq_link_here(&c->link, err);
    if (st)
        return st;
    pthread_mutex_lock(&c->lock);
    while (!c->ended && bq_cond_wait_until(&c->changed, &c->lock, deadline))
        ;
    bool ended = c->ended;
    st = c->status;
    if (ended && st && err)
        *err = c->error;
    pthread_mutex_unlock(&c->lock);
    return ended ? st : bq_fail(err, BQ_TIMEOUT, "the consumer still runs");
}

void bq_consumer_stop(bq_consumer *c)
{
    if (!c) /* a handler may run before bq_consumer_open has stored the consumer */
        return;
    atomic_fetch_add(&c->stops, 1);
    bq_wake_signal(&c->wake);
}

void bq_consumer_metrics(const bq_consumer *c, bq_metrics *out)
{
    const bq_counters *n = &c->counters;
#define READ(name) .name = atomic_load_explicit(&n->name, memory_order_acquire)
    *out = (bq_metrics){READ(taken),       READ(handled),       READ(acked),
                        READ(retried),     READ(dead_lettered), READ(dropped),
                        READ(released),    READ(poison),        READ(gated),
                        READ(leases_lost), READ(settle_failed), READ(worker_lost),
                        READ(in_flight),   READ(handler_us),    .connected = atomic_load(&c->link.up)};
#undef READ
}

/* ---- closing --------------------------------------------------------------------------------------------------------------- */

/* Ends the handler threads. One that does not come back is left to itself; it holds a reference. */
static void join_pool(bq_consumer *c, int64_t give_up_ms)
{
    bq_pool_quit(c);
    pthread_mutex_lock(&c->lock);
    while (c->exited < c->thread_count && bq_cond_wait_until(&c->changed, &c->lock, give_up_ms))
        ;
    int missing = c->thread_count - c->exited;
    for (int i = 0; i < c->thread_count; i++) {
        bq_handler_thread *t = &c->threads[i];
        if (!t->exited)
            (void)pthread_detach(t->thread);
    }
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->thread_count; i++)
        if (c->threads[i].exited)
            (void)pthread_join(c->threads[i].thread, NULL);
    if (missing)
        bq_log(&c->link.logger, BQ_LOG_ERROR, "%s: %d handlers do not return, their threads are left behind",
               c->link.target.url.safe, missing);
}

void bq_consumer_orphan(bq_consumer *c)
{
    unsigned both = BQ_BIT_RETURNED | BQ_BIT_OUTCOME;
    for (size_t i = 0; i < c->prefetch; i++) {
        bq_delivery *d = &c->deliveries[i];
        if (!d->out)
            continue;
        atomic_fetch_add(&c->refs, 1);
        unsigned old = atomic_fetch_or(&d->bits, BQ_BIT_ORPHAN);
        if ((old & both) != both)
            continue;
        /* It was handed in after the I/O thread had gone: nobody has it any more. */
        if (d->in && d->kept && d->ours)
            c->link.ops->forget(c->link.state, d->in);
        d->ours = false;
        atomic_fetch_sub(&c->refs, 1);
    }
}

void bq_consumer_close(bq_consumer *c)
{
    /* In a forked child nothing is here to be ended, and the connection is the parent's. */
    if (!c || bq_link_here(&c->link, NULL))
        return;
    bq_consumer_stop(c);
    /* Every part of the shutdown has its own bound; a driver that breaks them all is left behind. */
    int64_t patience = c->options.shutdown_timeout_ms < 0 ? 0 : c->options.shutdown_timeout_ms;
    int64_t give_up = bq_deadline(bq_now_ms(), patience + BQ_FINISH_MS + 2 * BQ_CLOSE_MS);
    pthread_mutex_lock(&c->lock);
    while (!c->ended && bq_cond_wait_until(&c->changed, &c->lock, give_up))
        ;
    bool ended = c->ended;
    if (!ended) {
        bq_log(&c->link.logger, BQ_LOG_ERROR, "%s: the client library does not return, its connection is abandoned",
               c->link.target.url.safe);
        bq_link_mute(&c->link);
        atomic_store(&c->silent, true);
        atomic_fetch_add(&c->refs, 1); /* the I/O thread's, for when it comes back after all */
        c->abandoned = true;
        (void)pthread_detach(c->io);
    }
    pthread_mutex_unlock(&c->lock);
    if (ended)
        (void)pthread_join(c->io, NULL);
    join_pool(c, bq_deadline(bq_now_ms(), ended ? BQ_CANCEL_GRACE_MS : 0));
    atomic_store(&c->silent, true);
    if (ended)
        bq_consumer_orphan(c);
    bq_link_mute(&c->link);
    bq_consumer_unref(c);
}
