/*
 * bench/codec/codec.c - decode + verdict + URN beside other parsers and the Python peer, in one program.
 *
 *   codec [-r ROUNDS] [-c CORE] [-p "python3 peer.py"] BODY.json... MANY.jsonl...
 *
 * Every round gives each contestant one batch of about a millisecond, one after the other, so that what disturbs the
 * machine disturbs all of them; a ratio is taken within a round, and what is printed is the median of the rounds'
 * ratios with the smallest and the largest. A `.jsonl` file holds distinct messages, one a line, read in turn: on one
 * repeated body the branch predictor learns the body by heart.
 * The peer is a process that is told over a pipe which body to read how often and answers with its own nanoseconds.
 */
#include "bench.h"

#include <babelqueue/envelope.h>

#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 99, MAX_CONTESTANTS = 16, BATCH_NS = 1500000 };

typedef struct messages {
    char *bytes;
    size_t *off; /* count + 1 */
    size_t count, largest, total;
} messages;

typedef struct entrant {
    const char *name;
    const contestant *c; /* NULL: the peer's command `verb` */
    const char *verb;
    void *state;
    uint64_t batch;
    double ns[MAX_ROUNDS];
} entrant;

static FILE *peer_in, *peer_out;
static volatile uint64_t sink;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- input ----------------------------------------------------------------------------------------------------- */

static messages load(const char *path)
{
    messages m = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        die(path);
    size_t size = (size_t)ftell(f);
    rewind(f);
    /* simdjson reads up to 64 bytes behind a body; the others are judged on the same buffer. */
    m.bytes = calloc(size + 64, 1);
    if (!m.bytes || fread(m.bytes, 1, size, f) != size)
        die(path);
    fclose(f);
    size_t n = strlen(path);
    bool lines = n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
    for (size_t i = 0; lines && i < size; i++)
        m.count += m.bytes[i] == '\n';
    if (!lines)
        m.count = 1;
    m.off = calloc(m.count + 1, sizeof *m.off);
    if (!m.off)
        die("memory");
    size_t at = 0;
    for (size_t i = 0; i < m.count; i++) {
        m.off[i] = at;
        size_t len = lines ? (size_t)(strchr(m.bytes + at, '\n') - (m.bytes + at)) : size;
        m.total += len;
        m.largest = len > m.largest ? len : m.largest;
        at += len + (lines ? 1 : 0);
    }
    m.off[m.count] = lines ? at : at + 1;
    return m;
}

/* ---- our own contestants --------------------------------------------------------------------------------------- */

static uint64_t bq_run(void *state, const char *body, size_t len)
{
    (void)state;
    bq_envelope env;
    bq_verdict verdict = bq_envelope_decode(&env, body, len);
    return bq_envelope_raw(&env, BQ_FIELD_URN).len + (uint64_t)verdict;
}

const contestant bench_bq = {"libbabelqueue", NULL, bq_run};

static uint64_t copy_run(void *state, const char *body, size_t len)
{
    (void)state;
    char *copy = malloc(len);
    if (!copy)
        die("memory");
    memcpy(copy, body, len);
    __asm__ volatile("" : : "r"(copy) : "memory");
    uint64_t out = (uint64_t)copy[len / 2];
    free(copy);
    return out;
}

const contestant bench_copy = {"malloc + copy", NULL, copy_run};

typedef struct rewriting {
    const char *body;
    bq_envelope env;
} rewriting;

static void *rewrite_open(size_t largest)
{
    (void)largest;
    return calloc(1, sizeof(rewriting));
}

/* One body is read again and again: it is decoded the first time only. */
static uint64_t rewrite_run(void *state, const char *body, size_t len)
{
    rewriting *r = state;
    if (r->body != body) {
        r->body = body;
        bq_envelope_decode(&r->env, body, len);
    }
    bq_buf out;
    bq_buf_init(&out, 0);
    if (bq_rewrite_attempts(&r->env, bq_envelope_attempts(&r->env) + 1, &out, NULL, NULL) != BQ_OK)
        die("rewrite");
    uint64_t sum = out.len;
    bq_buf_clear(&out);
    return sum;
}

const contestant bench_bq_rewrite = {"retry rewrite", rewrite_open, rewrite_run};

/* ---- timing ---------------------------------------------------------------------------------------------------- */

static double peer_batch(const entrant *e, const char *path, uint64_t count)
{
    unsigned long long ns;
    if (fprintf(peer_in, "%s %" PRIu64 " %s\n", e->verb, count, path) < 0 || fflush(peer_in) != 0 ||
        fscanf(peer_out, "%llu", &ns) != 1)
        die("the peer");
    return (double)ns / (double)count;
}

