/*
 * contract/props.h - what the property functions of this directory share.
 */
#ifndef BQ_CONTRACT_PROPS_H
#define BQ_CONTRACT_PROPS_H

#include <babelqueue/binding.h>

#include "base/buf.h"
#include "base/error.h"

/* "string, binary and symbol values are all read" (contract 5), and an SQS Number is text too. */
static inline bool bq_prop_is_text(const bq_prop *prop)
{
    return prop->type == BQ_PROP_STRING || prop->type == BQ_PROP_BINARY || prop->type == BQ_PROP_SYMBOL ||
           prop->type == BQ_PROP_NUMBER;
}

/* The verdicts whose spans may be read: the bytes are one JSON object. */
static inline bool bq_is_object(const bq_envelope *env)
{
    return env->verdict == BQ_VERDICT_OK || env->verdict == BQ_VERDICT_NONCONFORMANT ||
           env->verdict == BQ_VERDICT_POISON_TYPE || env->verdict == BQ_VERDICT_POISON_IDENTITY;
}

/* Room for about `extra` more bytes in one go. Only a hint: where a ceiling is near, the appends decide. */
static inline void bq_buf_hint(bq_buf *buf, size_t extra)
{
    if (buf->max == 0 || (buf->len <= buf->max && extra <= buf->max - buf->len))
        bq_buf_reserve(buf, extra);
}

/* A buffer that could not take more: NOMEM, or DATA at its ceiling. */
static inline bq_status bq_fail_buffer(bq_error *err, bq_status status)
{
    return status == BQ_NOMEM ? bq_fail_nomem(err) : bq_fail(err, status, "larger than the buffer may become");
}

#endif
