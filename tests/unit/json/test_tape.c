/*
 * bq_json: types, raw bytes, text, numbers, members, pointers, iteration, depth, reuse, and failing allocations.
 */
#include "unit/cmocka_all.h"

#include <babelqueue/json.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/guarded.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static bq_json doc;

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
    bq_json_clear(&doc);
    return 0;
}

static void parse(const char *text)
{
    bq_error err;
    if (bq_json_parse(&doc, bq_str_of(text), &err) != BQ_OK)
        fail_msg("%s: %s", text, err.text);
}

static bq_json_ref at(const char *pointer)
{
    return bq_json_pointer(&doc, BQ_JSON_ROOT, bq_str_of(pointer));
}

static void assert_raw(bq_json_ref ref, const char *expected)
{
    bq_str raw = bq_json_raw(&doc, ref);
    if (!raw.ptr || !bq_str_equal(raw, bq_str_of(expected)))
        fail_msg("'%.*s', should be '%s'", (int)raw.len, raw.ptr ? raw.ptr : "", expected);
}

static void assert_text(bq_json_ref ref, const char *expected)
{
    bq_str text;
    assert_int_equal(bq_json_text(&doc, ref, &text, NULL), BQ_OK);
    if (!bq_str_equal(text, bq_str_of(expected)))
        fail_msg("'%.*s', should be '%s'", (int)text.len, text.ptr, expected);
}

static void types_and_raw(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bq_json_type type;
    } ROWS[] = {
        {"null", BQ_JSON_NULL},      {"true", BQ_JSON_BOOL},
        {"false", BQ_JSON_BOOL},     {"0", BQ_JSON_NUMBER},
        {"-1.5e+3", BQ_JSON_NUMBER}, {"\"\"", BQ_JSON_STRING},
        {"\"a\"", BQ_JSON_STRING},   {"\"\\\"\\u0041\"", BQ_JSON_STRING},
        {"[]", BQ_JSON_ARRAY},       {"{}", BQ_JSON_OBJECT},
        {"[1, [2]]", BQ_JSON_ARRAY}, {"{ \"a\" : {\"b\": 1} }", BQ_JSON_OBJECT},
    };
    char text[128];
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        static const char *const AROUND[][3] = {
            {"", "", ""},           {" \n", "\t ", ""},
            {"[", "]", "/0"},       {"[ [] , ", " ]", "/1"},
            {"{\"k\":", "}", "/k"}, {"{ \"x\" : {}, \"k\" : ", " , \"y\":0}", "/k"}};
        for (size_t a = 0; a < sizeof AROUND / sizeof AROUND[0]; a++) {
            snprintf(text, sizeof text, "%s%s%s", AROUND[a][0], ROWS[i].text, AROUND[a][1]);
            parse(text);
            assert_int_equal(bq_json_typeof(&doc, at(AROUND[a][2])), ROWS[i].type);
            assert_raw(at(AROUND[a][2]), ROWS[i].text);
        }
    }
    parse("[1]");
    assert_int_equal(bq_json_typeof(&doc, BQ_JSON_MISSING), BQ_JSON_NONE);
    assert_null(bq_json_raw(&doc, BQ_JSON_MISSING).ptr);
}

static void values(void **state)
{
    (void)state;
    int64_t integer = 0;
    double number = 0;
    bool flag = false;
    parse("[1491926160718000000, 18446744073709551615, 1.5, true, false, \"7\", 1e400, -0, 1e2]");
    assert_true(bq_json_int(&doc, at("/0"), &integer));
    assert_true(integer == 1491926160718000000);
    assert_false(bq_json_int(&doc, at("/1"), &integer));
    assert_raw(at("/1"), "18446744073709551615");
    assert_true(bq_json_double(&doc, at("/1"), &number));
    assert_true(number == 18446744073709551616.0);
    assert_false(bq_json_int(&doc, at("/2"), &integer));
    assert_true(bq_json_double(&doc, at("/2"), &number));
    assert_true(number == 1.5);
    assert_true(bq_json_bool(&doc, at("/3"), &flag));
    assert_true(flag);
    assert_true(bq_json_bool(&doc, at("/4"), &flag));
    assert_false(flag);
    assert_false(bq_json_bool(&doc, at("/0"), &flag));
    assert_false(bq_json_int(&doc, at("/5"), &integer));
    assert_false(bq_json_double(&doc, at("/5"), &number));
    assert_false(bq_json_double(&doc, at("/6"), &number));
    assert_raw(at("/6"), "1e400");
    assert_true(bq_json_int(&doc, at("/7"), &integer));
    assert_true(integer == 0);
    assert_false(bq_json_int(&doc, at("/8"), &integer));
    assert_false(bq_json_int(&doc, BQ_JSON_MISSING, &integer));
    assert_false(bq_json_bool(&doc, BQ_JSON_MISSING, &flag));
    assert_false(bq_json_double(&doc, BQ_JSON_MISSING, &number));
}

