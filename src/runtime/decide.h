/*
 * runtime/decide.h - what becomes of a delivery: the settlement matrix of contract 3 with the exceptions of section 7,
 * as pure functions. No I/O, no clock, no randomness of its own, no allocation but in the caller's buffer.
 *
 * A delivery meets it up to three times:
 *   1. bq_decide_arrival, before a handler runs: handle it, run the hook, or settle at once (gated, poison, unknown
 *      URN, a crash loop);
 *   2. bq_decide_outcome, with what the handler or the hook said;
 *   3. bq_decide_unwritten, when the write that should replace it was not confirmed.
 * Carrying a decision out (with the driver's own operation, or "publish, reap the confirmation, then acknowledge") is
 * the business of runtime/settle.c.
 */
#ifndef BQ_RUNTIME_DECIDE_H
#define BQ_RUNTIME_DECIDE_H

#include <babelqueue/binding.h>
#include <babelqueue/consumer.h>

/* ---- policy: the options, resolved against the binding once, when the consumer opens ----------------------------- */

typedef struct bq_policy {
    const bq_binding *binding;
    bq_unknown_urn unknown;   /* UNSET and FAIL do the same, but neither is "explicit" for poison */
    int64_t unknown_delay_ms; /* of *release* */
    bool has_hook;
    bool dead;                     /* dead-lettering is on for exhausted, rejected, gated and unknown deliveries */
    bool dead_poison;              /* on for poison */
    int max_attempts;              /* 0: no limit of ours */
    int tiers;                     /* retry topics (Kafka); 0: none */
    const char *dead_letter_queue; /* the configured name; NULL: the binding's default */
    int64_t retry_base_ms;
    double retry_multiplier;
    int64_t retry_max_ms; /* 0: no cap */
    bq_jitter retry_jitter;
    int64_t pause_ms; /* before a delivery comes back that could be neither settled nor retried */
} bq_policy;

/* `tiers` is the number of retry topics that the URL sets. INVALID: max_attempts below 1 (0 only where the binding has
 * a limit of its own), a negative delay, a multiplier that is no number. CONFIG: a strategy that the binding has not,
 * a dead-letter queue that is itself consumed. `options` is borrowed for the policy's life. */
bq_status bq_policy_init(bq_policy *policy, const bq_binding *binding, const bq_consumer_options *options, int tiers,
                         bq_error *err) BQ_MUST_CHECK;

/* ---- facts: one delivery ----------------------------------------------------------------------------------------- */

typedef struct bq_facts {
    bool gated;           /* bq_gate */
    bool poison;          /* bq_is_poison; not asked when gated */
    bool null_root;       /* BQ_SEEN_NULL_ROOT: takes the unknown-URN path, whatever the routing property says (7.8) */
    bool routed;          /* a handler serves its route */
    int32_t attempts;     /* bq_reconcile */
    int64_t native_count; /* bq_incoming.native_count: -1 when the broker gives none */
    uint32_t lapses;      /* bq_incoming.lapses */
} bq_facts;

/* ---- decision ---------------------------------------------------------------------------------------------------- */

typedef enum bq_act {
    BQ_ACT_HANDLE,       /* call the handler, then bq_decide_outcome */
    BQ_ACT_HOOK,         /* call the unknown-URN hook, then bq_decide_outcome */
    BQ_ACT_ACK,          /* acknowledge: it was handled */
    BQ_ACT_DROP,         /* acknowledge although it was not handled; warned about */
    BQ_ACT_RETRY,        /* replace it by a copy with `attempts`, after `delay_ms` */
    BQ_ACT_NATIVE_RETRY, /* let the broker redeliver and count it, after `delay_ms` */
    BQ_ACT_DEAD_LETTER,  /* write the record (`copy`) to the dead-letter queue, then acknowledge, or reject */
    BQ_ACT_RELEASE,      /* give it back unchanged after `delay_ms`, attempts not advanced where the broker can */
    BQ_ACT_REJECT,       /* reject it natively with `reject_reason` */
    BQ_ACT_LEAVE         /* leave it to the broker's own policy */
} bq_act;
const char *bq_act_name(bq_act act); /* "dead_letter" */

