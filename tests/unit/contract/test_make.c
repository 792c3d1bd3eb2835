/* New envelopes (contract 1): bytes, trimming, ids, and everything that is refused. */
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "unit/alloc_fail.h"
#include "unit/contract/sample.h"

static bq_envelope_spec spec_of(const char *urn, const char *data)
{
    bq_envelope_spec spec = BQ_ENVELOPE_SPEC_INIT;
    spec.urn = bq_str_of(urn);
    spec.data = bq_str_of(data);
    spec.trace_id = BQ_STR("t");
    spec.id = BQ_STR("i");
    spec.queue = BQ_STR("q");
    spec.created_at = 7;
    return spec;
}

static void expect(const bq_envelope_spec *spec, const char *expected)
{
    bq_buf out;
    bq_error err = {0};
    bq_buf_init(&out, 0);
    assert_int_equal(bq_buf_add_lit(&out, "before"), BQ_OK);
    if (bq_envelope_make(spec, &out, &err) != BQ_OK)
        fail_msg("%s", err.text);
    assert_string_equal(out.ptr + 6, expected);
    bq_envelope env;
    assert_int_equal(bq_envelope_decode(&env, out.ptr + 6, out.len - 6), BQ_VERDICT_OK);
    assert_int_equal(env.seen & ~(unsigned)BQ_SEEN_LONE_SURROGATE, 0);
    bq_buf_clear(&out);
}

static void refuse(const bq_envelope_spec *spec, bq_status status, const char *part)
{
    bq_buf out;
    bq_error err = {0};
    bq_buf_init(&out, 0);
    assert_int_equal(bq_buf_add_lit(&out, "before"), BQ_OK);
    assert_int_equal(bq_envelope_make(spec, &out, &err), status);
    assert_int_equal(err.status, status);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_string_equal(out.ptr, "before");
    bq_buf_clear(&out);
}

#define META "\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"lang\":\"c\",\"schema_version\":1,\"created_at\":7"

static void members_in_their_order(void **state)
{
    (void)state;
    bq_envelope_spec spec = spec_of("urn:x", "{\"a\":1}");
    expect(&spec, "{\"job\":\"urn:x\",\"trace_id\":\"t\",\"data\":{\"a\":1}," META "},\"attempts\":0}");
    spec.lang = BQ_STR("php");
    spec.queue = BQ_STR("");
    expect(&spec,
           "{\"job\":\"urn:x\",\"trace_id\":\"t\",\"data\":{\"a\":1},\"meta\":{\"id\":\"i\",\"queue\":\"default\","
           "\"lang\":\"php\",\"schema_version\":1,\"created_at\":7},\"attempts\":0}");
}

/* "URN and trace id are trimmed of ASCII whitespace", of no other */
static void trimmed(void **state)
{
    (void)state;
    bq_envelope_spec spec = spec_of(" \t\n\v\f\rurn x\xC2\xA0 \r", "{}");
    spec.trace_id = BQ_STR("\f t/\"\\ \v");
    expect(&spec, "{\"job\":\"urn x\xC2\xA0\",\"trace_id\":\"t/\\\"\\\\\",\"data\":{}," META "},\"attempts\":0}");
}

/* "Strings are written unescaped; only `"`, `\` and U+0000-U+001F are escaped" */
static void strings(void **state)
{
    (void)state;
    bq_envelope_spec spec = spec_of("a/b\x01\x1f\x7f\xC3\xA9\xE2\x80\xA8\b\f\n\r\tz", "{}");
    expect(&spec,
           "{\"job\":\"a/b\\u0001\\u001f\x7f\xC3\xA9\xE2\x80\xA8\\b\\f\\n\\r\\tz\",\"trace_id\":\"t\",\"data\":{}," META
           "},\"attempts\":0}");
}

/* "Its tokens are kept byte for byte; only whitespace between tokens is dropped." */
static void data_as_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *data, *written;
    } CASES[] = {
        {"{}", "{}"},
        {" {\n} \t", "{}"},
        {"{ \"a b\" : [ 1 , 1.0 , 1e2 , -0 , 1E-400 , 12345678901234567890 ] }",
         "{\"a b\":[1,1.0,1e2,-0,1E-400,12345678901234567890]}"},
        {"{\"\\u0061\\/\":\"\\u00e9 \\ud800  \xC3\xA9\"}", "{\"\\u0061\\/\":\"\\u00e9 \\ud800  \xC3\xA9\"}"},
        {"{\"a\":1,\"a\":{\"timestamp\":null,\"urn\":true}}", "{\"a\":1,\"a\":{\"timestamp\":null,\"urn\":true}}"},
        {"{\"n\":1.7976931348623157e308}", "{\"n\":1.7976931348623157e308}"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char expected[512];
        bq_envelope_spec spec = spec_of("u", CASES[i].data);
        snprintf(expected, sizeof expected, "{\"job\":\"u\",\"trace_id\":\"t\",\"data\":%s," META "},\"attempts\":0}",
                 CASES[i].written);
        expect(&spec, expected);
    }
}

