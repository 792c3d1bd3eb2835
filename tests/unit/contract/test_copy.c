/* What travels with a copy (contract 3), and with a redrive (contract 6). */
#include "unit/cmocka_all.h"

#include <string.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/contract/props_text.h"
#include "unit/contract/sample.h"

#define TEXT(place_, type_, name_, text_)                                                                              \
    {                                                                                                                  \
        .place = BQ_PLACE_##place_, .type = BQ_PROP_##type_, .name = {"" name_, sizeof(name_) - 1}, .text = {          \
            "" text_,                                                                                                  \
            sizeof(text_) - 1                                                                                          \
        }                                                                                                              \
    }
#define NUMBER(place_, type_, name_, num_)                                                                             \
    {                                                                                                                  \
        .place = BQ_PLACE_##place_, .type = BQ_PROP_##type_, .name = {"" name_, sizeof(name_) - 1}, .num = num_        \
    }
#define PROPS_MAX 12

static void copy(const char *binding, bq_copy kind, const char *body, int64_t attempts, const bq_prop *props,
                 size_t count, char *out, size_t size)
{
    bq_envelope env = sample_decode(body);
    bq_prop copied[PROPS_MAX + BQ_PROJECTED_MAX];
    size_t copied_count;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    assert_int_equal(bq_copy_props(bq_binding_find(bq_str_of(binding)), kind, &env, attempts, props, count, copied,
                                   PROPS_MAX + BQ_PROJECTED_MAX, &copied_count, &scratch, NULL),
                     BQ_OK);
    props_text(copied, copied_count, out, size);
    bq_buf_clear(&scratch);
}

#define EXPECT(binding, kind, body, attempts, props, expected)                                                         \
    do {                                                                                                               \
        char is_[4096];                                                                                                \
        copy(binding, kind, body, attempts, props, sizeof(props) / sizeof((props)[0]), is_, sizeof is_);               \
        if (strcmp(is_, expected) != 0)                                                                                \
            fail_msg("%s, line %d: expected\n%sgot\n%s", binding, __LINE__, expected, is_);                            \
    } while (0)

/* As a Kafka record may arrive after a re-injection, its routing header at odds with the body. */
static const bq_prop KAFKA[] = {
    TEXT(HEADER, BINARY, "bq-job", "urn:other"),    TEXT(HEADER, BINARY, "bq-attempts", "1"),
    TEXT(HEADER, BINARY, "traceparent", "00-1"),    TEXT(HEADER, NULL, "empty", ""),
    TEXT(HEADER, BINARY, "bq-delay", "5000"),       TEXT(HEADER, BINARY, "bq-original-topic", "work"),
    TEXT(HEADER, BINARY, "bq-replay-bypass", "1"),  TEXT(HEADER, NULL, "bq-trace-id", ""),
    TEXT(HEADER, BINARY, "bq-schema-version", " "),
};

#define KAFKA_PROJECTED(attempts)                                                                                      \
    "header bq-trace-id string " SAMPLE_TRACE "\n"                                                                     \
    "header bq-message-id string " SAMPLE_ID "\n"                                                                      \
    "header bq-schema-version string 1\n"                                                                              \
    "header bq-source-lang string php\n"                                                                               \
    "header bq-attempts string " attempts "\n"

