/*
 * contract/rewrite.c - writing a received envelope again: retry, the record on the dead-letter queue, redrive
 * (contract 1 "byte preservation", section 4, section 6).
 *
 * A rewrite is a splice. Where decoding saw nothing that has to go, the spans of the envelope say where the one
 * replaced number is, and the rewrite is a copy around it. Otherwise the members of the body, and those of `meta`, are
 * walked once more:
 *
 *   attempts      every occurrence gets the new count; missing, it is appended
 *   dead_letter   goes when a new one comes (appended last) or on a redrive
 *   urn           the identity's member gets the key `job`, every other one goes
 *   job           goes when `urn` is the identity: it was not valid, and a later one must not override
 *   timestamp, and meta's max_retries, attempts, source, ts: go
 *
 * Appended members stand right before the closing brace, behind the white space that was there.
 *
 * Thread rule: pure functions over the caller's buffer.
 */
#include <babelqueue/json.h>

#include <string.h>

#include "base/error.h"
#include "contract/props.h"
#include "contract/splice.h"

typedef struct rewrite {
    const bq_envelope *env;
    bq_splice s;
    char digits[20]; /* the new count */
    size_t digit_count;
    bool drop_dead_letter;
    const bq_dead_letter *dl; /* NULL: none is appended */
    size_t identity;          /* offset of the value of the `urn` member that is the identity; SIZE_MAX: none is */
    bool has_attempts;
    unsigned dropped;
} rewrite;

static bq_str digits_of(const rewrite *w)
{
    return (bq_str){w->digits, w->digit_count};
}

static void set_digits(rewrite *w, int64_t count)
{
    char reversed[sizeof w->digits];
    size_t n = 0;
    do {
        reversed[n++] = (char)('0' + count % 10);
        count /= 10;
    } while (count > 0);
    w->digit_count = n;
    for (size_t i = 0; i < n; i++)
        w->digits[i] = reversed[n - 1 - i];
}

/* What is appended last, and the closing brace with the rest. `any` = a member stands before. */
static void append_and_close(rewrite *w, size_t brace, bool any)
{
    bq_splice_keep(&w->s, brace);
    if (!w->has_attempts) {
        if (any)
            bq_buf_add_byte(w->s.out, ',');
        bq_buf_add_lit(w->s.out, "\"attempts\":");
        bq_buf_add_str(w->s.out, digits_of(w));
        any = true;
    }
    if (w->dl) {
        if (any)
            bq_buf_add_byte(w->s.out, ',');
        bq_add_dead_letter(w->s.out, w->dl, w->dl->reason);
    }
    bq_splice_keep(&w->s, w->env->len);
}

/* ---- the short way ----------------------------------------------------------------------------------------------- */

static bool is_plain(const rewrite *w)
{
    unsigned in_the_way = BQ_SEEN_REPEATED | BQ_SEEN_FORBIDDEN | BQ_SEEN_URN_MEMBER;
    if (w->drop_dead_letter)
        in_the_way |= BQ_SEEN_DEAD_LETTER;
    return !(w->env->seen & in_the_way);
}

/* One number is all that changes: the case that a retry is made of, so it goes without the splice's bookkeeping. */
static void replace_number(const rewrite *w, size_t off, size_t len)
{
    const bq_envelope *env = w->env;
    bq_buf *out = w->s.out;
    size_t after = off + len, total = env->len - len + w->digit_count;
    if (bq_buf_reserve(out, total) != BQ_OK)
        return;
    char *to = out->ptr + out->len;
    memcpy(to, env->body, off);
    memcpy(to + off, w->digits, w->digit_count);
    memcpy(to + off + w->digit_count, env->body + after, env->len - after);
    to[total] = '\0';
    out->len += total;
}

