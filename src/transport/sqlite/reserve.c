/*
 * sqlite/reserve.c - the reading side: leases, what is available and when, and messages as deliveries.
 *
 * A reservation moves rows of bq_ready into bq_lease, with a token of its own: a settlement acts only on a lease with
 * its token. What is taken next is the earlier head of two ranges of bq_ready (available at once, available from a
 * moment on), by (due, id). Leases that have ended go back first, with one more lapse, from the moment they ended.
 *
 * Times in the file are the wall clock's, since they outlive the machine's uptime. A clock that goes back must not
 * hold leases for longer than they are: when it is seen to have gone back, and at the first reservation, leases that
 * end later than now + their length are cut to that. Messages published without a delay never depend on the clock.
 */
#include "transport/sqlite/sqlite.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "transport/sqlite/props.h"

#include <string.h>

#define STEP_BACK_MS 1000

/* ---- deliveries -------------------------------------------------------------------------------------------------- */

/* A column's bytes; NULL stays apart from empty. False: SQLite ran out of memory. */
static bool column(sqlite3_stmt *row, int index, bq_str *out)
{
    *out = BQ_STR_NULL;
    if (sqlite3_column_type(row, index) == SQLITE_NULL)
        return true;
    const void *bytes = sqlite3_column_blob(row, index);
    size_t len = (size_t)sqlite3_column_bytes(row, index);
    if (len > 0 && !bytes)
        return false;
    *out = len > 0 ? (bq_str){bytes, len} : BQ_STR("");
    return true;
}

static bq_str copy_to(char **at, bq_str s)
{
    if (!s.ptr)
        return s;
    bq_str copy = {*at, s.len};
    if (s.len > 0)
        memcpy(*at, s.ptr, s.len);
    *at += s.len;
    return copy;
}

sq_delivery *bq_sq_delivery_new(sqlite3_stmt *row, int first, bool *damaged)
{
    bq_str key, props, body;
    size_t count, size;
    if (!column(row, first + 1, &key) || !column(row, first + 2, &props) || !column(row, first + 3, &body))
        return NULL;
    *damaged = !bq_sq_props_count(props, &count);
    if (*damaged)
        props = BQ_STR_NULL;
    /* One byte more, so that an empty view at the end points into the block. */
    if (__builtin_mul_overflow(count, sizeof(bq_prop), &size) ||
        __builtin_add_overflow(size, sizeof(sq_delivery) + 1, &size) || __builtin_add_overflow(size, key.len, &size) ||
        __builtin_add_overflow(size, props.len, &size) || __builtin_add_overflow(size, body.len, &size))
        return NULL;
    sq_delivery *d = bq_malloc(size);
    if (!d)
        return NULL;
    bq_prop *list = (bq_prop *)(d + 1);
    char *at = (char *)(list + count);
    *d = (sq_delivery){0};
    d->held.in.body = copy_to(&at, body);
    d->held.in.key = copy_to(&at, key);
    bq_sq_props_decode(copy_to(&at, props), list, count);
    d->held.in.props = list;
    d->held.in.prop_count = count;
    d->held.in.native_count = -1;
    d->held.in.timestamp_ms = sqlite3_column_int64(row, first);
    d->held.in.generation = 1;
    d->held.in.driver = d;
    return d;
}

_Static_assert(sizeof(sq_delivery) % _Alignof(bq_prop) == 0, "properties follow the delivery in its block");

/* ---- the clock --------------------------------------------------------------------------------------------------- */

void bq_sq_watch_clock(sq_transport *t, int64_t now_ms)
{
    int64_t offset = bq_epoch_ms() - now_ms;
    if (offset < t->clock_offset - STEP_BACK_MS) {
        t->repair = true;
        t->maybe = true;
    }
    t->clock_offset = offset;
}

/* The monotonic moment at which next_due comes; BQ_NEVER when nothing is due by itself. */
int64_t bq_sq_next_wake(const sq_transport *t, int64_t now_ms)
{
    if (t->next_due == BQ_NEVER)
        return BQ_NEVER;
    int64_t wait = t->next_due - bq_epoch_ms();
    return wait <= 0 ? now_ms : bq_deadline(now_ms, wait);
}

bool bq_sq_changed(sq_transport *t)
{
    sqlite3_stmt *statement = bq_sq_get(&t->db, SQ_DATA_VERSION);
    int64_t version = t->data_version;
    bool known = sqlite3_step(statement) == SQLITE_ROW;
    if (known)
        version = sqlite3_column_int64(statement, 0);
    (void)sqlite3_reset(statement);
    /* An error is for the probe that follows to find. */
    bool changed = !known || version != t->data_version;
    t->data_version = version;
    return changed;
}

