/*
 * redis/bullmq.c - bullmq://, the layout of the BullMQ library of Node.js (contract 7.3), and its row of transports. A
 * job's data is the message, its name the URN; headers are in the telemetry metadata. See layout.h.
 *
 * What BullMQ's worker decides (retry or fail, the backoff, what is kept) the scripts decide from the job's own options,
 * in the step that settles it.
 */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/rand.h"
#include "transport/bullmq_job.h"

#include <babelqueue/json.h>

#include <stdio.h>
#include <string.h>

/* Jobs that one step of a purge deletes: nobody else is served meanwhile. */
#define PURGE_STEP 5000

/* ---- keys --------------------------------------------------------------------------------------------------------- */

static const char *prefix_of(const rd_options *options)
{
    return options->prefix && *options->prefix ? options->prefix : "bull";
}

/* What the keys of the queue begin with, and the marker on which idle workers block. */
static bq_status bull_keys(const rd_options *options, bq_str queue, rd_keys *out)
{
    static const char *const parts[4][2] = {{":", ""}, {":marker", ""}, {"", ""}, {"", ""}};
    bq_buf prefix;
    bq_buf_init(&prefix, 0);
    (void)bq_buf_addf(&prefix, "%s:", prefix_of(options));
    bq_status status = prefix.failed ? BQ_NOMEM : bq_rd_keys_make(prefix.ptr, queue, parts, out);
    bq_buf_clear(&prefix);
    return status;
}

static bq_str bull_queue_of(const rd_options *options, bq_str key)
{
    size_t len = strlen(prefix_of(options));
    if (key.len <= len + 1 || memcmp(key.ptr, prefix_of(options), len) != 0 || key.ptr[len] != ':')
        return BQ_STR_NULL;
    key.ptr += len + 1;
    key.len -= len + 1;
    return bq_rd_strip(&key, ":meta") && !memchr(key.ptr, ':', key.len) ? key : BQ_STR_NULL;
}

/* "EVALSHA digest 1 key", and what every script takes first: how many events are kept where the queue does not say. */
static void begin_script(rd_transport *t, rd_script script, bq_str key)
{
    bq_rd_arg_script(&t->args, script, 1);
    bq_rd_arg(&t->args, key);
    bq_rd_arg_int(&t->args, t->options->max_events);
}

/* ---- publishing --------------------------------------------------------------------------------------------------- */

/* The URN: what a dead letter is a record of names it, else the body does. */
static void arg_name(rd_transport *t, const bq_op *op)
{
    const rd_delivery *replaced = rd_delivery_of(op->in);
    bq_envelope env;
    bq_buf scratch;
    bq_str urn = BQ_STR_NULL;
    if (replaced && replaced->name) {
        bq_rd_arg_copy(&t->args, bq_str_of(replaced->name));
        return;
    }
    bq_buf_init(&scratch, 0);
    if (op->out.body.ptr) {
        (void)bq_envelope_decode(&env, op->out.body.ptr, op->out.body.len);
        if (bq_envelope_text(&env, BQ_FIELD_URN, &scratch, &urn) != BQ_OK)
            t->args.failed = true;
    }
    bq_rd_arg_copy(&t->args, urn.len > 0 ? urn : BQ_STR("(empty)"));
    bq_buf_clear(&scratch);
}

static void arg_opts(rd_transport *t, const bq_bullmq_job *job, const bq_outgoing *out)
{
    size_t begun = bq_rd_arg_begin(&t->args);
    if (bq_job_opts(job, out->delay_ms, out->props, out->prop_count, &t->args.own) != BQ_OK)
        t->args.failed = true;
    bq_rd_arg_end(&t->args, begun);
}

