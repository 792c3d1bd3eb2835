/*
 * transport_kit.h - what every transport is expected to do, as one suite of tests that a driver runs by saying how to
 * get an empty place on its broker:
 *
 *     static const char *place(const char *options) { ... return "redis://127.0.0.1/0?prefix=kit7" + options; }
 *     static const kit_broker broker = {.ops = &bq_redis_ops, .place = place, .lease_option = "retry_after"};
 *     int main(void) { return kit_run(&broker, "redis") + kit_run_stripped(&broker, "redis", "redis-bare"); }
 *
 * The suite runs against the driver as it is, and against its stripped twin: the same driver behind a table with its
 * optional capabilities off, which refuses what it does not claim. What the twin cannot do natively the kit does as
 * the runtime does: publish the replacement, wait for its confirmation, then acknowledge. kit_twin alone gives the
 * runtime's tests such a driver.
 *
 * Time passes for real: leases are short where a test is about their end, and what is waited for is a condition.
 * A test leaves its place as it is; `place` gives another one each time. Nothing is expected of the order between
 * several queues, of timing beyond "not before", or of more than the capabilities that the table claims.
 */
#ifndef TESTS_TRANSPORT_KIT_H
#define TESTS_TRANSPORT_KIT_H

#include <babelqueue/transport.h>

#include "transport/target.h"

#include <stdio.h>

/* Optional traits of a broker that no capability bit tells. */
enum {
    KIT_NULL_BODY = 1 << 0,   /* a null body stays apart from an empty one */
    KIT_TYPED_PROPS = 1 << 1, /* properties keep their types */
    KIT_FIFO = 1 << 2,        /* one consumer sees one queue in the order of availability */
    KIT_SHARED = 1 << 3,      /* messages survive when all connections are closed */
    KIT_GIVES_BACK = 1 << 4,  /* what was not taken is available to others at once after close */
    KIT_EMPTY_BODY = 1 << 5,
    KIT_KEEPS_PLACE = 1 << 7,  /* what was delayed comes before what was published after it became due */
    KIT_EARLY_SECOND = 1 << 8, /* delays count in whole seconds and may end up to one early (Laravel's layout) */
    KIT_LAST_ALONE = 1 << 9,   /* a message at its last chance is taken alone */
    KIT_LOCAL = 1 << 6,        /* no network: an operation past its deadline is known not to be done */
};

typedef struct kit_broker {
    const bq_transport_ops *ops;
    /* The URL of an empty place, with `options` ("name=value&name=value", may be empty) added. Valid until the next
     * call. */
    const char *(*place)(const char *options);
    void (*done)(void);       /* after each test; may be NULL */
    const char *lease_option; /* how long a lease is, as a URL option; NULL: none, tests of leases are left out */
    int64_t lease_min_ms;     /* shortest that it takes */
    size_t large_body;        /* bytes; 0: 3 MiB */
    unsigned traits;
    unsigned lacks; /* capabilities that the driver claims and this broker's options take away */
} kit_broker;

/* Both return 0 when all tests passed. The twin's scheme must be free. */
int kit_run(const kit_broker *broker, const char *name);
int kit_run_stripped(const kit_broker *broker, const char *name, const char *scheme);

/* The driver with its optional capabilities off, registered under `scheme`. */
const bq_transport_ops *kit_twin(const bq_transport_ops *ops, const char *scheme);
#define KIT_OPTIONAL                                                                                                   \
    (BQ_CAP_DEAD_LETTER | BQ_CAP_RETRY | BQ_CAP_RETRY_DELAY | BQ_CAP_RELEASE | BQ_CAP_RELEASE_DELAY | BQ_CAP_EXTEND |  \
     BQ_CAP_REJECT | BQ_CAP_NATIVE_RETRY | BQ_CAP_PUBLISH_DELAY | BQ_CAP_HEADERS | BQ_CAP_KEY | BQ_CAP_PEEK |          \
     BQ_CAP_LAPSES | BQ_CAP_IDLE | BQ_CAP_KEEP)

/* ---- a client of one transport, for tests of their own ------------------------------------------------------------ */

#define KIT_QUEUES 4
#define KIT_PATIENCE_MS 20000

typedef struct kit_client {
    bq_target target;
    void *state;
    bq_transport_config config;
    bq_transport_host host;
    bq_str queues[KIT_QUEUES];
    bool open;
    size_t want; /* what `prepare` is told */
    int up, down, fatal, blocked, unblocked;
    bq_error error;  /* of the last event that had one */
    size_t finished; /* completions reaped */
    unsigned turns;
    char log[4096]; /* what the driver logged, cut */
} kit_client;

