/*
 * The settlement matrix of contract 3, written out from the contract's text: event x binding x dead-lettering x
 * strategy, every cell by hand. The first test asks for every combination and wants exactly one row to answer it, so
 * that no cell is missing and none is said twice.
 *
 * A row's expectation reads as the contract does:
 *   ack | drop | leave | release | handle | hook
 *   retry N          a copy with attempts N; "unchanged": the body's bytes stay; "tier T": the retry topic
 *   native_retry     the broker redelivers and counts; "job": after the job's own backoff
 *   dlq REASON N WHO a record; WHO names the exception, "-" is null, "handler" is the handler's own. "dlq gated": raw
 *   reject REASON    natively
 * then "in MS" (delay), "hold MS" (the worker holds it), "ignored" (a delay that the tier overrules), "cut",
 * and at the end what on_error is told: "!failed", "!unknown", "!poison", "!gated", "!lost", or nothing.
 */
#include "unit/cmocka_all.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "runtime/decide.h"
#include "unit/alloc_fail.h"

/* ---- the dimensions ---------------------------------------------------------------------------------------------- */

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

static const char *const STRATEGIES[] = {"unset", "fail", "delete", "release", "dead_letter"};
static const char *const DEAD[] = {"default", "on", "off"};

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

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef enum when { ANY, ON, OFF } when;

typedef struct row {
    event event;
    const char *configs;    /* NULL: all */
    const char *strategies; /* NULL: all */
    when dead;
    const char *expected;
} row;

#define COPIES "memory sqlite redis laravel rabbitmq pulsar"
#define BULLMQS "bullmq bullmq+max"
#define DEFAULTS "unset fail"