static void a_retry_and_a_record(void **state)
{
    (void)state;
    /* "keep the routing, schema-version and user properties they arrived with, set the attempts property, and project
     * only what is missing" (null and blank are missing) */
    static const char EXPECTED[] = "header bq-job binary urn:other\n"
                                   "header traceparent binary 00-1\n"
                                   "header empty null \n"
                                   "header bq-original-topic binary work\n"
                                   "header bq-replay-bypass binary 1\n" KAFKA_PROJECTED("2");
    EXPECT("kafka", BQ_COPY_RETRY, SAMPLE, 2, KAFKA, EXPECTED);
    EXPECT("kafka", BQ_COPY_RECORD, SAMPLE, 2, KAFKA, EXPECTED);

    static const bq_prop BARE[] = {TEXT(HEADER, STRING, "tenant", "a")};
    EXPECT("kafka", BQ_COPY_RETRY, SAMPLE, 2, BARE,
           "header tenant string a\nheader bq-job string " SAMPLE_URN "\n" KAFKA_PROJECTED("2"));
    /* "a schema version other than 1 is never projected" */
    EXPECT("kafka", BQ_COPY_RETRY, "{\"job\":\"u\",\"meta\":{\"schema_version\":2}}", 2, BARE,
           "header tenant string a\nheader bq-job string u\nheader bq-attempts string 2\n");
    EXPECT("redis", BQ_COPY_RETRY, SAMPLE, 2, BARE, "header tenant string a\n");

    /* Typed properties keep their types; what has no gate keeps the version it came with. */
    static const bq_prop RABBIT[] = {
        TEXT(NATIVE, STRING, "type", "urn:x"),   TEXT(NATIVE, STRING, "message_id", "m"),
        NUMBER(NATIVE, INT, "priority", 5),      NUMBER(HEADER, LONG, "x-schema-version", 2),
        NUMBER(HEADER, LONG, "x-attempts", 1),   NUMBER(HEADER, BOOL, "flag", 1),
        NUMBER(NATIVE, INT, "delivery_mode", 1),
    };
    EXPECT("rabbitmq", BQ_COPY_RETRY, SAMPLE, 2, RABBIT,
           "native type string urn:x\nnative message_id string m\nnative priority int 5\n"
           "header x-schema-version long 2\nheader flag bool 1\nnative delivery_mode int 1\n"
           "native correlation_id string " SAMPLE_TRACE "\nnative app_id string babelqueue\n"
           "native content_type string application/json\nnative content_encoding string utf-8\n"
           "header x-source-lang string php\nheader x-attempts int 2\n");
}

static void a_bare_null(void **state)
{
    (void)state;
    static const bq_prop PROPS[] = {TEXT(HEADER, BINARY, "bq-job", "urn:x"), TEXT(HEADER, BINARY, "k", "v")};
    EXPECT("kafka", BQ_COPY_RETRY, "null", 1, PROPS,
           "header bq-job binary urn:x\nheader k binary v\nheader bq-attempts string 1\n");
}

/* "A poison record keeps user properties, projects what its members' types allow, and its attempts property =
 * dead_letter.attempts." */
static void a_poison_record(void **state)
{
    (void)state;
    EXPECT("kafka", BQ_COPY_POISON, "{\"job\":\"urn:x\",\"trace_id\":5,\"meta\":{\"lang\":\"go\"}}", 1, KAFKA,
           "header traceparent binary 00-1\nheader empty null \nheader bq-original-topic binary work\n"
           "header bq-replay-bypass binary 1\nheader bq-job string urn:x\nheader bq-source-lang string go\n"
           "header bq-attempts string 1\n");
    EXPECT("kafka", BQ_COPY_POISON, "not json", 0, KAFKA,
           "header traceparent binary 00-1\nheader empty null \nheader bq-original-topic binary work\n"
           "header bq-replay-bypass binary 1\nheader bq-attempts string 0\n");
    static const bq_prop RABBIT[] = {TEXT(NATIVE, STRING, "type", "urn:x"), NUMBER(NATIVE, INT, "priority", 5),
                                     NUMBER(HEADER, INT, "x-attempts", 9)};
    EXPECT("rabbitmq", BQ_COPY_POISON, "[]", 3, RABBIT,
           "native priority int 5\nnative app_id string babelqueue\nnative content_type string application/json\n"
           "native content_encoding string utf-8\nnative delivery_mode int 2\nheader x-attempts int 3\n");
}

#define KAFKA_AS_SENT "header bq-job binary urn:other\nheader bq-attempts binary 1\nheader traceparent binary 00-1\n"
#define KAFKA_AS_SENT_2                                                                                                \
    "header bq-delay binary 5000\nheader bq-original-topic binary work\nheader bq-replay-bypass binary 1\n"

static void gated_and_released(void **state)
{
    (void)state;
    /* "A gated copy keeps every property it arrived with"; on Kafka "null-valued ones dropped" (7.8). */
    EXPECT("kafka", BQ_COPY_GATED, SAMPLE, 9, KAFKA,
           KAFKA_AS_SENT KAFKA_AS_SENT_2 "header bq-schema-version binary  \n");
    EXPECT("pulsar", BQ_COPY_GATED, SAMPLE, 9, KAFKA,
           KAFKA_AS_SENT "header empty null \n" KAFKA_AS_SENT_2
                         "header bq-trace-id null \nheader bq-schema-version binary  \n");
    EXPECT("kafka", BQ_COPY_RELEASE, SAMPLE, 9, KAFKA,
           KAFKA_AS_SENT "header empty null \n" KAFKA_AS_SENT_2
                         "header bq-trace-id null \nheader bq-schema-version binary  \n");
}

