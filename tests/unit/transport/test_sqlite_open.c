/*
 * test_sqlite_open.c - opening a SQLite file: each thing that can be wrong with it has a status and a sentence of its
 * own, and whatever can be right about a path is.
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "transport/sqlite/db.h"
#include "unit/cmocka_all.h"
#include "unit/transport/scratch.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/wait.h>

static int tear_down(void **state)
{
    (void)state;
    scratch_clear();
    return 0;
}

static void write_file(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Opening that path (percent-encoded) fails so, with those words in the text. */
static void refuses_as(unsigned roles, const char *path, bq_status status, const char *words)
{
    char url[1024];
    kit_client c;
    bq_error err = {0};
    (void)scratch_url(url, sizeof(url), path, "");
    kit_assert(kit_try_open(&c, url, roles, 0, "q", &err), status);
    assert_int_equal(err.status, status);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    kit_close(&c);
}

static void refuses(const char *path, bq_status status, const char *words)
{
    refuses_as(KIT_BOTH, path, status, words);
}

static void works(const char *path)
{
    char url[1024];
    kit_client c;
    kit_open(&c, scratch_url(url, sizeof(url), path, ""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "x"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "x")));
    kit_close(&c);
}

static void no_file(void **state)
{
    (void)state;
    refuses("", BQ_INVALID, "names no file");
    refuses(":memory:", BQ_INVALID, "memory:NAME");
}

static void places_that_are_none(void **state)
{
    (void)state;
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/missing/q.db", scratch_home());
    refuses(path, BQ_CONFIG, "missing: No such file or directory");
    (void)snprintf(path, sizeof(path), "%s/plain", scratch_home());
    write_file(path, "", 0);
    (void)snprintf(path, sizeof(path), "%s/plain/q.db", scratch_home());
    refuses(path, BQ_CONFIG, "plain is not a directory");
    refuses(scratch_home(), BQ_CONFIG, "it is a directory");
}

static void not_a_database(void **state)
{
    (void)state;
    char page[8192];
    const char *path = scratch_new();
    memset(page, 'x', sizeof(page));
    write_file(path, page, sizeof(page));
    refuses(path, BQ_DATA, "not a database");
    write_file(path, page, 100);
    refuses(path, BQ_DATA, "not a database");
}

static void an_empty_file_is_a_new_queue(void **state)
{
    (void)state;
    const char *path = scratch_new();
    write_file(path, "", 0);
    works(path);
    works(path);
}

static void somebody_elses_database(void **state)
{
    (void)state;
    const char *path = scratch_new();
    run_sql(path, "CREATE TABLE customers (name TEXT)");
    refuses(path, BQ_CONFIG, "another program");
    /* And it is left as it was: still in its own journal mode. */
    struct stat st;
    char wal[600];
    (void)snprintf(wal, sizeof(wal), "%s-wal", path);
    assert_int_not_equal(stat(wal, &st), 0);
    path = scratch_new();
    run_sql(path, "PRAGMA application_id = 7");
    refuses(path, BQ_CONFIG, "another program");
}

static void another_schema(void **state)
{
    (void)state;
    const char *path = scratch_new();
    works(path);
    run_sql(path, "PRAGMA user_version = 99");
    refuses(path, BQ_CONFIG, "newer version wrote it (schema 99");
    run_sql(path, "PRAGMA user_version = -1");
    refuses(path, BQ_DATA, "its schema version is -1");
    run_sql(path, "PRAGMA user_version = 1; ALTER TABLE bq_lease RENAME COLUMN token TO something");
    refuses(path, BQ_DATA, "not those of schema 1");
}

static void damaged(void **state)
{
    (void)state;
    const char *path = scratch_new();
    char junk[64];
    works(path);
    memset(junk, 0xa5, sizeof(junk));
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, junk, sizeof(junk), 100), sizeof(junk)); /* the root of the schema */
    close(fd);
    refuses(path, BQ_DATA, "damaged");
}

