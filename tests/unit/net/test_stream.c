/* Plain streams: the loop, both queues and their limits, every way a peer may behave, and no SIGPIPE. */
#include "unit/cmocka_all.h"

#include "net_support.h"

#include "net/resolve.h"
#include "unit/alloc_fail.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/stat.h>

static bq_stream_config tcp(const char *host, int port)
{
    return (bq_stream_config){.host = host, .port = port, .connect_timeout_ms = PATIENCE_MS};
}

/* ---- scripts of the other side --------------------------------------------------------------------------------------- */

static void echo(int fd, void *arg)
{
    char bytes[4096];
    ssize_t n;
    (void)arg;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        if (!send_all(fd, bytes, (size_t)n))
            break;
    }
}

static void expect_echo(bq_stream *s)
{
    bq_error err;
    size_t five = 5;
    expect_ok(bq_stream_write(s, BQ_STR("hello"), &err), &err);
    expect_ok(run_until(s, has_input, &five, &err), &err);
    assert_memory_equal(bq_stream_input(s).ptr, "hello", 5);
    bq_stream_consume(s, 5);
    assert_null(bq_stream_input(s).ptr);
}

static void reaches_every_kind_of_peer(void **state)
{
    (void)state;
    static const char *const hosts[][2] = {{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"}, {"127.0.0.1", "localhost"}};
    for (size_t i = 0; i < 3; i++) {
        server srv = {0};
        bq_error err;
        int probe = listen_at(hosts[i][0], 1, &(int){0});
        if (probe < 0)
            continue; /* no IPv6 here */
        close(probe);
        server_start(&srv, hosts[i][0], echo, NULL);
        bq_stream_config config = tcp(hosts[i][1], srv.port);
        bq_stream *s = open_stream(&config);
        assert_false(bq_stream_is_open(s));
        expect_ok(run_until(s, is_open, NULL, &err), &err);
        assert_non_null(strstr(bq_stream_peer(s), hosts[i][1]));
        expect_echo(s);
        bq_stream_close(s);
        server_end(&srv);
    }
}

static void reaches_a_unix_socket(void **state)
{
    (void)state;
    char path[64];
    server srv = {0};
    (void)snprintf(path, sizeof path, "/tmp/bq-stream-%d.sock", (int)getpid());
    unlink(path);
    server_begin(&srv, listen_at_path(path, 4), echo, NULL);
    bq_stream_config config = {.path = path, .connect_timeout_ms = PATIENCE_MS};
    bq_stream *s = open_stream(&config);
    assert_string_equal(bq_stream_peer(s), path);
    expect_echo(s); /* written before it is connected */
    bq_stream_close(s);
    server_end(&srv);
    unlink(path);
}

static void sockets_are_set_up(void **state)
{
    (void)state;
    server srv = {0};
    bq_error err;
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    int value = 0;
    socklen_t len = sizeof value;
    server_start(&srv, "127.0.0.1", echo, NULL);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
    assert_int_equal(deadline, BQ_NEVER); /* idle: nothing is due */
    assert_int_equal(fd.events, POLLIN);
    assert_int_equal(getsockopt(fd.fd, IPPROTO_TCP, TCP_NODELAY, &value, &len), 0);
    assert_true(value);
    assert_int_equal(getsockopt(fd.fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len), 0);
    assert_true(value);
    assert_true(fcntl(fd.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd.fd, F_GETFL) & O_NONBLOCK);
    bq_stream_close(s);
    server_end(&srv);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

typedef struct script {
    size_t len;
    size_t reply;
    sem_t go;
    sem_t seen;
    size_t received;
    bool intact;
    bool ended;
} script;

static void send_one_by_one(int fd, void *arg)
{
    script *sc = arg;
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (size_t i = 0; i < sc->len; i++) {
        char byte = pattern(i);
        if (!send_all(fd, &byte, 1))
            return;
    }
    await_end(fd);
}

static void a_peer_that_dribbles(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {.len = 20000};
    bq_error err;
    intake in = {.len = sc.len};
    server_start(&srv, "127.0.0.1", send_one_by_one, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, take_pattern, &in, &err), &err);
    bq_stream_close(s);
    server_end(&srv);
}

static void send_much(int fd, void *arg)
{
    script *sc = arg;
    char *bytes = malloc(sc->len);
    fill_pattern(bytes, 0, sc->len);
    (void)send_all(fd, bytes, sc->len);
    free(bytes);
    await_end(fd);
}

static void input_stops_at_its_ceiling(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {.len = 8 * 1024 * 1024};
    bq_error err;
    size_t full = 10000;
    server_start(&srv, "127.0.0.1", send_much, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    config.read_max = full;
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, has_input, &full, &err), &err);
    for (int i = 0; i < 20; i++) {
        struct pollfd fd;
        int64_t deadline = BQ_NEVER;
        assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 0); /* a full queue watches nothing */
        assert_int_equal(deadline, BQ_NEVER);
        expect_ok(bq_stream_service(s, POLLIN, &err), &err);
        assert_int_equal(bq_stream_input(s).len, full);
    }
    bq_stream_set_read_max(s, 50000);
    full = 50000;
    expect_ok(run_until(s, has_input, &full, &err), &err);
    assert_int_equal(bq_stream_input(s).len, full);
    intake in = {.len = sc.len};
    expect_ok(run_until(s, take_pattern, &in, &err), &err);
    bq_stream_close(s);
    server_end(&srv);
}

