/*
 * bench/local.c - how fast messages go through the embedded transports, from publish to settled, through the public
 * API alone. One measurement per run; run-local makes the runs and says what they mean together.
 *
 *     bench-local publish URL COUNT                    published in batches, asynchronously, confirmed
 *     bench-local work URL COUNT HANDLERS PREFETCH     a filled queue worked until it is empty, trivial handlers
 *     bench-local defer URL COUNT HANDLERS PREFETCH    the same, settled later from another thread
 *     bench-local flow URL COUNT                       published and worked at the same time; RSS after 10 % and at
 *                                                      the end
 *     bench-local reserve URL COUNT PROCESSES          processes side by side on one file, a message at a time: the
 *                                                      time from one message's end to the next one's start
 *
 * Prints one JSON object.
 */
#include <babelqueue/babelqueue.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char DATA[] = "{\"order_id\":1042,\"currency\":\"EUR\",\"total\":129.90,\"customer\":{\"id\":\"c-77310\","
                           "\"name\":\"Anna Lindstr\xc3\xb6m\"},\"lines\":[{\"sku\":\"A-100\",\"quantity\":2}]}";

enum { BACKLOG = 5000 };

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what, const bq_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

static long rss_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%*s %ld", &pages) != 1)
            pages = 0;
        fclose(f);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* ---- publishing ------------------------------------------------------------------------------------------------------ */

static atomic_ulong failures;

static void confirmed(bq_status status, const char *id, const bq_error *err, void *arg)
{
    (void)id;
    (void)arg;
    if (status && atomic_fetch_add(&failures, 1) == 0)
        fprintf(stderr, "publish: %s\n", err->text);
}

static bq_publisher *publisher(const char *url, size_t max_in_flight)
{
    bq_publisher_options o = BQ_PUBLISHER_OPTIONS_INIT;
    o.max_in_flight = max_in_flight;
    bq_error err;
    bq_publisher *p;
    if (bq_publisher_open(&p, url, &o, &err))
        die("open", &err);
    if (bq_publisher_wait(p, 10000, &err))
        die("connect", &err);
    return p;
}

static void publish_some(bq_publisher *p, unsigned long count)
{
    bq_error err;
    bq_message_spec m = BQ_MESSAGE_SPEC_INIT;
    m.queue = BQ_STR("bench");
    m.urn = BQ_STR("urn:babel:orders:created");
    m.data = (bq_str){DATA, sizeof DATA - 1};
    for (unsigned long i = 0; i < count; i++)
        if (bq_publish_async(p, &m, confirmed, NULL, &err))
            die("publish", &err);
}

static void flush(bq_publisher *p)
{
    bq_error err;
    if (bq_publisher_flush(p, 600000, &err))
        die("flush", &err);
    if (atomic_load(&failures))
        exit(1);
}

static void fill(const char *url, unsigned long count)
{
    bq_publisher *p = publisher(url, 0);
    publish_some(p, count);
    flush(p);
    bq_publisher_close(p, 1000);
}

static int run_publish(const char *url, unsigned long count)
{
    bq_publisher *p = publisher(url, 0);
    double began = now();
    publish_some(p, count);
    flush(p);
    double took = now() - began;
    bq_publisher_close(p, 1000);
    printf("{\"what\":\"publish\",\"count\":%lu,\"seconds\":%.3f,\"per_second\":%.0f}\n", count, took,
           (double)count / took);
    return 0;
}

/* ---- working ----------------------------------------------------------------------------------------------------------- */

typedef struct later {
    pthread_mutex_t lock;
    pthread_cond_t some;
    bq_delivery **items;
    size_t count, cap;
    bool over;
} later;

static bq_outcome trivial(bq_delivery *d, void *arg)
{
    atomic_ulong *n = arg;
    if (!bq_delivery_data(d).len)
        return BQ_FAILED;
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
    return BQ_DONE;
}

static bq_outcome defer(bq_delivery *d, void *arg)
{
    later *l = arg;
    pthread_mutex_lock(&l->lock);
    if (l->count == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 1024;
        l->items = realloc(l->items, l->cap * sizeof *l->items);
        if (!l->items)
            abort();
    }
    l->items[l->count++] = d;
    if (l->count == 1)
        pthread_cond_signal(&l->some);
    pthread_mutex_unlock(&l->lock);
    return BQ_DEFERRED;
}

