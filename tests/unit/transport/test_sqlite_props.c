/* test_sqlite_props.c - properties as bytes: what goes in comes out, and damaged bytes are refused, never read past. */
#include "transport/sqlite/props.h"

#include "base/mem.h"
#include "unit/cmocka_all.h"

#include "unit/alloc_fail.h"

#include <math.h>
#include <string.h>

#define S(literal)                                                                                                     \
    {                                                                                                                  \
        "" literal, sizeof(literal) - 1                                                                                \
    }

static const bq_prop samples[] = {
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = S("traceparent"), .text = S("00-ab-cd-01")},
    {.place = BQ_PLACE_NATIVE, .type = BQ_PROP_NULL, .name = S("nothing")},
    {.place = BQ_PLACE_ANNOTATION, .type = BQ_PROP_SYMBOL, .width = 0xa3, .name = S(""), .text = S("")},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_BINARY, .name = {"\0n", 2}, .text = {"\0\xff", 2}},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = S("absent")},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_NUMBER, .name = S("n"), .text = S("1e3")},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_BOOL, .name = S("b"), .num = 1},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_INT, .width = UINT32_MAX, .name = S("i"), .num = -1},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_LONG, .name = S("min"), .num = INT64_MIN},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_LONG, .name = S("max"), .num = INT64_MAX},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_DOUBLE, .name = S("d"), .real = -1.5e-300},
    {.place = BQ_PLACE_HEADER, .type = BQ_PROP_OTHER, .width = 3, .name = S("o"), .text = S("raw")},
};
enum { COUNT = sizeof(samples) / sizeof(samples[0]) };

static void encode(bq_buf *buf)
{
    bq_buf_init(buf, 0);
    assert_int_equal(bq_sq_props_encode(samples, COUNT, buf), BQ_OK);
}

static void round_trip(void **state)
{
    (void)state;
    bq_buf buf;
    bq_prop got[COUNT];
    size_t count;
    encode(&buf);
    assert_true(bq_sq_props_count(bq_buf_str(&buf), &count));
    assert_int_equal(count, COUNT);
    bq_sq_props_decode(bq_buf_str(&buf), got, count);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(got[i].place, samples[i].place);
        assert_int_equal(got[i].type, samples[i].type);
        assert_int_equal(got[i].width, samples[i].width);
        assert_true(bq_str_equal(got[i].name, samples[i].name));
        assert_true(bq_str_equal(got[i].text, samples[i].text));
        assert_true((got[i].text.ptr == NULL) == (samples[i].text.ptr == NULL));
        assert_true(got[i].num == samples[i].num);
        assert_true(got[i].real == samples[i].real);
    }
    bq_buf_clear(&buf);
}

static void odd_doubles(void **state)
{
    (void)state;
    const double values[] = {INFINITY, -INFINITY, -0.0, 5e-324, NAN};
    for (size_t i = 0; i < 5; i++) {
        bq_prop p = {.type = BQ_PROP_DOUBLE, .real = values[i]}, got;
        bq_buf buf;
        size_t count;
        bq_buf_init(&buf, 0);
        assert_int_equal(bq_sq_props_encode(&p, 1, &buf), BQ_OK);
        assert_true(bq_sq_props_count(bq_buf_str(&buf), &count));
        bq_sq_props_decode(bq_buf_str(&buf), &got, 1);
        assert_memory_equal(&got.real, &values[i], sizeof(double));
        bq_buf_clear(&buf);
    }
}

static void none(void **state)
{
    (void)state;
    size_t count = 7;
    assert_true(bq_sq_props_count(BQ_STR_NULL, &count));
    assert_int_equal(count, 0);
    bq_sq_props_decode(BQ_STR_NULL, NULL, 0);
}

/* A copy of exactly that size, so that a sanitizer sees a byte read past its end. */
static bool readable(const char *bytes, size_t len, size_t *count)
{
    char *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, len);
    bool good = bq_sq_props_count((bq_str){exact, len}, count);
    if (good && *count > 0) {
        bq_prop *props = calloc(*count, sizeof(*props));
        assert_non_null(props);
        bq_sq_props_decode((bq_str){exact, len}, props, *count);
        free(props);
    }
    free(exact);
    return good;
}

static void cut_short(void **state)
{
    (void)state;
    bq_buf buf;
    size_t count;
    encode(&buf);
    for (size_t len = 1; len < buf.len; len++)
        assert_false(readable(buf.ptr, len, &count));
    assert_int_equal(bq_buf_add(&buf, "x", 1), BQ_OK);
    assert_false(readable(buf.ptr, buf.len, &count)); /* nor one byte too many */
    bq_buf_clear(&buf);
}

static void damaged(void **state)
{
    (void)state;
    bq_buf buf;
    size_t count, good = 0;
    unsigned random = 7;
    encode(&buf);
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525u + 1013904223u;
        size_t at = (random >> 8) % buf.len;
        char was = buf.ptr[at];
        buf.ptr[at] = (char)(random >> 24);
        good += readable(buf.ptr, buf.len, &count);
        if (i % 3)
            buf.ptr[at] = was;
        if (i % 50 == 0) {
            bq_buf_clear(&buf);
            encode(&buf);
        }
    }
    assert_true(good > 0);
    static const char huge[] = "\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1";
    assert_false(readable(huge, sizeof(huge) - 1, &count));
    static const char endless[] = "\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1";
    assert_false(readable(endless, sizeof(endless) - 1, &count));
    assert_false(readable("\2\0", 2, &count)); /* of a version to come */
    bq_buf_clear(&buf);
}

static bq_status encode_all(void *arg)
{
    bq_buf buf;
    (void)arg;
    bq_buf_init(&buf, 0);
    bq_status status = bq_sq_props_encode(samples, COUNT, &buf);
    bq_buf_clear(&buf);
    return status;
}

static void out_of_memory(void **state)
{
    (void)state;
    assert_true(alloc_fail_each("encode", encode_all, NULL) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(odd_doubles), cmocka_unit_test(none),
        cmocka_unit_test(cut_short),  cmocka_unit_test(damaged),     cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("sqlite properties", tests, NULL, NULL);
}
