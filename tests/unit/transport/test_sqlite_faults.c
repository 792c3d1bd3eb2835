/*
 * test_sqlite_faults.c - a disk and a memory that fail: at every write, every sync, every allocation. Whatever fails,
 * an operation that was confirmed is done, one that was refused is not, UNKNOWN is kept for what nobody knows, and
 * work goes on when the fault is over (contract 3: nothing is acknowledged before its replacement is confirmed).
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "transport/sqlite/sqlite.h"
#include "unit/cmocka_all.h"
#include "unit/transport/fault_vfs.h"
#include "unit/transport/scratch.h"

#include "unit/alloc_fail.h"

#include <sqlite3.h>
#include <stdlib.h>

static char url[1024], path[512];

/* ---- SQLite's own memory --------------------------------------------------------------------------------------------- */

static sqlite3_mem_methods memory_below;
static long memory_fail_at, memory_calls, memory_failed;

static bool memory_fails(void)
{
    if (memory_fail_at == 0 || ++memory_calls != memory_fail_at)
        return false;
    memory_failed++;
    return true;
}

static void *failing_malloc(int size)
{
    return memory_fails() ? NULL : memory_below.xMalloc(size);
}

static void *failing_realloc(void *old, int size)
{
    return memory_fails() ? NULL : memory_below.xRealloc(old, size);
}

static void install_memory(void)
{
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory_below), SQLITE_OK);
    sqlite3_mem_methods methods = memory_below;
    methods.xMalloc = failing_malloc;
    methods.xRealloc = failing_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
}

static void memory_fail(long nth)
{
    memory_fail_at = nth;
    memory_calls = memory_failed = 0;
}

/* ---- the file as it is ------------------------------------------------------------------------------------------------ */

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof(path), "%s", scratch_new());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fault_vfs_fail(FAULT_NONE, 0, 0, 0);
    memory_fail(0);
    scratch_clear();
    return 0;
}

static const char *with(const char *options)
{
    return scratch_url(url, sizeof(url), path, options);
}

static int64_t ask(const char *sql, const char *text)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    int64_t value = -1;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    if (text)
        assert_int_equal(sqlite3_bind_blob(s, 1, text, (int)strlen(text), SQLITE_STATIC), SQLITE_OK);
    if (sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return value;
}

static int64_t copies_of(const char *body)
{
    return ask("SELECT count(*) FROM bq_message WHERE body = ?1", body);
}

static void file_is_sound(void)
{
    assert_int_equal(ask("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'", NULL), 0);
    assert_int_equal(ask("SELECT count(*) FROM bq_message WHERE id NOT IN (SELECT id FROM bq_ready UNION ALL "
                         "SELECT id FROM bq_lease)",
                         NULL),
                     0);
    assert_int_equal(ask("SELECT (SELECT count(*) FROM bq_message) - (SELECT count(*) FROM bq_ready) - "
                         "(SELECT count(*) FROM bq_lease)",
                         NULL),
                     0);
}

/* ---- faults with a name ------------------------------------------------------------------------------------------------ */

static void full_disk(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "held"));
    bq_incoming *in = kit_expect(&c, "held");
    fault_vfs_fail(FAULT_WRITE, SQLITE_FULL, 1, -1);
    kit_op op = kit_make_publish("q", BQ_STR("refused"));
    kit_assert(kit_do_one(&c, &op), BQ_REFUSED);
    assert_non_null(strstr(op.error.text, "disk is full"));
    assert_true(op.error.flags & BQ_ERROR_RETRYABLE);
    assert_int_equal(c.blocked, 1);
    assert_int_equal(c.down, 0);
    /* Its replacement cannot be written, so the message stays. */
    kit_op retry = kit_make(BQ_OP_RETRY, in);
    retry.op.out.body = BQ_STR("again");
    kit_assert(kit_do_one(&c, &retry), BQ_REFUSED);
    kit_assert(kit_settle(&c, BQ_OP_ACK, in), BQ_REFUSED);
    assert_int_equal(c.blocked, 1); /* told once */
    fault_vfs_fail(FAULT_NONE, 0, 0, 0);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.unblocked == 0 && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_int_equal(c.unblocked, 1);
    retry = kit_make(BQ_OP_RETRY, in);
    retry.op.out.body = BQ_STR("again");
    kit_assert_ok(kit_do_one(&c, &retry));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "again")));
    kit_expect_none(&c, 20);
    kit_close(&c);
    assert_int_equal(copies_of("refused"), 0);
    file_is_sound();
}

