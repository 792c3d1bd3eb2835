/*
 * publish_lines.c - `bq publish --lines`: a window of messages in flight, whose outcomes are told in the order of the
 * lines. The main thread reads, parses and prints; the publisher's thread marks slots of the window as done and wakes
 * the main thread when it sleeps. Neither stdin nor stdout is ever touched by the publisher's thread.
 *
 * The first SIGINT or SIGTERM ends the reading: what is in flight is confirmed and told, then the process ends by the
 * signal.
 */
#include "interrupt.h"
#include "out.h"
#include "publish.h"
#include "reader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Less than the publisher's own limit, so that submitting does not wait. */
#define WINDOW 4096

typedef struct slot {
    struct pipeline *pipeline;
    uint64_t line;
    bq_str queue; /* of the line, when it is not -q's; allocated */
    bool done;
    bool bad; /* told already: nothing was submitted */
    bq_status status;
    char id[BQ_ID_SIZE];
    char *error; /* allocated */
} slot;

typedef struct pipeline {
    const publish_values *v;
    bq_publisher *publisher;
    const bq_message_spec *defaults;
    line_parser parser;
    line_reader reader;
    slot *slots; /* WINDOW of them: head..tail are in use */
    uint64_t head, tail;
    uint64_t published, failed;
    bool reading;
    int io_error;
    int wake_fd;
    pthread_mutex_t lock; /* of done, status, id, error and asleep */
    bool asleep;
} pipeline;

static slot *slot_at(pipeline *p, uint64_t index)
{
    return &p->slots[index % WINDOW];
}

/* From the publisher's thread. */
static void on_published(bq_status status, const char *id, const bq_error *err, void *arg)
{
    slot *s = arg;
    pipeline *p = s->pipeline;
    pthread_mutex_lock(&p->lock);
    s->done = true;
    s->status = status;
    if (id) {
        size_t len = strnlen(id, sizeof(s->id) - 1);
        memcpy(s->id, id, len);
        s->id[len] = '\0';
    }
    if (status != BQ_OK)
        s->error = strdup(err && err->text[0] ? err->text : bq_status_text(status));
    bool wake = p->asleep;
    p->asleep = false;
    pthread_mutex_unlock(&p->lock);
    uint64_t one = 1;
    if (wake && write(p->wake_fd, &one, sizeof(one)) < 0)
        return; /* the counter is full: it is readable already */
}

/* Tells the outcomes that are known, in order. */
static void tell(pipeline *p)
{
    while (p->head < p->tail) {
        slot *s = slot_at(p, p->head);
        pthread_mutex_lock(&p->lock);
        bool done = s->done;
        pthread_mutex_unlock(&p->lock);
        if (!done)
            return;
        if (s->bad || s->status != BQ_OK)
            p->failed++;
        else
            p->published++;
        if (!s->bad && s->status != BQ_OK)
            out_error("line %llu: %s", (unsigned long long)s->line, s->error ? s->error : bq_status_text(s->status));
        else if (!s->bad)
            publish_print_id(p->v, s->id, s->queue.ptr ? s->queue : p->defaults->queue);
        free(s->error);
        free((char *)s->queue.ptr);
        p->head++;
    }
}

static void bad_line(slot *s, const char *why)
{
    s->bad = s->done = true;
    out_error("line %llu: %s", (unsigned long long)s->line, why);
}

static void submit(pipeline *p, bq_str line)
{
    slot *s = slot_at(p, p->tail++);
    bq_message_spec spec = *p->defaults;
    bq_error err;
    line_mode mode = p->v->raw ? LINE_RAW : p->v->urn ? LINE_DATA : LINE_OBJECT;
    *s = (slot){.pipeline = p, .line = p->reader.number};
    if (!line_parse(&p->parser, mode, line, &spec)) {
        bad_line(s, p->parser.why);
        return;
    }
    if (!spec.queue.len) {
        bad_line(s, "no queue: give -q, or \"queue\" in the line");
        return;
    }
    if (spec.queue.ptr != p->defaults->queue.ptr)
        s->queue = (bq_str){strndup(spec.queue.ptr, spec.queue.len), spec.queue.len};
    if (bq_publish_async(p->publisher, &spec, on_published, s, &err) != BQ_OK)
        bad_line(s, err.text[0] ? err.text : bq_status_text(err.status));
}

