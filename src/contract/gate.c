/*
 * contract/gate.c - looking properties up, and the version gate (contract 3.1): what a delivery declares is judged
 * before its body is touched.
 *
 * Thread rule: pure functions.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "contract/props.h"

/* Characters of a declared version that are reported. */
#define REPORTED_MAX 64

const bq_prop *bq_prop_find(const bq_prop *props, size_t count, bq_place place, bq_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (props[i].place == place && props[i].type != BQ_PROP_NULL && bq_str_equal(props[i].name, name))
            return &props[i];
    }
    return NULL;
}

/* Appends `text`, cut after 64 characters. A byte that continues a UTF-8 sequence is part of the character before it;
 * bytes that are no UTF-8 pass, whoever logs the text deals with them. */
static bq_status add_cut(bq_buf *out, bq_str text)
{
    size_t chars = 0, end = 0;
    for (; end < text.len && end < 4 * REPORTED_MAX; end++) {
        if (((uint8_t)text.ptr[end] & 0xC0) != 0x80 && ++chars > REPORTED_MAX)
            break;
    }
    bq_status status = bq_buf_add(out, text.ptr, end);
    return status == BQ_OK && end < text.len ? bq_buf_add_lit(out, "...") : status;
}

static bq_status add_value(bq_buf *out, const bq_prop *prop)
{
    switch (prop->type) {
    case BQ_PROP_BOOL: return bq_buf_add_str(out, bq_str_of(prop->num ? "true" : "false"));
    case BQ_PROP_INT:
    case BQ_PROP_LONG: return bq_buf_addf(out, "%" PRId64, prop->num);
    case BQ_PROP_DOUBLE: return bq_buf_addf(out, "%.17g (floating point)", prop->real);
    case BQ_PROP_NULL: return BQ_OK;
    case BQ_PROP_OTHER: return bq_buf_add_lit(out, "(neither text nor a number)");
    default: return add_cut(out, prop->text);
    }
}

/* AMQP 1.0 tells its types apart, so only a string passes there besides an integer (7.5, 7.9); elsewhere a header is
 * bytes, and a string, a Number of SQS or Kafka's bytes are the same text. */
static bool passes(const bq_binding *binding, const bq_prop *prop)
{
    if (bq_prop_is_text(prop)) {
        if (bq_str_blank(prop->text))
            return true;
        bool comparable = !binding->gate_integers || prop->type == BQ_PROP_STRING;
        return comparable && bq_str_equal(prop->text, BQ_STR("1"));
    }
    bool integer = prop->type == BQ_PROP_INT || prop->type == BQ_PROP_LONG;
    return binding->gate_integers && integer && prop->num == 1;
}

bool bq_gate(const bq_binding *binding, const bq_prop *props, size_t count, bq_str *reported, bq_buf *scratch)
{
    if (reported)
        *reported = BQ_STR_NULL;
    if (!binding->gate_name)
        return false;
    const bq_prop *prop = bq_prop_find(props, count, BQ_PLACE_HEADER, bq_str_of(binding->gate_name));
    if (!prop || passes(binding, prop))
        return false;
    if (reported) {
        /* Without memory the version stays unreported; the verdict does not depend on it. */
        size_t before = scratch->len;
        if (add_value(scratch, prop) == BQ_OK)
            *reported = (bq_str){scratch->ptr + before, scratch->len - before};
        else
            bq_buf_truncate(scratch, before);
    }
    return true;
}
