/*
 * runtime/message.h - one message on its way out: the driver's operation, the bytes it refers to, and its place in the
 * publisher's lists. Made on the caller's thread, then handed to the I/O thread.
 */
#ifndef BQ_RUNTIME_MESSAGE_H
#define BQ_RUNTIME_MESSAGE_H

#include "runtime/loop.h"

#include <babelqueue/publisher.h>

typedef struct bq_message {
    bq_op op;
    struct bq_message *next;          /* in the queue or the pool */
    struct bq_message *older, *newer; /* among all that is in flight */
    uint64_t seq;
    bq_published_fn done;
    void *arg;
    size_t weight; /* bytes it counts for */
    bool offered;  /* in a driver's submit right now, or accepted */
    bool refused;  /* the driver did not accept it at its last offer */
    bool answered; /* called back, or being called back */
    bool told;     /* called back, and still held by the driver */
    char id[BQ_ID_SIZE];
    bq_buf body;
    bq_buf texts;   /* queue, key, group, headers: reserved at once, so that views stay */
    bq_buf scratch; /* what projection had to format or unescape */
    bq_prop *props;
    size_t prop_cap;
} bq_message;

bq_message *bq_message_new(void);
void bq_message_free(bq_message *message);
/* Ready for another message; memory is kept unless there is much of it. */
void bq_message_reset(bq_message *message);

/* Makes the envelope (or takes the given body) and projects it (contract 1, 5, 7). */
bq_status bq_message_build(bq_message *message, const bq_link *link, const bq_message_spec *spec, bq_str lang,
                           bq_error *err) BQ_MUST_CHECK;

static inline bq_message *bq_message_of(bq_op *op)
{
    return (bq_message *)op; /* its first member */
}

#endif
