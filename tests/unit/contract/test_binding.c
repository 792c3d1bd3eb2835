/* The binding table: the cells of contract 7's table and of its subsections, written out once more by hand. */
#include "unit/cmocka_all.h"

#include <babelqueue/binding.h>

#include <string.h>

static const char *const NAMES[] = {"memory", "sqlite", "redis",  "laravel", "bullmq", "rabbitmq",
                                    "sqs",    "sb",     "pulsar", "kafka",   "artemis"};
#define COUNT (sizeof NAMES / sizeof NAMES[0])

static const bq_binding *row(const char *name)
{
    const bq_binding *binding = bq_binding_find(bq_str_of(name));
    if (!binding)
        fail_msg("no binding %s", name);
    return binding;
}

static void eleven_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(bq_binding_at(i), row(NAMES[i]));
        assert_string_equal(bq_binding_at(i)->name, NAMES[i]);
    }
    assert_null(bq_binding_at(COUNT));
    assert_null(bq_binding_find(BQ_STR("")));
    assert_null(bq_binding_find(BQ_STR_NULL));
    assert_null(bq_binding_find(BQ_STR("Kafka")));
    assert_null(bq_binding_find(BQ_STR("kafka ")));
}

/* One line per binding, columns in the order of contract 7's table. */
static void the_table_of_section_7(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *routes; /* by precedence, "" = the body alone */
        bq_attempts_rule attempts;
        bq_poison_rule poison;
        bq_dead_default dead;
        const char *suffix;
        int max_attempts;
        bq_delay_rule delay;
    } ROWS[] = {
        {"memory", "", BQ_ATTEMPTS_BODY, BQ_POISON_CONFORMANT, BQ_DEAD_ON, ".dlq", 3, BQ_DELAY_NATIVE},
        {"sqlite", "", BQ_ATTEMPTS_BODY, BQ_POISON_CONFORMANT, BQ_DEAD_ON, ".dlq", 3, BQ_DELAY_NATIVE},
        {"redis", "", BQ_ATTEMPTS_BODY, BQ_POISON_CONFORMANT, BQ_DEAD_ON, ".dlq", 3, BQ_DELAY_PARKED},
        {"laravel", "", BQ_ATTEMPTS_BODY, BQ_POISON_CONFORMANT, BQ_DEAD_ON, ".dlq", 3, BQ_DELAY_NATIVE},
        {"bullmq", "", BQ_ATTEMPTS_NATIVE, BQ_POISON_CONFORMANT, BQ_DEAD_POISON_ONLY, ".dlq", 0, BQ_DELAY_NATIVE},
        {"rabbitmq", "native:type", BQ_ATTEMPTS_BODY, BQ_POISON_CONFORMANT, BQ_DEAD_ON, ".dlq", 3, BQ_DELAY_PARKED},
        {"sqs", "", BQ_ATTEMPTS_MAX_NATIVE_1, BQ_POISON_CONFORMANT, BQ_DEAD_OPT_IN, "-dlq", 0, BQ_DELAY_SQS},
        /* 7.5: "the wire's delivery-count is already 0-based" */
        {"sb", "native:subject", BQ_ATTEMPTS_MAX_NATIVE, BQ_POISON_CONFORMANT, BQ_DEAD_OPT_IN, ".dlq", 0,
         BQ_DELAY_NATIVE},
        {"pulsar", "header:bq-job", BQ_ATTEMPTS_HEADER_MAX, BQ_POISON_CONFORMANT, BQ_DEAD_OPT_IN, ".dlq", 3,
         BQ_DELAY_NATIVE},
        {"kafka", "header:bq-job", BQ_ATTEMPTS_HEADER, BQ_POISON_TYPED, BQ_DEAD_WITH_RETRY, ".dlq", 3, BQ_DELAY_TIERS},
        {"artemis", "annotation:x-opt-jms-type native:subject", BQ_ATTEMPTS_MAX_NATIVE, BQ_POISON_CONFORMANT,
         BQ_DEAD_OPT_IN, ".dlq", 3, BQ_DELAY_NATIVE},
    };
    static const char *const PLACES[] = {"header", "native", "annotation"};
    assert_int_equal(sizeof ROWS / sizeof ROWS[0], COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const bq_binding *b = row(ROWS[i].name);
        char routes[128] = "";
        for (size_t r = 0; r < b->route_count; r++) {
            strncat(routes, r ? " " : "", 2);
            strncat(routes, PLACES[b->route_place[r]], 16);
            strncat(routes, ":", 2);
            strncat(routes, b->route_name[r], 32);
        }
        assert_string_equal(routes, ROWS[i].routes);
        assert_int_equal(b->attempts, ROWS[i].attempts);
        assert_int_equal(b->poison, ROWS[i].poison);
        assert_int_equal(b->dead_default, ROWS[i].dead);
        assert_string_equal(b->dead_suffix, ROWS[i].suffix);
        assert_int_equal(b->max_attempts, ROWS[i].max_attempts);
        assert_int_equal(b->delay, ROWS[i].delay);
    }
}

static void check_set(const char *what, const char *members, size_t offset)
{
    for (size_t i = 0; i < COUNT; i++) {
        const char *at = strstr(members, NAMES[i]);
        bool expected = at != NULL, is;
        memcpy(&is, (const char *)row(NAMES[i]) + offset, sizeof is);
        if (is != expected)
            fail_msg("%s: %s", what, NAMES[i]);
    }
}

