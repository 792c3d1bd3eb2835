/*
 * publish.c - publishes orders: one that it waits for, then a hundred at once.
 *
 *     cc publish.c $(pkg-config --cflags --libs babelqueue) -o publish
 *     BQ_URL=sqlite:bq.db ./publish
 */
#include <babelqueue/babelqueue.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct tally {
    int confirmed, unknown, failed;
} tally;

/* Called once for every message that bq_publish_async accepted, on the publisher's own thread. */
static void published(bq_status status, const char *id, const bq_error *err, void *arg)
{
    tally *t = arg;
    if (status == BQ_OK) {
        t->confirmed++; /* the broker has it */
    } else if (status == BQ_UNKNOWN) {
        t->unknown++; /* no answer in time: it may be there. Publish it again with this id to be sure. */
    } else {
        t->failed++; /* it is certainly not there */
    }
    if (status != BQ_OK)
        fprintf(stderr, "%s: %s\n", id, err->text);
}

int main(void)
{
    const char *url = getenv("BQ_URL");
    bq_publisher *publisher = NULL;
    bq_publisher_options options = BQ_PUBLISHER_OPTIONS_INIT;
    bq_message_spec order = BQ_MESSAGE_SPEC_INIT;
    bq_error err;
    char id[BQ_ID_SIZE];
    tally t = {0, 0, 0};
    int exit_status = 1;

    options.timeout_ms = 5000; /* how long one message may take until it is confirmed */
    bq_status status = bq_publisher_open(&publisher, url ? url : "sqlite:bq.db", &options, &err);
    if (status != BQ_OK)
        goto out;

    /* One message, and wait until it is safe. `data` is any JSON object; its bytes are kept as they are. */
    order.queue = BQ_STR("orders");
    order.urn = BQ_STR("urn:babel:orders:created");
    order.data = BQ_STR("{\"order\":1,\"total\":19.90}");
    status = bq_publish(publisher, &order, id, &err);
    if (status != BQ_OK)
        goto out;
    printf("published %s\n", id);

    /* Many messages: submitted without waiting, written together, called back one by one. */
    for (int i = 2; i <= 101; i++) {
        char data[64];
        snprintf(data, sizeof(data), "{\"order\":%d}", i);
        order.data = bq_str_of(data); /* copied by the call */
        status = bq_publish_async(publisher, &order, published, &t, &err);
        if (status != BQ_OK)
            goto out;
    }
    status = bq_publisher_flush(publisher, 10000, &err); /* until all have been called back */
    if (status != BQ_OK)
        goto out;
    printf("%d confirmed, %d unknown, %d failed\n", t.confirmed, t.unknown, t.failed);
    exit_status = t.confirmed == 100 ? 0 : 1;

out:
    if (status != BQ_OK) {
        fprintf(stderr, "publish: %s\n", err.text);
        exit_status = bq_status_exit(status);
    }
    bq_publisher_close(publisher, 5000); /* closing NULL is fine */
    return exit_status;
}