static const row TABLE[] = {
    {DONE, NULL, NULL, ANY, "ack"},
    {RELEASED, NULL, NULL, ANY, "release"},
    {HANDLED, NULL, NULL, ANY, "handle"},
    {HOOKED, NULL, NULL, ANY, "hook"},

    /* "counted < max_attempts: retry with attempts = counted" */
    {FAILED_FIRST, COPIES, NULL, ANY, "retry 1 !failed"},
    {FAILED_FIRST, "kafka+tiers", NULL, ANY, "retry 1 tier 1 !failed"},
    {FAILED_FIRST, "kafka", NULL, ON, "dlq failed 1 handler !failed"}, /* 7.8: straight to the DLQ */
    {FAILED_FIRST, "kafka", NULL, OFF, "release in 1000 !failed"},     /* 7.8: seek back, pause */
    {FAILED_FIRST, BULLMQS, NULL, ANY, "native_retry job !failed"},
    {FAILED_FIRST, "sqs sqs+max sb sb+max artemis", NULL, ANY, "native_retry !failed"},

    /* "failed, retry after a given delay"; Kafka: the tier decides; Service Bus and Artemis: held */
    {FAILED_ASKED, COPIES, NULL, ANY, "retry 2 in 5000 !failed"},
    {FAILED_ASKED, "kafka+tiers", NULL, ANY, "retry 2 tier 2 ignored !failed"},
    {FAILED_ASKED, "kafka", NULL, ON, "dlq failed 2 handler !failed"},
    {FAILED_ASKED, "kafka", NULL, OFF, "release in 1000 ignored !failed"},
    {FAILED_ASKED, "bullmq bullmq+max sqs sqs+max", NULL, ANY, "native_retry in 5000 !failed"},
    {FAILED_ASKED, "sb sb+max artemis", NULL, ANY, "native_retry hold 5000 !failed"},

    /* "else dead-letter (reason failed)"; "dead-lettering off: the exhausted rule" */
    {FAILED_LAST, COPIES " kafka kafka+tiers artemis", NULL, ON, "dlq failed 3 handler !failed"},
    {FAILED_LAST, COPIES " kafka kafka+tiers artemis", NULL, OFF, "drop !failed"},
    {FAILED_LAST, "sqs+max sb+max", NULL, ON, "dlq failed 3 handler !failed"},
    {FAILED_LAST, "sqs+max sb+max", NULL, OFF, "native_retry !failed"}, /* 7.4, 7.5: max_attempts is ignored */
    {FAILED_LAST, "sqs sb", NULL, ANY, "native_retry !failed"},         /* the broker's own limit */
    {FAILED_LAST, "bullmq", NULL, ANY, "native_retry job !failed"},
    {FAILED_LAST, "bullmq+max", NULL, ANY, "reject failed !failed"}, /* 7.3: stays in the failed set */

    /* "as exhausted: reason failed, attempts = counted"; off: "Service Bus: native reject; SQS: left to the queue" */
    {REJECTED, COPIES " kafka kafka+tiers artemis sqs sqs+max sb sb+max", NULL, ON, "dlq failed 2 handler !failed"},
    {REJECTED, COPIES " kafka kafka+tiers artemis", NULL, OFF, "drop !failed"},
    {REJECTED, "sqs sqs+max", NULL, OFF, "leave !failed"},
    {REJECTED, "sb sb+max", NULL, OFF, "reject failed !failed"},
    {REJECTED, BULLMQS, NULL, ANY, "reject failed !failed"}, /* 7.3: rejected = unrecoverable */

    /* "unknown URN, fail (default): as failed; exception UnknownUrnError" */
    {UNKNOWN_FIRST, COPIES, DEFAULTS, ANY, "retry 1 !unknown"},
    {UNKNOWN_FIRST, "kafka+tiers", DEFAULTS, ANY, "retry 1 tier 1 !unknown"},
    {UNKNOWN_FIRST, "kafka", DEFAULTS, ON, "dlq unknown_urn 1 UnknownUrnError !unknown"},
    {UNKNOWN_FIRST, "kafka", DEFAULTS, OFF, "release in 1000 !unknown"},
    {UNKNOWN_FIRST, BULLMQS, DEFAULTS, ANY, "native_retry job !unknown"},
    {UNKNOWN_FIRST, "sqs sqs+max sb sb+max artemis", DEFAULTS, ANY, "native_retry !unknown"},
    {UNKNOWN_LAST, COPIES " kafka kafka+tiers artemis", DEFAULTS, ON, "dlq unknown_urn 3 UnknownUrnError !unknown"},
    {UNKNOWN_LAST, COPIES " kafka kafka+tiers artemis", DEFAULTS, OFF, "drop !unknown"},
    {UNKNOWN_LAST, "sqs+max sb+max", DEFAULTS, ON, "dlq unknown_urn 3 UnknownUrnError !unknown"},
    {UNKNOWN_LAST, "sqs+max sb+max", DEFAULTS, OFF, "native_retry !unknown"},
    {UNKNOWN_LAST, "sqs sb", DEFAULTS, ANY, "native_retry !unknown"},
    {UNKNOWN_LAST, "bullmq", DEFAULTS, ANY, "native_retry job !unknown"},
    {UNKNOWN_LAST, "bullmq+max", DEFAULTS, ANY, "reject unknown_urn !unknown"},
    /* "unknown URN, delete: acknowledge" */
    {UNKNOWN_FIRST, NULL, "delete", ANY, "drop"},
    {UNKNOWN_LAST, NULL, "delete", ANY, "drop"},
    /* "unknown URN, release: give back unchanged; Kafka parks on the retry tier, without tiers seeks back and pauses" */
    {UNKNOWN_FIRST, COPIES " sqs sqs+max sb sb+max artemis", "release", ANY, "release"},
    {UNKNOWN_FIRST, "kafka+tiers", "release", ANY, "release tier 1"},
    {UNKNOWN_FIRST, "kafka", "release", ANY, "release in 1000"},
    {UNKNOWN_LAST, COPIES " sqs sqs+max sb sb+max artemis", "release", ANY, "release"},
    {UNKNOWN_LAST, "kafka+tiers", "release", ANY, "release tier 2"},
    {UNKNOWN_LAST, "kafka", "release", ANY, "release in 1000"},
    /* "unknown URN, dead_letter: now; attempts as reconciled, error and exception null; off: as delete" */
    {UNKNOWN_FIRST, NULL, "dead_letter", ON, "dlq unknown_urn 0 -"},
    {UNKNOWN_FIRST, NULL, "dead_letter", OFF, "drop"},
    {UNKNOWN_LAST, NULL, "dead_letter", ON, "dlq unknown_urn 2 -"},
    {UNKNOWN_LAST, NULL, "dead_letter", OFF, "drop"},

    /* "poison: explicit delete first (not on Redis, either layout)" */
    {POISON_FIRST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis", "delete", ANY,
     "drop !poison"},
    {POISON_LAST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis", "delete", ANY,
     "drop !poison"},
    /* 7.1: "dead-lettered in every configuration" */
    {POISON_FIRST, "redis laravel", NULL, ANY, "dlq poison 1 BabelQueueError !poison"},
    {POISON_LAST, "redis laravel", NULL, ANY, "dlq poison 2 BabelQueueError !poison"},
    /* "dead-lettering on: poison record to the DLQ at once" */
    {POISON_FIRST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis",
     "unset fail release dead_letter", ON, "dlq poison 1 BabelQueueError !poison"},
    {POISON_LAST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis",
     "unset fail release dead_letter", ON, "dlq poison 2 BabelQueueError !poison"},
    {POISON_FIRST, BULLMQS, NULL, ON, "dlq poison 1 BabelQueueError then reject poison !poison"},
    {POISON_LAST, BULLMQS, NULL, ON, "dlq poison 2 BabelQueueError then reject poison !poison"},
    /* "off: the poison rule" */
    {POISON_FIRST, "memory sqlite rabbitmq kafka kafka+tiers artemis", "unset fail release dead_letter", OFF,
     "drop !poison"},
    {POISON_LAST, "memory sqlite rabbitmq kafka kafka+tiers artemis", "unset fail release dead_letter", OFF,
     "drop !poison"},
    {POISON_FIRST, BULLMQS, NULL, OFF, "reject poison !poison"},
    {POISON_LAST, BULLMQS, NULL, OFF, "reject poison !poison"},
    {POISON_FIRST, "sqs sqs+max", "unset fail release dead_letter", OFF, "leave !poison"},
    {POISON_LAST, "sqs sqs+max", "unset fail release dead_letter", OFF, "leave !poison"},
    {POISON_FIRST, "sb sb+max", "unset fail release dead_letter", OFF, "reject poison !poison"},
    {POISON_LAST, "sb sb+max", "unset fail release dead_letter", OFF, "reject poison !poison"},
    /* 7.6: "re-published, bytes unchanged, bq-attempts = counted, while counted < max_attempts; then dropped" */
    {POISON_FIRST, "pulsar", "unset fail release dead_letter", OFF, "retry 2 unchanged !poison"},
    {POISON_LAST, "pulsar", "unset fail release dead_letter", OFF, "drop !poison"},

    /* "gated: explicit delete first; on: the raw body; off: the gate rule" */
    {GATED, NULL, "delete", ANY, "drop !gated"},
    {GATED, NULL, "unset fail release dead_letter", ON, "dlq gated !gated"},
    {GATED, "sqs sqs+max", "unset fail release dead_letter", OFF, "leave !gated"},
    {GATED, "sb sb+max", "unset fail release dead_letter", OFF, "reject unsupported schema version !gated"},
    {GATED, "pulsar kafka kafka+tiers artemis", "unset fail release dead_letter", OFF, "drop !gated"},

    /* "at the limit the message is dead-lettered (reason failed, exception WorkerLost, attempts = the count)" */
    {LOST, COPIES " artemis sqs+max sb+max", NULL, ON, "dlq failed 3 WorkerLost !lost"},
    {LOST, COPIES " artemis", NULL, OFF, "drop !lost"},
    {LOST, "sqs+max sb+max", NULL, OFF, "handle"}, /* no limit without a DLQ of ours */
    {LOST, "sqs sb bullmq bullmq+max kafka kafka+tiers", NULL, ANY, "handle"},
};

