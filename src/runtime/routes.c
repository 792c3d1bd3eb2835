/*
 * runtime/routes.c - the route table: open addressing, at most half full. See routes.h.
 */
#include "runtime/routes.h"

#include "base/error.h"
#include "base/mem.h"

#include <string.h>

/* FNV-1a: URNs are short, and whoever sends one cannot choose what the table holds. */
static uint64_t hash(bq_str s)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * UINT64_C(1099511628211);
    return h ^ h >> 32;
}

static bq_route_slot *place_of(const bq_routes *routes, bq_str urn)
{
    size_t at = (size_t)hash(urn) & routes->mask;
    while (routes->slots[at].urn.ptr && !bq_str_equal(routes->slots[at].urn, urn))
        at = (at + 1) & routes->mask;
    return &routes->slots[at];
}

static bq_status add(bq_routes *routes, const bq_route *route, size_t number, char **names, bq_error *err)
{
    bq_str urn = bq_str_of(route->urn);
    if (bq_str_blank(urn))
        return bq_fail(err, BQ_INVALID, "route %zu has no URN", number);
    if (!route->handler)
        return bq_fail(err, BQ_INVALID, "route %zu (%.*s) has no handler", number, BQ_FMT(urn));
    bq_route_slot *slot = place_of(routes, urn);
    if (slot->urn.ptr)
        return bq_fail(err, BQ_INVALID, "two handlers for %.*s", BQ_FMT(urn));
    memcpy(*names, urn.ptr, urn.len);
    *slot = (bq_route_slot){{*names, urn.len}, route->handler, route->arg};
    *names += urn.len;
    return BQ_OK;
}

bq_status bq_routes_init(bq_routes *routes, const bq_route *list, size_t count, bq_error *err)
{
    size_t size = 2, bytes = 1;
    while (size < count * 2)
        size *= 2;
    for (size_t i = 0; i < count; i++)
        bytes += bq_str_of(list[i].urn).len;
    routes->mask = size - 1;
    routes->slots = bq_calloc(size, sizeof *routes->slots);
    routes->names = bq_malloc(bytes);
    bq_status st = routes->slots && routes->names ? BQ_OK : bq_fail_nomem(err);
    char *names = routes->names;
    for (size_t i = 0; !st && i < count; i++)
        st = add(routes, &list[i], i + 1, &names, err);
    if (st)
        bq_routes_clear(routes);
    return st;
}

void bq_routes_clear(bq_routes *routes)
{
    bq_free(routes->slots);
    bq_free(routes->names);
    routes->slots = NULL;
    routes->names = NULL;
}

const bq_route_slot *bq_routes_find(const bq_routes *routes, bq_str urn)
{
    if (!urn.len)
        return NULL;
    const bq_route_slot *slot = place_of(routes, urn);
    return slot->urn.ptr ? slot : NULL;
}
