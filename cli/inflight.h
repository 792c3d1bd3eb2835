/*
 * inflight.h - the messages that a coprocess holds, by their number and in the order in which they were given to it.
 * One thread.
 */
#ifndef BQ_CLI_INFLIGHT_H
#define BQ_CLI_INFLIGHT_H

#include "cli.h"

typedef struct inflight_job {
    bq_delivery *delivery;
    uint64_t n;
    uint64_t begins; /* place of its line's first byte in all that is written to this coprocess */
    int64_t deadline_ms;
    struct inflight_job *older, *newer;
} inflight_job;

typedef struct inflight {
    inflight_job **slots; /* open addressing, the power of two `mask` + 1 of them */
    size_t mask;
    size_t count;
    inflight_job *oldest, *newest;
    inflight_job *spare; /* freed ones, linked by `newer` */
} inflight;

bool inflight_init(inflight *table);
void inflight_clear(inflight *table);
/* The job, to be filled; NULL: no memory. `n` must be new. */
inflight_job *inflight_add(inflight *table, uint64_t n);
inflight_job *inflight_find(const inflight *table, uint64_t n);
void inflight_remove(inflight *table, inflight_job *job);

#endif