/* ---- asking the code --------------------------------------------------------------------------------------------- */

static bool names(const char *set, const char *name)
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

/* Contract 3: "on by the binding's default, a configured name, or the explicit strategy dead_letter; an explicit off
 * wins over all of them". */
static bool is_on(const config *c, int dead, int strategy)
{
    return dead != 2 && (dead == 1 || c->default_on || strategy == BQ_UNKNOWN_URN_DEAD_LETTER);
}

static bq_outcome hook(bq_delivery *delivery, void *arg)
{
    (void)delivery;
    (void)arg;
    return BQ_DONE;
}

static bq_policy policy_of(const config *c, int dead, int strategy, bool with_hook)
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

static void decide(const config *c, const bq_policy *policy, event e, bq_decision *out)
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

static const char *who(const bq_decision *d)
{
    if (d->cause == BQ_CAUSE_HANDLER)
        return "handler";
    return bq_cause_exception(d->cause) ? bq_cause_exception(d->cause) : "-";
}

static void describe(const bq_decision *d, char *out, size_t size)
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

static bq_settled settled_as(const bq_decision *d)
{
    switch (d->act) {
    case BQ_ACT_ACK: return BQ_SETTLED_ACKED;
    case BQ_ACT_DROP: return BQ_SETTLED_DROPPED;
    case BQ_ACT_RETRY:
    case BQ_ACT_NATIVE_RETRY: return BQ_SETTLED_RETRIED;
    case BQ_ACT_DEAD_LETTER: return BQ_SETTLED_DEAD_LETTERED;
    case BQ_ACT_RELEASE: return BQ_SETTLED_RELEASED;
    case BQ_ACT_REJECT: return BQ_SETTLED_REJECTED;
    default: return BQ_SETTLED_LEFT;
    }
}

/* What goes with the act, whatever the cell: the copy, the warning of a drop, the settled kind. */
static void check_consistency(const char *cell, const bq_decision *d)
{
    bool record = d->act == BQ_ACT_DEAD_LETTER;
    if (d->act != BQ_ACT_HANDLE && d->act != BQ_ACT_HOOK && d->settled != settled_as(d))
        fail_msg("%s: counted as %d", cell, (int)d->settled);
    if ((d->act == BQ_ACT_DROP) != (d->dropped != NULL))
        fail_msg("%s: every drop, and only a drop, has its warning", cell);
    if (d->act == BQ_ACT_RETRY && d->copy != BQ_COPY_RETRY)
        fail_msg("%s: a retry travels as a retry", cell);
    if (d->act == BQ_ACT_RELEASE && d->copy != BQ_COPY_RELEASE)
        fail_msg("%s: a release travels unchanged", cell);
    if (record && d->copy != BQ_COPY_GATED && (d->copy == BQ_COPY_POISON) != (d->reason == BQ_REASON_POISON))
        fail_msg("%s: the record of %s", cell, bq_reason_name(d->reason));
}

