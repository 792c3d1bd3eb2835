/*
 * runtime/loop.h - the I/O loop that publisher, consumer, redrive and administration share: one opened transport, its
 * descriptors, its events, and the watchdog that interrupts a call which does not come back.
 *
 * Thread rule: every function here is called from one thread, the link's I/O thread, except where it says otherwise.
 */
#ifndef BQ_RUNTIME_LOOP_H
#define BQ_RUNTIME_LOOP_H

#include "runtime/thread.h"
#include "runtime/wake.h"
#include "transport/target.h"

#include <stdatomic.h>

#define BQ_LINK_FDS 64   /* descriptors of one transport, at most */
#define BQ_CLOSE_MS 5000 /* how long a connection may take to close, unless the caller says */

typedef struct bq_link bq_link;

typedef struct bq_link_spec {
    const char *url;
    unsigned roles;
    const bq_str *queues; /* borrowed until the link is closed */
    size_t queue_count;
    uint32_t prefetch;
    int max_attempts;
    bq_logger logger;
    void (*on_event)(void *owner, const bq_event *event); /* I/O thread, from within a driver's call */
    bool (*pending)(void *owner); /* asked before the thread sleeps: is there work left for it? May be NULL */
    void *owner;
} bq_link_spec;

typedef struct bq_watchdog {
    bool running;
    bool stop; /* under lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    atomic_llong busy_since; /* ms, 0: no driver call is running */
    atomic_llong limit_ms;
} bq_watchdog;

struct bq_link {
    bq_target target;
    const bq_transport_ops *ops;
    const bq_binding *binding;
    unsigned caps;
    void *state;
    bq_link_spec spec;
    bq_transport_config config;
    bq_transport_host host;
    bq_logger logger; /* the program's, silenced by `muted` */
    atomic_bool muted;
    atomic_bool up;
    bool opened;
    size_t want;    /* deliveries that the owner would take now; kept up to date by it */
    bool fatal;     /* `error` says why; the driver cannot go on */
    bq_error error; /* of the last time it went down, or of its end */
    int64_t now_ms; /* of this turn of the loop */
    bq_watchdog dog;
    unsigned process; /* which of the processes that forks have made opened it */
};

/* Parses the URL and finds the driver. Nothing is opened yet. Any thread. */
bq_status bq_link_init(bq_link *link, const bq_link_spec *spec, bq_error *err) BQ_MUST_CHECK;
/* INVALID in a process that was forked since init: no thread of the owner's is there, and its locks may be held for
 * ever, so that this comes before any lock. Any thread. */
bq_status bq_link_here(const bq_link *link, bq_error *err) BQ_MUST_CHECK;
/* Changes what init could not know yet: the config's prefetch and attempts come from the binding. */
bq_status bq_link_open(bq_link *link, bq_error *err) BQ_MUST_CHECK;
/* An orderly end where the driver has one, then its close. Bounded: the watchdog interrupts a driver that stays. */
void bq_link_close(bq_link *link, int64_t timeout_ms);
/* Frees what init made. Any thread, once closed. */
void bq_link_clear(bq_link *link);
/* No line is logged from here on, whatever the driver does. Any thread. */
void bq_link_mute(bq_link *link);

/* The `timeout` of the URL, or the default of every network transport (30 s). */
int64_t bq_link_timeout(const bq_link *link);
/* How long one driver call may take until it is interrupted. Any thread. */
void bq_link_call_limit(bq_link *link, int64_t limit_ms);

typedef enum bq_turn {
    BQ_TURN_BUSY, /* do not wait: there is more to do at once */
    BQ_TURN_NAP,  /* traffic is heavy: wait for at most BQ_NAP_US, others wake only when it is urgent */
    BQ_TURN_WAIT  /* wait until something happens */
} bq_turn;
#define BQ_NAP_US 500

/* One turn: poll until something is ready, `until_ms` passed or `wake` (may be NULL) was rung, then service. */
void bq_link_turn(bq_link *link, bq_wake *wake, int64_t until_ms, bq_turn turn);
/* Turns until connected. OK, UNAVAILABLE with the last cause, or the fatal error. */
bq_status bq_link_connect(bq_link *link, int64_t deadline_ms, bq_error *err) BQ_MUST_CHECK;

size_t bq_link_take(bq_link *link, bq_incoming **out, size_t max);
size_t bq_link_submit(bq_link *link, bq_op *const *ops, size_t count);
size_t bq_link_reap(bq_link *link, bq_completion *out, size_t max);
void bq_link_forget(bq_link *link, bq_incoming *in);
bool bq_link_has_idle(const bq_link *link);
bool bq_link_idle(bq_link *link, bool all);

/* Around a driver's call that the runtime makes itself (administration). */
void bq_link_enter(bq_link *link);
void bq_link_leave(bq_link *link);

#endif
