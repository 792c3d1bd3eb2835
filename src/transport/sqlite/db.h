/*
 * sqlite/db.h - one connection to the database file: opening and checking it, its schema, its cached statements,
 * its transactions, and what SQLite's result codes mean here.
 *
 * Schema 1 (user_version), application_id "bqmq", write-ahead log:
 *
 *     bq_queue    id, name, last     `last`: sequence number of the queue's newest message
 *     bq_message  id, at, key, props, body
 *                 id = queue << 44 | sequence, so that a queue is a range, in the order of publication
 *     bq_ready    (queue, timed, due, id), lapses     what waits. timed 0: available at once, whatever the clock says
 *                 (`due` is the order); timed 1: available from `due` on
 *     bq_lease    (queue, until, id), token, span, lapses     what is in somebody's hands
 *
 * A message has one row in bq_message and one in either bq_ready or bq_lease. Both of those are clustered by the order
 * in which they are searched, so each step of a message's life touches the body's page once and the end of a small
 * tree otherwise. Times are epoch milliseconds.
 *
 * Threads: as the transport that owns it. A connection must not be used on both sides of a fork.
 */
#ifndef BQ_SQLITE_DB_H
#define BQ_SQLITE_DB_H

#include <babelqueue/types.h>

#include "transport/sqlite/turn.h"

#include <sqlite3.h>

#define SQ_APPLICATION_ID 0x62716d71 /* "bqmq" */
#define SQ_SCHEMA_VERSION 1

#define SQ_SEQUENCE_BITS 44
#define SQ_SEQUENCE_MAX ((INT64_C(1) << SQ_SEQUENCE_BITS) - 1)
#define SQ_QUEUE_MAX ((INT64_C(1) << (62 - SQ_SEQUENCE_BITS)) - 1)

typedef enum sq_sql {
    SQ_BEGIN_READ,
    SQ_BEGIN_WRITE,
    SQ_COMMIT,
    SQ_ROLLBACK,
    SQ_DATA_VERSION,
    SQ_QUEUE_FIND,
    SQ_QUEUE_ADD,
    SQ_QUEUE_LAST,
    SQ_MESSAGE_ADD,
    SQ_MESSAGE_GET,
    SQ_MESSAGE_DELETE,
    SQ_READY_ADD,
    SQ_READY_NEXT,
    SQ_READY_TIMED,
    SQ_READY_TIMED_NEXT,
    SQ_READY_DELETE_TO,
    SQ_LEASE_ADD,
    SQ_LEASE_DELETE,
    SQ_LEASE_DELETE_MOVED,
    SQ_LEASE_NEXT,
    SQ_LEASE_LAPSE,
    SQ_LEASE_DROP_LAPSED,
    SQ_LEASE_REPAIR,
    SQ_STATS_READY,
    SQ_STATS_LEASED,
    SQ_QUEUE_LIST,
    SQ_PEEK,
    SQ_PURGE_MESSAGES,
    SQ_PURGE_READY,
    SQ_PURGE_LEASED,
    SQ_PURGE_LEASES,
    SQ_SQL_COUNT
} sq_sql;

typedef struct sq_db {
    sqlite3 *handle;
    sqlite3_stmt *statements[SQ_SQL_COUNT];
    char *path; /* as SQLite resolved it: absolute */
    dev_t device;
    ino_t inode;
    sq_turn turn;
    bool create;    /* the file may be made */
    bool sync_full; /* what the connection is set to */
    int wal_pages;  /* in the log after the last commit */
    int64_t length_max;
} sq_db;

/* Opens the file, makes it one of ours when it is empty, and prepares the statements. REFUSED with RETRYABLE: somebody
 * holds its lock, try again. Whatever it returns, sq_db_close is due. */
bq_status bq_sq_open(sq_db *db, const char *path, bool create, bq_error *err) BQ_MUST_CHECK;
void bq_sq_close(sq_db *db);
/* In a forked child: frees what is ours and leaves SQLite's part alone. */
void bq_sq_abandon(sq_db *db);

/* Is the file that is open still the one at its path? */
bool bq_sq_same_file(const sq_db *db);

/* The statement, prepared when the file was opened. */
sqlite3_stmt *bq_sq_get(const sq_db *db, sq_sql which);
/* Steps a statement that yields no row, and resets it: SQLITE_OK or an error. */
int bq_sq_run(sqlite3_stmt *statement);
/* Binds the integers 1..n. */
void bq_sq_bind(sqlite3_stmt *statement, int count, const int64_t *values);
#define SQ_BIND(statement, ...)                                                                                        \
    bq_sq_bind((statement), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
int bq_sq_simple(sq_db *db, sq_sql which);

/* Transactions that write. Begin: SQLITE_BUSY when it is not our turn or somebody else writes. `sync`: the commit
 * waits until it is on disk. A failed commit has been rolled back. `news` tells whether others may want to look. */
int bq_sq_begin(sq_db *db, bool sync, int64_t now_ms);
int bq_sq_commit(sq_db *db);
void bq_sq_rollback(sq_db *db);
/* Ends the turn after a commit or a rollback, or gives up queueing for it. */
void bq_sq_leave(sq_db *db, bool news);

/* SQLITE_OK when `pages` and `done` were filled: pages in the log, and those of them copied to the database. */
int bq_sq_checkpoint(sq_db *db, int mode, int *pages, int *done);
/* Bytes of the write-ahead log file. */
int64_t bq_sq_wal_size(const sq_db *db);

/* ---- what went wrong --------------------------------------------------------------------------------------------- */

/* A result code as one of ours: REFUSED (locked, full), IO, DATA (corrupt, no database), AUTH (read-only), NOMEM. */
bq_status bq_sq_status(int code);
unsigned bq_sq_flags(int code);
const char *bq_sq_text(int code);
/* "<what> <path>: <text>" */
bq_status bq_sq_fail(bq_error *err, const sq_db *db, int code, const char *what);

#endif
