/*
 * fake_internal.h - the state of the scripted broker, shared by its driver (fake_transport.c) and the test's side of it
 * (fake_control.c). Everything is under fake.lock.
 */
#ifndef TESTS_FAKE_INTERNAL_H
#define TESTS_FAKE_INTERNAL_H

#include "fake_transport.h"

#include <pthread.h>

enum { KINDS = BQ_OP_EXTEND + 1, LINKS = 8 };

typedef struct message {
    struct message *next;
    unsigned number;
    char queue[64];
    char *body; /* NULL: a null value */
    size_t body_len;
    char *key;
    size_t key_len;
    bq_prop *props;
    size_t prop_count;
    char *texts;
    int64_t native_count;
    uint32_t lapses;
    int64_t due_ms;
    int64_t delay_ms; /* as asked for */
    unsigned lease;   /* 0: ready */
    struct link *holder;
    int64_t lease_until_ms;
} message;

typedef struct link link_t;

typedef struct delivery {
    bq_incoming in;
    struct delivery *next, *prev;
    link_t *link;
    unsigned number; /* of its message */
    unsigned lease;
    bool settled, forgotten;
    char *bytes;
    bq_prop *props;
} delivery;

typedef struct flight {
    struct flight *next;
    bq_op *op;
    int64_t at_ms;
    bool held, never;
    bq_status status;
    size_t line; /* of the log */
} flight;

struct link {
    bool open, up, told_up, fatal_told;
    int fd;
    unsigned roles;
    const bq_transport_config *config;
    flight *flights;
    bool revoke;
    int event; /* -1: none */
    int64_t finish_at;
    uint64_t generation;
    pthread_cond_t unblock;
    bool interrupted;
    unsigned next_queue;
};

typedef struct fake_broker {
    pthread_mutex_t lock;
    size_t soon; /* as the runtime said last */
    pthread_cond_t changed;
    bool ready;
    message *first, **last;
    unsigned number, lease;
    delivery *out;
    size_t live;
    fake_how how[KINDS];
    int times[KINDS];
    int64_t lease_ms, late_ms, finish_ms;
    int accept;
    bool start_down, down, block_service, block_close, deaf, no_idle;
    char why[128];
    bq_status fatal, open_fails;
    uint64_t generation;
    link_t *links[LINKS];
    fake_op *log;
    size_t log_count, log_cap;
    size_t forgotten, interrupts, closed, finished, submits, submit_max;
} fake_broker;

extern fake_broker fake;
extern const bq_admin_ops fake_admin;

static inline void lock(void)
{
    pthread_mutex_lock(&fake.lock);
}

static inline void unlock(void)
{
    pthread_mutex_unlock(&fake.lock);
}

void fake_wake_all(void);
message *fake_message_add(bq_str queue, bq_str body, bq_str key, const bq_prop *props, size_t count);
void fake_message_remove(message *gone);
bq_status fake_carry_out(bq_op *op);
void fake_print_props(char *out, size_t size, const bq_prop *props, size_t count);

#endif
