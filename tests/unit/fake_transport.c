/*
 * fake_transport.c - see fake_transport.h. Messages are kept in one array in order of arrival; a message that is out
 * stays in it, marked. Deliveries are blocks of their own, each message's bytes copied, so that a use after their end
 * is seen by AddressSanitizer. Plain malloc: the library's allocator is the test's to fail, not the fake's.
 */
#include "fake_internal.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

fake_broker fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int64_t fake_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void fake_pause(void)
{
    struct timespec ts = {0, 500000};
    nanosleep(&ts, NULL);
}

static void *need(void *ptr)
{
    if (!ptr)
        abort();
    return ptr;
}

static void wake(link_t *l)
{
    uint64_t one = 1;
    if (l && l->open && l->fd >= 0)
        while (write(l->fd, &one, sizeof one) < 0 && errno == EINTR)
            ;
}

void fake_wake_all(void)
{
    for (size_t i = 0; i < LINKS; i++)
        wake(fake.links[i]);
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */

static char *copy(const void *bytes, size_t len)
{
    char *out = need(malloc(len + 1));
    if (len)
        memcpy(out, bytes, len);
    out[len] = 0;
    return out;
}

/* The properties with their texts, in two blocks. */
static bq_prop *copy_props(const bq_prop *props, size_t count, char **texts)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += props[i].name.len + props[i].text.len;
    char *at = *texts = need(malloc(bytes + 1));
    bq_prop *out = need(calloc(count + 1, sizeof *out));
    for (size_t i = 0; i < count; i++) {
        out[i] = props[i];
        if (props[i].name.len)
            memcpy(at, props[i].name.ptr, props[i].name.len);
        out[i].name.ptr = at;
        at += props[i].name.len;
        if (props[i].text.len)
            memcpy(at, props[i].text.ptr, props[i].text.len);
        if (props[i].text.ptr)
            out[i].text.ptr = at;
        at += props[i].text.len;
    }
    return out;
}

static void message_free(message *m)
{
    free(m->body);
    free(m->key);
    free(m->props);
    free(m->texts);
    free(m);
}

message *fake_message_add(bq_str queue, bq_str body, bq_str key, const bq_prop *props, size_t count)
{
    message *m = need(calloc(1, sizeof *m));
    m->number = ++fake.number;
    snprintf(m->queue, sizeof m->queue, "%.*s", (int)queue.len, queue.ptr);
    m->body = body.ptr ? copy(body.ptr, body.len) : NULL;
    m->body_len = body.len;
    m->key = key.ptr ? copy(key.ptr, key.len) : NULL;
    m->key_len = key.len;
    m->props = copy_props(props, count, &m->texts);
    m->prop_count = count;
    m->native_count = -1;
    *fake.last = m;
    fake.last = &m->next;
    return m;
}

static message *message_find(unsigned number)
{
    for (message *m = fake.first; m; m = m->next)
        if (m->number == number)
            return m;
    return NULL;
}

void fake_message_remove(message *gone)
{
    message **at = &fake.first;
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    if (!*at)
        fake.last = at;
    message_free(gone);
}

/* To the end of the line, as most brokers do. */
static void message_requeue(message *m)
{
    message **at = &fake.first;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    if (!*at)
        fake.last = at;
    m->next = NULL;
    *fake.last = m;
    fake.last = &m->next;
}

static void sweep(int64_t now)
{
    for (message *m = fake.first; m; m = m->next)
        if (m->lease && m->lease_until_ms && m->lease_until_ms <= now) {
            m->lease = 0;
            m->lapses++;
        }
}

/* ---- the log ---------------------------------------------------------------------------------------------------------- */

static void put_text(char *out, size_t size, bq_str s)
{
    snprintf(out, size, "%.*s", (int)s.len, s.ptr ? s.ptr : "");
}

