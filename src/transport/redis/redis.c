/*
 * redis/redis.c - redis://, the lists of every BabelQueue SDK and Laravel's own layout (contract 7.1, 7.2), over one
 * pipelined connection and one that waits. This part is the table and the loop; see redis.h for the others.
 *
 * A reservation is a token in the server's memory, not a property of the connection: it survives a reconnect, and every
 * settlement is guarded by it on the server, so that a stale one touches nothing (LOST). Deliveries need no generation.
 *
 * Threads: a transport belongs to one thread as every driver does. `forget` of a kept delivery after `close` touches
 * only that delivery.
 */
#include "transport/redis/redis.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

#include <hiredis/hiredis.h>

#include <stdlib.h>
#include <string.h>

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* "redis+unix" and "bullmq+unix" are of the kind "+unix". */
static bool is_kind(const rd_transport *t, const char *kind)
{
    const char *scheme = t->config->url->scheme;
    size_t len = strlen(scheme), end = strlen(kind);
    return len > end && strcmp(scheme + len - end, kind) == 0;
}

static bool is_tls(const rd_transport *t)
{
    const char *scheme = t->config->url->scheme;
    return strcmp(scheme, "rediss") == 0 || strcmp(scheme, "bullmqs") == 0;
}

/* "/2" names a database; a unix socket's path is the socket's, so there it is an option. */
static bq_status read_db(rd_transport *t, bq_error *err)
{
    const char *path = t->config->url->path;
    int64_t db = 0;
    if (is_kind(t, "+unix")) {
        if (!path || !*path)
            return bq_fail(err, BQ_INVALID, "the URL names no socket: %s:///path/to/redis.sock?db=0",
                           t->config->url->scheme);
        t->db = t->options->db < 0 ? 0 : t->options->db;
        return BQ_OK;
    }
    if (t->options->db >= 0)
        return bq_fail(err, BQ_INVALID, "option db is for redis+unix; here the database is the path: %s://host/%lld",
                       t->config->url->scheme, (long long)t->options->db);
    for (const char *at = path ? path : ""; *at; at++) {
        if (*at < '0' || *at > '9' || db > 100000)
            return bq_fail(err, BQ_INVALID, "the URL's path is a database number, not \"%s\"", path);
        db = db * 10 + (*at - '0');
    }
    t->db = db;
    return BQ_OK;
}

static bq_status check_config(rd_transport *t, bq_error *err)
{
    const bq_transport_config *config = t->config;
    for (size_t i = 0; i < config->queue_count; i++)
        if (config->queues[i].len == 0)
            return bq_fail(err, BQ_INVALID, "a queue needs a name");
    if (!is_kind(t, "+unix") && config->url->host_count == 0)
        return bq_fail(err, BQ_INVALID, "the URL names no host");
    if (is_kind(t, "+sentinel") && (!t->options->master || !*t->options->master))
        return bq_fail(err, BQ_INVALID, "the URL needs the master's name: %s://host:26379/0?master=NAME",
                       config->url->scheme);
    if (t->options->adopt_ms >= 0 && t->layout == &bq_rd_laravel)
        return bq_fail(err, BQ_CONFIG, "adopt is for the list layout: Laravel's has nothing to adopt");
    return read_db(t, err);
}

static bq_status make_subs(rd_transport *t, bq_error *err)
{
    const bq_transport_config *config = t->config;
    size_t count = (config->roles & BQ_ROLE_CONSUME) ? config->queue_count : 0;
    if (count == 0)
        return BQ_OK;
    t->subs = bq_calloc(count, sizeof(*t->subs));
    t->waiter_count = t->layout->waits_for_all ? 1 : count;
    t->waiters = bq_calloc(t->waiter_count, sizeof(*t->waiters));
    if (!t->subs || !t->waiters)
        return bq_fail_nomem(err);
    for (; t->sub_count < count; t->sub_count++) {
        rd_sub *sub = &t->subs[t->sub_count];
        *sub = (rd_sub){.maybe = true, .due_ms = BQ_NEVER, .look_at = BQ_NEVER, .parked = -1};
        if (t->layout->keys(t->options, config->queues[t->sub_count], &sub->keys) != BQ_OK)
            return bq_fail_nomem(err);
    }
    for (size_t i = 0; i < t->waiter_count; i++)
        t->waiters[i] = (rd_waiter){.first = i, .count = t->layout->waits_for_all ? count : 1};
    return BQ_OK;
}

