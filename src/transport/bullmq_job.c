/* bullmq_job.c - see bullmq_job.h. */
#include "transport/bullmq_job.h"

#include "base/buf.h"
#include "base/error.h"

#include <babelqueue/json.h>

#include <stdlib.h>
#include <string.h>

#define KEEP_COUNT_MAX INT64_C(1000000000000)
#define PRIORITY_MAX 2097152

/* ---- texts -------------------------------------------------------------------------------------------------------- */

bool bq_bullmq_parse_backoff(const char *text, bq_bullmq_job *out)
{
    size_t kind = strcspn(text, ":");
    if (kind == 5 && strncmp(text, "fixed", kind) == 0)
        out->backoff = BQ_BULLMQ_BACKOFF_FIXED;
    else if (kind == 11 && strncmp(text, "exponential", kind) == 0)
        out->backoff = BQ_BULLMQ_BACKOFF_EXPONENTIAL;
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
bool bq_bullmq_parse_keep(const char *text, bq_bullmq_keep *out)
{
    if (strcmp(text, "yes") == 0) {
        *out = (bq_bullmq_keep){BQ_BULLMQ_KEEP_NONE, 0};
        return true;
    }
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits <= 13 && !text[digits]) {
        *out = (bq_bullmq_keep){BQ_BULLMQ_KEEP_COUNT, strtoll(text, NULL, 10)};
        return out->value <= KEEP_COUNT_MAX;
    }
    out->kind = BQ_BULLMQ_KEEP_AGE;
    return digits > 0 && bq_parse_duration(bq_str_of(text), &out->value);
}

/* ---- options ------------------------------------------------------------------------------------------------------ */

bq_bullmq_job bq_job_merge(const bq_bullmq_job *own, const bq_bullmq_job *defaults)
{
    if (!own)
        return *defaults;
    bq_bullmq_job job = *own;
    if (job.attempts < 0)
        job.attempts = defaults->attempts;
    if (job.priority < 0)
        job.priority = defaults->priority;
    if (job.backoff == BQ_BULLMQ_BACKOFF_UNSET) {
        job.backoff = defaults->backoff;
        job.backoff_ms = defaults->backoff_ms;
        job.backoff_jitter = defaults->backoff_jitter;
    }
    if (job.on_complete.kind == BQ_BULLMQ_KEEP_UNSET)
        job.on_complete = defaults->on_complete;
    if (job.on_fail.kind == BQ_BULLMQ_KEEP_UNSET)
        job.on_fail = defaults->on_fail;
    return job;
}

/* "0", "-7" and "12" are numbers to JavaScript, which BullMQ keeps for itself. */
static bool is_number(const char *id)
{
    size_t sign = *id == '-' ? 1 : 0, digits = strspn(id + sign, "0123456789");
    return digits > 0 && !id[sign + digits];
}

static size_t colons(const char *id)
{
    size_t count = 0;
    for (; *id; id++)
        count += *id == ':';
    return count;
}

bq_status bq_job_check(const bq_bullmq_job *job, bq_error *err)
{
    const char *id = job->job_id;
    if (id && (!*id || is_number(id)))
        return bq_fail(err, BQ_INVALID, "a job's own id is a text that is no number: BullMQ counts those itself");
    if (id && (strncmp(id, "0:", 2) == 0 || (colons(id) > 0 && colons(id) != 2)))
        return bq_fail(err, BQ_INVALID, "the job id \"%s\" holds a colon, which stands between the parts of a key", id);
    if (job->priority > PRIORITY_MAX)
        return bq_fail(err, BQ_INVALID, "a job's priority is at most %d", PRIORITY_MAX);
    if (job->backoff_jitter < 0 || job->backoff_jitter > 1)
        return bq_fail(err, BQ_INVALID, "a backoff's jitter is from 0 to 1");
    return BQ_OK;
}