static size_t log_add(const bq_op *op)
{
    if (fake.log_count == fake.log_cap) {
        fake.log_cap = fake.log_cap ? fake.log_cap * 2 : 64;
        fake.log = need(realloc(fake.log, fake.log_cap * sizeof *fake.log));
    }
    fake_op *line = &fake.log[fake.log_count];
    memset(line, 0, sizeof *line);
    line->kind = op->kind;
    line->delay_ms = op->out.delay_ms;
    line->tier = op->out.tier;
    put_text(line->queue, sizeof line->queue, op->out.queue);
    put_text(line->body, sizeof line->body, op->out.body);
    put_text(line->reason, sizeof line->reason, op->reason);
    put_text(line->result, sizeof line->result, op->result);
    put_text(line->key, sizeof line->key, op->out.key);
    fake_print_props(line->props, sizeof line->props, op->out.props, op->out.prop_count);
    if (op->in)
        snprintf(line->id, sizeof line->id, "%u", ((delivery *)op->in->driver)->number);
    return fake.log_count++;
}

/* ---- deliveries --------------------------------------------------------------------------------------------------------- */

static void delivery_free(delivery *d)
{
    if (d->prev)
        d->prev->next = d->next;
    else
        fake.out = d->next;
    if (d->next)
        d->next->prev = d->prev;
    free(d->bytes);
    free(d->props);
    free(d);
    fake.live--;
}

static delivery *delivery_new(link_t *l, message *m, size_t queue, int64_t now)
{
    delivery *d = need(calloc(1, sizeof *d));
    size_t bytes = m->body_len + m->key_len + 1;
    for (size_t i = 0; i < m->prop_count; i++)
        bytes += m->props[i].name.len + m->props[i].text.len;
    char *at = d->bytes = need(malloc(bytes));
    d->props = need(calloc(m->prop_count + 1, sizeof *d->props));
#define TAKE(view, from, count)                                                                                        \
    do {                                                                                                               \
        if (count)                                                                                                     \
            memcpy(at, (from), (count));                                                                               \
        (view) = (bq_str){(from) ? at : NULL, (count)};                                                                \
        at += (count);                                                                                                 \
    } while (0)
    TAKE(d->in.body, m->body, m->body_len);
    TAKE(d->in.key, m->key, m->key_len);
    for (size_t i = 0; i < m->prop_count; i++) {
        d->props[i] = m->props[i];
        TAKE(d->props[i].name, m->props[i].name.ptr, m->props[i].name.len);
        TAKE(d->props[i].text, m->props[i].text.ptr, m->props[i].text.len);
    }
#undef TAKE
    d->in.queue = queue;
    d->in.props = d->props;
    d->in.prop_count = m->prop_count;
    d->in.native_count = m->native_count;
    d->in.lapses = m->lapses;
    d->in.generation = l->generation = fake.generation;
    d->in.position = m->number;
    d->in.driver = d;
    d->link = l;
    d->number = m->number;
    d->lease = m->lease = ++fake.lease;
    m->holder = l;
    m->lease_until_ms = d->in.lease_until_ms = fake.lease_ms ? now + fake.lease_ms : 0;
    d->next = fake.out;
    if (d->next)
        d->next->prev = d;
    fake.out = d;
    fake.live++;
    return d;
}

/* Its message, when the delivery may still settle it. */
static message *ours(const delivery *d)
{
    if (d->in.generation != fake.generation)
        return NULL;
    message *m = message_find(d->number);
    return m && m->lease == d->lease ? m : NULL;
}

/* ---- operations ----------------------------------------------------------------------------------------------------------- */

static void publish(const bq_outgoing *out, int64_t now)
{
    message *m = fake_message_add(out->queue, out->body, out->key, out->props, out->prop_count);
    m->delay_ms = out->delay_ms;
    m->due_ms = out->delay_ms > 0 ? now + out->delay_ms : 0;
    if (out->tier) { /* a retry topic, in the name's manner */
        size_t len = strlen(m->queue);
        snprintf(m->queue + len, sizeof m->queue - len, ".retry.%d", out->tier);
    }
    fake_wake_all();
}

