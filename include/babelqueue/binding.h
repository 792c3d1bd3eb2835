/*
 * babelqueue/binding.h - what each broker adds to the envelope (contract section 7), as data: which field goes to
 * which native slot with which type, where the version is declared and which values pass, how attempts reconcile,
 * what counts as poison, the defaults. One generic project, gate, reconcile and route serve every broker.
 *
 * Pure functions: no I/O, no threads.
 */
#ifndef BABELQUEUE_BINDING_H
#define BABELQUEUE_BINDING_H

#include <babelqueue/envelope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- properties: what travels beside a body -------------------------------------------------------------------- */

typedef enum bq_place {
    BQ_PLACE_HEADER,     /* header, application property, message attribute, user property */
    BQ_PLACE_NATIVE,     /* a slot that the broker itself names: "type", "subject", "correlation_id", "timestamp" */
    BQ_PLACE_ANNOTATION, /* AMQP 1.0 message annotation */
} bq_place;

typedef enum bq_prop_type {
    BQ_PROP_NULL,
    BQ_PROP_STRING, /* text */
    BQ_PROP_BINARY, /* text = the bytes */
    BQ_PROP_SYMBOL, /* text (AMQP 1.0) */
    BQ_PROP_NUMBER, /* text = decimal (an SQS Number) */
    BQ_PROP_BOOL,   /* num 0 or 1 */
    BQ_PROP_INT,    /* num, at most 32 bits on the wire */
    BQ_PROP_LONG,   /* num, 64 bits on the wire; broker timestamps too */
    BQ_PROP_DOUBLE, /* real; a float that arrived is one too */
    BQ_PROP_OTHER,  /* text = the driver's own encoding, rewritten as it is */
} bq_prop_type;

/* One property. Views are borrowed. `width` keeps the exact native type of a received value for its rewriting (the
 * driver's own code, 0: the natural one of `type`). */
typedef struct bq_prop {
    bq_place place;
    bq_prop_type type;
    unsigned width;
    bq_str name;
    bq_str text;
    int64_t num;
    double real;
} bq_prop;

/* The first property of that place and name that is not null, or NULL (contract 7.8: "of repeated headers the
 * first non-null counts"). */
BQ_API const bq_prop *bq_prop_find(const bq_prop *props, size_t count, bq_place place, bq_str name);

/* ---- the table ------------------------------------------------------------------------------------------------- */

typedef enum bq_attempts_rule {
    BQ_ATTEMPTS_BODY,         /* the body's own */
    BQ_ATTEMPTS_MAX_NATIVE,   /* max(body, native count) */
    BQ_ATTEMPTS_MAX_NATIVE_1, /* max(body, native count - 1) */
    BQ_ATTEMPTS_HEADER,       /* the attempts header when valid, else the body */
    BQ_ATTEMPTS_HEADER_MAX,   /* max(attempts header when valid else body, native count) */
    BQ_ATTEMPTS_NATIVE,       /* the broker's own count alone (BullMQ) */
} bq_attempts_rule;

typedef enum bq_poison_rule {
    BQ_POISON_CONFORMANT, /* everything that is not `ok` */
    BQ_POISON_TYPED, /* wrong bytes or types only: not identity, not a bare null; a `job` neither string nor null too */
} bq_poison_rule;

typedef enum bq_dead_default {
    BQ_DEAD_ON,          /* on */
    BQ_DEAD_OPT_IN,      /* off unless asked for */
    BQ_DEAD_WITH_RETRY,  /* on with retry topics, else opt-in (Kafka) */
    BQ_DEAD_POISON_ONLY, /* opt-in, and only for poison (BullMQ) */
} bq_dead_default;

/* How a failed delivery is tried again. */
typedef enum bq_retry_rule {
    BQ_RETRY_COPY,   /* a copy with the new count replaces it on the same queue */
    BQ_RETRY_NATIVE, /* given back to the broker, which counts (SQS, Service Bus, Artemis, BullMQ) */
    BQ_RETRY_TIERS   /* a copy on a retry topic; without retry topics see bq_policy (Kafka, 7.8) */
} bq_retry_rule;

/* Where the count of deliveries that killed their worker comes from (section 3, crash loops). */
typedef enum bq_crash_rule {
    BQ_CRASH_NONE,     /* cannot count, or counts by itself (Kafka; BullMQ's stalled jobs) */
    BQ_CRASH_LAPSES,   /* lapses counted beside the layout */
    BQ_CRASH_ATTEMPTS, /* the reconciled attempts: a lapsed reservation advances them (Laravel layout) */
    BQ_CRASH_NATIVE,   /* the broker's count, 0 on the first delivery */
    BQ_CRASH_NATIVE_1  /* the broker's count, 1 on the first delivery (SQS) */
} bq_crash_rule;