static void texts(void **state)
{
    (void)state;
    bq_str first, text;
    bq_error err;
    parse("[\"plain\", \"a\\u0062c\\n\", \"\\ud83d\\ude9a\", \"\\ud800\", 7, \"\\\\\\\"\\/\", \"\\u0000\", \"\"]");
    assert_text(at("/0"), "plain");
    assert_int_equal(bq_json_text(&doc, at("/1"), &first, NULL), BQ_OK);
    for (int i = 0; i < 100; i++) {
        assert_text(at("/2"), "\xF0\x9F\x9A\x9A");
        assert_text(at("/5"), "\\\"/");
        assert_text(at("/7"), "");
        assert_int_equal(bq_json_text(&doc, at("/1"), &text, NULL), BQ_OK);
        assert_ptr_equal(text.ptr, first.ptr); /* asked again, it is where it was */
    }
    assert_true(bq_str_equal(first, BQ_STR("abc\n")));
    assert_int_equal(bq_json_text(&doc, at("/6"), &text, NULL), BQ_OK);
    assert_int_equal(text.len, 1);
    assert_int_equal(text.ptr[0], 0);
    assert_int_equal(bq_json_text(&doc, at("/3"), &text, &err), BQ_DATA);
    assert_non_null(strstr(err.text, "surrogate"));
    assert_null(text.ptr);
    assert_int_equal(bq_json_text(&doc, at("/4"), &text, &err), BQ_DATA);
    assert_int_equal(bq_json_text(&doc, BQ_JSON_MISSING, &text, &err), BQ_DATA);
    assert_raw(at("/3"), "\"\\ud800\"");
}

static void members(void **state)
{
    (void)state;
    parse("{\"a\":1,\"b\":{\"a\":2},\"\\u0061\":3,\"A\":4,\"\":5,\"a\\ud800\":6,\"aa\":7,\"x\\\"y\":8}");
    assert_raw(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("a")), "3"); /* the last one, whatever its spelling */
    assert_raw(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("A")), "4");
    assert_raw(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("")), "5");
    assert_raw(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR_NULL), "5");
    assert_raw(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("aa")), "7");
    assert_raw(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("x\"y")), "8");
    assert_true(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("x")) == BQ_JSON_MISSING);
    assert_true(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("a\":1")) == BQ_JSON_MISSING);
    assert_true(bq_json_member(&doc, at("/a"), BQ_STR("a")) == BQ_JSON_MISSING);
    assert_true(bq_json_member(&doc, BQ_JSON_MISSING, BQ_STR("a")) == BQ_JSON_MISSING);
    parse("[1]");
    assert_true(bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("0")) == BQ_JSON_MISSING);
}

/* RFC 6901's own example, and what it leaves to be refused. */
static void pointers(void **state)
{
    (void)state;
    static const struct {
        const char *pointer, *raw;
    } ROWS[] = {
        {"/foo", "[\"bar\", \"baz\"]"},
        {"/foo/0", "\"bar\""},
        {"/foo/1", "\"baz\""},
        {"/", "0"},
        {"/a~1b", "1"},
        {"/c%d", "2"},
        {"/e^f", "3"},
        {"/g|h", "4"},
        {"/i\\j", "5"},
        {"/k\"l", "6"},
        {"/ ", "7"},
        {"/m~0n", "8"},
        {"/n/a/1/b", "9"},
        {"/n/", "10"},
        {"/n//", NULL},
        {"/foo/2", NULL},
        {"/foo/-", NULL},
        {"/foo/00", NULL},
        {"/foo/01", NULL},
        {"/foo/-1", NULL},
        {"/foo/+1", NULL},
        {"/foo/1.0", NULL},
        {"/foo/1e0", NULL},
        {"/foo/", NULL},
        {"/foo/99999999999999999999", NULL},
        {"foo", NULL},
        {"/foo/0/x", NULL},
        {"/m~n", NULL},
        {"/m~2n", NULL},
        {"/m~", NULL},
        {"/a/b", NULL},
        {"#/foo", NULL},
        {"/nope", NULL},
        {"/nope/deeper", NULL},
        {"/FOO", NULL},
    };
    parse("{\"foo\":[\"bar\", \"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" "
          "\":7,\"m~n\":8,"
          "\"n\":{\"a\":[0,{\"b\":9}],\"\":10}}");
    assert_true(at("") == BQ_JSON_ROOT);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bq_json_ref ref = at(ROWS[i].pointer);
        if ((ref == BQ_JSON_MISSING) != (ROWS[i].raw == NULL))
            fail_msg("%s is %s", ROWS[i].pointer, ref == BQ_JSON_MISSING ? "missing" : "there");
        if (ROWS[i].raw)
            assert_raw(ref, ROWS[i].raw);
    }
    assert_raw(bq_json_pointer(&doc, at("/n"), BQ_STR("/a/0")), "0"); /* from a value inside */
    assert_true(bq_json_pointer(&doc, BQ_JSON_MISSING, BQ_STR("")) == BQ_JSON_MISSING);
    assert_true(bq_json_pointer(&doc, at("/n"), BQ_STR_NULL) == at("/n"));
}

