/*
 * babelqueue/types.h - what every other header stands on: strings, status codes, errors, buffers, logging.
 *
 * Ownership, once for the whole library:
 *   - inputs are borrowed for the duration of the call, unless a function says otherwise;
 *   - getters return borrowed views, valid as long as the object they were asked of;
 *   - `open`/`close` are connections, `new`/`free` heap objects, `init`/`clear` structs that the caller owns,
 *     `take` hands ownership out. `close(NULL)`, `free(NULL)` and `clear` of an initialised struct are always fine;
 *   - durations carry their unit in the name (`timeout_ms`); 0 and negative values mean what the field says.
 */
#ifndef BABELQUEUE_TYPES_H
#define BABELQUEUE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "libbabelqueue needs a POSIX system"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define BQ_API __attribute__((visibility("default")))
#define BQ_MUST_CHECK __attribute__((warn_unused_result))
#define BQ_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define BQ_API
#define BQ_MUST_CHECK
#define BQ_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BQ_VERSION_MAJOR 0
#define BQ_VERSION_MINOR 1
#define BQ_VERSION_PATCH 0

/* "0.1.0": the version of the library that runs, which a program may compare with the macros it was built with. */
BQ_API const char *bq_version(void);

/* ---- strings ------------------------------------------------------------------------------------------------- */

/* A view of bytes that somebody else owns. Not NUL-terminated; `ptr` may be NULL when `len` is 0.
 * Where absent and empty differ, a NULL `ptr` means absent. */
typedef struct bq_str {
    const char *ptr;
    size_t len;
} bq_str;

#ifdef __cplusplus
#define BQ_STR_NULL (bq_str{NULL, 0})
#define BQ_STR(literal) (bq_str{"" literal, sizeof(literal) - 1}) /* a view of a string literal */
#else
#define BQ_STR_NULL ((bq_str){NULL, 0})
#define BQ_STR(literal) ((bq_str){"" literal, sizeof(literal) - 1}) /* a view of a string literal */
#endif

/* A view of a NUL-terminated string; NULL gives an absent view. */
BQ_API bq_str bq_str_of(const char *text);
BQ_API bool bq_str_equal(bq_str a, bq_str b);
/* Empty, or only the six ASCII white-space bytes space, TAB, LF, VT, FF and CR (contract, preamble). */
BQ_API bool bq_str_blank(bq_str s);
/* `s` without the ASCII white space around it. */
BQ_API bq_str bq_str_trim(bq_str s);

/* ---- status and error ---------------------------------------------------------------------------------------- */

/* Every fallible call returns one of these; 0 is success. X(name, exit status of `bq`, text) */
#define BQ_STATUS_MAP(X)                                                                                               \
    X(OK, 0, "ok")                                                                                                     \
    X(INVALID, 64, "invalid argument")                                                                                 \
    X(DATA, 65, "bad data")                                                                                            \
    X(UNAVAILABLE, 69, "broker unreachable")                                                                           \
    X(INTERNAL, 70, "internal error")                                                                                  \
    X(NOMEM, 75, "out of memory")                                                                                      \
    X(IO, 74, "input/output error")                                                                                    \
    X(TIMEOUT, 75, "timed out, nothing was done")                                                                      \
    X(UNKNOWN, 75, "outcome unknown: not confirmed in time")                                                           \
    X(REFUSED, 75, "refused by the broker")                                                                            \
    X(BUSY, 75, "too much in flight")                                                                                  \
    X(LOST, 75, "the delivery is no longer ours")                                                                      \
    X(CLOSED, 75, "closed")                                                                                            \
    X(NOT_FOUND, 78, "no such queue or message")                                                                       \
    X(AUTH, 77, "authentication or permission refused")                                                                \
    X(CONFIG, 78, "configuration conflict")                                                                            \
    X(UNSUPPORTED, 78, "not supported by this transport")                                                              \
    X(NOT_BUILT, 78, "transport not built in")

