/*
 * cmd_work.c - `bq work`: consumes queues, gives each message to a handler, and says in the end what became of them.
 * Here are the options, the life of the consumer and the summary; the handlers are in work_exec.c, work_print.c and
 * mux.c.
 */
#include "args.h"
#include "environment.h"
#include "guard.h"
#include "interrupt.h"
#include "mux.h"
#include "out.h"
#include "process.h"
#include "target.h"
#include "text.h"
#include "work.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDLE_TOLD_MS 1000

#define OFFSET(field) offsetof(work_values, field)

static const cli_option options[] = {
    {CLI_LIST, 'q', "queue", "QUEUE", OFFSET(queues), NULL, NULL, 0, 0, CLI_IS_QUEUE,
     "a queue to consume; several are served fairly"},
    CLI_OPTIONS_SECTION("Handlers"),
    {CLI_TEXT, 'x', "exec", "CMD", OFFSET(exec), NULL, NULL, 0, 0, CLI_IS_COMMAND,
     "run this command for every message that has no --handle"},
    {CLI_LIST, 0, "handle", "URN=CMD", OFFSET(handles), NULL, NULL, 0, 0, 0,
     "run this command for messages of that URN"},
    {CLI_TEXT, 0, "handle-stdio", "CMD", OFFSET(handle_stdio), NULL, NULL, 0, 0, CLI_IS_COMMAND,
     "give the messages to a long-lived command, as JSON lines"},
    {CLI_INT, 0, "coprocesses", "N", OFFSET(coprocesses), "1", NULL, 1, 256, 0, "how many of those run"},
    {CLI_FLAG, 0, "print", NULL, OFFSET(print), NULL, NULL, 0, 0, 0,
     "print each message as a line, and acknowledge it once that is written"},
    {CLI_CHOICE, 0, "format", "FORMAT", OFFSET(format), NULL, FORMAT_CHOICES, 0, 0, 0,
     "with --print: body (the default), data, or full: with queue, route, headers, key and attempts"},
    {CLI_DURATION, 0, "handler-timeout", "D", OFFSET(handler_timeout_ms), "off", NULL, 0, INT64_C(604800000), CLI_OFF,
     "end a handler that takes longer; that counts as failed"},
    {CLI_INT, 'c', "concurrency", "N", OFFSET(concurrency), "1", NULL, 1, 4096, 0, "handlers at a time"},
    {CLI_INT, 0, "prefetch", "N", OFFSET(prefetch), NULL, NULL, 1, 1000000, 0,
     "messages taken and not settled, at most (twice the concurrency, at least 16)"},
    CLI_OPTIONS_SECTION("When it ends"),
    {CLI_INT, 'n', "max", "N", OFFSET(max), NULL, NULL, 1, INT64_MAX, 0, "stop after so many messages"},
    {CLI_MAYBE, 0, "drain", NULL, OFFSET(drain), NULL, "all", 0, 0, 0,
     "stop when nothing is ready and nothing in flight; =all: nothing delayed either"},
    {CLI_DURATION, 0, "shutdown-timeout", "D", OFFSET(shutdown_timeout_ms), "30s", NULL, 0, INT64_C(86400000), 0,
     "after SIGTERM or SIGINT, how long handlers may go on"},
    CLI_OPTIONS_SECTION("Failures"),
    {CLI_INT, 0, "max-attempts", "N", OFFSET(max_attempts), NULL, NULL, 0, INT32_MAX, 0,
     "deliveries of a message before it is dead-lettered (the binding's, mostly 3)"},
    {CLI_MAYBE, 0, "dlq", "NAME", OFFSET(dlq), NULL, NULL, 0, 0, 0,
     "dead-letter, to the binding's queue or to this one"},
    {CLI_FLAG, 0, "no-dlq", NULL, OFFSET(no_dlq), NULL, NULL, 0, 0, 0, "do not dead-letter"},
    {CLI_CHOICE, 0, "unknown", "STRATEGY", OFFSET(unknown), NULL, "fail|delete|release|dead_letter", 0, 0, 0,
     "what becomes of messages that no handler is for: fail (the default), delete, release or dead_letter"},
    {CLI_DURATION, 0, "unknown-delay", "D", OFFSET(unknown_delay_ms), "0", NULL, 0, 0, 0, "pause before a release"},
    {CLI_DURATION, 0, "retry-backoff", "D", OFFSET(retry_backoff_ms), "0", NULL, 0, 0, 0,
     "pause before the first retry"},
    {CLI_NUMBER, 0, "retry-multiplier", "X", OFFSET(retry_multiplier), "1", NULL, 1, 1000, 0,
     "each further pause is so many times longer"},
    {CLI_DURATION, 0, "retry-max", "D", OFFSET(retry_max_ms), "0", NULL, 0, 0, 0, "the longest pause; 0: no limit"},
    {CLI_CHOICE, 0, "retry-jitter", "KIND", OFFSET(retry_jitter), "none", "none|full", 0, 0, 0,
     "full: the pause is drawn between 0 and its length"},
    {CLI_TEXT, 0, "lang", "TAG", OFFSET(lang), NULL, NULL, 0, 0, 0, "dead_letter.lang (c)"},
    CLI_OPTIONS_END};

