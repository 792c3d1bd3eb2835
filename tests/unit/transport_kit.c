/*
 * transport_kit.c - the harness of the kit: a client that drives one transport as the runtime does, the stripped twin,
 * and the run of all cases. The cases themselves are in transport_kit_settle.c,
 * transport_kit_leases.c and transport_kit_loop.c.
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "base/mem.h"
#include "unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kit_assert_status(bq_status status, bq_status expected, const char *file, int line)
{
    if (status == expected)
        return;
    print_error("%s:%d: %s, expected %s\n", file, line, bq_status_name(status), bq_status_name(expected));
    _fail(file, line);
}

/* ---- the client --------------------------------------------------------------------------------------------------- */

static void on_event(const bq_transport_host *host, const bq_event *event)
{
    kit_client *c = host->arg;
    switch (event->kind) {
    case BQ_EVENT_UP: c->up++; break;
    case BQ_EVENT_DOWN: c->down++; break;
    case BQ_EVENT_FATAL: c->fatal++; break;
    case BQ_EVENT_BLOCKED: c->blocked++; break;
    case BQ_EVENT_UNBLOCKED: c->unblocked++; break;
    default: break;
    }
    if (event->error)
        c->error = *event->error;
}

static void on_log(bq_log_level level, const char *line, void *arg)
{
    kit_client *c = arg;
    size_t len = strlen(c->log);
    (void)level;
    if (len + 1 < sizeof(c->log))
        (void)snprintf(c->log + len, sizeof(c->log) - len, "%s\n", line);
}

static void set_queues(kit_client *c, const char *names)
{
    c->config.queues = c->queues;
    for (const char *at = names; at && *at && c->config.queue_count < KIT_QUEUES;) {
        size_t len = strcspn(at, " ");
        c->queues[c->config.queue_count++] = (bq_str){at, len};
        at += len + strspn(at + len, " ");
    }
}

bq_status kit_try_open(kit_client *c, const char *url, unsigned roles, uint32_t prefetch, const char *queues,
                       bq_error *err)
{
    *c = (kit_client){.want = prefetch ? prefetch : 16};
    bq_status status = bq_target_parse(&c->target, url, err);
    if (status != BQ_OK)
        return status;
    c->host =
        (bq_transport_host){.event = on_event, .now_ms = bq_now_ms, .logger = {on_log, c, BQ_LOG_DEBUG}, .arg = c};
    c->config = (bq_transport_config){.url = &c->target.url,
                                      .options = c->target.options,
                                      .roles = roles,
                                      .prefetch = prefetch ? prefetch : 16,
                                      .max_attempts = 3,
                                      .host = &c->host};
    set_queues(c, queues);
    c->state = bq_calloc(1, c->target.ops->state_size);
    if (!c->state) {
        bq_target_clear(&c->target);
        return BQ_NOMEM;
    }
    c->open = true;
    status = c->target.ops->open(c->state, &c->config, err);
    if (status != BQ_OK)
        kit_close(c);
    return status;
}

void kit_open(kit_client *c, const char *url, unsigned roles, uint32_t prefetch, const char *queues)
{
    bq_error err;
    bq_status status = kit_try_open(c, url, roles, prefetch, queues, &err);
    if (status != BQ_OK)
        fail_msg("cannot open %s: %s: %s", url, bq_status_name(status), err.text);
    kit_await_up(c);
}

void kit_close(kit_client *c)
{
    if (!c->open)
        return;
    c->target.ops->close(c->state, 5000);
    bq_free(c->state);
    bq_target_clear(&c->target);
    c->open = false;
}

static void reap(kit_client *c)
{
    bq_completion done[64];
    size_t count;
    while ((count = c->target.ops->reap(c->state, done, 64)) > 0) {
        for (size_t i = 0; i < count; i++) {
            /* Every operation here is the first member of a kit_op. */
            kit_op *op = (kit_op *)(void *)done[i].op;
            assert_true(done[i].cookie == op->op.cookie);
            op->finished++;
            op->status = done[i].status;
            if (done[i].status != BQ_OK) {
                op->error = done[i].error;
                assert_int_equal(op->error.status, done[i].status);
                assert_true(op->error.text[0] != '\0');
            }
            c->finished++;
        }
    }
}

static void turn(kit_client *c, size_t want, int max_ms)
{
    struct pollfd fds[64];
    int64_t now = bq_now_ms(), deadline = now + max_ms;
    size_t count = c->target.ops->prepare(c->state, want, fds, 64, &deadline);
    assert_true(count <= 64);
    assert_true(deadline <= now + max_ms); /* lowered, never raised */
    for (size_t i = 0; i < count; i++)
        fds[i].revents = 0;
    int timeout = bq_poll_timeout(bq_now_ms(), deadline);
    if (poll(fds, (nfds_t)count, timeout < 0 ? 0 : timeout) < 0)
        for (size_t i = 0; i < count; i++)
            fds[i].revents = 0;
    c->target.ops->service(c->state, fds, count);
    c->turns++;
    reap(c);
}

