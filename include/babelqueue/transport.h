/*
 * babelqueue/transport.h - for authors of transport drivers, and for programs that list what is built in.
 *
 * A driver moves bytes: it knows a client library and the places a broker keeps things in, and nothing of verdicts,
 * retries or dead letters. It fills one `const bq_transport_ops`; the runtime allocates its zeroed state, owns the
 * poll loop and makes every call from one thread (the I/O thread), except `interrupt`. No entry but `open`'s
 * documented client-library limits may wait: work is *submitted*, its confirmations are *reaped*.
 *
 * See docs/adding-a-transport.md for the walk-through and docs/architecture.md for the loop.
 */
#ifndef BABELQUEUE_TRANSPORT_H
#define BABELQUEUE_TRANSPORT_H

#include <babelqueue/binding.h>
#include <babelqueue/types.h>

#include <poll.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- URL options ------------------------------------------------------------------------------------------------ */

typedef enum bq_option_type {
    BQ_OPT_STRING,
    BQ_OPT_BOOL,     /* yes | no */
    BQ_OPT_INT,      /* int64 between min and max */
    BQ_OPT_DURATION, /* stored as int64 milliseconds; "250ms", "5s", "2m", "1h", a bare number is seconds; "off"
                        and 0 where min is -1, stored as -1 */
    BQ_OPT_SIZE,     /* stored as int64 bytes; suffix k or m */
    BQ_OPT_CHOICE    /* one of `choices` ("list|laravel"), stored as an int index */
} bq_option_type;

/* Flags of bq_option. */
enum {
    BQ_OPT_SECRET = 1 << 0,  /* never printed */
    BQ_OPT_NETWORK = 1 << 1, /* one of the options of every network transport */
    BQ_OPT_TLS = 1 << 2,
};

/* One URL option: the single source of its parsing, its range, its default and its documentation. `offset` is that
 * of the field in the driver's options struct: const char * (STRING), bool, int64_t (INT, DURATION, SIZE), int
 * (CHOICE). */
typedef struct bq_option {
    const char *name;
    bq_option_type type;
    size_t offset;
    const char *fallback; /* as it would be written in the URL; NULL: none (NULL, 0) */
    int64_t min, max;     /* INT, DURATION (ms), SIZE */
    const char *choices;
    unsigned flags;
    const char *env; /* environment variable that gives it when the URL does not */
    const char *help;
} bq_option;

/* The table's own operations, for drivers and for anyone with options of this kind (the command's flags). The struct
 * is zeroed by the caller. `set` copies strings; its errors name the option, the value unless secret, and the nearest
 * known name. `clear` frees what `defaults` and `set` copied. */
BQ_API bq_status bq_options_defaults(const bq_option *table, void *options, bq_error *err) BQ_MUST_CHECK;
BQ_API bq_status bq_options_set(const bq_option *table, void *options, bq_str name, bq_str value,
                                bq_error *err) BQ_MUST_CHECK;
BQ_API void bq_options_clear(const bq_option *table, void *options);

/* A parsed URL. Strings are percent-decoded and NUL-terminated; NULL means absent. */
typedef struct bq_url_host {
    const char *name; /* IPv6 without its brackets */
    int port;         /* 0: none given */
} bq_url_host;

typedef struct bq_url {
    const char *scheme; /* as given, lower case: "rediss", "redis+unix" */
    const char *user;
    const char *password;
    const bq_url_host *hosts;
    size_t host_count;
    const char *path; /* "/0" as "0": without the leading slash of a URL with a host; sqlite: the file's path */
    const char *safe; /* the URL with every secret replaced by "***": the only form that may be logged */
} bq_url;

/* ---- deliveries ------------------------------------------------------------------------------------------------- */

/* A message as it arrived. Allocated and owned by the driver, from `take` until its settling operation (ACK, RELEASE,
 * RETRY, DEAD_LETTER, REJECT, NATIVE_RETRY, LEAVE) was reaped with OK or LOST, or until `forget`. All of it stays
 * unchanged meanwhile. After any other status it is still held: settle it in another way, or forget it. At most one
 * settling operation of a delivery may be under way. */
