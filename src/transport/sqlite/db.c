/*
 * sqlite/db.c - see db.h.
 */
#include "transport/sqlite/db.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const sql[SQ_SQL_COUNT] = {
    [SQ_BEGIN_READ] = "BEGIN",
    [SQ_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [SQ_COMMIT] = "COMMIT",
    [SQ_ROLLBACK] = "ROLLBACK",
    [SQ_DATA_VERSION] = "PRAGMA data_version",

    [SQ_QUEUE_FIND] = "SELECT id, last FROM bq_queue WHERE name = ?1",
    [SQ_QUEUE_ADD] = "INSERT INTO bq_queue (name, last) VALUES (?1, 0)",
    [SQ_QUEUE_LAST] = "UPDATE bq_queue SET last = ?2 WHERE id = ?1",

    [SQ_MESSAGE_ADD] = "INSERT INTO bq_message (id, at, key, props, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    [SQ_MESSAGE_GET] = "SELECT at, key, props, body FROM bq_message WHERE id = ?1",
    [SQ_MESSAGE_DELETE] = "DELETE FROM bq_message WHERE id = ?1",

    [SQ_READY_ADD] = "INSERT INTO bq_ready (queue, timed, due, id, lapses) VALUES (?1, ?2, ?3, ?4, ?5)",
    [SQ_READY_NEXT] = "SELECT due, id, lapses FROM bq_ready WHERE queue = ?1 AND timed = 0 ORDER BY due, id LIMIT ?2",
    [SQ_READY_TIMED] = "SELECT due, id, lapses FROM bq_ready WHERE queue = ?1 AND timed = 1 AND due <= ?3 "
                       "ORDER BY due, id LIMIT ?2",
    [SQ_READY_TIMED_NEXT] = "SELECT due FROM bq_ready WHERE queue = ?1 AND timed = 1 ORDER BY due LIMIT 1",
    [SQ_READY_DELETE_TO] = "DELETE FROM bq_ready WHERE queue = ?1 AND timed = ?2 AND (due, id) <= (?3, ?4)",

    [SQ_LEASE_ADD] = "INSERT INTO bq_lease (queue, until, id, token, span, lapses) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [SQ_LEASE_DELETE] = "DELETE FROM bq_lease WHERE queue = ?1 AND until = ?2 AND id = ?3 AND token = ?4",
    [SQ_LEASE_DELETE_MOVED] = "DELETE FROM bq_lease WHERE queue = ?1 AND id = ?2 AND token = ?3",
    [SQ_LEASE_NEXT] = "SELECT until FROM bq_lease WHERE queue = ?1 ORDER BY until LIMIT 1",
    [SQ_LEASE_LAPSE] = "INSERT INTO bq_ready (queue, timed, due, id, lapses) "
                       "SELECT queue, 0, until, id, min(lapses + 1, 4294967295) FROM bq_lease "
                       "WHERE queue = ?1 AND until <= ?2",
    [SQ_LEASE_DROP_LAPSED] = "DELETE FROM bq_lease WHERE queue = ?1 AND until <= ?2",
    [SQ_LEASE_REPAIR] = "UPDATE bq_lease SET until = ?1 + span WHERE span >= 0 AND until > ?1 + span + 1000",

    [SQ_STATS_READY] = "SELECT (SELECT count(*) FROM bq_ready WHERE queue = ?1 AND timed = 0), "
                       "(SELECT count(*) FROM bq_ready WHERE queue = ?1 AND timed = 1 AND due <= ?2), "
                       "(SELECT count(*) FROM bq_ready WHERE queue = ?1 AND timed = 1 AND due > ?2)",
    [SQ_STATS_LEASED] = "SELECT (SELECT count(*) FROM bq_lease WHERE queue = ?1 AND until <= ?2), "
                        "(SELECT count(*) FROM bq_lease WHERE queue = ?1 AND until > ?2)",
    [SQ_QUEUE_LIST] = "SELECT name FROM bq_queue WHERE name > ?1 ORDER BY name LIMIT 100",
    [SQ_PEEK] = "SELECT m.id, m.at, m.key, m.props, m.body FROM bq_message AS m WHERE m.id > ?2 AND m.id < ?3 AND "
                "m.id NOT IN (SELECT id FROM bq_lease WHERE queue = ?1 AND until > ?4) "
                "ORDER BY m.id LIMIT ?5",
    [SQ_PURGE_MESSAGES] = "DELETE FROM bq_message WHERE id IN (SELECT id FROM bq_ready WHERE queue = ?1 "
                          "ORDER BY timed, due, id LIMIT ?2)",
    [SQ_PURGE_READY] = "DELETE FROM bq_ready WHERE (queue, timed, due, id) IN (SELECT queue, timed, due, id "
                       "FROM bq_ready WHERE queue = ?1 ORDER BY timed, due, id LIMIT ?2)",
    [SQ_PURGE_LEASED] = "DELETE FROM bq_message WHERE id IN (SELECT id FROM bq_lease WHERE queue = ?1)",
    [SQ_PURGE_LEASES] = "DELETE FROM bq_lease WHERE queue = ?1",
};

