/*
 * The limits of bq_envelope_decode (contract 2): depth, stack, memory, and the ends of the buffer. Every body ends where
 * its page ends.
 */
#include "unit/cmocka_all.h"

#include <babelqueue/envelope.h>

#include "unit/guarded.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD                                                                                                           \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"lang\":\"c\","         \
    "\"schema_version\":1,\"created_at\":5},\"attempts\":0}"

static guarded pages;

static int setup(void **state)
{
    (void)state;
    pages = guarded_new(1 << 21);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    guarded_free(&pages);
    return 0;
}

/* Decodes bytes that end where their page ends. */
static bq_envelope decode(const char *body, size_t len)
{
    bq_envelope env;
    bq_envelope_decode(&env, guarded_end(&pages, body, len), len);
    return env;
}

static bq_envelope decode_text(const char *body)
{
    return decode(body, strlen(body));
}

static void expect(const char *body, bq_verdict verdict, const char *reason)
{
    bq_envelope env = decode_text(body);
    if (env.verdict != verdict || (reason && strcmp(bq_envelope_reason(&env), reason) != 0))
        fail_msg("%s\n  is %s (%s)\n  should be %s (%s)", body, bq_verdict_name(env.verdict), bq_envelope_reason(&env),
                 bq_verdict_name(verdict), reason ? reason : "any reason");
}

/* `before`, n times open, `inside`, n times close, `after`. */
static char *nested(const char *before, size_t n, const char *open, const char *inside, const char *close,
                    const char *after)
{
    size_t size = strlen(before) + n * (strlen(open) + strlen(close)) + strlen(inside) + strlen(after) + 1;
    char *text = malloc(size), *p = text;
    assert_non_null(text);
    p = stpcpy(p, before);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, open);
    p = stpcpy(p, inside);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, close);
    stpcpy(p, after);
    return text;
}

static void depth(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        size_t around; /* containers that are open there */
    } PLACES[] = {
        {"", "", 0},
        {"{\"x\":", "}", 1},
        {"{\"data\":", "}", 1},
        {"{\"job\":", "}", 1},
        {"{\"trace_id\":", "}", 1},
        {"{\"meta\":{\"x\":", "}}", 2},
        {"{\"meta\":{\"id\":", "}}", 2},
        {"{\"job\":\"u\",\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"x\":", "}}", 2},
        {"{\"dead_letter\":{\"x\":[", "]}}", 3},
    };
    static const struct {
        const char *open, *inside, *close;
    } FORMS[] = {{"[", "", "]"}, {"{\"a\":", "1", "}"}, {"[\n", "\"x\"", "\n]"}, {" { \"a\" : ", "{}", " } "}};
    for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
        for (size_t f = 0; f < sizeof FORMS / sizeof FORMS[0]; f++) {
            for (size_t over = 0; over < 2; over++) {
                size_t n = 10000 - PLACES[i].around + over - (f == 3); /* the fourth holds one more */
                char *text =
                    nested(PLACES[i].before, n, FORMS[f].open, FORMS[f].inside, FORMS[f].close, PLACES[i].after);
                bq_envelope env = decode_text(text);
                if ((env.verdict == BQ_VERDICT_POISON_JSON) != (over == 1))
                    fail_msg("%s%s… %zu deep is %s (%s)", PLACES[i].before, FORMS[f].open, n,
                             bq_verdict_name(env.verdict), bq_envelope_reason(&env));
                if (over)
                    assert_string_equal(bq_envelope_reason(&env), "more than 10000 nested containers");
                free(text);
            }
        }
    }
}

/* Objects and arrays mixed, so that every closing bracket depends on what was remembered at its depth. */
static void mixed_nesting(void **state)
{
    (void)state;
    enum { DEEP = 1000 };
    char text[16 * DEEP], close[DEEP + 1];
    for (unsigned seed = 1; seed < 40; seed++) {
        unsigned bits = seed * 2654435761u;
        char *p = stpcpy(text, "{\"job\":\"u\",\"x\":");
        for (int i = 0; i < DEEP; i++) {
            bits = bits * 1103515245 + 12345;
            bool object = bits >> 16 & 1;
            p = stpcpy(p, object ? "{\"a\":" : "[");
            close[DEEP - 1 - i] = object ? '}' : ']';
        }
        close[DEEP] = '\0';
        p = stpcpy(p, "1");
        stpcpy(stpcpy(p, close), "}");
        expect(text, BQ_VERDICT_NONCONFORMANT, NULL);
        size_t wrong = bits >> 8;
        wrong %= DEEP;
        p[wrong] = p[wrong] == '}' ? ']' : '}';
        expect(text, BQ_VERDICT_POISON_JSON, NULL);
    }
}

static void *decode_million(void *arg)
{
    static const char *const OPEN[] = {"[", "{\"a\":", "{\"meta\":"};
    char *text = nested("{\"x\":", 1000000, OPEN[*(int *)arg], "", "", "}");
    size_t len = strlen(text);
    bq_envelope env;
    bq_envelope_decode(&env, text, len);
    *(int *)arg = env.verdict == BQ_VERDICT_POISON_JSON && strcmp(env.reason, "more than 10000 nested containers") == 0;
    free(text);
    return NULL;
}

/* ds4#43 of the field's list: depth costs no stack. */
static void a_million_deep_on_a_small_stack(void **state)
{
    (void)state;
    pthread_attr_t attr;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 128 * 1024), 0);
    for (int form = 0; form < 3; form++) {
        pthread_t thread;
        int result = form;
        assert_int_equal(pthread_create(&thread, &attr, decode_million, &result), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(result, 1);
    }
    pthread_attr_destroy(&attr);
}

