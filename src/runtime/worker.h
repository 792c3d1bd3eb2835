/*
 * runtime/worker.h - the inside of a consumer, shared by consumer.c (life), work.c (the I/O thread), pool.c (handler
 * threads), delivery.c (what a handler sees) and settle.c (carrying decisions out).
 *
 *                       ┌────────── work ring ──────────▶ handler threads: judge, route, run the handler
 *   driver ◀─ I/O thread                                        │
 *                       └◀───────── outcome ring ────────◀──────┘◀── bq_delivery_settle from any thread
 *
 * A delivery object exists once per place of the prefetch and is reused. It passes from thread to thread only through
 * the rings, so its plain members need no lock: whoever popped it owns it. What two threads may touch at once is
 * atomic. An object that the I/O thread settled over the head of its handler (timeout, shutdown) stays away from
 * reuse until the handler is done with it.
 */
#ifndef BQ_RUNTIME_WORKER_H
#define BQ_RUNTIME_WORKER_H

#include "runtime/decide.h"
#include "runtime/loop.h"
#include "runtime/ring.h"
#include "runtime/routes.h"

#include <babelqueue/consumer.h>

#include <stdatomic.h>

enum {
    BQ_TAKE_BATCH = 256,       /* deliveries taken in one call */
    BQ_REAP_BATCH = 256,       /* completions reaped in one call */
    BQ_CANCEL_GRACE_MS = 1000, /* what a cancelled handler gets to return by itself */
    BQ_FINISH_MS = 2000,       /* what the last settlements get once shutdown has run out of patience */
    BQ_OVERDUE_MS = 1000,      /* past its deadline a driver that never answers is answered for */
    BQ_TEXT_MAX = 16384,       /* bytes of an error's name or text that are kept */
    BQ_HOLD_MAX_MS = 60000     /* longest delay that the worker itself waits out (contract 3) */
};

/* bq_delivery.bits. Whoever completes RETURNED and OUTCOME hands the delivery in. */
enum {
    BQ_BIT_CLAIMED = 1 << 0,  /* somebody writes the outcome: the first one counts */
    BQ_BIT_OUTCOME = 1 << 1,  /* it is written */
    BQ_BIT_RETURNED = 1 << 2, /* the handler has returned, or never runs */
    BQ_BIT_ORPHAN = 1 << 3,   /* the consumer was closed meanwhile: nobody takes it in */
};

typedef enum bq_stage {
    BQ_STAGE_FREE,
    BQ_STAGE_OUT,      /* in the work ring, with a handler, deferred, or in the outcome ring */
    BQ_STAGE_HOLDING,  /* waits for hold_until_ms */
    BQ_STAGE_SETTLING, /* an operation is under way, or waits for the extension that is */
    BQ_STAGE_SETTLED   /* done but for its handler or a pending extension */
} bq_stage;

/* Which operation of a settlement is under way. */
typedef enum bq_step {
    BQ_STEP_WRITE, /* the replacement is being published; then the delivery is acknowledged */
    BQ_STEP_END,   /* the one that ends it */
    BQ_STEP_BACK   /* giving back what could not be settled */
} bq_step;

/* Buffers of one replacement, borrowed by the driver until its operation is done. */
typedef struct bq_write {
    struct bq_write *next;
    bq_buf body;
    bq_buf scratch;
    bq_buf text;   /* the error's text */
    bq_buf report; /* body and route for on_error, where the driver frees the delivery with its settlement */
    bq_prop *props;
    size_t prop_cap;
} bq_write;

typedef struct bq_pending {
    bq_op **ops; /* in order, not yet accepted by the driver; room for two of every delivery */
    size_t count;
    size_t refused; /* of them, from the front: offered and not accepted */
} bq_pending;

/* A header, as bq_delivery_header_at counts them: its place in `props`, and how many before it had to be formatted. */
typedef struct bq_header_cursor {
    size_t index, prop, formatted;
} bq_header_cursor;

struct bq_delivery {
    bq_consumer *consumer;
    bq_incoming *in;               /* NULL: freed by the driver, with its settlement */
    size_t queue;                  /* its index, which outlives `in` */
    struct bq_delivery *next_free; /* I/O thread */

