/*
 * redis/send.c - what is due becomes commands, several operations in one where they go to the same place: settlements
 * first, then publishes in their order, then reservations, then waiting. See redis.h.
 */
#include "transport/redis/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t timeout_at(const rd_transport *t, int64_t now_ms)
{
    return bq_deadline(now_ms, t->options->net.timeout_ms);
}

static bool may_write(const rd_transport *t)
{
    return t->state == RD_UP && !t->moving && t->hold_until == 0 && t->main.count < RD_FLIGHT_MAX &&
           bq_rd_conn_queued(&t->main) < RD_OUT_MAX;
}

static bq_status load(rd_transport *t, rd_script script, int64_t now_ms, bq_error *err)
{
    rd_args args;
    bq_rd_args_init(&args);
    rd_arg_lit(&args, "SCRIPT");
    rd_arg_lit(&args, "LOAD");
    bq_rd_arg(&args, (bq_str){(const char *)bq_rd_scripts[script].text, bq_rd_scripts[script].len});
    rd_expect expect = {.kind = RD_LOAD, .sent_ms = now_ms, .deadline_ms = timeout_at(t, now_ms)};
    bq_status status = bq_rd_conn_send(&t->main, &args, &expect, err);
    bq_rd_args_clear(&args);
    t->main.loaded[script] = status == BQ_OK;
    return status;
}