static bool applies(event e, const config *c, int strategy)
{
    if (e == GATED && !c->gates)
        return false;
    return c->strategies || strategy <= BQ_UNKNOWN_URN_FAIL;
}

static const row *find_row(event e, const config *c, int dead, int strategy, const char *cell)
{
    const row *found = NULL;
    bool on = is_on(c, dead, strategy);
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        const row *r = &TABLE[i];
        if (r->event != e || !names(r->configs, c->name) || !names(r->strategies, STRATEGIES[strategy]) ||
            (r->dead != ANY && (r->dead == ON) != on))
            continue;
        if (found)
            fail_msg("%s: said twice, \"%s\" and \"%s\"", cell, found->expected, r->expected);
        found = r;
    }
    if (!found)
        fail_msg("%s: no row says what happens", cell);
    return found;
}

static void every_cell(void **state)
{
    (void)state;
    size_t cells = 0;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof CONFIGS[0]; i++) {
        const config *c = &CONFIGS[i];
        for (int dead = 0; dead < 3; dead++) {
            for (int strategy = 0; strategy < 5; strategy++) {
                for (int e = 0; e < EVENTS; e++) {
                    if (!applies((event)e, c, strategy))
                        continue;
                    char cell[128], is[256];
                    snprintf(cell, sizeof cell, "%s, %s, dead-lettering %s, strategy %s", EVENT_NAMES[e], c->name,
                             DEAD[dead], STRATEGIES[strategy]);
                    const row *r = find_row((event)e, c, dead, strategy, cell);
                    bq_policy policy = policy_of(c, dead, strategy, e == HOOKED);
                    bq_decision d;
                    decide(c, &policy, (event)e, &d);
                    describe(&d, is, sizeof is);
                    if (strcmp(is, r->expected) != 0)
                        fail_msg("%s: expected \"%s\", got \"%s\"", cell, r->expected, is);
                    check_consistency(cell, &d);
                    cells++;
                }
            }
        }
    }
    /* 13 bindings with strategies x 3 x 5 x 13 events, 2 without x 3 x 2 x 13, and 8 that gate x 3 x 5. */
    assert_int_equal(cells, 13 * 15 * 13 + 2 * 6 * 13 + 8 * 15);
}

/* A name turns dead-lettering on as "on" does (contract 3). */
static void a_name_turns_it_on(void **state)
{
    (void)state;
    bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .dead_letter_queue = "elsewhere"};
    bq_policy policy;
    for (size_t i = 0; bq_binding_at(i); i++) {
        const bq_binding *binding = bq_binding_at(i);
        bool bullmq = strcmp(binding->name, "bullmq") == 0;
        options.dead_lettering = BQ_DEAD_LETTER_DEFAULT;
        assert_int_equal(bq_policy_init(&policy, binding, &options, 0, NULL), BQ_OK);
        assert_int_equal(policy.dead, !bullmq);
        assert_true(policy.dead_poison);
        assert_string_equal(policy.dead_letter_queue, "elsewhere");
        options.dead_lettering = BQ_DEAD_LETTER_OFF;
        assert_int_equal(bq_policy_init(&policy, binding, &options, 0, NULL), BQ_OK);
        assert_false(policy.dead);
        assert_false(policy.dead_poison);
        /* Redis writes poison to the configured name all the same. */
        assert_string_equal(policy.dead_letter_queue, "elsewhere");
    }
    options.dead_letter_queue = "";
    options.dead_lettering = BQ_DEAD_LETTER_DEFAULT;
    assert_int_equal(bq_policy_init(&policy, bq_binding_find(BQ_STR("pulsar")), &options, 0, NULL), BQ_OK);
    assert_false(policy.dead);
}

static bq_status init_with(const char *binding, const bq_consumer_options *options, const char *part)
{
    bq_policy policy;
    bq_error err = {0};
    bq_status status = bq_policy_init(&policy, bq_binding_find(bq_str_of(binding)), options, 0, &err);
    if (status != BQ_OK && !strstr(err.text, part))
        fail_msg("%s: \"%s\" does not say \"%s\"", binding, err.text, part);
    return status;
}

