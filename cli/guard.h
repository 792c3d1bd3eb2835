/*
 * guard.h - handlers must not outlive a bq that was killed: their messages come back and would be handled twice at
 * once. A small process of its own learns the process groups that run, and ends them when bq is gone without having
 * said so.
 *
 * guard_start before any thread is started; the others from any thread.
 */
#ifndef BQ_CLI_GUARD_H
#define BQ_CLI_GUARD_H

#include <sys/types.h>

void guard_start(void); /* without it nothing is guarded; a failure is no error */
void guard_add(pid_t group);
void guard_remove(pid_t group);
void guard_stop(void);

#endif
