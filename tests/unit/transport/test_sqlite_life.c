/*
 * test_sqlite_life.c - a SQLite file in rough company: locked by other programs, queued for by processes that stand
 * still, removed under its users, used after a fork, with a clock that jumps, with readers that never end.
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "transport/sqlite/sqlite.h"
#include "unit/cmocka_all.h"
#include "unit/transport/scratch.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

static char url[1024], path[512];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof(path), "%s", scratch_new());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    bq_clock_override(NULL, NULL);
    scratch_clear();
    return 0;
}

static const char *with(const char *options)
{
    return scratch_url(url, sizeof(url), path, options);
}

/* Another program with the same file. */
static sqlite3 *outsider(const char *sql)
{
    sqlite3 *db;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(db, 5000), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    return db;
}

static void say(sqlite3 *db, const char *sql)
{
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static int64_t ask(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(s, 0);
    assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
    return value;
}

static sq_transport *inside(kit_client *c)
{
    return c->state;
}

/* ---- locks ------------------------------------------------------------------------------------------------------- */

static void locked_for_too_long(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with("busy_timeout=200ms"), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "held"));
    bq_incoming *in = kit_expect(&c, "held");
    sqlite3 *other = outsider("BEGIN IMMEDIATE");
    int64_t start = bq_now_ms();
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    kit_assert(kit_do_one(&c, &op), BQ_REFUSED);
    assert_true(bq_now_ms() - start >= 190);
    assert_true(bq_now_ms() - start < 5000);
    assert_non_null(strstr(op.error.text, "locked"));
    assert_true(op.error.flags & BQ_ERROR_RETRYABLE);
    assert_int_equal(op.error.native, SQLITE_BUSY);
    /* A settlement that was refused leaves the message ours. */
    kit_assert(kit_settle(&c, BQ_OP_ACK, in), BQ_REFUSED);
    assert_true(bq_str_equal(in->body, BQ_STR("held")));
    say(other, "ROLLBACK");
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_expect_none(&c, 50);
    assert_int_equal(ask(other, "SELECT count(*) FROM bq_message"), 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    kit_close(&c);
}

static void locked_for_a_while(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "before")); /* fetched, and to be given back meanwhile */
    kit_turn(&c, 0);
    sqlite3 *other = outsider("BEGIN IMMEDIATE");
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    bq_op *one = &op.op;
    assert_int_equal(c.target.ops->submit(c.state, &one, 1), 1);
    c.want = 0; /* and the log to be cut */
    unsigned before = c.turns;
    for (int64_t end = bq_now_ms() + 1600; bq_now_ms() < end;)
        kit_turn(&c, 300);
    assert_int_equal(op.finished, 0);
    assert_true(c.turns - before < 1600 / SQ_LOCK_RETRY_MS + 50); /* it waits, it does not spin */
    say(other, "COMMIT");
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (op.finished == 0 && bq_now_ms() < end)
        kit_turn(&c, 100);
    kit_assert_ok(op.status);
    c.want = 16;
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "before")));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "x")));
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    kit_close(&c);
}

/* The deadline of an operation counts while the file is locked. */
static void locked_past_a_deadline(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    sqlite3 *other = outsider("BEGIN IMMEDIATE");
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    op.op.deadline_ms = bq_now_ms() + 150;
    int64_t start = bq_now_ms();
    kit_assert(kit_do_one(&c, &op), BQ_TIMEOUT);
    assert_true(bq_now_ms() - start < 5000);
    say(other, "COMMIT");
    kit_expect_none(&c, 50);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    kit_close(&c);
}

