/*
 * runtime/delivery.c - one message in a handler's hands: how it is judged before the handler runs (contract 3.1 to
 * 3.5), what a handler may ask and say, and how it comes back to the I/O thread exactly once.
 *
 * Thread rule: judging and the accessors belong to whoever holds the delivery, one thread at a time.
 * bq_delivery_settle, bq_delivery_cancelled and bq_delivery_lease_lost may be called from any thread until it is
 * settled.
 */
#include "runtime/worker.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

enum { KEEP_BYTES = 4096, SHOWN_BYTES = 32 };

static void shrink(bq_buf *buf)
{
    if (buf->cap > KEEP_BYTES)
        bq_buf_clear(buf);
    else
        bq_buf_reset(buf);
}

void bq_delivery_reset(bq_delivery *d)
{
    d->in = NULL;
    d->judged = d->nomem = d->ran = d->shown_ready = false;
    d->header_at = (bq_header_cursor){0, 0, 0};
    d->route = d->detail = BQ_STR_NULL;
    d->handler = NULL;
    d->facts = (bq_facts){.native_count = -1};
    d->decision = (bq_decision){.act = BQ_ACT_HANDLE};
    shrink(&d->scratch);
    shrink(&d->shown);
    if (d->has_exception || d->has_error || d->has_result) {
        shrink(&d->exception);
        shrink(&d->error);
        shrink(&d->result);
    }
    d->has_exception = d->has_error = d->has_result = false;
    d->retry_after_ms = -1;
    d->took_us = 0;
    atomic_store_explicit(&d->bits, 0, memory_order_relaxed);
    atomic_store_explicit(&d->cancelled, false, memory_order_relaxed);
    atomic_store_explicit(&d->lease_lost, false, memory_order_relaxed);
    atomic_store_explicit(&d->started_ms, 0, memory_order_relaxed);
    d->out = d->forced = d->revoked = d->ours = d->lost_counted = d->reported = d->overdue = false;
    d->ending = d->op_busy = d->op_sent = d->op_waits = d->extend_busy = d->extend_sent = d->timed_out = false;
    d->no_extend = d->written = d->kept = false;
    d->say_exception = d->say_error = d->say_body = d->say_route = BQ_STR_NULL;
    d->extend_at_ms = d->hold_until_ms = BQ_NEVER;
    d->stage = BQ_STAGE_FREE;
}

void bq_delivery_clear(bq_delivery *d)
{
    bq_buf_clear(&d->scratch);
    bq_buf_clear(&d->shown);
    bq_buf_clear(&d->exception);
    bq_buf_clear(&d->error);
    bq_buf_clear(&d->result);
}

/* ---- judging ------------------------------------------------------------------------------------------------------- */

static bool find_handler(bq_delivery *d)
{
    const bq_consumer *c = d->consumer;
    const bq_route_slot *slot = bq_routes_find(&c->routes, d->route);
    d->handler = slot ? slot->handler : d->route.len ? c->options.any : NULL;
    d->handler_arg = slot ? slot->arg : c->options.any_arg;
    return d->handler != NULL;
}

void bq_delivery_judge(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    const bq_binding *binding = c->link.binding;
    const bq_incoming *in = d->in;
    bq_facts *f = &d->facts;
    *f = (bq_facts){.native_count = in->native_count, .lapses = in->lapses};
    f->gated = bq_gate(binding, in->props, in->prop_count, &d->detail, &d->scratch);
    /* A gated body is not touched (contract 3.1), so its attempts are those beside it. */
    if (f->gated || !in->body.ptr)
        (void)bq_envelope_decode_null(&d->env);
    else
        (void)bq_envelope_decode(&d->env, in->body.ptr, in->body.len);
    d->judged = !f->gated;
    f->attempts = bq_reconcile(binding, &d->env, in->props, in->prop_count, in->native_count);
    if (!f->gated) {
        f->poison = bq_is_poison(binding, &d->env);
        f->null_root = (d->env.seen & BQ_SEEN_NULL_ROOT) != 0;
        if (bq_route_of(binding, &d->env, in->props, in->prop_count, &d->scratch, &d->route)) {
            d->nomem = true;
            return;
        }
        f->routed = !f->poison && find_handler(d);
    }
    uint64_t random = c->policy.retry_jitter == BQ_JITTER_NONE ? 0 : bq_random_u64();
    bq_decide_arrival(&c->policy, f, random, &d->decision);
    if (d->decision.act == BQ_ACT_HOOK) {
        d->handler = c->options.unknown_hook;
        d->handler_arg = c->options.unknown_hook_arg;
    }
}

