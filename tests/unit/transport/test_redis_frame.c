/* test_redis_frame.c - headers beside an envelope in a Redis list: contract 7.1's frame. */
#include "bq_test.h"

#include "transport/redis/frame.h"

#include "base/buf.h"

#include <stdio.h>
#include <string.h>

static bq_prop header(const char *name, const char *text)
{
    return (bq_prop){
        .place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = bq_str_of(name), .text = bq_str_of(text)};
}

static void makes(bq_str body, const bq_prop *props, size_t count, const char *expected, bool lost)
{
    bq_buf out;
    bool dropped = !lost;
    bq_buf_init(&out, 0);
    assert_int_equal(bq_rd_frame_make(body, props, count, &out, &dropped), BQ_OK);
    if (!bq_str_equal(bq_buf_str(&out), bq_str_of(expected)))
        fail_msg("made %s, expected %s", out.ptr, expected);
    assert_int_equal(dropped, lost);
    bq_buf_clear(&out);
}

static void bare_without_headers(void **state)
{
    (void)state;
    bq_prop nothing[] = {header("", "x"), header("x", ""), header("n", "1"), header("t", "1")};
    nothing[2].place = BQ_PLACE_NATIVE;
    nothing[3].type = BQ_PROP_BINARY;
    makes(BQ_STR("{\"job\":\"urn:x\"}"), NULL, 0, "{\"job\":\"urn:x\"}", false);
    makes(BQ_STR("{\"job\":\"urn:x\"}"), nothing, 4, "{\"job\":\"urn:x\"}", false);
    makes(BQ_STR(""), NULL, 0, "", false);
    makes(BQ_STR_NULL, NULL, 0, "", false);
}

/* What the Python peer writes for the same: json.dumps without ASCII escapes and without spaces. */
static void framed_as_the_peer_does(void **state)
{
    (void)state;
    const bq_prop props[] = {header("traceparent", "00-\xe2\x9c\x93"), header("a\"b", "c\\d\n\x1f/\x7f")};
    makes(BQ_STR("{\"data\":{\"a\":\"\\n\"}}"), props, 2,
          "{\"__bq_frame\":1,\"headers\":{\"traceparent\":\"00-\xe2\x9c\x93\",\"a\\\"b\":\"c\\\\d\\n\\u001f/\x7f\"},"
          "\"body\":\"{\\\"data\\\":{\\\"a\\\":\\\"\\\\n\\\"}}\"}",
          false);
}

/* A frame is text: bytes that are none go bare, and keep every one of them. */
static void bytes_cannot_be_framed(void **state)
{
    (void)state;
    const bq_prop prop = header("k", "v");
    makes(BQ_STR("\xff\xfe"), &prop, 1, "\xff\xfe", true);
}

/* Read bare, this body would become its own inner one. */
static void frames_are_framed(void **state)
{
    (void)state;
    makes(BQ_STR("{\"__bq_frame\":1,\"body\":\"x\"}"), NULL, 0,
          "{\"__bq_frame\":1,\"headers\":{},\"body\":\"{\\\"__bq_frame\\\":1,\\\"body\\\":\\\"x\\\"}\"}", false);
    makes(BQ_STR("{\"__bq_frame\":0,\"body\":\"x\"}"), NULL, 0, "{\"__bq_frame\":0,\"body\":\"x\"}", false);
}

static void reads(const char *element, const char *body, size_t headers)
{
    rd_frame frame;
    assert_int_equal(bq_rd_frame_read(bq_str_of(element), &frame), BQ_OK);
    if (!bq_str_equal(frame.body, bq_str_of(body ? body : element)))
        fail_msg("read %.*s of %s", (int)frame.body.len, frame.body.ptr, element);
    assert_int_equal(frame.framed, body != NULL);
    assert_int_equal(frame.prop_count, headers);
    if (!body)
        assert_ptr_equal(frame.body.ptr, element); /* a view: nothing is copied */
    bq_rd_frame_clear(&frame);
}

