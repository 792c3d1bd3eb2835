/*
 * redis/layout.h - what differs between the layouts that queues have on a server: their keys, the commands of each
 * operation, and what the answers hold. Each layout is one constant in a file of its own (list.c, laravel.c); all else
 * of the driver is the same for all of them.
 *
 * Commands are written into t->args. Scripts run on the server whole or not at all, but for running out of memory.
 */
#ifndef BQ_REDIS_LAYOUT_H
#define BQ_REDIS_LAYOUT_H

#include "transport/redis/conn.h"

struct rd_transport;
struct rd_options;
struct rd_delivery;
struct rd_slots;
struct rd_waiter;

/* Queues that the dead letters of one batch go to, at most. */
#define RD_BATCH_TARGETS 8

typedef struct rd_targets {
    bq_str name[RD_BATCH_TARGETS];
    size_t count;
} rd_targets;

/* The keys of a queue, in the order in which its scripts take them. */
typedef struct rd_keys {
    bq_str key[4];
    char *storage;
} rd_keys;

/* Where the answer of a reserve script begins to list what was reserved: pairs of the message as it is stored, and what
 * the layout wants to know of it. Before that: {now in ms, ready ones left, when the next one is due in ms or -1, found
 * reserved with an end or -1, found delayed or -1, 1: a message that is to be taken alone waits, the layout's own}. */
#define RD_FIRST_ITEM 7

typedef struct rd_layout {
    const char *binding;  /* row of the binding table */
    bool frames;          /* headers travel in a frame around the body (contract 7.1) */
    bool waits_for_all;   /* one connection waits for all queues */
    bool scans_sets;      /* a queue may consist of sorted sets alone */
    bool fails_natively;  /* the broker retries and rejects by itself */
    const char *key_type; /* of the key that tells a queue's name; NULL: a list */
    bool follows;         /* redirections of a cluster: all keys of a queue are in one slot */
    rd_script reserve_script, settle_script;
    bq_status (*keys)(const struct rd_options *options, bq_str queue, rd_keys *out);
    /* NULL: nothing to object to. What would be wrong in an operation is told before anything is sent. */
    bq_status (*check)(const bq_op *op, bq_error *err);
    /* A batch of publishes to one queue. Returns the script, RD_SCRIPTS when it is a command of its own. */
    rd_script (*publish)(struct rd_transport *t, const struct rd_slots *batch, bool delayed);
    void (*reserve)(struct rd_transport *t, size_t index, size_t count, bool beside, rd_expect *expect);
    /* The script of settlements in one queue: its head, then its entries. `verb`: a r b t d e n x (acknowledge, release,
     * put back in front, retry, dead letter, extend, fail, fail for good); `op`: NULL with b; `target`: the dead
     * letter's, an index. */
    void (*settle)(struct rd_transport *t, size_t index, const rd_targets *targets);
    void (*entry)(struct rd_transport *t, char verb, const struct rd_delivery *d, const bq_op *op, size_t target);
    /* The command that blocks until a queue has something, without its time-out. */
    void (*wait)(struct rd_transport *t, const struct rd_waiter *w);
    /* The `index`th reservation of an answer, whose message is in `d` already. False: out of memory. */
    bool (*read)(const struct rd_transport *t, struct rd_delivery *d, const rd_reply *reply, size_t index,
                 const rd_expect *expect);
    /* When a reservation of now lapses, by the server's clock in ms; NULL: whole seconds later. */
    int64_t (*deadline)(const struct rd_transport *t, int64_t server_ms);
    /* Now and then, for each queue: how often in ms (-1: never), and what is sent. Returns the script. */
    int64_t (*chore_ms)(const struct rd_transport *t);
    rd_script (*chore)(struct rd_transport *t, size_t index);
    /* The queue that a key belongs to: helper keys are folded under it. Absent: none of ours. */
    bq_str (*queue_of)(const struct rd_options *options, bq_str key);
    bq_status (*stats)(struct rd_transport *t, const rd_keys *queue, const rd_keys *dead, int64_t end,
                       bq_queue_stats *out, bq_error *err);
    /* Answered with how many were deleted; with `purge_step`, sent again while it is so many. */
    rd_script (*purge)(struct rd_transport *t, const rd_keys *keys);
    int64_t purge_step;
    /* How long an idle consumer waits before it looks by itself; NULL: RD_LOOK_MS. */
    int64_t (*look_ms)(const struct rd_transport *t);
    /* NULL: what is ready is a list. The script shows messages as they are stored, each followed by what `read_peeked`
     * wants to know. */
    rd_script (*peek)(struct rd_transport *t, const rd_keys *keys, uint64_t after, size_t count);
    /* Failed ones likewise, behind the time until when; and one of them back to its queue. NULL: there are none. */
    rd_script (*failed)(struct rd_transport *t, const rd_keys *keys, int64_t until_ms, uint64_t after, size_t count);
    rd_script (*retry)(struct rd_transport *t, const rd_keys *keys, bq_str id);
    bool (*read_peeked)(struct rd_delivery *d, const rd_reply *page, size_t at);
} rd_layout;

extern const rd_layout bq_rd_list, bq_rd_laravel, bq_rd_bullmq;

#endif