static void *settler(void *arg)
{
    later *l = arg;
    bq_delivery **mine = NULL;
    size_t cap = 0;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->count && !l->over)
            pthread_cond_wait(&l->some, &l->lock);
        if (!l->count)
            break;
        size_t n = l->count;
        if (n > cap) {
            cap = n;
            mine = realloc(mine, cap * sizeof *mine);
            if (!mine)
                abort();
        }
        memcpy(mine, l->items, n * sizeof *mine);
        l->count = 0;
        pthread_mutex_unlock(&l->lock);
        for (size_t i = 0; i < n; i++)
            bq_delivery_settle(mine[i], BQ_DONE);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    free(mine);
    return NULL;
}

static void options(bq_consumer_options *o, bq_handler handler, void *arg)
{
    static const char *const queues[] = {"bench"};
    BQ_CONSUMER_OPTIONS_INIT(o);
    o->queues = queues;
    o->queue_count = 1;
    o->any = handler;
    o->any_arg = arg;
}

static bq_consumer *consumer(const char *url, const bq_consumer_options *o)
{
    bq_error err;
    bq_consumer *c;
    if (bq_consumer_open(&c, url, o, &err))
        die("open", &err);
    return c;
}

static int run_work(const char *url, unsigned long count, int handlers, int prefetch, bool deferred)
{
    atomic_ulong handled = 0;
    later l = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    bq_error err;
    bq_consumer_options o;
    bq_metrics m;
    fill(url, count);
    options(&o, deferred ? defer : trivial, deferred ? (void *)&l : (void *)&handled);
    o.concurrency = handlers;
    o.prefetch = prefetch;
    o.max_messages = count;
    if (deferred)
        pthread_create(&thread, NULL, settler, &l);
    double began = now();
    bq_consumer *c = consumer(url, &o);
    if (bq_consumer_wait(c, 600000, &err))
        die("work", &err);
    double took = now() - began;
    bq_consumer_metrics(c, &m);
    bq_consumer_close(c);
    if (deferred) {
        pthread_mutex_lock(&l.lock);
        l.over = true;
        pthread_cond_signal(&l.some);
        pthread_mutex_unlock(&l.lock);
        pthread_join(thread, NULL);
        free(l.items);
    }
    if (m.acked != count) {
        fprintf(stderr, "work: %" PRIu64 " of %lu acknowledged\n", m.acked, count);
        return 1;
    }
    printf("{\"what\":\"%s\",\"count\":%lu,\"handlers\":%d,\"prefetch\":%d,\"seconds\":%.3f,\"per_second\":%.0f}\n",
           deferred ? "defer" : "work", count, handlers, prefetch, took, (double)count / took);
    return 0;
}

/* ---- both at once ------------------------------------------------------------------------------------------------------ */

static int run_flow(const char *url, unsigned long count)
{
    atomic_ulong handled = 0;
    bq_consumer_options o;
    long early = 0, late;
    options(&o, trivial, &handled);
    o.concurrency = 2;
    o.prefetch = 1000;
    double began = now();
    bq_publisher *p = publisher(url, 1000);
    unsigned long done = count < BACKLOG ? count : BACKLOG;
    publish_some(p, done);
    flush(p); /* the backlog is as long as it will ever be, so that what grows later is not the backlog */
    bq_consumer *c = consumer(url, &o);
    while (done < count) {
        while (done - atomic_load(&handled) > BACKLOG - 500)
            usleep(500);
        unsigned long n = count - done < 500 ? count - done : 500;
        publish_some(p, n);
        done += n;
        if (!early && done >= count / 10)
            early = rss_kib();
    }
    flush(p);
    while (atomic_load(&handled) < count)
        usleep(500);
    double took = now() - began;
    late = rss_kib();
    bq_publisher_close(p, 1000);
    bq_consumer_close(c);
    printf("{\"what\":\"flow\",\"count\":%lu,\"seconds\":%.3f,\"per_second\":%.0f,\"rss_kib_at_10_percent\":%ld,"
           "\"rss_kib_at_end\":%ld,\"grown_kib\":%ld}\n",
           count, took, (double)count / took, early, late, late - early);
    return 0;
}