static rd_script bull_publish(rd_transport *t, const rd_slots *batch, bool delayed)
{
    rd_args *args = &t->args;
    rd_keys keys = {0};
    (void)delayed; /* each job says for itself */
    if (bull_keys(t->options, batch->head->op->out.queue, &keys) != BQ_OK) {
        bq_rd_args_reset(args);
        args->failed = true;
        return RD_BULL_ADD;
    }
    bq_rd_arg_script(args, RD_BULL_ADD, 1);
    bq_rd_arg_copy(args, keys.key[0]);
    bq_rd_arg_int(args, t->options->max_events);
    bq_rd_keys_clear(&keys);
    for (const rd_slot *slot = batch->head; slot; slot = slot->next) {
        const bq_outgoing *out = &slot->op->out;
        bq_bullmq_job job = bq_job_merge(out->extra, &t->job);
        arg_name(t, slot->op);
        bq_rd_arg(args, out->body);
        arg_opts(t, &job, out);
        bq_rd_arg_int(args, out->delay_ms > 0 ? out->delay_ms : 0);
        bq_rd_arg_int(args, job.priority > 0 ? job.priority : 0);
        bq_rd_arg_int(args, job.lifo);
        bq_rd_arg(args, bq_str_of(job.job_id ? job.job_id : ""));
        bq_rd_arg(args, bq_str_of(job.dedup_id ? job.dedup_id : ""));
        bq_rd_arg_int(args, job.dedup_ttl_ms);
    }
    return RD_BULL_ADD;
}

/* A job that BullMQ would refuse is refused before anything is written. */
static bq_status bull_check(const bq_op *op, bq_error *err)
{
    if (op->kind != BQ_OP_PUBLISH)
        return BQ_OK;
    if (memchr(op->out.queue.ptr, ':', op->out.queue.len))
        return bq_fail(err, BQ_INVALID, "a queue's name holds no colon in BullMQ");
    return op->out.extra ? bq_job_check(op->out.extra, err) : BQ_OK;
}

/* ---- consuming ---------------------------------------------------------------------------------------------------- */

static void bull_reserve(rd_transport *t, size_t index, size_t count, bool beside, rd_expect *expect)
{
    rd_args *args = &t->args;
    (void)beside; /* BullMQ counts stalled jobs by itself */
    bq_rd_random_token(expect->token);
    begin_script(t, RD_BULL_RESERVE, t->subs[index].keys.key[0]);
    bq_rd_arg_int(args, (int64_t)count);
    bq_rd_arg_int(args, RD_RESERVE_BYTES);
    bq_rd_arg_int(args, t->options->retry_after_ms);
    bq_rd_arg(args, (bq_str){expect->token, 24});
}

static bool read_job(rd_delivery *d, const rd_reply *info)
{
    bq_str id = bq_rd_text(bq_rd_at(info, 0)), name = bq_rd_text(bq_rd_at(info, 2));
    d->held.in.native_count = bq_rd_int_at(info, 1, 0);
    d->member = bq_strndup(id);
    d->member_len = id.len;
    d->name = bq_strndup(name);
    if (!d->member || !d->name || bq_rd_headers_read(bq_rd_text(bq_rd_at(info, 3)), &d->frame) != BQ_OK)
        return false;
    d->held.in.native_id = (bq_str){d->member, d->member_len};
    d->held.in.timestamp_ms = bq_rd_int_at(info, 5, 0);
    d->held.in.props = d->frame.props;
    d->held.in.prop_count = d->frame.prop_count;
    return true;
}

static bool bull_read(const rd_transport *t, rd_delivery *d, const rd_reply *reply, size_t index,
                      const rd_expect *expect)
{
    const rd_reply *info = bq_rd_at(reply, RD_FIRST_ITEM + 2 * index + 1);
    (void)t;
    /* Jobs that failed at once took numbers too. */
    (void)snprintf(d->token, sizeof(d->token), "%.24s%08x", expect->token, (unsigned)bq_rd_int_at(info, 4, 0));
    return read_job(d, info);
}

static void bull_settle(rd_transport *t, size_t index, const rd_targets *targets)
{
    (void)targets;
    begin_script(t, RD_BULL_SETTLE, t->subs[index].keys.key[0]);
    bq_rd_arg_int(&t->args, t->options->retry_after_ms);
}

