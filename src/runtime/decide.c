/*
 * runtime/decide.c - see decide.h. The functions follow the rows of contract 3's table from top to bottom; what a row
 * leaves to section 7 is read from the binding.
 *
 * Thread rule: pure functions.
 */
#include "runtime/decide.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"

#define PAUSE_DEFAULT_MS 1000                  /* contract 3: "after a pause (default 1 s)" */
#define DELAY_MAX_MS INT64_C(4000000000000000) /* what a double still counts exactly, and far beyond any deadline */

/* ---- policy ------------------------------------------------------------------------------------------------------ */

static void resolve_dead_lettering(bq_policy *policy, const bq_consumer_options *options)
{
    bool off = options->dead_lettering == BQ_DEAD_LETTER_OFF;
    bool asked = options->dead_lettering == BQ_DEAD_LETTER_ON || policy->dead_letter_queue ||
                 options->unknown == BQ_UNKNOWN_URN_DEAD_LETTER;
    bool on = asked;
    switch (policy->binding->dead_default) {
    case BQ_DEAD_ON: on = true; break;
    case BQ_DEAD_WITH_RETRY: on = asked || policy->tiers > 0; break;
    case BQ_DEAD_OPT_IN:
    case BQ_DEAD_POISON_ONLY: break;
    }
    policy->dead = on && !off && policy->binding->dead_default != BQ_DEAD_POISON_ONLY;
    policy->dead_poison = on && !off;
}

static bq_status resolve_max_attempts(bq_policy *policy, int asked, bq_error *err)
{
    policy->max_attempts = asked == -1 ? policy->binding->max_attempts : asked;
    if (asked >= 1 || asked == -1 || (asked == 0 && policy->binding->zero_attempts_ok))
        return BQ_OK;
    return bq_fail(err, BQ_INVALID, "max_attempts %d is below 1%s", asked,
                   asked == 0 ? ", and this binding has no limit of the broker's own" : "");
}

static bq_status check_options(const bq_binding *binding, const bq_consumer_options *options, bq_error *err)
{
    if (!binding->has_strategies && options->unknown > BQ_UNKNOWN_URN_FAIL)
        return bq_fail(err, BQ_CONFIG, "%s knows no unknown-URN strategy but fail; use the hook", binding->name);
    if (options->unknown_delay_ms < 0 || options->retry_base_ms < 0 || options->retry_max_ms < 0)
        return bq_fail(err, BQ_INVALID, "a delay below 0");
    if (!isfinite(options->retry_multiplier) || options->retry_multiplier < 0)
        return bq_fail(err, BQ_INVALID, "the retry multiplier is not a number of 0 or more");
    for (size_t i = 0; options->dead_letter_queue && i < options->queue_count; i++) {
        if (strcmp(options->dead_letter_queue, options->queues[i]) == 0)
            return bq_fail(err, BQ_CONFIG, "the dead-letter queue %s is consumed by the same worker",
                           options->dead_letter_queue);
    }
    return BQ_OK;
}

bq_status bq_policy_init(bq_policy *policy, const bq_binding *binding, const bq_consumer_options *options, int tiers,
                         bq_error *err)
{
    bq_status status = check_options(binding, options, err);
    if (status != BQ_OK)
        return status;
    bool named = options->dead_letter_queue && options->dead_letter_queue[0];
    *policy = (bq_policy){
        .binding = binding,
        .unknown = options->unknown,
        .unknown_delay_ms = options->unknown_delay_ms,
        .has_hook = options->unknown_hook != NULL,
        .tiers = binding->retry == BQ_RETRY_TIERS ? tiers : 0,
        .dead_letter_queue = named ? options->dead_letter_queue : NULL,
        .retry_base_ms = options->retry_base_ms,
        .retry_multiplier = options->retry_multiplier == 0 ? 1 : options->retry_multiplier,
        .retry_max_ms = options->retry_max_ms,
        .retry_jitter = options->retry_jitter,
        .pause_ms = options->settle_pause_ms == 0  ? PAUSE_DEFAULT_MS
                    : options->settle_pause_ms < 0 ? 0
                                                   : options->settle_pause_ms,
    };
    resolve_dead_lettering(policy, options);
    return resolve_max_attempts(policy, options->max_attempts, err);
}

/* ---- backoff ----------------------------------------------------------------------------------------------------- */

/* By squaring: n may be any count that arrived. */
static double power(double x, uint32_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1)
            result *= x;
        x *= x;
    }
    return result;
}