static void one_service_reads_a_bounded_amount(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {.len = 4 * 1024 * 1024};
    bq_error err;
    size_t none = 0, before;
    server_start(&srv, "127.0.0.1", send_much, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    config.read_max = sc.len;
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, &none, &err), &err);
    while ((before = bq_stream_input(s).len) < sc.len) {
        struct pollfd fd;
        int64_t deadline = BQ_NEVER;
        assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
        assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
        expect_ok(bq_stream_service(s, fd.revents, &err), &err);
        assert_true(bq_stream_input(s).len - before <= 256 * 1024);
    }
    expect_pattern(bq_stream_input(s).ptr, 0, sc.len);
    bq_stream_close(s);
    server_end(&srv);
}

static void send_some_and_close(int fd, void *arg)
{
    script *sc = arg;
    char bytes[64];
    fill_pattern(bytes, 0, sc->len);
    (void)send_all(fd, bytes, sc->len);
}

static void a_peer_that_ends_in_the_middle(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {.len = 10};
    bq_error err;
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    size_t ten = 10;
    server_start(&srv, "127.0.0.1", send_some_and_close, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, has_input, &ten, &err), &err);
    server_end(&srv);
    while (bq_stream_prepare(s, &fd, &deadline) > 0) { /* until the end was read as well */
        assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
        expect_ok(bq_stream_service(s, fd.revents, &err), &err);
    }
    assert_false(bq_stream_has_ended(s)); /* there is input yet */
    expect_pattern(bq_stream_input(s).ptr, 0, 10);
    bq_stream_consume(s, 10);
    assert_true(bq_stream_has_ended(s));
    assert_true(bq_stream_is_open(s));
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 0);
    expect_ok(bq_stream_service(s, 0, &err), &err);
    bq_stream_close(s);
}

static void send_some_and_reset(int fd, void *arg)
{
    script *sc = arg;
    char bytes[64];
    fill_pattern(bytes, 0, sc->len);
    (void)send_all(fd, bytes, sc->len);
    sem_wait(&sc->go);
    reset_connection(fd);
}

static void a_peer_that_resets(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {.len = 10};
    bq_error err;
    size_t ten = 10;
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", send_some_and_reset, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, has_input, &ten, &err), &err);
    sem_post(&sc.go);
    expect_failure(run_until(s, never, NULL, &err), BQ_UNAVAILABLE, &err, "reset by peer");
    assert_true(err.flags & BQ_ERROR_RETRYABLE);
    assert_false(bq_stream_is_open(s));
    expect_pattern(bq_stream_input(s).ptr, 0, 10); /* what had arrived stays */
    /* The failure is final, and told to whoever asks. */
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 0);
    expect_failure(bq_stream_service(s, POLLIN, &err), BQ_UNAVAILABLE, &err, "reset by peer");
    expect_failure(bq_stream_flush(s, &err), BQ_UNAVAILABLE, &err, "reset by peer");
    expect_failure(bq_stream_write(s, BQ_STR("x"), &err), BQ_UNAVAILABLE, &err, "reset by peer");
    assert_int_equal(bq_stream_room(s), 0);
    bq_stream_close(s);
    server_end(&srv);
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static void receive_one_by_one(int fd, void *arg)
{
    script *sc = arg;
    char byte;
    sc->intact = true;
    while (recv(fd, &byte, 1, 0) == 1) {
        sc->intact = sc->intact && byte == pattern(sc->received);
        sc->received++;
    }
}

