/* Around the settlement matrix: policies, backoff, delays, hooks, crash loops, writes that failed, texts. */
#include "unit/cmocka_all.h"

#include <math.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/runtime/decide_cases.h"

/* A name turns dead-lettering on as "on" does (contract 3). */
static void a_name_turns_it_on(void **state)
{
    (void)state;
    bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .dead_letter_queue = "elsewhere"};
    bq_policy policy;
    for (size_t i = 0; bq_binding_at(i); i++) {
        const bq_binding *binding = bq_binding_at(i);
        bool bullmq = strcmp(binding->name, "bullmq") == 0;
        options.dead_lettering = BQ_DEAD_LETTER_DEFAULT;
        assert_int_equal(bq_policy_init(&policy, binding, &options, 0, NULL), BQ_OK);
        assert_int_equal(policy.dead, !bullmq);
        assert_true(policy.dead_poison);
        assert_string_equal(policy.dead_letter_queue, "elsewhere");
        options.dead_lettering = BQ_DEAD_LETTER_OFF;
        assert_int_equal(bq_policy_init(&policy, binding, &options, 0, NULL), BQ_OK);
        assert_false(policy.dead);
        assert_false(policy.dead_poison);
        /* Redis writes poison to the configured name all the same. */
        assert_string_equal(policy.dead_letter_queue, "elsewhere");
    }
    options.dead_letter_queue = "";
    options.dead_lettering = BQ_DEAD_LETTER_DEFAULT;
    assert_int_equal(bq_policy_init(&policy, bq_binding_find(BQ_STR("pulsar")), &options, 0, NULL), BQ_OK);
    assert_false(policy.dead);
}

static bq_status init_with(const char *binding, const bq_consumer_options *options, const char *part)
{
    bq_policy policy;
    bq_error err = {0};
    bq_status status = bq_policy_init(&policy, bq_binding_find(bq_str_of(binding)), options, 0, &err);
    if (status != BQ_OK && !strstr(err.text, part))
        fail_msg("%s: \"%s\" does not say \"%s\"", binding, err.text, part);
    return status;
}

static void options_that_contradict(void **state)
{
    (void)state;
    bq_consumer_options o = {.size = sizeof o, .max_attempts = -1};
    for (int max = -3; max < 3; max++) {
        for (size_t i = 0; bq_binding_at(i); i++) {
            const char *name = bq_binding_at(i)->name;
            bool zero_ok = names("sqs sb bullmq", name); /* contract 3: "0 = the broker's own limit" */
            o.max_attempts = max;
            bool fine = max == -1 || max >= 1 || (max == 0 && zero_ok);
            assert_int_equal(init_with(name, &o, "max_attempts"), fine ? BQ_OK : BQ_INVALID);
        }
    }
    o.max_attempts = -1;
    for (int strategy = 0; strategy < 5; strategy++) {
        o.unknown = (bq_unknown_urn)strategy;
        assert_int_equal(init_with("bullmq", &o, "bullmq"), strategy > BQ_UNKNOWN_URN_FAIL ? BQ_CONFIG : BQ_OK);
        assert_int_equal(init_with("redis", &o, ""), BQ_OK);
    }
    o.unknown = BQ_UNKNOWN_URN_UNSET;
    o.retry_multiplier = -1;
    assert_int_equal(init_with("redis", &o, "multiplier"), BQ_INVALID);
    o.retry_multiplier = (double)INFINITY;
    assert_int_equal(init_with("redis", &o, "multiplier"), BQ_INVALID);
    o.retry_multiplier = (double)NAN;
    assert_int_equal(init_with("redis", &o, "multiplier"), BQ_INVALID);
    o.retry_multiplier = 0;
    o.retry_base_ms = -1;
    assert_int_equal(init_with("redis", &o, "delay"), BQ_INVALID);
    o.retry_base_ms = 0;
    o.retry_max_ms = -1;
    assert_int_equal(init_with("redis", &o, "delay"), BQ_INVALID);
    o.retry_max_ms = 0;
    o.unknown_delay_ms = -1;
    assert_int_equal(init_with("redis", &o, "delay"), BQ_INVALID);
    o.unknown_delay_ms = 0;
    const char *queues[] = {"a", "b"};
    o.queues = queues;
    o.queue_count = 2;
    o.dead_letter_queue = "b";
    assert_int_equal(init_with("redis", &o, "b is consumed"), BQ_CONFIG);
    o.dead_letter_queue = "c";
    assert_int_equal(init_with("redis", &o, ""), BQ_OK);
}

