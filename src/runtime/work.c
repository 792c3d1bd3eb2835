/*
 * runtime/work.c - the consumer's I/O thread: takes deliveries, hands them out, carries outcomes out, keeps leases,
 * and ends in order.
 *
 * A turn: collect outcomes, take what there is room for, submit and reap operations, look at what time says, and let
 * the link poll and serve the driver. Whatever can be due later is asked of each delivery only when the earliest of
 * them is (`next_scan_ms`), so that a turn costs what happened in it, and not what is in flight.
 *
 * Shutdown (contract 3): STOPPING takes no more, gives back what was not started and waits for handlers; ENDING gives
 * back what is left at once and waits a bounded time for the operations under way.
 *
 * Thread rule: the I/O thread alone.
 */
#include "runtime/worker.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rand.h"

#include <string.h>

enum { STATS_MS = 200 }; /* between two looks at the statistics while draining */

static void silent_or(bq_consumer *c, void (*fn)(bq_consumer *))
{
    if (!atomic_load(&c->silent))
        fn(c);
}

/* ---- metrics ------------------------------------------------------------------------------------------------------- */

static void send_metrics(bq_consumer *c)
{
    bq_metrics m;
    bq_consumer_metrics(c, &m);
    c->options.on_metrics(&m, c->options.arg);
}

static void tick_metrics(bq_consumer *c)
{
    if (!c->options.on_metrics || c->link.now_ms < c->next_metrics_ms)
        return;
    c->next_metrics_ms = bq_deadline(c->link.now_ms, c->options.metrics_interval_ms);
    silent_or(c, send_metrics);
}

static void running(bq_consumer *c, int by)
{
    size_t n = atomic_load_explicit(&c->running, memory_order_relaxed);
    atomic_store_explicit(&c->running, by > 0 ? n + 1 : n - 1, memory_order_relaxed);
}

/* ---- outcomes ------------------------------------------------------------------------------------------------------- */

static void warn_job(bq_delivery *d)
{
    if (d->judged && (d->env.seen & BQ_SEEN_JOB_NOT_STRING) && !d->facts.poison)
        bq_log(&d->consumer->link.logger, BQ_LOG_WARN, "queue %.*s, route %.*s: a job that is no string was ignored",
               BQ_FMT(d->consumer->queues[d->queue].name), BQ_FMT(d->route));
}

static void decide(bq_delivery *d, bq_outcome outcome)
{
    bq_consumer *c = d->consumer;
    bool jitter = c->policy.retry_jitter != BQ_JITTER_NONE && outcome == BQ_FAILED;
    if (d->timed_out)
        outcome = BQ_FAILED; /* whatever it says now */
    bq_decide_outcome(&c->policy, &d->facts, outcome, d->forced ? -1 : d->retry_after_ms, jitter ? bq_random_u64() : 0,
                      &d->decision);
}

/* A delivery is back from the handler side. */
static void collect_one(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    d->out = false;
    running(c, -1);
    if (d->ran) {
        int64_t took = d->took_us ? d->took_us : bq_now_us() - 1000 * (int64_t)atomic_load(&d->started_ms);
        bq_count(&c->counters.handled, 1);
        bq_count(&c->counters.handler_us, took > 0 ? (uint64_t)took : 0);
    }
    if (d->forced) {
        bq_settle_recycle(d);
        return;
    }
    if (d->facts.poison)
        bq_count(&c->counters.poison, 1);
    if (d->facts.gated)
        bq_count(&c->counters.gated, 1);
    if (d->revoked) {
        bq_settle_forget(d);
    } else if (d->nomem) {
        bq_settle_unjudged(d);
    } else {
        warn_job(d);
        if (d->ran)
            decide(d, d->outcome);
        else if (d->decision.act == BQ_ACT_HANDLE || d->decision.act == BQ_ACT_HOOK)
            bq_decide_give_back(&c->policy, &d->facts, &d->decision); /* its lease was lost before it started */
        bq_settle(d);
    }
}