typedef struct bq_incoming {
    size_t queue; /* index into bq_transport_config.queues */
    bq_str body;  /* ptr NULL: the broker's null value (Kafka) */
    bq_str key;   /* ptr NULL: none */
    const bq_prop *props;
    size_t prop_count;
    int64_t native_count;   /* the broker's own delivery count as it gives it; -1: none */
    uint32_t lapses;        /* times its lease ran out before (crash loops, section 3) */
    bool lease_lost;        /* set by the driver when it learns so */
    bool keep;              /* set by the runtime while a handler or on_error still reads it (BQ_CAP_KEEP): neither its
                               settling completion nor `close` frees it, only `forget`, which may then come after
                               `close` and from another thread, and so only frees memory */
    int64_t lease_until_ms; /* on the runtime's monotonic clock; 0: no lease */
    int64_t timestamp_ms;   /* the broker's, epoch ms; 0: none */
    uint64_t generation;    /* of the connection or assignment it came on; a stale one is settled locally as LOST */
    uint64_t lane;          /* deliveries of one lane commit in order (a Kafka partition); 0: no order */
    int64_t position;       /* place within its lane; or the broker's own number for it */
    bq_str native_id;       /* the broker's own name for it (BullMQ's job id); absent: none */
    void *driver;           /* the driver's own */
    void *runtime;          /* the runtime's own */
} bq_incoming;

typedef struct bq_outgoing {
    bq_str queue;
    bq_str body; /* ptr NULL: a null value */
    bq_str key;  /* ptr NULL: none */
    const bq_prop *props;
    size_t prop_count;
    int64_t delay_ms;     /* 0: now */
    int64_t timestamp_ms; /* epoch ms; 0: the broker's now */
    bq_str group;         /* FIFO group */
    bq_str dedup_id;      /* absent: none */
    const void *extra;    /* driver-specific publish options (BullMQ's job options); NULL: none */
    int tier;             /* the retry topic of `queue` to park on, from 1 (Kafka); 0: none */
} bq_outgoing;

/* ---- operations ------------------------------------------------------------------------------------------------- */

typedef enum bq_op_kind {
    BQ_OP_PUBLISH,      /* `out`; `in`, when not NULL, is the delivery that it replaces, which stays held */
    BQ_OP_ACK,          /* `in` is done */
    BQ_OP_RELEASE,      /* give `in` back unchanged, after out.delay_ms, attempts not advanced where the broker can */
    BQ_OP_RETRY,        /* replace `in` by `out` on the same queue, after out.delay_ms, in one guarded step */
    BQ_OP_DEAD_LETTER,  /* write `out`, then acknowledge `in`, in one guarded step */
    BQ_OP_REJECT,       /* reject `in` natively, with `reason` and `description` */
    BQ_OP_NATIVE_RETRY, /* let the broker redeliver `in` after out.delay_ms (-1: its own backoff) and count it */
    BQ_OP_LEAVE,        /* leave `in` to the broker's own policy; free it here */
    BQ_OP_EXTEND,       /* renew the lease of `in`; its lease_until_ms is updated before the completion */
} bq_op_kind;

/* Submitted by pointer and borrowed, with everything it points at, until its completion has been reaped. */
typedef struct bq_op {
    bq_op_kind kind;
    uint64_t cookie;
    int64_t deadline_ms; /* on the runtime's monotonic clock: past it the driver completes it UNKNOWN or TIMEOUT */
    bq_incoming *in;
    bq_outgoing out;
    bq_str reason; /* REJECT: why; NATIVE_RETRY: the exception, where the broker keeps one (BullMQ) */
    bq_str description;
    bq_str result;      /* ACK: the handler's return value as JSON (BullMQ) */
    struct bq_op *next; /* the driver's own while it holds the op */
} bq_op;

typedef struct bq_completion {
    uint64_t cookie;
    bq_op *op;
    bq_status status; /* OK; REFUSED or another failure: not done; LOST: no longer ours, nothing was touched;
                         UNKNOWN: may have been done */
    bq_error error;   /* filled when status is not OK */
} bq_completion;

/* What a driver does natively. What it lacks the runtime does by the documented fallback: publish the replacement,
 * reap its confirmation, then acknowledge. */
enum {
    BQ_CAP_DEAD_LETTER = 1 << 0,   /* BQ_OP_DEAD_LETTER as one guarded step */
    BQ_CAP_RETRY = 1 << 1,         /* BQ_OP_RETRY with a new body */
    BQ_CAP_RETRY_DELAY = 1 << 2,   /* ... and a delay; with BQ_CAP_NATIVE_RETRY its delay is honoured too */
    BQ_CAP_RELEASE = 1 << 3,       /* BQ_OP_RELEASE */
    BQ_CAP_RELEASE_DELAY = 1 << 4, /* ... and a delay */
    BQ_CAP_EXTEND = 1 << 5,
    BQ_CAP_REJECT = 1 << 6,
    BQ_CAP_NATIVE_RETRY = 1 << 7,
    BQ_CAP_PUBLISH_DELAY = 1 << 8,
    BQ_CAP_HEADERS = 1 << 9,
    BQ_CAP_KEY = 1 << 10,
    BQ_CAP_REWIND = 1 << 11, /* a failed settlement seeks the lane back (Kafka) */
    BQ_CAP_PEEK = 1 << 12,
    BQ_CAP_LAPSES = 1 << 13, /* bq_incoming.lapses is kept */
    BQ_CAP_IDLE = 1 << 14,   /* `idle` tells that a queue is drained */
    BQ_CAP_LANES = 1 << 16,  /* acknowledges of a lane are recorded and committed in order by the driver (Kafka) */
    BQ_CAP_KEEP = 1 << 15,   /* bq_incoming.keep is honoured: settled while its handler still reads it */
};

