/*
 * test_sqlite_turn.c - turns between writers: first come, first served; nobody's death or stand-still is in the way;
 * who waits is woken.
 *
 * Each bq_turn here has a file description of its own, as each process would.
 */
#include "transport/sqlite/turn.h"

#include "base/clock.h"
#include "unit/cmocka_all.h"
#include "unit/transport/scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#if defined(F_OFD_SETLK)

#define TURNS 4

typedef struct fixture {
    char database[512], side[520];
    sq_turn turns[TURNS];
    int64_t now;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    (void)snprintf(f->database, sizeof(f->database), "%s", scratch_new());
    (void)snprintf(f->side, sizeof(f->side), "%s-turn", f->database);
    FILE *file = fopen(f->database, "w");
    if (!file)
        return -1;
    fclose(file);
    for (int i = 0; i < TURNS; i++)
        if (bq_turn_open(&f->turns[i], f->database) != BQ_OK)
            return -1;
    f->now = 1000;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < TURNS; i++)
        bq_turn_close(&f->turns[i]);
    free(f);
    scratch_clear();
    return 0;
}

static bool woken(const sq_turn *turn)
{
    struct pollfd fd = {.fd = turn->watch, .events = POLLIN};
    return poll(&fd, 1, 5000) == 1;
}

static bool quiet(const sq_turn *turn)
{
    struct pollfd fd = {.fd = turn->watch, .events = POLLIN};
    return poll(&fd, 1, 0) == 0;
}

static void drain_all(fixture *f)
{
    for (int i = 0; i < TURNS; i++)
        (void)bq_turn_drain(&f->turns[i], f->now);
}

static void first_come_first_served(void **state)
{
    fixture *f = *state;
    sq_turn *a = &f->turns[0], *b = &f->turns[1], *c = &f->turns[2], *d = &f->turns[3];
    assert_true(bq_turn_try(a, f->now));
    assert_true(bq_turn_try(a, f->now)); /* still */
    assert_false(bq_turn_try(b, f->now));
    assert_false(bq_turn_try(c, f->now));
    assert_false(bq_turn_try(d, f->now));
    bq_turn_leave(a, false);
    assert_false(bq_turn_try(a, f->now)); /* again, behind the others */
    assert_false(bq_turn_try(d, f->now));
    assert_false(bq_turn_try(c, f->now));
    assert_true(bq_turn_try(b, f->now));
    bq_turn_leave(b, false);
    bq_turn_leave(c, false); /* gives up */
    assert_false(bq_turn_try(a, f->now));
    assert_true(bq_turn_try(d, f->now));
    bq_turn_leave(d, false);
    assert_true(bq_turn_try(a, f->now));
    bq_turn_leave(a, false);
    assert_true(bq_turn_try(c, f->now));
}

static void who_waits_is_woken(void **state)
{
    fixture *f = *state;
    sq_turn *a = &f->turns[0], *b = &f->turns[1];
    assert_true(bq_turn_try(a, f->now));
    assert_false(bq_turn_try(b, f->now));
    drain_all(f);
    assert_true(quiet(b));
    bq_turn_leave(a, false);
    assert_true(woken(b));
    assert_true(bq_turn_drain(b, f->now));
    assert_false(bq_turn_drain(b, f->now));
    assert_true(bq_turn_try(b, f->now));
    /* Nobody waits: leaving says nothing. News do. */
    drain_all(f);
    bq_turn_leave(b, false);
    assert_true(quiet(a));
    assert_true(bq_turn_try(b, f->now));
    bq_turn_leave(b, true);
    assert_true(woken(a));
}

static void closing_is_leaving(void **state)
{
    fixture *f = *state;
    sq_turn *a = &f->turns[0], *b = &f->turns[1], *c = &f->turns[2];
    assert_true(bq_turn_try(a, f->now));
    assert_false(bq_turn_try(b, f->now));
    assert_false(bq_turn_try(c, f->now));
    drain_all(f);
    bq_turn_close(a);
    assert_true(woken(b));
    bq_turn_close(b); /* while it waits */
    assert_true(bq_turn_try(c, f->now));
}

