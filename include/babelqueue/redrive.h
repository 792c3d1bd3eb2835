/*
 * babelqueue/redrive.h - replaying a dead-letter queue (contract section 6), and the synchronous administration of
 * queues: stats, peek, purge, list.
 */
#ifndef BABELQUEUE_REDRIVE_H
#define BABELQUEUE_REDRIVE_H

#include <babelqueue/envelope.h>
#include <babelqueue/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a record was not redriven. */
typedef enum bq_skip {
    BQ_SKIP_NONE, /* it was redriven (or would be, in a dry run) */
    BQ_SKIP_GATED,
    BQ_SKIP_NO_IDENTITY,
    BQ_SKIP_POISON,
    BQ_SKIP_NO_TARGET,
    BQ_SKIP_NOT_SELECTED,
    BQ_SKIP_NO_DEAD_LETTER /* without require_dead_letter = false */
} bq_skip;
BQ_API const char *bq_skip_name(bq_skip skip); /* "no identity" */

typedef struct bq_redrive_item {
    bq_str id;
    bq_str trace_id;
    bq_str urn;
    bq_str reason; /* dead_letter.reason */
    bq_str from;
    bq_str to;
    bq_str body; /* the record, as it was on the DLQ */
    const bq_envelope *envelope;
    bq_skip skip;
    bool redriven; /* false in a dry run */
    bool bypassed;
    int64_t failed_at_ms; /* epoch: dead_letter.failed_at, or when the job failed; 0: unknown */
} bq_redrive_item;

typedef struct bq_redrive_options {
    size_t size;
    const char *to_queue;       /* NULL: dead_letter.original_queue, else meta.queue */
    const char *fallback_queue; /* target of records that name none (gated ones); NULL: skipped */
    uint64_t max;               /* records taken off the DLQ; 0: all */
    bool dry_run;
    bool bypass;              /* add `bq-replay-bypass: 1` */
    bool require_dead_letter; /* skip records without a dead_letter member */
    bool include_poison;      /* poison records go back as they are */
    bool include_gated;
    double rate;                                            /* messages/s; 0: no limit */
    int batch;                                              /* records held at a time; 0: 100 */
    int64_t timeout_ms;                                     /* of one operation; 0: the URL's */
    bool (*select)(const bq_redrive_item *item, void *arg); /* NULL: all; false: skipped */
    void (*report)(const bq_redrive_item *item, void *arg); /* one call per record, after it is settled */
    bool (*stop)(void *arg); /* asked between records; true: restore what is held and end. May be NULL */
    void *arg;
    bq_logger logger;
    /* BullMQ: `dead_letter_queue` names a queue, and its own failed jobs go back to it, their attempts and stalls counted
     * anew. Jobs that fail meanwhile are not met again. to_queue, fallback_queue, bypass and batch do not apply. */
    bool failed_set;
} bq_redrive_options;

BQ_API void bq_redrive_options_init(bq_redrive_options *options, size_t size);
#define BQ_REDRIVE_OPTIONS_INIT(options) bq_redrive_options_init((options), sizeof(bq_redrive_options))

typedef struct bq_redrive_result {
    uint64_t seen, redriven, skipped;
} bq_redrive_result;

/* Runs to its end on the calling thread. On an error the result tells how far it came; `err` names every fault. */
BQ_API bq_status bq_redrive(const char *url, const char *dead_letter_queue, const bq_redrive_options *options,
                            bq_redrive_result *result, bq_error *err) BQ_MUST_CHECK;

/* ---- administration ----------------------------------------------------------------------------------------------- */

typedef struct bq_admin bq_admin;

/* Opens and waits until connected, at most timeout_ms (0: the URL's connect timeout). */
BQ_API bq_status bq_admin_open(bq_admin **out, const char *url, int64_t timeout_ms, const bq_logger *logger,
                               bq_error *err) BQ_MUST_CHECK;
BQ_API void bq_admin_close(bq_admin *admin);

typedef struct bq_stats {
    size_t size;
    int64_t ready, delayed, in_flight, dead; /* -1: unknown */
    bq_state_count states[BQ_STATES_MAX];    /* the broker's own, where it has more; ends with a NULL name */
} bq_stats;
BQ_API bq_status bq_admin_stats(bq_admin *admin, bq_str queue, bq_stats *out, bq_error *err) BQ_MUST_CHECK;

/* Return false to stop. */
typedef bool (*bq_admin_queue_fn)(bq_str queue, void *arg);
BQ_API bq_status bq_admin_queues(bq_admin *admin, bq_admin_queue_fn fn, void *arg, bq_error *err) BQ_MUST_CHECK;

typedef struct bq_peeked {
    bq_str queue;
    bq_str body;
    bq_str key;
    const struct bq_prop *props; /* headers and native properties */
    size_t prop_count;
    uint64_t position; /* give the last one back as `after` to go on */
    int32_t attempts;
    const bq_envelope *envelope;
    bq_str route;
    bq_str native_id;     /* the broker's own name for it (BullMQ's job id); absent: none */
    int64_t timestamp_ms; /* bq_admin_failed: when it failed, epoch ms; 0: unknown */
} bq_peeked;
typedef bool (*bq_admin_peek_fn)(const bq_peeked *message, void *arg);
BQ_API bq_status bq_admin_peek(bq_admin *admin, bq_str queue, uint64_t after, size_t max, bq_admin_peek_fn fn,
                               void *arg, bq_error *err) BQ_MUST_CHECK;

/* Messages that failed and stay with their queue (BullMQ's failed set): those that failed until *until_ms by the server's
 * clock (0: set to now), first those that failed first, `after` of them passed over. UNSUPPORTED elsewhere. */
BQ_API bq_status bq_admin_failed(bq_admin *admin, bq_str queue, int64_t *until_ms, uint64_t after, size_t max,
                                 bq_admin_peek_fn fn, void *arg, bq_error *err) BQ_MUST_CHECK;
/* One of them goes back to its queue, counted anew. *done: false when it was not there any more. */
BQ_API bq_status bq_admin_retry(bq_admin *admin, bq_str queue, bq_str native_id, bool *done,
                                bq_error *err) BQ_MUST_CHECK;

BQ_API bq_status bq_admin_purge(bq_admin *admin, bq_str queue, int64_t *count, bq_error *err) BQ_MUST_CHECK;
/* The row of the binding table that this URL uses. */
BQ_API const struct bq_binding *bq_admin_binding(const bq_admin *admin);

#ifdef __cplusplus
}
#endif

#endif