/* ---- processes side by side ---------------------------------------------------------------------------------------------- */

typedef struct gaps {
    float *ms;
    size_t count, cap;
    double left;
} gaps;

static bq_outcome timed(bq_delivery *d, void *arg)
{
    gaps *g = arg;
    double at = now();
    (void)d;
    if (g->left > 0 && g->count < g->cap)
        g->ms[g->count++] = (float)((at - g->left) * 1000);
    g->left = now();
    return BQ_DONE;
}

static int child(const char *url, unsigned long count, int out)
{
    gaps g = {.cap = count};
    bq_error err;
    bq_consumer_options o;
    g.ms = malloc(count * sizeof *g.ms);
    if (!g.ms)
        return 1;
    options(&o, timed, &g);
    o.prefetch = 1;
    o.drain = 1;
    bq_consumer *c = consumer(url, &o);
    bq_status st = bq_consumer_wait(c, 600000, &err);
    bq_consumer_close(c);
    size_t bytes = g.count * sizeof *g.ms;
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(out, (const char *)g.ms + at, bytes - at);
        if (n < 0)
            return 1;
        at += (size_t)n;
    }
    free(g.ms);
    return st != BQ_OK;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { PROCESSES_MAX = 64 };

static bool start_children(const char *url, unsigned long count, int processes, int outs[])
{
    for (int i = 0; i < processes; i++) {
        int ends[2];
        if (pipe(ends))
            return false;
        if (fork() == 0) {
            close(ends[0]);
            _exit(child(url, count, ends[1]));
        }
        close(ends[1]);
        outs[i] = ends[0];
    }
    return true;
}

/* What one child measured, appended to `all`. Returns how many. */
static size_t collect(int out, float *all, size_t room)
{
    size_t got = 0;
    ssize_t n;
    while (got < room * sizeof *all && (n = read(out, (char *)all + got, room * sizeof *all - got)) > 0)
        got += (size_t)n;
    close(out);
    return got / sizeof *all;
}

static int run_reserve(const char *url, unsigned long count, int processes)
{
    int outs[PROCESSES_MAX], bad = 0, status;
    size_t total = 0, least = SIZE_MAX, most = 0;
    if (processes < 1 || processes > PROCESSES_MAX)
        return 64;
    float *all = malloc(count * sizeof *all);
    pid_t filler = fork(); /* a connection must not be open on both sides of the forks to come */
    if (filler == 0) {
        fill(url, count);
        _exit(0);
    }
    waitpid(filler, NULL, 0);
    double began = now();
    if (!all || !start_children(url, count, processes, outs))
        return 1;
    for (int i = 0; i < processes; i++) {
        size_t n = collect(outs[i], all + total, count - total);
        total += n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    while (wait(&status) > 0)
        bad += !WIFEXITED(status) || WEXITSTATUS(status);
    double took = now() - began;
    if (bad || total == 0)
        return 1;
    qsort(all, total, sizeof *all, by_value);
    printf("{\"what\":\"reserve\",\"count\":%lu,\"processes\":%d,\"seconds\":%.3f,\"per_second\":%.0f,\"p50_ms\":%.2f,"
           "\"p99_ms\":%.2f,\"max_ms\":%.2f,\"least\":%zu,\"most\":%zu}\n",
           count, processes, took, (double)count / took, (double)all[total / 2], (double)all[total * 99 / 100],
           (double)all[total - 1], least, most);
    free(all);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench-local publish|work|defer|flow|reserve URL COUNT [...]\n");
        return 64;
    }
    const char *what = argv[1], *url = argv[2];
    unsigned long count = strtoul(argv[3], NULL, 10);
    int a = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 1, b = argc > 5 ? (int)strtol(argv[5], NULL, 10) : 0;
    if (!count)
        return 64;
    if (strcmp(what, "publish") == 0)
        return run_publish(url, count);
    if (strcmp(what, "work") == 0 || strcmp(what, "defer") == 0)
        return run_work(url, count, a, b, what[0] == 'd');
    if (strcmp(what, "flow") == 0)
        return run_flow(url, count);
    if (strcmp(what, "reserve") == 0)
        return run_reserve(url, count, a);
    return 64;
}
