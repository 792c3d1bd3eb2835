/*
 * connect.c - from a name to an open stream: look-up, one address after the other, handshake. The deadline is for all
 * of it. An address that does not answer may use only its share of the time that is left, so that the last one of
 * several is tried, too; one that refuses costs nothing.
 */
#include "net/stream_impl.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A unix socket with a full backlog gives no event when there is room again. */
#define BACKLOG_PAUSE_MS 20

/* A silent peer is found out after about a minute, whatever the protocol does. */
#define KEEPALIVE_IDLE_S 30
#define KEEPALIVE_INTERVAL_S 10
#define KEEPALIVE_COUNT 3

static bool is_unix(const bq_stream *s)
{
    return s->unix_address.sun_family == AF_UNIX;
}

static void set_up_tcp(int fd)
{
    const int on = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, count = KEEPALIVE_COUNT;
    /* Best effort: a connection without them works, too. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void close_socket(bq_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* "host:port (address)": the address only where it says something new. */
static void name_peer(bq_stream *s, const struct sockaddr *address, socklen_t len)
{
    char number[NI_MAXHOST];
    s->peer[s->peer_name_len] = '\0';
    if (getnameinfo(address, len, number, sizeof number, NULL, 0, NI_NUMERICHOST) != 0 || strcmp(number, s->host) == 0)
        return;
    size_t room = sizeof s->peer - s->peer_name_len;
    (void)snprintf(s->peer + s->peer_name_len, room, " (%s)", number);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static bq_status give_up(bq_stream *s, bq_error *err)
{
    bq_error_prefix(err, "connect to %s", s->peer);
    return bq_stream_fail(s, err);
}

static bq_status give_up_errno(bq_stream *s, int errnum)
{
    bq_error err;
    bq_status status = errnum == EACCES || errnum == EPERM ? BQ_AUTH : errnum == ENOMEM ? BQ_NOMEM : BQ_UNAVAILABLE;
    (void)bq_fail_errno(&err, status, errnum, "connect to %s", s->peer);
    if (s->tried > 1)
        bq_error_prefix(&err, "the last of %zu addresses", s->tried);
    return bq_stream_fail(s, &err);
}

static bq_status give_up_late(bq_stream *s, int64_t now)
{
    bq_error err;
    const char *what = s->state == BQ_STREAM_RESOLVING     ? "no answer from the name service"
                       : s->state == BQ_STREAM_HANDSHAKING ? "no TLS handshake"
                                                           : "no answer";
    (void)bq_fail(&err, BQ_UNAVAILABLE, "connect to %s: %s within %lld ms", s->peer, what,
                  (long long)(now - s->opened_ms));
    return bq_stream_fail(s, &err);
}

/* ---- connected ----------------------------------------------------------------------------------------------------- */

/* A connect to a free port of the ephemeral range may, by chance, meet itself: both ends are then this socket, and
 * every byte written would come back as an answer. */
static bool met_itself(int fd)
{
    struct sockaddr_storage own, other;
    socklen_t own_len = sizeof own, other_len = sizeof other;
    memset(&own, 0, sizeof own);
    memset(&other, 0, sizeof other);
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&other, &other_len) == 0 && own_len == other_len &&
           own.ss_family != AF_UNIX && memcmp(&own, &other, own_len) == 0;
}

static bq_status open_up(bq_stream *s)
{
    s->state = BQ_STREAM_OPEN;
    s->more_input = s->tls != NULL; /* the handshake may have read ahead */
    bq_resolve_free(s->resolve);
    s->resolve = NULL;
    s->next = NULL;
    return BQ_OK;
}

static bq_status handshake(bq_stream *s)
{
    bq_error err;
    switch (bq_tls_handshake(s->tls, &err)) {
    case BQ_TLS_DONE: return open_up(s);
    case BQ_TLS_WANT_READ: s->handshake_wants = POLLIN; return BQ_OK;
    case BQ_TLS_WANT_WRITE: s->handshake_wants = POLLOUT; return BQ_OK;
    case BQ_TLS_EOF: (void)bq_fail(&err, BQ_UNAVAILABLE, "the peer ended the handshake"); break;
    case BQ_TLS_FAILED: break;
    }
    return give_up(s, &err);
}

static bq_status connected(bq_stream *s)
{
    if (!is_unix(s))
        set_up_tcp(s->fd);
    if (!s->tls_context)
        return open_up(s);
    bq_error err;
    if (bq_tls_new(&s->tls, s->tls_context, s->fd, is_unix(s) ? NULL : s->host, &err) != BQ_OK)
        return give_up(s, &err);
    s->state = BQ_STREAM_HANDSHAKING;
    return handshake(s);
}

/* ---- one address after the other ------------------------------------------------------------------------------------ */

static size_t addresses_left(const bq_stream *s)
{
    size_t n = 0;
    for (const struct addrinfo *address = s->next; address; address = address->ai_next)
        n++;
    return n;
}

#define UNDER_WAY (-1)

/* 0: connected; UNDER_WAY; else the errno value of the fault. */
static int begin_connect(bq_stream *s, int family, int type, const struct sockaddr *address, socklen_t len)
{
    s->fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return errno;
    if (connect(s->fd, address, len) == 0)
        return met_itself(s->fd) ? ECONNREFUSED : 0;
    if (errno == EINPROGRESS || errno == EINTR) {
        s->state = BQ_STREAM_CONNECTING;
        return UNDER_WAY;
    }
    if (errno == EAGAIN && family == AF_UNIX) {
        close_socket(s);
        s->state = BQ_STREAM_PAUSING;
        s->retry_ms = bq_deadline(bq_now_ms(), BACKLOG_PAUSE_MS);
        return UNDER_WAY;
    }
    return errno;
}

static int try_unix(bq_stream *s)
{
    return begin_connect(s, AF_UNIX, SOCK_STREAM, (const struct sockaddr *)&s->unix_address, sizeof s->unix_address);
}

static int try_next_address(bq_stream *s)
{
    int64_t now = bq_now_ms();
    s->address_deadline_ms = s->deadline_ms;
    if (s->deadline_ms != BQ_NEVER && s->deadline_ms > now)
        s->address_deadline_ms = now + (s->deadline_ms - now) / (int64_t)addresses_left(s);
    const struct addrinfo *address = s->next;
    s->next = address->ai_next;
    s->tried++;
    name_peer(s, address->ai_addr, address->ai_addrlen);
    return begin_connect(s, address->ai_family, address->ai_socktype, address->ai_addr, address->ai_addrlen);
}

/* Goes on from the fault of the address at hand (0: none yet) until one is connected or under way. */
static bq_status try_addresses(bq_stream *s, int errnum)
{
    do {
        close_socket(s);
        if (s->next)
            errnum = try_next_address(s);
        else if (errnum == 0)
            errnum = try_unix(s);
        else
            return give_up_errno(s, errnum);
    } while (errnum > 0);
    return errnum == 0 ? connected(s) : BQ_OK;
}

static bq_status look_at_socket(bq_stream *s)
{
    int errnum = 0;
    socklen_t len = sizeof errnum;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &errnum, &len) != 0)
        errnum = errno;
    if (errnum == 0 && met_itself(s->fd))
        errnum = ECONNREFUSED;
    return errnum == 0 ? connected(s) : try_addresses(s, errnum);
}

