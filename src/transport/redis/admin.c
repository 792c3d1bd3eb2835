/* redis/admin.c - stats, queues, peek and purge: synchronous, on the connection of an opened transport. */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define PEEK_PAGE 64

/* ---- calls --------------------------------------------------------------------------------------------------------- */

static void turn(rd_transport *t, int64_t end)
{
    struct pollfd fds[16];
    int64_t until = end;
    size_t count = bq_rd_watch(t, fds, sizeof(fds) / sizeof(fds[0]), &until);
    for (size_t i = 0; i < count; i++)
        fds[i].revents = 0;
    if (poll(fds, (nfds_t)count, bq_poll_timeout(t->host->now_ms(), until)) < 0)
        for (size_t i = 0; i < count; i++)
            fds[i].revents = 0;
    bq_rd_turn(t, fds, count);
}

static bq_status await_up(rd_transport *t, int64_t end, bq_error *err)
{
    while (t->state != RD_UP) {
        if (t->state == RD_BROKEN || t->state == RD_CLOSED) {
            if (err)
                *err = t->broken;
            return t->broken.status;
        }
        if (t->host->now_ms() >= end)
            return bq_fail(err, BQ_TIMEOUT, "no connection in time");
        turn(t, end);
    }
    return BQ_OK;
}

/* The call's record outlives its wait: it is taken back out of what is expected. */
static void abandon(rd_transport *t, const rd_call *call)
{
    for (size_t i = 0; i < t->main.count; i++)
        if (bq_rd_conn_at(&t->main, i)->call == call)
            bq_rd_conn_at(&t->main, i)->call = NULL;
}

/* One try. *moved: the answer was where else to go, and nothing was done. */
static bq_status call_once(rd_transport *t, rd_script script, int64_t end, rd_reply **reply, bool *moved, bq_error *err)
{
    int64_t now = t->host->now_ms();
    rd_call waited = {.status = BQ_TIMEOUT};
    rd_expect expect = {.kind = RD_CALL, .sent_ms = now, .deadline_ms = end, .call = &waited};
    bq_status status = bq_rd_send_script(t, script, &expect, err);
    if (status != BQ_OK)
        return status;
    while (!waited.done && t->host->now_ms() <= end)
        turn(t, end);
    if (!waited.done) {
        abandon(t, &waited);
        return bq_fail(err, BQ_TIMEOUT, "the server did not answer in time");
    }
    *moved = waited.moved;
    *reply = waited.reply;
    if (waited.status != BQ_OK && err)
        *err = waited.error;
    return waited.status;
}

bq_status bq_rd_call(rd_transport *t, rd_script script, int64_t end, rd_reply **reply, bq_error *err)
{
    for (;;) {
        bool moved = false;
        *reply = NULL;
        bq_status status = call_once(t, script, end, reply, &moved, err);
        if (!moved)
            return status;
        do /* at least once: what is to be done about it is done there */
            turn(t, bq_deadline(t->host->now_ms(), 10));
        while (t->moving || t->hold_until > t->host->now_ms());
        status = await_up(t, end, err);
        if (status != BQ_OK)
            return status;
    }
}

typedef struct admin_keys {
    rd_keys queue, dead;
} admin_keys;

static bq_status make_keys(rd_transport *t, bq_str queue, admin_keys *keys, bq_error *err)
{
    bq_buf dead;
    *keys = (admin_keys){0};
    bq_buf_init(&dead, 0);
    bq_status status = bq_dead_letter_queue(bq_binding_find(bq_str_of(t->layout->binding)), queue, &dead);
    if (status == BQ_OK)
        status = t->layout->keys(t->options, queue, &keys->queue);
    if (status == BQ_OK)
        status = t->layout->keys(t->options, bq_buf_str(&dead), &keys->dead);
    bq_buf_clear(&dead);
    return status == BQ_OK ? BQ_OK : bq_fail_nomem(err);
}

static void clear_keys(admin_keys *keys)
{
    bq_rd_keys_clear(&keys->queue);
    bq_rd_keys_clear(&keys->dead);
}

/* ---- stats ---------------------------------------------------------------------------------------------------------- */

static bq_status redis_stats(void *state, bq_str queue, int64_t timeout_ms, bq_queue_stats *out, bq_error *err)
{
    rd_transport *t = state;
    admin_keys keys = {0};
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    bq_status status = await_up(t, end, err);
    if (status == BQ_OK)
        status = make_keys(t, queue, &keys, err);
    if (status == BQ_OK)
        status = t->layout->stats(t, &keys.queue, &keys.dead, end, out, err);
    clear_keys(&keys);
    return status;
}

/* ---- queues ---------------------------------------------------------------------------------------------------------- */

typedef struct names {
    bq_str *name; /* each allocated */
    size_t count, cap;
} names;

static void names_clear(names *list)
{
    for (size_t i = 0; i < list->count; i++)
        bq_free((void *)(uintptr_t)list->name[i].ptr);
    bq_free(list->name);
}

