/* Lines of `bq publish`: both kinds of object, raw bodies, and what each mistake is told. */
#include "unit/cmocka_all.h"

#include "lines.h"

#include <string.h>

static line_parser parser;
static bq_message_spec spec;

static bool parse_with(line_mode mode, const char *line, const bq_message_spec *defaults)
{
    spec = *defaults;
    return line_parse(&parser, mode, bq_str_of(line), &spec);
}

static bool parse(line_mode mode, const char *line)
{
    bq_message_spec none = BQ_MESSAGE_SPEC_INIT;
    return parse_with(mode, line, &none);
}

static int setup(void **state)
{
    (void)state;
    line_parser_init(&parser);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    line_parser_clear(&parser);
    return 0;
}

#define SAME(view, literal) assert_true(bq_str_equal((view), BQ_STR(literal)))

static void data_is_taken_as_it_is(void **state)
{
    (void)state;
    assert_true(parse(LINE_DATA, " {\"a\": 1.0} "));
    SAME(spec.data, " {\"a\": 1.0} ");
    assert_null(spec.body.ptr);
}

static void an_object(void **state)
{
    (void)state;
    assert_true(parse(LINE_OBJECT,
                      "{\"urn\":\"u:\\u00e9\",\"data\":{\"n\": 1e2},\"trace_id\":\"t\",\"headers\":{\"a\":\"b\","
                      "\"c\":\"\"},\"delay_ms\":1500,\"key\":\"k\",\"queue\":\"q\",\"id\":\"i\",\"group\":\"g\"}"));
    SAME(spec.urn, "u:\xc3\xa9");
    SAME(spec.data, "{\"n\": 1e2}");
    SAME(spec.trace_id, "t");
    SAME(spec.key, "k");
    SAME(spec.queue, "q");
    SAME(spec.id, "i");
    SAME(spec.group, "g");
    assert_int_equal(spec.delay_ms, 1500);
    assert_int_equal(spec.header_count, 2);
    SAME(spec.headers[1].name, "c");
    assert_null(spec.body.ptr);
    assert_true(parse(LINE_OBJECT, "{\"urn\":\"u\",\"data\":{},\"key\":null,\"delay_ms\":null,\"headers\":null}"));
    assert_null(spec.key.ptr);
}

/* Those of the line count, name by name; -q says where all of them go. */
static void beside_the_command_line(void **state)
{
    (void)state;
    bq_header given[2] = {{BQ_STR("a"), BQ_STR("1")}, {BQ_STR("b"), BQ_STR("2")}};
    bq_message_spec defaults = BQ_MESSAGE_SPEC_INIT;
    defaults.headers = given;
    defaults.header_count = 2;
    defaults.queue = BQ_STR("mine");
    defaults.delay_ms = 7;
    assert_true(parse_with(LINE_OBJECT,
                           "{\"urn\":\"u\",\"data\":{},\"queue\":\"theirs\",\"headers\":{\"b\":\"3\",\"c\":\"4\"}}",
                           &defaults));
    SAME(spec.queue, "mine");
    assert_int_equal(spec.delay_ms, 7);
    assert_int_equal(spec.header_count, 3);
    SAME(spec.headers[0].value, "1");
    SAME(spec.headers[1].value, "3");
    SAME(spec.headers[2].value, "4");
    assert_true(parse_with(LINE_OBJECT, "{\"urn\":\"u\",\"data\":{}}", &defaults));
    assert_ptr_equal(spec.headers, given);
}

#define FULL(body) "{\"queue\":\"q\",\"route\":\"u\",\"headers\":{\"a\":\"b\"},\"key\":\"k\",\"attempts\":2," body "}"