bq_status bq_rd_open(rd_transport *t, const bq_transport_config *config, const rd_layout *layout, bq_error *err)
{
    t->config = config;
    t->host = config->host;
    t->options = config->options;
    t->layout = layout;
    t->state = RD_DOWN;
    t->want = 0;
    bq_rd_args_init(&t->args);
    bq_rd_args_init(&t->hello);
    bq_status status = check_config(t, err);
    if (status == BQ_OK && is_tls(t))
        status = bq_tls_context_new(&t->tls, &t->options->tls, err);
    if (status == BQ_OK)
        status = make_subs(t, err);
    if (status != BQ_OK)
        return status;
    t->slots = bq_calloc(RD_OPS_MAX, sizeof(*t->slots));
    t->polled = bq_calloc(2 + t->waiter_count, sizeof(*t->polled));
    if (!t->slots || !t->polled)
        return bq_fail_nomem(err);
    for (size_t i = 0; i < RD_OPS_MAX; i++)
        bq_rd_slots_push(&t->free, &t->slots[i]);
    t->retry_at = t->host->now_ms();
    return BQ_OK;
}

static bool reserves(rd_transport *t)
{
    for (size_t i = 0; i < t->main.count; i++) {
        rd_kind kind = bq_rd_conn_at(&t->main, i)->kind;
        if (kind == RD_RESERVE || kind == RD_BACK)
            return true;
    }
    return false;
}

/* What was reserved and shown to nobody goes back now instead of when its lease ends. Operations that were not written
 * are dropped; those that were are answered or not. */
static void return_on_close(rd_transport *t, int64_t timeout_ms)
{
    int64_t now = t->host->now_ms(), end = bq_deadline(now, timeout_ms < 0 ? 0 : timeout_ms);
    t->closing = true;
    t->queued = (rd_slots){0};
    while (t->state == RD_UP && (t->fresh.count > 0 || reserves(t)) && now < end) {
        if (t->asked == 0) /* what is still to come stood behind what is here: it goes back first */
            bq_rd_send_back(t, now);
        struct pollfd fd;
        int64_t until = end;
        bq_error err;
        size_t count = bq_rd_conn_prepare(&t->main, &fd, &until);
        fd.revents = 0;
        if (poll(&fd, count, bq_poll_timeout(now, until)) < 0)
            fd.revents = 0;
        now = t->host->now_ms();
        if (bq_rd_conn_service(&t->main, count ? fd.revents : 0, now, &err) != BQ_OK)
            return;
        bq_rd_answers(t, now);
    }
}

