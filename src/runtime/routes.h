/*
 * runtime/routes.h - from a URN to its handler: a hash table made once, compared byte for byte, read by every handler
 * thread without a lock.
 */
#ifndef BQ_RUNTIME_ROUTES_H
#define BQ_RUNTIME_ROUTES_H

#include <babelqueue/consumer.h>

typedef struct bq_route_slot {
    bq_str urn; /* ptr NULL: empty */
    bq_handler handler;
    void *arg;
} bq_route_slot;

typedef struct bq_routes {
    bq_route_slot *slots;
    size_t mask;
    char *names;
} bq_routes;

/* INVALID: a route without URN or handler, or a URN that occurs twice. */
bq_status bq_routes_init(bq_routes *routes, const bq_route *list, size_t count, bq_error *err) BQ_MUST_CHECK;
void bq_routes_clear(bq_routes *routes);
const bq_route_slot *bq_routes_find(const bq_routes *routes, bq_str urn); /* NULL: none */

#endif
