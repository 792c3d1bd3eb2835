/*
 * redis/life.c - the connections' life: which server (Sentinel), greeting it, losing it, trying again with a pause that
 * grows and is never the same for two clients. See redis.h.
 */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "transport/redis/fault.h"

#include <stdlib.h>
#include <string.h>

void bq_rd_tell(rd_transport *t, bq_event_kind kind, const bq_error *err)
{
    if (t->host->event)
        t->host->event(t->host, &(bq_event){.kind = kind, .error = err});
}

static bool by_sentinel(const rd_transport *t)
{
    return strstr(t->config->url->scheme, "+sentinel") != NULL;
}

/* ---- loss --------------------------------------------------------------------------------------------------------- */

/* Half of the pause is certain, the other half is chance: clients that lost one server come back one by one. */
static void pause_before_retry(rd_transport *t, int64_t now_ms)
{
    const bq_network_options *net = &t->options->net;
    int64_t pause = t->pause_ms > 0 ? t->pause_ms * 2 : net->reconnect_min_ms;
    t->pause_ms = pause < net->reconnect_max_ms ? pause : net->reconnect_max_ms;
    int64_t half = t->pause_ms / 2;
    t->retry_at = bq_deadline(now_ms, half + (int64_t)(bq_random_u64() % (uint64_t)(half + 1)));
    t->state = RD_DOWN;
}

static void call_failed(rd_call *call, const bq_error *why)
{
    if (!call)
        return;
    call->done = true;
    call->status = why->status;
    call->error = *why;
}

/* What was written may have been done; what certainly did not leave was not. */
static void drop_expected(rd_transport *t, const bq_error *why)
{
    bq_error unknown, refused;
    (void)bq_fail(&unknown, BQ_UNKNOWN, "the connection was lost before the server's answer: %s", why->text);
    (void)bq_fail_flags(&refused, BQ_REFUSED, BQ_ERROR_RETRYABLE, 0, "the connection was lost, nothing was sent: %s",
                        why->text);
    rd_expect expect;
    while (bq_rd_conn_pop(&t->main, &expect)) {
        bool unsent = bq_rd_conn_unsent(&t->main, &expect);
        bq_rd_slots_decide(t, expect.slots, unsent ? BQ_REFUSED : BQ_UNKNOWN, unsent ? &refused : &unknown);
        bq_rd_deliveries_free(&expect.items);
        call_failed(expect.call, why);
    }
    rd_slot *slot;
    while ((slot = bq_rd_slots_pop(&t->queued)))
        bq_rd_slot_decide(t, slot, BQ_REFUSED, &refused);
}

static void drop_connections(rd_transport *t)
{
    bq_rd_conn_close(&t->main);
    bq_rd_conn_close(&t->sentinel);
    t->drops++;
    t->asked = 0;
    t->yields = 0;
    for (size_t i = 0; i < t->waiter_count; i++) {
        bq_rd_conn_close(&t->waiters[i].conn);
        t->waiters[i].waiting = false;
        t->waiters[i].retry_at = 0;
    }
    for (size_t i = 0; i < t->sub_count; i++) {
        t->subs[i].reserving = t->subs[i].empty = false;
        t->subs[i].maybe = true;
        t->subs[i].reserve_at = 0;
    }
}

static void forget_move(rd_transport *t)
{
    bq_free(t->moved_host);
    t->moved_host = NULL;
    t->moved_port = 0;
    t->moving = false;
    t->hold_until = 0;
    bq_rd_slots_push_front(&t->queued, t->moved.head);
    t->moved = (rd_slots){0};
}

void bq_rd_down(rd_transport *t, const bq_error *why, int64_t now_ms)
{
    bq_error cause = *why; /* perhaps a part of what is dropped */
    forget_move(t);
    drop_expected(t, &cause);
    drop_connections(t);
    t->blocked = false;
    t->next_host++;
    pause_before_retry(t, now_ms);
    bq_rd_tell(t, BQ_EVENT_DOWN, &cause);
}

void bq_rd_give_up(rd_transport *t, const bq_error *why)
{
    t->broken = *why;
    forget_move(t);
    drop_expected(t, &t->broken);
    drop_connections(t);
    t->state = RD_BROKEN;
    bq_log(&t->host->logger, BQ_LOG_ERROR, "redis: %s", t->broken.text);
    bq_rd_tell(t, BQ_EVENT_FATAL, &t->broken);
}

void bq_rd_move(rd_transport *t, int64_t now_ms)
{
    bq_error err;
    if (t->moves == 0 || now_ms - t->moves_since > RD_MOVES_MS) {
        t->moves = 0;
        t->moves_since = now_ms;
    }
    if (++t->moves > RD_MOVES_MAX) {
        (void)bq_fail(&err, BQ_CONFIG,
                      "the queues are on several nodes of a cluster: {braces} in the prefix keep all keys on one");
        bq_rd_give_up(t, &err);
        return;
    }
    t->moving = false;
    bq_rd_slots_push_front(&t->queued, t->moved.head);
    t->moved = (rd_slots){0};
    drop_connections(t);
    bq_log(&t->host->logger, BQ_LOG_DEBUG, "redis: the queues are on node %s:%d",
           t->moved_host ? t->moved_host : "(the same host)", t->moved_port);
    t->state = RD_DOWN;
    t->retry_at = now_ms;
}

