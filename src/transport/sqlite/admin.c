/*
 * sqlite/admin.c - stats, queues, peek and purge. Synchronous, on the connection of an opened transport. What is shown
 * to the caller's function has been read before it is called, so that a slow one keeps no snapshot open.
 */
#include "transport/sqlite/sqlite.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#include <string.h>

#define PAGE 64
#define PURGE_BATCH 1000

static bq_status failed(const sq_transport *t, int code, const char *what, bq_error *err)
{
    return bq_sq_fail(err, &t->db, code, what);
}

/* Waits until the file is open. */
static bq_status ready(sq_transport *t, int64_t end, bq_error *err)
{
    bq_error why;
    for (;;) {
        int64_t now = t->host->now_ms();
        if (t->state == SQ_UP)
            return BQ_OK;
        if (t->state != SQ_DOWN) {
            bq_sq_explain(t, t->broken, NULL, err ? err : &why);
            return t->broken.status;
        }
        if (now >= t->retry_at) {
            if (bq_sq_reconnect(t, now, &why))
                return BQ_OK;
            if (now >= end || t->state != SQ_DOWN) {
                if (err)
                    *err = why;
                return why.status;
            }
        } else if (now >= end) {
            return bq_fail(err, BQ_TIMEOUT, "%s could not be opened in time", t->path);
        } else {
            int64_t until = t->retry_at < end ? t->retry_at : end;
            (void)poll(NULL, 0, bq_poll_timeout(now, until));
        }
    }
}