/* What went wrong, and as much of a trace as there is; what is not to be tried again has the name that it has in Node. */
static void arg_failure(rd_transport *t, const bq_op *op, bool for_good)
{
    rd_args *args = &t->args;
    bq_str what = op->description.len > 0 ? op->description : op->reason.len > 0 ? op->reason : BQ_STR("failed");
    bq_str name = for_good ? BQ_STR("UnrecoverableError") : op->reason.len > 0 ? op->reason : BQ_STR("Error");
    bq_rd_arg(args, what);
    size_t begun = bq_rd_arg_begin(args);
    (void)bq_buf_add_str(&args->own, name);
    (void)bq_buf_add_lit(&args->own, ": ");
    (void)bq_buf_add_str(&args->own, what);
    bq_rd_arg_end(args, begun);
}

static void bull_entry(rd_transport *t, char verb, const rd_delivery *d, const bq_op *op, size_t target)
{
    rd_args *args = &t->args;
    (void)target;
    bq_rd_arg_copy(args, (bq_str){&verb, 1});
    bq_rd_arg(args, (bq_str){d->member, d->member_len});
    bq_rd_arg(args, (bq_str){d->token, 32});
    switch (verb) {
    case 'a': bq_rd_arg(args, op->result.len > 0 ? op->result : BQ_STR("null")); break;
    case 'r': bq_rd_arg_int(args, op->out.delay_ms > 0 ? op->out.delay_ms : 0); break;
    case 'n':
        arg_failure(t, op, false);
        bq_rd_arg_int(args, op->out.delay_ms < 0 ? -1 : op->out.delay_ms);
        bq_rd_arg_millionths(args, (uint32_t)(bq_random_u64() % 1000000));
        break;
    case 'x': arg_failure(t, op, true); break;
    default: break;
    }
}

static void bull_wait(rd_transport *t, const rd_waiter *w)
{
    rd_arg_lit(&t->args, "BZPOPMIN");
    for (size_t i = 0; i < w->count; i++)
        bq_rd_arg(&t->args, t->subs[w->first + i].keys.key[1]);
}

static int64_t bull_look_ms(const rd_transport *t)
{
    return t->options->drain_delay_ms;
}

static int64_t bull_deadline(const rd_transport *t, int64_t server_ms)
{
    return server_ms + t->options->retry_after_ms;
}

/* ---- stalled jobs ------------------------------------------------------------------------------------------------- */

static int64_t bull_chore_ms(const rd_transport *t)
{
    return t->options->stalled_interval_ms;
}

static rd_script bull_chore(rd_transport *t, size_t index)
{
    begin_script(t, RD_BULL_STALLED, t->subs[index].keys.key[0]);
    bq_rd_arg_int(&t->args, t->options->stalled_interval_ms);
    bq_rd_arg_int(&t->args, t->options->max_stalled);
    return RD_BULL_STALLED;
}

/* ---- administration ----------------------------------------------------------------------------------------------- */

/* As getJobCounts has them. */
enum { WAITING, PAUSED, PRIORITIZED, DELAYED, ACTIVE, FAILED, COMPLETED, WAITING_CHILDREN, STATES };
static const char *const states[STATES] = {"waiting", "paused", "prioritized", "delayed",
                                           "active",  "failed", "completed",   "waiting-children"};

static bq_status count_states(rd_transport *t, bq_str key, int64_t end, int64_t counts[STATES], bq_error *err)
{
    rd_reply *reply;
    begin_script(t, RD_BULL_STATS, key);
    bq_status status = bq_rd_call(t, RD_BULL_STATS, end, &reply, err);
    if (status != BQ_OK)
        return status;
    for (size_t i = 0; i < STATES; i++)
        counts[i] = bq_rd_int_at(reply, i, 0);
    bq_rd_reply_free(reply);
    return BQ_OK;
}

static bq_status bull_stats(rd_transport *t, const rd_keys *queue, const rd_keys *dead, int64_t end,
                            bq_queue_stats *out, bq_error *err)
{
    int64_t n[STATES], d[STATES];
    bq_status status = count_states(t, queue->key[0], end, n, err);
    if (status == BQ_OK)
        status = count_states(t, dead->key[0], end, d, err);
    if (status != BQ_OK)
        return status;
    for (size_t i = 0; i < STATES; i++)
        out->states[i] = (bq_state_count){states[i], n[i]};
    out->ready = n[WAITING] + n[PAUSED] + n[PRIORITIZED];
    out->delayed = n[DELAYED];
    out->in_flight = n[ACTIVE];
    out->dead = n[FAILED] + d[WAITING] + d[PAUSED] + d[PRIORITIZED] + d[DELAYED] + d[ACTIVE];
    return BQ_OK;
}

