/*
 * fake_control.c - the test's side of the scripted broker: its switches, and what can be seen of it. See
 * fake_transport.h.
 */
#include "fake_internal.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fake_print_props(char *out, size_t size, const bq_prop *props, size_t count)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < count && at < size; i++) {
        const bq_prop *p = &props[i];
        int n;
        if (p->type == BQ_PROP_INT || p->type == BQ_PROP_LONG || p->type == BQ_PROP_BOOL)
            n = snprintf(out + at, size - at, "%.*s=%" PRId64 ";", (int)p->name.len, p->name.ptr, p->num);
        else
            n = snprintf(out + at, size - at, "%.*s=%.*s;", (int)p->name.len, p->name.ptr, (int)p->text.len,
                         p->text.ptr ? p->text.ptr : "");
        at += n > 0 ? (size_t)n : 0;
    }
}

/* ---- administration --------------------------------------------------------------------------------------------------------- */

static bq_status a_stats(void *t, bq_str queue, int64_t timeout_ms, bq_queue_stats *out, bq_error *err)
{
    (void)t;
    (void)timeout_ms;
    (void)err;
    int64_t now = bq_now_ms();
    *out = (bq_queue_stats){.dead = -1};
    lock();
    for (message *m = fake.first; m; m = m->next)
        if (bq_str_equal(queue, bq_str_of(m->queue))) {
            if (m->lease)
                out->in_flight++;
            else if (m->due_ms > now)
                out->delayed++;
            else
                out->ready++;
        }
    unlock();
    return BQ_OK;
}

static bq_status a_peek(void *t, bq_str queue, uint64_t after, size_t max, int64_t timeout_ms, bq_peek_fn fn, void *arg,
                        bq_error *err)
{
    (void)t;
    (void)timeout_ms;
    (void)err;
    bool go = true;
    lock();
    for (message *m = fake.first; m && go && max; m = m->next) {
        if (m->number <= after || !bq_str_equal(queue, bq_str_of(m->queue)))
            continue;
        bq_incoming in = {.body = {m->body, m->body_len},
                          .key = {m->key, m->key_len},
                          .props = m->props,
                          .prop_count = m->prop_count,
                          .native_count = m->native_count,
                          .position = m->number};
        max--;
        go = fn(&in, arg);
    }
    unlock();
    return BQ_OK;
}

static bq_status a_purge(void *t, bq_str queue, int64_t timeout_ms, int64_t *count, bq_error *err)
{
    (void)t;
    (void)timeout_ms;
    (void)err;
    lock();
    *count = 0;
    message *next;
    for (message *m = fake.first; m; m = next) {
        next = m->next;
        if (bq_str_equal(queue, bq_str_of(m->queue))) {
            fake_message_remove(m);
            ++*count;
        }
    }
    unlock();
    return BQ_OK;
}

static bq_status a_queues(void *t, int64_t timeout_ms, bq_queue_fn fn, void *arg, bq_error *err)
{
    (void)t;
    (void)timeout_ms;
    (void)err;
    lock();
    bool go = true;
    for (message *m = fake.first; m && go; m = m->next) {
        bool seen = false;
        for (message *o = fake.first; o != m; o = o->next)
            seen |= strcmp(o->queue, m->queue) == 0;
        if (!seen)
            go = fn(bq_str_of(m->queue), arg);
    }
    unlock();
    return BQ_OK;
}

const bq_admin_ops fake_admin = {.stats = a_stats, .queues = a_queues, .peek = a_peek, .purge = a_purge};

/* ---- the test's side ------------------------------------------------------------------------------------------------------------ */

void fake_clear(void)
{
    lock();
    while (fake.first)
        fake_message_remove(fake.first);
    free(fake.log);
    fake.log = NULL;
    fake.log_count = fake.log_cap = 0;
    unlock();
}

void fake_reset(void)
{
    fake_register();
    fake.last = &fake.first;
    if (fake.first)
        for (message *m = fake.first; m; m = m->next)
            fake.last = &m->next;
    fake_clear();
    lock();
    fake.number = fake.lease = 0;
    memset(fake.how, 0, sizeof fake.how);
    memset(fake.times, 0, sizeof fake.times);
    fake.lease_ms = 0;
    fake.late_ms = 50;
    fake.finish_ms = 0;
    fake.accept = -1;
    fake.start_down = fake.down = fake.block_service = fake.block_close = fake.deaf = fake.no_idle = false;
    fake.why[0] = 0;
    fake.fatal = fake.open_fails = BQ_OK;
    fake.generation = 1;
    fake.forgotten = fake.interrupts = fake.closed = fake.finished = fake.submits = fake.submit_max = 0;
    unlock();
}

unsigned fake_put_bytes(const char *queue, bq_str body, bq_str key, const bq_prop *props, size_t count,
                        int64_t native_count, uint32_t lapses)
{
    lock();
    message *m = fake_message_add(bq_str_of(queue), body, key, props, count);
    m->native_count = native_count;
    m->lapses = lapses;
    unsigned number = m->number;
    fake_wake_all();
    unlock();
    return number;
}

unsigned fake_put(const char *queue, const char *body, const bq_prop *props, size_t count)
{
    return fake_put_bytes(queue, bq_str_of(body), BQ_STR_NULL, props, count, -1, 0);
}

