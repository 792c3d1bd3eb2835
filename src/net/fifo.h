/*
 * net/fifo.h - bytes in, bytes out, always contiguous: what a frame parser and a send want. Room is made by moving
 * the content to the front when at least half of the block is free there, else by growing, so that each byte is moved
 * a bounded number of times.
 */
#ifndef BQ_NET_FIFO_H
#define BQ_NET_FIFO_H

#include <babelqueue/types.h>

/* All zero is empty. */
typedef struct bq_fifo {
    char *ptr;
    size_t start;
    size_t len;
    size_t cap;
} bq_fifo;

/* Makes room for `extra` bytes behind the content; false when memory is short, with the content unchanged. */
bool bq_fifo_reserve(bq_fifo *fifo, size_t extra);
/* The room behind the content, and the taking over of bytes that were written there. */
char *bq_fifo_tail(bq_fifo *fifo, size_t *room);
void bq_fifo_produce(bq_fifo *fifo, size_t count);
/* Into room that was reserved. */
void bq_fifo_put(bq_fifo *fifo, const void *bytes, size_t len);
bq_str bq_fifo_content(const bq_fifo *fifo);
void bq_fifo_consume(bq_fifo *fifo, size_t count);
/* Gives back the block of an empty queue when it is large. Consuming does not: room that was reserved stays. */
void bq_fifo_trim(bq_fifo *fifo);
void bq_fifo_clear(bq_fifo *fifo);

#endif
