/*
 * cmd_publish.c - `bq publish`: one message from the command line or stdin; many with --lines (publish_lines.c).
 */
#include "args.h"
#include "interrupt.h"
#include "out.h"
#include "publish.h"
#include "reader.h"
#include "target.h"
#include "text.h"
#include "utf8.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OFFSET(field) offsetof(publish_values, field)

static const cli_option options[] = {
    {CLI_TEXT, 'q', "queue", "QUEUE", OFFSET(queue), NULL, NULL, 0, 0, CLI_IS_QUEUE,
     "the queue; with --lines it may stand in the lines instead"},
    {CLI_FLAG, 'l', "lines", NULL, OFFSET(lines), NULL, NULL, 0, 0, 0,
     "publish every line of stdin: data when a URN is given, else an object with urn, data, ..."},
    {CLI_FLAG, 0, "raw", NULL, OFFSET(raw), NULL, NULL, 0, 0, 0,
     "DATA, or every line, is a whole body, sent as it is (tests, repairs)"},
    {CLI_TEXT, 0, "trace-id", "ID", OFFSET(trace_id), NULL, NULL, 0, 0, 0, "continue this trace; else a fresh one"},
    {CLI_LIST, 'H', "header", "K=V", OFFSET(headers), NULL, NULL, 0, 0, 0, "a header beside the message"},
    {CLI_DURATION, 0, "delay", "D", OFFSET(delay_ms), "0", NULL, 0, 0, 0, "deliver after this long"},
    {CLI_TEXT, 'k', "key", "K", OFFSET(key), NULL, NULL, 0, 0, 0, "record key, where the broker has keys"},
    {CLI_TEXT, 0, "group", "G", OFFSET(group), NULL, NULL, 0, 0, 0, "message group of a FIFO queue"},
    {CLI_TEXT, 0, "lang", "TAG", OFFSET(lang), NULL, NULL, 0, 0, 0, "meta.lang of the message (c)"},
    CLI_OPTIONS_SECTION("Job options, BullMQ only"),
    {CLI_INT, 0, "attempts", "N", OFFSET(bullmq.attempts), NULL, NULL, 1, INT32_MAX, CLI_BULLMQ,
     "how often the job may be tried"},
    {CLI_TEXT, 0, "backoff", "KIND:D[:JITTER]", OFFSET(bullmq.backoff), NULL, NULL, 0, 0, CLI_BULLMQ,
     "pause between attempts: fixed:D or exponential:D, JITTER from 0 to 1"},
    {CLI_INT, 0, "priority", "N", OFFSET(bullmq.priority), NULL, NULL, 0, 2097152, CLI_BULLMQ,
     "1 is the most urgent, 0 none"},
    {CLI_FLAG, 0, "lifo", NULL, OFFSET(bullmq.lifo), NULL, NULL, 0, 0, CLI_BULLMQ, "before the jobs that wait already"},
    {CLI_TEXT, 0, "job-id", "ID", OFFSET(bullmq.job_id), NULL, NULL, 0, 0, CLI_BULLMQ, "the job's own id"},
    {CLI_TEXT, 0, "remove-on-complete", "yes|N|D", OFFSET(bullmq.remove_on_complete), NULL, NULL, 0, 0, CLI_BULLMQ,
     "keep none, the last N, or those younger than D"},
    {CLI_TEXT, 0, "remove-on-fail", "yes|N|D", OFFSET(bullmq.remove_on_fail), NULL, NULL, 0, 0, CLI_BULLMQ,
     "the same for jobs that failed"},
    {CLI_INT, 0, "keep-logs", "N", OFFSET(bullmq.keep_logs), NULL, NULL, 0, INT32_MAX, CLI_BULLMQ,
     "log lines kept for the job"},
    {CLI_TEXT, 0, "dedup", "ID", OFFSET(bullmq.dedup), NULL, NULL, 0, 0, CLI_BULLMQ,
     "ignore the job while one with this id is there"},
    CLI_OPTIONS_END};

/* ---- what was asked -------------------------------------------------------------------------------------------------- */

/* "K=V", one by one; the value may be empty and hold further equals signs. */
static int read_headers(const cli_verb *verb, const cli_list *list, bq_header **out)
{
    *out = calloc(list->count + 1, sizeof(**out));
    if (!*out) {
        out_error("out of memory");
        return CLI_TEMPORARY;
    }
    for (size_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->items[i], '=');
        if (!equals || equals == list->items[i])
            return args_usage_error(verb, "--header: '%s' is not NAME=VALUE", list->items[i]);
        (*out)[i].name = (bq_str){list->items[i], (size_t)(equals - list->items[i])};
        (*out)[i].value = bq_str_of(equals + 1);
        if (!utf8_valid(bq_str_of(list->items[i])))
            return args_usage_error(verb, "--header: '%.*s' is not UTF-8", (int)(equals - list->items[i]),
                                    list->items[i]);
    }
    return CLI_DONE;
}

