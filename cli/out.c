/*
 * out.c - stdout: a buffer, written when it is full, when a line must be seen, and at the end. stderr is in err.c.
 *
 * Each stream has a lock of its own: who waits for a slow reader of stdout must not keep others from saying something.
 */
#include "out.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_AT (64 * 1024)

static struct {
    pthread_mutex_t lock;
    bq_buf buf;
    bool closed;   /* the reader of stdout has gone */
    int failure;   /* errno of a failed write */
    bool reported; /* the failure has been told */
    bool line_buffered;
    bool color;
    bool terminal;
} out = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool colored(int choice, int fd)
{
    if (choice != CLI_COLOR_AUTO)
        return choice == CLI_COLOR_ALWAYS;
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && (!none || !*none) && term && strcmp(term, "dumb") != 0;
}

void out_setup(const cli_common *common)
{
    err_setup(common, colored(common->color, STDERR_FILENO));
    out.color = colored(common->color, STDOUT_FILENO);
    out.terminal = isatty(STDOUT_FILENO);
    out.line_buffered = out.terminal;
}

/* ---- stdout -------------------------------------------------------------------------------------------------------- */

static bool writable(void)
{
    return !out.closed && !out.failure;
}

static bool flush_locked(void)
{
    if (out.buf.len > 0 && writable()) {
        if (out.terminal)
            out_progress_end(); /* both are the same screen */
        int rc = out_write_all(STDOUT_FILENO, out.buf.ptr, out.buf.len);
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
    return out.terminal;
}

const char *out_bold(void)
{
    return out.color ? "\033[1m" : "";
}

const char *out_plain(void)
{
    return out.color ? "\033[0m" : "";
}
