/* stream.c - the bytes of a stream: reading into one queue, writing out of the other, plain or through TLS. */
#include "net/stream.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "net/stream_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_MAX_DEFAULT ((size_t)1024 * 1024)
#define WRITE_MAX_DEFAULT ((size_t)16 * 1024 * 1024)
#define READ_CHUNK ((size_t)16 * 1024)
/* Of one service, so that one busy connection does not keep the loop from the others. */
#define READ_BUDGET ((size_t)256 * 1024)
/* From here on it is cheaper to hand the caller's bytes to the system than to copy them first. */
#define DIRECT_MIN ((size_t)16 * 1024)
#define PARTS_MAX 16

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bq_status check_config(const bq_stream_config *config, bq_error *err)
{
    if (!config->path == !config->host)
        return bq_fail(err, BQ_INVALID, "stream: it needs either a host or a path");
    if (config->host && (!*config->host || config->port < 1 || config->port > 65535))
        return bq_fail(err, BQ_INVALID, "stream: it needs a host and a port from 1 to 65535");
    size_t max = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    if (config->path && (!*config->path || strlen(config->path) > max))
        return bq_fail(err, BQ_INVALID, "stream: the path of a unix socket has 1 to %zu bytes", max);
    return BQ_OK;
}

static bool name_target(bq_stream *s, const bq_stream_config *config)
{
    int n;
    if (config->path) {
        s->unix_address.sun_family = AF_UNIX;
        memcpy(s->unix_address.sun_path, config->path, strlen(config->path) + 1);
        n = snprintf(s->peer, sizeof s->peer, "%s", config->path);
    } else {
        s->host = bq_strndup(bq_str_of(config->host));
        if (!s->host)
            return false;
        s->port = config->port;
        n = snprintf(s->peer, sizeof s->peer, strchr(s->host, ':') ? "[%s]:%d" : "%s:%d", s->host, s->port);
    }
    s->peer_name_len = n < 0 ? 0 : (size_t)n < sizeof s->peer ? (size_t)n : sizeof s->peer - 1;
    return true;
}

bq_status bq_stream_open(bq_stream **out, const bq_stream_config *config, bq_error *err)
{
    *out = NULL;
    bq_status status = check_config(config, err);
    if (status != BQ_OK)
        return status;
    bq_stream *s = bq_calloc(1, sizeof *s);
    if (!s)
        return bq_fail_nomem(err);
    s->fd = -1;
    s->read_max = config->read_max ? config->read_max : READ_MAX_DEFAULT;
    s->write_max = config->write_max ? config->write_max : WRITE_MAX_DEFAULT;
    s->opened_ms = bq_now_ms();
    s->deadline_ms = bq_deadline(s->opened_ms, config->connect_timeout_ms);
    if (config->tls)
        s->tls_context = bq_tls_context_ref(config->tls);
    status = name_target(s, config) ? bq_stream_connect_start(s, err) : bq_fail_nomem(err);
    if (status != BQ_OK) {
        bq_stream_close(s);
        return status;
    }
    *out = s;
    return BQ_OK;
}

void bq_stream_close(bq_stream *s)
{
    if (!s)
        return;
    /* The farewell is tried once: a peer that does not read has no claim on our time. */
    if (s->tls && s->state == BQ_STREAM_OPEN && !s->finished && s->output.len == 0)
        (void)bq_tls_finish(s->tls);
    bq_tls_free(s->tls);
    bq_tls_context_free(s->tls_context);
    if (s->fd >= 0)
        close(s->fd);
    bq_resolve_free(s->resolve);
    bq_fifo_clear(&s->input);
    bq_fifo_clear(&s->output);
    bq_free(s->host);
    bq_free(s);
}

bq_status bq_stream_fail(bq_stream *s, const bq_error *err)
{
    if (err != &s->failure)
        s->failure = *err;
    s->state = BQ_STREAM_FAILED;
    s->more_input = false;
    return s->failure.status;
}

static bq_status lost(bq_stream *s, int errnum)
{
    bq_error err;
    (void)bq_fail_errno(&err, BQ_UNAVAILABLE, errnum, "%s", s->peer);
    return bq_stream_fail(s, &err);
}