/* Submits the whole lines that are there, while the window has room. True when there may be more. */
static bool submit_lines(pipeline *p)
{
    bq_str line;
    while (p->reading && p->tail - p->head < WINDOW) {
        if (!reader_next(&p->reader, &line))
            return false;
        if (!bq_str_blank(line))
            submit(p, line);
        if (p->tail % 256 == 0)
            tell(p);
    }
    return p->reading;
}

/* Sleeps until there is input (when the window has room), an outcome, or a signal. */
static void wait_for_something(pipeline *p, bool want_input)
{
    struct pollfd fds[3] = {{p->wake_fd, POLLIN, 0},
                            {p->reading ? interrupt_fd() : -1, POLLIN, 0}, /* once it has ended the reading */
                            {want_input ? p->reader.fd : -1, POLLIN, 0}};
    pthread_mutex_lock(&p->lock);
    bool ready = p->head < p->tail && slot_at(p, p->head)->done;
    p->asleep = !ready;
    pthread_mutex_unlock(&p->lock);
    if (poll(fds, 3, ready ? 0 : -1) > 0 && fds[0].revents) {
        uint64_t count;
        ssize_t n = read(p->wake_fd, &count, sizeof(count));
        (void)n;
    }
    if (!want_input || !fds[2].revents)
        return;
    reader_state state = reader_fill(&p->reader);
    if (state == READER_FAILED) {
        p->io_error = errno;
        p->reading = false;
    }
}

static void progress(const pipeline *p)
{
    if (out_progress_due())
        out_progress("%llu published, %llu failed", (unsigned long long)p->published, (unsigned long long)p->failed);
}

static void run(pipeline *p)
{
    while (p->reading || p->head < p->tail) {
        bool more = submit_lines(p);
        tell(p);
        if (p->reading && p->reader.eof && reader_rest(&p->reader) == 0)
            p->reading = false;
        progress(p);
        bool room = p->tail - p->head < WINDOW;
        /* What is known is shown before somebody may have to wait for long. */
        if (interrupt_count() || !(more && room ? out_ok() : out_flush()))
            p->reading = false;
        if (p->reading && more && room)
            continue;
        if (p->reading || p->head < p->tail)
            wait_for_something(p, p->reading && !p->reader.eof && p->tail - p->head < WINDOW);
    }
}

int publish_lines(const publish_values *v, bq_publisher *publisher, const bq_message_spec *spec)
{
    pipeline p = {.v = v, .publisher = publisher, .defaults = spec, .reading = true};
    int status = CLI_TEMPORARY;
    pthread_mutex_init(&p.lock, NULL);
    line_parser_init(&p.parser);
    reader_init(&p.reader, STDIN_FILENO, 0);
    p.slots = calloc(WINDOW, sizeof(*p.slots));
    p.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!p.slots || p.wake_fd < 0) {
        out_error("publish: %s", strerror(errno));
        goto out;
    }
    run(&p);
    out_progress_end();
    if (p.io_error)
        out_error("standard input: %s", strerror(p.io_error));
    if (p.failed || p.io_error || v->common.verbose)
        out_note("published %llu, failed %llu", (unsigned long long)p.published, (unsigned long long)p.failed);
    status = p.io_error ? CLI_IO : p.failed ? CLI_PARTLY : CLI_DONE;
    if (interrupt_count()) {
        bq_publisher_close(publisher, v->common.timeout_ms);
        out_end(CLI_DONE);
        interrupt_die();
    }
out:
    if (p.wake_fd >= 0)
        close(p.wake_fd);
    reader_clear(&p.reader);
    line_parser_clear(&p.parser);
    free(p.slots);
    pthread_mutex_destroy(&p.lock);
    return status;
}