/* ---- events ------------------------------------------------------------------------------------------------------ */

typedef enum bq_event_kind {
    BQ_EVENT_UP,      /* the broker answered: connected (again) */
    BQ_EVENT_DOWN,    /* connection lost; every accepted operation has been completed before this; the driver
                         reconnects by itself, with backoff */
    BQ_EVENT_BLOCKED, /* the broker refuses writes for now */
    BQ_EVENT_UNBLOCKED,
    BQ_EVENT_REVOKING, /* `lane` of `generation` is about to be given up: submit the outcomes that are finished, the
                          next service commits them and gives it up (Kafka) */
    BQ_EVENT_REVOKED,  /* `in`, or with NULL every delivery of `lane` and `generation`, is no longer ours; the runtime
                          forgets those not started, flags those that run, and their settlements complete LOST */
    BQ_EVENT_SETTLE_FAILED, /* acknowledges of `lane` from `position` on, completed OK because they were recorded,
                               were not committed after all: those messages come again (Kafka) */
    BQ_EVENT_FATAL,         /* the driver cannot go on: authentication, configuration */
} bq_event_kind;

typedef struct bq_event {
    bq_event_kind kind;
    bq_incoming *in;
    const bq_error *error;
    uint64_t lane;
    uint64_t generation;
    int64_t position;
} bq_event;

/* What the runtime gives a driver to call. All of it only from within the driver's own calls, on the I/O thread. */
typedef struct bq_transport_host {
    void (*event)(const struct bq_transport_host *host, const bq_event *event);
    int64_t (*now_ms)(void); /* monotonic */
    bq_logger logger;
    void *arg;
    /* How many more than `want` the runtime will take once the settlements under way are done. A driver whose commands are
     * carried out in order may ask for them in the same write. */
    size_t soon;
} bq_transport_host;

enum { BQ_ROLE_PUBLISH = 1 << 0, BQ_ROLE_CONSUME = 1 << 1, BQ_ROLE_ADMIN = 1 << 2 };

typedef struct bq_transport_config {
    const bq_url *url;
    const void *options; /* the driver's options struct, filled from its table */
    unsigned roles;
    const bq_str *queues; /* consumed ones */
    size_t queue_count;
    uint32_t prefetch; /* deliveries taken and not settled, at most */
    int max_attempts;
    const bq_transport_host *host;
} bq_transport_config;

/* ---- admin ------------------------------------------------------------------------------------------------------- */

typedef struct bq_queue_stats {
    int64_t ready, delayed, in_flight, dead; /* -1: unknown */
    bq_state_count states[BQ_STATES_MAX]; /* the broker's own states of messages, where it has more; ends with NULL */
} bq_queue_stats;

/* Return false to stop. `queue` and `in` are borrowed for the call. */
typedef bool (*bq_queue_fn)(bq_str queue, void *arg);
typedef bool (*bq_peek_fn)(const bq_incoming *in, void *arg);

