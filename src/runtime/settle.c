/*
 * runtime/settle.c - the only code that carries a decision out (contract 3): with the driver's own operation, or with
 * the documented fallback, always "confirmed write, then acknowledge"; on_error is told afterwards.
 *
 * A settlement is at most three operations, one at a time: WRITE (the replacement is published, where the driver
 * cannot replace in one step), END (the one that ends the delivery), BACK (giving back what could not be ended). An
 * extension of the lease may be under way beside WRITE; END waits for it, so that no extension follows the end.
 *
 * Thread rule: the I/O thread.
 */
#include "runtime/settle.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <string.h>

/* ---- operations ---------------------------------------------------------------------------------------------------- */

/* There is room for two operations of every delivery. */
static void push(bq_consumer *c, bq_op *op)
{
    op->deadline_ms = bq_deadline(c->link.now_ms, c->settle_timeout_ms);
    if (op->deadline_ms < c->next_scan_ms)
        c->next_scan_ms = op->deadline_ms;
    c->pending.ops[c->pending.count++] = op;
}

static bq_delivery *owner_of(const bq_op *op)
{
    return (bq_delivery *)(uintptr_t)op->cookie;
}

bool bq_settle_submit(bq_consumer *c)
{
    bq_pending *p = &c->pending;
    if (p->count == 0)
        return false;
    size_t taken = bq_link_submit(&c->link, p->ops, p->count);
    for (size_t i = 0; i < taken; i++) {
        bq_delivery *d = owner_of(p->ops[i]);
        if (p->ops[i] == &d->op)
            d->op_sent = true;
        else
            d->extend_sent = true;
    }
    p->count -= taken;
    p->refused = p->count;
    memmove(p->ops, p->ops + taken, p->count * sizeof *p->ops);
    return taken > 0;
}

static void withdraw(bq_consumer *c, const bq_op *op)
{
    bq_pending *p = &c->pending;
    for (size_t i = 0; i < p->count; i++)
        if (p->ops[i] == op) {
            memmove(p->ops + i, p->ops + i + 1, (p->count - i - 1) * sizeof *p->ops);
            p->count--;
            p->refused -= i < p->refused;
            return;
        }
}

static void start_op(bq_delivery *d, bq_op_kind kind, bq_step step)
{
    bq_consumer *c = d->consumer;
    d->stage = BQ_STAGE_SETTLING;
    d->step = step;
    d->op.kind = kind;
    d->op.in = d->in;
    d->op.cookie = (uint64_t)(uintptr_t)d;
    d->op_busy = true;
    d->op_sent = false;
    d->overdue = false;
    d->ending = kind != BQ_OP_PUBLISH;
    c->ending += d->ending;
    if (kind != BQ_OP_PUBLISH) {
        d->kept = d->in->keep = bq_can(d, BQ_CAP_KEEP) && (d->out || c->options.on_error);
        d->op_waits = d->extend_busy;
    }
    if (!d->op_waits)
        push(c, &d->op);
}

static void end_with(bq_delivery *d, bq_op_kind kind, int64_t delay_ms)
{
    d->op.out = (bq_outgoing){.delay_ms = delay_ms};
    start_op(d, kind, d->step == BQ_STEP_BACK ? BQ_STEP_BACK : BQ_STEP_END);
}

static void hold(bq_delivery *d, int64_t ms)
{
    bq_consumer *c = d->consumer;
    d->stage = BQ_STAGE_HOLDING;
    /* Shutdown waits for nobody's delay. */
    d->hold_until_ms = bq_deadline(c->link.now_ms, c->phase == BQ_PHASE_RUNNING ? ms : 0);
    if (d->hold_until_ms < c->next_scan_ms)
        c->next_scan_ms = d->hold_until_ms;
}

/* ---- carrying out ----------------------------------------------------------------------------------------------------------- */

static void unwritten(bq_delivery *d, bq_status status, const bq_error *why);