int64_t bq_backoff(const bq_policy *policy, int32_t n, uint64_t random)
{
    if (policy->retry_base_ms <= 0)
        return 0;
    double delay = (double)policy->retry_base_ms * power(policy->retry_multiplier, n > 1 ? (uint32_t)n - 1 : 0);
    int64_t d = delay < (double)DELAY_MAX_MS ? (int64_t)delay : DELAY_MAX_MS;
    if (policy->retry_max_ms > 0 && d > policy->retry_max_ms)
        d = policy->retry_max_ms;
    if (policy->retry_jitter == BQ_JITTER_FULL) /* 53 bits of it, as a fraction below 1 */
        d = (int64_t)((double)(d + 1) * ((double)(random >> 11) * 0x1p-53));
    return d;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static int32_t counted(const bq_facts *facts)
{
    return facts->attempts < INT32_MAX ? facts->attempts + 1 : INT32_MAX;
}

static void start(bq_decision *out, const bq_facts *facts, bq_cause cause)
{
    *out = (bq_decision){.cause = cause, .attempts = facts->attempts, .copy = BQ_COPY_RELEASE};
}

static void report(bq_decision *out, bq_trouble trouble)
{
    out->reported = true;
    out->trouble = trouble;
}

/* The delay of a retry or a release, within what the binding can do. */
static void set_delay(const bq_policy *policy, int64_t delay, bq_decision *out)
{
    int64_t max = policy->binding->retry_delay_max_ms;
    if (delay < 0)
        delay = 0;
    if (max > 0 && delay > max) {
        delay = max;
        out->delay_cut = true;
    }
    if (policy->binding->retry_delay_held)
        out->hold_ms = delay;
    else
        out->delay_ms = delay;
}

static void drop(bq_decision *out, const char *why)
{
    out->act = BQ_ACT_DROP;
    out->dropped = why;
    out->settled = BQ_SETTLED_DROPPED;
}

static void dead_letter(bq_decision *out, bq_copy copy, bq_reason reason, int32_t attempts)
{
    out->act = BQ_ACT_DEAD_LETTER;
    out->copy = copy;
    out->reason = reason;
    out->attempts = attempts;
    out->settled = BQ_SETTLED_DEAD_LETTERED;
}

/* Contract 7.8: n = min(attempts, N-1)+1. */
static int tier_of(const bq_policy *policy, const bq_facts *facts)
{
    int last = policy->tiers - 1;
    return (facts->attempts < last ? facts->attempts : last) + 1;
}

/* Kafka without retry topics: not committed, sought back, the partition paused. */
static void seek_back(bq_decision *out, int64_t pause_ms)
{
    out->act = BQ_ACT_RELEASE;
    out->delay_ms = pause_ms;
    out->settled = BQ_SETTLED_RELEASED;
}

/* Another try, with `attempts` = counted. `asked_ms` is the handler's own delay, -1: the backoff. */
static void retry(const bq_policy *policy, const bq_facts *facts, int64_t asked_ms, uint64_t random, bq_decision *out)
{
    int64_t delay = asked_ms >= 0 ? asked_ms : bq_backoff(policy, counted(facts), random);
    out->attempts = counted(facts);
    out->settled = BQ_SETTLED_RETRIED;
    switch (policy->binding->retry) {
    case BQ_RETRY_TIERS:
        out->delay_ignored = delay > 0;
        if (policy->tiers == 0) {
            seek_back(out, policy->pause_ms);
            return;
        }
        out->act = BQ_ACT_RETRY;
        out->copy = BQ_COPY_RETRY;
        out->tier = tier_of(policy, facts);
        return;
    case BQ_RETRY_NATIVE:
        out->act = BQ_ACT_NATIVE_RETRY;
        if (policy->binding->attempts == BQ_ATTEMPTS_NATIVE && asked_ms < 0)
            out->delay_ms = -1; /* the job's own backoff (7.3) */
        else
            set_delay(policy, delay, out);
        return;
    case BQ_RETRY_COPY:
        out->act = BQ_ACT_RETRY;
        out->copy = BQ_COPY_RETRY;
        set_delay(policy, delay, out);
        return;
    }
}

/* Dead-lettering is off: what section 7 says, else the drop. `reason` is the native rejection's. */
static void settle_off(const bq_policy *policy, const bq_facts *facts, bq_off_rule rule, const char *reason,
                       const char *why, uint64_t random, bq_decision *out)
{
    switch (rule) {
    case BQ_OFF_REJECT:
        out->act = BQ_ACT_REJECT;
        out->reject_reason = reason;
        out->settled = BQ_SETTLED_REJECTED;
        return;
    case BQ_OFF_LEAVE:
    case BQ_OFF_NO_LIMIT:
        out->act = BQ_ACT_LEAVE;
        out->settled = BQ_SETTLED_LEFT;
        return;
    case BQ_OFF_DEAD_LETTER: dead_letter(out, BQ_COPY_POISON, BQ_REASON_POISON, facts->attempts); return;
    case BQ_OFF_RETRY_THEN_DROP:
        if (counted(facts) < policy->max_attempts) {
            retry(policy, facts, -1, random, out);
            out->bytes_unchanged = true;
            return;
        }
        drop(out, why);
        return;
    case BQ_OFF_DROP: drop(out, why); return;
    }
}

/* The limit of ours that applies: SQS and Service Bus ignore it while there is no dead-letter queue of ours. */
static int limit_of(const bq_policy *policy)
{
    return policy->dead || policy->binding->off_exhausted != BQ_OFF_NO_LIMIT ? policy->max_attempts : 0;
}

static void failed(const bq_policy *policy, const bq_facts *facts, bq_reason reason, int64_t asked_ms, uint64_t random,
                   bq_decision *out)
{
    int limit = limit_of(policy);
    /* Contract 7.8: "failure with no tiers but a DLQ: straight to the DLQ". */
    bool at_once = policy->binding->retry == BQ_RETRY_TIERS && policy->tiers == 0 && policy->dead;
    if (!at_once && (limit == 0 || counted(facts) < limit)) {
        retry(policy, facts, asked_ms, random, out);
        return;
    }
    out->attempts = counted(facts);
    if (policy->dead)
        dead_letter(out, BQ_COPY_RECORD, reason, counted(facts));
    else
        settle_off(policy, facts, policy->binding->off_exhausted, bq_reason_name(reason),
                   "its attempts are exhausted and dead-lettering is off", random, out);
}

static void rejected(const bq_policy *policy, const bq_facts *facts, bq_decision *out)
{
    out->attempts = counted(facts);
    if (policy->dead)
        dead_letter(out, BQ_COPY_RECORD, BQ_REASON_FAILED, counted(facts));
    else
        settle_off(policy, facts, policy->binding->off_rejected, "failed",
                   "its handler rejected it and dead-lettering is off", 0, out);
}

/* ---- arrival ----------------------------------------------------------------------------------------------------- */

static void gated(const bq_policy *policy, const bq_facts *facts, bq_decision *out)
{
    start(out, facts, BQ_CAUSE_GATED);
    report(out, BQ_TROUBLE_GATED);
    if (policy->unknown == BQ_UNKNOWN_URN_DELETE)
        drop(out, "its schema version is not supported and the strategy is delete");
    else if (policy->dead)
        dead_letter(out, BQ_COPY_GATED, BQ_REASON_POISON, facts->attempts);
    else
        settle_off(policy, facts, policy->binding->off_gated, "unsupported schema version",
                   "its schema version is not supported and dead-lettering is off", 0, out);
}

static void poison(const bq_policy *policy, const bq_facts *facts, uint64_t random, bq_decision *out)
{
    start(out, facts, BQ_CAUSE_POISON);
    report(out, BQ_TROUBLE_POISON);
    if (policy->unknown == BQ_UNKNOWN_URN_DELETE && !policy->binding->poison_ignores_delete) {
        drop(out, "it is poison and the strategy is delete");
        return;
    }
    if (!policy->dead_poison) {
        settle_off(policy, facts, policy->binding->off_poison, "poison", "it is poison and dead-lettering is off",
                   random, out);
        return;
    }
    dead_letter(out, BQ_COPY_POISON, BQ_REASON_POISON, facts->attempts);
    if (policy->binding->dead_default == BQ_DEAD_POISON_ONLY) { /* 7.3: "fails unrecoverably" all the same */
        out->reject_after = true;
        out->reject_reason = "poison";
    }
}

static void release(const bq_policy *policy, const bq_facts *facts, bq_decision *out)
{
    int64_t delay = policy->unknown_delay_ms;
    out->act = BQ_ACT_RELEASE;
    out->settled = BQ_SETTLED_RELEASED;
    if (policy->binding->retry != BQ_RETRY_TIERS) {
        set_delay(policy, delay, out);
    } else if (policy->tiers > 0) {
        out->tier = tier_of(policy, facts);
        out->delay_ignored = delay > 0;
    } else {
        seek_back(out, delay > 0 ? delay : policy->pause_ms);
    }
}

static void unknown_urn(const bq_policy *policy, const bq_facts *facts, uint64_t random, bq_decision *out)
{
    switch (policy->unknown) {
    case BQ_UNKNOWN_URN_UNSET:
    case BQ_UNKNOWN_URN_FAIL:
        start(out, facts, BQ_CAUSE_UNKNOWN_URN);
        report(out, BQ_TROUBLE_UNKNOWN_URN);
        failed(policy, facts, BQ_REASON_UNKNOWN_URN, -1, random, out);
        return;
    case BQ_UNKNOWN_URN_RELEASE:
        start(out, facts, BQ_CAUSE_NONE);
        release(policy, facts, out);
        return;
    case BQ_UNKNOWN_URN_DEAD_LETTER:
        start(out, facts, BQ_CAUSE_NONE);
        if (policy->dead)
            dead_letter(out, BQ_COPY_RECORD, BQ_REASON_UNKNOWN_URN, facts->attempts);
        else
            drop(out, "no handler serves its URN and dead-lettering is off");
        return;
    case BQ_UNKNOWN_URN_DELETE:
        start(out, facts, BQ_CAUSE_NONE);
        drop(out, "no handler serves its URN and the strategy is delete");
        return;
    }
}

/* Deliveries that ended without a settlement, -1 where nobody counts them. */
static int64_t crashes(const bq_policy *policy, const bq_facts *facts)
{
    switch (policy->binding->crash) {
    case BQ_CRASH_LAPSES: return facts->lapses;
    case BQ_CRASH_ATTEMPTS: return facts->attempts;
    case BQ_CRASH_NATIVE: return facts->native_count;
    case BQ_CRASH_NATIVE_1: return facts->native_count - 1;
    case BQ_CRASH_NONE: break;
    }
    return -1;
}

/* Contract 3, crash loops: true when the delivery is settled without calling a handler. */
static bool worker_lost(const bq_policy *policy, const bq_facts *facts, bq_decision *out)
{
    int64_t count = crashes(policy, facts);
    int limit = limit_of(policy);
    if (limit == 0 || count < limit)
        return false;
    if (count < facts->attempts)
        count = facts->attempts;
    start(out, facts, BQ_CAUSE_WORKER_LOST);
    report(out, BQ_TROUBLE_WORKER_LOST);
    out->attempts = count > INT32_MAX ? INT32_MAX : (int32_t)count;
    if (policy->dead)
        dead_letter(out, BQ_COPY_RECORD, BQ_REASON_FAILED, out->attempts);
    else
        settle_off(policy, facts, policy->binding->off_exhausted, "failed",
                   "it keeps ending its worker and dead-lettering is off", 0, out);
    return true;
}

void bq_decide_arrival(const bq_policy *policy, const bq_facts *facts, uint64_t random, bq_decision *out)
{
    if (facts->gated) {
        gated(policy, facts, out);
        return;
    }
    if (facts->poison) {
        poison(policy, facts, random, out);
        return;
    }
    bool routed = facts->routed && !facts->null_root;
    if (!routed && !policy->has_hook) {
        unknown_urn(policy, facts, random, out);
        return;
    }
    if (worker_lost(policy, facts, out))
        return;
    start(out, facts, BQ_CAUSE_NONE);
    out->act = routed ? BQ_ACT_HANDLE : BQ_ACT_HOOK;
}

/* ---- outcome ----------------------------------------------------------------------------------------------------- */

void bq_decide_give_back(const bq_policy *policy, const bq_facts *facts, bq_decision *out)
{
    (void)policy;
    start(out, facts, BQ_CAUSE_NONE);
    out->act = BQ_ACT_RELEASE;
    out->settled = BQ_SETTLED_RELEASED;
}

void bq_decide_outcome(const bq_policy *policy, const bq_facts *facts, bq_outcome outcome, int64_t retry_after_ms,
                       uint64_t random, bq_decision *out)
{
    switch (outcome) {
    case BQ_DONE:
        start(out, facts, BQ_CAUSE_NONE);
        out->act = BQ_ACT_ACK;
        out->settled = BQ_SETTLED_ACKED;
        return;
    case BQ_RELEASED: bq_decide_give_back(policy, facts, out); return;
    case BQ_REJECTED:
        start(out, facts, BQ_CAUSE_HANDLER);
        report(out, BQ_TROUBLE_FAILED);
        rejected(policy, facts, out);
        return;
    default:
        start(out, facts, BQ_CAUSE_HANDLER);
        report(out, BQ_TROUBLE_FAILED);
        failed(policy, facts, BQ_REASON_FAILED, retry_after_ms, random, out);
        return;
    }
}

void bq_decide_unwritten(const bq_policy *policy, const bq_decision *failed_one, bq_decision *out)
{
    bool writes =
        failed_one->act == BQ_ACT_RETRY || failed_one->act == BQ_ACT_DEAD_LETTER || failed_one->act == BQ_ACT_RELEASE;
    *out = (bq_decision){.act = BQ_ACT_LEAVE,
                         .cause = failed_one->cause,
                         .attempts = failed_one->attempts,
                         .copy = BQ_COPY_RELEASE,
                         .settled = BQ_SETTLED_FAILED};
    if (failed_one->act == BQ_ACT_DEAD_LETTER && failed_one->reject_after) {
        out->act = BQ_ACT_REJECT;
        out->reject_reason = failed_one->reject_reason;
        out->settled = BQ_SETTLED_REJECTED;
        return;
    }
    if (!writes || policy->binding->back == BQ_BACK_LEAVE)
        return;
    if (policy->binding->back == BQ_BACK_ABANDON) {
        out->act = BQ_ACT_NATIVE_RETRY;
        out->hold_ms = policy->pause_ms;
        return;
    }
    bool kafka = policy->binding->retry == BQ_RETRY_TIERS;
    /* What could not even be given back at once stays where it is. */
    if (failed_one->act == BQ_ACT_RELEASE && failed_one->tier == 0 && (kafka || failed_one->delay_ms == 0))
        return;
    out->act = BQ_ACT_RELEASE;
    /* A partition pauses behind its first unsettled record; everywhere else the delivery is held. */
    out->delay_ms = kafka ? policy->pause_ms : 0;
    out->hold_ms = kafka ? 0 : policy->pause_ms;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

const char *bq_act_name(bq_act act)
{
    switch (act) {
    case BQ_ACT_HANDLE: return "handle";
    case BQ_ACT_HOOK: return "hook";
    case BQ_ACT_ACK: return "ack";
    case BQ_ACT_DROP: return "drop";
    case BQ_ACT_RETRY: return "retry";
    case BQ_ACT_NATIVE_RETRY: return "native_retry";
    case BQ_ACT_DEAD_LETTER: return "dead_letter";
    case BQ_ACT_RELEASE: return "release";
    case BQ_ACT_REJECT: return "reject";
    case BQ_ACT_LEAVE: return "leave";
    }
    return "unknown";
}

const char *bq_cause_exception(bq_cause cause)
{
    switch (cause) {
    case BQ_CAUSE_UNKNOWN_URN: return "UnknownUrnError";
    case BQ_CAUSE_POISON:
    case BQ_CAUSE_GATED: return "BabelQueueError";
    case BQ_CAUSE_WORKER_LOST: return "WorkerLost";
    case BQ_CAUSE_NONE:
    case BQ_CAUSE_HANDLER: break;
    }
    return NULL;
}

static bq_status add_between(bq_buf *out, const char *before, bq_str text, const char *after)
{
    bq_status status = bq_buf_add_str(out, bq_str_of(before));
    if (status == BQ_OK)
        status = bq_buf_add_str(out, text);
    return status == BQ_OK ? bq_buf_add_str(out, bq_str_of(after)) : status;
}

bq_status bq_cause_error(bq_cause cause, const bq_envelope *env, bq_str detail, int32_t attempts, bq_buf *out)
{
    size_t before = out->len;
    bq_status status = BQ_OK;
    switch (cause) {
    case BQ_CAUSE_NONE:
    case BQ_CAUSE_HANDLER: break;
    case BQ_CAUSE_UNKNOWN_URN:
        status = add_between(out, "No handler mapped for URN [", detail.len ? detail : BQ_STR("(empty)"), "].");
        break;
    case BQ_CAUSE_POISON: status = bq_poison_error(env, out); break;
    case BQ_CAUSE_GATED: status = add_between(out, "Unsupported schema version [", detail, "]."); break;
    case BQ_CAUSE_WORKER_LOST:
        status = bq_buf_addf(out, "Taken %" PRId32 " times and never settled: its handler seems to end its worker.",
                             attempts);
        break;
    }
    if (status != BQ_OK)
        bq_buf_truncate(out, before);
    return status;
}