static void options_that_contradict(void **state)
{
    (void)state;
    bq_consumer_options o = {.size = sizeof o, .max_attempts = -1};
    for (int max = -3; max < 3; max++) {
        for (size_t i = 0; bq_binding_at(i); i++) {
            const char *name = bq_binding_at(i)->name;
            bool zero_ok = names("sqs sb bullmq", name); /* contract 3: "0 = the broker's own limit" */
            o.max_attempts = max;
            bool fine = max == -1 || max >= 1 || (max == 0 && zero_ok);
            assert_int_equal(init_with(name, &o, "max_attempts"), fine ? BQ_OK : BQ_INVALID);
        }
    }
    o.max_attempts = -1;
    for (int strategy = 0; strategy < 5; strategy++) {
        o.unknown = (bq_unknown_urn)strategy;
        assert_int_equal(init_with("bullmq", &o, "bullmq"), strategy > BQ_UNKNOWN_URN_FAIL ? BQ_CONFIG : BQ_OK);
        assert_int_equal(init_with("redis", &o, ""), BQ_OK);
    }
    o.unknown = BQ_UNKNOWN_URN_UNSET;
    o.retry_multiplier = -1;
    assert_int_equal(init_with("redis", &o, "multiplier"), BQ_INVALID);
    o.retry_multiplier = (double)INFINITY;
    assert_int_equal(init_with("redis", &o, "multiplier"), BQ_INVALID);
    o.retry_multiplier = (double)NAN;
    assert_int_equal(init_with("redis", &o, "multiplier"), BQ_INVALID);
    o.retry_multiplier = 0;
    o.retry_base_ms = -1;
    assert_int_equal(init_with("redis", &o, "delay"), BQ_INVALID);
    o.retry_base_ms = 0;
    o.retry_max_ms = -1;
    assert_int_equal(init_with("redis", &o, "delay"), BQ_INVALID);
    o.retry_max_ms = 0;
    o.unknown_delay_ms = -1;
    assert_int_equal(init_with("redis", &o, "delay"), BQ_INVALID);
    o.unknown_delay_ms = 0;
    const char *queues[] = {"a", "b"};
    o.queues = queues;
    o.queue_count = 2;
    o.dead_letter_queue = "b";
    assert_int_equal(init_with("redis", &o, "b is consumed"), BQ_CONFIG);
    o.dead_letter_queue = "c";
    assert_int_equal(init_with("redis", &o, ""), BQ_OK);
}

/* d(n) = min(max, base * multiplier^(n-1)) */
static void backoff(void **state)
{
    (void)state;
    static const struct {
        int64_t base;
        double multiplier;
        int64_t max;
        int32_t n;
        int64_t expected;
    } CASES[] = {
        {0, 2, 0, 5, 0},
        {100, 1, 0, 1, 100},
        {100, 1, 0, 2147483647, 100},
        {100, 2, 0, 1, 100},
        {100, 2, 0, 2, 200},
        {100, 2, 0, 5, 1600},
        {100, 2, 1000, 4, 800},
        {100, 2, 1000, 5, 1000},
        {100, 1.5, 0, 3, 225},
        {5000, 1, 3000, 1, 3000},
        {1000, 10, 0, 2147483647, INT64_C(4000000000000000)},
        {1000, 0.5, 0, 3, 250},
        {1000, 0.5, 0, 2147483647, 0},
        {100, 2, 0, 0, 100},
        {1, 1.0000001, 0, 2147483647, INT64_C(4000000000000000)},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_policy policy = {
            .retry_base_ms = CASES[i].base, .retry_multiplier = CASES[i].multiplier, .retry_max_ms = CASES[i].max};
        int64_t d = bq_backoff(&policy, CASES[i].n, UINT64_MAX);
        if (d != CASES[i].expected)
            fail_msg("case %zu: %" PRId64 " instead of %" PRId64, i, d, CASES[i].expected);
    }
}

/* "jitter full draws uniformly from [0, d(n)]": both ends are reached, nothing lies outside. */
static void jitter(void **state)
{
    (void)state;
    bq_policy policy = {.retry_base_ms = 10, .retry_multiplier = 2, .retry_max_ms = 15, .retry_jitter = BQ_JITTER_FULL};
    size_t seen[16] = {0};
    for (uint64_t i = 0; i < 16000; i++) {
        int64_t d = bq_backoff(&policy, 2, i * (UINT64_MAX / 16000));
        assert_in_range(d, 0, 15);
        seen[d]++;
    }
    for (size_t i = 0; i < 16; i++)
        assert_in_range(seen[i], 990, 1010);
    assert_int_equal(bq_backoff(&policy, 2, 0), 0);
    assert_int_equal(bq_backoff(&policy, 2, UINT64_MAX), 15);
}

static bq_decision after_failure(const char *binding, int tiers, int64_t base_ms, int64_t asked_ms, int32_t attempts)
{
    bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .retry_base_ms = base_ms};
    options.retry_multiplier = 2;
    if (strcmp(binding, "redis") == 0 || strcmp(binding, "kafka") == 0)
        options.max_attempts = 10;
    bq_policy policy;
    assert_int_equal(bq_policy_init(&policy, bq_binding_find(bq_str_of(binding)), &options, tiers, NULL), BQ_OK);
    bq_facts facts = {.routed = true, .attempts = attempts, .native_count = attempts};
    bq_decision d;
    bq_decide_outcome(&policy, &facts, BQ_FAILED, asked_ms, 0, &d);
    return d;
}