/* ---- coming back --------------------------------------------------------------------------------------------------- */

/* The consumer was closed while the handler had it: what is left of it goes with the last of them. */
static void release_orphan(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    if (d->in && d->kept && d->ours)
        c->link.ops->forget(c->link.state, d->in);
    d->ours = false;
    bq_consumer_unref(c);
}

void bq_delivery_hand_in(bq_delivery *d, unsigned bits)
{
    bq_consumer *c = d->consumer;
    unsigned old = atomic_fetch_or(&d->bits, bits);
    unsigned both = BQ_BIT_RETURNED | BQ_BIT_OUTCOME;
    if (((old | bits) & both) != both || (old & both) == both)
        return;
    if (old & BQ_BIT_ORPHAN) {
        release_orphan(d);
        return;
    }
    /* It has a place for every delivery, which the I/O thread may be about to leave. */
    while (!bq_ring_push(&c->outcomes, d))
        (void)sched_yield();
    /* While others are still running, and not much waits here, the I/O thread may finish its nap. */
    size_t count = bq_ring_count(&c->outcomes);
    bool urgent = count * 2 >= c->prefetch || count >= atomic_load_explicit(&c->running, memory_order_relaxed);
    bq_wake_up(&c->wake, urgent);
}

void bq_delivery_settle(bq_delivery *d, bq_outcome outcome)
{
    bq_consumer *c = d->consumer;
    /* Once the outcome is in, the delivery may be reused and the consumer freed. */
    atomic_fetch_add(&c->refs, 1);
    if (outcome != BQ_DEFERRED && !(atomic_fetch_or(&d->bits, BQ_BIT_CLAIMED) & BQ_BIT_CLAIMED)) {
        d->outcome = outcome;
        bq_delivery_hand_in(d, BQ_BIT_OUTCOME);
    }
    bq_consumer_unref(c);
}

/* ---- asking ---------------------------------------------------------------------------------------------------------- */

static bq_str text_of(const bq_delivery *d, bq_field field)
{
    /* Reading may unescape into the scratch, which is no part of what the caller sees. */
    bq_delivery *own = (bq_delivery *)(uintptr_t)d;
    bq_str out = BQ_STR_NULL;
    if (!d->judged || bq_envelope_text(&d->env, field, &own->scratch, &out))
        return BQ_STR_NULL;
    return out;
}

bq_str bq_delivery_urn(const bq_delivery *d)
{
    return d->route;
}

bq_str bq_delivery_id(const bq_delivery *d)
{
    return text_of(d, BQ_FIELD_META_ID);
}

bq_str bq_delivery_trace_id(const bq_delivery *d)
{
    return text_of(d, BQ_FIELD_TRACE_ID);
}

bq_str bq_delivery_data(const bq_delivery *d)
{
    return d->judged ? bq_envelope_raw(&d->env, BQ_FIELD_DATA) : BQ_STR_NULL;
}

bq_str bq_delivery_body(const bq_delivery *d)
{
    return d->in->body;
}

bq_str bq_delivery_queue(const bq_delivery *d)
{
    return d->consumer->queues[d->queue].name;
}

bq_str bq_delivery_lang(const bq_delivery *d)
{
    return text_of(d, BQ_FIELD_META_LANG);
}

bq_str bq_delivery_key(const bq_delivery *d)
{
    return d->in->key;
}

int64_t bq_delivery_created_at(const bq_delivery *d)
{
    return d->judged ? bq_envelope_int(&d->env, BQ_FIELD_META_CREATED_AT, 0) : 0;
}

int32_t bq_delivery_attempts(const bq_delivery *d)
{
    return d->facts.attempts;
}

const bq_envelope *bq_delivery_envelope(const bq_delivery *d)
{
    return d->judged ? &d->env : NULL;
}

bool bq_delivery_lease_lost(const bq_delivery *d)
{
    return atomic_load_explicit(&d->lease_lost, memory_order_relaxed);
}

bool bq_delivery_cancelled(const bq_delivery *d)
{
    return atomic_load_explicit(&d->cancelled, memory_order_relaxed);
}

/* ---- headers (contract 5) --------------------------------------------------------------------------------------------- */

