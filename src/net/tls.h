/* net/tls.h - the options of every TLS connection (options.md's "TLS" row), filled by a driver's option table. */
#ifndef BQ_NET_TLS_H
#define BQ_NET_TLS_H

#include <stdbool.h>

typedef struct bq_tls_options {
    const char *ca;           /* PEM file or directory of the authorities trusted; NULL: the system's */
    const char *cert;         /* PEM file of the client's certificate, its chain after it */
    const char *key;          /* PEM file of its private key */
    const char *key_password; /* of that file */
    const char *server_name;  /* name to ask for and to verify; NULL: the host connected to */
    bool verify;              /* the chain, and the name or IP address */
} bq_tls_options;

#endif