static void more_members_of_meta(void **state)
{
    (void)state;
    static const struct {
        const char *extra, *written;
    } CASES[] = {
        {"", ""},
        {" \n", ""},
        {"{}", ""},
        {" { } ", ""},
        {"{ \"ext\" : {\"acme\": 1} }", ",\"ext\":{\"acme\":1}"},
        {"{\"a\":1e400,\"a\":2,\"ID\":3,\"x\":{\"ts\":1}}", ",\"a\":1e400,\"a\":2,\"ID\":3,\"x\":{\"ts\":1}"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char expected[512];
        bq_envelope_spec spec = spec_of("u", "{}");
        spec.meta_extra = bq_str_of(CASES[i].extra);
        snprintf(expected, sizeof expected, "{\"job\":\"u\",\"trace_id\":\"t\",\"data\":{}," META "%s},\"attempts\":0}",
                 CASES[i].written);
        expect(&spec, expected);
    }
}

static void refused(void **state)
{
    (void)state;
    bq_envelope_spec spec = spec_of("", "{}");
    refuse(&spec, BQ_INVALID, "URN");
    spec = spec_of(" \t\n\v\f\r", "{}");
    refuse(&spec, BQ_INVALID, "URN");
    spec.urn = BQ_STR_NULL;
    refuse(&spec, BQ_INVALID, "URN");
    spec = spec_of("u\xFF", "{}");
    refuse(&spec, BQ_INVALID, "URN is not valid UTF-8 at byte 1");
    spec = spec_of("u", "{}");
    spec.trace_id = BQ_STR("\xC0\x80");
    refuse(&spec, BQ_INVALID, "trace id");
    spec = spec_of("u", "{}");
    spec.queue = BQ_STR("\xED\xA0\x80");
    refuse(&spec, BQ_INVALID, "queue");
    spec = spec_of("u", "{}");
    spec.lang = BQ_STR("\xF4\x90\x80\x80");
    refuse(&spec, BQ_INVALID, "language");
    spec = spec_of("u", "{}");
    spec.id = BQ_STR("i\xC3");
    refuse(&spec, BQ_INVALID, "message id");
    spec = spec_of("u", "{}");
    spec.created_at = -1;
    refuse(&spec, BQ_INVALID, "created_at");
    spec = spec_of("u", "{}");
    spec.size = 0;
    refuse(&spec, BQ_INVALID, "initialised");

    static const char *const DATA[] = {"",
                                       " ",
                                       "[]",
                                       "null",
                                       "5",
                                       "\"{}\"",
                                       "{",
                                       "{} {}",
                                       "{\"a\":}",
                                       "{\"a\":01}",
                                       "{\"a\":NaN}",
                                       "{'a':1}",
                                       "{\"a\":1,}",
                                       "{\"a\":\"\xFF\"}",
                                       "\xEF\xBB\xBF{}",
                                       "{\"a\":1e400}",
                                       "{\"a\":[-1e309]}",
                                       "{\"a\":1.8e308}",
                                       "{\"a\":\"\n\"}"};
    for (size_t i = 0; i < sizeof DATA / sizeof DATA[0]; i++) {
        spec = spec_of("u", DATA[i]);
        refuse(&spec, BQ_DATA, "");
    }
    spec.data = BQ_STR_NULL;
    refuse(&spec, BQ_DATA, "");
}

/* "a core key or a forbidden key is an error naming its RFC 6901 pointer" */
static void reserved_keys(void **state)
{
    (void)state;
    static const char *const KEYS[] = {"id",       "queue",  "lang", "schema_version", "created_at", "max_retries",
                                       "attempts", "source", "ts"};
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        for (int escaped = 0; escaped < 2; escaped++) {
            char extra[80], pointer[80];
            if (escaped)
                snprintf(extra, sizeof extra, "{\"a\":1,\"\\u00%02x%s\":null}", (unsigned char)KEYS[i][0], KEYS[i] + 1);
            else
                snprintf(extra, sizeof extra, "{ \"%s\" : {} }", KEYS[i]);
            snprintf(pointer, sizeof pointer, "/meta/%s is %s", KEYS[i], i < 5 ? "set by the envelope" : "a forbidden");
            bq_envelope_spec spec = spec_of("u", "{}");
            spec.meta_extra = bq_str_of(extra);
            refuse(&spec, BQ_INVALID, pointer);
        }
    }
    static const char *const BAD[] = {"[]", "5", "{", "{} x", "\"\"", "{\"a\":\"\xFF\"}"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        bq_envelope_spec spec = spec_of("u", "{}");
        spec.meta_extra = bq_str_of(BAD[i]);
        refuse(&spec, BQ_DATA, "meta");
    }
}

