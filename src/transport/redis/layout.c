/* redis/layout.c - the keys and arguments of the two layouts (contract 7.1, 7.2). See redis.h. */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"

#include <stdio.h>
#include <string.h>

/* ---- keys --------------------------------------------------------------------------------------------------------- */

bq_status bq_rd_keys_make(const rd_options *options, bq_str queue, rd_keys *out)
{
    bool laravel = options->layout == RD_LARAVEL;
    const char *prefix = laravel && options->prefix ? options->prefix : "";
    const char *suffix = options->processing_suffix ? options->processing_suffix : ":processing";
    const char *const parts[4][2] = {
        {"", ""},
        {laravel ? ":reserved" : suffix, ""},
        {laravel ? ":delayed" : suffix, laravel ? "" : ":deadlines"},
        {laravel ? ":notify" : suffix, laravel ? "" : ":lapses"},
    };
    bq_buf text;
    size_t end[5] = {0};
    bq_buf_init(&text, 0);
    for (size_t i = 0; i < 4; i++) {
        (void)bq_buf_addf(&text, "%s", prefix);
        (void)bq_buf_add_str(&text, queue);
        (void)bq_buf_addf(&text, "%s%s", parts[i][0], parts[i][1]);
        end[i + 1] = text.len;
    }
    if (text.failed) {
        bq_buf_clear(&text);
        return BQ_NOMEM;
    }
    size_t len;
    out->storage = bq_buf_take(&text, &len);
    for (size_t i = 0; i < 4; i++)
        out->key[i] = (bq_str){out->storage + end[i], end[i + 1] - end[i]};
    return BQ_OK;
}

void bq_rd_keys_clear(rd_keys *keys)
{
    bq_free(keys->storage);
    *keys = (rd_keys){0};
}

void bq_rd_arg_script(rd_args *args, rd_script script, size_t keys)
{
    bq_rd_args_reset(args);
    rd_arg_lit(args, "EVALSHA");
    bq_rd_arg(args, (bq_str){bq_rd_scripts[script].sha1, 40});
    bq_rd_arg_int(args, (int64_t)keys);
}

void bq_rd_arg_keys(rd_args *args, const rd_keys *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bq_rd_arg(args, keys->key[i]);
}

