/* bullmq_job.h - the options of a BullMQ job as it stores them: a JSON object (contract 7.3). Pure functions. */
#ifndef BQ_TRANSPORT_BULLMQ_JOB_H
#define BQ_TRANSPORT_BULLMQ_JOB_H

#include <babelqueue/binding.h>
#include <babelqueue/bullmq.h>

/* What the URL says holds where the job says nothing. */
bq_bullmq_job bq_job_merge(const bq_bullmq_job *own, const bq_bullmq_job *defaults);
/* Appends the object. Headers go into the telemetry metadata. NOMEM only. */
bq_status bq_job_opts(const bq_bullmq_job *job, int64_t delay_ms, const bq_prop *props, size_t count, bq_buf *out);
/* INVALID: BullMQ would refuse that, or take it for something else. */
bq_status bq_job_check(const bq_bullmq_job *job, bq_error *err);

#endif
