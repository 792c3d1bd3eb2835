/* transport_kit_settle.c - what every transport is expected to do: messages and their settlement (contract 3, 5). See transport_kit.h. */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------------------------------------------------ */

static void publish_and_take(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_expect_none(&c, 0);
    int64_t before = bq_epoch_ms();
    kit_assert_ok(kit_publish(&c, "q", "{\"job\":\"urn:x\"}"));
    bq_incoming *in = kit_expect(&c, "{\"job\":\"urn:x\"}");
    assert_int_equal(in->queue, 0);
    assert_false(in->lease_lost);
    assert_true(in->native_count >= -1);
    assert_int_equal(in->lapses, 0);
    assert_true(in->timestamp_ms == 0 || llabs(in->timestamp_ms - before) < 60000);
    assert_int_equal(kit_settle(&c, BQ_OP_ACK, in), BQ_OK);
    kit_expect_none(&c, 50);
    kit_close(&c);
}

static void acknowledged_is_gone(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "once"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "once")));
    kit_close(&c);
    kit_open(&c, c_url, KIT_BOTH, 0, "q");
    kit_expect_none(&c, 100);
    kit_close(&c);
}

static void survives_reopening(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "first"));
    kit_assert_ok(kit_publish(&c, "q", "second"));
    kit_close(&c);
    kit_open(&c, c_url, KIT_BOTH, 0, "q");
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "first")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "second")));
    kit_close(&c);
}