static void opened_while_locked(void **state)
{
    (void)state;
    kit_client c;
    bq_error err;
    sqlite3 *other = outsider("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    kit_assert_ok(kit_try_open(&c, with("busy_timeout=150ms"), KIT_BOTH, 0, "q", &err));
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    bq_op *one = &op.op;
    assert_int_equal(c.target.ops->submit(c.state, &one, 1), 0); /* not connected yet */
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.down == 0 && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_int_equal(c.up, 0);
    assert_int_equal(c.down, 1);
    assert_non_null(strstr(c.error.text, "locked"));
    say(other, "ROLLBACK");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    kit_await_up(&c);
    kit_assert_ok(kit_publish(&c, "q", "x"));
    kit_close(&c);
}

/* Readers and writers of SQLite's own kind do not disturb: another program may look at any time. */
static void an_outsider_reads(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "x"));
    sqlite3 *other = outsider("BEGIN; SELECT count(*) FROM bq_message");
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "x")));
    kit_assert_ok(kit_publish(&c, "q", "y"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "y")));
    assert_int_equal(ask(other, "SELECT count(*) FROM bq_message"), 1); /* its snapshot */
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    kit_close(&c);
}

/* ---- turns --------------------------------------------------------------------------------------------------------- */

#if defined(F_OFD_SETLK)
/* A process that got in line, or had its turn, and was stopped. */
static int stand_still_at(int64_t byte)
{
    char side[600];
    (void)snprintf(side, sizeof(side), "%s-turn", path);
    int fd = open(side, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    return fd;
}

static void somebody_stands_still(void **state)
{
    (void)state;
    for (int64_t byte = 0; byte < 2; byte++) {
        kit_client c;
        kit_open(&c, with(""), KIT_BOTH, 0, "q");
        int fd = stand_still_at(byte);
        int64_t start = bq_now_ms();
        kit_assert_ok(kit_publish(&c, "q", "x"));
        assert_true(bq_now_ms() - start >= TURN_PATIENCE_MS - 10);
        /* From then on it is not waited for any more. */
        start = bq_now_ms();
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "x")));
        for (int i = 0; i < 20; i++)
            kit_assert_ok(kit_publish(&c, "other", "x"));
        assert_true(bq_now_ms() - start < 20 * TURN_PATIENCE_MS);
        close(fd);
        kit_assert_ok(kit_publish(&c, "q", "y"));
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "y")));
        kit_close(&c);
    }
}
#endif

static void without_a_side_file(void **state)
{
    (void)state;
    char side[600];
    kit_client a, b;
    kit_open(&a, with(""), BQ_ROLE_PUBLISH, 0, NULL);
    kit_close(&a);
    (void)snprintf(side, sizeof(side), "%s-turn", path);
    (void)unlink(side);
    assert_int_equal(mkdir(side, 0700), 0); /* in its place */
    kit_open(&a, with(""), BQ_ROLE_PUBLISH, 0, NULL);
    kit_open(&b, with(""), KIT_BOTH, 0, "q");
    assert_int_equal(inside(&a)->db.turn.fd, -1);
    kit_expect_none(&b, 20);
    for (int i = 0; i < 20; i++) {
        kit_assert_ok(kit_publish(&a, "q", "x"));
        int64_t start = bq_now_ms();
        kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "x")));
        assert_true(bq_now_ms() - start < 2000); /* it polls */
    }
    unsigned before = b.turns;
    for (int64_t end = bq_now_ms() + 1000; bq_now_ms() < end;)
        kit_turn(&b, 1000);
    assert_true(b.turns - before < 60); /* ever more slowly */
    kit_close(&a);
    kit_close(&b);
}

static void side_file_removed(void **state)
{
    (void)state;
    char side[600];
    struct stat st;
    kit_client a, b;
    kit_open(&a, with(""), BQ_ROLE_PUBLISH, 0, NULL);
    kit_open(&b, with(""), KIT_BOTH, 0, "q");
    (void)snprintf(side, sizeof(side), "%s-turn", path);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(unlink(side), 0);
        kit_assert_ok(kit_publish(&a, "q", "x"));
        kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "x")));
        assert_int_equal(stat(side, &st), 0);
        assert_true(inside(&a)->db.turn.inode == st.st_ino && inside(&b)->db.turn.inode == st.st_ino);
    }
    kit_close(&a);
    kit_close(&b);
}

