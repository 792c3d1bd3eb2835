/*
 * transport/target.h - from a URL to what opening it needs: the driver, the parsed URL, the driver's filled options
 * and the row of the binding table.
 */
#ifndef BQ_TRANSPORT_TARGET_H
#define BQ_TRANSPORT_TARGET_H

#include <babelqueue/transport.h>

#include "net/tls.h"

typedef struct bq_target {
    const bq_transport_ops *ops;
    const bq_binding *binding;
    bq_url url;
    void *options;
    void *storage; /* of the url's strings */
} bq_target;

/* Also sees to the environment variables of options that the URL does not give.
 * INVALID: malformed URL, unknown scheme or option (with the nearest known one); NOT_BUILT; CONFIG: values that
 * contradict each other. Secrets never appear in `err`. */
bq_status bq_target_parse(bq_target *out, const char *url, bq_error *err) BQ_MUST_CHECK;
void bq_target_clear(bq_target *target);

/* Options of every network transport: the first member of a network driver's options struct, and the
 * first rows of its table. */
typedef struct bq_network_options {
    int64_t connect_timeout_ms;
    int64_t timeout_ms;
    int64_t reconnect_min_ms;
    int64_t reconnect_max_ms;
    int64_t heartbeat_ms; /* 0: the broker's; -1: none */
    const char *client_name;
} bq_network_options;

/* clang-format off */
#define BQ_NETWORK_OPTION_ROWS(type, member)                                                                   \
    {"connect_timeout", BQ_OPT_DURATION, offsetof(type, member.connect_timeout_ms), "10s", 1, 3600000, NULL,   \
     BQ_OPT_NETWORK, NULL, "how long one connection attempt may take"},                                        \
    {"timeout", BQ_OPT_DURATION, offsetof(type, member.timeout_ms), "30s", 1, 86400000, NULL,                  \
     BQ_OPT_NETWORK, NULL, "how long one operation may take until it is confirmed"},                           \
    {"reconnect_min", BQ_OPT_DURATION, offsetof(type, member.reconnect_min_ms), "100ms", 1, 3600000, NULL,     \
     BQ_OPT_NETWORK, NULL, "first pause before connecting again"},                                             \
    {"reconnect_max", BQ_OPT_DURATION, offsetof(type, member.reconnect_max_ms), "10s", 1, 3600000, NULL,       \
     BQ_OPT_NETWORK, NULL, "longest pause before connecting again"},                                           \
    {"heartbeat", BQ_OPT_DURATION, offsetof(type, member.heartbeat_ms), NULL, -1, 3600000, NULL,               \
     BQ_OPT_NETWORK, NULL, "heartbeat interval, or off (the broker's)"},                                       \
    {"client_name", BQ_OPT_STRING, offsetof(type, member.client_name), NULL, 0, 0, NULL,                       \
     BQ_OPT_NETWORK, NULL, "name shown in the broker's connection list"}

/* Options of a transport that can speak TLS: a bq_tls_options member, and its rows. */
#define BQ_TLS_OPTION_ROWS(type, member)                                                                       \
    {"tls_ca", BQ_OPT_STRING, offsetof(type, member.ca), NULL, 0, 0, NULL,                                     \
     BQ_OPT_TLS, NULL, "PEM file or directory of the authorities to trust (the system's)"},                    \
    {"tls_cert", BQ_OPT_STRING, offsetof(type, member.cert), NULL, 0, 0, NULL,                                 \
     BQ_OPT_TLS, NULL, "PEM file of the client certificate, its chain after it"},                              \
    {"tls_key", BQ_OPT_STRING, offsetof(type, member.key), NULL, 0, 0, NULL,                                   \
     BQ_OPT_TLS, NULL, "PEM file of the client certificate's private key"},                                    \
    {"tls_key_password", BQ_OPT_STRING, offsetof(type, member.key_password), NULL, 0, 0, NULL,                 \
     BQ_OPT_TLS | BQ_OPT_SECRET, NULL, "password of that file"},                                               \
    {"tls_verify", BQ_OPT_BOOL, offsetof(type, member.verify), "yes", 0, 0, NULL,                              \
     BQ_OPT_TLS, NULL, "verify the server's chain and its name or IP address"},                                \
    {"tls_server_name", BQ_OPT_STRING, offsetof(type, member.server_name), NULL, 0, 0, NULL,                   \
     BQ_OPT_TLS, NULL, "name to ask for and to verify (the URL's host)"}
/* clang-format on */

#endif