/* Root may do anything, so the test becomes somebody who may not. */
static void as_nobody(void (*run)(const char *), const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(77);
        run(path);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void check_no_permission(const char *path)
{
    char url[1024];
    kit_client c;
    bq_error err = {0};
    bq_status status = kit_try_open(&c, scratch_url(url, sizeof(url), path, ""), KIT_BOTH, 0, "q", &err);
    if (status == BQ_AUTH && strstr(err.text, "ermission"))
        return;
    print_error("%s: %s\n", bq_status_name(status), err.text);
    _exit(1);
}

static void without_permission(void **state)
{
    (void)state;
    const char *path = scratch_new();
    works(path);
    assert_int_equal(chmod(scratch_home(), 0755), 0);
    assert_int_equal(chmod(path, 0444), 0); /* may be read */
    as_nobody(check_no_permission, path);
    assert_int_equal(chmod(path, 0000), 0);
    as_nobody(check_no_permission, path);
    assert_int_equal(unlink(path), 0); /* may not be made: the directory is not theirs */
    as_nobody(check_no_permission, path);
    assert_int_equal(chmod(scratch_home(), 0700), 0); /* nor even entered */
    as_nobody(check_no_permission, path);
}

static void administration_makes_nothing(void **state)
{
    (void)state;
    const char *path = scratch_new();
    struct stat st;
    refuses_as(BQ_ROLE_ADMIN, path, BQ_NOT_FOUND, "no such file");
    assert_int_not_equal(stat(path, &st), 0);
    works(path);
    char url[1024];
    kit_client c;
    kit_open(&c, scratch_url(url, sizeof(url), path, ""), BQ_ROLE_ADMIN, 0, NULL);
    assert_true(kit_stats(&c, "q").ready == 0);
    kit_close(&c);
}

/* The path is what it says, whatever characters it has. */
static void odd_paths(void **state)
{
    (void)state;
    static const struct {
        const char *encoded, *plain;
    } names[] = {{"a%20b.db", "a b.db"},
                 {"what%3Fmode=memory.db", "what?mode=memory.db"},
                 {"100%25.db", "100%.db"},
                 {"%23hash%26amp.db", "#hash&amp.db"},
                 {"gr%C3%BC%C3%9Fe.db", "gr\xc3\xbc\xc3\x9f"
                                        "e.db"},
                 {"q'uo\"te.db", "q'uo\"te.db"},
                 {"file:x.db", "file:x.db"}};
    struct stat st;
    char path[1200], before[1024];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", scratch_home(), names[i].encoded);
        works(path);
        (void)snprintf(path, sizeof(path), "%s/%s", scratch_home(), names[i].plain);
        assert_int_equal(stat(path, &st), 0);
    }
    /* Relative ones, which SQLite might take for something else. */
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(scratch_home()), 0);
    works("file:y.db");
    assert_int_equal(stat("file:y.db", &st), 0);
    works("./z.db");
    works("file%3Aw.db%3Fmode=memory");
    assert_int_equal(stat("file:w.db?mode=memory", &st), 0);
    assert_int_equal(chdir(before), 0);
}

/* A process may change its directory while a relative path is open. */
static void relative_after_chdir(void **state)
{
    (void)state;
    char before[1024];
    kit_client a, b;
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(scratch_home()), 0);
    kit_open(&a, "sqlite:r.db", BQ_ROLE_PUBLISH, 0, NULL);
    kit_open(&b, "sqlite:r.db", KIT_BOTH, 0, "q");
    assert_int_equal(chdir("/"), 0);
    kit_assert_ok(kit_publish(&a, "q", "x"));
    int64_t start = bq_now_ms();
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "x")));
    assert_true(bq_now_ms() - start < 900); /* it was told, and did not have to look */
    kit_close(&a);
    kit_close(&b);
    assert_int_equal(chdir(before), 0);
}

static void through_a_link(void **state)
{
    (void)state;
    char link[600], target[600];
    (void)snprintf(target, sizeof(target), "%s", scratch_new());
    (void)snprintf(link, sizeof(link), "%s/link.db", scratch_home());
    assert_int_equal(symlink(target, link), 0);
    works(target);
    char url[1024];
    kit_client a, b;
    kit_open(&a, scratch_url(url, sizeof(url), link, ""), BQ_ROLE_PUBLISH, 0, NULL);
    kit_open(&b, scratch_url(url, sizeof(url), target, ""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "x")));
    kit_close(&a);
    kit_close(&b);
}

