/*
 * runtime/mover.h - taking messages off one queue in batches and moving each to another queue, or back: the I/O half of
 * redrive (contract 6). "Confirmed write, then acknowledge", in one guarded step where the driver has it.
 *
 * Synchronous, on the calling thread: bq_mover_pump is its loop. Leases are extended while messages are held.
 */
#ifndef BQ_RUNTIME_MOVER_H
#define BQ_RUNTIME_MOVER_H

#include "runtime/loop.h"

typedef enum bq_haul_stage {
    BQ_HAUL_FREE,
    BQ_HAUL_HELD,    /* taken, nothing decided */
    BQ_HAUL_WRITING, /* its copy is being written */
    BQ_HAUL_ENDING,  /* moved and acknowledged in one step, or being acknowledged */
    BQ_HAUL_BACK,    /* being given back unchanged */
    BQ_HAUL_MOVED,   /* done: the copy is written and the message acknowledged */
    BQ_HAUL_FAILED,  /* the move failed; `error` says why. The message is still held, unless it was lost */
    BQ_HAUL_STUCK    /* the driver has not answered in time and still holds the operation: left alone */
} bq_haul_stage;

/* One message in the mover's hands. */
typedef struct bq_haul {
    bq_haul_stage stage;
    bq_incoming *in;
    bq_error error;
    bq_buf body;    /* of the copy */
    bq_buf scratch; /* texts of the copy's properties */
    bq_prop *props;
    size_t prop_cap;
    bq_op op;
    bq_op extend;
    bool op_busy, extend_busy, extend_sent, op_sent;
    int64_t extend_at_ms;
} bq_haul;

typedef struct bq_mover {
    bq_link link;
    bq_str queue; /* taken from */
    bq_haul *hauls;
    size_t size; /* of the batch */
    bq_op **pending;
    size_t pending_count;
    int64_t timeout_ms; /* of one operation */
} bq_mover;

/* Opens and connects. `queue` is borrowed. */
bq_status bq_mover_open(bq_mover *mover, const char *url, bq_str queue, size_t batch, int64_t timeout_ms,
                        const bq_logger *logger, bq_error *err) BQ_MUST_CHECK;
void bq_mover_close(bq_mover *mover);

/* Takes up to `max` messages into free places; waits until there are so many, or nothing came for `patience_ms`, or
 * the queue is known to be empty. Returns how many. */
size_t bq_mover_take(bq_mover *mover, size_t max, int64_t patience_ms);
/* Room for `count` properties in the haul. */
bq_status bq_haul_props(bq_haul *haul, size_t count) BQ_MUST_CHECK;
/* Starts moving: `out` is borrowed until the haul is moved, failed or given back. */
void bq_mover_move(bq_mover *mover, bq_haul *haul, const bq_outgoing *out);
/* Gives back unchanged what is held. */
void bq_mover_give_back(bq_mover *mover, bq_haul *haul);
/* Lets go of what is moved, failed, or given back. */
void bq_mover_drop(bq_mover *mover, bq_haul *haul);
/* One turn of the loop, until `until_ms` at the latest. */
void bq_mover_pump(bq_mover *mover, int64_t until_ms);
/* Waits until nothing that was started is under way. False: a driver that does not answer holds something. */
bool bq_mover_await(bq_mover *mover);

#endif