void fake_when(bq_op_kind kind, fake_how how, int times)
{
    lock();
    fake.how[kind] = how;
    fake.times[kind] = times;
    unlock();
}

void fake_let_go(void)
{
    lock();
    for (size_t i = 0; i < LINKS; i++)
        for (flight *f = fake.links[i] ? fake.links[i]->flights : NULL; f; f = f->next)
            if (f->held) {
                f->held = false;
                f->status = fake_carry_out(f->op);
            }
    fake_wake_all();
    unlock();
}

#define SETTER(name, type, member)                                                                                     \
    void name(type value)                                                                                              \
    {                                                                                                                  \
        lock();                                                                                                        \
        fake.member = value;                                                                                           \
        fake_wake_all();                                                                                               \
        unlock();                                                                                                      \
    }
SETTER(fake_lease, int64_t, lease_ms)
SETTER(fake_late, int64_t, late_ms)
SETTER(fake_finish, int64_t, finish_ms)
SETTER(fake_accept, int, accept)
SETTER(fake_start_down, bool, down)
SETTER(fake_block_service, bool, block_service)
SETTER(fake_block_close, bool, block_close)
SETTER(fake_ignore_interrupt, bool, deaf)
SETTER(fake_open_fails, bq_status, open_fails)
SETTER(fake_no_idle, bool, no_idle)

void fake_lapse(void)
{
    lock();
    for (message *m = fake.first; m; m = m->next)
        if (m->lease) {
            m->lease = 0;
            m->lapses++;
        }
    fake_wake_all();
    unlock();
}

void fake_down(const char *why)
{
    lock();
    fake.down = true;
    snprintf(fake.why, sizeof fake.why, "%s", why);
    fake_wake_all();
    unlock();
}

void fake_up(void)
{
    lock();
    fake.down = false;
    fake_wake_all();
    unlock();
}

void fake_revoke(void)
{
    lock();
    for (size_t i = 0; i < LINKS; i++)
        if (fake.links[i])
            fake.links[i]->revoke = true;
    fake_wake_all();
    unlock();
}

void fake_event(bq_event_kind kind)
{
    lock();
    for (size_t i = 0; i < LINKS; i++)
        if (fake.links[i])
            fake.links[i]->event = (int)kind;
    if (kind == BQ_EVENT_REVOKED)
        for (message *m = fake.first; m; m = m->next)
            m->lease = 0;
    fake_wake_all();
    unlock();
}

void fake_renew(void)
{
    lock();
    fake.generation++;
    for (message *m = fake.first; m; m = m->next)
        m->lease = 0;
    fake_wake_all();
    unlock();
}

void fake_fatal(bq_status status, const char *why)
{
    lock();
    fake.fatal = status;
    snprintf(fake.why, sizeof fake.why, "%s", why);
    fake_wake_all();
    unlock();
}

static message *nth(const char *queue, size_t index)
{
    for (message *m = fake.first; m; m = m->next)
        if (!m->lease && strcmp(m->queue, queue) == 0 && index-- == 0)
            return m;
    return NULL;
}

size_t fake_ready(const char *queue)
{
    size_t n = 0;
    lock();
    while (nth(queue, n))
        n++;
    unlock();
    return n;
}

size_t fake_out(void)
{
    size_t n = 0;
    lock();
    for (message *m = fake.first; m; m = m->next)
        n += m->lease != 0;
    unlock();
    return n;
}

const char *fake_body(const char *queue, size_t index)
{
    lock();
    message *m = nth(queue, index);
    const char *body = m && m->body ? m->body : "";
    unlock();
    return body;
}

const char *fake_props(const char *queue, size_t index)
{
    static char text[1024];
    lock();
    message *m = nth(queue, index);
    text[0] = 0;
    if (m)
        fake_print_props(text, sizeof text, m->props, m->prop_count);
    unlock();
    return text;
}

int64_t fake_delay(const char *queue, size_t index)
{
    lock();
    message *m = nth(queue, index);
    int64_t delay = m ? m->delay_ms : -1;
    unlock();
    return delay;
}

bool fake_op_at(int kind, size_t index, fake_op *out)
{
    bool found = false;
    lock();
    for (size_t i = 0; i < fake.log_count && !found; i++)
        if ((kind < 0 || (int)fake.log[i].kind == kind) && index-- == 0) {
            *out = fake.log[i];
            found = true;
        }
    unlock();
    return found;
}

size_t fake_ops(int kind)
{
    size_t n = 0;
    lock();
    for (size_t i = 0; i < fake.log_count; i++)
        n += kind < 0 || (int)fake.log[i].kind == kind;
    unlock();
    return n;
}

#define GETTER(name, member)                                                                                           \
    size_t name(void)                                                                                                  \
    {                                                                                                                  \
        lock();                                                                                                        \
        size_t n = fake.member;                                                                                        \
        unlock();                                                                                                      \
        return n;                                                                                                      \
    }
GETTER(fake_forgotten, forgotten)
GETTER(fake_interrupts, interrupts)
GETTER(fake_closed, closed)
GETTER(fake_finished, finished)
GETTER(fake_submits, submits)
GETTER(fake_soon, soon)
GETTER(fake_submit_max, submit_max)
GETTER(fake_live, live)