static void bytes_are_kept(const kit_suite *suite)
{
    static const char odd[] = "\0\xff\xfe{\"a\":1e400}\r\n\0 \xc3\xa9\0";
    KIT_WORKER(c, suite, 0);
    kit_op op = kit_make_publish("q", (bq_str){odd, sizeof(odd) - 1});
    kit_assert_ok(kit_do_one(&c, &op));
    bq_incoming *in = kit_expect(&c, NULL);
    assert_int_equal(in->body.len, sizeof(odd) - 1);
    assert_memory_equal(in->body.ptr, odd, sizeof(odd) - 1);
    assert_null(in->key.ptr);
    assert_int_equal(in->prop_count, 0);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void empty_body(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", ""));
    bq_incoming *in = kit_expect(&c, "");
    assert_non_null(in->body.ptr);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void null_body(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_op op = kit_make_publish("q", BQ_STR_NULL);
    kit_assert_ok(kit_do_one(&c, &op));
    bq_incoming *in = kit_expect(&c, NULL);
    assert_null(in->body.ptr);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void large_bodies(const kit_suite *suite)
{
    size_t size = suite->broker->large_body ? suite->broker->large_body : (size_t)3 << 20;
    char *body = malloc(size);
    assert_non_null(body);
    KIT_WORKER(c, suite, 0);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < size; i++)
            body[i] = (char)('a' + (i * 7 + (size_t)round) % 26);
        kit_op op = kit_make_publish("q", (bq_str){body, size - (size_t)round});
        kit_assert_ok(kit_do_one(&c, &op));
        bq_incoming *in = kit_expect(&c, NULL);
        assert_int_equal(in->body.len, size - (size_t)round);
        assert_memory_equal(in->body.ptr, body, in->body.len);
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    kit_close(&c);
    free(body);
}

static void fifo_order(const kit_suite *suite)
{
    enum { COUNT = 300 };
    char bodies[COUNT][16];
    kit_op ops[COUNT];
    KIT_WORKER(c, suite, 0);
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(bodies[i], sizeof(bodies[i]), "n%d", i);
        ops[i] = kit_make_publish("q", bq_str_of(bodies[i]));
    }
    kit_do(&c, ops, COUNT);
    int64_t position = -1;
    for (int i = 0; i < COUNT; i++) {
        kit_assert_ok(ops[i].status);
        bq_incoming *in = kit_expect(&c, bodies[i]);
        assert_true(in->position > position);
        position = in->position;
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    kit_close(&c);
}

/* ---- what travels beside the body (contract 5) ---------------------------------------------------------------------- */

static const bq_prop *find_prop(const bq_incoming *in, bq_place place, const char *name)
{
    for (size_t i = 0; i < in->prop_count; i++)
        if (in->props[i].place == place && bq_str_equal(in->props[i].name, bq_str_of(name)))
            return &in->props[i];
    return NULL;
}

static void headers_are_kept(const kit_suite *suite)
{
    bq_prop props[] = {{.place = BQ_PLACE_HEADER,
                        .type = BQ_PROP_STRING,
                        .name = BQ_STR("traceparent"),
                        .text = BQ_STR("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
                       {.place = BQ_PLACE_HEADER,
                        .type = BQ_PROP_STRING,
                        .name = BQ_STR("gr\xc3\xbc\xc3\x9f"),
                        .text = BQ_STR("\xe2\x9c\x93")}};
    KIT_WORKER(c, suite, 0);
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    op.op.out.props = props;
    op.op.out.prop_count = 2;
    kit_assert_ok(kit_do_one(&c, &op));
    memset(props, 0, sizeof(props)); /* borrowed until reaped, and no longer */
    bq_incoming *in = kit_expect(&c, "x");
    const bq_prop *trace = find_prop(in, BQ_PLACE_HEADER, "traceparent");
    const bq_prop *other = find_prop(in, BQ_PLACE_HEADER, "gr\xc3\xbc\xc3\x9f");
    assert_non_null(trace);
    assert_non_null(other);
    assert_true(bq_str_equal(trace->text, BQ_STR("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
    assert_true(bq_str_equal(other->text, BQ_STR("\xe2\x9c\x93")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void property_types_are_kept(const kit_suite *suite)
{
    const bq_prop props[] = {
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_NULL, .name = BQ_STR("null")},
        {.place = BQ_PLACE_NATIVE, .type = BQ_PROP_STRING, .name = BQ_STR("type"), .text = BQ_STR("urn:x")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("empty"), .text = BQ_STR("")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_BINARY, .name = BQ_STR("bin"), .text = {"\0\xff\0", 3}},
        {.place = BQ_PLACE_ANNOTATION, .type = BQ_PROP_SYMBOL, .name = BQ_STR("sym"), .text = BQ_STR("s")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_NUMBER, .name = BQ_STR("dec"), .text = BQ_STR("1.50")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_BOOL, .name = BQ_STR("yes"), .num = 1},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_INT, .width = 7, .name = BQ_STR("int"), .num = INT32_MIN},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_LONG, .name = BQ_STR("long"), .num = INT64_MIN},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_LONG, .name = BQ_STR("long2"), .num = INT64_MAX},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_DOUBLE, .name = BQ_STR("real"), .real = -0.1},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_OTHER, .width = 200, .name = BQ_STR("raw"), .text = {"\1\2", 2}},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("twice"), .text = BQ_STR("a")},
        {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("twice"), .text = BQ_STR("b")},
    };
    enum { COUNT = sizeof(props) / sizeof(props[0]) };
    KIT_WORKER(c, suite, 0);
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    op.op.out.props = props;
    op.op.out.prop_count = COUNT;
    kit_assert_ok(kit_do_one(&c, &op));
    bq_incoming *in = kit_expect(&c, "x");
    assert_int_equal(in->prop_count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const bq_prop *got = &in->props[i];
        assert_int_equal(got->place, props[i].place);
        assert_int_equal(got->type, props[i].type);
        assert_int_equal(got->width, props[i].width);
        assert_true(bq_str_equal(got->name, props[i].name));
        assert_true(bq_str_equal(got->text, props[i].text));
        assert_true((got->text.ptr == NULL) == (props[i].text.ptr == NULL));
        assert_true(got->num == props[i].num);
        assert_true(got->real == props[i].real);
    }
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void keys_are_kept(const kit_suite *suite)
{
    static const bq_str keys[] = {{"customer-7", 10}, {"\0\xff", 2}, {NULL, 0}, {"", 0}};
    KIT_WORKER(c, suite, 0);
    for (size_t i = 0; i < 4; i++) {
        kit_op op = kit_make_publish("q", BQ_STR("x"));
        op.op.out.key = keys[i];
        kit_assert_ok(kit_do_one(&c, &op));
        bq_incoming *in = kit_expect(&c, "x");
        assert_true(bq_str_equal(in->key, keys[i]));
        assert_true((in->key.ptr == NULL) == (keys[i].ptr == NULL));
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    kit_close(&c);
}

/* What a retry or a dead letter carries is what the runtime says, and a release carries what the delivery had. */
static void copies_carry_properties(const kit_suite *suite)
{
    const bq_prop first = {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("n"), .text = BQ_STR("1")};
    const bq_prop second = {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("n"), .text = BQ_STR("2")};
    KIT_WORKER(c, suite, 0);
    kit_op op = kit_make_publish("q", BQ_STR("a"));
    op.op.out.props = &first;
    op.op.out.prop_count = 1;
    op.op.out.key = BQ_STR("k");
    kit_assert_ok(kit_do_one(&c, &op));

    kit_assert_ok(kit_settle(&c, BQ_OP_RELEASE, kit_expect(&c, "a")));
    bq_incoming *in = kit_expect(&c, "a");
    assert_non_null(find_prop(in, BQ_PLACE_HEADER, "n"));
    assert_true(bq_str_equal(in->key, BQ_STR("k")));

    op = kit_make(BQ_OP_RETRY, in);
    op.op.out = (bq_outgoing){.body = BQ_STR("b"), .props = &second, .prop_count = 1, .key = BQ_STR("l")};
    kit_assert_ok(kit_do_one(&c, &op));
    in = kit_expect(&c, "b");
    assert_int_equal(in->prop_count, 1);
    assert_true(bq_str_equal(in->props[0].text, BQ_STR("2")));
    assert_true(bq_str_equal(in->key, BQ_STR("l")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

/* ---- settlement (contract 3) ---------------------------------------------------------------------------------------- */

static void retry_replaces(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "attempts 0"));
    kit_assert_ok(kit_replace(&c, BQ_OP_RETRY, kit_expect(&c, "attempts 0"), "q", "attempts 1", 0));
    kit_assert_ok(
        kit_replace(&c, BQ_OP_RETRY, kit_expect(&c, "attempts 1"), "q", "attempts 2, and longer than before", 0));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "attempts 2, and longer than before")));
    kit_expect_none(&c, 50);
    kit_close(&c);
}

static void retry_goes_to_the_end(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    kit_assert_ok(kit_publish(&c, "q", "b"));
    kit_assert_ok(kit_replace(&c, BQ_OP_RETRY, kit_expect(&c, "a"), "q", "a again", 0));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "b")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "a again")));
    kit_close(&c);
}

