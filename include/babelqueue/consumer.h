/*
 * babelqueue/consumer.h - consuming (contract section 3): one worker for every broker.
 *
 * A consumer has one I/O thread, which alone talks to the broker, and `concurrency` handler threads, which alone run
 * the program's handlers. Deliveries are settled by the runtime, "confirmed write, then acknowledge", and reported
 * to `on_error` only afterwards.
 */
#ifndef BABELQUEUE_CONSUMER_H
#define BABELQUEUE_CONSUMER_H

#include <babelqueue/envelope.h>
#include <babelqueue/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bq_consumer bq_consumer;

/* One message in a handler's hands. Borrowed until the handler returns; deferred: until it is settled. Its functions are
 * for one thread at a time, except bq_delivery_settle, _cancelled and _lease_lost. */
typedef struct bq_delivery bq_delivery;

typedef enum bq_outcome {
    BQ_DONE,     /* acknowledge */
    BQ_FAILED,   /* retry, or dead-letter at the limit */
    BQ_REJECTED, /* unrecoverable: dead-letter now */
    BQ_DEFERRED, /* bq_delivery_settle follows, from any thread */
    BQ_RELEASED, /* give back unchanged, attempts not advanced (shutdown; never counted as a failure) */
} bq_outcome;

typedef bq_outcome (*bq_handler)(bq_delivery *delivery, void *arg);

/* ---- what a handler may ask ---------------------------------------------------------------------------------- */

BQ_API bq_str bq_delivery_urn(const bq_delivery *delivery); /* the route: the routing property, else the identity */
BQ_API bq_str bq_delivery_id(const bq_delivery *delivery);
BQ_API bq_str bq_delivery_trace_id(const bq_delivery *delivery);
BQ_API bq_str bq_delivery_data(const bq_delivery *delivery); /* the bytes of the `data` member */
BQ_API bq_str bq_delivery_body(const bq_delivery *delivery);
BQ_API bq_str bq_delivery_queue(const bq_delivery *delivery); /* the queue it was taken from */
BQ_API bq_str bq_delivery_lang(const bq_delivery *delivery);
BQ_API bq_str bq_delivery_key(const bq_delivery *delivery); /* ptr NULL: none */
BQ_API int64_t bq_delivery_created_at(const bq_delivery *delivery);
BQ_API int32_t bq_delivery_attempts(const bq_delivery *delivery); /* reconciled: 0 on the first delivery */
BQ_API const bq_envelope *bq_delivery_envelope(const bq_delivery *delivery);
/* Headers without the contract's own (section 5): absent when there is none of that name. */
BQ_API bq_str bq_delivery_header(const bq_delivery *delivery, bq_str name);
/* Iterates them: false past the last one. */
BQ_API bool bq_delivery_header_at(const bq_delivery *delivery, size_t index, bq_str *name, bq_str *value);
BQ_API bool bq_delivery_is_replay(const bq_delivery *delivery);  /* `bq-replay-bypass` (section 6) */
BQ_API bool bq_delivery_lease_lost(const bq_delivery *delivery); /* somebody else may be running it by now */
/* True once the handler should give up: its timeout passed, or shutdown ran out of patience. */
BQ_API bool bq_delivery_cancelled(const bq_delivery *delivery);

/* ---- what a handler may say ----------------------------------------------------------------------------------- */

/* Names the failure: `dead_letter.exception` and `.error`. Copied. Either may be absent. */
BQ_API void bq_delivery_set_error(bq_delivery *delivery, bq_str exception, bq_str error);
/* The delay before the retry of this failure, instead of the backoff's. */
BQ_API void bq_delivery_set_retry_after(bq_delivery *delivery, int64_t delay_ms);
/* The handler's return value as JSON, for brokers that keep one (BullMQ). Copied. */
BQ_API void bq_delivery_set_result(bq_delivery *delivery, bq_str json);
/* Settles a delivery whose handler returned BQ_DEFERRED; may also be called before it returns, and is then carried out
 * when it has. Thread-safe; the first outcome counts, BQ_DEFERRED is none, and the delivery is not to be used any more.
 * Until it is called the delivery keeps its place of the prefetch, whatever has become of the message meanwhile: when
 * its timeout passed or the consumer ended first, the message was settled or given back without it, and the call only
 * lets go of the delivery. So it is safe after bq_consumer_stop, and after bq_consumer_close too. What the delivery
 * shows stays readable until then, after close only where the transport keeps it (memory and SQLite do). */
