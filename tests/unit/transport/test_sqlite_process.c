/*
 * test_sqlite_process.c - several processes on one SQLite file (contract 7.11): a holder that is killed, waking across
 * processes, turns for everybody. Each process opens the file itself: this program runs itself again with a part to
 * play, so that nothing is shared but the file. tests/chaos has the long versions.
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "unit/cmocka_all.h"
#include "unit/transport/scratch.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

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
    scratch_clear();
    return 0;
}

static const char *with(const char *options)
{
    return scratch_url(url, sizeof(url), path, options);
}

/* ---- the other processes ------------------------------------------------------------------------------------------ */

typedef struct process {
    pid_t pid;
    int out; /* what it prints */
} process;

static process start(const char *part, const char *where, const char *argument)
{
    int fds[2];
    process p;
    posix_spawn_file_actions_t actions;
    char *argv[] = {(char *)"test_sqlite_process", (char *)part, (char *)where, (char *)argument, NULL};
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_addclose(&actions, fds[0]), 0);
    assert_int_equal(posix_spawn(&p.pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
    close(fds[1]);
    p.out = fds[0];
    return p;
}

/* The next line it prints. */
static void read_line(const process *p, char *line, size_t size)
{
    size_t len = 0;
    char byte;
    ssize_t n;
    while ((n = read(p->out, &byte, 1)) == 1 && byte != '\n' && len + 1 < size)
        line[len++] = byte;
    line[len] = '\0';
    if (n != 1)
        fail_msg("the other process has ended after \"%s\"", line);
}

static void expect_line(const process *p, const char *expected)
{
    char line[256];
    read_line(p, line, sizeof(line));
    assert_string_equal(line, expected);
}

static int await_end(process *p)
{
    int status;
    while (waitpid(p->pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    close(p->out);
    return status;
}

static void end_well(process *p)
{
    int status = await_end(p);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- their parts: outside any test, a failing assertion ends the process ------------------------------------------ */

/* Takes one message and sits on it. */
static void play_holder(const char *where)
{
    kit_client c;
    kit_open(&c, where, KIT_BOTH, 1, "q");
    (void)kit_expect(&c, NULL);
    (void)printf("holding\n");
    (void)fflush(stdout);
    for (;;)
        kit_turn(&c, 1000);
}

/* Answers what comes on "ping" on "pong", until "end". */
static int play_echo(const char *where)
{
    kit_client c;
    kit_open(&c, where, KIT_BOTH, 1, "ping");
    (void)printf("ready\n");
    (void)fflush(stdout);
    for (bool end = false; !end;) {
        bq_incoming *in = kit_expect(&c, NULL);
        end = bq_str_equal(in->body, BQ_STR("end"));
        kit_op op = kit_make(BQ_OP_DEAD_LETTER, in);
        op.op.out = (bq_outgoing){.queue = BQ_STR("pong"), .body = in->body};
        kit_assert_ok(kit_do_one(&c, &op));
    }
    kit_close(&c);
    return 0;
}

/* Works what there is, until nothing comes for a second; tells how much it did and its longest wait. */
static int play_worker(const char *where, bool forever)
{
    kit_client c;
    int count = 0;
    int64_t longest = 0, start = bq_now_ms();
    kit_open(&c, where, KIT_BOTH, 2, "q");
    for (;;) {
        bq_incoming *in = kit_take(&c, 1000);
        if (!in && !forever)
            break;
        if (!in)
            continue;
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
        int64_t now = bq_now_ms();
        longest = now - start > longest ? now - start : longest;
        start = now;
        count++;
    }
    (void)printf("%d %lld\n", count, (long long)longest);
    kit_close(&c);
    return 0;
}

/* Publishes the numbers from 0 on, each confirmed before it is printed. */
static void play_publisher(const char *where)
{
    kit_client c;
    kit_open(&c, where, BQ_ROLE_PUBLISH, 0, NULL);
    for (int i = 0;; i++) {
        char body[16];
        (void)snprintf(body, sizeof(body), "%d", i);
        kit_assert_ok(kit_publish(&c, "q", body));
        (void)printf("%d\n", i);
        (void)fflush(stdout);
    }
}

static int play(const char *part, const char *where)
{
    if (strcmp(part, "holder") == 0)
        play_holder(where);
    if (strcmp(part, "echo") == 0)
        return play_echo(where);
    if (strcmp(part, "worker") == 0)
        return play_worker(where, false);
    if (strcmp(part, "endless") == 0)
        return play_worker(where, true);
    if (strcmp(part, "publisher") == 0)
        play_publisher(where);
    return 64;
}

/* ---- tests --------------------------------------------------------------------------------------------------------- */

/* Contract 3, crash loops: who kills its worker comes back with one lapse more each time. */
static void a_killed_holder(void **state)
{
    (void)state;
    kit_client c;
    kit_open(&c, with("retry_after=400ms"), KIT_BOTH, 0, "q");
    c.want = 0;
    kit_assert_ok(kit_publish(&c, "q", "deadly"));
    for (uint32_t i = 0; i < 2; i++) {
        process p = start("holder", url, "");
        expect_line(&p, "holding");
        assert_int_equal(kill(p.pid, SIGKILL), 0);
        assert_true(WIFSIGNALED(await_end(&p)));
    }
    c.want = 16;
    bq_incoming *in = kit_expect(&c, "deadly");
    assert_int_equal(in->lapses, 2);
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, in));
    kit_close(&c);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void waking_another_process(void **state)
{
    (void)state;
    enum { ROUNDS = 40 };
    int64_t took[ROUNDS];
    kit_client c;
    kit_open(&c, with(""), KIT_BOTH, 1, "pong");
    process p = start("echo", url, "");
    expect_line(&p, "ready");
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin = bq_now_us();
        kit_assert_ok(kit_publish(&c, "ping", i == ROUNDS - 1 ? "end" : "hello"));
        kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, NULL)));
        took[i] = bq_now_us() - begin;
    }
    end_well(&p);
    qsort(took, ROUNDS, sizeof(took[0]), by_size);
    print_message("           there and back: median %.1f ms, longest %.1f ms\n", (double)took[ROUNDS / 2] / 1000,
                  (double)took[ROUNDS - 1] / 1000);
    assert_true(took[ROUNDS / 2] < 300000); /* a slow machine; polling alone would take seconds */
    kit_close(&c);
}