void bq_rd_close(void *state, int64_t timeout_ms)
{
    rd_transport *t = state;
    rd_expect expect;
    if (t->state == RD_CLOSED)
        return;
    if (t->state == RD_UP)
        return_on_close(t, timeout_ms);
    t->state = RD_CLOSED;
    while (bq_rd_conn_pop(&t->main, &expect))
        bq_rd_deliveries_free(&expect.items);
    while (t->taken.head)
        bq_rd_delivery_let_go(t, (rd_delivery *)t->taken.head);
    bq_rd_deliveries_free(&t->fresh);
    for (size_t i = 0; t->slots && i < RD_OPS_MAX; i++)
        bq_free(t->slots[i].error);
    bq_rd_conn_clear(&t->main);
    bq_rd_conn_clear(&t->sentinel);
    for (size_t i = 0; t->waiters && i < t->waiter_count; i++)
        bq_rd_conn_clear(&t->waiters[i].conn);
    for (size_t i = 0; i < t->sub_count; i++)
        bq_rd_keys_clear(&t->subs[i].keys);
    /* The one whose keys could not be made, after a failed open. */
    bq_rd_args_clear(&t->args);
    bq_rd_args_clear(&t->hello);
    bq_tls_context_free(t->tls);
    bq_free(t->master_host);
    bq_free(t->moved_host);
    bq_free(t->subs);
    bq_free(t->waiters);
    bq_free(t->slots);
    bq_free(t->polled);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* What is decided without asking the server. */
static bool decide_here(rd_transport *t, rd_slot *slot, int64_t now_ms)
{
    const bq_op *op = slot->op;
    rd_delivery *d = rd_delivery_of(op->in);
    bq_status status = BQ_STATUS_COUNT_;
    bq_error err = {.status = BQ_OK};
    if (op->deadline_ms <= now_ms)
        status = BQ_TIMEOUT;
    else if (t->layout->fails_natively ? op->kind == BQ_OP_RETRY || op->kind == BQ_OP_DEAD_LETTER
                                       : op->kind == BQ_OP_REJECT || op->kind == BQ_OP_NATIVE_RETRY)
        status = BQ_UNSUPPORTED;
    else if ((op->kind == BQ_OP_PUBLISH || op->kind == BQ_OP_DEAD_LETTER) && op->out.queue.len == 0)
        status = BQ_INVALID;
    else if (op->kind == BQ_OP_LEAVE)
        status = BQ_OK;
    else if (op->kind != BQ_OP_PUBLISH && (!d || d->held.detached || d->held.settled))
        status = BQ_LOST;
    else if (t->layout->check)
        status = t->layout->check(op, &err) == BQ_OK ? BQ_STATUS_COUNT_ : err.status;
    if (status == BQ_STATUS_COUNT_)
        return false;
    bq_rd_slot_decide(t, slot, status, err.status == status ? &err : NULL);
    return true;
}

size_t bq_rd_submit(void *state, bq_op *const *ops, size_t count)
{
    rd_transport *t = state;
    int64_t now = t->host->now_ms();
    size_t i = 0;
    if (t->state != RD_UP && t->state != RD_BROKEN)
        return 0; /* offered again once there is a connection: its UP wakes the loop */
    for (; i < count; i++) {
        rd_slot *slot = bq_rd_slot_take(t, ops[i]);
        if (!slot)
            break;
        if (t->state == RD_BROKEN)
            bq_rd_slot_decide(t, slot, t->broken.status, &t->broken);
        else if (!decide_here(t, slot, now))
            bq_rd_slots_push(&t->queued, slot);
    }
    return i;
}

size_t bq_rd_take(void *state, bq_incoming **out, size_t max)
{
    rd_transport *t = state;
    int64_t now = t->host->now_ms();
    size_t count = 0;
    if (max == 0)
        return 0;
    while (count < max && t->fresh.head && t->taken.count < t->config->prefetch) {
        rd_delivery *d = (rd_delivery *)bq_held_pop(&t->fresh);
        if (d->held.in.lease_until_ms > 0 && d->held.in.lease_until_ms <= now) {
            bq_rd_delivery_free(d); /* it lapsed while the connection was away: others may have it */
            continue;
        }
        bq_held_add(&t->taken, &d->held);
        out[count++] = &d->held.in;
    }
    t->fresh_since = now;
    return count;
}

void bq_rd_forget(void *state, bq_incoming *in)
{
    rd_delivery *d = rd_delivery_of(in);
    if (d->held.detached)
        bq_rd_delivery_free(d); /* perhaps after close and from another thread: the transport is not touched */
    else if (bq_held_forget(&d->held))
        bq_rd_delivery_let_go(state, d);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static size_t watch_one(rd_transport *t, rd_conn *c, struct pollfd *fds, size_t used, size_t max, int64_t *due)
{
    struct pollfd fd;
    if (!rd_conn_is_open(c) || bq_rd_conn_prepare(c, &fd, due) == 0 || used == max)
        return used;
    fds[used] = fd;
    t->polled[used] = c;
    return used + 1;
}

size_t bq_rd_watch(rd_transport *t, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    int64_t now = t->host->now_ms(), due = *deadline_ms;
    size_t used = watch_one(t, &t->main, fds, 0, max, &due);
    used = watch_one(t, &t->sentinel, fds, used, max, &due);
    for (size_t i = 0; i < t->waiter_count; i++) {
        used = watch_one(t, &t->waiters[i].conn, fds, used, max, &due);
        due = sooner(due, bq_rd_conn_deadline(&t->waiters[i].conn));
    }
    t->polled_count = used;
    if (t->state == RD_DOWN)
        due = sooner(due, t->retry_at);
    due = sooner(due, sooner(bq_rd_conn_deadline(&t->main), bq_rd_conn_deadline(&t->sentinel)));
    for (const rd_slot *slot = t->queued.head; slot; slot = slot->next)
        due = sooner(due, slot->op->deadline_ms);
    if (t->blocked)
        due = sooner(due, t->blocked_until);
    *deadline_ms = sooner(due, bq_rd_send_due(t, now));
    return used;
}

size_t bq_rd_prepare(void *state, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    rd_transport *t = state;
    t->want = want;
    if (t->state == RD_CLOSED)
        return 0;
    size_t used = bq_rd_watch(t, fds, max, deadline_ms);
    if (t->done.head || (want > 0 && t->fresh.count > 0 && t->taken.count < t->config->prefetch))
        *deadline_ms = sooner(*deadline_ms, t->host->now_ms());
    return used;
}

static short revents_of(const rd_transport *t, const rd_conn *c, const struct pollfd *fds, size_t count)
{
    for (size_t i = 0; i < count && i < t->polled_count; i++)
        if (t->polled[i] == c)
            return fds[i].revents;
    return 0;
}

/* A time-out is the end of the connection: its late reply would be taken for another one's. */
static bool overdue(rd_conn *c, int64_t now_ms, bq_error *err)
{
    if (bq_rd_conn_deadline(c) > now_ms)
        return false;
    (void)bq_fail(err, BQ_UNAVAILABLE, "%s does not answer in time", bq_stream_peer(c->stream));
    return true;
}

static void service_main(rd_transport *t, short revents, int64_t now_ms)
{
    bq_error err;
    bool joining = t->state == RD_JOINING;
    bq_status status = bq_rd_conn_service(&t->main, revents, now_ms, &err);
    if (status == BQ_OK) {
        bq_rd_answers(t, now_ms);
        if (!rd_conn_is_open(&t->main) || !overdue(&t->main, now_ms, &err))
            return;
    }
    if (status == BQ_AUTH && joining)
        bq_rd_give_up(t, &err);
    else
        bq_rd_down(t, &err, now_ms);
}

static void service_sentinel(rd_transport *t, short revents, int64_t now_ms)
{
    bq_error err;
    rd_reply *reply;
    rd_expect expect;
    bq_status status = bq_rd_conn_service(&t->sentinel, revents, now_ms, &err);
    while (status == BQ_OK && rd_conn_is_open(&t->sentinel)) {
        status = bq_rd_conn_next(&t->sentinel, &reply, &err);
        if (status != BQ_OK || !reply)
            break;
        if (bq_rd_conn_pop(&t->sentinel, &expect))
            bq_rd_sentinel_answered(t, &expect, reply, now_ms);
        else
            status = bq_fail(&err, BQ_UNAVAILABLE, "it says: %.*s", BQ_FMT(bq_rd_text(reply)));
        bq_rd_reply_free(reply);
    }
    if (status != BQ_OK || (rd_conn_is_open(&t->sentinel) && overdue(&t->sentinel, now_ms, &err)))
        bq_rd_sentinel_failed(t, &err, now_ms);
}

static void service_waiter(rd_transport *t, rd_waiter *w, short revents, int64_t now_ms)
{
    bq_error err;
    if (bq_rd_conn_service(&w->conn, revents, now_ms, &err) != BQ_OK || overdue(&w->conn, now_ms, &err))
        bq_rd_waiter_drop(t, w, now_ms);
    else
        bq_rd_waiter_answers(t, w, now_ms);
}

void bq_rd_turn(rd_transport *t, const struct pollfd *fds, size_t count)
{
    int64_t now = t->host->now_ms();
    bq_error err;
    if (t->state == RD_DOWN && now >= t->retry_at)
        bq_rd_connect(t, now);
    if (rd_conn_is_open(&t->sentinel))
        service_sentinel(t, revents_of(t, &t->sentinel, fds, count), now);
    if (rd_conn_is_open(&t->main))
        service_main(t, revents_of(t, &t->main, fds, count), now);
    for (size_t i = 0; i < t->waiter_count; i++)
        if (rd_conn_is_open(&t->waiters[i].conn))
            service_waiter(t, &t->waiters[i], revents_of(t, &t->waiters[i].conn, fds, count), now);
    if (t->blocked && now >= t->blocked_until) {
        t->blocked = false;
        bq_rd_tell(t, BQ_EVENT_UNBLOCKED, NULL);
    }
    bq_rd_expire(t, now);
    bq_rd_send(t, now);
    t->polled_count = 0; /* what was polled may be gone */
    if (rd_conn_is_open(&t->main) && bq_stream_flush(t->main.stream, &err) != BQ_OK)
        bq_rd_down(t, &err, now);
    for (size_t i = 0; i < t->waiter_count; i++)
        if (rd_conn_is_open(&t->waiters[i].conn) && bq_stream_flush(t->waiters[i].conn.stream, &err) != BQ_OK)
            bq_rd_waiter_drop(t, &t->waiters[i], now);
}

void bq_rd_service(void *state, const struct pollfd *fds, size_t count)
{
    rd_transport *t = state;
    if (t->state != RD_CLOSED && t->state != RD_BROKEN)
        bq_rd_turn(t, fds, count);
}

bool bq_rd_idle(void *state, bool all)
{
    rd_transport *t = state;
    t->drains = all ? 2 : 1;
    if (t->state != RD_UP || t->taken.count > 0 || t->fresh.count > 0 || t->op_count > 0)
        return false;
    for (size_t i = 0; i < t->sub_count; i++) {
        rd_sub *sub = &t->subs[i];
        if (sub->maybe || sub->reserving || !sub->empty)
            return false;
        if (sub->others == 0 && (!all || sub->parked == 0))
            continue;
        /* What others hold may come back. What is not known yet is asked for at once. */
        if (sub->others < 0 || (all && sub->parked < 0))
            sub->look_at = 0;
        else if (sub->others > 0)
            sub->look_at = sooner(sub->look_at, bq_deadline(sub->seen_ms, RD_OTHERS_MS));
        return false;
    }
    return true;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *bq_rd_library(void)
{
    return "hiredis " TEXT(HIREDIS_MAJOR) "." TEXT(HIREDIS_MINOR) "." TEXT(HIREDIS_PATCH);
}

static const rd_layout *layout_of(const rd_options *options)
{
    return options->layout == RD_LARAVEL ? &bq_rd_laravel : &bq_rd_list;
}

static bq_status redis_open(void *state, const bq_transport_config *config, bq_error *err)
{
    return bq_rd_open(state, config, layout_of(config->options), err);
}

static const bq_binding *redis_binding(const void *options)
{
    return bq_binding_find(bq_str_of(layout_of(options)->binding));
}

static const char *const schemes[] = {"redis", "rediss", "redis+unix", "redis+sentinel", NULL};

static const bq_option table[] = {
    BQ_NETWORK_OPTION_ROWS(rd_options, net),
    BQ_TLS_OPTION_ROWS(rd_options, tls),
    {"layout", BQ_OPT_CHOICE, offsetof(rd_options, layout), "list", 0, 0, "list|laravel", 0, NULL,
     "list: BabelQueue's reliable queue; laravel: the layout of Laravel's own Redis queue"},
    {"processing_suffix", BQ_OPT_STRING, offsetof(rd_options, processing_suffix), ":processing", 0, 0, NULL, 0, NULL,
     "list: what names the key of messages being worked, behind the queue's name"},
    {"prefix", BQ_OPT_STRING, offsetof(rd_options, prefix), "queues:", 0, 0, NULL, 0, NULL,
     "laravel: what stands before the queue's name in its keys"},
    {"retry_after", BQ_OPT_DURATION, offsetof(rd_options, retry_after_ms), "90s", -1, INT64_C(31536000000), NULL, 0,
     NULL,
     "the lease, in whole seconds: how long a message may be worked before it is given to somebody else; off: "
     "for ever"},
    {"adopt", BQ_OPT_DURATION, offsetof(rd_options, adopt_ms), "off", -1, INT64_C(31536000000), NULL, 0, NULL,
     "list: messages that an old peer left being worked, without a deadline, get one after that time"},
    BQ_RD_SERVER_OPTION_ROWS("redis"),
    {.name = NULL},
};

const bq_transport_ops bq_redis_ops = {
    .size = sizeof(bq_transport_ops),
    .name = "redis",
    .schemes = schemes,
    .summary = "Redis 6.2 or newer, Valkey: lists as the other SDKs use them, or Laravel's layout",
    .url_syntax = "redis://[USER:PASSWORD@]HOST[:PORT][/DB]",
    .table = table,
    .options_size = sizeof(rd_options),
    .state_size = sizeof(rd_transport),
    .capabilities = BQ_CAP_DEAD_LETTER | BQ_CAP_RETRY | BQ_CAP_RETRY_DELAY | BQ_CAP_RELEASE | BQ_CAP_RELEASE_DELAY |
                    BQ_CAP_EXTEND | BQ_CAP_PUBLISH_DELAY | BQ_CAP_HEADERS | BQ_CAP_PEEK | BQ_CAP_LAPSES | BQ_CAP_IDLE |
                    BQ_CAP_KEEP,
    .binding = redis_binding,
    .open = redis_open,
    BQ_RD_OPS,
};