static bq_status do_settle(bq_op *op, message *m, int64_t now)
{
    switch (op->kind) {
    case BQ_OP_ACK: fake_message_remove(m); return BQ_OK;
    case BQ_OP_RETRY:
    case BQ_OP_DEAD_LETTER:
        publish(&op->out, now);
        fake_message_remove(m);
        return BQ_OK;
    case BQ_OP_NATIVE_RETRY: m->native_count = m->native_count < 0 ? 1 : m->native_count + 1; /* fall through */
    case BQ_OP_RELEASE:
        m->lease = 0;
        m->delay_ms = op->out.delay_ms;
        m->due_ms = op->out.delay_ms > 0 ? now + op->out.delay_ms : 0;
        message_requeue(m);
        fake_wake_all();
        return BQ_OK;
    case BQ_OP_REJECT:
        snprintf(m->queue, sizeof m->queue, "rejected");
        m->lease = 0;
        return BQ_OK;
    default: return BQ_UNSUPPORTED;
    }
}

bq_status fake_carry_out(bq_op *op)
{
    int64_t now = bq_now_ms();
    if (op->kind == BQ_OP_PUBLISH) {
        publish(&op->out, now);
        return BQ_OK;
    }
    delivery *d = op->in->driver;
    message *m = ours(d);
    if (op->kind == BQ_OP_LEAVE) {
        d->settled = true;
        return BQ_OK;
    }
    if (!m) {
        op->in->lease_lost = true;
        d->settled |= op->kind != BQ_OP_EXTEND;
        return BQ_LOST;
    }
    if (op->kind == BQ_OP_EXTEND) {
        m->lease_until_ms = op->in->lease_until_ms = now + fake.lease_ms;
        return BQ_OK;
    }
    bq_status st = do_settle(op, m, now);
    d->settled = st == BQ_OK;
    return st;
}

static bq_status misbehave(bq_op *op, fake_how how)
{
    switch (how) {
    case FAKE_REFUSE:
    case FAKE_BLOCK: return BQ_REFUSED;
    case FAKE_LOST:
        ((delivery *)op->in->driver)->settled |= op->kind != BQ_OP_EXTEND;
        op->in->lease_lost = true;
        return BQ_LOST;
    case FAKE_UNKNOWN: {
        bool settles = op->kind != BQ_OP_PUBLISH && op->kind != BQ_OP_EXTEND;
        (void)fake_carry_out(op);
        if (settles)
            ((delivery *)op->in->driver)->settled =
                false; /* it is still held, as after any other status than OK and LOST */
        return BQ_UNKNOWN;
    }
    default: return fake_carry_out(op);
    }
}

static fake_how how_now(bq_op_kind kind)
{
    if (fake.times[kind] == 0)
        return FAKE_OK;
    if (fake.times[kind] > 0)
        fake.times[kind]--;
    return fake.how[kind];
}

static void block(link_t *l)
{
    while (!l->interrupted)
        pthread_cond_wait(&l->unblock, &fake.lock);
    l->interrupted = false;
}

static size_t t_submit(void *t, bq_op *const *ops, size_t count)
{
    link_t *l = t;
    lock();
    fake.submits++;
    if (count > fake.submit_max)
        fake.submit_max = count;
    size_t n = fake.accept >= 0 && (size_t)fake.accept < count ? (size_t)fake.accept : count;
    if (!l->up)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        flight *f = need(calloc(1, sizeof *f));
        fake_how how = how_now(ops[i]->kind);
        f->op = ops[i];
        f->line = log_add(ops[i]);
        f->held = how == FAKE_HOLD;
        f->never = how == FAKE_NEVER;
        f->at_ms = how == FAKE_LATE ? fake_now_ms() + fake.late_ms : 0;
        if (how == FAKE_BLOCK)
            block(l);
        f->status = f->held || f->never ? BQ_OK : misbehave(ops[i], how);
        flight **at = &l->flights;
        while (*at)
            at = &(*at)->next;
        *at = f;
    }
    unlock();
    return n;
}

static bool is_due(const flight *f, int64_t now)
{
    return !f->held && !f->never && f->at_ms <= now;
}

