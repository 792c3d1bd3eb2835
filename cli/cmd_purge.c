/* cmd_purge.c - `bq purge`: deletes all messages of a queue. */
#include "args.h"
#include "broker.h"
#include "out.h"
#include "text.h"

#include <stddef.h>

typedef struct purge_values {
    cli_common common;
    const char *queue;
    bool yes;
} purge_values;

static const cli_option options[] = {
    {CLI_TEXT, 'q', "queue", "QUEUE", offsetof(purge_values, queue), NULL, NULL, 0, 0, CLI_IS_QUEUE, "the queue"},
    {CLI_FLAG, 0, "yes", NULL, offsetof(purge_values, yes), NULL, NULL, 0, 0, 0,
     "yes, delete them: nothing can bring them back"},
    CLI_OPTIONS_END};

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    purge_values *v = values;
    bq_admin *admin = NULL;
    bq_error err;
    int64_t deleted = -1;
    (void)operands, (void)count;
    if (!v->queue || !*v->queue)
        return args_usage_error(verb, "which queue? -q QUEUE");
    if (!v->yes) {
        args_usage_error(verb, "this deletes every message of '%s': say --yes", v->queue);
        return CLI_USAGE;
    }
    int status = broker_open(verb, &v->common, &admin);
    if (status)
        return status;
    if (bq_admin_purge(admin, bq_str_of(v->queue), &deleted, &err) != BQ_OK) {
        status = broker_failure(verb, v->queue, &err);
    } else {
        if (deleted >= 0)
            out_note("%s: %lld deleted", v->queue, (long long)deleted);
        else
            out_note("%s: all messages deleted", v->queue);
        if (v->common.json) {
            bq_buf line = {0};
            json_object object = json_open(&line);
            json_text(&object, "queue", bq_str_of(v->queue));
            if (deleted >= 0)
                json_int(&object, "deleted", deleted);
            else
                json_null(&object, "deleted");
            json_close(&object);
            out_line(bq_buf_str(&line));
            bq_buf_clear(&line);
        }
    }
    bq_admin_close(admin);
    return status;
}

static const char *const text[] = {"Deletes all messages of the queue, those that are delayed included; its "
                                   "dead-letter queue is another queue. How many "
                                   "they were is said on stderr; --json: {\"queue\":NAME,\"deleted\":N} on stdout.",
                                   NULL};

const cli_verb cli_purge = {.name = "purge",
                            .operands = "",
                            .summary = "deletes all messages of a queue",
                            .text = text,
                            .options = options,
                            .values_size = sizeof(purge_values),
                            .run = run};
