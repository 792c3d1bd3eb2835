/*
 * process.h - starts `sh -c COMMAND` in a process group of its own, and ends it again. Every descriptor of bq is closed
 * there but the ones named. Any thread.
 */
#ifndef BQ_CLI_PROCESS_H
#define BQ_CLI_PROCESS_H

#include "cli.h"

#include <sys/types.h>

/* Where BQ_ENVELOPE_FILE points: above what shells use for themselves. */
#define SPAWN_ENVELOPE_FD 20

typedef struct spawn_spec {
    const char *command;
    char **environment;
    int stdin_fd;
    int stdout_fd;   /* -1: bq's own */
    int stderr_fd;   /* -1: bq's own */
    int envelope_fd; /* -1: none; becomes SPAWN_ENVELOPE_FD */
} spawn_spec;

typedef struct spawned {
    pid_t pid; /* the group too; 0: none */
    int fd;    /* readable once it has ended; -1 where the system has none */
} spawned;

/* 0, or an errno. */
int spawn_start(const spawn_spec *spec, spawned *child);
void spawn_signal(const spawned *child, int number);
/* Has the command itself ended? Does not collect it, so that its group keeps its number. */
bool spawn_ended(const spawned *child);
/* Collects it; waits if it must. Returns the status of waitpid. */
int spawn_collect(spawned *child);
/* Ends the whole group: SIGTERM, up to `grace_ms` for it to end, SIGKILL. Returns the status of waitpid. */
int spawn_end(spawned *child, int64_t grace_ms);
/* Waits for its end, at most so long. */
bool spawn_wait(const spawned *child, int64_t timeout_ms);

/* "exit status N" or "signal N". */
void spawn_describe(int status, char *buf, size_t size);

/* An in-memory file that holds the bytes and stands at its beginning; -1: errno says why. */
int memory_file(const char *name, bq_str bytes);

int64_t monotonic_ms(void);

#endif
