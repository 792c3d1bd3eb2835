/*
 * sqlite/write.c - the transaction: operations in the order they were submitted, then a reservation, then COMMIT.
 *
 * When something fails, everything since BEGIN is rolled back and the transaction is made again without what failed:
 * the one operation that SQLite refuses (too large, out of memory), those that need room when the disk is full, the
 * reservation. An operation is finished as
 *
 *     OK, LOST      COMMIT returned
 *     REFUSED, ...  rolled back: it was not done
 *     UNKNOWN       COMMIT itself failed in a way that leaves a complete transaction in the log, of which SQLite says
 *                   "not done" but which a crash before the next write would bring back (a failing fsync)
 *
 * Operations are finished in the order they came; one that is decided early waits in its slot for those before it.
 */
#include "transport/sqlite/sqlite.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "transport/sqlite/props.h"

#include <string.h>

/* What one transaction has done so far. */
typedef struct transaction {
    int64_t now_ms, epoch_ms;
    size_t first, count; /* its slots, counted from the oldest one not reaped */
    size_t settling;
    size_t failed; /* the slot whose operation failed */
    bq_held_list got;
    bool drained, reserving;
    bool news;   /* others may want to look */
    int64_t due; /* epoch: the earliest of what it delayed */
} transaction;

typedef enum phase { AT_BEGIN, AT_OPERATION, AT_GIVING_BACK, AT_RESERVE, AT_QUEUES, AT_COMMIT } phase;

static sq_result result_of(int code)
{
    return (sq_result){bq_sq_status(code), SQ_WHY_CODE, code};
}

/* ---- queues by name ---------------------------------------------------------------------------------------------- */

void bq_sq_drop_cache(sq_transport *t)
{
    for (size_t i = 0; i < t->queue_count; i++)
        bq_free(t->queues[i].name);
    t->queue_count = 0;
}

/* Frees a place for one more queue: one that this transaction has not used. */
static sq_queue *cache_place(sq_transport *t)
{
    if (t->queue_count < SQ_CACHE)
        return &t->queues[t->queue_count];
    for (size_t i = 0; i < SQ_CACHE; i++) {
        if (t->queues[i].transaction == t->transaction)
            continue;
        bq_free(t->queues[i].name);
        t->queues[i] = t->queues[--t->queue_count];
        return &t->queues[t->queue_count];
    }
    return NULL;
}

static int save_queues(sq_transport *t)
{
    for (size_t i = 0; i < t->queue_count; i++) {
        sq_queue *queue = &t->queues[i];
        if (!queue->changed)
            continue;
        sqlite3_stmt *save = bq_sq_get(&t->db, SQ_QUEUE_LAST);
        SQ_BIND(save, queue->id, queue->last);
        int code = bq_sq_run(save);
        if (code != SQLITE_OK)
            return code;
        queue->changed = false;
    }
    return SQLITE_OK;
}

static int read_queue(sq_transport *t, bq_str name, int64_t *id, int64_t *last)
{
    for (int again = 0;; again++) {
        sqlite3_stmt *find = bq_sq_get(&t->db, SQ_QUEUE_FIND);
        int code = sqlite3_bind_text(find, 1, name.ptr, (int)name.len, SQLITE_STATIC);
        if (code == SQLITE_OK)
            code = sqlite3_step(find);
        if (code == SQLITE_ROW) {
            *id = sqlite3_column_int64(find, 0);
            *last = sqlite3_column_int64(find, 1);
        }
        int end = sqlite3_reset(find);
        if (code != SQLITE_DONE || again > 0)
            return code == SQLITE_ROW    ? SQLITE_OK
                   : code == SQLITE_DONE ? SQLITE_CORRUPT
                   : end != SQLITE_OK    ? end
                                         : code;
        sqlite3_stmt *add = bq_sq_get(&t->db, SQ_QUEUE_ADD);
        code = sqlite3_bind_text(add, 1, name.ptr, (int)name.len, SQLITE_STATIC);
        if (code == SQLITE_OK)
            code = bq_sq_run(add);
        if (code != SQLITE_OK)
            return code;
    }
}

