/*
 * runtime/pool.c - the handler threads: each pops a delivery, judges it, runs its handler and hands it in.
 *
 * A thread that finds the work ring empty says that it sleeps, looks once more, and waits. The I/O thread wakes one
 * sleeper for a batch; whoever wakes and sees more than it can start wakes the next, so that a batch of short handlers
 * does not pay for waking everybody.
 *
 * Thread rule: the handler threads, except bq_pool_start, bq_pool_kick and bq_pool_quit (I/O thread, opener, closer).
 */
#include "runtime/worker.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#include <string.h>

static void kick_one(bq_consumer *c)
{
    if (atomic_load(&c->sleepers) == 0)
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_signal(&c->ready);
    pthread_mutex_unlock(&c->lock);
}

void bq_pool_kick(bq_consumer *c, size_t count)
{
    if (count)
        kick_one(c);
}

/* The next delivery, or NULL when it is time to go. */
static bq_delivery *next(bq_consumer *c)
{
    bq_delivery *d = bq_ring_pop(&c->work);
    if (!d) {
        pthread_mutex_lock(&c->lock);
        atomic_fetch_add(&c->sleepers, 1);
        while (!(d = bq_ring_pop(&c->work)) && !c->quit)
            (void)pthread_cond_wait(&c->ready, &c->lock);
        atomic_fetch_sub(&c->sleepers, 1);
        pthread_mutex_unlock(&c->lock);
    }
    if (d && !bq_ring_empty(&c->work))
        kick_one(c);
    return d;
}

static void run(bq_delivery *d)
{
    int64_t begin = bq_now_us();
    d->ran = true;
    /* From here on the I/O thread may read what was judged. */
    int64_t at = begin / 1000;
    atomic_store_explicit(&d->started_ms, at > 0 ? at : 1, memory_order_release);
    bq_outcome outcome = d->handler(d, d->handler_arg);
    unsigned bits = BQ_BIT_RETURNED;
    if (outcome != BQ_DEFERRED) {
        d->took_us = bq_now_us() - begin;
        if (!(atomic_fetch_or(&d->bits, BQ_BIT_CLAIMED) & BQ_BIT_CLAIMED)) {
            d->outcome = outcome;
            bits |= BQ_BIT_OUTCOME;
        }
    }
    bq_delivery_hand_in(d, bits);
}

static void handle(bq_delivery *d)
{
    if (!atomic_load_explicit(&d->lease_lost, memory_order_relaxed)) {
        bq_delivery_judge(d);
        if (!d->nomem && (d->decision.act == BQ_ACT_HANDLE || d->decision.act == BQ_ACT_HOOK)) {
            run(d);
            return;
        }
    }
    bq_delivery_hand_in(d, BQ_BIT_RETURNED | BQ_BIT_OUTCOME);
}

static void *handler_main(void *arg)
{
    bq_handler_thread *me = arg;
    bq_consumer *c = me->consumer;
    bq_delivery *d;
    while ((d = next(c)))
        handle(d);
    pthread_mutex_lock(&c->lock);
    me->exited = true;
    c->exited++;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    bq_consumer_unref(c);
    return NULL;
}

bq_status bq_pool_start(bq_consumer *c, bq_error *err)
{
    c->threads = bq_calloc((size_t)c->threads_wanted, sizeof *c->threads);
    if (!c->threads)
        return bq_fail_nomem(err);
    for (int i = 0; i < c->threads_wanted; i++) {
        c->threads[i].consumer = c;
        atomic_fetch_add(&c->refs, 1);
        bq_status st = bq_thread_start(&c->threads[i].thread, "bq-handler", false, handler_main, &c->threads[i], err);
        if (st) {
            atomic_fetch_sub(&c->refs, 1);
            return st;
        }
        c->thread_count++;
    }
    return BQ_OK;
}

void bq_pool_quit(bq_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_cond_broadcast(&c->ready);
    pthread_mutex_unlock(&c->lock);
}
