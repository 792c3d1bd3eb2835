/*
 * mux.c - `bq work --handle-stdio`: a handler thread leaves its delivery here and says that it is settled later; the
 * main thread gives it to the coprocess that holds the fewest and settles it when the answer comes. The main thread is
 * woken only when it sleeps, so that many messages share one system call.
 *
 * Another thread waits for the end of the consumer, for which there is no descriptor.
 */
#include "mux.h"
#include "coprocess.h"
#include "interrupt.h"
#include "out.h"
#include "work.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* How often cancelled deliveries are looked for: once a signal has come, and before (a consumer may stop by itself). */
#define TICK_STOPPING_MS 50
#define TICK_MS 500

/* Deliveries in the order in which they came; it grows, but never beyond what the consumer's prefetch lets in. */
typedef struct delivery_list {
    bq_delivery **items;
    size_t count, cap;
} delivery_list;

struct mux {
    coprocess *processes;
    size_t count;
    coprocess_events events;
    struct pollfd *fds;
    int wake_fd;
    delivery_list waiting; /* main thread only: for a coprocess to be ready */
    size_t waiting_done;   /* so many of them are given away */
    int64_t checked_ms;

    pthread_mutex_t lock; /* of what follows */
    delivery_list arrived;
    bool asleep;
    bool closed;  /* nothing is taken any more */
    bool stopped; /* the consumer has */
    bq_status status;
    bq_error err;
    bq_consumer *consumer;
};

static bool append(delivery_list *list, bq_delivery *delivery)
{
    if (list->count == list->cap) {
        size_t cap = list->cap * 2 + 64;
        bq_delivery **items = realloc(list->items, cap * sizeof(*items));
        if (!items)
            return false;
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = delivery;
    return true;
}

/* ---- other threads --------------------------------------------------------------------------------------------------- */

static void wake(const mux *m)
{
    uint64_t one = 1;
    ssize_t n = write(m->wake_fd, &one, sizeof(one));
    (void)n; /* a full counter is readable already */
}

bq_outcome mux_handle(bq_delivery *delivery, void *arg)
{
    mux *m = arg;
    pthread_mutex_lock(&m->lock);
    bool taken = !m->closed && append(&m->arrived, delivery);
    bool sleeps = m->asleep;
    m->asleep = false;
    pthread_mutex_unlock(&m->lock);
    if (sleeps)
        wake(m);
    return taken ? BQ_DEFERRED : BQ_RELEASED;
}

static void *wait_for_consumer(void *arg)
{
    mux *m = arg;
    bq_error err = {.text = ""};
    bq_status status = bq_consumer_wait(m->consumer, -1, &err);
    pthread_mutex_lock(&m->lock);
    m->stopped = true;
    m->status = status;
    m->err = err;
    pthread_mutex_unlock(&m->lock);
    wake(m);
    return NULL;
}

/* ---- the main thread ------------------------------------------------------------------------------------------------- */

/* Moves what has arrived behind what waits; whether the consumer has stopped. */
static bool collect(mux *m)
{
    delivery_list empty = {0};
    pthread_mutex_lock(&m->lock);
    bool stopped = m->stopped;
    delivery_list arrived = m->arrived;
    if (m->waiting_done == m->waiting.count) {
        /* The usual case: the lists change places. */
        m->arrived = m->waiting;
        m->arrived.count = 0;
        m->waiting = arrived;
        m->waiting_done = 0;
        arrived = empty;
    } else {
        m->arrived.count = 0;
        for (size_t i = 0; i < arrived.count; i++)
            if (!append(&m->waiting, arrived.items[i]))
                bq_delivery_settle(arrived.items[i], BQ_RELEASED);
    }
    pthread_mutex_unlock(&m->lock);
    return stopped;
}

static void give_back(bq_delivery *delivery, void *arg)
{
    mux *m = arg;
    if (!append(&m->waiting, delivery))
        bq_delivery_settle(delivery, BQ_RELEASED);
}

static coprocess *least_busy(mux *m)
{
    coprocess *best = NULL;
    for (size_t i = 0; i < m->count; i++) {
        coprocess *c = &m->processes[i];
        if (c->state == COPROCESS_RUNNING && c->in_fd >= 0 && (!best || c->jobs.count < best->jobs.count))
            best = c;
    }
    return best;
}

static void give_away(mux *m)
{
    coprocess *c;
    while (m->waiting_done < m->waiting.count && (c = least_busy(m))) {
        bq_delivery *delivery = m->waiting.items[m->waiting_done++];
        if (!coprocess_give(c, delivery))
            bq_delivery_settle(delivery, BQ_RELEASED);
    }
    for (size_t i = 0; i < m->count; i++)
        coprocess_write(&m->processes[i]);
}

static void release_waiting(mux *m)
{
    while (m->waiting_done < m->waiting.count)
        bq_delivery_settle(m->waiting.items[m->waiting_done++], BQ_RELEASED);
}

/* What the consumer has given up on is settled, wherever it is. True when there is something left to look at. */
static bool release_cancelled(mux *m)
{
    bool left = m->waiting_done < m->waiting.count;
    if (left && bq_delivery_cancelled(m->waiting.items[m->waiting_done]))
        release_waiting(m);
    for (size_t i = 0; i < m->count; i++) {
        coprocess_release(&m->processes[i], false);
        left = left || m->processes[i].jobs.count > 0;
    }
    return left;
}

static bool any_broken(const mux *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->processes[i].state == COPROCESS_BROKEN)
            return true;
    return false;
}

