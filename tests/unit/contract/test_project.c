/* The projection of every binding (contract 7.4 to 7.10), name, place and type. */
#include "unit/cmocka_all.h"

#include <string.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/contract/props_text.h"
#include "unit/contract/sample.h"

static void project(const char *binding, const char *body, int64_t attempts, char *out, size_t size)
{
    bq_envelope env = sample_decode(body);
    bq_prop props[BQ_PROJECTED_MAX];
    size_t count;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    const bq_binding *b = bq_binding_find(bq_str_of(binding));
    assert_int_equal(bq_project(b, &env, attempts, props, &count, &scratch, NULL), BQ_OK);
    props_text(props, count, out, size);
    bq_buf_clear(&scratch);
}

static void expect(const char *binding, const char *body, int64_t attempts, const char *expected)
{
    char is[2048];
    project(binding, body, attempts, is, sizeof is);
    if (strcmp(is, expected) != 0)
        fail_msg("%s: expected\n%sgot\n%s", binding, expected, is);
}

#define STRINGS(attempts)                                                                                              \
    "header bq-job string " SAMPLE_URN "\n"                                                                            \
    "header bq-trace-id string " SAMPLE_TRACE "\n"                                                                     \
    "header bq-message-id string " SAMPLE_ID "\n"                                                                      \
    "header bq-schema-version string 1\n"                                                                              \
    "header bq-source-lang string php\n"                                                                               \
    "header bq-attempts string " attempts "\n"

static void every_binding(void **state)
{
    (void)state;
    static const char *const NOTHING[] = {"memory", "sqlite", "redis", "laravel", "bullmq"};
    for (size_t i = 0; i < 5; i++)
        expect(NOTHING[i], SAMPLE, 4, "");
    /* The count is the reconciled one that the caller gives, not the body's 2. */
    expect("kafka", SAMPLE, 4, STRINGS("4"));
    expect("pulsar", SAMPLE, 2147483647, STRINGS("2147483647"));
    expect("sqs", SAMPLE, 4,
           "header bq-job string " SAMPLE_URN "\n"
           "header bq-trace-id string " SAMPLE_TRACE "\n"
           "header bq-message-id string " SAMPLE_ID "\n"
           "header bq-source-lang string php\n"
           "header bq-schema-version number 1\n"
           "header bq-created-at number 1749132727000\n");
    expect("sb", SAMPLE, 4,
           "native subject string " SAMPLE_URN "\n"
           "native correlation_id string " SAMPLE_TRACE "\n"
           "native message_id string " SAMPLE_ID "\n"
           "native content_type string application/json\n"
           "header bq-schema-version int 1\n"
           "header bq-source-lang string php\n"
           "header bq-created-at long 1749132727000\n");
    expect("artemis", SAMPLE, 4,
           "annotation x-opt-jms-type string " SAMPLE_URN "\n"
           "native subject string " SAMPLE_URN "\n"
           "native correlation_id string " SAMPLE_TRACE "\n"
           "native creation_time long 1749132727000\n"
           "header bq_schema_version string 1\n"
           "header bq_source_lang string php\n"
           "header bq_attempts string 4\n"
           "header bq_app_id string babelqueue\n");
    expect("rabbitmq", SAMPLE, 4,
           "native type string " SAMPLE_URN "\n"
           "native correlation_id string " SAMPLE_TRACE "\n"
           "native message_id string " SAMPLE_ID "\n"
           "native app_id string babelqueue\n"
           "native content_type string application/json\n"
           "native content_encoding string utf-8\n"
           "native delivery_mode int 2\n"
           "header x-schema-version int 1\n"
           "header x-source-lang string php\n"
           "header x-attempts int 4\n");
}

#define SQS_JOB "header bq-job string u\n"

