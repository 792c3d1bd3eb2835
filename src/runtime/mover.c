/*
 * runtime/mover.c - see mover.h.
 *
 * Thread rule: the thread that opened it.
 */
#include "runtime/mover.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { REAP = 64, TAKE = 256, OVERDUE_MS = 1000 };

static bool can(const bq_mover *m, unsigned capability)
{
    return (m->link.caps & capability) != 0;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

static void push(bq_mover *m, bq_haul *h, bq_op *op)
{
    op->cookie = (uint64_t)(uintptr_t)h;
    op->in = h->in;
    op->deadline_ms = bq_deadline(bq_now_ms(), m->timeout_ms);
    m->pending[m->pending_count++] = op;
}

static void start(bq_mover *m, bq_haul *h, bq_op_kind kind, bq_haul_stage stage)
{
    h->stage = stage;
    h->op.kind = kind;
    h->op_busy = true;
    h->op_sent = false;
    /* The lease is not extended beside the operation that ends it. */
    if (!h->extend_busy || kind == BQ_OP_PUBLISH)
        push(m, h, &h->op);
}

static void submit(bq_mover *m)
{
    if (m->pending_count == 0)
        return;
    size_t taken = bq_link_submit(&m->link, m->pending, m->pending_count);
    for (size_t i = 0; i < taken; i++) {
        bq_haul *h = (bq_haul *)(uintptr_t)m->pending[i]->cookie;
        if (m->pending[i] == &h->op)
            h->op_sent = true;
        else
            h->extend_sent = true;
    }
    m->pending_count -= taken;
    memmove(m->pending, m->pending + taken, m->pending_count * sizeof *m->pending);
}

void bq_mover_move(bq_mover *m, bq_haul *h, const bq_outgoing *out)
{
    h->op.out = *out;
    if (can(m, BQ_CAP_DEAD_LETTER))
        start(m, h, BQ_OP_DEAD_LETTER, BQ_HAUL_ENDING);
    else
        start(m, h, BQ_OP_PUBLISH, BQ_HAUL_WRITING);
}

void bq_mover_give_back(bq_mover *m, bq_haul *h)
{
    if (!h->in)
        return;
    h->op.out = (bq_outgoing){.delay_ms = 0};
    if (can(m, BQ_CAP_RELEASE | BQ_CAP_REWIND)) {
        start(m, h, BQ_OP_RELEASE, BQ_HAUL_BACK);
        return;
    }
    /* Where nothing can be given back a copy is written to where it came from. */
    h->op.out = (bq_outgoing){.queue = m->queue,
                              .body = h->in->body,
                              .key = h->in->key,
                              .props = h->in->props,
                              .prop_count = h->in->prop_count};
    start(m, h, BQ_OP_PUBLISH, BQ_HAUL_BACK);
}

static void failed(bq_haul *h, bq_status status, const bq_error *why)
{
    h->error = *why;
    h->error.status = status;
    if (status == BQ_LOST && h->op.kind != BQ_OP_PUBLISH)
        h->in = NULL; /* freed by the driver */
    h->stage = BQ_HAUL_FAILED;
}

static void op_done(bq_mover *m, bq_haul *h, bq_status status, const bq_error *why)
{
    h->op_busy = false;
    bq_haul_stage stage = h->stage;
    if (status != BQ_OK) {
        failed(h, status, why);
    } else if (h->op.kind == BQ_OP_PUBLISH) {
        start(m, h, BQ_OP_ACK, stage == BQ_HAUL_BACK ? BQ_HAUL_BACK : BQ_HAUL_ENDING);
    } else {
        h->in = NULL;
        h->stage = BQ_HAUL_MOVED;
    }
}

static void plan_extension(const bq_mover *m, bq_haul *h, int64_t now_ms)
{
    h->extend_at_ms = BQ_NEVER;
    if (!can(m, BQ_CAP_EXTEND) || h->in->lease_until_ms <= 0)
        return;
    int64_t left = h->in->lease_until_ms - now_ms;
    h->extend_at_ms = now_ms + (left > 30 ? left / 3 : 10);
}

static void extend_done(bq_mover *m, bq_haul *h, bq_status status)
{
    h->extend_busy = false;
    if (h->in && status != BQ_LOST)
        plan_extension(m, h, bq_now_ms());
    if (h->op_busy && !h->op_sent && h->op.kind != BQ_OP_PUBLISH)
        push(m, h, &h->op); /* it waited */
}

static void complete(bq_mover *m, bq_op *op, bq_status status, const bq_error *why)
{
    bq_haul *h = (bq_haul *)(uintptr_t)op->cookie;
    if (op == &h->extend)
        extend_done(m, h, status);
    else
        op_done(m, h, status, why);
}

/* What the driver never took, or never answered, ends here all the same. */
static void expire(bq_mover *m, int64_t now_ms)
{
    bq_error why;
    for (size_t i = 0; i < m->pending_count;) {
        bq_op *op = m->pending[i];
        if (op->deadline_ms > now_ms) {
            i++;
            continue;
        }
        m->pending_count--;
        memmove(m->pending + i, m->pending + i + 1, (m->pending_count - i) * sizeof *m->pending);
        if (m->link.error.text[0] && !atomic_load(&m->link.up))
            (void)bq_fail(&why, BQ_UNAVAILABLE, "%s", m->link.error.text);
        else
            (void)bq_fail(&why, BQ_TIMEOUT, "the transport did not take it in time");
        complete(m, op, why.status, &why);
    }
}

static int64_t extend_due(bq_mover *m, int64_t now_ms, int64_t until_ms)
{
    for (size_t i = 0; i < m->size; i++) {
        bq_haul *h = &m->hauls[i];
        bool held = h->stage == BQ_HAUL_HELD || h->stage == BQ_HAUL_WRITING;
        if (!held || h->extend_busy)
            continue;
        if (h->extend_at_ms <= now_ms) {
            h->extend = (bq_op){.kind = BQ_OP_EXTEND};
            h->extend_busy = true;
            h->extend_sent = false;
            push(m, h, &h->extend);
        } else if (h->extend_at_ms < until_ms) {
            until_ms = h->extend_at_ms;
        }
    }
    return until_ms;
}

void bq_mover_pump(bq_mover *m, int64_t until_ms)
{
    bq_completion done[REAP];
    until_ms = extend_due(m, bq_now_ms(), until_ms);
    submit(m);
    size_t n = bq_link_reap(&m->link, done, REAP);
    for (size_t i = 0; i < n; i++)
        complete(m, done[i].op, done[i].status, &done[i].error);
    expire(m, bq_now_ms());
    for (size_t i = 0; i < m->pending_count; i++)
        until_ms = m->pending[i]->deadline_ms < until_ms ? m->pending[i]->deadline_ms : until_ms;
    bq_link_turn(&m->link, NULL, until_ms, n ? BQ_TURN_BUSY : BQ_TURN_WAIT);
}

bool bq_mover_await(bq_mover *m)
{
    bool answered = true;
    for (;;) {
        int64_t now = bq_now_ms(), until = BQ_NEVER;
        bool busy = false;
        for (size_t i = 0; i < m->size; i++) {
            bq_haul *h = &m->hauls[i];
            if (!h->op_busy || h->stage == BQ_HAUL_STUCK)
                continue;
            int64_t patience = bq_deadline(h->op.deadline_ms, OVERDUE_MS);
            if (h->op_sent && patience <= now) {
                h->stage = BQ_HAUL_STUCK;
                answered = false;
                continue;
            }
            busy = true;
            until = patience < until ? patience : until;
        }
        if (!busy)
            return answered;
        bq_mover_pump(m, until);
    }
}

/* ---- taking ------------------------------------------------------------------------------------------------------------- */

static size_t take_now(bq_mover *m, size_t max)
{
    bq_incoming *in[TAKE];
    size_t n = bq_link_take(&m->link, in, max < TAKE ? max : TAKE), at = 0;
    for (size_t i = 0; i < n; i++) {
        while (m->hauls[at].stage != BQ_HAUL_FREE)
            at++;
        bq_haul *h = &m->hauls[at];
        h->in = in[i];
        h->stage = BQ_HAUL_HELD;
        plan_extension(m, h, bq_now_ms());
    }
    return n;
}

size_t bq_mover_take(bq_mover *m, size_t max, int64_t patience_ms)
{
    size_t got = 0;
    int64_t quiet_until = bq_deadline(bq_now_ms(), patience_ms);
    while (got < max && !m->link.fatal) {
        m->link.want = max - got;
        size_t n = take_now(m, max - got);
        got += n;
        if (n) {
            /* More may follow at once, but what is here need not wait long for it. */
            quiet_until = bq_deadline(bq_now_ms(), patience_ms < 100 ? patience_ms : 100);
            continue;
        }
        if (bq_now_ms() >= quiet_until)
            break;
        if (got == 0 && atomic_load(&m->link.up) && bq_link_has_idle(&m->link) && bq_link_idle(&m->link, false))
            break;
        bq_mover_pump(m, quiet_until);
    }
    m->link.want = 0;
    return got;
}

bq_status bq_haul_props(bq_haul *h, size_t count)
{
    if (count <= h->prop_cap)
        return BQ_OK;
    bq_prop *more = bq_realloc_array(h->props, count, sizeof *more);
    if (!more)
        return BQ_NOMEM;
    h->props = more;
    h->prop_cap = count;
    return BQ_OK;
}

void bq_mover_drop(bq_mover *m, bq_haul *h)
{
    if (h->stage == BQ_HAUL_FREE || h->stage == BQ_HAUL_STUCK || h->op_busy)
        return;
    /* An extension that is still under way refers to it. */
    int64_t until = bq_deadline(bq_now_ms(), m->timeout_ms);
    while (h->extend_busy && bq_now_ms() < until)
        bq_mover_pump(m, until);
    if (h->extend_busy) {
        h->stage = BQ_HAUL_STUCK;
        return;
    }
    if (h->in)
        bq_link_forget(&m->link, h->in);
    h->in = NULL;
    h->stage = BQ_HAUL_FREE;
    bq_buf_reset(&h->body);
    bq_buf_reset(&h->scratch);
}

/* ---- life ---------------------------------------------------------------------------------------------------------------- */

bq_status bq_mover_open(bq_mover *m, const char *url, bq_str queue, size_t batch, int64_t timeout_ms,
                        const bq_logger *logger, bq_error *err)
{
    memset(m, 0, sizeof *m);
    m->queue = queue;
    m->size = batch;
    m->hauls = bq_calloc(batch, sizeof *m->hauls);
    m->pending = bq_calloc(batch * 2, sizeof *m->pending);
    if (!m->hauls || !m->pending) {
        bq_mover_close(m);
        return bq_fail_nomem(err);
    }
    for (size_t i = 0; i < batch; i++) {
        bq_buf_init(&m->hauls[i].body, 0);
        bq_buf_init(&m->hauls[i].scratch, 0);
    }
    bq_link_spec spec = {.url = url,
                         .roles = BQ_ROLE_CONSUME | BQ_ROLE_PUBLISH | BQ_ROLE_ADMIN,
                         .queues = &m->queue,
                         .queue_count = 1,
                         .prefetch = (uint32_t)batch};
    if (logger)
        spec.logger = *logger;
    bq_status st = bq_link_init(&m->link, &spec, err);
    if (!st) {
        m->link.want = 0;
        m->link.spec.max_attempts = m->link.binding->max_attempts;
        m->timeout_ms = timeout_ms > 0 ? timeout_ms : bq_link_timeout(&m->link);
        bq_link_call_limit(&m->link, m->timeout_ms);
        st = bq_link_open(&m->link, err);
    }
    if (!st)
        st = bq_link_connect(&m->link, bq_deadline(bq_now_ms(), m->timeout_ms), err);
    if (st)
        bq_mover_close(m);
    return st;
}

void bq_mover_close(bq_mover *m)
{
    if (m->link.state)
        bq_link_close(&m->link, BQ_CLOSE_MS);
    for (size_t i = 0; m->hauls && i < m->size; i++) {
        bq_buf_clear(&m->hauls[i].body);
        bq_buf_clear(&m->hauls[i].scratch);
        bq_free(m->hauls[i].props);
    }
    bq_link_clear(&m->link);
    bq_free(m->hauls);
    bq_free(m->pending);
    m->hauls = NULL;
    m->pending = NULL;
}