static rd_script bull_purge(rd_transport *t, const rd_keys *keys)
{
    begin_script(t, RD_BULL_PURGE, keys->key[0]);
    bq_rd_arg_int(&t->args, PURGE_STEP);
    return RD_BULL_PURGE;
}

static rd_script bull_peek(rd_transport *t, const rd_keys *keys, uint64_t after, size_t count)
{
    begin_script(t, RD_BULL_PEEK, keys->key[0]);
    bq_rd_arg_int(&t->args, (int64_t)after);
    bq_rd_arg_int(&t->args, (int64_t)count);
    return RD_BULL_PEEK;
}

static rd_script bull_failed(rd_transport *t, const rd_keys *keys, int64_t until_ms, uint64_t after, size_t count)
{
    begin_script(t, RD_BULL_FAILED, keys->key[0]);
    bq_rd_arg_int(&t->args, until_ms);
    bq_rd_arg_int(&t->args, (int64_t)after);
    bq_rd_arg_int(&t->args, (int64_t)count);
    return RD_BULL_FAILED;
}

static rd_script bull_retry(rd_transport *t, const rd_keys *keys, bq_str id)
{
    begin_script(t, RD_BULL_RETRY, keys->key[0]);
    bq_rd_arg(&t->args, id);
    return RD_BULL_RETRY;
}

static bool bull_read_peeked(rd_delivery *d, const rd_reply *page, size_t at)
{
    return read_job(d, bq_rd_at(page, at + 1));
}

const rd_layout bq_rd_bullmq = {
    .binding = "bullmq",
    .waits_for_all = true,
    .key_type = "hash",
    .fails_natively = true,
    .follows = true,
    .reserve_script = RD_BULL_RESERVE,
    .settle_script = RD_BULL_SETTLE,
    .keys = bull_keys,
    .check = bull_check,
    .publish = bull_publish,
    .reserve = bull_reserve,
    .settle = bull_settle,
    .entry = bull_entry,
    .wait = bull_wait,
    .read = bull_read,
    .deadline = bull_deadline,
    .chore_ms = bull_chore_ms,
    .chore = bull_chore,
    .queue_of = bull_queue_of,
    .stats = bull_stats,
    .purge = bull_purge,
    .purge_step = PURGE_STEP,
    .look_ms = bull_look_ms,
    .peek = bull_peek,
    .failed = bull_failed,
    .retry = bull_retry,
    .read_peeked = bull_read_peeked,
};

/* ---- the table ---------------------------------------------------------------------------------------------------- */

static const bq_binding *bullmq_binding(const void *options)
{
    (void)options;
    return bq_binding_find(BQ_STR("bullmq"));
}

static bq_status read_defaults(rd_transport *t, const rd_options *o, bq_error *err)
{
    t->job = (bq_bullmq_job)BQ_BULLMQ_JOB_INIT;
    t->job.attempts = o->job_attempts;
    t->job.priority = o->job_priority;
    if (o->job_backoff && !bq_bullmq_parse_backoff(o->job_backoff, &t->job))
        return bq_fail(err, BQ_CONFIG, "backoff: '%s' is neither fixed:D nor exponential:D, with :JITTER from 0 to 1",
                       o->job_backoff);
    if (o->job_on_complete && !bq_bullmq_parse_keep(o->job_on_complete, &t->job.on_complete))
        return bq_fail(err, BQ_CONFIG, "remove_on_complete: '%s' is none of yes, a number of jobs, a duration",
                       o->job_on_complete);
    if (o->job_on_fail && !bq_bullmq_parse_keep(o->job_on_fail, &t->job.on_fail))
        return bq_fail(err, BQ_CONFIG, "remove_on_fail: '%s' is none of yes, a number of jobs, a duration",
                       o->job_on_fail);
    return BQ_OK;
}