/* Who says what `exception` and `error` are, in a record and in the report. */
typedef enum bq_cause {
    BQ_CAUSE_NONE,        /* both null (contract 3, unknown URN under *dead_letter*) */
    BQ_CAUSE_HANDLER,     /* what the handler said, null where it said nothing */
    BQ_CAUSE_UNKNOWN_URN, /* the other ones: bq_cause_exception, bq_cause_error */
    BQ_CAUSE_POISON,
    BQ_CAUSE_GATED,
    BQ_CAUSE_WORKER_LOST
} bq_cause;

typedef struct bq_decision {
    bq_act act;
    bq_cause cause;
    /* RETRY: of the copy. DEAD_LETTER: of the body and of dead_letter.attempts. Otherwise the count to report, this
     * delivery included when its handler failed. */
    int32_t attempts;
    /* RETRY, NATIVE_RETRY, RELEASE. -1: the broker's own (BullMQ's backoff). */
    int64_t delay_ms;
    /* NATIVE_RETRY, RELEASE: hold the unsettled delivery so long first, its lease extended; delay_ms is 0 then. */
    int64_t hold_ms;
    bool delay_cut;     /* the delay asked for was longer than the binding's limit: warn */
    bool delay_ignored; /* a delay was asked for where the retry topic decides: warn once (Kafka) */
    int tier;           /* RETRY, RELEASE on Kafka: the retry topic, from 1; 0: none, RELEASE seeks back */
    /* RETRY, DEAD_LETTER, RELEASE: what travels with the copy. For DEAD_LETTER, GATED means the raw bytes alone, POISON
     * the record of a poison body, RECORD that of an envelope. */
    bq_copy copy;
    bool bytes_unchanged; /* RETRY: the body is not rewritten, `attempts` goes into the property (Pulsar, 7.6) */
    bq_reason reason;     /* DEAD_LETTER with a record */
    /* DEAD_LETTER: then reject natively instead of acknowledging, also when the write failed (BullMQ, 7.3). */
    bool reject_after;
    const char *reject_reason; /* REJECT, and DEAD_LETTER with reject_after: static text */
    bool reported;             /* call on_error after settling, with `trouble` */
    bq_trouble trouble;
    bq_settled settled;  /* what it counts as when the settlement has succeeded */
    const char *dropped; /* DROP: why, for the warning; static text */
} bq_decision;

/* Before a handler runs. `random` feeds the jitter of the binding that retries poison. */
void bq_decide_arrival(const bq_policy *policy, const bq_facts *facts, uint64_t random, bq_decision *out);

/* After the handler, or the hook. `retry_after_ms` is the delay that it asked for, -1 for none. BQ_DEFERRED must have
 * been resolved; an outcome that is none of bq_outcome's counts as failed. */
void bq_decide_outcome(const bq_policy *policy, const bq_facts *facts, bq_outcome outcome, int64_t retry_after_ms,
                       uint64_t random, bq_decision *out);

/* Shutdown: a delivery that was taken and not started, or whose handler did not finish. Given back unchanged at once. */
void bq_decide_give_back(const bq_policy *policy, const bq_facts *facts, bq_decision *out);

/* The write of `failed` was not confirmed: how the delivery comes back after the pause. A failed acknowledgement is
 * never turned into a retry: LEAVE. The report of the failed settlement stays with the caller. */
void bq_decide_unwritten(const bq_policy *policy, const bq_decision *failed, bq_decision *out);

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* "UnknownUrnError", "BabelQueueError", "WorkerLost"; NULL for NONE and HANDLER. */
const char *bq_cause_exception(bq_cause cause);

/* Appends the error's text: nothing for NONE and HANDLER. `env` is needed for POISON, `detail` is the route for
 * UNKNOWN_URN and the reported version for GATED, `attempts` the count for WORKER_LOST. */
bq_status bq_cause_error(bq_cause cause, const bq_envelope *env, bq_str detail, int32_t attempts,
                         bq_buf *out) BQ_MUST_CHECK;

/* ---- backoff ----------------------------------------------------------------------------------------------------- */

/* d(n) = min(max, base * multiplier^(n-1)), n the new attempts, from 1; with jitter drawn from [0, d(n)]. */
int64_t bq_backoff(const bq_policy *policy, int32_t n, uint64_t random);

#endif
