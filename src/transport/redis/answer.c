/* redis/answer.c - replies: what became of operations, what was reserved, what woke us. See redis.h. */
#include "transport/redis/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "transport/redis/fault.h"

#include <string.h>

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

/* The server takes no writes for now. */
static void block(rd_transport *t, bq_str text, int64_t now_ms)
{
    bq_error err;
    t->blocked_until = bq_deadline(now_ms, RD_BLOCKED_MS);
    if (t->blocked)
        return;
    t->blocked = true;
    (void)bq_rd_fault_error(text, "the server takes no writes", &err);
    bq_rd_tell(t, BQ_EVENT_BLOCKED, &err);
}

/* What an error reply means for the connection. True: the connection is gone. */
static bool fault_seen(rd_transport *t, bq_str text, int64_t now_ms)
{
    bq_error err;
    switch (bq_rd_fault_meaning(text)) {
    case RD_MEANS_FULL: block(t, text, now_ms); return false;
    case RD_MEANS_RECONNECT:
        (void)bq_rd_fault_error(text, "not the server to talk to now", &err);
        err.status = BQ_UNAVAILABLE;
        bq_rd_down(t, &err, now_ms);
        return true;
    default: return false;
    }
}

/* The script is loaded again and the same operations are sent once more: the server has not begun any of them. */
static bool not_loaded(rd_transport *t, const rd_expect *expect, bq_str text)
{
    if (bq_rd_fault_meaning(text) != RD_MEANS_NOSCRIPT)
        return false;
    memset(t->main.loaded, 0, sizeof(t->main.loaded));
    bq_rd_slots_push_front(&t->queued, expect->slots);
    return true;
}

/* ---- operations --------------------------------------------------------------------------------------------------------- */

static void look_again(rd_transport *t, bq_str queue)
{
    for (size_t i = 0; i < t->sub_count; i++)
        if (bq_str_equal(t->config->queues[i], queue)) {
            t->subs[i].empty = false;
            t->subs[i].maybe = true;
            t->subs[i].parked = -1;
        }
}

/* An error that a script raises on its way may have left half of it done, unless its meaning is a plain no. */
static bq_status batch_error(const rd_expect *expect, bq_str text, const char *what, bq_error *err)
{
    bq_status status = bq_rd_fault_error(text, what, err);
    bool certain = bq_rd_fault_meaning(text) != RD_MEANS_OTHER || expect->kind == RD_PUBLISH;
    if (!certain)
        status = bq_fail(err, BQ_UNKNOWN, "%s: %.*s", what, BQ_FMT(text));
    return status;
}

static void published(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms)
{
    bq_error err;
    if (reply->type == RD_ERROR) {
        if (not_loaded(t, expect, bq_rd_text(reply)))
            return;
        bq_status status = batch_error(expect, bq_rd_text(reply), "cannot publish", &err);
        bq_rd_slots_decide(t, expect->slots, status, &err);
        (void)fault_seen(t, bq_rd_text(reply), now_ms);
        return;
    }
    for (const rd_slot *slot = expect->slots; slot; slot = slot->next)
        look_again(t, slot->op->out.queue);
    bq_rd_slots_decide(t, expect->slots, BQ_OK, NULL);
}

static void settled_one(rd_transport *t, const rd_expect *expect, rd_slot *slot, const rd_reply *reply, size_t at)
{
    bq_error err;
    rd_delivery *d = rd_delivery_of(slot->op->in);
    const rd_reply *result = bq_rd_at(reply, at);
    bq_str text = bq_rd_text(result);
    if (text.ptr) {
        bq_status status = bq_rd_fault_error(text, "cannot settle", &err);
        bq_rd_slot_decide(t, slot, status, &err);
        return;
    }
    if (!result || result->type != RD_INTEGER) {
        (void)bq_fail(&err, BQ_UNKNOWN, "the server's answer does not say what was done");
        bq_rd_slot_decide(t, slot, BQ_UNKNOWN, &err);
        return;
    }
    if (result->integer == 1 && slot->op->kind == BQ_OP_EXTEND)
        bq_rd_lease_from(t, d, expect->sent_ms, bq_rd_int_at(reply, 0, 0));
    else if (result->integer == 1 &&
             (slot->op->kind == BQ_OP_RETRY || slot->op->kind == BQ_OP_RELEASE || slot->op->kind == BQ_OP_NATIVE_RETRY))
        look_again(t, t->config->queues[expect->queue]);
    else if (result->integer == 1 && slot->op->kind == BQ_OP_DEAD_LETTER)
        look_again(t, slot->op->out.queue);
    bq_rd_slot_decide(t, slot, result->integer == 1 ? BQ_OK : BQ_LOST, NULL);
}