static void delayed_retry(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    bq_incoming *in = kit_expect(&c, "a");
    int64_t start = bq_now_ms();
    kit_assert_ok(kit_replace(&c, BQ_OP_RETRY, in, "q", "b", 400));
    in = kit_expect(&c, "b");
    assert_true(bq_now_ms() - start >= kit_at_least(suite, 400));
    assert_int_equal(in->lapses, 0); /* contract 7.1: waiting is no lapse */
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void release_gives_back_unchanged(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "same"));
    for (int i = 0; i < 5; i++) {
        bq_incoming *in = kit_expect(&c, "same");
        assert_int_equal(in->lapses, 0);
        kit_assert_ok(kit_replace(&c, BQ_OP_RELEASE, in, "q", NULL, 0));
    }
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "same")));
    kit_expect_none(&c, 50);
    kit_close(&c);
}

static void delayed_release(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "same"));
    bq_incoming *in = kit_expect(&c, "same");
    int64_t start = bq_now_ms();
    kit_assert_ok(kit_replace(&c, BQ_OP_RELEASE, in, "q", NULL, 400));
    in = kit_expect(&c, "same");
    assert_true(bq_now_ms() - start >= kit_at_least(suite, 400));
    assert_int_equal(in->lapses, 0);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void dead_letter_moves(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "bad"));
    kit_assert_ok(kit_replace(&c, BQ_OP_DEAD_LETTER, kit_expect(&c, "bad"), "q.dlq", "record", 0));
    kit_expect_none(&c, 50);
    kit_close(&c);
    kit_open(&c, c_url, KIT_BOTH, 0, "q.dlq");
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "record")));
    kit_expect_none(&c, 50);
    kit_close(&c);
}