/* What an exhausted, rejected, poison or gated delivery becomes when dead-lettering is off (section 3 and 7). */
typedef enum bq_off_rule {
    BQ_OFF_DROP,           /* acknowledge, drop, warn */
    BQ_OFF_DEAD_LETTER,    /* written to the DLQ all the same (Redis poison, 7.1) */
    BQ_OFF_LEAVE,          /* left untouched: the broker's own policy bounds it (SQS, 7.4) */
    BQ_OFF_REJECT,         /* rejected natively (Service Bus 7.5; BullMQ: the job fails unrecoverably) */
    BQ_OFF_NO_LIMIT,       /* max_attempts is ignored, so nothing is exhausted (SQS and Service Bus) */
    BQ_OFF_RETRY_THEN_DROP /* bounded retry with the bytes unchanged, then dropped (Pulsar poison, 7.6) */
} bq_off_rule;

/* How a delivery comes back whose replacing write failed (section 3: "rewind, abandon, release, or lapse"). */
typedef enum bq_back_rule {
    BQ_BACK_RELEASE, /* given back unchanged; Kafka: sought back */
    BQ_BACK_ABANDON, /* negatively acknowledged; the broker counts it (Service Bus, Pulsar) */
    BQ_BACK_LEAVE    /* its reservation lapses (SQS) */
} bq_back_rule;

typedef enum bq_delay_rule {
    BQ_DELAY_NATIVE, /* any delay */
    BQ_DELAY_PARKED, /* ours, beside the layout (Redis list; RabbitMQ's TTL queues) */
    BQ_DELAY_TIERS,  /* the smallest retry topic that is long enough (Kafka) */
    BQ_DELAY_SQS     /* whole seconds up to 900, none on FIFO */
} bq_delay_rule;

/* What copies do on one broker only. */
enum {
    BQ_COPIES_REROUTE = 1 << 0,   /* a redrive takes the routing property from the body (Kafka, section 6) */
    BQ_COPIES_DROP_NULL = 1 << 1, /* a gated copy drops null-valued headers (Kafka, 7.8) */
};

/* How a projected property is typed. */
typedef enum bq_projected_as {
    BQ_AS_STRING,
    BQ_AS_NUMBER, /* SQS Number */
    BQ_AS_INT,
    BQ_AS_LONG
} bq_projected_as;

typedef struct bq_projection {
    bq_place place;
    const char *name;
    bq_projected_as as;
    bq_field field;       /* BQ_FIELD_ATTEMPTS: the reconciled count, not the body's */
    const char *constant; /* not NULL: this text (or decimal) instead of a field */
} bq_projection;

typedef struct bq_binding {
    const char *name;
    const bq_projection *projection; /* in the order of contract 7 */
    size_t projection_count;
    const bq_place *route_place; /* routing properties by precedence, then the body */
    const char *const *route_name;
    size_t route_count;
    const char *gate_name;     /* the header that declares the schema version; NULL: no gate */
    bool gate_integers;        /* an integer of value 1 passes as well as the string "1" */
    const char *attempts_name; /* header that carries attempts (HEADER rules, and set on copies); NULL: none */
    bq_place attempts_place;
    const char *original_name;      /* header that names the original queue (Kafka); NULL: none */
    const char *const *extra_names; /* further headers of the contract's own, NULL-terminated: neither surfaced nor
                                       kept by a copy of an envelope or a redrive (`bq-delay`); NULL: none */
    bq_attempts_rule attempts;
    bq_crash_rule crash;
    bq_poison_rule poison;
    bq_dead_default dead_default;
    const char *dead_suffix; /* ".dlq", "-dlq" */
    bq_off_rule off_exhausted;
    bq_off_rule off_rejected;
    bq_off_rule off_poison;
    bq_off_rule off_gated;
    bq_retry_rule retry;
    bq_back_rule back;
    int64_t retry_delay_max_ms; /* a longer delay before a retry or release is cut to it; 0: no limit */
    bool retry_delay_held;      /* the worker holds the unsettled delivery for the delay (section 3) */
    int max_attempts;           /* default; 0: the broker's own limit */
    bool zero_attempts_ok;      /* max_attempts 0 may be asked for */
    bool counts_deliveries;     /* informative: max_attempts counts deliveries, the first included */
    bool poison_ignores_delete; /* an explicit *delete* does not drop poison (Redis) */
    bool has_strategies;        /* false: only *fail* (BullMQ) */
    bool carries_headers;
    bq_delay_rule delay;
    unsigned record_flags; /* BQ_RECORD_* for bq_record_poison */
    unsigned copy_flags;   /* BQ_COPIES_* */
} bq_binding;