/* d(n) = min(max, base * multiplier^(n-1)) */
static void backoff(void **state)
{
    (void)state;
    static const struct {
        int64_t base;
        double multiplier;
        int64_t max;
        int32_t n;
        int64_t expected;
    } CASES[] = {
        {0, 2, 0, 5, 0},
        {100, 1, 0, 1, 100},
        {100, 1, 0, 2147483647, 100},
        {100, 2, 0, 1, 100},
        {100, 2, 0, 2, 200},
        {100, 2, 0, 5, 1600},
        {100, 2, 1000, 4, 800},
        {100, 2, 1000, 5, 1000},
        {100, 1.5, 0, 3, 225},
        {5000, 1, 3000, 1, 3000},
        {1000, 10, 0, 2147483647, INT64_C(4000000000000000)},
        {1000, 0.5, 0, 3, 250},
        {1000, 0.5, 0, 2147483647, 0},
        {100, 2, 0, 0, 100},
        {1, 1.0000001, 0, 2147483647, INT64_C(4000000000000000)},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_policy policy = {
            .retry_base_ms = CASES[i].base, .retry_multiplier = CASES[i].multiplier, .retry_max_ms = CASES[i].max};
        int64_t d = bq_backoff(&policy, CASES[i].n, UINT64_MAX);
        if (d != CASES[i].expected)
            fail_msg("case %zu: %" PRId64 " instead of %" PRId64, i, d, CASES[i].expected);
    }
}

/* "jitter full draws uniformly from [0, d(n)]": both ends are reached, nothing lies outside. */
static void jitter(void **state)
{
    (void)state;
    bq_policy policy = {.retry_base_ms = 10, .retry_multiplier = 2, .retry_max_ms = 15, .retry_jitter = BQ_JITTER_FULL};
    size_t seen[16] = {0};
    for (uint64_t i = 0; i < 16000; i++) {
        int64_t d = bq_backoff(&policy, 2, i * (UINT64_MAX / 16000));
        assert_in_range(d, 0, 15);
        seen[d]++;
    }
    for (size_t i = 0; i < 16; i++)
        assert_in_range(seen[i], 990, 1010);
    assert_int_equal(bq_backoff(&policy, 2, 0), 0);
    assert_int_equal(bq_backoff(&policy, 2, UINT64_MAX), 15);
}

static bq_decision after_failure(const char *binding, int tiers, int64_t base_ms, int64_t asked_ms, int32_t attempts)
{
    bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .retry_base_ms = base_ms};
    options.retry_multiplier = 2;
    if (strcmp(binding, "redis") == 0 || strcmp(binding, "kafka") == 0)
        options.max_attempts = 10;
    bq_policy policy;
    assert_int_equal(bq_policy_init(&policy, bq_binding_find(bq_str_of(binding)), &options, tiers, NULL), BQ_OK);
    bq_facts facts = {.routed = true, .attempts = attempts, .native_count = attempts};
    bq_decision d;
    bq_decide_outcome(&policy, &facts, BQ_FAILED, asked_ms, 0, &d);
    return d;
}