/* Fields that the body lacks are left out; of a wrong type too; a version other than 1 is never projected. */
static void what_is_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *body, *sqs;
    } CASES[] = {
        {"{\"job\":\"u\"}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"schema_version\":2}}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"schema_version\":null,\"created_at\":null,\"lang\":null}}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":null,\"trace_id\":null}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"id\":\"\",\"lang\":\"\"},\"trace_id\":\"\"}", SQS_JOB},
        {"{\"job\":\"u\",\"trace_id\":5}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"created_at\":1.5,\"schema_version\":1.0,\"id\":[]}}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"created_at\":true,\"schema_version\":\"1\"}}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"created_at\":\"17\",\"schema_version\":1e0}}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":{\"created_at\":99999999999999999999}}", SQS_JOB},
        {"{\"job\":\"u\",\"meta\":[]}", SQS_JOB},
        {"{\"job\":5,\"urn\":\"u\"}", SQS_JOB},
        {"{\"job\":5}", ""},
        {"{}", ""},
        /* Types that are right are projected although the body is poison. */
        {"{\"data\":[],\"urn\":\"u\",\"trace_id\":\"t\",\"meta\":{\"schema_version\":1,\"created_at\":-7}}",
         SQS_JOB "header bq-trace-id string t\nheader bq-schema-version number 1\nheader bq-created-at number -7\n"},
        /* The last of repeated members counts, and a later meta takes the earlier one's members with it. */
        {"{\"job\":\"x\",\"meta\":{\"lang\":\"a\"},\"job\":\"u\",\"meta\":{\"id\":\"i\"}}",
         SQS_JOB "header bq-message-id string i\n"},
        /* No JSON object: nothing to read. */
        {"{\"job\":\"u\"", ""},
        {"{\"job\":\"u\"} x", ""},
        {"{\"job\":\"u\",\"x\":\"\xFF\"}", ""},
        {"null", ""},
        {"\"job\"", ""},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        expect("sqs", CASES[i].body, 0, CASES[i].sqs);
    /* Constants and the count do not depend on the body. */
    expect("kafka", "not json", 7, "header bq-attempts string 7\n");
    expect("artemis", "not json", 7, "header bq_attempts string 7\nheader bq_app_id string babelqueue\n");
}

/* Escapes are resolved, into one piece of memory that does not move under the texts taken before. */
static void escaped_texts(void **state)
{
    (void)state;
    static char body[9000];
    char job[1500], trace[1500], id[1500], lang[1500];
    for (size_t i = 0; i < 1499; i++) {
        job[i] = 'j';
        trace[i] = 't';
        id[i] = 'i';
        lang[i] = 'l';
    }
    job[1499] = trace[1499] = id[1499] = lang[1499] = '\0';
    snprintf(body, sizeof body,
             "{\"job\":\"\\u0041%s\",\"trace_id\":\"\\n%s\",\"meta\":{\"id\":\"\\\"%s\",\"lang\":\"\\ud83d\\ude00%s\","
             "\"schema_version\":1,\"created_at\":12}}",
             job, trace, id, lang);
    bq_envelope env = sample_decode(body);
    bq_prop props[BQ_PROJECTED_MAX];
    size_t count;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    assert_int_equal(bq_buf_add_lit(&scratch, "already here"), BQ_OK);
    const bq_binding *b = bq_binding_find(BQ_STR("kafka"));
    assert_int_equal(bq_project(b, &env, 7, props, &count, &scratch, NULL), BQ_OK);
    assert_int_equal(count, 6);
    const char *const heads[] = {"A", "\n", "\"", "1", "\xF0\x9F\x98\x80", "7"};
    const char *const tails[] = {job, trace, id, "", lang, ""};
    for (size_t i = 0; i < 6; i++) {
        size_t head = strlen(heads[i]);
        assert_int_equal(props[i].text.len, head + strlen(tails[i]));
        assert_memory_equal(props[i].text.ptr, heads[i], head);
        assert_memory_equal(props[i].text.ptr + head, tails[i], strlen(tails[i]));
    }
    assert_memory_equal(scratch.ptr, "already here", 12);
    bq_buf_clear(&scratch);
}

/* One escaped text, whatever its length, with numbers written behind it. */
static void one_escaped_text(void **state)
{
    (void)state;
    char body[400], trace[200];
    for (size_t len = 1; len < sizeof trace; len++) {
        memset(trace, 't', len);
        trace[len] = '\0';
        snprintf(body, sizeof body,
                 "{\"job\":\"u\",\"trace_id\":\"\\n%s\",\"meta\":{\"schema_version\":1,\"created_at\":1749132727000}}",
                 trace);
        bq_envelope env = sample_decode(body);
        bq_prop props[BQ_PROJECTED_MAX];
        size_t count;
        bq_buf scratch;
        bq_buf_init(&scratch, 0);
        assert_int_equal(bq_project(bq_binding_find(BQ_STR("sqs")), &env, 7, props, &count, &scratch, NULL), BQ_OK);
        assert_int_equal(count, 4);
        assert_int_equal(props[1].text.len, len + 1);
        assert_int_equal(props[1].text.ptr[0], '\n');
        assert_memory_equal(props[1].text.ptr + 1, trace, len);
        assert_true(bq_str_equal(props[3].text, BQ_STR("1749132727000")));
        bq_buf_clear(&scratch);
    }
}

static bq_status scenario(void *arg)
{
    bq_envelope env = sample_decode("{\"job\":\"\\u0041\",\"meta\":{\"created_at\":12,\"id\":\"\\u0042\"}}");
    bq_prop props[BQ_PROJECTED_MAX];
    size_t count;
    bq_buf scratch;
    bq_error err = {0};
    bq_buf_init(&scratch, 0);
    bq_status status =
        bq_project(bq_binding_find(bq_str_of(*(const char **)arg)), &env, 7, props, &count, &scratch, &err);
    if (status != BQ_OK)
        assert_int_equal(err.status, BQ_NOMEM);
    bq_buf_clear(&scratch);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    const char *binding = "sqs";
    alloc_fail_each("sqs", scenario, &binding);
    binding = "kafka";
    alloc_fail_each("kafka", scenario, &binding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_binding),    cmocka_unit_test(what_is_left_out), cmocka_unit_test(escaped_texts),
        cmocka_unit_test(one_escaped_text), cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