static void a_full_message(void **state)
{
    (void)state;
    for (line_mode mode = LINE_OBJECT; mode <= LINE_RAW; mode++) {
        assert_true(parse(mode, FULL("\"body\":\" {\\\"x\\\":\\n1}\"")));
        SAME(spec.body, " {\"x\":\n1}");
        SAME(spec.key, "k");
        SAME(spec.queue, "q");
        assert_int_equal(spec.header_count, 1);
        assert_true(parse(mode, FULL("\"body\":\"//79\",\"body_encoding\":\"base64\"")));
        SAME(spec.body, "\xff\xfe\xfd");
        assert_true(parse(mode, FULL("\"body\":\"\"")));
        assert_non_null(spec.body.ptr);
        assert_int_equal(spec.body.len, 0);
        assert_false(parse(mode, FULL("\"body\":\"/\",\"body_encoding\":\"base64\"")));
        assert_non_null(strstr(parser.why, "not base64"));
        assert_false(parse(mode, FULL("\"body\":\"x\",\"body_encoding\":\"hex\"")));
    }
}

/* --raw sends everything else as it is, whatever it looks like. */
static void raw_bodies(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "not json",
        "{\"body\":\"x\"}",
        "{\"job\":\"u\",\"body\":\"x\"}",
        "{\"queue\":\"q\",\"body\":\"x\",\"attempts\":1}",
        "{\"queue\":\"q\",\"route\":\"u\",\"headers\":{},\"key\":null,\"attempts\":0,\"body\":\"x\",\"more\":1}",
        "{\"queue\":\"q\",\"route\":\"u\",\"headers\":{},\"attempts\":0,\"body\":null}",
        "[1]"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        assert_true(parse(LINE_RAW, bodies[i]));
        assert_non_null(spec.body.ptr);
        assert_true(bq_str_equal(spec.body, bq_str_of(bodies[i])));
        assert_int_equal(spec.header_count, 0);
    }
}

static void mistakes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{\"urn\":\"u\",\"data\":{}", ""},
        {"[]", "not a JSON object"},
        {"5", "not a JSON object"},
        {"{}", "no \"urn\""},
        {"{\"urn\":null,\"data\":{}}", "no \"urn\""},
        {"{\"urn\":\"u\"}", "no \"data\""},
        {"{\"urn\":\"u\",\"data\":[]}", "\"data\" is not an object"},
        {"{\"urn\":5,\"data\":{}}", "\"urn\" is not a string"},
        {"{\"urn\":\"\\ud800\",\"data\":{}}", "unpaired surrogate"},
        {"{\"urn\":\"u\",\"data\":{},\"urn\":\"v\"}", "\"urn\" stands twice"},
        {"{\"urn\":\"u\",\"data\":{},\"tarce_id\":\"v\"}", "unknown member \"tarce_id\""},
        {"{\"urn\":\"u\",\"data\":{},\"delay_ms\":1.5}", "\"delay_ms\" is not a whole number"},
        {"{\"urn\":\"u\",\"data\":{},\"delay_ms\":-1}", "\"delay_ms\" is not a whole number"},
        {"{\"urn\":\"u\",\"data\":{},\"delay_ms\":\"1\"}", "\"delay_ms\" is not a whole number"},
        {"{\"urn\":\"u\",\"data\":{},\"headers\":[]}", "\"headers\" is not an object"},
        {"{\"urn\":\"u\",\"data\":{},\"headers\":{\"a\":1}}", "a value in \"headers\" is not a string"},
        {"{\"urn\":\"u\",\"data\":{},\"key\":1}", "\"key\" is not a string"},
        {"{\"urn\":\"u\",\"data\":{},\"attempts\":1}", "\"attempts\" without \"body\""},
        {"{\"urn\":\"u\",\"body\":\"x\"}", "\"urn\" beside \"body\""},
        {"{\"body\":5}", "\"body\" is not a string"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        parser.why[0] = '\0';
        if (parse(LINE_OBJECT, rows[i][0]) || !parser.why[0] || !strstr(parser.why, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], parser.why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(data_is_taken_as_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(an_object, setup, teardown),
        cmocka_unit_test_setup_teardown(beside_the_command_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_message, setup, teardown),
        cmocka_unit_test_setup_teardown(raw_bodies, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