/* A batch of many kinds on a disk with room for some of it only: what needs no room goes through. */
static void full_for_some(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    for (int i = 0; i < 2; i++)
        kit_assert_ok(kit_publish(&c, "q", "held"));
    kit_op ops[3] = {kit_make(BQ_OP_ACK, kit_expect(&c, "held")), kit_make_publish("q", BQ_STR("refused")),
                     kit_make(BQ_OP_RELEASE, kit_expect(&c, "held"))};
    fault_vfs_fail(FAULT_WRITE, SQLITE_FULL, 1, 2); /* for the first attempt, and for making room */
    kit_do(&c, ops, 3);
    assert_int_equal(fault_vfs_failed(), 2);
    kit_assert_ok(ops[0].status);
    kit_assert(ops[1].status, BQ_REFUSED);
    kit_assert_ok(ops[2].status);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "held")));
    kit_expect_none(&c, 20);
    kit_close(&c);
    file_is_sound();
}

/* What stands in the log and in the database gives its room in the log up before anything is refused. */
static void room_in_the_log(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "a"));
    fault_vfs_fail(FAULT_WRITE, SQLITE_FULL, 1, 1);
    kit_assert_ok(kit_publish(&c, "q", "b"));
    assert_int_equal(fault_vfs_failed(), 1);
    assert_int_equal(c.blocked, 0);
    kit_close(&c);
    file_is_sound();
}

static void failing_sync(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    kit_assert_ok(kit_publish(&c, "q", "held"));
    bq_incoming *in = kit_expect(&c, "held");
    fault_vfs_fail(FAULT_SYNC, SQLITE_IOERR_FSYNC, 1, 1);
    kit_op ops[2] = {kit_make_publish("q", BQ_STR("perhaps")), kit_make(BQ_OP_ACK, in)};
    kit_do(&c, ops, 2);
    for (int i = 0; i < 2; i++) {
        kit_assert(ops[i].status, BQ_UNKNOWN); /* all of it is in the log, and a crash now would make it true */
        assert_true(ops[i].error.flags & BQ_ERROR_MAYBE_DONE);
    }
    assert_int_equal(c.down, 1);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.up < 2 && bq_now_ms() < end)
        kit_turn(&c, 100);
    assert_int_equal(c.up, 2);
    /* Here there was no crash: neither of it happened, and the lease still stands. */
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_expect_none(&c, 20);
    kit_close(&c);
    file_is_sound();
}

static void failing_write(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 0, "q");
    fault_vfs_fail(FAULT_WRITE, SQLITE_IOERR_WRITE, 1, 1);
    kit_op op = kit_make_publish("q", BQ_STR("not done"));
    kit_assert(kit_do_one(&c, &op), BQ_IO);
    assert_false(op.error.flags & BQ_ERROR_MAYBE_DONE);
    assert_int_equal(c.down, 1);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.up < 2 && bq_now_ms() < end)
        kit_turn(&c, 100);
    kit_assert_ok(kit_publish(&c, "q", "done"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "done")));
    kit_close(&c);
    assert_int_equal(copies_of("not done"), 0);
    file_is_sound();
}

