/*
 * cmd_inspect.c - `bq inspect`: judges bodies, and shows what a retry, a dead letter or a redrive would make of them.
 * Offline: it reads files and asks no broker.
 */
#include "args.h"
#include "out.h"
#include "reader.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum inspect_record { RECORD_POISON, RECORD_FAILED } inspect_record;

typedef struct inspect_values {
    cli_common common;
    bool lines;
    const char *binding_name;
    int record;
    const char *rewrite;
    bool redrive;
    const char *queue;
    const char *error;
    const char *exception;
    int64_t failed_at;
    const char *lang;
    /* Read from those. */
    const bq_binding *binding;
    int64_t rewrite_attempts;
    bool name_files;
    const char *source;
    uint64_t line; /* 0: the source is one body */
    uint64_t seen, bad;
} inspect_values;

#define OFFSET(field) offsetof(inspect_values, field)

static const cli_option options[] = {
    {CLI_FLAG, 'l', "lines", NULL, OFFSET(lines), NULL, NULL, 0, 0, 0, "every line is a body of its own"},
    {CLI_TEXT, 'b', "binding", "NAME", OFFSET(binding_name), NULL,
     "memory|sqlite|redis|laravel|bullmq|rabbitmq|sqs|sb|pulsar|kafka|artemis", 0, 0, 0,
     "judge as this binding does; adds poison and the projection on its native properties"},
    {CLI_CHOICE, 0, "record", "KIND", OFFSET(record), NULL, "poison|failed", 0, 0, 0,
     "print the dead-letter record of the body instead: of a poison one, or of one whose handler failed"},
    {CLI_TEXT, 0, "rewrite", "attempts=N", OFFSET(rewrite), NULL, NULL, 0, 0, 0,
     "print the body of a retry instead, with that count"},
    {CLI_FLAG, 0, "redrive", NULL, OFFSET(redrive), NULL, NULL, 0, 0, 0,
     "print the body as a redrive sends it instead"},
    CLI_OPTIONS_SECTION("What the record says (--record)"),
    {CLI_TEXT, 'q', "queue", "QUEUE", OFFSET(queue), NULL, NULL, 0, 0, CLI_IS_QUEUE, "the queue it was consumed from"},
    {CLI_TEXT, 0, "error", "TEXT", OFFSET(error), NULL, NULL, 0, 0, 0, "dead_letter.error of a failed one"},
    {CLI_TEXT, 0, "exception", "NAME", OFFSET(exception), NULL, NULL, 0, 0, 0, "dead_letter.exception of a failed one"},
    {CLI_INT, 0, "failed-at", "MS", OFFSET(failed_at), NULL, NULL, 0, INT64_MAX, 0,
     "dead_letter.failed_at in milliseconds since 1970 (now)"},
    {CLI_TEXT, 0, "lang", "TAG", OFFSET(lang), NULL, NULL, 0, 0, 0, "dead_letter.lang (c)"},
    CLI_OPTIONS_END};

/* ---- the verdict as a line ------------------------------------------------------------------------------------------- */

static void add_field(json_object *object, const char *name, const bq_envelope *env, bq_field field, bq_buf *scratch)
{
    bq_str text;
    if (bq_envelope_text(env, field, scratch, &text) != BQ_OK)
        text = BQ_STR_NULL;
    json_text(object, name, text);
}

/* An integer as received; null when it is absent or none. */
static void add_integer(json_object *object, const char *name, const bq_envelope *env, bq_field field)
{
    int64_t low = bq_envelope_int(env, field, INT64_MIN), high = bq_envelope_int(env, field, INT64_MAX);
    if (!bq_envelope_has(env, field) || low != high)
        json_null(object, name);
    else
        json_int(object, name, low);
}

static const char *const place_names[] = {
    [BQ_PLACE_HEADER] = "header", [BQ_PLACE_NATIVE] = "native", [BQ_PLACE_ANNOTATION] = "annotation"};

static void add_property(bq_buf *line, const bq_prop *prop)
{
    json_object row = json_open(line);
    bool integer = prop->type == BQ_PROP_INT || prop->type == BQ_PROP_LONG;
    json_text(&row, "place", bq_str_of(place_names[prop->place]));
    json_text(&row, "name", prop->name);
    json_text(&row, "type",
              bq_str_of(prop->type == BQ_PROP_INT      ? "int"
                        : prop->type == BQ_PROP_LONG   ? "long"
                        : prop->type == BQ_PROP_NUMBER ? "number"
                                                       : "string"));
    if (integer)
        json_int(&row, "value", prop->num);
    else
        json_text(&row, "value", prop->text);
    json_close(&row);
}

static void add_binding(json_object *object, const inspect_values *v, const bq_envelope *env, bq_buf *scratch)
{
    bq_prop props[BQ_PROJECTED_MAX];
    size_t count = 0;
    bool poison = bq_is_poison(v->binding, env);
    json_bool(object, "poison", poison);
    json_key(object, "projection");
    bq_buf_add(object->buf, "[", 1);
    if (bq_project(v->binding, env, bq_envelope_attempts(env), props, &count, scratch, NULL) == BQ_OK)
        for (size_t i = 0; i < count; i++) {
            if (i > 0)
                bq_buf_add(object->buf, ",", 1);
            add_property(object->buf, &props[i]);
        }
    bq_buf_add(object->buf, "]", 1);
}

