/*
 * The settlement matrix of contract 3, written out from the contract's text: event x binding x dead-lettering x
 * strategy, every cell by hand (decide_cases.h says how a cell reads). Every combination is asked for, and exactly one
 * row must answer it, so that no cell is missing and none is said twice.
 */
#include "unit/cmocka_all.h"

#include "unit/runtime/decide_cases.h"

static const char *const STRATEGIES[] = {"unset", "fail", "delete", "release", "dead_letter"};
static const char *const DEAD[] = {"default", "on", "off"};

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef enum when { ANY, ON, OFF } when;

typedef struct row {
    event event;
    const char *configs;    /* NULL: all */
    const char *strategies; /* NULL: all */
    when dead;
    const char *expected;
} row;

#define COPIES "memory sqlite redis laravel rabbitmq pulsar"
#define BULLMQS "bullmq bullmq+max"
#define DEFAULTS "unset fail"

static const row TABLE[] = {
    {DONE, NULL, NULL, ANY, "ack"},
    {RELEASED, NULL, NULL, ANY, "release"},
    {HANDLED, NULL, NULL, ANY, "handle"},
    {HOOKED, NULL, NULL, ANY, "hook"},

    /* "counted < max_attempts: retry with attempts = counted" */
    {FAILED_FIRST, COPIES, NULL, ANY, "retry 1 !failed"},
    {FAILED_FIRST, "kafka+tiers", NULL, ANY, "retry 1 tier 1 !failed"},
    {FAILED_FIRST, "kafka", NULL, ON, "dlq failed 1 handler !failed"}, /* 7.8: straight to the DLQ */
    {FAILED_FIRST, "kafka", NULL, OFF, "release in 1000 !failed"},     /* 7.8: seek back, pause */
    {FAILED_FIRST, BULLMQS, NULL, ANY, "native_retry job !failed"},
    {FAILED_FIRST, "sqs sqs+max sb sb+max artemis", NULL, ANY, "native_retry !failed"},

    /* "failed, retry after a given delay"; Kafka: the tier decides; Service Bus and Artemis: held */
    {FAILED_ASKED, COPIES, NULL, ANY, "retry 2 in 5000 !failed"},
    {FAILED_ASKED, "kafka+tiers", NULL, ANY, "retry 2 tier 2 ignored !failed"},
    {FAILED_ASKED, "kafka", NULL, ON, "dlq failed 2 handler !failed"},
    {FAILED_ASKED, "kafka", NULL, OFF, "release in 1000 ignored !failed"},
    {FAILED_ASKED, "bullmq bullmq+max sqs sqs+max", NULL, ANY, "native_retry in 5000 !failed"},
    {FAILED_ASKED, "sb sb+max artemis", NULL, ANY, "native_retry hold 5000 !failed"},

    /* "else dead-letter (reason failed)"; "dead-lettering off: the exhausted rule" */
    {FAILED_LAST, COPIES " kafka kafka+tiers artemis", NULL, ON, "dlq failed 3 handler !failed"},
    {FAILED_LAST, COPIES " kafka kafka+tiers artemis", NULL, OFF, "drop !failed"},
    {FAILED_LAST, "sqs+max sb+max", NULL, ON, "dlq failed 3 handler !failed"},
    {FAILED_LAST, "sqs+max sb+max", NULL, OFF, "native_retry !failed"}, /* 7.4, 7.5: max_attempts is ignored */
    {FAILED_LAST, "sqs sb", NULL, ANY, "native_retry !failed"},         /* the broker's own limit */
    {FAILED_LAST, "bullmq", NULL, ANY, "native_retry job !failed"},
    {FAILED_LAST, "bullmq+max", NULL, ANY, "reject failed !failed"}, /* 7.3: stays in the failed set */

    /* "as exhausted: reason failed, attempts = counted"; off: "Service Bus: native reject; SQS: left to the queue" */
    {REJECTED, COPIES " kafka kafka+tiers artemis sqs sqs+max sb sb+max", NULL, ON, "dlq failed 2 handler !failed"},
    {REJECTED, COPIES " kafka kafka+tiers artemis", NULL, OFF, "drop !failed"},
    {REJECTED, "sqs sqs+max", NULL, OFF, "leave !failed"},
    {REJECTED, "sb sb+max", NULL, OFF, "reject failed !failed"},
    {REJECTED, BULLMQS, NULL, ANY, "reject failed !failed"}, /* 7.3: rejected = unrecoverable */

    /* "unknown URN, fail (default): as failed; exception UnknownUrnError" */
    {UNKNOWN_FIRST, COPIES, DEFAULTS, ANY, "retry 1 !unknown"},
    {UNKNOWN_FIRST, "kafka+tiers", DEFAULTS, ANY, "retry 1 tier 1 !unknown"},
    {UNKNOWN_FIRST, "kafka", DEFAULTS, ON, "dlq unknown_urn 1 UnknownUrnError !unknown"},
    {UNKNOWN_FIRST, "kafka", DEFAULTS, OFF, "release in 1000 !unknown"},
    {UNKNOWN_FIRST, BULLMQS, DEFAULTS, ANY, "native_retry job !unknown"},
    {UNKNOWN_FIRST, "sqs sqs+max sb sb+max artemis", DEFAULTS, ANY, "native_retry !unknown"},
    {UNKNOWN_LAST, COPIES " kafka kafka+tiers artemis", DEFAULTS, ON, "dlq unknown_urn 3 UnknownUrnError !unknown"},
    {UNKNOWN_LAST, COPIES " kafka kafka+tiers artemis", DEFAULTS, OFF, "drop !unknown"},
    {UNKNOWN_LAST, "sqs+max sb+max", DEFAULTS, ON, "dlq unknown_urn 3 UnknownUrnError !unknown"},
    {UNKNOWN_LAST, "sqs+max sb+max", DEFAULTS, OFF, "native_retry !unknown"},
    {UNKNOWN_LAST, "sqs sb", DEFAULTS, ANY, "native_retry !unknown"},
    {UNKNOWN_LAST, "bullmq", DEFAULTS, ANY, "native_retry job !unknown"},
    {UNKNOWN_LAST, "bullmq+max", DEFAULTS, ANY, "reject unknown_urn !unknown"},
    /* "unknown URN, delete: acknowledge" */
    {UNKNOWN_FIRST, NULL, "delete", ANY, "drop"},
    {UNKNOWN_LAST, NULL, "delete", ANY, "drop"},
    /* "unknown URN, release: give back unchanged; Kafka parks on the retry tier, without tiers seeks back and pauses" */
    {UNKNOWN_FIRST, COPIES " sqs sqs+max sb sb+max artemis", "release", ANY, "release"},
    {UNKNOWN_FIRST, "kafka+tiers", "release", ANY, "release tier 1"},
    {UNKNOWN_FIRST, "kafka", "release", ANY, "release in 1000"},
    {UNKNOWN_LAST, COPIES " sqs sqs+max sb sb+max artemis", "release", ANY, "release"},
    {UNKNOWN_LAST, "kafka+tiers", "release", ANY, "release tier 2"},
    {UNKNOWN_LAST, "kafka", "release", ANY, "release in 1000"},
    /* "unknown URN, dead_letter: now; attempts as reconciled, error and exception null; off: as delete" */
    {UNKNOWN_FIRST, NULL, "dead_letter", ON, "dlq unknown_urn 0 -"},
    {UNKNOWN_FIRST, NULL, "dead_letter", OFF, "drop"},
    {UNKNOWN_LAST, NULL, "dead_letter", ON, "dlq unknown_urn 2 -"},
    {UNKNOWN_LAST, NULL, "dead_letter", OFF, "drop"},

    /* "poison: explicit delete first (not on Redis, either layout)" */
    {POISON_FIRST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis", "delete", ANY,
     "drop !poison"},
    {POISON_LAST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis", "delete", ANY,
     "drop !poison"},
    /* 7.1: "dead-lettered in every configuration" */
    {POISON_FIRST, "redis laravel", NULL, ANY, "dlq poison 1 BabelQueueError !poison"},
    {POISON_LAST, "redis laravel", NULL, ANY, "dlq poison 2 BabelQueueError !poison"},
    /* "dead-lettering on: poison record to the DLQ at once" */
    {POISON_FIRST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis",
     "unset fail release dead_letter", ON, "dlq poison 1 BabelQueueError !poison"},
    {POISON_LAST, "memory sqlite rabbitmq sqs sqs+max sb sb+max pulsar kafka kafka+tiers artemis",
     "unset fail release dead_letter", ON, "dlq poison 2 BabelQueueError !poison"},
    {POISON_FIRST, BULLMQS, NULL, ON, "dlq poison 1 BabelQueueError then reject poison !poison"},
    {POISON_LAST, BULLMQS, NULL, ON, "dlq poison 2 BabelQueueError then reject poison !poison"},
    /* "off: the poison rule" */
    {POISON_FIRST, "memory sqlite rabbitmq kafka kafka+tiers artemis", "unset fail release dead_letter", OFF,
     "drop !poison"},
    {POISON_LAST, "memory sqlite rabbitmq kafka kafka+tiers artemis", "unset fail release dead_letter", OFF,
     "drop !poison"},
    {POISON_FIRST, BULLMQS, NULL, OFF, "reject poison !poison"},
    {POISON_LAST, BULLMQS, NULL, OFF, "reject poison !poison"},
    {POISON_FIRST, "sqs sqs+max", "unset fail release dead_letter", OFF, "leave !poison"},
    {POISON_LAST, "sqs sqs+max", "unset fail release dead_letter", OFF, "leave !poison"},
    {POISON_FIRST, "sb sb+max", "unset fail release dead_letter", OFF, "reject poison !poison"},
    {POISON_LAST, "sb sb+max", "unset fail release dead_letter", OFF, "reject poison !poison"},
    /* 7.6: "re-published, bytes unchanged, bq-attempts = counted, while counted < max_attempts; then dropped" */
    {POISON_FIRST, "pulsar", "unset fail release dead_letter", OFF, "retry 2 unchanged !poison"},
    {POISON_LAST, "pulsar", "unset fail release dead_letter", OFF, "drop !poison"},

    /* "gated: explicit delete first; on: the raw body; off: the gate rule" */
    {GATED, NULL, "delete", ANY, "drop !gated"},
    {GATED, NULL, "unset fail release dead_letter", ON, "dlq gated !gated"},
    {GATED, "sqs sqs+max", "unset fail release dead_letter", OFF, "leave !gated"},
    {GATED, "sb sb+max", "unset fail release dead_letter", OFF, "reject unsupported schema version !gated"},
    {GATED, "pulsar kafka kafka+tiers artemis", "unset fail release dead_letter", OFF, "drop !gated"},

    /* "at the limit the message is dead-lettered (reason failed, exception WorkerLost, attempts = the count)" */
    {LOST, COPIES " artemis sqs+max sb+max", NULL, ON, "dlq failed 3 WorkerLost !lost"},
    {LOST, COPIES " artemis", NULL, OFF, "drop !lost"},
    {LOST, "sqs+max sb+max", NULL, OFF, "handle"}, /* no limit without a DLQ of ours */
    {LOST, "sqs sb bullmq bullmq+max kafka kafka+tiers", NULL, ANY, "handle"},
};
/* ---- asking the code --------------------------------------------------------------------------------------------- */

