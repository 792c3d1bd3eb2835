/*
 * sqlite/sqlite.h - the state of the SQLite driver, shared by its parts: sqlite.c (the table and the loop), write.c
 * (the transaction), reserve.c (leases and reading), admin.c.
 *
 * One transaction does everything that is due: what was submitted since the last one, in order, and then the
 * reservation of what fits in the prefetch. Completions become visible to `reap` after COMMIT has returned, never
 * before (contract 3: nothing is acknowledged before its replacement is confirmed).
 */
#ifndef BQ_SQLITE_SQLITE_H
#define BQ_SQLITE_SQLITE_H

#include <babelqueue/transport.h>

#include "transport/held.h"
#include "transport/sqlite/db.h"

#include <sys/types.h>

/* Operations accepted and not reaped, at most; the rest waits with the caller. Publishes leave some of it alone. */
#define SQ_OPS_MAX 4096
#define SQ_SETTLE_ROOM 1024
/* What one transaction does at most, so that other processes get their turn within milliseconds. */
#define SQ_BATCH_OPS 1000
#define SQ_BATCH_BYTES ((size_t)8 << 20)
#define SQ_RESERVE_MAX 1000
#define SQ_PAGE_BYTES 4096
/* Pages in the log at which it is copied back into the database. */
#define SQ_CHECKPOINT_PAGES 2000
/* Log size from which somebody who keeps an old snapshot open is warned about, and again at each doubling. */
#define SQ_WAL_WARN_BYTES ((int64_t)64 << 20)
/* Idle for so long, the log is cut if it is larger than that. */
#define SQ_TRUNCATE_AFTER_MS 1000
#define SQ_TRUNCATE_BYTES ((int64_t)1 << 20)
/* Without anything else to wake it a hungry consumer looks that often; without inotify between the other two. */
#define SQ_POLL_MS 1000
#define SQ_POLL_MIN_MS 2
#define SQ_POLL_MAX_MS 100
/* Somebody else holds SQLite's lock although it is our turn. */
#define SQ_LOCK_RETRY_MS 5
#define SQ_OPEN_RETRY_MS 20
/* A reservation that waits for the lock warns at most so often. */
#define SQ_LOCK_WARN_MS 1000
/* A message that is to be taken alone is looked at again so often while something else is in hand. */
#define SQ_YIELD_MS 500
/* Reserved deliveries that nobody takes (the runtime pauses or stops) go back after that. */
#define SQ_FRESH_MS 1000
/* A full disk is not tried again before. */
#define SQ_BLOCKED_MS 1000
#define SQ_RECONNECT_MIN_MS 100
#define SQ_RECONNECT_MAX_MS 10000
#define SQ_NAME_MAX 512
#define SQ_CACHE 32

typedef struct sq_options {
    int sync; /* 0 full, 1 normal */
    int64_t busy_timeout_ms;
    int64_t retry_after_ms; /* -1: off */
} sq_options;

typedef enum sq_state { SQ_CLOSED, SQ_DOWN, SQ_UP, SQ_BROKEN } sq_state;

/* ---- operations -------------------------------------------------------------------------------------------------- */

typedef enum sq_why {
    SQ_WHY_CODE, /* SQLite's result code says it */
    SQ_WHY_NOT_CONFIRMED,
    SQ_WHY_DOWN,
    SQ_WHY_LOST,
    SQ_WHY_NAME,
    SQ_WHY_QUEUES,
    SQ_WHY_TOO_LARGE,
    SQ_WHY_DEADLINE,
    SQ_WHY_UNSUPPORTED,
    SQ_WHY_NOMEM,
    SQ_WHY_BROKEN,
    SQ_WHY_FORKED
} sq_why;

/* Kept per operation; the text is made when it is reaped, so that failing needs no memory. */
typedef struct sq_result {
    bq_status status;
    sq_why why;
    int code;
} sq_result;

typedef struct sq_slot {
    bq_op *op;
    int64_t since_ms;
    sq_result result;
    bool decided; /* the result is final */
} sq_slot;

/* ---- deliveries -------------------------------------------------------------------------------------------------- */

typedef struct sq_delivery {
    bq_held held; /* first */
    int64_t queue, id, token;
    int64_t until, until_now; /* committed; as this transaction has it */
    int64_t timed, due;       /* where it stood before */
    bool taken;
} sq_delivery;

/* A row of bq_ready that is being reserved. */
typedef struct sq_pick {
    int64_t timed, due, id, lapses;
} sq_pick;

/* ---- queues ------------------------------------------------------------------------------------------------------ */

typedef struct sq_queue {
    char *name;
    size_t name_len;
    int64_t id, last;
    uint64_t transaction; /* in which `last` was read */
    bool changed;
} sq_queue;