/* Everything accepted is completed before the connection is said to be down (babelqueue/transport.h). */
static void completed_before_down(void **state)
{
    (void)state;
    enum { COUNT = 2500 };
    static kit_op ops[COUNT];
    bq_op *list[COUNT];
    kit_client c;
    kit_open(&c, with(""), BQ_ROLE_PUBLISH, 0, NULL);
    for (int i = 0; i < COUNT; i++) {
        ops[i] = kit_make_publish("q", BQ_STR("x"));
        list[i] = &ops[i].op;
    }
    assert_int_equal(c.target.ops->submit(c.state, list, COUNT), COUNT);
    fault_vfs_fail(FAULT_SYNC, SQLITE_IOERR_FSYNC, 2, 1);
    while (c.down == 0)
        kit_turn(&c, 0);
    size_t by_status[BQ_STATUS_COUNT_] = {0};
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(ops[i].finished, 1);
        by_status[ops[i].status]++;
    }
    assert_int_equal(by_status[BQ_OK], SQ_BATCH_OPS);
    assert_int_equal(by_status[BQ_UNKNOWN], SQ_BATCH_OPS);
    assert_int_equal(by_status[BQ_REFUSED], COUNT - 2 * SQ_BATCH_OPS);
    kit_op late = kit_make_publish("q", BQ_STR("x"));
    bq_op *one = &late.op;
    assert_int_equal(c.target.ops->submit(c.state, &one, 1), 0);
    kit_close(&c);
    file_is_sound();
}

static void damaged_under_way(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH | BQ_ROLE_ADMIN, 0, "q");
    kit_client other;
    kit_expect_none(&c, 20);
    kit_open(&other, url, BQ_ROLE_PUBLISH, 0, NULL);
    kit_assert_ok(kit_publish(&other, "q", "x")); /* which `c` has to read */
    kit_close(&other);
    fault_vfs_fail(FAULT_READ, SQLITE_CORRUPT, 1, -1);
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c.fatal == 0 && bq_now_ms() < end)
        (void)kit_take(&c, 10);
    assert_int_equal(c.fatal, 1);
    assert_int_equal(c.error.status, BQ_DATA);
    kit_op op = kit_make_publish("q", BQ_STR("y"));
    kit_assert(kit_do_one(&c, &op), BQ_DATA);
    bq_queue_stats stats;
    bq_error err;
    kit_assert(c.target.ops->admin->stats(c.state, BQ_STR("q"), 100, &stats, &err), BQ_DATA);
    kit_close(&c);
}

/* ---- every write, every sync ----------------------------------------------------------------------------------------------- */

enum { MESSAGES = 24 };

typedef struct fate {
    bq_status published, settled;
    bool taken;
} fate;

static void await_up_again(kit_client *c)
{
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c->up <= c->down && c->fatal == 0) {
        assert_true(bq_now_ms() < end);
        kit_turn(c, 20);
    }
}

/* Publishes, works, retries and buries; notes what became of each. */
static void workload(kit_client *c, fate *fates)
{
    char body[32];
    for (int i = 0; i < MESSAGES; i++) {
        await_up_again(c);
        (void)snprintf(body, sizeof(body), "m%d", i);
        fates[i].published = kit_publish(c, "q", body);
    }
    for (int quiet = 0; quiet < 3;) {
        await_up_again(c);
        bq_incoming *in = kit_take(c, 5);
        if (!in) {
            quiet++;
            continue;
        }
        assert_true(in->body.len < sizeof(body));
        (void)snprintf(body, sizeof(body), "%.*s", (int)in->body.len, in->body.ptr);
        int n = (int)strtol(body + 1, NULL, 10);
        assert_true(n >= 0 && n < MESSAGES);
        (void)snprintf(body, sizeof(body), "%c%d", n % 3 == 0 ? 'd' : 'r', n);
        kit_op op = kit_make(n % 3 == 0 ? BQ_OP_DEAD_LETTER : n % 3 == 1 ? BQ_OP_RETRY : BQ_OP_ACK, in);
        op.op.out =
            (bq_outgoing){.queue = BQ_STR("q.dlq"), .body = bq_str_of(body), .delay_ms = n % 3 == 1 ? 60000 : 0};
        fates[n].taken = true;
        await_up_again(c);
        fates[n].settled = kit_do_one(c, &op);
        if (fates[n].settled != BQ_OK && fates[n].settled != BQ_LOST)
            c->target.ops->forget(c->state, in);
    }
}