/* ---- stopping -------------------------------------------------------------------------------------------------------- */

static _Atomic(bq_consumer *) running;
static atomic_int stop_requests;

void work_stop(void)
{
    atomic_fetch_add(&stop_requests, 1);
    bq_consumer *consumer = atomic_load(&running);
    if (consumer)
        bq_consumer_stop(consumer);
}

static void on_signal(void *arg)
{
    (void)arg;
    work_stop();
}

/* The consumer is there from now on. A request that came before is caught up with; one that comes between the two steps
 * may reach the consumer twice, as a second signal would. */
static void publish_consumer(bq_consumer *consumer)
{
    atomic_store(&running, consumer);
    if (atomic_load(&stop_requests) > 0)
        bq_consumer_stop(consumer);
}

/* ---- what is told while it runs -------------------------------------------------------------------------------------- */

static const char *const settled_names[BQ_SETTLED_COUNT_] = {
    [BQ_SETTLED_ACKED] = "acknowledged",          [BQ_SETTLED_RETRIED] = "to be retried",
    [BQ_SETTLED_DEAD_LETTERED] = "dead-lettered", [BQ_SETTLED_DROPPED] = "dropped",
    [BQ_SETTLED_RELEASED] = "given back",         [BQ_SETTLED_REJECTED] = "rejected",
    [BQ_SETTLED_LEFT] = "left to the broker",     [BQ_SETTLED_FAILED] = "not settled, it comes back",
    [BQ_SETTLED_LOST] = "no longer ours"};

static const char *trouble_name(bq_trouble trouble)
{
    switch (trouble) {
    case BQ_TROUBLE_FAILED: return "failed";
    case BQ_TROUBLE_UNKNOWN_URN: return "no handler";
    case BQ_TROUBLE_POISON: return "poison";
    case BQ_TROUBLE_GATED: return "another schema version";
    case BQ_TROUBLE_WORKER_LOST: return "it ended its workers";
    case BQ_TROUBLE_SETTLEMENT: return "settlement failed";
    }
    return "failed";
}

static int cut(bq_str text, int most)
{
    return text.len < (size_t)most ? (int)text.len : most;
}

static void on_error(const bq_failure *f, void *arg)
{
    char why[256] = "", settlement[200] = "";
    (void)arg;
    if (f->error.len > 0)
        snprintf(why, sizeof(why), ": %.*s", cut(f->error, 200), f->error.ptr);
    if (f->exception.len > 0 && f->trouble == BQ_TROUBLE_FAILED)
        snprintf(why, sizeof(why), ": %.*s%s%.*s", cut(f->exception, 60), f->exception.ptr, f->error.len ? ": " : "",
                 cut(f->error, 150), f->error.ptr ? f->error.ptr : "");
    if (f->settlement)
        snprintf(settlement, sizeof(settlement), " (%.180s)", f->settlement->text);
    out_warn("%.*s: %.*s, attempt %d: %s%s; %s%s", cut(f->queue, 80), f->queue.ptr ? f->queue.ptr : "",
             f->route.len ? cut(f->route, 120) : 8, f->route.len ? f->route.ptr : "(no URN)", (int)f->attempts,
             trouble_name(f->trouble), why, settled_names[f->settled], settlement);
}