BQ_API void bq_delivery_settle(bq_delivery *delivery, bq_outcome outcome);

/* ---- options --------------------------------------------------------------------------------------------------- */

typedef enum bq_dead_lettering { BQ_DEAD_LETTER_DEFAULT, BQ_DEAD_LETTER_ON, BQ_DEAD_LETTER_OFF } bq_dead_lettering;

typedef enum bq_unknown_urn {
    BQ_UNKNOWN_URN_UNSET, /* as FAIL, but not "explicit" for poison and gated messages */
    BQ_UNKNOWN_URN_FAIL,
    BQ_UNKNOWN_URN_DELETE,
    BQ_UNKNOWN_URN_RELEASE,
    BQ_UNKNOWN_URN_DEAD_LETTER
} bq_unknown_urn;

typedef enum bq_jitter { BQ_JITTER_NONE, BQ_JITTER_FULL } bq_jitter;

typedef struct bq_route {
    const char *urn;
    bq_handler handler;
    void *arg;
} bq_route;

/* What happened to a delivery, for on_error and for the metrics. */
typedef enum bq_settled {
    BQ_SETTLED_ACKED,
    BQ_SETTLED_RETRIED,
    BQ_SETTLED_DEAD_LETTERED,
    BQ_SETTLED_DROPPED,
    BQ_SETTLED_RELEASED,
    BQ_SETTLED_REJECTED, /* natively */
    BQ_SETTLED_LEFT,     /* to the broker's own policy */
    BQ_SETTLED_FAILED,   /* the settlement itself failed; the delivery comes back */
    BQ_SETTLED_LOST,     /* it was no longer ours */
    BQ_SETTLED_COUNT_
} bq_settled;

typedef enum bq_trouble {
    BQ_TROUBLE_FAILED,      /* the handler failed or rejected */
    BQ_TROUBLE_UNKNOWN_URN, /* under *fail* */
    BQ_TROUBLE_POISON,
    BQ_TROUBLE_GATED,
    BQ_TROUBLE_WORKER_LOST, /* dead-lettered without a handler: it kept killing its worker */
    BQ_TROUBLE_SETTLEMENT   /* an acknowledge or a write failed */
} bq_trouble;

typedef struct bq_failure {
    bq_trouble trouble;
    bq_settled settled;
    bq_str queue;
    bq_str route;
    bq_str body;
    const bq_envelope *envelope; /* NULL when gated or poison */
    bq_str exception;
    bq_str error;
    int32_t attempts;           /* counted: this one included */
    const bq_error *settlement; /* not NULL: why the settlement failed */
} bq_failure;

/* Counters since open, monotonic; times in microseconds. */
typedef struct bq_metrics {
    uint64_t taken, handled, acked, retried, dead_lettered, dropped, released, poison, gated, leases_lost,
        settle_failed, worker_lost;
    uint64_t in_flight; /* taken and not settled, now */
    uint64_t handler_us;
    bool connected;
} bq_metrics;