/* Contract 3: "on by the binding's default, a configured name, or the explicit strategy dead_letter; an explicit off
 * wins over all of them". */
static bool is_on(const config *c, int dead, int strategy)
{
    return dead != 2 && (dead == 1 || c->default_on || strategy == BQ_UNKNOWN_URN_DEAD_LETTER);
}

static bq_settled settled_as(const bq_decision *d)
{
    switch (d->act) {
    case BQ_ACT_ACK: return BQ_SETTLED_ACKED;
    case BQ_ACT_DROP: return BQ_SETTLED_DROPPED;
    case BQ_ACT_RETRY:
    case BQ_ACT_NATIVE_RETRY: return BQ_SETTLED_RETRIED;
    case BQ_ACT_DEAD_LETTER: return BQ_SETTLED_DEAD_LETTERED;
    case BQ_ACT_RELEASE: return BQ_SETTLED_RELEASED;
    case BQ_ACT_REJECT: return BQ_SETTLED_REJECTED;
    default: return BQ_SETTLED_LEFT;
    }
}

/* What goes with the act, whatever the cell: the copy, the warning of a drop, the settled kind. */
static void check_consistency(const char *cell, const bq_decision *d)
{
    bool record = d->act == BQ_ACT_DEAD_LETTER;
    if (d->act != BQ_ACT_HANDLE && d->act != BQ_ACT_HOOK && d->settled != settled_as(d))
        fail_msg("%s: counted as %d", cell, (int)d->settled);
    if ((d->act == BQ_ACT_DROP) != (d->dropped != NULL))
        fail_msg("%s: every drop, and only a drop, has its warning", cell);
    if (d->act == BQ_ACT_RETRY && d->copy != BQ_COPY_RETRY)
        fail_msg("%s: a retry travels as a retry", cell);
    if (d->act == BQ_ACT_RELEASE && d->copy != BQ_COPY_RELEASE)
        fail_msg("%s: a release travels unchanged", cell);
    if (record && d->copy != BQ_COPY_GATED && (d->copy == BQ_COPY_POISON) != (d->reason == BQ_REASON_POISON))
        fail_msg("%s: the record of %s", cell, bq_reason_name(d->reason));
}

