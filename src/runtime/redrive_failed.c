/*
 * runtime/redrive_failed.c - see redrive_failed.h. Pages of failed messages are read, and each that is wanted goes back in
 * one step of the broker's. Nothing is held meanwhile, so a fault leaves everything where it is.
 *
 * Thread rule: the calling thread.
 */
#include "runtime/redrive_failed.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"

#include <babelqueue/binding.h>

#include <string.h>
#include <time.h>

enum { PAGE = 64 };

typedef struct entry {
    bq_buf id, body, texts;
    bq_envelope env;
    bq_redrive_item item;
} entry;

typedef struct run {
    bq_admin *admin;
    bq_str queue;
    const bq_redrive_options *o;
    bq_redrive_result *result;
    entry page[PAGE];
    size_t count;
    bq_status status; /* while a page is read */
    int64_t next_us;
} run;

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static bq_status read_entry(run *r, entry *e, const bq_peeked *m)
{
    bq_redrive_item *item = &e->item;
    bq_buf_reset(&e->id);
    bq_buf_reset(&e->body);
    bq_buf_reset(&e->texts);
    if (bq_buf_add_str(&e->id, m->native_id) || bq_buf_add_str(&e->body, m->body))
        return BQ_NOMEM;
    *item = (bq_redrive_item){.from = r->queue,
                              .to = r->queue,
                              .body = bq_buf_str(&e->body),
                              .envelope = &e->env,
                              .failed_at_ms = m->timestamp_ms};
    (void)bq_envelope_decode(&e->env, item->body.ptr ? item->body.ptr : "", item->body.len);
    bq_status st = bq_envelope_text(&e->env, BQ_FIELD_META_ID, &e->texts, &item->id);
    st = st ? st : bq_envelope_text(&e->env, BQ_FIELD_TRACE_ID, &e->texts, &item->trace_id);
    st = st ? st : bq_envelope_text(&e->env, BQ_FIELD_URN, &e->texts, &item->urn);
    if (!st && bq_is_poison(bq_admin_binding(r->admin), &e->env) && !r->o->include_poison)
        item->skip = BQ_SKIP_POISON;
    else if (!st && r->o->select && !r->o->select(item, r->o->arg))
        item->skip = BQ_SKIP_NOT_SELECTED;
    return st;
}

static bool keep(const bq_peeked *m, void *arg)
{
    run *r = arg;
    r->status = read_entry(r, &r->page[r->count], m);
    r->count += r->status == BQ_OK;
    return r->status == BQ_OK;
}

/* ---- moving ------------------------------------------------------------------------------------------------------- */

static bool stopped(const run *r)
{
    return r->o->stop && r->o->stop(r->o->arg);
}

static void wait_for_rate(run *r)
{
    int64_t now;
    if (r->o->rate <= 0)
        return;
    while ((now = bq_now_us()) < r->next_us && !stopped(r)) {
        int64_t left = r->next_us - now < 100000 ? r->next_us - now : 100000;
        (void)nanosleep(&(struct timespec){.tv_nsec = left * 1000}, NULL);
    }
    r->next_us = (now - r->next_us < 1000000 && r->next_us > 0 ? r->next_us : now) + (int64_t)(1e6 / r->o->rate);
}

static bq_status move(run *r, entry *e, bq_error *err)
{
    bq_status st = BQ_OK;
    if (e->item.skip == BQ_SKIP_NONE && !r->o->dry_run) {
        wait_for_rate(r);
        st = bq_admin_retry(r->admin, r->queue, bq_buf_str(&e->id), &e->item.redriven, err);
    }
    if (st)
        return st;
    r->result->seen++;
    r->result->redriven += e->item.redriven;
    r->result->skipped += !e->item.redriven;
    if (r->o->report)
        r->o->report(&e->item, r->o->arg);
    return BQ_OK;
}

static bq_status move_all(run *r, bq_error *err)
{
    int64_t until_ms = 0;
    uint64_t passed = 0; /* those that stay stand in front of the next page */
    for (;;) {
        size_t most = r->o->max && r->o->max - r->result->seen < PAGE ? (size_t)(r->o->max - r->result->seen) : PAGE;
        r->count = 0;
        r->status = BQ_OK;
        bq_status st = bq_admin_failed(r->admin, r->queue, &until_ms, passed, most, keep, r, err);
        if (!st && r->status)
            st = bq_fail_nomem(err);
        for (size_t i = 0; !st && i < r->count; i++) {
            if (stopped(r))
                return BQ_OK;
            st = move(r, &r->page[i], err);
            passed += r->page[i].item.skip != BQ_SKIP_NONE || r->o->dry_run; /* others are gone */
        }
        if (st || r->count < most || (r->o->max && r->result->seen >= r->o->max))
            return st;
    }
}

bq_status bq_redrive_failed(const char *url, bq_str queue, const bq_redrive_options *options, bq_redrive_result *result,
                            bq_error *err)
{
    static const bq_buf none;
    run r = {.queue = queue, .o = options, .result = result};
    bq_status st = bq_admin_open(&r.admin, url, options->timeout_ms, &options->logger, err);
    if (st)
        return st;
    for (size_t i = 0; i < PAGE; i++) {
        r.page[i].id = r.page[i].body = r.page[i].texts = none;
        bq_buf_init(&r.page[i].id, 0);
        bq_buf_init(&r.page[i].body, 0);
        bq_buf_init(&r.page[i].texts, 0);
    }
    st = move_all(&r, err);
    for (size_t i = 0; i < PAGE; i++) {
        bq_buf_clear(&r.page[i].id);
        bq_buf_clear(&r.page[i].body);
        bq_buf_clear(&r.page[i].texts);
    }
    bq_admin_close(r.admin);
    return st;
}
