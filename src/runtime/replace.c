/*
 * runtime/replace.c - what is written in a delivery's place: the retry copy, the record, the unchanged copy, with the
 * properties that travel with it (contract 3 and 4). Rewrites are splices of the received bytes.
 *
 * Thread rule: the I/O thread.
 */
#include "runtime/settle.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

enum { KEEP_BYTES = 16384, KEEP_WRITES = 64 };

/* ---- buffers of a replacement ------------------------------------------------------------------------------------------ */

static void write_free(bq_write *w)
{
    bq_buf_clear(&w->body);
    bq_buf_clear(&w->scratch);
    bq_buf_clear(&w->text);
    bq_buf_clear(&w->report);
    bq_free(w->props);
    bq_free(w);
}

bq_write *bq_write_of(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    if (d->write)
        return d->write;
    bq_write *w = c->writes;
    if (w) {
        c->writes = w->next;
        c->writes_idle--;
    } else {
        w = bq_calloc(1, sizeof *w);
        if (!w)
            return NULL;
        bq_buf_init(&w->body, 0);
        bq_buf_init(&w->scratch, 0);
        bq_buf_init(&w->text, 0);
        bq_buf_init(&w->report, 0);
    }
    d->write = w;
    return w;
}

static void shrink(bq_buf *buf)
{
    if (buf->cap > KEEP_BYTES)
        bq_buf_clear(buf);
    else
        bq_buf_reset(buf);
}

void bq_write_put(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    bq_write *w = d->write;
    d->write = NULL;
    if (!w)
        return;
    if (c->writes_idle >= KEEP_WRITES) {
        write_free(w);
        return;
    }
    shrink(&w->body);
    shrink(&w->scratch);
    shrink(&w->text);
    shrink(&w->report);
    w->next = c->writes;
    c->writes = w;
    c->writes_idle++;
}

void bq_settle_clear(bq_consumer *c)
{
    for (size_t i = 0; c->deliveries && i < c->prefetch; i++)
        if (c->deliveries[i].write)
            write_free(c->deliveries[i].write);
    while (c->writes) {
        bq_write *next = c->writes->next;
        write_free(c->writes);
        c->writes = next;
    }
    bq_free(c->pending.ops);
}

/* ---- making the replacement ---------------------------------------------------------------------------------------------- */

static void log_dropped_members(bq_delivery *d, unsigned dropped)
{
    for (unsigned bit = 1; bit && bit <= dropped; bit <<= 1)
        if (dropped & bit)
            bq_log(&d->consumer->link.logger, BQ_LOG_WARN,
                   "queue %.*s, route %.*s: %s is no member of the contract "
                   "and was dropped",
                   BQ_FMT(bq_queue_of(d)), BQ_FMT(d->route), bq_dropped_pointer(bit));
}

static bq_status make_record(bq_delivery *d, bq_write *w, unsigned *dropped, bq_error *err)
{
    bq_consumer *c = d->consumer;
    const bq_decision *what = &d->decision;
    bool poison = what->copy == BQ_COPY_POISON;
    bq_dead_letter dl = {.reason = what->reason,
                         .error = d->say_error,
                         .exception = d->say_exception,
                         .failed_at = bq_epoch_ms(),
                         .attempts = what->attempts,
                         .lang = bq_str_of(c->options.lang)};
    bq_status st = bq_original_queue(c->link.binding, poison, &d->env, d->in->props, d->in->prop_count, bq_queue_of(d),
                                     &w->scratch, &dl.original_queue);
    if (st)
        return bq_fail_nomem(err);
    if (poison)
        return bq_record_poison(&d->env, &dl, c->link.binding->record_flags, &w->body, err);
    return bq_record_envelope(&d->env, &dl, &w->body, dropped, err);
}

static bq_status make_body(bq_delivery *d, bq_write *w, bq_error *err)
{
    const bq_decision *what = &d->decision;
    unsigned dropped = 0;
    bq_status st = BQ_OK;
    bq_buf_reset(&w->body);
    if (what->act == BQ_ACT_DEAD_LETTER && what->copy != BQ_COPY_GATED)
        st = make_record(d, w, &dropped, err);
    else if ((what->act == BQ_ACT_RETRY && !what->bytes_unchanged) || what->act == BQ_ACT_NATIVE_RETRY)
        st = bq_rewrite_attempts(&d->env, what->attempts, &w->body, &dropped, err);
    else {
        d->op.out.body = d->in->body;
        return BQ_OK;
    }
    if (st)
        return st;
    log_dropped_members(d, dropped);
    d->op.out.body = bq_buf_str(&w->body);
    return BQ_OK;
}

/* Envelope and poison records, and retry copies, tell where they came from first (contract 7.8). */
static bq_status add_original(bq_delivery *d, bq_write *w, bq_copy copy, size_t *count, bq_error *err)
{
    const bq_binding *binding = d->consumer->link.binding;
    if (!binding->original_name || copy == BQ_COPY_GATED || copy == BQ_COPY_RELEASE)
        return BQ_OK;
    bq_str name = bq_str_of(binding->original_name);
    if (bq_prop_find(w->props, *count, BQ_PLACE_HEADER, name))
        return BQ_OK;
    bq_prop *p = &w->props[(*count)++];
    *p = (bq_prop){.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = name};
    if (bq_original_queue(binding, true, &d->env, d->in->props, d->in->prop_count, bq_queue_of(d), &w->scratch,
                          &p->text))
        return bq_fail_nomem(err);
    return BQ_OK;
}

static bq_status make_props(bq_delivery *d, bq_write *w, bq_copy copy, bq_error *err)
{
    size_t room = d->in->prop_count + BQ_PROJECTED_MAX + 1, count = 0;
    if (room > w->prop_cap) {
        bq_prop *more = bq_realloc_array(w->props, room, sizeof *more);
        if (!more)
            return bq_fail_nomem(err);
        w->props = more;
        w->prop_cap = room;
    }
    bq_status st = bq_copy_props(d->consumer->link.binding, copy, &d->env, d->decision.attempts, d->in->props,
                                 d->in->prop_count, w->props, room, &count, &w->scratch, err);
    if (!st)
        st = add_original(d, w, copy, &count, err);
    d->op.out.props = w->props;
    d->op.out.prop_count = count;
    return st;
}

/* What is written in place of the delivery, with everything that travels with it. */
bq_status bq_replacement_make(bq_delivery *d, bq_error *err)
{
    const bq_decision *what = &d->decision;
    bq_write *w = bq_write_of(d);
    if (!w)
        return bq_fail_nomem(err);
    bq_buf_reset(&w->scratch);
    bq_copy copy = what->act == BQ_ACT_NATIVE_RETRY ? BQ_COPY_RETRY : what->copy;
    const bq_queue_names *names = &d->consumer->queues[d->queue];
    d->op.out = (bq_outgoing){
        .queue = what->act == BQ_ACT_DEAD_LETTER ? names->dead : names->name, .key = d->in->key, .tier = what->tier};
    bq_status st = make_body(d, w, err);
    return st ? st : make_props(d, w, copy, err);
}
