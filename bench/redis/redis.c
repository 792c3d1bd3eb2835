/*
 * bench/redis/redis.c - one measurement on a Redis server: of the library through its public API, or of a raw client
 * that does the least that could do the same work.
 *
 *     bench-redis publish URL QUEUE SIZE COUNT          published asynchronously, confirmed
 *     bench-redis one URL QUEUE SIZE COUNT              published one at a time, each awaited
 *     bench-redis work URL QUEUE COUNT HANDLERS PREFETCH worked until COUNT are done
 *     bench-redis raw-push PORT QUEUE SIZE COUNT BATCH  RPUSH of one body each, pipelined by BATCH
 *     bench-redis raw-one PORT QUEUE SIZE COUNT         RPUSH, awaited each
 *     bench-redis raw-work PORT QUEUE COUNT BATCH       the driver's own scripts, BATCH reserved and settled at a time,
 *                                                       the next batch asked for before this one is settled
 *     bench-redis raw-serial PORT QUEUE COUNT           the same, one at a time, each answer awaited: two round trips
 *
 * Prints messages per second.
 */
#include <babelqueue/babelqueue.h>

#include "transport/redis/args.h"
#include "transport/redis/reply.h"
#include "transport/redis/script.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what)
{
    fprintf(stderr, "bench-redis: %s\n", what);
    exit(1);
}

static void report(long count, double start)
{
    printf("%.0f\n", (double)count / (now() - start));
}

/* `data` such that the whole body has about `size` bytes. */
static char *make_data(size_t size)
{
    size_t fill = size > 250 ? size - 240 : 10;
    char *data = malloc(fill + 32);
    if (!data)
        die("no memory");
    memcpy(data, "{\"text\":\"", 9);
    for (size_t i = 0; i < fill; i++)
        data[9 + i] = (char)('a' + i % 26);
    memcpy(data + 9 + fill, "\"}", 3);
    return data;
}

/* ---- the library -------------------------------------------------------------------------------------------------------- */

static void confirmed(bq_status status, const char *id, const bq_error *err, void *arg)
{
    (void)id;
    (void)arg;
    if (status)
        die(err->text);
}

static void publish(char **argv, bool one_by_one)
{
    bq_error err;
    bq_publisher *p;
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    long count = strtol(argv[5], NULL, 10);
    char *data = make_data((size_t)strtol(argv[4], NULL, 10));
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = bq_str_of(argv[3]);
    m.urn = BQ_STR("urn:babel:orders:created");
    m.data = bq_str_of(data);
    if (bq_publisher_open(&p, argv[2], &o, &err) || bq_publisher_wait(p, 10000, &err))
        die(err.text);
    double start = now();
    for (long i = 0; i < count; i++) {
        if (bq_publish_async(p, &m, confirmed, NULL, &err) || (one_by_one && bq_publisher_flush(p, 60000, &err)))
            die(err.text);
    }
    if (bq_publisher_flush(p, 600000, &err))
        die(err.text);
    report(count, start);
    bq_publisher_close(p, 1000);
    free(data);
}

static bq_outcome handle(bq_delivery *delivery, void *arg)
{
    (void)delivery;
    (void)arg;
    return BQ_DONE;
}

static void work(char **argv)
{
    bq_error err;
    bq_consumer *consumer;
    bq_consumer_options o;
    const char *queue = argv[3];
    long count = strtol(argv[4], NULL, 10);
    BQ_CONSUMER_OPTIONS_INIT(&o);
    o.queues = &queue;
    o.queue_count = 1;
    o.concurrency = (int)strtol(argv[5], NULL, 10);
    o.prefetch = (int)strtol(argv[6], NULL, 10);
    o.max_messages = (uint64_t)count;
    o.any = handle;
    double start = now();
    if (bq_consumer_open(&consumer, argv[2], &o, &err) || bq_consumer_wait(consumer, -1, &err))
        die(err.text);
    report(count, start);
    bq_consumer_close(consumer);
}

/* ---- the raw client ------------------------------------------------------------------------------------------------------- */

static int fd;
static rd_reader *reader;

static void dial(const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
    int yes = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    reader = bq_rd_reader_new();
    if (fd < 0 || !reader || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("cannot connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void put(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n <= 0)
            die("cannot write");
        text += n;
        len -= (size_t)n;
    }
}

static void send_args(rd_args *args)
{
    size_t len;
    char *text = bq_rd_args_format(args, &len);
    if (!text)
        die("no memory");
    put(text, len);
    bq_rd_format_free(text);
}

static rd_reply *receive(void)
{
    static char bytes[1 << 16];
    rd_reply *reply;
    for (;;) {
        if (bq_rd_reader_next(reader, &reply, NULL))
            die("no reply");
        if (reply && reply->type == RD_ERROR)
            die(reply->text);
        if (reply)
            return reply;
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n <= 0 || bq_rd_reader_feed(reader, (bq_str){bytes, (size_t)n}, NULL))
            die("cannot read");
    }
}