static void settled(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms)
{
    bq_error err;
    bq_str full = BQ_STR_NULL;
    size_t at = 1;
    if (reply->type == RD_ERROR) {
        if (not_loaded(t, expect, bq_rd_text(reply)))
            return;
        bq_status status = batch_error(expect, bq_rd_text(reply), "cannot settle", &err);
        bq_rd_slots_decide(t, expect->slots, status, &err);
        (void)fault_seen(t, bq_rd_text(reply), now_ms);
        return;
    }
    for (rd_slot *slot = expect->slots, *next; slot; slot = next, at++) {
        bq_str text = bq_rd_text(bq_rd_at(reply, at));
        next = slot->next;
        if (text.ptr && bq_rd_fault_meaning(text) != RD_MEANS_OTHER)
            full = text;
        settled_one(t, expect, slot, reply, at);
    }
    if (full.ptr)
        (void)fault_seen(t, full, now_ms);
}

/* ---- reservations --------------------------------------------------------------------------------------------------------- */

static void reserve_failed(rd_transport *t, rd_sub *sub, bq_str text, int64_t now_ms)
{
    bq_error err;
    rd_meaning means = bq_rd_fault_meaning(text);
    bq_status status = bq_rd_fault_error(text, "cannot reserve", &err);
    if (means == RD_MEANS_NOSCRIPT) {
        memset(t->main.loaded, 0, sizeof(t->main.loaded));
        return;
    }
    sub->reserve_at = bq_deadline(now_ms, means == RD_MEANS_BUSY ? RD_PAUSE_MS : RD_BLOCKED_MS);
    if (status != BQ_REFUSED)
        bq_rd_give_up(t, &err); /* never mended by trying again */
    else if (!fault_seen(t, text, now_ms))
        bq_log(&t->host->logger, BQ_LOG_WARN, "redis: %s", err.text);
}

static void note_state(rd_transport *t, rd_sub *sub, const rd_reply *reply, size_t got, int64_t now_ms)
{
    bool waits = bq_rd_int_at(reply, 5, 0) == 1;
    size_t index = (size_t)(sub - t->subs) + 1;
    int64_t server = bq_rd_int_at(reply, 0, 0), left = bq_rd_int_at(reply, 1, 0), due = bq_rd_int_at(reply, 2, -1);
    sub->empty = left == 0;
    sub->parked = bq_rd_int_at(reply, 4, -1);
    /* What is ours is among them, so they are the others' only while we have none. */
    sub->others = t->taken.count + t->fresh.count > 0 ? -1 : bq_rd_int_at(reply, 3, -1);
    sub->seen_ms = now_ms;
    if (waits) {
        t->yields = index;
        t->yield_until = bq_deadline(now_ms, RD_YIELD_MS);
    } else if (t->yields == index) {
        t->yields = 0;
    }
    /* More than a lease or a delay away is no different from a look later. */
    sub->due_ms = due < 0 ? BQ_NEVER : due <= server ? now_ms : bq_deadline(now_ms, due - server);
    sub->look_at = bq_deadline(now_ms, bq_rd_look_ms(t) + bq_rd_look_ms(t) / 2);
    sub->maybe = left > 0;
    /* Jobs that have to wait for their like: a sorted set holds only one of them (contract 7.2). */
    if (got == 0 && sub->maybe && !waits)
        sub->reserve_at = bq_deadline(now_ms, RD_PAUSE_MS);
}

/* A reservation of the answer; NULL: out of memory. */
static rd_delivery *read_one(rd_transport *t, rd_reply *reply, size_t at, size_t index, const rd_expect *expect)
{
    rd_reply *raw = bq_rd_take_at(reply, at);
    rd_delivery *d = raw ? bq_rd_delivery_new(t, expect->queue, raw) : NULL;
    if (!d)
        return NULL;
    bq_rd_lease_from(t, d, expect->sent_ms, bq_rd_int_at(reply, 0, 0));
    if (t->layout->read(t, d, reply, index, expect))
        return d;
    bq_rd_delivery_free(d);
    return NULL;
}

static void reserved(rd_transport *t, const rd_expect *expect, rd_reply *reply, int64_t now_ms)
{
    rd_sub *sub = &t->subs[expect->queue];
    size_t got = 0;
    sub->reserving = false;
    t->asked -= expect->asked < t->asked ? expect->asked : t->asked;
    if (reply->type == RD_ERROR) {
        reserve_failed(t, sub, bq_rd_text(reply), now_ms);
        return;
    }
    if (reply->type != RD_ARRAY) {
        sub->reserve_at = bq_deadline(now_ms, RD_BLOCKED_MS);
        return;
    }
    if (t->fresh.count == 0)
        t->fresh_since = now_ms;
    for (size_t at = RD_FIRST_ITEM; at + 1 < reply->count; at += 2, got++) {
        rd_delivery *d = read_one(t, reply, at, got, expect);
        if (d && d->held.in.lapses > 0 && (int64_t)d->held.in.lapses + 1 == t->config->max_attempts)
            t->alone = true;
        if (d)
            bq_held_add(&t->fresh, &d->held);
        else /* no memory to keep it: its lease runs out */
            bq_log(&t->host->logger, BQ_LOG_WARN, "redis: a reservation could not be kept and lapses");
    }
    note_state(t, sub, reply, got, now_ms);
}

