/*
 * contract/binding.c - the binding table: all that contract 7 says about a broker and that is not I/O, one row each.
 * Whoever wants to know what travels where reads this file; the generic functions of project.c, gate.c, reconcile.c,
 * route.c and copy.c, and runtime/decide.c, do what the rows say.
 *
 * What is not here: the timestamp of a Kafka record (bq_outgoing.timestamp_ms carries it, 7.8), names of keys and
 * delay queues, and rules that only one driver needs (SQS's ten attributes, Service Bus's quoted bodies): they are
 * beside their drivers.
 *
 * Thread rule: constant data.
 */
#include <babelqueue/binding.h>

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define FIELD(place, name, as, field)                                                                                  \
    {                                                                                                                  \
        BQ_PLACE_##place, name, BQ_AS_##as, BQ_FIELD_##field, NULL                                                     \
    }
#define CONSTANT(place, name, as, text)                                                                                \
    {                                                                                                                  \
        BQ_PLACE_##place, name, BQ_AS_##as, BQ_FIELD_COUNT_, text                                                      \
    }

/* ---- projections (contract 7.4 to 7.10) ------------------------------------------------------------------------ */

static const bq_projection RABBITMQ[] = {
    FIELD(NATIVE, "type", STRING, URN),
    FIELD(NATIVE, "correlation_id", STRING, TRACE_ID),
    FIELD(NATIVE, "message_id", STRING, META_ID),
    CONSTANT(NATIVE, "app_id", STRING, "babelqueue"),
    CONSTANT(NATIVE, "content_type", STRING, "application/json"),
    CONSTANT(NATIVE, "content_encoding", STRING, "utf-8"),
    CONSTANT(NATIVE, "delivery_mode", INT, "2"),
    FIELD(HEADER, "x-schema-version", INT, META_SCHEMA_VERSION),
    FIELD(HEADER, "x-source-lang", STRING, META_LANG),
    FIELD(HEADER, "x-attempts", INT, ATTEMPTS),
};

static const bq_projection SQS[] = {
    FIELD(HEADER, "bq-job", STRING, URN),
    FIELD(HEADER, "bq-trace-id", STRING, TRACE_ID),
    FIELD(HEADER, "bq-message-id", STRING, META_ID),
    FIELD(HEADER, "bq-source-lang", STRING, META_LANG),
    FIELD(HEADER, "bq-schema-version", NUMBER, META_SCHEMA_VERSION),
    FIELD(HEADER, "bq-created-at", NUMBER, META_CREATED_AT),
};

static const bq_projection SERVICE_BUS[] = {
    FIELD(NATIVE, "subject", STRING, URN),
    FIELD(NATIVE, "correlation_id", STRING, TRACE_ID),
    FIELD(NATIVE, "message_id", STRING, META_ID),
    CONSTANT(NATIVE, "content_type", STRING, "application/json"),
    FIELD(HEADER, "bq-schema-version", INT, META_SCHEMA_VERSION),
    FIELD(HEADER, "bq-source-lang", STRING, META_LANG),
    FIELD(HEADER, "bq-created-at", LONG, META_CREATED_AT),
};

/* Pulsar's properties and Kafka's headers are the same. */
static const bq_projection STRINGS[] = {
    FIELD(HEADER, "bq-job", STRING, URN),
    FIELD(HEADER, "bq-trace-id", STRING, TRACE_ID),
    FIELD(HEADER, "bq-message-id", STRING, META_ID),
    FIELD(HEADER, "bq-schema-version", STRING, META_SCHEMA_VERSION),
    FIELD(HEADER, "bq-source-lang", STRING, META_LANG),
    FIELD(HEADER, "bq-attempts", STRING, ATTEMPTS),
};

static const bq_projection ARTEMIS[] = {
    FIELD(ANNOTATION, "x-opt-jms-type", STRING, URN),
    FIELD(NATIVE, "subject", STRING, URN),
    FIELD(NATIVE, "correlation_id", STRING, TRACE_ID),
    FIELD(NATIVE, "creation_time", LONG, META_CREATED_AT),
    FIELD(HEADER, "bq_schema_version", STRING, META_SCHEMA_VERSION),
    FIELD(HEADER, "bq_source_lang", STRING, META_LANG),
    FIELD(HEADER, "bq_attempts", STRING, ATTEMPTS),
    CONSTANT(HEADER, "bq_app_id", STRING, "babelqueue"),
};

/* ---- routing properties, by precedence -------------------------------------------------------------------------- */