#define TEXT_OF(n) TEXT_OF_(n)
#define TEXT_OF_(n) #n

static const char schema[] =
    "CREATE TABLE bq_queue (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL);"
    "CREATE TABLE bq_message (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, key BLOB, props BLOB, body BLOB);"
    "CREATE TABLE bq_ready (queue INTEGER NOT NULL, timed INTEGER NOT NULL, due INTEGER NOT NULL, id INTEGER NOT NULL,"
    " lapses INTEGER NOT NULL, PRIMARY KEY (queue, timed, due, id)) WITHOUT ROWID;"
    "CREATE TABLE bq_lease (queue INTEGER NOT NULL, until INTEGER NOT NULL, id INTEGER NOT NULL,"
    " token INTEGER NOT NULL, span INTEGER NOT NULL, lapses INTEGER NOT NULL,"
    " PRIMARY KEY (queue, until, id)) WITHOUT ROWID;"
    "PRAGMA application_id = " TEXT_OF(SQ_APPLICATION_ID) ";"
                                                          "PRAGMA user_version = " TEXT_OF(SQ_SCHEMA_VERSION) ";";

/* ---- what went wrong --------------------------------------------------------------------------------------------- */

bq_status bq_sq_status(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return BQ_OK;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_FULL:
    case SQLITE_TOOBIG: return BQ_REFUSED;
    case SQLITE_NOMEM: return BQ_NOMEM;
    case SQLITE_IOERR: return (code == SQLITE_IOERR_NOMEM) ? BQ_NOMEM : BQ_IO;
    case SQLITE_CANTOPEN: return BQ_IO;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return BQ_DATA;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return BQ_AUTH;
    default: return BQ_INTERNAL;
    }
}

unsigned bq_sq_flags(int code)
{
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR: return BQ_ERROR_RETRYABLE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return BQ_ERROR_FATAL;
    default: return 0;
    }
}

const char *bq_sq_text(int code)
{
    if (code == SQLITE_READONLY_DBMOVED)
        return "the file was removed or replaced";
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: return "the database is locked by another program";
    case SQLITE_FULL: return "the disk is full";
    case SQLITE_IOERR: return "input/output error";
    case SQLITE_CORRUPT: return "the database is damaged";
    case SQLITE_NOTADB: return "the file is not a database";
    case SQLITE_READONLY: return "the database cannot be written to";
    case SQLITE_CANTOPEN: return "a file of the database cannot be opened";
    case SQLITE_TOOBIG: return "the message is larger than SQLite can store";
    default: return sqlite3_errstr(code);
    }
}

bq_status bq_sq_fail(bq_error *err, const sq_db *db, int code, const char *what)
{
    return bq_fail_flags(err, bq_sq_status(code), bq_sq_flags(code), code, "%s %s: %s", what, db->path ? db->path : "",
                         bq_sq_text(code));
}

