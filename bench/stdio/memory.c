/*
 * memory.c - `bq work --handle-stdio` on memory: queues, which live within one process: publishes the messages, then
 * runs the command's own loop on them. Prints messages a second, from the first message given to the last settled.
 *
 *     bench-stdio-memory COMMAND MESSAGES IN_FLIGHT HANDLERS COPROCESSES BODY
 */
#include "environment.h"
#include "guard.h"
#include "interrupt.h"
#include "mux.h"
#include "process.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bq_consumer *running;

void work_stop(void)
{
    bq_consumer_stop(running);
}

static const char *read_body(const char *path)
{
    static char body[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t len = file ? fread(body, 1, sizeof(body) - 1, file) : 0;
    if (file)
        fclose(file);
    body[len] = '\0';
    return body;
}

static void count_failure(bq_status status, const char *id, const bq_error *err, void *arg)
{
    (void)id, (void)err;
    if (status != BQ_OK)
        ++*(long *)arg;
}

static int publish(const char *body, long count)
{
    bq_publisher *publisher;
    bq_publisher_options options = BQ_PUBLISHER_OPTIONS_INIT;
    bq_message_spec spec = BQ_MESSAGE_SPEC_INIT;
    long failed = 0;
    spec.queue = BQ_STR("orders");
    spec.body = bq_str_of(body);
    if (bq_publisher_open(&publisher, "memory:bench", &options, NULL) != BQ_OK)
        return 1;
    for (long i = 0; i < count; i++)
        if (bq_publish_async(publisher, &spec, count_failure, &failed, NULL) != BQ_OK)
            return 1;
    bq_status status = bq_publisher_flush(publisher, 60000, NULL);
    bq_publisher_close(publisher, 1000);
    return status != BQ_OK || failed;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 64;
    const char *queues[] = {"orders"};
    bq_consumer_options options;
    bq_error err = {.text = ""};
    bq_status status;
    long count = atol(argv[2]);
    mux_options how = {argv[1], (size_t)atol(argv[5]), 0};
    guard_start();
    interrupt_catch(NULL, NULL);
    if (!environment_setup() || publish(read_body(argv[6]), count))
        return 1;
    mux *m = mux_new(&how);
    BQ_CONSUMER_OPTIONS_INIT(&options);
    options.queues = queues;
    options.queue_count = 1;
    options.any = mux_handle;
    options.any_arg = m;
    options.prefetch = (int)atol(argv[3]);
    options.concurrency = (int)atol(argv[4]);
    options.drain = 1;
    int64_t began = monotonic_ms();
    if (bq_consumer_open(&running, "memory:bench", &options, &err) != BQ_OK)
        return 1;
    int rc = mux_run(m, running, &status, &err);
    int64_t took = monotonic_ms() - began;
    bq_metrics metrics;
    bq_consumer_metrics(running, &metrics);
    bq_consumer_close(running);
    mux_free(m);
    guard_stop();
    if (rc || status != BQ_OK || (long)metrics.acked != count) {
        fprintf(stderr, "%llu of %ld were acknowledged: %s\n", (unsigned long long)metrics.acked, count, err.text);
        return 1;
    }
    printf("%.0f\n", (double)count * 1000 / (double)(took > 0 ? took : 1));
    return 0;
}
