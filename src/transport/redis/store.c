/* redis/store.c - the operations that were accepted and the deliveries that were reserved. See redis.h. */
#include "transport/redis/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#include <string.h>

/* ---- operations ------------------------------------------------------------------------------------------------------ */

void bq_rd_slots_push(rd_slots *list, rd_slot *slot)
{
    slot->next = NULL;
    if (list->tail)
        list->tail->next = slot;
    else
        list->head = slot;
    list->tail = slot;
    list->count++;
}

void bq_rd_slots_push_front(rd_slots *list, rd_slot *chain)
{
    rd_slot *last = chain;
    if (!chain)
        return;
    list->count++;
    for (; last->next; last = last->next)
        list->count++;
    last->next = list->head;
    if (!list->tail)
        list->tail = last;
    list->head = chain;
}

rd_slot *bq_rd_slots_pop(rd_slots *list)
{
    rd_slot *slot = list->head;
    if (!slot)
        return NULL;
    list->head = slot->next;
    if (!list->head)
        list->tail = NULL;
    list->count--;
    slot->next = NULL;
    return slot;
}

rd_slot *bq_rd_slot_take(rd_transport *t, bq_op *op)
{
    bool publishes = op->kind == BQ_OP_PUBLISH;
    if (t->op_count >= (publishes ? RD_OPS_MAX - RD_SETTLE_ROOM : RD_OPS_MAX) ||
        (publishes && t->op_count > 0 && t->op_bytes > RD_OPS_BYTES))
        return NULL;
    rd_slot *slot = bq_rd_slots_pop(&t->free);
    if (!slot)
        return NULL;
    *slot = (rd_slot){.op = op, .bytes = op->out.body.len + 64};
    t->op_count++;
    t->op_bytes += slot->bytes;
    rd_delivery *d = rd_delivery_of(op->in);
    if (d)
        d->held.ops++;
    return slot;
}

static bool settles(bq_op_kind kind)
{
    return kind != BQ_OP_PUBLISH && kind != BQ_OP_EXTEND;
}

void bq_rd_slot_decide(rd_transport *t, rd_slot *slot, bq_status status, const bq_error *err)
{
    rd_delivery *d = rd_delivery_of(slot->op->in);
    slot->status = status;
    if (status != BQ_OK && err && (slot->error = bq_malloc(sizeof(*err))))
        *slot->error = *err;
    if (d && status == BQ_LOST)
        d->held.in.lease_lost = true;
    if (d && slot->op->kind == BQ_OP_EXTEND && status == BQ_UNKNOWN)
        d->score = 0; /* it may have a new one */
    if (d && settles(slot->op->kind)) {
        if (status == BQ_OK || status == BQ_LOST) {
            d->held.settled = true;
        } else if (d->settling) { /* it is in our hands still */
            d->settling = false;
            t->settling--;
        }
    }
    bq_rd_slots_push(&t->done, slot);
}

void bq_rd_slots_decide(rd_transport *t, rd_slot *chain, bq_status status, const bq_error *err)
{
    while (chain) {
        rd_slot *next = chain->next;
        bq_rd_slot_decide(t, chain, status, err);
        chain = next;
    }
}

static void explain(const rd_slot *slot, bq_error *err)
{
    if (slot->error) {
        *err = *slot->error;
        return;
    }
    switch (slot->status) {
    case BQ_LOST: (void)bq_fail(err, BQ_LOST, "the lease ran out and the message was given back to its queue"); break;
    case BQ_TIMEOUT: (void)bq_fail(err, BQ_TIMEOUT, "the deadline had passed, nothing was sent"); break;
    case BQ_UNSUPPORTED: (void)bq_fail(err, BQ_UNSUPPORTED, "redis: does not do that natively"); break;
    case BQ_INVALID: (void)bq_fail(err, BQ_INVALID, "a queue needs a name"); break;
    case BQ_NOMEM: (void)bq_fail_nomem(err); break;
    default: (void)bq_fail(err, slot->status, "the connection was lost"); break;
    }
}

size_t bq_rd_reap(void *state, bq_completion *out, size_t max)
{
    rd_transport *t = state;
    size_t count = 0;
    while (count < max && t->done.head) {
        rd_slot *slot = bq_rd_slots_pop(&t->done);
        bq_completion *completion = &out[count++];
        completion->cookie = slot->op->cookie;
        completion->op = slot->op;
        completion->status = slot->status;
        if (slot->status != BQ_OK)
            explain(slot, &completion->error);
        rd_delivery *d = rd_delivery_of(slot->op->in);
        t->op_count--;
        t->op_bytes -= slot->bytes;
        bq_free(slot->error);
        slot->error = NULL;
        bq_rd_slots_push(&t->free, slot);
        if (d && bq_held_reaped(&d->held))
            bq_rd_delivery_let_go(t, d);
    }
    return count;
}

/* ---- deliveries ------------------------------------------------------------------------------------------------------ */

rd_delivery *bq_rd_delivery_new(rd_transport *t, size_t queue, rd_reply *raw)
{
    rd_delivery *d = bq_calloc(1, sizeof(*d));
    if (!d) {
        bq_rd_reply_free(raw);
        return NULL;
    }
    d->raw = raw;
    d->held.in = (bq_incoming){.queue = queue,
                               .body = bq_rd_text(raw),
                               .native_count = -1,
                               .generation = 1,
                               .position = ++t->position,
                               .driver = d};
    if (!t->layout->frames)
        return d;
    if (bq_rd_frame_read(d->held.in.body, &d->frame) != BQ_OK) {
        bq_rd_delivery_free(d);
        return NULL;
    }
    d->held.in.body = d->frame.body;
    d->held.in.props = d->frame.props;
    d->held.in.prop_count = d->frame.prop_count;
    return d;
}

void bq_rd_delivery_free(rd_delivery *d)
{
    bq_rd_frame_clear(&d->frame);
    bq_rd_reply_free(d->raw);
    bq_free(d->member);
    bq_free(d->name);
    bq_free(d);
}

void bq_rd_deliveries_free(bq_held_list *list)
{
    for (bq_held *h; (h = bq_held_pop(list)) != NULL;)
        bq_rd_delivery_free((rd_delivery *)h);
}

/* Out of the transport's hands: freed, or left to the runtime that asked to keep it. */
void bq_rd_delivery_let_go(rd_transport *t, rd_delivery *d)
{
    if (!d->held.detached && d->settling)
        t->settling--;
    if (bq_held_let_go(&t->taken, &d->held))
        bq_rd_delivery_free(d);
}
