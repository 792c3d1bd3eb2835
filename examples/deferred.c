/*
 * deferred.c - a worker on an event loop: the handler only starts something and returns BQ_DEFERRED, and the loop
 * settles the message when that is finished. One thread has two hundred messages in flight; none of them blocks
 * another. The "something" is a timer here; it might be a request to a server or a call into another language.
 */
#include <babelqueue/babelqueue.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define IN_FLIGHT 200
#define TAKES_MS 50

typedef struct request {
    bq_delivery *delivery; /* valid until it is settled */
    int64_t due_ms;
} request;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* On a handler thread: hands the message to the loop through a pipe. A pointer is written in one piece. */
static bq_outcome start(bq_delivery *delivery, void *arg)
{
    const int *pipe_fds = arg;
    return write(pipe_fds[1], &delivery, sizeof(delivery)) == sizeof(delivery) ? BQ_DEFERRED : BQ_FAILED;
}

/* Settles what has finished; the others move up. Returns how many are left. */
static size_t finish(request *requests, size_t count, int64_t now)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (requests[i].due_ms > now)
            requests[left++] = requests[i];
        else /* BQ_FAILED after bq_delivery_set_error would retry it */
            bq_delivery_settle(requests[i].delivery, BQ_DONE);
    }
    return left;
}

int main(void)
{
    const char *url = getenv("BQ_URL"), *queues[] = {"orders"};
    static request requests[IN_FLIGHT]; /* never more than the prefetch */
    size_t count = 0, most = 0;
    int pipe_fds[2];
    bq_consumer *consumer;
    bq_consumer_options options;
    bq_metrics metrics;
    bq_error err;

    if (pipe(pipe_fds) != 0)
        return 1;
    BQ_CONSUMER_OPTIONS_INIT(&options);
    options.queues = queues;
    options.queue_count = 1;
    options.any = start; /* for every URN */
    options.any_arg = pipe_fds;
    options.prefetch = IN_FLIGHT; /* taken and not settled, at most */
    options.drain = 1;            /* stop when the queue is empty; without it, run until bq_consumer_stop */
    bq_status status = bq_consumer_open(&consumer, url ? url : "sqlite:bq.db", &options, &err);
    if (status != BQ_OK) {
        fprintf(stderr, "deferred: %s\n", err.text);
        return bq_status_exit(status);
    }
    while ((status = bq_consumer_wait(consumer, 0, &err)) == BQ_TIMEOUT) { /* it is still running */
        struct pollfd readable = {.fd = pipe_fds[0], .events = POLLIN};
        if (poll(&readable, 1, 10) > 0) {
            request *r = &requests[count];
            if (read(pipe_fds[0], &r->delivery, sizeof(r->delivery)) == sizeof(r->delivery)) {
                r->due_ms = now_ms() + TAKES_MS;
                count++;
            }
        }
        most = count > most ? count : most;
        count = finish(requests, count, now_ms());
    }
    bq_consumer_metrics(consumer, &metrics);
    printf("acknowledged %llu, %zu at a time at most\n", (unsigned long long)metrics.acked, most);
    if (status != BQ_OK)
        fprintf(stderr, "deferred: %s\n", err.text);
    bq_consumer_close(consumer);
    return bq_status_exit(status);
}
