/* bullmq.c - the job options of BullMQ on the command line of `bq publish`. */
#include "bullmq.h"
#include "args.h"

#include <string.h>

const char *bullmq_given(const bullmq_values *v)
{
    if (v->attempts >= 0)
        return "attempts";
    if (v->backoff)
        return "backoff";
    if (v->priority >= 0)
        return "priority";
    if (v->lifo)
        return "lifo";
    if (v->job_id)
        return "job-id";
    if (v->remove_on_complete)
        return "remove-on-complete";
    if (v->remove_on_fail)
        return "remove-on-fail";
    if (v->keep_logs >= 0)
        return "keep-logs";
    return v->dedup ? "dedup" : NULL;
}

static int read_keep(const cli_verb *verb, const char *name, const char *text, bq_bullmq_keep *out)
{
    if (!text || bq_bullmq_parse_keep(text, out))
        return CLI_DONE;
    return args_usage_error(verb, "--%s: '%s' is none of yes, a number of jobs, and a duration such as 1h", name, text);
}

int bullmq_read(const cli_verb *verb, const bullmq_values *v, bq_bullmq_job *out)
{
    *out = (bq_bullmq_job)BQ_BULLMQ_JOB_INIT;
    out->attempts = v->attempts;
    out->priority = v->priority;
    out->lifo = v->lifo;
    out->job_id = v->job_id;
    out->keep_logs = v->keep_logs;
    out->dedup_id = v->dedup;
    if (v->backoff && !bq_bullmq_parse_backoff(v->backoff, out))
        return args_usage_error(verb, "--backoff: '%s' is neither fixed:D nor exponential:D, with :JITTER from 0 to 1",
                                v->backoff);
    int rc = read_keep(verb, "remove-on-complete", v->remove_on_complete, &out->on_complete);
    if (!rc)
        rc = read_keep(verb, "remove-on-fail", v->remove_on_fail, &out->on_fail);
    /* A custom id of digits alone would collide with the ids that BullMQ counts itself. */
    if (!rc && v->job_id && (!*v->job_id || strspn(v->job_id, "0123456789") == strlen(v->job_id)))
        rc = args_usage_error(verb, "--job-id: '%s' is a number, which BullMQ keeps for its own ids", v->job_id);
    if (!rc && v->dedup && !*v->dedup)
        rc = args_usage_error(verb, "--dedup: the id is empty");
    return rc;
}
