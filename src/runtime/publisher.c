/*
 * runtime/publisher.c - publishing from any thread through one I/O thread (contract 1, 5 and 7; publisher.h).
 *
 * A message is made, decoded and projected on the caller's thread into an object that carries the driver's operation,
 * so the I/O thread only moves pointers: it offers everything that is queued in one call, reaps confirmations in
 * batches, calls back, and returns the objects to a pool. Objects that were submitted stay in one list in the order
 * of their submission, which is also that of their deadlines.
 *
 * Thread rule: `lock` guards everything marked so; the link and the batch arrays belong to the I/O thread. Callbacks
 * run on the I/O thread without the lock.
 */
#include "runtime/message.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/loop.h"
#include "runtime/ring.h"

#include <string.h>

enum {
    BATCH = 1024,    /* operations offered in one call */
    REAP = 256,      /* confirmations reaped in one call */
    POOL = 1024,     /* idle message objects kept */
    GRACE_MS = 1000, /* past its deadline a driver that never answers is answered for */
    MAX_IN_FLIGHT = 10000
};
#define MAX_BYTES ((size_t)64 << 20)

struct bq_publisher {
    bq_link link;
    bq_wake wake;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* state, room, or the end of a flush */
    bq_publisher_options options;
    char *lang;
    char *url;
    int64_t timeout_ms;

    bq_ring pool; /* idle objects, of any thread */

    /* under lock */
    bq_message *oldest, *newest;     /* all that is submitted and not finished */
    bq_message *queue, **queue_tail; /* not yet accepted by the driver, in order */
    size_t in_flight, bytes;
    uint64_t seq;
    int waiting; /* threads that wait for room or a flush */
    bool started, up, closing, exited, abandoned;
    bool opened; /* when started: `run` goes until it is told to close, also past a fatal failure */
    int64_t close_deadline_ms;
    bq_status failed; /* open failed, or fatal; `failure` says why */
    bq_error failure;
    bq_error down; /* why it is not up, when the driver said so */

    /* I/O thread */
    bq_op *batch[BATCH];
    bq_completion done[REAP];
    bq_message *reaped[REAP];
    bq_published_fn fns[REAP];
    int64_t next_expiry_ms;
};

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static bq_message *message_get(bq_publisher *p)
{
    bq_message *m = bq_ring_pop(&p->pool);
    return m ? m : bq_message_new();
}

static void message_put(bq_publisher *p, bq_message *m)
{
    bq_message_reset(m);
    if (!bq_ring_push(&p->pool, m))
        bq_message_free(m);
}

/* ---- lists, under lock --------------------------------------------------------------------------------------------- */

static void enlist(bq_publisher *p, bq_message *m)
{
    m->seq = ++p->seq;
    m->older = p->newest;
    m->newer = NULL;
    if (p->newest)
        p->newest->newer = m;
    else
        p->oldest = m;
    p->newest = m;
    m->next = NULL;
    *p->queue_tail = m;
    p->queue_tail = &m->next;
    p->in_flight++;
    p->bytes += m->weight;
}

static void delist(bq_publisher *p, bq_message *m)
{
    if (m->older)
        m->older->newer = m->newer;
    else
        p->oldest = m->newer;
    if (m->newer)
        m->newer->older = m->older;
    else
        p->newest = m->older;
    p->in_flight--;
    p->bytes -= m->weight;
}

static bq_message *dequeue(bq_publisher *p)
{
    bq_message *m = p->queue;
    p->queue = m->next;
    if (!p->queue)
        p->queue_tail = &p->queue;
    m->next = NULL;
    return m;
}

/* ---- answering, I/O thread ----------------------------------------------------------------------------------------- */

/* Takes the callback out: it is called once, and not at all when its waiter has left or the publisher was given up. */
static bq_published_fn claim(bq_publisher *p, bq_message *m)
{
    bq_published_fn fn = p->abandoned ? NULL : m->done;
    m->done = NULL;
    m->answered = true;
    return fn;
}