typedef struct bq_consumer_options {
    size_t size;
    const char *const *queues; /* served fairly */
    size_t queue_count;
    const bq_route *routes;
    size_t route_count;
    bq_handler any; /* handler of every URN without a route of its own; NULL: unknown */
    void *any_arg;
    bq_handler unknown_hook; /* runs for an unknown URN, then the message is acknowledged; NULL: the strategy */
    void *unknown_hook_arg;
    bq_unknown_urn unknown;
    int64_t unknown_delay_ms; /* of *release* */
    int concurrency;          /* handler threads; 0: 1 */
    int prefetch;             /* taken and not settled; 0: max(2 x concurrency, 16) */
    int max_attempts;         /* -1: the binding's default */
    bq_dead_lettering dead_lettering;
    const char *dead_letter_queue; /* NULL: the binding's name; a name turns dead-lettering on unless it is OFF */
    int64_t retry_base_ms;         /* d(n) = min(max, base x multiplier^(n-1)) */
    double retry_multiplier;       /* 0: 1 */
    int64_t retry_max_ms;          /* 0: no cap */
    bq_jitter retry_jitter;
    int64_t handler_timeout_ms;  /* 0: none. Past it bq_delivery_cancelled is true, and the outcome counts as failed
                                    whatever it says. A handler that has not returned a second later is settled
                                    without it where the transport keeps its message, else its lease may lapse */
    int64_t shutdown_timeout_ms; /* 0: 30 s; -1: none, give back at once */
    int64_t settle_timeout_ms;   /* one write until it is confirmed; 0: the URL's `timeout` */
    int64_t settle_pause_ms;     /* after a failed settlement; 0: 1 s; -1: none */
    uint64_t max_messages;       /* stop after so many were settled; 0: never */
    int drain;                   /* 1: stop when nothing is ready and nothing in flight; 2: nothing delayed either */
    const char *lang;            /* dead_letter.lang; NULL: "c" */
    void (*on_error)(const bq_failure *failure, void *arg); /* after settlement, from the I/O thread */
    void (*on_metrics)(const bq_metrics *metrics,
                       void *arg); /* every metrics_interval_ms and at the end, as on_error */
    int64_t metrics_interval_ms;   /* 0: 10 s */
    void (*on_connection)(bool up, const bq_error *why, void *arg);
    void *arg; /* of the callbacks above */
    bq_logger logger;
} bq_consumer_options;

/* All defaults: assign the fields that differ. */
BQ_API void bq_consumer_options_init(bq_consumer_options *options, size_t size);
#define BQ_CONSUMER_OPTIONS_INIT(options) bq_consumer_options_init((options), sizeof(bq_consumer_options))

/* ---- life ------------------------------------------------------------------------------------------------------- */

/* Checks the options against the binding (CONFIG: a strategy it has not; INVALID: max_attempts below 1), and starts
 * the threads and the connection; does not wait for the broker. */
BQ_API bq_status bq_consumer_open(bq_consumer **out, const char *url, const bq_consumer_options *options,
                                  bq_error *err) BQ_MUST_CHECK;
/* Waits until connected, as bq_publisher_wait. */
BQ_API bq_status bq_consumer_wait_connected(bq_consumer *consumer, int64_t timeout_ms, bq_error *err) BQ_MUST_CHECK;
/* Waits until it has stopped: by bq_consumer_stop, max_messages, drain, or a fatal error, which is returned.
 * timeout_ms -1: for ever; TIMEOUT when it still runs. */
BQ_API bq_status bq_consumer_wait(bq_consumer *consumer, int64_t timeout_ms, bq_error *err) BQ_MUST_CHECK;
/* Thread-safe and async-signal-safe. First call: stop taking, let handlers finish for shutdown_timeout, settle them,
 * give the rest back unchanged. Second call: give back at once. NULL is nothing: a handler may run before
 * bq_consumer_open has returned. */
BQ_API void bq_consumer_stop(bq_consumer *consumer);
BQ_API void bq_consumer_metrics(const bq_consumer *consumer, bq_metrics *out);
/* Stops when it still runs, then frees. Bounded by shutdown_timeout and a few seconds: a handler that does not return by
 * then is left behind with an error in the log, and what it uses is freed when it does. No callback begins after it
 * returns. Not to be called from a callback or a handler. */
BQ_API void bq_consumer_close(bq_consumer *consumer);

#ifdef __cplusplus
}
#endif

#endif
