/*
 * runtime/redrive.c - replaying a dead-letter queue (contract 6): which records go back, where to and how they look,
 * and what happens when something fails on the way.
 *
 * A run takes records in batches, each whole before its first record is processed, up to the depth that the queue had
 * at the start (or, where nobody knows it, until the first restored record is met again). A record that does not go
 * back is restored by a confirmed write to the end of the dead-letter queue, so that it is not met twice.
 *
 * Thread rule: the calling thread.
 */
#include "runtime/mover.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/redrive_failed.h"

#include <babelqueue/redrive.h>

#include <string.h>

enum {
    BATCH = 100,
    PEEK_PAGE = 100,
    KNOWN_MS = 10000,  /* how long records that must be there are waited for */
    UNKNOWN_MS = 5000, /* how long the first record is waited for where the depth is not known */
    QUIET_MS = 1000,   /* and each further one */
    RATED_MS = 10000   /* a rate-limited run holds no more records than it can move in this time */
};

#define BYPASS "bq-replay-bypass"

typedef struct plan {
    bq_envelope env;
    bq_redrive_item item;
    bool as_it_is; /* poison or gated, asked for by name */
} plan;

typedef struct run {
    bq_mover mover;
    bq_redrive_options o;
    bq_redrive_result *result;
    const bq_binding *binding;
    plan *plans; /* one per place of the batch */
    bq_buf *texts;
    bq_buf *bodies; /* what is reported outlives the delivery, which the driver frees once it is settled */
    int64_t depth;  /* -1: unknown */
    bq_buf first_restored;
    bool have_first, met_again;
    int64_t next_us; /* when the rate allows the next one */
    bool stopped;
    bq_status status;
    bq_error error; /* every fault, joined */
} run;

const char *bq_skip_name(bq_skip skip)
{
    switch (skip) {
    case BQ_SKIP_NONE: return "none";
    case BQ_SKIP_GATED: return "gated";
    case BQ_SKIP_NO_IDENTITY: return "no identity";
    case BQ_SKIP_POISON: return "poison";
    case BQ_SKIP_NO_TARGET: return "no target";
    case BQ_SKIP_NOT_SELECTED: return "not selected";
    case BQ_SKIP_NO_DEAD_LETTER: return "no dead letter";
    }
    return "unknown";
}

void bq_redrive_options_init(bq_redrive_options *options, size_t size)
{
    bq_redrive_options all = {.require_dead_letter = true};
    all.size = size < sizeof all ? size : sizeof all;
    memcpy(options, &all, all.size);
}

/* All errors are reported together: the first decides the status, the others are appended to its text. */
static void fault(run *r, bq_status status, const bq_error *err, const char *what)
{
    if (r->status == BQ_OK) {
        r->status = status;
        r->error = *err;
        r->error.status = status;
        bq_error_prefix(&r->error, "%s", what);
        return;
    }
    bq_error first = r->error;
    (void)bq_fail_flags(&r->error, first.status, first.flags, first.native, "%s; %s: %s", first.text, what, err->text);
}

/* ---- what becomes of a record --------------------------------------------------------------------------------------- */

static bq_status read_texts(plan *p, bq_buf *texts)
{
    bq_redrive_item *i = &p->item;
    bq_status st = bq_envelope_text(&p->env, BQ_FIELD_META_ID, texts, &i->id);
    st = st ? st : bq_envelope_text(&p->env, BQ_FIELD_TRACE_ID, texts, &i->trace_id);
    st = st ? st : bq_envelope_text(&p->env, BQ_FIELD_URN, texts, &i->urn);
    return st ? st : bq_envelope_text(&p->env, BQ_FIELD_DEAD_REASON, texts, &i->reason);
}

static bq_status find_target(const run *r, plan *p, bq_buf *texts)
{
    bq_str *to = &p->item.to;
    if (r->o.to_queue && *r->o.to_queue) {
        *to = bq_str_of(r->o.to_queue);
        return BQ_OK;
    }
    bq_status st = bq_envelope_text(&p->env, BQ_FIELD_DEAD_ORIGINAL_QUEUE, texts, to);
    if (!st && !to->len)
        st = bq_envelope_text(&p->env, BQ_FIELD_META_QUEUE, texts, to);
    if (!st && !to->len)
        *to = bq_str_of(r->o.fallback_queue);
    return st;
}