/* Every prefix of bodies of every kind, at both ends of a page. */
static void every_length(void **state)
{
    (void)state;
    static const char *const BODIES[] = {
        GOOD GOOD GOOD,
        "{\"job\":\"\\u0075\\\\\\\"\\/"
        "\\b\\f\\n\\r\\t\\ud83d\\ude9a\",\"trace_id\":\"tttttttttttttttttttttttttttttttttttttttttttttttt\","
        "\"data\":{\"n\":[-1.5e+10,0,-0,123456789012345678901234567890,true,false,null,\"x\"],\"\\u0061\":{}},\"meta\":"
        "{\"id\":"
        "\"\xD0\xB6\xE2\x82\xAC\xF0\x9F\x9A\x9A\",\"queue\":null , \"lang\" : \"c\" }, \"attempts\" : 00 }",
        "                                                                                                              "
        "      "
        "  {  \"job\"  :  \"u\"  ,  \"data\"  :  {  \"a\"  :  [  1  ,  2  ]  }  ,  \"dead_letter\"  :  {  }  }         "
        "    "
        "                                                                       ",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
        "[[[[[[[[[[",
        "{\"data\":{\"a\":{\"b\":{\"c\":{}}}},\"x\":{}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}"
        "}}}}}}}}}",
        "\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\""
        "\\\"\\\"\"",
        "-123456789012345678901234567890.123456789012345678901234567890e+123456789012345678901234567890",
        "truefalsenull",
    };
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        size_t whole = strlen(BODIES[i]);
        for (size_t len = 0; len <= whole && len <= 300; len++) {
            bq_envelope at_end = decode(BODIES[i], len), at_start;
            bq_envelope_decode(&at_start, guarded_start(&pages, BODIES[i], len), len);
            assert_int_equal(at_end.verdict, at_start.verdict);
            if (i == 0)
                assert_int_equal(at_end.verdict, len == strlen(GOOD) ? BQ_VERDICT_OK : BQ_VERDICT_POISON_JSON);
        }
    }
}

/* A prefix that is closed in every way it may be, so that the last byte is a sentinel and everything before it is cut
 * anywhere: the scanner leans on that byte. */
static void every_prefix_with_a_sentinel(void **state)
{
    (void)state;
    static const char BODY[] =
        "{\"job\":\"urn:babel:orders:created\",\"trace_id\":\"0190f2c4-7a5b-7c3d-8e9f-0a1b2c3d4e5f\",\"data\":{\"s\":"
        "\"\\u00e9\\n\","
        "\"n\":-12.5e+3,\"b\":[true,false,null,{\"x\":[]}]},\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"lang\":\"c\","
        "\"schema_version\":1,"
        "\"created_at\":1784000000000},\"attempts\":12,\"dead_letter\":{\"reason\":\"failed\",\"failed_at\":5}}";
    static const char *const ENDS[] = {"}",      "]",  "\"}", "]}",  "}}", "}}}",  "\"]}}", "\\}",  "\\u}",
                                       "\\u12}", "-}", "1.}", "1e}", "t}", "tru}", "nul]",  "fals}"};
    char body[sizeof BODY + 16];
    for (size_t len = 0; len < sizeof BODY; len++) {
        for (size_t e = 0; e < sizeof ENDS / sizeof ENDS[0]; e++) {
            memcpy(body, BODY, len);
            strcpy(body + len, ENDS[e]);
            bq_envelope env = decode_text(body);
            assert_true(env.error_offset <= env.len);
        }
    }
}

static void *refuse(void *ptr, size_t size, void *arg)
{
    (void)ptr;
    if (size > 0)
        ++*(int *)arg;
    return NULL;
}

static void decoding_allocates_nothing(void **state)
{
    (void)state;
    int asked = 0;
    bq_set_allocator(refuse, &asked);
    bq_envelope good = decode_text(GOOD), bad = decode_text("{\"job\":\"\\u0061\",\"meta\":{\"id\":[[1e999]]}}");
    bq_set_allocator(NULL, NULL);
    assert_int_equal(good.verdict, BQ_VERDICT_OK);
    assert_int_equal(bad.verdict, BQ_VERDICT_POISON_TYPE);
    assert_int_equal(asked, 0);
}

/* Long members, where the canonical order's quick path meets blocks of every length and alignment. */
static void long_members(void **state)
{
    (void)state;
    static char body[4096], id[600];
    for (size_t len = 0; len < 300; len++) {
        memset(id, 'x', len);
        id[len] = '\0';
        snprintf(
            body, sizeof body,
            "{\"job\":\"u%s\",\"trace_id\":\"%s\\n\",\"data\":{\"%s\":\"%s\"},\"meta\":{\"id\":\"%s\",\"queue\":\"q\","
            "\"lang\":\"c\",\"schema_version\":1,\"created_at\":5},\"attempts\":0}",
            id, id, id, id, id);
        bq_envelope env = decode_text(body);
        assert_int_equal(env.verdict, len ? BQ_VERDICT_OK : BQ_VERDICT_NONCONFORMANT);
        assert_int_equal(bq_envelope_raw(&env, BQ_FIELD_URN).len, len + 1);
        assert_int_equal(bq_envelope_raw(&env, BQ_FIELD_TRACE_ID).len, len + 2);
        assert_int_equal(bq_envelope_raw(&env, BQ_FIELD_META_ID).len, len);
        assert_int_equal(env.escaped, 1u << BQ_FIELD_TRACE_ID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth),
        cmocka_unit_test(mixed_nesting),
        cmocka_unit_test(a_million_deep_on_a_small_stack),
        cmocka_unit_test(every_length),
        cmocka_unit_test(every_prefix_with_a_sentinel),
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(long_members),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