/* The queue of that name, made when there is none; its `last` is that of this transaction. */
static int find_queue(sq_transport *t, bq_str name, sq_queue **out)
{
    sq_queue *queue = NULL;
    for (size_t i = 0; i < t->queue_count && !queue; i++)
        if (t->queues[i].name_len == name.len && memcmp(t->queues[i].name, name.ptr, name.len) == 0)
            queue = &t->queues[i];
    if (!queue) {
        queue = cache_place(t);
        if (!queue) {
            /* More queues in one transaction than the cache holds: what it knows goes to the file first. */
            int code = save_queues(t);
            if (code != SQLITE_OK)
                return code;
            bq_sq_drop_cache(t);
            queue = cache_place(t);
        }
        *queue = (sq_queue){.name = bq_strndup(name), .name_len = name.len};
        if (!queue->name)
            return SQLITE_NOMEM;
        t->queue_count++;
    }
    if (queue->transaction != t->transaction) {
        int code = read_queue(t, name, &queue->id, &queue->last);
        if (code != SQLITE_OK)
            return code;
        queue->transaction = t->transaction;
        queue->changed = false;
    }
    *out = queue;
    return SQLITE_OK;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static bool good_name(bq_str name)
{
    return name.len > 0 && name.len <= SQ_NAME_MAX && !memchr(name.ptr, 0, name.len) &&
           bq_utf8_invalid(name.ptr, name.len) == name.len;
}

static int bind_bytes(sqlite3_stmt *statement, int index, bq_str bytes)
{
    if (!bytes.ptr)
        return sqlite3_bind_null(statement, index);
    /* A pointer that happens to be NULL must not make an empty value an absent one. */
    return bytes.len == 0 ? sqlite3_bind_zeroblob(statement, index, 0)
                          : sqlite3_bind_blob64(statement, index, bytes.ptr, bytes.len, SQLITE_STATIC);
}

static int add_ready(sq_transport *t, transaction *tx, int64_t queue, int64_t id, int64_t delay_ms, int64_t lapses)
{
    int64_t timed = delay_ms > 0, due = timed ? bq_deadline(tx->epoch_ms, delay_ms) : tx->epoch_ms;
    sqlite3_stmt *add = bq_sq_get(&t->db, SQ_READY_ADD);
    SQ_BIND(add, queue, timed, due, id, lapses);
    if (timed && due < tx->due)
        tx->due = due;
    tx->news = true;
    return bq_sq_run(add);
}

static int add_row(sq_transport *t, transaction *tx, int64_t id, const bq_outgoing *out)
{
    bq_str props = BQ_STR_NULL;
    if (out->prop_count > 0) {
        bq_buf_reset(&t->scratch);
        if (bq_sq_props_encode(out->props, out->prop_count, &t->scratch) != BQ_OK)
            return SQLITE_NOMEM;
        props = bq_buf_str(&t->scratch);
    }
    sqlite3_stmt *add = bq_sq_get(&t->db, SQ_MESSAGE_ADD);
    SQ_BIND(add, id, out->timestamp_ms != 0 ? out->timestamp_ms : tx->epoch_ms);
    int code = bind_bytes(add, 3, out->key);
    if (code == SQLITE_OK)
        code = bind_bytes(add, 4, props);
    if (code == SQLITE_OK)
        code = bind_bytes(add, 5, out->body);
    if (code == SQLITE_OK)
        code = bq_sq_run(add);
    /* The bytes are borrowed: the statement must not outlive them with a pointer to them. */
    (void)sqlite3_clear_bindings(add);
    return code;
}

/* What the row's other columns and its header need, generously. */
#define ROW_OVERHEAD 256

static bool too_large(const sq_transport *t, const bq_outgoing *out)
{
    size_t size = ROW_OVERHEAD;
    bool over = __builtin_add_overflow(size, out->body.len, &size) || __builtin_add_overflow(size, out->key.len, &size);
    for (size_t i = 0; i < out->prop_count && !over; i++)
        over = __builtin_add_overflow(size, out->props[i].name.len + ROW_OVERHEAD, &size) ||
               __builtin_add_overflow(size, out->props[i].text.len, &size);
    return over || size > (uint64_t)t->db.length_max;
}

static int publish(sq_transport *t, transaction *tx, bq_str name, const bq_outgoing *out, sq_result *result)
{
    sq_queue *queue;
    if (!good_name(name)) {
        *result = (sq_result){BQ_INVALID, SQ_WHY_NAME, 0};
        return SQLITE_OK;
    }
    if (too_large(t, out)) {
        *result = (sq_result){BQ_REFUSED, SQ_WHY_TOO_LARGE, SQLITE_TOOBIG};
        return SQLITE_OK;
    }
    int code = find_queue(t, name, &queue);
    if (code != SQLITE_OK)
        return code;
    if (queue->id > SQ_QUEUE_MAX || queue->last >= SQ_SEQUENCE_MAX) {
        *result = (sq_result){BQ_REFUSED, SQ_WHY_QUEUES, 0};
        return SQLITE_OK;
    }
    int64_t id = queue->id << SQ_SEQUENCE_BITS | ++queue->last;
    queue->changed = true;
    code = add_row(t, tx, id, out);
    return code == SQLITE_OK ? add_ready(t, tx, queue->id, id, out->delay_ms, 0) : code;
}

/* Takes our lease away; *ours false: it is no longer ours, and nothing was touched. */
static int end_lease(sq_transport *t, const sq_delivery *d, bool *ours)
{
    sqlite3_stmt *end = bq_sq_get(&t->db, SQ_LEASE_DELETE);
    SQ_BIND(end, d->queue, d->until_now, d->id, d->token);
    int code = bq_sq_run(end);
    *ours = code == SQLITE_OK && sqlite3_changes(t->db.handle) == 1;
    if (code != SQLITE_OK || *ours)
        return code;
    end = bq_sq_get(&t->db, SQ_LEASE_DELETE_MOVED); /* after the repair of a clock its end is another */
    SQ_BIND(end, d->queue, d->id, d->token);
    code = bq_sq_run(end);
    *ours = code == SQLITE_OK && sqlite3_changes(t->db.handle) == 1;
    return code;
}

static int delete_message(sq_transport *t, int64_t id)
{
    sqlite3_stmt *remove = bq_sq_get(&t->db, SQ_MESSAGE_DELETE);
    SQ_BIND(remove, id);
    return bq_sq_run(remove);
}

static int extend(sq_transport *t, transaction *tx, sq_delivery *d)
{
    int64_t span = t->options->retry_after_ms;
    d->until_now = bq_deadline(tx->epoch_ms, span);
    sqlite3_stmt *add = bq_sq_get(&t->db, SQ_LEASE_ADD);
    SQ_BIND(add, d->queue, d->until_now, d->id, d->token, span, d->held.in.lapses);
    return bq_sq_run(add);
}

/* An operation on a lease that is ours and has just been ended. */
static int settle(sq_transport *t, transaction *tx, const bq_op *op, sq_delivery *d, sq_result *result)
{
    int code;
    switch (op->kind) {
    case BQ_OP_EXTEND: return extend(t, tx, d);
    case BQ_OP_ACK: return delete_message(t, d->id);
    case BQ_OP_RELEASE: return add_ready(t, tx, d->queue, d->id, op->out.delay_ms, d->held.in.lapses);
    default:
        code = publish(t, tx, op->kind == BQ_OP_RETRY ? t->config->queues[d->held.in.queue] : op->out.queue, &op->out,
                       result);
        return code == SQLITE_OK && result->status == BQ_OK ? delete_message(t, d->id) : code;
    }
}

static int on_delivery(sq_transport *t, transaction *tx, const bq_op *op, sq_result *result)
{
    sq_delivery *d = bq_sq_delivery_of(op->in);
    bool ours = false;
    if (op->kind == BQ_OP_LEAVE && d)
        return SQLITE_OK;
    bool moves = op->kind == BQ_OP_RETRY || op->kind == BQ_OP_DEAD_LETTER;
    if (op->kind == BQ_OP_REJECT || op->kind == BQ_OP_NATIVE_RETRY || op->kind == BQ_OP_LEAVE) {
        *result = (sq_result){BQ_UNSUPPORTED, SQ_WHY_UNSUPPORTED, 0};
        return SQLITE_OK;
    }
    /* What cannot be written must not end the lease. */
    if (moves && too_large(t, &op->out))
        *result = (sq_result){BQ_REFUSED, SQ_WHY_TOO_LARGE, SQLITE_TOOBIG};
    else if (op->kind == BQ_OP_DEAD_LETTER && !good_name(op->out.queue))
        *result = (sq_result){BQ_INVALID, SQ_WHY_NAME, 0};
    if (result->status != BQ_OK)
        return SQLITE_OK;
    int code = d ? end_lease(t, d, &ours) : SQLITE_OK;
    if (code != SQLITE_OK)
        return code;
    if (!ours) {
        *result = (sq_result){BQ_LOST, SQ_WHY_LOST, 0};
        return SQLITE_OK;
    }
    code = settle(t, tx, op, d, result);
    /* Too many queues for the dead letter: the lease is gone already, so all of it must be undone. */
    return code == SQLITE_OK && result->status != BQ_OK ? SQLITE_CONSTRAINT : code;
}

static int apply(sq_transport *t, transaction *tx)
{
    for (size_t i = 0; i < tx->count; i++) {
        sq_slot *slot = sq_slot_at(t, tx->first + i);
        if (slot->decided)
            continue;
        int code;
        slot->result = (sq_result){BQ_OK, SQ_WHY_CODE, SQLITE_OK};
        if (slot->op->kind == BQ_OP_PUBLISH)
            code = publish(t, tx, slot->op->out.queue, &slot->op->out, &slot->result);
        else
            code = on_delivery(t, tx, slot->op, &slot->result);
        if (code != SQLITE_OK) {
            tx->failed = tx->first + i;
            return code;
        }
    }
    return SQLITE_OK;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

/* Reserved and never shown to anybody: back to where they stood. */
static int return_fresh(sq_transport *t)
{
    for (bq_held *h = t->fresh.head; h; h = h->next) {
        const sq_delivery *d = (const sq_delivery *)h;
        bool ours;
        int code = end_lease(t, d, &ours);
        if (code != SQLITE_OK)
            return code;
        if (!ours)
            continue;
        sqlite3_stmt *add = bq_sq_get(&t->db, SQ_READY_ADD);
        SQ_BIND(add, d->queue, d->timed, d->due, d->id, d->held.in.lapses);
        if ((code = bq_sq_run(add)) != SQLITE_OK)
            return code;
    }
    return SQLITE_OK;
}

static void drop_list(bq_held_list *list)
{
    for (bq_held *h; (h = bq_held_pop(list)) != NULL;)
        bq_free(h);
}

static bool fresh_too_long(const sq_transport *t, int64_t now_ms)
{
    return t->fresh.count > 0 && now_ms >= t->fresh_since + SQ_FRESH_MS;
}

void bq_sq_give_back(sq_transport *t, int64_t now_ms)
{
    t->fresh_since = now_ms - SQ_FRESH_MS;
    t->want = 0;
    t->taking = false;
}

/* ---- one transaction --------------------------------------------------------------------------------------------- */

static bool needs_room(const sq_slot *slot)
{
    bq_op_kind kind = slot->op->kind;
    return !slot->decided && (kind == BQ_OP_PUBLISH || kind == BQ_OP_RETRY || kind == BQ_OP_DEAD_LETTER);
}

static bool any_undecided(sq_transport *t, const transaction *tx, bool only_needing_room)
{
    for (size_t i = 0; i < tx->count; i++) {
        const sq_slot *slot = sq_slot_at(t, tx->first + i);
        if (only_needing_room ? needs_room(slot) : !slot->decided)
            return true;
    }
    return false;
}

/* The slots of the next transaction, and how many of them settle. */
static void choose(sq_transport *t, transaction *tx, bool *durable)
{
    size_t bytes = 0;
    tx->first = t->done;
    while (tx->first + tx->count < t->count && tx->count < SQ_BATCH_OPS && bytes < SQ_BATCH_BYTES) {
        const sq_slot *slot = sq_slot_at(t, tx->first + tx->count++);
        if (slot->decided)
            continue;
        bytes += slot->op->out.body.len;
        tx->settling += sq_settles(slot->op->kind);
        /* A lease that a power failure undoes is a lease that lapses at once: only that may be lost. */
        *durable = *durable || slot->op->kind != BQ_OP_EXTEND;
    }
}

static void rolled_back(sq_transport *t, transaction *tx)
{
    for (size_t i = 0; i < tx->count; i++) {
        sq_delivery *d = bq_sq_delivery_of(sq_slot_at(t, tx->first + i)->op->in);
        if (d)
            d->until_now = d->until;
    }
    drop_list(&tx->got);
    bq_sq_drop_cache(t); /* it may know queues that are not there */
    if (tx->reserving)
        t->next_due = 0; /* the reservation that is undone had looked ahead without what is there again */
}

static void finish(sq_transport *t)
{
    while (t->done < t->count && sq_slot_at(t, t->done)->decided) {
        const sq_slot *slot = sq_slot_at(t, t->done++);
        sq_delivery *d = bq_sq_delivery_of(slot->op->in);
        if (!d || !(slot->result.status == BQ_OK || slot->result.status == BQ_LOST))
            continue;
        if (slot->result.status == BQ_LOST)
            d->held.in.lease_lost = true;
        if (sq_settles(slot->op->kind) && !d->held.settled) {
            d->held.settled = true;
            t->settling++;
        }
    }
}

static void committed(sq_transport *t, transaction *tx, bool gave_back)
{
    for (size_t i = 0; i < tx->count; i++) {
        sq_slot *slot = sq_slot_at(t, tx->first + i);
        sq_delivery *d = bq_sq_delivery_of(slot->op->in);
        if (!slot->decided && d && slot->op->kind == BQ_OP_EXTEND && slot->result.status == BQ_OK)
            d->held.in.lease_until_ms =
                t->options->retry_after_ms < 0 ? 0 : bq_deadline(tx->now_ms, t->options->retry_after_ms);
        if (d)
            d->until = d->until_now;
        slot->decided = true;
    }
    finish(t);
    if (gave_back) {
        drop_list(&t->fresh);
        t->want = 0; /* until the runtime says again that it wants some */
        t->taking = false;
    }
    if (tx->news)
        t->maybe = true;
    if (tx->due < t->next_due)
        t->next_due = tx->due;
    if (tx->reserving) {
        t->repair = false;
        t->maybe = !tx->drained;
        if (tx->got.count > 0 && t->fresh.count == 0)
            t->fresh_since = tx->now_ms;
    }
    for (bq_held *h; (h = bq_held_pop(&tx->got)) != NULL;)
        bq_held_add(&t->fresh, h);
}

/* While it is our turn nobody adds to the log, so one pass copies all of it unless a reader holds it back. The next
 * writer then begins the log anew, unless a reader is in it just then. */
static void checkpoint(sq_transport *t)
{
    int now = t->db.wal_pages, pages, done;
    if (now < t->log_pages) {
        t->checkpoint_at = SQ_CHECKPOINT_PAGES;
        t->log_warn = SQ_WAL_WARN_BYTES;
    }
    t->log_pages = now;
    if (now < t->checkpoint_at)
        return;
    t->checkpoint_at = now + SQ_CHECKPOINT_PAGES / 2;
    int code = bq_sq_checkpoint(&t->db, SQLITE_CHECKPOINT_PASSIVE, &pages, &done);
    if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY)
        bq_log(&t->host->logger, BQ_LOG_WARN, "sqlite: the write-ahead log of %s cannot be copied back: %s", t->db.path,
               bq_sq_text(code));
    int64_t bytes = (int64_t)now * SQ_PAGE_BYTES;
    if (bytes < t->log_warn)
        return;
    bq_log(&t->host->logger, BQ_LOG_WARN,
           "sqlite: the write-ahead log of %s has grown to %lld MiB: some program keeps an old snapshot open",
           t->db.path, (long long)(bytes >> 20));
    t->log_warn = bytes * 2;
}

/* Everything between BEGIN and COMMIT. */
static int carry_out(sq_transport *t, transaction *tx, size_t want, bool give_back, phase *at)
{
    *at = AT_OPERATION;
    int code = apply(t, tx);
    if (code == SQLITE_OK && give_back) {
        *at = AT_GIVING_BACK;
        code = return_fresh(t);
        tx->news = true;
    }
    if (code == SQLITE_OK && want > 0) {
        *at = AT_RESERVE;
        tx->reserving = true;
        code = bq_sq_reserve(t, want, tx->settling, tx->now_ms, &tx->got, &tx->drained);
    }
    if (code == SQLITE_OK) {
        *at = AT_QUEUES;
        code = save_queues(t);
    }
    return code;
}

static int attempt(sq_transport *t, transaction *tx, phase *at)
{
    bool durable = false, give_back = fresh_too_long(t, tx->now_ms);
    choose(t, tx, &durable);
    size_t want = tx->now_ms >= bq_sq_reserve_at(t, tx->settling) && !give_back ? bq_sq_room(t, tx->settling) : 0;
    if (!any_undecided(t, tx, false) && !give_back && (want == 0 || !t->maybe)) {
        bq_sq_leave(&t->db, false);
        return SQLITE_OK;
    }
    *at = AT_BEGIN;
    int code = bq_sq_begin(&t->db, durable && t->options->sync == 0, tx->now_ms);
    if (code != SQLITE_OK)
        return code;
    t->transaction++;
    int before = sqlite3_total_changes(t->db.handle);
    code = carry_out(t, tx, want, give_back, at);
    if (code == SQLITE_OK && sqlite3_total_changes(t->db.handle) != before) {
        *at = AT_COMMIT;
        code = bq_sq_commit(&t->db);
        if (code == SQLITE_OK)
            checkpoint(t);
        t->truncate_at = bq_deadline(tx->now_ms, SQ_TRUNCATE_AFTER_MS);
    } else {
        bq_sq_rollback(&t->db);
    }
    if (code == SQLITE_OK)
        committed(t, tx, give_back);
    else
        rolled_back(t, tx);
    bq_sq_leave(&t->db, tx->news && code == SQLITE_OK);
    return code;
}

/* ---- what failed ------------------------------------------------------------------------------------------------- */

static void decide(sq_slot *slot, sq_result result)
{
    if (slot->decided)
        return;
    slot->result = result;
    slot->decided = true;
}

static void decide_batch(sq_transport *t, const transaction *tx, sq_result result)
{
    for (size_t i = 0; i < tx->count; i++)
        decide(sq_slot_at(t, tx->first + i), result);
    finish(t);
}

void bq_sq_decide_all(sq_transport *t, sq_result result)
{
    for (size_t i = t->done; i < t->count; i++)
        decide(sq_slot_at(t, i), result);
    finish(t);
}

/* Once all of the log is in the database the next writer begins it anew, in the room that it has: true when that is
 * so. Not tried again before a full disk is. */
static bool make_room(sq_transport *t, const transaction *tx)
{
    int pages = 0, done = 0;
    if (tx->now_ms < t->blocked_until)
        return false;
    t->blocked_until = bq_deadline(tx->now_ms, SQ_BLOCKED_MS);
    return bq_sq_checkpoint(&t->db, SQLITE_CHECKPOINT_PASSIVE, &pages, &done) == SQLITE_OK && pages > 0 &&
           done == pages;
}

static void disk_is_full(sq_transport *t, const transaction *tx, int code)
{
    t->blocked_until = bq_deadline(tx->now_ms, SQ_BLOCKED_MS);
    if (t->blocked)
        return;
    t->blocked = true;
    bq_error err;
    (void)bq_sq_fail(&err, &t->db, code, "cannot write to");
    bq_log(&t->host->logger, BQ_LOG_WARN, "sqlite: %s", err.text);
    if (t->host->event)
        t->host->event(t->host, &(bq_event){.kind = BQ_EVENT_BLOCKED, .error = &err});
}

/* Refuses what needs room; when nothing in the batch does, all of it. */
static void refuse_for_room(sq_transport *t, const transaction *tx, int code)
{
    bool any = any_undecided(t, tx, true);
    for (size_t i = 0; i < tx->count; i++) {
        sq_slot *slot = sq_slot_at(t, tx->first + i);
        if (!any || needs_room(slot))
            decide(slot, result_of(code));
    }
}

/* A failing fsync leaves a whole transaction in the log; a failing write does not. */
static bool may_be_done(phase at, int code)
{
    return at == AT_COMMIT && (code & 0xff) == SQLITE_IOERR && code != SQLITE_IOERR_WRITE && code != SQLITE_IOERR_NOMEM;
}

/* Somebody else writes, or it is not our turn. */
static void locked_out(sq_transport *t, const transaction *tx, phase at)
{
    if (t->busy_since == 0)
        t->busy_since = tx->now_ms;
    if (t->db.turn.held || t->db.turn.fd < 0 || t->db.turn.watch < 0 || at != AT_BEGIN)
        t->lock_retry_at = bq_deadline(tx->now_ms, SQ_LOCK_RETRY_MS);
}

/* Goes on without what failed. */
static void go_without(sq_transport *t, const transaction *tx, phase at, int code)
{
    bool full = (code & 0xff) == SQLITE_FULL;
    if (full && make_room(t, tx))
        return; /* all of it once more */
    if (full)
        disk_is_full(t, tx, code);
    if (at == AT_RESERVE || at == AT_GIVING_BACK || !any_undecided(t, tx, false) ||
        (full && tx->reserving && !any_undecided(t, tx, true))) {
        t->reserve_at = bq_deadline(tx->now_ms, SQ_FRESH_MS);
        t->fresh_since = tx->now_ms;
        return;
    }
    sq_slot *failed = at == AT_OPERATION ? sq_slot_at(t, tx->failed) : NULL;
    if (full)
        refuse_for_room(t, tx, code);
    else if (failed)
        decide(failed, failed->result.status != BQ_OK ? failed->result : result_of(code));
    else
        decide_batch(t, tx, result_of(code));
    finish(t);
}

/* Returns whether the rest should be tried again at once. */
static bool recover(sq_transport *t, const transaction *tx, phase at, int code)
{
    switch (code == SQLITE_IOERR_NOMEM ? SQLITE_NOMEM : code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: locked_out(t, tx, at); return false;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        decide_batch(t, tx, result_of(code));
        bq_sq_broken(t, code);
        return false;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        decide_batch(t, tx,
                     may_be_done(at, code) ? (sq_result){BQ_UNKNOWN, SQ_WHY_NOT_CONFIRMED, code} : result_of(code));
        bq_sq_down(t, code, "cannot write to", tx->now_ms);
        return false;
    default: go_without(t, tx, at, code); return true;
    }
}

void bq_sq_work(sq_transport *t, int64_t now_ms)
{
    if (!bq_sq_same_file(&t->db)) {
        bq_sq_down(t, SQLITE_READONLY_DBMOVED, "lost", now_ms);
        return;
    }
    /* Each round that fails decides an operation or gives up the reservation, so this ends. */
    for (;;) {
        transaction tx = {.now_ms = now_ms, .epoch_ms = bq_epoch_ms(), .due = BQ_NEVER};
        phase at = AT_BEGIN;
        int code = attempt(t, &tx, &at);
        if (code == SQLITE_OK) {
            t->busy_since = t->lock_retry_at = 0;
            return;
        }
        if (!recover(t, &tx, at, code))
            return;
    }
}

bool bq_sq_has_work(const sq_transport *t, int64_t now_ms)
{
    return t->done < t->count || fresh_too_long(t, now_ms) ||
           (t->maybe && now_ms >= bq_sq_reserve_at(t, 0) && bq_sq_room(t, 0) > 0);
}

/* How long a reservation waits for the lock before that is said, and said again. */
static int64_t patience(const sq_transport *t)
{
    return t->options->busy_timeout_ms > SQ_LOCK_WARN_MS ? t->options->busy_timeout_ms : SQ_LOCK_WARN_MS;
}

void bq_sq_expire(sq_transport *t, int64_t now_ms)
{
    int64_t locked = 0;
    for (size_t i = t->done; i < t->count; i++) {
        sq_slot *slot = sq_slot_at(t, i);
        if (slot->op->deadline_ms <= now_ms) {
            decide(slot, (sq_result){BQ_TIMEOUT, SQ_WHY_DEADLINE, 0});
        } else if (t->busy_since != 0) {
            int64_t since = slot->since_ms > t->busy_since ? slot->since_ms : t->busy_since;
            if (now_ms - since >= t->options->busy_timeout_ms) {
                decide(slot, result_of(SQLITE_BUSY));
                locked = t->options->busy_timeout_ms;
            }
        }
    }
    finish(t);
    if (t->busy_since != 0 && t->done == t->count && now_ms - t->busy_since >= patience(t)) {
        locked = now_ms - t->busy_since; /* only a reservation waits: nothing times out, but somebody should know */
        t->busy_since = now_ms;
    }
    if (locked > 0)
        bq_log(&t->host->logger, BQ_LOG_WARN, "sqlite: %s has been locked for %lld ms", t->db.path, (long long)locked);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

void bq_sq_explain(const sq_transport *t, sq_result result, const bq_op *op, bq_error *err)
{
    const char *path = t->db.path ? t->db.path : t->path;
    switch (result.why) {
    case SQ_WHY_CODE:
        (void)bq_fail_flags(err, result.status, bq_sq_flags(result.code), result.code, "not written to %s: %s", path,
                            bq_sq_text(result.code));
        return;
    case SQ_WHY_NOT_CONFIRMED:
        (void)bq_fail_flags(err, result.status, BQ_ERROR_MAYBE_DONE | BQ_ERROR_RETRYABLE, result.code,
                            "not confirmed by %s: %s", path, bq_sq_text(result.code));
        return;
    case SQ_WHY_DOWN:
        (void)bq_fail_flags(err, result.status, BQ_ERROR_RETRYABLE, result.code,
                            "not written to %s: it could not be used any longer", path);
        return;
    case SQ_WHY_LOST:
        (void)bq_fail(err, result.status, "the lease ran out and the message was given back to its queue");
        return;
    case SQ_WHY_NAME:
        (void)bq_fail(err, result.status, "the name of a queue is 1 to %d bytes of UTF-8 without NUL", SQ_NAME_MAX);
        return;
    case SQ_WHY_QUEUES: (void)bq_fail(err, result.status, "%s has no room for another queue", path); return;
    case SQ_WHY_TOO_LARGE:
        (void)bq_fail_flags(err, result.status, 0, result.code,
                            "a message of %zu bytes is larger than SQLite can store (%lld)", op->out.body.len,
                            (long long)t->db.length_max);
        return;
    case SQ_WHY_DEADLINE:
        (void)bq_fail(err, result.status, "not written to %s in time, nothing was done", path);
        return;
    case SQ_WHY_UNSUPPORTED: (void)bq_fail(err, result.status, "sqlite: does not do that natively"); return;
    case SQ_WHY_NOMEM: (void)bq_fail_nomem(err); return;
    case SQ_WHY_BROKEN:
        (void)bq_fail_flags(err, result.status, BQ_ERROR_FATAL, result.code, "%s cannot be used any longer", path);
        return;
    case SQ_WHY_FORKED:
        (void)bq_fail(err, result.status, "a connection to SQLite cannot be used on both sides of a fork");
        return;
    }
}
