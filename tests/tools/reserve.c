/*
 * reserve.c - how long a reserve takes: takes messages one by one from a queue that has some, acknowledges them, and
 * measures from asking to having.
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

/* The next message, or NULL when none came within two seconds. */
static bq_incoming *next(drive *d)
{
    drive_round round;
    int64_t deadline = drive_now_us() + 2000000;
    do {
        drive_once(d, 1, 50, &round);
        if (round.taken_count)
            return round.taken[0];
    } while (drive_now_us() < deadline);
    return NULL;
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
    while (taken < max) {
        int64_t start = drive_now_us();
        bq_incoming *in = next(&d);
        if (!in)
            break;
        took[taken++] = drive_now_us() - start;
        bq_op ack = {.kind = BQ_OP_ACK, .in = in};
        bq_status status;
        drive_all(&d, &ack, 1, &status);
        if (status != BQ_OK)
            drive_die("acknowledge", bq_status_name(status));
    }
    drive_close(&d);
    if (taken) {
        qsort(took, taken, sizeof *took, by_size);
        printf("taken %zu p50 %lld p99 %lld max %lld\n", taken, (long long)took[taken / 2],
               (long long)took[taken * 99 / 100], (long long)took[taken - 1]);
    } else {
        printf("taken 0 p50 0 p99 0 max 0\n");
    }
    free(took);
    return 0;
}
