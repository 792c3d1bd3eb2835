/*
 * redis/conn.h - one connection: commands are written, and what their replies are for is remembered in order. A reply
 * is matched by its place alone, so a connection on which anything went wrong or took too long is closed, never used
 * again (a late reply would be taken for the next one's).
 */
#ifndef BQ_REDIS_CONN_H
#define BQ_REDIS_CONN_H

#include "net/stream.h"
#include "transport/held.h"
#include "transport/redis/args.h"
#include "transport/redis/reply.h"
#include "transport/redis/script.h"

typedef enum rd_kind {
    RD_HELLO_AUTH,
    RD_HELLO_SELECT,
    RD_HELLO_NAME,
    RD_HELLO_ROLE,
    RD_HELLO_PING,
    RD_LOAD,     /* SCRIPT LOAD */
    RD_PUBLISH,  /* slots */
    RD_SETTLE,   /* slots */
    RD_RESERVE,  /* of `queue` */
    RD_BACK,     /* deliveries that nobody took */
    RD_CHORE,    /* of `queue` */
    RD_PING,     /* heartbeat */
    RD_CALL,     /* an admin's */
    RD_WAIT,     /* on a waiting connection */
    RD_SENTINEL, /* on a Sentinel's */
} rd_kind;

struct rd_slot;
struct rd_call;

typedef struct rd_expect {
    rd_kind kind;
    size_t queue;
    size_t asked;
    int64_t sent_ms;
    int64_t deadline_ms;
    uint64_t start;        /* of the command, in bytes written to this connection */
    struct rd_slot *slots; /* a list */
    bq_held_list items;    /* deliveries */
    struct rd_call *call;
    char token[25];
} rd_expect;

typedef struct rd_conn {
    bq_stream *stream; /* NULL: closed */
    rd_reader *reader;
    bool ready; /* greeted */
    bool loaded[RD_SCRIPTS];
    uint64_t written;
    int64_t last_ms; /* anything received, or opened */
    rd_expect *expects;
    size_t head, count, cap;
} rd_conn;

bq_status bq_rd_conn_open(rd_conn *c, const bq_stream_config *config, int64_t now_ms, bq_error *err) BQ_MUST_CHECK;
/* Forgets what is expected: who wants to know takes it out before. */
void bq_rd_conn_close(rd_conn *c);
/* Frees its memory too. */
void bq_rd_conn_clear(rd_conn *c);
static inline bool rd_conn_is_open(const rd_conn *c)
{
    return c->stream != NULL;
}

/* Writes the command; all of it or nothing. */
bq_status bq_rd_conn_send(rd_conn *c, rd_args *args, const rd_expect *expect, bq_error *err) BQ_MUST_CHECK;
rd_expect *bq_rd_conn_at(rd_conn *c, size_t index);
bool bq_rd_conn_pop(rd_conn *c, rd_expect *out);
/* Is it certain that no byte of this command has left? */
bool bq_rd_conn_unsent(const rd_conn *c, const rd_expect *expect);
int64_t bq_rd_conn_deadline(rd_conn *c); /* the earliest of what is expected */
size_t bq_rd_conn_queued(const rd_conn *c);

size_t bq_rd_conn_prepare(rd_conn *c, struct pollfd *fd, int64_t *deadline_ms);
/* Reads and writes. */
bq_status bq_rd_conn_service(rd_conn *c, short revents, int64_t now_ms, bq_error *err) BQ_MUST_CHECK;
/* The next reply, NULL when there is none yet. */
bq_status bq_rd_conn_next(rd_conn *c, rd_reply **reply, bq_error *err) BQ_MUST_CHECK;

#endif
