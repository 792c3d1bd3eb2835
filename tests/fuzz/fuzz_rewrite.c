/*
 * fuzz_rewrite.c - any bytes as a body: what can be rewritten is rewritten in all three ways, and the output is
 * compared with the input member by member, read by the tape (json/tape.c), which the rewrites do not use.
 *
 * Every member is there in its order with its bytes, but those that contract 1 names.
 */
#include <babelqueue/envelope.h>
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

typedef enum op { RETRY, RECORD, REDRIVE } op;

static const bq_dead_letter DL = {.reason = BQ_REASON_FAILED, .error = {"e\xFF", 2}, .attempts = 3, .failed_at = 1};
static const char *const COUNT_OF[] = {"7", "3", "0"};

static bq_status rewrite(op what, const bq_envelope *env, bq_buf *out, unsigned *dropped)
{
    switch (what) {
    case RETRY: return bq_rewrite_attempts(env, 7, out, dropped, NULL);
    case RECORD: return bq_record_envelope(env, &DL, out, dropped, NULL);
    default: return bq_rewrite_redrive(env, out, dropped, NULL);
    }
}

static bool key_is(bq_json *doc, bq_json_ref key, const char *name)
{
    bq_str text;
    return bq_json_text(doc, key, &text, NULL) == BQ_OK && bq_str_equal(text, bq_str_of(name));
}

static bool key_in(bq_json *doc, bq_json_ref key, const char *const *names)
{
    for (; *names; names++) {
        if (key_is(doc, key, *names))
            return true;
    }
    return false;
}

/* Where the identity stands: the value of the `urn` member that is it, NULL when it is `job` or missing. */
static const char *urn_identity(const bq_envelope *env)
{
    bq_str urn = bq_envelope_raw(env, BQ_FIELD_URN), job = bq_envelope_raw(env, BQ_FIELD_JOB);
    return urn.ptr && urn.ptr != job.ptr ? urn.ptr - 1 : NULL;
}

static bool goes(bq_json *in, op what, bq_json_ref key, bq_json_ref value, const char *identity)
{
    static const char *const FORBIDDEN[] = {"timestamp", NULL};
    if (key_in(in, key, FORBIDDEN) || (what != RETRY && key_is(in, key, "dead_letter")))
        return true;
    if (key_is(in, key, "urn"))
        return bq_json_raw(in, value).ptr != identity;
    return identity && key_is(in, key, "job");
}

static void check_meta(bq_json *in, bq_json_ref meta, bq_json *out, bq_json_ref written)
{
    static const char *const FORBIDDEN[] = {"max_retries", "attempts", "source", "ts", NULL};
    size_t it_in = 0, it_out = 0;
    bq_json_ref key, value, key_out, value_out;
    REQUIRE(bq_json_typeof(out, written) == BQ_JSON_OBJECT);
    while (bq_json_next(in, meta, &it_in, &key, &value)) {
        if (key_in(in, key, FORBIDDEN))
            continue;
        REQUIRE(bq_json_next(out, written, &it_out, &key_out, &value_out));
        REQUIRE(bq_str_equal(bq_json_raw(in, key), bq_json_raw(out, key_out)));
        REQUIRE(bq_str_equal(bq_json_raw(in, value), bq_json_raw(out, value_out)));
    }
    REQUIRE(!bq_json_next(out, written, &it_out, &key_out, &value_out));
}

static void check_member(bq_json *in, bq_json_ref key, bq_json_ref value, bq_json *out, bq_json_ref key_out,
                         bq_json_ref value_out, op what)
{
    if (key_is(in, key, "urn"))
        REQUIRE(bq_str_equal(bq_json_raw(out, key_out), BQ_STR("\"job\"")));
    else
        REQUIRE(bq_str_equal(bq_json_raw(in, key), bq_json_raw(out, key_out)));
    if (key_is(in, key, "attempts"))
        REQUIRE(bq_str_equal(bq_json_raw(out, value_out), bq_str_of(COUNT_OF[what])));
    else if (key_is(in, key, "meta") && bq_json_typeof(in, value) == BQ_JSON_OBJECT)
        check_meta(in, value, out, value_out);
    else
        REQUIRE(bq_str_equal(bq_json_raw(in, value), bq_json_raw(out, value_out)));
}

