/*
 * runtime/admin.c - the synchronous administration of queues: stats, list, peek, purge (redrive.h). A driver's own
 * calls do the work; what is added here is the connection, its deadline and the reading of envelopes.
 *
 * Thread rule: one thread at a time, the one that opened it.
 */
#include "runtime/loop.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#include <babelqueue/redrive.h>

#include <string.h>

struct bq_admin {
    bq_link link;
    int64_t timeout_ms;
};

static int64_t connect_timeout(const bq_link *link)
{
    for (const bq_option *o = link->ops->table; o && o->name; o++)
        if (o->type == BQ_OPT_DURATION && strcmp(o->name, "connect_timeout") == 0) {
            int64_t ms;
            memcpy(&ms, (const char *)link->target.options + o->offset, sizeof ms);
            return ms;
        }
    return 10000;
}

bq_status bq_admin_open(bq_admin **out, const char *url, int64_t timeout_ms, const bq_logger *logger, bq_error *err)
{
    *out = NULL;
    bq_admin *a = bq_calloc(1, sizeof *a);
    if (!a)
        return bq_fail_nomem(err);
    bq_link_spec spec = {.url = url, .roles = BQ_ROLE_ADMIN};
    if (logger)
        spec.logger = *logger;
    bq_status st = bq_link_init(&a->link, &spec, err);
    if (st)
        goto out;
    a->timeout_ms = bq_link_timeout(&a->link);
    if (timeout_ms <= 0)
        timeout_ms = connect_timeout(&a->link);
    st = bq_link_open(&a->link, err);
    if (!st)
        st = bq_link_connect(&a->link, bq_deadline(bq_now_ms(), timeout_ms), err);
    if (st)
        goto out;
    *out = a;
    return BQ_OK;
out:
    bq_admin_close(a);
    return st;
}

void bq_admin_close(bq_admin *a)
{
    if (!a)
        return;
    if (a->link.state)
        bq_link_close(&a->link, BQ_CLOSE_MS);
    bq_link_clear(&a->link);
    bq_free(a);
}

const struct bq_binding *bq_admin_binding(const bq_admin *a)
{
    return a->link.binding;
}

static bq_status unsupported(const bq_admin *a, const char *what, bq_error *err)
{
    return bq_fail(err, BQ_UNSUPPORTED, "%s cannot %s", a->link.ops->name, what);
}

/* Between two calls the connection may have gone, and nobody has looked since. */
static bq_status ready(bq_admin *a, bq_str queue, bq_error *err)
{
    bq_status st = bq_link_here(&a->link, err);
    if (st)
        return st;
    if (bq_str_blank(queue))
        return bq_fail(err, BQ_INVALID, "no queue is named");
    bq_link_turn(&a->link, NULL, bq_now_ms(), BQ_TURN_BUSY);
    return bq_link_connect(&a->link, bq_deadline(bq_now_ms(), a->timeout_ms), err);
}

bq_status bq_admin_stats(bq_admin *a, bq_str queue, bq_stats *out, bq_error *err)
{
    bq_queue_stats s = {-1, -1, -1, -1, {{NULL, 0}}};
    if (!a->link.ops->admin || !a->link.ops->admin->stats)
        return unsupported(a, "count messages", err);
    bq_status st = ready(a, queue, err);
    if (st)
        return st;
    bq_link_enter(&a->link);
    st = a->link.ops->admin->stats(a->link.state, queue, a->timeout_ms, &s, err);
    bq_link_leave(&a->link);
    if (st)
        return st;
    bq_stats all = {.ready = s.ready, .delayed = s.delayed, .in_flight = s.in_flight, .dead = s.dead};
    memcpy(all.states, s.states, sizeof all.states);
    all.size = out->size && out->size < sizeof all ? out->size : sizeof all;
    memcpy(out, &all, all.size);
    return BQ_OK;
}

bq_status bq_admin_queues(bq_admin *a, bq_admin_queue_fn fn, void *arg, bq_error *err)
{
    if (!a->link.ops->admin || !a->link.ops->admin->queues)
        return unsupported(a, "list its queues", err);
    bq_status st = ready(a, BQ_STR("*"), err);
    if (st)
        return st;
    bq_link_enter(&a->link);
    st = a->link.ops->admin->queues(a->link.state, a->timeout_ms, fn, arg, err);
    bq_link_leave(&a->link);
    return st;
}

