/*
 * worker_test.h - what the tests of the consumer share: bodies, a handler that does as it is told, and a record of what
 * on_error, on_metrics, on_connection and the log were told. Include after bq_test.h.
 */
#ifndef TESTS_WORKER_TEST_H
#define TESTS_WORKER_TEST_H

#include "../fake_transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ID "7d5c1a3e-0000-4000-8000-000000000001"

/* An envelope as a peer would write it. */
static inline const char *body_of(const char *urn, int attempts)
{
    static _Thread_local char text[8][1024];
    static _Thread_local int turn;
    char *out = text[turn = (turn + 1) % 8];
    snprintf(out, sizeof text[0],
             "{\"job\":\"%s\",\"trace_id\":\"trace-1\",\"data\":{\"n\":1.0},\"meta\":{\"id\":\"" ID
             "\",\"queue\":\"q\","
             "\"lang\":\"python\",\"schema_version\":1,\"created_at\":1700000000000},\"attempts\":%d}",
             urn, attempts);
    return out;
}

typedef struct reported {
    bq_trouble trouble;
    bq_settled settled;
    bq_status settlement;
    int attempts;
    bool enveloped;
    char queue[64], route[128], body[1024], exception[128], error[512];
    size_t ops_done; /* operations that the fake had completed by then */
} reported;

typedef struct worker {
    bq_consumer *consumer;
    bq_consumer_options o;
    bq_route routes[1];
    const char *queues[4];

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* what the handler does */
    bq_outcome outcome;
    const char *exception, *error, *result;
    int64_t retry_after_ms; /* -1: says nothing */
    bool gate_closed;       /* waits until it is opened, or until it is cancelled and `obeys` */
    bool obeys;
    /* what it saw */
    int calls, running, max_running, finished;
    bq_delivery *deferred[64];
    int deferred_count;
    char seen[16][1024];
    char last_queue[64], last_urn[128], last_id[64], last_trace[64], last_data[256];
    int last_attempts;
    bool last_replay;
    int last_lost, saw_cancel;
    /* what the callbacks were told */
    reported reports[64];
    int report_count;
    int ups, downs, metrics_calls;
    bq_metrics metrics;
    char why[256];
    char log[16384];
} worker;

static inline void w_text(char *out, size_t size, bq_str s)
{
    snprintf(out, size, "%.*s", (int)s.len, s.ptr ? s.ptr : "");
}

#define W_TEXT(field, view) w_text((field), sizeof(field), (view))

static inline bq_outcome w_handle(bq_delivery *d, void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    if (w->calls < 16)
        W_TEXT(w->seen[w->calls], bq_delivery_body(d));
    w->calls++;
    w->running++;
    if (w->running > w->max_running)
        w->max_running = w->running;
    W_TEXT(w->last_queue, bq_delivery_queue(d));
    W_TEXT(w->last_urn, bq_delivery_urn(d));
    W_TEXT(w->last_id, bq_delivery_id(d));
    W_TEXT(w->last_trace, bq_delivery_trace_id(d));
    W_TEXT(w->last_data, bq_delivery_data(d));
    w->last_attempts = bq_delivery_attempts(d);
    w->last_replay = bq_delivery_is_replay(d);
    pthread_cond_broadcast(&w->changed);
    while (w->gate_closed) {
        w->last_lost = bq_delivery_lease_lost(d);
        if (bq_delivery_cancelled(d)) {
            w->saw_cancel = true;
            if (w->obeys)
                break;
        }
        pthread_mutex_unlock(&w->lock);
        fake_pause();
        pthread_mutex_lock(&w->lock);
    }
    /* A message must stay readable until the handler returns. */
    char again[1024];
    W_TEXT(again, bq_delivery_body(d));
    if (w->calls == 1 && strcmp(again, w->seen[0]) != 0)
        snprintf(w->why, sizeof w->why, "the body changed under the handler");
    if (w->exception || w->error)
        bq_delivery_set_error(d, bq_str_of(w->exception), bq_str_of(w->error));
    if (w->retry_after_ms >= 0)
        bq_delivery_set_retry_after(d, w->retry_after_ms);
    if (w->result)
        bq_delivery_set_result(d, bq_str_of(w->result));
    bq_outcome outcome = w->outcome;
    if (outcome == BQ_DEFERRED && w->deferred_count < 64)
        w->deferred[w->deferred_count++] = d;
    w->running--;
    w->finished++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return outcome;
}