static void bad_options(void **state)
{
    (void)state;
    static const char *const urls[] = {"sqlite:x.db?sync=maybe",      "sqlite:x.db?busy_timeout=-1",
                                       "sqlite:x.db?retry_after=0x1", "sqlite:x.db?synch=full",
                                       "sqlite://host/x.db",          "sqlite:x.db?retry_after=2y"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        bq_target target;
        bq_error err;
        kit_assert(bq_target_parse(&target, urls[i], &err), BQ_INVALID);
        bq_target_clear(&target);
    }
}

static void it_says_which_library(void **state)
{
    (void)state;
    bq_target target;
    bq_error err;
    kit_assert_ok(bq_target_parse(&target, "sqlite:x.db", &err));
    assert_non_null(strstr(target.ops->library(), sqlite3_libversion()));
    assert_memory_equal(target.ops->library(), "SQLite ", 7);
    bq_target_clear(&target);
}

/* What is done for every message must stay a search in the millions. */
static void plans_are_searches(void **state)
{
    (void)state;
    static const sq_sql hot[] = {SQ_QUEUE_FIND,     SQ_QUEUE_LAST,   SQ_MESSAGE_GET,       SQ_MESSAGE_DELETE,
                                 SQ_READY_NEXT,     SQ_READY_TIMED,  SQ_READY_TIMED_NEXT,  SQ_READY_DELETE_TO,
                                 SQ_LEASE_DELETE,   SQ_LEASE_NEXT,   SQ_LEASE_DROP_LAPSED, SQ_PEEK,
                                 SQ_PURGE_MESSAGES, SQ_LEASE_LAPSE,  SQ_STATS_READY,       SQ_STATS_LEASED,
                                 SQ_PURGE_LEASED,   SQ_PURGE_LEASES, SQ_QUEUE_LIST};
    sq_db db;
    bq_error err;
    char text[2048];
    kit_assert_ok(bq_sq_open(&db, scratch_new(), true, &err));
    for (size_t i = 0; i < sizeof(hot) / sizeof(hot[0]); i++) {
        sqlite3_stmt *plan;
        (void)snprintf(text, sizeof(text), "EXPLAIN QUERY PLAN %s", sqlite3_sql(bq_sq_get(&db, hot[i])));
        assert_int_equal(sqlite3_prepare_v2(db.handle, text, -1, &plan, NULL), SQLITE_OK);
        while (sqlite3_step(plan) == SQLITE_ROW) {
            const char *line = (const char *)sqlite3_column_text(plan, 3);
            if ((strncmp(line, "SCAN", 4) == 0 && !strstr(line, "CONSTANT ROW")) || strstr(line, "TEMP B-TREE"))
                fail_msg("%s: %s", text, line);
        }
        assert_int_equal(sqlite3_finalize(plan), SQLITE_OK);
    }
    bq_sq_close(&db);
}

static void file_says_what_it_is(void **state)
{
    (void)state;
    sq_db db;
    bq_error err;
    sqlite3_stmt *s;
    kit_assert_ok(bq_sq_open(&db, scratch_new(), true, &err));
    assert_int_equal(sqlite3_prepare_v2(db.handle,
                                        "SELECT application_id, user_version, journal_mode FROM pragma_application_id, "
                                        "pragma_user_version, pragma_journal_mode",
                                        -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(s, 0), SQ_APPLICATION_ID);
    assert_int_equal(sqlite3_column_int(s, 1), SQ_SCHEMA_VERSION);
    assert_string_equal(sqlite3_column_text(s, 2), "wal");
    assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
    assert_true(bq_sq_same_file(&db));
    bq_sq_close(&db);
}

int main(void)
{
#define OPEN_TEST(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        OPEN_TEST(no_file),
        OPEN_TEST(places_that_are_none),
        OPEN_TEST(not_a_database),
        OPEN_TEST(an_empty_file_is_a_new_queue),
        OPEN_TEST(somebody_elses_database),
        OPEN_TEST(another_schema),
        OPEN_TEST(damaged),
        OPEN_TEST(without_permission),
        OPEN_TEST(administration_makes_nothing),
        OPEN_TEST(odd_paths),
        OPEN_TEST(relative_after_chdir),
        OPEN_TEST(through_a_link),
        OPEN_TEST(bad_options),
        OPEN_TEST(it_says_which_library),
        OPEN_TEST(plans_are_searches),
        OPEN_TEST(file_says_what_it_is),
    };
    return cmocka_run_group_tests_name("sqlite: opening", tests, NULL, NULL);
}