/* Nanoseconds per message of one batch of `count` messages. */
static double batch(const entrant *e, const messages *m, const char *path, uint64_t count)
{
    if (!e->c)
        return peer_batch(e, path, count);
    uint64_t sum = 0, start = now_ns();
    size_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += e->c->run(e->state, m->bytes + m->off[at], m->off[at + 1] - m->off[at] - 1);
        at = at + 1 == m->count ? 0 : at + 1;
    }
    uint64_t took = now_ns() - start;
    sink += sum;
    return (double)took / (double)count;
}

static void settle_batch(entrant *e, const messages *m, const char *path)
{
    uint64_t count = m->count;
    for (;;) {
        double ns = batch(e, m, path, count) * (double)count;
        if (ns > BATCH_NS / 2 || count > (uint64_t)1 << 40)
            break;
        count *= 2;
    }
    e->batch = count;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const entrant *e, const entrant *us, int rounds)
{
    double ns[MAX_ROUNDS], ratio[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        ns[i] = e->ns[i];
        ratio[i] = e->ns[i] / us->ns[i];
    }
    qsort(ns, (size_t)rounds, sizeof *ns, by_value);
    qsort(ratio, (size_t)rounds, sizeof *ratio, by_value);
    printf("  %-28s %12.1f ns  (best %10.1f)", e->name, ns[rounds / 2], ns[0]);
    if (e != us)
        printf("  %8.2fx  (%.2f .. %.2f)", ratio[rounds / 2], ratio[0], ratio[rounds - 1]);
    putchar('\n');
}

static void race(const char *path, const contestant *const *list, const char *const *verbs, int rounds)
{
    static entrant e[MAX_CONTESTANTS];
    messages m = load(path);
    int n = 0;
    for (; list[n]; n++)
        e[n] = (entrant){.name = list[n]->name, .c = list[n], .state = list[n]->open ? list[n]->open(m.largest) : NULL};
    for (; peer_in && *verbs; verbs += 2, n++)
        e[n] = (entrant){.name = verbs[1], .verb = verbs[0]};
    const char *name = strrchr(path, '/');
    printf("%s: %zu message%s of %zu bytes\n", name ? name + 1 : path, m.count, m.count == 1 ? "" : "s",
           m.total / m.count);
    for (int i = 0; i < n; i++)
        settle_batch(&e[i], &m, path);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < n; i++)
            e[i].ns[round] = batch(&e[i], &m, path, e[i].batch);
    }
    for (int i = 0; i < n; i++)
        print_row(&e[i], &e[0], rounds);
    free(m.bytes);
    free(m.off);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static void start_peer(const char *command)
{
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0)
        die("pipe");
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    peer_in = fdopen(to[1], "w");
    peer_out = fdopen(from[0], "r");
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
}

int main(int argc, char **argv)
{
    int rounds = 25, core = 0, option;
    const char *peer = NULL;
    while ((option = getopt(argc, argv, "r:c:p:")) != -1) {
        switch (option) {
        case 'r': rounds = (int)strtol(optarg, NULL, 10); break;
        case 'c': core = (int)strtol(optarg, NULL, 10); break;
        case 'p': peer = optarg; break;
        default: return 64;
        }
    }
    if (rounds < 1 || rounds > MAX_ROUNDS || optind == argc) {
        fputs("usage: codec [-r ROUNDS] [-c CORE] [-p PEER-COMMAND] FILE...\n", stderr);
        return 64;
    }
    pin(core);
#ifdef __GLIBC__
    /* Otherwise it depends on the heap's layout whether every free gives the top of the heap back to the system. */
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
#endif
    if (peer)
        start_peer(peer);
    static const contestant *const READ[] = {
        &bench_bq,
#if BQ_BENCH_YYJSON
        &bench_yyjson_pool,
        &bench_yyjson_malloc,
#endif
#if BQ_BENCH_SIMDJSON
        &bench_simdjson,
#endif
#if BQ_BENCH_CJSON
        &bench_cjson,
#endif
        NULL
    };
    static const char *const VERBS[] = {"accept", "peer: decode+accepts+urn", "poison", "peer: poison_cause", NULL};
    printf("ratios: how many times longer than the first row; median of %d (smallest .. largest)\n\n", rounds);
    for (int i = optind; i < argc; i++) {
        race(argv[i], READ, VERBS, rounds);
        fflush(stdout);
    }
    static const contestant *const REWRITE[] = {&bench_copy, &bench_bq_rewrite, NULL};
    static const char *const REWRITE_VERBS[] = {"rewrite", "peer: retry rewrite", NULL};
    puts("\nretry rewrite of a decoded body");
    for (int i = optind; i < argc; i++) {
        if (!strstr(argv[i], ".jsonl"))
            race(argv[i], REWRITE, REWRITE_VERBS, rounds);
    }
    return 0;
}
