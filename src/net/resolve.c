/*
 * resolve.c - see resolve.h. A job has two owners, the caller and its thread; the last one frees it. The thread's
 * results are published by `done` (release) and then by the eventfd, which both owners may use as long as they own.
 */
#include "net/resolve.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* getaddrinfo loads modules and keeps answers of 64 KiB on its stack. */
#define STACK_SIZE ((size_t)512 * 1024)

struct bq_resolve {
    atomic_int owners;
    atomic_bool done;
    int fd;
    int code;
    int system_error;
    struct addrinfo *list;
    char service[8];
    char host[];
};

static atomic_int running;
static _Atomic(bq_resolve_fn) lookup_override;

void bq_resolve_override(bq_resolve_fn lookup)
{
    atomic_store(&lookup_override, lookup);
}

int bq_resolve_running(void)
{
    return atomic_load(&running);
}

static void release(bq_resolve *job)
{
    if (atomic_fetch_sub(&job->owners, 1) > 1)
        return;
    if (job->list)
        freeaddrinfo(job->list);
    close(job->fd);
    bq_free(job);
}

static void look_up(bq_resolve *job, int flags)
{
    /* Without AI_ADDRCONFIG, which knows no loopback: an address that has no route fails at once and costs nothing. */
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    bq_resolve_fn lookup = atomic_load(&lookup_override);
    errno = 0;
    job->code =
        (lookup && !(flags & AI_NUMERICHOST) ? lookup : getaddrinfo)(job->host, job->service, &hints, &job->list);
    job->system_error = errno;
    if (job->code != 0)
        job->list = NULL;
}

static void announce(bq_resolve *job)
{
    uint64_t one = 1;
    atomic_store_explicit(&job->done, true, memory_order_release);
    ssize_t written;
    do
        written = write(job->fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

static void *run(void *arg)
{
    bq_resolve *job = arg;
    look_up(job, 0);
    announce(job);
    release(job);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* The program's signals are for its own threads. */
static int start_thread(bq_resolve *job)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int code = pthread_attr_init(&attr);
    if (code != 0)
        return code;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&thread, &attr, run, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return code;
}

static bq_status start_lookup(bq_resolve *job, bq_error *err)
{
    if (atomic_fetch_add(&running, 1) >= BQ_RESOLVE_MAX) {
        atomic_fetch_sub(&running, 1);
        return bq_fail(err, BQ_UNAVAILABLE, "look up %s: %d other lookups are waiting for the name service", job->host,
                       BQ_RESOLVE_MAX);
    }
    atomic_store(&job->owners, 2);
    int code = start_thread(job);
    if (code == 0)
        return BQ_OK;
    atomic_store(&job->owners, 1);
    atomic_fetch_sub(&running, 1);
    return bq_fail_errno(err, BQ_UNAVAILABLE, code, "look up %s: no thread", job->host);
}

bq_status bq_resolve_start(bq_resolve **out, const char *host, int port, bq_error *err)
{
    *out = NULL;
    size_t len = strlen(host);
    bq_resolve *job = bq_calloc(1, sizeof *job + len + 1);
    if (!job)
        return bq_fail_nomem(err);
    atomic_init(&job->owners, 1);
    atomic_init(&job->done, false);
    memcpy(job->host, host, len + 1);
    (void)snprintf(job->service, sizeof job->service, "%d", port);
    job->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->fd < 0) {
        int errnum = errno;
        bq_free(job);
        return bq_fail_errno(err, BQ_UNAVAILABLE, errnum, "look up %s", host);
    }
    look_up(job, AI_NUMERICHOST);
    bq_status status = BQ_OK;
    if (job->code == EAI_NONAME)
        status = start_lookup(job, err);
    else
        announce(job);
    if (status != BQ_OK) {
        release(job);
        return status;
    }
    *out = job;
    return BQ_OK;
}

int bq_resolve_fd(const bq_resolve *resolve)
{
    return resolve->fd;
}

bool bq_resolve_done(const bq_resolve *resolve)
{
    return atomic_load_explicit(&resolve->done, memory_order_acquire);
}

bq_status bq_resolve_result(bq_resolve *resolve, const struct addrinfo **list, bq_error *err)
{
    *list = resolve->list;
    if (resolve->code == 0 && resolve->list)
        return BQ_OK;
    if (resolve->code == EAI_MEMORY)
        return bq_fail_nomem(err);
    if (resolve->code == EAI_SYSTEM)
        return bq_fail_errno(err, BQ_UNAVAILABLE, resolve->system_error, "look up %s", resolve->host);
    return bq_fail_flags(err, BQ_UNAVAILABLE, BQ_ERROR_RETRYABLE, resolve->code, "look up %s: %s", resolve->host,
                         resolve->code ? gai_strerror(resolve->code) : "no address");
}

void bq_resolve_free(bq_resolve *resolve)
{
    if (resolve)
        release(resolve);
}
