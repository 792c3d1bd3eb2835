/* cmd_stats.c - `bq stats`: how many messages are ready, delayed, in flight and dead, for each queue. */
#include "broker.h"
#include "out.h"
#include "text.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct stats_values {
    cli_common common;
    cli_list queues;
} stats_values;

static const cli_option options[] = {{CLI_LIST, 'q', "queue", "QUEUE", offsetof(stats_values, queues), NULL, NULL, 0, 0,
                                      CLI_IS_QUEUE, "only this queue (all that the broker lists)"},
                                     CLI_OPTIONS_END};

/* The names that the broker lists, copied: a connection does one thing at a time. */
typedef struct queue_names {
    char **names;
    size_t count;
    bool failed;
} queue_names;

static bool collect(bq_str queue, void *arg)
{
    queue_names *all = arg;
    char **names = realloc(all->names, (all->count + 1) * sizeof(*names));
    char *name = strndup(queue.ptr, queue.len);
    if (names)
        all->names = names;
    all->failed = !names || !name;
    if (all->failed) {
        free(name);
        return false;
    }
    all->names[all->count++] = name;
    return true;
}

static void free_names(queue_names *all)
{
    for (size_t i = 0; i < all->count; i++)
        free(all->names[i]);
    free(all->names);
}

static void add_count(json_object *object, const char *name, int64_t count)
{
    if (count < 0)
        json_null(object, name);
    else
        json_int(object, name, count);
}

static const char *cell(int64_t count, char buf[24])
{
    if (count < 0)
        return "?";
    snprintf(buf, 24, "%" PRId64, count);
    return buf;
}

static void print_stats(const stats_values *v, const char *queue, const bq_stats *stats, bool first, size_t width)
{
    if (out_is_terminal() && !v->common.json) {
        char a[24], b[24], c[24], d[24];
        if (first)
            out_printf("%s%-*s  %10s  %10s  %10s  %10s%s\n", out_bold(), (int)width, "queue", "ready", "delayed",
                       "in flight", "dead", out_plain());
        bq_buf name = {0};
        buf_name(&name, bq_str_of(queue));
        out_printf("%-*s  %10s  %10s  %10s  %10s\n", (int)width, name.ptr ? name.ptr : queue, cell(stats->ready, a),
                   cell(stats->delayed, b), cell(stats->in_flight, c), cell(stats->dead, d));
        bq_buf_clear(&name);
        return;
    }
    bq_buf line = {0};
    json_object object = json_open(&line);
    json_text(&object, "queue", bq_str_of(queue));
    add_count(&object, "ready", stats->ready);
    add_count(&object, "delayed", stats->delayed);
    add_count(&object, "in_flight", stats->in_flight);
    add_count(&object, "dead", stats->dead);
    bq_buf states = {0};
    if (stats->states[0].name) {
        json_object counts = json_open(&states);
        for (size_t i = 0; i < BQ_STATES_MAX && stats->states[i].name; i++)
            json_int(&counts, stats->states[i].name, stats->states[i].count);
        json_close(&counts);
        json_raw(&object, "states", bq_buf_str(&states));
    }
    json_close(&object);
    out_line(bq_buf_str(&line));
    bq_buf_clear(&states);
    bq_buf_clear(&line);
}

static int print_all(const cli_verb *verb, const stats_values *v, bq_admin *admin, const char *const *names,
                     size_t count)
{
    size_t width = 5;
    bq_error err;
    int status = CLI_DONE;
    for (size_t i = 0; i < count; i++)
        width = strlen(names[i]) > width ? strlen(names[i]) : width;
    for (size_t i = 0; i < count && out_ok(); i++) {
        bq_stats stats = {.size = sizeof(stats)};
        if (bq_admin_stats(admin, bq_str_of(names[i]), &stats, &err) == BQ_OK)
            print_stats(v, names[i], &stats, i == 0, width);
        else
            status = broker_failure(verb, names[i], &err);
    }
    return status;
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    stats_values *v = values;
    bq_admin *admin = NULL;
    queue_names all = {0};
    bq_error err;
    (void)operands, (void)count;
    int status = broker_open(verb, &v->common, &admin);
    if (status)
        return status;
    if (v->queues.count > 0) {
        status = print_all(verb, v, admin, v->queues.items, v->queues.count);
    } else if (bq_admin_queues(admin, collect, &all, &err) != BQ_OK) {
        status = broker_failure(verb, NULL, &err);
    } else if (all.failed) {
        out_error("out of memory");
        status = CLI_TEMPORARY;
    } else {
        status = print_all(verb, v, admin, (const char *const *)all.names, all.count);
    }
    free_names(&all);
    bq_admin_close(admin);
    return status;
}

static const char *const text[] = {
    "Prints a JSON line for each queue: queue, ready, delayed, in_flight and dead (what is on its dead-letter queue), "
    "and states, where the broker has more of them (BullMQ); "
    "a "
    "count that the broker does not tell is null. On a terminal a table is printed instead, unless --json is given. "
    "Without -q: every queue that 'bq queues' lists.",
    NULL};

static const cli_example examples[] = {{"bq stats -q orders -q invoices", "two queues"}, {NULL, NULL}};

const cli_verb cli_stats = {.name = "stats",
                            .operands = "",
                            .summary = "counts the messages of queues",
                            .text = text,
                            .options = options,
                            .examples = examples,
                            .values_size = sizeof(stats_values),
                            .run = run};
