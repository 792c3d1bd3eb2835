/*
 * mux.h - `bq work --handle-stdio`: deliveries from the consumer's handler threads, coprocesses on the main thread.
 */
#ifndef BQ_CLI_MUX_H
#define BQ_CLI_MUX_H

#include "cli.h"

typedef struct mux mux;

typedef struct mux_options {
    const char *command;
    size_t coprocesses;
    int64_t timeout_ms; /* 0: none */
} mux_options;

mux *mux_new(const mux_options *options); /* NULL: no memory */
void mux_free(mux *m);

/* A handler: `arg` is the mux. From handler threads. */
bq_outcome mux_handle(bq_delivery *delivery, void *arg);

/* Runs until the consumer has stopped, on the main thread. The consumer's own end in *status and *err; CLI_DONE, or
 * CLI_CONFIG when the coprocess cannot be run. */
int mux_run(mux *m, bq_consumer *consumer, bq_status *status, bq_error *err);

/* Instead of mux_run: gives back what has come, and all that comes. NULL is fine. */
void mux_abandon(mux *m);

#endif