typedef struct peeking {
    bq_admin *admin;
    bq_str queue;
    bq_admin_peek_fn fn;
    void *arg;
    bq_buf scratch;
    bq_status status;
} peeking;

static bool peek_one(const bq_incoming *in, void *arg)
{
    peeking *k = arg;
    const bq_binding *binding = k->admin->link.binding;
    bq_envelope env;
    bq_buf_reset(&k->scratch);
    if (in->body.ptr)
        (void)bq_envelope_decode(&env, in->body.ptr, in->body.len);
    else
        (void)bq_envelope_decode_null(&env);
    bq_peeked m = {.queue = k->queue,
                   .body = in->body,
                   .key = in->key,
                   .props = in->props,
                   .prop_count = in->prop_count,
                   .position = (uint64_t)in->position,
                   .native_id = in->native_id,
                   .timestamp_ms = in->timestamp_ms,
                   .attempts = bq_reconcile(binding, &env, in->props, in->prop_count, in->native_count),
                   .envelope = &env};
    k->status = bq_route_of(binding, &env, in->props, in->prop_count, &k->scratch, &m.route);
    return !k->status && k->fn(&m, k->arg);
}

bq_status bq_admin_peek(bq_admin *a, bq_str queue, uint64_t after, size_t max, bq_admin_peek_fn fn, void *arg,
                        bq_error *err)
{
    if (!a->link.ops->admin || !a->link.ops->admin->peek)
        return unsupported(a, "show messages without consuming them", err);
    bq_status st = ready(a, queue, err);
    if (st)
        return st;
    peeking k = {.admin = a, .queue = queue, .fn = fn, .arg = arg, .status = BQ_OK};
    bq_buf_init(&k.scratch, 0);
    bq_link_enter(&a->link);
    st = a->link.ops->admin->peek(a->link.state, queue, after, max, a->timeout_ms, peek_one, &k, err);
    bq_link_leave(&a->link);
    bq_buf_clear(&k.scratch);
    return st ? st : k.status ? bq_fail_nomem(err) : BQ_OK;
}

bq_status bq_admin_failed(bq_admin *a, bq_str queue, int64_t *until_ms, uint64_t after, size_t max, bq_admin_peek_fn fn,
                          void *arg, bq_error *err)
{
    if (!a->link.ops->admin || !a->link.ops->admin->failed)
        return unsupported(a, "keep failed messages with their queue", err);
    bq_status st = ready(a, queue, err);
    if (st)
        return st;
    peeking k = {.admin = a, .queue = queue, .fn = fn, .arg = arg, .status = BQ_OK};
    bq_buf_init(&k.scratch, 0);
    bq_link_enter(&a->link);
    st = a->link.ops->admin->failed(a->link.state, queue, until_ms, after, max, a->timeout_ms, peek_one, &k, err);
    bq_link_leave(&a->link);
    bq_buf_clear(&k.scratch);
    return st ? st : k.status ? bq_fail_nomem(err) : BQ_OK;
}

bq_status bq_admin_retry(bq_admin *a, bq_str queue, bq_str native_id, bool *done, bq_error *err)
{
    if (!a->link.ops->admin || !a->link.ops->admin->retry)
        return unsupported(a, "keep failed messages with their queue", err);
    bq_status st = ready(a, queue, err);
    if (st)
        return st;
    bq_link_enter(&a->link);
    st = a->link.ops->admin->retry(a->link.state, queue, native_id, a->timeout_ms, done, err);
    bq_link_leave(&a->link);
    return st;
}

bq_status bq_admin_purge(bq_admin *a, bq_str queue, int64_t *count, bq_error *err)
{
    int64_t own = 0;
    if (!a->link.ops->admin || !a->link.ops->admin->purge)
        return unsupported(a, "purge a queue", err);
    bq_status st = ready(a, queue, err);
    if (st)
        return st;
    bq_link_enter(&a->link);
    st = a->link.ops->admin->purge(a->link.state, queue, a->timeout_ms, count ? count : &own, err);
    bq_link_leave(&a->link);
    return st;
}