/* What the callbacks know of the run: they are called from the consumer's threads. */
typedef struct telling {
    atomic_bool was_down;
    atomic_llong idle_since_ms; /* connected, and no message has come yet; 0: not */
    bool told_idle;             /* or found busy; of on_metrics alone */
    bool progress;              /* a line of progress may be drawn */
    const cli_list *queues;
} telling;

static void on_connection(bool up, const bq_error *why, void *arg)
{
    telling *t = arg;
    atomic_bool *was_down = &t->was_down;
    atomic_store(&t->idle_since_ms, up ? monotonic_ms() : 0);
    if (!up) {
        atomic_store(was_down, true);
        out_warn("not connected%s%s", why && why->text[0] ? ": " : "", why ? why->text : "");
    } else if (atomic_exchange(was_down, false)) {
        out_note("connected again");
    } else {
        out_info("connected");
    }
}

/* Somebody at a terminal who misspelt the queue would wait for ever without a word. */
static void tell_idle(telling *t, const bq_metrics *m)
{
    bq_buf names = {0};
    long long since = atomic_load(&t->idle_since_ms);
    if (t->told_idle || !since || monotonic_ms() - since < IDLE_TOLD_MS)
        return;
    t->told_idle = true;
    if (m->handled + m->retried + m->dead_lettered + m->dropped + m->released + m->in_flight > 0)
        return;
    for (size_t i = 0; i < t->queues->count; i++)
        buf_printf(&names, "%s%.80s", i ? ", " : "", t->queues->items[i]);
    out_note("waiting for messages on %s; Ctrl-C stops", names.ptr ? names.ptr : "");
    bq_buf_clear(&names);
}

static void on_metrics(const bq_metrics *m, void *arg)
{
    telling *t = arg;
    tell_idle(t, m);
    if (t->progress && out_progress_due())
        out_progress("%llu handled, %llu retried, %llu dead-lettered, %llu in flight", (unsigned long long)m->handled,
                     (unsigned long long)m->retried, (unsigned long long)m->dead_lettered,
                     (unsigned long long)m->in_flight);
}

/* ---- options of the consumer ----------------------------------------------------------------------------------------- */

typedef struct work {
    work_values *v;
    message_format format;
    bq_consumer_options consumer;
    bq_route *routes;
    exec_handler *handlers; /* of the routes */
    exec_handler any;
    char **urns; /* allocated */
    mux *coprocesses;
    telling telling;
} work;

static int add_routes(const cli_verb *verb, work *w)
{
    const cli_list *list = &w->v->handles;
    w->routes = calloc(list->count + 1, sizeof(*w->routes));
    w->handlers = calloc(list->count + 1, sizeof(*w->handlers));
    w->urns = calloc(list->count + 1, sizeof(*w->urns));
    if (!w->routes || !w->handlers || !w->urns)
        return CLI_TEMPORARY;
    for (size_t i = 0; i < list->count; i++) {
        const char *item = list->items[i], *equals = strchr(item, '=');
        bq_str urn = {item, equals ? (size_t)(equals - item) : 0};
        if (bq_str_blank(urn) || !equals[1])
            return args_usage_error(verb, "--handle: '%s' is not URN=CMD", item);
        w->urns[i] = strndup(urn.ptr, urn.len);
        if (!w->urns[i])
            return CLI_TEMPORARY;
        for (size_t j = 0; j < i; j++)
            if (strcmp(w->urns[i], w->urns[j]) == 0)
                return args_usage_error(verb, "--handle: %s stands twice", w->urns[i]);
        w->handlers[i] = (exec_handler){.command = equals + 1, .timeout_ms = w->v->handler_timeout_ms};
        w->routes[i] = (bq_route){w->urns[i], work_exec, &w->handlers[i]};
    }
    w->consumer.routes = w->routes;
    w->consumer.route_count = list->count;
    return CLI_DONE;
}

static int add_handlers(const cli_verb *verb, work *w)
{
    work_values *v = w->v;
    w->format = v->format < 0 ? FORMAT_BODY : (message_format)v->format;
    if (v->exec) {
        w->any = (exec_handler){.command = v->exec, .timeout_ms = v->handler_timeout_ms};
        w->consumer.any = work_exec;
        w->consumer.any_arg = &w->any;
    } else if (v->print) {
        w->consumer.any = work_print;
        w->consumer.any_arg = &w->format;
    } else if (v->handle_stdio) {
        mux_options how = {v->handle_stdio, (size_t)v->coprocesses, v->handler_timeout_ms};
        w->coprocesses = mux_new(&how);
        if (!w->coprocesses)
            return CLI_TEMPORARY;
        w->consumer.any = mux_handle;
        w->consumer.any_arg = w->coprocesses;
    }
    return add_routes(verb, w);
}