/* In one guarded step when the driver has it (`native`), else the confirmed write first. */
static void replace(bq_delivery *d, bq_op_kind native, bool has_native)
{
    bq_error err;
    int64_t delay = d->decision.delay_ms > 0 && !d->decision.tier ? d->decision.delay_ms : 0;
    bool in_one_step = has_native && (delay == 0 || bq_can(d, BQ_CAP_RETRY_DELAY));
    if (!in_one_step && delay && !bq_can(d, BQ_CAP_PUBLISH_DELAY)) {
        /* Nobody else can wait: the worker does, with the delivery in its hands. */
        d->decision.delay_ms = 0;
        hold(d, delay < BQ_HOLD_MAX_MS ? delay : BQ_HOLD_MAX_MS);
        return;
    }
    bq_status st = bq_replacement_make(d, &err);
    if (st) {
        unwritten(d, st, &err);
        return;
    }
    d->op.out.delay_ms = delay;
    if (in_one_step)
        start_op(d, native, BQ_STEP_END);
    else
        start_op(d, BQ_OP_PUBLISH, BQ_STEP_WRITE);
}

static void release(bq_delivery *d)
{
    const bq_decision *what = &d->decision;
    if (what->tier) {
        replace(d, BQ_OP_RETRY, bq_can(d, BQ_CAP_RETRY));
    } else if (bq_can(d, BQ_CAP_RELEASE)) {
        /* Contract 3: the delay is ignored where the binding cannot delay. */
        end_with(d, BQ_OP_RELEASE, bq_can(d, BQ_CAP_RELEASE_DELAY) ? what->delay_ms : 0);
    } else if (d->step == BQ_STEP_BACK || d->consumer->phase != BQ_PHASE_RUNNING) {
        bq_settle_forget(d); /* its reservation ends by itself, or with the connection */
    } else {
        if (!bq_can(d, BQ_CAP_RETRY_DELAY) && !bq_can(d, BQ_CAP_PUBLISH_DELAY))
            d->decision.delay_ms = 0;
        replace(d, BQ_OP_RETRY, bq_can(d, BQ_CAP_RETRY));
    }
}

static void native_retry(bq_delivery *d)
{
    bq_decision *what = &d->decision;
    if (!bq_can(d, BQ_CAP_NATIVE_RETRY)) {
        if (d->step == BQ_STEP_BACK)
            release(d);
        else
            replace(d, BQ_OP_RETRY, bq_can(d, BQ_CAP_RETRY));
    } else if (what->delay_ms > 0 && !bq_can(d, BQ_CAP_RETRY_DELAY)) {
        int64_t delay = what->delay_ms;
        what->delay_ms = 0;
        hold(d, delay < BQ_HOLD_MAX_MS ? delay : BQ_HOLD_MAX_MS);
    } else {
        d->op.reason = d->say_exception;
        d->op.description = d->say_error;
        end_with(d, BQ_OP_NATIVE_RETRY, what->delay_ms);
    }
}

static void reject(bq_delivery *d)
{
    if (bq_can(d, BQ_CAP_REJECT)) {
        d->op.reason = bq_str_of(d->decision.reject_reason);
        d->op.description = d->say_error;
        end_with(d, BQ_OP_REJECT, 0);
        return;
    }
    /* No transport of ours lacks it where its binding asks for it; a foreign one drops, as everywhere else. */
    d->decision.settled = BQ_SETTLED_DROPPED;
    d->decision.dropped = "its transport cannot reject";
    end_with(d, BQ_OP_ACK, 0);
}

static void act(bq_delivery *d)
{
    bq_decision *what = &d->decision;
    if (what->hold_ms > 0) {
        int64_t ms = what->hold_ms;
        what->hold_ms = 0;
        hold(d, ms);
        return;
    }
    switch (what->act) {
    case BQ_ACT_HANDLE:
    case BQ_ACT_HOOK:
    case BQ_ACT_ACK:
        d->op.result = d->has_result ? bq_buf_str(&d->result) : BQ_STR_NULL;
        end_with(d, BQ_OP_ACK, 0);
        break;
    case BQ_ACT_DROP: end_with(d, BQ_OP_ACK, 0); break;
    case BQ_ACT_RETRY: replace(d, BQ_OP_RETRY, bq_can(d, BQ_CAP_RETRY)); break;
    case BQ_ACT_DEAD_LETTER: replace(d, BQ_OP_DEAD_LETTER, bq_can(d, BQ_CAP_DEAD_LETTER) && !what->reject_after); break;
    case BQ_ACT_NATIVE_RETRY: native_retry(d); break;
    case BQ_ACT_RELEASE: release(d); break;
    case BQ_ACT_REJECT: reject(d); break;
    case BQ_ACT_LEAVE: end_with(d, BQ_OP_LEAVE, 0); break;
    }
}

