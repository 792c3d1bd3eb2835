/*
 * fuzz_record.c - any bytes as a poison body (contract 4): its record keeps every byte, spliced or wrapped, and is one
 * JSON object that ends in its dead_letter. The pure functions of the binding table see the same body, with the first
 * bytes of it as properties.
 */
#include <babelqueue/binding.h>
#include <babelqueue/json.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* In valid JSON a backslash stands only in strings. */
static bool has_lone_surrogate(const uint8_t *p, size_t len)
{
    unsigned long high_at = 0, high = 0;
    for (size_t i = 0; i + 1 < len; i++) {
        if (p[i] != '\\')
            continue;
        unsigned long unit = 0;
        if (p[i + 1] == 'u') {
            char hex[5] = {0};
            memcpy(hex, p + i + 2, 4);
            unit = strtoul(hex, NULL, 16);
        }
        bool pair = high && i == high_at + 6;
        if (high && !(pair && unit >= 0xDC00 && unit <= 0xDFFF))
            return true;
        if (!high && unit >= 0xDC00 && unit <= 0xDFFF)
            return true;
        high = unit >= 0xD800 && unit <= 0xDBFF ? 1 : 0;
        high_at = i;
        i += p[i + 1] == 'u' ? 5 : 1;
    }
    return high != 0;
}

static bool has_dead_letter(bq_json *doc)
{
    size_t it = 0;
    bq_json_ref key, value;
    while (bq_json_next(doc, BQ_JSON_ROOT, &it, &key, &value)) {
        bq_str text;
        if (bq_json_text(doc, key, &text, NULL) == BQ_OK && bq_str_equal(text, BQ_STR("dead_letter")))
            return true;
    }
    return false;
}

/* Contract 4's conditions, from the tape and the text. */
static bool should_splice(const bq_envelope *env, unsigned flags, const uint8_t *data, size_t size)
{
    bq_json doc;
    bq_json_init(&doc);
    bool splice = bq_json_parse(&doc, (bq_str){(const char *)data, size}, NULL) == BQ_OK &&
                  bq_json_typeof(&doc, BQ_JSON_ROOT) == BQ_JSON_OBJECT && !has_lone_surrogate(data, size);
    if (splice && (flags & BQ_RECORD_KAFKA))
        splice = !(env->seen & BQ_SEEN_NONFINITE);
    else if (splice)
        splice = !has_dead_letter(&doc);
    bq_json_clear(&doc);
    return splice;
}

static size_t from_base64(bq_str text, uint8_t *out)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    REQUIRE(text.len % 4 == 0);
    for (size_t i = 0; i < text.len; i += 4) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            const char *digit = text.ptr[i + k] == '=' ? DIGITS : memchr(DIGITS, text.ptr[i + k], 64);
            REQUIRE(digit);
            bits = bits << 6 | (uint32_t)(digit - DIGITS);
        }
        size_t bytes = text.ptr[i + 2] == '=' ? 1 : text.ptr[i + 3] == '=' ? 2 : 3;
        for (size_t k = 0; k < bytes; k++)
            out[n++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    return n;
}

static void check_wrapped(bq_json *record, const uint8_t *data, size_t size)
{
    bq_str raw;
    bq_json_ref encoding = bq_json_member(record, BQ_JSON_ROOT, BQ_STR("raw_encoding"));
    REQUIRE(bq_json_text(record, bq_json_member(record, BQ_JSON_ROOT, BQ_STR("raw")), &raw, NULL) == BQ_OK);
    if (encoding == BQ_JSON_MISSING) {
        REQUIRE(raw.len == size && (size == 0 || memcmp(raw.ptr, data, size) == 0));
        return;
    }
    uint8_t *back = malloc(raw.len + 1);
    REQUIRE(back && from_base64(raw, back) == size && memcmp(back, data, size) == 0);
    free(back);
}

