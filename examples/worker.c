/*
 * worker.c - works the queue `orders` until SIGTERM or Ctrl-C, with a handler for each kind of message.
 *
 *     cc worker.c $(pkg-config --cflags --libs babelqueue) -o worker
 *     BQ_URL=sqlite:bq.db ./worker
 */
#include <babelqueue/babelqueue.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static bq_consumer *consumer; /* for the signal handler */

static void on_signal(int number)
{
    (void)number;
    bq_consumer_stop(consumer); /* allowed here; a second signal gives the messages back at once */
}

/* Handlers run on the consumer's handler threads, several at a time when `concurrency` says so. */
static bq_outcome order_created(bq_delivery *delivery, void *arg)
{
    bq_json doc;
    int64_t order = 0;
    bq_outcome outcome = BQ_DONE;
    (void)arg;

    bq_json_init(&doc);
    if (bq_json_parse(&doc, bq_delivery_data(delivery), NULL) != BQ_OK ||
        !bq_json_int(&doc, bq_json_pointer(&doc, BQ_JSON_ROOT, BQ_STR("/order")), &order)) {
        bq_delivery_set_error(delivery, BQ_STR("BadOrder"), BQ_STR("there is no order number"));
        outcome = BQ_REJECTED; /* trying again cannot help: to the dead-letter queue now */
    } else if (order == 3 || (order == 2 && bq_delivery_attempts(delivery) == 0)) {
        bq_delivery_set_error(delivery, BQ_STR("WarehouseDown"), BQ_STR("the warehouse did not answer"));
        outcome = BQ_FAILED; /* again later; after max_attempts to the dead-letter queue */
    } else {
        printf("order %lld: shipped\n", (long long)order);
    }
    bq_json_clear(&doc);
    return outcome;
}

static bq_outcome order_cancelled(bq_delivery *delivery, void *arg)
{
    bq_str data = bq_delivery_data(delivery);
    (void)arg;
    printf("cancelled: %.*s\n", (int)data.len, data.ptr);
    return BQ_DONE;
}

/* Called after the message has been settled, for every attempt that went wrong. */
static void on_error(const bq_failure *failure, void *arg)
{
    (void)arg;
    fprintf(stderr, "attempt %d: %.*s: %s\n", (int)failure->attempts, (int)failure->error.len, failure->error.ptr,
            failure->settled == BQ_SETTLED_RETRIED ? "to be retried" : "dead-lettered");
}

int main(void)
{
    const char *url = getenv("BQ_URL"), *queues[] = {"orders"};
    const bq_route routes[] = {{"urn:babel:orders:created", order_created, NULL},
                               {"urn:babel:orders:cancelled", order_cancelled, NULL}};
    struct sigaction action = {.sa_handler = on_signal};
    bq_consumer_options options;
    bq_metrics metrics;
    bq_error err;

    BQ_CONSUMER_OPTIONS_INIT(&options);
    options.queues = queues;
    options.queue_count = 1;
    options.routes = routes;
    options.route_count = 2;
    options.retry_base_ms = 20; /* a real worker would wait for longer: 20 ms, 40 ms, ... */
    options.retry_multiplier = 2;
    options.on_error = on_error;
    bq_status status = bq_consumer_open(&consumer, url ? url : "sqlite:bq.db", &options, &err);
    if (status == BQ_OK) {
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        status = bq_consumer_wait(consumer, -1, &err); /* handlers in flight end first */
        bq_consumer_metrics(consumer, &metrics);
        printf("acknowledged %llu, retried %llu, dead-lettered %llu\n", (unsigned long long)metrics.acked,
               (unsigned long long)metrics.retried, (unsigned long long)metrics.dead_lettered);
        signal(SIGTERM, SIG_DFL); /* nobody may stop what is being closed */
        signal(SIGINT, SIG_DFL);
        bq_consumer_close(consumer);
    }
    if (status != BQ_OK)
        fprintf(stderr, "worker: %s\n", err.text);
    return bq_status_exit(status);
}