/* The id of a queue; 0 when there is none of that name. */
static int queue_id(sq_transport *t, bq_str name, int64_t *id)
{
    sqlite3_stmt *find = bq_sq_get(&t->db, SQ_QUEUE_FIND);
    *id = 0;
    int code = sqlite3_bind_text(find, 1, name.ptr, (int)name.len, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(find);
    if (code == SQLITE_ROW)
        *id = sqlite3_column_int64(find, 0);
    (void)sqlite3_reset(find);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

/* Counts of one queue: ready, delayed, in flight. What lapsed counts as ready, which it is for the next consumer. */
static int count_queue(sq_transport *t, bq_str name, bq_queue_stats *out)
{
    int64_t id, now = bq_epoch_ms();
    *out = (bq_queue_stats){0};
    int code = queue_id(t, name, &id);
    if (code != SQLITE_OK || id == 0)
        return code;
    sqlite3_stmt *waiting = bq_sq_get(&t->db, SQ_STATS_READY), *leased = bq_sq_get(&t->db, SQ_STATS_LEASED);
    SQ_BIND(waiting, id, now);
    SQ_BIND(leased, id, now);
    if ((code = sqlite3_step(waiting)) == SQLITE_ROW && (code = sqlite3_step(leased)) == SQLITE_ROW) {
        out->ready =
            sqlite3_column_int64(waiting, 0) + sqlite3_column_int64(waiting, 1) + sqlite3_column_int64(leased, 0);
        out->delayed = sqlite3_column_int64(waiting, 2);
        out->in_flight = sqlite3_column_int64(leased, 1);
    }
    (void)sqlite3_reset(waiting);
    (void)sqlite3_reset(leased);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}

static bq_status sq_stats(void *state, bq_str queue, int64_t timeout_ms, bq_queue_stats *out, bq_error *err)
{
    sq_transport *t = state;
    bq_buf dead;
    bq_buf_init(&dead, 0);
    bq_queue_stats other = {0};
    bq_status status = ready(t, bq_deadline(t->host->now_ms(), timeout_ms), err);
    if (status != BQ_OK)
        goto out;
    if (bq_dead_letter_queue(bq_binding_find(BQ_STR("sqlite")), queue, &dead) != BQ_OK) {
        status = bq_fail_nomem(err);
        goto out;
    }
    /* One snapshot for all counts, so that they add up. */
    int code = bq_sq_simple(&t->db, SQ_BEGIN_READ);
    if (code == SQLITE_OK)
        code = count_queue(t, queue, out);
    if (code == SQLITE_OK)
        code = count_queue(t, bq_buf_str(&dead), &other);
    bq_sq_rollback(&t->db);
    out->dead = other.ready + other.delayed + other.in_flight;
    if (code != SQLITE_OK)
        status = failed(t, code, "cannot read", err);
out:
    bq_buf_clear(&dead);
    return status;
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

/* The next names after `last`, each with its NUL, in `names`. */
static int read_names(sq_transport *t, bq_str last, bq_buf *names)
{
    sqlite3_stmt *list = bq_sq_get(&t->db, SQ_QUEUE_LIST);
    int code = sqlite3_bind_text(list, 1, last.len > 0 ? last.ptr : "", (int)last.len, SQLITE_TRANSIENT);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = sqlite3_step(list);
        if (code != SQLITE_ROW)
            break;
        const void *text = sqlite3_column_text(list, 0);
        size_t len = (size_t)sqlite3_column_bytes(list, 0);
        if (!text || bq_buf_add(names, text, len) != BQ_OK || bq_buf_add_byte(names, '\0') != BQ_OK)
            code = SQLITE_NOMEM;
    }
    (void)sqlite3_reset(list);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static bq_status sq_queues(void *state, int64_t timeout_ms, bq_queue_fn fn, void *arg, bq_error *err)
{
    sq_transport *t = state;
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms);
    bq_buf names, last;
    bq_buf_init(&names, 0);
    bq_buf_init(&last, 0);
    bq_status status = ready(t, end, err);
    bool more = status == BQ_OK;
    while (more) {
        bq_buf_reset(&names);
        int code = read_names(t, bq_buf_str(&last), &names);
        if (code != SQLITE_OK) {
            status = failed(t, code, "cannot read", err);
            break;
        }
        more = names.len > 0;
        for (size_t at = 0, len; more && at < names.len; at += len + 1) {
            len = strlen(names.ptr + at);
            bq_buf_reset(&last);
            if (bq_buf_add(&last, names.ptr + at, len) != BQ_OK) {
                status = bq_fail_nomem(err);
                more = false;
            } else {
                more = fn((bq_str){names.ptr + at, len}, arg);
            }
        }
    }
    bq_buf_clear(&names);
    bq_buf_clear(&last);
    return status;
}

/* ---- peek -------------------------------------------------------------------------------------------------------- */

/* The next messages of a queue after the id `after`, in `page`. */
static int read_page(sq_transport *t, int64_t queue, int64_t after, size_t max, bq_held_list *page)
{
    sqlite3_stmt *peek = bq_sq_get(&t->db, SQ_PEEK);
    size_t bytes = 0;
    int code = SQLITE_ROW;
    SQ_BIND(peek, queue, after, (queue + 1) << SQ_SEQUENCE_BITS, bq_epoch_ms(), (int64_t)(max < PAGE ? max : PAGE));
    while (code == SQLITE_ROW && bytes < SQ_BATCH_BYTES && (code = sqlite3_step(peek)) == SQLITE_ROW) {
        bool damaged;
        sq_delivery *d = bq_sq_delivery_new(peek, 1, &damaged);
        if (!d) {
            code = SQLITE_NOMEM;
            break;
        }
        d->id = sqlite3_column_int64(peek, 0);
        d->held.in.position = d->id & SQ_SEQUENCE_MAX;
        bytes += d->held.in.body.len;
        bq_held_add(page, &d->held);
    }
    (void)sqlite3_reset(peek);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

/* What waits, delayed messages too, in the order of publication. */
static bq_status sq_peek(void *state, bq_str queue, uint64_t after, size_t max, int64_t timeout_ms, bq_peek_fn fn,
                         void *arg, bq_error *err)
{
    sq_transport *t = state;
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms), id;
    bq_status status = ready(t, end, err);
    if (status != BQ_OK)
        return status;
    int code = queue_id(t, queue, &id);
    int64_t from = (id << SQ_SEQUENCE_BITS) + (int64_t)(after < SQ_SEQUENCE_MAX ? after : SQ_SEQUENCE_MAX);
    bool more = code == SQLITE_OK && id != 0;
    while (more && max > 0) {
        bq_held_list page = {0};
        code = read_page(t, id, from, max, &page);
        more = code == SQLITE_OK && page.count > 0;
        for (sq_delivery *d; (d = (sq_delivery *)bq_held_pop(&page)) != NULL;) {
            from = d->id;
            max--;
            more = more && fn(&d->held.in, arg);
            bq_free(d);
        }
        if (more && max > 0 && t->host->now_ms() >= end)
            return bq_fail(err, BQ_TIMEOUT, "reading %s took too long", t->db.path);
    }
    return code == SQLITE_OK ? BQ_OK : failed(t, code, "cannot read", err);
}

/* ---- purge ------------------------------------------------------------------------------------------------------- */

/* Waits for a turn to write. */
static bq_status begin(sq_transport *t, int64_t end, bq_error *err)
{
    for (;;) {
        int64_t now = t->host->now_ms();
        int code = bq_sq_begin(&t->db, t->options->sync == 0, now);
        if (code == SQLITE_OK)
            return BQ_OK;
        if ((code & 0xff) != SQLITE_BUSY || now >= end) {
            bq_sq_leave(&t->db, false);
            return failed(t, code, "cannot write to", err);
        }
        bool queueing = t->db.turn.watch >= 0 && !t->db.turn.held;
        struct pollfd fd = {.fd = t->db.turn.watch, .events = POLLIN};
        int64_t wait = bq_deadline(now, queueing ? TURN_PATIENCE_MS : SQ_LOCK_RETRY_MS);
        (void)poll(&fd, queueing ? 1 : 0, bq_poll_timeout(now, wait < end ? wait : end));
        (void)bq_turn_drain(&t->db.turn, t->host->now_ms());
    }
}

/* Deletes some; *deleted counts them, *more when there may be others. */
static int purge_some(sq_transport *t, int64_t id, int64_t *deleted, bool *more)
{
    static const sq_sql steps[] = {SQ_PURGE_MESSAGES, SQ_PURGE_READY, SQ_PURGE_LEASED, SQ_PURGE_LEASES};
    *deleted = 0;
    *more = false;
    for (size_t i = 0; i < 4; i++) {
        sqlite3_stmt *statement = bq_sq_get(&t->db, steps[i]);
        if (i < 2)
            SQ_BIND(statement, id, PURGE_BATCH);
        else
            SQ_BIND(statement, id);
        int code = bq_sq_run(statement);
        if (code != SQLITE_OK)
            return code;
        int count = sqlite3_changes(t->db.handle);
        if (i % 2 == 1)
            *deleted += count;
        if (i == 1 && (*more = count == PURGE_BATCH))
            break; /* those in flight go with the last of the others */
    }
    return SQLITE_OK;
}

/* All of it, what is in a consumer's hands too: its settlement will find it LOST. In short transactions, so that
 * others get their turn meanwhile. */
static bq_status sq_purge(void *state, bq_str queue, int64_t timeout_ms, int64_t *count, bq_error *err)
{
    sq_transport *t = state;
    int64_t end = bq_deadline(t->host->now_ms(), timeout_ms), id;
    *count = 0;
    bq_status status = ready(t, end, err);
    if (status != BQ_OK)
        return status;
    int code = queue_id(t, queue, &id);
    bool more = code == SQLITE_OK && id != 0;
    while (more) {
        int64_t deleted;
        if ((status = begin(t, end, err)) != BQ_OK)
            return status;
        code = purge_some(t, id, &deleted, &more);
        if (code == SQLITE_OK)
            code = bq_sq_commit(&t->db);
        else
            bq_sq_rollback(&t->db);
        bq_sq_leave(&t->db, false);
        if (code != SQLITE_OK)
            break;
        *count += deleted;
        if (more && t->host->now_ms() >= end)
            return bq_fail(err, BQ_TIMEOUT, "purging %s took too long: %lld messages are gone, others are left",
                           t->db.path, (long long)*count);
    }
    return code == SQLITE_OK ? BQ_OK : failed(t, code, "cannot purge", err);
}

const bq_admin_ops bq_sqlite_admin = {.stats = sq_stats, .queues = sq_queues, .peek = sq_peek, .purge = sq_purge};