static void delays_within_the_binding(void **state)
{
    (void)state;
    static const struct {
        const char *binding;
        int tiers;
        int64_t base, asked;
        int32_t attempts;
        const char *expected;
    } CASES[] = {
        {"redis", 0, 100, -1, 0, "retry 1 in 100 !failed"},
        {"redis", 0, 100, -1, 3, "retry 4 in 800 !failed"},
        {"redis", 0, 100, 0, 3, "retry 4 !failed"}, /* the handler's delay counts, 0 as well */
        {"redis", 0, 0, 90000000, 0, "retry 1 in 90000000 !failed"},
        {"sqs", 0, 0, 43200000, 0, "native_retry in 43200000 !failed"},
        {"sqs", 0, 0, 43200001, 0, "native_retry in 43200000 cut !failed"},
        {"sb", 0, 0, 60000, 0, "native_retry hold 60000 !failed"},
        {"sb", 0, 0, 60001, 0, "native_retry hold 60000 cut !failed"},
        {"artemis", 0, 200, -1, 1, "native_retry hold 400 !failed"},
        {"kafka", 3, 200, -1, 0, "retry 1 tier 1 ignored !failed"},
        {"kafka", 3, 0, -1, 1, "retry 2 tier 2 !failed"},
        {"kafka", 3, 0, -1, 2, "retry 3 tier 3 !failed"},
        {"kafka", 3, 0, -1, 7, "retry 8 tier 3 !failed"},
        {"bullmq", 0, 5000, -1, 0, "native_retry job !failed"},
        {"bullmq", 0, 5000, 7, 0, "native_retry in 7 !failed"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char is[256];
        bq_decision d =
            after_failure(CASES[i].binding, CASES[i].tiers, CASES[i].base, CASES[i].asked, CASES[i].attempts);
        describe(&d, is, sizeof is);
        if (strcmp(is, CASES[i].expected) != 0)
            fail_msg("%s %zu: expected \"%s\", got \"%s\"", CASES[i].binding, i, CASES[i].expected, is);
    }
}

/* unknown_urn_delay: held where the broker redelivers at once, the pause's place on Kafka without tiers. */
static void release_delays(void **state)
{
    (void)state;
    static const struct {
        const char *binding;
        int tiers;
        int64_t delay;
        const char *expected;
    } CASES[] = {
        {"redis", 0, 2500, "release in 2500"},  {"sqs", 0, 2500, "release in 2500"},
        {"sb", 0, 2500, "release hold 2500"},   {"artemis", 0, 90000, "release hold 60000 cut"},
        {"pulsar", 0, 2500, "release in 2500"}, {"kafka", 2, 2500, "release tier 1 ignored"},
        {"kafka", 0, 2500, "release in 2500"},  {"rabbitmq", 0, 0, "release"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .unknown = BQ_UNKNOWN_URN_RELEASE};
        options.unknown_delay_ms = CASES[i].delay;
        bq_policy policy;
        bq_status status =
            bq_policy_init(&policy, bq_binding_find(bq_str_of(CASES[i].binding)), &options, CASES[i].tiers, NULL);
        assert_int_equal(status, BQ_OK);
        bq_facts facts = {.native_count = -1};
        bq_decision d;
        char is[256];
        bq_decide_arrival(&policy, &facts, 0, &d);
        describe(&d, is, sizeof is);
        assert_string_equal(is, CASES[i].expected);
    }
}

static void hooks(void **state)
{
    (void)state;
    bq_policy policy = policy_of(config_named("kafka+tiers"), 0, BQ_UNKNOWN_URN_DELETE, true);
    bq_facts facts = {.native_count = -1};
    bq_decision d;
    char is[256];
    /* The hook goes before the strategy, but never meets poison or a gated message. */
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_HOOK);
    facts.gated = true;
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_DROP);
    facts.gated = false;
    facts.poison = true;
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_DROP);
    facts.poison = false;
    /* "a failing hook counts as a failed handler" */
    facts.attempts = 2;
    bq_decide_outcome(&policy, &facts, BQ_FAILED, -1, 0, &d);
    describe(&d, is, sizeof is);
    assert_string_equal(is, "dlq failed 3 handler !failed");
    /* A bare null takes the unknown-URN path although its header has a handler (7.8). */
    facts = (bq_facts){.native_count = -1, .routed = true, .null_root = true};
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_HOOK);
    policy.has_hook = false;
    policy.unknown = BQ_UNKNOWN_URN_UNSET;
    bq_decide_arrival(&policy, &facts, 0, &d);
    describe(&d, is, sizeof is);
    assert_string_equal(is, "retry 1 tier 1 !unknown");
}