static void publish_count(const char *where, int count)
{
    kit_client c;
    kit_open(&c, where, BQ_ROLE_PUBLISH, 0, NULL);
    for (int done = 0; done < count; done += 100) {
        kit_op ops[100];
        for (int i = 0; i < 100; i++)
            ops[i] = kit_make_publish("q", BQ_STR("x"));
        kit_do(&c, ops, 100);
    }
    kit_close(&c);
}

static void everybody_gets_on(void **state)
{
    (void)state;
    enum { PROCESSES = 8, MESSAGES = 1600 };
    process p[PROCESSES];
    int total = 0;
    publish_count(with(""), MESSAGES);
    for (int i = 0; i < PROCESSES; i++)
        p[i] = start("worker", url, "");
    for (int i = 0; i < PROCESSES; i++) {
        char line[64], *rest;
        read_line(&p[i], line, sizeof(line));
        long count = strtol(line, &rest, 10), longest = strtol(rest, NULL, 10);
        print_message("           %ld messages, longest wait %ld ms\n", count, longest);
        assert_true(count > 0);
        total += (int)count;
        end_well(&p[i]);
    }
    assert_int_equal(total, MESSAGES); /* each once: nobody died, no lease lapsed */
}

/* Processes that are killed while they wait for their turn, or have it, are in nobody's way. */
static void killed_in_the_queue(void **state)
{
    (void)state;
    enum { PROCESSES = 4, ROUNDS = 5 };
    kit_client c;
    publish_count(with("retry_after=1s"), 2000);
    kit_open(&c, url, KIT_BOTH, 0, "other");
    for (int round = 0; round < ROUNDS; round++) {
        process p[PROCESSES];
        for (int i = 0; i < PROCESSES; i++)
            p[i] = start("endless", url, "");
        for (int i = 0; i < 30; i++) /* until they surely are at it, and some more */
            kit_assert_ok(kit_publish(&c, "other", "x"));
        for (int i = 0; i < PROCESSES; i++)
            assert_int_equal(kill(p[i].pid, SIGKILL), 0);
        for (int i = 0; i < PROCESSES; i++)
            assert_true(WIFSIGNALED(await_end(&p[i])));
        int64_t begin = bq_now_ms();
        kit_assert_ok(kit_publish(&c, "other", "x"));
        assert_true(bq_now_ms() - begin < 5000);
    }
    kit_close(&c);
}