static int check_usage(const cli_verb *verb, const work_values *v)
{
    int catch_all = (v->exec != NULL) + (v->handle_stdio != NULL) + v->print;
    if (v->queues.count == 0)
        return args_usage_error(verb, "which queue? -q QUEUE");
    for (size_t i = 0; i < v->queues.count; i++) {
        if (!*v->queues.items[i])
            return args_usage_error(verb, "-q: the queue's name is empty");
        for (size_t j = 0; j < i; j++)
            if (strcmp(v->queues.items[i], v->queues.items[j]) == 0)
                return args_usage_error(verb, "-q: '%s' stands twice", v->queues.items[i]);
    }
    if (catch_all > 1)
        return args_usage_error(verb, "only one of --exec, --handle-stdio and --print");
    if (catch_all == 0 && v->handles.count == 0)
        return args_usage_error(verb, "what is done with the messages? --exec, --handle, --handle-stdio or --print");
    if ((v->exec && !*v->exec) || (v->handle_stdio && !*v->handle_stdio))
        return args_usage_error(verb, "the handler's command is empty");
    if (v->format >= 0 && !v->print)
        return args_usage_error(verb, "--format belongs to --print");
    if (v->dlq.given && v->no_dlq)
        return args_usage_error(verb, "--dlq or --no-dlq, not both");
    return CLI_DONE;
}

/* Where failing messages would by default be lost or stop a partition, the user says what is wanted. */
static int check_dead_lettering(const cli_verb *verb, const work_values *v, const char *url)
{
    const bq_transport_ops *ops = target_transport(url);
    const bq_binding *binding = ops ? bq_binding_find(bq_str_of(ops->name)) : NULL;
    if (!binding || v->dlq.given || v->no_dlq || !target_loses_failures(binding, url))
        return CLI_DONE;
    return args_usage_error(verb, "on this broker failing messages would be dropped: say --dlq or --no-dlq");
}

static void describe(work *w)
{
    const work_values *v = w->v;
    bq_consumer_options *c = &w->consumer;
    c->queues = v->queues.items;
    c->queue_count = v->queues.count;
    c->unknown = (bq_unknown_urn)(v->unknown + 1); /* -1: unset */
    c->unknown_delay_ms = v->unknown_delay_ms;
    c->concurrency = (int)v->concurrency;
    c->prefetch = v->prefetch > 0 ? (int)v->prefetch : 0;
    c->max_attempts = (int)v->max_attempts;
    c->dead_lettering = v->no_dlq ? BQ_DEAD_LETTER_OFF : v->dlq.given ? BQ_DEAD_LETTER_ON : BQ_DEAD_LETTER_DEFAULT;
    c->dead_letter_queue = v->dlq.value;
    c->retry_base_ms = v->retry_backoff_ms;
    c->retry_multiplier = v->retry_multiplier;
    c->retry_max_ms = v->retry_max_ms;
    c->retry_jitter = (bq_jitter)v->retry_jitter;
    c->shutdown_timeout_ms = v->shutdown_timeout_ms == 0 ? -1 : v->shutdown_timeout_ms;
    c->settle_timeout_ms = v->common.timeout_ms;
    c->max_messages = v->max > 0 ? (uint64_t)v->max : 0;
    c->drain = !v->drain.given ? 0 : v->drain.value ? 2 : 1;
    c->lang = v->lang;
    c->on_error = on_error;
    c->on_connection = on_connection;
    /* A handler's own output on the terminal and a line of progress would mix. */
    w->telling.progress = !isatty(STDOUT_FILENO);
    w->telling.queues = &v->queues;
    c->on_metrics = isatty(STDERR_FILENO) ? on_metrics : NULL;
    c->metrics_interval_ms = 500;
    c->arg = &w->telling;
    c->logger = out_logger();
}

/* ---- the run --------------------------------------------------------------------------------------------------------- */

static void add_count(bq_buf *text, const char *name, uint64_t count)
{
    buf_printf(text, "%s%s %llu", text->len ? ", " : "", name, (unsigned long long)count);
}

