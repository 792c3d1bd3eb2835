/*
 * babelqueue/publisher.h - publishing (contract sections 1 and 7).
 *
 * A publisher is thread-safe and has one I/O thread of its own. Messages are batched by themselves: what is
 * submitted while a write is under way goes out with the next one. A message counts as published when the broker
 * has confirmed it, and only then; when no confirmation came in time the outcome is BQ_UNKNOWN, which is kept apart
 * from failed: the message may be on the queue, and sending it again with the same id lets consumers deduplicate.
 */
#ifndef BABELQUEUE_PUBLISHER_H
#define BABELQUEUE_PUBLISHER_H

#include <babelqueue/envelope.h>
#include <babelqueue/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bq_publisher bq_publisher;

typedef struct bq_publisher_options {
    size_t size;
    int64_t timeout_ms;   /* of one message until it is confirmed; 0: the URL's `timeout` (30 s) */
    size_t max_in_flight; /* messages submitted and not confirmed; 0: 10000. Past it submit waits, or is BUSY */
    size_t max_bytes;     /* of their bodies together; 0: 64 MiB */
    const char *lang;     /* meta.lang; NULL: "c" */
    bq_logger logger;
    void (*on_connection)(bool up, const bq_error *why, void *arg); /* from the I/O thread; may be NULL */
    void *arg;
} bq_publisher_options;

#define BQ_PUBLISHER_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(bq_publisher_options), 0, 0, 0, NULL, {NULL, NULL, BQ_LOG_NONE}, NULL, NULL                             \
    }

typedef struct bq_header {
    bq_str name;
    bq_str value;
} bq_header;

/* One message to publish. Borrowed for the call. */
typedef struct bq_message_spec {
    size_t size;
    bq_str queue;
    bq_str urn;      /* required unless `body` is given */
    bq_str data;     /* JSON object */
    bq_str trace_id; /* absent: fresh */
    bq_str id;       /* absent: fresh */
    bq_str meta_extra;
    const bq_header *headers; /* section 5; empty names or values are dropped, the contract's own names win */
    size_t header_count;
    bq_str key;        /* record key where the broker has them; ptr NULL: none */
    bq_str group;      /* FIFO group */
    int64_t delay_ms;  /* 0: now */
    bq_str body;       /* a whole body, sent as it is: outbox, tests, repairs. urn, data and trace_id are ignored */
    const void *extra; /* driver-specific options; not copied: valid until the message has been called back */
} bq_message_spec;

#define BQ_MESSAGE_SPEC_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(bq_message_spec), {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, NULL, 0, {NULL, 0}, \
            {NULL, 0}, 0, {NULL, 0}, NULL                                                                              \
    }

/* Room for a message id and its NUL; ids of raw bodies longer than a UUID are cut. */
#define BQ_ID_SIZE 64

/* Called once per submitted message, from the I/O thread, in no promised order. `id` is its meta.id. */
typedef void (*bq_published_fn)(bq_status status, const char *id, const bq_error *err, void *arg);

/* Parses the URL and starts connecting; does not wait for the broker (bq_publisher_wait does). */
BQ_API bq_status bq_publisher_open(bq_publisher **out, const char *url, const bq_publisher_options *options,
                                   bq_error *err) BQ_MUST_CHECK;
/* Waits until connected: OK, UNAVAILABLE with the last cause, AUTH, CONFIG. */
BQ_API bq_status bq_publisher_wait(bq_publisher *publisher, int64_t timeout_ms, bq_error *err) BQ_MUST_CHECK;

/* Publishes and waits for the confirmation. `id` receives meta.id. */
BQ_API bq_status bq_publish(bq_publisher *publisher, const bq_message_spec *spec, char id[BQ_ID_SIZE],
                            bq_error *err) BQ_MUST_CHECK;
/* Copies the message and returns; `done` (may be NULL) follows, not when this call fails. Waits while max_in_flight is
 * reached, at most the message's timeout, then BUSY; called from `done` it does not wait, but is BUSY at once. */
BQ_API bq_status bq_publish_async(bq_publisher *publisher, const bq_message_spec *spec, bq_published_fn done, void *arg,
                                  bq_error *err) BQ_MUST_CHECK;
/* Waits until everything submitted before has been called back. TIMEOUT when it has not. */
BQ_API bq_status bq_publisher_flush(bq_publisher *publisher, int64_t timeout_ms, bq_error *err) BQ_MUST_CHECK;
/* Flushes for at most timeout_ms; what is left is called back as UNKNOWN (sent) or CLOSED (not sent). Bounded also with a
 * client library that does not return: its connection is then left behind, and nobody is called back any more. Not to
 * be called from a callback, nor while other threads still use the publisher. */
BQ_API void bq_publisher_close(bq_publisher *publisher, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