static void raw_push(char **argv, long batch)
{
    long count = strtol(argv[5], NULL, 10);
    char *data = make_data((size_t)strtol(argv[4], NULL, 10) + 230);
    rd_args args;
    size_t len;
    bq_rd_args_init(&args);
    rd_arg_lit(&args, "RPUSH");
    bq_rd_arg(&args, bq_str_of(argv[3]));
    bq_rd_arg(&args, bq_str_of(data));
    char *text = bq_rd_args_format(&args, &len), *many = malloc(len * (size_t)batch);
    if (!text || !many)
        die("no memory");
    for (long i = 0; i < batch; i++)
        memcpy(many + (size_t)i * len, text, len);
    dial(argv[2]);
    double start = now();
    for (long i = 0; i < count; i += batch) {
        put(many, len * (size_t)batch);
        for (long n = 0; n < batch; n++)
            bq_rd_reply_free(receive());
    }
    report(count, start);
    free(many);
    bq_rd_format_free(text);
    bq_rd_args_clear(&args);
    free(data);
}

static void load(rd_script script)
{
    rd_args args;
    bq_rd_args_init(&args);
    rd_arg_lit(&args, "SCRIPT");
    rd_arg_lit(&args, "LOAD");
    bq_rd_arg(&args, (bq_str){(const char *)bq_rd_scripts[script].text, bq_rd_scripts[script].len});
    send_args(&args);
    bq_rd_reply_free(receive());
    bq_rd_args_clear(&args);
}

static void script_head(rd_args *args, rd_script script, const char *queue)
{
    static const char *const suffixes[] = {"", ":processing", ":processing:deadlines", ":processing:lapses"};
    bq_rd_args_reset(args);
    rd_arg_lit(args, "EVALSHA");
    bq_rd_arg(args, (bq_str){bq_rd_scripts[script].sha1, 40});
    rd_arg_lit(args, "4");
    for (int i = 0; i < 4; i++)
        bq_rd_arg_join(args, bq_str_of(queue), bq_str_of(suffixes[i]));
}

static void ask(rd_args *args, const char *queue, long batch, long serial)
{
    char token[32];
    snprintf(token, sizeof token, "1%023lx", serial);
    script_head(args, RD_LIST_RESERVE, queue);
    rd_arg_lit(args, "90");
    bq_rd_arg_int(args, batch);
    rd_arg_lit(args, "4194304");
    bq_rd_arg_join(args, bq_str_of(token), BQ_STR(""));
    rd_arg_lit(args, "1000");
    rd_arg_lit(args, "86400");
    rd_arg_lit(args, "0");
    send_args(args);
}

static long settle(rd_args *args, const char *queue, const rd_reply *reply, long serial)
{
    long got = 0;
    script_head(args, RD_LIST_SETTLE, queue);
    rd_arg_lit(args, "00000000");
    rd_arg_lit(args, "90");
    for (size_t at = 5; at + 1 < reply->count; at += 2) {
        char token[48];
        snprintf(token, sizeof token, "1%023lx%08lx", serial, ++got);
        rd_arg_lit(args, "a");
        bq_rd_arg_join(args, bq_str_of(token), BQ_STR(""));
        bq_rd_arg(args, bq_rd_text(bq_rd_at(reply, at)));
    }
    if (got > 0)
        send_args(args);
    return got;
}

static void raw_work(char **argv, long batch, bool pipelined)
{
    long count = strtol(argv[4], NULL, 10), handled = 0, serial = 1;
    rd_args args;
    bq_rd_args_init(&args);
    dial(argv[2]);
    load(RD_LIST_RESERVE);
    load(RD_LIST_SETTLE);
    double start = now();
    ask(&args, argv[3], batch, serial);
    rd_reply *reply = receive();
    while (handled < count) {
        long asked = serial;
        if (pipelined)
            ask(&args, argv[3], batch, ++serial);
        long got = settle(&args, argv[3], reply, asked);
        if (got == 0)
            die("the queue is empty");
        bq_rd_reply_free(reply);
        reply = NULL;
        if (!pipelined) {
            bq_rd_reply_free(receive());
            if (handled + got < count)
                ask(&args, argv[3], batch, ++serial);
        }
        handled += got;
        if (handled < count) {
            reply = receive();
            if (pipelined)
                bq_rd_reply_free(receive());
        }
    }
    report(handled, start);
    bq_rd_reply_free(reply);
    bq_rd_args_clear(&args);
}

int main(int argc, char **argv)
{
    const char *what = argc > 4 ? argv[1] : "";
    if (strcmp(what, "publish") == 0 || strcmp(what, "one") == 0)
        publish(argv, what[0] == 'o');
    else if (strcmp(what, "work") == 0)
        work(argv);
    else if (strcmp(what, "raw-push") == 0)
        raw_push(argv, strtol(argv[6], NULL, 10));
    else if (strcmp(what, "raw-one") == 0)
        raw_push(argv, 1);
    else if (strcmp(what, "raw-work") == 0)
        raw_work(argv, strtol(argv[5], NULL, 10), true);
    else if (strcmp(what, "raw-serial") == 0)
        raw_work(argv, 1, false);
    else
        die("see the head of redis.c for what it measures");
    return 0;
}