/* "a value is a frame only if it is an object with a truthy `__bq_frame` and a string `body`" */
static void what_is_a_frame(void **state)
{
    (void)state;
    static const char *const truths[] = {"1", "true", "-1", "0.5", "1e400", "\"0\"", "[0]", "{\"a\":0}"};
    static const char *const lies[] = {"0", "-0.0", "false", "null", "\"\"", "[]", "{}"};
    char text[128];
    for (size_t i = 0; i < sizeof(truths) / sizeof(truths[0]); i++) {
        (void)snprintf(text, sizeof(text), "{\"__bq_frame\":%s,\"body\":\"b\"}", truths[i]);
        reads(text, "b", 0);
    }
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        (void)snprintf(text, sizeof(text), "{\"__bq_frame\":%s,\"body\":\"b\"}", lies[i]);
        reads(text, NULL, 0);
    }
    reads("{\"__bq_frame\":1}", NULL, 0);
    reads("{\"__bq_frame\":1,\"body\":{}}", NULL, 0);
    reads("{\"__bq_frame\":1,\"body\":null}", NULL, 0);
    reads("{\"__bq_frame\":1,\"body\":\"a\",\"body\":1}", NULL, 0); /* the last one counts */
    reads("{\"__bq_frame\":1,\"body\":1,\"body\":\"a\"}", "a", 0);
    reads("{\"a\":\"\\\"__bq_frame\\\"\",\"body\":\"b\"}", NULL, 0);
    reads("{\"x\":{\"__bq_frame\":1},\"body\":\"b\"}", NULL, 0);
    reads("[{\"__bq_frame\":1,\"body\":\"b\"}]", NULL, 0);
    reads(" {\"__bq_frame\":1,\"body\":\"b\"}", NULL, 0); /* as the peers: no white space before it */
    reads("{\"__bq_frame\":1,\"body\":\"b\"", NULL, 0);
    reads("{\"__bq_frame\":1,\"body\":\"b\"} x", NULL, 0);
    reads("{\"__bq_frame\":1,\"body\":\"\\ud800\"}", NULL, 0); /* no bytes stand for that */
    reads("{\"__bq_frame\":1,\"body\":\"\xff\"}", NULL, 0);
    reads("{\"__bq_frame\":1,\"body\":\"\"}", "", 0);
    reads("", NULL, 0);
    reads("{", NULL, 0);
}

static void headers_are_read(void **state)
{
    (void)state;
    rd_frame frame;
    const char *element =
        "{\"headers\":{\"a\":\"\\u2713\",\"\":\"x\",\"b\":\"\",\"n\":null,\"i\":5.0,\"t\":true,\"o\":{},"
        "\"l\":[1],\"bad\":\"\\udc00\",\"c\":\"d\\n\"},\"body\":\"{\\\"job\\\":1}\",\"__bq_frame\":1}";
    assert_int_equal(bq_rd_frame_read(bq_str_of(element), &frame), BQ_OK);
    assert_true(bq_str_equal(frame.body, BQ_STR("{\"job\":1}")));
    static const char *const expected[][2] = {{"a", "\xe2\x9c\x93"}, {"i", "5.0"}, {"t", "true"}, {"c", "d\n"}};
    assert_int_equal(frame.prop_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_true(bq_str_equal(frame.props[i].name, bq_str_of(expected[i][0])));
        assert_true(bq_str_equal(frame.props[i].text, bq_str_of(expected[i][1])));
        assert_int_equal(frame.props[i].place, BQ_PLACE_HEADER);
        assert_int_equal(frame.props[i].type, BQ_PROP_STRING);
        assert_int_equal(frame.props[i].num, 0);
        assert_true(frame.props[i].real >= 0 && frame.props[i].real <= 0);
    }
    bq_rd_frame_clear(&frame);
    reads("{\"__bq_frame\":1,\"headers\":[1],\"body\":\"b\"}", "b", 0);
    reads("{\"__bq_frame\":1,\"headers\":{},\"body\":\"b\"}", "b", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bare_without_headers),   cmocka_unit_test(framed_as_the_peer_does),
        cmocka_unit_test(bytes_cannot_be_framed), cmocka_unit_test(frames_are_framed),
        cmocka_unit_test(what_is_a_frame),        cmocka_unit_test(headers_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