static const bq_place NATIVE_PLACE[] = {BQ_PLACE_NATIVE};
static const bq_place HEADER_PLACE[] = {BQ_PLACE_HEADER};
static const bq_place ARTEMIS_PLACES[] = {BQ_PLACE_ANNOTATION, BQ_PLACE_NATIVE};
static const char *const TYPE[] = {"type"};
static const char *const SUBJECT[] = {"subject"};
static const char *const BQ_JOB[] = {"bq-job"};
static const char *const JMS_TYPE[] = {"x-opt-jms-type", "subject"};

static const char *const KAFKA_EXTRA[] = {"bq-delay", NULL};
static const char *const ARTEMIS_EXTRA[] = {"bq_delay", NULL};

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

#define PROJECTED(rows) .projection = rows, .projection_count = COUNT(rows)
#define ROUTED(places, names) .route_place = places, .route_name = names, .route_count = COUNT(names)
#define OFF(exhausted, rejected, poisoned, gate)                                                                       \
    .off_exhausted = BQ_OFF_##exhausted, .off_rejected = BQ_OFF_##rejected, .off_poison = BQ_OFF_##poisoned,           \
    .off_gated = BQ_OFF_##gate

/* Contract 3: "the worker holds the unsettled delivery for the delay, at most 60 s". */
#define HELD .retry_delay_max_ms = 60000, .retry_delay_held = true
/* Contract 7.4: ChangeMessageVisibility takes 0 to 43200 s. */
#define SQS_VISIBILITY_MAX_MS INT64_C(43200000)

/* memory and sqlite are ours and differ in nothing but their name (7.11). */
#define OURS                                                                                                           \
    .attempts = BQ_ATTEMPTS_BODY, .crash = BQ_CRASH_LAPSES, .poison = BQ_POISON_CONFORMANT,                            \
    .dead_default = BQ_DEAD_ON, .dead_suffix = ".dlq", OFF(DROP, DROP, DROP, DROP), .retry = BQ_RETRY_COPY,            \
    .back = BQ_BACK_RELEASE, .max_attempts = 3, .has_strategies = true, .carries_headers = true,                       \
    .delay = BQ_DELAY_NATIVE

