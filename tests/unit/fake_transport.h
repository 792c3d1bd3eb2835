/*
 * fake_transport.h - a scripted broker inside the test: a transport driver with a switch per misbehaviour, in the
 * manner of a fake server. One broker at a time; the test's thread turns the switches and looks at what happened,
 * the I/O threads of the runtime use the driver. Everything is under one mutex.
 *
 *     fake_reset();                        // an empty broker that behaves
 *     fake_put("q", body, NULL, 0);        // a message is ready
 *     fake_when(BQ_OP_ACK, FAKE_REFUSE, 1) // the next acknowledge is refused
 *     ... "fake:x?binding=sqs" ...         // the driver, with all its capabilities, as that binding
 *     ... "fakebare:x" ...                 // its stripped twin: no optional capability at all
 *     fake_await(fake_acked, "q", 1);      // waits for a condition, at most ten seconds
 */
#ifndef TESTS_FAKE_TRANSPORT_H
#define TESTS_FAKE_TRANSPORT_H

#include <babelqueue/babelqueue.h>
#include <babelqueue/transport.h>

typedef enum fake_how {
    FAKE_OK,
    FAKE_NEVER,  /* accepted, and never completed */
    FAKE_LATE,   /* completed after fake.late_ms */
    FAKE_HOLD,   /* completed when fake_let_go is called */
    FAKE_REFUSE, /* completed REFUSED */
    FAKE_LOST,
    FAKE_UNKNOWN, /* done, but completed UNKNOWN */
    FAKE_BLOCK    /* the submitting call does not return before `interrupt`; then REFUSED */
} fake_how;

/* One line of the log of operations. */
typedef struct fake_op {
    bq_op_kind kind;
    bq_status status; /* as completed */
    bool done;
    int64_t delay_ms;
    int tier;
    char queue[64];
    char body[2048];
    char id[64];     /* of the delivery it settles: its number on the broker */
    char props[512]; /* "name=value;" of headers and native properties, in order */
    char reason[64];
    char result[64];
    char key[64];
} fake_op;

void fake_reset(void);
void fake_register(void); /* once per program; reset does it too */
/* Frees everything. Nothing may be open. */
void fake_clear(void);

/* A ready message. Returns its number. */
unsigned fake_put(const char *queue, const char *body, const bq_prop *props, size_t count);
unsigned fake_put_bytes(const char *queue, bq_str body, bq_str key, const bq_prop *props, size_t count,
                        int64_t native_count, uint32_t lapses);

/* The next `times` operations of that kind behave so (-1: all from now on). */
void fake_when(bq_op_kind kind, fake_how how, int times);
void fake_let_go(void); /* completes what FAKE_HOLD holds, OK */

void fake_lease(int64_t ms);     /* of deliveries taken from now on; 0: none */
void fake_lapse(void);           /* every lease runs out now: the messages are ready again */
void fake_late(int64_t ms);      /* of FAKE_LATE */
void fake_accept(int per_call);  /* submit accepts so many; -1: all */
void fake_down(const char *why); /* the connection is lost: operations under way end REFUSED or LOST */
void fake_up(void);
void fake_start_down(bool down);     /* connections opened from now on do not come up by themselves */
void fake_revoke(void);              /* every delivery that is out is taken back, with an event each */
void fake_renew(void);               /* a new generation: what is out is stale, without an event */
void fake_event(bq_event_kind kind); /* told at the next service, with the present generation and no delivery */
void fake_finish(int64_t ms);        /* "fakenative": an orderly end takes so long */
void fake_fatal(bq_status status, const char *why);
void fake_block_service(bool block); /* service blocks until interrupt */
void fake_block_close(bool block);   /* close ignores its bound until interrupt */
void fake_ignore_interrupt(bool ignore);
void fake_open_fails(bq_status status);
void fake_no_idle(bool no_idle); /* idle answers no */

/* What is on the broker. */
size_t fake_ready(const char *queue);
size_t fake_out(void);                                  /* taken and not settled */
const char *fake_body(const char *queue, size_t index); /* NUL-terminated; valid until the broker changes */
const char *fake_props(const char *queue, size_t index);
int64_t fake_delay(const char *queue, size_t index);
size_t fake_ops(int kind); /* completed or under way; -1: all */
bool fake_op_at(int kind, size_t index, fake_op *out);
size_t fake_forgotten(void);
size_t fake_interrupts(void);
size_t fake_closed(void);
size_t fake_finished(void);   /* connections that were closed after an orderly end */
size_t fake_submits(void);    /* calls of submit */
size_t fake_submit_max(void); /* the largest number of operations in one call */
size_t fake_live(void);       /* deliveries in memory */
size_t fake_soon(void);       /* how many more the runtime will take when what is under way is settled */

/* Awaits a condition for ten seconds; fails the test with its text otherwise. */
#define FAKE_AWAIT(condition)                                                                                          \
    do {                                                                                                               \
        int64_t fake_until_ = fake_now_ms() + 10000;                                                                   \
        while (!(condition)) {                                                                                         \
            if (fake_now_ms() > fake_until_)                                                                           \
                fail_msg("%s:%d: not within ten seconds: %s", __FILE__, __LINE__, #condition);                         \
            fake_pause();                                                                                              \
        }                                                                                                              \
    } while (0)

int64_t fake_now_ms(void);
void fake_pause(void); /* half a millisecond: between two looks at a condition */

#endif
