/* What a URL says of itself, before anything is opened. */
#include "unit/cmocka_all.h"

#include "args.h"
#include "target.h"

#include <string.h>

const cli_option cli_common_options[] = {CLI_OPTIONS_END};

static void families(void **state)
{
    (void)state;
    assert_true(target_is("bullmq://h/0", "bullmq"));
    assert_true(target_is("BullMQS://h/0", "bullmq"));
    assert_true(target_is("bullmq+unix:///s", "bullmq"));
    assert_true(target_is("bullmqs+sentinel://h", "bullmq"));
    assert_true(target_is("sqs://eu-west-1", "sqs"));
    assert_false(target_is("bullmqx://h", "bullmq"));
    assert_false(target_is("bull://h", "bullmq"));
    assert_false(target_is("redis://h/bullmq:0", "bullmq"));
    assert_false(target_is("sqlite:x", "sqs"));
    assert_false(target_is("", "sqs"));
}

static void options(void **state)
{
    (void)state;
    assert_true(target_has_option("kafka://h?retry=5s,1m", "retry", "none"));
    assert_true(target_has_option("kafka://h?a=b&retry=5s&c=d", "retry", "none"));
    assert_false(target_has_option("kafka://h?retry=none&c=d", "retry", "none"));
    assert_false(target_has_option("kafka://h?retry=", "retry", NULL));
    assert_false(target_has_option("kafka://h?retry_group=x", "retry", NULL));
    assert_false(target_has_option("kafka://h?x=retry=5s", "retry", NULL));
    assert_false(target_has_option("kafka://h/retry=5s", "retry", NULL));
    assert_true(target_has_option("kafka://h?retry=none", "retry", NULL));
}

/* bq help work: Pulsar, Artemis, and Kafka without retry topics ask what is wanted; nobody else does. */
static void who_loses_failures(void **state)
{
    (void)state;
    static const struct {
        const char *binding, *url;
        bool loses;
    } rows[] = {
        {"memory", "memory:x", false},
        {"sqlite", "sqlite:x", false},
        {"redis", "redis://h", false},
        {"laravel", "redis://h", false},
        {"bullmq", "bullmq://h", false},
        {"rabbitmq", "amqp://h", false},
        {"sqs", "sqs://r", false},
        {"sb", "sb://n", false},
        {"pulsar", "pulsar://h", true},
        {"artemis", "artemis://h", true},
        {"kafka", "kafka://h", true},
        {"kafka", "kafka://h?retry=none", true},
        {"kafka", "kafka://h?retry=5s", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bq_binding *binding = bq_binding_find(bq_str_of(rows[i].binding));
        assert_non_null(binding);
        if (target_loses_failures(binding, rows[i].url) != rows[i].loses)
            fail_msg("%s: %s", rows[i].binding, rows[i].url);
    }
}

static void transports(void **state)
{
    (void)state;
    assert_non_null(target_transport("memory:x"));
    assert_non_null(target_transport("MEMORY:x"));
    assert_null(target_transport("memoryx:x"));
    assert_null(target_transport("nats://h"));
    assert_null(target_transport(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),
        cmocka_unit_test(options),
        cmocka_unit_test(who_loses_failures),
        cmocka_unit_test(transports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