static void check_fates(const fate *fates)
{
    char body[32];
    file_is_sound();
    for (int i = 0; i < MESSAGES; i++) {
        const fate *f = &fates[i];
        (void)snprintf(body, sizeof(body), "m%d", i);
        int64_t first = copies_of(body);
        (void)snprintf(body, sizeof(body), "%c%d", i % 3 == 0 ? 'd' : 'r', i);
        int64_t second = copies_of(body);
        bool done = f->taken && f->settled == BQ_OK, open = f->taken && f->settled == BQ_UNKNOWN;
        assert_int_not_equal(f->published, BQ_STATUS_COUNT_);
        if (f->published == BQ_OK && !open) {
            assert_int_equal(first, done ? 0 : 1);
            assert_int_equal(second, done && i % 3 != 2 ? 1 : 0);
        } else if (f->published == BQ_OK) {
            assert_true(i % 3 == 2 ? first <= 1 : first + second == 1); /* never neither, never both */
        } else if (f->published != BQ_UNKNOWN) {
            assert_int_equal(first + second, 0);
        } else {
            assert_true(first + second <= 1);
        }
    }
}

static long fault_at_each(unsigned kinds, int code, long times)
{
    long faulty = 0;
    for (long nth = 1; nth < 2000; nth += 1 + nth / 4) {
        fate fates[MESSAGES] = {0};
        kit_client c;
        (void)set_up(NULL);
        kit_open(&c, with("retry_after=off"), KIT_BOTH, 0, "q");
        fault_vfs_fail(kinds, code, nth, times);
        workload(&c, fates);
        long failed = fault_vfs_failed();
        fault_vfs_fail(FAULT_NONE, 0, 0, 0);
        kit_close(&c);
        check_fates(fates);
        scratch_clear();
        if (failed == 0)
            break;
        faulty++;
    }
    return faulty;
}

static void every_write_fails(void **state)
{
    (void)state;
    assert_true(fault_at_each(FAULT_WRITE, SQLITE_IOERR_WRITE, 1) > 5);
}

static void every_write_finds_the_disk_full(void **state)
{
    (void)state;
    assert_true(fault_at_each(FAULT_WRITE, SQLITE_FULL, 1) > 5);
    assert_true(fault_at_each(FAULT_WRITE, SQLITE_FULL, 9) > 5);
}

static void every_sync_fails(void **state)
{
    (void)state;
    assert_true(fault_at_each(FAULT_SYNC, SQLITE_IOERR_FSYNC, 1) > 5);
}

static void every_read_fails(void **state)
{
    (void)state;
    (void)fault_at_each(FAULT_READ, SQLITE_IOERR_READ, 1); /* small files are read once, if at all */
}

static void opening_fails_at_each_step(void **state)
{
    (void)state;
    static const struct {
        fault_kind kind;
        int code;
    } faults[] = {{FAULT_WRITE, SQLITE_FULL},       {FAULT_WRITE, SQLITE_IOERR_WRITE},
                  {FAULT_SYNC, SQLITE_IOERR_FSYNC}, {FAULT_READ, SQLITE_IOERR_READ},
                  {FAULT_OPEN, SQLITE_CANTOPEN},    {FAULT_TRUNCATE, SQLITE_IOERR_TRUNCATE}};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        for (long nth = 1; nth < 100; nth++) {
            kit_client c;
            bq_error err = {0};
            (void)set_up(NULL);
            fault_vfs_fail(faults[i].kind, faults[i].code, nth, 1);
            bq_status status = kit_try_open(&c, with(""), KIT_BOTH, 0, "q", &err);
            long failed = fault_vfs_failed();
            fault_vfs_fail(FAULT_NONE, 0, 0, 0);
            if (status != BQ_OK) {
                assert_true(failed > 0);
                assert_int_equal(err.status, status);
                assert_true(err.text[0] != '\0');
                kit_open(&c, url, KIT_BOTH, 0, "q"); /* what it left behind is in nobody's way */
            } else {
                kit_await_up(&c);
            }
            kit_assert_ok(kit_publish(&c, "q", "x"));
            kit_close(&c);
            file_is_sound();
            scratch_clear();
            if (failed == 0)
                break;
        }
    }
}