static void print_verdict(const inspect_values *v, const bq_envelope *env)
{
    bq_buf line = {0}, scratch = {0};
    json_object object = json_open(&line);
    if (v->name_files)
        json_text(&object, "file", bq_str_of(v->source));
    json_text(&object, "verdict", bq_str_of(bq_verdict_name(env->verdict)));
    json_text(&object, "reason", env->verdict == BQ_VERDICT_OK ? BQ_STR_NULL : bq_str_of(bq_envelope_reason(env)));
    add_field(&object, "urn", env, BQ_FIELD_URN, &scratch);
    add_field(&object, "id", env, BQ_FIELD_META_ID, &scratch);
    add_field(&object, "trace_id", env, BQ_FIELD_TRACE_ID, &scratch);
    add_field(&object, "queue", env, BQ_FIELD_META_QUEUE, &scratch);
    add_field(&object, "lang", env, BQ_FIELD_META_LANG, &scratch);
    add_integer(&object, "schema_version", env, BQ_FIELD_META_SCHEMA_VERSION);
    add_integer(&object, "created_at", env, BQ_FIELD_META_CREATED_AT);
    add_integer(&object, "attempts", env, BQ_FIELD_ATTEMPTS);
    json_raw(&object, "dead_letter", bq_envelope_raw(env, BQ_FIELD_DEAD_LETTER));
    if (v->binding)
        add_binding(&object, v, env, &scratch);
    json_close(&object);
    if (line.failed)
        out_error("out of memory");
    else
        out_line(bq_buf_str(&line));
    bq_buf_clear(&scratch);
    bq_buf_clear(&line);
}

/* ---- the other modes ------------------------------------------------------------------------------------------------- */

static int64_t wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* contract 4: a poison record names the consumed queue, the record of an envelope its meta.queue when it has one. */
static bq_status make_record(const inspect_values *v, const bq_envelope *env, bq_buf *out, unsigned *dropped,
                             bq_error *err)
{
    bq_buf text = {0}, scratch = {0};
    bq_str queue = BQ_STR_NULL;
    bq_status status;
    bq_dead_letter dl = {.failed_at = v->failed_at < 0 ? wall_ms() : v->failed_at, .lang = bq_str_of(v->lang)};
    dl.original_queue = v->queue ? bq_str_of(v->queue) : BQ_STR("");
    if (v->record == RECORD_POISON) {
        dl.reason = BQ_REASON_POISON;
        dl.exception = BQ_STR("BabelQueueError");
        dl.attempts = bq_envelope_attempts(env);
        status = bq_poison_error(env, &text);
        dl.error = bq_buf_str(&text);
        if (status == BQ_OK)
            status = bq_record_poison(env, &dl, v->binding ? v->binding->record_flags : 0, out, err);
    } else {
        dl.reason = BQ_REASON_FAILED;
        dl.error = bq_str_of(v->error);
        dl.exception = bq_str_of(v->exception);
        dl.attempts = (int64_t)bq_envelope_attempts(env) + 1;
        status = bq_envelope_text(env, BQ_FIELD_META_QUEUE, &scratch, &queue);
        if (queue.len > 0)
            dl.original_queue = queue;
        if (status == BQ_OK)
            status = bq_record_envelope(env, &dl, out, dropped, err);
    }
    bq_buf_clear(&scratch);
    bq_buf_clear(&text);
    return status;
}

static void warn_dropped(const inspect_values *v, unsigned dropped)
{
    for (unsigned bit = 1; bit <= BQ_DROPPED_URN; bit <<= 1)
        if (dropped & bit)
            out_warn("%s: dropped %s", v->source, bq_dropped_pointer(bit));
}

static void complain(const inspect_values *v, const char *why)
{
    if (v->line)
        out_error("%s, line %llu: %s", v->source, (unsigned long long)v->line, why);
    else
        out_error("%s: %s", v->source, why);
}

static bool is_poison(const inspect_values *v, const bq_envelope *env)
{
    return v->binding ? bq_is_poison(v->binding, env) : env->verdict != BQ_VERDICT_OK;
}

static void print_body(const inspect_values *v, const bq_envelope *env)
{
    bq_buf body = {0};
    bq_error err = {.text = ""};
    unsigned dropped = 0;
    bq_status status;
    if (v->record == RECORD_POISON && !is_poison(v, env)) {
        complain(v, "not poison: there is no poison record of it");
        return;
    }
    if (v->record >= 0)
        status = make_record(v, env, &body, &dropped, &err);
    else if (v->redrive)
        status = bq_rewrite_redrive(env, &body, &dropped, &err);
    else
        status = bq_rewrite_attempts(env, v->rewrite_attempts, &body, &dropped, &err);
    if (status == BQ_OK)
        out_line(bq_buf_str(&body));
    else
        complain(v, err.text[0] ? err.text : bq_status_text(status));
    warn_dropped(v, dropped);
    bq_buf_clear(&body);
}

