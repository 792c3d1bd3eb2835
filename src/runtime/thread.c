/*
 * runtime/thread.c - see thread.h.
 */
#include "runtime/thread.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

bq_status bq_thread_start(pthread_t *out, const char *name, bool block_signals, bq_thread_fn fn, void *arg,
                          bq_error *err)
{
    sigset_t all, old;
    if (block_signals) {
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    }
    int rc = pthread_create(out, NULL, fn, arg);
    if (block_signals)
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return bq_fail_errno(err, rc == EAGAIN ? BQ_NOMEM : BQ_INTERNAL, rc, "cannot start a thread");
    (void)pthread_setname_np(*out, name);
    return BQ_OK;
}

bq_status bq_cond_init(pthread_cond_t *cond, bq_error *err)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (!rc) {
        rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        if (!rc)
            rc = pthread_cond_init(cond, &attr);
        (void)pthread_condattr_destroy(&attr);
    }
    return rc ? bq_fail_errno(err, BQ_NOMEM, rc, "cannot make a condition") : BQ_OK;
}

bool bq_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ms)
{
    if (deadline_ms == BQ_NEVER) {
        (void)pthread_cond_wait(cond, lock);
        return true;
    }
    int64_t left = deadline_ms - bq_now_ms();
    if (left <= 0)
        return false;
    /* The deadline is on bq_now_ms's clock, which a test may have replaced; the kernel waits on its own. */
    if (left > INT64_C(1000) * 86400 * 365)
        left = INT64_C(1000) * 86400 * 365;
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(left / 1000);
    at.tv_nsec += (long)(left % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return pthread_cond_timedwait(cond, lock, &at) != ETIMEDOUT;
}
