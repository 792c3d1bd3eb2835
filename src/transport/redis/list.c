/* redis/list.c - the layout of the BabelQueue SDKs (contract 7.1). See layout.h. */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* ---- keys --------------------------------------------------------------------------------------------------------- */

static const char *suffix_of(const rd_options *options)
{
    return options->processing_suffix ? options->processing_suffix : ":processing";
}

/* Queue, processing, deadlines, lapses. */
static bq_status list_keys(const rd_options *options, bq_str queue, rd_keys *out)
{
    const char *suffix = suffix_of(options);
    const char *const parts[4][2] = {{"", ""}, {suffix, ""}, {suffix, ":deadlines"}, {suffix, ":lapses"}};
    return bq_rd_keys_make("", queue, parts, out);
}

static bq_str list_queue_of(const rd_options *options, bq_str key)
{
    (void)(bq_rd_strip(&key, ":deadlines") || bq_rd_strip(&key, ":lapses") || bq_rd_strip(&key, ":orphans"));
    (void)bq_rd_strip(&key, suffix_of(options));
    return key;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------- */

/* For the tokens of what a script parks. */
static void arg_random(rd_args *args)
{
    char random[9];
    bq_rd_random_hex(random, 8);
    bq_rd_arg_copy(args, bq_str_of(random));
}

/* ---- commands ----------------------------------------------------------------------------------------------------- */

static void arg_element(rd_args *args, const bq_outgoing *out)
{
    if (!bq_rd_frame_needed(out->body, out->props, out->prop_count)) {
        bq_rd_arg(args, out->body);
        return;
    }
    size_t begun = bq_rd_arg_begin(args);
    if (bq_rd_frame_make(out->body, out->props, out->prop_count, &args->own, NULL) != BQ_OK)
        args->failed = true;
    bq_rd_arg_end(args, begun);
}

static rd_script park(rd_transport *t, const rd_slots *batch)
{
    rd_args *args = &t->args;
    rd_keys keys = {0};
    bq_rd_arg_script(args, RD_LIST_PARK, 2);
    if (list_keys(t->options, batch->head->op->out.queue, &keys) != BQ_OK) {
        args->failed = true;
        return RD_LIST_PARK;
    }
    bq_rd_arg_copy(args, keys.key[1]);
    bq_rd_arg_copy(args, keys.key[2]);
    bq_rd_keys_clear(&keys);
    arg_random(args);
    for (const rd_slot *slot = batch->head; slot; slot = slot->next) {
        bq_rd_arg_int(args, slot->op->out.delay_ms);
        arg_element(args, &slot->op->out);
    }
    return RD_LIST_PARK;
}

static rd_script list_publish(rd_transport *t, const rd_slots *batch, bool delayed)
{
    rd_args *args = &t->args;
    if (delayed)
        return park(t, batch);
    bq_rd_args_reset(args);
    rd_arg_lit(args, "RPUSH");
    bq_rd_arg(args, batch->head->op->out.queue);
    for (const rd_slot *slot = batch->head; slot; slot = slot->next)
        arg_element(args, &slot->op->out);
    return RD_SCRIPTS;
}

static void list_reserve(rd_transport *t, size_t index, size_t count, bool beside, rd_expect *expect)
{
    rd_args *args = &t->args;
    int64_t lapses = t->options->retry_after_ms / 100; /* ten leases, in seconds */
    bq_rd_random_token(expect->token);
    bq_rd_arg_script(args, RD_LIST_RESERVE, 4);
    bq_rd_arg_keys(args, &t->subs[index].keys, 4);
    bq_rd_arg_lease(t, args);
    bq_rd_arg_int(args, (int64_t)count);
    bq_rd_arg_int(args, RD_RESERVE_BYTES);
    bq_rd_arg(args, (bq_str){expect->token, 24});
    bq_rd_arg_int(args, RD_SWEEP_MAX);
    bq_rd_arg_int(args, lapses > RD_LAPSES_MIN_S ? lapses : RD_LAPSES_MIN_S);
    bq_rd_arg_int(args, t->drains);
    bq_rd_arg_int(args, t->config->max_attempts > 1 ? t->config->max_attempts - 1 : 0);
    bq_rd_arg_int(args, beside);
}

static bool list_read(const rd_transport *t, rd_delivery *d, const rd_reply *reply, size_t index,
                      const rd_expect *expect)
{
    int64_t lapses = bq_rd_int_at(reply, RD_FIRST_ITEM + 2 * index + 1, 0);
    int64_t all = bq_rd_int_at(reply, 6, 0), count = (int64_t)(reply->count - RD_FIRST_ITEM) / 2;
    (void)t;
    d->place = (all > count ? all - count : 0) + (int64_t)index + 1;
    (void)snprintf(d->token, sizeof(d->token), "%.24s%08x", expect->token, (unsigned)(index + 1));
    d->held.in.lapses = lapses < 0 ? 0 : lapses > UINT32_MAX ? UINT32_MAX : (uint32_t)lapses;
    return true;
}

static void list_settle(rd_transport *t, size_t index, const rd_targets *targets)
{
    rd_args *args = &t->args;
    bq_rd_arg_script(args, RD_LIST_SETTLE, 4 + targets->count);
    bq_rd_arg_keys(args, &t->subs[index].keys, 4);
    for (size_t i = 0; i < targets->count; i++)
        bq_rd_arg(args, targets->name[i]);
    arg_random(args);
    bq_rd_arg_lease(t, args);
}

static void list_entry(rd_transport *t, char verb, const rd_delivery *d, const bq_op *op, size_t target)
{
    rd_args *args = &t->args;
    bq_rd_arg_copy(args, (bq_str){&verb, 1});
    bq_rd_arg(args, (bq_str){d->token, 32});
    bq_rd_arg(args, bq_rd_text(d->raw));
    bq_rd_arg_int(args, d->place);
    if (verb == 't' || verb == 'd')
        arg_element(args, &op->out);
    if (verb == 't' || verb == 'r')
        bq_rd_arg_int(args, op->out.delay_ms > 0 ? op->out.delay_ms : 0);
    if (verb == 'd')
        bq_rd_arg_int(args, (int64_t)(5 + target));
}

/* To where it stands already: nothing changes (contract 7.1). */
static void list_wait(rd_transport *t, const rd_waiter *w)
{
    bq_str queue = t->subs[w->first].keys.key[0];
    rd_arg_lit(&t->args, "BLMOVE");
    bq_rd_arg(&t->args, queue);
    bq_rd_arg(&t->args, queue);
    rd_arg_lit(&t->args, "LEFT");
    rd_arg_lit(&t->args, "LEFT");
}

/* ---- adopting ----------------------------------------------------------------------------------------------------- */

static int64_t list_chore_ms(const rd_transport *t)
{
    int64_t period = t->options->adopt_ms / 4;
    if (t->options->adopt_ms < 0)
        return -1;
    return period < 1000 ? 1000 : period > 60000 ? 60000 : period;
}

static rd_script list_chore(rd_transport *t, size_t index)
{
    rd_args *args = &t->args;
    const rd_keys *keys = &t->subs[index].keys;
    char token[25];
    bq_rd_arg_script(args, RD_LIST_ADOPT, 3);
    bq_rd_arg(args, keys->key[1]);
    bq_rd_arg(args, keys->key[2]);
    bq_rd_arg_join(args, keys->key[1], BQ_STR(":orphans"));
    bq_rd_arg_int(args, (t->options->adopt_ms + 999) / 1000);
    bq_rd_arg_lease(t, args);
    bq_rd_random_token(token);
    bq_rd_arg_copy(args, (bq_str){token, 24});
    return RD_LIST_ADOPT;
}

/* ---- stats -------------------------------------------------------------------------------------------------------- */

/* Parked elements that are not due: in steps, so that the server does other things in between. */
static bq_status count_parked(rd_transport *t, bq_str deadlines, int64_t end, int64_t *count, bq_error *err)
{
    bq_buf cursor;
    bq_buf_init(&cursor, 0);
    bq_status status = bq_buf_add_byte(&cursor, '0');
    *count = 0;
    while (status == BQ_OK) {
        rd_reply *reply;
        bq_rd_arg_script(&t->args, RD_LIST_PARKED, 1);
        bq_rd_arg(&t->args, deadlines);
        bq_rd_arg(&t->args, bq_buf_str(&cursor));
        status = bq_rd_call(t, RD_LIST_PARKED, end, &reply, err);
        if (status != BQ_OK)
            break;
        bq_buf_reset(&cursor);
        status = bq_buf_add_str(&cursor, bq_rd_text(bq_rd_at(reply, 0)));
        *count += bq_rd_int_at(reply, 1, 0);
        bq_rd_reply_free(reply);
        if (bq_str_equal(bq_buf_str(&cursor), BQ_STR("0")) || cursor.len == 0)
            break;
    }
    bq_buf_clear(&cursor);
    return status;
}

/* What lapsed or is due counts as ready, which it is for the next consumer. */
static bq_status list_stats(rd_transport *t, const rd_keys *queue, const rd_keys *dead, int64_t end,
                            bq_queue_stats *out, bq_error *err)
{
    rd_reply *reply;
    bq_rd_arg_script(&t->args, RD_LIST_STATS, 5);
    bq_rd_arg_keys(&t->args, queue, 3);
    bq_rd_arg_keys(&t->args, dead, 2);
    bq_status status = bq_rd_call(t, RD_LIST_STATS, end, &reply, err);
    if (status != BQ_OK)
        return status;
    int64_t processing = bq_rd_int_at(reply, 1, 0), due = bq_rd_int_at(reply, 2, 0);
    out->ready = bq_rd_int_at(reply, 0, 0) + due;
    out->dead = bq_rd_int_at(reply, 3, 0);
    bq_rd_reply_free(reply);
    out->delayed = 0;
    if (processing > 0)
        status = count_parked(t, queue->key[2], end, &out->delayed, err);
    int64_t in_flight = processing - due - out->delayed;
    out->in_flight = in_flight > 0 ? in_flight : 0;
    return status;
}

static rd_script list_purge(rd_transport *t, const rd_keys *keys)
{
    bq_rd_arg_script(&t->args, RD_LIST_PURGE, 4);
    bq_rd_arg_keys(&t->args, keys, 4);
    return RD_LIST_PURGE;
}

const rd_layout bq_rd_list = {
    .binding = "redis",
    .frames = true,
    .reserve_script = RD_LIST_RESERVE,
    .settle_script = RD_LIST_SETTLE,
    .keys = list_keys,
    .publish = list_publish,
    .reserve = list_reserve,
    .settle = list_settle,
    .entry = list_entry,
    .wait = list_wait,
    .read = list_read,
    .chore_ms = list_chore_ms,
    .chore = list_chore,
    .queue_of = list_queue_of,
    .stats = list_stats,
    .purge = list_purge,
};
