/*
 * redis/reply.h - replies as hiredis's reader builds them, in memory of our own: a string of a reply can be kept (a
 * delivery keeps its element) without a copy. RESP2.
 */
#ifndef BQ_REDIS_REPLY_H
#define BQ_REDIS_REPLY_H

#include <babelqueue/types.h>

typedef enum rd_type { RD_NIL, RD_STRING, RD_STATUS, RD_ERROR, RD_INTEGER, RD_ARRAY } rd_type;

typedef struct rd_reply {
    rd_type type;
    int64_t integer;
    size_t count;            /* ARRAY: elements; else bytes of `text` */
    struct rd_reply **items; /* ARRAY */
    char text[];             /* STRING, STATUS, ERROR; with a NUL behind it */
} rd_reply;

typedef struct rd_reader rd_reader;

rd_reader *bq_rd_reader_new(void); /* NULL: out of memory */
void bq_rd_reader_free(rd_reader *reader);
/* DATA: these bytes are no reply; NOMEM. The reader is unusable then. */
bq_status bq_rd_reader_feed(rd_reader *reader, bq_str bytes, bq_error *err) BQ_MUST_CHECK;
/* The next whole reply, NULL when there is none yet. */
bq_status bq_rd_reader_next(rd_reader *reader, rd_reply **reply, bq_error *err) BQ_MUST_CHECK;
void bq_rd_reply_free(rd_reply *reply);

/* The text of a string, status or error; absent of anything else. */
bq_str bq_rd_text(const rd_reply *reply);
/* The element at `index` of an array; NULL when there is none. */
const rd_reply *bq_rd_at(const rd_reply *reply, size_t index);
/* The integer at `index`; `otherwise` when there is none. Kept within what Lua counts exactly, 2^53, a thousand times of
 * which fits still. */
int64_t bq_rd_int_at(const rd_reply *reply, size_t index, int64_t otherwise);
/* Takes the string at `index` out of its array: the caller frees it. NULL when there is none. */
rd_reply *bq_rd_take_at(rd_reply *reply, size_t index);

#endif