static bq_status take_addresses(bq_stream *s)
{
    bq_error err;
    if (bq_resolve_result(s->resolve, &s->next, &err) != BQ_OK)
        return give_up(s, &err);
    return try_addresses(s, 0);
}

/* ---- the loop's side --------------------------------------------------------------------------------------------- */

bq_status bq_stream_connect_start(bq_stream *s, bq_error *err)
{
    if (is_unix(s)) {
        /* Made by the first service, so that its faults are told there. */
        s->state = BQ_STREAM_PAUSING;
        s->retry_ms = s->opened_ms;
        return BQ_OK;
    }
    s->state = BQ_STREAM_RESOLVING;
    return bq_resolve_start(&s->resolve, s->host, s->port, err);
}

size_t bq_stream_connect_prepare(bq_stream *s, struct pollfd *fd, int64_t *deadline_ms)
{
    int64_t until = s->state == BQ_STREAM_CONNECTING && !is_unix(s) ? s->address_deadline_ms : s->deadline_ms;
    *fd = (struct pollfd){.fd = s->fd};
    switch (s->state) {
    case BQ_STREAM_RESOLVING:
        fd->fd = bq_resolve_fd(s->resolve);
        fd->events = POLLIN;
        break;
    case BQ_STREAM_CONNECTING: fd->events = POLLOUT; break;
    case BQ_STREAM_HANDSHAKING: fd->events = s->handshake_wants; break;
    default: until = s->retry_ms < until ? s->retry_ms : until; break;
    }
    if (until < *deadline_ms)
        *deadline_ms = until;
    return fd->events ? 1 : 0;
}

bq_status bq_stream_connect_service(bq_stream *s, short revents)
{
    int64_t now = bq_now_ms();
    bq_status status = BQ_OK;
    switch (s->state) {
    case BQ_STREAM_RESOLVING:
        if (bq_resolve_done(s->resolve))
            status = take_addresses(s);
        break;
    case BQ_STREAM_PAUSING:
        if (now >= s->retry_ms)
            status = try_addresses(s, 0);
        break;
    case BQ_STREAM_CONNECTING:
        if (revents)
            status = look_at_socket(s);
        else if (!is_unix(s) && now >= s->address_deadline_ms)
            status = try_addresses(s, ETIMEDOUT);
        break;
    default:
        if (revents)
            status = handshake(s);
        break;
    }
    if (status == BQ_OK && s->state != BQ_STREAM_OPEN && now >= s->deadline_ms)
        status = give_up_late(s, now);
    return status;
}
