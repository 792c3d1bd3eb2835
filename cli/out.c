/*
 * out.c - the two streams: a buffer before stdout, whole messages on stderr, a line of progress on terminals.
 *
 * One lock guards all of it, so that lines of different threads never mix.
 */
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

#define FLUSH_AT (64 * 1024)
#define PROGRESS_AFTER_MS 1000
#define PROGRESS_EVERY_MS 200

static struct {
    pthread_mutex_t lock;
    bq_buf buf;
    bool closed;   /* the reader of stdout has gone */
    int failure;   /* errno of a failed write */
    bool reported; /* the failure has been told */
    bool line_buffered;
    bool quiet;
    int verbose;
    bool color_out, color_err;
    bool terminal_out, terminal_err;
    bool progress_shown;
    int64_t started_ms, progress_ms;
} out = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static bool colored(int choice, int fd)
{
    if (choice != CLI_COLOR_AUTO)
        return choice == CLI_COLOR_ALWAYS;
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && (!none || !*none) && term && strcmp(term, "dumb") != 0;
}

void out_setup(const cli_common *common)
{
    out.quiet = common->quiet;
    out.verbose = common->verbose;
    out.color_out = colored(common->color, STDOUT_FILENO);
    out.color_err = colored(common->color, STDERR_FILENO);
    out.terminal_out = isatty(STDOUT_FILENO);
    out.terminal_err = isatty(STDERR_FILENO);
    out.line_buffered = out.terminal_out;
    out.started_ms = now_ms();
}

/* ---- stdout -------------------------------------------------------------------------------------------------------- */

static bool writable(void)
{
    return !out.closed && !out.failure;
}

/* All of it, also to a descriptor that somebody else has made non-blocking. 0, or the errno. */
static int write_all(int fd, const char *bytes, size_t len)
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

/* A failure is ignored: nobody is left to be told. */
static void write_stderr(const char *bytes, size_t len)
{
    (void)write_all(STDERR_FILENO, bytes, len);
}

static void clear_progress_locked(void)
{
    if (out.progress_shown)
        write_stderr("\r\033[K", 4);
    out.progress_shown = false;
}

static bool flush_locked(void)
{
    if (out.buf.len > 0 && writable()) {
        if (out.terminal_out)
            clear_progress_locked(); /* both are the same screen */
        int rc = write_all(STDOUT_FILENO, out.buf.ptr, out.buf.len);
        if (rc == EPIPE)
            out.closed = true;
        else
            out.failure = rc;
    }
    bq_buf_reset(&out.buf);
    return writable();
}

static bool put_locked(bq_str bytes)
{
    if (bq_buf_add(&out.buf, bytes.ptr, bytes.len) != BQ_OK)
        out.failure = ENOMEM;
    return writable();
}

static bool put_and_flush(bq_str bytes, bool line, bool now)
{
    pthread_mutex_lock(&out.lock);
    bool ok = put_locked(bytes) && (!line || put_locked(BQ_STR("\n")));
    if (now || out.buf.len >= FLUSH_AT || (line && out.line_buffered))
        ok = flush_locked();
    pthread_mutex_unlock(&out.lock);
    return ok;
}

bool out_put(bq_str bytes)
{
    return put_and_flush(bytes, false, false);
}

bool out_line(bq_str line)
{
    return put_and_flush(line, true, false);
}

bool out_line_now(bq_str line)
{
    return put_and_flush(line, true, true);
}

bool out_text(const char *text)
{
    return out_put(bq_str_of(text));
}

bool out_printf(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return false;
    bool ok = out_put((bq_str){text, (size_t)n});
    free(text);
    return ok;
}

bool out_flush(void)
{
    pthread_mutex_lock(&out.lock);
    bool ok = flush_locked();
    pthread_mutex_unlock(&out.lock);
    return ok;
}

bool out_ok(void)
{
    pthread_mutex_lock(&out.lock);
    bool ok = writable();
    pthread_mutex_unlock(&out.lock);
    return ok;
}

int out_end(int status)
{
    out_progress_end();
    pthread_mutex_lock(&out.lock);
    flush_locked();
    int failure = out.reported ? 0 : out.failure;
    bool lost = out.failure != 0;
    out.reported = true;
    bq_buf_clear(&out.buf);
    pthread_mutex_unlock(&out.lock);
    if (failure)
        out_error("cannot write to standard output: %s", strerror(failure));
    return lost && (status == CLI_DONE || status == CLI_PARTLY) ? CLI_IO : status;
}

bool out_is_terminal(void)
{
    return out.terminal_out;
}

const char *out_bold(void)
{
    return out.color_out ? "\033[1m" : "";
}

const char *out_plain(void)
{
    return out.color_out ? "\033[0m" : "";
}

/* ---- stderr -------------------------------------------------------------------------------------------------------- */

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
    if (out.color_err && color)
        n = snprintf(line, sizeof(line), "%s%s%s%s\n", color, label, "\033[0m", text);
    else
        n = snprintf(line, sizeof(line), "%s%s\n", label, text);
    pthread_mutex_lock(&out.lock);
    clear_progress_locked();
    if (n > 0)
        write_stderr(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
    pthread_mutex_unlock(&out.lock);
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
    if (!out.quiet)
        say("bq: warning: ", YELLOW, format, args);
    va_end(args);
}

void out_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!out.quiet)
        say("bq: ", NULL, format, args);
    va_end(args);
}

void out_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (out.verbose > 0 && !out.quiet)
        say("bq: ", NULL, format, args);
    va_end(args);
}

void out_hint(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!out.quiet)
        say("hint: try ", CYAN, format, args);
    va_end(args);
}

int out_failure(const char *what, const bq_error *err)
{
    const char *text = err->text[0] ? err->text : bq_status_text(err->status);
    if (what)
        out_error("%s: %s", what, text);
    else
        out_error("%s", text);
    int status = bq_status_exit(err->status);
    return status ? status : CLI_TEMPORARY;
}

void out_stderr(const void *bytes, size_t len)
{
    pthread_mutex_lock(&out.lock);
    clear_progress_locked();
    write_stderr(bytes, len);
    pthread_mutex_unlock(&out.lock);
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
    bq_log_level level = out.quiet ? BQ_LOG_ERROR : BQ_LOG_WARN;
    if (!out.quiet && out.verbose > 0)
        level = out.verbose > 1 ? BQ_LOG_DEBUG : BQ_LOG_INFO;
    return (bq_logger){log_line, NULL, level};
}

/* ---- progress ------------------------------------------------------------------------------------------------------ */

bool out_progress_due(void)
{
    if (!out.terminal_err || out.quiet)
        return false;
    int64_t now = now_ms();
    pthread_mutex_lock(&out.lock);
    bool due = now - out.started_ms >= PROGRESS_AFTER_MS && now - out.progress_ms >= PROGRESS_EVERY_MS;
    if (due)
        out.progress_ms = now;
    pthread_mutex_unlock(&out.lock);
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
    pthread_mutex_lock(&out.lock);
    clear_progress_locked();
    write_stderr(text, strlen(text));
    out.progress_shown = true;
    pthread_mutex_unlock(&out.lock);
}

void out_progress_end(void)
{
    pthread_mutex_lock(&out.lock);
    clear_progress_locked();
    pthread_mutex_unlock(&out.lock);
}