static void delays_within_the_binding(void **state)
{
    (void)state;
    static const struct {
        const char *binding;
        int tiers;
        int64_t base, asked;
        int32_t attempts;
        const char *expected;
    } CASES[] = {
        {"redis", 0, 100, -1, 0, "retry 1 in 100 !failed"},
        {"redis", 0, 100, -1, 3, "retry 4 in 800 !failed"},
        {"redis", 0, 100, 0, 3, "retry 4 !failed"}, /* the handler's delay counts, 0 as well */
        {"redis", 0, 0, 90000000, 0, "retry 1 in 90000000 !failed"},
        {"sqs", 0, 0, 43200000, 0, "native_retry in 43200000 !failed"},
        {"sqs", 0, 0, 43200001, 0, "native_retry in 43200000 cut !failed"},
        {"sb", 0, 0, 60000, 0, "native_retry hold 60000 !failed"},
        {"sb", 0, 0, 60001, 0, "native_retry hold 60000 cut !failed"},
        {"artemis", 0, 200, -1, 1, "native_retry hold 400 !failed"},
        {"kafka", 3, 200, -1, 0, "retry 1 tier 1 ignored !failed"},
        {"kafka", 3, 0, -1, 1, "retry 2 tier 2 !failed"},
        {"kafka", 3, 0, -1, 2, "retry 3 tier 3 !failed"},
        {"kafka", 3, 0, -1, 7, "retry 8 tier 3 !failed"},
        {"bullmq", 0, 5000, -1, 0, "native_retry job !failed"},
        {"bullmq", 0, 5000, 7, 0, "native_retry in 7 !failed"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char is[256];
        bq_decision d =
            after_failure(CASES[i].binding, CASES[i].tiers, CASES[i].base, CASES[i].asked, CASES[i].attempts);
        describe(&d, is, sizeof is);
        if (strcmp(is, CASES[i].expected) != 0)
            fail_msg("%s %zu: expected \"%s\", got \"%s\"", CASES[i].binding, i, CASES[i].expected, is);
    }
}

/* unknown_urn_delay: held where the broker redelivers at once, the pause's place on Kafka without tiers. */
static void release_delays(void **state)
{
    (void)state;
    static const struct {
        const char *binding;
        int tiers;
        int64_t delay;
        const char *expected;
    } CASES[] = {
        {"redis", 0, 2500, "release in 2500"},  {"sqs", 0, 2500, "release in 2500"},
        {"sb", 0, 2500, "release hold 2500"},   {"artemis", 0, 90000, "release hold 60000 cut"},
        {"pulsar", 0, 2500, "release in 2500"}, {"kafka", 2, 2500, "release tier 1 ignored"},
        {"kafka", 0, 2500, "release in 2500"},  {"rabbitmq", 0, 0, "release"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .unknown = BQ_UNKNOWN_URN_RELEASE};
        options.unknown_delay_ms = CASES[i].delay;
        bq_policy policy;
        bq_status status =
            bq_policy_init(&policy, bq_binding_find(bq_str_of(CASES[i].binding)), &options, CASES[i].tiers, NULL);
        assert_int_equal(status, BQ_OK);
        bq_facts facts = {.native_count = -1};
        bq_decision d;
        char is[256];
        bq_decide_arrival(&policy, &facts, 0, &d);
        describe(&d, is, sizeof is);
        assert_string_equal(is, CASES[i].expected);
    }
}

static const config *config_named(const char *name)
{
    for (size_t i = 0; i < sizeof CONFIGS / sizeof CONFIGS[0]; i++) {
        if (strcmp(CONFIGS[i].name, name) == 0)
            return &CONFIGS[i];
    }
    fail_msg("no configuration %s", name);
    return NULL;
}

static void hooks(void **state)
{
    (void)state;
    bq_policy policy = policy_of(config_named("kafka+tiers"), 0, BQ_UNKNOWN_URN_DELETE, true);
    bq_facts facts = {.native_count = -1};
    bq_decision d;
    char is[256];
    /* The hook goes before the strategy, but never meets poison or a gated message. */
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_HOOK);
    facts.gated = true;
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_DROP);
    facts.gated = false;
    facts.poison = true;
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_DROP);
    facts.poison = false;
    /* "a failing hook counts as a failed handler" */
    facts.attempts = 2;
    bq_decide_outcome(&policy, &facts, BQ_FAILED, -1, 0, &d);
    describe(&d, is, sizeof is);
    assert_string_equal(is, "dlq failed 3 handler !failed");
    /* A bare null takes the unknown-URN path although its header has a handler (7.8). */
    facts = (bq_facts){.native_count = -1, .routed = true, .null_root = true};
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_HOOK);
    policy.has_hook = false;
    policy.unknown = BQ_UNKNOWN_URN_UNSET;
    bq_decide_arrival(&policy, &facts, 0, &d);
    describe(&d, is, sizeof is);
    assert_string_equal(is, "retry 1 tier 1 !unknown");
}

