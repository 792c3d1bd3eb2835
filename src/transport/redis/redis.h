/*
 * redis/redis.h - the state of the Redis driver, shared by its parts: redis.c (the table and the loop), life.c
 * (connections: Sentinel, greeting, loss, reconnecting), send.c (what is due becomes commands), answer.c (replies),
 * list.c and laravel.c (the layouts, see layout.h), store.c (operations and deliveries), admin.c.
 *
 * One connection carries everything that is answered at once, pipelined. Waiting blocks the connection that waits, so
 * each queue of the list layout has one of its own for that, and the Laravel layout one for all.
 */
#ifndef BQ_REDIS_REDIS_H
#define BQ_REDIS_REDIS_H

#include <babelqueue/bullmq.h>
#include <babelqueue/transport.h>

#include "transport/redis/conn.h"
#include "transport/redis/frame.h"
#include "transport/redis/layout.h"
#include "transport/target.h"

/* Operations accepted and not reaped, at most; publishes leave some of it alone. */
#define RD_OPS_MAX 4096
#define RD_SETTLE_ROOM 1024
#define RD_OPS_BYTES ((size_t)64 << 20)
/* What one command carries at most, so that nobody waits long for the server. */
#define RD_BATCH_OPS 128
#define RD_BATCH_BYTES ((size_t)512 << 10)
#define RD_RESERVE_MAX 256
#define RD_RESERVE_BYTES 4194304
#define RD_SWEEP_MAX 1000
/* Commands in flight, and bytes not yet with the system, from which nothing more is written. */
#define RD_FLIGHT_MAX 512
#define RD_OUT_MAX ((size_t)8 << 20)
/* An idle queue is looked at that often, for what becomes due; as the peers do (contract 7.2: at most 1 s). */
#define RD_LOOK_MS 1000
/* Reserved deliveries that nobody takes go back after that. */
#define RD_FRESH_MS 1000
#define RD_BLOCKED_MS 1000
#define RD_PAUSE_MS 100
#define RD_GATHER_MS 2
/* A message that is to be taken alone is looked at again so often while something else is in hand, */
#define RD_YIELD_MS 500
/* and a queue whose drain waits for what others hold. */
#define RD_OTHERS_MS 200
#define RD_LAPSES_MIN_S 86400
/* So many moves from node to node in that time are no resharding: the queues are on several nodes. */
#define RD_MOVES_MAX 8
#define RD_MOVES_MS 10000

typedef struct rd_options {
    bq_network_options net;
    bq_tls_options tls;
    int layout; /* RD_LIST, RD_LARAVEL */
    const char *processing_suffix;
    const char *prefix;
    int64_t retry_after_ms; /* -1: off */
    int64_t adopt_ms;       /* -1: off */
    int64_t db;             /* redis+unix; -1: none given */
    const char *master;
    const char *sentinel_user;
    const char *sentinel_password;
    /* BullMQ */
    int64_t stalled_interval_ms, max_stalled, drain_delay_ms, max_events;
    int64_t job_attempts, job_priority; /* -1: not given */
    const char *job_backoff, *job_on_complete, *job_on_fail;
} rd_options;

enum { RD_LIST, RD_LARAVEL };

typedef enum rd_state {
    RD_CLOSED,
    RD_DOWN,    /* until retry_at */
    RD_ASKING,  /* a Sentinel */
    RD_JOINING, /* connecting and greeting */
    RD_UP,
    RD_BROKEN, /* never again */
} rd_state;

/* ---- operations --------------------------------------------------------------------------------------------------- */

typedef struct rd_slot {
    struct rd_slot *next;
    bq_op *op;
    bq_status status;
    bq_error *error; /* NULL: the status says it all */
    size_t bytes;
} rd_slot;

typedef struct rd_slots {
    rd_slot *head, *tail;
    size_t count;
} rd_slots;

/* ---- deliveries --------------------------------------------------------------------------------------------------- */

