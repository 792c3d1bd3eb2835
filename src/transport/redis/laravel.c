/* redis/laravel.c - the layout of Laravel's own Redis queue (contract 7.2). See layout.h. */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- keys --------------------------------------------------------------------------------------------------------- */

static const char *prefix_of(const rd_options *options)
{
    return options->prefix ? options->prefix : "";
}

/* Ready, reserved, delayed, notify. */
static bq_status laravel_keys(const rd_options *options, bq_str queue, rd_keys *out)
{
    static const char *const parts[4][2] = {{"", ""}, {":reserved", ""}, {":delayed", ""}, {":notify", ""}};
    return bq_rd_keys_make(prefix_of(options), queue, parts, out);
}

static bq_str laravel_queue_of(const rd_options *options, bq_str key)
{
    size_t len = strlen(prefix_of(options));
    if (key.len <= len || memcmp(key.ptr, prefix_of(options), len) != 0)
        return BQ_STR_NULL;
    key.ptr += len;
    key.len -= len;
    (void)(bq_rd_strip(&key, ":reserved") || bq_rd_strip(&key, ":delayed") || bq_rd_strip(&key, ":notify"));
    return key;
}

/* ---- commands ----------------------------------------------------------------------------------------------------- */

/* The list that a queue's jobs are pushed to, and that of the tokens which wake workers. */
static void arg_push_keys(rd_transport *t, bq_str queue)
{
    rd_args *args = &t->args;
    static const char *const suffix[] = {"", ":notify"};
    for (size_t i = 0; i < 2; i++) {
        size_t begun = bq_rd_arg_begin(args);
        (void)bq_buf_addf(&args->own, "%s", prefix_of(t->options));
        (void)bq_buf_add_str(&args->own, queue);
        (void)bq_buf_addf(&args->own, "%s", suffix[i]);
        bq_rd_arg_end(args, begun);
    }
}

static rd_script delay(rd_transport *t, const rd_slots *batch)
{
    rd_args *args = &t->args;
    rd_keys keys = {0};
    bq_rd_arg_script(args, RD_LARAVEL_DELAY, 3);
    if (laravel_keys(t->options, batch->head->op->out.queue, &keys) != BQ_OK) {
        args->failed = true;
        return RD_LARAVEL_DELAY;
    }
    bq_rd_arg_copy(args, keys.key[2]);
    bq_rd_arg_copy(args, keys.key[0]);
    bq_rd_arg_copy(args, keys.key[3]);
    bq_rd_keys_clear(&keys);
    for (const rd_slot *slot = batch->head; slot; slot = slot->next) {
        bq_rd_arg_int(args, slot->op->out.delay_ms);
        bq_rd_arg(args, slot->op->out.body);
    }
    return RD_LARAVEL_DELAY;
}

static rd_script laravel_publish(rd_transport *t, const rd_slots *batch, bool delayed)
{
    if (delayed)
        return delay(t, batch);
    bq_rd_arg_script(&t->args, RD_LARAVEL_PUSH, 2);
    arg_push_keys(t, batch->head->op->out.queue);
    for (const rd_slot *slot = batch->head; slot; slot = slot->next)
        bq_rd_arg(&t->args, slot->op->out.body);
    return RD_LARAVEL_PUSH;
}

static void laravel_reserve(rd_transport *t, size_t index, size_t count, bool beside, rd_expect *expect)
{
    rd_args *args = &t->args;
    (void)beside; /* a lapse and a retry look alike here: no last chance can be told (docs/decisions.md) */
    (void)expect;
    bq_rd_arg_script(args, RD_LARAVEL_RESERVE, 4);
    bq_rd_arg_keys(args, &t->subs[index].keys, 4);
    bq_rd_arg_lease(t, args);
    bq_rd_arg_int(args, (int64_t)count);
    bq_rd_arg_int(args, RD_RESERVE_BYTES);
    bq_rd_arg_int(args, RD_SWEEP_MAX);
}

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