void kit_turn(kit_client *c, int max_ms)
{
    turn(c, c->want, max_ms);
}

void kit_await_up(kit_client *c)
{
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    while (c->up == 0) {
        if (c->fatal > 0 || bq_now_ms() >= end)
            fail_msg("not connected: %s", c->error.text);
        kit_turn(c, 50);
    }
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t last_cookie; /* tests use clients from several threads */

kit_op kit_make(bq_op_kind kind, bq_incoming *in)
{
    return (kit_op){.op = {.kind = kind,
                           .cookie = ++last_cookie * 2654435761u,
                           .deadline_ms = bq_now_ms() + KIT_PATIENCE_MS,
                           .in = in},
                    .status = BQ_STATUS_COUNT_};
}

kit_op kit_make_publish(const char *queue, bq_str body)
{
    kit_op op = kit_make(BQ_OP_PUBLISH, NULL);
    op.op.out.queue = bq_str_of(queue);
    op.op.out.body = body;
    return op;
}

void kit_do(kit_client *c, kit_op *ops, size_t count)
{
    bq_op **list = calloc(count, sizeof(*list));
    assert_non_null(list);
    for (size_t i = 0; i < count; i++)
        list[i] = &ops[i].op;
    int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
    size_t before = c->finished, offered = 0;
    while (c->finished - before < count) {
        if (offered < count) {
            size_t taken = c->target.ops->submit(c->state, list + offered, count - offered);
            assert_true(taken <= count - offered);
            offered += taken;
        }
        turn(c, 0, 50); /* nothing is taken meanwhile, so nothing is wanted */
        if (bq_now_ms() >= end)
            fail_msg("%zu of %zu operations were not completed in time", count - (c->finished - before), count);
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ops[i].finished, 1);
    free(list);
}

bq_status kit_do_one(kit_client *c, kit_op *op)
{
    kit_do(c, op, 1);
    return op->status;
}

bq_status kit_publish_later(kit_client *c, const char *queue, const char *body, int64_t delay_ms)
{
    kit_op op = kit_make_publish(queue, bq_str_of(body));
    op.op.out.delay_ms = delay_ms;
    return kit_do_one(c, &op);
}

bq_status kit_publish(kit_client *c, const char *queue, const char *body)
{
    return kit_publish_later(c, queue, body, 0);
}

bq_status kit_settle(kit_client *c, bq_op_kind kind, bq_incoming *in)
{
    kit_op op = kit_make(kind, in);
    return kit_do_one(c, &op);
}

/* ---- deliveries --------------------------------------------------------------------------------------------------- */

bq_incoming *kit_take(kit_client *c, int64_t timeout_ms)
{
    int64_t end = bq_now_ms() + timeout_ms;
    for (;;) {
        bq_incoming *in = NULL;
        if (c->target.ops->take(c->state, &in, 1) == 1) {
            assert_non_null(in);
            return in;
        }
        int64_t left = end - bq_now_ms();
        if (left <= 0)
            return NULL;
        kit_turn(c, left < 50 ? (int)left : 50);
    }
}

bq_incoming *kit_expect(kit_client *c, const char *body)
{
    bq_incoming *in = kit_take(c, KIT_PATIENCE_MS);
    if (!in)
        fail_msg("no message came, expected %s", body ? body : "one");
    if (body && !bq_str_equal(in->body, bq_str_of(body)))
        fail_msg("got \"%.*s\", expected \"%s\"", (int)(in->body.len < 80 ? in->body.len : 80), in->body.ptr, body);
    return in;
}

void kit_expect_none(kit_client *c, int64_t ms)
{
    bq_incoming *in = kit_take(c, ms);
    if (in)
        fail_msg("got \"%.*s\", expected nothing", (int)(in->body.len < 80 ? in->body.len : 80), in->body.ptr);
}

/* ---- shared by the cases ------------------------------------------------------------------------------------------- */

static unsigned lacking; /* of the suite that runs */

bool kit_can(const kit_client *c, unsigned capability)
{
    return (c->target.ops->capabilities & ~lacking & capability) == capability;
}

bq_status kit_replace(kit_client *c, bq_op_kind kind, bq_incoming *in, const char *queue, const char *body,
                      int64_t delay_ms)
{
    static const unsigned needed[] = {
        [BQ_OP_RELEASE] = BQ_CAP_RELEASE, [BQ_OP_RETRY] = BQ_CAP_RETRY, [BQ_OP_DEAD_LETTER] = BQ_CAP_DEAD_LETTER};
    kit_op op = kit_make(kind, in);
    op.op.out = (bq_outgoing){.queue = bq_str_of(queue),
                              .body = body ? bq_str_of(body) : in->body,
                              .delay_ms = kit_can(c, BQ_CAP_RETRY_DELAY | BQ_CAP_RELEASE_DELAY) ? delay_ms : 0};
    if (kit_can(c, needed[kind]))
        return kit_do_one(c, &op);
    op.op.kind = BQ_OP_PUBLISH;
    op.op.in = in;
    kit_assert_ok(kit_do_one(c, &op));
    return kit_settle(c, BQ_OP_ACK, in);
}

bq_queue_stats kit_stats(kit_client *c, const char *queue)
{
    bq_queue_stats stats;
    bq_error err;
    kit_assert_ok(c->target.ops->admin->stats(c->state, bq_str_of(queue), 10000, &stats, &err));
    return stats;
}

/* ---- the stripped twin -------------------------------------------------------------------------------------------- */

#define TWINS 8
#define REFUSED_MAX 4096

/* A twin's state: what it refused, then the state of the driver behind it. */
typedef struct twin_state {
    const bq_transport_ops *ops;
    bq_op *refused[REFUSED_MAX];
    size_t count;
    _Alignas(max_align_t) char inner[];
} twin_state;

typedef struct twin {
    bq_transport_ops ops;
    const bq_transport_ops *behind;
    const char *schemes[2];
    bq_admin_ops admin;
} twin;

static twin twins[TWINS];
static size_t twin_count;

static bq_status twin_open(void *t, const bq_transport_config *config, bq_error *err)
{
    twin_state *s = t;
    for (size_t i = 0; i < twin_count; i++)
        if (strcmp(twins[i].schemes[0], config->url->scheme) == 0)
            s->ops = twins[i].behind;
    assert_non_null(s->ops);
    return s->ops->open(s->inner, config, err);
}

static void twin_finish(void *t, int64_t deadline_ms)
{
    twin_state *s = t;
    s->ops->finish(s->inner, deadline_ms);
}

static bool twin_finished(void *t)
{
    twin_state *s = t;
    return s->ops->finished(s->inner);
}

static void twin_close(void *t, int64_t timeout_ms)
{
    twin_state *s = t;
    if (s->ops)
        s->ops->close(s->inner, timeout_ms);
}

static size_t twin_prepare(void *t, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    twin_state *s = t;
    if (s->count > 0)
        *deadline_ms = INT64_MIN;
    return s->ops->prepare(s->inner, want, fds, max, deadline_ms);
}

static void twin_service(void *t, const struct pollfd *fds, size_t count)
{
    twin_state *s = t;
    s->ops->service(s->inner, fds, count);
}

static size_t twin_take(void *t, bq_incoming **out, size_t max)
{
    twin_state *s = t;
    size_t count = s->ops->take(s->inner, out, max);
    for (size_t i = 0; i < count; i++)
        out[i]->lapses = 0;
    return count;
}

/* What the twin's capabilities do not claim. */
static bool stripped(const bq_op *op)
{
    bool carries = op->out.prop_count > 0 || op->out.key.ptr != NULL || op->out.delay_ms > 0;
    switch (op->kind) {
    case BQ_OP_PUBLISH: return carries;
    case BQ_OP_ACK:
    case BQ_OP_LEAVE: return false;
    default: return true;
    }
}

static size_t twin_submit(void *t, bq_op *const *ops, size_t count)
{
    twin_state *s = t;
    size_t done = 0;
    while (done < count) {
        if (stripped(ops[done])) {
            if (s->count == REFUSED_MAX)
                break;
            s->refused[s->count++] = ops[done++];
            continue;
        }
        size_t run = 1;
        while (done + run < count && !stripped(ops[done + run]))
            run++;
        size_t taken = s->ops->submit(s->inner, ops + done, run);
        done += taken;
        if (taken < run)
            break;
    }
    return done;
}

static size_t twin_reap(void *t, bq_completion *out, size_t max)
{
    twin_state *s = t;
    size_t count = 0;
    while (count < max && s->count > 0) {
        bq_op *op = s->refused[--s->count];
        out[count] = (bq_completion){.cookie = op->cookie, .op = op, .status = BQ_UNSUPPORTED};
        out[count].error.status = BQ_UNSUPPORTED;
        (void)snprintf(out[count].error.text, sizeof(out[count].error.text), "stripped: the twin does not do that");
        count++;
    }
    return count + s->ops->reap(s->inner, out + count, max - count);
}

static void twin_forget(void *t, bq_incoming *in)
{
    twin_state *s = t;
    s->ops->forget(s->inner, in);
}

static void twin_interrupt(void *t)
{
    twin_state *s = t;
    s->ops->interrupt(s->inner);
}

static bq_status twin_stats(void *t, bq_str queue, int64_t timeout_ms, bq_queue_stats *out, bq_error *err)
{
    twin_state *s = t;
    return s->ops->admin->stats(s->inner, queue, timeout_ms, out, err);
}

static bq_status twin_queues(void *t, int64_t timeout_ms, bq_queue_fn fn, void *arg, bq_error *err)
{
    twin_state *s = t;
    return s->ops->admin->queues(s->inner, timeout_ms, fn, arg, err);
}

static bq_status twin_purge(void *t, bq_str queue, int64_t timeout_ms, int64_t *count, bq_error *err)
{
    twin_state *s = t;
    return s->ops->admin->purge(s->inner, queue, timeout_ms, count, err);
}

const bq_transport_ops *kit_twin(const bq_transport_ops *ops, const char *scheme)
{
    assert_true(twin_count < TWINS);
    twin *t = &twins[twin_count++];
    t->behind = ops;
    t->schemes[0] = scheme;
    t->ops = *ops;
    t->ops.name = scheme;
    t->ops.schemes = t->schemes;
    t->ops.state_size = sizeof(twin_state) + ops->state_size;
    t->ops.capabilities &= ~(unsigned)KIT_OPTIONAL;
    t->ops.open = twin_open;
    t->ops.finish = ops->finish ? twin_finish : NULL;
    t->ops.finished = ops->finished ? twin_finished : NULL;
    t->ops.close = twin_close;
    t->ops.prepare = twin_prepare;
    t->ops.service = twin_service;
    t->ops.take = twin_take;
    t->ops.submit = twin_submit;
    t->ops.reap = twin_reap;
    t->ops.forget = twin_forget;
    t->ops.interrupt = ops->interrupt ? twin_interrupt : NULL;
    t->ops.idle = NULL;
    if (ops->admin) {
        t->admin = (bq_admin_ops){.stats = ops->admin->stats ? twin_stats : NULL,
                                  .queues = ops->admin->queues ? twin_queues : NULL,
                                  .purge = ops->admin->purge ? twin_purge : NULL};
        t->ops.admin = &t->admin;
    }
    bq_error err;
    if (bq_transport_register(&t->ops, &err) != BQ_OK)
        fail_msg("the twin %s cannot be registered: %s", scheme, err.text);
    return &t->ops;
}

/* ---- the run ------------------------------------------------------------------------------------------------------ */

const char *kit_place(const kit_suite *suite, int64_t lease_ms)
{
    static char url[2048];
    char options[128] = "";
    if (lease_ms > 0) {
        if (lease_ms < suite->broker->lease_min_ms)
            lease_ms = suite->broker->lease_min_ms;
        (void)snprintf(options, sizeof(options), "%s=%lldms", suite->broker->lease_option, (long long)lease_ms);
    }
    const char *own = suite->broker->place(options);
    if (!suite->scheme)
        return own;
    (void)snprintf(url, sizeof(url), "%s%s", suite->scheme, strchr(own, ':'));
    return url;
}

typedef struct bound_case {
    const kit_suite *suite;
    const kit_case *kit;
} bound_case;

static void run_case(void **state)
{
    const bound_case *bound = *state;
    bound->kit->run(bound->suite);
}

static int after_case(void **state)
{
    const bound_case *bound = *state;
    if (bound->suite->broker->done)
        bound->suite->broker->done();
    return 0;
}

static bool applies(const kit_suite *suite, const kit_case *kit)
{
    return (kit->needs & ~suite->capabilities) == 0 && (kit->traits & ~suite->broker->traits) == 0 &&
           (!kit->leases || suite->broker->lease_option);
}

static int run_suite(const kit_suite *suite, const char *name)
{
    struct CMUnitTest tests[128];
    bound_case bound[128];
    size_t count = 0;
    static const kit_case *const lists[] = {kit_settle_cases, kit_lease_cases, kit_loop_cases};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const kit_case *kit = lists[i]; kit->name; kit++) {
            assert_true(count < 128);
            if (!applies(suite, kit))
                continue;
            bound[count] = (bound_case){suite, kit};
            tests[count] = (struct CMUnitTest){kit->name, run_case, NULL, after_case, &bound[count]};
            count++;
        }
    }
    assert_true(count > 0);
    lacking = suite->broker->lacks;
    return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

int kit_run(const kit_broker *broker, const char *name)
{
    kit_suite suite = {broker, broker->ops->capabilities & ~broker->lacks, NULL};
    return run_suite(&suite, name);
}

int kit_run_stripped(const kit_broker *broker, const char *name, const char *scheme)
{
    char title[64];
    const bq_transport_ops *ops = kit_twin(broker->ops, scheme);
    kit_suite suite = {broker, ops->capabilities & ~broker->lacks, scheme};
    (void)snprintf(title, sizeof(title), "%s (stripped)", name);
    return run_suite(&suite, title);
}