static void summarize(const bq_metrics *m)
{
    bq_buf text = {0};
    add_count(&text, "handled", m->handled);
    add_count(&text, "retried", m->retried);
    add_count(&text, "dead-lettered", m->dead_lettered);
    add_count(&text, "dropped", m->dropped);
    add_count(&text, "poison", m->poison);
    add_count(&text, "gated", m->gated);
    add_count(&text, "leases lost", m->leases_lost);
    if (m->released)
        add_count(&text, "given back", m->released);
    if (m->worker_lost)
        add_count(&text, "workers lost", m->worker_lost);
    if (m->settle_failed)
        add_count(&text, "settlements failed", m->settle_failed);
    out_note("%s", text.ptr ? text.ptr : "");
    bq_buf_clear(&text);
}

static bool any_broken(const work *w)
{
    bool broken = atomic_load(&w->any.broken);
    for (size_t i = 0; i < w->v->handles.count; i++)
        broken = broken || atomic_load(&w->handlers[i].broken);
    return broken;
}

static bool any_unstarted(const work *w)
{
    bool unstarted = atomic_load(&w->any.unstarted);
    for (size_t i = 0; i < w->v->handles.count; i++)
        unstarted = unstarted || atomic_load(&w->handlers[i].unstarted);
    return unstarted;
}

static int finish(work *w, bq_consumer *consumer, bq_status ended, const bq_error *err, int status)
{
    bq_metrics metrics;
    bq_consumer_metrics(consumer, &metrics);
    out_progress_end();
    if (ended != BQ_OK && !status)
        status = out_failure("work", err);
    if (!status && any_broken(w))
        status = CLI_CONFIG;
    /* What was given back is one of --max, and no drain has seen to it since. */
    if (!status && w->v->max > 0 && !interrupt_count() && any_unstarted(w))
        status = CLI_TEMPORARY;
    bool counted = w->v->max > 0 || w->v->drain.given;
    if (!status && counted && !interrupt_count() && (metrics.dead_lettered > 0 || metrics.dropped > 0))
        status = CLI_PARTLY;
    summarize(&metrics);
    return status;
}

/* Waits for the broker, gently: a signal meanwhile ends the consumer, which ends the waiting. */
static int connect_first(work *w, bq_consumer *consumer)
{
    bq_error err = {.text = ""};
    bq_status status = bq_consumer_wait_connected(consumer, w->v->common.timeout_ms, &err);
    /* CLOSED: it was connected, and has ended already (an empty queue and --drain). */
    if (status == BQ_OK || status == BQ_CLOSED || atomic_load(&stop_requests) > 0)
        return CLI_DONE;
    return out_failure("work", &err);
}

static int consume(work *w, const char *url)
{
    bq_consumer *consumer = NULL;
    bq_error err = {.text = ""};
    interrupt_catch(on_signal, NULL);
    interrupt_hold(true); /* the consumer's threads are not to be interrupted */
    bq_status opened = bq_consumer_open(&consumer, url, &w->consumer, &err);
    if (opened == BQ_OK)
        publish_consumer(consumer);
    interrupt_hold(false);
    if (opened != BQ_OK)
        return out_failure("work", &err);
    target_warn_private(url, "nobody else can publish to it");
    int status = connect_first(w, consumer);
    bq_status ended = BQ_OK;
    if (status) {
        mux_abandon(w->coprocesses);
    } else {
        if (w->coprocesses)
            status = mux_run(w->coprocesses, consumer, &ended, &err);
        else
            ended = bq_consumer_wait(consumer, -1, &err);
        status = finish(w, consumer, ended, &err, status);
    }
    interrupt_hold(true);
    atomic_store(&running, NULL);
    bq_consumer_close(consumer);
    return status;
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    work w = {.v = values};
    char *url = NULL;
    (void)operands, (void)count;
    int status = check_usage(verb, w.v);
    BQ_CONSUMER_OPTIONS_INIT(&w.consumer);
    if (!status)
        status = add_handlers(verb, &w);
    if (!status)
        status = target_url(verb, &w.v->common, &url);
    if (!status)
        status = check_dead_lettering(verb, w.v, url);
    if (!status && !environment_setup())
        status = CLI_TEMPORARY;
    if (!status) {
        describe(&w);
        if (w.consumer.unknown == BQ_UNKNOWN_URN_RELEASE && w.v->unknown_delay_ms == 0)
            out_warn("--unknown release without --unknown-delay takes such a message again at once, for ever");
        if (!w.v->print || w.v->handles.count > 0)
            guard_start();
        out_detach();
        status = consume(&w, url);
        out_attach();
        guard_stop();
    }
    if (status == CLI_TEMPORARY && !url)
        out_error("out of memory");
    mux_free(w.coprocesses);
    environment_clear();
    for (size_t i = 0; w.urns && i < w.v->handles.count; i++)
        free(w.urns[i]);
    free(w.urns);
    free(w.handlers);
    free(w.routes);
    free(url);
    return status;
}

