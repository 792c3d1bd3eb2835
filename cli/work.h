/*
 * work.h - what the parts of `bq work` share: its options, and the three ways to handle a message.
 */
#ifndef BQ_CLI_WORK_H
#define BQ_CLI_WORK_H

#include "cli.h"

#include <stdatomic.h>

typedef struct work_values {
    cli_common common;
    cli_list queues;
    const char *exec;
    cli_list handles;
    const char *handle_stdio;
    int64_t coprocesses;
    bool print;
    int format;
    int64_t handler_timeout_ms;
    int64_t max;
    cli_maybe drain;
    int64_t concurrency;
    int64_t prefetch;
    int64_t max_attempts;
    cli_maybe dlq;
    bool no_dlq;
    int unknown;
    int64_t unknown_delay_ms;
    int64_t retry_backoff_ms;
    double retry_multiplier;
    int64_t retry_max_ms;
    int retry_jitter;
    int64_t shutdown_timeout_ms;
    const char *lang;
} work_values;

/* Stops the consumer, gently at first, at once the second time. Async-signal-safe and thread-safe; before the consumer
 * is there it is remembered. */
void work_stop(void);

/* ---- --exec and --handle: a process for each message (work_exec.c). From handler threads. ---- */

typedef struct exec_handler {
    const char *command;
    int64_t timeout_ms;    /* 0: none */
    atomic_bool succeeded; /* it has judged a message: done or rejected */
    atomic_bool broken;    /* it cannot be run: everything is given back, and the run ends */
    atomic_bool unstarted; /* a message was given back because no process could be started for it */
} exec_handler;

/* `arg` is an exec_handler. A command that cannot be run (126, 127) and never could ends the run. */
bq_outcome work_exec(bq_delivery *delivery, void *arg);

/* ---- --print (work_print.c). From handler threads. ---- */

/* `arg` is a message_format *. */
bq_outcome work_print(bq_delivery *delivery, void *arg);

/* The name under which a handler that took too long is known in `dead_letter.exception`. */
#define WORK_TIMEOUT_NAME "HandlerTimeout"

#endif