static void write_pattern(bq_stream *s, size_t from, size_t len)
{
    char *bytes = malloc(len);
    bq_error err;
    fill_pattern(bytes, from, len);
    expect_ok(bq_stream_write(s, (bq_str){bytes, len}, &err), &err);
    memset(bytes, 0, len); /* the stream must not depend on it any more */
    free(bytes);
}

static void a_peer_that_reads_byte_by_byte(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {0};
    bq_error err;
    size_t sent = 0;
    server_start(&srv, "127.0.0.1", receive_one_by_one, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    /* Of every size around the border between copied and direct writes. */
    for (size_t len = 1; sent < 500000; len = len * 2 + 7) {
        len = len > 100000 ? 3 : len;
        write_pattern(s, sent, len);
        sent += len;
        if (len > 1000)
            expect_ok(run_until(s, is_open, NULL, &err), &err);
    }
    bq_stream_finish(s);
    expect_ok(run_until(s, has_ended, NULL, &err), &err);
    server_end(&srv);
    assert_int_equal(sc.received, sent);
    assert_true(sc.intact);
    bq_stream_close(s);
}

static void receive_when_told(int fd, void *arg)
{
    script *sc = arg;
    sem_wait(&sc->go);
    char bytes[10000];
    ssize_t n;
    sc->intact = true;
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            sc->intact = sc->intact && bytes[i] == pattern(sc->received + (size_t)i);
        sc->received += (size_t)n;
    }
}

static void output_stops_at_its_ceiling(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {0};
    bq_error err;
    size_t sent = 0;
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", receive_when_told, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    config.write_max = 3000000;
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    /* Until the system takes no more and our own queue is full: every kind of write meets both. */
    static const size_t sizes[] = {1, 500, 20000, 70000, 300000};
    char *bytes = malloc(4000000);
    for (int i = 0;; i++) {
        size_t len = sizes[i % 5];
        if (len > bq_stream_room(s))
            break;
        fill_pattern(bytes, sent, len);
        bq_str parts[] = {{bytes, len / 3}, BQ_STR_NULL, {bytes + len / 3, len - len / 3}};
        expect_ok(bq_stream_writev(s, parts, 3, &err), &err);
        sent += len;
        if (i % 3 == 0)
            expect_ok(bq_stream_flush(s, &err), &err);
        assert_true(bq_stream_queued(s) <= config.write_max);
        assert_true(sent < 100000000);
    }
    size_t queued = bq_stream_queued(s), room = bq_stream_room(s);
    assert_int_equal(queued + room, config.write_max);
    expect_failure(bq_stream_write(s, (bq_str){bytes, room + 1}, &err), BQ_BUSY, &err, "wait to be sent");
    assert_true(err.flags & BQ_ERROR_RETRYABLE);
    bq_str huge[] = {{bytes, SIZE_MAX}, {bytes, 2}};
    expect_failure(bq_stream_writev(s, huge, 2, &err), BQ_BUSY, &err, "too much");
    assert_int_equal(bq_stream_queued(s), queued); /* none of it was taken */
    free(bytes);
    write_pattern(s, sent, room);
    sent += room;
    assert_int_equal(bq_stream_room(s), 0);
    sem_post(&sc.go);
    expect_ok(run_until(s, all_sent, NULL, &err), &err);
    bq_stream_finish(s);
    expect_ok(run_until(s, has_ended, NULL, &err), &err);
    server_end(&srv);
    assert_int_equal(sc.received, sent);
    assert_true(sc.intact);
    bq_stream_close(s);
}

static void hold(int fd, void *arg)
{
    script *sc = arg;
    sem_wait(&sc->go);
    (void)fd;
}