static void inspect(inspect_values *v, bq_str body)
{
    bq_envelope env;
    v->seen++;
    if (bq_envelope_decode(&env, body.ptr ? body.ptr : "", body.len) != BQ_VERDICT_OK)
        v->bad++;
    if (!out_is_terminal() && out_progress_due())
        out_progress("%llu read, %llu not ok", (unsigned long long)v->seen, (unsigned long long)v->bad);
    if (v->record >= 0 || v->rewrite || v->redrive)
        print_body(v, &env);
    else
        print_verdict(v, &env);
}

/* ---- input ----------------------------------------------------------------------------------------------------------- */

static bool inspect_lines(inspect_values *v, int fd)
{
    line_reader reader;
    bq_str line;
    reader_state state = READER_MORE;
    reader_init(&reader, fd, 0);
    while (out_ok() && state != READER_FAILED) {
        if (reader_next(&reader, &line)) {
            v->line = reader.number;
            inspect(v, line);
        } else if (state == READER_EOF) {
            break;
        } else {
            out_flush(); /* somebody may be typing */
            state = reader_fill(&reader);
        }
    }
    int saved = errno;
    reader_clear(&reader);
    errno = saved;
    return state != READER_FAILED;
}

static bool inspect_file(inspect_values *v, const char *name)
{
    bool standard = strcmp(name, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    v->source = standard ? "standard input" : name;
    v->line = 0;
    bool ok = fd >= 0;
    if (ok && v->lines) {
        ok = inspect_lines(v, fd);
    } else if (ok) {
        bq_buf body = {0};
        ok = read_all(fd, &body);
        if (ok)
            inspect(v, bq_buf_str(&body));
        int saved = errno;
        bq_buf_clear(&body);
        errno = saved;
    }
    if (!ok)
        out_error("%s: %s", v->source, strerror(errno));
    if (fd >= 0 && !standard)
        close(fd);
    return ok;
}

static int read_options(const cli_verb *verb, inspect_values *v)
{
    int modes = (v->record >= 0) + (v->rewrite != NULL) + v->redrive;
    if (modes > 1)
        return args_usage_error(verb, "only one of --record, --rewrite and --redrive");
    if (v->binding_name && !(v->binding = bq_binding_find(bq_str_of(v->binding_name))))
        return args_usage_error(verb,
                                "--binding: '%s' is not one of memory sqlite redis laravel bullmq rabbitmq sqs sb "
                                "pulsar kafka artemis",
                                v->binding_name);
    if (v->rewrite) {
        const char *digits = v->rewrite + 9;
        if (strncmp(v->rewrite, "attempts=", 9) != 0 || !*digits || strspn(digits, "0123456789") != strlen(digits) ||
            strlen(digits) > 10 || (v->rewrite_attempts = strtoll(digits, NULL, 10)) > INT32_MAX)
            return args_usage_error(verb, "--rewrite: '%s' is not attempts=N", v->rewrite);
    }
    return CLI_DONE;
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    static char standard_input[] = "-";
    inspect_values *v = values;
    char *only_standard[] = {standard_input};
    bool all_read = true;
    int status = read_options(verb, v);
    if (status)
        return status;
    v->name_files = count > 1;
    if (count == 0) {
        operands = only_standard;
        count = 1;
    }
    for (size_t i = 0; i < count && out_ok(); i++)
        all_read = inspect_file(v, operands[i]) && all_read;
    return !all_read ? CLI_IO : v->bad ? CLI_DATA : CLI_DONE;
}

static const char *const text[] = {
    "Reads message bodies, a file each ('-', or none: stdin), and prints a JSON line for each: verdict (ok, "
    "nonconformant, "
    "or poison/ and what is wrong), reason, urn, id, trace_id, queue, lang, schema_version, created_at, attempts and "
    "dead_letter; with several files also file.",
    "The bodies that --record, --rewrite and --redrive print keep every byte that the operation does not change. "
    "Members "
    "that no producer may write are dropped, with a warning each.",
    "The exit status is 65 if any body is not ok, whatever is printed.", NULL};

static const cli_example examples[] = {
    {"bq peek -q orders.dlq | bq inspect --lines", "judge what lies on a dead-letter queue"},
    {"bq inspect --binding kafka order.json", "how the message would look on Kafka"},
    {"bq inspect --record failed --error 'card declined' order.json", "its dead-letter record"},
    {NULL, NULL}};

const cli_verb cli_inspect = {.name = "inspect",
                              .operands = "[FILE...]",
                              .summary = "judges message bodies and shows their retries and records",
                              .text = text,
                              .options = options,
                              .examples = examples,
                              .values_size = sizeof(inspect_values),
                              .max_operands = SIZE_MAX,
                              .offline = true,
                              .operand_files = true,
                              .run = run};