/* ---- the file goes away ---------------------------------------------------------------------------------------------- */

static void file_removed(void **state)
{
    (void)state;
    kit_client c;
    char name[600];
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "gone"));
    bq_incoming *in = kit_expect(&c, "gone");
    assert_int_equal(unlink(path), 0);
    (void)snprintf(name, sizeof(name), "%s-wal", path);
    (void)unlink(name);
    (void)snprintf(name, sizeof(name), "%s-shm", path);
    (void)unlink(name);
    /* Nothing may be confirmed into a file that nobody will ever read. */
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    kit_assert(kit_do_one(&c, &op), BQ_REFUSED);
    assert_true(op.error.flags & BQ_ERROR_RETRYABLE);
    assert_int_equal(c.down, 1);
    assert_non_null(strstr(c.error.text, "removed or replaced"));
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.up < 2 && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_int_equal(c.up, 2);
    kit_assert(kit_settle(&c, BQ_OP_ACK, in), BQ_LOST);
    kit_assert_ok(kit_publish(&c, "q", "new"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "new")));
    kit_close(&c);
}

static void directory_away_for_a_while(void **state)
{
    (void)state;
    kit_client c;
    char home[512], away[600];
    (void)snprintf(home, sizeof(home), "%s/sub", scratch_home());
    (void)snprintf(away, sizeof(away), "%s/away", scratch_home());
    assert_int_equal(mkdir(home, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/sub/q.db", scratch_home());
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "kept"));
    bq_incoming *in = kit_expect(&c, "kept");
    assert_int_equal(rename(home, away), 0);
    kit_assert(kit_publish(&c, "q", "x"), BQ_REFUSED);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.down < 2 && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_true(c.down >= 2);
    assert_int_equal(c.fatal, 0);
    assert_int_equal(rename(away, home), 0);
    while (c.up < 2 && bq_now_ms() < end)
        kit_turn(&c, 100);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in)); /* its lease stands in the file */
    kit_expect_none(&c, 50);
    kit_close(&c);
}

static void file_replaced_by_something_else(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "x"));
    char name[600];
    (void)snprintf(name, sizeof(name), "%s-wal", path);
    (void)unlink(name);
    assert_int_equal(unlink(path), 0);
    sqlite3 *other = outsider("CREATE TABLE customers (name TEXT)");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    kit_assert(kit_publish(&c, "q", "x"), BQ_REFUSED);
    while (c.fatal == 0 && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_int_equal(c.fatal, 1);
    assert_non_null(strstr(c.error.text, "another program"));
    kit_op op = kit_make_publish("q", BQ_STR("x"));
    kit_assert(kit_do_one(&c, &op), BQ_CONFIG);
    assert_true(op.error.flags & BQ_ERROR_FATAL);
    kit_close(&c);
}

/* ---- fork ------------------------------------------------------------------------------------------------------------ */

static void used_after_a_fork(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "x"));
    bq_incoming *in = kit_expect(&c, "x");
    pid_t child = fork();
    if (child == 0) {
        kit_op op = kit_make_publish("q", BQ_STR("from the child"));
        bool fine = kit_do_one(&c, &op) == BQ_CLOSED && strstr(op.error.text, "fork") && c.fatal == 1;
        kit_close(&c);
        _exit(fine ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_expect_none(&c, 20);
    kit_assert_ok(kit_publish(&c, "q", "y"));
    kit_close(&c);
}

/* ---- the clock --------------------------------------------------------------------------------------------------------- */

static int64_t skew_ms;

static int64_t skewed(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 + skew_ms;
}

#define HOUR INT64_C(3600000)

/* Somebody took a lease while the clock was an hour ahead, and died. */
static void clock_goes_back(void **state)
{
    (void)state;
    kit_client a, b;
    bq_clock_override(NULL, skewed);
    skew_ms = HOUR;
    kit_open(&a, with("retry_after=300ms"), KIT_BOTH, 0, "q");
    kit_open(&b, with("retry_after=300ms"), KIT_BOTH, 0, "q");
    kit_expect_none(&b, 20);
    kit_assert_ok(kit_publish(&a, "q", "x"));
    bq_incoming *in = kit_expect(&a, "x");
    kit_assert_ok(kit_publish(&a, "other", "published in the future"));
    a.target.ops->forget(a.state, in);
    skew_ms = 0;
    in = kit_expect(&b, "x"); /* not in an hour */
    assert_int_equal(in->lapses, 1);
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, in));
    kit_close(&b);
    kit_open(&b, with(""), KIT_BOTH, 0, "other");
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "published in the future")));
    kit_close(&a);
    kit_close(&b);
}

