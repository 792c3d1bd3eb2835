/*
 * redrive.c - replays a dead-letter queue: first only tells what would be done, then sends back what failed because
 * the warehouse was down, marked as replayed, at no more than 1000 messages a second.
 */
#include <babelqueue/babelqueue.h>

#include <stdio.h>
#include <stdlib.h>

/* true: send it back. What is refused here stays on the dead-letter queue, byte for byte. */
static bool warehouse_down(const bq_redrive_item *item, void *arg)
{
    (void)arg;
    return bq_str_equal(bq_envelope_raw(item->envelope, BQ_FIELD_DEAD_EXCEPTION), BQ_STR("WarehouseDown"));
}

/* Called for every record once it is settled. */
static void report(const bq_redrive_item *item, void *arg)
{
    const char *plan = *(const char *const *)arg;
    if (item->skip == BQ_SKIP_NONE)
        printf("%s: %.*s to %.*s\n", plan, (int)item->id.len, item->id.ptr, (int)item->to.len, item->to.ptr);
    else
        printf("%s: %.*s stays: %s\n", plan, (int)item->id.len, item->id.ptr, bq_skip_name(item->skip));
}

static bq_status redrive(const char *url, bool dry_run, bq_redrive_result *result, bq_error *err)
{
    const char *plan = dry_run ? "would go" : "sent";
    bq_redrive_options options;
    BQ_REDRIVE_OPTIONS_INIT(&options);
    options.dry_run = dry_run;
    options.select = warehouse_down;
    options.report = report;
    options.arg = &plan;   /* of both callbacks */
    options.bypass = true; /* bq_delivery_is_replay() tells the handlers */
    options.rate = 1000;
    return bq_redrive(url, "orders.dlq", &options, result, err);
}

int main(void)
{
    const char *url = getenv("BQ_URL");
    bq_redrive_result result;
    bq_error err;
    if (!url)
        url = "sqlite:bq.db";
    bq_status status = redrive(url, true, &result, &err);
    if (status == BQ_OK)
        status = redrive(url, false, &result, &err);
    if (status == BQ_OK)
        printf("%llu seen, %llu sent back, %llu stay\n", (unsigned long long)result.seen,
               (unsigned long long)result.redriven, (unsigned long long)result.skipped);
    else /* the result still tells how far it came; nothing is lost */
        fprintf(stderr, "redrive: %s\n", err.text);
    return bq_status_exit(status);
}
