/*
 * err.c - stderr: whole messages, a line of progress on terminals, and, while a consumer runs, a thread that does the
 * writing.
 *
 * The library calls back from its I/O thread, which must never wait: a pager at the other end of a pipe would stop
 * heartbeats and leases. So between out_detach and out_attach messages are queued, up to a bound; beyond it they are
 * counted instead, and the count is told once there is room. Only handlers wait for room: their own output is not lost.
 */
#include "interrupt.h"
#include "out.h"
#include "utf8.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_AFTER_MS 1000
#define PROGRESS_EVERY_MS 200
#define QUEUE_MAX ((size_t)256 * 1024)
#define ATTACH_SECONDS 5 /* what is queued may take so long to be written in the end */

static struct {
    pthread_mutex_t lock;
    bool quiet;
    int verbose;
    bool color, terminal;
    bool progress_shown;
    int64_t started_ms, progress_ms;
    /* While detached. */
    pthread_cond_t more, room;
    pthread_t thread;
    bool detached, stop, ended;
    bq_buf waiting;
    unsigned long long lost;
} err = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .room = PTHREAD_COND_INITIALIZER};

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void err_setup(const cli_common *common, bool color)
{
    err.quiet = common->quiet;
    err.verbose = common->verbose;
    err.color = color;
    err.terminal = isatty(STDERR_FILENO);
    err.started_ms = now_ms();
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

int out_write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n >= 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            poll(&(struct pollfd){fd, POLLOUT, 0}, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static void tell_lost_locked(void)
{
    char note[96];
    int n = snprintf(note, sizeof(note), "bq: %llu messages were left out: nobody read them\n", err.lost);
    if (err.lost && err.waiting.len + (size_t)n <= QUEUE_MAX && bq_buf_add(&err.waiting, note, (size_t)n) == BQ_OK)
        err.lost = 0;
}

/* One piece; a failure to write is ignored, since nobody is left to be told. */
static void emit_locked(const char *bytes, size_t len, bool may_wait)
{
    if (!err.detached) {
        (void)out_write_all(STDERR_FILENO, bytes, len);
        return;
    }
    while (may_wait && err.waiting.len > 0 && err.waiting.len + len > QUEUE_MAX)
        pthread_cond_wait(&err.room, &err.lock);
    tell_lost_locked();
    if (err.lost || err.waiting.len + len > QUEUE_MAX || bq_buf_add(&err.waiting, bytes, len) != BQ_OK)
        err.lost++;
    pthread_cond_signal(&err.more);
}

static void clear_progress_locked(bool may_wait)
{
    if (err.progress_shown)
        emit_locked("\r\033[K", 4, may_wait);
    err.progress_shown = false;
}

/* ---- the writing thread ---------------------------------------------------------------------------------------------- */

static void *write_queued(void *arg)
{
    bq_buf mine = {0};
    (void)arg;
    pthread_mutex_lock(&err.lock);
    for (;;) {
        while (!err.stop && err.waiting.len == 0)
            pthread_cond_wait(&err.more, &err.lock);
        if (err.waiting.len == 0)
            break;
        bq_buf full = err.waiting;
        err.waiting = mine;
        mine = full;
        pthread_cond_broadcast(&err.room);
        pthread_mutex_unlock(&err.lock);
        (void)out_write_all(STDERR_FILENO, mine.ptr, mine.len);
        bq_buf_reset(&mine);
        pthread_mutex_lock(&err.lock);
        tell_lost_locked();
    }
    err.ended = true;
    pthread_cond_broadcast(&err.room);
    pthread_mutex_unlock(&err.lock);
    bq_buf_clear(&mine);
    return NULL;
}

void out_detach(void)
{
    interrupt_hold(true);
    err.stop = err.ended = false;
    /* Without a thread everything is written at once, as before. */
    err.detached = pthread_create(&err.thread, NULL, write_queued, NULL) == 0;
    interrupt_hold(false);
}

void out_attach(void)
{
    struct timespec until;
    if (!err.detached)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ATTACH_SECONDS;
    pthread_mutex_lock(&err.lock);
    err.stop = true;
    pthread_cond_signal(&err.more);
    int rc = 0;
    while (!err.ended && rc == 0)
        rc = pthread_cond_timedwait(&err.room, &err.lock, &until);
    bool ended = err.ended;
    if (ended)
        err.detached = false;
    pthread_mutex_unlock(&err.lock);
    if (!ended) {
        (void)pthread_detach(err.thread); /* it ends with the process */
        return;
    }
    (void)pthread_join(err.thread, NULL);
    bq_buf_clear(&err.waiting);
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

/* Texts may hold bytes of messages, and may have been cut anywhere: a control byte must not reach a terminal, and a log
 * is text. */
static void tame(char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence((const unsigned char *)text + i, len - i);
        if (n == 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
        i += n ? n : 1;
    }
}

static void say(const char *label, const char *color, const char *format, va_list args)
{
    char text[2048], line[2200];
    int n = vsnprintf(text, sizeof(text), format, args);
    if (n < 0)
        return;
    tame(text, strlen(text));
    if (err.color && color)
        n = snprintf(line, sizeof(line), "%s%s%s%s\n", color, label, "\033[0m", text);
    else
        n = snprintf(line, sizeof(line), "%s%s\n", label, text);
    if (n <= 0)
        return;
    pthread_mutex_lock(&err.lock);
    clear_progress_locked(false);
    emit_locked(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1, false);
    pthread_mutex_unlock(&err.lock);
}

#define RED "\033[1;31m"
#define YELLOW "\033[33m"
#define CYAN "\033[36m"

void out_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("bq: ", RED, format, args);
    va_end(args);
}

void out_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!err.quiet)
        say("bq: warning: ", YELLOW, format, args);
    va_end(args);
}