static bool collect(bq_consumer *c)
{
    bq_delivery *d;
    size_t n = 0;
    while (n < c->prefetch && (d = bq_ring_pop(&c->outcomes))) {
        collect_one(d);
        n++;
    }
    return n > 0;
}

/* ---- taking --------------------------------------------------------------------------------------------------------- */

static size_t room(const bq_consumer *c)
{
    if (c->phase != BQ_PHASE_RUNNING)
        return 0;
    size_t n = c->prefetch - c->held;
    if (c->options.max_messages) {
        /* No more than may still be settled: the rest would only be given back. */
        uint64_t left = c->options.max_messages - c->settled;
        left = left > c->held ? left - c->held : 0;
        n = left < n ? (size_t)left : n;
    }
    return n;
}

/* What will be free besides when the settlements under way are done; those are counted as settled then. */
static size_t soon(const bq_consumer *c)
{
    size_t n = c->phase == BQ_PHASE_RUNNING ? c->ending : 0;
    if (c->options.max_messages) {
        uint64_t left = c->options.max_messages - c->settled;
        left = left > c->held ? left - c->held : 0;
        left = left > room(c) ? left - room(c) : 0;
        n = left < n ? (size_t)left : n;
    }
    return n;
}

static void hand_out(bq_consumer *c, bq_incoming *in)
{
    bq_delivery *d = c->free;
    c->free = d->next_free;
    d->in = in;
    d->queue = in->queue;
    in->runtime = d;
    d->stage = BQ_STAGE_OUT;
    d->out = true;
    d->taken_ms = c->link.now_ms;
    c->held++;
    running(c, 1);
    int64_t next = bq_settle_lease(d, c->link.now_ms);
    if (in->lease_until_ms > 0 && in->lease_until_ms < next)
        next = in->lease_until_ms;
    if (c->options.handler_timeout_ms > 0) {
        int64_t at = bq_deadline(c->link.now_ms, c->options.handler_timeout_ms);
        next = at < next ? at : next;
    }
    if (next < c->next_scan_ms)
        c->next_scan_ms = next;
    if (c->stash || !bq_ring_push(&c->work, d)) {
        d->next_free = NULL;
        *c->stash_tail = d;
        c->stash_tail = &d->next_free;
    }
}

static bq_delivery *stash_pop(bq_consumer *c)
{
    bq_delivery *d = c->stash;
    if (d)
        c->stash = d->next_free;
    if (!c->stash)
        c->stash_tail = &c->stash;
    return d;
}

/* A handler thread that was stopped in the middle of a pop keeps a place of the ring: what did not fit waits here. */
static bool unstash(bq_consumer *c)
{
    size_t n = 0;
    for (; c->stash; n++) {
        bq_delivery *d = stash_pop(c), *rest = c->stash;
        if (bq_ring_push(&c->work, d))
            continue;
        d->next_free = rest;
        c->stash = d;
        c->stash_tail = rest ? c->stash_tail : &d->next_free;
        break;
    }
    bq_pool_kick(c, n);
    return c->stash == NULL;
}

static bool take(bq_consumer *c)
{
    bq_incoming *in[BQ_TAKE_BATCH];
    size_t max = unstash(c) ? room(c) : 0;
    if (max == 0)
        return false;
    size_t n = bq_link_take(&c->link, in, max < BQ_TAKE_BATCH ? max : BQ_TAKE_BATCH);
    for (size_t i = 0; i < n; i++)
        hand_out(c, in[i]);
    if (n == 0)
        return false;
    bq_count(&c->counters.taken, n);
    atomic_store_explicit(&c->counters.in_flight, c->held, memory_order_release);
    bq_pool_kick(c, n);
    return true;
}

/* ---- completions ------------------------------------------------------------------------------------------------------ */

static bool reap(bq_consumer *c)
{
    bq_completion done[BQ_REAP_BATCH];
    size_t n = bq_link_reap(&c->link, done, BQ_REAP_BATCH);
    for (size_t i = 0; i < n; i++)
        bq_settle_completed((bq_delivery *)(uintptr_t)done[i].cookie, done[i].op, done[i].status, &done[i].error);
    return n > 0;
}

/* ---- handlers that overstay --------------------------------------------------------------------------------------------- */