static void gave_back(rd_transport *t, const rd_expect *expect, const rd_reply *reply)
{
    bq_held_list items = expect->items;
    if (reply->type == RD_ERROR && bq_rd_fault_meaning(bq_rd_text(reply)) == RD_MEANS_NOSCRIPT) {
        memset(t->main.loaded, 0, sizeof(t->main.loaded));
        for (bq_held *h; (h = bq_held_pop(&items)) != NULL;) /* last ones come first in the list */
            bq_held_add_front(&t->fresh, h);
        return;
    }
    bq_rd_deliveries_free(&items);
    t->subs[expect->queue].empty = false;
    t->subs[expect->queue].maybe = true;
}

static void chore_done(rd_transport *t, const rd_expect *expect, const rd_reply *reply)
{
    bq_str queue = t->config->queues[expect->queue];
    if (reply->type == RD_ERROR && bq_rd_fault_meaning(bq_rd_text(reply)) == RD_MEANS_NOSCRIPT) {
        memset(t->main.loaded, 0, sizeof(t->main.loaded));
        t->subs[expect->queue].chore_at = 0;
    } else if (reply->type == RD_ERROR) {
        bq_log(&t->host->logger, BQ_LOG_WARN, "redis: cannot look after what others left: %.*s",
               BQ_FMT(bq_rd_text(reply)));
    } else if (reply->type == RD_INTEGER && reply->integer > 0) {
        bq_log(&t->host->logger, BQ_LOG_WARN, "redis: %.*s: %lld messages that others left are looked after",
               BQ_FMT(queue), (long long)reply->integer);
    }
}

/* ---- dispatch ------------------------------------------------------------------------------------------------------------- */

/* Without its scripts this driver can do nothing: the same again and again would not help. */
static void loaded(rd_transport *t, const rd_reply *reply, int64_t now_ms)
{
    bq_error err;
    if (reply->type != RD_ERROR || fault_seen(t, bq_rd_text(reply), now_ms))
        return;
    if (bq_rd_fault_error(bq_rd_text(reply), "cannot load a script", &err) != BQ_REFUSED)
        bq_rd_give_up(t, &err);
}

static void answered_call(rd_transport *t, rd_call *call, rd_reply **reply)
{
    if (!call)
        return; /* nobody waits for it any more */
    call->done = true;
    if ((*reply)->type == RD_ERROR) {
        call->status = bq_rd_fault_error(bq_rd_text(*reply), "the server refused", &call->error);
        if (bq_rd_fault_meaning(bq_rd_text(*reply)) == RD_MEANS_NOSCRIPT)
            memset(t->main.loaded, 0, sizeof(t->main.loaded));
        return;
    }
    call->status = BQ_OK;
    call->reply = *reply;
    *reply = NULL;
}

/* What a node did not do because the queue is not there is kept for the one where it is. */
static void keep_for_later(rd_transport *t, const rd_expect *expect)
{
    bq_held_list items = expect->items;
    for (rd_slot *slot = expect->slots, *next; slot; slot = next) {
        next = slot->next;
        bq_rd_slots_push(&t->moved, slot);
    }
    for (bq_held *h; (h = bq_held_pop(&items)) != NULL;)
        bq_held_add_front(&t->fresh, h);
    if (expect->kind == RD_RESERVE) {
        t->subs[expect->queue].reserving = false;
        t->asked -= expect->asked < t->asked ? expect->asked : t->asked;
    } else if (expect->kind == RD_CHORE) {
        t->subs[expect->queue].chore_at = 0;
    }
    if (expect->call)
        *expect->call = (rd_call){.done = true, .moved = true};
}

/* True: a cluster's redirection. */
static bool redirected(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms)
{
    bq_str host;
    int port;
    if (!t->layout->follows || reply->type != RD_ERROR || !bq_rd_fault_redirects(bq_rd_text(reply), &host, &port))
        return false;
    keep_for_later(t, expect);
    if (port == 0) { /* the slot is on its way */
        bq_rd_slots_push_front(&t->queued, t->moved.head);
        t->moved = (rd_slots){0};
        t->hold_until = bq_deadline(now_ms, RD_PAUSE_MS);
        return true;
    }
    if (!t->moving && host.len > 0) {
        char *copy = bq_strndup(host);
        if (copy) {
            bq_free(t->moved_host);
            t->moved_host = copy;
        }
    }
    if (!t->moving)
        t->moved_port = port;
    t->moving = true;
    return true;
}