/* ---- what is available ------------------------------------------------------------------------------------------- */

/* What stays in hand when `settling` more deliveries are settled. */
static size_t held_after(const sq_transport *t, size_t *settling)
{
    size_t held = t->taken.count - t->settling;
    if (*settling > held)
        *settling = held;
    return held - *settling + t->fresh.count;
}

int64_t bq_sq_reserve_at(const sq_transport *t, size_t settling)
{
    bool yields = t->yields && held_after(t, &settling) > 0;
    return yields && t->yield_until > t->reserve_at ? t->yield_until : t->reserve_at;
}

size_t bq_sq_room(const sq_transport *t, size_t settling)
{
    if (t->config->queue_count == 0 || !(t->config->roles & BQ_ROLE_CONSUME))
        return 0;
    size_t held = held_after(t, &settling), prefetch = t->config->prefetch;
    size_t wanted = t->want + (t->taking ? settling : 0);
    if (held >= prefetch || wanted <= t->fresh.count || (t->alone && held > 0))
        return 0;
    wanted -= t->fresh.count;
    size_t room = prefetch - held < wanted ? prefetch - held : wanted;
    return room < SQ_RESERVE_MAX ? room : SQ_RESERVE_MAX;
}

/* The first integer of a statement's only row; *found false when there is none. */
static int first_int(sqlite3_stmt *statement, int64_t *value, bool *found)
{
    int code = sqlite3_step(statement);
    *found = code == SQLITE_ROW;
    if (*found)
        *value = sqlite3_column_int64(statement, 0);
    int end = sqlite3_reset(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : end != SQLITE_OK ? end : code;
}

static int find_sub(sq_transport *t, size_t index)
{
    if (t->subs[index] != 0)
        return SQLITE_OK;
    sqlite3_stmt *find = bq_sq_get(&t->db, SQ_QUEUE_FIND);
    bq_str name = t->config->queues[index];
    int code = sqlite3_bind_text(find, 1, name.ptr, (int)name.len, SQLITE_STATIC);
    bool found;
    int64_t id = 0;
    if (code == SQLITE_OK)
        code = first_int(find, &id, &found);
    t->subs[index] = id;
    return code;
}

static void due_at(sq_transport *t, int64_t when)
{
    if (when < t->next_due)
        t->next_due = when;
}

/* When the queue's next delayed message and its next lease are due; BQ_NEVER when there is none. */
static int look_ahead(sq_transport *t, int64_t queue, int64_t *delayed, int64_t *leased)
{
    static const sq_sql which[] = {SQ_READY_TIMED_NEXT, SQ_LEASE_NEXT};
    int64_t *out[] = {delayed, leased};
    for (size_t i = 0; i < 2; i++) {
        sqlite3_stmt *statement = bq_sq_get(&t->db, which[i]);
        bool found;
        SQ_BIND(statement, queue);
        int code = first_int(statement, out[i], &found);
        if (code != SQLITE_OK)
            return code;
        if (!found)
            *out[i] = BQ_NEVER;
        due_at(t, *out[i]);
    }
    return SQLITE_OK;
}

int bq_sq_probe(sq_transport *t, bool *found, bool *delayed, bool *in_flight)
{
    int64_t now = bq_epoch_ms();
    *found = *delayed = *in_flight = false;
    t->next_due = BQ_NEVER;
    for (size_t i = 0; i < t->config->queue_count; i++) {
        int code = find_sub(t, i);
        if (code != SQLITE_OK)
            return code;
        if (t->subs[i] == 0)
            continue;
        int64_t due, timed, leased;
        bool some;
        sqlite3_stmt *next = bq_sq_get(&t->db, SQ_READY_NEXT);
        SQ_BIND(next, t->subs[i], 1);
        if ((code = first_int(next, &due, &some)) != SQLITE_OK ||
            (code = look_ahead(t, t->subs[i], &timed, &leased)) != SQLITE_OK)
            return code;
        *found = *found || some || timed <= now || leased <= now;
        *delayed = *delayed || timed != BQ_NEVER;
        /* A lease without end may be a dead worker's: nobody could wait for it. */
        *in_flight = *in_flight || leased != BQ_NEVER;
    }
    return SQLITE_OK;
}

/* ---- reserving --------------------------------------------------------------------------------------------------- */

static int sweep(sq_transport *t, int64_t queue, int64_t now)
{
    sqlite3_stmt *next = bq_sq_get(&t->db, SQ_LEASE_NEXT);
    int64_t until;
    bool found;
    SQ_BIND(next, queue);
    int code = first_int(next, &until, &found);
    if (code != SQLITE_OK || !found || until > now)
        return code;
    sqlite3_stmt *lapse = bq_sq_get(&t->db, SQ_LEASE_LAPSE), *drop = bq_sq_get(&t->db, SQ_LEASE_DROP_LAPSED);
    SQ_BIND(lapse, queue, now);
    SQ_BIND(drop, queue, now);
    code = bq_sq_run(lapse);
    if (code != SQLITE_OK)
        return code;
    return bq_sq_run(drop);
}

/* Steps one of the two ranges; *more false at its end. */
static int step_range(sqlite3_stmt *range, int64_t timed, sq_pick *pick, bool *more)
{
    int code = sqlite3_step(range);
    *more = code == SQLITE_ROW;
    if (!*more)
        return code == SQLITE_DONE ? SQLITE_OK : code;
    *pick = (sq_pick){timed, sqlite3_column_int64(range, 0), sqlite3_column_int64(range, 1),
                      sqlite3_column_int64(range, 2)};
    return SQLITE_OK;
}

/* The next `want` messages, merged from both ranges, into t->picks. */
static int pick(sq_transport *t, int64_t queue, int64_t now, size_t want, size_t *count)
{
    sqlite3_stmt *ranges[2] = {bq_sq_get(&t->db, SQ_READY_NEXT), bq_sq_get(&t->db, SQ_READY_TIMED)};
    sq_pick heads[2];
    bool more[2] = {false, false};
    int code = SQLITE_OK;
    *count = 0;
    for (int i = 0; i < 2 && code == SQLITE_OK; i++) {
        if (i == 0)
            SQ_BIND(ranges[i], queue, (int64_t)want);
        else
            SQ_BIND(ranges[i], queue, (int64_t)want, now);
        code = step_range(ranges[i], i, &heads[i], &more[i]);
    }
    while (code == SQLITE_OK && *count < want && (more[0] || more[1])) {
        int i =
            !more[0] ||
            (more[1] && (heads[1].due < heads[0].due || (heads[1].due == heads[0].due && heads[1].id < heads[0].id)));
        t->picks[(*count)++] = heads[i];
        code = step_range(ranges[i], i, &heads[i], &more[i]);
    }
    for (int i = 0; i < 2; i++)
        (void)sqlite3_reset(ranges[i]);
    return code;
}

/* Makes a delivery of one pick; NULL with SQLITE_OK when its message is missing. */
static int load(sq_transport *t, const sq_pick *from, sq_delivery **out)
{
    sqlite3_stmt *get = bq_sq_get(&t->db, SQ_MESSAGE_GET);
    *out = NULL;
    SQ_BIND(get, from->id);
    int code = sqlite3_step(get);
    if (code == SQLITE_ROW) {
        bool damaged = false;
        *out = bq_sq_delivery_new(get, 0, &damaged);
        if (damaged)
            bq_log(&t->host->logger, BQ_LOG_WARN,
                   "sqlite: message %lld of %s: its headers are damaged, they are left out", (long long)from->id,
                   t->db.path);
        if (!*out)
            code = SQLITE_NOMEM;
    } else if (code == SQLITE_DONE) {
        bq_log(&t->host->logger, BQ_LOG_WARN, "sqlite: message %lld of %s is missing", (long long)from->id, t->db.path);
    }
    int end = sqlite3_reset(get);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : end != SQLITE_OK ? end : code;
}

static int lease(sq_transport *t, sq_delivery *d, const sq_pick *from, int64_t queue, size_t index, int64_t now_ms,
                 int64_t token)
{
    int64_t span = t->options->retry_after_ms, now = bq_epoch_ms();
    d->queue = queue;
    d->id = from->id;
    d->token = token;
    d->timed = from->timed;
    d->due = from->due;
    d->until = d->until_now = bq_deadline(now, span);
    d->held.in.queue = index;
    d->held.in.lapses = (uint32_t)from->lapses;
    d->held.in.position = from->id & SQ_SEQUENCE_MAX;
    d->held.in.lease_until_ms = span < 0 ? 0 : bq_deadline(now_ms, span);
    sqlite3_stmt *add = bq_sq_get(&t->db, SQ_LEASE_ADD);
    SQ_BIND(add, queue, d->until, d->id, token, span, from->lapses);
    return bq_sq_run(add);
}

/* The picks are the beginning of their ranges, so each range goes in one statement. */
static int delete_picked(sq_transport *t, int64_t queue, size_t count)
{
    sqlite3_stmt *remove = bq_sq_get(&t->db, SQ_READY_DELETE_TO);
    for (int64_t timed = 0; timed < 2; timed++) {
        const sq_pick *last = NULL;
        int expected = 0;
        for (size_t i = 0; i < count; i++) {
            if (t->picks[i].timed == timed) {
                last = &t->picks[i];
                expected++;
            }
        }
        if (!last)
            continue;
        SQ_BIND(remove, queue, timed, last->due, last->id);
        int code = bq_sq_run(remove);
        if (code != SQLITE_OK)
            return code;
        if (sqlite3_changes(t->db.handle) != expected)
            return SQLITE_CORRUPT;
    }
    return SQLITE_OK;
}

/* Contract 3, crash loops: one more lapse and it counts as having ended its worker. What a worker had merely taken
 * ahead lapses beside the guilty message, so a message at its last chance is taken alone: the innocent one is handled,
 * and only the guilty one reaches the limit. */
static bool at_last_chance(const sq_transport *t, const sq_pick *pick)
{
    return pick->lapses > 0 && pick->lapses + 1 == t->config->max_attempts;
}

static int reserve_queue(sq_transport *t, size_t index, size_t want, bool holds, int64_t now_ms, int64_t token,
                         size_t *bytes, bq_held_list *got, bool *drained)
{
    int64_t queue = t->subs[index], now = bq_epoch_ms();
    size_t count, used = 0;
    int code = sweep(t, queue, now);
    if (code == SQLITE_OK)
        code = pick(t, queue, now, want, &count);
    if (code != SQLITE_OK)
        return code;
    for (; used < count && *bytes < SQ_BATCH_BYTES && code == SQLITE_OK && !t->alone; used++) {
        sq_delivery *d;
        bool alone = at_last_chance(t, &t->picks[used]);
        t->yields = alone && (holds || got->count > 0);
        if (t->yields)
            break;
        t->alone = alone;
        code = load(t, &t->picks[used], &d);
        if ((code == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM) && got->count > 0) {
            code = SQLITE_OK; /* what there is memory for */
            break;
        }
        if (code != SQLITE_OK || !d)
            continue;
        *bytes += d->held.in.body.len;
        bq_held_add(got, &d->held);
        code = lease(t, d, &t->picks[used], queue, index, now_ms, token);
    }
    *drained = count < want && used == count;
    return code == SQLITE_OK ? delete_picked(t, queue, used) : code;
}

int bq_sq_reserve(sq_transport *t, size_t want, size_t settling, int64_t now_ms, bq_held_list *got, bool *drained)
{
    size_t queues = t->config->queue_count, bytes = 0;
    int64_t token = (int64_t)(bq_random_u64() >> 1);
    int code = SQLITE_OK;
    bool holds = held_after(t, &settling) > 0;
    t->alone = t->yields = false;
    *drained = true;
    if (t->repair) {
        sqlite3_stmt *repair = bq_sq_get(&t->db, SQ_LEASE_REPAIR);
        SQ_BIND(repair, bq_epoch_ms());
        code = bq_sq_run(repair);
    }
    for (size_t i = 0; i < queues && code == SQLITE_OK; i++)
        code = find_sub(t, i);
    /* A fair share for each queue, beginning with the one whose turn it is; then what is left to whoever has more. */
    for (size_t n = 0; n < 2 * queues && code == SQLITE_OK && got->count < want && !t->alone && !t->yields; n++) {
        size_t index = (t->next_sub + n) % queues, left = want - got->count;
        if (n == queues && *drained)
            break;
        if (t->subs[index] == 0)
            continue;
        bool empty = false;
        size_t share = n < queues ? (left + queues - n - 1) / (queues - n) : left;
        code = reserve_queue(t, index, share, holds, now_ms, token, &bytes, got, &empty);
        *drained = *drained && empty;
    }
    t->next_sub = queues > 0 ? (t->next_sub + 1) % queues : 0;
    *drained = *drained && !t->alone && !t->yields;
    if (t->yields)
        t->yield_until = bq_deadline(now_ms, SQ_YIELD_MS);
    if (code != SQLITE_OK || !*drained)
        return code;
    t->next_due = BQ_NEVER;
    for (size_t i = 0; i < queues && code == SQLITE_OK; i++) {
        int64_t timed, leased;
        if (t->subs[i] != 0)
            code = look_ahead(t, t->subs[i], &timed, &leased);
    }
    return code;
}
