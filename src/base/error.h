/* base/error.h - filling a bq_error. Every function returns the status it was given, so that a fault is reported in
 * one `return`. `err` may be NULL. Nothing here allocates. */
#ifndef BQ_BASE_ERROR_H
#define BQ_BASE_ERROR_H

#include <babelqueue/types.h>

/* bq_fail gives the flags that go with the status (RETRYABLE: UNAVAILABLE, NOMEM, TIMEOUT, BUSY; MAYBE_DONE: UNKNOWN),
 * bq_fail_flags exactly the given ones. `format`'s arguments may point into `err` itself. */
bq_status bq_fail(bq_error *err, bq_status status, const char *format, ...) BQ_PRINTF(3, 4);
bq_status bq_fail_flags(bq_error *err, bq_status status, unsigned flags, int64_t native, const char *format, ...)
    BQ_PRINTF(5, 6);
/* "<what>: <strerror>", native = errno value. */
bq_status bq_fail_errno(bq_error *err, bq_status status, int errnum, const char *format, ...) BQ_PRINTF(4, 5);
bq_status bq_fail_nomem(bq_error *err);
/* Puts "<text>: " before what `err` already says. */
void bq_error_prefix(bq_error *err, const char *format, ...) BQ_PRINTF(2, 3);
void bq_error_clear(bq_error *err);

/* A view for "%.*s": BQ_FMT(s). Use with short, trusted text; bodies are never printed. */
#define BQ_FMT(s) (int)((s).len > 200 ? 200 : (s).len), ((s).ptr ? (s).ptr : "")

#endif