static void answer(rd_transport *t, const rd_expect *expect, rd_reply **reply, int64_t now_ms)
{
    if (redirected(t, expect, *reply, now_ms))
        return;
    switch (expect->kind) {
    case RD_PUBLISH: published(t, expect, *reply, now_ms); break;
    case RD_SETTLE: settled(t, expect, *reply, now_ms); break;
    case RD_RESERVE: reserved(t, expect, *reply, now_ms); break;
    case RD_BACK: gave_back(t, expect, *reply); break;
    case RD_CHORE: chore_done(t, expect, *reply); break;
    case RD_CALL: answered_call(t, expect->call, reply); break;
    case RD_LOAD: loaded(t, *reply, now_ms); break;
    case RD_PING:
        if ((*reply)->type == RD_ERROR)
            (void)fault_seen(t, bq_rd_text(*reply), now_ms);
        break;
    default: bq_rd_greeted(t, expect, *reply, now_ms); break;
    }
}

void bq_rd_answers(rd_transport *t, int64_t now_ms)
{
    uint64_t drops = t->drops;
    while (t->drops == drops && rd_conn_is_open(&t->main)) {
        bq_error err;
        rd_reply *reply;
        rd_expect expect;
        if (t->moving && t->main.count == 0) {
            bq_rd_move(t, now_ms);
            return;
        }
        bq_status status = bq_rd_conn_next(&t->main, &reply, &err);
        if (status == BQ_OK && !reply)
            return;
        if (status == BQ_OK && !bq_rd_conn_pop(&t->main, &expect)) {
            /* Said unasked, before it hangs up: too many clients, a protected server. */
            status = bq_fail(&err, BQ_UNAVAILABLE, "the server says: %.*s", BQ_FMT(bq_rd_text(reply)));
            bq_rd_reply_free(reply);
        } else if (status == BQ_OK) {
            answer(t, &expect, &reply, now_ms);
            bq_rd_reply_free(reply);
        }
        if (status != BQ_OK)
            bq_rd_down(t, &err, now_ms);
    }
}

/* ---- waiting connections --------------------------------------------------------------------------------------------------- */

/* False: the connection was dropped. */
static bool woken(rd_transport *t, rd_waiter *w, const rd_reply *reply, int64_t now_ms)
{
    w->waiting = false;
    for (size_t i = 0; i < w->count; i++)
        t->subs[w->first + i].maybe = true;
    if (reply->type != RD_ERROR)
        return true;
    bq_str text = bq_rd_text(reply);
    bq_str host;
    int port;
    bool elsewhere = t->layout->follows && bq_rd_fault_redirects(text, &host, &port);
    bq_rd_waiter_drop(t, w, now_ms);
    if (!elsewhere && !fault_seen(t, text, now_ms))
        bq_log(&t->host->logger, BQ_LOG_WARN, "redis: cannot wait: %.*s", BQ_FMT(text));
    return false;
}

static bool greeted_waiter(rd_transport *t, rd_waiter *w, rd_kind kind, const rd_reply *reply, int64_t now_ms)
{
    if (reply->type == RD_ERROR && kind != RD_HELLO_NAME) {
        bq_log(&t->host->logger, BQ_LOG_WARN, "redis: no second connection to wait on: %.*s",
               BQ_FMT(bq_rd_text(reply)));
        bq_rd_waiter_drop(t, w, now_ms);
        return false;
    }
    if (kind == RD_HELLO_PING)
        w->conn.ready = true;
    return true;
}

void bq_rd_waiter_answers(rd_transport *t, rd_waiter *w, int64_t now_ms)
{
    bool open = rd_conn_is_open(&w->conn);
    while (open) {
        bq_error err;
        rd_reply *reply;
        rd_expect expect;
        bq_status status = bq_rd_conn_next(&w->conn, &reply, &err);
        if (status == BQ_OK && !reply)
            return;
        if (status != BQ_OK || !bq_rd_conn_pop(&w->conn, &expect)) {
            bq_rd_reply_free(reply);
            bq_rd_waiter_drop(t, w, now_ms);
            return;
        }
        open = expect.kind == RD_WAIT ? woken(t, w, reply, now_ms) : greeted_waiter(t, w, expect.kind, reply, now_ms);
        bq_rd_reply_free(reply);
        open = open && rd_conn_is_open(&w->conn);
    }
}