/* ... and nobody was there when the clock went back. */
static void clock_went_back(void **state)
{
    (void)state;
    kit_client a;
    bq_clock_override(NULL, skewed);
    skew_ms = HOUR;
    kit_open(&a, with("retry_after=300ms"), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    (void)kit_expect(&a, "x");
    kit_close(&a);
    skew_ms = 0;
    kit_open(&a, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, kit_expect(&a, "x")));
    kit_close(&a);
}

/* The holder is alive: its lease was cut by the other, and is still its own. */
static void clock_goes_back_under_a_lease(void **state)
{
    (void)state;
    kit_client a, b;
    bq_clock_override(NULL, skewed);
    skew_ms = HOUR;
    kit_open(&a, with("retry_after=20s"), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    bq_incoming *in = kit_expect(&a, "x");
    skew_ms = 0;
    kit_open(&b, with("retry_after=20s"), KIT_BOTH, 0, "q");
    kit_expect_none(&b, 50); /* repairs */
    sqlite3 *other = outsider("BEGIN");
    assert_true(ask(other, "SELECT until FROM bq_lease") < bq_epoch_ms() + 30000);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    kit_assert_ok(kit_settle(&a, BQ_OP_EXTEND, in));
    kit_assert_ok(kit_settle(&a, BQ_OP_ACK, in));
    kit_expect_none(&b, 50);
    kit_close(&a);
    kit_close(&b);
}

static void clock_goes_forward(void **state)
{
    (void)state;
    kit_client a, b;
    bq_clock_override(NULL, skewed);
    skew_ms = 0;
    kit_open(&a, with("retry_after=20s"), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    kit_assert_ok(kit_publish_later(&a, "q", "later", HOUR / 2));
    bq_incoming *first = kit_expect(&a, "x");
    kit_open(&b, with("retry_after=20s"), KIT_BOTH, 0, "q");
    skew_ms = HOUR;
    /* Delivered twice, lost never. */
    bq_incoming *second = kit_expect(&b, "x");
    kit_assert(kit_settle(&a, BQ_OP_ACK, first), BQ_LOST);
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, second));
    kit_assert_ok(kit_settle(&b, BQ_OP_ACK, kit_expect(&b, "later")));
    kit_close(&a);
    kit_close(&b);
}

static void a_lease_without_end(void **state)
{
    (void)state;
    kit_client a;
    kit_open(&a, with("retry_after=off"), KIT_BOTH | BQ_ROLE_ADMIN, 0, "q");
    kit_assert_ok(kit_publish(&a, "q", "x"));
    bq_incoming *in = kit_expect(&a, "x");
    assert_int_equal(in->lease_until_ms, 0);
    kit_assert_ok(kit_settle(&a, BQ_OP_EXTEND, in));
    assert_int_equal(in->lease_until_ms, 0);
    kit_close(&a);
    kit_open(&a, with(""), KIT_BOTH | BQ_ROLE_ADMIN, 0, "q");
    kit_expect_none(&a, 100);
    assert_true(kit_stats(&a, "q").in_flight == 1);
    int64_t count;
    kit_assert_ok(a.target.ops->admin->purge(a.state, BQ_STR("q"), 5000, &count, NULL));
    assert_int_equal(count, 1);
    kit_close(&a);
}

