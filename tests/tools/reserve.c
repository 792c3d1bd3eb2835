/*
 * reserve.c - how long a reserve takes while others want one too: has one message in hand, acknowledges it and takes
 * the next, and measures from the acknowledge until both are done (the driver may do them in one transaction, so that
 * the reserve alone cannot be told from outside).
 *
 *     reserve URL QUEUE COUNT    prints "taken N p50 US p99 US max US", microseconds; ends early when nothing comes
 *
 * One thread, one process; tests/chaos runs several on one file.
 */
#include "drive.h"

#include <stdio.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

#define PATIENCE_US 2000000 /* without a message: the queue is empty */

/* Acknowledges `in` (NULL: nothing to acknowledge) and takes the next one: NULL when none comes. */
static bq_incoming *exchange(drive *d, bq_incoming *in)
{
    drive_round round;
    bq_incoming *next = NULL;
    bq_op op = {.kind = BQ_OP_ACK, .in = in}, *ops[] = {&op};
    bool submitted = !in, acknowledged = !in;
    int64_t deadline = drive_now_us() + PATIENCE_US;
    op.deadline_ms = drive_now_us() / 1000 + 60000;
    while (!acknowledged || (!next && drive_now_us() < deadline)) {
        if (!submitted)
            submitted = d->target.ops->submit(d->state, ops, 1) == 1;
        drive_once(d, next ? 0 : 1, 50, &round);
        if (round.taken_count)
            next = round.taken[0];
        if (round.done_count && round.done[0].status != BQ_OK)
            drive_die("acknowledge", round.done[0].error.text);
        acknowledged |= round.done_count > 0;
    }
    return next;
}

int main(int argc, char **argv)
{
    drive d;
    if (argc != 4)
        return 64;
    bq_str queue = bq_str_of(argv[2]);
    size_t max = strtoul(argv[3], NULL, 10), taken = 0;
    int64_t *took = malloc((max ? max : 1) * sizeof *took);
    if (!took)
        return 75;
    drive_open(&d, argv[1], BQ_ROLE_CONSUME, &queue, 1, 1);
    bq_incoming *in = NULL;
    do {
        int64_t start = drive_now_us();
        in = exchange(&d, in);
        if (in)
            took[taken++] = drive_now_us() - start;
    } while (in && taken < max);
    if (in) {
        /* The last one is not left in hand. */
        bq_op ack = {.kind = BQ_OP_ACK, .in = in};
        bq_status status;
        drive_all(&d, &ack, 1, &status);
        if (status != BQ_OK)
            drive_die("acknowledge", bq_status_name(status));
    }
    drive_close(&d);
    qsort(took, taken, sizeof *took, by_size);
    printf("taken %zu p50 %lld p99 %lld max %lld\n", taken, (long long)(taken ? took[taken / 2] : 0),
           (long long)(taken ? took[taken * 99 / 100] : 0), (long long)(taken ? took[taken - 1] : 0));
    free(took);
    return 0;
}
