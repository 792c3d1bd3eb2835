/*
 * cmd_redrive.c - `bq redrive`: replays a dead-letter queue. The library does the work on the calling thread; here are
 * the selection, a line for each record and the counts.
 */
#include "args.h"
#include "broker.h"
#include "interrupt.h"
#include "out.h"
#include "target.h"
#include "text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct redrive_values {
    cli_common common;
    const char *queue;
    const char *from;
    const char *to;
    int64_t max;
    cli_list urns;
    const char *reason;
    cli_list ids;
    int64_t older_ms;
    double rate;
    bool bypass;
    bool force;
    const char *include;
    bool failed;
    bool dry_run;
    /* Read from those. */
    bool include_poison, include_gated;
    int64_t now_ms;
    uint64_t seen, redriven, would; /* `would`: be redriven, if this were no dry run */
} redrive_values;

#define OFFSET(field) offsetof(redrive_values, field)

static const cli_option options[] = {
    {CLI_TEXT, 'q', "queue", "QUEUE", OFFSET(queue), NULL, NULL, 0, 0, CLI_IS_QUEUE,
     "the queue whose dead-letter queue is replayed"},
    {CLI_TEXT, 0, "from", "DLQ", OFFSET(from), NULL, NULL, 0, 0, CLI_IS_QUEUE,
     "the dead-letter queue (the binding's name for that of -q)"},
    {CLI_TEXT, 0, "to", "QUEUE", OFFSET(to), NULL, NULL, 0, 0, CLI_IS_QUEUE,
     "send all of them here (where each came from)"},
    {CLI_FLAG, 0, "dry-run", NULL, OFFSET(dry_run), NULL, NULL, 0, 0, 0, "only tell what would be done"},
    {CLI_INT, 'n', "max", "N", OFFSET(max), "0", NULL, 0, INT64_MAX, 0, "at most so many records; 0: all"},
    {CLI_RATE, 0, "rate", "N/s", OFFSET(rate), NULL, NULL, 0, 0, 0, "at most so many messages a second"},
    {CLI_FLAG, 0, "bypass", NULL, OFFSET(bypass), NULL, NULL, 0, 0, 0,
     "mark them as replayed, so that handlers may skip external effects"},
    CLI_OPTIONS_SECTION("Which records"),
    {CLI_LIST, 0, "urn", "URN", OFFSET(urns), NULL, NULL, 0, 0, 0, "of this URN"},
    {CLI_TEXT, 0, "reason", "REASON", OFFSET(reason), NULL, "failed|unknown_urn|poison", 0, 0, 0,
     "dead-lettered for this reason"},
    {CLI_LIST, 0, "id", "ID", OFFSET(ids), NULL, NULL, 0, 0, 0, "with this meta.id"},
    {CLI_DURATION, 0, "older-than", "D", OFFSET(older_ms), NULL, NULL, 0, 0, 0, "that failed at least so long ago"},
    {CLI_FLAG, 0, "force", NULL, OFFSET(force), NULL, NULL, 0, 0, 0, "also records without a dead_letter member"},
    {CLI_TEXT, 0, "include", "KIND", OFFSET(include), NULL, "poison|gated|poison,gated", 0, 0, 0,
     "also these, unchanged: poison bodies, messages of another schema version"},
    {CLI_FLAG, 0, "failed", NULL, OFFSET(failed), NULL, NULL, 0, 0, CLI_BULLMQ,
     "from the failed set instead (BullMQ only)"},
    CLI_OPTIONS_END};

/* ---- selection ------------------------------------------------------------------------------------------------------- */

static bool listed(const cli_list *list, bq_str text)
{
    for (size_t i = 0; i < list->count; i++)
        if (bq_str_equal(bq_str_of(list->items[i]), text))
            return true;
    return list->count == 0;
}

/* contract 6: records without dead_letter.failed_at are never older than something. */
static bool old_enough(const redrive_values *v, const bq_redrive_item *item)
{
    if (v->older_ms < 0)
        return true;
    if (!item->envelope || item->failed_at_ms == 0)
        return false;
    return item->failed_at_ms <= v->now_ms && v->now_ms - item->failed_at_ms >= v->older_ms;
}

