/*
 * error.c - filling a bq_error without allocating. Text is formatted into a local array first, so that arguments may
 * point into the error itself, and then made into one clean line (base/utf8.h).
 */
#include "base/error.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RAW_SIZE 1024

static unsigned usual_flags(bq_status status)
{
    switch (status) {
    case BQ_UNAVAILABLE:
    case BQ_NOMEM:
    case BQ_TIMEOUT:
    case BQ_BUSY: return BQ_ERROR_RETRYABLE;
    case BQ_UNKNOWN: return BQ_ERROR_MAYBE_DONE;
    default: return 0;
    }
}

/* Length in raw, with whether something is missing. */
static size_t format_raw(char raw[RAW_SIZE], size_t at, bool *cut, const char *format, va_list args)
{
    int n = vsnprintf(raw + at, RAW_SIZE - at, format, args);
    if (n < 0) {
        raw[at] = '\0';
        return at;
    }
    if ((size_t)n >= RAW_SIZE - at) {
        *cut = true;
        return RAW_SIZE - 1;
    }
    return at + (size_t)n;
}

static size_t append_raw(char raw[RAW_SIZE], size_t at, bool *cut, const char *text)
{
    size_t len = strlen(text), room = RAW_SIZE - 1 - at;
    if (len > room) {
        len = room;
        *cut = true;
    }
    memcpy(raw + at, text, len);
    return at + len;
}

static void set_text(bq_error *err, const char *raw, size_t len, bool cut)
{
    (void)bq_utf8_line(err->text, sizeof err->text, raw, len, cut);
}

bq_status bq_fail(bq_error *err, bq_status status, const char *format, ...)
{
    if (!err)
        return status;
    char raw[RAW_SIZE];
    bool cut = false;
    va_list args;
    va_start(args, format);
    size_t len = format_raw(raw, 0, &cut, format, args);
    va_end(args);
    err->status = status;
    err->flags = usual_flags(status);
    err->native = 0;
    set_text(err, raw, len, cut);
    return status;
}

bq_status bq_fail_flags(bq_error *err, bq_status status, unsigned flags, int64_t native, const char *format, ...)
{
    if (!err)
        return status;
    char raw[RAW_SIZE];
    bool cut = false;
    va_list args;
    va_start(args, format);
    size_t len = format_raw(raw, 0, &cut, format, args);
    va_end(args);
    err->status = status;
    err->flags = flags;
    err->native = native;
    set_text(err, raw, len, cut);
    return status;
}

bq_status bq_fail_errno(bq_error *err, bq_status status, int errnum, const char *format, ...)
{
    if (!err)
        return status;
    char raw[RAW_SIZE], reason[128];
    bool cut = false;
    va_list args;
    va_start(args, format);
    size_t len = format_raw(raw, 0, &cut, format, args);
    va_end(args);
    len = append_raw(raw, len, &cut, ": ");
    len = append_raw(raw, len, &cut, strerror_r(errnum, reason, sizeof reason));
    err->status = status;
    err->flags = usual_flags(status);
    err->native = errnum;
    set_text(err, raw, len, cut);
    return status;
}

bq_status bq_fail_nomem(bq_error *err)
{
    if (err) {
        static const char text[] = "out of memory";
        err->status = BQ_NOMEM;
        err->flags = usual_flags(BQ_NOMEM);
        err->native = 0;
        memcpy(err->text, text, sizeof text);
    }
    return BQ_NOMEM;
}

void bq_error_prefix(bq_error *err, const char *format, ...)
{
    if (!err)
        return;
    char raw[RAW_SIZE];
    bool cut = false;
    va_list args;
    va_start(args, format);
    size_t len = format_raw(raw, 0, &cut, format, args);
    va_end(args);
    len = append_raw(raw, len, &cut, ": ");
    len = append_raw(raw, len, &cut, err->text);
    set_text(err, raw, len, cut);
}

void bq_error_clear(bq_error *err)
{
    if (!err)
        return;
    err->status = BQ_OK;
    err->flags = 0;
    err->native = 0;
    err->text[0] = '\0';
}
