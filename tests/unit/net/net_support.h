/*
 * net_support.h - the other side of a stream under test: a listener on loopback whose thread serves connections by a
 * script, and the poll loop that a driver would run. Loopback only.
 */
#ifndef TESTS_NET_SUPPORT_H
#define TESTS_NET_SUPPORT_H

#include "base/clock.h"
#include "base/error.h"
#include "net/resolve.h"
#include "net/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE_MS 20000

/* ---- listeners --------------------------------------------------------------------------------------------------- */

static inline int listen_at(const char *address, int backlog, int *port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    bool is_v6 = strchr(address, ':') != NULL;
    struct sockaddr *to = is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t len = is_v6 ? sizeof v6 : sizeof v4;
    if (inet_pton(is_v6 ? AF_INET6 : AF_INET, address, is_v6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr) != 1)
        return -1;
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, to, len) != 0 || listen(fd, backlog) != 0 || getsockname(fd, to, &len) != 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
    return fd;
}

static inline int listen_at_path(const char *path, int backlog)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof to.sun_path);
    memcpy(to.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

typedef struct server {
    int listener;
    int port;
    int connections; /* how many it serves, one after the other */
    void (*serve)(int fd, void *arg);
    void *arg;
    pthread_t thread;
} server;

static inline void *server_run(void *arg)
{
    server *srv = arg;
    sigset_t pipes; /* OpenSSL's own sockets raise it; the stream's side is the one under test */
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, NULL);
    for (int i = 0; i < srv->connections; i++) {
        int fd = accept4(srv->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            break;
        srv->serve(fd, srv->arg);
        close(fd);
    }
    return NULL;
}

static inline void server_begin(server *srv, int listener, void (*serve)(int fd, void *arg), void *arg)
{
    srv->listener = listener;
    srv->serve = serve;
    srv->arg = arg;
    srv->connections = srv->connections ? srv->connections : 1;
    assert_int_equal(pthread_create(&srv->thread, NULL, server_run, srv), 0);
}

static inline void server_start(server *srv, const char *address, void (*serve)(int fd, void *arg), void *arg)
{
    int fd = listen_at(address, 16, &srv->port);
    assert_true(fd >= 0);
    server_begin(srv, fd, serve, arg);
}

static inline void server_end(server *srv)
{
    shutdown(srv->listener, SHUT_RDWR); /* ends an accept that nobody came for */
    pthread_join(srv->thread, NULL);
    close(srv->listener);
}

/* Blocking helpers of a script; false at the connection's end. */
static inline bool send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static inline bool recv_all(int fd, char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(fd, bytes, len, 0);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* Closes in such a way that the other side gets a reset. */
static inline void reset_connection(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

/* Waits for the peer's end, so that our own close does not come before it has read everything. */
static inline void await_end(int fd)
{
    char byte[4096];
    while (recv(fd, byte, sizeof byte, 0) > 0) {
    }
}

/* The n-th byte of the test's traffic: position is recognisable, so that a lost or doubled byte shows. */
static inline char pattern(size_t n)
{
    return (char)(n * 131 + (n >> 8) * 7 + (n >> 16) * 3);
}

static inline void fill_pattern(char *to, size_t from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = pattern(from + i);
}

static inline void expect_pattern(const char *bytes, size_t from, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != pattern(from + i))
            fail_msg("byte %zu is wrong", from + i);
    }
}

/* Until every look-up's thread has ended, the abandoned ones included: before the allocator is replaced, and at the end
 * of a test that abandons some. */
static inline void await_lookups(void)
{
    int64_t give_up = bq_now_ms() + PATIENCE_MS;
    while (bq_resolve_running() > 0) {
        assert_true(bq_now_ms() < give_up);
        (void)poll(NULL, 0, 1);
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

typedef bool (*stream_condition)(bq_stream *s, void *arg);

/* Runs the loop until the condition holds or the stream fails; too long is a failure of the test. */
static inline bq_status run_until(bq_stream *s, stream_condition holds, void *arg, bq_error *err)
{
    int64_t give_up = bq_now_ms() + PATIENCE_MS;
    while (!holds(s, arg)) {
        struct pollfd fd;
        int64_t deadline = give_up;
        size_t count = bq_stream_prepare(s, &fd, &deadline);
        if (bq_now_ms() >= give_up)
            fail_msg("%s: nothing happened for %d ms", bq_stream_peer(s), PATIENCE_MS);
        int ready = poll(&fd, count, bq_poll_timeout(bq_now_ms(), deadline));
        assert_true(ready >= 0 || errno == EINTR);
        bq_status status = bq_stream_service(s, ready > 0 ? fd.revents : 0, err);
        if (status != BQ_OK)
            return status;
    }
    return BQ_OK;
}

static inline bool never(bq_stream *s, void *arg)
{
    (void)s, (void)arg;
    return false;
}

static inline bool is_open(bq_stream *s, void *arg)
{
    (void)arg;
    return bq_stream_is_open(s);
}

static inline bool has_ended(bq_stream *s, void *arg)
{
    (void)arg;
    return bq_stream_has_ended(s);
}

static inline bool all_sent(bq_stream *s, void *arg)
{
    (void)arg;
    return bq_stream_is_open(s) && bq_stream_queued(s) == 0;
}

static inline bool has_input(bq_stream *s, void *arg)
{
    return bq_stream_input(s).len >= *(size_t *)arg;
}

static inline void expect_ok(bq_status status, const bq_error *err)
{
    if (status != BQ_OK)
        fail_msg("%s: %s", bq_status_name(status), err->text);
}

static inline void expect_failure(bq_status status, bq_status expected, const bq_error *err, const char *mentions)
{
    if (status != expected || err->status != expected || !strstr(err->text, mentions))
        fail_msg("%s instead of %s: \"%s\" (expected to mention \"%s\")", bq_status_name(status),
                 bq_status_name(expected), status ? err->text : "", mentions);
}

static inline bq_stream *open_stream(const bq_stream_config *config)
{
    bq_stream *s;
    bq_error err;
    expect_ok(bq_stream_open(&s, config, &err), &err);
    return s;
}

/* Consumes and checks `len` bytes of the pattern, whatever the pieces they come in. */
typedef struct intake {
    size_t from, len, done;
} intake;

static inline bool take_pattern(bq_stream *s, void *arg)
{
    intake *in = arg;
    bq_str input = bq_stream_input(s);
    size_t n = input.len < in->len - in->done ? input.len : in->len - in->done;
    if (n > 0) {
        expect_pattern(input.ptr, in->from + in->done, n);
        bq_stream_consume(s, n);
        in->done += n;
    }
    return in->done == in->len;
}

#endif
