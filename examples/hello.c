/*
 * hello.c - publishes one message, and works the queue until it is empty.
 *
 *     cc hello.c $(pkg-config --cflags --libs babelqueue) -o hello
 */
#include <babelqueue/babelqueue.h>

#include <stdio.h>

static bq_outcome greet(bq_delivery *delivery, void *arg)
{
    bq_str data = bq_delivery_data(delivery); /* a view: pointer and length */
    (void)arg;
    printf("attempt %d: %.*s\n", (int)bq_delivery_attempts(delivery) + 1, (int)data.len, data.ptr);
    return BQ_DONE; /* or BQ_FAILED: again later; BQ_REJECTED: to the dead-letter queue now */
}

int main(void)
{
    const char *url = "sqlite:bq.db", *queues[] = {"greetings"};
    const bq_route routes[] = {{"urn:babel:greetings:said", greet, NULL}};
    bq_message_spec message = BQ_MESSAGE_SPEC_INIT;
    bq_publisher *publisher = NULL;
    bq_consumer *consumer = NULL;
    bq_consumer_options options;
    char id[BQ_ID_SIZE];
    bq_error err;

    message.queue = BQ_STR("greetings");
    message.urn = BQ_STR("urn:babel:greetings:said");
    message.data = BQ_STR("{\"text\":\"hello\"}");
    bq_status status = bq_publisher_open(&publisher, url, NULL, &err);
    if (status == BQ_OK)
        status = bq_publish(publisher, &message, id, &err); /* OK: the broker has confirmed it */
    bq_publisher_close(publisher, 1000);

    BQ_CONSUMER_OPTIONS_INIT(&options);
    options.queues = queues;
    options.queue_count = 1;
    options.routes = routes;
    options.route_count = 1;
    options.drain = 1; /* stop when there is nothing left; without it, run until bq_consumer_stop */
    if (status == BQ_OK)
        status = bq_consumer_open(&consumer, url, &options, &err);
    if (status == BQ_OK)
        status = bq_consumer_wait(consumer, -1, &err);
    bq_consumer_close(consumer);

    if (status != BQ_OK)
        fprintf(stderr, "hello: %s\n", err.text);
    return bq_status_exit(status);
}