static bq_status bullmq_open(void *state, const bq_transport_config *config, bq_error *err)
{
    for (size_t i = 0; i < config->queue_count; i++)
        if (config->queues[i].len > 0 && memchr(config->queues[i].ptr, ':', config->queues[i].len))
            return bq_fail(err, BQ_INVALID, "a queue's name holds no colon in BullMQ");
    bq_status status = read_defaults(state, config->options, err);
    return status == BQ_OK ? bq_rd_open(state, config, &bq_rd_bullmq, err) : status;
}

static const char *const schemes[] = {"bullmq", "bullmqs", "bullmq+unix", "bullmq+sentinel", NULL};

static const bq_option table[] = {
    BQ_NETWORK_OPTION_ROWS(rd_options, net),
    BQ_TLS_OPTION_ROWS(rd_options, tls),
    {"prefix", BQ_OPT_STRING, offsetof(rd_options, prefix), "bull", 0, 0, NULL, 0, NULL,
     "what the keys of all queues begin with; {braces} around it keep them on one node of a cluster"},
    {"lock_duration", BQ_OPT_DURATION, offsetof(rd_options, retry_after_ms), "30s", 1000, INT64_C(31536000000), NULL, 0,
     NULL, "how long a job's lock holds; it is renewed while the handler runs"},
    {"stalled_interval", BQ_OPT_DURATION, offsetof(rd_options, stalled_interval_ms), "30s", 1000, INT64_C(31536000000),
     NULL, 0, NULL, "how often jobs whose worker fell silent are looked for"},
    {"max_stalled", BQ_OPT_INT, offsetof(rd_options, max_stalled), "1", 0, 1000000, NULL, 0, NULL,
     "how often a job may stall before it fails for good"},
    {"drain_delay", BQ_OPT_DURATION, offsetof(rd_options, drain_delay_ms), "5s", 100, 3600000, NULL, 0, NULL,
     "how long an idle worker waits to be woken before it looks by itself"},
    {"max_events", BQ_OPT_INT, offsetof(rd_options, max_events), "10000", 0, INT64_C(1000000000), NULL, 0, NULL,
     "about how many events a queue keeps that says nothing else itself"},
    {"attempts", BQ_OPT_INT, offsetof(rd_options, job_attempts), "-1", -1, INT32_MAX, NULL, 0, NULL,
     "published jobs: how often each is tried in all; -1: BullMQ's own default"},
    {"backoff", BQ_OPT_STRING, offsetof(rd_options, job_backoff), NULL, 0, 0, NULL, 0, NULL,
     "published jobs: fixed:D or exponential:D, with :JITTER from 0 to 1"},
    {"priority", BQ_OPT_INT, offsetof(rd_options, job_priority), "-1", -1, 2097152, NULL, 0, NULL,
     "published jobs: 1 comes first; 0 and -1: none"},
    {"remove_on_complete", BQ_OPT_STRING, offsetof(rd_options, job_on_complete), NULL, 0, 0, NULL, 0, NULL,
     "published jobs that completed: yes (none stays), how many stay, or for how long"},
    {"remove_on_fail", BQ_OPT_STRING, offsetof(rd_options, job_on_fail), NULL, 0, 0, NULL, 0, NULL,
     "published jobs that failed: as remove_on_complete"},
    BQ_RD_SERVER_OPTION_ROWS("bullmq"),
    {.name = NULL},
};

const bq_transport_ops bq_bullmq_ops = {
    .size = sizeof(bq_transport_ops),
    .name = "bullmq",
    .schemes = schemes,
    .summary = "BullMQ 5 and 6: its own jobs on Redis 6.2 or newer, shared with workers of Node.js",
    .url_syntax = "bullmq://[USER:PASSWORD@]HOST[:PORT][/DB]",
    .table = table,
    .options_size = sizeof(rd_options),
    .state_size = sizeof(rd_transport),
    .capabilities = BQ_CAP_RELEASE | BQ_CAP_RELEASE_DELAY | BQ_CAP_EXTEND | BQ_CAP_REJECT | BQ_CAP_NATIVE_RETRY |
                    BQ_CAP_RETRY_DELAY | BQ_CAP_PUBLISH_DELAY | BQ_CAP_HEADERS | BQ_CAP_PEEK | BQ_CAP_IDLE |
                    BQ_CAP_KEEP,
    .binding = bullmq_binding,
    .open = bullmq_open,
    BQ_RD_OPS,
};
