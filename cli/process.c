/*
 * process.c - starts `sh -c COMMAND` in a process group of its own, and ends it again.
 *
 * A process that has ended is collected only after its group was signalled: until then the number of the group cannot
 * be given to somebody else.
 */
#include "process.h"
#include "guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t monotonic_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int describe(const spawn_spec *spec, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes)
{
    sigset_t none, defaults;
    sigemptyset(&none);
    /* What bq ignores or catches: a handler starts as if from a shell. */
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    int rc =
        posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!rc)
        rc = posix_spawnattr_setpgroup(attributes, 0);
    if (!rc)
        rc = posix_spawnattr_setsigmask(attributes, &none);
    if (!rc)
        rc = posix_spawnattr_setsigdefault(attributes, &defaults);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(actions, spec->stdin_fd, STDIN_FILENO);
    if (!rc && spec->stdout_fd >= 0)
        rc = posix_spawn_file_actions_adddup2(actions, spec->stdout_fd, STDOUT_FILENO);
    if (!rc && spec->stderr_fd >= 0)
        rc = posix_spawn_file_actions_adddup2(actions, spec->stderr_fd, STDERR_FILENO);
    /* Last: when the number is one of those above, it has been copied by now. */
    if (!rc && spec->envelope_fd >= 0)
        rc = posix_spawn_file_actions_adddup2(actions, spec->envelope_fd, SPAWN_ENVELOPE_FD);
    /* A number past the limit of open files is EBADF, which would tell nobody what to change. */
    return rc == EBADF ? EMFILE : rc;
}

int spawn_start(const spawn_spec *spec, spawned *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)spec->command, NULL};
    *child = (spawned){0, -1};
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    rc = describe(spec, &actions, &attributes);
    if (!rc)
        rc = posix_spawn(&child->pid, "/bin/sh", &actions, &attributes, argv, spec->environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (rc) {
        child->pid = 0;
        return rc;
    }
    guard_add(child->pid);
    child->fd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    return 0;
}

void spawn_signal(const spawned *child, int number)
{
    if (child->pid > 0)
        kill(-child->pid, number);
}

bool spawn_ended(const spawned *child)
{
    siginfo_t info = {0};
    if (child->pid == 0)
        return true;
    return waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child->pid;
}

int spawn_collect(spawned *child)
{
    int status = 0;
    if (child->pid == 0)
        return status;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    guard_remove(child->pid);
    if (child->fd >= 0)
        close(child->fd);
    *child = (spawned){0, -1};
    return status;
}

bool spawn_wait(const spawned *child, int64_t timeout_ms)
{
    int64_t until = monotonic_ms() + timeout_ms;
    while (!spawn_ended(child)) {
        int64_t left = until - monotonic_ms();
        if (left <= 0)
            return false;
        /* Without a descriptor for the process it is looked at again and again. */
        if (child->fd < 0 && left > 20)
            left = 20;
        poll(&(struct pollfd){child->fd, POLLIN, 0}, 1, (int)(left < 60000 ? left : 60000));
    }
    return true;
}

int spawn_end(spawned *child, int64_t grace_ms)
{
    if (grace_ms > 0) {
        spawn_signal(child, SIGTERM);
        spawn_wait(child, grace_ms);
    }
    spawn_signal(child, SIGKILL);
    return spawn_collect(child);
}

void spawn_describe(int status, char *buf, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(buf, size, "signal %d", WTERMSIG(status));
    else
        snprintf(buf, size, "exit status %d", WEXITSTATUS(status));
}

int memory_file(const char *name, bq_str bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t done = 0;
    while (fd >= 0 && done < bytes.len) {
        ssize_t n = write(fd, bytes.ptr + done, bytes.len - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            int saved = errno;
            close(fd);
            errno = saved;
            return -1;
        }
    }
    if (fd >= 0 && lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}