/* ---- names and sizes ---------------------------------------------------------------------------------------------------- */

static void names_of_queues(void **state)
{
    (void)state;
    char longest[SQ_NAME_MAX + 2];
    memset(longest, 'n', sizeof(longest));
    const bq_str good[] = {{longest, SQ_NAME_MAX}, BQ_STR("gr\xc3\xbc\xc3\x9f e'\";--"), BQ_STR(" "), BQ_STR("a\n")};
    const bq_str bad[] = {{longest, SQ_NAME_MAX + 1}, BQ_STR(""), {"a\0b", 3}, BQ_STR("\xff")};
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH | BQ_ROLE_ADMIN, 0, "q");
    for (size_t i = 0; i < 4; i++) {
        kit_op op = kit_make_publish("", BQ_STR("x"));
        op.op.out.queue = good[i];
        kit_assert_ok(kit_do_one(&c, &op));
        bq_queue_stats stats;
        kit_assert_ok(c.target.ops->admin->stats(c.state, good[i], 5000, &stats, NULL));
        assert_int_equal(stats.ready, 1);
        op = kit_make_publish("", BQ_STR("x"));
        op.op.out.queue = bad[i];
        kit_assert(kit_do_one(&c, &op), BQ_INVALID);
        assert_non_null(strstr(op.error.text, "name of a queue"));
        /* Nor may a dead letter go there, and the message stays ours. */
        kit_assert_ok(kit_publish(&c, "q", "y"));
        op = kit_make(BQ_OP_DEAD_LETTER, kit_expect(&c, "y"));
        op.op.out = (bq_outgoing){.queue = bad[i], .body = BQ_STR("z")};
        kit_assert(kit_do_one(&c, &op), BQ_INVALID);
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, op.op.in));
    }
    kit_close(&c);
}

/* More queues in one transaction than the driver remembers. */
static void many_queues_at_once(void **state)
{
    (void)state;
    enum { QUEUES = 3 * SQ_CACHE + 5, EACH = 4 };
    kit_op ops[QUEUES * EACH];
    char names[QUEUES][16];
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH | BQ_ROLE_ADMIN, 0, "n7");
    c.want = 0;
    for (int i = 0; i < QUEUES * EACH; i++) {
        (void)snprintf(names[i % QUEUES], sizeof(names[0]), "n%d", i % QUEUES);
        ops[i] = kit_make_publish(names[i % QUEUES], bq_str_of(names[i % QUEUES]));
    }
    kit_do(&c, ops, QUEUES * EACH);
    for (int i = 0; i < QUEUES; i++) {
        kit_assert_ok(ops[i].status);
        assert_true(kit_stats(&c, names[i]).ready == EACH);
    }
    sqlite3 *other = outsider("BEGIN");
    assert_int_equal(ask(other, "SELECT count(*) FROM bq_queue WHERE last <> 4"), 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    c.want = 16;
    for (int i = 0; i < EACH; i++)
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "n7")));
    kit_close(&c);
}

