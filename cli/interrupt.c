/* interrupt.c - SIGINT and SIGTERM as something to wait for. */
#include "interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static atomic_int caught_count, caught_signal;
static int wake_fd = -1;
static void (*caught_fn)(void *arg);
static void *caught_arg;

static void on_signal(int number)
{
    int saved = errno;
    uint64_t one = 1;
    atomic_fetch_add(&caught_count, 1);
    atomic_store(&caught_signal, number);
    /* The counter of an eventfd cannot be full after a few signals; a failure could not be told anyway. */
    ssize_t n = write(wake_fd, &one, sizeof(one));
    (void)n;
    if (caught_fn)
        caught_fn(caught_arg);
    errno = saved;
}

void interrupt_catch(void (*fn)(void *arg), void *arg)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (wake_fd < 0)
        wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    caught_fn = fn;
    caught_arg = arg;
    sigemptyset(&action.sa_mask);
    /* One at a time: the handler's counters stay in step. */
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void interrupt_hold(bool hold)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

int interrupt_fd(void)
{
    return wake_fd;
}

int interrupt_count(void)
{
    return atomic_load(&caught_count);
}

void interrupt_die(void)
{
    int number = atomic_load(&caught_signal);
    if (!number)
        return;
    signal(number, SIG_DFL);
    interrupt_hold(false);
    raise(number);
}
