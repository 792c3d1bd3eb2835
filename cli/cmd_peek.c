/* cmd_peek.c - `bq peek`: shows messages without consuming them, where the broker can. */
#include "args.h"
#include "broker.h"
#include "interrupt.h"
#include "out.h"
#include "target.h"
#include "text.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages asked for at a time, and the pause before --follow asks again after none came. */
#define PEEK_BATCH 500
#define FOLLOW_PAUSE_MS 250

typedef struct peek_values {
    cli_common common;
    const char *queue;
    int64_t max;
    bool follow;
    int format;
    int64_t partition;
    const char *offset;
    int64_t since_ms;
    /* The run. */
    const bq_binding *binding;
    uint64_t after, shown;
    bool stop;
} peek_values;

#define OFFSET(field) offsetof(peek_values, field)

static const cli_option options[] = {
    {CLI_TEXT, 'q', "queue", "QUEUE", OFFSET(queue), NULL, NULL, 0, 0, CLI_IS_QUEUE, "the queue"},
    {CLI_INT, 'n', "max", "N", OFFSET(max), NULL, NULL, 1, INT64_MAX, 0, "at most so many messages (all)"},
    {CLI_FLAG, 'f', "follow", NULL, OFFSET(follow), NULL, NULL, 0, 0, 0, "go on with those that arrive, until stopped"},
    {CLI_CHOICE, 0, "format", "FORMAT", OFFSET(format), "body", FORMAT_CHOICES, 0, 0, 0,
     "body, data, or full: with queue, route, headers, key and attempts"},
    CLI_OPTIONS_SECTION("Where to start, Kafka and Pulsar only"),
    {CLI_INT, 0, "partition", "P", OFFSET(partition), NULL, NULL, 0, INT32_MAX, 0, "only this partition"},
    {CLI_TEXT, 0, "offset", "N", OFFSET(offset), NULL, NULL, 0, 0, 0,
     "from this offset on; earliest, latest, or -N: the last N"},
    {CLI_DURATION, 0, "since", "D", OFFSET(since_ms), NULL, NULL, 0, 0, 0, "from messages on that are as old as this"},
    CLI_OPTIONS_END};

/* ---- headers --------------------------------------------------------------------------------------------------------- */

typedef struct peek_headers {
    const bq_binding *binding;
    const bq_peeked *message;
    char number[40];
} peek_headers;

static bool header_text(peek_headers *headers, const bq_prop *prop, bq_str *value)
{
    switch (prop->type) {
    case BQ_PROP_STRING:
    case BQ_PROP_BINARY:
    case BQ_PROP_SYMBOL:
    case BQ_PROP_NUMBER: *value = prop->text; return true;
    case BQ_PROP_BOOL: *value = prop->num ? BQ_STR("true") : BQ_STR("false"); return true;
    case BQ_PROP_INT:
    case BQ_PROP_LONG: snprintf(headers->number, sizeof(headers->number), "%" PRId64, prop->num); break;
    case BQ_PROP_DOUBLE: snprintf(headers->number, sizeof(headers->number), "%.17g", prop->real); break;
    case BQ_PROP_NULL:
    case BQ_PROP_OTHER: return false;
    }
    *value = bq_str_of(headers->number);
    return true;
}

/* The headers as a handler would see them: without the contract's own (section 5). */
static bool next_header(const void *source, size_t index, bq_str *name, bq_str *value)
{
    peek_headers *headers = (peek_headers *)(uintptr_t)source;
    for (size_t i = 0; i < headers->message->prop_count; i++) {
        const bq_prop *prop = &headers->message->props[i];
        if (prop->place != BQ_PLACE_HEADER || bq_binding_owns(headers->binding, prop->place, prop->name) ||
            !header_text(headers, prop, value) || index-- > 0)
            continue;
        *name = prop->name;
        return true;
    }
    return false;
}

/* ---- the run --------------------------------------------------------------------------------------------------------- */