static inline void w_on_error(const bq_failure *f, void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    if (w->report_count < 64) {
        reported *r = &w->reports[w->report_count];
        r->trouble = f->trouble;
        r->settled = f->settled;
        r->settlement = f->settlement ? f->settlement->status : BQ_OK;
        r->attempts = f->attempts;
        r->enveloped = f->envelope != NULL;
        W_TEXT(r->queue, f->queue);
        W_TEXT(r->route, f->route);
        W_TEXT(r->body, f->body);
        W_TEXT(r->exception, f->exception);
        W_TEXT(r->error, f->error);
        r->ops_done = 0;
        fake_op op;
        for (size_t i = 0; fake_op_at(-1, i, &op); i++)
            r->ops_done += op.done;
        if (f->envelope && !bq_envelope_has(f->envelope, BQ_FIELD_URN) && !(f->envelope->seen & BQ_SEEN_NULL_ROOT))
            snprintf(w->why, sizeof w->why, "the reported envelope cannot be read");
    }
    w->report_count++;
    pthread_mutex_unlock(&w->lock);
}

static inline void w_on_metrics(const bq_metrics *m, void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    w->metrics = *m;
    w->metrics_calls++;
    pthread_mutex_unlock(&w->lock);
}

static inline void w_on_connection(bool up, const bq_error *why, void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    if (up)
        w->ups++;
    else {
        w->downs++;
        snprintf(w->why, sizeof w->why, "%.200s", why->text);
    }
    pthread_mutex_unlock(&w->lock);
}

static inline void w_log(bq_log_level level, const char *line, void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    size_t at = strlen(w->log);
    snprintf(w->log + at, sizeof w->log - at, "%d %s\n", (int)level, line);
    pthread_mutex_unlock(&w->lock);
}

/* A worker of queue q with a handler for urn:a that is done at once. */
static inline void w_init(worker *w)
{
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->outcome = BQ_DONE;
    w->retry_after_ms = -1;
    w->obeys = true;
    w->queues[0] = "q";
    w->routes[0] = (bq_route){"urn:a", w_handle, w};
    BQ_CONSUMER_OPTIONS_INIT(&w->o);
    w->o.queues = w->queues;
    w->o.queue_count = 1;
    w->o.routes = w->routes;
    w->o.route_count = 1;
    w->o.on_error = w_on_error;
    w->o.shutdown_timeout_ms = 3000;
    w->o.on_connection = w_on_connection;
    w->o.arg = w;
    w->o.logger = (bq_logger){w_log, w, BQ_LOG_DEBUG};
}

static inline void w_open(worker *w, const char *url)
{
    bq_error err = {0};
    if (bq_consumer_open(&w->consumer, url, &w->o, &err))
        fail_msg("open: %s", err.text);
}

static inline void w_close(worker *w)
{
    bq_consumer_close(w->consumer);
    w->consumer = NULL;
}

/* Reads a member under the lock. */
static inline int w_int(worker *w, const int *member)
{
    pthread_mutex_lock(&w->lock);
    int n = *member;
    pthread_mutex_unlock(&w->lock);
    return n;
}
#define W(w, member) w_int((w), &(w)->member)

static inline void w_gate(worker *w, bool closed)
{
    pthread_mutex_lock(&w->lock);
    w->gate_closed = closed;
    pthread_mutex_unlock(&w->lock);
}

static inline bool w_logged(worker *w, const char *part)
{
    pthread_mutex_lock(&w->lock);
    bool found = strstr(w->log, part) != NULL;
    pthread_mutex_unlock(&w->lock);
    return found;
}

/* Nothing strange was seen. */
static inline bool w_calm(worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool calm = !w->why[0];
    pthread_mutex_unlock(&w->lock);
    return calm;
}

static inline bq_metrics w_metrics(worker *w)
{
    bq_metrics m;
    bq_consumer_metrics(w->consumer, &m);
    return m;
}

/* ---- a worker per test ---- */

static size_t live_before;

static inline int w_setup(void **state)
{
    static worker w;
    live_before = fake_live();
    fake_reset();
    w_init(&w);
    *state = &w;
    return 0;
}

static inline int w_teardown(void **state)
{
    worker *w = *state;
    w_gate(w, false);
    if (w->consumer)
        w_close(w);
    size_t live = fake_live();
    fake_clear();
    if (w->why[0] && strstr(w->why, "the "))
        fprintf(stderr, "%s\n", w->why);
    return live > live_before ? -1 : 0; /* a delivery that nobody freed */
}

/* Waits until the consumer has nothing in its hands. */
#define W_AWAIT_SETTLED(w, n) FAKE_AWAIT((w_metrics(w).taken >= (uint64_t)(n)) && w_metrics(w).in_flight == 0)

#endif