static void an_idle_loop_does_not_spin_on_blocked_output(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {0};
    bq_error err;
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", hold, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    write_pattern(s, 0, 16 * 1024 * 1024);
    int rounds = 0, ready;
    do {
        struct pollfd fd;
        int64_t deadline = BQ_NEVER;
        assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
        assert_int_equal(deadline, BQ_NEVER);
        ready = poll(&fd, 1, 100);
        expect_ok(bq_stream_service(s, ready > 0 ? fd.revents : 0, &err), &err);
        assert_true(++rounds < 10000);
    } while (ready > 0);
    assert_true(bq_stream_queued(s) > 0);
    bq_stream_close(s); /* at once, with output left */
    sem_post(&sc.go);
    server_end(&srv);
}

static void answer_after_the_end(int fd, void *arg)
{
    script *sc = arg;
    char bytes[1000];
    sc->intact = recv_all(fd, bytes, sizeof bytes);
    sc->ended = recv(fd, bytes, 1, 0) == 0;
    fill_pattern(bytes, 0, 10);
    (void)send_all(fd, bytes, 10);
}

static void half_a_close(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {0};
    bq_error err;
    intake in = {.len = 10};
    server_start(&srv, "127.0.0.1", answer_after_the_end, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    write_pattern(s, 0, 1000);
    bq_stream_finish(s); /* before it is even connected */
    expect_failure(bq_stream_write(s, BQ_STR("x"), &err), BQ_CLOSED, &err, "ended");
    assert_int_equal(bq_stream_room(s), 0);
    expect_ok(run_until(s, take_pattern, &in, &err), &err);
    expect_ok(run_until(s, has_ended, NULL, &err), &err);
    bq_stream_finish(s);
    bq_stream_close(s);
    server_end(&srv);
    assert_true(sc.intact && sc.ended);
}

/* ---- broken pipes -------------------------------------------------------------------------------------------------- */

static void hang_up(int fd, void *arg)
{
    (void)fd, (void)arg;
}

/* Writes at once, never reading, until it fails. */
static bq_status write_until_broken(bq_stream *s, bq_error *err)
{
    bq_status status = BQ_OK;
    for (int i = 0; i < 100000 && status == BQ_OK; i++) {
        status = bq_stream_write(s, BQ_STR("PING"), err);
        if (status == BQ_OK)
            status = bq_stream_flush(s, err);
    }
    return status;
}

static void no_sigpipe(void **state)
{
    (void)state;
    struct sigaction action;
    server srv = {0};
    bq_error err;
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL); /* a signal would end this program */
    server_start(&srv, "127.0.0.1", hang_up, NULL);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1); /* it hung up; nobody reads that */
    server_end(&srv);
    expect_failure(write_until_broken(s, &err), BQ_UNAVAILABLE, &err, "Broken pipe");
    bq_stream_close(s);
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
}

static void refuse_with_words(int fd, void *arg)
{
    script *sc = arg;
    (void)send_all(fd, "-ERR max clients\r\n", 18);
    sem_wait(&sc->go); /* what the client wrote is unread: the close resets */
}

static void the_last_words_of_a_peer_are_heard(void **state)
{
    (void)state;
    server srv = {0};
    script sc = {0};
    bq_error err;
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", refuse_with_words, &sc);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1); /* they are there, and not read yet */
    expect_ok(bq_stream_write(s, BQ_STR("PING"), &err), &err);
    expect_ok(bq_stream_flush(s, &err), &err);
    sem_post(&sc.go);
    server_end(&srv);
    /* Writing fails before anything was read. */
    assert_int_equal(write_until_broken(s, &err), BQ_UNAVAILABLE);
    assert_int_equal(bq_stream_input(s).len, 18);
    assert_memory_equal(bq_stream_input(s).ptr, "-ERR max clients\r\n", 18);
    bq_stream_close(s);
}