/* Settles it although its handler still runs. The handler may go on reading: the driver keeps the message. */
static bool force(bq_delivery *d)
{
    unsigned both = BQ_BIT_RETURNED | BQ_BIT_OUTCOME;
    bool readable = atomic_load_explicit(&d->started_ms, memory_order_acquire) != 0;
    if (!readable || (atomic_load(&d->bits) & both) == both)
        return false; /* being judged, or on its way here */
    if (!(d->consumer->link.caps & BQ_CAP_KEEP))
        return false;
    d->forced = true;
    return true;
}

static void tick_timeout(bq_delivery *d, int64_t now_ms, int64_t *next_ms)
{
    bq_consumer *c = d->consumer;
    int64_t limit = c->options.handler_timeout_ms;
    if (limit <= 0 || d->stage != BQ_STAGE_OUT)
        return;
    int64_t started = atomic_load_explicit(&d->started_ms, memory_order_acquire);
    int64_t at = bq_deadline(started ? started : now_ms, limit);
    if (at > now_ms) {
        *next_ms = at < *next_ms ? at : *next_ms;
        return;
    }
    if (!d->timed_out) {
        d->timed_out = true;
        atomic_store(&d->cancelled, true);
        bq_log(&c->link.logger, BQ_LOG_WARN, "queue %.*s, route %.*s: a handler runs for longer than %lld ms",
               BQ_FMT(c->queues[d->queue].name), BQ_FMT(d->route), (long long)limit);
    }
    int64_t patience = bq_deadline(at, BQ_CANCEL_GRACE_MS);
    if (patience > now_ms) {
        *next_ms = patience < *next_ms ? patience : *next_ms;
    } else if (d->revoked) {
        return;
    } else if (force(d)) {
        decide(d, BQ_FAILED);
        bq_settle(d);
    } else {
        d->no_extend = true; /* where it cannot be settled yet, it comes back by itself */
    }
}

static void scan(bq_consumer *c)
{
    int64_t now = c->link.now_ms;
    if (now < c->next_scan_ms)
        return;
    int64_t next = BQ_NEVER;
    /* What follows may lower it further, for a delivery that the loop has already passed. */
    c->next_scan_ms = BQ_NEVER;
    for (size_t i = 0; i < c->prefetch; i++) {
        bq_delivery *d = &c->deliveries[i];
        if (d->stage == BQ_STAGE_FREE)
            continue;
        tick_timeout(d, now, &next);
        bq_settle_tick(d, now, &next);
    }
    if (next < c->next_scan_ms)
        c->next_scan_ms = next;
}

/* ---- events --------------------------------------------------------------------------------------------------------------- */

static void revoke(bq_consumer *c, const bq_event *event)
{
    for (size_t i = 0; i < c->prefetch; i++) {
        bq_delivery *d = &c->deliveries[i];
        if (d->stage == BQ_STAGE_FREE || !d->in)
            continue;
        bool meant =
            event->in ? d->in == event->in : d->in->lane == event->lane && d->in->generation == event->generation;
        if (!meant)
            continue;
        d->revoked = true;
        bq_settle_lease_lost(d, "the broker took it back");
    }
    c->next_scan_ms = 0; /* what was held goes at once */
}

void bq_work_event(void *owner, const bq_event *event)
{
    bq_consumer *c = owner;
    bool up = event->kind == BQ_EVENT_UP;
    if (event->kind == BQ_EVENT_REVOKED) {
        revoke(c, event);
    } else if (event->kind == BQ_EVENT_SETTLE_FAILED) {
        bq_count(&c->counters.settle_failed, 1);
        bq_log(&c->link.logger, BQ_LOG_WARN, "%s: acknowledges were not committed, those messages come again%s%s",
               c->link.target.url.safe, event->error ? ": " : "", event->error ? event->error->text : "");
    }
    if (!up && event->kind != BQ_EVENT_DOWN && event->kind != BQ_EVENT_FATAL)
        return;
    pthread_mutex_lock(&c->lock);
    c->up = up;
    if (!up)
        c->down = c->link.error;
    if (event->kind == BQ_EVENT_FATAL) {
        c->status = c->link.error.status ? c->link.error.status : BQ_INTERNAL;
        c->error = c->link.error;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->options.on_connection && !atomic_load(&c->silent))
        c->options.on_connection(up, up ? NULL : &c->link.error, c->options.arg);
}

