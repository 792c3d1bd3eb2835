/*
 * net/stream.h - a connection as a poll loop wants it: TCP, unix socket, either with TLS. Nothing here waits.
 *
 *     bq_stream_open(&s, &config, err);                 // begins: look-up, connect, handshake go on in service
 *     for (;;) {
 *         n = bq_stream_prepare(s, &fd, &deadline_ms);  // n descriptors (0 or 1) to watch, until when
 *         poll(&fd, n, bq_poll_timeout(now, deadline_ms));
 *         status = bq_stream_service(s, n ? fd.revents : 0, err);
 *         ... bq_stream_input, bq_stream_consume, bq_stream_write ...
 *     }
 *     bq_stream_close(s);
 *
 * Input gathers up to `read_max` bytes and is always contiguous; when it is full, reading pauses until some is
 * consumed (backpressure). Output is queued up to `write_max` bytes and sent by service, or at once by flush; a
 * write takes all of its bytes or none. A failure is final: service returns it again, what had arrived stays
 * readable, and close follows. No call raises SIGPIPE. One thread at a time.
 */
#ifndef BQ_NET_STREAM_H
#define BQ_NET_STREAM_H

#include "net/tls.h"

#include <poll.h>

typedef struct bq_stream bq_stream;

typedef struct bq_stream_config {
    const char *host; /* a name or an address, IPv6 without brackets; NULL: `path` */
    int port;
    const char *path;           /* of a unix socket */
    bq_tls_context *tls;        /* NULL: plain. The stream keeps a reference of its own. */
    int64_t connect_timeout_ms; /* for the look-up, all addresses and the handshake; negative: none */
    size_t read_max;            /* 0: 1 MiB */
    size_t write_max;           /* 0: 16 MiB */
} bq_stream_config;

/* Texts of the config are copied. INVALID: neither a host with a port nor a path, or a path too long for a socket. */
bq_status bq_stream_open(bq_stream **out, const bq_stream_config *config, bq_error *err) BQ_MUST_CHECK;
/* At once, whatever the state; output not sent is dropped. NULL is fine. */
void bq_stream_close(bq_stream *s);

/* Returns 1 with `fd` filled, or 0 when there is nothing to watch. Lowers *deadline_ms (monotonic): to the present
 * when data is buffered that poll cannot see (TLS), to the connection attempt's end. */
size_t bq_stream_prepare(bq_stream *s, struct pollfd *fd, int64_t *deadline_ms);
/* Does what is due, within a budget of bytes. Calls without need are fine. UNAVAILABLE: not reached, or lost; AUTH: a
 * certificate or the socket's permissions; BQ_OK otherwise, also once the peer has ended its side. */
bq_status bq_stream_service(bq_stream *s, short revents, bq_error *err) BQ_MUST_CHECK;

bool bq_stream_is_open(const bq_stream *s);     /* connected, handshake included, and not failed */
bool bq_stream_has_ended(const bq_stream *s);   /* the peer ended its side, and all it sent was consumed */
const char *bq_stream_peer(const bq_stream *s); /* "redis.example:6379 (10.0.0.5)", for logs */

bq_str bq_stream_input(const bq_stream *s); /* valid until service, consume or close */
void bq_stream_consume(bq_stream *s, size_t count);
/* A frame longer than read_max must be allowed for, or it never arrives. */
void bq_stream_set_read_max(bq_stream *s, size_t read_max);

/* Before the connection is made, too. BUSY: more than bq_stream_room; NOMEM; CLOSED after finish; a failed stream's
 * failure. Nothing is taken then. */
bq_status bq_stream_write(bq_stream *s, bq_str bytes, bq_error *err) BQ_MUST_CHECK;
bq_status bq_stream_writev(bq_stream *s, const bq_str *parts, size_t count, bq_error *err) BQ_MUST_CHECK;
size_t bq_stream_room(const bq_stream *s);
size_t bq_stream_queued(const bq_stream *s); /* accepted, and not yet given to the system */
/* Sends what can be sent now rather than at the next service. */
bq_status bq_stream_flush(bq_stream *s, bq_error *err) BQ_MUST_CHECK;
/* Half-close: after what is queued, the peer is told that there will be no more. */
void bq_stream_finish(bq_stream *s);

#endif