/* The message that a publish replaces stays held until it is settled itself. */
static void publish_beside_a_delivery(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    bq_incoming *in = kit_expect(&c, "a");
    kit_op op = kit_make_publish("other", BQ_STR("copy"));
    op.op.in = in;
    kit_assert_ok(kit_do_one(&c, &op));
    assert_true(bq_str_equal(in->body, BQ_STR("a")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static void settled_in_a_batch(const kit_suite *suite)
{
    enum { COUNT = 16 };
    kit_op ops[COUNT];
    char bodies[COUNT][16];
    KIT_WORKER(c, suite, 0);
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(bodies[i], sizeof(bodies[i]), "n%d", i);
        ops[i] = kit_make_publish("q", bq_str_of(bodies[i]));
    }
    kit_do(&c, ops, COUNT);
    for (int i = 0; i < COUNT; i++)
        ops[i] = kit_make(BQ_OP_ACK, kit_expect(&c, NULL));
    kit_do(&c, ops, COUNT);
    for (int i = 0; i < COUNT; i++)
        kit_assert_ok(ops[i].status);
    kit_expect_none(&c, 50);
    kit_close(&c);
}

/* What a driver does not do is said, and leaves the delivery as it was. */
static void unsupported_operations(const kit_suite *suite)
{
    static const struct {
        bq_op_kind kind;
        unsigned capability;
    } kinds[] = {{BQ_OP_REJECT, BQ_CAP_REJECT},           {BQ_OP_NATIVE_RETRY, BQ_CAP_NATIVE_RETRY},
                 {BQ_OP_RELEASE, BQ_CAP_RELEASE},         {BQ_OP_RETRY, BQ_CAP_RETRY},
                 {BQ_OP_DEAD_LETTER, BQ_CAP_DEAD_LETTER}, {BQ_OP_EXTEND, BQ_CAP_EXTEND}};
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    bq_incoming *in = kit_expect(&c, "a");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kit_can(&c, kinds[i].capability))
            continue;
        kit_op op = kit_make(kinds[i].kind, in);
        op.op.out.queue = BQ_STR("q.dlq");
        op.op.out.body = BQ_STR("b");
        kit_assert(kit_do_one(&c, &op), BQ_UNSUPPORTED);
    }
    assert_true(bq_str_equal(in->body, BQ_STR("a")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_expect_none(&c, 50);
    kit_close(&c);
}

static void one_bad_operation_among_good_ones(const kit_suite *suite)
{
    kit_op ops[3] = {kit_make_publish("q", BQ_STR("a")), kit_make_publish("", BQ_STR("b")),
                     kit_make_publish("q", BQ_STR("c"))};
    KIT_WORKER(c, suite, 0);
    kit_do(&c, ops, 3);
    kit_assert_ok(ops[0].status);
    kit_assert(ops[1].status, BQ_INVALID);
    kit_assert_ok(ops[2].status);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "a")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "c")));
    kit_expect_none(&c, 50);
    kit_close(&c);
}

static void past_deadlines(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_op op = kit_make_publish("q", BQ_STR("late"));
    op.op.deadline_ms = bq_now_ms() - 1;
    bq_status status = kit_do_one(&c, &op);
    if (suite->broker->traits & KIT_LOCAL) {
        kit_assert(status, BQ_TIMEOUT);
        kit_expect_none(&c, 50);
    } else {
        assert_true(status == BQ_TIMEOUT || status == BQ_UNKNOWN);
    }
    /* A settlement that was not done leaves the delivery held. */
    kit_assert_ok(kit_publish(&c, "q", "a"));
    bq_incoming *in = kit_expect(&c, suite->broker->traits & KIT_LOCAL ? "a" : NULL);
    op = kit_make(BQ_OP_ACK, in);
    op.op.deadline_ms = bq_now_ms() - 1;
    status = kit_do_one(&c, &op);
    assert_true(status == BQ_TIMEOUT || status == BQ_UNKNOWN);
    assert_non_null(in->body.ptr);
    if (suite->broker->traits & KIT_LOCAL)
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    else
        c.target.ops->forget(c.state, in);
    kit_close(&c);
}