static bq_skip judge(const run *r, plan *p, const bq_incoming *in)
{
    bool poison = bq_str_equal(p->item.reason, BQ_STR("poison"));
    if (bq_gate(r->binding, in->props, in->prop_count, NULL, NULL)) {
        p->as_it_is = true;
        if (!r->o.include_gated)
            return BQ_SKIP_GATED;
    } else if (poison || bq_is_poison(r->binding, &p->env)) {
        bool nameless = !poison && p->env.verdict == BQ_VERDICT_POISON_IDENTITY;
        p->as_it_is = true;
        if (!r->o.include_poison)
            return nameless ? BQ_SKIP_NO_IDENTITY : BQ_SKIP_POISON;
    } else if (!bq_envelope_has(&p->env, BQ_FIELD_URN)) {
        return BQ_SKIP_NO_IDENTITY;
    } else if (r->o.require_dead_letter && !bq_envelope_has(&p->env, BQ_FIELD_DEAD_LETTER)) {
        return BQ_SKIP_NO_DEAD_LETTER;
    }
    return BQ_SKIP_NONE;
}

/* Reads a record, whose bytes are `body`, and says where it goes. NOMEM is the only failure. */
static bq_status make_plan(run *r, const bq_incoming *in, bq_str body, plan *p, bq_buf *texts)
{
    *p = (plan){.item = {.from = r->mover.queue, .body = body}};
    if (body.ptr)
        (void)bq_envelope_decode(&p->env, body.ptr, body.len);
    else
        (void)bq_envelope_decode_null(&p->env);
    bq_status st = read_texts(p, texts);
    if (st)
        return st;
    p->item.envelope = &p->env;
    p->item.failed_at_ms = bq_envelope_int(&p->env, BQ_FIELD_DEAD_FAILED_AT, 0);
    p->item.skip = judge(r, p, in);
    if (p->item.skip == BQ_SKIP_GATED)
        p->item.envelope = NULL;
    if (p->item.skip != BQ_SKIP_NONE)
        return BQ_OK;
    st = find_target(r, p, texts);
    if (st)
        return st;
    if (!p->item.to.len)
        p->item.skip = BQ_SKIP_NO_TARGET;
    else if (r->o.select && !r->o.select(&p->item, r->o.arg))
        p->item.skip = BQ_SKIP_NOT_SELECTED;
    return BQ_OK;
}

static void report(run *r, plan *p)
{
    r->result->seen++;
    if (p->item.redriven)
        r->result->redriven++;
    else
        r->result->skipped++;
    if (r->o.report)
        r->o.report(&p->item, r->o.arg);
}

/* ---- copies ----------------------------------------------------------------------------------------------------------- */

static bool may_bypass(const run *r)
{
    /* Contract 6: "where the transport carries headers (not Kafka)". */
    return r->o.bypass && (r->mover.link.caps & BQ_CAP_HEADERS) && r->binding->carries_headers &&
           r->binding->delay != BQ_DELAY_TIERS;
}

static bq_status add_props(run *r, bq_haul *h, plan *p, bq_copy copy, bq_outgoing *out, bq_error *err)
{
    const bq_incoming *in = h->in;
    size_t room = in->prop_count + BQ_PROJECTED_MAX + 1, count = 0;
    if (bq_haul_props(h, room))
        return bq_fail_nomem(err);
    bq_status st = bq_copy_props(r->binding, copy, &p->env, 0, in->props, in->prop_count, h->props, room, &count,
                                 &h->scratch, err);
    if (st)
        return st;
    if (copy == BQ_COPY_REDRIVE && may_bypass(r)) {
        h->props[count++] =
            (bq_prop){.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR(BYPASS), .text = BQ_STR("1")};
        p->item.bypassed = true;
    }
    out->props = h->props;
    out->prop_count = count;
    return BQ_OK;
}

