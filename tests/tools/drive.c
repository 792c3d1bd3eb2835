/*
 * drive.c - see drive.h.
 */
#include "drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OP_TIMEOUT_MS 60000

int64_t drive_now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int64_t now_ms(void)
{
    return drive_now_us() / 1000;
}

_Noreturn void drive_die(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail ? detail : "");
    exit(1);
}

static void on_event(const bq_transport_host *host, const bq_event *event)
{
    drive *d = host->arg;
    if (event->kind == BQ_EVENT_FATAL)
        d->fatal = true;
    if ((event->kind == BQ_EVENT_FATAL || event->kind == BQ_EVENT_DOWN) && event->error) {
        fprintf(stderr, "event: %s\n", event->error->text);
    }
}

void drive_open(drive *d, const char *url, unsigned roles, const bq_str *queues, size_t queue_count, uint32_t prefetch)
{
    bq_error err = {0};
    memset(d, 0, sizeof *d);
    if (bq_target_parse(&d->target, url, &err) != BQ_OK)
        drive_die("url", err.text);
    d->host.event = on_event;
    d->host.now_ms = now_ms;
    d->host.arg = d;
    d->queues = queues;
    d->config.url = &d->target.url;
    d->config.options = d->target.options;
    d->config.roles = roles;
    d->config.queues = queues;
    d->config.queue_count = queue_count;
    d->config.prefetch = prefetch;
    d->config.max_attempts = 3;
    d->config.host = &d->host;
    d->state = calloc(1, d->target.ops->state_size);
    if (!d->state)
        drive_die("open", "out of memory");
    if (d->target.ops->open(d->state, &d->config, &err) != BQ_OK)
        drive_die("open", err.text);
}

void drive_close(drive *d)
{
    d->target.ops->close(d->state, 5000);
    free(d->state);
    bq_target_clear(&d->target);
}

void drive_once(drive *d, size_t want, int64_t timeout_ms, drive_round *round)
{
    struct pollfd fds[16];
    int64_t now = now_ms(), deadline = now + timeout_ms;
    if (want > DRIVE_BATCH)
        want = DRIVE_BATCH;
    size_t count = d->target.ops->prepare(d->state, want, fds, sizeof fds / sizeof *fds, &deadline);
    if (poll(fds, (nfds_t)count, deadline > now ? (int)(deadline - now) : 0) < 0)
        count = 0;
    d->target.ops->service(d->state, fds, count);
    round->done_count = d->target.ops->reap(d->state, round->done, DRIVE_BATCH);
    round->taken_count = want ? d->target.ops->take(d->state, round->taken, want) : 0;
    if (d->fatal)
        drive_die("the transport", "cannot go on");
}

void drive_all(drive *d, bq_op *ops, size_t count, bq_status *status)
{
    size_t submitted = 0, completed = 0;
    bq_op *next[DRIVE_BATCH];
    drive_round round;
    int64_t deadline = now_ms() + OP_TIMEOUT_MS;
    if (count > DRIVE_BATCH)
        drive_die("submit", "too many at a time");
    for (size_t i = 0; i < count; i++) {
        next[i] = &ops[i];
        ops[i].cookie = i;
        ops[i].deadline_ms = deadline;
    }
    while (completed < count) {
        if (submitted < count)
            submitted += d->target.ops->submit(d->state, next + submitted, count - submitted);
        drive_once(d, 0, 100, &round);
        for (size_t i = 0; i < round.done_count; i++) {
            status[round.done[i].cookie] = round.done[i].status;
            completed++;
        }
        if (now_ms() > deadline + 5000)
            drive_die("submit", "operations were not completed by their deadline");
    }
}

void drive_take(drive *d, bq_incoming **out, size_t count, int64_t timeout_ms)
{
    drive_round round;
    size_t have = 0;
    int64_t deadline = now_ms() + timeout_ms;
    while (have < count) {
        drive_once(d, count - have, 100, &round);
        memcpy(out + have, round.taken, round.taken_count * sizeof *out);
        have += round.taken_count;
        if (have < count && now_ms() > deadline)
            drive_die("take", "the messages did not come");
    }
}