bq_status bq_rd_send_script(rd_transport *t, rd_script script, const rd_expect *expect, bq_error *err)
{
    bool there = script == RD_SCRIPTS || t->main.loaded[script];
    bq_status status = there ? BQ_OK : load(t, script, expect->sent_ms, err);
    return status == BQ_OK ? bq_rd_conn_send(&t->main, &t->args, expect, err) : status;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

typedef enum rd_class { CLASS_PUSH, CLASS_DELAY, CLASS_SETTLE } rd_class;

static rd_class class_of(const bq_op *op)
{
    if (op->kind != BQ_OP_PUBLISH)
        return CLASS_SETTLE;
    return op->out.delay_ms > 0 ? CLASS_DELAY : CLASS_PUSH;
}

static bool same_place(const bq_op *a, const bq_op *b)
{
    if (class_of(a) != class_of(b))
        return false;
    return class_of(a) == CLASS_SETTLE ? a->in->queue == b->in->queue : bq_str_equal(a->out.queue, b->out.queue);
}

/* Of the queues that dead letters of a batch go to. */
static size_t target_index(rd_targets *targets, bq_str name)
{
    for (size_t i = 0; i < targets->count; i++)
        if (bq_str_equal(targets->name[i], name))
            return i;
    if (targets->count == RD_BATCH_TARGETS)
        return RD_BATCH_TARGETS;
    targets->name[targets->count] = name;
    return targets->count++;
}

/* Takes the operations that go with the first one out of the queue, in order. */
static rd_slots gather(rd_transport *t, rd_targets *targets)
{
    rd_slots batch = {0}, rest = {0};
    rd_slot *slot;
    size_t bytes = 0, looked = 0;
    bool full = false;
    const bq_op *first = t->queued.head->op;
    while (!full && looked < 4 * RD_BATCH_OPS && (slot = bq_rd_slots_pop(&t->queued))) {
        looked++;
        if (!same_place(first, slot->op)) {
            bq_rd_slots_push(&rest, slot);
            continue;
        }
        if (slot->op->kind == BQ_OP_DEAD_LETTER && target_index(targets, slot->op->out.queue) == RD_BATCH_TARGETS) {
            bq_rd_slots_push(&rest, slot);
            break;
        }
        bq_rd_slots_push(&batch, slot);
        bytes += slot->bytes;
        if (slot->op->in)
            bytes += slot->op->in->body.len;
        full = batch.count == RD_BATCH_OPS || bytes >= RD_BATCH_BYTES;
    }
    bq_rd_slots_push_front(&t->queued, rest.head);
    return batch;
}

static char verb_of(bq_op_kind kind)
{
    switch (kind) {
    case BQ_OP_ACK: return 'a';
    case BQ_OP_RELEASE: return 'r';
    case BQ_OP_RETRY: return 't';
    case BQ_OP_DEAD_LETTER: return 'd';
    case BQ_OP_NATIVE_RETRY: return 'n';
    case BQ_OP_REJECT: return 'x';
    default: return 'e';
    }
}

static rd_script settle_args(rd_transport *t, const rd_slots *batch, rd_targets *targets)
{
    t->layout->settle(t, batch->head->op->in->queue, targets);
    for (const rd_slot *slot = batch->head; slot; slot = slot->next) {
        const bq_op *op = slot->op;
        size_t target = op->kind == BQ_OP_DEAD_LETTER ? target_index(targets, op->out.queue) : 0;
        t->layout->entry(t, verb_of(op->kind), rd_delivery_of(op->in), op, target);
    }
    return t->layout->settle_script;
}

/* From now on its place in the prefetch is free: what is reserved behind it comes after it. */
static void mark_settling(rd_transport *t, const rd_slots *batch)
{
    for (const rd_slot *slot = batch->head; slot; slot = slot->next) {
        rd_delivery *d = rd_delivery_of(slot->op->in);
        if (slot->op->kind == BQ_OP_EXTEND || slot->op->kind == BQ_OP_PUBLISH || d->settling || d->held.detached)
            continue;
        d->settling = true;
        t->settling++;
    }
}

static void send_batch(rd_transport *t, int64_t now_ms)
{
    bq_error err;
    rd_targets targets = {0};
    rd_slots batch = gather(t, &targets);
    const bq_op *first = batch.head->op;
    rd_class class = class_of(first);
    rd_expect expect = {.kind = class == CLASS_SETTLE ? RD_SETTLE : RD_PUBLISH,
                        .queue = class == CLASS_SETTLE ? first->in->queue : 0,
                        .sent_ms = now_ms,
                        .deadline_ms = timeout_at(t, now_ms),
                        .slots = batch.head};
    for (const rd_slot *slot = batch.head; slot; slot = slot->next)
        expect.deadline_ms = sooner(expect.deadline_ms, slot->op->deadline_ms);
    rd_script script =
        class == CLASS_SETTLE ? settle_args(t, &batch, &targets) : t->layout->publish(t, &batch, class == CLASS_DELAY);
    if (class == CLASS_SETTLE)
        mark_settling(t, &batch);
    bq_status status = bq_rd_send_script(t, script, &expect, &err);
    if (status != BQ_OK) /* nothing of it was written */
        bq_rd_slots_decide(t, batch.head, status == BQ_NOMEM ? BQ_NOMEM : BQ_REFUSED, &err);
}

void bq_rd_expire(rd_transport *t, int64_t now_ms)
{
    rd_slots rest = {0};
    rd_slot *slot;
    while ((slot = bq_rd_slots_pop(&t->queued))) {
        if (slot->op->deadline_ms <= now_ms)
            bq_rd_slot_decide(t, slot, BQ_TIMEOUT, NULL);
        else
            bq_rd_slots_push(&rest, slot);
    }
    t->queued = rest;
}

/* ---- reserving -------------------------------------------------------------------------------------------------------- */

/* What will still be there when the settlements that are written have been carried out. */
static size_t in_hand(const rd_transport *t)
{
    return t->taken.count - t->settling + t->fresh.count;
}

size_t bq_rd_room(const rd_transport *t)
{
    size_t used = in_hand(t) + t->asked;
    return used < t->config->prefetch ? t->config->prefetch - used : 0;
}

static bool wants(const rd_transport *t)
{
    bool beside = t->alone && in_hand(t) > 0;
    return t->state == RD_UP && t->sub_count > 0 && t->want + t->host->soon > 0 && bq_rd_room(t) > 0 && !beside &&
           !t->closing;
}

static bool reservable(const rd_transport *t, const rd_sub *sub, int64_t now_ms)
{
    (void)t;
    return sub->maybe && !sub->reserving && sub->reserve_at <= now_ms;
}

/* While others are being worked, a little patience makes one reservation of several. */
static bool gathers(const rd_transport *t, int64_t now_ms)
{
    return in_hand(t) > 0 && bq_rd_room(t) * 4 < t->config->prefetch && now_ms - t->reserved_at < RD_GATHER_MS;
}

/* `beside`: a message at its last chance would not be alone in our hands. */
static void reserve(rd_transport *t, size_t index, size_t count, bool beside, int64_t now_ms)
{
    rd_sub *sub = &t->subs[index];
    bq_error err;
    rd_expect expect = {
        .kind = RD_RESERVE, .queue = index, .asked = count, .sent_ms = now_ms, .deadline_ms = timeout_at(t, now_ms)};
    t->layout->reserve(t, index, count, beside, &expect);
    if (bq_rd_send_script(t, t->layout->reserve_script, &expect, &err) != BQ_OK) {
        sub->reserve_at = bq_deadline(now_ms, RD_PAUSE_MS);
        return;
    }
    sub->reserving = true;
    t->alone = false;
    t->asked += count;
    t->reserved_at = now_ms;
}

static size_t share_of(size_t room)
{
    return room < RD_RESERVE_MAX ? room : RD_RESERVE_MAX;
}

/* When the queue whose next message is to be taken alone is asked again: when nothing is in hand, or after a while,
 * since somebody else may have taken that message. */
static int64_t yields_until(const rd_transport *t, int64_t now_ms)
{
    const rd_sub *sub = &t->subs[t->yields - 1];
    if (t->asked > 0)
        return BQ_NEVER;
    int64_t until = in_hand(t) > 0 ? t->yield_until : now_ms;
    return until > sub->reserve_at ? until : sub->reserve_at;
}

static void reserve_all(rd_transport *t, int64_t now_ms)
{
    size_t candidates = 0;
    if (!wants(t))
        return;
    if (t->yields) {
        if (yields_until(t, now_ms) <= now_ms && may_write(t))
            reserve(t, t->yields - 1, share_of(bq_rd_room(t)), in_hand(t) > 0, now_ms);
        return;
    }
    if (gathers(t, now_ms))
        return;
    for (size_t i = 0; i < t->sub_count; i++)
        candidates += reservable(t, &t->subs[i], now_ms);
    for (size_t n = 0; n < t->sub_count && candidates > 0; n++) {
        size_t index = t->next_sub, room = bq_rd_room(t);
        t->next_sub = index + 1 < t->sub_count ? index + 1 : 0;
        if (!reservable(t, &t->subs[index], now_ms))
            continue;
        if (room == 0 || !may_write(t)) {
            t->next_sub = index; /* its turn comes first next time */
            return;
        }
        size_t share = (room + candidates - 1) / candidates;
        reserve(t, index, share_of(share), in_hand(t) + t->asked > 0 || candidates > 1, now_ms);
        candidates--;
    }
}

/* ---- giving back ------------------------------------------------------------------------------------------------------ */

/* What nobody took goes back to the front of its queue, last ones first, so that it stands there as before. */
void bq_rd_send_back(rd_transport *t, int64_t now_ms)
{
    static const rd_targets none = {.count = 0};
    while (t->fresh.count > 0 && may_write(t)) {
        bq_error err;
        size_t queue = t->fresh.tail->in.queue, bytes = 0;
        bq_held_list batch = {0};
        rd_expect expect = {.kind = RD_BACK, .queue = queue, .sent_ms = now_ms, .deadline_ms = timeout_at(t, now_ms)};
        t->layout->settle(t, queue, &none);
        for (bq_held *h = t->fresh.tail, *before; h && batch.count < RD_BATCH_OPS && bytes < RD_BATCH_BYTES;
             h = before) {
            const rd_delivery *d = (const rd_delivery *)h;
            before = h->prev;
            if (h->in.queue != queue)
                continue;
            t->layout->entry(t, 'b', d, NULL, 0);
            bytes += d->raw->count;
            bq_held_remove(&t->fresh, h);
            bq_held_add(&batch, h);
        }
        expect.items = batch;
        if (bq_rd_send_script(t, t->layout->settle_script, &expect, &err) == BQ_OK)
            continue;
        bq_rd_deliveries_free(&batch); /* not written: they lapse */
        return;
    }
}

/* ---- chores ------------------------------------------------------------------------------------------------------------ */

static int64_t chore_ms(const rd_transport *t)
{
    return t->layout->chore_ms && t->sub_count > 0 ? t->layout->chore_ms(t) : -1;
}

static void do_chore(rd_transport *t, size_t index, int64_t now_ms)
{
    rd_expect expect = {.kind = RD_CHORE, .queue = index, .sent_ms = now_ms, .deadline_ms = timeout_at(t, now_ms)};
    bq_error err;
    t->subs[index].chore_at = bq_deadline(now_ms, chore_ms(t));
    if (bq_rd_send_script(t, t->layout->chore(t, index), &expect, &err) != BQ_OK)
        bq_log(&t->host->logger, BQ_LOG_DEBUG, "redis: no look after what others left: %s", err.text);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------ */

/* Nothing in any of its queues, and somebody to take what comes. */
static bool should_wait(const rd_transport *t, const rd_waiter *w)
{
    if (!wants(t) || w->waiting)
        return false;
    for (size_t i = 0; i < w->count; i++)
        if (t->subs[w->first + i].maybe || t->subs[w->first + i].reserving)
            return false;
    return true;
}

static int64_t wait_ms(const rd_transport *t, const rd_waiter *w, int64_t now_ms)
{
    int64_t until = bq_deadline(now_ms, bq_rd_look_ms(t));
    for (size_t i = 0; i < w->count; i++)
        until = sooner(until, t->subs[w->first + i].due_ms);
    return until - now_ms < 10 ? 10 : until - now_ms;
}

static void wait_for(rd_transport *t, rd_waiter *w, int64_t now_ms)
{
    rd_args *args = &t->args;
    char seconds[32];
    bq_error err;
    int64_t ms = wait_ms(t, w, now_ms);
    if (!rd_conn_is_open(&w->conn)) {
        if (now_ms >= w->retry_at && bq_rd_waiter_open(t, w, now_ms, &err) != BQ_OK)
            bq_rd_waiter_drop(t, w, now_ms);
        return;
    }
    if (!w->conn.ready)
        return;
    (void)snprintf(seconds, sizeof(seconds), "%lld.%03lld", (long long)(ms / 1000), (long long)(ms % 1000));
    bq_rd_args_reset(args);
    t->layout->wait(t, w);
    bq_rd_arg(args, bq_str_of(seconds));
    rd_expect expect = {.kind = RD_WAIT, .sent_ms = now_ms, .deadline_ms = bq_deadline(timeout_at(t, now_ms), ms)};
    if (bq_rd_conn_send(&w->conn, args, &expect, &err) != BQ_OK)
        bq_rd_waiter_drop(t, w, now_ms);
    else
        w->waiting = true;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------------- */

static void heartbeat(rd_transport *t, int64_t now_ms)
{
    int64_t every = t->options->net.heartbeat_ms;
    if (every <= 0 || t->main.count > 0 || now_ms - t->main.last_ms < every)
        return;
    bq_error err;
    rd_expect expect = {.kind = RD_PING, .sent_ms = now_ms, .deadline_ms = timeout_at(t, now_ms)};
    bq_rd_args_reset(&t->args);
    rd_arg_lit(&t->args, "PING");
    if (bq_rd_conn_send(&t->main, &t->args, &expect, &err) != BQ_OK)
        bq_log(&t->host->logger, BQ_LOG_DEBUG, "redis: no heartbeat: %s", err.text);
}

static bool stale_fresh(const rd_transport *t, int64_t now_ms)
{
    return t->fresh.count > 0 && now_ms - t->fresh_since >= RD_FRESH_MS;
}

static void look(rd_transport *t, int64_t now_ms)
{
    bool chores = chore_ms(t) >= 0;
    for (size_t i = 0; i < t->sub_count; i++) {
        rd_sub *sub = &t->subs[i];
        if (!sub->maybe && !sub->reserving && (now_ms >= sub->due_ms || now_ms >= sub->look_at))
            sub->maybe = true;
        if (chores && now_ms >= sub->chore_at)
            do_chore(t, i, now_ms);
    }
}

void bq_rd_send(rd_transport *t, int64_t now_ms)
{
    if (t->hold_until <= now_ms)
        t->hold_until = 0;
    if (t->state != RD_UP || t->moving || t->hold_until > 0)
        return;
    while (t->queued.head && may_write(t))
        send_batch(t, now_ms);
    if (stale_fresh(t, now_ms))
        bq_rd_send_back(t, now_ms);
    look(t, now_ms);
    reserve_all(t, now_ms);
    for (size_t i = 0; i < t->waiter_count; i++)
        if (should_wait(t, &t->waiters[i]))
            wait_for(t, &t->waiters[i], now_ms);
    heartbeat(t, now_ms);
}

int64_t bq_rd_send_due(rd_transport *t, int64_t now_ms)
{
    int64_t due = BQ_NEVER;
    if (t->state != RD_UP || t->moving)
        return due;
    if (t->hold_until > 0)
        return sooner(due, t->hold_until);
    if (t->queued.head && may_write(t))
        return now_ms;
    if (t->fresh.count > 0)
        due = sooner(due, bq_deadline(t->fresh_since, RD_FRESH_MS));
    if (t->options->net.heartbeat_ms > 0 && t->main.count == 0)
        due = sooner(due, bq_deadline(t->main.last_ms, t->options->net.heartbeat_ms));
    if (chore_ms(t) >= 0)
        for (size_t i = 0; i < t->sub_count; i++)
            due = sooner(due, t->subs[i].chore_at);
    if (!wants(t) || !may_write(t))
        return due;
    if (t->yields)
        return sooner(due, yields_until(t, now_ms));
    for (size_t i = 0; i < t->sub_count; i++) {
        const rd_sub *sub = &t->subs[i];
        if (sub->reserving)
            continue;
        if (sub->maybe && gathers(t, now_ms))
            due = sooner(due, bq_deadline(t->reserved_at, RD_GATHER_MS));
        else if (sub->maybe)
            due = sooner(due, sub->reserve_at);
        else
            due = sooner(due, sooner(sub->due_ms, sub->look_at));
    }
    for (size_t i = 0; i < t->waiter_count; i++) {
        const rd_waiter *w = &t->waiters[i];
        if (should_wait(t, w) && (!rd_conn_is_open(&w->conn) || w->conn.ready))
            due = sooner(due, rd_conn_is_open(&w->conn) ? now_ms : w->retry_at);
    }
    return due;
}