/* Each count that contract 3 names, one below the limit and at it, and what it becomes in the record. */
static void crash_loops(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t lapses;
        int64_t native;
        int32_t attempts;
        const char *expected;
    } CASES[] = {
        {"sqlite", 2, -1, 0, "handle"},
        {"sqlite", 3, -1, 0, "dlq failed 3 WorkerLost !lost"},
        {"sqlite", 3, -1, 2, "dlq failed 3 WorkerLost !lost"},
        {"sqlite", 4, -1, 7, "dlq failed 7 WorkerLost !lost"}, /* a count never goes down */
        {"sqlite", 0, 9, 9, "handle"},                         /* a high count of its own is no crash */
        {"redis", UINT32_MAX, -1, 0, "dlq failed 2147483647 WorkerLost !lost"},
        {"laravel", 9, -1, 2, "handle"},
        {"laravel", 0, -1, 3, "dlq failed 3 WorkerLost !lost"},
        {"rabbitmq", 0, -1, 9, "handle"}, /* a classic queue does not count */
        {"rabbitmq", 0, 2, 0, "handle"},
        {"rabbitmq", 0, 3, 0, "dlq failed 3 WorkerLost !lost"},
        {"artemis", 0, 3, 3, "dlq failed 3 WorkerLost !lost"},
        {"pulsar", 0, 3, 3, "dlq failed 3 WorkerLost !lost"},
        {"sqs+max", 0, 3, 2, "handle"},
        {"sqs+max", 0, 4, 3, "dlq failed 3 WorkerLost !lost"},
        {"sb+max", 0, 2, 2, "handle"},
        {"sb+max", 0, 3, 3, "dlq failed 3 WorkerLost !lost"},
        {"kafka+tiers", 99, 99, 99, "handle"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_policy policy = policy_of(config_named(CASES[i].config), 1, 0, false);
        bq_facts facts = {
            .routed = true, .lapses = CASES[i].lapses, .native_count = CASES[i].native, .attempts = CASES[i].attempts};
        bq_decision d;
        char is[256];
        bq_decide_arrival(&policy, &facts, 0, &d);
        describe(&d, is, sizeof is);
        if (strcmp(is, CASES[i].expected) != 0)
            fail_msg("%s %zu: expected \"%s\", got \"%s\"", CASES[i].config, i, CASES[i].expected, is);
    }
    /* No handler runs for an unknown URN, so its strategy stands however often it came. */
    bq_policy policy = policy_of(config_named("rabbitmq"), 1, BQ_UNKNOWN_URN_RELEASE, false);
    bq_facts facts = {.native_count = 50};
    bq_decision d;
    bq_decide_arrival(&policy, &facts, 0, &d);
    assert_int_equal(d.act, BQ_ACT_RELEASE);
}

/* Contract 3: "when that write fails the delivery stays unsettled and comes back (rewind, abandon, release, or lapse
 * of its reservation), after a pause"; section 7 says which. */
static void unwritten(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        event event;
        const char *expected;
    } CASES[] = {
        {"sqlite", FAILED_FIRST, "release hold 1000"},
        {"sqlite", FAILED_LAST, "release hold 1000"},
        {"redis", POISON_FIRST, "release hold 1000"},
        {"redis", RELEASED, "leave"}, /* could not be given back: its reservation lapses */
        {"sqlite", DONE, "leave"},    /* "a failed acknowledge is reported, never turned into a retry" */
        {"rabbitmq", FAILED_FIRST, "release hold 1000"},
        {"sqs+max", FAILED_LAST, "leave"},
        {"sqs", GATED, "leave"},
        {"sqs", FAILED_FIRST, "leave"},
        {"sb", POISON_FIRST, "native_retry hold 1000"}, /* "a failed send abandons" */
        {"pulsar", FAILED_FIRST, "native_retry hold 1000"},
        {"pulsar", RELEASED, "native_retry hold 1000"},
        {"artemis", GATED, "release hold 1000"},          /* "released (no delivery-failed) after 1 s" */
        {"kafka+tiers", FAILED_FIRST, "release in 1000"}, /* "seek back, report, skip the rest" */
        {"kafka+tiers", GATED, "release in 1000"},
        {"kafka+tiers", RELEASED, "leave"},
        {"bullmq", POISON_FIRST, "reject poison"}, /* 7.3: "the job fails all the same" */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const config *c = config_named(CASES[i].config);
        bq_policy policy = policy_of(c, 1, 0, false);
        bq_decision failed_one, d;
        char is[256];
        decide(c, &policy, CASES[i].event, &failed_one);
        bq_decide_unwritten(&policy, &failed_one, &d);
        describe(&d, is, sizeof is);
        if (strcmp(is, CASES[i].expected) != 0)
            fail_msg("%s, %s: expected \"%s\", got \"%s\"", CASES[i].config, EVENT_NAMES[CASES[i].event],
                     CASES[i].expected, is);
        bool settled = d.act == BQ_ACT_REJECT;
        assert_int_equal(d.settled, settled ? BQ_SETTLED_REJECTED : BQ_SETTLED_FAILED);
        assert_false(d.reported);
        /* What comes back that cannot be given back either ends somewhere. */
        for (int round = 0; round < 3 && d.act == BQ_ACT_RELEASE; round++) {
            bq_decision again;
            bq_decide_unwritten(&policy, &d, &again);
            d = again;
        }
        assert_int_not_equal(d.act, BQ_ACT_RELEASE);
    }
    bq_policy policy = policy_of(config_named("sqlite"), 1, 0, false);
    policy.unknown = BQ_UNKNOWN_URN_RELEASE;
    policy.unknown_delay_ms = 50;
    bq_facts facts = {.native_count = -1};
    bq_decision parked, d;
    bq_decide_arrival(&policy, &facts, 0, &parked);
    bq_decide_unwritten(&policy, &parked, &d);
    assert_int_equal(d.act, BQ_ACT_RELEASE); /* a delay could not be written: given back at once, after the pause */
    assert_int_equal(d.hold_ms, 1000);
}