/* ---- greeting ------------------------------------------------------------------------------------------------------ */

static void greet(rd_transport *t, rd_conn *c, rd_kind kind, int64_t now_ms, bq_status *status, bq_error *err)
{
    rd_expect expect = {
        .kind = kind, .sent_ms = now_ms, .deadline_ms = bq_deadline(now_ms, t->options->net.connect_timeout_ms)};
    if (*status == BQ_OK)
        *status = bq_rd_conn_send(c, &t->hello, &expect, err);
}

static void greet_auth(rd_transport *t, rd_conn *c, const char *user, const char *password, int64_t now_ms,
                       bq_status *status, bq_error *err)
{
    if (!password && !user)
        return;
    bq_rd_args_reset(&t->hello);
    rd_arg_lit(&t->hello, "AUTH");
    if (user && *user)
        bq_rd_arg(&t->hello, bq_str_of(user));
    bq_rd_arg(&t->hello, bq_str_of(password ? password : ""));
    greet(t, c, RD_HELLO_AUTH, now_ms, status, err);
}

/* All of it at once: the answers are told apart by their order. */
static bq_status greet_server(rd_transport *t, rd_conn *c, bool main, int64_t now_ms, bq_error *err)
{
    const bq_url *url = t->config->url;
    bq_status status = BQ_OK;
    greet_auth(t, c, url->user, url->password, now_ms, &status, err);
    if (t->db > 0) {
        bq_rd_args_reset(&t->hello);
        rd_arg_lit(&t->hello, "SELECT");
        bq_rd_arg_int(&t->hello, t->db);
        greet(t, c, RD_HELLO_SELECT, now_ms, &status, err);
    }
    bq_rd_args_reset(&t->hello);
    rd_arg_lit(&t->hello, "CLIENT");
    rd_arg_lit(&t->hello, "SETNAME");
    bq_rd_arg(&t->hello, bq_str_of(t->options->net.client_name ? t->options->net.client_name : "babelqueue-c"));
    greet(t, c, RD_HELLO_NAME, now_ms, &status, err);
    if (main && by_sentinel(t)) {
        bq_rd_args_reset(&t->hello);
        rd_arg_lit(&t->hello, "ROLE");
        greet(t, c, RD_HELLO_ROLE, now_ms, &status, err);
    }
    bq_rd_args_reset(&t->hello);
    rd_arg_lit(&t->hello, "PING");
    greet(t, c, RD_HELLO_PING, now_ms, &status, err);
    return status;
}

static bq_stream_config address(rd_transport *t)
{
    const bq_url *url = t->config->url;
    bq_stream_config config = {.tls = t->tls, .connect_timeout_ms = t->options->net.connect_timeout_ms};
    if (strstr(url->scheme, "+unix")) {
        config.path = url->path;
    } else if (by_sentinel(t)) {
        config.host = t->master_host;
        config.port = t->master_port;
    } else {
        const bq_url_host *host = &url->hosts[t->next_host % url->host_count];
        config.host = t->moved_host ? t->moved_host : host->name;
        config.port = t->moved_port ? t->moved_port : host->port ? host->port : 6379;
    }
    return config;
}

static void join(rd_transport *t, int64_t now_ms)
{
    bq_error err;
    bq_stream_config config = address(t);
    t->state = RD_JOINING;
    bq_status status = bq_rd_conn_open(&t->main, &config, now_ms, &err);
    if (status == BQ_OK)
        status = greet_server(t, &t->main, true, now_ms, &err);
    if (status == BQ_INVALID || status == BQ_CONFIG)
        bq_rd_give_up(t, &err);
    else if (status != BQ_OK)
        bq_rd_down(t, &err, now_ms);
}

void bq_rd_connect(rd_transport *t, int64_t now_ms)
{
    bq_error err;
    const bq_url *url = t->config->url;
    if (!by_sentinel(t)) {
        join(t, now_ms);
        return;
    }
    const bq_url_host *host = &url->hosts[t->next_host % url->host_count];
    bq_stream_config config = {.host = host->name,
                               .port = host->port ? host->port : 26379,
                               .connect_timeout_ms = t->options->net.connect_timeout_ms};
    t->state = RD_ASKING;
    bq_status status = bq_rd_conn_open(&t->sentinel, &config, now_ms, &err);
    if (status == BQ_OK)
        greet_auth(t, &t->sentinel, t->options->sentinel_user, t->options->sentinel_password, now_ms, &status, &err);
    if (status == BQ_OK) {
        bq_rd_args_reset(&t->hello);
        rd_arg_lit(&t->hello, "SENTINEL");
        rd_arg_lit(&t->hello, "get-master-addr-by-name");
        bq_rd_arg(&t->hello, bq_str_of(t->options->master));
        greet(t, &t->sentinel, RD_SENTINEL, now_ms, &status, &err);
    }
    if (status != BQ_OK)
        bq_rd_down(t, &err, now_ms);
}

