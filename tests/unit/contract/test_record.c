/* The record of a poison body (contract 4): spliced where the bytes allow it, wrapped otherwise, byte for byte. */
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/contract/sample.h"

static const bq_dead_letter DL = {
    .reason = BQ_REASON_FAILED, /* ignored */
    .error = {"Undecodable BabelQueue body: x", 30},
    .exception = {"BabelQueueError", 15},
    .failed_at = 5,
    .original_queue = {"q", 1},
    .attempts = 2,
};
#define DL_TEXT                                                                                                        \
    "\"dead_letter\":{\"reason\":\"poison\",\"error\":\"Undecodable BabelQueue body: x\",\"exception\":"               \
    "\"BabelQueueError\",\"failed_at\":5,\"original_queue\":\"q\",\"attempts\":2,\"lang\":\"c\"}"

typedef struct record_case {
    const char *body;
    size_t len;
    const char *expected;
    const char *kafka; /* NULL: the same */
} record_case;

#define CASE(body, expected, kafka)                                                                                    \
    {                                                                                                                  \
        body, sizeof(body) - 1, expected, kafka                                                                        \
    }

static const record_case CASES[] = {
    /* spliced; "JSON whitespace around it is trimmed" */
    CASE("{\"a\":1}", "{\"a\":1," DL_TEXT "}", NULL),
    CASE(" \t\r\n{\"a\":1}\n \t\r", "{\"a\":1," DL_TEXT "}", NULL),
    CASE("{\"a\":1 \n}", "{\"a\":1 \n," DL_TEXT "}", NULL),
    CASE("{\"a\":\"{\"}", "{\"a\":\"{\"," DL_TEXT "}", NULL),
    /* "without the comma when the object is empty or holds only whitespace" */
    CASE("{}", "{" DL_TEXT "}", NULL),
    CASE("{ \n\t}", "{ \n\t" DL_TEXT "}", NULL),
    /* "a poison splice changes nothing else at all": forbidden members, urn, repeated members, numbers stay */
    CASE("{\"urn\":5,\"timestamp\":1,\"meta\":{\"ts\":1},\"attempts\":9,\"job\":\"\",\"a\":1e400,\"a\":1.0}",
         "{\"urn\":5,\"timestamp\":1,\"meta\":{\"ts\":1},\"attempts\":9,\"job\":\"\",\"a\":1e400,\"a\":1.0," DL_TEXT
         "}",
         NULL),
    CASE("{\"attempts\":12345678901234567890}", "{\"attempts\":12345678901234567890," DL_TEXT "}", NULL),
    CASE("{\"a\":{\"dead_letter\":1}}", "{\"a\":{\"dead_letter\":1}," DL_TEXT "}", NULL),
    CASE("{\"a\":\"\\ud83d\\ude00\"}", "{\"a\":\"\\ud83d\\ude00\"," DL_TEXT "}", NULL),
    /* not finite inside data: Kafka wraps */
    CASE("{\"data\":{\"n\":1e400}}", "{\"data\":{\"n\":1e400}," DL_TEXT "}",
         "{\"raw\":\"{\\\"data\\\":{\\\"n\\\":1e400}}\"," DL_TEXT "}"),
    CASE("{\"data\":{\"n\":9007199254740993}}", "{\"data\":{\"n\":9007199254740993}," DL_TEXT "}", NULL),
    /* a top-level dead_letter, whatever its type: wrapped; on Kafka replaced */
    CASE("{\"a\":1,\"dead_letter\":{\"x\":1}}",
         "{\"raw\":\"{\\\"a\\\":1,\\\"dead_letter\\\":{\\\"x\\\":1}}\"," DL_TEXT "}", "{\"a\":1," DL_TEXT "}"),
    CASE(" {\"\\u0064ead_letter\":5}\n", "{\"raw\":\" {\\\"\\\\u0064ead_letter\\\":5}\\n\"," DL_TEXT "}",
         "{" DL_TEXT "}"),
    CASE("{ \"dead_letter\" : [] , \"a\" : 1 , \"dead_letter\" : null }",
         "{\"raw\":\"{ \\\"dead_letter\\\" : [] , \\\"a\\\" : 1 , \\\"dead_letter\\\" : null }\"," DL_TEXT "}",
         "{ \"a\" : 1 ," DL_TEXT "}"),
    /* "no unpaired surrogate escape in any string", names included */
    CASE("{\"a\":\"\\ud800\"}", "{\"raw\":\"{\\\"a\\\":\\\"\\\\ud800\\\"}\"," DL_TEXT "}", NULL),
    CASE("{\"\\udc00\":1}", "{\"raw\":\"{\\\"\\\\udc00\\\":1}\"," DL_TEXT "}", NULL),
    CASE("{\"a\":[\"\\ude00\\ud83d\"]}", "{\"raw\":\"{\\\"a\\\":[\\\"\\\\ude00\\\\ud83d\\\"]}\"," DL_TEXT "}", NULL),
    CASE("{\"dead_letter\":1,\"a\":\"\\ud800\"}",
         "{\"raw\":\"{\\\"dead_letter\\\":1,\\\"a\\\":\\\"\\\\ud800\\\"}\"," DL_TEXT "}", NULL),
    /* no object, or no JSON: wrapped as text */
    CASE("", "{\"raw\":\"\"," DL_TEXT "}", NULL),
    CASE(" ", "{\"raw\":\" \"," DL_TEXT "}", NULL),
    CASE("null", "{\"raw\":\"null\"," DL_TEXT "}", NULL),
    CASE("[1]", "{\"raw\":\"[1]\"," DL_TEXT "}", NULL),
    CASE("\"a\\\\b\"", "{\"raw\":\"\\\"a\\\\\\\\b\\\"\"," DL_TEXT "}", NULL),
    CASE("{\"a\":1}}", "{\"raw\":\"{\\\"a\\\":1}}\"," DL_TEXT "}", NULL),
    CASE("{\"a\":NaN}", "{\"raw\":\"{\\\"a\\\":NaN}\"," DL_TEXT "}", NULL),
    CASE("\xEF\xBB\xBF{}", "{\"raw\":\"\xEF\xBB\xBF{}\"," DL_TEXT "}", NULL),
    CASE("a/b\x01\x1f\x7f\b\f\n\r\t\xC3\xA9", "{\"raw\":\"a/b\\u0001\\u001f\x7f\\b\\f\\n\\r\\t\xC3\xA9\"," DL_TEXT "}",
         NULL),
    CASE("a\0b", "{\"raw\":\"a\\u0000b\"," DL_TEXT "}", NULL),
    /* no UTF-8: base64 with padding; U+FFFD is never substituted */
    CASE("\xFF", "{\"raw\":\"/w==\",\"raw_encoding\":\"base64\"," DL_TEXT "}", NULL),
    CASE("\xFF\xFE", "{\"raw\":\"//4=\",\"raw_encoding\":\"base64\"," DL_TEXT "}", NULL),
    CASE("\xFF\xFE\xFD", "{\"raw\":\"//79\",\"raw_encoding\":\"base64\"," DL_TEXT "}", NULL),
    CASE("{\"a\":\"\xC0\x80\"}", "{\"raw\":\"eyJhIjoiwIAifQ==\",\"raw_encoding\":\"base64\"," DL_TEXT "}", NULL),
    CASE("{\"a\":\"\xED\xA0\x80\"}", "{\"raw\":\"eyJhIjoi7aCAIn0=\",\"raw_encoding\":\"base64\"," DL_TEXT "}", NULL),
};

