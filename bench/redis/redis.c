/*
 * bench/redis/redis.c - one measurement on a Redis server: of the library through its public API, or of a raw client
 * that does the least that could do the same work.
 *
 *     bench-redis publish URL QUEUE SIZE COUNT           published asynchronously, confirmed
 *     bench-redis one URL QUEUE SIZE COUNT               published one at a time, each awaited
 *     bench-redis work URL QUEUE COUNT HANDLERS PREFETCH worked until COUNT are done
 *     bench-redis held URL QUEUE COUNT                   says "held" when COUNT messages are in hand; then acknowledges
 *                                                        one for each line of its input, and prints the ms it took
 *     bench-redis raw-push PORT QUEUE SIZE COUNT BATCH   RPUSH of one body each, pipelined by BATCH
 *     bench-redis raw-one PORT QUEUE SIZE COUNT          RPUSH, awaited each
 *     bench-redis raw-work PORT QUEUE COUNT BATCH [lean] the driver's own scripts, BATCH reserved and settled at a time,
 *                                                        the next batch asked for before this one is settled
 *     bench-redis raw-serial PORT QUEUE COUNT            the same, one at a time, each answer awaited: two round trips
 *     bench-redis raw-hold PORT QUEUE COUNT BATCH [lean] reserves COUNT and leaves them so
 *
 * Prints messages per second. "lean": scripts whose deadlines hold the token alone instead of a second copy of the body,
 * which no peer would understand: what the layout's copy costs is the difference.
 */
#include "bench.h"

#include <babelqueue/babelqueue.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

_Noreturn void bench_die(const char *what)
{
    fprintf(stderr, "bench-redis: %s\n", what);
    exit(1);
}

void bench_report(long count, double start)
{
    printf("%.0f\n", (double)count / (bench_now() - start));
}

/* `data` such that the whole body has about `size` bytes. */
char *bench_data(size_t size)
{
    size_t fill = size > 250 ? size - 240 : 10;
    char *data = malloc(fill + 32);
    if (!data)
        bench_die("no memory");
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
        bench_die(err->text);
}

static void publish(char **argv, bool one_by_one)
{
    bq_error err;
    bq_publisher *p;
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    long count = strtol(argv[5], NULL, 10);
    char *data = bench_data((size_t)strtol(argv[4], NULL, 10));
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = bq_str_of(argv[3]);
    m.urn = BQ_STR("urn:babel:orders:created");
    m.data = bq_str_of(data);
    if (bq_publisher_open(&p, argv[2], &o, &err) || bq_publisher_wait(p, 10000, &err))
        bench_die(err.text);
    double start = bench_now();
    for (long i = 0; i < count; i++) {
        if (bq_publish_async(p, &m, confirmed, NULL, &err) || (one_by_one && bq_publisher_flush(p, 60000, &err)))
            bench_die(err.text);
    }
    if (bq_publisher_flush(p, 600000, &err))
        bench_die(err.text);
    bench_report(count, start);
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
    double start = bench_now();
    if (bq_consumer_open(&consumer, argv[2], &o, &err) || bq_consumer_wait(consumer, -1, &err))
        bench_die(err.text);
    bench_report(count, start);
    bq_consumer_close(consumer);
}

/* ---- acknowledges, one for each line --------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long in_hand, allowed;
static double returned;

static bq_outcome hold(bq_delivery *delivery, void *arg)
{
    (void)delivery;
    (void)arg;
    pthread_mutex_lock(&lock);
    in_hand++;
    pthread_cond_broadcast(&changed);
    while (allowed == 0)
        pthread_cond_wait(&changed, &lock);
    allowed--;
    returned = bench_now();
    pthread_mutex_unlock(&lock);
    return BQ_DONE;
}

static void held(char **argv)
{
    bq_error err;
    bq_consumer *consumer;
    bq_consumer_options o;
    bq_metrics metrics;
    const char *queue = argv[3];
    char line[16];
    long count = strtol(argv[4], NULL, 10);
    BQ_CONSUMER_OPTIONS_INIT(&o);
    o.queues = &queue;
    o.queue_count = 1;
    o.concurrency = (int)count;
    o.prefetch = (int)count;
    o.any = hold;
    if (bq_consumer_open(&consumer, argv[2], &o, &err))
        bench_die(err.text);
    pthread_mutex_lock(&lock);
    while (in_hand < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    puts("held");
    fflush(stdout);
    for (uint64_t done = 1; done <= (uint64_t)count && fgets(line, sizeof line, stdin); done++) {
        pthread_mutex_lock(&lock);
        allowed++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        do
            bq_consumer_metrics(consumer, &metrics);
        while (metrics.acked < done);
        double end = bench_now();
        pthread_mutex_lock(&lock);
        printf("%.3f\n", (end - returned) * 1000);
        pthread_mutex_unlock(&lock);
        fflush(stdout);
    }
    bq_consumer_close(consumer);
}

int main(int argc, char **argv)
{
    const char *what = argc > 4 ? argv[1] : "";
    if (strcmp(what, "publish") == 0 || strcmp(what, "one") == 0)
        publish(argv, what[0] == 'o');
    else if (strcmp(what, "work") == 0)
        work(argv);
    else if (strcmp(what, "held") == 0)
        held(argv);
    else if (strcmp(what, "raw-push") == 0)
        raw_push(argv, strtol(argv[6], NULL, 10));
    else if (strcmp(what, "raw-one") == 0)
        raw_push(argv, 1);
    else if (strcmp(what, "raw-work") == 0)
        raw_work(argv, strtol(argv[5], NULL, 10), 1);
    else if (strcmp(what, "raw-serial") == 0)
        raw_work(argv, 1, 0);
    else if (strcmp(what, "raw-hold") == 0)
        raw_hold(argv);
    else
        bench_die("see the head of redis.c for what it measures");
    return 0;
}