static const char *const text[] = {
    "Consumes the queues until it is stopped. --exec and --handle run CMD by 'sh -c' for each message, with its data "
    "on "
    "stdin and in the environment BQ_URN, BQ_ID, BQ_TRACE_ID, BQ_ATTEMPTS, BQ_QUEUE, BQ_LANG, BQ_CREATED_AT, BQ_REPLAY "
    "(1 "
    "or 0), BQ_ENVELOPE_FILE (a file that holds the whole body) and BQ_HEADER_NAME for each header, its name in upper "
    "case "
    "with every other byte than A-Z and 0-9 replaced by _; the header traceparent also as TRACEPARENT. A NUL in a "
    "value "
    "becomes U+FFFD, and a value of more than 64 KiB is left out. Its stdout and stderr pass through.",
    "The exit status of CMD decides: 0, done; 65, rejected, which dead-letters the message at once; any other, or a "
    "signal, failed. 126 and 127, with which the shell says that it cannot run CMD, end the run with exit status 78 as "
    "long as CMD has never succeeded: the messages are given back. 'exit status N' or 'signal N' becomes "
    "dead_letter.exception, the last line of its stderr, cut at "
    "1 "
    "KiB, dead_letter.error. Handlers run in process groups of their own: Ctrl-C stops taking messages, not the "
    "handlers. "
    "--handler-timeout ends the group with SIGTERM, and three seconds later with SIGKILL.",
    "--handle-stdio runs CMD once and gives it each message as a JSON line, up to the prefetch at a time; it answers "
    "in any "
    "order, a line for each message:",
    "  {\"n\":1,\"queue\":Q,\"urn\":URN,\"id\":ID,\"trace_id\":ID,\"attempts\":N,\n"
    "   \"replay\":false,\"headers\":{...},\"envelope\":{...}}\n"
    "  {\"n\":1,\"ok\":true}\n"
    "  {\"n\":1,\"error\":TEXT,\"exception\":NAME,\"retry_after_ms\":N,\"reject\":true}",
    "In an answer only n and one of the others must be there; result, a JSON value for brokers that keep one, may "
    "stand beside "
    "ok. The command must flush its answers, and end when its stdin ends. When it ends before, answers anything else, "
    "or "
    "takes longer than --handler-timeout for a message from the moment on that it was given, then everything it holds "
    "has "
    "failed, and it is started again, after a pause that doubles up to ten seconds.",
    "The first SIGTERM or SIGINT stops taking and waits for the handlers in flight, at most --shutdown-timeout; what "
    "is "
    "unfinished then goes back unchanged. The second gives back at once. At the start the broker is waited for up to "
    "--timeout, later for ever.",
    "In the end a summary goes to stderr: handled, retried, dead-lettered, dropped, poison, gated, leases lost. With "
    "--max or "
    "--drain the exit status is 1 if anything was dead-lettered or dropped.",
    NULL};

static const cli_example examples[] = {
    {"bq work -q orders --exec ./handle-order", "a process for each message"},
    {"bq work -q orders --handle urn:babel:orders:created=./created --unknown release", "only one kind"},
    {"bq work -q orders --handle-stdio 'python3 worker.py' --concurrency 4 --prefetch 64", "a long-lived worker"},
    {"bq work -q orders --print --format full --drain > orders.jsonl", "take everything out, keep headers and keys"},
    {NULL, NULL}};

const cli_verb cli_work = {.name = "work",
                           .operands = "",
                           .summary = "consumes queues and runs a handler for each message",
                           .text = text,
                           .options = options,
                           .examples = examples,
                           .values_size = sizeof(work_values),
                           .run = run};
