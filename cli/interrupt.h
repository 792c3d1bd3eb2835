/*
 * interrupt.h - SIGINT and SIGTERM as something to wait for. The handler runs on the main thread only: the others are
 * started while interrupt_hold is in force, so that no system call of theirs is disturbed.
 */
#ifndef BQ_CLI_INTERRUPT_H
#define BQ_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on both signals are counted, wake interrupt_fd and call `fn` (async-signal-safe; may be NULL). */
void interrupt_catch(void (*fn)(void *arg), void *arg);
/* Blocks or unblocks both signals on this thread. */
void interrupt_hold(bool hold);
/* Readable from the first signal on; never drained. -1 before interrupt_catch. */
int interrupt_fd(void);
int interrupt_count(void);
/* Ends the process by the signal that came, so that the parent sees it; returns when none came. */
void interrupt_die(void);

#endif
