/*
 * bullmq.h - the job options of BullMQ on the command line of `bq publish`. They are read on every transport, so that a
 * mistake in them is a usage error everywhere, and refused where the broker has none.
 */
#ifndef BQ_CLI_BULLMQ_H
#define BQ_CLI_BULLMQ_H

#include "cli.h"

#include <babelqueue/bullmq.h>

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

/* CLI_DONE, or CLI_USAGE after a message. */
int bullmq_read(const cli_verb *verb, const bullmq_values *values, bq_bullmq_job *out);
/* The name of an option that was given; NULL: none was. */
const char *bullmq_given(const bullmq_values *values);

#endif