static void yes_and_no(void **state)
{
    (void)state;
    /* contract 3: "except 0 = the broker's own limit on SQS, Service Bus and BullMQ" */
    check_set("zero_attempts_ok", "sqs sb bullmq", offsetof(bq_binding, zero_attempts_ok));
    check_set("counts_deliveries", "pulsar", offsetof(bq_binding, counts_deliveries));
    /* "not on Redis, either layout" */
    check_set("poison_ignores_delete", "redis laravel", offsetof(bq_binding, poison_ignores_delete));
    check_set("has_strategies", "memory sqlite redis laravel rabbitmq sqs sb pulsar kafka artemis",
              offsetof(bq_binding, has_strategies));
    /* contract 5: "drops them silently (Laravel layout)" */
    check_set("carries_headers", "memory sqlite redis bullmq rabbitmq sqs sb pulsar kafka artemis",
              offsetof(bq_binding, carries_headers));
    check_set("retry_delay_held", "sb artemis", offsetof(bq_binding, retry_delay_held));
    check_set("gate_integers", "sb artemis", offsetof(bq_binding, gate_integers));
    assert_int_equal(row("sb")->retry_delay_max_ms, 60 * 1000);
    assert_int_equal(row("artemis")->retry_delay_max_ms, 60 * 1000);
    assert_int_equal(row("sqs")->retry_delay_max_ms, 43200 * 1000);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(row(NAMES[i])->record_flags, strcmp(NAMES[i], "kafka") == 0 ? BQ_RECORD_KAFKA : 0);
}

static void the_gate(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        const char *name = row(NAMES[i])->gate_name, *expected = NULL;
        if (strstr("sqs pulsar kafka sb", NAMES[i]))
            expected = "bq-schema-version";
        if (strcmp(NAMES[i], "artemis") == 0)
            expected = "bq_schema_version";
        if (expected)
            assert_string_equal(name, expected);
        else
            assert_null(name);
    }
}

static void own_names(void **state)
{
    (void)state;
    static const struct {
        const char *binding;
        bq_place place;
        const char *name;
        bool own;
    } CASES[] = {
        {"kafka", BQ_PLACE_HEADER, "bq-job", true},
        {"kafka", BQ_PLACE_HEADER, "bq-attempts", true},
        {"kafka", BQ_PLACE_HEADER, "bq-delay", true},
        {"kafka", BQ_PLACE_HEADER, "bq-original-topic", true},
        {"kafka", BQ_PLACE_HEADER, "bq-replay-bypass", false}, /* a header like the user's (contract 5) */
        {"kafka", BQ_PLACE_HEADER, "traceparent", false},
        {"kafka", BQ_PLACE_HEADER, "BQ-JOB", false},
        {"kafka", BQ_PLACE_HEADER, "", false},
        {"kafka", BQ_PLACE_NATIVE, "bq-job", false},
        {"kafka", BQ_PLACE_NATIVE, "bq-delay", false},
        {"pulsar", BQ_PLACE_HEADER, "bq-attempts", true},
        {"pulsar", BQ_PLACE_HEADER, "bq-delay", false},
        {"sqs", BQ_PLACE_HEADER, "bq-created-at", true},
        {"sqs", BQ_PLACE_HEADER, "bq-attempts", false},
        {"sb", BQ_PLACE_HEADER, "bq-created-at", true},
        {"sb", BQ_PLACE_NATIVE, "subject", true},
        {"sb", BQ_PLACE_HEADER, "subject", false},
        {"rabbitmq", BQ_PLACE_NATIVE, "type", true},
        {"rabbitmq", BQ_PLACE_HEADER, "x-attempts", true},
        {"rabbitmq", BQ_PLACE_HEADER, "x-death", false},
        {"artemis", BQ_PLACE_ANNOTATION, "x-opt-jms-type", true},
        {"artemis", BQ_PLACE_HEADER, "bq_delay", true},
        {"artemis", BQ_PLACE_HEADER, "bq-schema-version", false},
        {"redis", BQ_PLACE_HEADER, "bq-job", false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bool own = bq_binding_owns(row(CASES[i].binding), CASES[i].place, bq_str_of(CASES[i].name));
        if (own != CASES[i].own)
            fail_msg("%s: %s", CASES[i].binding, CASES[i].name);
    }
}

static void rows_hold_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        const bq_binding *b = row(NAMES[i]);
        assert_in_range(b->projection_count, 0, BQ_PROJECTED_MAX);
        /* What routes, gates and counts is projected too, so that our own consumers find it. */
        for (size_t r = 0; r < b->route_count; r++)
            assert_true(bq_binding_owns(b, b->route_place[r], bq_str_of(b->route_name[r])));
        if (b->gate_name)
            assert_true(bq_binding_owns(b, BQ_PLACE_HEADER, bq_str_of(b->gate_name)));
        if (b->attempts_name)
            assert_true(bq_binding_owns(b, b->attempts_place, bq_str_of(b->attempts_name)));
        else
            assert_true(b->attempts != BQ_ATTEMPTS_HEADER && b->attempts != BQ_ATTEMPTS_HEADER_MAX);
        assert_true(b->max_attempts > 0 || b->zero_attempts_ok);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eleven_rows), cmocka_unit_test(the_table_of_section_7),
        cmocka_unit_test(yes_and_no),  cmocka_unit_test(the_gate),
        cmocka_unit_test(own_names),   cmocka_unit_test(rows_hold_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