/* SQLite says only "unable to open": look what stands in its way. */
static bq_status cannot_open(bq_error *err, const char *path, int code, int errnum, bool create)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    bq_str dir = slash == path ? BQ_STR("/") : slash ? (bq_str){path, (size_t)(slash - path)} : BQ_STR(".");
    char *name = bq_strndup(dir);
    if (!name)
        return bq_fail_nomem(err);
    bq_status status;
    if (stat(name, &st) != 0)
        status = bq_fail_errno(err, errno == EACCES ? BQ_AUTH : BQ_CONFIG, errno, "cannot open %s: directory %s", path,
                               name);
    else if (!S_ISDIR(st.st_mode))
        status = bq_fail(err, BQ_CONFIG, "cannot open %s: %s is not a directory", path, name);
    else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        status = bq_fail(err, BQ_CONFIG, "cannot open %s: it is a directory", path);
    else if (errnum == EACCES || errnum == EPERM || errnum == EROFS)
        status = bq_fail_errno(err, BQ_AUTH, errnum, "cannot open %s", path);
    else if ((code & 0xff) == SQLITE_READONLY)
        status =
            bq_fail_flags(err, BQ_AUTH, 0, code, "cannot open %s: no permission to write to it or beside it", path);
    else if (errnum == ENOENT && create && access(name, W_OK | X_OK) != 0) /* SQLite then tried to read it */
        status = bq_fail_errno(err, BQ_AUTH, errno, "cannot make %s", path);
    else if (errnum == ENOENT && (create || stat(path, &st) == 0)) /* the file, or its log, could not be made */
        status = bq_fail_flags(err, BQ_REFUSED, BQ_ERROR_RETRYABLE, code,
                               "cannot open %s: a file could not be made there (is the disk full?)", path);
    else if (errnum == ENOENT)
        status = bq_fail(err, BQ_NOT_FOUND, "cannot open %s: there is no such file", path);
    else if (errnum != 0)
        status = bq_fail_errno(err, BQ_IO, errnum, "cannot open %s", path);
    else
        status = bq_fail_flags(err, bq_sq_status(code), bq_sq_flags(code), code, "cannot open %s: %s", path,
                               bq_sq_text(code));
    bq_free(name);
    return status;
}

static bq_status open_failed(sq_db *db, const char *path, int code, bq_error *err)
{
    int primary = code & 0xff, errnum = db->handle ? sqlite3_system_errno(db->handle) : 0;
    if (primary == SQLITE_CANTOPEN || primary == SQLITE_PERM || primary == SQLITE_READONLY)
        return cannot_open(err, path, code, errnum, db->create);
    return bq_fail_flags(err, bq_sq_status(code), bq_sq_flags(code), code, "cannot open %s: %s", path,
                         bq_sq_text(code));
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int exec(sq_db *db, const char *text)
{
    return sqlite3_exec(db->handle, text, NULL, NULL, NULL);
}

/* The integer that a query yields first. */
static int query_int(sq_db *db, const char *text, int64_t *value)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db->handle, text, -1, &statement, NULL);
    if (code == SQLITE_OK) {
        code = sqlite3_step(statement);
        if (code == SQLITE_ROW)
            *value = sqlite3_column_int64(statement, 0);
    }
    int end = sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? end : code;
}

/* Of one snapshot: somebody may be making the schema just now. */
static int read_kind(sq_db *db, int64_t *application, int64_t *version, int64_t *tables)
{
    bool own = sqlite3_get_autocommit(db->handle);
    int code = own ? exec(db, "BEGIN") : SQLITE_OK;
    if (code == SQLITE_OK)
        code = query_int(db, "SELECT count(*) FROM sqlite_master", tables);
    if (code == SQLITE_OK)
        code = query_int(db, "PRAGMA application_id", application);
    if (code == SQLITE_OK)
        code = query_int(db, "PRAGMA user_version", version);
    if (own && !sqlite3_get_autocommit(db->handle))
        (void)exec(db, "ROLLBACK");
    return code;
}

static bq_status check_kind(sq_db *db, const char *path, bool *empty, bq_error *err)
{
    int64_t application = 0, version = 0, tables = 0;
    int code = read_kind(db, &application, &version, &tables);
    if (code != SQLITE_OK)
        return open_failed(db, path, code, err);
    *empty = tables == 0 && application == 0 && version == 0;
    if (sqlite3_db_readonly(db->handle, "main") == 1)
        return bq_fail(err, BQ_AUTH, "cannot open %s: no permission to write to it", path);
    if (*empty)
        return BQ_OK;
    if (application != SQ_APPLICATION_ID)
        return bq_fail(err, BQ_CONFIG, "cannot open %s: it is the database of another program", path);
    if (version > SQ_SCHEMA_VERSION)
        return bq_fail(err, BQ_CONFIG, "cannot open %s: a newer version wrote it (schema %lld, this one knows %d)",
                       path, (long long)version, SQ_SCHEMA_VERSION);
    if (version < 1)
        return bq_fail(err, BQ_DATA, "cannot open %s: its schema version is %lld", path, (long long)version);
    return BQ_OK;
}