typedef struct sq_transport {
    const bq_transport_config *config;
    const bq_transport_host *host;
    const sq_options *options;
    const char *path;
    pid_t pid;
    sq_db db;
    sq_state state;
    sq_result broken; /* how everything ends once the file cannot be used any longer */
    bool announced;
    bool blocked; /* the disk was full; writes are offered again at blocked_until */
    int64_t blocked_until;
    int64_t retry_at, retry_pause_ms;

    sq_slot *ring; /* SQ_OPS_MAX slots from `first`: `done` finished ones, then the others, `count` in all */
    size_t first, done, count;
    int64_t busy_since; /* since when the lock could not be had; 0: it could */
    int64_t lock_retry_at;

    bq_held_list taken, fresh;
    int64_t fresh_since;
    size_t settling; /* of `taken`: settled, not yet reaped */
    size_t want;     /* how many the runtime would take, as of the last `prepare` */
    bool taking;     /* the runtime takes: what it settles may be replaced in the same transaction */

    int64_t *subs; /* ids of config->queues; 0: the queue does not exist yet */
    size_t next_sub;
    bool maybe;  /* there may be something to reserve */
    bool alone;  /* what is in hand is at its last chance: nothing is reserved beside it */
    bool yields; /* such a message waits until nothing is in hand, or until somebody else has taken it */
    int64_t yield_until;
    int64_t next_due; /* epoch: when something becomes available by itself */
    int64_t poll_at, poll_step;
    int64_t reserve_at; /* not before: the last attempt failed */
    int64_t data_version;
    int64_t clock_offset; /* epoch - monotonic when last looked at */
    bool repair;          /* the clock may have gone back: look for leases that end too late */
    sq_pick *picks;

    bq_buf scratch;
    sq_queue queues[SQ_CACHE];
    size_t queue_count;
    uint64_t transaction;

    int64_t truncate_at;
    int log_pages, checkpoint_at; /* pages of the log: after our last commit; to copy it back at */
    int64_t log_warn;             /* bytes of the log to warn at */
} sq_transport;

/* The slot number n, counted from the oldest one not reaped. */
static inline sq_slot *sq_slot_at(sq_transport *t, size_t n)
{
    return &t->ring[(t->first + n) % SQ_OPS_MAX];
}

static inline bool sq_settles(bq_op_kind kind)
{
    return kind != BQ_OP_PUBLISH && kind != BQ_OP_EXTEND;
}

/* ---- sqlite.c ---------------------------------------------------------------------------------------------------- */

/* Tries to open the file again; the cause is in *err when it cannot. */
bool bq_sq_reconnect(sq_transport *t, int64_t now_ms, bq_error *err);
/* The connection cannot be used any longer: it is closed and opened again later. */
void bq_sq_down(sq_transport *t, int code, const char *what, int64_t now_ms);
void bq_sq_broken(sq_transport *t, int code);

/* ---- write.c ----------------------------------------------------------------------------------------------------- */

/* Does what is due, in one transaction when nothing goes wrong. */
void bq_sq_work(sq_transport *t, int64_t now_ms);
/* Is there anything for bq_sq_work? */
bool bq_sq_has_work(const sq_transport *t, int64_t now_ms);
/* Finishes operations whose deadline has passed, or that have waited for the lock for too long. */
void bq_sq_expire(sq_transport *t, int64_t now_ms);
/* Everything that is not decided ends so. */
void bq_sq_decide_all(sq_transport *t, sq_result result);
/* Gives back, at once, what was reserved and not taken: used when closing. */
void bq_sq_give_back(sq_transport *t, int64_t now_ms);
void bq_sq_drop_cache(sq_transport *t);
void bq_sq_explain(const sq_transport *t, sq_result result, const bq_op *op, bq_error *err);

/* ---- reserve.c --------------------------------------------------------------------------------------------------- */

/* Not before: the last attempt failed, or a message that is to be taken alone waits for what is in hand. */
int64_t bq_sq_reserve_at(const sq_transport *t, size_t settling);
/* Room for that many more deliveries when `settling` of those in hand are being settled. */
size_t bq_sq_room(const sq_transport *t, size_t settling);
/* Within a transaction that settles `settling` deliveries: reserves up to `want` into *got. `drained`: nothing more is
 * available now. */
int bq_sq_reserve(sq_transport *t, size_t want, size_t settling, int64_t now_ms, bq_held_list *got, bool *drained);
/* Reads whether there is anything to reserve, anything delayed, and anything in anybody's hands; sets next_due. */
int bq_sq_probe(sq_transport *t, bool *found, bool *delayed, bool *in_flight);
/* Others have committed since the last call. */
bool bq_sq_changed(sq_transport *t);
void bq_sq_watch_clock(sq_transport *t, int64_t now_ms);
int64_t bq_sq_next_wake(const sq_transport *t, int64_t now_ms);

/* A delivery with copies of what row of SQ_MESSAGE_GET (from column `first`: at, key, props, body) holds. NULL: out of
 * memory. `damaged` is set when its properties cannot be read; it has none then. */
static inline sq_delivery *bq_sq_delivery_of(const bq_incoming *in)
{
    return (sq_delivery *)bq_held_of(in);
}

sq_delivery *bq_sq_delivery_new(sqlite3_stmt *row, int first, bool *damaged);

/* ---- admin.c ----------------------------------------------------------------------------------------------------- */

extern const bq_admin_ops bq_sqlite_admin;
extern const bq_transport_ops bq_sqlite_ops;

#endif