/* A stopped process keeps its place in the queue at most; the others go on. */
static void stopped_in_the_queue(void **state)
{
    (void)state;
    kit_client c;
    publish_count(with(""), 20000);
    process p[2] = {start("endless", url, ""), start("endless", url, "")};
    kit_open(&c, with("busy_timeout=60s"), KIT_BOTH, 0, "other");
    for (int i = 0; i < 5; i++) {
        for (int n = 0; n < 5; n++)
            kit_assert_ok(kit_publish(&c, "other", "x"));
        assert_int_equal(kill(p[0].pid, SIGSTOP), 0);
        /* It may hold SQLite's own lock, which nobody can take from it; otherwise this goes through. */
        kit_op op = kit_make_publish("other", BQ_STR("x"));
        op.op.deadline_ms = bq_now_ms() + 2 * 250 + 1500;
        bq_status status = kit_do_one(&c, &op);
        assert_int_equal(kill(p[0].pid, SIGCONT), 0);
        assert_true(status == BQ_OK || status == BQ_TIMEOUT);
        kit_assert_ok(kit_publish(&c, "other", "y"));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(p[i].pid, SIGKILL), 0);
        (void)await_end(&p[i]);
    }
    kit_close(&c);
}

/* What was confirmed before the publisher was killed is there, once and in order. */
static void killed_while_publishing(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        int64_t count = 0;
        long printed = -1;
        char line[64], body[32];
        kit_client c;
        process p = start("publisher", with(""), "");
        do {
            read_line(&p, line, sizeof(line));
            printed = strtol(line, NULL, 10);
        } while (printed < 20 + 7 * round);
        assert_int_equal(kill(p.pid, SIGKILL), 0);
        char more[4096];
        for (ssize_t n; (n = read(p.out, more, sizeof(more) - 1)) > 0;)
            for (ssize_t i = 0; i < n; i++)
                printed += more[i] == '\n';
        (void)await_end(&p);
        kit_open(&c, url, KIT_BOTH | BQ_ROLE_ADMIN, 0, "q");
        for (long i = 0; i <= printed; i++) {
            (void)snprintf(body, sizeof(body), "%ld", i);
            kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, body)));
        }
        kit_assert_ok(c.target.ops->admin->purge(c.state, BQ_STR("q"), 5000, &count, NULL));
        assert_true(count <= 1); /* the one that was not confirmed any more */
        kit_close(&c);
    }
}

/* Eight processes make the same file. */
static void opened_by_all_at_once(void **state)
{
    (void)state;
    enum { PROCESSES = 8 };
    for (int round = 0; round < 3; round++) {
        process p[PROCESSES];
        (void)set_up(NULL);
        (void)with("");
        for (int i = 0; i < PROCESSES; i++)
            p[i] = start("worker", url, "");
        for (int i = 0; i < PROCESSES; i++) {
            char line[64];
            read_line(&p[i], line, sizeof(line));
            assert_true(strncmp(line, "0 ", 2) == 0);
            end_well(&p[i]);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return play(argv[1], argv[2]);
    if (access("/proc/self/exe", X_OK) != 0)
        return 77;
#define PROCESS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PROCESS_TEST(a_killed_holder),       PROCESS_TEST(waking_another_process),
        PROCESS_TEST(everybody_gets_on),     PROCESS_TEST(killed_in_the_queue),
        PROCESS_TEST(stopped_in_the_queue),  PROCESS_TEST(killed_while_publishing),
        PROCESS_TEST(opened_by_all_at_once),
    };
    return cmocka_run_group_tests_name("sqlite: several processes", tests, NULL, NULL);
}
