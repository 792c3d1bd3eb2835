/*
 * contract/copy.c - what travels with a copy of a delivery (contract 3; section 6 for redrive): which of the properties
 * that it arrived with are kept, and what is projected beside them.
 *
 *   gated, release   everything
 *   retry, record    everything but the count, which is set; what the binding projects and is missing is added
 *   poison           everything that is not the binding's own; the binding's own projected anew
 *   redrive          the same, but the routing properties are kept too (on Kafka they come from the body)
 *
 * "Missing" is what the gate and the route treat as missing: absent, null, or blank text.
 *
 * Thread rule: pure functions.
 */
#include <string.h>

#include "base/error.h"
#include "contract/props.h"

static bool is_named(const bq_prop *prop, const char *name)
{
    return name && prop->place == BQ_PLACE_HEADER && bq_str_equal(prop->name, bq_str_of(name));
}

static bool is_attempts(const bq_binding *binding, const bq_prop *prop)
{
    return prop->place == binding->attempts_place && is_named(prop, binding->attempts_name);
}

static bool is_extra(const bq_binding *binding, const bq_prop *prop)
{
    for (const char *const *extra = binding->extra_names; extra && *extra; extra++) {
        if (is_named(prop, *extra))
            return true;
    }
    return false;
}

static bool is_routing(const bq_binding *binding, const bq_prop *prop)
{
    for (size_t i = 0; i < binding->route_count; i++) {
        if (prop->place == binding->route_place[i] && bq_str_equal(prop->name, bq_str_of(binding->route_name[i])))
            return true;
    }
    return false;
}

static bool is_missing(const bq_prop *prop)
{
    return prop->type == BQ_PROP_NULL || (bq_prop_is_text(prop) && bq_str_blank(prop->text));
}

static bool is_kept(const bq_binding *binding, bq_copy kind, const bq_prop *prop)
{
    bool own = bq_binding_owns(binding, prop->place, prop->name);
    switch (kind) {
    case BQ_COPY_RELEASE: return true;
    case BQ_COPY_GATED: return prop->type != BQ_PROP_NULL || !(binding->copy_flags & BQ_COPIES_DROP_NULL);
    case BQ_COPY_RETRY:
    case BQ_COPY_RECORD: return !own || (!is_missing(prop) && !is_attempts(binding, prop) && !is_extra(binding, prop));
    case BQ_COPY_POISON:
        /* The topic that it was parked from stays its origin (7.8). */
        return !own || is_named(prop, binding->original_name);
    case BQ_COPY_REDRIVE:
        if (is_named(prop, "bq-replay-bypass"))
            return false;
        return !own || (is_routing(binding, prop) && !is_missing(prop) && !(binding->copy_flags & BQ_COPIES_REROUTE));
    }
    return false;
}

static bool has(const bq_prop *props, size_t count, const bq_prop *like)
{
    return bq_prop_find(props, count, like->place, like->name) != NULL;
}

bq_status bq_copy_props(const bq_binding *binding, bq_copy kind, const bq_envelope *env, int64_t attempts,
                        const bq_prop *props, size_t count, bq_prop *out, size_t max, size_t *out_count,
                        bq_buf *scratch, bq_error *err)
{
    *out_count = 0;
    if (max < count + BQ_PROJECTED_MAX)
        return bq_fail(err, BQ_INVALID, "no room for the properties of a copy");
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_kept(binding, kind, &props[i]))
            out[kept++] = props[i];
    }
    if (kind == BQ_COPY_RELEASE || kind == BQ_COPY_GATED) {
        *out_count = kept;
        return BQ_OK;
    }
    bq_prop own[BQ_PROJECTED_MAX];
    size_t own_count;
    bq_status status = bq_project(binding, env, kind == BQ_COPY_REDRIVE ? 0 : attempts, own, &own_count, scratch, err);
    if (status != BQ_OK)
        return status;
    size_t total = kept;
    for (size_t i = 0; i < own_count; i++) {
        if (!has(out, kept, &own[i]))
            out[total++] = own[i];
    }
    *out_count = total;
    return BQ_OK;
}
