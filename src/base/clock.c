/* clock.c - the two clocks, and arithmetic on deadlines. Any thread; tests may replace the clocks while others read. */
#include "base/clock.h"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

typedef int64_t (*clock_fn)(void);

static _Atomic(clock_fn) monotonic_override;
static _Atomic(clock_fn) epoch_override;

void bq_clock_override(int64_t (*monotonic_us)(void), int64_t (*epoch_ms)(void))
{
    atomic_store(&monotonic_override, monotonic_us);
    atomic_store(&epoch_override, epoch_ms);
}

int64_t bq_now_us(void)
{
    clock_fn instead = atomic_load_explicit(&monotonic_override, memory_order_acquire);
    if (instead)
        return instead();
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t bq_now_ms(void)
{
    return bq_now_us() / 1000;
}

int64_t bq_epoch_ms(void)
{
    clock_fn instead = atomic_load_explicit(&epoch_override, memory_order_acquire);
    if (instead)
        return instead();
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t bq_deadline(int64_t now_ms, int64_t delay_ms)
{
    int64_t sum;
    if (delay_ms < 0 || __builtin_add_overflow(now_ms, delay_ms, &sum))
        return BQ_NEVER;
    return sum;
}

int bq_poll_timeout(int64_t now_ms, int64_t deadline_ms)
{
    if (deadline_ms == BQ_NEVER)
        return -1;
    if (deadline_ms <= now_ms)
        return 0;
    int64_t left;
    if (__builtin_sub_overflow(deadline_ms, now_ms, &left) || left > INT_MAX)
        return INT_MAX; /* the caller wakes, finds nothing due and polls again */
    return (int)left;
}
