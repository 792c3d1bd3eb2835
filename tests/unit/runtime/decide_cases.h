/*
 * decide_cases.h - the deliveries and configurations that the tests of decide share, and a decision as one line. It
 * reads as the contract does:
 *   ack | drop | leave | release | handle | hook
 *   retry N          a copy with attempts N; "unchanged": the body's bytes stay; "tier T": the retry topic
 *   native_retry     the broker redelivers and counts; "job": after the job's own backoff
 *   dlq REASON N WHO a record; WHO names the exception, "-" is null, "handler" is the handler's own. "dlq gated": raw
 *   reject REASON    natively
 * then "in MS" (delay), "hold MS" (the worker holds it), "ignored" (a delay that the tier overrules), "cut",
 * and at the end what on_error is told: "!failed", "!unknown", "!poison", "!gated", "!lost", or nothing.
 */
#ifndef TESTS_RUNTIME_DECIDE_CASES_H
#define TESTS_RUNTIME_DECIDE_CASES_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/decide.h"

/* A binding, with what else section 7 makes its cells depend on. */
typedef struct config {
    const char *name;
    const char *binding;
    int max_attempts; /* -1: the default */
    int tiers;
    bool default_on; /* section 7, column "dead-lettering" */
    bool gates;
    bool strategies;
} config;

static const config CONFIGS[] = {
    {"memory", "memory", -1, 0, true, false, true},     {"sqlite", "sqlite", -1, 0, true, false, true},
    {"redis", "redis", -1, 0, true, false, true},       {"laravel", "laravel", -1, 0, true, false, true},
    {"bullmq", "bullmq", -1, 0, false, false, false},   {"bullmq+max", "bullmq", 3, 0, false, false, false},
    {"rabbitmq", "rabbitmq", -1, 0, true, false, true}, {"sqs", "sqs", -1, 0, false, true, true},
    {"sqs+max", "sqs", 3, 0, false, true, true},        {"sb", "sb", -1, 0, false, true, true},
    {"sb+max", "sb", 3, 0, false, true, true},          {"pulsar", "pulsar", -1, 0, false, true, true},
    {"kafka", "kafka", -1, 0, false, true, true},       {"kafka+tiers", "kafka", -1, 2, true, true, true},
    {"artemis", "artemis", -1, 0, false, true, true},
};

/* The deliveries. Attempts and counts as they arrive; the limit is 3 where there is one. */
typedef enum event {
    DONE,
    RELEASED,     /* shutdown */
    HANDLED,      /* arrives, its URN has a handler */
    HOOKED,       /* arrives, unknown URN, a hook is set */
    FAILED_FIRST, /* attempts 0 */
    FAILED_ASKED, /* attempts 1, and the handler asks for 5 s */
    FAILED_LAST,  /* attempts 2 */
    REJECTED,     /* attempts 1 */
    UNKNOWN_FIRST,
    UNKNOWN_LAST,
    POISON_FIRST, /* attempts 1 */
    POISON_LAST,  /* attempts 2 */
    GATED,
    LOST, /* its worker died three times */
    EVENTS
} event;

static const char *const EVENT_NAMES[EVENTS] = {
    "done",     "released",      "handled",      "hooked",       "failed first", "failed asked", "failed last",
    "rejected", "unknown first", "unknown last", "poison first", "poison last",  "gated",        "lost"};