/* The kernel ends the turn of a process that is killed, and wakes the next. */
static void death_is_leaving(void **state)
{
    fixture *f = *state;
    sq_turn *a = &f->turns[0];
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        sq_turn own, waiting;
        bool fine = bq_turn_open(&own, f->database) == BQ_OK && bq_turn_open(&waiting, f->database) == BQ_OK &&
                    bq_turn_try(&own, f->now) && !bq_turn_try(&waiting, f->now);
        if (write(ready[1], fine ? "y" : "n", 1) == 1)
            for (;;)
                (void)pause();
        _exit(1);
    }
    char answer = 0;
    assert_int_equal(read(ready[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    assert_false(bq_turn_try(a, f->now));
    drain_all(f);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(woken(a));
    assert_true(bq_turn_try(a, f->now));
    close(ready[0]);
    close(ready[1]);
}

/* A stopped process in the queue, or with the turn, is skipped after a while, once for all. */
static void standing_still_is_skipped(void **state)
{
    fixture *f = *state;
    sq_turn *stopped = &f->turns[0], *a = &f->turns[1], *b = &f->turns[2], *c = &f->turns[3];
    assert_true(bq_turn_try(c, f->now));
    assert_false(bq_turn_try(stopped, f->now));
    assert_false(bq_turn_try(a, f->now));
    assert_false(bq_turn_try(b, f->now));
    bq_turn_leave(c, false);
    drain_all(f);
    f->now += TURN_PATIENCE_MS - 1;
    assert_false(bq_turn_try(a, f->now));
    f->now += 2;
    assert_true(bq_turn_try(a, f->now));
    bq_turn_leave(a, false);
    assert_false(bq_turn_try(a, f->now)); /* behind b still */
    assert_true(bq_turn_try(b, f->now) || bq_turn_try(b, f->now + TURN_PATIENCE_MS + 1));
    bq_turn_leave(b, false);
    assert_true(bq_turn_try(a, f->now)); /* and no patience is asked for again */
    bq_turn_leave(a, false);
    /* It wakes up: its turn, then everything is as before. */
    assert_true(bq_turn_try(stopped, f->now));
    assert_false(bq_turn_try(a, f->now));
    f->now += TURN_PATIENCE_MS + 1;
    assert_true(bq_turn_try(a, f->now)); /* the holder stands still: SQLite's lock decides */
    bq_turn_leave(a, false);
    assert_true(bq_turn_try(a, f->now));
    bq_turn_leave(a, false);
    bq_turn_leave(stopped, false);
    assert_true(bq_turn_try(a, f->now));
    assert_false(a->holder_skipped);
    assert_false(bq_turn_try(b, f->now));
}

static void moving_on_renews_patience(void **state)
{
    fixture *f = *state;
    sq_turn *a = &f->turns[0], *b = &f->turns[1], *c = &f->turns[2];
    assert_true(bq_turn_try(a, f->now));
    assert_false(bq_turn_try(b, f->now));
    assert_false(bq_turn_try(c, f->now));
    f->now += TURN_PATIENCE_MS - 10;
    bq_turn_leave(a, false);
    assert_true(bq_turn_try(b, f->now));
    assert_true(bq_turn_drain(c, f->now));
    f->now += 20;
    assert_false(bq_turn_try(c, f->now)); /* the queue has moved just now */
}

static void removed_and_made_again(void **state)
{
    fixture *f = *state;
    sq_turn *a = &f->turns[0], *b = &f->turns[1];
    struct stat st;
    assert_int_equal(unlink(f->side), 0);
    assert_true(bq_turn_try(a, f->now));
    bq_turn_leave(a, true); /* finds out by itself */
    assert_int_equal(stat(f->side, &st), 0);
    (void)bq_turn_drain(b, f->now); /* is told */
    assert_true(bq_turn_try(a, f->now));
    assert_false(bq_turn_try(b, f->now));
    drain_all(f);
    bq_turn_leave(a, false);
    assert_true(woken(b));
}

static void works_without_a_file(void **state)
{
    fixture *f = *state;
    sq_turn a, b;
    char nowhere[600];
    (void)snprintf(nowhere, sizeof(nowhere), "%s/missing/x.db", scratch_home());
    (void)f;
    assert_int_equal(bq_turn_open(&a, nowhere), BQ_OK);
    assert_int_equal(bq_turn_open(&b, nowhere), BQ_OK);
    assert_int_equal(a.fd, -1);
    assert_true(bq_turn_try(&a, 0));
    assert_true(bq_turn_try(&b, 0));
    bq_turn_leave(&a, true);
    assert_false(bq_turn_drain(&a, 0));
    bq_turn_close(&a);
    bq_turn_close(&b);
}

static void permissions_are_those_of_the_database(void **state)
{
    (void)state;
    sq_turn turn;
    char database[512], side[520];
    struct stat st;
    (void)snprintf(database, sizeof(database), "%s", scratch_new());
    (void)snprintf(side, sizeof(side), "%s-turn", database);
    int fd = open(database, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0662), 0);
    close(fd);
    assert_int_equal(bq_turn_open(&turn, database), BQ_OK);
    assert_int_equal(stat(side, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0662);
    assert_int_equal(st.st_size, 0);
    bq_turn_close(&turn);
}

int main(void)
{
#define TURN_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TURN_TEST(first_come_first_served),
        TURN_TEST(who_waits_is_woken),
        TURN_TEST(closing_is_leaving),
        TURN_TEST(death_is_leaving),
        TURN_TEST(standing_still_is_skipped),
        TURN_TEST(moving_on_renews_patience),
        TURN_TEST(removed_and_made_again),
        TURN_TEST(works_without_a_file),
        TURN_TEST(permissions_are_those_of_the_database),
    };
    return cmocka_run_group_tests_name("sqlite turns", tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* no open-file-description locks here: there are no turns to test */
}

#endif
