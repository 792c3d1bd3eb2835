/*
 * The decoder against the model of decode_model.h on bodies that are grown from the grammar, with our names at any
 * place, of any type, repeated and escaped, and then mutated byte by byte. Every body ends where its page ends.
 */
#include "unit/cmocka_all.h"

#include "base/buf.h"
#include "unit/contract/decode_model.h"
#include "unit/guarded.h"

#include <stdio.h>
#include <string.h>

static uint64_t random_state;

static uint32_t rnd(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 11) % below);
}

#define PICK(list) (list)[rnd(sizeof(list) / sizeof((list)[0]))]

static void text(bq_buf *out, const char *s)
{
    bq_buf_add(out, s, strlen(s));
}

static void blanks(bq_buf *out)
{
    static const char *const SPACES[] = {"", "", "", "", "", " ", "\n", "\r\n\t", "    ", "\n                    "};
    text(out, PICK(SPACES));
}

static void string_body(bq_buf *out)
{
    static const char *const PARTS[] = {"a",
                                        "order",
                                        "urn:babel:orders:created",
                                        "\\n",
                                        "\\\"",
                                        "\\\\",
                                        "\\/",
                                        "\\u0020",
                                        "\\u000b",
                                        "\\b",
                                        "\\ud83d\\ude9a",
                                        "\\ud800",
                                        "\\udc00",
                                        "\xD0\xB6",
                                        "\xE2\x82\xAC",
                                        "\xF0\x9F\x9A\x9A",
                                        " ",
                                        "}",
                                        "{\\\"job\\\":1}",
                                        "0123456789abcdef"};
    for (uint32_t n = rnd(6); n > 0; n--)
        text(out, PICK(PARTS));
}

static void number(bq_buf *out)
{
    static const char *const NUMBERS[] = {"0",
                                          "1",
                                          "1",
                                          "1",
                                          "-1",
                                          "7",
                                          "42",
                                          "-0",
                                          "1.0",
                                          "1e0",
                                          "0.5",
                                          "1E+2",
                                          "1e-400",
                                          "1e400",
                                          "-1e309",
                                          "1.7976931348623157e308",
                                          "1.7976931348623159e308",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "-9223372036854775809",
                                          "1234567890123456789",
                                          "12345678901234567890123",
                                          "1784000000000",
                                          "123456789012345.5",
                                          "1234567890123456.25"};
    text(out, PICK(NUMBERS));
}

static void value(bq_buf *out, unsigned depth);

static const char *const NAMES[] = {"job",         "urn",       "trace_id", "data",      "meta",      "attempts",
                                    "dead_letter", "timestamp", "id",       "queue",     "lang",      "schema_version",
                                    "created_at",  "reason",    "error",    "exception", "failed_at", "original_queue",
                                    "max_retries", "source",    "ts",       "x",         "",          "Job"};

static void name(bq_buf *out)
{
    const char *s = PICK(NAMES);
    bq_buf_add_byte(out, '"');
    bool escape = rnd(12) == 0;
    for (; *s; s++) {
        if (escape && rnd(3) == 0)
            bq_buf_addf(out, rnd(2) ? "\\u%04x" : "\\u%04X", (unsigned)*s);
        else
            bq_buf_add_byte(out, *s);
    }
    if (rnd(40) == 0)
        string_body(out);
    bq_buf_add_byte(out, '"');
}

static void member(bq_buf *out, unsigned depth)
{
    name(out);
    blanks(out);
    bq_buf_add_byte(out, ':');
    blanks(out);
    value(out, depth);
    blanks(out);
}

static void value(bq_buf *out, unsigned depth)
{
    static const char *const WORDS[] = {"null", "true", "false"};
    uint32_t kind = rnd(depth > 4 ? 6 : 10);
    if (kind < 3) {
        bq_buf_add_byte(out, '"');
        string_body(out);
        bq_buf_add_byte(out, '"');
    } else if (kind < 5) {
        number(out);
    } else if (kind == 5) {
        text(out, PICK(WORDS));
    } else {
        bool object = kind > 6;
        bq_buf_add_byte(out, object ? '{' : '[');
        blanks(out);
        for (uint32_t n = rnd(4), i = 0; i < n; i++) {
            if (i > 0) {
                bq_buf_add_byte(out, ',');
                blanks(out);
            }
            if (object)
                member(out, depth + 1);
            else
                value(out, depth + 1);
            blanks(out);
        }
        bq_buf_add_byte(out, object ? '}' : ']');
    }
}