void out_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!err.quiet)
        say("bq: ", NULL, format, args);
    va_end(args);
}

void out_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (err.verbose > 0 && !err.quiet)
        say("bq: ", NULL, format, args);
    va_end(args);
}

void out_hint(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!err.quiet)
        say("hint: try ", CYAN, format, args);
    va_end(args);
}

int out_failure(const char *what, const bq_error *error)
{
    const char *text = error->text[0] ? error->text : bq_status_text(error->status);
    if (what)
        out_error("%s: %s", what, text);
    else
        out_error("%s", text);
    int status = bq_status_exit(error->status);
    return status ? status : CLI_TEMPORARY;
}

void out_stderr(const void *bytes, size_t len)
{
    pthread_mutex_lock(&err.lock);
    clear_progress_locked(true);
    emit_locked(bytes, len, true);
    pthread_mutex_unlock(&err.lock);
}

static void log_line(bq_log_level level, const char *line, void *arg)
{
    (void)arg;
    if (level == BQ_LOG_ERROR)
        out_error("%s", line);
    else if (level == BQ_LOG_WARN)
        out_warn("%s", line);
    else
        out_info("%s", line);
}

bq_logger out_logger(void)
{
    bq_log_level level = err.quiet ? BQ_LOG_ERROR : BQ_LOG_WARN;
    if (!err.quiet && err.verbose > 0)
        level = err.verbose > 1 ? BQ_LOG_DEBUG : BQ_LOG_INFO;
    return (bq_logger){log_line, NULL, level};
}

/* ---- progress -------------------------------------------------------------------------------------------------------- */

bool out_progress_due(void)
{
    if (!err.terminal || err.quiet)
        return false;
    int64_t now = now_ms();
    pthread_mutex_lock(&err.lock);
    bool due = now - err.started_ms >= PROGRESS_AFTER_MS && now - err.progress_ms >= PROGRESS_EVERY_MS;
    if (due)
        err.progress_ms = now;
    pthread_mutex_unlock(&err.lock);
    return due;
}

void out_progress(const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tame(text, strlen(text));
    pthread_mutex_lock(&err.lock);
    clear_progress_locked(false);
    emit_locked(text, strlen(text), false);
    err.progress_shown = true;
    pthread_mutex_unlock(&err.lock);
}

void out_progress_end(void)
{
    pthread_mutex_lock(&err.lock);
    clear_progress_locked(true);
    pthread_mutex_unlock(&err.lock);
}