/* `queues`: up to KIT_QUEUES names separated by blanks, or NULL. prefetch 0: 16. Fails the test when it cannot. */
void kit_open(kit_client *c, const char *url, unsigned roles, uint32_t prefetch, const char *queues);
/* The same, but a failure is the result. */
bq_status kit_try_open(kit_client *c, const char *url, unsigned roles, uint32_t prefetch, const char *queues,
                       bq_error *err);
/* Turns until it is connected. */
void kit_await_up(kit_client *c);
void kit_close(kit_client *c);

/* One turn of the loop: prepare with c->want, poll for at most `max_ms`, service, reap. */
void kit_turn(kit_client *c, int max_ms);

/* An operation and what became of it. */
typedef struct kit_op {
    bq_op op;
    int finished; /* how many completions it got */
    bq_status status;
    bq_error error;
} kit_op;

kit_op kit_make(bq_op_kind kind, bq_incoming *in);
kit_op kit_make_publish(const char *queue, bq_str body);
/* Submits all of them, however often it takes, and turns until each has its completion. */
void kit_do(kit_client *c, kit_op *ops, size_t count);
/* One of them; its status. */
bq_status kit_do_one(kit_client *c, kit_op *op);

bq_status kit_publish(kit_client *c, const char *queue, const char *body);
bq_status kit_publish_later(kit_client *c, const char *queue, const char *body, int64_t delay_ms);
bq_status kit_settle(kit_client *c, bq_op_kind kind, bq_incoming *in);

/* The next delivery; NULL when none came within `timeout_ms`. */
bq_incoming *kit_take(kit_client *c, int64_t timeout_ms);
/* The next one, which has to come, and to have that body (NULL: any). */
bq_incoming *kit_expect(kit_client *c, const char *body);
/* None comes within `ms`. */
void kit_expect_none(kit_client *c, int64_t ms);

#define kit_assert_ok(status) kit_assert_status((status), BQ_OK, __FILE__, __LINE__)
#define kit_assert(status, expected) kit_assert_status((status), (expected), __FILE__, __LINE__)
void kit_assert_status(bq_status status, bq_status expected, const char *file, int line);

/* The shortest that a delay of that many milliseconds may take. */
#define kit_at_least(suite, ms) ((suite)->broker->traits & KIT_EARLY_SECOND ? (ms)-1000 : (ms)-10)

#define KIT_BOTH (BQ_ROLE_PUBLISH | BQ_ROLE_CONSUME)

bool kit_can(const kit_client *c, unsigned capability);

/* RETRY, DEAD_LETTER and RELEASE as the runtime does them: natively, else "publish, confirm, acknowledge". A NULL body
 * is that of `in`. */
bq_status kit_replace(kit_client *c, bq_op_kind kind, bq_incoming *in, const char *queue, const char *body,
                      int64_t delay_ms);
bq_queue_stats kit_stats(kit_client *c, const char *queue);

/* What the cases see of the run that they belong to. */
typedef struct kit_suite {
    const kit_broker *broker;
    unsigned capabilities;
    const char *scheme; /* instead of the broker's own; NULL: none */
} kit_suite;

/* A place for this suite's driver; the lease is `lease_ms` long, 0: as the driver's default is. Valid until the next
 * call. */
const char *kit_place(const kit_suite *suite, int64_t lease_ms);

/* A client `c` of the queue "q" on a new place, whose URL is c_url. It is opened where it stays: it holds pointers to
 * itself. */
#define KIT_WORKER(c, suite, lease_ms)                                                                                 \
    kit_client c;                                                                                                      \
    char c##_url[2048];                                                                                                \
    (void)snprintf(c##_url, sizeof(c##_url), "%s", kit_place(suite, lease_ms));                                        \
    kit_open(&c, c##_url, KIT_BOTH | BQ_ROLE_ADMIN, 0, "q")

typedef struct kit_case {
    const char *name;
    void (*run)(const kit_suite *suite);
    unsigned needs;  /* capabilities */
    unsigned traits; /* of the broker */
    bool leases;     /* needs leases that end */
} kit_case;
extern const kit_case kit_settle_cases[], kit_lease_cases[], kit_loop_cases[];

#endif
