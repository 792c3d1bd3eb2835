/*
 * memory/store.h - the queues behind memory:NAME, shared by every transport of the process that opened that name.
 *
 * A queue keeps its waiting messages in two places: `ready`, a list in the order in which they became available, and
 * `timed`, a heap of those that are available from a moment of their own (delayed ones; lapsed ones, from the end of
 * their lease). What is taken next is the earlier of the two heads, by (available time, id). A message in a
 * consumer's hands stands in `leased` (sorted by deadline) or `endless` (retry_after=off).
 *
 * Room for a leased message's return is reserved when it is taken, so giving back and lapsing never allocate.
 *
 * Threads: everything here is called with the store's mutex held, except bq_mem_store_open/close and bq_mem_node_unref.
 */
#ifndef BQ_MEMORY_STORE_H
#define BQ_MEMORY_STORE_H

#include <babelqueue/transport.h>

#include <pthread.h>
#include <stdatomic.h>

typedef struct mem_node mem_node;
typedef struct mem_queue mem_queue;
typedef struct mem_store mem_store;

typedef enum mem_place { MEM_NOWHERE, MEM_READY, MEM_TIMED, MEM_LEASED } mem_place;

/* One message. The content never changes; where it stands does. */
struct mem_node {
    atomic_int refs; /* one for standing in a queue, one for each delivery that shows it */
    mem_place place;
    mem_queue *queue;
    mem_node *prev, *next; /* ready, leased, endless */
    size_t heap_index;     /* timed */
    uint64_t id;
    uint64_t lease; /* number of the reservation that holds it; 0: none */
    int64_t due_ms; /* available from (monotonic); while leased: until */
    uint32_t lapses;
    int64_t timestamp_ms;
    bq_str body, key;
    bq_prop *props;
    size_t prop_count;
};

typedef struct mem_list {
    mem_node *head, *tail;
    size_t count;
} mem_list;

struct mem_queue {
    mem_queue *next; /* of the same hash bucket */
    bq_str name;
    mem_list ready, leased, endless;
    mem_node **timed;
    size_t timed_count, timed_cap;
};

/* A consumer that may be asleep in poll. */
typedef struct mem_waiter {
    struct mem_waiter *prev, *next;
    mem_queue **queues;
    size_t queue_count;
    bool asleep; /* set by the consumer before it sleeps, cleared by whoever wakes it */
    int wake_fd;
} mem_waiter;

struct mem_store {
    mem_store *next;
    char *name;
    size_t opens;
    pthread_mutex_t mutex;
    mem_queue **buckets;
    size_t bucket_count, queue_count;
    mem_waiter *waiters;
    uint64_t last_id, last_lease;
};

/* The store of that name, made when there is none. A store lives as long as it is open or holds messages: they
 * outlive a connection, not the process. NULL: out of memory. */
mem_store *bq_mem_store_open(bq_str name);
void bq_mem_store_close(mem_store *store);

mem_queue *bq_mem_queue_find(mem_store *store, bq_str name);
/* Makes it when there is none; NULL: out of memory. */
mem_queue *bq_mem_queue_get(mem_store *store, bq_str name);

/* Copies a message; it stands nowhere yet and carries one reference, the caller's. NULL: out of memory. */
mem_node *bq_mem_node_new(const bq_outgoing *out);
void bq_mem_node_unref(mem_node *node); /* any thread */

/* Makes sure that one more message may be put into `timed`. */
bool bq_mem_queue_room(mem_queue *queue);
/* Available from now on, behind everything that already is. Takes the node's id as it is; 0 gets the next one. */
void bq_mem_put_ready(mem_store *store, mem_queue *queue, mem_node *node, int64_t now_ms);
/* Available from due_ms on. bq_mem_queue_room must have said yes, or the node comes from this queue's leases. */
void bq_mem_put_timed(mem_store *store, mem_queue *queue, mem_node *node, int64_t due_ms);
void bq_mem_put_leased(mem_queue *queue, mem_node *node, int64_t until_ms);
/* Out of whatever it stands in; the reference of standing there goes to the caller. */
void bq_mem_unlink(mem_node *node);

/* The message that comes next, or NULL. */
mem_node *bq_mem_first(const mem_queue *queue, int64_t now_ms);
/* Returns lapsed leases to where they can be taken. */
void bq_mem_sweep(mem_store *store, mem_queue *queue, int64_t now_ms);
/* When something next becomes available by itself: BQ_NEVER when nothing will. */
int64_t bq_mem_next_due(const mem_queue *queue);

/* Wakes the consumers of that queue that sleep. */
void bq_mem_wake(mem_store *store, const mem_queue *queue);

#endif
