/*
 * bullmq.h - the job options of BullMQ on the command line of `bq publish`. They are read on every transport, so that a
 * mistake in them is a usage error everywhere, and refused where the broker has none.
 */
#ifndef BQ_CLI_BULLMQ_H
#define BQ_CLI_BULLMQ_H

#include "cli.h"

/* As typed. */
typedef struct bullmq_values {
    int64_t attempts;
    const char *backoff;
    int64_t priority;
    bool lifo;
    const char *job_id;
    const char *remove_on_complete;
    const char *remove_on_fail;
    int64_t keep_logs;
    const char *dedup;
} bullmq_values;

typedef enum bullmq_backoff_kind {
    BULLMQ_BACKOFF_NONE,
    BULLMQ_BACKOFF_FIXED,
    BULLMQ_BACKOFF_EXPONENTIAL
} bullmq_backoff_kind;

typedef struct bullmq_keep {
    enum { BULLMQ_KEEP_UNSET, BULLMQ_KEEP_NONE, BULLMQ_KEEP_COUNT, BULLMQ_KEEP_AGE } kind;
    int64_t value; /* jobs, or milliseconds */
} bullmq_keep;

typedef struct bullmq_options {
    int64_t attempts; /* -1: not given, as below */
    bullmq_backoff_kind backoff;
    int64_t backoff_ms;
    double backoff_jitter; /* 0..1 */
    int64_t priority;
    bool lifo;
    const char *job_id;
    bullmq_keep on_complete, on_fail;
    int64_t keep_logs;
    const char *dedup;
} bullmq_options;

/* Each: false when the text is none. */
bool bullmq_parse_backoff(const char *text, bullmq_options *out);
bool bullmq_parse_keep(const char *text, bullmq_keep *out);

/* CLI_DONE, or CLI_USAGE after a message. */
int bullmq_read(const cli_verb *verb, const bullmq_values *values, bullmq_options *out);
/* The name of an option that was given; NULL: none was. */
const char *bullmq_given(const bullmq_values *values);

#endif
