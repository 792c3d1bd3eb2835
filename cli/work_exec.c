/*
 * work_exec.c - `bq work --exec` and `--handle`: each message is given to a process of its own, which `sh -c` runs.
 *
 * stdin is an in-memory file that holds the data, so that a handler which does not read it blocks nobody. stderr passes
 * through, and its last line is kept: it says what went wrong. The handler thread waits here for the end of the process
 * and for what it writes; it looks four times a second whether it should give up.
 */
#include "environment.h"
#include "out.h"
#include "process.h"
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 250
#define GRACE_MS 3000          /* between SIGTERM and SIGKILL, for one that is too slow */
#define CANCELLED_GRACE_MS 500 /* ... and when the run ends: less than the consumer waits for its handlers */
#define LAST_LINE_MAX 1024
#define EXIT_REJECTED 65
#define EXIT_CANNOT_EXECUTE 126 /* what the shell says of a command that is there, but no program */
#define EXIT_NOT_FOUND 127

/* The last line of stderr that is not blank, cut at 1 KiB. */
typedef struct last_line {
    char text[LAST_LINE_MAX];
    size_t len;
    char now[LAST_LINE_MAX]; /* the line under way */
    size_t now_len;
} last_line;

typedef struct run {
    bq_delivery *delivery;
    exec_handler *handler;
    spawned child;
    int stderr_fd;
    last_line line;
    int64_t deadline_ms; /* 0: none */
    int64_t kill_ms;     /* when SIGKILL follows SIGTERM; 0: not signalled yet */
    bool timed_out, cancelled;
} run;

/* ---- the last line ---------------------------------------------------------------------------------------------------- */

static void end_line(last_line *line)
{
    if (!bq_str_blank((bq_str){line->now, line->now_len})) {
        memcpy(line->text, line->now, line->now_len);
        line->len = line->now_len;
    }
    line->now_len = 0;
}

static void add_bytes(last_line *line, const char *bytes, size_t len)
{
    while (len > 0) {
        const char *feed = memchr(bytes, '\n', len);
        size_t n = feed ? (size_t)(feed - bytes) : len;
        size_t room = sizeof(line->now) - line->now_len, take = n < room ? n : room;
        memcpy(line->now + line->now_len, bytes, take);
        line->now_len += take;
        if (feed)
            end_line(line);
        n += feed ? 1 : 0;
        bytes += n;
        len -= n;
    }
}

/* Cut at a byte that may stand within a character: what is left of it goes. */
static bq_str line_text(last_line *line)
{
    end_line(line);
    size_t len = line->len;
    if (len == sizeof(line->text)) {
        size_t back = len;
        while (back > len - 4 && ((unsigned char)line->text[back - 1] & 0xc0) == 0x80)
            back--;
        unsigned char lead = (unsigned char)line->text[back - 1];
        size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
        if (need > len - back + 1)
            len = back - 1;
    }
    return bq_str_trim((bq_str){line->text, len});
}

/* ---- the process ------------------------------------------------------------------------------------------------------ */

/* Passes on what is there. False at the end of the stream. */
static bool pump(run *r)
{
    char bytes[4096];
    for (;;) {
        ssize_t n = read(r->stderr_fd, bytes, sizeof(bytes));
        if (n > 0) {
            out_stderr(bytes, (size_t)n);
            add_bytes(&r->line, bytes, (size_t)n);
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            return n < 0 && errno == EAGAIN;
        }
    }
}

static void check_patience(run *r)
{
    int64_t now = monotonic_ms();
    if (r->kill_ms) {
        if (now >= r->kill_ms)
            spawn_signal(&r->child, SIGKILL);
        return;
    }
    r->timed_out = r->deadline_ms && now >= r->deadline_ms;
    r->cancelled = !r->timed_out && bq_delivery_cancelled(r->delivery);
    if (r->timed_out || r->cancelled) {
        spawn_signal(&r->child, SIGTERM);
        r->kill_ms = now + (r->cancelled ? CANCELLED_GRACE_MS : GRACE_MS);
    }
}

static int next_timeout(const run *r)
{
    int64_t at = r->kill_ms ? r->kill_ms : r->deadline_ms, now = monotonic_ms();
    int64_t tick = r->child.fd >= 0 ? TICK_MS : 10;
    if (at && at - now < tick)
        tick = at > now ? at - now : r->kill_ms ? 10 : 0;
    return (int)tick;
}

/* Waits for the end of the command; its waitpid status. What it left running in its group goes on, unless the group
 * was told to end. */
