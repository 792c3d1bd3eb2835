/* bullmq.c - the job options of BullMQ on the command line of `bq publish`. */
#include "bullmq.h"
#include "args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_COUNT_MAX INT64_C(1000000000000)

/* "fixed:D", "exponential:D", each with ":JITTER" between 0 and 1. */
bool bullmq_parse_backoff(const char *text, bullmq_options *out)
{
    size_t kind = strcspn(text, ":");
    if (kind == 5 && strncmp(text, "fixed", kind) == 0)
        out->backoff = BULLMQ_BACKOFF_FIXED;
    else if (kind == 11 && strncmp(text, "exponential", kind) == 0)
        out->backoff = BULLMQ_BACKOFF_EXPONENTIAL;
    else
        return false;
    if (text[kind] != ':')
        return false;
    const char *delay = text + kind + 1;
    size_t len = strcspn(delay, ":");
    if (!bq_parse_duration((bq_str){delay, len}, &out->backoff_ms))
        return false;
    out->backoff_jitter = 0;
    if (!delay[len])
        return true;
    const char *jitter = delay + len + 1;
    /* "0", "1", "0.25": digits and one point, so that strtod sees nothing else. */
    size_t digits = strspn(jitter, "0123456789."), points = 0;
    for (size_t i = 0; i < digits; i++)
        points += jitter[i] == '.';
    if (digits == 0 || jitter[digits] || points > 1 || digits > 12 || digits == points)
        return false;
    out->backoff_jitter = strtod(jitter, NULL);
    return out->backoff_jitter <= 1;
}

/* "yes": keep none; a bare number: keep so many; a duration with its unit: keep for so long. */
bool bullmq_parse_keep(const char *text, bullmq_keep *out)
{
    if (strcmp(text, "yes") == 0) {
        *out = (bullmq_keep){BULLMQ_KEEP_NONE, 0};
        return true;
    }
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits <= 13 && !text[digits]) {
        *out = (bullmq_keep){BULLMQ_KEEP_COUNT, strtoll(text, NULL, 10)};
        return out->value <= KEEP_COUNT_MAX;
    }
    out->kind = BULLMQ_KEEP_AGE;
    return digits > 0 && bq_parse_duration(bq_str_of(text), &out->value);
}

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

static int read_keep(const cli_verb *verb, const char *name, const char *text, bullmq_keep *out)
{
    if (!text || bullmq_parse_keep(text, out))
        return CLI_DONE;
    return args_usage_error(verb, "--%s: '%s' is none of yes, a number of jobs, and a duration such as 1h", name, text);
}

int bullmq_read(const cli_verb *verb, const bullmq_values *v, bullmq_options *out)
{
    *out = (bullmq_options){.attempts = v->attempts,
                            .priority = v->priority,
                            .lifo = v->lifo,
                            .job_id = v->job_id,
                            .keep_logs = v->keep_logs,
                            .dedup = v->dedup};
    if (v->backoff && !bullmq_parse_backoff(v->backoff, out))
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