static bool selected(const bq_redrive_item *item, void *arg)
{
    const redrive_values *v = arg;
    return listed(&v->urns, item->urn) && listed(&v->ids, item->id) &&
           (!v->reason || bq_str_equal(item->reason, bq_str_of(v->reason))) && old_enough(v, item);
}

/* ---- report ---------------------------------------------------------------------------------------------------------- */

static bq_str text_or_null(bq_str text)
{
    return text.len ? text : BQ_STR_NULL;
}

static void report(const bq_redrive_item *item, void *arg)
{
    redrive_values *v = arg;
    bq_buf line = {0};
    v->seen++;
    v->redriven += item->redriven;
    v->would += item->skip == BQ_SKIP_NONE;
    if (out_progress_due())
        out_progress("%llu seen, %llu redriven", (unsigned long long)v->seen, (unsigned long long)v->redriven);
    if (item->skip == BQ_SKIP_NOT_SELECTED && !v->common.verbose)
        return;
    json_object object = json_open(&line);
    json_text(&object, "id", text_or_null(item->id));
    json_text(&object, "trace_id", text_or_null(item->trace_id));
    json_text(&object, "urn", text_or_null(item->urn));
    json_text(&object, "reason", text_or_null(item->reason));
    json_text(&object, "from", text_or_null(item->from));
    json_text(&object, "to", item->skip == BQ_SKIP_NONE ? text_or_null(item->to) : BQ_STR_NULL);
    json_bool(&object, "redriven", item->redriven);
    json_bool(&object, "bypassed", item->bypassed);
    json_text(&object, "skipped", item->skip == BQ_SKIP_NONE ? BQ_STR_NULL : bq_str_of(bq_skip_name(item->skip)));
    json_close(&object);
    out_line(bq_buf_str(&line));
    bq_buf_clear(&line);
}

static bool stopped(void *arg)
{
    (void)arg;
    return interrupt_count() > 0 || !out_ok();
}

/* ---- the run --------------------------------------------------------------------------------------------------------- */

static int read_include(const cli_verb *verb, redrive_values *v)
{
    for (const char *at = v->include; at && *at;) {
        size_t n = strcspn(at, ",");
        if (n == 6 && strncmp(at, "poison", n) == 0)
            v->include_poison = true;
        else if (n == 5 && strncmp(at, "gated", n) == 0)
            v->include_gated = true;
        else
            return args_usage_error(verb, "--include: '%.*s' is neither poison nor gated", (int)n, at);
        at += n + (at[n] == ',');
    }
    if (v->include && !v->include_poison && !v->include_gated)
        return args_usage_error(verb, "--include: poison, gated or poison,gated");
    return CLI_DONE;
}

