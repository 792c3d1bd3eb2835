/*
 * contract/route.c - where a delivery goes: its route to a handler (contract 3.4), the queue that a record names as
 * its origin (section 4), and the name of its dead-letter queue.
 *
 * Thread rule: pure functions.
 */
#include <string.h>

#include "base/buf.h"
#include "contract/props.h"

bq_status bq_route_of(const bq_binding *binding, const bq_envelope *env, const bq_prop *props, size_t count,
                      bq_buf *scratch, bq_str *route)
{
    for (size_t i = 0; i < binding->route_count; i++) {
        const bq_prop *prop = bq_prop_find(props, count, binding->route_place[i], bq_str_of(binding->route_name[i]));
        if (prop && bq_prop_is_text(prop) && !bq_str_blank(prop->text)) {
            *route = prop->text;
            return BQ_OK;
        }
    }
    return bq_envelope_text(env, BQ_FIELD_URN, scratch, route);
}

bq_status bq_original_queue(const bq_binding *binding, bool poison, const bq_envelope *env, const bq_prop *props,
                            size_t count, bq_str queue, bq_buf *scratch, bq_str *out)
{
    *out = queue;
    if (binding->original_name) {
        const bq_prop *prop = bq_prop_find(props, count, BQ_PLACE_HEADER, bq_str_of(binding->original_name));
        if (prop && bq_prop_is_text(prop) && prop->text.len)
            *out = prop->text;
        return BQ_OK;
    }
    if (poison)
        return BQ_OK;
    bq_str named;
    bq_status status = bq_envelope_text(env, BQ_FIELD_META_QUEUE, scratch, &named);
    if (status == BQ_OK && named.len)
        *out = named;
    return status;
}

bq_status bq_dead_letter_queue(const bq_binding *binding, bq_str queue, bq_buf *out)
{
    static const char FIFO[] = ".fifo";
    const size_t fifo = sizeof(FIFO) - 1;
    size_t before = out->len;
    bq_str stem = queue, tail = {"", 0};
    /* SQS takes no dot in a name but the one of this suffix, so the queue's own goes last (7.4). */
    if (binding->delay == BQ_DELAY_SQS && queue.len >= fifo && memcmp(queue.ptr + queue.len - fifo, FIFO, fifo) == 0) {
        stem.len -= fifo;
        tail = (bq_str){queue.ptr + stem.len, fifo};
    }
    bq_status status = bq_buf_add_str(out, stem);
    if (status == BQ_OK)
        status = bq_buf_add_str(out, bq_str_of(binding->dead_suffix));
    if (status == BQ_OK)
        status = bq_buf_add_str(out, tail);
    if (status != BQ_OK)
        bq_buf_truncate(out, before);
    return status;
}