/* Which operand is what: URN and DATA, or with --raw only DATA. */
static int read_operands(const cli_verb *verb, publish_values *v, char **operands, size_t count)
{
    v->urn = v->raw || count == 0 ? NULL : operands[0];
    size_t used = v->urn ? 1 : 0;
    v->data = count > used ? operands[used] : NULL;
    if (v->raw && count > 1)
        return args_usage_error(verb, "--raw takes the whole body, and no URN");
    if (v->lines && v->data && strcmp(v->data, "-") != 0)
        return args_usage_error(verb, "--lines reads stdin: no DATA beside it");
    if (!v->lines && !v->raw && !v->urn)
        return args_usage_error(verb, "what is published? bq publish -q QUEUE URN [DATA]");
    if (v->urn && (v->urn[0] == '{' || v->urn[0] == '['))
        return args_usage_error(verb, "'%.60s' is no URN: the URN comes first: bq publish -q QUEUE URN DATA", v->urn);
    if (v->urn && bq_str_blank(bq_str_of(v->urn)))
        return args_usage_error(verb, "the URN is blank");
    if (!v->lines && (!v->queue || !*v->queue))
        return args_usage_error(verb, "which queue? -q QUEUE");
    if (v->queue && !*v->queue)
        return args_usage_error(verb, "-q: the queue's name is empty");
    if (v->raw && (v->trace_id || v->lang))
        return args_usage_error(verb, "--raw sends the body as it is: no --trace-id, no --lang");
    return CLI_DONE;
}

/* An option that this broker cannot honour is refused, not dropped. */
static int check_transport(const cli_verb *verb, const publish_values *v, const char *url)
{
    const char *given = bullmq_given(&v->bullmq);
    const bq_transport_ops *ops = target_transport(url);
    const char *lacks = NULL;
    if (given && !target_is(url, "bullmq"))
        lacks = given;
    else if (v->group && !target_is(url, "sqs"))
        lacks = "group";
    else if (v->key && ops && !(ops->capabilities & BQ_CAP_KEY))
        lacks = "key";
    if (!lacks)
        return CLI_DONE;
    out_error("%s: --%s: not supported by this transport", verb->name, lacks);
    return CLI_CONFIG;
}

/* ---- one message ---------------------------------------------------------------------------------------------------- */

static int read_data(const publish_values *v, bq_buf *buf, bq_str *data)
{
    if (v->data && strcmp(v->data, "-") != 0) {
        *data = bq_str_of(v->data);
        return CLI_DONE;
    }
    if (isatty(STDIN_FILENO))
        out_note("reading the message from the terminal: end it with Ctrl-D");
    if (!read_all(STDIN_FILENO, buf)) {
        out_error("standard input: %s", strerror(errno));
        return CLI_IO;
    }
    *data = buf->ptr ? bq_buf_str(buf) : BQ_STR("");
    return CLI_DONE;
}

void publish_print_id(const publish_values *v, const char *id, bq_str queue)
{
    if (!v->common.json) {
        out_line(bq_str_of(id));
        return;
    }
    bq_buf line = {0};
    json_object object = json_open(&line);
    json_text(&object, "id", *id ? bq_str_of(id) : BQ_STR_NULL);
    json_text(&object, "queue", queue);
    json_close(&object);
    out_line(bq_buf_str(&line));
    bq_buf_clear(&line);
}

/* What cannot begin any JSON value was hardly meant as one: said in the words of a command line. */
static bool no_json(const publish_values *v, bq_str data)
{
    bq_str text = bq_str_trim(data);
    char c = text.len ? text.ptr[0] : '{';
    if (v->raw || c <= ' ' || c > '~' || strchr("{[\"-0123456789tfn", c))
        return false;
    out_error("publish: data: not a JSON object: unexpected '%c'", c);
    return true;
}

/* Nothing, or white space, where a message is expected: somebody forgot it. */
static bool nothing(const publish_values *v, bq_str data)
{
    if (v->raw || !bq_str_blank(data))
        return false;
    out_error("publish: no data: give a JSON object as DATA or on standard input");
    return true;
}