static int read_options(const cli_verb *verb, redrive_values *v)
{
    struct timespec ts;
    int index;
    if (!v->queue || !*v->queue)
        return args_usage_error(verb, "which queue? -q QUEUE");
    if (v->from && strcmp(v->from, v->to ? v->to : "") == 0)
        return args_usage_error(verb, "--from and --to are the same queue");
    if (v->failed && (v->from || v->to || v->bypass || v->reason || v->include_gated))
        return args_usage_error(verb, "--failed: the queue's own jobs go back as they are: no --from, --to, --bypass, "
                                      "--reason, and nothing gated to include");
    if (v->reason && !args_choice("failed|unknown_urn|poison", v->reason, &index))
        return args_usage_error(verb, "--reason: '%s' is none of failed, unknown_urn and poison", v->reason);
    clock_gettime(CLOCK_REALTIME, &ts);
    v->now_ms = (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
    return read_include(verb, v);
}

/* The name of the dead-letter queue: --from, else the binding's for -q. The broker is asked for nothing else here, but
 * only once it answers is it known which binding a URL has. */
static int find_source(const cli_verb *verb, const redrive_values *v, const char *url, bq_buf *name)
{
    bq_admin *admin = NULL;
    bq_error err;
    bq_logger logger = out_logger();
    if (v->failed)
        return bq_buf_add(name, v->queue, strlen(v->queue)) == BQ_OK ? CLI_DONE : CLI_TEMPORARY;
    if (v->from)
        return bq_buf_add(name, v->from, strlen(v->from)) == BQ_OK ? CLI_DONE : CLI_TEMPORARY;
    /* The redrive connects for itself, and tells so: once is enough. */
    logger.level = logger.level > BQ_LOG_WARN ? BQ_LOG_WARN : logger.level;
    if (bq_admin_open(&admin, url, v->common.timeout_ms, &logger, &err) != BQ_OK)
        return out_failure(verb->name, &err);
    bq_status status = bq_dead_letter_queue(bq_admin_binding(admin), bq_str_of(v->queue), name);
    bq_admin_close(admin);
    return status == BQ_OK ? CLI_DONE : CLI_TEMPORARY;
}

static void describe(redrive_values *v, bq_redrive_options *o)
{
    BQ_REDRIVE_OPTIONS_INIT(o);
    o->to_queue = v->to;
    o->fallback_queue = v->include_gated ? v->queue : NULL;
    o->max = (uint64_t)v->max;
    o->dry_run = v->dry_run;
    o->bypass = v->bypass;
    o->require_dead_letter = !v->force;
    o->include_poison = v->include_poison;
    o->include_gated = v->include_gated;
    o->rate = v->rate;
    o->timeout_ms = v->common.timeout_ms;
    o->select = selected;
    o->report = report;
    o->stop = stopped;
    o->arg = v;
    o->logger = out_logger();
    o->failed_set = v->failed;
}

static void summarize(const redrive_values *v, const char *source, const bq_redrive_result *result)
{
    unsigned long long seen = result->seen, redriven = result->redriven, skipped = result->skipped;
    if (v->dry_run) /* the library counts what a dry run leaves among the skipped */
        out_note("%s: %llu seen, %llu would be redriven, %llu skipped (dry run)", source, seen,
                 (unsigned long long)v->would, seen - v->would);
    else
        out_note("%s: %llu seen, %llu redriven, %llu skipped", source, seen, redriven, skipped);
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    redrive_values *v = values;
    bq_buf source = {0};
    char *url = NULL;
    bq_redrive_options what;
    bq_redrive_result result = {0};
    bq_error err;
    (void)operands, (void)count;
    int status = read_options(verb, v);
    if (!status)
        status = target_url(verb, &v->common, &url);
    if (!status && v->failed && !target_is(url, "bullmq")) {
        out_error("%s: --failed: not supported by this transport", verb->name);
        status = CLI_CONFIG;
    }
    if (!status)
        status = find_source(verb, v, url, &source);
    if (status)
        goto out;
    target_warn_private(url, "nothing that was published elsewhere is there");
    describe(v, &what);
    interrupt_catch(NULL, NULL);
    if (bq_redrive(url, source.ptr, &what, &result, &err) != BQ_OK)
        status = broker_failure(verb, source.ptr, &err);
    out_progress_end();
    summarize(v, source.ptr, &result);
    if (!status && interrupt_count()) {
        out_end(CLI_DONE);
        interrupt_die();
    }
out:
    bq_buf_clear(&source);
    free(url);
    return status;
}

static const char *const text[] = {
    "Takes the records off the dead-letter queue of -q and sends each back to the queue it came from, with its "
    "dead_letter "
    "member removed and attempts 0; everything else keeps its bytes. A record is only acknowledged once that write is "
    "confirmed. What is not sent back stays on the dead-letter queue, byte for byte.",
    "Records without a dead_letter member are skipped unless --force is given; poison bodies and messages of another "
    "schema version unless --include names them: those go back unchanged, the latter to --to, else to -q.",
    "A JSON line for each record goes to stdout: id, trace_id, urn, reason, from, to, redriven, bypassed, and skipped, "
    "which says why; records that --urn, --reason, --id or --older-than leave out are only shown with -v. The counts "
    "go "
    "to stderr. A dry run shows redriven false and skipped null for what would be sent.",
    NULL};

static const cli_example examples[] = {
    {"bq redrive -q orders --dry-run", "what would be replayed"},
    {"bq redrive -q orders --urn urn:babel:orders:created --rate 50/s", "one kind of message, slowly"},
    {"bq redrive -q orders --to orders-sandbox --bypass", "into a sandbox, marked as replayed"},
    {NULL, NULL}};

const cli_verb cli_redrive = {.name = "redrive",
                              .operands = "",
                              .summary = "replays a dead-letter queue",
                              .text = text,
                              .options = options,
                              .examples = examples,
                              .values_size = sizeof(redrive_values),
                              .run = run};