static size_t t_reap(void *t, bq_completion *out, size_t max)
{
    link_t *l = t;
    size_t n = 0;
    int64_t now = fake_now_ms();
    lock();
    flight **at = &l->flights;
    while (*at && n < max) {
        flight *f = *at;
        if (!is_due(f, now)) {
            at = &f->next;
            continue;
        }
        out[n].cookie = f->op->cookie;
        out[n].op = f->op;
        out[n].status = f->status;
        if (f->status)
            (void)bq_fail(&out[n].error, f->status, "the fake says %s", bq_status_name(f->status));
        fake.log[f->line].done = true;
        fake.log[f->line].status = f->status;
        n++;
        *at = f->next;
        delivery *d = f->op->in ? f->op->in->driver : NULL;
        bool settles = f->op->kind != BQ_OP_PUBLISH && f->op->kind != BQ_OP_EXTEND;
        if (d && settles && d->settled && !d->in.keep)
            delivery_free(d);
        free(f);
    }
    unlock();
    return n;
}

/* ---- the loop --------------------------------------------------------------------------------------------------------------- */

static bq_status t_open(void *t, const bq_transport_config *config, bq_error *err)
{
    link_t *l = t;
    lock();
    l->config = config;
    l->roles = config->roles;
    l->open = true;
    l->event = -1;
    l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->generation = fake.generation;
    pthread_cond_init(&l->unblock, NULL);
    for (size_t i = 0; i < LINKS; i++)
        if (!fake.links[i]) {
            fake.links[i] = l;
            break;
        }
    bq_status st = fake.open_fails;
    unlock();
    return st ? bq_fail(err, st, "the fake does not open") : BQ_OK;
}

static void t_finish(void *t, int64_t deadline_ms)
{
    link_t *l = t;
    (void)deadline_ms;
    lock();
    l->finish_at = fake_now_ms() + fake.finish_ms;
    unlock();
}

static bool t_finished(void *t)
{
    link_t *l = t;
    return l->finish_at && l->finish_at <= fake_now_ms();
}

static void t_close(void *t, int64_t timeout_ms)
{
    link_t *l = t;
    (void)timeout_ms;
    lock();
    fake.finished += t_finished(l);
    if (fake.block_close)
        block(l);
    for (size_t i = 0; i < LINKS; i++)
        if (fake.links[i] == l)
            fake.links[i] = NULL;
    delivery *next;
    for (delivery *d = fake.out; d; d = next) {
        next = d->next;
        if (d->link != l)
            continue;
        if (!d->in.keep)
            delivery_free(d);
    }
    /* The broker gives back what was not settled, forgotten or not; leases run out by themselves. */
    for (message *m = fake.first; m; m = m->next)
        if (m->lease && m->holder == l && !fake.lease_ms)
            m->lease = 0;
    while (l->flights) {
        flight *f = l->flights;
        l->flights = f->next;
        free(f);
    }
    close(l->fd);
    pthread_cond_destroy(&l->unblock);
    l->open = false;
    fake.closed++;
    fake_wake_all();
    unlock();
}