static void larger_than_sqlite_stores(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    int64_t limit = inside(&c)->db.length_max;
    kit_op ops[3] = {kit_make_publish("q", BQ_STR("a")), kit_make_publish("q", BQ_STR("")),
                     kit_make_publish("q", BQ_STR("b"))};
    ops[1].op.out.body.len = (size_t)limit + 1; /* refused before any of it is read */
    kit_do(&c, ops, 3);
    kit_assert_ok(ops[0].status);
    kit_assert(ops[1].status, BQ_REFUSED);
    assert_non_null(strstr(ops[1].error.text, "larger than SQLite can store"));
    assert_false(ops[1].error.flags & BQ_ERROR_RETRYABLE);
    kit_assert_ok(ops[2].status);
    bq_incoming *in = kit_expect(&c, "a");
    kit_op retry = kit_make(BQ_OP_RETRY, in);
    retry.op.out.body = (bq_str){"", (size_t)limit + 1};
    kit_assert(kit_do_one(&c, &retry), BQ_REFUSED);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

/* ---- the log --------------------------------------------------------------------------------------------------------------- */

static int64_t size_of_log(void)
{
    char name[600];
    struct stat st;
    (void)snprintf(name, sizeof(name), "%s-wal", path);
    return stat(name, &st) == 0 ? (int64_t)st.st_size : 0;
}

static void publish_many(kit_client *c, int count, size_t size)
{
    char *body = calloc(1, size);
    assert_non_null(body);
    for (int done = 0; done < count;) {
        kit_op ops[200];
        int n = count - done < 200 ? count - done : 200;
        for (int i = 0; i < n; i++)
            ops[i] = kit_make_publish("q", (bq_str){body, size});
        kit_do(c, ops, (size_t)n);
        for (int i = 0; i < n; i++)
            kit_assert_ok(ops[i].status);
        done += n;
    }
    free(body);
}

static void log_stays_bounded(void **state)
{
    (void)state;
    kit_client c;
    int64_t largest = 0;
    kit_open(&c, with(""), BQ_ROLE_PUBLISH, 0, NULL);
    for (int i = 0; i < 40; i++) {
        publish_many(&c, 1000, 1000);
        int64_t size = size_of_log();
        largest = size > largest ? size : largest;
    }
    assert_true(largest > 0);
    assert_true(largest < 4 * (int64_t)SQ_CHECKPOINT_PAGES * SQ_PAGE_BYTES);
    /* Idle, it is cut. */
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (size_of_log() > SQ_TRUNCATE_BYTES && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_true(size_of_log() <= SQ_TRUNCATE_BYTES);
    assert_null(strstr(c.log, "write-ahead log"));
    kit_close(&c);
}

static void a_reader_without_end_is_warned_about(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with("sync=normal"), BQ_ROLE_PUBLISH, 0, NULL);
    kit_assert_ok(kit_publish(&c, "q", "x"));
    sqlite3 *other = outsider("BEGIN");
    assert_int_equal(ask(other, "SELECT count(*) FROM bq_message"), 1);
    publish_many(&c, 80, (size_t)1 << 20);
    assert_true(size_of_log() > SQ_WAL_WARN_BYTES);
    assert_non_null(strstr(c.log, "some program keeps an old snapshot open"));
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    kit_assert_ok(kit_publish(&c, "q", "y"));
    while (size_of_log() > SQ_TRUNCATE_BYTES && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_true(size_of_log() <= SQ_TRUNCATE_BYTES);
    kit_close(&c);
}

int main(void)
{
#define LIFE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LIFE_TEST(locked_for_too_long),
        LIFE_TEST(locked_for_a_while),
        LIFE_TEST(locked_past_a_deadline),
        LIFE_TEST(opened_while_locked),
        LIFE_TEST(an_outsider_reads),
#if defined(F_OFD_SETLK)
        LIFE_TEST(somebody_stands_still),
#endif
        LIFE_TEST(without_a_side_file),
        LIFE_TEST(side_file_removed),
        LIFE_TEST(file_removed),
        LIFE_TEST(directory_away_for_a_while),
        LIFE_TEST(file_replaced_by_something_else),
        LIFE_TEST(used_after_a_fork),
        LIFE_TEST(clock_goes_back),
        LIFE_TEST(clock_went_back),
        LIFE_TEST(clock_goes_back_under_a_lease),
        LIFE_TEST(clock_goes_forward),
        LIFE_TEST(a_lease_without_end),
        LIFE_TEST(names_of_queues),
        LIFE_TEST(many_queues_at_once),
        LIFE_TEST(larger_than_sqlite_stores),
        LIFE_TEST(log_stays_bounded),
        LIFE_TEST(a_reader_without_end_is_warned_about),
    };
    return cmocka_run_group_tests_name("sqlite: rough company", tests, NULL, NULL);
}