static int wait_for_end(run *r)
{
    bool open = true;
    while (!spawn_ended(&r->child)) {
        struct pollfd fds[2] = {{open ? r->stderr_fd : -1, POLLIN, 0}, {r->child.fd, POLLIN, 0}};
        poll(fds, 2, next_timeout(r));
        if (fds[0].revents)
            open = pump(r);
        check_patience(r);
    }
    if (open)
        pump(r);
    if (r->kill_ms)
        spawn_signal(&r->child, SIGKILL);
    return spawn_collect(&r->child);
}

static int start(run *r, const environment *env)
{
    int data_fd = memory_file("data", bq_delivery_data(r->delivery));
    int envelope_fd = memory_file("envelope", bq_delivery_body(r->delivery));
    int errors[2] = {-1, -1};
    int rc = data_fd < 0 || envelope_fd < 0 || pipe2(errors, O_CLOEXEC) != 0 ? errno : 0;
    if (!rc && fcntl(errors[0], F_SETFL, O_NONBLOCK) != 0)
        rc = errno;
    if (!rc) {
        spawn_spec spec = {r->handler->command, env->variables, data_fd, -1, errors[1], envelope_fd};
        rc = spawn_start(&spec, &r->child);
    }
    if (data_fd >= 0)
        close(data_fd);
    if (envelope_fd >= 0)
        close(envelope_fd);
    if (errors[1] >= 0)
        close(errors[1]);
    if (rc && errors[0] >= 0)
        close(errors[0]);
    r->stderr_fd = rc ? -1 : errors[0];
    return rc;
}

/* ---- the outcome ------------------------------------------------------------------------------------------------------ */

/* A misspelt command must not fail the queue's messages one by one. */
static bq_outcome cannot_run(exec_handler *handler, const char *what)
{
    if (!atomic_exchange(&handler->broken, true)) {
        out_error("cannot run the handler '%.200s' (%s): the messages are given back", handler->command, what);
        work_stop();
    }
    return BQ_RELEASED;
}

static bq_outcome judge(run *r, int status)
{
    char what[48];
    bq_str line = line_text(&r->line);
    if (r->cancelled)
        return BQ_RELEASED;
    if (r->timed_out) {
        char late[80];
        snprintf(late, sizeof(late), "no end after %lld ms", (long long)r->handler->timeout_ms);
        bq_delivery_set_error(r->delivery, BQ_STR(WORK_TIMEOUT_NAME), line.len ? line : bq_str_of(late));
        return BQ_FAILED;
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 0 || code == EXIT_REJECTED)
        atomic_store(&r->handler->succeeded, true);
    if (code == 0)
        return BQ_DONE;
    spawn_describe(status, what, sizeof(what));
    if ((code == EXIT_CANNOT_EXECUTE || code == EXIT_NOT_FOUND) && !atomic_load(&r->handler->succeeded))
        return cannot_run(r->handler, what);
    bq_delivery_set_error(r->delivery, bq_str_of(what), line.len ? line : BQ_STR_NULL);
    return code == EXIT_REJECTED ? BQ_REJECTED : BQ_FAILED;
}

/* No process could be started: that is the machine's fault, not the message's. It goes back, after a pause, so that this
 * does not become a hot loop. */
static bq_outcome not_started(exec_handler *handler, bq_delivery *delivery, int rc)
{
    atomic_store(&handler->unstarted, true);
    out_error("cannot start a handler: %s", strerror(rc));
    for (int i = 0; i < 4 && !bq_delivery_cancelled(delivery); i++)
        poll(NULL, 0, TICK_MS);
    return BQ_RELEASED;
}

bq_outcome work_exec(bq_delivery *delivery, void *arg)
{
    run r = {.delivery = delivery, .handler = arg, .stderr_fd = -1, .child = {0, -1}};
    environment env;
    if (atomic_load(&r.handler->broken))
        return BQ_RELEASED;
    if (!environment_make(&env, delivery))
        return not_started(r.handler, delivery, ENOMEM);
    int rc = start(&r, &env);
    environment_free(&env);
    if (rc == E2BIG) {
        bq_delivery_set_error(delivery, BQ_STR("E2BIG"), BQ_STR("the headers do not fit into an environment"));
        return BQ_FAILED;
    }
    if (rc)
        return not_started(r.handler, delivery, rc);
    if (r.handler->timeout_ms > 0)
        r.deadline_ms = monotonic_ms() + r.handler->timeout_ms;
    int status = wait_for_end(&r);
    close(r.stderr_fd);
    return judge(&r, status);
}