/* Synchronous calls on an opened ADMIN transport, bounded by timeout_ms. Entries may be NULL: UNSUPPORTED. */
typedef struct bq_admin_ops {
    bq_status (*stats)(void *t, bq_str queue, int64_t timeout_ms, bq_queue_stats *out, bq_error *err);
    bq_status (*queues)(void *t, int64_t timeout_ms, bq_queue_fn fn, void *arg, bq_error *err);
    bq_status (*peek)(void *t, bq_str queue, uint64_t after, size_t max, int64_t timeout_ms, bq_peek_fn fn, void *arg,
                      bq_error *err); /* `after`: position of the last one seen, 0 from the start */
    bq_status (*purge)(void *t, bq_str queue, int64_t timeout_ms, int64_t *count, bq_error *err);
    /* Messages that failed and stay with their queue (BullMQ): those that failed until *until_ms by the server's clock (0:
     * set to now), those first that failed first, `after` of them passed over; timestamp_ms says when each failed. */
    bq_status (*failed)(void *t, bq_str queue, int64_t *until_ms, uint64_t after, size_t max, int64_t timeout_ms,
                        bq_peek_fn fn, void *arg, bq_error *err);
    /* One of them goes back to its queue, counted anew; *done: it was still there. */
    bq_status (*retry)(void *t, bq_str queue, bq_str native_id, int64_t timeout_ms, bool *done, bq_error *err);
} bq_admin_ops;

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef struct bq_transport_ops {
    size_t size;                                       /* sizeof(bq_transport_ops) */
    const char *name;                                  /* "sqlite" */
    const char *const *schemes;                        /* NULL-terminated */
    const char *summary;                               /* one line for `bq help urls` */
    const char *url_syntax;                            /* "sqlite:PATH"; without "://" it takes no hosts */
    const bq_option *table;                            /* URL options, ends with a NULL name */
    size_t options_size;                               /* of the driver's options struct */
    size_t state_size;                                 /* allocated zeroed by the runtime */
    unsigned capabilities;                             /* BQ_CAP_* */
    const bq_binding *(*binding)(const void *options); /* which row of the binding table applies */

    /* Starts connecting; must not wait for the broker. A failure here is final (bad options, no file access). The
     * config and what it points at live until `close` returns. */
    bq_status (*open)(void *t, const bq_transport_config *config, bq_error *err);
    /* Optional (NULL: nothing to do): starts an orderly end - flush, commit, leave the group - while the loop goes on
     * with prepare, service and reap; `finished` tells when it is done. `close` follows in any case. */
    void (*finish)(void *t, int64_t deadline_ms);
    bool (*finished)(void *t);
    /* Local; bounded by timeout_ms, also after a failed open or with a frozen broker. Frees every delivery still held;
     * operations not completed are dropped without a completion. */
    void (*close)(void *t, int64_t timeout_ms);

    /* Which descriptors to watch (at most max, returns how many) and until when (*deadline_ms, monotonic, lowered
     * never raised). The present means "due now": call service and take at once. It is said when input is buffered
     * and not decoded yet (a frame in the library, TLS data), when a completion or an event waits, or when a delivery
     * is ready and `want` > 0 - how many the runtime would take now; never for a delivery alone that nobody wants,
     * or the loop would spin. */
    size_t (*prepare)(void *t, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms);
    /* Does what is due, within a budget: reads, writes, heartbeats, reconnects, the deadlines of operations. `fds` is
     * what prepare gave, with revents; a call without need is allowed. Never blocks: what cannot be written yet waits
     * in the driver's own bounded buffer. */
    void (*service)(void *t, const struct pollfd *fds, size_t count);
    /* Hands over what has arrived, never blocking: at most max, returns how many. */
    size_t (*take)(void *t, bq_incoming **out, size_t max);
    /* Starts operations, in order; returns how many were accepted, a prefix. The rest is offered again after service;
     * whoever refuses wakes the loop when there is room. Limited by bytes as well as by count, with room kept for
     * settlements, so that a full publish window cannot block acknowledges. What is accepted gets exactly one
     * completion, also when the connection is lost: not written, refused (retryable); written and unconfirmed,
     * UNKNOWN; a settlement, LOST or UNKNOWN. A driver never replays an operation. */
    size_t (*submit)(void *t, bq_op *const *ops, size_t count);
    size_t (*reap)(void *t, bq_completion *out, size_t max);
    /* Frees a delivery locally and tells the broker nothing. */
    void (*forget)(void *t, bq_incoming *in);
    /* Thread-safe: breaks a call inside a client library that blocks without end. NULL: nothing ever blocks. */
    void (*interrupt)(void *t);
    /* Connected and every subscribed queue known to be empty: nothing ready and nothing in flight, with others neither
     * (but for a lease that never ends: its worker may be dead). With `all`, nothing delayed either. NULL or BQ_CAP_IDLE absent: the runtime asks admin stats. */
    bool (*idle)(void *t, bool all);
    const bq_admin_ops *admin; /* NULL: none */
    /* The client library and its version as it runs, "SQLite 3.40.1", for `bq version`. NULL: none. */
    const char *(*library)(void);
    /* How many retry topics the options name (Kafka). NULL: none. */
    int (*tiers)(const void *options);
} bq_transport_ops;

/* Adds a driver of the program's own. Before any connection is opened. INVALID names the missing entry. */
BQ_API bq_status bq_transport_register(const bq_transport_ops *ops, bq_error *err);

/* Iterates what is built in and registered: index 0, 1, ... until NULL. */
BQ_API const bq_transport_ops *bq_transport_at(size_t index);

/* Schemes that are known but not built into this library, index 0, 1, ... until NULL. */
BQ_API const char *bq_transport_missing_at(size_t index);

#ifdef __cplusplus
}
#endif

#endif
