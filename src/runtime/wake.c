/*
 * runtime/wake.c - see wake.h.
 */
#include "runtime/wake.h"

#include "base/error.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

bq_status bq_wake_init(bq_wake *wake, bq_error *err)
{
    atomic_init(&wake->state, BQ_AWAKE);
    wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake->fd < 0)
        return bq_fail_errno(err, BQ_IO, errno, "cannot make an event descriptor");
    return BQ_OK;
}

void bq_wake_clear(bq_wake *wake)
{
    if (wake->fd >= 0)
        (void)close(wake->fd);
    wake->fd = -1;
}

void bq_wake_signal(bq_wake *wake)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(wake->fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    errno = saved; /* EAGAIN: the counter is full, so it is readable anyway */
}

void bq_wake_up(bq_wake *wake, bool urgent)
{
    int state = atomic_load(&wake->state);
    if (state == BQ_AWAKE || (state == BQ_NAPPING && !urgent))
        return;
    /* Of several wakers one writes. */
    if (atomic_exchange(&wake->state, BQ_AWAKE) != BQ_AWAKE)
        bq_wake_signal(wake);
}

void bq_wake_drain(bq_wake *wake)
{
    uint64_t count;
    ssize_t n;
    do
        n = read(wake->fd, &count, sizeof count);
    while (n < 0 && errno == EINTR);
}