/* ---- every allocation ---------------------------------------------------------------------------------------------------------- */

static void sqlite_runs_out_of_memory(void **state)
{
    (void)state;
    long faulty = 0;
    for (long nth = 1; nth < 100000; nth += 1 + nth / 16) {
        fate fates[MESSAGES] = {0};
        kit_client c;
        bq_error err;
        (void)set_up(NULL);
        memory_fail(nth);
        bq_status status = kit_try_open(&c, with("retry_after=off"), KIT_BOTH, 0, "q", &err);
        if (status != BQ_OK) {
            assert_true(status == BQ_NOMEM || status == BQ_IO || status == BQ_CONFIG || status == BQ_DATA);
            memory_fail(0);
            faulty++;
            scratch_clear();
            continue;
        }
        kit_await_up(&c);
        workload(&c, fates);
        long failed = memory_failed;
        memory_fail(0);
        assert_int_equal(c.fatal, 0);
        kit_close(&c);
        check_fates(fates);
        scratch_clear();
        if (failed == 0)
            break;
        faulty++;
    }
    assert_true(faulty > 50);
}

static bq_status one_life(void *arg)
{
    (void)arg;
    bq_error err;
    kit_client c;
    (void)set_up(NULL);
    bq_status status = kit_try_open(&c, with(""), KIT_BOTH | BQ_ROLE_ADMIN, 0, "q", &err);
    if (status != BQ_OK)
        goto out;
    kit_await_up(&c);
    const bq_prop prop = {.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING, .name = BQ_STR("n"), .text = BQ_STR("v")};
    kit_op ops[3];
    for (int i = 0; i < 3; i++) {
        ops[i] = kit_make_publish(i == 2 ? "other" : "q", BQ_STR("body"));
        ops[i].op.out.props = &prop;
        ops[i].op.out.prop_count = 1;
    }
    kit_do(&c, ops, 3);
    for (int i = 0; i < 3; i++)
        status = ops[i].status != BQ_OK ? ops[i].status : status;
    bq_incoming *in = kit_take(&c, 20);
    if (!in && status == BQ_OK)
        status = BQ_NOMEM;
    if (in) {
        kit_op op = kit_make(BQ_OP_DEAD_LETTER, in);
        op.op.out = (bq_outgoing){.queue = BQ_STR("q.dlq"), .body = BQ_STR("record"), .props = &prop, .prop_count = 1};
        bq_status moved = kit_do_one(&c, &op);
        status = moved != BQ_OK ? moved : status;
        if (moved != BQ_OK) /* still held */
            kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    }
    bq_queue_stats stats;
    bq_status counted = c.target.ops->admin->stats(c.state, BQ_STR("q"), 1000, &stats, &err);
    status = counted != BQ_OK ? counted : status;
    kit_close(&c);
    file_is_sound();
out:
    scratch_clear();
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(alloc_fail_each("a life of the SQLite driver", one_life, NULL) > 10);
}

int main(void)
{
    install_memory();
    fault_vfs_install();
#define FAULT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FAULT_TEST(full_disk),
        FAULT_TEST(full_for_some),
        FAULT_TEST(room_in_the_log),
        FAULT_TEST(failing_sync),
        FAULT_TEST(failing_write),
        FAULT_TEST(completed_before_down),
        FAULT_TEST(damaged_under_way),
        FAULT_TEST(every_write_fails),
        FAULT_TEST(every_write_finds_the_disk_full),
        FAULT_TEST(every_sync_fails),
        FAULT_TEST(every_read_fails),
        FAULT_TEST(opening_fails_at_each_step),
        FAULT_TEST(sqlite_runs_out_of_memory),
        FAULT_TEST(each_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("sqlite: faults", tests, NULL, NULL);
}
