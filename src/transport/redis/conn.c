/* redis/conn.c - see conn.h. */
#include "transport/redis/conn.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#include <string.h>

/* The driver bounds what it writes by itself; a body may be as large as Redis takes. */
#define WRITE_MAX ((size_t)2 << 30)

bq_status bq_rd_conn_open(rd_conn *c, const bq_stream_config *config, int64_t now_ms, bq_error *err)
{
    bq_stream_config own = *config;
    own.write_max = WRITE_MAX;
    bq_rd_conn_close(c);
    c->reader = bq_rd_reader_new();
    if (!c->reader)
        return bq_fail_nomem(err);
    bq_status status = bq_stream_open(&c->stream, &own, err);
    if (status != BQ_OK) {
        c->stream = NULL;
        bq_rd_conn_close(c);
        return status;
    }
    c->last_ms = now_ms;
    return BQ_OK;
}

void bq_rd_conn_close(rd_conn *c)
{
    bq_stream_close(c->stream);
    bq_rd_reader_free(c->reader);
    rd_expect *expects = c->expects;
    size_t cap = c->cap;
    *c = (rd_conn){.expects = expects, .cap = cap};
}

void bq_rd_conn_clear(rd_conn *c)
{
    bq_rd_conn_close(c);
    bq_free(c->expects);
    *c = (rd_conn){0};
}

/* ---- what is expected --------------------------------------------------------------------------------------------- */

static bool make_room(rd_conn *c)
{
    if (c->count < c->cap)
        return true;
    size_t cap = c->cap ? c->cap * 2 : 16;
    rd_expect *expects = bq_malloc(cap * sizeof(*expects));
    if (!expects)
        return false;
    for (size_t i = 0; i < c->count; i++)
        expects[i] = *bq_rd_conn_at(c, i);
    bq_free(c->expects);
    c->expects = expects;
    c->cap = cap;
    c->head = 0;
    return true;
}

rd_expect *bq_rd_conn_at(rd_conn *c, size_t index)
{
    return &c->expects[(c->head + index) % c->cap];
}

bool bq_rd_conn_pop(rd_conn *c, rd_expect *out)
{
    if (c->count == 0)
        return false;
    *out = *bq_rd_conn_at(c, 0);
    c->head = (c->head + 1) % c->cap;
    c->count--;
    return true;
}

bool bq_rd_conn_unsent(const rd_conn *c, const rd_expect *expect)
{
    return c->stream && expect->start >= c->written - bq_stream_queued(c->stream);
}

int64_t bq_rd_conn_deadline(rd_conn *c)
{
    int64_t earliest = BQ_NEVER;
    for (size_t i = 0; i < c->count; i++)
        if (bq_rd_conn_at(c, i)->deadline_ms < earliest)
            earliest = bq_rd_conn_at(c, i)->deadline_ms;
    return earliest;
}

size_t bq_rd_conn_queued(const rd_conn *c)
{
    return c->stream ? bq_stream_queued(c->stream) : 0;
}

bq_status bq_rd_conn_send(rd_conn *c, rd_args *args, const rd_expect *expect, bq_error *err)
{
    size_t len;
    if (!make_room(c))
        return bq_fail_nomem(err);
    char *text = bq_rd_args_format(args, &len);
    if (!text)
        return bq_fail_nomem(err);
    bq_status status = bq_stream_write(c->stream, (bq_str){text, len}, err);
    bq_rd_format_free(text);
    if (status != BQ_OK)
        return status;
    rd_expect *added = bq_rd_conn_at(c, c->count++);
    *added = *expect;
    added->start = c->written;
    c->written += len;
    return BQ_OK;
}

/* ---- the loop ------------------------------------------------------------------------------------------------------ */

size_t bq_rd_conn_prepare(rd_conn *c, struct pollfd *fd, int64_t *deadline_ms)
{
    return c->stream ? bq_stream_prepare(c->stream, fd, deadline_ms) : 0;
}

bq_status bq_rd_conn_service(rd_conn *c, short revents, int64_t now_ms, bq_error *err)
{
    bq_error why;
    bq_status status = bq_stream_service(c->stream, revents, &why);
    bq_str input = bq_stream_input(c->stream);
    if (input.len > 0) {
        c->last_ms = now_ms;
        bq_status fed = bq_rd_reader_feed(c->reader, input, err);
        if (fed != BQ_OK)
            return fed;
        bq_stream_consume(c->stream, input.len);
    } else if (status != BQ_OK) {
        if (err)
            *err = why;
        return status;
    } else if (bq_stream_has_ended(c->stream)) {
        return bq_fail(err, BQ_UNAVAILABLE, "%s closed the connection", bq_stream_peer(c->stream));
    }
    return BQ_OK;
}

bq_status bq_rd_conn_next(rd_conn *c, rd_reply **reply, bq_error *err)
{
    return bq_rd_reader_next(c->reader, reply, err);
}
