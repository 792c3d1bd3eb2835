/*
 * coprocess.c - one long-lived handler process of `bq work --handle-stdio`.
 *
 * Messages are lines in its stdin, answers lines from its stdout, in any order; see protocol.h. Both pipes are
 * non-blocking and worked in large pieces. A process that ends, that answers anything but a message it holds, or that
 * is too slow for one, fails everything it holds and is started again, after a pause that doubles up to ten seconds and
 * is short again once it has answered something. Messages of which it never got a byte are not its fault: they go to
 * another one.
 */
#include "coprocess.h"
#include "environment.h"
#include "out.h"
#include "protocol.h"
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 10000
#define ANSWER_MAX ((size_t)16 * 1024 * 1024)
#define PIPE_SIZE (1024 * 1024)
#define FINISH_MS 5000        /* to end by itself once its stdin is closed */
#define GRACE_MS 2000         /* between SIGTERM and SIGKILL */
#define RELEASED_GRACE_MS 500 /* ... when it holds what was given back */
#define CLOSED_MS 2000        /* to end by itself once it has closed its stdin */

bool coprocess_init(coprocess *c, size_t number, const char *command, int64_t timeout_ms,
                    const coprocess_events *events)
{
    *c = (coprocess){.number = number,
                     .command = command,
                     .timeout_ms = timeout_ms,
                     .events = events,
                     .child = {0, -1},
                     .in_fd = -1,
                     .next_n = 1,
                     .backoff_ms = BACKOFF_MIN_MS};
    reader_init(&c->answers, -1, ANSWER_MAX);
    bq_json_init(&c->doc);
    bq_buf_init(&c->out, 0);
    return inflight_init(&c->jobs);
}

void coprocess_clear(coprocess *c)
{
    inflight_clear(&c->jobs);
    bq_buf_clear(&c->out);
    bq_json_clear(&c->doc);
    reader_clear(&c->answers);
}

/* ---- start ------------------------------------------------------------------------------------------------------------ */