/* Contract 6: "user headers kept; routing kept (Kafka: projected from the body); the other contract properties
 * projected anew (attempts 0); bq-original-topic and bq-delay dropped; bq-replay-bypass only with bypass". */
static void a_redrive(void **state)
{
    (void)state;
    EXPECT("kafka", BQ_COPY_REDRIVE, SAMPLE, 3, KAFKA,
           "header traceparent binary 00-1\nheader empty null \nheader bq-job string " SAMPLE_URN
           "\n" KAFKA_PROJECTED("0"));
    static const bq_prop PULSAR[] = {
        TEXT(HEADER, STRING, "bq-job", "urn:other"),   TEXT(HEADER, STRING, "bq-trace-id", "stale"),
        TEXT(HEADER, STRING, "bq-attempts", "3"),      TEXT(HEADER, STRING, "tenant", "a"),
        TEXT(HEADER, STRING, "bq-replay-bypass", "1"),
    };
    EXPECT("pulsar", BQ_COPY_REDRIVE, SAMPLE, 3, PULSAR,
           "header bq-job string urn:other\nheader tenant string a\n" KAFKA_PROJECTED("0"));
    static const bq_prop ARTEMIS[] = {
        TEXT(ANNOTATION, STRING, "x-opt-jms-type", "urn:a"),
        TEXT(NATIVE, STRING, "subject", ""),
        TEXT(HEADER, STRING, "bq_delay", "5000"),
        TEXT(HEADER, STRING, "bq_attempts", "3"),
        TEXT(ANNOTATION, STRING, "x-opt-routing-type", "1"),
    };
    EXPECT("artemis", BQ_COPY_REDRIVE, SAMPLE, 3, ARTEMIS,
           "annotation x-opt-jms-type string urn:a\nannotation x-opt-routing-type string 1\n"
           "native subject string " SAMPLE_URN "\nnative correlation_id string " SAMPLE_TRACE
           "\nnative creation_time long 1749132727000\nheader bq_schema_version string 1\n"
           "header bq_source_lang string php\nheader bq_attempts string 0\nheader bq_app_id string babelqueue\n");
}

static void needs_room(void **state)
{
    (void)state;
    bq_envelope env = sample_decode(SAMPLE);
    bq_prop out[BQ_PROJECTED_MAX + 1];
    size_t count = 99;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    const bq_binding *b = bq_binding_find(BQ_STR("kafka"));
    assert_int_equal(
        bq_copy_props(b, BQ_COPY_RETRY, &env, 0, KAFKA, 2, out, BQ_PROJECTED_MAX + 1, &count, &scratch, NULL),
        BQ_INVALID);
    assert_int_equal(count, 0);
    assert_int_equal(
        bq_copy_props(b, BQ_COPY_RETRY, &env, 0, KAFKA, 1, out, BQ_PROJECTED_MAX + 1, &count, &scratch, NULL), BQ_OK);
    assert_int_equal(count, 6);
    bq_buf_clear(&scratch);
}

static bq_status scenario(void *arg)
{
    (void)arg;
    bq_envelope env = sample_decode(SAMPLE);
    bq_prop out[9 + BQ_PROJECTED_MAX];
    size_t count;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    bq_status status = bq_copy_props(bq_binding_find(BQ_STR("kafka")), BQ_COPY_RETRY, &env, 1, KAFKA, 9, out,
                                     9 + BQ_PROJECTED_MAX, &count, &scratch, NULL);
    if (status != BQ_OK)
        assert_int_equal(count, 0);
    bq_buf_clear(&scratch);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    alloc_fail_each("copy", scenario, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_retry_and_a_record), cmocka_unit_test(a_bare_null), cmocka_unit_test(a_poison_record),
        cmocka_unit_test(gated_and_released),   cmocka_unit_test(a_redrive),   cmocka_unit_test(needs_room),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