typedef enum bq_status {
#define BQ_STATUS_ENUM(name, exit_status, text) BQ_##name,
    BQ_STATUS_MAP(BQ_STATUS_ENUM)
#undef BQ_STATUS_ENUM
        BQ_STATUS_COUNT_
} bq_status;

BQ_API const char *bq_status_name(bq_status status); /* "UNAVAILABLE" */
BQ_API const char *bq_status_text(bq_status status); /* "broker unreachable" */
BQ_API int bq_status_exit(bq_status status);         /* 69, as `bq` exits */

enum {
    BQ_ERROR_RETRYABLE = 1 << 0,  /* the same call may succeed later */
    BQ_ERROR_FATAL = 1 << 1,      /* the object is unusable, close it */
    BQ_ERROR_MAYBE_DONE = 1 << 2, /* the operation may have taken effect */
};

/* Filled by a failing call when the caller gave one; never allocates. Needs no initialisation: a call that
 * succeeds leaves it alone. Secrets never appear in `text`. */
typedef struct bq_error {
    bq_status status;
    unsigned flags;
    int64_t native; /* the client library's or the system's own code, 0 when there is none */
    char text[488]; /* one line, NUL-terminated, valid UTF-8, cut with "..." when longer */
} bq_error;

/* ---- growable buffer ----------------------------------------------------------------------------------------- */

/* Bytes that grow up to a ceiling. The caller owns the struct: bq_buf_init, then bq_buf_clear.
 * A failed append leaves the content as it was and makes `failed` sticky: later appends fail with the same status,
 * so that a writer may check once at its end. `ptr` is always NUL-terminated when not NULL (the NUL is not counted). */
typedef struct bq_buf {
    char *ptr;
    size_t len;
    size_t cap;
    size_t max; /* ceiling in bytes */
    bool failed;
    bool too_large; /* why: the ceiling (BQ_DATA), not memory (BQ_NOMEM) */
} bq_buf;

BQ_API void bq_buf_init(bq_buf *buf, size_t max); /* max 0: no ceiling but memory */
BQ_API void bq_buf_clear(bq_buf *buf);            /* frees; the struct can be used again */
BQ_API void bq_buf_reset(bq_buf *buf);            /* length 0, memory kept, `failed` taken back */
BQ_API bq_status bq_buf_add(bq_buf *buf, const void *bytes, size_t len);
BQ_API bq_str bq_buf_str(const bq_buf *buf);

/* ---- values as people write them ------------------------------------------------------------------------------ */

/* "250ms", "5s", "2m", "1h", a bare number is seconds ("1.5" too). False when it is none, negative or too large. */
BQ_API bool bq_parse_duration(bq_str text, int64_t *ms);

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Replaces malloc, realloc and free for the whole library. Call once, before anything else, from one thread.
 * `realloc_fn(ptr, size, arg)` with ptr NULL allocates, with size 0 frees and returns NULL. */
typedef void *(*bq_realloc_fn)(void *ptr, size_t size, void *arg);
BQ_API void bq_set_allocator(bq_realloc_fn realloc_fn, void *arg);

/* ---- logging ------------------------------------------------------------------------------------------------- */

typedef enum bq_log_level { BQ_LOG_NONE, BQ_LOG_ERROR, BQ_LOG_WARN, BQ_LOG_INFO, BQ_LOG_DEBUG } bq_log_level;

/* Called from any of the library's threads, never after the object it was given to is closed. `line` is one line
 * without a line feed, valid for the call. The library is silent unless a function is given. */
typedef void (*bq_log_fn)(bq_log_level level, const char *line, void *arg);

typedef struct bq_logger {
    bq_log_fn fn; /* NULL: silent */
    void *arg;
    bq_log_level level; /* lines above it are not even formatted */
} bq_logger;

/* How many messages of a queue are in a state that only some brokers have (BullMQ's "completed"). */
#define BQ_STATES_MAX 12
typedef struct bq_state_count {
    const char *name; /* static */
    int64_t count;
} bq_state_count;

#ifdef __cplusplus
}
#endif

#endif