static const bq_binding TABLE[] = {
    {.name = "memory", OURS},
    {.name = "sqlite", OURS},
    {
        .name = "redis", /* 7.1 */
        .attempts = BQ_ATTEMPTS_BODY,
        .crash = BQ_CRASH_LAPSES,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_ON,
        .dead_suffix = ".dlq",
        OFF(DROP, DROP, DEAD_LETTER, DROP),
        .retry = BQ_RETRY_COPY,
        .back = BQ_BACK_RELEASE,
        .max_attempts = 3,
        .poison_ignores_delete = true,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_PARKED,
    },
    {
        .name = "laravel", /* 7.2 */
        .attempts = BQ_ATTEMPTS_BODY,
        .crash = BQ_CRASH_ATTEMPTS,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_ON,
        .dead_suffix = ".dlq",
        OFF(DROP, DROP, DEAD_LETTER, DROP),
        .retry = BQ_RETRY_COPY,
        .back = BQ_BACK_RELEASE,
        .max_attempts = 3,
        .poison_ignores_delete = true,
        .has_strategies = true,
        .delay = BQ_DELAY_NATIVE,
    },
    {
        .name = "bullmq", /* 7.3 */
        .attempts = BQ_ATTEMPTS_NATIVE,
        .crash = BQ_CRASH_NONE,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_POISON_ONLY,
        .dead_suffix = ".dlq",
        OFF(REJECT, REJECT, REJECT, REJECT),
        .retry = BQ_RETRY_NATIVE,
        .back = BQ_BACK_LEAVE,
        .zero_attempts_ok = true,
        .carries_headers = true,
        .delay = BQ_DELAY_NATIVE,
    },
    {
        .name = "rabbitmq", /* 7.10 */
        PROJECTED(RABBITMQ),
        ROUTED(NATIVE_PLACE, TYPE),
        .attempts_name = "x-attempts",
        .attempts = BQ_ATTEMPTS_BODY,
        .crash = BQ_CRASH_NATIVE,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_ON,
        .dead_suffix = ".dlq",
        OFF(DROP, DROP, DROP, DROP),
        .retry = BQ_RETRY_COPY,
        .back = BQ_BACK_RELEASE,
        .max_attempts = 3,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_PARKED,
    },
    {
        .name = "sqs", /* 7.4 */
        PROJECTED(SQS),
        .gate_name = "bq-schema-version",
        .attempts = BQ_ATTEMPTS_MAX_NATIVE_1,
        .crash = BQ_CRASH_NATIVE_1,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_OPT_IN,
        .dead_suffix = "-dlq",
        OFF(NO_LIMIT, LEAVE, LEAVE, LEAVE),
        .retry = BQ_RETRY_NATIVE,
        .back = BQ_BACK_LEAVE,
        .retry_delay_max_ms = SQS_VISIBILITY_MAX_MS,
        .zero_attempts_ok = true,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_SQS,
    },
    {
        .name = "sb", /* 7.5; the wire's delivery-count is 0 on the first delivery */
        PROJECTED(SERVICE_BUS),
        ROUTED(NATIVE_PLACE, SUBJECT),
        .gate_name = "bq-schema-version",
        .gate_integers = true,
        .attempts = BQ_ATTEMPTS_MAX_NATIVE,
        .crash = BQ_CRASH_NATIVE,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_OPT_IN,
        .dead_suffix = ".dlq",
        OFF(NO_LIMIT, REJECT, REJECT, REJECT),
        .retry = BQ_RETRY_NATIVE,
        .back = BQ_BACK_ABANDON,
        HELD,
        .zero_attempts_ok = true,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_NATIVE,
    },
    {
        .name = "pulsar", /* 7.6 */
        PROJECTED(STRINGS),
        ROUTED(HEADER_PLACE, BQ_JOB),
        .gate_name = "bq-schema-version",
        .attempts_name = "bq-attempts",
        .attempts = BQ_ATTEMPTS_HEADER_MAX,
        .crash = BQ_CRASH_NATIVE,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_OPT_IN,
        .dead_suffix = ".dlq",
        OFF(DROP, DROP, RETRY_THEN_DROP, DROP),
        .retry = BQ_RETRY_COPY,
        .back = BQ_BACK_ABANDON,
        .max_attempts = 3,
        .counts_deliveries = true,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_NATIVE,
    },
    {
        .name = "kafka", /* 7.8 */
        PROJECTED(STRINGS),
        ROUTED(HEADER_PLACE, BQ_JOB),
        .gate_name = "bq-schema-version",
        .attempts_name = "bq-attempts",
        .original_name = "bq-original-topic",
        .extra_names = KAFKA_EXTRA,
        .attempts = BQ_ATTEMPTS_HEADER,
        .crash = BQ_CRASH_NONE,
        .poison = BQ_POISON_TYPED,
        .dead_default = BQ_DEAD_WITH_RETRY,
        .dead_suffix = ".dlq",
        OFF(DROP, DROP, DROP, DROP),
        .retry = BQ_RETRY_TIERS,
        .back = BQ_BACK_RELEASE,
        .max_attempts = 3,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_TIERS,
        .record_flags = BQ_RECORD_KAFKA,
        .copy_flags = BQ_COPIES_REROUTE | BQ_COPIES_DROP_NULL,
    },
    {
        .name = "artemis", /* 7.9 */
        PROJECTED(ARTEMIS),
        ROUTED(ARTEMIS_PLACES, JMS_TYPE),
        .gate_name = "bq_schema_version",
        .gate_integers = true,
        .attempts_name = "bq_attempts",
        .extra_names = ARTEMIS_EXTRA,
        .attempts = BQ_ATTEMPTS_MAX_NATIVE,
        .crash = BQ_CRASH_NATIVE,
        .poison = BQ_POISON_CONFORMANT,
        .dead_default = BQ_DEAD_OPT_IN,
        .dead_suffix = ".dlq",
        OFF(DROP, DROP, DROP, DROP),
        .retry = BQ_RETRY_NATIVE,
        .back = BQ_BACK_RELEASE,
        HELD,
        .max_attempts = 3,
        .has_strategies = true,
        .carries_headers = true,
        .delay = BQ_DELAY_NATIVE,
    },
};

const bq_binding *bq_binding_at(size_t index)
{
    return index < COUNT(TABLE) ? &TABLE[index] : NULL;
}

const bq_binding *bq_binding_find(bq_str name)
{
    for (size_t i = 0; i < COUNT(TABLE); i++) {
        if (bq_str_equal(name, bq_str_of(TABLE[i].name)))
            return &TABLE[i];
    }
    return NULL;
}

bool bq_binding_owns(const bq_binding *binding, bq_place place, bq_str name)
{
    for (size_t i = 0; i < binding->projection_count; i++) {
        if (binding->projection[i].place == place && bq_str_equal(name, bq_str_of(binding->projection[i].name)))
            return true;
    }
    if (place != BQ_PLACE_HEADER)
        return false;
    if (binding->original_name && bq_str_equal(name, bq_str_of(binding->original_name)))
        return true;
    for (const char *const *extra = binding->extra_names; extra && *extra; extra++) {
        if (bq_str_equal(name, bq_str_of(*extra)))
            return true;
    }
    return false;
}