static void add_keep(bq_buf *out, const char *name, bq_bullmq_keep keep)
{
    switch (keep.kind) {
    case BQ_BULLMQ_KEEP_UNSET: break;
    case BQ_BULLMQ_KEEP_NONE: (void)bq_buf_addf(out, ",\"%s\":true", name); break;
    case BQ_BULLMQ_KEEP_COUNT: (void)bq_buf_addf(out, ",\"%s\":%lld", name, (long long)keep.value); break;
    case BQ_BULLMQ_KEEP_AGE:
        (void)bq_buf_addf(out, ",\"%s\":{\"age\":%lld}", name, (long long)((keep.value + 999) / 1000));
        break;
    }
}

static void add_metadata(const bq_prop *props, size_t count, bq_buf *out)
{
    bq_buf text;
    bool any = false;
    bq_buf_init(&text, 0);
    for (size_t i = 0; i < count; i++) {
        if (props[i].place != BQ_PLACE_HEADER || props[i].type != BQ_PROP_STRING || props[i].text.len == 0)
            continue;
        (void)bq_buf_add_byte(&text, any ? ',' : '{');
        (void)bq_json_add_string(&text, props[i].name);
        (void)bq_buf_add_byte(&text, ':');
        (void)bq_json_add_string(&text, props[i].text);
        any = true;
    }
    if (any) {
        (void)bq_buf_add_byte(&text, '}');
        (void)bq_buf_add_lit(out, ",\"tm\":");
        (void)bq_json_add_string(out, bq_buf_str(&text));
    }
    if (text.failed)
        out->failed = true;
    bq_buf_clear(&text);
}

bq_status bq_job_opts(const bq_bullmq_job *job, int64_t delay_ms, const bq_prop *props, size_t count, bq_buf *out)
{
    (void)bq_buf_addf(out, "{\"attempts\":%lld", (long long)(job->attempts < 0 ? 0 : job->attempts));
    if (delay_ms > 0)
        (void)bq_buf_addf(out, ",\"delay\":%lld", (long long)delay_ms);
    if (job->backoff != BQ_BULLMQ_BACKOFF_UNSET) {
        (void)bq_buf_addf(out, ",\"backoff\":{\"type\":\"%s\",\"delay\":%lld",
                          job->backoff == BQ_BULLMQ_BACKOFF_FIXED ? "fixed" : "exponential",
                          (long long)job->backoff_ms);
        /* Printed as millionths: the locale may have another decimal point. */
        if (job->backoff_jitter > 0)
            (void)bq_buf_addf(out, ",\"jitter\":%d.%06d", (int)job->backoff_jitter,
                              (int)((job->backoff_jitter - (int)job->backoff_jitter) * 1e6 + 0.5));
        (void)bq_buf_add_byte(out, '}');
    }
    if (job->priority > 0)
        (void)bq_buf_addf(out, ",\"priority\":%lld", (long long)job->priority);
    if (job->lifo)
        (void)bq_buf_add_lit(out, ",\"lifo\":true");
    if (job->job_id) {
        (void)bq_buf_add_lit(out, ",\"jobId\":");
        (void)bq_json_add_string(out, bq_str_of(job->job_id));
    }
    add_keep(out, "removeOnComplete", job->on_complete);
    add_keep(out, "removeOnFail", job->on_fail);
    if (job->keep_logs >= 0)
        (void)bq_buf_addf(out, ",\"kl\":%lld", (long long)job->keep_logs);
    if (job->dedup_id) {
        (void)bq_buf_add_lit(out, ",\"de\":{\"id\":");
        (void)bq_json_add_string(out, bq_str_of(job->dedup_id));
        if (job->dedup_ttl_ms > 0)
            (void)bq_buf_addf(out, ",\"ttl\":%lld", (long long)job->dedup_ttl_ms);
        (void)bq_buf_add_byte(out, '}');
    }
    add_metadata(props, count, out);
    (void)bq_buf_add_byte(out, '}');
    return out->failed ? BQ_NOMEM : BQ_OK;
}
