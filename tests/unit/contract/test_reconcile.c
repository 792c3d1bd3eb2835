/* Attempts (contract 3.2 and the column of section 7), and what each binding calls poison (contract 2). */
#include "unit/cmocka_all.h"

#include <babelqueue/binding.h>

#include <stdio.h>
#include <string.h>

#include "unit/contract/sample.h"

static int32_t reconcile(const char *binding, const char *body_attempts, const char *header, bq_prop_type type,
                         int64_t native)
{
    const bq_binding *b = bq_binding_find(bq_str_of(binding));
    char body[512];
    snprintf(body, sizeof body, SAMPLE_WITH("%s%s"), body_attempts ? ",\"attempts\":" : "",
             body_attempts ? body_attempts : "");
    bq_envelope env = sample_decode(body);
    bq_prop prop = {.name = bq_str_of(b->attempts_name ? b->attempts_name : "bq-attempts"),
                    .type = type,
                    .text = bq_str_of(header)};
    return bq_reconcile(b, &env, &prop, header ? 1 : 0, native);
}

static void each_rule(void **state)
{
    (void)state;
    static const struct {
        const char *bindings;
        const char *body;   /* NULL: missing */
        const char *header; /* NULL: none */
        int64_t native;
        int32_t expected;
    } CASES[] = {
        /* body */
        {"memory sqlite redis laravel rabbitmq", "2", NULL, -1, 2},
        {"memory sqlite redis laravel rabbitmq", "2", "9", 9, 2},
        /* max(body, native - 1) */
        {"sqs", "0", NULL, 1, 0},
        {"sqs", "0", NULL, 3, 2},
        {"sqs", "5", NULL, 1, 5},
        {"sqs", "5", NULL, 0, 5},
        {"sqs", "5", "9", -1, 5},
        {"sqs", NULL, NULL, -1, 0},
        /* max(body, native) */
        {"sb artemis", "0", NULL, 0, 0},
        {"sb artemis", "0", NULL, 2, 2},
        {"sb artemis", "5", NULL, 1, 5},
        {"sb artemis", "5", "9", -1, 5}, /* bq_attempts is written, not read */
        /* header when valid, else body; not a max */
        {"kafka", "5", "1", 9, 1},
        {"kafka", "1", "4", -1, 4},
        {"kafka", "3", NULL, -1, 3},
        /* max(header else body, native) */
        {"pulsar", "5", "1", 0, 1},
        {"pulsar", "5", "1", 3, 3},
        {"pulsar", "5", NULL, 3, 5},
        {"pulsar", "5", NULL, 7, 7},
        /* the job's own */
        {"bullmq", "5", "9", 2, 2},
        {"bullmq", "5", "9", -1, 0},
        /* "an absent, negative or unparseable count (native or in the body) is 0" */
        {"memory kafka sqs", NULL, NULL, -1, 0},
        {"memory kafka sqs artemis", "-1", NULL, -7, 0},
        {"memory kafka", "null", NULL, -1, 0},
        {"memory kafka", "1.5", NULL, -1, 0},
        {"memory kafka", "\"7\"", NULL, -1, 0},
        {"memory kafka", "1e2", NULL, -1, 0},
        {"memory kafka", "[7]", NULL, -1, 0},
        {"memory kafka", "99999999999999999999", NULL, -1, 0},
        /* "clamped to 0...2^31-1" */
        {"memory kafka", "2147483647", NULL, -1, 2147483647},
        {"memory kafka", "2147483648", NULL, -1, 2147483647},
        {"memory kafka", "9223372036854775807", NULL, -1, 2147483647},
        {"sqs artemis bullmq pulsar", "0", NULL, INT64_MAX, 2147483647},
        {"sqs", "0", NULL, INT64_C(2147483648), 2147483647},
        {"sqs", "0", NULL, INT64_C(2147483647), 2147483646},
        /* "valid only as ASCII digits that fit int32" */
        {"kafka pulsar", "3", "", 0, 3},
        {"kafka pulsar", "3", " 1", 0, 3},
        {"kafka pulsar", "3", "+1", 0, 3},
        {"kafka pulsar", "3", "-1", 0, 3},
        {"kafka pulsar", "3", "1.0", 0, 3},
        {"kafka pulsar", "3", "1x", 0, 3},
        {"kafka pulsar", "3", "\xD9\xA1", 0, 3}, /* an Arabic digit */
        {"kafka pulsar", "3", "007", 0, 7},
        {"kafka pulsar", "3", "0", 0, 0},
        {"kafka pulsar", "3", "2147483647", 0, 2147483647},
        {"kafka pulsar", "3", "2147483648", 0, 3},
        {"kafka pulsar", "3", "99999999999999999999999999", 0, 3},
        {"kafka pulsar", "3", "00000000000000000000000001", 0, 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char list[64], *save = NULL;
        snprintf(list, sizeof list, "%s", CASES[i].bindings);
        for (char *name = strtok_r(list, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
            int32_t is = reconcile(name, CASES[i].body, CASES[i].header, BQ_PROP_BINARY, CASES[i].native);
            if (is != CASES[i].expected)
                fail_msg("case %zu, %s: %d instead of %d", i, name, is, CASES[i].expected);
        }
    }
    assert_int_equal(reconcile("kafka", "3", "1", BQ_PROP_STRING, -1), 1);
    assert_int_equal(reconcile("kafka", "3", "1", BQ_PROP_OTHER, -1), 3);
}

static void bodies_without_members(void **state)
{
    (void)state;
    static const char *const BODIES[] = {"", "null", "[]", "{\"attempts\":7", "{\"attempts\":7}x", "\xFF", "{}"};
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        bq_envelope env = sample_decode(BODIES[i]);
        for (size_t b = 0; bq_binding_at(b); b++)
            assert_int_equal(bq_reconcile(bq_binding_at(b), &env, NULL, 0, -1), 0);
    }
}

/* Contract 2, last paragraph, and 7.8. */
static void poison(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bq_verdict verdict;
        bool conformant, typed;
    } CASES[] = {
        {SAMPLE, BQ_VERDICT_OK, false, false},
        {"\xFF", BQ_VERDICT_POISON_UTF8, true, true},
        {"", BQ_VERDICT_POISON_JSON, true, true},
        {"{} {}", BQ_VERDICT_POISON_JSON, true, true},
        {"[]", BQ_VERDICT_POISON_ROOT, true, true},
        {"null", BQ_VERDICT_POISON_ROOT, true, false},
        {" null\n", BQ_VERDICT_POISON_ROOT, true, false},
        {"{\"job\":\"u\",\"data\":[]}", BQ_VERDICT_POISON_TYPE, true, true},
        {"{\"job\":\"u\",\"data\":{\"n\":1e400}}", BQ_VERDICT_POISON_TYPE, true, true},
        {"{}", BQ_VERDICT_POISON_IDENTITY, true, false},
        {"{\"job\":\" \"}", BQ_VERDICT_POISON_IDENTITY, true, false},
        {"{\"job\":null}", BQ_VERDICT_POISON_IDENTITY, true, false},
        {"{\"job\":5}", BQ_VERDICT_POISON_IDENTITY, true, true},
        {"{\"job\":5,\"urn\":\"u\"}", BQ_VERDICT_NONCONFORMANT, true, true},
        {"{\"job\":5,\"job\":\"u\"}", BQ_VERDICT_NONCONFORMANT, true, true},
        {"{\"job\":null,\"urn\":\"u\"}", BQ_VERDICT_NONCONFORMANT, true, false},
        {"{\"job\":\"u\"}", BQ_VERDICT_NONCONFORMANT, true, false},
        {"{\"job\":\"u\",\"urn\":5}", BQ_VERDICT_NONCONFORMANT, true, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_envelope env = sample_decode(CASES[i].body);
        assert_int_equal(env.verdict, CASES[i].verdict);
        for (size_t b = 0; bq_binding_at(b); b++) {
            bool typed = strcmp(bq_binding_at(b)->name, "kafka") == 0;
            if (bq_is_poison(bq_binding_at(b), &env) != (typed ? CASES[i].typed : CASES[i].conformant))
                fail_msg("case %zu: %s", i, bq_binding_at(b)->name);
        }
    }
    /* "A null record value is judged as an empty body." */
    bq_envelope env;
    bq_envelope_decode_null(&env);
    assert_true(bq_is_poison(bq_binding_find(BQ_STR("kafka")), &env));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule),
        cmocka_unit_test(bodies_without_members),
        cmocka_unit_test(poison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