void bq_rd_arg_ready(rd_transport *t, rd_args *args, bq_str queue, bool notify)
{
    if (!rd_laravel(t)) {
        bq_rd_arg(args, queue);
        return;
    }
    size_t begun = bq_rd_arg_begin(args);
    (void)bq_buf_addf(&args->own, "%s", t->options->prefix ? t->options->prefix : "");
    (void)bq_buf_add_str(&args->own, queue);
    if (notify)
        (void)bq_buf_add_lit(&args->own, ":notify");
    bq_rd_arg_end(args, begun);
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

void bq_rd_arg_element(rd_transport *t, rd_args *args, const bq_outgoing *out)
{
    if (rd_laravel(t) || !bq_rd_frame_needed(out->body, out->props, out->prop_count)) {
        bq_rd_arg(args, out->body);
        return;
    }
    size_t begun = bq_rd_arg_begin(args);
    if (bq_rd_frame_make(out->body, out->props, out->prop_count, &args->own, NULL) != BQ_OK)
        args->failed = true;
    bq_rd_arg_end(args, begun);
}

/* Whole seconds, as the scores are; never shorter than what was asked for. */
static int64_t lease_seconds(const rd_transport *t)
{
    return (t->options->retry_after_ms + 999) / 1000;
}

void bq_rd_arg_lease(const rd_transport *t, rd_args *args)
{
    if (t->options->retry_after_ms < 0)
        rd_arg_lit(args, "+inf");
    else
        bq_rd_arg_int(args, lease_seconds(t));
}

void bq_rd_lease_from(const rd_transport *t, rd_delivery *d, int64_t sent_ms, int64_t server_ms)
{
    if (t->options->retry_after_ms < 0) {
        d->held.in.lease_until_ms = 0;
        return;
    }
    d->score = server_ms / 1000 + lease_seconds(t);
    int64_t deadline = d->score * 1000;
    /* Counted from when the command was sent: the server looked at its clock later than that. What was known before
     * holds as well, and the latest of such bounds is the best. */
    int64_t until = sent_ms + (deadline - server_ms);
    if (until > d->held.in.lease_until_ms)
        d->held.in.lease_until_ms = until;
}

static bq_str member_of(const rd_delivery *d)
{
    return d->member ? (bq_str){d->member, d->member_len} : bq_rd_text(d->raw);
}

void bq_rd_arg_entry(rd_transport *t, rd_args *args, char verb, const rd_delivery *d, const bq_outgoing *out,
                     size_t key)
{
    static const char verbs[] = "arbtde";
    const char *at = strchr(verbs, verb);
    bq_rd_arg(args, (bq_str){at, 1});
    if (rd_laravel(t)) {
        bq_rd_arg(args, member_of(d));
        if (d->score > 0)
            bq_rd_arg_int(args, d->score);
        else
            rd_arg_lit(args, "");
        if (verb == 'r' || verb == 'b')
            bq_rd_arg(args, bq_rd_text(d->raw));
    } else {
        bq_rd_arg(args, (bq_str){d->token, 32});
        bq_rd_arg(args, bq_rd_text(d->raw));
        bq_rd_arg_int(args, d->place);
    }
    if (verb == 't' || verb == 'd')
        bq_rd_arg_element(t, args, out);
    if (verb == 't' || verb == 'r')
        bq_rd_arg_int(args, out->delay_ms > 0 ? out->delay_ms : 0);
    if (verb == 'd')
        bq_rd_arg_int(args, (int64_t)key);
}

/* ---- what reserve answers ------------------------------------------------------------------------------------------ */

/* The member whose last digits are one more than the job's (contract 7.2). */
static bool raise_digits(rd_delivery *d)
{
    bq_str job = bq_rd_text(d->raw);
    size_t end = job.len > 0 ? job.len - 1 : 0, begin = end;
    uint64_t value = 0, power = 1;
    char text[24];
    while (begin > 0 && end - begin < 16 && job.ptr[begin - 1] >= '0' && job.ptr[begin - 1] <= '9') {
        begin--;
        value += power * (uint64_t)(job.ptr[begin] - '0');
        power *= 10;
    }
    int digits = snprintf(text, sizeof(text), "%llu}", (unsigned long long)(value + 1));
    d->member_len = begin + (size_t)digits;
    d->member = bq_malloc(d->member_len + 1);
    if (!d->member)
        return false;
    memcpy(d->member, job.ptr, begin);
    memcpy(d->member + begin, text, (size_t)digits + 1);
    return true;
}

static bool read_member(rd_delivery *d, const rd_reply *how)
{
    bq_str text = bq_rd_text(how);
    if (text.ptr) {
        d->member = bq_strndup(text);
        d->member_len = text.len;
        return d->member != NULL;
    }
    return !how || how->type != RD_INTEGER || how->integer != 1 || raise_digits(d);
}

rd_delivery *bq_rd_delivery_read(rd_transport *t, rd_reply *reply, size_t at, size_t index, const rd_expect *expect)
{
    rd_reply *raw = bq_rd_take_at(reply, at);
    if (!raw)
        return NULL;
    rd_delivery *d = bq_rd_delivery_new(t, expect->queue, raw);
    if (!d)
        return NULL;
    bq_rd_lease_from(t, d, expect->sent_ms, bq_rd_int_at(reply, 0, 0));
    if (!rd_laravel(t)) {
        int64_t lapses = bq_rd_int_at(reply, at + 1, 0);
        int64_t all = bq_rd_int_at(reply, 6, 0), count = (int64_t)(reply->count - RD_FIRST_ITEM) / 2;
        d->place = (all > count ? all - count : 0) + (int64_t)index + 1;
        (void)snprintf(d->token, sizeof(d->token), "%.24s%08x", expect->token, (unsigned)(index + 1));
        d->held.in.lapses = lapses < 0 ? 0 : lapses > UINT32_MAX ? UINT32_MAX : (uint32_t)lapses;
    } else if (!read_member(d, bq_rd_at(reply, at + 1))) {
        bq_rd_delivery_free(d);
        return NULL;
    }
    return d;
}