static void iteration(void **state)
{
    (void)state;
    static const char *const KEYS[] = {"a", "b\n", "a", "d"}, *const VALUES[] = {"1", "[1,[2,{\"x\":3}],{}]",
                                                                                 "{\"a\":[]}", "null"};
    bq_json_ref key, value;
    size_t it = 0, n = 0;
    parse("{\"a\":1,\"b\\n\":[1,[2,{\"x\":3}],{}],\"a\":{\"a\":[]},\"d\":null}");
    for (; bq_json_next(&doc, BQ_JSON_ROOT, &it, &key, &value); n++) {
        assert_true(n < 4);
        assert_text(key, KEYS[n]);
        assert_raw(value, VALUES[n]);
    }
    assert_int_equal(n, 4);
    assert_false(bq_json_next(&doc, BQ_JSON_ROOT, &it, &key, &value)); /* and stays at the end */
    bq_json_ref array = bq_json_member(&doc, BQ_JSON_ROOT, BQ_STR("b\n"));
    it = n = 0;
    for (; bq_json_next(&doc, array, &it, &key, &value); n++)
        assert_true(key == BQ_JSON_MISSING);
    assert_int_equal(n, 3);
    assert_raw(value, "{}");
    it = 0;
    assert_false(bq_json_next(&doc, value, &it, NULL, &key));
    it = 0;
    assert_false(bq_json_next(&doc, at("/d"), &it, NULL, &value));
    assert_false(bq_json_next(&doc, BQ_JSON_MISSING, &it, NULL, &value));
}

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } ROWS[] = {
        {"", "not valid JSON at byte 0: empty"},
        {"[1,]", "not valid JSON at byte 3: a byte that begins no value"},
        {"{\"a\":1}}", "not valid JSON at byte 7: trailing bytes after the value"},
        {"[\"\xFF\"]", "not valid JSON at byte 2: not valid UTF-8"},
        {"1 2", "not valid JSON at byte 2: trailing bytes after the value"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bq_error err;
        parse("[1]");
        assert_int_equal(bq_json_parse(&doc, bq_str_of(ROWS[i].text), &err), BQ_DATA);
        assert_string_equal(err.text, ROWS[i].message);
        assert_int_equal(err.status, BQ_DATA);
        assert_int_equal(bq_json_typeof(&doc, BQ_JSON_ROOT), BQ_JSON_NONE); /* nothing of the one before either */
        assert_true(at("/0") == BQ_JSON_MISSING);
        assert_int_equal(bq_json_parse(&doc, bq_str_of(ROWS[i].text), NULL), BQ_DATA);
    }
    assert_int_equal(bq_json_parse(&doc, BQ_STR_NULL, NULL), BQ_DATA);
}

static char *nested(size_t n, const char *open, const char *close)
{
    size_t size = n * (strlen(open) + strlen(close)) + 2;
    char *text = malloc(size), *p = text;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, open);
    *p++ = '1';
    *p = '\0';
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, close);
    return text;
}

