/* The route (contract 3.4), the original queue (section 4), the name of a dead-letter queue (sections 4 and 7.4). */
#include "unit/cmocka_all.h"

#include <babelqueue/binding.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/contract/sample.h"

#define PROP(place_, type_, name_, text_)                                                                              \
    {                                                                                                                  \
        .place = BQ_PLACE_##place_, .type = BQ_PROP_##type_, .name = {"" name_, sizeof(name_) - 1}, .text = {          \
            "" text_,                                                                                                  \
            sizeof(text_) - 1                                                                                          \
        }                                                                                                              \
    }

static void each_binding(void **state)
{
    (void)state;
    static const char BODY[] = "{\"job\":\"urn:body\"}";
    static const struct {
        const char *binding;
        bq_prop props[3];
        const char *route;
    } CASES[] = {
        {"memory", {PROP(HEADER, STRING, "bq-job", "urn:prop")}, "urn:body"},
        {"redis", {PROP(HEADER, STRING, "bq-job", "urn:prop")}, "urn:body"},
        {"sqs", {PROP(HEADER, STRING, "bq-job", "urn:prop")}, "urn:body"}, /* routes on the body */
        {"rabbitmq", {PROP(NATIVE, STRING, "type", "urn:prop")}, "urn:prop"},
        {"rabbitmq", {PROP(HEADER, STRING, "type", "urn:prop")}, "urn:body"},
        {"rabbitmq", {PROP(NATIVE, STRING, "type", " \t\n")}, "urn:body"},
        {"sb", {PROP(NATIVE, STRING, "subject", "urn:prop")}, "urn:prop"},
        {"pulsar", {PROP(HEADER, STRING, "bq-job", "urn:prop")}, "urn:prop"},
        {"kafka", {PROP(HEADER, BINARY, "bq-job", "urn:prop")}, "urn:prop"},
        {"kafka", {PROP(HEADER, BINARY, "bq-job", "")}, "urn:body"},
        {"kafka", {PROP(HEADER, NULL, "bq-job", ""), PROP(HEADER, BINARY, "bq-job", "urn:2")}, "urn:2"},
        {"kafka", {PROP(HEADER, BINARY, "bq-job", "urn:1"), PROP(HEADER, BINARY, "bq-job", "urn:2")}, "urn:1"},
        {"kafka", {PROP(HEADER, BINARY, "bq-job", " urn:1 ")}, " urn:1 "}, /* as sent */
        {"artemis",
         {PROP(ANNOTATION, SYMBOL, "x-opt-jms-type", "urn:a"), PROP(NATIVE, STRING, "subject", "urn:s")},
         "urn:a"},
        {"artemis",
         {PROP(NATIVE, STRING, "subject", "urn:s"), PROP(ANNOTATION, STRING, "x-opt-jms-type", "urn:a")},
         "urn:a"},
        {"artemis",
         {PROP(NATIVE, STRING, "subject", "urn:s"), PROP(ANNOTATION, STRING, "x-opt-jms-type", " ")},
         "urn:s"},
        {"artemis", {PROP(NATIVE, NULL, "subject", "")}, "urn:body"},
        {"artemis", {PROP(NATIVE, OTHER, "subject", "urn:s")}, "urn:body"},
    };
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    bq_envelope env = sample_decode(BODY);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        size_t count = 0;
        while (count < 3 && CASES[i].props[count].name.ptr)
            count++;
        bq_str route;
        const bq_binding *b = bq_binding_find(bq_str_of(CASES[i].binding));
        assert_int_equal(bq_route_of(b, &env, CASES[i].props, count, &scratch, &route), BQ_OK);
        if (!bq_str_equal(route, bq_str_of(CASES[i].route)))
            fail_msg("case %zu, %s: %.*s", i, CASES[i].binding, (int)route.len, route.ptr);
    }
    bq_buf_clear(&scratch);
}

static void the_body_s_identity(void **state)
{
    (void)state;
    static const struct {
        const char *body, *route; /* NULL: absent */
    } CASES[] = {
        {"{\"job\":\"a\",\"urn\":\"b\"}", "a"},
        {"{\"job\":\" \",\"urn\":\"b\"}", "b"},
        {"{\"job\":\"urn:\\u0061\\/\\ud83d\\ude00\"}", "urn:a/\xF0\x9F\x98\x80"},
        {"{\"job\":\" a \"}", " a "},
        {"{}", NULL},
        {"null", NULL},
        {"not json", NULL},
        {"", NULL},
    };
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_envelope env = sample_decode(CASES[i].body);
        bq_str route;
        for (size_t b = 0; bq_binding_at(b); b++) {
            assert_int_equal(bq_route_of(bq_binding_at(b), &env, NULL, 0, &scratch, &route), BQ_OK);
            assert_true(bq_str_equal(route, bq_str_of(CASES[i].route)));
            assert_int_equal(route.ptr == NULL, CASES[i].route == NULL);
        }
    }
    bq_buf_clear(&scratch);
}