static void check(const record_case *c, const char *expected, unsigned flags)
{
    bq_buf out;
    bq_envelope env;
    bq_buf_init(&out, 0);
    bq_envelope_decode(&env, c->body, c->len);
    assert_int_equal(bq_buf_add_lit(&out, "before"), BQ_OK);
    assert_int_equal(bq_record_poison(&env, &DL, flags, &out, NULL), BQ_OK);
    if (strcmp(out.ptr + 6, expected) != 0)
        fail_msg("%s (flags %u)\nexpected %s\ngot      %s", c->body, flags, expected, out.ptr);
    bq_envelope record;
    bq_envelope_decode(&record, out.ptr + 6, out.len - 6);
    assert_true(bq_envelope_has(&record, BQ_FIELD_DEAD_LETTER));
    assert_true(bq_str_equal(bq_envelope_raw(&record, BQ_FIELD_DEAD_REASON), BQ_STR("poison")));
    bq_buf_clear(&out);
}

static void by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        check(&CASES[i], CASES[i].expected, 0);
        check(&CASES[i], CASES[i].kafka ? CASES[i].kafka : CASES[i].expected, BQ_RECORD_KAFKA);
    }
}

/* 7.8: a record without a value is judged, and wrapped, as an empty body. */
static void no_value(void **state)
{
    (void)state;
    bq_envelope env;
    bq_envelope_decode_null(&env);
    bq_buf out;
    bq_buf_init(&out, 0);
    assert_int_equal(bq_record_poison(&env, &DL, BQ_RECORD_KAFKA, &out, NULL), BQ_OK);
    assert_string_equal(out.ptr, "{\"raw\":\"\"," DL_TEXT "}");
    bq_buf_clear(&out);
}

