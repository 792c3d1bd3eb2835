/*
 * transport/target.h - from a URL to what opening it needs: the driver, the parsed URL, the driver's filled options
 * and the row of the binding table.
 */
#ifndef BQ_TRANSPORT_TARGET_H
#define BQ_TRANSPORT_TARGET_H

#include <babelqueue/transport.h>

typedef struct bq_target {
    const bq_transport_ops *ops;
    const bq_binding *binding;
    bq_url url;
    void *options;
    void *storage; /* of the url's strings */
} bq_target;

/* INVALID: malformed URL, unknown scheme or option (with the nearest known one); NOT_BUILT; CONFIG: values that
 * contradict each other. Secrets never appear in `err`. */
bq_status bq_target_parse(bq_target *out, const char *url, bq_error *err) BQ_MUST_CHECK;
void bq_target_clear(bq_target *target);

/* Options of every network transport (options.md): the first member of a network driver's options struct, and the
 * first rows of its table. */
typedef struct bq_network_options {
    int64_t connect_timeout_ms;
    int64_t timeout_ms;
    int64_t reconnect_min_ms;
    int64_t reconnect_max_ms;
    int64_t heartbeat_ms; /* -1: the broker's */
    const char *client_name;
} bq_network_options;

#define BQ_NETWORK_OPTION_ROWS(type, member)                                                                           \
    {"connect_timeout",                                                                                                \
     BQ_OPT_DURATION,                                                                                                  \
     offsetof(type, member.connect_timeout_ms),                                                                        \
     "10s",                                                                                                            \
     1,                                                                                                                \
     3600000,                                                                                                          \
     NULL,                                                                                                             \
     BQ_OPT_NETWORK,                                                                                                   \
     NULL,                                                                                                             \
     "how long one connection attempt may take"},                                                                      \
        {"timeout",                                                                                                    \
         BQ_OPT_DURATION,                                                                                              \
         offsetof(type, member.timeout_ms),                                                                            \
         "30s",                                                                                                        \
         1,                                                                                                            \
         86400000,                                                                                                     \
         NULL,                                                                                                         \
         BQ_OPT_NETWORK,                                                                                               \
         NULL,                                                                                                         \
         "how long one operation may take until it is confirmed"},                                                     \
        {"reconnect_min",                                                                                              \
         BQ_OPT_DURATION,                                                                                              \
         offsetof(type, member.reconnect_min_ms),                                                                      \
         "100ms",                                                                                                      \
         1,                                                                                                            \
         3600000,                                                                                                      \
         NULL,                                                                                                         \
         BQ_OPT_NETWORK,                                                                                               \
         NULL,                                                                                                         \
         "first pause before connecting again"},                                                                       \
        {"reconnect_max",                                                                                              \
         BQ_OPT_DURATION,                                                                                              \
         offsetof(type, member.reconnect_max_ms),                                                                      \
         "10s",                                                                                                        \
         1,                                                                                                            \
         3600000,                                                                                                      \
         NULL,                                                                                                         \
         BQ_OPT_NETWORK,                                                                                               \
         NULL,                                                                                                         \
         "longest pause before connecting again"},                                                                     \
        {"heartbeat",                                                                                                  \
         BQ_OPT_DURATION,                                                                                              \
         offsetof(type, member.heartbeat_ms),                                                                          \
         NULL,                                                                                                         \
         0,                                                                                                            \
         3600000,                                                                                                      \
         NULL,                                                                                                         \
         BQ_OPT_NETWORK,                                                                                               \
         NULL,                                                                                                         \
         "heartbeat interval (the broker's)"},                                                                         \
    {                                                                                                                  \
        "client_name", BQ_OPT_STRING, offsetof(type, member.client_name), NULL, 0, 0, NULL, BQ_OPT_NETWORK, NULL,      \
            "name shown in the broker's connection list"                                                               \
    }

#endif