/* `stopping`: a signal has been seen, and need not wake anybody any more. */
static size_t describe(mux *m, bool stopping, int64_t *until_ms)
{
    size_t n = 0;
    m->fds[n++] = (struct pollfd){m->wake_fd, POLLIN, 0};
    m->fds[n++] = (struct pollfd){stopping ? -1 : interrupt_fd(), POLLIN, 0};
    for (size_t i = 0; i < m->count; i++) {
        coprocess *c = &m->processes[i];
        bool running = c->state == COPROCESS_RUNNING;
        bool wants_out = c->out_done < c->out.len;
        m->fds[n++] = (struct pollfd){running ? c->answers.fd : -1, POLLIN, 0};
        m->fds[n++] = (struct pollfd){running ? c->child.fd : -1, POLLIN, 0};
        /* Asked for nothing, it still tells when the other end is closed. */
        m->fds[n++] = (struct pollfd){running ? c->in_fd : -1, wants_out ? POLLOUT : 0, 0};
        *until_ms = coprocess_next(c, *until_ms);
    }
    return n;
}

static void sleep_until(mux *m, size_t n, int64_t until_ms, int64_t now_ms)
{
    int timeout = until_ms <= now_ms ? 0 : until_ms - now_ms > 3600000 ? 3600000 : (int)(until_ms - now_ms);
    pthread_mutex_lock(&m->lock);
    bool idle = m->arrived.count == 0 && !m->stopped;
    m->asleep = idle;
    pthread_mutex_unlock(&m->lock);
    if (poll(m->fds, n, idle ? timeout : 0) < 0) {
        for (size_t i = 0; i < n; i++)
            m->fds[i].revents = 0;
        return;
    }
    if (m->fds[0].revents) {
        uint64_t count;
        ssize_t got = read(m->wake_fd, &count, sizeof(count));
        (void)got;
    }
}

static void serve(mux *m, int64_t now_ms)
{
    for (size_t i = 0; i < m->count; i++) {
        coprocess *c = &m->processes[i];
        const struct pollfd *fds = &m->fds[2 + 3 * i];
        if (fds[0].revents || fds[1].revents)
            coprocess_read(c);
        if (fds[2].revents & POLLERR)
            coprocess_deaf(c);
        else if (fds[2].revents)
            coprocess_write(c);
        coprocess_check(c, now_ms);
    }
}

static void be_quiet(mux *m)
{
    for (size_t i = 0; i < m->count; i++)
        m->processes[i].quiet = true;
}

/* One round: what has arrived is given away, what is due is done. Until when to sleep. */
static int64_t work_round(mux *m, int64_t now_ms)
{
    for (size_t i = 0; i < m->count; i++)
        coprocess_start_due(&m->processes[i], now_ms);
    give_away(m);
    if (now_ms - m->checked_ms >= TICK_MS) {
        release_cancelled(m);
        m->checked_ms = now_ms;
    }
    bool busy = m->waiting_done < m->waiting.count;
    for (size_t i = 0; i < m->count && !busy; i++)
        busy = m->processes[i].jobs.count > 0;
    return busy ? m->checked_ms + TICK_MS : INT64_MAX;
}

/* A round once a signal has come: nothing new is begun. */
static int64_t stop_round(mux *m, int64_t now_ms)
{
    be_quiet(m);
    release_waiting(m);
    release_cancelled(m);
    return now_ms + TICK_STOPPING_MS;
}

static bool run(mux *m)
{
    bool broken = false;
    while (!collect(m)) {
        int64_t now = monotonic_ms();
        bool stopping = interrupt_count() > 0 || broken;
        int64_t until = stopping ? stop_round(m, now) : work_round(m, now);
        size_t n = describe(m, stopping, &until);
        sleep_until(m, n, until, now);
        serve(m, monotonic_ms());
        if (!broken && any_broken(m)) {
            broken = true;
            work_stop();
        }
    }
    be_quiet(m);
    release_waiting(m);
    return broken;
}

void mux_abandon(mux *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    pthread_mutex_unlock(&m->lock);
    (void)collect(m);
    release_waiting(m);
}

int mux_run(mux *m, bq_consumer *consumer, bq_status *status, bq_error *err)
{
    pthread_t waiter;
    m->consumer = consumer;
    interrupt_hold(true); /* signals are for the main thread */
    int rc = pthread_create(&waiter, NULL, wait_for_consumer, m);
    interrupt_hold(false);
    if (rc) {
        out_error("cannot start a thread: %s", strerror(rc));
        work_stop();
        *status = bq_consumer_wait(consumer, -1, err);
        return CLI_TEMPORARY;
    }
    bool broken = run(m);
    pthread_join(waiter, NULL);
    for (size_t i = 0; i < m->count; i++) {
        coprocess_release(&m->processes[i], true);
        coprocess_finish(&m->processes[i]);
    }
    *status = m->status;
    *err = m->err;
    return broken ? CLI_CONFIG : CLI_DONE;
}

/* ---- life ------------------------------------------------------------------------------------------------------------ */

mux *mux_new(const mux_options *options)
{
    mux *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->events = (coprocess_events){give_back, m};
    pthread_mutex_init(&m->lock, NULL);
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->processes = calloc(options->coprocesses, sizeof(*m->processes));
    m->fds = calloc(2 + 3 * options->coprocesses, sizeof(*m->fds));
    if (m->wake_fd < 0 || !m->processes || !m->fds)
        goto fail;
    for (; m->count < options->coprocesses; m->count++)
        if (!coprocess_init(&m->processes[m->count], m->count + 1, options->command, options->timeout_ms, &m->events))
            goto fail;
    return m;
fail:
    mux_free(m);
    return NULL;
}

void mux_free(mux *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        coprocess_clear(&m->processes[i]);
    free(m->processes);
    free(m->fds);
    free(m->waiting.items);
    free(m->arrived.items);
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
