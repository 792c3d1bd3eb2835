/*
 * contract/record.c - the record of a poison body on the dead-letter queue (contract 4).
 *
 * Spliced, a strict JSON object keeps every byte and gets one member more. Everything else is wrapped: its text as a
 * JSON string, or the base64 of its bytes when they are not UTF-8, so that nothing is ever substituted.
 *
 * Thread rule: pure functions over the caller's buffer.
 */
#include <babelqueue/json.h>

#include "base/error.h"
#include "contract/props.h"
#include "contract/splice.h"

#define ERROR_PREFIX "Undecodable BabelQueue body: "

const char *bq_reason_name(bq_reason reason)
{
    switch (reason) {
    case BQ_REASON_FAILED: return "failed";
    case BQ_REASON_UNKNOWN_URN: return "unknown_urn";
    case BQ_REASON_POISON: return "poison";
    }
    return "failed";
}

bq_status bq_poison_error(const bq_envelope *env, bq_buf *out)
{
    size_t before = out->len;
    bq_buf_add_lit(out, ERROR_PREFIX);
    bq_buf_add_str(out, bq_str_of(bq_envelope_reason(env)));
    return bq_splice_finish(out, before, NULL);
}

/* Standard base64 with padding. */
static void add_base64(bq_buf *out, const uint8_t *p, size_t len)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t bits = (uint32_t)p[i] << 16;
        bits |= left > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        bits |= left > 2 ? p[i + 2] : 0;
        char text[4] = {DIGITS[bits >> 18], DIGITS[bits >> 12 & 63], left > 1 ? DIGITS[bits >> 6 & 63] : '=',
                        left > 2 ? DIGITS[bits & 63] : '='};
        bq_buf_add(out, text, sizeof text);
    }
}

static bool can_splice(const bq_envelope *env, unsigned flags)
{
    if (!bq_is_object(env) || env->seen & BQ_SEEN_LONE_SURROGATE)
        return false;
    if (flags & BQ_RECORD_KAFKA)
        return !(env->seen & BQ_SEEN_NONFINITE);
    return !(env->seen & BQ_SEEN_DEAD_LETTER);
}

/* Without the white space around the object; on Kafka an old dead_letter goes (every one of them), nothing else. */
static void splice(const bq_envelope *env, const bq_dead_letter *dl, bq_buf *out)
{
    bq_splice s = {env->body, 0, out};
    while (env->body[s.done] != '{')
        s.done++;
    size_t brace = bq_closing_brace(env);
    bool any = bq_has_members(env, brace);
    if (env->seen & BQ_SEEN_DEAD_LETTER) {
        bq_pass pass = BQ_PASS_INIT(&s);
        bq_members it;
        bq_member m;
        bq_members_start(&it, env->body, env->len, s.done);
        while (bq_members_next(&it, &m)) {
            if (bq_member_is(env->body, &m, BQ_STR("dead_letter")))
                bq_pass_drop(&pass, &m);
            else
                bq_pass_keep(&pass, &m);
        }
        bq_pass_end(&pass);
        any = pass.kept;
    }
    bq_splice_keep(&s, brace);
    if (any)
        bq_buf_add_byte(out, ',');
    bq_add_dead_letter(out, dl, BQ_REASON_POISON);
    bq_buf_add_byte(out, '}');
}

static void wrap(const bq_envelope *env, const bq_dead_letter *dl, bq_buf *out)
{
    if (env->verdict == BQ_VERDICT_POISON_UTF8) {
        bq_buf_add_lit(out, "{\"raw\":\"");
        add_base64(out, (const uint8_t *)env->body, env->len);
        bq_buf_add_lit(out, "\",\"raw_encoding\":\"base64\",");
    } else {
        bq_buf_add_lit(out, "{\"raw\":");
        bq_json_add_string(out, (bq_str){env->body, env->len});
        bq_buf_add_byte(out, ',');
    }
    bq_add_dead_letter(out, dl, BQ_REASON_POISON);
    bq_buf_add_byte(out, '}');
}

bq_status bq_record_poison(const bq_envelope *env, const bq_dead_letter *dl, unsigned flags, bq_buf *out, bq_error *err)
{
    size_t before = out->len;
    bq_buf_hint(out, env->len + bq_dead_letter_size(dl));
    if (can_splice(env, flags))
        splice(env, dl, out);
    else
        wrap(env, dl, out);
    return bq_splice_finish(out, before, err);
}