static void answer(bq_message *m, bq_published_fn fn, bq_status status, const bq_error *error)
{
    if (fn)
        fn(status, m->id, status ? error : NULL, m->arg);
}

/* Finishes at most REAP messages whose completions stand in `done` (or `why` for all of them). Their room is given
 * back at once for all, so that whoever waits for it wakes once. */
static void finish(bq_publisher *p, bq_message **list, size_t count, const bq_completion *done, const bq_error *why)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count; i++)
        p->fns[i] = claim(p, list[i]);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < count; i++)
        answer(list[i], p->fns[i], done ? done[i].status : why->status, done ? &done[i].error : why);
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count; i++)
        delist(p, list[i]);
    bool waiting = p->waiting > 0;
    pthread_mutex_unlock(&p->lock);
    /* Not under the lock: whoever wakes needs it at once. */
    if (waiting)
        pthread_cond_broadcast(&p->changed);
    for (size_t i = 0; i < count; i++)
        message_put(p, list[i]);
}

static bool reap(bq_publisher *p)
{
    size_t n = bq_link_reap(&p->link, p->done, REAP);
    for (size_t i = 0; i < n; i++)
        p->reaped[i] = bq_message_of(p->done[i].op);
    if (n)
        finish(p, p->reaped, n, p->done, NULL);
    return n > 0;
}

/* Offers what is queued, in one call. True when there is more to offer at once. */
static bool submit(bq_publisher *p)
{
    size_t n = 0;
    pthread_mutex_lock(&p->lock);
    for (bq_message *m = p->queue; m && n < BATCH; m = m->next) {
        m->offered = true;
        p->batch[n++] = &m->op;
    }
    pthread_mutex_unlock(&p->lock);
    if (n == 0)
        return false;
    size_t taken = bq_link_submit(&p->link, p->batch, n);
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < taken; i++)
        (void)dequeue(p);
    for (size_t i = taken; i < n; i++)
        bq_message_of(p->batch[i])->offered = false;
    if (taken < n)
        bq_message_of(p->batch[taken])->refused = true;
    bool more = p->queue != NULL;
    pthread_mutex_unlock(&p->lock);
    return more && taken > 0;
}

/* ---- deadlines, I/O thread ------------------------------------------------------------------------------------------ */

static void say_late(const bq_publisher *p, bool sent, bq_error *err)
{
    if (sent)
        (void)bq_fail_flags(err, BQ_UNKNOWN, BQ_ERROR_MAYBE_DONE | BQ_ERROR_RETRYABLE, 0,
                            "no confirmation within %lld ms: it may have been published", (long long)p->timeout_ms);
    else if (!atomic_load(&p->link.up))
        (void)bq_fail_flags(err, BQ_UNAVAILABLE, BQ_ERROR_RETRYABLE, p->link.error.native,
                            "not sent within %lld ms: %s", (long long)p->timeout_ms,
                            p->link.error.text[0] ? p->link.error.text : "not connected");
    else
        (void)bq_fail_flags(err, BQ_TIMEOUT, BQ_ERROR_RETRYABLE, 0, "not sent within %lld ms",
                            (long long)p->timeout_ms);
}

/* Fails what is queued from the front: everything, or what is past its deadline. */
static void expire_queued(bq_publisher *p, bool everything, const bq_error *why)
{
    bq_message *list[64];
    size_t n;
    do {
        n = 0;
        pthread_mutex_lock(&p->lock);
        while (n < 64 && p->queue && (everything || p->queue->op.deadline_ms <= p->link.now_ms))
            list[n++] = dequeue(p);
        pthread_mutex_unlock(&p->lock);
        if (n)
            finish(p, list, n, NULL, why);
    } while (n == 64);
}

