/*
 * drive.h - one transport, driven step by step from a test program: the runtime's loop without the runtime, so that the
 * program knows of every operation when it was submitted and when it was confirmed.
 *
 * One thread. Whatever fails ends the program with a line on standard error.
 */
#ifndef BQ_TESTS_DRIVE_H
#define BQ_TESTS_DRIVE_H

#include <babelqueue/babelqueue.h>

#include "transport/target.h"

#define DRIVE_BATCH 256

typedef struct drive {
    bq_target target;
    bq_transport_config config;
    bq_transport_host host;
    void *state;
    const bq_str *queues;
    bool fatal;
} drive;

void drive_open(drive *d, const char *url, unsigned roles, const bq_str *queues, size_t queue_count, uint32_t prefetch);
void drive_close(drive *d);

/* One round of the loop: waits for at most timeout_ms, serves, and hands over what has arrived and what is done. */
typedef struct drive_round {
    bq_incoming *taken[DRIVE_BATCH];
    size_t taken_count;
    bq_completion done[DRIVE_BATCH];
    size_t done_count;
} drive_round;
void drive_once(drive *d, size_t want, int64_t timeout_ms, drive_round *round);

/* Submits all of them and waits until all are completed; status[i] is that of ops[i]. */
void drive_all(drive *d, bq_op *ops, size_t count, bq_status *status);

/* Takes until `count` have come; fails after timeout_ms. */
void drive_take(drive *d, bq_incoming **out, size_t count, int64_t timeout_ms);

int64_t drive_now_us(void);
_Noreturn void drive_die(const char *what, const char *detail);

#endif
