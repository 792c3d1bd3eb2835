/*
 * sqlite/sqlite.c - sqlite:PATH, the durable broker in a file (contract 7.11): many processes, no server.
 *
 * This part is the table and the loop: the connection's life (a file that cannot be used is closed and opened again,
 * as a network driver reconnects), what to wait for, and the hand-over of deliveries and completions. The file's
 * layout is described in db.h, the transaction in write.c, leases in reserve.c, turns and wake-ups in turn.h.
 *
 * Nothing here waits for another process. What does take time is SQLite's own work: a commit with sync=full returns
 * when it is on disk, and every SQ_CHECKPOINT_PAGES pages one commit copies the log into the database.
 *
 * Threads: a transport belongs to one thread as every driver does; several of one process may use one file, each with
 * its own connection. `forget` of a kept delivery after `close` touches only that delivery. Fork: open after forking;
 * a transport that is used in a forked child refuses everything, and closing it there leaves SQLite's files alone.
 */
#include "transport/sqlite/sqlite.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void tell(sq_transport *t, bq_event_kind kind, const bq_error *err)
{
    if (t->host->event)
        t->host->event(t->host, &(bq_event){.kind = kind, .error = err});
}

/* ---- the connection's life --------------------------------------------------------------------------------------- */

static void connected(sq_transport *t, int64_t now_ms)
{
    t->state = SQ_UP;
    t->announced = false;
    t->retry_pause_ms = 0;
    t->maybe = t->repair = true;
    t->next_due = BQ_NEVER;
    t->poll_at = now_ms;
    t->clock_offset = bq_epoch_ms() - now_ms;
    t->log_pages = 0;
    t->checkpoint_at = SQ_CHECKPOINT_PAGES;
    t->log_warn = SQ_WAL_WARN_BYTES;
    t->truncate_at = BQ_NEVER;
    t->busy_since = t->lock_retry_at = 0;
    /* The file may be another one: queues have to be looked up again. */
    if (t->subs)
        memset(t->subs, 0, t->config->queue_count * sizeof(*t->subs));
}

static void disconnect(sq_transport *t, int64_t now_ms)
{
    bq_sq_drop_cache(t);
    bq_sq_close(&t->db);
    int64_t pause = t->retry_pause_ms > 0 ? t->retry_pause_ms * 2 : SQ_RECONNECT_MIN_MS;
    t->retry_pause_ms = pause < SQ_RECONNECT_MAX_MS ? pause : SQ_RECONNECT_MAX_MS;
    t->retry_at = bq_deadline(now_ms, t->retry_pause_ms);
    t->state = SQ_DOWN;
}

void bq_sq_down(sq_transport *t, int code, const char *what, int64_t now_ms)
{
    bq_error err;
    (void)bq_sq_fail(&err, &t->db, code, what);
    /* What was not begun was not done; its leases live on in the file. */
    bq_sq_decide_all(t, (sq_result){BQ_REFUSED, SQ_WHY_DOWN, code});
    disconnect(t, now_ms);
    tell(t, BQ_EVENT_DOWN, &err);
}

/* Never mended by trying again. */
static void give_up(sq_transport *t, const bq_error *err, sq_result result)
{
    t->state = SQ_BROKEN;
    t->broken = result;
    bq_sq_decide_all(t, result);
    bq_log(&t->host->logger, BQ_LOG_ERROR, "sqlite: %s", err->text);
    tell(t, BQ_EVENT_FATAL, err);
}

void bq_sq_broken(sq_transport *t, int code)
{
    bq_error err;
    (void)bq_sq_fail(&err, &t->db, code, "cannot use");
    bq_sq_leave(&t->db, false);
    give_up(t, &err, (sq_result){bq_sq_status(code), SQ_WHY_BROKEN, code});
}

/* Only the administrator of a queue that is not there should be told so; everybody else makes it. */
static bool may_create(const sq_transport *t)
{
    return (t->config->roles & (BQ_ROLE_PUBLISH | BQ_ROLE_CONSUME)) != 0;
}

/* Somebody else is opening, recovering or writing it just now. */
static bool is_locked(const bq_error *err)
{
    int code = (int)err->native & 0xff;
    return err->status == BQ_REFUSED && (code == SQLITE_BUSY || code == SQLITE_LOCKED || code == SQLITE_PROTOCOL);
}