static int publish_one(const publish_values *v, bq_publisher *publisher, bq_message_spec *spec)
{
    bq_buf buf = {0};
    bq_str data;
    line_parser parser;
    bq_error err;
    char id[BQ_ID_SIZE] = "";
    line_parser_init(&parser);
    int status = read_data(v, &buf, &data);
    if (status)
        goto out;
    if (nothing(v, data) || no_json(v, data)) {
        status = CLI_DATA;
        goto out;
    }
    if (!line_parse(&parser, v->raw ? LINE_RAW : LINE_DATA, data, spec)) {
        out_error("publish: %s", parser.why);
        status = CLI_DATA;
        goto out;
    }
    if (bq_publish(publisher, spec, id, &err) != BQ_OK) {
        status = out_failure("publish", &err);
        goto out;
    }
    if (!*id)
        out_note("the body holds no meta.id, so that none is printed");
    publish_print_id(v, id, spec->queue);
out:
    line_parser_clear(&parser);
    bq_buf_clear(&buf);
    return status;
}

static int publish(const publish_values *v, const char *url, bq_message_spec *spec)
{
    bq_publisher *publisher = NULL;
    bq_error err;
    bq_publisher_options open = BQ_PUBLISHER_OPTIONS_INIT;
    open.timeout_ms = v->common.timeout_ms;
    open.lang = v->lang;
    open.logger = out_logger();
    if (v->lines)
        interrupt_catch(NULL, NULL);
    interrupt_hold(true); /* the publisher's thread must not be the one that is interrupted */
    bq_status opened = bq_publisher_open(&publisher, url, &open, &err);
    interrupt_hold(false);
    if (opened != BQ_OK || bq_publisher_wait(publisher, v->common.timeout_ms, &err) != BQ_OK) {
        bq_publisher_close(publisher, 0);
        return out_failure("publish", &err);
    }
    target_warn_private(url, "what is published is gone when this command ends");
    int status = v->lines ? publish_lines(v, publisher, spec) : publish_one(v, publisher, spec);
    bq_publisher_close(publisher, v->common.timeout_ms);
    return status;
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    publish_values *v = values;
    bq_header *headers = NULL;
    bq_bullmq_job job;
    char *url = NULL;
    int status = read_operands(verb, v, operands, count);
    if (!status)
        status = read_headers(verb, &v->headers, &headers);
    if (!status)
        status = bullmq_read(verb, &v->bullmq, &job);
    if (!status)
        status = target_url(verb, &v->common, &url);
    if (!status)
        status = check_transport(verb, v, url);
    if (!status) {
        bq_message_spec spec = BQ_MESSAGE_SPEC_INIT;
        spec.queue = bq_str_of(v->queue);
        spec.urn = bq_str_of(v->urn);
        spec.trace_id = bq_str_of(v->trace_id);
        spec.headers = headers;
        spec.header_count = v->headers.count;
        spec.key = bq_str_of(v->key);
        spec.group = bq_str_of(v->group);
        spec.delay_ms = v->delay_ms;
        spec.extra = target_is(url, "bullmq") ? &job : NULL;
        status = publish(v, url, &spec);
    }
    free(headers);
    free(url);
    return status;
}

static const char *const text[] = {
    "DATA is one JSON object; when it is '-' or absent it is read from stdin. The id that the message was given (its "
    "meta.id) goes to stdout once the broker has confirmed the message. When no confirmation came in time the exit "
    "status is "
    "75: the message may be on the queue.",
    "With --lines, stdin holds a message a line, which are sent without waiting for one another; the ids are printed "
    "in "
    "order. With a URN each line is the data of a message. Without one each line is an object with the members urn and "
    "data, and if wanted trace_id, id, queue, headers, delay_ms, key and group; or a message as --format full prints "
    "it, "
    "whose body is sent as it is. A line that cannot be published is reported with its number and the rest goes on: "
    "exit "
    "status 1. Blank lines are skipped.",
    "With --raw, DATA, or each line, is a whole body that is sent as it is, even when it is no envelope. A message as "
    "--format full prints it is recognised here too.",
    NULL};

static const cli_example examples[] = {
    {"bq publish -q orders urn:babel:orders:created '{\"order\":1}'", "publish one message"},
    {"jq -c '.[]' orders.json | bq publish -q orders --lines urn:babel:orders:created",
     "publish every element of an array"},
    {"bq work -q orders --print --format full --drain | bq publish -u @other -q orders --lines",
     "move a queue to another broker"},
    {NULL, NULL}};

const cli_verb cli_publish = {.name = "publish",
                              .operands = "[URN] [DATA]",
                              .summary = "publishes a message and prints its id",
                              .text = text,
                              .options = options,
                              .examples = examples,
                              .values_size = sizeof(publish_values),
                              .max_operands = 2,
                              .run = run};
