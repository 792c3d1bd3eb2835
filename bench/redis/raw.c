/*
 * bench/redis/raw.c - the raw client: one thread, one blocking socket, the driver's scripts with the driver's arguments,
 * and the same bytes to and fro. It parses no body, hands nothing to another thread and has no queue of its own.
 */
#include "bench.h"

#include "transport/redis/args.h"
#include "transport/redis/layout.h"
#include "transport/redis/reply.h"
#include "transport/redis/script.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
        bench_die("cannot connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void put(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n <= 0)
            bench_die("cannot write");
        text += n;
        len -= (size_t)n;
    }
}

static void send_args(rd_args *args)
{
    size_t len;
    char *text = bq_rd_args_format(args, &len);
    if (!text)
        bench_die("no memory");
    put(text, len);
    bq_rd_format_free(text);
}

static rd_reply *receive(void)
{
    static char bytes[1 << 16];
    rd_reply *reply;
    for (;;) {
        if (bq_rd_reader_next(reader, &reply, NULL))
            bench_die("no reply");
        if (reply && reply->type == RD_ERROR)
            bench_die(reply->text);
        if (reply)
            return reply;
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n <= 0 || bq_rd_reader_feed(reader, (bq_str){bytes, (size_t)n}, NULL))
            bench_die("cannot read");
    }
}

void raw_push(char **argv, long batch)
{
    long count = strtol(argv[5], NULL, 10);
    char *data = bench_data((size_t)strtol(argv[4], NULL, 10) + 230);
    rd_args args;
    size_t len;
    bq_rd_args_init(&args);
    rd_arg_lit(&args, "RPUSH");
    bq_rd_arg(&args, bq_str_of(argv[3]));
    bq_rd_arg(&args, bq_str_of(data));
    char *text = bq_rd_args_format(&args, &len), *many = malloc(len * (size_t)batch);
    if (!text || !many)
        bench_die("no memory");
    for (long i = 0; i < batch; i++)
        memcpy(many + (size_t)i * len, text, len);
    dial(argv[2]);
    double start = bench_now();
    for (long i = 0; i < count; i += batch) {
        put(many, len * (size_t)batch);
        for (long n = 0; n < batch; n++)
            bq_rd_reply_free(receive());
    }
    bench_report(count, start);
    free(many);
    bq_rd_format_free(text);
    bq_rd_args_clear(&args);
    free(data);
}

/* ---- the driver's scripts --------------------------------------------------------------------------------------------- */

static char sha1_of[RD_SCRIPTS][41];

/* The script with one piece of its text replaced; `text` is freed. */
static char *replaced(char *text, const char *piece, const char *by)
{
    char *at = strstr(text, piece), *out = malloc(strlen(text) + strlen(by) + 1);
    if (!at || !out)
        bench_die("a script is not what its lean form was made for");
    sprintf(out, "%.*s%s%s", (int)(at - text), text, by, at + strlen(piece));
    free(text);
    return out;
}

static char *text_of(rd_script script, int lean)
{
    char *text = strndup((const char *)bq_rd_scripts[script].text, bq_rd_scripts[script].len);
    if (!text)
        bench_die("no memory");
    if (lean && script == RD_LIST_RESERVE)
        return replaced(text, "string.format('%s%08x:', ARGV[4], i) .. raw", "string.format('%s%08x:', ARGV[4], i)");
    if (lean)
        return replaced(text, "ARGV[at + 1] .. ':' .. raw", "ARGV[at + 1] .. ':'");
    return text;
}

static void load(rd_script script, int lean)
{
    rd_args args;
    char *text = text_of(script, lean);
    bq_rd_args_init(&args);
    rd_arg_lit(&args, "SCRIPT");
    rd_arg_lit(&args, "LOAD");
    bq_rd_arg(&args, bq_str_of(text));
    send_args(&args);
    rd_reply *reply = receive();
    snprintf(sha1_of[script], sizeof sha1_of[script], "%s", reply->text);
    bq_rd_reply_free(reply);
    bq_rd_args_clear(&args);
    free(text);
}

