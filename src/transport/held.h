/*
 * transport/held.h - the deliveries that a driver has in hand: the life that every driver gives them, in one place.
 *
 * A driver's own delivery begins with a bq_held, so that a pointer to the one is a pointer to the other. A delivery
 * stands in one list at a time. It is let go of when it is settled (or forgotten) and the last operation that names it
 * has been reaped; when the runtime asked to keep it (`in.keep`), it then waits, detached, until it is forgotten.
 *
 * Thread rule: the driver's thread; only bq_held_forget of a detached one may come from any thread, also after the
 * driver was closed, and touches nothing but the delivery.
 */
#ifndef BQ_TRANSPORT_HELD_H
#define BQ_TRANSPORT_HELD_H

#include <babelqueue/transport.h>

typedef struct bq_held {
    bq_incoming in;
    struct bq_held *prev, *next;
    unsigned ops;   /* accepted and not reaped operations that name it */
    bool settled;   /* settled, or forgotten: let go of with its last operation */
    bool detached;  /* in no list: its driver has let go of it */
    bool forgotten; /* the runtime has let go of it */
} bq_held;

typedef struct bq_held_list {
    bq_held *head, *tail;
    size_t count;
} bq_held_list;

/* `in` of an operation, which may be NULL. */
static inline bq_held *bq_held_of(const bq_incoming *in)
{
    return in ? in->driver : NULL;
}

void bq_held_add(bq_held_list *list, bq_held *held);       /* at the end */
void bq_held_add_front(bq_held_list *list, bq_held *held); /* where what was given back stands */
void bq_held_remove(bq_held_list *list, bq_held *held);
/* The first one, taken out; NULL when there is none. */
bq_held *bq_held_pop(bq_held_list *list);

/* An operation that names it was reaped. True: the driver lets go of it now. */
bool bq_held_reaped(bq_held *held);
/* Takes it out of `list` unless it is detached already. True: nobody needs it any more, free it. */
bool bq_held_let_go(bq_held_list *list, bq_held *held);
/* The runtime needs it no more. True: nothing is under way with it, the driver lets go of it now. For one that is not
 * detached. */
bool bq_held_forget(bq_held *held);

#endif