static int make_pipe(int fds[2], bool ours_writes)
{
    if (pipe2(fds, O_CLOEXEC) != 0)
        return errno;
    int ours = fds[ours_writes ? 1 : 0];
    /* Larger where it may be: fewer and larger pieces. */
    (void)fcntl(ours, F_SETPIPE_SZ, PIPE_SIZE);
    return fcntl(ours, F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int start(coprocess *c)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    int rc = make_pipe(in, true);
    if (!rc)
        rc = make_pipe(out, false);
    if (!rc) {
        spawn_spec spec = {c->command, environment_inherited(), in[0], out[1], -1, -1};
        rc = spawn_start(&spec, &c->child);
    }
    close_if_open(in[0]);
    close_if_open(out[1]);
    if (rc) {
        close_if_open(in[1]);
        close_if_open(out[0]);
        return rc;
    }
    c->in_fd = in[1];
    reader_clear(&c->answers);
    reader_init(&c->answers, out[0], ANSWER_MAX);
    return 0;
}

static void start_later(coprocess *c)
{
    if (c->answered > 0)
        c->backoff_ms = BACKOFF_MIN_MS;
    c->state = COPROCESS_DOWN;
    c->start_ms = monotonic_ms() + c->backoff_ms;
    c->backoff_ms = c->backoff_ms * 2 < BACKOFF_MAX_MS ? c->backoff_ms * 2 : BACKOFF_MAX_MS;
}

void coprocess_start_due(coprocess *c, int64_t now_ms)
{
    if (c->state != COPROCESS_DOWN || now_ms < c->start_ms)
        return;
    int rc = start(c);
    c->answered = 0;
    if (rc) {
        out_error("cannot start coprocess %zu: %s", c->number, strerror(rc));
        start_later(c);
        return;
    }
    c->starts++;
    c->state = COPROCESS_RUNNING;
    bq_buf_reset(&c->out);
    c->out_done = 0;
    c->written = 0;
    out_info("coprocess %zu started (pid %d)", c->number, (int)c->child.pid);
}

/* ---- end -------------------------------------------------------------------------------------------------------------- */

static void settle(coprocess *c, inflight_job *job, bq_outcome outcome)
{
    bq_delivery *delivery = job->delivery;
    inflight_remove(&c->jobs, job);
    bq_delivery_settle(delivery, outcome);
}

/* Everything that it holds has failed; what it never saw goes back. */
static void fail_all(coprocess *c, bq_str exception, bq_str error)
{
    while (c->jobs.oldest) {
        inflight_job *job = c->jobs.oldest;
        if (job->begins >= c->written) {
            bq_delivery *delivery = job->delivery;
            inflight_remove(&c->jobs, job);
            c->events->give_back(delivery, c->events->arg);
            continue;
        }
        bq_delivery_set_error(job->delivery, exception, error);
        settle(c, job, BQ_FAILED);
    }
}

static void close_pipes(coprocess *c)
{
    close_if_open(c->in_fd);
    close_if_open(c->answers.fd);
    c->in_fd = -1;
    c->answers.fd = -1;
}

/* The process is gone or told to go: its group is ended, what it held fails as `exception` and `error` say. */
static void end(coprocess *c, const char *exception, const char *error)
{
    char what[48];
    bool ended = spawn_ended(&c->child);
    close_pipes(c);
    spawn_signal(&c->child, SIGKILL);
    int status = spawn_collect(&c->child);
    spawn_describe(status, what, sizeof(what));
    bool cannot_run = ended && WIFEXITED(status) && (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127);
    if (cannot_run && c->starts == 1 && c->answered == 0 && !exception) {
        /* A misspelt command must not fail the queue's messages one by one. */
        out_error("cannot run the coprocess '%s' (%s)", c->command, what);
        c->written = 0;
        fail_all(c, BQ_STR_NULL, BQ_STR_NULL);
        c->state = COPROCESS_BROKEN;
        return;
    }
    if (!c->quiet)
        out_warn("coprocess %zu %s%s%s; it held %zu messages", c->number,
                 exception ? "was ended: " : "ended: ", exception ? error : what,
                 c->backoff_ms > BACKOFF_MIN_MS ? ", again" : "", c->jobs.count);
    fail_all(c, bq_str_of(exception ? exception : what),
             bq_str_of(exception ? error : "the coprocess ended before it answered"));
    start_later(c);
}

static void end_for_garbage(coprocess *c, bq_str line, const char *why)
{
    char error[256];
    snprintf(error, sizeof(error), "bad answer, %s: %.*s%s", why, (int)(line.len < 100 ? line.len : 100),
             line.ptr ? line.ptr : "", line.len > 100 ? "..." : "");
    end(c, "CoprocessError", error);
}

/* ---- messages out ----------------------------------------------------------------------------------------------------- */

bool coprocess_give(coprocess *c, bq_delivery *delivery)
{
    /* What was written makes room before the buffer grows. */
    if (c->out_done > 0 && c->out_done == c->out.len) {
        bq_buf_reset(&c->out);
        c->out_done = 0;
    }
    size_t before = c->out.len;
    inflight_job *job = inflight_add(&c->jobs, c->next_n);
    if (!job)
        return false;
    job->delivery = delivery;
    job->begins = c->written + (before - c->out_done);
    job->deadline_ms = c->timeout_ms > 0 ? monotonic_ms() + c->timeout_ms : 0;
    protocol_add_message(&c->out, c->next_n, delivery);
    c->next_n++;
    if (!c->out.failed)
        return true;
    /* The buffer is as it was before the piece that did not fit: what stands there of this line is taken back. */
    c->out.failed = false;
    c->out.len = before;
    inflight_remove(&c->jobs, job);
    return false;
}

void coprocess_deaf(coprocess *c)
{
    if (c->state != COPROCESS_RUNNING || c->in_fd < 0)
        return;
    bq_buf_reset(&c->out);
    c->out_done = 0;
    close_if_open(c->in_fd);
    c->in_fd = -1;
    c->closed_ms = monotonic_ms() + CLOSED_MS;
}

void coprocess_write(coprocess *c)
{
    while (c->state == COPROCESS_RUNNING && c->in_fd >= 0 && c->out_done < c->out.len) {
        ssize_t n = write(c->in_fd, c->out.ptr + c->out_done, c->out.len - c->out_done);
        if (n > 0) {
            c->out_done += (size_t)n;
            c->written += (uint64_t)n;
        } else if (n < 0 && errno == EPIPE) {
            coprocess_deaf(c);
        } else if (n < 0 && errno != EINTR) {
            return;
        }
    }
}

/* ---- answers in ------------------------------------------------------------------------------------------------------- */

/* False when the process was ended for it. */
static bool take_answer(coprocess *c, bq_str line)
{
    protocol_answer answer;
    const char *why = "";
    if (bq_str_blank(line))
        return true;
    if (!protocol_read_answer(&c->doc, line, &answer, &why)) {
        end_for_garbage(c, line, why);
        return false;
    }
    inflight_job *job = inflight_find(&c->jobs, answer.n);
    if (!job || job->begins >= c->written) {
        if (c->quiet)
            return true; /* given back already */
        end_for_garbage(c, line, "no message with this number is in its hands");
        return false;
    }
    c->answered++;
    if (answer.outcome != BQ_DONE)
        bq_delivery_set_error(job->delivery, answer.exception, answer.error);
    if (answer.retry_after_ms >= 0)
        bq_delivery_set_retry_after(job->delivery, answer.retry_after_ms);
    if (answer.result.ptr)
        bq_delivery_set_result(job->delivery, answer.result);
    settle(c, job, answer.outcome);
    return true;
}

void coprocess_read(coprocess *c)
{
    while (c->state == COPROCESS_RUNNING) {
        reader_state state = reader_fill(&c->answers);
        bq_str line;
        while (c->state == COPROCESS_RUNNING && reader_next(&c->answers, &line))
            if (!take_answer(c, line))
                return;
        if (state == READER_TOO_LONG) {
            end_for_garbage(c, BQ_STR_NULL, "a line of more than 16 MiB");
            return;
        }
        /* The end of its stdout is its end, and so is the end of the process when somebody else holds its stdout. */
        if (state == READER_EOF || state == READER_FAILED || (state == READER_WAIT && spawn_ended(&c->child))) {
            if (state != READER_WAIT)
                spawn_wait(&c->child, 100); /* so that its own exit status is told */
            end(c, NULL, NULL);
            return;
        }
        if (state == READER_WAIT || reader_rest(&c->answers) == 0)
            return; /* what comes later wakes the loop */
    }
}

/* ---- time ------------------------------------------------------------------------------------------------------------- */

void coprocess_check(coprocess *c, int64_t now_ms)
{
    const inflight_job *oldest = c->jobs.oldest;
    char error[80];
    if (c->state == COPROCESS_RUNNING && c->in_fd < 0 && now_ms >= c->closed_ms)
        end(c, "CoprocessError", "it closed its stdin and did not end");
    if (c->state != COPROCESS_RUNNING || !oldest || !oldest->deadline_ms || now_ms < oldest->deadline_ms)
        return;
    snprintf(error, sizeof(error), "no answer after %lld ms", (long long)c->timeout_ms);
    end(c, WORK_TIMEOUT_NAME, error);
}

void coprocess_release(coprocess *c, bool all)
{
    inflight_job *next;
    for (inflight_job *job = c->jobs.oldest; job; job = next) {
        next = job->newer;
        if (!all && !bq_delivery_cancelled(job->delivery))
            continue;
        c->released = true;
        settle(c, job, BQ_RELEASED);
    }
}

int64_t coprocess_next(const coprocess *c, int64_t until_ms)
{
    int64_t due = INT64_MAX;
    if (c->state == COPROCESS_DOWN)
        due = c->start_ms;
    else if (c->state == COPROCESS_RUNNING && c->in_fd < 0)
        due = c->closed_ms;
    else if (c->state == COPROCESS_RUNNING && c->jobs.oldest && c->jobs.oldest->deadline_ms)
        due = c->jobs.oldest->deadline_ms;
    return due < until_ms ? due : until_ms;
}

void coprocess_finish(coprocess *c)
{
    if (c->state != COPROCESS_RUNNING)
        return;
    close_if_open(c->in_fd);
    c->in_fd = -1;
    /* Its stdout stays open meanwhile, so that a late word of it is no error there. */
    if (!spawn_wait(&c->child, c->released ? 0 : FINISH_MS) && !c->released)
        out_warn("coprocess %zu did not end when its input ended", c->number);
    spawn_end(&c->child, spawn_ended(&c->child) ? 0 : c->released ? RELEASED_GRACE_MS : GRACE_MS);
    close_pipes(c);
    c->state = COPROCESS_DOWN;
}