/* For a fault that is described already. */
static bq_status lost_to(bq_stream *s, bq_error *err)
{
    bq_error_prefix(err, "%s", s->peer);
    return bq_stream_fail(s, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef enum progress { MOVED, STALLED, BROKEN } progress;

static progress read_plain(bq_stream *s, char *to, size_t size, size_t *count)
{
    ssize_t n;
    do
        n = recv(s->fd, to, size, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        *count = (size_t)n;
        return MOVED;
    }
    if (n == 0)
        s->input_ended = true;
    else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        (void)lost(s, errno);
        return BROKEN;
    }
    return STALLED;
}

static progress read_tls(bq_stream *s, char *to, size_t size, size_t *count)
{
    bq_error err;
    switch (bq_tls_read(s->tls, to, size, count, &err)) {
    case BQ_TLS_DONE: return MOVED;
    case BQ_TLS_EOF: s->input_ended = true; return STALLED;
    case BQ_TLS_WANT_READ: return STALLED;
    case BQ_TLS_WANT_WRITE: s->read_wants_write = true; return STALLED;
    case BQ_TLS_FAILED: break;
    }
    (void)lost_to(s, &err);
    return BROKEN;
}

/* What one read may add: a chunk at least grows with what is there, and never passes the ceiling. */
static size_t read_room(const bq_stream *s)
{
    return s->input.len < s->read_max ? s->read_max - s->input.len : 0;
}

static bq_status read_input(bq_stream *s)
{
    size_t budget = READ_BUDGET;
    s->more_input = s->read_wants_write = false;
    while (!s->input_ended) {
        size_t room = read_room(s), count = 0, tail;
        if (room == 0 || budget == 0) {
            s->more_input = s->tls != NULL; /* poll sees what waits in the socket, but not in TLS */
            break;
        }
        if (!bq_fifo_reserve(&s->input, room < READ_CHUNK ? room : READ_CHUNK)) {
            bq_error err;
            (void)bq_fail_nomem(&err);
            return lost_to(s, &err);
        }
        char *to = bq_fifo_tail(&s->input, &tail);
        size_t size = tail < room ? tail : room;
        size = size < budget ? size : budget;
        progress p = s->tls ? read_tls(s, to, size, &count) : read_plain(s, to, size, &count);
        if (p != MOVED)
            return p == BROKEN ? s->failure.status : BQ_OK;
        bq_fifo_produce(&s->input, count);
        budget -= count;
        /* A short read of a socket has emptied it; asking again would only cost a call. */
        if (!s->tls && count < size)
            break;
    }
    return BQ_OK;
}

bq_str bq_stream_input(const bq_stream *s)
{
    return bq_fifo_content(&s->input);
}

void bq_stream_consume(bq_stream *s, size_t count)
{
    bq_fifo_consume(&s->input, count);
    bq_fifo_trim(&s->input);
}

void bq_stream_set_read_max(bq_stream *s, size_t read_max)
{
    s->read_max = read_max;
}

/* A peer that refuses us says why and hangs up; our next write then fails first. Its words are worth having. */
static void salvage_input(bq_stream *s)
{
    size_t room, size;
    while ((room = read_room(s)) > 0 && bq_fifo_reserve(&s->input, room < READ_CHUNK ? room : READ_CHUNK)) {
        char *to = bq_fifo_tail(&s->input, &size);
        ssize_t n = recv(s->fd, to, size < room ? size : room, 0);
        if (n <= 0)
            break;
        bq_fifo_produce(&s->input, (size_t)n);
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Sends the queue and, behind it, the parts that were not copied into it. *count: bytes taken. */
static progress send_plain(bq_stream *s, const bq_str *parts, size_t part_count, size_t *count)
{
    struct iovec vectors[PARTS_MAX + 1];
    size_t used = 0;
    bq_str queued = bq_fifo_content(&s->output);
    *count = 0;
    if (queued.len > 0)
        vectors[used++] = (struct iovec){(void *)queued.ptr, queued.len};
    for (size_t i = 0; i < part_count; i++) {
        if (parts[i].len > 0)
            vectors[used++] = (struct iovec){(void *)parts[i].ptr, parts[i].len};
    }
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = used};
    ssize_t n;
    do
        n = sendmsg(s->fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0) {
        *count = (size_t)n;
        return MOVED;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return STALLED;
    int errnum = errno;
    salvage_input(s);
    (void)lost(s, errnum);
    return BROKEN;
}

static progress send_tls(bq_stream *s, size_t *count)
{
    bq_error err;
    bq_str queued = bq_fifo_content(&s->output);
    switch (bq_tls_write(s->tls, queued.ptr, queued.len, count, &err)) {
    case BQ_TLS_DONE: return MOVED;
    case BQ_TLS_WANT_WRITE: return STALLED;
    case BQ_TLS_WANT_READ: s->write_wants_read = true; return STALLED;
    case BQ_TLS_EOF: (void)bq_fail(&err, BQ_UNAVAILABLE, "the peer ended the connection"); break;
    case BQ_TLS_FAILED: break;
    }
    (void)lost_to(s, &err);
    return BROKEN;
}

static void finish_now(bq_stream *s)
{
    s->finished = true;
    if (!s->tls)
        (void)shutdown(s->fd, SHUT_WR);
    else if (bq_tls_finish(s->tls) == BQ_TLS_WANT_WRITE)
        s->finished = false; /* again when the socket takes more */
}

static bq_status write_output(bq_stream *s)
{
    s->write_wants_read = false;
    while (s->output.len > 0) {
        size_t count = 0;
        progress p = s->tls ? send_tls(s, &count) : send_plain(s, NULL, 0, &count);
        if (p == BROKEN)
            return s->failure.status;
        bq_fifo_consume(&s->output, count);
        if (p == STALLED) {
            s->output_blocked = true;
            return BQ_OK;
        }
    }
    bq_fifo_trim(&s->output);
    if (s->finish_wanted && !s->finished)
        finish_now(s);
    s->output_blocked = s->finish_wanted && !s->finished;
    return BQ_OK;
}

/* Large parts on an idle plain connection: what the system takes at once is never copied. *taken: how much it was. */
static bq_status send_directly(bq_stream *s, const bq_str *parts, size_t count, size_t total, size_t *taken)
{
    *taken = 0;
    if (s->state != BQ_STREAM_OPEN || s->tls || s->output_blocked || total < DIRECT_MIN || count > PARTS_MAX)
        return BQ_OK;
    size_t sent, queued = s->output.len;
    progress p = send_plain(s, parts, count, &sent);
    if (p == BROKEN)
        return s->failure.status;
    bq_fifo_consume(&s->output, sent < queued ? sent : queued);
    *taken = sent < queued ? 0 : sent - queued;
    s->output_blocked = sent < queued + total;
    return BQ_OK;
}

static bq_status refuse_write(const bq_stream *s, size_t total, bq_error *err)
{
    if (s->state == BQ_STREAM_FAILED) {
        if (err)
            *err = s->failure;
        return s->failure.status;
    }
    if (s->finish_wanted)
        return bq_fail(err, BQ_CLOSED, "%s: writing has ended", s->peer);
    if (total > bq_stream_room(s))
        return bq_fail(err, BQ_BUSY, "%s: %zu bytes wait to be sent already", s->peer, s->output.len);
    return BQ_OK;
}

bq_status bq_stream_writev(bq_stream *s, const bq_str *parts, size_t count, bq_error *err)
{
    size_t total = 0, taken;
    for (size_t i = 0; i < count; i++) {
        if (__builtin_add_overflow(total, parts[i].len, &total))
            return bq_fail(err, BQ_BUSY, "%s: too much to send at once", s->peer);
    }
    bq_status status = refuse_write(s, total, err);
    if (status != BQ_OK)
        return status;
    /* Before anything is sent: half a message on the wire with the other half nowhere would be the end. */
    if (!bq_fifo_reserve(&s->output, total))
        return bq_fail_nomem(err);
    status = send_directly(s, parts, count, total, &taken);
    if (status != BQ_OK) {
        if (err)
            *err = s->failure;
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        size_t skip = taken < parts[i].len ? taken : parts[i].len;
        taken -= skip;
        if (skip < parts[i].len)
            bq_fifo_put(&s->output, parts[i].ptr + skip, parts[i].len - skip);
    }
    bq_fifo_trim(&s->output);
    return BQ_OK;
}

bq_status bq_stream_write(bq_stream *s, bq_str bytes, bq_error *err)
{
    return bq_stream_writev(s, &bytes, 1, err);
}

size_t bq_stream_queued(const bq_stream *s)
{
    return s->output.len;
}

size_t bq_stream_room(const bq_stream *s)
{
    if (s->state == BQ_STREAM_FAILED || s->finish_wanted || s->output.len >= s->write_max)
        return 0;
    return s->write_max - s->output.len;
}

static bq_status report(const bq_stream *s, bq_status status, bq_error *err)
{
    if (status != BQ_OK && err)
        *err = s->failure;
    return status;
}

bq_status bq_stream_flush(bq_stream *s, bq_error *err)
{
    if (s->state == BQ_STREAM_FAILED)
        return report(s, s->failure.status, err);
    if (s->state != BQ_STREAM_OPEN || s->output_blocked)
        return BQ_OK;
    return report(s, write_output(s), err);
}

void bq_stream_finish(bq_stream *s)
{
    s->finish_wanted = true;
}

/* ---- the loop's side --------------------------------------------------------------------------------------------- */

static bool wants_output(const bq_stream *s)
{
    return s->output.len > 0 || (s->finish_wanted && !s->finished);
}

static short wanted_events(const bq_stream *s)
{
    short events = 0;
    if (!s->input_ended && read_room(s) > 0)
        events |= s->read_wants_write ? POLLOUT : POLLIN;
    if (wants_output(s))
        events |= s->write_wants_read ? POLLIN : POLLOUT;
    return events;
}

size_t bq_stream_prepare(bq_stream *s, struct pollfd *fd, int64_t *deadline_ms)
{
    if (s->state == BQ_STREAM_FAILED)
        return 0;
    if (s->state != BQ_STREAM_OPEN)
        return bq_stream_connect_prepare(s, fd, deadline_ms);
    if (s->more_input && read_room(s) > 0) {
        int64_t now = bq_now_ms();
        *deadline_ms = now < *deadline_ms ? now : *deadline_ms;
    }
    *fd = (struct pollfd){.fd = s->fd, .events = wanted_events(s)};
    return fd->events ? 1 : 0;
}

/* Reading first: when the peer has said something and hung up, writing would fail before it was heard. */
static bq_status service_open(bq_stream *s, short revents)
{
    short broken = revents & (POLLHUP | POLLERR);
    bool read = revents & (s->read_wants_write ? POLLOUT : POLLIN);
    bool write = revents & (s->write_wants_read ? POLLIN : POLLOUT);
    bq_status status = BQ_OK;
    if (read || broken || s->more_input)
        status = read_input(s);
    if (status == BQ_OK && wants_output(s) && (write || broken || !s->output_blocked))
        status = write_output(s);
    return status;
}

bq_status bq_stream_service(bq_stream *s, short revents, bq_error *err)
{
    bq_status status = BQ_OK;
    if (s->state == BQ_STREAM_FAILED)
        return report(s, s->failure.status, err);
    if (s->state != BQ_STREAM_OPEN) {
        status = bq_stream_connect_service(s, revents);
        revents = 0; /* they were the connection's */
    }
    if (status == BQ_OK && s->state == BQ_STREAM_OPEN)
        status = service_open(s, revents);
    return report(s, status, err);
}

bool bq_stream_is_open(const bq_stream *s)
{
    return s->state == BQ_STREAM_OPEN;
}

bool bq_stream_has_ended(const bq_stream *s)
{
    return s->input_ended && s->input.len == 0;
}

const char *bq_stream_peer(const bq_stream *s)
{
    return s->peer;
}
