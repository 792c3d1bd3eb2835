/*
 * net/resolve.h - names to addresses without blocking. Addresses are parsed at once; names are looked up by
 * getaddrinfo on a thread of their own, because that call can neither be made non-blocking nor be interrupted. A
 * lookup that nobody waits for any more is abandoned: its thread ends when getaddrinfo returns, and frees what is
 * left. The number of such threads is bounded.
 */
#ifndef BQ_NET_RESOLVE_H
#define BQ_NET_RESOLVE_H

#include <babelqueue/types.h>

#include <netdb.h>

typedef struct bq_resolve bq_resolve;

/* UNAVAILABLE when there are too many lookups already, or no thread to be had. */
bq_status bq_resolve_start(bq_resolve **out, const char *host, int port, bq_error *err) BQ_MUST_CHECK;
/* Readable once the lookup is done. */
int bq_resolve_fd(const bq_resolve *resolve);
bool bq_resolve_done(const bq_resolve *resolve);
/* Once done. The list (never empty when OK) lives until bq_resolve_free. UNAVAILABLE: no such name, or no answer. */
bq_status bq_resolve_result(bq_resolve *resolve, const struct addrinfo **list, bq_error *err) BQ_MUST_CHECK;
/* NULL is fine. */
void bq_resolve_free(bq_resolve *resolve);

#define BQ_RESOLVE_MAX 16

/* Tests only: a slow or failing lookup; NULL gives getaddrinfo back. Lists are still freed by freeaddrinfo. */
typedef int (*bq_resolve_fn)(const char *node, const char *service, const struct addrinfo *hints,
                             struct addrinfo **out);
void bq_resolve_override(bq_resolve_fn lookup);
/* Lookups whose threads have not ended, the abandoned ones included. */
int bq_resolve_running(void);

#endif
