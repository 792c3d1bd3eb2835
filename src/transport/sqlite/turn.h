/*
 * sqlite/turn.h - whose turn it is to write, and waking those who wait: a side file "<database>-turn".
 *
 * SQLite has one writer at a time and no queue for it: whoever happens to ask in the right moment gets in, and with
 * several busy processes some starve. So the processes queue up here first. The file stays empty; what counts are its
 * open-file-description locks, which the kernel drops when a process dies, however it dies:
 *
 *     byte 0          locked by the one that writes
 *     byte n >= 1     locked by one that waits; n is the moment it began to wait (microseconds since boot), so the
 *                     lowest locked byte is the next one. "Is anybody before me" is one F_OFD_GETLK.
 *
 * Everybody watches the file with inotify. Opening and closing it is the signal ("the turn is free", "there is
 * something to take"): it costs two system calls, dirties nothing, and the kernel sends the same event when a process
 * that has the file open dies. Nobody waits in a system call: bq_turn_try answers at once, and the descriptor is for
 * the caller's poll.
 *
 * The turn is advice. One that does not move for TURN_PATIENCE_MS (a stopped process) is skipped, and SQLite's own
 * lock keeps writers apart in any case. Without such locks (other systems) or without the file everybody goes when
 * they like; without inotify the caller polls.
 *
 * Threads: as the transport that owns it. A turn must not be used on both sides of a fork: they would share its locks.
 */
#ifndef BQ_SQLITE_TURN_H
#define BQ_SQLITE_TURN_H

#include <babelqueue/types.h>

#include <sys/types.h>

#define TURN_PATIENCE_MS 250

typedef struct sq_turn {
    char *path;
    int fd;    /* -1: no queueing */
    int watch; /* inotify descriptor; -1: poll instead */
    int watch_id;
    dev_t device;
    ino_t inode;
    int64_t ticket;  /* our byte while we wait; 0: we do not */
    int64_t skipped; /* bytes up to this one belong to processes that did not move */
    bool held;
    bool holder_skipped; /* the one at byte 0 did not move */
    int64_t moved_ms;    /* when the queue last moved, as far as we know */
} sq_turn;

/* NOMEM; everything else leaves a turn that does not queue or does not wake (`fd`, `watch` are -1). */
bq_status bq_turn_open(sq_turn *turn, const char *database);
void bq_turn_close(sq_turn *turn);
/* After a fork, in the child: lets go of the descriptors without touching the locks that the parent shares. */
void bq_turn_abandon(sq_turn *turn);

/* Is it our turn? Queues up when it is not. Once true it stays ours until bq_turn_leave. */
bool bq_turn_try(sq_turn *turn, int64_t now_ms);
/* Ends the turn, or the waiting for it. `news`: there is something that others may want to look at. */
void bq_turn_leave(sq_turn *turn, bool news);
/* Reads what `watch` has; true when there was anything. */
bool bq_turn_drain(sq_turn *turn, int64_t now_ms);

#endif
