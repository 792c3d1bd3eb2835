/*
 * guard.c - a process that ends the handlers of a bq that was killed. It reads numbers from a pipe, which bq alone
 * holds open for writing: +N, the group N runs; -N, it has ended. The end of the file means that bq is gone; what
 * still runs then gets SIGTERM, and SIGKILL two seconds later.
 */
#include "guard.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fcntl.h>

#define GROUPS_MAX 4096

static int pipe_fd = -1;
static pid_t guard_pid;

static void signal_all(const int32_t *groups, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        kill(-groups[i], number);
}

static size_t apply(int32_t *groups, size_t count, int32_t change)
{
    if (change > 0 && count < GROUPS_MAX)
        groups[count++] = change;
    for (size_t i = 0; change < 0 && i < count; i++)
        if (groups[i] == -change) {
            groups[i] = groups[--count];
            break;
        }
    return count;
}

/* The guard's whole life. Nothing here may allocate: it runs in a forked process. */
static void guard(int fd)
{
    static int32_t groups[GROUPS_MAX];
    int32_t changes[256];
    size_t count = 0, have = 0;
    for (;;) {
        ssize_t n = read(fd, (char *)changes + have, sizeof(changes) - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
        size_t whole = have / sizeof(changes[0]);
        for (size_t i = 0; i < whole; i++)
            count = apply(groups, count, changes[i]);
        /* Writes of four bytes are atomic, so that nothing is left over; a rest would only be waited for. */
        have -= whole * sizeof(changes[0]);
    }
    if (count > 0) {
        signal_all(groups, count, SIGTERM);
        struct timespec pause = {2, 0};
        while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
            ;
        signal_all(groups, count, SIGKILL);
    }
    _exit(0);
}

void guard_start(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        /* Out of reach of the terminal's Ctrl-C, and holding none of bq's streams open. */
        setpgid(0, 0);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        prctl(PR_SET_NAME, "bq-guard");
        dup2(fds[0], 0);
        close_range(1, ~0U, 0);
        guard(0);
    }
    close(fds[0]);
    if (pid < 0) {
        close(fds[1]);
        return;
    }
    pipe_fd = fds[1];
    guard_pid = pid;
}

static void tell(int32_t change)
{
    /* When the guard itself was killed there is nobody to tell, and nothing else to do. */
    if (pipe_fd >= 0 && write(pipe_fd, &change, sizeof(change)) < 0 && errno != EPIPE)
        return;
}

void guard_add(pid_t group)
{
    tell((int32_t)group);
}

void guard_remove(pid_t group)
{
    tell(-(int32_t)group);
}

void guard_stop(void)
{
    if (pipe_fd < 0)
        return;
    close(pipe_fd);
    pipe_fd = -1;
    while (waitpid(guard_pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