/* An envelope in canonical order whose members may each be left out, odd, or doubled. */
static void envelope(bq_buf *out)
{
    static const char *const GOOD[] = {
        "\"job\":\"urn:babel:orders:created\"", "\"trace_id\":\"0190f2c4-7a5b-7c3d-8e9f-0a1b2c3d4e5f\"",
        "\"data\":{\"order_id\":1042,\"amount\":99.9,\"lines\":[1,2,{\"sku\":\"A-1\"}]}",
        ("\"meta\":{\"id\":\"f1e2d3c4-b5a6-4789-90ab-cdef01234567\",\"queue\":\"orders\",\"lang\":\"c\","
         "\"schema_version\":1,\"created_at\":1784000000000}"),
        "\"attempts\":0"};
    bool first = true;
    bq_buf_add_byte(out, '{');
    for (size_t i = 0; i < 5; i++) {
        uint32_t fate = rnd(12);
        if (fate == 0)
            continue;
        if (!first)
            bq_buf_add_byte(out, ',');
        first = false;
        text(out, GOOD[i]);
        for (; fate <= 2; fate++) {
            bq_buf_add_byte(out, ',');
            member(out, 1);
        }
    }
    if (rnd(6) == 0) {
        if (!first)
            bq_buf_add_byte(out, ',');
        text(out,
             "\"dead_letter\":{\"reason\":\"failed\",\"error\":null,\"exception\":null,\"failed_at\":1784000000000,"
             "\"original_queue\":\"orders\",\"attempts\":3,\"lang\":\"c\"}");
    }
    bq_buf_add_byte(out, '}');
}

static void mutate(bq_buf *body)
{
    static const char BYTES[] = "\"\\{}[]:,0189-+.eEutfn \n\t\x01\x1f\x7f\x80\xbf\xc0\xc2\xe0\xed\xf0\xf4\xff";
    for (uint32_t n = 1 + rnd(2); n > 0 && body->len > 0; n--) {
        size_t at = rnd((uint32_t)body->len);
        char *p = body->ptr + at;
        switch (rnd(4)) {
        case 0: *p = BYTES[rnd(sizeof BYTES - 1)]; break;
        case 1: *p = (char)rnd(256); break;
        case 2:
            memmove(p, p + 1, body->len - at - 1);
            bq_buf_truncate(body, body->len - 1);
            break;
        default: {
            char moved = *p;
            bq_buf_add_byte(body, '\0');
            p = body->ptr + at;
            memmove(p + 1, p, body->len - at - 1);
            *p = rnd(2) ? moved : BYTES[rnd(sizeof BYTES - 1)];
            break;
        }
        }
    }
    if (rnd(20) == 0)
        bq_buf_truncate(body, rnd((uint32_t)body->len + 1));
}

static void check(guarded *g, const bq_buf *body)
{
    model m;
    bq_envelope env;
    assert_true(body->len <= g->room);
    const char *bytes = guarded_end(g, body->ptr, body->len);
    model_decode(&m, bytes, body->len);
    bq_envelope_decode(&env, bytes, body->len);
    const char *what = model_differs(&m, &env);
    if (what)
        fail_msg("%s: %.*s", what, (int)body->len, bytes);
    model_clear(&m);
}

static void bodies(uint64_t seed, int count, unsigned verdicts[BQ_VERDICT_COUNT_])
{
    guarded g = guarded_new(1 << 20);
    bq_buf body;
    bq_buf_init(&body, 1 << 20);
    random_state = seed;
    for (int i = 0; i < count; i++) {
        bq_envelope env;
        bq_buf_reset(&body);
        if (rnd(3) == 0)
            blanks(&body);
        if (rnd(3) == 0)
            value(&body, 0);
        else
            envelope(&body);
        if (rnd(3) == 0)
            blanks(&body);
        check(&g, &body);
        verdicts[bq_envelope_decode(&env, body.ptr, body.len)]++;
        mutate(&body);
        check(&g, &body);
        verdicts[bq_envelope_decode(&env, body.ptr, body.len)]++;
    }
    bq_buf_clear(&body);
    guarded_free(&g);
}

static void agrees_with_the_model(void **state)
{
    (void)state;
    unsigned verdicts[BQ_VERDICT_COUNT_] = {0};
    bodies(UINT64_C(0x9E3779B97F4A7C15), 30000, verdicts);
    for (int i = 0; i < BQ_VERDICT_COUNT_; i++) {
        print_message("%-16s %u\n", bq_verdict_name((bq_verdict)i), verdicts[i]);
        assert_true(verdicts[i] > 200); /* every verdict was really met */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