static bool print_message(const bq_peeked *message, void *arg)
{
    peek_values *v = arg;
    bq_buf line = {0};
    peek_headers headers = {v->binding, message, ""};
    printed_message printed = {.queue = message->queue,
                               .route = message->route,
                               .body = message->body,
                               .key = message->key,
                               .attempts = message->attempts,
                               .envelope = message->envelope,
                               .header = next_header,
                               .source = &headers};
    message_add(&line, (message_format)v->format, &printed);
    if (line.failed)
        out_error("out of memory");
    v->stop = line.failed || !out_line(bq_buf_str(&line));
    bq_buf_clear(&line);
    v->after = message->position;
    v->shown++;
    if (!out_is_terminal() && out_progress_due())
        out_progress("%llu messages", (unsigned long long)v->shown);
    return !v->stop && !interrupt_count();
}

static size_t wanted(const peek_values *v)
{
    uint64_t left = v->max < 0 ? UINT64_MAX : (uint64_t)v->max - v->shown;
    return left < PEEK_BATCH ? (size_t)left : PEEK_BATCH;
}

static int peek(const cli_verb *verb, peek_values *v, bq_admin *admin)
{
    bq_error err;
    while (!v->stop && !interrupt_count() && wanted(v) > 0) {
        uint64_t before = v->shown;
        if (bq_admin_peek(admin, bq_str_of(v->queue), v->after, wanted(v), print_message, v, &err) != BQ_OK)
            return broker_failure(verb, v->queue, &err);
        if (v->shown != before)
            continue;
        if (!v->follow || !out_flush())
            break;
        poll(&(struct pollfd){interrupt_fd(), POLLIN, 0}, 1, FOLLOW_PAUSE_MS);
    }
    return CLI_DONE;
}

static bool good_offset(const char *text)
{
    const char *digits = text + (*text == '-');
    return strcmp(text, "earliest") == 0 || strcmp(text, "latest") == 0 ||
           (*digits && strlen(digits) <= 18 && strspn(digits, "0123456789") == strlen(digits));
}

static int check(const cli_verb *verb, const peek_values *v, const char *url)
{
    const char *given = v->partition >= 0 ? "partition" : v->offset ? "offset" : v->since_ms >= 0 ? "since" : NULL;
    if (!given || target_is(url, "kafka") || target_is(url, "pulsar"))
        return CLI_DONE;
    out_error("%s: --%s: not supported by this transport", verb->name, given);
    return CLI_CONFIG;
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    peek_values *v = values;
    bq_admin *admin = NULL;
    char *url = NULL;
    (void)operands, (void)count;
    if (!v->queue || !*v->queue)
        return args_usage_error(verb, "which queue? -q QUEUE");
    if (v->offset && !good_offset(v->offset))
        return args_usage_error(verb, "--offset: '%s' is none of N, -N, earliest and latest", v->offset);
    if (v->offset && v->since_ms >= 0)
        return args_usage_error(verb, "--offset or --since, not both");
    int status = target_url(verb, &v->common, &url);
    if (!status)
        status = check(verb, v, url);
    free(url);
    if (v->follow && !status)
        interrupt_catch(NULL, NULL);
    if (!status)
        status = broker_open(verb, &v->common, &admin);
    if (status)
        return status;
    v->binding = bq_admin_binding(admin);
    status = peek(verb, v, admin);
    bq_admin_close(admin);
    return status;
}

static const char *const text[] = {
    "Prints the messages of a queue, a line each, in the order in which they will be consumed, and leaves them where "
    "they "
    "are. Where the broker cannot show messages without consuming them the exit status is 78.",
    "--format body prints the body as it is, with line breaks between its tokens removed; data only its data; full an "
    "object with queue, route, headers, key, attempts and body (a string that holds the body byte for byte), which "
    "'bq publish --lines' takes back.",
    NULL};

static const cli_example examples[] = {{"bq peek -q orders -n 1 | jq .", "the next message"},
                                       {"bq peek -q orders.dlq --format full", "what was dead-lettered, with headers"},
                                       {NULL, NULL}};

const cli_verb cli_peek = {.name = "peek",
                           .operands = "",
                           .summary = "shows messages without consuming them",
                           .text = text,
                           .options = options,
                           .examples = examples,
                           .values_size = sizeof(peek_values),
                           .run = run};