static void idle_connections_keep_little(void **state)
{
    (void)state;
    server srv = {0};
    bq_error err;
    alloc_fail_state counter;
    intake in = {.len = 1000000};
    await_lookups();
    alloc_fail_begin(&counter, 0, false);
    server_start(&srv, "127.0.0.1", echo, NULL);
    bq_stream_config config = tcp("127.0.0.1", srv.port);
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    long before = atomic_load(&counter.live);
    write_pattern(s, 0, in.len);
    size_t all = in.len;
    expect_ok(run_until(s, has_input, &all, &err), &err);
    assert_int_equal(atomic_load(&counter.live), before + 1); /* the input */
    expect_ok(run_until(s, take_pattern, &in, &err), &err);
    assert_int_equal(atomic_load(&counter.live), before);
    bq_stream_close(s);
    server_end(&srv);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

/* ---- getting there ------------------------------------------------------------------------------------------------- */

static int closed_port(void)
{
    int port = 0, fd = listen_at("127.0.0.1", 1, &port);
    close(fd);
    return port;
}

static void a_closed_port(void **state)
{
    (void)state;
    bq_error err;
    bq_stream_config config = tcp("127.0.0.1", closed_port());
    bq_stream *s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "Connection refused");
    assert_non_null(strstr(err.text, "127.0.0.1:"));
    assert_int_equal(err.native, ECONNREFUSED);
    bq_stream_close(s);
}

/* A listener whose backlog is full drops what comes: a connection attempt hears nothing. */
typedef struct black_hole {
    int listener, port, count;
    int fillers[64];
} black_hole;

static void dig(black_hole *hole)
{
    hole->listener = listen_at("127.0.0.1", 0, &hole->port);
    assert_true(hole->listener >= 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)hole->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (hole->count = 0; hole->count < 64;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        hole->fillers[hole->count++] = fd;
        (void)connect(fd, (struct sockaddr *)&to, sizeof to);
        struct pollfd poller = {.fd = fd, .events = POLLOUT};
        if (poll(&poller, 1, 200) == 0)
            return; /* this one waits, and so will everybody after it */
    }
    fail_msg("the backlog never filled");
}

static void fill_in(black_hole *hole)
{
    for (int i = 0; i < hole->count; i++)
        close(hole->fillers[i]);
    close(hole->listener);
}

static void a_peer_that_does_not_answer(void **state)
{
    (void)state;
    black_hole hole;
    bq_error err;
    dig(&hole);
    bq_stream_config config = tcp("127.0.0.1", hole.port);
    config.connect_timeout_ms = 300;
    int64_t before = bq_now_ms();
    bq_stream *s = open_stream(&config);
    bq_status status = run_until(s, is_open, NULL, &err);
    int64_t took = bq_now_ms() - before;
    expect_failure(status, BQ_UNAVAILABLE, &err, "timed out");
    assert_true(took >= 300 && took < PATIENCE_MS / 2);
    bq_stream_close(s);

    /* Closing an attempt that is under way does not wait for it. */
    config.connect_timeout_ms = -1;
    s = open_stream(&config);
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    expect_ok(bq_stream_service(s, 0, &err), &err);
    (void)bq_stream_prepare(s, &fd, &deadline);
    assert_int_equal(deadline, BQ_NEVER);
    before = bq_now_ms();
    bq_stream_close(s);
    assert_true(bq_now_ms() - before < PATIENCE_MS / 2);
    fill_in(&hole);
}

static int scripted_ports[4];
static int scripted_code;
static sem_t lookup_gate;
static bool lookup_waits;

/* Several addresses for a name, each with a port of its own. */
static int scripted_lookup(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    (void)node, (void)service;
    while (lookup_waits && sem_wait(&lookup_gate) != 0) {
    }
    if (scripted_code != 0)
        return scripted_code;
    struct addrinfo **end = out;
    for (int i = 0; i < 4 && scripted_ports[i]; i++) {
        char port[8];
        (void)snprintf(port, sizeof port, "%d", scripted_ports[i]);
        int code = getaddrinfo("127.0.0.1", port, hints, end);
        if (code != 0)
            return code;
        while (*end)
            end = &(*end)->ai_next;
    }
    return 0;
}

static int give_lookup_back(void **state)
{
    (void)state;
    bq_resolve_override(NULL);
    await_lookups();
    return 0;
}