static void pauses(void **state)
{
    (void)state;
    static const int64_t ASKED[] = {0, -1, 250}, MEANT[] = {1000, 0, 250};
    for (size_t i = 0; i < 3; i++) {
        bq_consumer_options options = {.size = sizeof options, .max_attempts = -1, .settle_pause_ms = ASKED[i]};
        bq_policy policy;
        assert_int_equal(bq_policy_init(&policy, bq_binding_find(BQ_STR("kafka")), &options, 0, NULL), BQ_OK);
        assert_int_equal(policy.pause_ms, MEANT[i]);
    }
}

static void counts_do_not_overflow(void **state)
{
    (void)state;
    bq_policy policy = policy_of(config_named("sqs"), 0, 0, false);
    bq_facts facts = {.routed = true, .attempts = INT32_MAX, .native_count = INT64_MAX};
    bq_decision d;
    bq_decide_outcome(&policy, &facts, BQ_FAILED, -1, 0, &d);
    assert_int_equal(d.attempts, INT32_MAX);
    bq_decide_outcome(&policy, &facts, (bq_outcome)99, INT64_MAX, 0, &d);
    assert_int_equal(d.act, BQ_ACT_NATIVE_RETRY);
    assert_true(d.delay_cut);
}

static void texts(void **state)
{
    (void)state;
    bq_envelope env;
    bq_envelope_decode(&env, "[]", 2);
    bq_buf out;
    bq_buf_init(&out, 0);
    assert_int_equal(bq_cause_error(BQ_CAUSE_UNKNOWN_URN, NULL, BQ_STR("urn:x"), 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "No handler mapped for URN [urn:x].");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_UNKNOWN_URN, NULL, BQ_STR_NULL, 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "No handler mapped for URN [(empty)].");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_POISON, &env, BQ_STR_NULL, 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "Undecodable BabelQueue body: the body is not an object");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_GATED, NULL, BQ_STR("2"), 0, &out), BQ_OK);
    assert_string_equal(out.ptr, "Unsupported schema version [2].");
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_WORKER_LOST, NULL, BQ_STR_NULL, 3, &out), BQ_OK);
    assert_non_null(strstr(out.ptr, "3 times"));
    bq_buf_reset(&out);
    assert_int_equal(bq_cause_error(BQ_CAUSE_HANDLER, NULL, BQ_STR_NULL, 3, &out), BQ_OK);
    assert_int_equal(bq_cause_error(BQ_CAUSE_NONE, NULL, BQ_STR_NULL, 3, &out), BQ_OK);
    assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
    assert_null(bq_cause_exception(BQ_CAUSE_NONE));
    assert_null(bq_cause_exception(BQ_CAUSE_HANDLER));
    assert_string_equal(bq_cause_exception(BQ_CAUSE_GATED), "BabelQueueError");
}

static bq_status texts_scenario(void *arg)
{
    static char route[300];
    (void)arg;
    memset(route, 'u', sizeof route);
    bq_buf out;
    bq_buf_init(&out, 0);
    bq_status status = bq_cause_error(BQ_CAUSE_UNKNOWN_URN, NULL, (bq_str){route, sizeof route}, 0, &out);
    if (status != BQ_OK)
        assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    alloc_fail_each("bq_cause_error", texts_scenario, NULL);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_turns_it_on),
        cmocka_unit_test(options_that_contradict),
        cmocka_unit_test(backoff),
        cmocka_unit_test(jitter),
        cmocka_unit_test(delays_within_the_binding),
        cmocka_unit_test(release_delays),
        cmocka_unit_test(hooks),
        cmocka_unit_test(crash_loops),
        cmocka_unit_test(unwritten),
        cmocka_unit_test(pauses),
        cmocka_unit_test(counts_do_not_overflow),
        cmocka_unit_test(texts),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