/* Calls back for a sent message that the driver has not answered in time. Its object stays: the driver holds it. */
static bool answer_overdue(bq_publisher *p, int64_t before_ms, const bq_error *why)
{
    bq_message *m;
    bq_published_fn fn = NULL;
    pthread_mutex_lock(&p->lock);
    for (m = p->oldest; m && m->answered; m = m->newer)
        ;
    bool found = m && m->op.deadline_ms <= before_ms;
    if (found)
        fn = claim(p, m);
    pthread_mutex_unlock(&p->lock);
    if (!found)
        return false;
    answer(m, fn, why->status, why);
    pthread_mutex_lock(&p->lock);
    m->told = true;
    if (p->waiting)
        pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return true;
}

static void expire(bq_publisher *p)
{
    bq_error why;
    if (p->link.now_ms < p->next_expiry_ms)
        return;
    say_late(p, false, &why);
    expire_queued(p, false, &why);
    say_late(p, true, &why);
    while (answer_overdue(p, p->link.now_ms - GRACE_MS, &why))
        ;
    /* What is submitted from now on cannot be due earlier than this; what is there already says so itself. */
    int64_t next = bq_deadline(p->link.now_ms, p->timeout_ms);
    pthread_mutex_lock(&p->lock);
    if (p->queue && p->queue->op.deadline_ms < next)
        next = p->queue->op.deadline_ms;
    for (bq_message *m = p->oldest; m; m = m->newer)
        if (!m->answered) {
            if (bq_deadline(m->op.deadline_ms, GRACE_MS) < next)
                next = bq_deadline(m->op.deadline_ms, GRACE_MS);
            break;
        }
    pthread_mutex_unlock(&p->lock);
    p->next_expiry_ms = next;
}

/* ---- the I/O thread -------------------------------------------------------------------------------------------------- */

static void on_event(void *owner, const bq_event *event)
{
    bq_publisher *p = owner;
    bool up = event->kind == BQ_EVENT_UP;
    if (!up && event->kind != BQ_EVENT_DOWN && event->kind != BQ_EVENT_FATAL)
        return;
    pthread_mutex_lock(&p->lock);
    p->up = up;
    if (!up)
        p->down = p->link.error;
    if (event->kind == BQ_EVENT_FATAL) {
        p->failed = p->link.error.status ? p->link.error.status : BQ_INTERNAL;
        p->failure = p->link.error;
    }
    bool silent = p->abandoned;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->options.on_connection && !silent)
        p->options.on_connection(up, up ? NULL : &p->link.error, p->options.arg);
}

static bool pending(void *owner)
{
    bq_publisher *p = owner;
    pthread_mutex_lock(&p->lock);
    /* What the driver did not accept waits for its descriptors, not for us. */
    bool work = (p->queue && !p->queue->refused) || p->closing;
    pthread_mutex_unlock(&p->lock);
    return work;
}

/* True when it is time to go. */
static bool closing(bq_publisher *p)
{
    pthread_mutex_lock(&p->lock);
    bool go = p->closing && (p->in_flight == 0 || p->link.now_ms >= p->close_deadline_ms || p->failed);
    pthread_mutex_unlock(&p->lock);
    return go;
}

static void run(bq_publisher *p)
{
    bq_error closed;
    p->next_expiry_ms = 0;
    while (!closing(p)) {
        bool busy = submit(p);
        busy |= reap(p);
        expire(p);
        if (p->link.fatal)
            expire_queued(p, true, &p->link.error);
        int64_t until = p->next_expiry_ms;
        pthread_mutex_lock(&p->lock);
        if (p->closing && p->close_deadline_ms < until)
            until = p->close_deadline_ms;
        pthread_mutex_unlock(&p->lock);
        bq_link_turn(&p->link, &p->wake, until, busy ? BQ_TURN_BUSY : BQ_TURN_WAIT);
    }
    (void)bq_fail(&closed, BQ_CLOSED, "the publisher was closed before it was sent");
    expire_queued(p, true, &closed);
    say_late(p, true, &closed);
    while (answer_overdue(p, BQ_NEVER, &closed))
        ;
}