/* "memory sqlite redis laravel bullmq rabbitmq sqs sb pulsar kafka artemis"; NULL when there is none of that name. */
BQ_API const bq_binding *bq_binding_find(bq_str name);
/* Iterates the table: index 0, 1, ... until NULL. */
BQ_API const bq_binding *bq_binding_at(size_t index);

/* ---- the rules -------------------------------------------------------------------------------------------------- */

/* `scratch` is an initialised buffer. A call appends to it and may move what earlier calls put there, so texts that are
 * kept need a scratch of their own, or one with room for them all (bq_envelope_text says how much that is). */

/* Properties at most, contract's own, of one message. */
#define BQ_PROJECTED_MAX 12

/* The properties of a first publish (or, with `attempts`, of a copy). Fields that the body lacks are left out; a
 * schema version other than 1 is never projected. Texts are views into the body, or into `scratch` for numbers and
 * escaped strings (valid until it is reset). Returns BQ_OK and the count. */
BQ_API bq_status bq_project(const bq_binding *binding, const bq_envelope *env, int64_t attempts,
                            bq_prop out[BQ_PROJECTED_MAX], size_t *count, bq_buf *scratch, bq_error *err) BQ_MUST_CHECK;

/* Is this header one of the binding's own (never surfaced to handlers, never overridden by a user's)? */
BQ_API bool bq_binding_owns(const bq_binding *binding, bq_place place, bq_str name);

/* Section 3.1. True: gated; `reported` (may be NULL) receives the declared version as text, cut at 64 characters
 * plus "...", in `scratch`. */
BQ_API bool bq_gate(const bq_binding *binding, const bq_prop *props, size_t count, bq_str *reported, bq_buf *scratch);

/* Section 3.2. `native_count` < 0: the broker gave none. */
BQ_API int32_t bq_reconcile(const bq_binding *binding, const bq_envelope *env, const bq_prop *props, size_t count,
                            int64_t native_count);

/* What the binding treats as poison (section 2). */
BQ_API bool bq_is_poison(const bq_binding *binding, const bq_envelope *env);

/* Section 3.4: the routing property when present and non-blank, else the body's identity; absent when neither. */
BQ_API bq_status bq_route_of(const bq_binding *binding, const bq_envelope *env, const bq_prop *props, size_t count,
                             bq_buf *scratch, bq_str *route);

/* dead_letter.original_queue (section 4): of an envelope meta.queue when non-empty, else `queue`, the consumed one; of
 * a poison body always `queue`; on Kafka the `bq-original-topic` header, else the topic. A view, or in `scratch`. */
BQ_API bq_status bq_original_queue(const bq_binding *binding, bool poison, const bq_envelope *env, const bq_prop *props,
                                   size_t count, bq_str queue, bq_buf *scratch, bq_str *out);

/* The default name of a queue's dead-letter queue, appended to `out` (SQS: before a `.fifo`). */
BQ_API bq_status bq_dead_letter_queue(const bq_binding *binding, bq_str queue, bq_buf *out);

/* ---- what travels with a copy (section 3) ------------------------------------------------------------------------ */

typedef enum bq_copy {
    BQ_COPY_RETRY,   /* keep routing, schema-version and user properties; set attempts; project what is missing */
    BQ_COPY_RECORD,  /* the record of an envelope: the same */
    BQ_COPY_POISON,  /* keep user properties; project what the members' types allow */
    BQ_COPY_GATED,   /* keep every property */
    BQ_COPY_REDRIVE, /* keep user headers and routing; project the rest anew, attempts 0 */
    BQ_COPY_RELEASE, /* keep every property: given back unchanged */
} bq_copy;

/* Fills `out` (`max` must be >= count + BQ_PROJECTED_MAX, else BQ_INVALID) with the properties of the copy of a delivery
 * that came with `props`: views of the same life, or in `scratch`. `env` is the body that was received; `attempts` the
 * count of the copy. `bq-replay-bypass` does not survive a redrive; whoever redrives adds it when asked to. */
BQ_API bq_status bq_copy_props(const bq_binding *binding, bq_copy kind, const bq_envelope *env, int64_t attempts,
                               const bq_prop *props, size_t count, bq_prop *out, size_t max, size_t *out_count,
                               bq_buf *scratch, bq_error *err) BQ_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