/* Wrong passwords and missing rights are not mended by trying again; nor is a database that is not there. */
static bool is_hopeless(bq_str text)
{
    rd_meaning means = bq_rd_fault_meaning(text);
    return means == RD_MEANS_AUTH || means == RD_MEANS_DB || means == RD_MEANS_OLD;
}

static void announce(rd_transport *t, int64_t now_ms)
{
    t->state = RD_UP;
    t->main.ready = true;
    t->pause_ms = 0;
    t->fresh_since = now_ms;
    bq_rd_tell(t, BQ_EVENT_UP, NULL);
}

void bq_rd_greeted(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms)
{
    bq_error err;
    bq_str text = bq_rd_text(reply);
    if (reply->type == RD_ERROR) {
        if (expect->kind == RD_HELLO_NAME || (expect->kind == RD_HELLO_ROLE && is_hopeless(text)))
            return; /* a name is a courtesy; who may not ask for the role trusts the Sentinel */
        bq_status status = bq_rd_fault_error(text, "the server does not let us in", &err);
        if (status == BQ_REFUSED)
            err.status = BQ_UNAVAILABLE;
        if (is_hopeless(text))
            bq_rd_give_up(t, &err);
        else
            bq_rd_down(t, &err, now_ms);
        return;
    }
    if (expect->kind == RD_HELLO_ROLE && !bq_str_equal(bq_rd_text(bq_rd_at(reply, 0)), BQ_STR("master"))) {
        (void)bq_fail(&err, BQ_UNAVAILABLE, "%s is no master any more", bq_stream_peer(t->main.stream));
        bq_rd_down(t, &err, now_ms);
    } else if (expect->kind == RD_HELLO_PING) {
        announce(t, now_ms);
    }
}

/* ---- Sentinel ------------------------------------------------------------------------------------------------------ */

void bq_rd_sentinel_failed(rd_transport *t, const bq_error *why, int64_t now_ms)
{
    bq_error err = *why;
    bq_error_prefix(&err, "Sentinel");
    bq_rd_down(t, &err, now_ms);
    /* Only after a round of all of them is the pause worth having. */
    if (t->next_host % t->config->url->host_count != 0 && t->state == RD_DOWN)
        t->retry_at = now_ms;
}

void bq_rd_sentinel_answered(rd_transport *t, const rd_expect *expect, const rd_reply *reply, int64_t now_ms)
{
    bq_error err;
    if (reply->type == RD_ERROR) {
        (void)bq_rd_fault_error(bq_rd_text(reply), "it does not answer", &err);
        if (bq_rd_fault_meaning(bq_rd_text(reply)) == RD_MEANS_AUTH)
            bq_rd_give_up(t, &err);
        else
            bq_rd_sentinel_failed(t, &err, now_ms);
        return;
    }
    if (expect->kind != RD_SENTINEL)
        return;
    bq_str host = bq_rd_text(bq_rd_at(reply, 0)), port = bq_rd_text(bq_rd_at(reply, 1));
    if (host.len == 0 || port.len == 0) {
        (void)bq_fail(&err, BQ_UNAVAILABLE, "it does not know a master called \"%s\"", t->options->master);
        bq_rd_sentinel_failed(t, &err, now_ms);
        return;
    }
    bq_free(t->master_host);
    t->master_host = bq_strndup(host);
    t->master_port = (int)strtol(port.ptr, NULL, 10);
    bq_rd_conn_close(&t->sentinel);
    if (t->master_host) {
        bq_log(&t->host->logger, BQ_LOG_DEBUG, "redis: the master is %s:%d", t->master_host, t->master_port);
        join(t, now_ms);
    } else {
        (void)bq_fail_nomem(&err);
        bq_rd_down(t, &err, now_ms);
    }
}

/* ---- waiting connections ------------------------------------------------------------------------------------------- */

bq_status bq_rd_waiter_open(rd_transport *t, rd_waiter *w, int64_t now_ms, bq_error *err)
{
    bq_stream_config config = address(t);
    bq_status status = bq_rd_conn_open(&w->conn, &config, now_ms, err);
    return status == BQ_OK ? greet_server(t, &w->conn, false, now_ms, err) : status;
}

/* The main connection tells whether the server is there: here the queue is just looked at now and then instead. */
void bq_rd_waiter_drop(rd_transport *t, rd_waiter *w, int64_t now_ms)
{
    bq_rd_conn_close(&w->conn);
    w->waiting = false;
    w->retry_at = bq_deadline(now_ms, RD_LOOK_MS);
    for (size_t i = 0; i < w->count; i++)
        t->subs[w->first + i].look_at = bq_deadline(now_ms, RD_LOOK_MS);
}