typedef struct rd_delivery {
    bq_held held;   /* first */
    rd_reply *raw;  /* the element or job as it is stored */
    rd_frame frame; /* list */
    char token[33]; /* list */
    int64_t place;  /* list: among those in processing when it was reserved, from 1 */
    char *member;   /* Laravel: the reserved member where it is not the job; BullMQ: the job's id */
    size_t member_len;
    char *name;    /* BullMQ: the job's */
    int64_t score; /* of the reservation; 0: not known for certain */
    bool settling; /* a settlement is written: its place in the prefetch is free */
} rd_delivery;

/* ---- queues ------------------------------------------------------------------------------------------------------- */

typedef struct rd_sub {
    rd_keys keys;
    bool maybe;     /* there may be something to reserve */
    bool reserving; /* asked, not yet answered */
    bool empty;     /* as of the last answer nothing was ready, and nothing of ours came since */
    int64_t parked; /* delayed ones, so many were found; -1: unknown */
    int64_t others; /* reserved by others, with an end, so many were found; -1: unknown */
    int64_t seen_ms;
    int64_t due_ms; /* when something becomes due by itself; BQ_NEVER: nothing known */
    int64_t look_at;
    int64_t reserve_at; /* not before */
    int64_t chore_at;
} rd_sub;

/* A connection that blocks, for the subs from `first` on. */
typedef struct rd_waiter {
    rd_conn conn;
    size_t first, count;
    bool waiting;
    int64_t retry_at;
} rd_waiter;

/* An admin's command, waited for. */
typedef struct rd_call {
    bool done;
    rd_reply *reply;
    bool moved; /* to be sent again */
    bq_status status;
    bq_error error;
} rd_call;

typedef struct rd_transport {
    const bq_transport_config *config;
    const bq_transport_host *host;
    const rd_options *options;
    const rd_layout *layout;
    bq_bullmq_job job; /* BullMQ: what a published job is given that says nothing itself */
    bq_tls_context *tls;
    rd_state state;
    int64_t db;
    bq_error broken;

    rd_conn main, sentinel;
    size_t next_host; /* whose turn it is: a Sentinel, or the server */
    char *master_host;
    int master_port;
    int64_t retry_at, pause_ms;
    uint64_t drops; /* main connections lost */

    /* A cluster's node says that the queues are on another one: when everything that was sent has been answered, the
     * connection goes there. */
    bool moving;
    char *moved_host; /* where they are; NULL: the URL's hosts */
    int moved_port;
    rd_slots moved;     /* what that node did not do, in order */
    int64_t hold_until; /* nothing is written before: a slot is on its way */
    int moves;          /* since moves_since */
    int64_t moves_since;

    bool blocked;
    int64_t blocked_until;

    rd_slot *slots;
    rd_slots free, queued, done;
    size_t op_count, op_bytes;

    bq_held_list taken, fresh;
    size_t settling; /* of `taken` */
    size_t asked;    /* deliveries asked for and not answered */
    bool alone;      /* what is in hand is at its last chance: nothing is reserved beside it */
    size_t yields;   /* 1 + the sub whose next message waits until nothing is in hand; 0: none */
    int64_t yield_until;
    int64_t fresh_since;
    size_t want;
    int64_t position;

    rd_sub *subs;
    size_t sub_count, next_sub;
    rd_waiter *waiters;
    size_t waiter_count;
    int drains; /* 1: somebody waits until nothing is ready or in hand, 2: nor delayed */
    int64_t reserved_at;

    rd_args args;
    rd_args hello;    /* of the greeting: what stands in `args` may have to be sent again behind it */
    rd_conn **polled; /* whose descriptors the last `prepare` gave */
    size_t polled_count;
    bool closing;
} rd_transport;

/* ---- store.c ------------------------------------------------------------------------------------------------------ */

