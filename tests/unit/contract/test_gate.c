/* The version gate, contract 3.1, and the lookup of properties. */
#include "unit/cmocka_all.h"

#include <babelqueue/binding.h>

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"

#define TEXT(t, s)                                                                                                     \
    {                                                                                                                  \
        .type = BQ_PROP_##t, .text = { s, sizeof(s) - 1 }                                                              \
    }
#define INTEGER(t, n)                                                                                                  \
    {                                                                                                                  \
        .type = BQ_PROP_##t, .num = n                                                                                  \
    }

typedef struct gate_case {
    const char *bindings;
    bq_prop value;
    const char *reported; /* NULL: passes */
} gate_case;

#define EVERY "sqs sb pulsar kafka artemis"
#define BYTES "sqs pulsar kafka"

static const gate_case CASES[] = {
    /* missing, null or blank */
    {EVERY, {.type = BQ_PROP_NULL}, NULL},
    {EVERY, TEXT(STRING, ""), NULL},
    {EVERY, TEXT(STRING, " \t\n\v\f\r"), NULL},
    {EVERY, TEXT(BINARY, ""), NULL},
    {EVERY, TEXT(SYMBOL, "  "), NULL},
    /* exactly 1 */
    {EVERY, TEXT(STRING, "1"), NULL},
    {"sqs", TEXT(NUMBER, "1"), NULL},
    {"kafka", TEXT(BINARY, "1"), NULL},
    /* "compared as sent with no trimming" */
    {EVERY, TEXT(STRING, "2"), "2"},
    {EVERY, TEXT(STRING, "x"), "x"},
    {EVERY, TEXT(STRING, "01"), "01"},
    {EVERY, TEXT(STRING, " 1"), " 1"},
    {EVERY, TEXT(STRING, "1 "), "1 "},
    {EVERY, TEXT(STRING, "1\0"), NULL /* see below: a NUL is a byte like any other */},
    {EVERY, TEXT(STRING, "\xC2\xA0"), "\xC2\xA0"}, /* a no-break space is not blank */
    {EVERY, TEXT(STRING, "1.0"), "1.0"},
    {EVERY, TEXT(STRING, "0"), "0"},
    {"sqs", TEXT(NUMBER, "2"), "2"},
    {"kafka", TEXT(BINARY, "\xFF"), "\xFF"},
    /* 7.5: "any AMQP integer type of value 1 passes; a float 1.0, a boolean or any other type is rejected" */
    {"sb artemis", INTEGER(INT, 1), NULL},
    {"sb artemis", INTEGER(LONG, 1), NULL},
    {"sb artemis", INTEGER(INT, 2), "2"},
    {"sb artemis", INTEGER(LONG, INT64_MIN), "-9223372036854775808"},
    {"sb artemis", INTEGER(BOOL, 1), "true"},
    {"sb artemis", INTEGER(BOOL, 0), "false"},
    {"sb artemis", {.type = BQ_PROP_DOUBLE, .real = 1.0}, "1 (floating point)"},
    {"sb artemis", TEXT(SYMBOL, "1"), "1"},
    {"sb artemis", TEXT(BINARY, "1"), "1"},
    {"sb artemis", TEXT(OTHER, "1"), "(neither text nor a number)"},
    /* elsewhere the declared version is text */
    {BYTES, INTEGER(INT, 1), "1"},
    /* "cut at 64 characters plus ..." */
    {EVERY, TEXT(STRING, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"},
    {EVERY, TEXT(STRING, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbc"),
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb..."},
};

static bool is_gated(const char *binding, const bq_prop *value, bq_str *reported, bq_buf *scratch)
{
    const bq_binding *b = bq_binding_find(bq_str_of(binding));
    bq_prop props[2] = {{.place = BQ_PLACE_NATIVE, .type = BQ_PROP_STRING, .text = BQ_STR("2")}, *value};
    props[0].name = props[1].name = bq_str_of(b->gate_name); /* only the header counts */
    return bq_gate(b, props, 2, reported, scratch);
}

static void each_value(void **state)
{
    (void)state;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char list[64], *save = NULL;
        bool with_nul = CASES[i].value.text.len == 2 && memcmp(CASES[i].value.text.ptr, "1\0", 2) == 0;
        snprintf(list, sizeof list, "%s", CASES[i].bindings);
        for (char *name = strtok_r(list, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
            bq_str reported;
            bool gated = is_gated(name, &CASES[i].value, &reported, &scratch);
            bool expected = CASES[i].reported || with_nul;
            if (gated != expected)
                fail_msg("case %zu, %s: %s", i, name, gated ? "gated" : "passed");
            bq_str text = with_nul ? (bq_str){"1\0", 2} : bq_str_of(CASES[i].reported);
            if (gated ? !bq_str_equal(reported, text) : reported.ptr != NULL)
                fail_msg("case %zu, %s: reported %.*s", i, name, (int)reported.len, reported.ptr);
            assert_int_equal(is_gated(name, &CASES[i].value, NULL, &scratch), gated);
        }
    }
    bq_buf_clear(&scratch);
}

/* Characters, not bytes; and a text that is no UTF-8 does not run away. */
static void cut_at_characters(void **state)
{
    (void)state;
    char text[3000];
    for (size_t i = 0; i < 2 * 65; i += 2)
        memcpy(text + i, "\xC3\xA9", 2);
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    bq_str reported;
    bq_prop value = {.type = BQ_PROP_STRING, .text = {text, 2 * 65}};
    assert_true(is_gated("kafka", &value, &reported, &scratch));
    assert_int_equal(reported.len, 2 * 64 + 3);
    assert_memory_equal(reported.ptr, text, 2 * 64);
    assert_memory_equal(reported.ptr + 2 * 64, "...", 3);
    memset(text, 0x80, sizeof text);
    value.text.len = sizeof text;
    assert_true(is_gated("kafka", &value, &reported, &scratch));
    assert_in_range(reported.len, 1, 300);
    bq_buf_clear(&scratch);
}

static void no_gate_elsewhere(void **state)
{
    (void)state;
    static const char *const UNGATED[] = {"memory", "sqlite", "redis", "laravel", "bullmq", "rabbitmq"};
    static const char *const HEADERS[] = {"bq-schema-version", "bq_schema_version", "x-schema-version"};
    for (size_t i = 0; i < 6; i++) {
        for (size_t h = 0; h < 3; h++) {
            bq_prop prop = {.name = bq_str_of(HEADERS[h]), .type = BQ_PROP_STRING, .text = BQ_STR("2")};
            assert_false(bq_gate(bq_binding_find(bq_str_of(UNGATED[i])), &prop, 1, NULL, NULL));
        }
    }
    assert_false(bq_gate(bq_binding_find(BQ_STR("kafka")), NULL, 0, NULL, NULL));
    /* The other spelling is somebody's own property. */
    bq_prop prop = {.name = BQ_STR("bq-schema-version"), .type = BQ_PROP_STRING, .text = BQ_STR("2")};
    assert_false(bq_gate(bq_binding_find(BQ_STR("artemis")), &prop, 1, NULL, NULL));
}

/* 7.8: "of repeated headers the first non-null counts" */
static void repeated_headers(void **state)
{
    (void)state;
    const bq_binding *kafka = bq_binding_find(BQ_STR("kafka"));
    bq_prop props[3] = {
        {.name = BQ_STR("bq-schema-version"), .type = BQ_PROP_NULL},
        {.name = BQ_STR("bq-schema-version"), .type = BQ_PROP_BINARY, .text = BQ_STR("1")},
        {.name = BQ_STR("bq-schema-version"), .type = BQ_PROP_BINARY, .text = BQ_STR("2")},
    };
    assert_false(bq_gate(kafka, props, 3, NULL, NULL));
    assert_ptr_equal(bq_prop_find(props, 3, BQ_PLACE_HEADER, BQ_STR("bq-schema-version")), &props[1]);
    assert_null(bq_prop_find(props, 1, BQ_PLACE_HEADER, BQ_STR("bq-schema-version")));
    assert_null(bq_prop_find(props, 3, BQ_PLACE_NATIVE, BQ_STR("bq-schema-version")));
    assert_null(bq_prop_find(NULL, 0, BQ_PLACE_HEADER, BQ_STR("x")));
    props[1].text = BQ_STR("3");
    props[2].text = BQ_STR("1");
    assert_true(bq_gate(kafka, props, 3, NULL, NULL));
}

/* Without memory the message is gated all the same, only the version stays unsaid. */
static void without_memory(void **state)
{
    (void)state;
    bq_prop value = {.type = BQ_PROP_STRING, .text = BQ_STR("2")};
    alloc_fail_state fail;
    alloc_fail_begin(&fail, 1, true);
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    bq_str reported = BQ_STR("not touched");
    bool gated = is_gated("kafka", &value, &reported, &scratch);
    bq_buf_clear(&scratch);
    assert_int_equal(alloc_fail_end(&fail), 0);
    assert_true(gated);
    assert_null(reported.ptr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value),       cmocka_unit_test(cut_at_characters), cmocka_unit_test(no_gate_elsewhere),
        cmocka_unit_test(repeated_headers), cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
