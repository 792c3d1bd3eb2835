/*
 * runtime/loop.c - one opened transport and the loop around it. See loop.h.
 *
 * A turn of the loop asks the driver which descriptors to watch and until when, polls them together with the wake-up
 * descriptor, and lets the driver do what is due. The watchdog is a thread that exists only for drivers with an
 * `interrupt`: it looks now and then whether a driver call has been running for longer than one operation may take.
 *
 * Thread rule: the I/O thread, except bq_link_init, bq_link_clear, bq_link_mute and bq_link_call_limit.
 */
#include "runtime/loop.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* ---- watchdog --------------------------------------------------------------------------------------------------- */

static int64_t dog_period(int64_t limit_ms)
{
    int64_t period = limit_ms / 4;
    return period < 20 ? 20 : period > 1000 ? 1000 : period;
}

static void *dog_main(void *arg)
{
    bq_link *link = arg;
    bq_watchdog *dog = &link->dog;
    int64_t told = 0;
    pthread_mutex_lock(&dog->lock);
    while (!dog->stop) {
        int64_t limit = atomic_load(&dog->limit_ms);
        (void)bq_cond_wait_until(&dog->cond, &dog->lock, bq_now_ms() + dog_period(limit));
        int64_t since = atomic_load(&dog->busy_since);
        if (dog->stop || since == 0 || bq_now_ms() - since <= limit)
            continue;
        pthread_mutex_unlock(&dog->lock);
        if (told != since)
            bq_log(&link->logger, BQ_LOG_WARN,
                   "%s: a call into the client library takes longer than %lld ms, "
                   "interrupting it",
                   link->target.url.safe, (long long)limit);
        told = since;
        /* Repeated until the call returns: it may have begun another wait. */
        link->ops->interrupt(link->state);
        pthread_mutex_lock(&dog->lock);
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

static bq_status dog_start(bq_link *link, bq_error *err)
{
    bq_watchdog *dog = &link->dog;
    if (!link->ops->interrupt)
        return BQ_OK;
    bq_status st = bq_cond_init(&dog->cond, err);
    if (st)
        return st;
    (void)pthread_mutex_init(&dog->lock, NULL);
    dog->stop = false;
    st = bq_thread_start(&dog->thread, "bq-watchdog", true, dog_main, link, err);
    if (st) {
        (void)pthread_mutex_destroy(&dog->lock);
        (void)pthread_cond_destroy(&dog->cond);
        return st;
    }
    dog->running = true;
    return BQ_OK;
}

static void dog_stop(bq_link *link)
{
    bq_watchdog *dog = &link->dog;
    if (!dog->running)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->stop = true;
    pthread_cond_signal(&dog->cond);
    pthread_mutex_unlock(&dog->lock);
    (void)pthread_join(dog->thread, NULL);
    (void)pthread_mutex_destroy(&dog->lock);
    (void)pthread_cond_destroy(&dog->cond);
    dog->running = false;
}

void bq_link_call_limit(bq_link *link, int64_t limit_ms)
{
    atomic_store(&link->dog.limit_ms, limit_ms < 1 ? 1 : limit_ms);
    if (!link->dog.running)
        return;
    pthread_mutex_lock(&link->dog.lock);
    pthread_cond_signal(&link->dog.cond); /* its period follows from the limit */
    pthread_mutex_unlock(&link->dog.lock);
}

void bq_link_enter(bq_link *link)
{
    if (link->dog.running)
        atomic_store_explicit(&link->dog.busy_since, bq_now_ms(), memory_order_relaxed);
}

void bq_link_leave(bq_link *link)
{
    if (link->dog.running)
        atomic_store_explicit(&link->dog.busy_since, 0, memory_order_relaxed);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void link_log(bq_log_level level, const char *line, void *arg)
{
    bq_link *link = arg;
    if (!atomic_load_explicit(&link->muted, memory_order_acquire))
        link->spec.logger.fn(level, line, link->spec.logger.arg);
}

static void note_error(bq_link *link, const bq_error *error, const char *otherwise)
{
    if (error)
        link->error = *error;
    else
        (void)bq_fail(&link->error, BQ_UNAVAILABLE, "%s", otherwise);
}

static void host_event(const bq_transport_host *host, const bq_event *event)
{
    bq_link *link = host->arg;
    const char *url = link->target.url.safe;
    switch (event->kind) {
    case BQ_EVENT_UP:
        atomic_store(&link->up, true);
        bq_log(&link->logger, BQ_LOG_INFO, "%s: connected", url);
        break;
    case BQ_EVENT_DOWN:
        atomic_store(&link->up, false);
        note_error(link, event->error, "connection lost");
        bq_log(&link->logger, BQ_LOG_WARN, "%s: connection down: %s", url, link->error.text);
        break;
    case BQ_EVENT_FATAL:
        atomic_store(&link->up, false);
        note_error(link, event->error, "the connection cannot be used");
        link->error.flags |= BQ_ERROR_FATAL;
        link->fatal = true;
        bq_log(&link->logger, BQ_LOG_ERROR, "%s: %s", url, link->error.text);
        break;
    case BQ_EVENT_BLOCKED: bq_log(&link->logger, BQ_LOG_WARN, "%s: the broker refuses writes for now", url); break;
    case BQ_EVENT_UNBLOCKED: bq_log(&link->logger, BQ_LOG_INFO, "%s: the broker takes writes again", url); break;
    case BQ_EVENT_REVOKING:
    case BQ_EVENT_REVOKED:
    case BQ_EVENT_SETTLE_FAILED: break; /* the owner's business */
    }
    if (link->spec.on_event)
        link->spec.on_event(link->spec.owner, event);
}

/* ---- forks --------------------------------------------------------------------------------------------------------- */

/* Counted by the child of each fork: asking for the process's number would be a system call for every message. */
static atomic_uint process;
static pthread_once_t counting = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&process, 1, memory_order_relaxed);
}

static void start_counting(void)
{
    /* It fails for want of memory alone; then a child is told by its timeout, as without this. */
    (void)pthread_atfork(NULL, NULL, count_fork);
}

bq_status bq_link_here(const bq_link *link, bq_error *err)
{
    if (link->process == atomic_load_explicit(&process, memory_order_relaxed))
        return BQ_OK;
    return bq_fail(err, BQ_INVALID, "%s: opened before fork, in another process: open it in the process that uses it",
                   link->target.url.safe);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

bq_status bq_link_init(bq_link *link, const bq_link_spec *spec, bq_error *err)
{
    memset(link, 0, sizeof *link);
    link->spec = *spec;
    (void)pthread_once(&counting, start_counting);
    link->process = atomic_load_explicit(&process, memory_order_relaxed);
    atomic_init(&link->muted, false);
    atomic_init(&link->up, false);
    atomic_init(&link->dog.busy_since, 0);
    atomic_init(&link->dog.limit_ms, 30000);
    bq_status st = bq_target_parse(&link->target, spec->url, err);
    if (st)
        return st;
    link->ops = link->target.ops;
    link->binding = link->target.binding;
    link->caps = link->ops->capabilities;
    link->want = spec->prefetch;
    link->state = bq_calloc(1, link->ops->state_size ? link->ops->state_size : 1);
    if (!link->state) {
        bq_target_clear(&link->target);
        return bq_fail_nomem(err);
    }
    link->logger = spec->logger;
    if (link->logger.fn) {
        link->logger.fn = link_log;
        link->logger.arg = link;
    }
    link->host = (bq_transport_host){.event = host_event, .now_ms = bq_now_ms, .logger = link->logger, .arg = link};
    atomic_store(&link->dog.limit_ms, bq_link_timeout(link));
    return BQ_OK;
}

bq_status bq_link_open(bq_link *link, bq_error *err)
{
    bq_status st = dog_start(link, err);
    if (st)
        return st;
    link->config =
        (bq_transport_config){&link->target.url,      link->target.options, link->spec.roles,        link->spec.queues,
                              link->spec.queue_count, link->spec.prefetch,  link->spec.max_attempts, &link->host};
    link->now_ms = bq_now_ms();
    bq_link_enter(link);
    st = link->ops->open(link->state, &link->config, err);
    bq_link_leave(link);
    link->opened = true; /* `close` also follows a failed open */
    link->fatal = st != BQ_OK;
    if (st)
        bq_link_close(link, BQ_CLOSE_MS);
    return st;
}

/* Flush, commit, leave the group: what the driver does in an orderly end, while its loop goes on. */
static void finish(bq_link *link, int64_t deadline_ms)
{
    bq_completion late[16];
    if (!link->ops->finish || !link->ops->finished || link->fatal)
        return;
    bq_link_enter(link);
    link->ops->finish(link->state, deadline_ms);
    bq_link_leave(link);
    link->want = 0;
    while (!link->fatal && !link->ops->finished(link->state) && bq_now_ms() < deadline_ms) {
        bq_link_turn(link, NULL, deadline_ms, BQ_TURN_WAIT);
        (void)bq_link_reap(link, late, sizeof late / sizeof *late); /* nobody waits for these any more */
    }
}

void bq_link_close(bq_link *link, int64_t timeout_ms)
{
    if (link->opened) {
        int64_t began = bq_now_ms();
        finish(link, bq_deadline(began, timeout_ms));
        timeout_ms -= bq_now_ms() - began;
        if (timeout_ms < 100)
            timeout_ms = 100;
        bq_link_call_limit(link, timeout_ms + 500);
        bq_link_enter(link);
        link->ops->close(link->state, timeout_ms);
        bq_link_leave(link);
        link->opened = false;
        atomic_store(&link->up, false);
    }
    dog_stop(link);
}

void bq_link_clear(bq_link *link)
{
    if (!link->state)
        return;
    bq_free(link->state);
    link->state = NULL;
    bq_target_clear(&link->target);
}

void bq_link_mute(bq_link *link)
{
    atomic_store_explicit(&link->muted, true, memory_order_release);
}

int64_t bq_link_timeout(const bq_link *link)
{
    for (const bq_option *o = link->ops->table; o && o->name; o++)
        if (o->type == BQ_OPT_DURATION && strcmp(o->name, "timeout") == 0) {
            int64_t ms;
            memcpy(&ms, (const char *)link->target.options + o->offset, sizeof ms);
            return ms > 0 ? ms : 30000;
        }
    return 30000;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* Announces the sleep, then looks once more: false when there is work after all. */
static bool fall_asleep(bq_link *link, bq_wake *wake, bq_turn turn)
{
    if (!wake)
        return true;
    atomic_store(&wake->state, turn == BQ_TURN_NAP ? BQ_NAPPING : BQ_SLEEPING);
    if (!link->spec.pending || !link->spec.pending(link->spec.owner))
        return true;
    atomic_store(&wake->state, BQ_AWAKE);
    return false;
}

static void wait_for(struct pollfd *fds, size_t count, int64_t now_ms, int64_t until_ms, bq_turn turn)
{
    struct timespec ts = {0, 0};
    const struct timespec *timeout = &ts;
    if (turn == BQ_TURN_NAP) {
        ts.tv_nsec = BQ_NAP_US * 1000L;
    } else if (turn == BQ_TURN_WAIT) {
        int ms = bq_poll_timeout(now_ms, until_ms);
        ts.tv_sec = ms / 1000;
        ts.tv_nsec = (long)(ms % 1000) * 1000000L;
        if (ms < 0)
            timeout = NULL;
    }
    if (ppoll(fds, (nfds_t)count, timeout, NULL) < 0)
        /* EINTR and the like: nothing is known to be ready. */
        for (size_t i = 0; i < count; i++)
            fds[i].revents = 0;
}

void bq_link_turn(bq_link *link, bq_wake *wake, int64_t until_ms, bq_turn turn)
{
    struct pollfd fds[BQ_LINK_FDS + 1];
    size_t own = wake ? 1 : 0;
    link->now_ms = bq_now_ms();
    bq_link_enter(link);
    size_t count = link->ops->prepare(link->state, link->want, fds + own, BQ_LINK_FDS, &until_ms);
    bq_link_leave(link);
    if (until_ms <= link->now_ms)
        turn = BQ_TURN_BUSY;
    if (own)
        fds[0] = (struct pollfd){wake->fd, POLLIN, 0};
    for (size_t i = 0; i < count; i++)
        fds[own + i].revents = 0;
    if (turn != BQ_TURN_BUSY && !fall_asleep(link, wake, turn))
        turn = BQ_TURN_BUSY;
    if (turn != BQ_TURN_BUSY || count) {
        wait_for(fds, own + count, link->now_ms, until_ms, turn);
        if (wake) {
            atomic_store(&wake->state, BQ_AWAKE);
            if (fds[0].revents)
                bq_wake_drain(wake);
        }
        link->now_ms = bq_now_ms();
    }
    bq_link_enter(link);
    link->ops->service(link->state, fds + own, count);
    bq_link_leave(link);
}

bq_status bq_link_connect(bq_link *link, int64_t deadline_ms, bq_error *err)
{
    for (;;) {
        if (link->fatal) {
            if (err)
                *err = link->error;
            return link->error.status;
        }
        if (atomic_load(&link->up))
            return BQ_OK;
        if (bq_now_ms() >= deadline_ms)
            break;
        bq_link_turn(link, NULL, deadline_ms, BQ_TURN_WAIT);
    }
    return bq_fail_flags(err, BQ_UNAVAILABLE, BQ_ERROR_RETRYABLE, link->error.native, "%s: not connected%s%s",
                         link->target.url.safe, link->error.text[0] ? ": " : " in time", link->error.text);
}

size_t bq_link_take(bq_link *link, bq_incoming **out, size_t max)
{
    bq_link_enter(link);
    size_t n = link->ops->take(link->state, out, max);
    bq_link_leave(link);
    return n;
}

size_t bq_link_submit(bq_link *link, bq_op *const *ops, size_t count)
{
    bq_link_enter(link);
    size_t n = link->ops->submit(link->state, ops, count);
    bq_link_leave(link);
    return n;
}

size_t bq_link_reap(bq_link *link, bq_completion *out, size_t max)
{
    bq_link_enter(link);
    size_t n = link->ops->reap(link->state, out, max);
    bq_link_leave(link);
    return n;
}

void bq_link_forget(bq_link *link, bq_incoming *in)
{
    bq_link_enter(link);
    link->ops->forget(link->state, in);
    bq_link_leave(link);
}

bool bq_link_has_idle(const bq_link *link)
{
    return (link->caps & BQ_CAP_IDLE) && link->ops->idle;
}

bool bq_link_idle(bq_link *link, bool all)
{
    bq_link_enter(link);
    bool idle = link->ops->idle(link->state, all);
    bq_link_leave(link);
    return idle;
}
