/*
 * test_redis_cut.c - the connection is cut at every byte of a settlement, on its way to the server and back: what is
 * said to be done was done, what is said to be refused was not, and never is half of it there (contract 3, 7.1).
 *
 * A thread stands between the driver and the server and passes a counted number of bytes.
 */
#include "unit/transport_kit.h"

#include "base/clock.h"
#include "unit/cmocka_all.h"
#include "unit/transport/redis_place.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS 16

static struct {
    int listener, port;
    pthread_t thread;
    atomic_bool stop;
    /* Bytes that still pass in each direction, of all connections; negative: no limit. 0: to the server, 1: back. */
    atomic_long budget[2];
} proxy;

typedef struct pair {
    int fd[2]; /* client, server */
} pair;

static void pair_close(pair *p)
{
    close(p->fd[0]);
    close(p->fd[1]);
    *p = (pair){{-1, -1}};
}

static void pass(pair *p, int from)
{
    char bytes[4096];
    ssize_t got = read(p->fd[from], bytes, sizeof(bytes));
    long budget = atomic_load(&proxy.budget[from]);
    size_t let = got > 0 ? (size_t)got : 0;
    if (budget >= 0 && let > (size_t)budget)
        let = (size_t)budget;
    for (size_t sent = 0; sent < let;) {
        ssize_t n = send(p->fd[!from], bytes + sent, let - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    /* Unless the test has taken the limit away meanwhile. */
    if (budget >= 0)
        (void)atomic_compare_exchange_strong(&proxy.budget[from], &budget, budget - (long)let);
    if (got <= 0 || let < (size_t)got)
        pair_close(p);
}

/* Pieces go on at once: else each waits for the other side's delayed acknowledgement. */
static void without_delay(int fd)
{
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static int dial(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    without_delay(fd);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void *proxy_main(void *arg)
{
    pair pairs[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        pairs[i] = (pair){{-1, -1}};
    while (!atomic_load(&proxy.stop)) {
        struct pollfd fds[1 + 2 * PAIRS];
        fds[0] = (struct pollfd){.fd = proxy.listener, .events = POLLIN};
        for (int i = 0; i < 2 * PAIRS; i++)
            fds[1 + i] = (struct pollfd){.fd = pairs[i / 2].fd[i % 2], .events = POLLIN};
        if (poll(fds, 1 + 2 * PAIRS, 20) <= 0)
            continue;
        for (int i = 0; i < 2 * PAIRS; i++)
            if (fds[1 + i].revents && pairs[i / 2].fd[i % 2] == fds[1 + i].fd && fds[1 + i].fd >= 0)
                pass(&pairs[i / 2], i % 2);
        if (!fds[0].revents)
            continue;
        int fd = accept(proxy.listener, NULL, NULL), slot = 0;
        while (slot < PAIRS && pairs[slot].fd[0] >= 0)
            slot++;
        without_delay(fd);
        if (fd >= 0 && slot < PAIRS)
            pairs[slot] = (pair){{fd, dial(redis_port())}};
        else
            close(fd);
    }
    for (int i = 0; i < PAIRS; i++)
        pair_close(&pairs[i]);
    return arg;
}

static int proxy_start(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(proxy.listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(proxy.listener, 64), 0);
    assert_int_equal(getsockname(proxy.listener, (struct sockaddr *)&at, &size), 0);
    proxy.port = ntohs(at.sin_port);
    atomic_store(&proxy.budget[0], -1);
    atomic_store(&proxy.budget[1], -1);
    return pthread_create(&proxy.thread, NULL, proxy_main, NULL);
}

static int proxy_stop(void **state)
{
    (void)state;
    atomic_store(&proxy.stop, true);
    close(proxy.listener);
    return pthread_join(proxy.thread, NULL);
}

/* ---- the cuts ------------------------------------------------------------------------------------------------------ */

typedef struct layout {
    const char *scheme;
    const char *options;
    const char *ready, *busy, *dead; /* commands that count */
} layout;

static const layout LIST = {"redis", "", "LLEN q", "ZCARD q:processing:deadlines", "LLEN q.dlq"};
static const layout LARAVEL = {"redis", "layout=laravel", "ZCARD queues:q:delayed", "ZCARD queues:q:reserved",
                               "LLEN queues:q.dlq"};

static const layout BULLMQ = {"bullmq", "attempts=3&backoff=fixed:1h", "ZCARD bull:q:delayed", "LLEN bull:q:active",
                              "ZCARD bull:q:failed"};

static int counted(const char *command)
{
    const char *reply = redis_do(command);
    assert_true(*reply == ':');
    return (int)strtol(reply + 1, NULL, 10);
}

/* True: done; false: not done. Anything else fails. */
static bool was_done(const layout *l, bq_op_kind kind)
{
    int ready = counted(l->ready), busy = counted(l->busy), dead = counted(l->dead);
    bool done = busy == 0 && ready == (kind == BQ_OP_RETRY || kind == BQ_OP_NATIVE_RETRY) &&
                dead == (kind == BQ_OP_DEAD_LETTER || kind == BQ_OP_REJECT);
    bool untouched = busy == 1 && ready == 0 && dead == 0;
    if (done == untouched)
        fail_msg("half done: %d ready, %d in hand, %d dead", ready, busy, dead);
    if (l == &LIST)
        assert_int_equal(counted("LLEN q:processing"), busy);
    return done;
}

static bool cut_once(const layout *l, bq_op_kind kind, int direction, long at)
{
    char url[256];
    kit_client c;
    redis_scheme(l->scheme);
    redis_options(l->options);
    const char *place = redis_place("");
    const char *rest = strchr(strstr(place, "://") + 3, '/');
    (void)snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s%sreconnect_min=1ms&timeout=5s", l->scheme, proxy.port, rest,
                   strchr(rest, '?') ? "&" : "?");
    kit_open(&c, url, KIT_BOTH, 1, "q");
    /* Twice, so that the scripts are loaded and the settlement is one command. */
    kit_assert_ok(kit_publish(&c, "q", "first"));
    kit_assert_ok(kit_settle(&c, BQ_OP_ACK, kit_expect(&c, "first")));
    kit_assert_ok(kit_publish(&c, "q", "{\"job\":\"urn:x\",\"attempts\":0}"));
    bq_incoming *in = kit_expect(&c, NULL);
    c.want = 0;
    kit_op op = kit_make(kind, in);
    op.op.out.delay_ms = kind == BQ_OP_NATIVE_RETRY ? -1 : op.op.out.delay_ms;
    op.op.out.queue = kind == BQ_OP_DEAD_LETTER ? BQ_STR("q.dlq") : BQ_STR("q");
    op.op.out.body = BQ_STR("{\"job\":\"urn:x\",\"attempts\":1}");
    atomic_store(&proxy.budget[direction], at);
    bq_status status = kit_do_one(&c, &op);
    bool cut = atomic_load(&proxy.budget[direction]) == 0 && c.down > 0;
    atomic_store(&proxy.budget[direction], -1);
    bool done = was_done(l, kind);
    if (status == BQ_OK)
        assert_true(done);
    else if (status == BQ_REFUSED)
        assert_false(done);
    else
        assert_int_equal(status, BQ_UNKNOWN);
    if (direction == 1 && cut)
        assert_true(done); /* only its confirmation was lost */
    c.want = 1;
    if (status != BQ_OK) { /* still held: the same again is done once, or finds it done */
        int64_t end = bq_now_ms() + KIT_PATIENCE_MS;
        do {
            kit_await_up(&c);
            op = kit_make(BQ_OP_ACK, in);
            status = kit_do_one(&c, &op);
            assert_true(bq_now_ms() < end);
        } while (status == BQ_REFUSED || status == BQ_UNKNOWN);
        assert_int_equal(status, done ? BQ_LOST : BQ_OK);
        assert_int_equal(counted(l->busy), 0);
    }
    kit_close(&c);
    return cut;
}

static void cut_everywhere(const layout *l, bq_op_kind kind)
{
    for (int direction = 0; direction < 2; direction++) {
        long at = 0;
        while (cut_once(l, kind, direction, at))
            at++;
        assert_true(at > (direction == 0 ? 140 : 10)); /* the whole command was gone through */
    }
}

static void acknowledge(void **state)
{
    (void)state;
    cut_everywhere(&LIST, BQ_OP_ACK);
}

static void retry(void **state)
{
    (void)state;
    cut_everywhere(&LIST, BQ_OP_RETRY);
}

static void dead_letter(void **state)
{
    (void)state;
    cut_everywhere(&LIST, BQ_OP_DEAD_LETTER);
}

static void laravel_retry(void **state)
{
    (void)state;
    cut_everywhere(&LARAVEL, BQ_OP_RETRY);
}

static void laravel_dead_letter(void **state)
{
    (void)state;
    cut_everywhere(&LARAVEL, BQ_OP_DEAD_LETTER);
}

static void bullmq_completes(void **state)
{
    (void)state;
    cut_everywhere(&BULLMQ, BQ_OP_ACK);
}

static void bullmq_retries(void **state)
{
    (void)state;
    cut_everywhere(&BULLMQ, BQ_OP_NATIVE_RETRY);
}

static void bullmq_fails(void **state)
{
    (void)state;
    cut_everywhere(&BULLMQ, BQ_OP_REJECT);
}

int main(void)
{
    redis_places(21, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledge),         cmocka_unit_test(retry),
        cmocka_unit_test(dead_letter),         cmocka_unit_test(laravel_retry),
        cmocka_unit_test(laravel_dead_letter), cmocka_unit_test(bullmq_completes),
        cmocka_unit_test(bullmq_retries),      cmocka_unit_test(bullmq_fails),
    };
    return cmocka_run_group_tests(tests, proxy_start, proxy_stop);
}