static void rewrite_plain(rewrite *w)
{
    uint32_t bit = (uint32_t)1 << BQ_FIELD_ATTEMPTS;
    size_t off = w->env->span[BQ_FIELD_ATTEMPTS].off, len = w->env->span[BQ_FIELD_ATTEMPTS].len;
    w->has_attempts = ((w->env->present | w->env->is_null) & bit) != 0;
    if (w->has_attempts && !w->dl) {
        replace_number(w, off, len);
        return;
    }
    bq_buf_hint(w->s.out, w->env->len + 40 + (w->dl ? bq_dead_letter_size(w->dl) : 0));
    if (w->has_attempts)
        bq_splice_replace(&w->s, off, off + len, digits_of(w));
    size_t brace = bq_closing_brace(w->env);
    append_and_close(w, brace, w->has_attempts || bq_has_members(w->env, brace));
}

/* ---- the long way ------------------------------------------------------------------------------------------------ */

static void rewrite_meta(rewrite *w, size_t object)
{
    static const struct {
        const char *name;
        unsigned bit;
    } FORBIDDEN[] = {
        {"max_retries", BQ_DROPPED_META_MAX_RETRIES},
        {"attempts", BQ_DROPPED_META_ATTEMPTS},
        {"source", BQ_DROPPED_META_SOURCE},
        {"ts", BQ_DROPPED_META_TS},
    };
    const size_t count = sizeof FORBIDDEN / sizeof FORBIDDEN[0];
    bq_pass pass = BQ_PASS_INIT(&w->s);
    bq_members it;
    bq_member m;
    bq_members_start(&it, w->env->body, w->env->len, object);
    while (bq_members_next(&it, &m)) {
        size_t i = 0;
        while (i < count && !bq_member_is(w->env->body, &m, bq_str_of(FORBIDDEN[i].name)))
            i++;
        if (i == count) {
            bq_pass_keep(&pass, &m);
            continue;
        }
        bq_pass_drop(&pass, &m);
        w->dropped |= FORBIDDEN[i].bit;
    }
    bq_pass_end(&pass);
}

static void rewrite_urn(rewrite *w, bq_pass *pass, const bq_member *m)
{
    if (m->value == w->identity) {
        bq_pass_keep(pass, m);
        bq_splice_replace(&w->s, m->off, m->key + m->key_len + 1, BQ_STR("\"job\""));
        return;
    }
    bq_pass_drop(pass, m);
    w->dropped |= BQ_DROPPED_URN;
}

static void rewrite_member(rewrite *w, bq_pass *pass, const bq_member *m)
{
    const char *body = w->env->body;
    if (bq_member_is(body, m, BQ_STR("attempts"))) {
        bq_pass_keep(pass, m);
        bq_splice_replace(&w->s, m->value, m->value + m->value_len, digits_of(w));
        w->has_attempts = true;
    } else if (bq_member_is(body, m, BQ_STR("meta")) && body[m->value] == '{') {
        bq_pass_keep(pass, m);
        rewrite_meta(w, m->value);
    } else if (bq_member_is(body, m, BQ_STR("urn"))) {
        rewrite_urn(w, pass, m);
    } else if (bq_member_is(body, m, BQ_STR("timestamp"))) {
        bq_pass_drop(pass, m);
        w->dropped |= BQ_DROPPED_TIMESTAMP;
    } else if ((w->drop_dead_letter && bq_member_is(body, m, BQ_STR("dead_letter"))) ||
               (w->identity != SIZE_MAX && bq_member_is(body, m, BQ_STR("job")))) {
        bq_pass_drop(pass, m);
    } else {
        bq_pass_keep(pass, m);
    }
}

static void rewrite_members(rewrite *w)
{
    bq_pass pass = BQ_PASS_INIT(&w->s);
    bq_members it;
    bq_member m;
    size_t object = 0;
    while (w->env->body[object] != '{')
        object++;
    bq_members_start(&it, w->env->body, w->env->len, object);
    while (bq_members_next(&it, &m))
        rewrite_member(w, &pass, &m);
    bq_pass_end(&pass);
    append_and_close(w, bq_members_end(&it), pass.kept);
}