/* Each count that contract 3 names, one below the limit and at it, and what it becomes in the record. */
static void crash_loops(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t lapses;
        int64_t native;
        int32_t attempts;
        const char *expected;
    } CASES[] = {
        {"sqlite", 2, -1, 0, "handle"},
        {"sqlite", 3, -1, 0, "dlq failed 3 WorkerLost !lost"},
        {"sqlite", 3, -1, 2, "dlq failed 3 WorkerLost !lost"},
        {"sqlite", 4, -1, 7, "dlq failed 7 WorkerLost !lost"}, /* a count never goes down */
        {"sqlite", 0, 9, 9, "handle"},                         /* a high count of its own is no crash */
        {"redis", UINT32_MAX, -1, 0, "dlq failed 2147483647 WorkerLost !lost"},
        {"laravel", 9, -1, 2, "handle"},
        {"laravel", 0, -1, 3, "dlq failed 3 WorkerLost !lost"},
        {"rabbitmq", 0, -1, 9, "handle"}, /* a classic queue does not count */
        {"rabbitmq", 0, 2, 0, "handle"},
        {"rabbitmq", 0, 3, 0, "dlq failed 3 WorkerLost !lost"},
        {"artemis", 0, 3, 3, "dlq failed 3 WorkerLost !lost"},
        {"pulsar", 0, 3, 3, "dlq failed 3 WorkerLost !lost"},
        {"sqs+max", 0, 3, 2, "handle"},
        {"sqs+max", 0, 4, 3, "dlq failed 3 WorkerLost !lost"},
        {"sb+max", 0, 2, 2, "handle"},
        {"sb+max", 0, 3, 3, "dlq failed 3 WorkerLost !lost"},
        {"kafka+tiers", 99, 99, 99, "handle"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_policy policy = policy_of(config_named(CASES[i].config), 1, 0, false);
        bq_facts facts = {
            .routed = true, .lapses = CASES[i].lapses, .native_count = CASES[i].native, .attempts = CASES[i].attempts};
        bq_decision d;
        char is[256];
        bq_decide_arrival(&policy, &facts, 0, &d);
        describe(&d, is, sizeof is);
        if (strcmp(is, CASES[i].expected) != 0)
            fail_msg("%s %zu: expected \"%s\", got \"%s\"", CASES[i].config, i, CASES[i].expected, is);
    }
    /* No handler runs for an unknown URN, so its strategy stands however often it came. */
    bq_policy policy = policy_of(config_named("rabbitmq"), 1, BQ_UNKNOWN_URN_RELEASE, false);
    bq_facts facts = {.native_count = 50};
    bq_decision d;
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_RELEASE);
}

/* Contract 3: "when that write fails the delivery stays unsettled and comes back (rewind, abandon, release, or lapse
 * of its reservation), after a pause"; section 7 says which. */
static void unwritten(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        event event;
        const char *expected;
    } CASES[] = {
        {"sqlite", FAILED_FIRST, "release hold 1000"},
        {"sqlite", FAILED_LAST, "release hold 1000"},
        {"redis", POISON_FIRST, "release hold 1000"},
        {"redis", RELEASED, "leave"}, /* could not be given back: its reservation lapses */
        {"sqlite", DONE, "leave"},    /* "a failed acknowledge is reported, never turned into a retry" */
        {"rabbitmq", FAILED_FIRST, "release hold 1000"},
        {"sqs+max", FAILED_LAST, "leave"},
        {"sqs", GATED, "leave"},
        {"sqs", FAILED_FIRST, "leave"},
        {"sb", POISON_FIRST, "native_retry hold 1000"}, /* "a failed send abandons" */
        {"pulsar", FAILED_FIRST, "native_retry hold 1000"},
        {"pulsar", RELEASED, "native_retry hold 1000"},
        {"artemis", GATED, "release hold 1000"},          /* "released (no delivery-failed) after 1 s" */
        {"kafka+tiers", FAILED_FIRST, "release in 1000"}, /* "seek back, report, skip the rest" */
        {"kafka+tiers", GATED, "release in 1000"},
        {"kafka+tiers", RELEASED, "leave"},
        {"bullmq", POISON_FIRST, "reject poison"}, /* 7.3: "the job fails all the same" */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const config *c = config_named(CASES[i].config);
        bq_policy policy = policy_of(c, 1, 0, false);
        bq_decision failed_one, d;
        char is[256];
        decide(c, &policy, CASES[i].event, &failed_one);
        bq_decide_unwritten(&policy, &failed_one, &d);
        describe(&d, is, sizeof is);
        if (strcmp(is, CASES[i].expected) != 0)
            fail_msg("%s, %s: expected \"%s\", got \"%s\"", CASES[i].config, EVENT_NAMES[CASES[i].event],
                     CASES[i].expected, is);
        bool settled = d.act == BQ_ACT_REJECT;
        assert_int_equal(d.settled, settled ? BQ_SETTLED_REJECTED : BQ_SETTLED_FAILED);
        assert_false(d.reported);
        /* What comes back that cannot be given back either ends somewhere. */
        for (int round = 0; round < 3 && d.act == BQ_ACT_RELEASE; round++) {
            bq_decision again;
            bq_decide_unwritten(&policy, &d, &again);
            d = again;
        }
        assert_int_not_equal(d.act, BQ_ACT_RELEASE);
    }
    bq_policy policy = policy_of(config_named("sqlite"), 1, 0, false);
    policy.unknown = BQ_UNKNOWN_URN_RELEASE;
    policy.unknown_delay_ms = 50;
    bq_facts facts = {.native_count = -1};
    bq_decision parked, d;
    bq_decide_arrival(&policy, &facts, 0, &parked);
    bq_decide_unwritten(&policy, &parked, &d);
    assert_int_equal(d.act, BQ_ACT_RELEASE); /* a delay could not be written: given back at once, after the pause */
    assert_int_equal(d.hold_ms, 1000);
}

