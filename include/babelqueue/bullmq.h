/*
 * babelqueue/bullmq.h - what a BullMQ job can be given beside its message (contract 7.3): bq_message_spec.extra points to
 * a bq_bullmq_job when the publisher's URL is bullmq://. What is not given there the URL's options of the same names say,
 * and what they do not say is left to BullMQ's own defaults.
 */
#ifndef BABELQUEUE_BULLMQ_H
#define BABELQUEUE_BULLMQ_H

#include <babelqueue/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum bq_bullmq_backoff {
    BQ_BULLMQ_BACKOFF_UNSET,
    BQ_BULLMQ_BACKOFF_FIXED,
    BQ_BULLMQ_BACKOFF_EXPONENTIAL
} bq_bullmq_backoff;

/* Which finished jobs stay: removeOnComplete, removeOnFail. */
typedef enum bq_bullmq_keeping {
    BQ_BULLMQ_KEEP_UNSET,
    BQ_BULLMQ_KEEP_NONE,
    BQ_BULLMQ_KEEP_COUNT, /* the newest `value` */
    BQ_BULLMQ_KEEP_AGE    /* those of the last `value` milliseconds, in whole seconds, rounded up */
} bq_bullmq_keeping;

typedef struct bq_bullmq_keep {
    bq_bullmq_keeping kind;
    int64_t value;
} bq_bullmq_keep;

typedef struct bq_bullmq_job {
    size_t size;
    int64_t attempts; /* how often it is tried in all; -1: not given, as below */
    bq_bullmq_backoff backoff;
    int64_t backoff_ms;
    double backoff_jitter; /* 0..1 */
    int64_t priority;      /* 0 (none), then 1 (first) to 2097152 */
    bool lifo;             /* before the jobs that wait already */
    const char *job_id;    /* its own id; NULL: the next number. No number, no ':', and does not begin with "0:" */
    bq_bullmq_keep on_complete, on_fail;
    int64_t keep_logs;
    const char *dedup_id; /* deduplication; NULL: none */
    int64_t dedup_ttl_ms; /* 0: until the job has ended */
} bq_bullmq_job;

#define BQ_BULLMQ_JOB_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(bq_bullmq_job), -1, BQ_BULLMQ_BACKOFF_UNSET, 0, 0, -1, false, NULL, {BQ_BULLMQ_KEEP_UNSET, 0},          \
            {BQ_BULLMQ_KEEP_UNSET, 0}, -1, NULL, 0                                                                     \
    }

/* The texts of the URL and of `bq publish`: "fixed:5s", "exponential:1s:0.5" (kind, delay, jitter), and "yes" (none is
 * kept), "1000" (so many), "1h" (so long). False: it is none of these. */
BQ_API bool bq_bullmq_parse_backoff(const char *text, bq_bullmq_job *out);
BQ_API bool bq_bullmq_parse_keep(const char *text, bq_bullmq_keep *out);

#ifdef __cplusplus
}
#endif

#endif