static void begin(bq_delivery *d, bq_step step)
{
    d->ours = true;
    d->step = step;
    d->op.result = d->op.reason = d->op.description = BQ_STR_NULL;
    act(d);
}

void bq_settle(bq_delivery *d)
{
    bq_report_prepare(d);
    begin(d, BQ_STEP_END);
}

void bq_settle_give_back(bq_delivery *d)
{
    bq_facts none = {.native_count = -1};
    bq_decide_give_back(&d->consumer->policy, &none, &d->decision);
    begin(d, BQ_STEP_END);
}

void bq_settle_unjudged(bq_delivery *d)
{
    bq_log(&d->consumer->link.logger, BQ_LOG_ERROR, "queue %.*s: no memory to judge a message, it comes back",
           BQ_FMT(bq_queue_of(d)));
    d->decision = (bq_decision){.act = BQ_ACT_RELEASE,
                                .hold_ms = d->consumer->policy.pause_ms,
                                .copy = BQ_COPY_RELEASE,
                                .settled = BQ_SETTLED_RELEASED};
    begin(d, BQ_STEP_BACK);
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------------ */

void bq_settle_recycle(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    if (d->stage != BQ_STAGE_SETTLED || d->out || d->op_busy || d->extend_busy)
        return;
    if (d->ours && d->in)
        bq_link_forget(&c->link, d->in);
    bq_write_put(d);
    bq_delivery_reset(d);
    d->next_free = c->free;
    c->free = d;
    c->held--;
    atomic_store_explicit(&c->counters.in_flight, c->held, memory_order_release);
}

static void settled(bq_delivery *d)
{
    d->stage = BQ_STAGE_SETTLED;
    bq_settle_recycle(d);
}

void bq_settle_forget(bq_delivery *d)
{
    d->ours = true;
    settled(d);
}

static void count(bq_delivery *d, bq_settled as)
{
    bq_consumer *c = d->consumer;
    bq_counters *n = &c->counters;
    switch (as) {
    case BQ_SETTLED_ACKED: bq_count(&n->acked, 1); break;
    case BQ_SETTLED_RETRIED: bq_count(&n->retried, 1); break;
    case BQ_SETTLED_DEAD_LETTERED: bq_count(&n->dead_lettered, 1); break;
    case BQ_SETTLED_DROPPED: bq_count(&n->dropped, 1); break;
    case BQ_SETTLED_RELEASED: bq_count(&n->released, 1); break;
    case BQ_SETTLED_REJECTED:
    case BQ_SETTLED_LEFT:
    case BQ_SETTLED_FAILED:
    case BQ_SETTLED_LOST:
    case BQ_SETTLED_COUNT_: break;
    }
    if (d->decision.cause == BQ_CAUSE_WORKER_LOST && as != BQ_SETTLED_LOST)
        bq_count(&n->worker_lost, 1);
    c->settled += as != BQ_SETTLED_LOST;
}

static void ended(bq_delivery *d, bq_status status, const bq_error *why)
{
    bq_consumer *c = d->consumer;
    bool lost = status == BQ_LOST;
    bq_settled as = lost ? BQ_SETTLED_LOST : d->decision.settled;
    /* The driver has freed it unless it was asked not to. */
    if (!d->kept) {
        d->ours = false;
        d->in = NULL;
    }
    if (d->step == BQ_STEP_BACK) {
        settled(d);
        return;
    }
    if (lost)
        bq_settle_lease_lost(d, "its settlement came too late");
    else if (as == BQ_SETTLED_DROPPED)
        bq_log(&c->link.logger, BQ_LOG_WARN, "dropped a message of queue %.*s, route %.*s: %s", BQ_FMT(bq_queue_of(d)),
               BQ_FMT(bq_report_route(d)), d->decision.dropped ? d->decision.dropped : "");
    count(d, as);
    bq_report(d, as, lost ? why : NULL);
    settled(d);
}

/* The write was not confirmed, or the end failed: reported, and it comes back after the pause (contract 3). */
static void unwritten(bq_delivery *d, bq_status status, const bq_error *why)
{
    bq_consumer *c = d->consumer;
    bq_decision failed = d->decision;
    bq_error text = *why;
    text.status = status;
    if (d->step == BQ_STEP_BACK) {
        bq_log(&c->link.logger, BQ_LOG_WARN, "queue %.*s: a message could not be given back: %s",
               BQ_FMT(bq_queue_of(d)), text.text);
        bq_settle_forget(d);
        return;
    }
    if (!d->overdue) {
        bq_count(&c->counters.settle_failed, 1);
        bq_log(&c->link.logger, BQ_LOG_WARN, "queue %.*s, route %.*s: %s failed: %s", BQ_FMT(bq_queue_of(d)),
               BQ_FMT(bq_report_route(d)), bq_act_name(failed.act), text.text);
        bq_report(d, BQ_SETTLED_FAILED, &text);
    }
    /* After a confirmed write only the acknowledge is left, and a failed acknowledge is never turned into a retry. */
    if (d->written)
        failed.act = BQ_ACT_ACK;
    bq_decide_unwritten(&c->policy, &failed, &d->decision);
    d->decision.reported = failed.reported;
    d->decision.trouble = failed.trouble;
    d->step = BQ_STEP_BACK;
    act(d);
}

static void completed(bq_delivery *d, bq_status status, const bq_error *why)
{
    d->consumer->ending -= d->ending;
    d->ending = false;
    d->op_busy = d->op_sent = false;
    if (d->step == BQ_STEP_WRITE && status == BQ_OK) {
        d->written = true;
        d->step = BQ_STEP_END;
        if (d->decision.reject_after)
            reject(d);
        else
            end_with(d, BQ_OP_ACK, 0);
    } else if (d->step != BQ_STEP_WRITE && (status == BQ_OK || status == BQ_LOST)) {
        ended(d, status, why);
    } else {
        unwritten(d, status, why);
    }
}

/* ---- leases -------------------------------------------------------------------------------------------------------------------------- */

void bq_settle_lease_lost(bq_delivery *d, const char *why)
{
    bq_consumer *c = d->consumer;
    atomic_store_explicit(&d->lease_lost, true, memory_order_relaxed);
    d->extend_at_ms = BQ_NEVER;
    if (d->lost_counted)
        return;
    d->lost_counted = true;
    bq_count(&c->counters.leases_lost, 1);
    bq_log(&c->link.logger, BQ_LOG_WARN, "queue %.*s: a message is no longer ours: %s", BQ_FMT(bq_queue_of(d)), why);
}

/* At a third of what is left of it, so that two more attempts fit in. */
int64_t bq_settle_lease(bq_delivery *d, int64_t now_ms)
{
    if (!bq_can(d, BQ_CAP_EXTEND) || d->in->lease_until_ms <= 0)
        return d->extend_at_ms = BQ_NEVER;
    int64_t left = d->in->lease_until_ms - now_ms;
    return d->extend_at_ms = now_ms + (left > 30 ? left / 3 : 10);
}

static void extend(bq_delivery *d)
{
    d->extend = (bq_op){.kind = BQ_OP_EXTEND, .cookie = (uint64_t)(uintptr_t)d, .in = d->in};
    d->extend_busy = true;
    d->extend_sent = false;
    d->extend_at_ms = BQ_NEVER;
    push(d->consumer, &d->extend);
}

static void extended(bq_delivery *d, bq_status status, const bq_error *why)
{
    bq_consumer *c = d->consumer;
    d->extend_busy = d->extend_sent = false;
    if (d->op_waits) {
        d->op_waits = false;
        push(c, &d->op);
    }
    if (d->stage == BQ_STAGE_SETTLED) {
        bq_settle_recycle(d);
        return;
    }
    if (status == BQ_LOST) {
        bq_settle_lease_lost(d, "its lease ran out");
        return;
    }
    if (status)
        bq_log(&c->link.logger, BQ_LOG_INFO, "queue %.*s: a lease was not extended: %s", BQ_FMT(bq_queue_of(d)),
               why->text);
    int64_t next = bq_settle_lease(d, c->link.now_ms);
    if (next < c->next_scan_ms)
        c->next_scan_ms = next;
}

void bq_settle_completed(bq_delivery *d, const bq_op *op, bq_status status, const bq_error *error)
{
    if (op == &d->extend)
        extended(d, status, error);
    else
        completed(d, status, error);
}

/* ---- time ------------------------------------------------------------------------------------------------------------------------------ */

static void lower(int64_t *next_ms, int64_t at_ms)
{
    if (at_ms < *next_ms)
        *next_ms = at_ms;
}

/* An operation that the driver never accepted ends here; one that it holds is answered for, but stays. */
static void tick_op(bq_delivery *d, int64_t now_ms, int64_t *next_ms)
{
    bq_error why;
    if (!d->op_busy || d->op_waits)
        return;
    if (!d->op_sent && d->op.deadline_ms <= now_ms) {
        withdraw(d->consumer, &d->op);
        (void)bq_fail(&why, BQ_TIMEOUT, "the transport did not take it in time");
        completed(d, BQ_TIMEOUT, &why);
    } else if (d->op_sent && !d->overdue && bq_deadline(d->op.deadline_ms, BQ_OVERDUE_MS) <= now_ms) {
        d->overdue = true;
        (void)bq_fail_flags(&why, BQ_UNKNOWN, BQ_ERROR_MAYBE_DONE, 0, "no confirmation in time");
        bq_count(&d->consumer->counters.settle_failed, d->step != BQ_STEP_BACK);
        if (d->step != BQ_STEP_BACK)
            bq_report(d, BQ_SETTLED_FAILED, &why);
    } else if (!d->overdue) {
        lower(next_ms, d->op_sent ? bq_deadline(d->op.deadline_ms, BQ_OVERDUE_MS) : d->op.deadline_ms);
    }
}

static void tick_extend(bq_delivery *d, int64_t now_ms, int64_t *next_ms)
{
    bq_error why;
    if (d->extend_busy && !d->extend_sent && d->extend.deadline_ms <= now_ms) {
        withdraw(d->consumer, &d->extend);
        (void)bq_fail(&why, BQ_TIMEOUT, "the transport did not take it in time");
        extended(d, BQ_TIMEOUT, &why);
    } else if (d->extend_busy) {
        lower(next_ms, bq_deadline(d->extend.deadline_ms, d->extend_sent ? BQ_OVERDUE_MS : 0));
    }
    /* The end cannot wait for ever for an extension that never completes. */
    if (d->op_waits && d->extend_sent && bq_deadline(d->extend.deadline_ms, BQ_OVERDUE_MS) <= now_ms) {
        d->op_waits = false;
        push(d->consumer, &d->op);
    }
}

static void tick_lease(bq_delivery *d, int64_t now_ms, int64_t *next_ms)
{
    bool ending = d->stage == BQ_STAGE_SETTLING && d->step != BQ_STEP_WRITE;
    if (d->stage == BQ_STAGE_SETTLED || ending || d->in->lease_until_ms <= 0)
        return;
    if (d->in->lease_lost || d->in->lease_until_ms <= now_ms) {
        bq_settle_lease_lost(d, "its lease ran out");
        return;
    }
    lower(next_ms, d->in->lease_until_ms);
    if (d->extend_busy || d->no_extend)
        return;
    if (d->extend_at_ms <= now_ms)
        extend(d);
    else
        lower(next_ms, d->extend_at_ms);
}

void bq_settle_tick(bq_delivery *d, int64_t now_ms, int64_t *next_ms)
{
    if (d->stage == BQ_STAGE_HOLDING && (d->hold_until_ms <= now_ms || d->revoked)) {
        if (d->revoked) {
            bq_settle_forget(d);
            return;
        }
        act(d);
    }
    if (d->stage == BQ_STAGE_FREE)
        return;
    if (d->stage == BQ_STAGE_HOLDING)
        lower(next_ms, d->hold_until_ms);
    tick_extend(d, now_ms, next_ms);
    tick_op(d, now_ms, next_ms);
    if (d->stage != BQ_STAGE_FREE)
        tick_lease(d, now_ms, next_ms);
}
