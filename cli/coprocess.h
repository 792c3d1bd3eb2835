/*
 * coprocess.h - one long-lived handler process of `bq work --handle-stdio`: its pipes, what it holds, its restarts.
 * Everything here runs on the main thread; nothing waits, except coprocess_finish.
 */
#ifndef BQ_CLI_COPROCESS_H
#define BQ_CLI_COPROCESS_H

#include "inflight.h"
#include "process.h"
#include "reader.h"

typedef struct coprocess_events {
    /* A message of which the process never saw a byte, when it ended: to be given to another one. */
    void (*give_back)(bq_delivery *delivery, void *arg);
    void *arg;
} coprocess_events;

typedef enum coprocess_state {
    COPROCESS_DOWN, /* to be started at start_ms */
    COPROCESS_RUNNING,
    COPROCESS_BROKEN, /* the command cannot be run at all */
} coprocess_state;

typedef struct coprocess {
    size_t number; /* from 1, for messages */
    const char *command;
    int64_t timeout_ms; /* 0: none */
    const coprocess_events *events;
    coprocess_state state;
    spawned child;
    int in_fd;           /* its stdin; -1 while running: it has closed it */
    int64_t closed_ms;   /* ... until then it may end by itself */
    line_reader answers; /* its stdout */
    bq_json doc;
    bq_buf out; /* what it is still to read, from out_done on */
    size_t out_done;
    uint64_t written; /* bytes that went into in_fd, ever */
    inflight jobs;
    uint64_t next_n;
    uint64_t answered; /* since it was started */
    uint64_t starts;
    int64_t start_ms;
    int64_t backoff_ms;
    bool quiet;    /* the run is ending: late answers and exits are no news */
    bool released; /* messages were taken out of its hands: nobody waits for it */
} coprocess;

bool coprocess_init(coprocess *c, size_t number, const char *command, int64_t timeout_ms,
                    const coprocess_events *events);
void coprocess_clear(coprocess *c);

/* Starts it when it is time to. */
void coprocess_start_due(coprocess *c, int64_t now_ms);
/* Gives it a message; false: no memory. */
bool coprocess_give(coprocess *c, bq_delivery *delivery);
/* Writes what can be written now. */
void coprocess_write(coprocess *c);
/* It reads no more, most likely because it has ended, which its stdout will tell; else it gets a moment to end. */
void coprocess_deaf(coprocess *c);
/* Reads what is there, settles what is answered. Also when the process has ended. */
void coprocess_read(coprocess *c);
/* What is due: the oldest message's deadline. */
void coprocess_check(coprocess *c, int64_t now_ms);
/* Settles as released what the consumer has cancelled, or all. */
void coprocess_release(coprocess *c, bool all);
/* When it wants to be called next, at most `until`. */
int64_t coprocess_next(const coprocess *c, int64_t until_ms);
/* Closes its stdin and waits for its end; SIGTERM and SIGKILL when it does not. */
void coprocess_finish(coprocess *c);

#endif
