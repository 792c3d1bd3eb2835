/*
 * runtime/wake.h - waking the I/O thread out of poll(2), with a system call only when it sleeps.
 *
 * The I/O thread says that it is about to sleep, looks once more at everything others may have left for it, and
 * polls. Another thread leaves its work first and then calls bq_wake_up: one of the two sees the other. While the
 * I/O thread *naps* (a short sleep during heavy traffic) only bq_wake_up with `urgent` writes to the descriptor:
 * what was left meanwhile is found at the end of the nap, in one batch.
 */
#ifndef BQ_RUNTIME_WAKE_H
#define BQ_RUNTIME_WAKE_H

#include <babelqueue/types.h>

#include <stdatomic.h>

enum { BQ_AWAKE, BQ_NAPPING, BQ_SLEEPING };

typedef struct bq_wake {
    int fd; /* eventfd, non-blocking */
    atomic_int state;
} bq_wake;

bq_status bq_wake_init(bq_wake *wake, bq_error *err);
void bq_wake_clear(bq_wake *wake);

/* Any thread. */
void bq_wake_up(bq_wake *wake, bool urgent);
/* Any thread and signal handlers: writes in every case. */
void bq_wake_signal(bq_wake *wake);
/* The I/O thread, after poll said that the descriptor is readable. */
void bq_wake_drain(bq_wake *wake);

#endif