bool bq_work_pending(void *owner)
{
    bq_consumer *c = owner;
    return !bq_ring_empty(&c->outcomes) || atomic_load(&c->stops) > c->stops_seen;
}

/* ---- stopping --------------------------------------------------------------------------------------------------------------- */

/* What no handler has begun is given back unchanged. */
static void give_back_unstarted(bq_consumer *c)
{
    bq_delivery *d;
    while ((d = bq_ring_pop(&c->work)) || (d = stash_pop(c))) {
        d->out = false;
        running(c, -1);
        if (d->revoked)
            bq_settle_forget(d);
        else
            bq_settle_give_back(d);
    }
}

static void start_stopping(bq_consumer *c)
{
    int64_t patience = c->options.shutdown_timeout_ms;
    c->phase = BQ_PHASE_STOPPING;
    c->phase_until_ms = bq_deadline(c->link.now_ms, patience < 0 ? 0 : patience);
    c->next_scan_ms = 0; /* holds end now */
    for (size_t i = 0; i < c->prefetch; i++)
        if (c->deliveries[i].stage == BQ_STAGE_HOLDING)
            c->deliveries[i].hold_until_ms = 0;
    give_back_unstarted(c);
}

/* Out of patience: handlers are told, and what they hold is given back where the driver lets them go on reading. */
static void start_ending(bq_consumer *c)
{
    c->phase = BQ_PHASE_ENDING;
    c->phase_until_ms = bq_deadline(c->link.now_ms, BQ_FINISH_MS);
    for (size_t i = 0; i < c->prefetch; i++) {
        bq_delivery *d = &c->deliveries[i];
        if (!d->out || d->stage != BQ_STAGE_OUT)
            continue;
        atomic_store(&d->cancelled, true);
        if (!d->revoked && force(d))
            bq_settle_give_back(d);
    }
}

static bool drained(bq_consumer *c)
{
    bool all = c->options.drain == 2;
    bq_error err;
    if (!atomic_load(&c->link.up))
        return false;
    if (bq_link_has_idle(&c->link))
        return bq_link_idle(&c->link, all);
    if (c->link.now_ms < c->next_stats_ms)
        return false;
    c->next_stats_ms = bq_deadline(c->link.now_ms, STATS_MS);
    for (size_t i = 0; i < c->options.queue_count; i++) {
        bq_queue_stats s;
        bq_link_enter(&c->link);
        bq_status st = c->link.ops->admin->stats(c->link.state, c->queues[i].name, c->settle_timeout_ms, &s, &err);
        bq_link_leave(&c->link);
        if (st)
            bq_log(&c->link.logger, BQ_LOG_WARN, "cannot tell whether queue %s is drained: %s", c->queues[i].name.ptr,
                   err.text);
        if (st || s.ready > 0 || s.in_flight > 0 || (all && s.delayed > 0))
            return false;
    }
    return true;
}

/* How many deliveries still wait for an operation of theirs. */
static size_t unsettled(const bq_consumer *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->prefetch; i++) {
        const bq_delivery *d = &c->deliveries[i];
        n += d->stage == BQ_STAGE_SETTLING || d->stage == BQ_STAGE_HOLDING || (d->stage == BQ_STAGE_OUT && d->out);
    }
    return n;
}

/* Moves from phase to phase. True when all is over. */
static bool over(bq_consumer *c, bool idle_turn)
{
    int stops = atomic_load(&c->stops);
    c->stops_seen = stops;
    if (c->phase == BQ_PHASE_RUNNING) {
        bool enough = c->options.max_messages && c->settled >= c->options.max_messages;
        bool dry = c->options.drain && c->held == 0 && idle_turn && drained(c);
        if (!stops && !enough && !dry && !c->link.fatal)
            return false;
        start_stopping(c);
    }
    if (c->phase == BQ_PHASE_STOPPING) {
        if (c->held == 0)
            return true;
        if (stops < 2 && c->link.now_ms < c->phase_until_ms && !c->link.fatal)
            return false;
        start_ending(c);
    }
    return unsettled(c) == 0 || c->link.now_ms >= c->phase_until_ms;
}