static bool applies(event e, const config *c, int strategy)
{
    if (e == GATED && !c->gates)
        return false;
    return c->strategies || strategy <= BQ_UNKNOWN_URN_FAIL;
}

static const row *find_row(event e, const config *c, int dead, int strategy, const char *cell)
{
    const row *found = NULL;
    bool on = is_on(c, dead, strategy);
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        const row *r = &TABLE[i];
        if (r->event != e || !names(r->configs, c->name) || !names(r->strategies, STRATEGIES[strategy]) ||
            (r->dead != ANY && (r->dead == ON) != on))
            continue;
        if (found)
            fail_msg("%s: said twice, \"%s\" and \"%s\"", cell, found->expected, r->expected);
        found = r;
    }
    if (!found)
        fail_msg("%s: no row says what happens", cell);
    return found;
}

static void every_cell(void **state)
{
    (void)state;
    size_t cells = 0;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof CONFIGS[0]; i++) {
        const config *c = &CONFIGS[i];
        for (int dead = 0; dead < 3; dead++) {
            for (int strategy = 0; strategy < 5; strategy++) {
                for (int e = 0; e < EVENTS; e++) {
                    if (!applies((event)e, c, strategy))
                        continue;
                    char cell[128], is[256];
                    snprintf(cell, sizeof cell, "%s, %s, dead-lettering %s, strategy %s", EVENT_NAMES[e], c->name,
                             DEAD[dead], STRATEGIES[strategy]);
                    const row *r = find_row((event)e, c, dead, strategy, cell);
                    bq_policy policy = policy_of(c, dead, strategy, e == HOOKED);
                    bq_decision d;
                    decide(c, &policy, (event)e, &d);
                    describe(&d, is, sizeof is);
                    if (strcmp(is, r->expected) != 0)
                        fail_msg("%s: expected \"%s\", got \"%s\"", cell, r->expected, is);
                    check_consistency(cell, &d);
                    cells++;
                }
            }
        }
    }
    /* 13 bindings with strategies x 3 x 5 x 13 events, 2 without x 3 x 2 x 13, and 8 that gate x 3 x 5. */
    assert_int_equal(cells, 13 * 15 * 13 + 2 * 6 * 13 + 8 * 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