static void every_address_is_tried(void **state)
{
    (void)state;
    black_hole hole;
    server srv = {0};
    bq_error err;
    dig(&hole);
    server_start(&srv, "127.0.0.1", echo, NULL);
    scripted_ports[0] = closed_port();
    scripted_ports[1] = hole.port;
    scripted_ports[2] = closed_port();
    scripted_ports[3] = srv.port;
    scripted_code = 0;
    lookup_waits = false;
    bq_resolve_override(scripted_lookup);
    bq_stream_config config = tcp("broker.example", 1);
    config.connect_timeout_ms = 2000; /* the one that is silent gets a third of it */
    bq_stream *s = open_stream(&config);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    assert_non_null(strstr(bq_stream_peer(s), "broker.example:1 (127.0.0.1)"));
    expect_echo(s);
    bq_stream_close(s);
    server_end(&srv);

    scripted_ports[1] = scripted_ports[3] = scripted_ports[0];
    s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "the last of 4 addresses");
    bq_stream_close(s);
    fill_in(&hole);
}

static void a_name_service_that_does_not_answer(void **state)
{
    (void)state;
    bq_error err;
    sem_init(&lookup_gate, 0, 0);
    scripted_code = EAI_NONAME;
    lookup_waits = true;
    bq_resolve_override(scripted_lookup);
    bq_stream_config config = tcp("slow.example", 1);
    config.connect_timeout_ms = 200;
    bq_stream *s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "name service");
    int64_t before = bq_now_ms();
    bq_stream_close(s);
    assert_true(bq_now_ms() - before < PATIENCE_MS / 2);
    assert_int_equal(bq_resolve_running(), 1);
    sem_post(&lookup_gate);
    await_lookups();
}

static void a_name_that_is_none(void **state)
{
    (void)state;
    bq_error err;
    scripted_code = EAI_NONAME;
    lookup_waits = false;
    bq_resolve_override(scripted_lookup);
    bq_stream_config config = tcp("nowhere.example", 5672);
    bq_stream *s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "look up nowhere.example");
    bq_stream_close(s);
}

static void unix_sockets_that_fail(void **state)
{
    (void)state;
    char path[64];
    bq_error err;
    bq_stream_config config = {.path = "/nonexistent/bq.sock", .connect_timeout_ms = PATIENCE_MS};
    bq_stream *s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "/nonexistent/bq.sock");
    bq_stream_close(s);

    /* One that this user may not open (root may: then as somebody else). */
    (void)snprintf(path, sizeof path, "/tmp/bq-denied-%d.sock", (int)getpid());
    unlink(path);
    int listener = listen_at_path(path, 1);
    assert_int_equal(chmod(path, 0), 0);
    config.path = path;
    s = open_stream(&config);
    if (geteuid() == 0)
        assert_int_equal(seteuid(65534), 0);
    bq_status status = run_until(s, is_open, NULL, &err);
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    expect_failure(status, BQ_AUTH, &err, "Permission denied");
    bq_stream_close(s);
    close(listener);
    unlink(path);
}

static void a_unix_socket_with_a_full_backlog(void **state)
{
    (void)state;
    char path[64];
    bq_error err;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fillers[64], count = 0;
    (void)snprintf(path, sizeof path, "/tmp/bq-full-%d.sock", (int)getpid());
    unlink(path);
    int listener = listen_at_path(path, 0);
    memcpy(to.sun_path, path, strlen(path) + 1);
    for (;;) {
        assert_true(count < 64);
        fillers[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(fillers[count++], (struct sockaddr *)&to, sizeof to) != 0) {
            assert_int_equal(errno, EAGAIN);
            break;
        }
    }
    bq_stream_config config = {.path = path, .connect_timeout_ms = 100};
    bq_stream *s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "no answer");
    bq_stream_close(s);

    config.connect_timeout_ms = PATIENCE_MS;
    s = open_stream(&config);
    expect_ok(bq_stream_service(s, 0, &err), &err);
    assert_false(bq_stream_is_open(s));
    close(accept(listener, NULL, NULL)); /* now there is room */
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    bq_stream_close(s);
    while (count > 0)
        close(fillers[--count]);
    close(listener);
    unlink(path);
}

static void configs_that_make_no_sense(void **state)
{
    (void)state;
    char path[200];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    const bq_stream_config rows[] = {
        {0},
        {.host = "h", .port = 1, .path = "/p"},
        {.host = "", .port = 1},
        {.host = "h", .port = 0},
        {.host = "h", .port = 65536},
        {.path = ""},
        {.path = path},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bq_stream *s;
        bq_error err;
        expect_failure(bq_stream_open(&s, &rows[i], &err), BQ_INVALID, &err, "stream");
        assert_null(s);
    }
    bq_stream_close(NULL);
}