/* `data` lies one container deep, so that 9,999 more of them pass and 10,000 do not (contract 2). */
static void depth(void **state)
{
    (void)state;
    enum { MOST = 9999 };
    char *data = malloc(2 * (MOST + 1) + 8);
    assert_non_null(data);
    for (int deep = MOST; deep <= MOST + 1; deep++) {
        size_t arrays = (size_t)deep - 1, n;
        memcpy(data, "{\"a\":", 5);
        n = 5;
        memset(data + n, '[', arrays);
        memset(data + n + arrays, ']', arrays);
        memcpy(data + n + 2 * arrays, "}", 2);
        bq_envelope_spec spec = spec_of("u", data);
        bq_buf out;
        bq_error err = {0};
        bq_buf_init(&out, 0);
        assert_int_equal(bq_envelope_make(&spec, &out, &err), deep == MOST ? BQ_OK : BQ_DATA);
        bq_buf_clear(&out);
    }
    free(data);
}

static bool is_uuid4(bq_str text)
{
    static const char FORM[] = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx";
    if (text.len != sizeof FORM - 1)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        const char *among = FORM[i] == 'x' ? "0123456789abcdef" : FORM[i] == 'y' ? "89ab" : NULL;
        if (among ? !strchr(among, text.ptr[i]) : text.ptr[i] != FORM[i])
            return false;
    }
    return true;
}

static int64_t fixed_epoch(void)
{
    return 1749132727123;
}

static void fresh_ids_and_the_clock(void **state)
{
    (void)state;
    static const char *const TRACES[] = {NULL, "", " \t"};
    bq_clock_override(NULL, fixed_epoch);
    for (size_t i = 0; i < 3; i++) {
        bq_envelope_spec spec = BQ_ENVELOPE_SPEC_INIT;
        spec.urn = BQ_STR("u");
        spec.data = BQ_STR("{}");
        spec.trace_id = bq_str_of(TRACES[i]);
        bq_buf out;
        bq_buf_init(&out, 0);
        assert_int_equal(bq_envelope_make(&spec, &out, NULL), BQ_OK);
        bq_envelope env;
        assert_int_equal(bq_envelope_decode(&env, out.ptr, out.len), BQ_VERDICT_OK);
        bq_str trace = bq_envelope_raw(&env, BQ_FIELD_TRACE_ID), id = bq_envelope_raw(&env, BQ_FIELD_META_ID);
        assert_true(is_uuid4(trace));
        assert_true(is_uuid4(id));
        assert_false(bq_str_equal(trace, id));
        assert_int_equal(bq_envelope_int(&env, BQ_FIELD_META_CREATED_AT, 0), 1749132727123);
        bq_buf_clear(&out);
    }
    bq_clock_override(NULL, NULL);
}

/* A program built against an older, shorter struct: what it lacks is absent. */
static void a_shorter_struct(void **state)
{
    (void)state;
    bq_envelope_spec spec = spec_of("u", "{}");
    spec.meta_extra = BQ_STR("{\"id\":1}");
    spec.size = offsetof(bq_envelope_spec, meta_extra);
    expect(&spec, "{\"job\":\"u\",\"trace_id\":\"t\",\"data\":{}," META "},\"attempts\":0}");
}

static bq_status scenario(void *arg)
{
    (void)arg;
    static char data[2000];
    bq_envelope_spec spec = spec_of("u", NULL);
    spec.meta_extra = BQ_STR("{\"a\":1}");
    snprintf(data, sizeof data, "{\"a\":\"%01900d\"}", 7);
    spec.data = bq_str_of(data);
    bq_buf out;
    bq_error err = {0};
    bq_buf_init(&out, 0);
    bq_status status = bq_envelope_make(&spec, &out, &err);
    if (status != BQ_OK) {
        assert_int_equal(out.len, 0);
        assert_int_equal(err.status, BQ_NOMEM);
    }
    bq_buf_clear(&out);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    alloc_fail_each("bq_envelope_make", scenario, NULL);
}

static void at_the_ceiling(void **state)
{
    (void)state;
    bq_envelope_spec spec = spec_of("u", "{}");
    const size_t len = strlen("{\"job\":\"u\",\"trace_id\":\"t\",\"data\":{}," META "},\"attempts\":0}");
    for (size_t max = 1; max < len + 3; max++) {
        bq_buf out;
        bq_buf_init(&out, max);
        bq_status status = bq_envelope_make(&spec, &out, NULL);
        assert_int_equal(status, max < len ? BQ_DATA : BQ_OK);
        assert_int_equal(out.len, max < len ? 0 : len);
        bq_buf_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_in_their_order),
        cmocka_unit_test(trimmed),
        cmocka_unit_test(strings),
        cmocka_unit_test(data_as_it_is),
        cmocka_unit_test(more_members_of_meta),
        cmocka_unit_test(refused),
        cmocka_unit_test(reserved_keys),
        cmocka_unit_test(depth),
        cmocka_unit_test(fresh_ids_and_the_clock),
        cmocka_unit_test(a_shorter_struct),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(at_the_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
