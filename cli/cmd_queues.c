/* cmd_queues.c - `bq queues`: the queues that the broker has, one a line. */
#include "broker.h"
#include "out.h"
#include "text.h"

typedef struct queues_values {
    cli_common common;
} queues_values;

static bool print_queue(bq_str queue, void *arg)
{
    const queues_values *v = arg;
    bq_buf line = {0};
    if (v->common.json) {
        json_object object = json_open(&line);
        json_text(&object, "queue", queue);
        json_close(&object);
    } else {
        buf_name(&line, queue);
    }
    bool ok = out_line(bq_buf_str(&line));
    bq_buf_clear(&line);
    return ok;
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    queues_values *v = values;
    bq_admin *admin = NULL;
    bq_error err;
    (void)operands, (void)count;
    int status = broker_open(verb, &v->common, &admin);
    if (status)
        return status;
    if (bq_admin_queues(admin, print_queue, v, &err) != BQ_OK)
        status = broker_failure(verb, NULL, &err);
    bq_admin_close(admin);
    return status;
}

static const char *const text[] = {
    "Lists the queues where the broker can, one name a line; --json: {\"queue\":NAME}. Keys and topics that BabelQueue "
    "itself keeps beside a queue are not listed.",
    NULL};

const cli_verb cli_queues = {.name = "queues",
                             .operands = "",
                             .summary = "lists the queues",
                             .text = text,
                             .values_size = sizeof(queues_values),
                             .run = run};
