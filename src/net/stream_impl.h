/* net/stream_impl.h - the stream's insides, shared by stream.c (bytes) and connect.c (getting there). */
#ifndef BQ_NET_STREAM_IMPL_H
#define BQ_NET_STREAM_IMPL_H

#include "net/fifo.h"
#include "net/resolve.h"
#include "net/stream.h"

#include <sys/un.h>

typedef enum bq_stream_state {
    BQ_STREAM_RESOLVING,
    BQ_STREAM_CONNECTING,  /* a connect is under way on `fd` */
    BQ_STREAM_PAUSING,     /* a unix socket's backlog is full: tried again at retry_ms */
    BQ_STREAM_HANDSHAKING, /* TLS */
    BQ_STREAM_OPEN,
    BQ_STREAM_FAILED
} bq_stream_state;

struct bq_stream {
    bq_stream_state state;
    int fd;
    bq_error failure; /* in FAILED */

    /* Getting there. */
    bq_resolve *resolve;
    const struct addrinfo *next; /* addresses not tried yet */
    size_t tried;
    int64_t opened_ms;
    int64_t deadline_ms; /* of the whole attempt */
    int64_t address_deadline_ms;
    int64_t retry_ms;
    struct sockaddr_un unix_address; /* sun_family 0: TCP */
    bq_tls_context *tls_context;
    char *host;
    int port;
    char peer[320];
    size_t peer_name_len; /* of `peer` without the address */

    /* Bytes. */
    bq_tls *tls;
    bq_fifo input;
    bq_fifo output;
    size_t read_max;
    size_t write_max;
    short handshake_wants; /* POLLIN or POLLOUT */
    bool read_wants_write; /* TLS: reading goes on when the socket is writable */
    bool write_wants_read; /* TLS: and the other way round */
    bool more_input;       /* reading stopped before the socket (or TLS) was empty */
    bool output_blocked;   /* the last send took less than there was */
    bool input_ended;
    bool finish_wanted;
    bool finished;
};

/* Fails the stream for good; returns the status. `err` may be the failure itself. */
bq_status bq_stream_fail(bq_stream *s, const bq_error *err);

/* connect.c */
bq_status bq_stream_connect_start(bq_stream *s, bq_error *err);
size_t bq_stream_connect_prepare(bq_stream *s, struct pollfd *fd, int64_t *deadline_ms);
/* Moves on towards OPEN as far as it goes without waiting. A failure has been recorded. */
bq_status bq_stream_connect_service(bq_stream *s, short revents);

#endif