/* Byte for byte, with everything beside it, to the end of the dead-letter queue. */
static bq_status make_restored(run *r, bq_haul *h, plan *p, bq_outgoing *out, bq_error *err)
{
    *out = (bq_outgoing){.queue = r->mover.queue, .body = h->in->body, .key = h->in->key};
    return add_props(r, h, p, BQ_COPY_RELEASE, out, err);
}

static bq_status make_redriven(run *r, bq_haul *h, plan *p, bq_outgoing *out, bq_error *err)
{
    *out = (bq_outgoing){.queue = p->item.to,
                         .body = h->in->body,
                         .key = h->in->key,
                         .timestamp_ms = bq_envelope_int(&p->env, BQ_FIELD_META_CREATED_AT, 0)};
    if (p->as_it_is)
        return add_props(r, h, p, BQ_COPY_RELEASE, out, err);
    unsigned dropped = 0;
    bq_status st = bq_rewrite_redrive(&p->env, &h->body, &dropped, err);
    if (st)
        return st;
    for (unsigned bit = 1; bit && bit <= dropped; bit <<= 1)
        if (dropped & bit)
            bq_log(&r->mover.link.logger, BQ_LOG_WARN, "message %.*s: %s is no member of the contract and was dropped",
                   BQ_FMT(p->item.id), bq_dropped_pointer(bit));
    out->body = bq_buf_str(&h->body);
    return add_props(r, h, p, BQ_COPY_REDRIVE, out, err);
}

/* ---- one batch ---------------------------------------------------------------------------------------------------------- */

/* Where the depth is unknown: the run ends when it meets again what it restored first. */
static bq_status remember(run *r, const bq_haul *h, bq_error *err)
{
    if (r->depth >= 0 || r->have_first)
        return BQ_OK;
    if (bq_buf_add(&r->first_restored, h->in->body.ptr, h->in->body.len))
        return bq_fail_nomem(err); /* without it the run would not end */
    r->have_first = true;
    return BQ_OK;
}

static bool is_met_again(const run *r, const bq_haul *h)
{
    return r->have_first && bq_str_equal(bq_buf_str(&r->first_restored), h->in->body);
}

static void wait_for_rate(run *r)
{
    if (r->o.rate <= 0)
        return;
    for (;;) {
        int64_t now = bq_now_us();
        if (now >= r->next_us) {
            int64_t base = r->next_us > 0 && now - r->next_us < 1000000 ? r->next_us : now;
            r->next_us = base + (int64_t)(1e6 / r->o.rate);
            return;
        }
        if (r->o.stop && r->o.stop(r->o.arg)) {
            r->stopped = true;
            return;
        }
        int64_t until = (r->next_us + 999) / 1000, soon = bq_now_ms() + 100;
        bq_mover_pump(&r->mover, until < soon ? until : soon);
    }
}

static bq_status copy_body(const bq_incoming *in, bq_buf *copy, bq_str *body)
{
    bq_buf_reset(copy);
    if (!in->body.ptr)
        return BQ_OK;
    bq_status st = bq_buf_add(copy, in->body.ptr, in->body.len);
    *body = bq_buf_str(copy);
    return st;
}

/* Decides and starts one record. False: the run ends here, and this record is still held. */
static bool process(run *r, bq_haul *h, plan *p, bq_buf *texts, bq_buf *copy)
{
    bq_error err;
    bq_outgoing out;
    if (r->status || r->stopped || r->met_again || (r->o.stop && r->o.stop(r->o.arg))) {
        r->stopped = true;
        return false;
    }
    if (is_met_again(r, h)) {
        r->met_again = true;
        return false;
    }
    bq_str body = BQ_STR_NULL;
    bq_status st = copy_body(h->in, copy, &body);
    if (!st)
        st = make_plan(r, h->in, body, p, texts);
    if (st)
        (void)bq_fail_nomem(&err);
    bool redrive = !st && p->item.skip == BQ_SKIP_NONE && !r->o.dry_run;
    if (redrive) {
        wait_for_rate(r);
        if (r->stopped)
            return false;
        st = make_redriven(r, h, p, &out, &err);
        p->item.redriven = true; /* taken back when it fails */
    } else if (!st) {
        st = make_restored(r, h, p, &out, &err);
        if (!st)
            st = remember(r, h, &err);
    }
    if (st) {
        fault(r, st, &err, "preparing a record");
        return false;
    }
    bq_mover_move(&r->mover, h, &out);
    return true;
}