static void original_queue(void **state)
{
    (void)state;
    const bq_prop topic = PROP(HEADER, BINARY, "bq-original-topic", "orders.work");
    const bq_prop empty = PROP(HEADER, BINARY, "bq-original-topic", "");
    static const struct {
        const char *binding;
        bool poison;
        const char *body;
        int prop; /* 1: the topic, 2: an empty one */
        const char *expected;
    } CASES[] = {
        {"redis", false, SAMPLE, 0, "orders"}, /* meta.queue */
        {"redis", false, "{\"job\":\"u\"}", 0, "consumed"},
        {"redis", false, "{\"job\":\"u\",\"meta\":{\"queue\":\"\"}}", 0, "consumed"},
        {"redis", false, "{\"job\":\"u\",\"meta\":{\"queue\":\"\\u0071\"}}", 0, "q"},
        {"redis", false, "{\"job\":\"u\",\"meta\":{\"queue\":null}}", 0, "consumed"},
        {"redis", true, SAMPLE, 0, "consumed"}, /* "never meta.queue" */
        {"redis", false, SAMPLE, 1, "orders"},
        {"kafka", false, SAMPLE, 0, "consumed"},
        {"kafka", false, SAMPLE, 1, "orders.work"},
        {"kafka", true, SAMPLE, 1, "orders.work"},
        {"kafka", true, SAMPLE, 2, "consumed"},
        {"kafka", true, "not json", 0, "consumed"},
    };
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_envelope env = sample_decode(CASES[i].body);
        bq_str out;
        const bq_binding *b = bq_binding_find(bq_str_of(CASES[i].binding));
        assert_int_equal(bq_original_queue(b, CASES[i].poison, &env, CASES[i].prop == 2 ? &empty : &topic,
                                           CASES[i].prop ? 1 : 0, BQ_STR("consumed"), &scratch, &out),
                         BQ_OK);
        if (!bq_str_equal(out, bq_str_of(CASES[i].expected)))
            fail_msg("case %zu: %.*s", i, (int)out.len, out.ptr);
    }
    bq_buf_clear(&scratch);
}

static void dead_letter_queue(void **state)
{
    (void)state;
    static const struct {
        const char *binding, *queue, *expected;
    } CASES[] = {
        {"redis", "orders", "orders.dlq"}, {"kafka", "orders", "orders.dlq"}, {"redis", "a.fifo", "a.fifo.dlq"},
        {"sqs", "orders", "orders-dlq"},   {"sqs", "a.fifo", "a-dlq.fifo"},   {"sqs", ".fifo", "-dlq.fifo"},
        {"sqs", "fifo", "fifo-dlq"},       {"sqs", "a.fifox", "a.fifox-dlq"}, {"sqs", "a.FIFO", "a.FIFO-dlq"},
        {"artemis", "o.dlq", "o.dlq.dlq"},
    };
    bq_buf out;
    bq_buf_init(&out, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const bq_binding *b = bq_binding_find(bq_str_of(CASES[i].binding));
        bq_buf_reset(&out);
        assert_int_equal(bq_dead_letter_queue(b, bq_str_of(CASES[i].queue), &out), BQ_OK);
        assert_string_equal(out.ptr, CASES[i].expected);
    }
    /* Appended, and all of it or nothing. */
    assert_int_equal(bq_dead_letter_queue(bq_binding_find(BQ_STR("redis")), BQ_STR("q"), &out), BQ_OK);
    assert_string_equal(out.ptr, "o.dlq.dlqq.dlq");
    bq_buf_clear(&out);
    bq_buf_init(&out, 6);
    assert_int_equal(bq_dead_letter_queue(bq_binding_find(BQ_STR("redis")), BQ_STR("orders"), &out), BQ_DATA);
    assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
}

static bq_status scenario(void *arg)
{
    (void)arg;
    bq_envelope env = sample_decode("{\"job\":\"\\u0061\",\"meta\":{\"queue\":\"\\u0062\"}}");
    bq_buf scratch, name;
    bq_buf_init(&scratch, 0);
    bq_buf_init(&name, 0);
    bq_str out;
    const bq_binding *b = bq_binding_find(BQ_STR("redis"));
    bq_status status = bq_route_of(b, &env, NULL, 0, &scratch, &out);
    if (status == BQ_OK)
        status = bq_original_queue(b, false, &env, NULL, 0, BQ_STR("q"), &scratch, &out);
    if (status == BQ_OK)
        status = bq_dead_letter_queue(b, out, &name);
    bq_buf_clear(&scratch);
    bq_buf_clear(&name);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    alloc_fail_each("route", scenario, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_binding),      cmocka_unit_test(the_body_s_identity), cmocka_unit_test(original_queue),
        cmocka_unit_test(dead_letter_queue), cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