/* ---- entry ------------------------------------------------------------------------------------------------------- */

static bool is_rewritable(const bq_envelope *env)
{
    return env->verdict == BQ_VERDICT_OK || env->verdict == BQ_VERDICT_NONCONFORMANT ||
           env->verdict == BQ_VERDICT_POISON_IDENTITY;
}

static size_t urn_identity(const bq_envelope *env)
{
    if (!bq_envelope_has(env, BQ_FIELD_URN))
        return SIZE_MAX;
    size_t off = env->span[BQ_FIELD_URN].off;
    if (bq_envelope_has(env, BQ_FIELD_JOB) && env->span[BQ_FIELD_JOB].off == off)
        return SIZE_MAX;
    return off - 1; /* of the quote */
}

static bq_status run(const bq_envelope *env, int64_t attempts, bool drop_dead_letter, const bq_dead_letter *dl,
                     bq_buf *out, unsigned *dropped, bq_error *err)
{
    if (dropped)
        *dropped = 0;
    if (attempts < 0)
        return bq_fail(err, BQ_INVALID, "attempts below 0");
    if (!is_rewritable(env))
        return bq_fail(err, BQ_DATA, "not an envelope: %s", bq_envelope_reason(env));
    size_t before = out->len;
    rewrite w = {.env = env, .s = {env->body, 0, out}, .drop_dead_letter = drop_dead_letter, .dl = dl};
    set_digits(&w, attempts);
    if (is_plain(&w)) {
        rewrite_plain(&w);
    } else {
        bq_buf_hint(out, env->len + 40 + (dl ? bq_dead_letter_size(dl) : 0));
        w.identity = urn_identity(env);
        rewrite_members(&w);
    }
    bq_status status = bq_splice_finish(out, before, err);
    if (status == BQ_OK && dropped)
        *dropped = w.dropped;
    return status;
}

bq_status bq_rewrite_attempts(const bq_envelope *env, int64_t attempts, bq_buf *out, unsigned *dropped, bq_error *err)
{
    if (env->seen & BQ_SEEN_NULL_ROOT) { /* contract 7.8: its retry copy is `null` again */
        size_t before = out->len;
        if (dropped)
            *dropped = 0;
        bq_buf_add(out, env->body, env->len);
        return bq_splice_finish(out, before, err);
    }
    return run(env, attempts, false, NULL, out, dropped, err);
}

bq_status bq_rewrite_redrive(const bq_envelope *env, bq_buf *out, unsigned *dropped, bq_error *err)
{
    return run(env, 0, true, NULL, out, dropped, err);
}

bq_status bq_record_envelope(const bq_envelope *env, const bq_dead_letter *dl, bq_buf *out, unsigned *dropped,
                             bq_error *err)
{
    if (env->seen & BQ_SEEN_NULL_ROOT) { /* contract 7.8 */
        size_t before = out->len;
        if (dropped)
            *dropped = 0;
        bq_buf_add_lit(out, "{\"raw\":");
        bq_json_add_string(out, (bq_str){env->body, env->len});
        bq_buf_add_byte(out, ',');
        bq_add_dead_letter(out, dl, dl->reason);
        bq_buf_add_byte(out, '}');
        return bq_splice_finish(out, before, err);
    }
    return run(env, dl->attempts, true, dl, out, dropped, err);
}

const char *bq_dropped_pointer(unsigned bit)
{
    switch (bit) {
    case BQ_DROPPED_TIMESTAMP: return "/timestamp";
    case BQ_DROPPED_META_MAX_RETRIES: return "/meta/max_retries";
    case BQ_DROPPED_META_ATTEMPTS: return "/meta/attempts";
    case BQ_DROPPED_META_SOURCE: return "/meta/source";
    case BQ_DROPPED_META_TS: return "/meta/ts";
    case BQ_DROPPED_URN: return "/urn";
    default: return "";
    }
}