static size_t t_prepare(void *t, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    link_t *l = t;
    int64_t now = fake_now_ms(), due = INT64_MAX;
    lock();
    fake.soon = l->config->host->soon;
    bool changed = fake.fatal ? !l->fatal_told : l->up == fake.down || !l->told_up;
    if (changed || l->revoke || l->event >= 0)
        due = now;
    if (l->finish_at)
        due = l->finish_at < due ? l->finish_at : due;
    for (flight *f = l->flights; f; f = f->next)
        if (!f->held && !f->never && f->at_ms < due)
            due = f->at_ms;
    if (want && l->up)
        for (message *m = fake.first; m; m = m->next) {
            bool mine = false;
            for (size_t i = 0; i < l->config->queue_count; i++)
                mine |= bq_str_equal(l->config->queues[i], bq_str_of(m->queue));
            int64_t at = m->lease ? m->lease_until_ms : m->due_ms;
            if (mine && (!m->lease || at) && at < due)
                due = at;
        }
    unlock();
    if (due < *deadline_ms)
        *deadline_ms = due < now ? now : due;
    if (max == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    return 1;
}

static void tell(link_t *l, bq_event_kind kind, bq_incoming *in, bq_status status)
{
    bq_error err;
    char why[128];
    snprintf(why, sizeof why, "%s", fake.why);
    unlock();
    (void)bq_fail(&err, status, "%s", why);
    l->config->host->event(l->config->host, &(bq_event){.kind = kind, .in = in, .error = status ? &err : NULL});
    lock();
}

static void go_down(link_t *l)
{
    for (flight *f = l->flights; f; f = f->next) {
        bool settles = f->op->kind != BQ_OP_PUBLISH;
        if (!is_due(f, fake_now_ms())) {
            f->status = settles ? BQ_LOST : BQ_UNKNOWN;
            if (settles && f->op->kind != BQ_OP_EXTEND)
                ((delivery *)f->op->in->driver)->settled = true;
        }
        f->held = f->never = false;
        f->at_ms = 0;
    }
    l->up = false;
    tell(l, BQ_EVENT_DOWN, NULL, BQ_UNAVAILABLE);
}

static void take_back(link_t *l)
{
    l->revoke = false;
    for (;;) {
        delivery *d = fake.out;
        while (d && (d->link != l || d->in.lease_lost))
            d = d->next;
        if (!d)
            return;
        message *m = ours(d);
        if (m)
            m->lease = 0;
        d->in.lease_lost = true;
        tell(l, BQ_EVENT_REVOKED, &d->in, BQ_OK);
    }
}

static void t_service(void *t, const struct pollfd *fds, size_t count)
{
    link_t *l = t;
    uint64_t n;
    if (count && fds[0].revents)
        (void)!read(l->fd, &n, sizeof n);
    lock();
    if (fake.block_service)
        block(l);
    sweep(bq_now_ms());
    if (fake.fatal && !l->fatal_told) {
        l->fatal_told = true;
        l->up = false;
        tell(l, BQ_EVENT_FATAL, NULL, fake.fatal);
    } else if (fake.fatal) {
        l->up = false;
    } else if (l->event >= 0) {
        bq_event event = {.kind = (bq_event_kind)l->event, .generation = fake.generation};
        l->event = -1;
        unlock();
        l->config->host->event(l->config->host, &event);
        lock();
    } else if (l->revoke) {
        take_back(l);
    } else if (!l->up && !fake.down) {
        l->up = l->told_up = true;
        tell(l, BQ_EVENT_UP, NULL, BQ_OK);
    } else if (fake.down && (l->up || !l->told_up)) {
        l->told_up = true;
        go_down(l);
    }
    unlock();
}

static size_t t_take(void *t, bq_incoming **out, size_t max)
{
    link_t *l = t;
    size_t n = 0, idle = 0;
    int64_t now = bq_now_ms();
    lock();
    sweep(now);
    size_t queues = l->config->queue_count;
    while (l->up && n < max && queues && idle < queues) {
        size_t q = l->next_queue++ % queues;
        message *m = fake.first;
        while (m && (m->lease || m->due_ms > now || !bq_str_equal(l->config->queues[q], bq_str_of(m->queue))))
            m = m->next;
        idle = m ? 0 : idle + 1;
        if (m)
            out[n++] = &delivery_new(l, m, q, now)->in;
    }
    unlock();
    return n;
}

static void t_forget(void *t, bq_incoming *in)
{
    (void)t;
    lock();
    delivery *d = in->driver;
    fake.forgotten++;
    delivery_free(d);
    unlock();
}

static void t_interrupt(void *t)
{
    link_t *l = t;
    lock();
    fake.interrupts++;
    if (!fake.deaf) {
        l->interrupted = true;
        pthread_cond_broadcast(&l->unblock);
    }
    unlock();
}

static bool t_idle(void *t, bool all)
{
    link_t *l = t;
    bool idle = l->up;
    int64_t now = bq_now_ms();
    lock();
    idle &= !fake.no_idle;
    for (message *m = fake.first; m; m = m->next)
        for (size_t i = 0; i < l->config->queue_count; i++)
            if (bq_str_equal(l->config->queues[i], bq_str_of(m->queue)) && !m->lease && (all || m->due_ms <= now))
                idle = false;
    for (delivery *d = fake.out; d; d = d->next)
        idle &= d->link != l || d->settled;
    unlock();
    return idle;
}

/* ---- the tables --------------------------------------------------------------------------------------------------------------- */

typedef struct options {
    const char *binding;
    int64_t tiers;
    int64_t timeout_ms;
} options;

static const bq_option OPTIONS[] = {
    {"binding", BQ_OPT_STRING, offsetof(options, binding), "memory", 0, 0, NULL, 0, NULL, "row of the binding table"},
    {"tiers", BQ_OPT_INT, offsetof(options, tiers), "0", 0, 9, NULL, 0, NULL, "retry topics"},
    {"timeout", BQ_OPT_DURATION, offsetof(options, timeout_ms), "5s", 1, 86400000, NULL, 0, NULL, "of an operation"},
    {NULL, 0, 0, NULL, 0, 0, NULL, 0, NULL, NULL}};

static const bq_binding *t_binding(const void *o)
{
    return bq_binding_find(bq_str_of(((const options *)o)->binding));
}

static int t_tiers(const void *o)
{
    return (int)((const options *)o)->tiers;
}

#define EVERYTHING                                                                                                     \
    (BQ_CAP_DEAD_LETTER | BQ_CAP_RETRY | BQ_CAP_RETRY_DELAY | BQ_CAP_RELEASE | BQ_CAP_RELEASE_DELAY | BQ_CAP_EXTEND |  \
     BQ_CAP_REJECT | BQ_CAP_NATIVE_RETRY | BQ_CAP_PUBLISH_DELAY | BQ_CAP_HEADERS | BQ_CAP_KEY | BQ_CAP_PEEK |          \
     BQ_CAP_LAPSES | BQ_CAP_IDLE | BQ_CAP_KEEP)

#define TABLE(title, list, caps, administration, begin_end, end_seen)                                                  \
    {                                                                                                                  \
        .size = sizeof(bq_transport_ops), .name = title, .schemes = list, .summary = "a scripted broker",              \
        .url_syntax = title ":NAME", .table = OPTIONS, .options_size = sizeof(options), .state_size = sizeof(link_t),  \
        .capabilities = caps, .binding = t_binding, .open = t_open, .close = t_close, .prepare = t_prepare,            \
        .service = t_service, .take = t_take, .submit = t_submit, .reap = t_reap, .forget = t_forget,                  \
        .interrupt = t_interrupt, .idle = t_idle, .admin = administration, .tiers = t_tiers, .finish = begin_end,      \
        .finished = end_seen                                                                                           \
    }

static const char *const FULL[] = {"fake", NULL};
static const char *const BARE[] = {"fakebare", NULL};
static const char *const FIXED[] = {"fakefixed", NULL};
static const char *const NATIVE[] = {"fakenative", NULL};
static const bq_transport_ops TABLES[] = {
    TABLE("fake", FULL, EVERYTHING, &fake_admin, NULL, NULL),
    /* Publishes and acknowledges, and nothing else. */
    TABLE("fakebare", BARE, BQ_CAP_HEADERS | BQ_CAP_KEY, NULL, NULL, NULL),
    /* Everything, but the driver frees a delivery with its settlement. */
    TABLE("fakefixed", FIXED, EVERYTHING & ~BQ_CAP_KEEP & ~BQ_CAP_IDLE & ~BQ_CAP_PEEK, &fake_admin, NULL, NULL),
    /* As Service Bus and Artemis: the broker redelivers and counts, without any delay. */
    TABLE("fakenative", NATIVE,
          BQ_CAP_NATIVE_RETRY | BQ_CAP_RELEASE | BQ_CAP_REJECT | BQ_CAP_EXTEND | BQ_CAP_HEADERS | BQ_CAP_PUBLISH_DELAY,
          NULL, t_finish, t_finished),
};

void fake_register(void)
{
    static bool done;
    bq_error err;
    for (size_t i = 0; !done && i < sizeof TABLES / sizeof *TABLES; i++)
        if (bq_transport_register(&TABLES[i], &err)) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
    done = true;
}
