/* The answers of a coprocess: what each says, and what is none. The lines that go out are tested through bq itself. */
#include "unit/cmocka_all.h"

#include "protocol.h"

#include <string.h>

static bq_json doc;
static protocol_answer answer;
static const char *why;

static int setup(void **state)
{
    (void)state;
    bq_json_init(&doc);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bq_json_clear(&doc);
    return 0;
}

static bool reads(const char *line)
{
    why = "";
    return protocol_read_answer(&doc, bq_str_of(line), &answer, &why);
}

/* The same answer by the short way and by the parser. */
static void done(void **state)
{
    (void)state;
    static const char *const lines[] = {"{\"n\":12,\"ok\":true}", "{\"n\": 12, \"ok\": true}",
                                        "{\"n\":12,\"ok\":true,\"error\":null,\"x\":[{}]}",
                                        " {\"ok\":true , \"n\":12}\r", "{\"n\":1,\"n\":12,\"ok\":false,\"ok\":true}"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (!reads(lines[i]))
            fail_msg("%s: %s", lines[i], why);
        assert_int_equal(answer.n, 12);
        assert_int_equal(answer.outcome, BQ_DONE);
        assert_null(answer.error.ptr);
        assert_null(answer.result.ptr);
        assert_int_equal(answer.retry_after_ms, -1);
    }
    assert_true(reads("{\"n\":999999999999999999,\"ok\":true}"));
    assert_int_equal(answer.n, 999999999999999999);
    assert_true(reads("{\"n\":3,\"ok\":true,\"result\":{\"a\": [1.0]}}"));
    assert_true(bq_str_equal(answer.result, BQ_STR("{\"a\": [1.0]}")));
    assert_true(reads("{\"n\":3,\"ok\":true,\"result\":null}"));
    assert_true(bq_str_equal(answer.result, BQ_STR("null")));
}

static void failures(void **state)
{
    (void)state;
    assert_true(reads("{\"n\":1,\"error\":\"no \\u2014 money\",\"exception\":\"Declined\",\"retry_after_ms\":1500}"));
    assert_int_equal(answer.outcome, BQ_FAILED);
    assert_true(bq_str_equal(answer.error, BQ_STR("no \xe2\x80\x94 money")));
    assert_true(bq_str_equal(answer.exception, BQ_STR("Declined")));
    assert_int_equal(answer.retry_after_ms, 1500);
    assert_true(reads("{\"n\":1,\"error\":\"x\",\"reject\":true}"));
    assert_int_equal(answer.outcome, BQ_REJECTED);
    assert_true(reads("{\"n\":1,\"reject\":true}"));
    assert_int_equal(answer.outcome, BQ_REJECTED);
    assert_true(reads("{\"n\":1,\"reject\":false}"));
    assert_int_equal(answer.outcome, BQ_FAILED);
    assert_true(reads("{\"n\":1,\"ok\":false}"));
    assert_int_equal(answer.outcome, BQ_FAILED);
    assert_true(reads("{\"n\":1,\"retry_after_ms\":0}"));
    assert_int_equal(answer.outcome, BQ_FAILED);
    assert_int_equal(answer.retry_after_ms, 0);
}

static void garbage(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "hello",
        "[]",
        "null",
        "{}",
        "{\"n\":1}",
        "{\"ok\":true}",
        "{\"n\":0,\"ok\":true}",
        "{\"n\":-1,\"ok\":true}",
        "{\"n\":01,\"ok\":true}",
        "{\"n\":1.0,\"ok\":true}",
        "{\"n\":\"1\",\"ok\":true}",
        "{\"n\":99999999999999999999,\"ok\":true}",
        "{\"n\":1,\"ok\":\"true\"}",
        "{\"n\":1,\"ok\":1}",
        "{\"n\":1,\"ok\":true}x",
        "{\"n\":1,\"ok\":true}{\"n\":2,\"ok\":true}",
        "{\"n\":1,\"error\":5}",
        "{\"n\":1,\"error\":\"\\ud800\"}",
        "{\"n\":1,\"exception\":[]}",
        "{\"n\":1,\"retry_after_ms\":-1}",
        "{\"n\":1,\"retry_after_ms\":1.5}",
        "{\"n\":1,\"reject\":\"yes\"}",
        "{\"n\":1,\"ok\":true,\"error\":\"x\"}",
        "{\"n\":1,\"ok\":true,\"reject\":true}",
        "{\"n\":1,\"ok\":true",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (reads(lines[i]) || !*why)
            fail_msg("%s was read, or nothing said: %s", lines[i], why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(done, setup, teardown),
        cmocka_unit_test_setup_teardown(failures, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