/* The body without the white space around it and its brace, then the dead_letter. */
static void check_spliced(const bq_envelope *env, const bq_buf *out, const uint8_t *data, size_t size)
{
    if (env->seen & BQ_SEEN_DEAD_LETTER)
        return; /* Kafka replaced one: fuzz_rewrite compares members */
    while (size > 0 && memchr(" \t\r\n", data[size - 1], 4))
        size--;
    while (size > 0 && memchr(" \t\r\n", data[0], 4)) {
        data++;
        size--;
    }
    REQUIRE(out->len > size && memcmp(out->ptr, data, size - 1) == 0);
    const char *rest = out->ptr + size - 1;
    REQUIRE(strncmp(rest, ",\"dead_letter\":", 15) == 0 || strncmp(rest, "\"dead_letter\":", 14) == 0);
}

static void check_record(const bq_envelope *env, unsigned flags, const uint8_t *data, size_t size)
{
    const bq_dead_letter dl = {.error = {"e", 1}, .attempts = 1, .original_queue = {"q", 1}};
    bq_buf out;
    bq_json record;
    bq_str reason;
    bq_buf_init(&out, 0);
    bq_json_init(&record);
    REQUIRE(bq_record_poison(env, &dl, flags, &out, NULL) == BQ_OK);
    REQUIRE(bq_json_parse(&record, bq_buf_str(&out), NULL) == BQ_OK);
    bq_json_ref member = bq_json_pointer(&record, BQ_JSON_ROOT, BQ_STR("/dead_letter/reason"));
    REQUIRE(bq_json_text(&record, member, &reason, NULL) == BQ_OK && bq_str_equal(reason, BQ_STR("poison")));
    if (should_splice(env, flags, data, size))
        check_spliced(env, &out, data, size);
    else
        check_wrapped(&record, data, size);
    bq_json_clear(&record);
    bq_buf_clear(&out);
}

/* Nothing of this may read out of bounds, whatever the bytes are; projected texts are not empty. */
static void check_binding(const bq_binding *binding, const bq_envelope *env, const uint8_t *data, size_t size)
{
    bq_str text = {(const char *)data, size < 80 ? size : 80}, out;
    bq_prop props[4] = {
        {.type = BQ_PROP_BINARY, .name = bq_str_of(binding->gate_name), .text = text},
        {.type = BQ_PROP_STRING, .name = bq_str_of(binding->attempts_name), .text = text},
        {.type = BQ_PROP_STRING, .place = BQ_PLACE_NATIVE, .name = BQ_STR("type"), .text = text},
        {.type = size % 2 ? BQ_PROP_NULL : BQ_PROP_INT, .name = text},
    };
    bq_prop copied[4 + BQ_PROJECTED_MAX];
    size_t count;
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    if (bq_gate(binding, props, 4, &out, &scratch))
        REQUIRE(out.len > 0 && out.len <= 4 * 64 + 3);
    REQUIRE(bq_reconcile(binding, env, props, 4, (int64_t)size) >= 0);
    REQUIRE(bq_route_of(binding, env, props, 4, &scratch, &out) == BQ_OK);
    REQUIRE(bq_original_queue(binding, size % 2, env, props, 4, text, &scratch, &out) == BQ_OK);
    REQUIRE(!bq_is_poison(binding, env) || env->verdict != BQ_VERDICT_OK || (env->seen & BQ_SEEN_JOB_BAD_TYPE));
    for (int kind = BQ_COPY_RETRY; kind <= BQ_COPY_RELEASE; kind++) {
        bq_buf_reset(&scratch);
        REQUIRE(bq_copy_props(binding, (bq_copy)kind, env, 1, props, 4, copied, 4 + BQ_PROJECTED_MAX, &count, &scratch,
                              NULL) == BQ_OK);
        REQUIRE(count <= 4 + BQ_PROJECTED_MAX);
    }
    bq_buf_clear(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bq_envelope env;
    bq_envelope_decode(&env, data, size);
    check_record(&env, 0, data, size);
    check_record(&env, BQ_RECORD_KAFKA, data, size);
    size_t bindings = 0;
    while (bq_binding_at(bindings))
        bindings++;
    check_binding(bq_binding_at((size + (size ? data[size / 2] : 0)) % bindings), &env, data, size); /* one each time */
    return 0;
}