void bq_rd_slots_push(rd_slots *list, rd_slot *slot);
void bq_rd_slots_push_front(rd_slots *list, rd_slot *chain);
rd_slot *bq_rd_slots_pop(rd_slots *list);
/* A slot for an operation; NULL when there is no room. */
rd_slot *bq_rd_slot_take(rd_transport *t, bq_op *op);
/* Its outcome; `err` may be NULL. */
void bq_rd_slot_decide(rd_transport *t, rd_slot *slot, bq_status status, const bq_error *err);
void bq_rd_slots_decide(rd_transport *t, rd_slot *chain, bq_status status, const bq_error *err);
size_t bq_rd_reap(void *state, bq_completion *out, size_t max);

static inline rd_delivery *rd_delivery_of(const bq_incoming *in)
{
    return (rd_delivery *)bq_held_of(in);
}
/* Takes `raw` over, whatever it returns. */
rd_delivery *bq_rd_delivery_new(rd_transport *t, size_t queue, rd_reply *raw);
void bq_rd_delivery_free(rd_delivery *d);
void bq_rd_deliveries_free(bq_held_list *list);
void bq_rd_delivery_let_go(rd_transport *t, rd_delivery *d);

/* ---- layout.c ----------------------------------------------------------------------------------------------------- */

bq_status bq_rd_keys_make(const char *prefix, bq_str queue, const char *const suffix[4][2], rd_keys *out);
void bq_rd_keys_clear(rd_keys *keys);
/* An even number of digits, at most 32, and a NUL. */
void bq_rd_random_hex(char *out, size_t digits);
/* The beginning of a reservation's token: eight zeros would mark it as parked (contract 7.1). */
void bq_rd_random_token(char out[25]);
/* Takes a suffix off a name, unless nothing would be left. */
bool bq_rd_strip(bq_str *name, const char *suffix);
int64_t bq_rd_look_ms(const rd_transport *t);
/* "EVALSHA digest n", and the keys of a queue. */
void bq_rd_arg_script(rd_args *args, rd_script script, size_t keys);
void bq_rd_arg_keys(rd_args *args, const rd_keys *keys, size_t count);
/* For a text that lives shorter than the arguments. */
void bq_rd_arg_copy(rd_args *args, bq_str text);
/* A number from 0 to below 1. */
void bq_rd_arg_millionths(rd_args *args, uint32_t millionths);
void bq_rd_arg_lease(const rd_transport *t, rd_args *args);
void bq_rd_lease_from(const rd_transport *t, rd_delivery *d, int64_t sent_ms, int64_t server_ms);

/* ---- life.c ------------------------------------------------------------------------------------------------------- */

void bq_rd_tell(rd_transport *t, bq_event_kind kind, const bq_error *err);
void bq_rd_connect(rd_transport *t, int64_t now_ms);
/* The main connection is of no use any more: everything accepted is completed, then DOWN is told. */
void bq_rd_down(rd_transport *t, const bq_error *why, int64_t now_ms);
void bq_rd_give_up(rd_transport *t, const bq_error *why);
/* To the node that was named, with everything that waits. */
void bq_rd_move(rd_transport *t, int64_t now_ms);
bq_status bq_rd_waiter_open(rd_transport *t, rd_waiter *w, int64_t now_ms, bq_error *err);
void bq_rd_waiter_drop(rd_transport *t, rd_waiter *w, int64_t now_ms);
/* A reply to the greeting on the main connection. */
void bq_rd_greeted(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms);
void bq_rd_sentinel_answered(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms);
/* This Sentinel is of no use: the next one is asked, or all are after a pause. */
void bq_rd_sentinel_failed(rd_transport *t, const bq_error *why, int64_t now_ms);

/* ---- send.c ------------------------------------------------------------------------------------------------------- */

/* Everything that is due and fits is written. */
void bq_rd_send(rd_transport *t, int64_t now_ms);
void bq_rd_send_back(rd_transport *t, int64_t now_ms);
void bq_rd_expire(rd_transport *t, int64_t now_ms);
/* Sends a script to the main connection, loading it first when this connection has not. */
bq_status bq_rd_send_script(rd_transport *t, rd_script script, const rd_expect *expect, bq_error *err);
size_t bq_rd_room(const rd_transport *t);
/* When rd_send has something to do by itself. */
int64_t bq_rd_send_due(rd_transport *t, int64_t now_ms);