static void publisher_free(bq_publisher *p)
{
    bq_message *m;
    while (p->oldest) {
        m = p->oldest;
        p->oldest = m->newer;
        bq_message_free(m);
    }
    while (p->pool.slots && (m = bq_ring_pop(&p->pool)))
        bq_message_free(m);
    bq_ring_clear(&p->pool);
    bq_link_clear(&p->link);
    bq_wake_clear(&p->wake);
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->lock);
    bq_free(p->lang);
    bq_free(p);
}

static void *io_main(void *arg)
{
    bq_publisher *p = arg;
    bq_error err;
    bq_status st = bq_link_open(&p->link, &err);
    pthread_mutex_lock(&p->lock);
    p->started = true;
    p->opened = !st;
    if (st) {
        p->failed = st;
        p->failure = err;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (!st) {
        run(p);
        pthread_mutex_lock(&p->lock);
        int64_t left = p->close_deadline_ms - bq_now_ms();
        pthread_mutex_unlock(&p->lock);
        bq_link_close(&p->link, left < 100 ? 100 : left);
    }
    pthread_mutex_lock(&p->lock);
    p->exited = true;
    bool alone = p->abandoned;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (alone)
        publisher_free(p);
    return NULL;
}

/* ---- open and close ------------------------------------------------------------------------------------------------- */

static void options_copy(bq_publisher *p, const bq_publisher_options *given)
{
    static const bq_publisher_options defaults = BQ_PUBLISHER_OPTIONS_INIT;
    p->options = defaults;
    if (given) {
        size_t size = given->size && given->size < sizeof *given ? given->size : sizeof *given;
        memcpy(&p->options, given, size);
    }
    if (!p->options.max_in_flight)
        p->options.max_in_flight = MAX_IN_FLIGHT;
    if (!p->options.max_bytes)
        p->options.max_bytes = MAX_BYTES;
}

/* Starts the I/O thread and waits until the driver has been opened. */
static bq_status publisher_start(bq_publisher *p, bq_error *err)
{
    bq_status st = bq_thread_start(&p->thread, "bq-publisher", true, io_main, p, err);
    if (st)
        return st;
    pthread_mutex_lock(&p->lock);
    while (!p->started)
        (void)pthread_cond_wait(&p->changed, &p->lock);
    /* A failure after the opening is the publisher's, not ours: its thread runs on. */
    st = p->opened ? BQ_OK : p->failed;
    if (st && err)
        *err = p->failure;
    pthread_mutex_unlock(&p->lock);
    if (st)
        (void)pthread_join(p->thread, NULL);
    return st;
}

bq_status bq_publisher_open(bq_publisher **out, const char *url, const bq_publisher_options *options, bq_error *err)
{
    *out = NULL;
    bq_publisher *p = bq_calloc(1, sizeof *p);
    if (!p)
        return bq_fail_nomem(err);
    p->wake.fd = -1;
    p->queue_tail = &p->queue;
    options_copy(p, options);
    (void)pthread_mutex_init(&p->lock, NULL);
    bq_status st = bq_cond_init(&p->changed, err);
    if (st) {
        (void)pthread_mutex_destroy(&p->lock);
        bq_free(p);
        return st;
    }
    p->lang = bq_strndup(p->options.lang ? bq_str_of(p->options.lang) : BQ_STR("c"));
    if (!p->lang || bq_ring_init(&p->pool, POOL)) {
        st = bq_fail_nomem(err);
        goto out;
    }
    bq_link_spec spec = {url, BQ_ROLE_PUBLISH, NULL, 0, 0, 0, p->options.logger, on_event, pending, p};
    st = bq_link_init(&p->link, &spec, err);
    if (st)
        goto out;
    p->timeout_ms = p->options.timeout_ms > 0 ? p->options.timeout_ms : bq_link_timeout(&p->link);
    bq_link_call_limit(&p->link, p->timeout_ms);
    st = bq_wake_init(&p->wake, err);
    if (st)
        goto out;
    st = publisher_start(p, err);
    if (st)
        goto out;
    *out = p;
    return BQ_OK;
out:
    publisher_free(p);
    return st;
}

bq_status bq_publisher_wait(bq_publisher *p, int64_t timeout_ms, bq_error *err)
{
    int64_t deadline = bq_deadline(bq_now_ms(), timeout_ms);
    bq_status st = bq_link_here(&p->link, err);
    if (st)
        return st;
    pthread_mutex_lock(&p->lock);
    p->waiting++;
    while (!p->up && !p->failed && bq_cond_wait_until(&p->changed, &p->lock, deadline))
        ;
    p->waiting--;
    if (p->failed) {
        st = p->failed;
        if (err)
            *err = p->failure;
    } else if (!p->up) {
        st = bq_fail_flags(err, BQ_UNAVAILABLE, BQ_ERROR_RETRYABLE, p->down.native,
                           "%s: not connected within %lld ms%s%s", p->link.target.url.safe, (long long)timeout_ms,
                           p->down.text[0] ? ": " : "", p->down.text);
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

void bq_publisher_close(bq_publisher *p, int64_t timeout_ms)
{
    /* In a forked child nothing is here to be ended, and the connection is the parent's. */
    if (!p || bq_link_here(&p->link, NULL))
        return;
    int64_t wait = timeout_ms < 0 ? 0 : timeout_ms;
    bq_link_call_limit(&p->link, wait + 500); /* before the I/O thread may go, and its watchdog with it */
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    p->close_deadline_ms = bq_deadline(bq_now_ms(), wait);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    bq_wake_signal(&p->wake);

    /* The driver's close is bounded too; a client library that ignores even its interrupt is left behind. */
    int64_t give_up = bq_deadline(bq_now_ms(), wait + BQ_CLOSE_MS);
    pthread_mutex_lock(&p->lock);
    while (!p->exited && bq_cond_wait_until(&p->changed, &p->lock, give_up))
        ;
    bool exited = p->exited;
    if (!exited) {
        bq_log(&p->link.logger, BQ_LOG_ERROR, "%s: the client library does not return, its connection is abandoned",
               p->link.target.url.safe);
        bq_link_mute(&p->link);
        (void)pthread_detach(p->thread);
        p->abandoned = true; /* its thread frees it when it comes back after all */
    }
    pthread_mutex_unlock(&p->lock);
    if (!exited)
        return;
    (void)pthread_join(p->thread, NULL);
    publisher_free(p);
}

/* ---- publishing ------------------------------------------------------------------------------------------------------ */

/* Waits for room with the lock held. The one message that is larger than all the room there is goes alone. */
static bq_status wait_for_room(bq_publisher *p, size_t weight, int64_t deadline_ms, bq_error *err)
{
    bool io_thread = pthread_equal(pthread_self(), p->thread);
    for (;;) {
        if (p->failed) {
            if (err)
                *err = p->failure;
            return p->failed;
        }
        if (p->closing)
            return bq_fail(err, BQ_CLOSED, "the publisher is closed");
        if (p->in_flight < p->options.max_in_flight &&
            (p->in_flight == 0 || (p->bytes <= p->options.max_bytes && weight <= p->options.max_bytes - p->bytes)))
            return BQ_OK;
        p->waiting++;
        bool more = !io_thread && bq_cond_wait_until(&p->changed, &p->lock, deadline_ms);
        p->waiting--;
        if (!more)
            return bq_fail_flags(err, BQ_BUSY, BQ_ERROR_RETRYABLE, 0, "%zu messages are in flight already",
                                 p->in_flight);
    }
}

static bq_status enqueue(bq_publisher *p, bq_message *m, bq_published_fn done, void *arg, bq_error *err)
{
    int64_t now = bq_now_ms();
    m->done = done;
    m->arg = arg;
    pthread_mutex_lock(&p->lock);
    bq_status st = wait_for_room(p, m->weight, bq_deadline(now, p->timeout_ms), err);
    if (!st) {
        if (p->waiting)
            now = bq_now_ms();
        m->op.deadline_ms = bq_deadline(now, p->timeout_ms);
        if (p->newest && p->newest->op.deadline_ms > m->op.deadline_ms)
            m->op.deadline_ms = p->newest->op.deadline_ms;
        enlist(p, m);
    }
    pthread_mutex_unlock(&p->lock);
    if (!st)
        bq_wake_up(&p->wake, true);
    return st;
}

static bq_status submit_spec(bq_publisher *p, const bq_message_spec *spec, bq_published_fn done, void *arg,
                             bq_message **out, char *id, bq_error *err)
{
    bq_status st = bq_link_here(&p->link, err);
    if (st)
        return st;
    bq_message *m = message_get(p);
    if (!m)
        return bq_fail_nomem(err);
    st = bq_message_build(m, &p->link, spec, bq_str_of(p->lang), err);
    if (!st) {
        /* Before it is queued: from then on it belongs to the I/O thread. */
        if (id)
            memcpy(id, m->id, BQ_ID_SIZE);
        if (out)
            *out = m;
        st = enqueue(p, m, done, arg, err);
    }
    if (st)
        message_put(p, m);
    return st;
}

bq_status bq_publish_async(bq_publisher *p, const bq_message_spec *spec, bq_published_fn done, void *arg, bq_error *err)
{
    return submit_spec(p, spec, done, arg, NULL, NULL, err);
}

typedef struct waiter {
    bq_publisher *publisher;
    pthread_cond_t cond;
    bool answered; /* under the publisher's lock */
    bq_status status;
    bq_error error;
} waiter;

static void wake_waiter(bq_status status, const char *id, const bq_error *err, void *arg)
{
    waiter *w = arg;
    (void)id;
    pthread_mutex_lock(&w->publisher->lock);
    w->status = status;
    if (status && err)
        w->error = *err;
    w->answered = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->publisher->lock);
}

/* The I/O thread answers every message in time unless a driver's call holds it. Then the waiter leaves by itself. */
static bq_status await(bq_publisher *p, waiter *w, bq_message *m, bq_error *err)
{
    int64_t give_up = bq_deadline(bq_now_ms(), p->timeout_ms + 2 * GRACE_MS);
    bool patient = true;
    pthread_mutex_lock(&p->lock);
    while (!w->answered) {
        if (patient) {
            patient = bq_cond_wait_until(&w->cond, &p->lock, give_up);
        } else if (m->answered) {
            (void)pthread_cond_wait(&w->cond, &p->lock); /* being called back right now */
        } else {
            m->done = NULL; /* the message itself stays where it is */
            w->status = BQ_UNKNOWN;
            say_late(p, true, &w->error);
            break;
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (w->status && err)
        *err = w->error;
    return w->status;
}

bq_status bq_publish(bq_publisher *p, const bq_message_spec *spec, char id[BQ_ID_SIZE], bq_error *err)
{
    waiter w = {.publisher = p, .answered = false, .status = BQ_OK};
    bq_message *m = NULL;
    bq_status st = bq_cond_init(&w.cond, err);
    if (st)
        return st;
    st = submit_spec(p, spec, wake_waiter, &w, &m, id, err);
    if (!st)
        st = await(p, &w, m, err);
    (void)pthread_cond_destroy(&w.cond);
    return st;
}

bq_status bq_publisher_flush(bq_publisher *p, int64_t timeout_ms, bq_error *err)
{
    int64_t deadline = bq_deadline(bq_now_ms(), timeout_ms);
    bq_status st = bq_link_here(&p->link, err);
    if (st)
        return st;
    pthread_mutex_lock(&p->lock);
    uint64_t last = p->seq;
    p->waiting++;
    for (;;) {
        bq_message *m = p->oldest;
        while (m && m->told && m->seq <= last)
            m = m->newer;
        if (!m || m->seq > last)
            break;
        if (!bq_cond_wait_until(&p->changed, &p->lock, deadline)) {
            st = bq_fail_flags(err, BQ_TIMEOUT, BQ_ERROR_RETRYABLE, 0, "%zu messages are not confirmed yet",
                               p->in_flight);
            break;
        }
    }
    p->waiting--;
    pthread_mutex_unlock(&p->lock);
    return st;
}