static inline bool names(const char *set, const char *name)
{
    if (!set)
        return true;
    size_t len = strlen(name);
    for (const char *p = set; (p = strstr(p, name)); p += len) {
        if ((p == set || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\0'))
            return true;
    }
    return false;
}

static inline bq_outcome hook(bq_delivery *delivery, void *arg)
{
    (void)delivery;
    (void)arg;
    return BQ_DONE;
}

static inline bq_policy policy_of(const config *c, int dead, int strategy, bool with_hook)
{
    bq_consumer_options options = {.size = sizeof options};
    options.max_attempts = c->max_attempts;
    options.dead_lettering = (bq_dead_lettering)dead;
    options.unknown = (bq_unknown_urn)strategy;
    options.unknown_hook = with_hook ? hook : NULL;
    bq_policy policy;
    bq_error err;
    if (bq_policy_init(&policy, bq_binding_find(bq_str_of(c->binding)), &options, c->tiers, &err) != BQ_OK)
        fail_msg("%s: %s", c->name, err.text);
    return policy;
}

static inline void decide(const config *c, const bq_policy *policy, event e, bq_decision *out)
{
    bq_facts facts = {.routed = true, .native_count = -1};
    switch (e) {
    case DONE: bq_decide_outcome(policy, &facts, BQ_DONE, -1, 0, out); return;
    case RELEASED: bq_decide_outcome(policy, &facts, BQ_RELEASED, -1, 0, out); return;
    case FAILED_FIRST: bq_decide_outcome(policy, &facts, BQ_FAILED, -1, 0, out); return;
    case FAILED_ASKED:
        facts.attempts = 1;
        bq_decide_outcome(policy, &facts, BQ_FAILED, 5000, 0, out);
        return;
    case FAILED_LAST:
        facts.attempts = 2;
        bq_decide_outcome(policy, &facts, BQ_FAILED, -1, 0, out);
        return;
    case REJECTED:
        facts.attempts = 1;
        bq_decide_outcome(policy, &facts, BQ_REJECTED, -1, 0, out);
        return;
    case HANDLED: break;
    case HOOKED:
    case UNKNOWN_FIRST: facts.routed = false; break;
    case UNKNOWN_LAST:
        facts.routed = false;
        facts.attempts = 2;
        break;
    case POISON_FIRST:
        facts.poison = true;
        facts.attempts = 1;
        break;
    case POISON_LAST:
        facts.poison = true;
        facts.attempts = 2;
        break;
    case GATED: facts.gated = true; break;
    default: /* LOST, as each of the counts of contract 3 shows it */
        facts.lapses = strcmp(c->binding, "rabbitmq") == 0 ? 0 : 3;
        facts.native_count = strcmp(c->binding, "sqs") == 0 ? 4 : 3;
        facts.attempts = strcmp(c->binding, "laravel") == 0 ? 3 : 0;
        break;
    }
    bq_decide_arrival(policy, &facts, 0, out);
}

static inline const char *who(const bq_decision *d)
{
    if (d->cause == BQ_CAUSE_HANDLER)
        return "handler";
    return bq_cause_exception(d->cause) ? bq_cause_exception(d->cause) : "-";
}

static inline void describe(const bq_decision *d, char *out, size_t size)
{
    static const char *const TROUBLES[] = {"failed", "unknown", "poison", "gated", "lost", "settlement"};
    char extra[160] = "";
    int n = 0;
    switch (d->act) {
    case BQ_ACT_RETRY:
        n = snprintf(out, size, "retry %" PRId32 "%s", d->attempts, d->bytes_unchanged ? " unchanged" : "");
        break;
    case BQ_ACT_NATIVE_RETRY: n = snprintf(out, size, "native_retry%s", d->delay_ms == -1 ? " job" : ""); break;
    case BQ_ACT_REJECT: n = snprintf(out, size, "reject %s", d->reject_reason); break;
    case BQ_ACT_DEAD_LETTER:
        n = d->copy == BQ_COPY_GATED
                ? snprintf(out, size, "dlq gated")
                : snprintf(out, size, "dlq %s %" PRId32 " %s%s%s", bq_reason_name(d->reason), d->attempts, who(d),
                           d->reject_after ? " then reject " : "", d->reject_after ? d->reject_reason : "");
        break;
    default: n = snprintf(out, size, "%s", bq_act_name(d->act)); break;
    }
    if (d->tier)
        n += snprintf(out + n, size - (size_t)n, " tier %d", d->tier);
    if (d->delay_ms > 0)
        n += snprintf(out + n, size - (size_t)n, " in %" PRId64, d->delay_ms);
    if (d->hold_ms > 0)
        n += snprintf(out + n, size - (size_t)n, " hold %" PRId64, d->hold_ms);
    snprintf(extra, sizeof extra, "%s%s%s%s", d->delay_ignored ? " ignored" : "", d->delay_cut ? " cut" : "",
             d->reported ? " !" : "", d->reported ? TROUBLES[d->trouble] : "");
    snprintf(out + n, size - (size_t)n, "%s", extra);
}

static inline const config *config_named(const char *name)
{
    for (size_t i = 0; i < sizeof CONFIGS / sizeof CONFIGS[0]; i++) {
        if (strcmp(CONFIGS[i].name, name) == 0)
            return &CONFIGS[i];
    }
    fail_msg("no configuration %s", name);
    return NULL;
}

#endif