static void kept_past_settlement(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 0);
    kit_assert_ok(kit_publish(&c, "q", "one"));
    kit_assert_ok(kit_publish(&c, "q", "two"));
    bq_incoming *one = kit_expect(&c, "one"), *two = kit_expect(&c, "two");
    one->keep = two->keep = true;
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, one));
    assert_true(bq_str_equal(one->body, BQ_STR("one")));
    c.target.ops->forget(c.state, one);
    kit_assert_ok(kit_settle(&c, BQ_OP_RELEASE, two));
    const bq_transport_ops *ops = c.target.ops;
    kit_close(&c);
    /* The transport is gone, the handler still reads. */
    assert_true(bq_str_equal(two->body, BQ_STR("two")));
    ops->forget(NULL, two);
}

static void left_alone(const kit_suite *suite)
{
    KIT_WORKER(c, suite, 300);
    kit_assert_ok(kit_publish(&c, "q", "a"));
    kit_assert_ok(kit_settle(&c, BQ_OP_LEAVE, kit_expect(&c, "a")));
    bq_incoming *in = kit_expect(&c, "a"); /* once its lease has ended */
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

const kit_case kit_settle_cases[] = {
    {"publish_and_take", publish_and_take, 0, 0, false},
    {"acknowledged_is_gone", acknowledged_is_gone, 0, 0, false},
    {"survives_reopening", survives_reopening, 0, KIT_SHARED | KIT_FIFO, false},
    {"bytes_are_kept", bytes_are_kept, 0, 0, false},
    {"empty_body", empty_body, 0, KIT_EMPTY_BODY, false},
    {"null_body", null_body, 0, KIT_NULL_BODY, false},
    {"large_bodies", large_bodies, 0, 0, false},
    {"fifo_order", fifo_order, 0, KIT_FIFO, false},
    {"headers_are_kept", headers_are_kept, BQ_CAP_HEADERS, 0, false},
    {"property_types_are_kept", property_types_are_kept, BQ_CAP_HEADERS, KIT_TYPED_PROPS, false},
    {"keys_are_kept", keys_are_kept, BQ_CAP_KEY, 0, false},
    {"copies_carry_properties", copies_carry_properties, BQ_CAP_HEADERS | BQ_CAP_KEY | BQ_CAP_RETRY | BQ_CAP_RELEASE, 0,
     false},
    {"retry_replaces", retry_replaces, 0, 0, false},
    {"retry_goes_to_the_end", retry_goes_to_the_end, 0, KIT_FIFO, false},
    {"delayed_retry", delayed_retry, BQ_CAP_RETRY_DELAY, 0, false},
    {"release_gives_back_unchanged", release_gives_back_unchanged, 0, 0, false},
    {"delayed_release", delayed_release, BQ_CAP_RELEASE_DELAY, 0, false},
    {"dead_letter_moves", dead_letter_moves, 0, KIT_SHARED, false},
    {"publish_beside_a_delivery", publish_beside_a_delivery, 0, 0, false},
    {"settled_in_a_batch", settled_in_a_batch, 0, 0, false},
    {"unsupported_operations", unsupported_operations, 0, 0, false},
    {"one_bad_operation_among_good_ones", one_bad_operation_among_good_ones, 0, KIT_FIFO, false},
    {"past_deadlines", past_deadlines, 0, 0, false},
    {"kept_past_settlement", kept_past_settlement, BQ_CAP_KEEP | BQ_CAP_RELEASE, KIT_FIFO, false},
    {"left_alone", left_alone, 0, 0, true},
    {NULL, NULL, 0, 0, false},
};