static void await_all(run *r)
{
    bq_error err;
    if (!bq_mover_await(&r->mover)) {
        (void)bq_fail_flags(&err, BQ_UNKNOWN, BQ_ERROR_MAYBE_DONE, 0, "no confirmation in time");
        fault(r, BQ_UNKNOWN, &err, "moving a record");
    }
}

/* What was moved is reported; what failed, and what was not processed, is given back. */
static void finish(run *r)
{
    await_all(r);
    for (size_t i = 0; i < r->mover.size; i++) {
        bq_haul *h = &r->mover.hauls[i];
        if (h->stage == BQ_HAUL_MOVED) {
            report(r, &r->plans[i]);
            bq_mover_drop(&r->mover, h);
        } else if (h->stage == BQ_HAUL_FAILED) {
            fault(r, h->error.status, &h->error,
                  r->plans[i].item.redriven ? "writing a record back" : "restoring a record");
            bq_mover_give_back(&r->mover, h);
            if (!h->in)
                bq_mover_drop(&r->mover, h);
        } else if (h->stage == BQ_HAUL_HELD) {
            bq_mover_give_back(&r->mover, h);
        }
    }
    await_all(r);
    for (size_t i = 0; i < r->mover.size; i++) {
        bq_haul *h = &r->mover.hauls[i];
        if (h->stage == BQ_HAUL_FAILED)
            fault(r, h->error.status, &h->error, "giving a record back");
        bq_mover_drop(&r->mover, h);
    }
}

static size_t next_batch(const run *r)
{
    uint64_t n = r->mover.size;
    if (r->o.rate > 0 && n > r->o.rate * RATED_MS / 1000)
        n = (uint64_t)(r->o.rate * RATED_MS / 1000);
    if (n == 0)
        n = 1;
    if (r->o.max && r->o.max - r->result->seen < n)
        n = r->o.max - r->result->seen;
    if (r->depth >= 0 && (uint64_t)r->depth - r->result->seen < n)
        n = (uint64_t)r->depth - r->result->seen;
    return (size_t)n;
}

static void run_all(run *r)
{
    while (!r->status && !r->stopped && !r->met_again) {
        size_t want = next_batch(r);
        if (want == 0)
            return;
        int64_t patience = r->depth >= 0 ? KNOWN_MS : r->result->seen ? QUIET_MS : UNKNOWN_MS;
        if (patience > r->mover.timeout_ms)
            patience = r->mover.timeout_ms;
        size_t got = bq_mover_take(&r->mover, want, patience);
        if (r->mover.link.fatal)
            fault(r, r->mover.link.error.status, &r->mover.link.error, r->mover.link.target.url.safe);
        if (got == 0)
            return;
        bool go = true;
        for (size_t i = 0; i < r->mover.size && go; i++)
            if (r->mover.hauls[i].stage == BQ_HAUL_HELD) {
                bq_buf_reset(&r->texts[i]);
                go = process(r, &r->mover.hauls[i], &r->plans[i], &r->texts[i], &r->bodies[i]);
            }
        finish(r);
    }
}

/* ---- dry run by peeking ---------------------------------------------------------------------------------------------------- */

typedef struct peeking {
    run *run;
    uint64_t last;
    size_t count;
} peeking;

static bool peek_one(const bq_incoming *in, void *arg)
{
    peeking *k = arg;
    run *r = k->run;
    if (r->o.stop && r->o.stop(r->o.arg)) {
        r->stopped = true;
        return false;
    }
    bq_buf_reset(&r->texts[0]);
    if (make_plan(r, in, in->body, &r->plans[0], &r->texts[0])) {
        bq_error err;
        fault(r, bq_fail_nomem(&err), &err, "reading a record");
        return false;
    }
    k->last = (uint64_t)in->position;
    k->count++;
    report(r, &r->plans[0]);
    return !r->o.max || r->result->seen < r->o.max;
}