bool bq_sq_reconnect(sq_transport *t, int64_t now_ms, bq_error *err)
{
    bq_status status = bq_sq_open(&t->db, t->path, may_create(t), err);
    if (status == BQ_OK) {
        connected(t, now_ms);
        return true;
    }
    /* A directory that went away may come back (a mount); a file that is something else does not change. */
    bool hopeless = status == BQ_DATA || (status == BQ_CONFIG && err->native == 0);
    disconnect(t, now_ms);
    if (is_locked(err)) {
        t->retry_pause_ms = 0;
        t->retry_at = bq_deadline(now_ms, SQ_OPEN_RETRY_MS);
        if (t->busy_since == 0)
            t->busy_since = now_ms;
        if (now_ms - t->busy_since < t->options->busy_timeout_ms)
            return false;
        t->busy_since = now_ms;
    }
    if (hopeless)
        give_up(t, err, (sq_result){status, SQ_WHY_BROKEN, (int)err->native});
    else
        tell(t, BQ_EVENT_DOWN, err);
    return false;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static bq_status check_config(const bq_transport_config *config, bq_error *err)
{
    const char *path = config->url->path;
    if (!path || !*path)
        return bq_fail(err, BQ_INVALID, "the URL names no file: sqlite:PATH");
    if (strcmp(path, ":memory:") == 0)
        return bq_fail(err, BQ_INVALID, "sqlite: needs a file; queues in memory are memory:NAME");
    for (size_t i = 0; i < config->queue_count; i++) {
        bq_str name = config->queues[i];
        if (name.len == 0 || name.len > SQ_NAME_MAX)
            return bq_fail(err, BQ_INVALID, "the name of a queue is 1 to %d bytes", SQ_NAME_MAX);
    }
    return BQ_OK;
}

static bq_status sq_open(void *state, const bq_transport_config *config, bq_error *err)
{
    sq_transport *t = state;
    bq_status status = check_config(config, err);
    if (status != BQ_OK)
        return status;
    t->config = config;
    t->host = config->host;
    t->options = config->options;
    t->path = config->url->path;
    t->pid = getpid();
    t->state = SQ_DOWN;
    bq_buf_init(&t->scratch, 0);
    t->db = (sq_db){.turn = {.fd = -1, .watch = -1}};
    t->ring = bq_calloc(SQ_OPS_MAX, sizeof(*t->ring));
    t->picks = bq_calloc(SQ_RESERVE_MAX, sizeof(*t->picks));
    t->subs = bq_calloc(config->queue_count ? config->queue_count : 1, sizeof(*t->subs));
    if (!t->ring || !t->picks || !t->subs)
        return bq_fail_nomem(err);

    bq_error why;
    int64_t now = t->host->now_ms();
    status = bq_sq_open(&t->db, t->path, may_create(t), &why);
    if (status == BQ_OK) {
        connected(t, now);
        return BQ_OK;
    }
    disconnect(t, now);
    if (is_locked(&why)) {
        t->busy_since = t->retry_at = now; /* as a server that is still starting */
        return BQ_OK;
    }
    if (err)
        *err = why;
    return status;
}

static void let_go(sq_transport *t, bq_held *h)
{
    if (!h->detached)
        t->settling -= h->settled;
    if (bq_held_let_go(&t->taken, h))
        bq_free(h);
}

/* What was reserved and shown to nobody goes back now instead of when its lease ends. */
static void return_on_close(sq_transport *t, int64_t timeout_ms)
{
    int64_t now = t->host->now_ms(), end = bq_deadline(now, timeout_ms < 0 ? 0 : timeout_ms);
    /* Operations that were not begun are dropped: none of them may be carried out now. */
    bq_sq_decide_all(t, (sq_result){BQ_CLOSED, SQ_WHY_DEADLINE, 0});
    while (t->state == SQ_UP && t->fresh.count > 0) {
        bq_sq_give_back(t, now);
        bq_sq_work(t, now);
        now = t->host->now_ms();
        if (t->fresh.count == 0 || now >= end || t->reserve_at > now)
            break;
        struct pollfd fd = {.fd = t->db.turn.watch, .events = POLLIN};
        (void)poll(&fd, t->db.turn.watch >= 0 ? 1 : 0, SQ_LOCK_RETRY_MS);
        (void)bq_turn_drain(&t->db.turn, now);
    }
}

static void sq_close(void *state, int64_t timeout_ms)
{
    sq_transport *t = state;
    if (t->state == SQ_CLOSED)
        return;
    bool ours = t->pid == getpid();
    if (ours)
        return_on_close(t, timeout_ms);
    t->state = SQ_CLOSED;
    while (t->taken.head)
        let_go(t, t->taken.head);
    for (bq_held *h; (h = bq_held_pop(&t->fresh)) != NULL;)
        bq_free(h);
    bq_sq_drop_cache(t);
    if (ours)
        bq_sq_close(&t->db);
    else
        bq_sq_abandon(&t->db);
    bq_buf_clear(&t->scratch);
    bq_free(t->ring);
    bq_free(t->picks);
    bq_free(t->subs);
    t->ring = NULL;
    t->picks = NULL;
    t->subs = NULL;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static size_t sq_submit(void *state, bq_op *const *ops, size_t count)
{
    sq_transport *t = state;
    int64_t now = t->host->now_ms();
    size_t i = 0;
    if (t->state == SQ_DOWN)
        return 0; /* offered again once the file is open: `prepare` wakes the loop then */
    for (; i < count; i++) {
        if (t->count >= (ops[i]->kind == BQ_OP_PUBLISH ? SQ_OPS_MAX - SQ_SETTLE_ROOM : SQ_OPS_MAX))
            break;
        *sq_slot_at(t, t->count++) = (sq_slot){.op = ops[i], .since_ms = now};
        bq_held *h = bq_held_of(ops[i]->in);
        if (h)
            h->ops++;
    }
    return i;
}

static size_t sq_reap(void *state, bq_completion *out, size_t max)
{
    sq_transport *t = state;
    size_t count = 0;
    while (count < max && t->done > 0) {
        const sq_slot *slot = sq_slot_at(t, 0);
        bq_completion *completion = &out[count++];
        completion->cookie = slot->op->cookie;
        completion->op = slot->op;
        completion->status = slot->result.status;
        if (slot->result.status != BQ_OK)
            bq_sq_explain(t, slot->result, slot->op, &completion->error);
        bq_held *h = bq_held_of(slot->op->in);
        t->first = (t->first + 1) % SQ_OPS_MAX;
        t->done--;
        t->count--;
        if (h && bq_held_reaped(h))
            let_go(t, h);
    }
    return count;
}

static size_t sq_take(void *state, bq_incoming **out, size_t max)
{
    sq_transport *t = state;
    size_t count = 0;
    if (max == 0)
        return 0;
    while (count < max && t->fresh.head && t->taken.count < t->config->prefetch) {
        bq_held *h = bq_held_pop(&t->fresh);
        bq_held_add(&t->taken, h);
        ((sq_delivery *)h)->taken = true;
        out[count++] = &h->in;
    }
    t->fresh_since = t->host->now_ms();
    t->taking = true;
    return count;
}

static void sq_forget(void *state, bq_incoming *in)
{
    bq_held *h = bq_held_of(in);
    if (h->detached) {
        bq_free(h); /* perhaps after close and from another thread: the transport is not touched */
        return;
    }
    sq_transport *t = state;
    t->settling += !h->settled;
    if (bq_held_forget(h))
        let_go(t, h);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool hungry(const sq_transport *t)
{
    return bq_sq_room(t, 0) > 0;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When an operation runs out of time. */
static int64_t earliest_deadline(sq_transport *t)
{
    int64_t earliest = BQ_NEVER;
    for (size_t i = t->done; i < t->count; i++) {
        const sq_slot *slot = sq_slot_at(t, i);
        earliest = sooner(earliest, slot->op->deadline_ms);
        if (t->busy_since != 0) {
            int64_t since = slot->since_ms > t->busy_since ? slot->since_ms : t->busy_since;
            earliest = sooner(earliest, bq_deadline(since, t->options->busy_timeout_ms));
        }
    }
    return earliest;
}

/* There is something to do: now, or when the lock can be had. Nothing that would come after it may be counted here, or
 * the loop would turn for it in vain. */
static int64_t next_attempt(sq_transport *t, int64_t now, bool *watch)
{
    const sq_turn *turn = &t->db.turn;
    int64_t due = now;
    *watch = turn->ticket != 0 && !turn->held;
    if (t->lock_retry_at > now)
        due = t->lock_retry_at;
    else if (*watch && turn->watch >= 0)
        due = bq_deadline(turn->moved_ms, TURN_PATIENCE_MS);
    return due > now ? sooner(due, earliest_deadline(t)) : now;
}

static int64_t next_moment(sq_transport *t, int64_t now, bool *watch)
{
    if (bq_sq_has_work(t, now))
        return next_attempt(t, now, watch);
    int64_t due = t->truncate_at;
    if (hungry(t)) {
        due = sooner(due, t->maybe ? bq_sq_reserve_at(t, 0) : sooner(t->poll_at, bq_sq_next_wake(t, now)));
        *watch = !t->maybe;
    }
    if (t->fresh.count > 0)
        due = sooner(due, bq_deadline(t->fresh_since, SQ_FRESH_MS));
    return t->blocked ? sooner(due, t->blocked_until) : due;
}

static size_t sq_prepare(void *state, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    sq_transport *t = state;
    t->want = want;
    int64_t now = t->host->now_ms(), due = BQ_NEVER;
    bool watch = false;
    if (t->state == SQ_UP)
        due = t->announced ? next_moment(t, now, &watch) : now;
    else if (t->state == SQ_DOWN)
        due = t->retry_at; /* nothing was accepted meanwhile */
    else if (t->done < t->count)
        due = now;
    if (t->done > 0 || (want > 0 && t->fresh.count > 0 && t->taken.count < t->config->prefetch))
        due = now;
    *deadline_ms = sooner(*deadline_ms, due);
    if (!watch || t->db.turn.watch < 0 || max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = t->db.turn.watch, .events = POLLIN};
    return 1;
}

/* Finds out whether there is something to reserve, without queueing for a turn. */
static void look(sq_transport *t, bool woken, int64_t now)
{
    bool polled = now >= t->poll_at, check = bq_sq_next_wake(t, now) <= now;
    if ((woken || polled) && !bq_sq_same_file(&t->db)) {
        bq_sq_down(t, SQLITE_READONLY_DBMOVED, "lost", now);
        return;
    }
    if (woken || polled) {
        bool changed = bq_sq_changed(t);
        check = check || changed;
        t->poll_step = changed || woken ? SQ_POLL_MIN_MS : t->poll_step * 3 / 2 + 1;
        if (t->poll_step > SQ_POLL_MAX_MS)
            t->poll_step = SQ_POLL_MAX_MS;
        t->poll_at = bq_deadline(now, t->db.turn.watch >= 0 ? SQ_POLL_MS : t->poll_step);
    }
    if (!check)
        return;
    bool delayed, in_flight;
    int code = bq_sq_probe(t, &t->maybe, &delayed, &in_flight);
    if (code == SQLITE_OK)
        return;
    if ((code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB)
        bq_sq_broken(t, code);
    else if ((code & 0xff) == SQLITE_IOERR)
        bq_sq_down(t, code, "cannot read", now);
    else
        t->next_due = bq_epoch_ms() + SQ_LOCK_RETRY_MS; /* it has not seen all of them */
}

static void cut_log(sq_transport *t)
{
    int pages, done;
    t->truncate_at = BQ_NEVER;
    if (bq_sq_wal_size(&t->db) > SQ_TRUNCATE_BYTES)
        (void)bq_sq_checkpoint(&t->db, SQLITE_CHECKPOINT_TRUNCATE, &pages, &done);
}

static void serve(sq_transport *t, int64_t now)
{
    bool woken = bq_turn_drain(&t->db.turn, now);
    if (!t->announced) {
        t->announced = true;
        tell(t, BQ_EVENT_UP, NULL);
    }
    if (t->blocked && now >= t->blocked_until) {
        t->blocked = false;
        tell(t, BQ_EVENT_UNBLOCKED, NULL);
    }
    bq_sq_watch_clock(t, now);
    bq_sq_expire(t, now);
    if (!t->maybe && hungry(t))
        look(t, woken, now);
    if (t->state == SQ_UP && t->lock_retry_at <= now) {
        if (bq_sq_has_work(t, now))
            bq_sq_work(t, now);
        else if (t->db.turn.ticket != 0 || t->db.turn.held)
            bq_sq_leave(&t->db, false); /* somebody else did what we queued for, or it expired */
    }
    if (t->state == SQ_UP && now >= t->truncate_at && !bq_sq_has_work(t, now))
        cut_log(t);
}

static void sq_service(void *state, const struct pollfd *fds, size_t count)
{
    sq_transport *t = state;
    int64_t now = t->host->now_ms();
    bq_error err;
    (void)fds;
    (void)count;
    if (t->state == SQ_CLOSED)
        return;
    if (t->pid != getpid()) {
        sq_result forked = {BQ_CLOSED, SQ_WHY_FORKED, 0};
        bq_sq_explain(t, forked, NULL, &err);
        if (t->state != SQ_BROKEN)
            give_up(t, &err, forked);
        bq_sq_decide_all(t, forked);
        return;
    }
    if (t->state == SQ_DOWN && now >= t->retry_at)
        (void)bq_sq_reconnect(t, now, &err);
    if (t->state == SQ_UP)
        serve(t, now);
    else if (t->state == SQ_BROKEN)
        bq_sq_decide_all(t, t->broken);
}

static bool sq_idle(void *state, bool all)
{
    sq_transport *t = state;
    bool found = true, delayed = true, in_flight = true;
    if (t->state != SQ_UP || !t->announced || t->taken.count > 0 || t->fresh.count > 0 || t->count > 0)
        return false;
    if (bq_sq_probe(t, &found, &delayed, &in_flight) != SQLITE_OK)
        return false;
    t->maybe = t->maybe || found;
    return !found && !in_flight && !(all && delayed);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const bq_binding *sq_binding(const void *options)
{
    (void)options;
    return bq_binding_find(BQ_STR("sqlite"));
}

static const char *sq_library(void)
{
    static _Thread_local char text[32];
    static const char prefix[] = "SQLite ";
    const char *version = sqlite3_libversion();
    if (text[0] == '\0') {
        size_t len = strlen(version), room = sizeof(text) - sizeof(prefix);
        memcpy(text + sizeof(prefix) - 1, version, len < room ? len : room);
        memcpy(text, prefix, sizeof(prefix) - 1);
    }
    return text;
}

static const char *const schemes[] = {"sqlite", NULL};

static const bq_option table[] = {
    {"sync", BQ_OPT_CHOICE, offsetof(sq_options, sync), "full", 0, 0, "full|normal", 0, NULL,
     "full: a message is on disk when it is confirmed; normal: the last ones may be lost with the power"},
    {"busy_timeout", BQ_OPT_DURATION, offsetof(sq_options, busy_timeout_ms), "10s", 0, 86400000, NULL, 0, NULL,
     "how long an operation waits for a lock that another program holds"},
    {"retry_after", BQ_OPT_DURATION, offsetof(sq_options, retry_after_ms), "90s", -1, INT64_C(31536000000), NULL, 0,
     NULL, "the lease: how long a message may be worked before it is given to somebody else; off: for ever"},
    {.name = NULL},
};

const bq_transport_ops bq_sqlite_ops = {
    .size = sizeof(bq_transport_ops),
    .name = "sqlite",
    .schemes = schemes,
    .summary = "durable queues in a file, shared by processes, without a server",
    .url_syntax = "sqlite:PATH",
    .table = table,
    .options_size = sizeof(sq_options),
    .state_size = sizeof(sq_transport),
    .capabilities = BQ_CAP_DEAD_LETTER | BQ_CAP_RETRY | BQ_CAP_RETRY_DELAY | BQ_CAP_RELEASE | BQ_CAP_RELEASE_DELAY |
                    BQ_CAP_EXTEND | BQ_CAP_PUBLISH_DELAY | BQ_CAP_HEADERS | BQ_CAP_KEY | BQ_CAP_PEEK | BQ_CAP_LAPSES |
                    BQ_CAP_IDLE | BQ_CAP_KEEP,
    .binding = sq_binding,
    .open = sq_open,
    .close = sq_close,
    .prepare = sq_prepare,
    .service = sq_service,
    .take = sq_take,
    .submit = sq_submit,
    .reap = sq_reap,
    .forget = sq_forget,
    .interrupt = NULL,
    .idle = sq_idle,
    .admin = &bq_sqlite_admin,
    .library = sq_library,
};