    /* Written by the handler thread before the handler runs. */
    bq_envelope env;
    bool judged; /* `env` is decoded: not when gated */
    bool nomem;  /* could not be judged for lack of memory */
    bq_str route;
    bq_str detail; /* the gated version */
    bq_handler handler;
    void *handler_arg;
    bq_facts facts;
    bq_decision decision;
    bq_buf scratch; /* route, and texts of the envelope */
    bq_buf shown;   /* header values that are not text, formatted once */
    bool shown_ready;
    bq_header_cursor header_at; /* the one asked for last */

    /* The handler's words, read when it is handed in. */
    bq_outcome outcome;
    bool ran;
    bool has_exception, has_error, has_result;
    int64_t retry_after_ms; /* -1: none */
    int64_t took_us;
    bq_buf exception, error, result;

    atomic_uint bits;
    atomic_bool cancelled;
    atomic_bool lease_lost;
    atomic_llong started_ms; /* 0: its handler has not started; release-stored after it was judged */

    /* I/O thread */
    bq_stage stage;
    bq_step step;
    bool out;     /* with the handler side */
    bool forced;  /* settled over the handler's head: its outcome is ignored */
    bool revoked; /* no longer ours: forgotten when the handler is done */
    bool ours;    /* `in` must still be settled or forgotten */
    bool kept;    /* the driver frees `in` only when it is forgotten */
    bool lost_counted;
    bool reported; /* on_error has been called */
    bool overdue;
    bool timed_out;
    bool no_extend; /* its handler overstays: the lease may lapse */
    bool written;   /* the replacement is confirmed */
    bool op_busy;   /* `op` is with the driver or waits for it */
    bool op_sent;   /* the driver has accepted it */
    bool ending;    /* `op` is its last one, unless it fails */
    bool op_waits;  /* `op` is ready but waits for the extension under way */
    bool extend_busy;
    bool extend_sent;
    bq_op op;
    bq_op extend;
    bq_write *write;
    bq_settled settled;
    bq_str say_exception; /* what a record and the report name */
    bq_str say_error;
    bq_str say_body;
    bq_str say_route;
    int64_t taken_ms;
    int64_t extend_at_ms; /* BQ_NEVER: not extended */
    int64_t hold_until_ms;
};

typedef struct bq_queue_names {
    bq_str name;
    bq_str dead;
} bq_queue_names;

/* bq_metrics, written by the I/O thread, read by any. */
typedef struct bq_counters {
    atomic_ullong taken, handled, acked, retried, dead_lettered, dropped, released, poison, gated, leases_lost,
        settle_failed, worker_lost, in_flight, handler_us;
} bq_counters;

typedef struct bq_handler_thread {
    bq_consumer *consumer;
    pthread_t thread;
    bool exited; /* under lock */
} bq_handler_thread;

typedef enum bq_phase {
    BQ_PHASE_RUNNING,
    BQ_PHASE_STOPPING, /* handlers in flight may finish until phase_until_ms */
    BQ_PHASE_ENDING    /* all is given back; operations under way may finish until phase_until_ms */
} bq_phase;

struct bq_consumer {
    bq_link link;
    bq_wake wake;
    bq_consumer_options options; /* pointers are our own copies */
    bq_policy policy;
    bq_routes routes;
    bq_queue_names *queues;
    bq_str *queue_names; /* for the transport */
    char *strings;       /* of the two above and of the options */
    size_t prefetch;
    int threads_wanted;
    int64_t settle_timeout_ms;

    bq_delivery *deliveries; /* prefetch of them */
    bq_ring work;
    bq_ring outcomes;
    bq_counters counters;
    atomic_int stops;   /* calls of bq_consumer_stop */
    int stops_seen;     /* I/O thread */
    atomic_uint refs;   /* owner, threads, callers of bq_delivery_settle, orphans */
    atomic_bool silent; /* closed: no callback any more */