/* ---- connect(2) meeting itself ----------------------------------------------------------------------------------------- */

int __real_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);

static bool meet_itself;

/* Chance made certain: the socket gets the very port that it is about to connect to. */
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
    if (meet_itself)
        assert_int_equal(bind(fd, address, len), 0);
    return __real_connect(fd, address, len);
}

static void a_socket_that_meets_itself(void **state)
{
    (void)state;
    bq_error err;
    bq_stream_config config = tcp("127.0.0.1", closed_port());
    bq_stream *s = open_stream(&config);
    meet_itself = true;
    bq_status status = run_until(s, is_open, NULL, &err);
    meet_itself = false;
    expect_failure(status, BQ_UNAVAILABLE, &err, "Connection refused");
    bq_stream_close(s);
}

/* ---- allocation failures ----------------------------------------------------------------------------------------------- */

/* Both sides on one thread, so that the allocations come in the same order each time. */
static bq_status talk_once(void *arg)
{
    int listener = *(int *)arg, port = ((int *)arg)[1], other = -1;
    bq_stream_config config = tcp("127.0.0.1", port);
    bq_stream *s;
    bq_error err;
    size_t want = 30000;
    char *bytes = malloc(want);
    fill_pattern(bytes, 0, want);
    bq_status status = bq_stream_open(&s, &config, &err);
    if (status == BQ_OK)
        status = bq_stream_write(s, (bq_str){bytes, 3000}, &err);
    if (status == BQ_OK)
        status = run_until(s, all_sent, NULL, &err);
    if (status == BQ_OK) {
        other = accept(listener, NULL, NULL);
        assert_true(recv_all(other, bytes, 3000));
        expect_pattern(bytes, 0, 3000);
        status = bq_stream_write(s, (bq_str){bytes, want}, &err);
    }
    if (status == BQ_OK) {
        fill_pattern(bytes, 0, want);
        assert_true(send_all(other, bytes, want));
        status = run_until(s, has_input, &want, &err);
    }
    if (other < 0) /* one that came as far as the backlog would be met by the next round */
        while (poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0) > 0)
            close(accept(listener, NULL, NULL));
    else
        close(other);
    bq_stream_close(s);
    free(bytes);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    int place[2];
    place[0] = listen_at("127.0.0.1", 16, &place[1]);
    assert_true(alloc_fail_each("stream", talk_once, place) >= 5);
    close(place[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reaches_every_kind_of_peer, give_lookup_back),
        cmocka_unit_test(reaches_a_unix_socket),
        cmocka_unit_test(sockets_are_set_up),
        cmocka_unit_test(a_peer_that_dribbles),
        cmocka_unit_test(input_stops_at_its_ceiling),
        cmocka_unit_test(one_service_reads_a_bounded_amount),
        cmocka_unit_test(a_peer_that_ends_in_the_middle),
        cmocka_unit_test(a_peer_that_resets),
        cmocka_unit_test(a_peer_that_reads_byte_by_byte),
        cmocka_unit_test(output_stops_at_its_ceiling),
        cmocka_unit_test(an_idle_loop_does_not_spin_on_blocked_output),
        cmocka_unit_test(half_a_close),
        cmocka_unit_test(no_sigpipe),
        cmocka_unit_test(the_last_words_of_a_peer_are_heard),
        cmocka_unit_test(idle_connections_keep_little),
        cmocka_unit_test(a_closed_port),
        cmocka_unit_test(a_peer_that_does_not_answer),
        cmocka_unit_test_teardown(every_address_is_tried, give_lookup_back),
        cmocka_unit_test_teardown(a_name_service_that_does_not_answer, give_lookup_back),
        cmocka_unit_test_teardown(a_name_that_is_none, give_lookup_back),
        cmocka_unit_test(unix_sockets_that_fail),
        cmocka_unit_test(a_unix_socket_with_a_full_backlog),
        cmocka_unit_test(configs_that_make_no_sense),
        cmocka_unit_test(a_socket_that_meets_itself),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
