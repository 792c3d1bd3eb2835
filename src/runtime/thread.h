/*
 * runtime/thread.h - what the runtime needs of POSIX threads: named threads, conditions on the monotonic clock.
 *
 * The runtime is the only layer that creates threads. Threads of the library's own block every signal, so that the
 * program's handlers run in the program's threads; handler threads inherit the opener's mask, because what they
 * start (a child process) inherits theirs.
 */
#ifndef BQ_RUNTIME_THREAD_H
#define BQ_RUNTIME_THREAD_H

#include <babelqueue/types.h>

#include <pthread.h>

typedef void *(*bq_thread_fn)(void *arg);

/* `name`: at most 15 bytes, shown by ps and debuggers. */
bq_status bq_thread_start(pthread_t *out, const char *name, bool block_signals, bq_thread_fn fn, void *arg,
                          bq_error *err);

bq_status bq_cond_init(pthread_cond_t *cond, bq_error *err);
/* Waits with `lock` held until signalled or until `deadline_ms` (bq_now_ms's clock; BQ_NEVER). False: it passed. */
bool bq_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ms);

#endif