/* How the reserved member is made of the job, or the member itself. */
static bool laravel_read(const rd_transport *t, rd_delivery *d, const rd_reply *reply, size_t index,
                         const rd_expect *expect)
{
    const rd_reply *how = bq_rd_at(reply, RD_FIRST_ITEM + 2 * index + 1);
    bq_str text = bq_rd_text(how);
    (void)t;
    (void)expect;
    if (text.ptr) {
        d->member = bq_strndup(text);
        d->member_len = text.len;
        return d->member != NULL;
    }
    return !how || how->type != RD_INTEGER || how->integer != 1 || raise_digits(d);
}

static void laravel_settle(rd_transport *t, size_t index, const rd_targets *targets)
{
    bq_rd_arg_script(&t->args, RD_LARAVEL_SETTLE, 4 + 2 * targets->count);
    bq_rd_arg_keys(&t->args, &t->subs[index].keys, 4);
    for (size_t i = 0; i < targets->count; i++)
        arg_push_keys(t, targets->name[i]);
    bq_rd_arg_lease(t, &t->args);
}

static bq_str member_of(const rd_delivery *d)
{
    return d->member ? (bq_str){d->member, d->member_len} : bq_rd_text(d->raw);
}

static void laravel_entry(rd_transport *t, char verb, const rd_delivery *d, const bq_op *op, size_t target)
{
    rd_args *args = &t->args;
    bq_rd_arg_copy(args, (bq_str){&verb, 1});
    bq_rd_arg(args, member_of(d));
    if (d->score > 0)
        bq_rd_arg_int(args, d->score);
    else
        rd_arg_lit(args, "");
    if (verb == 'r' || verb == 'b')
        bq_rd_arg(args, bq_rd_text(d->raw));
    if (verb == 't' || verb == 'd')
        bq_rd_arg(args, op->out.body);
    if (verb == 't' || verb == 'r')
        bq_rd_arg_int(args, op->out.delay_ms > 0 ? op->out.delay_ms : 0);
    if (verb == 'd')
        bq_rd_arg_int(args, (int64_t)(5 + 2 * target));
}

static void laravel_wait(rd_transport *t, const rd_waiter *w)
{
    rd_arg_lit(&t->args, "BLPOP");
    for (size_t i = 0; i < w->count; i++)
        bq_rd_arg(&t->args, t->subs[w->first + i].keys.key[3]);
}

/* ---- stats -------------------------------------------------------------------------------------------------------- */

static bq_status laravel_stats(rd_transport *t, const rd_keys *queue, const rd_keys *dead, int64_t end,
                               bq_queue_stats *out, bq_error *err)
{
    rd_reply *reply;
    bq_rd_arg_script(&t->args, RD_LARAVEL_STATS, 6);
    bq_rd_arg_keys(&t->args, queue, 3);
    bq_rd_arg_keys(&t->args, dead, 3);
    bq_status status = bq_rd_call(t, RD_LARAVEL_STATS, end, &reply, err);
    if (status != BQ_OK)
        return status;
    int64_t lapsed = t->options->retry_after_ms < 0 ? 0 : bq_rd_int_at(reply, 2, 0), due = bq_rd_int_at(reply, 4, 0);
    out->ready = bq_rd_int_at(reply, 0, 0) + lapsed + due;
    out->in_flight = bq_rd_int_at(reply, 1, 0) - lapsed;
    out->delayed = bq_rd_int_at(reply, 3, 0) - due;
    out->dead = bq_rd_int_at(reply, 5, 0);
    bq_rd_reply_free(reply);
    return BQ_OK;
}

static rd_script laravel_purge(rd_transport *t, const rd_keys *keys)
{
    bq_rd_arg_script(&t->args, RD_LARAVEL_PURGE, 4);
    bq_rd_arg_keys(&t->args, keys, 4);
    return RD_LARAVEL_PURGE;
}

const rd_layout bq_rd_laravel = {
    .binding = "laravel",
    .waits_for_all = true,
    .scans_sets = true,
    .reserve_script = RD_LARAVEL_RESERVE,
    .settle_script = RD_LARAVEL_SETTLE,
    .keys = laravel_keys,
    .publish = laravel_publish,
    .reserve = laravel_reserve,
    .settle = laravel_settle,
    .entry = laravel_entry,
    .wait = laravel_wait,
    .read = laravel_read,
    .queue_of = laravel_queue_of,
    .stats = laravel_stats,
    .purge = laravel_purge,
};