static bool is_shown(const bq_delivery *d, const bq_prop *p)
{
    if (p->place != BQ_PLACE_HEADER || p->type == BQ_PROP_NULL || p->type == BQ_PROP_OTHER || !p->name.len)
        return false;
    return !bq_binding_owns(d->consumer->link.binding, p->place, p->name);
}

static bool is_text(const bq_prop *p)
{
    return p->type == BQ_PROP_STRING || p->type == BQ_PROP_BINARY || p->type == BQ_PROP_SYMBOL ||
           p->type == BQ_PROP_NUMBER;
}

static void add_value(bq_buf *out, const bq_prop *p)
{
    size_t before = out->len;
    if (p->type == BQ_PROP_BOOL)
        (void)bq_buf_addf(out, "%s", p->num ? "true" : "false");
    else if (p->type == BQ_PROP_DOUBLE)
        (void)bq_buf_addf(out, "%.17g", p->real);
    else
        (void)bq_buf_addf(out, "%" PRId64, p->num);
    /* Every value has a place of the same size, so that the place follows from its number. */
    while (out->len < before + SHOWN_BYTES)
        (void)bq_buf_add_byte(out, 0);
}

/* Formats every value that is not text, once: views given out before stay. */
static bool show(bq_delivery *d)
{
    if (d->shown_ready)
        return true;
    size_t count = 0;
    for (size_t i = 0; i < d->in->prop_count; i++)
        count += !is_text(&d->in->props[i]) && is_shown(d, &d->in->props[i]);
    if (count && bq_buf_reserve(&d->shown, count * SHOWN_BYTES))
        return false;
    for (size_t i = 0; i < d->in->prop_count; i++)
        if (!is_text(&d->in->props[i]) && is_shown(d, &d->in->props[i]))
            add_value(&d->shown, &d->in->props[i]);
    d->shown_ready = true;
    return true;
}

/* Going on from where the call before ended: whoever reads all of many headers passes each of them once. */
bool bq_delivery_header_at(const bq_delivery *delivery, size_t index, bq_str *name, bq_str *value)
{
    bq_delivery *d = (bq_delivery *)(uintptr_t)delivery;
    bq_header_cursor *at = &d->header_at;
    if (index < at->index)
        *at = (bq_header_cursor){0, 0, 0};
    for (; at->prop < d->in->prop_count; at->prop++) {
        const bq_prop *p = &d->in->props[at->prop];
        if (!is_shown(d, p) || (is_text(p) && !p->text.len))
            continue;
        if (at->index < index) {
            at->index++;
            at->formatted += !is_text(p);
            continue;
        }
        *name = p->name;
        *value = p->text;
        if (!is_text(p)) {
            if (!show(d))
                return false;
            *value = bq_str_of(d->shown.ptr + at->formatted * SHOWN_BYTES);
        }
        return true;
    }
    return false;
}

bq_str bq_delivery_header(const bq_delivery *d, bq_str name)
{
    bq_str key, value;
    for (size_t i = 0; bq_delivery_header_at(d, i, &key, &value); i++)
        if (bq_str_equal(key, name))
            return value;
    return BQ_STR_NULL;
}

bool bq_delivery_is_replay(const bq_delivery *d)
{
    return bq_delivery_header(d, BQ_STR("bq-replay-bypass")).len > 0;
}

/* ---- saying ------------------------------------------------------------------------------------------------------------ */

static bool set_text(bq_buf *buf, bq_str s, size_t max)
{
    bq_buf_reset(buf);
    if (!s.ptr)
        return false;
    size_t len = max && s.len > max ? bq_utf8_cut(s.ptr, s.len, max) : s.len;
    return bq_buf_reserve(buf, len + 1) == BQ_OK && bq_buf_add(buf, s.ptr, len) == BQ_OK;
}

void bq_delivery_set_error(bq_delivery *d, bq_str exception, bq_str error)
{
    d->has_exception = set_text(&d->exception, exception, BQ_TEXT_MAX);
    d->has_error = set_text(&d->error, error, BQ_TEXT_MAX);
}

void bq_delivery_set_retry_after(bq_delivery *d, int64_t delay_ms)
{
    d->retry_after_ms = delay_ms < 0 ? 0 : delay_ms;
}

void bq_delivery_set_result(bq_delivery *d, bq_str json)
{
    d->has_result = set_text(&d->result, json, 0);
}