static int is_wal(void *arg, int columns, char **values, char **names)
{
    (void)names;
    if (columns == 1 && values[0] && strcmp(values[0], "wal") == 0)
        *(bool *)arg = true;
    return 0;
}

static bq_status make_schema(sq_db *db, const char *path, bq_error *err)
{
    int code = exec(db, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return open_failed(db, path, code, err);
    bool empty = false;
    bq_status status = check_kind(db, path, &empty, err); /* somebody may have been faster */
    if (status == BQ_OK && empty) {
        code = exec(db, schema);
        if (code == SQLITE_OK)
            code = exec(db, "COMMIT");
        if (code != SQLITE_OK)
            status = open_failed(db, path, code, err);
    }
    if (!sqlite3_get_autocommit(db->handle))
        (void)exec(db, "ROLLBACK");
    return status;
}

static int after_commit(void *arg, sqlite3 *handle, const char *name, int pages)
{
    (void)handle;
    (void)name;
    ((sq_db *)arg)->wal_pages = pages;
    return SQLITE_OK; /* we checkpoint ourselves, while it is our turn */
}

static bq_status set_up(sq_db *db, const char *path, bq_error *err)
{
    /* Debian's SQLite zeroes what is deleted at the price of extra writes; FAST does so where it costs none. A log
     * that once had to be long is cut when it starts anew. */
    int code = exec(db, "PRAGMA secure_delete = FAST; PRAGMA cache_size = -4000; PRAGMA temp_store = MEMORY;"
                        "PRAGMA mmap_size = 0; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
#if defined(__APPLE__)
                        "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;"
#endif
                        "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864");
    if (code != SQLITE_OK)
        return open_failed(db, path, code, err);
    db->sync_full = true;
    bool empty = false, wal = false;
    bq_status status = check_kind(db, path, &empty, err);
    if (status != BQ_OK)
        return status;
    code = sqlite3_exec(db->handle, "PRAGMA journal_mode = WAL", is_wal, &wal, NULL);
    if (code != SQLITE_OK)
        return open_failed(db, path, code, err);
    if (!wal)
        return bq_fail(err, BQ_CONFIG,
                       "cannot open %s: its file system has no shared memory or locks for a write-ahead log", path);
    if (empty)
        status = make_schema(db, path, err);
    return status;
}

static bq_status prepare_all(sq_db *db, const char *path, bq_error *err)
{
    for (int i = 0; i < SQ_SQL_COUNT; i++) {
        int code = sqlite3_prepare_v3(db->handle, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &db->statements[i], NULL);
        if (code != SQLITE_OK && (code & 0xff) == SQLITE_ERROR)
            return bq_fail(err, BQ_DATA, "cannot open %s: its tables are not those of schema %d (%s)", path,
                           SQ_SCHEMA_VERSION, sqlite3_errmsg(db->handle));
        if (code != SQLITE_OK)
            return open_failed(db, path, code, err);
    }
    return BQ_OK;
}

static bq_status remember_file(sq_db *db, const char *path, bq_error *err)
{
    struct stat st;
    const char *resolved = sqlite3_db_filename(db->handle, "main");
    db->path = bq_strndup(bq_str_of(resolved && *resolved ? resolved : path));
    if (!db->path)
        return bq_fail_nomem(err);
    if (stat(db->path, &st) != 0)
        return bq_fail_errno(err, BQ_IO, errno, "cannot open %s", db->path);
    db->device = st.st_dev;
    db->inode = st.st_ino;
    return bq_turn_open(&db->turn, db->path) == BQ_OK ? BQ_OK : bq_fail_nomem(err);
}

bq_status bq_sq_open(sq_db *db, const char *path, bool create, bq_error *err)
{
    *db = (sq_db){.create = create, .turn = {.fd = -1, .watch = -1}};
    if (sqlite3_threadsafe() == 0)
        return bq_fail(err, BQ_CONFIG, "this SQLite library was built without support for threads");

    /* A relative path must not look like a URI ("file:x") or a private database (":memory:") to SQLite. */
    char *literal = bq_malloc(strlen(path) + 3);
    if (!literal)
        return bq_fail_nomem(err);
    (void)snprintf(literal, strlen(path) + 3, "%s%s", path[0] == '/' ? "" : "./", path);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    int code = sqlite3_open_v2(literal, &db->handle, flags | (create ? SQLITE_OPEN_CREATE : 0), NULL);
    bq_free(literal);
    if (code != SQLITE_OK || !db->handle)
        return open_failed(db, path, db->handle ? code : SQLITE_NOMEM, err);
    (void)sqlite3_extended_result_codes(db->handle, 1);
    (void)sqlite3_busy_timeout(db->handle, 0);
    (void)sqlite3_wal_hook(db->handle, after_commit, db);
    db->length_max = sqlite3_limit(db->handle, SQLITE_LIMIT_LENGTH, -1);

    bq_status status = set_up(db, path, err);
    if (status == BQ_OK)
        status = prepare_all(db, path, err);
    if (status == BQ_OK)
        status = remember_file(db, path, err);
    return status;
}

static void forget_ours(sq_db *db)
{
    bq_free(db->path);
    *db = (sq_db){.turn = {.fd = -1, .watch = -1}};
}

void bq_sq_close(sq_db *db)
{
    for (int i = 0; i < SQ_SQL_COUNT; i++)
        sqlite3_finalize(db->statements[i]);
    (void)sqlite3_close(db->handle);
    bq_turn_close(&db->turn);
    forget_ours(db);
}

void bq_sq_abandon(sq_db *db)
{
    bq_turn_abandon(&db->turn);
    forget_ours(db);
}

bool bq_sq_same_file(const sq_db *db)
{
    struct stat st;
    return stat(db->path, &st) == 0 && st.st_dev == db->device && st.st_ino == db->inode;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

sqlite3_stmt *bq_sq_get(const sq_db *db, sq_sql which)
{
    return db->statements[which];
}

int bq_sq_run(sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);
    int end = sqlite3_reset(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : end != SQLITE_OK ? end : code;
}

void bq_sq_bind(sqlite3_stmt *statement, int count, const int64_t *values)
{
    /* Integers are kept in the statement itself: binding one cannot fail. */
    for (int i = 0; i < count; i++)
        (void)sqlite3_bind_int64(statement, i + 1, values[i]);
}

int bq_sq_simple(sq_db *db, sq_sql which)
{
    return bq_sq_run(bq_sq_get(db, which));
}

/* ---- transactions ------------------------------------------------------------------------------------------------ */

int bq_sq_begin(sq_db *db, bool sync, int64_t now_ms)
{
    if (!bq_turn_try(&db->turn, now_ms))
        return SQLITE_BUSY;
    if (sync != db->sync_full) {
        int code = exec(db, sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
        if (code != SQLITE_OK)
            return code;
        db->sync_full = sync;
    }
    return bq_sq_simple(db, SQ_BEGIN_WRITE);
}

int bq_sq_commit(sq_db *db)
{
    int code = bq_sq_simple(db, SQ_COMMIT);
    if (code != SQLITE_OK)
        bq_sq_rollback(db);
    return code;
}

void bq_sq_rollback(sq_db *db)
{
    /* Some errors have rolled back already; then there is nothing to do. */
    if (db->handle && !sqlite3_get_autocommit(db->handle))
        (void)bq_sq_simple(db, SQ_ROLLBACK);
}

void bq_sq_leave(sq_db *db, bool news)
{
    bq_turn_leave(&db->turn, news);
}

int bq_sq_checkpoint(sq_db *db, int mode, int *pages, int *done)
{
    *pages = *done = 0;
    return sqlite3_wal_checkpoint_v2(db->handle, NULL, mode, pages, done);
}

int64_t bq_sq_wal_size(const sq_db *db)
{
    struct stat st;
    char name[4096 + 8];
    int n = snprintf(name, sizeof(name), "%s-wal", db->path);
    return n > 0 && (size_t)n < sizeof(name) && stat(name, &st) == 0 ? (int64_t)st.st_size : 0;
}