static void too_deep(void **state)
{
    (void)state;
    enum { DEPTH = 10001 };
    size_t len = 6 + 2 * DEPTH;
    char *body = malloc(len + 1);
    assert_non_null(body);
    memcpy(body, "{\"a\":", 5);
    memset(body + 5, '[', DEPTH);
    memset(body + 5 + DEPTH, ']', DEPTH);
    body[len - 1] = '}';
    bq_envelope env;
    assert_int_equal(bq_envelope_decode(&env, body, len), BQ_VERDICT_POISON_JSON);
    bq_buf out;
    bq_buf_init(&out, 0);
    assert_int_equal(bq_record_poison(&env, &DL, 0, &out, NULL), BQ_OK);
    const char head[] = "{\"raw\":\"{\\\"a\\\":[[";
    assert_memory_equal(out.ptr, head, sizeof head - 1);
    bq_buf_clear(&out);
    free(body);
}

static void the_error(void **state)
{
    (void)state;
    static const struct {
        const char *body, *error;
    } TEXTS[] = {
        {"", "Undecodable BabelQueue body: "},
        {"[]", "Undecodable BabelQueue body: the body is not an object"},
        {"{\"job\":\"u\",\"data\":[]}", "Undecodable BabelQueue body: data is neither an object nor null"},
        {SAMPLE_WITH(""), "Undecodable BabelQueue body: attempts is missing"},
    };
    bq_buf out;
    bq_buf_init(&out, 0);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        bq_envelope env = sample_decode(TEXTS[i].body);
        bq_buf_reset(&out);
        assert_int_equal(bq_poison_error(&env, &out), BQ_OK);
        if (strncmp(out.ptr, TEXTS[i].error, strlen(TEXTS[i].error)) != 0)
            fail_msg("%s: %s", TEXTS[i].body, out.ptr);
        assert_true(out.len > 29); /* it names a cause, always */
    }
    bq_buf_clear(&out);
}

/* Base64 of every length against a decoder. */
static void base64_of_every_length(void **state)
{
    (void)state;
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t body[300];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (uint8_t)(255 - i * 7);
    for (size_t len = 1; len <= sizeof body; len++) {
        bq_envelope env;
        bq_buf out;
        bq_buf_init(&out, 0);
        assert_int_equal(bq_envelope_decode(&env, body, len), BQ_VERDICT_POISON_UTF8);
        assert_int_equal(bq_record_poison(&env, &DL, 0, &out, NULL), BQ_OK);
        const char *p = out.ptr + strlen("{\"raw\":\""), *end = strchr(p, '"');
        assert_int_equal((end - p) % 4, 0);
        uint8_t back[304];
        size_t n = 0;
        for (; p < end; p += 4) {
            uint32_t bits = 0;
            for (int i = 0; i < 4; i++) {
                const char *digit = p[i] == '=' ? DIGITS : memchr(DIGITS, p[i], 64);
                assert_non_null(digit);
                bits = bits << 6 | (uint32_t)(digit - DIGITS);
            }
            size_t bytes = p[2] == '=' ? 1 : p[3] == '=' ? 2 : 3;
            for (size_t i = 0; i < bytes; i++)
                back[n++] = (uint8_t)(bits >> (16 - 8 * i));
        }
        assert_int_equal(n, len);
        assert_memory_equal(back, body, len);
        bq_buf_clear(&out);
    }
}

static bq_status scenario(void *arg)
{
    bq_envelope env = sample_decode(arg);
    bq_buf out, error;
    bq_error err = {0};
    bq_buf_init(&out, 0);
    bq_buf_init(&error, 0);
    bq_status status = bq_poison_error(&env, &error);
    if (status == BQ_OK)
        status = bq_record_poison(&env, &DL, BQ_RECORD_KAFKA, &out, &err);
    if (status != BQ_OK)
        assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
    bq_buf_clear(&error);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    char text[] = "not json \xC3\xA9 \x01\x02\x03\x04\x05\x06\x07\x08 ............................................";
    char bytes[] = "\xFF\xFF\xFF", object[] = "{\"a\":1,\"dead_letter\":1}";
    alloc_fail_each("text", scenario, text);
    alloc_fail_each("bytes", scenario, bytes);
    alloc_fail_each("object", scenario, object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(no_value),
        cmocka_unit_test(too_deep),
        cmocka_unit_test(the_error),
        cmocka_unit_test(base64_of_every_length),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