    pthread_mutex_t lock;
    pthread_cond_t changed;                     /* started, up, ended, exited */
    pthread_cond_t ready;                       /* handler threads wait here */
    atomic_int sleepers;                        /* of them */
    bool quit;                                  /* under lock: handler threads go */
    bool started, opened, up, ended, abandoned; /* under lock; opened: of started */
    int exited;                                 /* under lock: handler threads that are gone */
    bq_status status;                           /* under lock: why it could not start, or ended */
    bq_error error;
    bq_error down; /* under lock: why it is not up, when the driver said so */
    pthread_t io;
    bq_handler_thread *threads;
    int thread_count;

    /* I/O thread */
    bq_delivery *free;
    bq_delivery *stash, **stash_tail; /* taken, and not in the work ring yet, in order */
    size_t held;                      /* deliveries that are not free */
    size_t ending;                    /* of these, those whose last operation is under way */
    atomic_size_t running;            /* `out` ones; written by the I/O thread, a hint for the others */
    bq_pending pending;
    bq_write *writes;
    size_t writes_idle;
    bq_phase phase;
    int64_t phase_until_ms;
    int64_t next_scan_ms;
    int64_t next_metrics_ms;
    int64_t next_stats_ms;
    bool drained;
    uint64_t settled; /* towards max_messages */
    bool left_open;   /* the connection outlives the I/O thread: a handler still reads from it */
    bool warned_delay;
};

static inline void bq_count(atomic_ullong *counter, uint64_t by)
{
    /* One writer, so no read-modify-write is needed. Released: who reads the counter sees what it counts. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_release);
}

/* ---- consumer.c ---- */
void bq_consumer_unref(bq_consumer *consumer);
/* Deliveries that somebody still has: the last one to let go frees the consumer. After the I/O thread's work. */
void bq_consumer_orphan(bq_consumer *consumer);

/* ---- work.c ---- */
void *bq_work_main(void *consumer);
void bq_work_event(void *consumer, const bq_event *event);
bool bq_work_pending(void *consumer);

/* ---- pool.c ---- */
bq_status bq_pool_start(bq_consumer *consumer, bq_error *err);
/* Wakes as many sleeping handler threads as there is work for. I/O thread. */
void bq_pool_kick(bq_consumer *consumer, size_t count);
void bq_pool_quit(bq_consumer *consumer);

/* ---- delivery.c ---- */
void bq_delivery_reset(bq_delivery *delivery);
void bq_delivery_clear(bq_delivery *delivery);
/* Gate, attempts, verdict, route, decision (contract 3.1 to 3.5). Handler thread. */
void bq_delivery_judge(bq_delivery *delivery);
/* Hands the delivery to the I/O thread when `bits` complete it. Any thread. */
void bq_delivery_hand_in(bq_delivery *delivery, unsigned bits);

/* ---- settle.c, I/O thread ---- */
/* Carries delivery->decision out. */
void bq_settle(bq_delivery *delivery);
/* Gives back unchanged, at once (shutdown). */
void bq_settle_give_back(bq_delivery *delivery);
/* Comes back after the pause, without a report: it could not even be judged. */
void bq_settle_unjudged(bq_delivery *delivery);
/* Drops it here and tells the broker nothing: it is no longer ours, or cannot be given back. */
void bq_settle_forget(bq_delivery *delivery);
/* A completion of one of its two operations; by the driver, or by the runtime for one that was never accepted. */
void bq_settle_completed(bq_delivery *delivery, const bq_op *op, bq_status status, const bq_error *error);
/* What is due: its hold, its operations, its lease. Lowers *next_ms to when it wants to be asked again. */
void bq_settle_tick(bq_delivery *delivery, int64_t now_ms, int64_t *next_ms);
/* Taken just now: when its lease wants to be extended. */
int64_t bq_settle_lease(bq_delivery *delivery, int64_t now_ms);
/* Reusable once nothing refers to it any more. */
void bq_settle_recycle(bq_delivery *delivery);
void bq_settle_lease_lost(bq_delivery *delivery, const char *why);
/* Offers the pending operations to the driver. True when it took any. */
bool bq_settle_submit(bq_consumer *consumer);
void bq_settle_clear(bq_consumer *consumer);

#endif