static void script_head(rd_args *args, rd_script script, const char *queue)
{
    static const char *const suffixes[] = {"", ":processing", ":processing:deadlines", ":processing:lapses"};
    bq_rd_args_reset(args);
    rd_arg_lit(args, "EVALSHA");
    bq_rd_arg(args, bq_str_of(sha1_of[script]));
    rd_arg_lit(args, "4");
    for (int i = 0; i < 4; i++)
        bq_rd_arg_join(args, bq_str_of(queue), bq_str_of(suffixes[i]));
}

/* The same arguments as the driver's (list.c). */
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
    rd_arg_lit(args, "2");
    rd_arg_lit(args, "1");
    send_args(args);
}

static long settle(rd_args *args, const char *queue, const rd_reply *reply, long serial)
{
    long got = 0, count = ((long)reply->count - RD_FIRST_ITEM) / 2;
    script_head(args, RD_LIST_SETTLE, queue);
    rd_arg_lit(args, "00000000");
    rd_arg_lit(args, "90");
    for (size_t at = RD_FIRST_ITEM; at + 1 < reply->count; at += 2) {
        char token[48];
        snprintf(token, sizeof token, "1%023lx%08lx", serial, ++got);
        rd_arg_lit(args, "a");
        bq_rd_arg_join(args, bq_str_of(token), BQ_STR(""));
        bq_rd_arg(args, bq_rd_text(bq_rd_at(reply, at)));
        bq_rd_arg_int(args, bq_rd_int_at(reply, 6, 0) - count + got);
    }
    if (got > 0)
        send_args(args);
    return got;
}

/* Everything must have been ours, or something else was measured. */
static void settled(long count)
{
    rd_reply *reply = receive();
    for (long i = 1; i <= count; i++)
        if (bq_rd_int_at(reply, (size_t)i, 0) != 1)
            bench_die("a message was not settled");
    bq_rd_reply_free(reply);
}

void raw_work(char **argv, long batch, int pipelined)
{
    long count = strtol(argv[4], NULL, 10), handled = 0, serial = 1;
    int lean = pipelined && argv[6] && strcmp(argv[6], "lean") == 0;
    rd_args args;
    bq_rd_args_init(&args);
    dial(argv[2]);
    load(RD_LIST_RESERVE, lean);
    load(RD_LIST_SETTLE, lean);
    double start = bench_now();
    ask(&args, argv[3], batch, serial);
    rd_reply *reply = receive();
    for (;;) {
        long asked = serial;
        if (pipelined)
            ask(&args, argv[3], batch, ++serial);
        long got = settle(&args, argv[3], reply, asked);
        if (got == 0)
            bench_die("the queue is empty");
        bq_rd_reply_free(reply);
        if (!pipelined) {
            settled(got);
            ask(&args, argv[3], batch, ++serial);
        }
        reply = receive();
        if (pipelined)
            settled(got);
        handled += got;
        if (handled >= count)
            break;
    }
    bench_report(handled, start);
    bq_rd_reply_free(reply);
    bq_rd_args_clear(&args);
}

void raw_hold(char **argv)
{
    long count = strtol(argv[4], NULL, 10), batch = strtol(argv[5], NULL, 10), serial = 1;
    rd_args args;
    bq_rd_args_init(&args);
    dial(argv[2]);
    load(RD_LIST_RESERVE, argv[6] && strcmp(argv[6], "lean") == 0);
    double start = bench_now();
    for (long left = count; left > 0;) {
        ask(&args, argv[3], left < batch ? left : batch, serial++);
        rd_reply *reply = receive();
        long got = ((long)reply->count - RD_FIRST_ITEM) / 2;
        bq_rd_reply_free(reply);
        if (got <= 0)
            bench_die("the queue is empty");
        left -= got;
    }
    bench_report(count, start);
    bq_rd_args_clear(&args);
}