static void check_members(bq_json *in, bq_json *out, op what, const char *identity)
{
    size_t it_in = 0, it_out = 0;
    bool counted = false;
    bq_json_ref key, value, key_out, value_out;
    while (bq_json_next(in, BQ_JSON_ROOT, &it_in, &key, &value)) {
        if (goes(in, what, key, value, identity))
            continue;
        REQUIRE(bq_json_next(out, BQ_JSON_ROOT, &it_out, &key_out, &value_out));
        check_member(in, key, value, out, key_out, value_out, what);
        counted |= key_is(in, key, "attempts");
    }
    if (!counted) {
        REQUIRE(bq_json_next(out, BQ_JSON_ROOT, &it_out, &key_out, &value_out));
        REQUIRE(bq_str_equal(bq_json_raw(out, key_out), BQ_STR("\"attempts\"")));
        REQUIRE(bq_str_equal(bq_json_raw(out, value_out), bq_str_of(COUNT_OF[what])));
    }
    if (what == RECORD) {
        REQUIRE(bq_json_next(out, BQ_JSON_ROOT, &it_out, &key_out, &value_out));
        REQUIRE(bq_str_equal(bq_json_raw(out, key_out), BQ_STR("\"dead_letter\"")));
    }
    REQUIRE(!bq_json_next(out, BQ_JSON_ROOT, &it_out, &key_out, &value_out));
}

/* White space outside of the object survives too. */
static void check_surroundings(const bq_envelope *env, const bq_buf *out)
{
    size_t head = 0, tail = 0;
    while (env->body[head] != '{')
        head++;
    while (env->body[env->len - 1 - tail] != '}')
        tail++;
    REQUIRE(out->len >= head + tail + 2 && memcmp(out->ptr, env->body, head + 1) == 0);
    REQUIRE(memcmp(out->ptr + out->len - tail - 1, env->body + env->len - tail - 1, tail + 1) == 0);
}

static void check_verdict(const bq_envelope *env, const bq_envelope *after)
{
    if (env->verdict == BQ_VERDICT_POISON_IDENTITY)
        REQUIRE(after->verdict == BQ_VERDICT_POISON_IDENTITY);
    else
        REQUIRE(after->verdict == BQ_VERDICT_OK || after->verdict == env->verdict);
    REQUIRE(bq_str_equal(bq_envelope_raw(env, BQ_FIELD_URN), bq_envelope_raw(after, BQ_FIELD_URN)));
    REQUIRE(!(after->seen & (BQ_SEEN_FORBIDDEN | BQ_SEEN_URN_MEMBER)));
}

static void check(const bq_envelope *env, op what)
{
    bq_buf out, again;
    bq_json in_doc, out_doc;
    bq_envelope after;
    unsigned dropped;
    bq_buf_init(&out, 0);
    bq_buf_init(&again, 0);
    bq_json_init(&in_doc);
    bq_json_init(&out_doc);
    REQUIRE(rewrite(what, env, &out, &dropped) == BQ_OK);
    bq_envelope_decode(&after, out.ptr, out.len);
    check_verdict(env, &after);
    check_surroundings(env, &out);
    REQUIRE(bq_json_parse(&in_doc, (bq_str){env->body, env->len}, NULL) == BQ_OK);
    REQUIRE(bq_json_parse(&out_doc, bq_buf_str(&out), NULL) == BQ_OK);
    check_members(&in_doc, &out_doc, what, urn_identity(env));
    REQUIRE(rewrite(what, &after, &again, &dropped) == BQ_OK && dropped == 0);
    if (what != RECORD)
        REQUIRE(bq_str_equal(bq_buf_str(&out), bq_buf_str(&again)));
    bq_json_clear(&in_doc);
    bq_json_clear(&out_doc);
    bq_buf_clear(&out);
    bq_buf_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bq_envelope env;
    bq_verdict verdict = bq_envelope_decode(&env, data, size);
    bool rewritable =
        verdict == BQ_VERDICT_OK || verdict == BQ_VERDICT_NONCONFORMANT || verdict == BQ_VERDICT_POISON_IDENTITY;
    for (int what = RETRY; what <= REDRIVE; what++) {
        if (rewritable) {
            check(&env, (op)what);
        } else if (!(env.seen & BQ_SEEN_NULL_ROOT)) {
            bq_buf out;
            bq_buf_init(&out, 0);
            REQUIRE(rewrite((op)what, &env, &out, NULL) == BQ_DATA && out.len == 0);
            bq_buf_clear(&out);
        }
    }
    return 0;
}