static void *deep(void *arg)
{
    static const char *const FORMS[][2] = {{"[", "]"}, {"{\"a\":", "}"}, {"[0,", "]"}};
    bq_json own;
    bq_json_init(&own);
    *(bool *)arg = true;
    for (int f = 0; f < 3; f++) {
        for (size_t n = 9999; n <= 10001; n++) {
            char *text = nested(n, FORMS[f][0], FORMS[f][1]);
            bool ok = bq_json_parse(&own, bq_str_of(text), NULL) == BQ_OK;
            *(bool *)arg = *(bool *)arg && ok == (n <= 10000);
            size_t down = 0;
            for (bq_json_ref ref = BQ_JSON_ROOT, value; ok; ref = value, down++) {
                size_t it = 0;
                if (!bq_json_next(&own, ref, &it, NULL, &value))
                    break;
                if (f == 2)
                    (void)bq_json_next(&own, ref, &it, NULL, &value);
            }
            *(bool *)arg = *(bool *)arg && (!ok || down == n);
            free(text);
        }
        char *text = nested(1000000, FORMS[f][0], "");
        *(bool *)arg = *(bool *)arg && bq_json_parse(&own, bq_str_of(text), NULL) == BQ_DATA;
        free(text);
    }
    bq_json_clear(&own);
    return NULL;
}

static void depth_costs_no_stack(void **state)
{
    (void)state;
    pthread_attr_t attr;
    pthread_t thread;
    bool ok = false;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 128 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attr, deep, &ok), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    assert_true(ok);
}

/* Every prefix of a document at the end of its page; what parses is read to its last byte. */
static void ends_of_the_buffer(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"[1,\"a\\n\",{\"b\":[true,null,-1.5e3]}]", "\"\\u0041\\\"b\"", "-123.456e+789",
                                        "false", "{\"a\":{\"b\":\"c\"}}"};
    guarded pages = guarded_new(4096);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        for (size_t len = 0; len <= strlen(TEXTS[i]); len++) {
            bq_str text = {guarded_end(&pages, TEXTS[i], len), len};
            if (bq_json_parse(&doc, text, NULL) == BQ_OK) {
                double number;
                bq_str out;
                assert_true(bq_str_equal(bq_json_raw(&doc, BQ_JSON_ROOT), text));
                (void)bq_json_double(&doc, BQ_JSON_ROOT, &number);
                (void)bq_json_text(&doc, BQ_JSON_ROOT, &out, NULL);
            } else {
                assert_true(len < strlen(TEXTS[i]));
            }
        }
    }
    bq_json_clear(&doc);
    guarded_free(&pages);
}

/* The tape's memory is kept: a second document of the size of the first allocates nothing. */
static void documents_are_reused(void **state)
{
    (void)state;
    alloc_fail_state counter;
    bq_str text;
    alloc_fail_begin(&counter, 0, false);
    parse("[\"\\n\",[1,2,3,4,5,6,7,8,9,0],{\"a\":{\"b\":{}}}]");
    assert_int_equal(bq_json_text(&doc, at("/0"), &text, NULL), BQ_OK);
    long before = atomic_load(&counter.requests);
    for (int i = 0; i < 10; i++) {
        parse("[\"\\t\",[0,9,8,7,6,5,4,3,2,1],{\"a\":{\"b\":{}}}]");
        assert_text(at("/0"), "\t");
    }
    assert_int_equal(atomic_load(&counter.requests), before);
    bq_json_clear(&doc);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static bq_status whole(void *arg)
{
    bq_json own;
    bq_str text;
    bq_error err;
    char *big = arg;
    bq_json_init(&own);
    bq_status status = bq_json_parse(&own, bq_str_of(big), &err);
    if (status == BQ_OK) {
        status = bq_json_text(&own, bq_json_pointer(&own, BQ_JSON_ROOT, BQ_STR("/0")), &text, &err);
        if (status != BQ_OK)
            assert_int_equal(bq_json_typeof(&own, BQ_JSON_ROOT), BQ_JSON_ARRAY); /* the document is as it was */
    } else {
        assert_int_equal(bq_json_typeof(&own, BQ_JSON_ROOT), BQ_JSON_NONE);
    }
    if (status != BQ_OK) {
        assert_int_equal(status, BQ_NOMEM);
        assert_int_equal(err.status, BQ_NOMEM);
    }
    bq_json_clear(&own);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    char big[4096], *p = stpcpy(big, "[\"\\n\"");
    for (int i = 0; i < 400; i++)
        p = stpcpy(p, i % 2 ? ",[{}]" : ",\"a\"");
    stpcpy(p, "]");
    assert_true(alloc_fail_each("bq_json", whole, big) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_and_raw),
        cmocka_unit_test(values),
        cmocka_unit_test(texts),
        cmocka_unit_test(members),
        cmocka_unit_test(pointers),
        cmocka_unit_test(iteration),
        cmocka_unit_test(faults),
        cmocka_unit_test(depth_costs_no_stack),
        cmocka_unit_test(ends_of_the_buffer),
        cmocka_unit_test(documents_are_reused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