static void peek_all(run *r)
{
    bq_error err;
    bq_link *link = &r->mover.link;
    peeking k = {r, 0, 0};
    for (;;) {
        size_t page = PEEK_PAGE;
        if (r->o.max && r->o.max - r->result->seen < page)
            page = (size_t)(r->o.max - r->result->seen);
        k.count = 0;
        bq_link_enter(link);
        bq_status st =
            link->ops->admin->peek(link->state, r->mover.queue, k.last, page, r->mover.timeout_ms, peek_one, &k, &err);
        bq_link_leave(link);
        if (st)
            fault(r, st, &err, "peeking");
        if (r->status || r->stopped || k.count < page || (r->o.max && r->result->seen >= r->o.max))
            return;
    }
}

/* ---- entry -------------------------------------------------------------------------------------------------------------------- */

static void learn_depth(run *r)
{
    bq_queue_stats s = {.ready = -1};
    bq_link *link = &r->mover.link;
    r->depth = -1;
    if (!link->ops->admin || !link->ops->admin->stats)
        return;
    bq_link_enter(link);
    bq_status st = link->ops->admin->stats(link->state, r->mover.queue, r->mover.timeout_ms, &s, NULL);
    bq_link_leave(link);
    if (!st && s.ready >= 0)
        r->depth = s.ready;
}

static bq_status run_open(run *r, const char *url, bq_str queue, bq_error *err)
{
    size_t batch = r->o.batch > 0 ? (size_t)r->o.batch : BATCH;
    bq_buf_init(&r->first_restored, 0);
    r->plans = bq_calloc(batch, sizeof *r->plans);
    r->texts = bq_calloc(batch, sizeof *r->texts);
    r->bodies = bq_calloc(batch, sizeof *r->bodies);
    if (!r->plans || !r->texts || !r->bodies)
        return bq_fail_nomem(err);
    for (size_t i = 0; i < batch; i++) {
        bq_buf_init(&r->texts[i], 0);
        bq_buf_init(&r->bodies[i], 0);
    }
    bq_status st = bq_mover_open(&r->mover, url, queue, batch, r->o.timeout_ms, &r->o.logger, err);
    if (st)
        return st;
    r->binding = r->mover.link.binding;
    return BQ_OK;
}

static void run_close(run *r)
{
    size_t batch = r->o.batch > 0 ? (size_t)r->o.batch : BATCH;
    bq_mover_close(&r->mover);
    for (size_t i = 0; r->texts && i < batch; i++)
        bq_buf_clear(&r->texts[i]);
    for (size_t i = 0; r->bodies && i < batch; i++)
        bq_buf_clear(&r->bodies[i]);
    bq_free(r->texts);
    bq_free(r->bodies);
    bq_free(r->plans);
    bq_buf_clear(&r->first_restored);
}

bq_status bq_redrive(const char *url, const char *dead_letter_queue, const bq_redrive_options *options,
                     bq_redrive_result *result, bq_error *err)
{
    bq_redrive_result own;
    bq_str queue = bq_str_of(dead_letter_queue);
    run *r = bq_calloc(1, sizeof *r);
    if (!r)
        return bq_fail_nomem(err);
    r->result = result ? result : &own;
    *r->result = (bq_redrive_result){0, 0, 0};
    BQ_REDRIVE_OPTIONS_INIT(&r->o);
    if (options)
        memcpy(&r->o, options, options->size && options->size < sizeof r->o ? options->size : sizeof r->o);
    bq_status st;
    if (bq_str_blank(queue))
        st = bq_fail(err, BQ_INVALID, "no dead-letter queue is named");
    else if (r->o.batch > 100000 || r->o.rate < 0)
        st = bq_fail(err, BQ_INVALID, "a batch of %d or a rate of %g cannot be", r->o.batch, r->o.rate);
    else if (r->o.failed_set)
        st = bq_redrive_failed(url, queue, &r->o, r->result, err);
    else
        st = run_open(r, url, queue, err);
    if (st || r->o.failed_set)
        goto out;
    if (r->o.dry_run && (r->mover.link.caps & BQ_CAP_PEEK)) {
        peek_all(r);
    } else {
        learn_depth(r);
        run_all(r);
    }
    st = r->status;
    if (st && err)
        *err = r->error;
out:
    run_close(r);
    bq_free(r);
    return st;
}