static void pauses(void **state)
{
    (void)state;
    static const int64_t ASKED[] = {0, -1, 250}, MEANT[] = {1000, 0, 250};
    for (size_t i = 0; i < 3; i++) {
        bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .settle_pause_ms = ASKED[i]};
        bq_policy policy;
        assert_int_equal(bq_policy_init(&policy, bq_binding_find(BQ_STR("kafka")), &options, 0, NULL), BQ_OK);
        assert_int_equal(policy.pause_ms, MEANT[i]);
    }
}

static void counts_do_not_overflow(void **state)
{
    (void)state;
    bq_policy policy = policy_of(config_named("sqs"), 0, 0, false);
    bq_facts facts = {.routed = true, .attempts = INT32_MAX, .native_count = INT64_MAX};
    bq_decision d;
    bq_decide_outcome(&policy, &facts, BQ_FAILED, -1, 0, &d);
    assert_int_equal(d.attempts, INT32_MAX);
    bq_decide_outcome(&policy, &facts, (bq_outcome)99, INT64_MAX, 0, &d);
    assert_int_equal(d.act, BQ_ACT_NATIVE_RETRY);
    assert_true(d.delay_cut);
}

static void texts(void **state)
{
    (void)state;
    bq_envelope env;
    bq_envelope_decode(&env, "[]", 2);
    bq_buf out;
    bq_buf_init(&out, 0);
    assert_int_equal(bq_cause_error(BQ_CAUSE_UNKNOWN_URN, NULL, BQ_STR("urn:x"), 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "No handler mapped for URN [urn:x].");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_UNKNOWN_URN, NULL, BQ_STR_NULL, 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "No handler mapped for URN [(empty)].");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_POISON, &env, BQ_STR_NULL, 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "Undecodable BabelQueue body: the body is not an object");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_GATED, NULL, BQ_STR("2"), 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "Unsupported schema version [2].");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_WORKER_LOST, NULL, BQ_STR_NULL, 3, &out), BQ_OK);
    assert_non_null(strstr(out.ptr, "3 times"));
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_HANDLER, NULL, BQ_STR_NULL, 3, &out), BQ_OK);
    assert_int_equal(bq_cause_error(BQ_CAUSE_NONE, NULL, BQ_STR_NULL, 3, &out), BQ_OK);
    assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
    assert_null(bq_cause_exception(BQ_CAUSE_NONE));
    assert_null(bq_cause_exception(BQ_CAUSE_HANDLER));
    assert_string_equal(bq_cause_exception(BQ_CAUSE_GATED), "BabelQueueError");
}

static bq_status texts_scenario(void *arg)
{
    static char route[300];
    (void)arg;
    memset(route, 'u', sizeof route);
    bq_buf out;
    bq_buf_init(&out, 0);
    bq_status status = bq_cause_error(BQ_CAUSE_UNKNOWN_URN, NULL, (bq_str){route, sizeof route}, 0, &out);
    if (status != BQ_OK)
        assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    alloc_fail_each("bq_cause_error", texts_scenario, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell),
        cmocka_unit_test(a_name_turns_it_on),
        cmocka_unit_test(options_that_contradict),
        cmocka_unit_test(backoff),
        cmocka_unit_test(jitter),
        cmocka_unit_test(delays_within_the_binding),
        cmocka_unit_test(release_delays),
        cmocka_unit_test(hooks),
        cmocka_unit_test(crash_loops),
        cmocka_unit_test(unwritten),
        cmocka_unit_test(pauses),
        cmocka_unit_test(counts_do_not_overflow),
        cmocka_unit_test(texts),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