/* ---- the loop ----------------------------------------------------------------------------------------------------------------- */

static int64_t wait_until(const bq_consumer *c)
{
    int64_t until = c->next_scan_ms;
    if (c->phase != BQ_PHASE_RUNNING && c->phase_until_ms < until)
        until = c->phase_until_ms;
    if (c->options.on_metrics && c->next_metrics_ms < until)
        until = c->next_metrics_ms;
    if (c->options.drain && c->held == 0 && !bq_link_has_idle(&c->link) && c->next_stats_ms < until)
        until = c->next_stats_ms;
    return until;
}

static void run(bq_consumer *c)
{
    bool quiet = true; /* nothing came from the handlers lately */
    c->link.now_ms = bq_now_ms();
    c->next_scan_ms = BQ_NEVER;
    c->next_metrics_ms = bq_deadline(c->link.now_ms, c->options.metrics_interval_ms);
    for (;;) {
        bool came = collect(c);
        bool took = take(c);
        (void)bq_settle_submit(c);
        bool done = reap(c);
        scan(c);
        tick_metrics(c);
        bool idle = !came && !took && !done;
        if (over(c, idle))
            return;
        bool busy = took || done || c->pending.count > c->pending.refused;
        bool nap = came || !quiet;
        quiet = !came;
        bq_turn turn = busy                                                                           ? BQ_TURN_BUSY
                       : c->stash || (nap && atomic_load_explicit(&c->running, memory_order_relaxed)) ? BQ_TURN_NAP
                                                                                                      : BQ_TURN_WAIT;
        c->link.want = room(c);
        c->link.host.soon = soon(c);
        bq_link_turn(&c->link, &c->wake, wait_until(c), turn);
    }
}

/* Handlers that still read a message of a driver which would free it with the connection. */
static bool must_stay_open(const bq_consumer *c)
{
    if (c->link.caps & BQ_CAP_KEEP)
        return false;
    for (size_t i = 0; i < c->prefetch; i++) {
        const bq_delivery *d = &c->deliveries[i];
        if (d->out && !(atomic_load(&d->bits) & BQ_BIT_RETURNED))
            return true;
    }
    return false;
}

/* After the last operation: what the driver keeps for a handler stays, all else goes with the connection. */
static void leave(bq_consumer *c)
{
    for (size_t i = 0; i < c->prefetch; i++) {
        bq_delivery *d = &c->deliveries[i];
        if (!d->in)
            continue;
        if (d->out) {
            d->kept = d->in->keep = (c->link.caps & BQ_CAP_KEEP) != 0;
            d->ours = true;
        } else if (d->stage == BQ_STAGE_SETTLED && d->ours) {
            bq_link_forget(&c->link, d->in);
            d->in = NULL;
        } else {
            d->in->keep = false;
        }
    }
    c->left_open = must_stay_open(c);
    if (c->left_open)
        bq_log(&c->link.logger, BQ_LOG_ERROR, "%s: a handler does not return, its connection stays open until it does",
               c->link.target.url.safe);
    else
        bq_link_close(&c->link, BQ_CLOSE_MS);
}

static void ended(bq_consumer *c)
{
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    c->up = false;
    bool alone = c->abandoned;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (alone) {
        bq_consumer_orphan(c);
        bq_consumer_unref(c);
    }
}

void *bq_work_main(void *arg)
{
    bq_consumer *c = arg;
    bq_error err;
    bq_status st = bq_link_open(&c->link, &err);
    pthread_mutex_lock(&c->lock);
    c->started = true;
    c->opened = !st;
    if (st) {
        c->status = st;
        c->error = err;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (!st) {
        run(c);
        leave(c);
        if (c->options.on_metrics)
            silent_or(c, send_metrics);
    }
    ended(c);
    return NULL;
}
