/*
 * disk_workload.c - the life of a few messages on one queue, with a mark before every operation is submitted and after
 * it was confirmed: what a power cut may and may not undo (tests/chaos).
 *
 *     disk_workload URL MARKS COUNT [tolerant]
 *
 * publishes COUNT messages in groups, takes them, acknowledges, retries, dead-letters and releases a quarter of them
 * each, takes again what came back and settles it too. MARKS receives lines, each by one write:
 *     submit ID STATE     from now on the message may be in STATE
 *     confirm ID STATE    from now on it must be
 *     refuse ID STATUS    it was not done
 *     unknown ID STATUS   it may have been done
 * STATE is "orders N" (on the queue with attempts N), "dead N" (on the dead-letter queue) or "gone". With `tolerant`
 * an operation may fail (a full disk), and is tried again until it does not; otherwise a failure ends the program.
 * One thread.
 */
#include "drive.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP 8
#define COUNT_MAX 256
#define BODY_MAX 512

typedef struct workload {
    drive d;
    int marks;
    bool tolerant;
    int count;
} workload;

static void mark(const workload *w, const char *what, int id, const char *detail)
{
    char line[64];
    int len = snprintf(line, sizeof line, "%s m%d %s\n", what, id, detail);
    if (write(w->marks, line, (size_t)len) != len)
        drive_die("marks", "cannot write");
}

static void write_body(char *body, int id, int attempts, bool dead)
{
    int len = snprintf(body, BODY_MAX,
                       "{\"job\":\"urn:babel:orders:created\",\"trace_id\":\"t\",\"data\":{\"n\":%d,\"filler\":"
                       "\"%0*d\"},\"meta\":{\"id\":\"m%d\",\"queue\":\"orders\",\"lang\":\"c\",\"schema_version\":1,"
                       "\"created_at\":1},\"attempts\":%d%s}",
                       id, 20 + id * 7 % 200, 0, id, attempts, dead ? ",\"dead_letter\":{\"reason\":\"failed\"}" : "");
    if (len >= BODY_MAX)
        drive_die("body", "too long");
}

/* The number in a body's meta.id. */
static int id_of(const bq_incoming *in)
{
    bq_envelope env;
    bq_envelope_decode(&env, in->body.ptr, in->body.len);
    bq_str raw = bq_envelope_raw(&env, BQ_FIELD_META_ID);
    return raw.len > 1 ? atoi(raw.ptr + 1) : -1;
}

static int attempts_of(const bq_incoming *in)
{
    bq_envelope env;
    bq_envelope_decode(&env, in->body.ptr, in->body.len);
    return (int)bq_envelope_attempts(&env);
}

typedef struct step {
    bq_op op;
    int id;
    bool unknown; /* an earlier try may have been done: then "lost" says that it was */
    char state[16];
    char body[BODY_MAX];
} step;

/* Marks, submits, waits and marks. Steps that failed are tried again when that is tolerated. */
static void carry_out(workload *w, step *steps, int count)
{
    bq_op ops[GROUP];
    bq_status status[GROUP];
    while (count) {
        for (int i = 0; i < count; i++) {
            ops[i] = steps[i].op;
            mark(w, "submit", steps[i].id, steps[i].state);
        }
        drive_all(&w->d, ops, (size_t)count, status);
        int left = 0;
        for (int i = 0; i < count; i++) {
            if (status[i] == BQ_OK || (status[i] == BQ_LOST && steps[i].unknown)) {
                mark(w, "confirm", steps[i].id, steps[i].state);
                continue;
            }
            mark(w, status[i] == BQ_UNKNOWN ? "unknown" : "refuse", steps[i].id, bq_status_name(status[i]));
            if (!w->tolerant || status[i] == BQ_LOST)
                drive_die("operation", bq_status_name(status[i]));
            steps[i].unknown |= status[i] == BQ_UNKNOWN;
            if (left != i)
                steps[left] = steps[i];
            if (steps[left].op.out.body.ptr)
                steps[left].op.out.body.ptr = steps[left].body;
            left++;
        }
        count = left;
        if (count)
            usleep(20000); /* the pause that the runtime makes after a failed settlement, shorter */
    }
}

static void set_body(step *s, int attempts, bool dead)
{
    write_body(s->body, s->id, attempts, dead);
    s->op.out.body = bq_str_of(s->body);
    s->op.out.queue = dead ? BQ_STR("orders.dlq") : BQ_STR("orders");
    snprintf(s->state, sizeof s->state, "%s %d", dead ? "dead" : "orders", attempts);
}

static void publish(workload *w)
{
    step steps[GROUP];
    for (int first = 0; first < w->count; first += GROUP) {
        int n = w->count - first < GROUP ? w->count - first : GROUP;
        memset(steps, 0, sizeof steps);
        for (int i = 0; i < n; i++) {
            steps[i].op.kind = BQ_OP_PUBLISH;
            steps[i].id = first + i;
            set_body(&steps[i], 0, false);
        }
        carry_out(w, steps, n);
    }
}

/* What becomes of a message when it is taken. */
static void settle_as(step *s, bq_incoming *in)
{
    int attempts = attempts_of(in);
    s->id = id_of(in);
    s->op.in = in;
    switch (attempts ? 0 : s->id % 4) {
    case 1:
        s->op.kind = BQ_OP_RETRY;
        set_body(s, attempts + 1, false);
        break;
    case 2:
        s->op.kind = BQ_OP_DEAD_LETTER;
        set_body(s, attempts + 1, true);
        break;
    default:
        s->op.kind = BQ_OP_ACK;
        snprintf(s->state, sizeof s->state, "gone");
        break;
    }
}

/* Takes `count` messages in groups and settles them; those with a number of the form 4n+3 are first released once. */
static void work(workload *w, int count, bool release)
{
    bq_incoming *taken[GROUP];
    step steps[GROUP];
    while (count > 0) {
        int n = count < GROUP ? count : GROUP;
        drive_take(&w->d, taken, (size_t)n, 30000);
        memset(steps, 0, sizeof steps);
        for (int i = 0; i < n; i++) {
            settle_as(&steps[i], taken[i]);
            if (release && steps[i].id % 4 == 3) {
                steps[i].op.kind = BQ_OP_RELEASE;
                snprintf(steps[i].state, sizeof steps[i].state, "orders %d", attempts_of(taken[i]));
            }
        }
        carry_out(w, steps, n);
        count -= n;
    }
}

int main(int argc, char **argv)
{
    static const bq_str queues[] = {{"orders", 6}};
    workload w = {0};
    if (argc < 4)
        return 64;
    w.count = atoi(argv[3]);
    w.tolerant = argc > 4;
    w.marks = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (w.marks < 0 || w.count < 1 || w.count > COUNT_MAX)
        return 64;
    drive_open(&w.d, argv[1], BQ_ROLE_PUBLISH | BQ_ROLE_CONSUME, queues, 1, GROUP);
    publish(&w);
    int back = 0; /* of every four, one is retried and one is released */
    for (int i = 0; i < w.count; i++)
        back += i % 4 == 1 || i % 4 == 3;
    work(&w, w.count, true);
    work(&w, back, false);
    drive_close(&w.d);
    return close(w.marks) != 0;
}
