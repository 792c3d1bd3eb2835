/*
 * net/tls.h - TLS for a stream: a context made once from a driver's options (files are read, faults found then), and
 * a connection over a non-blocking socket. TLS 1.2 at least; the chain and the name or IP address are verified; no
 * signal is raised by a broken connection. Built without OpenSSL (BQ_TLS off), a context is NOT_BUILT.
 *
 * A context may serve several threads, a connection one at a time.
 */
#ifndef BQ_NET_TLS_H
#define BQ_NET_TLS_H

#include <babelqueue/types.h>

/* The options of every TLS connection, filled by a driver's option table. */
typedef struct bq_tls_options {
    const char *ca;           /* PEM file or directory of the authorities trusted; NULL: the system's */
    const char *cert;         /* PEM file of the client's certificate, its chain after it */
    const char *key;          /* PEM file of its private key */
    const char *key_password; /* of that file */
    const char *server_name;  /* name to ask for and to verify; NULL: the host connected to */
    bool verify;              /* the chain, and the name or IP address */
} bq_tls_options;

typedef struct bq_tls_context bq_tls_context;
typedef struct bq_tls bq_tls;

typedef enum bq_tls_result {
    BQ_TLS_DONE,
    BQ_TLS_WANT_READ,  /* again when the socket is readable */
    BQ_TLS_WANT_WRITE, /* again when it is writable */
    BQ_TLS_EOF,        /* read: the peer ended its side properly */
    BQ_TLS_FAILED
} bq_tls_result;

/* CONFIG: a file that cannot be read, a key that is not the certificate's. Options are not needed afterwards. */
bq_status bq_tls_context_new(bq_tls_context **out, const bq_tls_options *options, bq_error *err) BQ_MUST_CHECK;
bq_tls_context *bq_tls_context_ref(bq_tls_context *context);
void bq_tls_context_free(bq_tls_context *context); /* one reference; NULL is fine */

/* `host` is what was connected to, NULL for a unix socket (then verification needs `server_name`). */
bq_status bq_tls_new(bq_tls **out, bq_tls_context *context, int fd, const char *host, bq_error *err) BQ_MUST_CHECK;
/* Failures: AUTH when a side does not accept the other's certificate, else UNAVAILABLE. */
bq_tls_result bq_tls_handshake(bq_tls *tls, bq_error *err);
bq_tls_result bq_tls_read(bq_tls *tls, void *to, size_t size, size_t *count, bq_error *err);
/* After WANT_*, the same bytes must be offered again, perhaps with more behind them. */
bq_tls_result bq_tls_write(bq_tls *tls, const void *from, size_t len, size_t *count, bq_error *err);
/* Tells the peer that no more will be written. */
bq_tls_result bq_tls_finish(bq_tls *tls);
void bq_tls_free(bq_tls *tls); /* the socket stays open; NULL is fine */

#endif