/* ---- answer.c ----------------------------------------------------------------------------------------------------- */

/* Reads the replies of the main connection that have come. */
void bq_rd_answers(rd_transport *t, int64_t now_ms);
void bq_rd_waiter_answers(rd_transport *t, rd_waiter *w, int64_t now_ms);

/* ---- redis.c ------------------------------------------------------------------------------------------------------ */

void bq_rd_turn(rd_transport *t, const struct pollfd *fds, size_t count);
size_t bq_rd_watch(rd_transport *t, struct pollfd *fds, size_t max, int64_t *deadline_ms);

/* ---- admin.c ------------------------------------------------------------------------------------------------------ */

/* Sends what stands in t->args and waits for the answer. `script`: RD_SCRIPTS when it is none. */
bq_status bq_rd_call(rd_transport *t, rd_script script, int64_t end, rd_reply **reply, bq_error *err) BQ_MUST_CHECK;

extern const bq_admin_ops bq_redis_admin;

/* ---- redis.c: what the tables of all layouts have in common ------------------------------------------------------- */

bq_status bq_rd_open(rd_transport *t, const bq_transport_config *config, const rd_layout *layout, bq_error *err);
void bq_rd_close(void *state, int64_t timeout_ms);
size_t bq_rd_prepare(void *state, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms);
void bq_rd_service(void *state, const struct pollfd *fds, size_t count);
size_t bq_rd_take(void *state, bq_incoming **out, size_t max);
size_t bq_rd_submit(void *state, bq_op *const *ops, size_t count);
void bq_rd_forget(void *state, bq_incoming *in);
bool bq_rd_idle(void *state, bool all);
const char *bq_rd_library(void);

#define BQ_RD_OPS                                                                                                      \
    .close = bq_rd_close, .prepare = bq_rd_prepare, .service = bq_rd_service, .take = bq_rd_take,                      \
    .submit = bq_rd_submit, .reap = bq_rd_reap, .forget = bq_rd_forget, .idle = bq_rd_idle, .admin = &bq_redis_admin,  \
    .library = bq_rd_library

/* Which server it is, of the URLs that begin with `family`. */
#define BQ_RD_SERVER_OPTION_ROWS(family)                                                                               \
    {"db",                                                                                                             \
     BQ_OPT_INT,                                                                                                       \
     offsetof(rd_options, db),                                                                                         \
     "-1",                                                                                                             \
     -1,                                                                                                               \
     65535,                                                                                                            \
     NULL,                                                                                                             \
     0,                                                                                                                \
     NULL,                                                                                                             \
     family "+unix: the database; -1: the first"},                                                                     \
        {"master",                                                                                                     \
         BQ_OPT_STRING,                                                                                                \
         offsetof(rd_options, master),                                                                                 \
         NULL,                                                                                                         \
         0,                                                                                                            \
         0,                                                                                                            \
         NULL,                                                                                                         \
         0,                                                                                                            \
         NULL,                                                                                                         \
         family "+sentinel: the master's name there"},                                                                 \
        {"sentinel_user",                                                                                              \
         BQ_OPT_STRING,                                                                                                \
         offsetof(rd_options, sentinel_user),                                                                          \
         NULL,                                                                                                         \
         0,                                                                                                            \
         0,                                                                                                            \
         NULL,                                                                                                         \
         0,                                                                                                            \
         NULL,                                                                                                         \
         family "+sentinel: the user for the Sentinels themselves"},                                                   \
    {                                                                                                                  \
        "sentinel_password", BQ_OPT_STRING, offsetof(rd_options, sentinel_password), NULL, 0, 0, NULL, BQ_OPT_SECRET,  \
            NULL, family "+sentinel: the password for the Sentinels themselves"                                        \
    }

#endif