static bool names_add(names *list, bq_str name)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        bq_str *grown = bq_realloc_array(list->name, cap, sizeof(*grown));
        if (!grown)
            return false;
        list->name = grown;
        list->cap = cap;
    }
    char *copy = bq_strndup(name);
    if (!copy)
        return false;
    list->name[list->count++] = (bq_str){copy, name.len};
    return true;
}

static int by_name(const void *a, const void *b)
{
    const bq_str *x = a, *y = b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = len > 0 ? memcmp(x->ptr, y->ptr, len) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* One pass over the keys of one type. */
static bq_status scan(rd_transport *t, bq_str type, int64_t end, names *list, bq_error *err)
{
    bq_buf cursor;
    bq_buf_init(&cursor, 0);
    bq_status status = bq_buf_add_byte(&cursor, '0');
    do {
        rd_reply *reply;
        bq_rd_args_reset(&t->args);
        rd_arg_lit(&t->args, "SCAN");
        bq_rd_arg(&t->args, bq_buf_str(&cursor));
        rd_arg_lit(&t->args, "COUNT");
        rd_arg_lit(&t->args, "1000");
        rd_arg_lit(&t->args, "TYPE");
        bq_rd_arg(&t->args, type);
        if (status == BQ_OK)
            status = bq_rd_call(t, RD_SCRIPTS, end, &reply, err);
        if (status != BQ_OK)
            break;
        const rd_reply *keys = bq_rd_at(reply, 1);
        for (size_t i = 0; status == BQ_OK && keys && i < keys->count; i++) {
            bq_str name = t->layout->queue_of(t->options, bq_rd_text(bq_rd_at(keys, i)));
            if (name.len > 0 && !names_add(list, name))
                status = bq_fail_nomem(err);
        }
        bq_buf_reset(&cursor);
        if (status == BQ_OK)
            status = bq_buf_add_str(&cursor, bq_rd_text(bq_rd_at(reply, 0)));
        bq_rd_reply_free(reply);
    } while (status == BQ_OK && cursor.len > 0 && !bq_str_equal(bq_buf_str(&cursor), BQ_STR("0")));
    bq_buf_clear(&cursor);
    return status;
}

/* A scan is never redirected: a key with the queues' prefix is asked for first. */
static bq_status go_where_queues_are(rd_transport *t, int64_t end, bq_error *err)
{
    rd_keys keys = {0};
    rd_reply *reply;
    if (!t->layout->follows)
        return BQ_OK;
    if (t->layout->keys(t->options, BQ_STR(""), &keys) != BQ_OK)
        return bq_fail_nomem(err);
    bq_rd_args_reset(&t->args);
    rd_arg_lit(&t->args, "EXISTS");
    bq_rd_arg(&t->args, keys.key[0]);
    bq_status status = bq_rd_call(t, RD_SCRIPTS, end, &reply, err);
    if (status == BQ_OK)
        bq_rd_reply_free(reply);
    bq_rd_keys_clear(&keys);
    return status;
}

static bq_status redis_queues(void *state, int64_t timeout_ms, bq_queue_fn fn, void *arg, bq_error *err)
{
    rd_transport *t = state;
    names list = {0};
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    bq_status status = await_up(t, end, err);
    if (status == BQ_OK)
        status = go_where_queues_are(t, end, err);
    if (status == BQ_OK)
        status = scan(t, bq_str_of(t->layout->key_type ? t->layout->key_type : "list"), end, &list, err);
    if (status == BQ_OK && t->layout->scans_sets)
        status = scan(t, BQ_STR("zset"), end, &list, err);
    if (status == BQ_OK && list.count > 0)
        qsort(list.name, list.count, sizeof(*list.name), by_name);
    for (size_t i = 0; status == BQ_OK && i < list.count; i++)
        if ((i == 0 || !bq_str_equal(list.name[i], list.name[i - 1])) && !fn(list.name[i], arg))
            break;
    names_clear(&list);
    return status;
}

/* ---- peek ------------------------------------------------------------------------------------------------------------ */

/* Shows one page; false when it is over. */
static bool show(rd_transport *t, rd_reply *page, size_t from, uint64_t *at, size_t *max, bq_peek_fn fn, void *arg,
                 bq_status *status)
{
    size_t step = t->layout->peek ? 2 : 1;
    for (size_t i = from; i<page->count && * max> 0; i += step) {
        rd_reply *raw = bq_rd_take_at(page, i);
        rd_delivery *d = raw ? bq_rd_delivery_new(t, 0, raw) : NULL;
        if (!d || (t->layout->peek && !t->layout->read_peeked(d, page, i))) {
            if (d)
                bq_rd_delivery_free(d);
            *status = BQ_NOMEM;
            return false;
        }
        *at += 1;
        d->held.in.position = (int64_t)*at;
        --*max;
        bool more = fn(&d->held.in, arg);
        bq_rd_delivery_free(d);
        if (!more)
            return false;
    }
    return page->count > from && *max > 0;
}

static rd_script page_args(rd_transport *t, const rd_keys *keys, uint64_t after, size_t count)
{
    if (t->layout->peek)
        return t->layout->peek(t, keys, after, count);
    bq_rd_args_reset(&t->args);
    rd_arg_lit(&t->args, "LRANGE");
    bq_rd_arg(&t->args, keys->key[0]);
    bq_rd_arg_int(&t->args, (int64_t)after);
    bq_rd_arg_int(&t->args, (int64_t)(after + count - 1));
    return RD_SCRIPTS;
}

/* What is ready, in its order; a position is a place in the list, so it moves when others consume. */
static bq_status redis_peek(void *state, bq_str queue, uint64_t after, size_t max, int64_t timeout_ms, bq_peek_fn fn,
                            void *arg, bq_error *err)
{
    rd_transport *t = state;
    rd_keys keys = {0};
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    bq_status status = await_up(t, end, err);
    if (status == BQ_OK && t->layout->keys(t->options, queue, &keys) != BQ_OK)
        status = bq_fail_nomem(err);
    bool more = status == BQ_OK && max > 0;
    while (more) {
        rd_reply *page;
        rd_script script = page_args(t, &keys, after, max < PEEK_PAGE ? max : PEEK_PAGE);
        status = bq_rd_call(t, script, end, &page, err);
        if (status != BQ_OK)
            break;
        more = page->type == RD_ARRAY && show(t, page, 0, &after, &max, fn, arg, &status);
        bq_rd_reply_free(page);
        if (status != BQ_OK)
            status = bq_fail_nomem(err);
    }
    bq_rd_keys_clear(&keys);
    return status;
}

/* ---- failed ones ------------------------------------------------------------------------------------------------------ */

static bq_status begin_failed(rd_transport *t, bq_str queue, int64_t end, rd_keys *keys, bq_error *err)
{
    if (!t->layout->failed)
        return bq_fail(err, BQ_UNSUPPORTED, "redis: failed messages go to a dead-letter queue");
    bq_status status = await_up(t, end, err);
    if (status == BQ_OK && t->layout->keys(t->options, queue, keys) != BQ_OK)
        status = bq_fail_nomem(err);
    return status;
}

static bq_status redis_failed(void *state, bq_str queue, int64_t *until_ms, uint64_t after, size_t max,
                              int64_t timeout_ms, bq_peek_fn fn, void *arg, bq_error *err)
{
    rd_transport *t = state;
    rd_keys keys = {0};
    rd_reply *page;
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    bq_status status = begin_failed(t, queue, end, &keys, err);
    if (status == BQ_OK)
        status = bq_rd_call(t, t->layout->failed(t, &keys, *until_ms, after, max), end, &page, err);
    if (status == BQ_OK) {
        bq_str until = bq_rd_text(bq_rd_at(page, 0));
        *until_ms = until.ptr ? strtoll(until.ptr, NULL, 10) : *until_ms;
        (void)show(t, page, 1, &after, &max, fn, arg, &status);
        bq_rd_reply_free(page);
        if (status != BQ_OK)
            status = bq_fail_nomem(err);
    }
    bq_rd_keys_clear(&keys);
    return status;
}

static bq_status redis_retry(void *state, bq_str queue, bq_str native_id, int64_t timeout_ms, bool *done, bq_error *err)
{
    rd_transport *t = state;
    rd_keys keys = {0};
    rd_reply *reply;
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    bq_status status = begin_failed(t, queue, end, &keys, err);
    if (status == BQ_OK)
        status = bq_rd_call(t, t->layout->retry(t, &keys, native_id), end, &reply, err);
    if (status == BQ_OK) {
        *done = reply->type == RD_INTEGER && reply->integer == 1;
        bq_rd_reply_free(reply);
    }
    bq_rd_keys_clear(&keys);
    return status;
}

/* ---- purge ----------------------------------------------------------------------------------------------------------- */

/* All of it, what is in a consumer's hands too: its settlement will find it LOST. */
static bq_status redis_purge(void *state, bq_str queue, int64_t timeout_ms, int64_t *count, bq_error *err)
{
    rd_transport *t = state;
    rd_keys keys = {0};
    rd_reply *reply;
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    *count = 0;
    bq_status status = await_up(t, end, err);
    if (status == BQ_OK && t->layout->keys(t->options, queue, &keys) != BQ_OK)
        status = bq_fail_nomem(err);
    for (bool more = true; more && status == BQ_OK;) {
        status = bq_rd_call(t, t->layout->purge(t, &keys), end, &reply, err);
        if (status != BQ_OK)
            break;
        *count += reply->integer;
        more = t->layout->purge_step > 0 && reply->integer >= t->layout->purge_step;
        bq_rd_reply_free(reply);
    }
    bq_rd_keys_clear(&keys);
    return status;
}

const bq_admin_ops bq_redis_admin = {.stats = redis_stats,
                                     .queues = redis_queues,
                                     .peek = redis_peek,
                                     .purge = redis_purge,
                                     .failed = redis_failed,
                                     .retry = redis_retry};
