/*
 * redis/frame.h - out-of-band headers beside an envelope in a Redis list (contract 7.1): an element is the bare
 * envelope or, with headers, the frame
 *
 *     {"__bq_frame":1,"headers":{"traceparent":"00-..."},"body":"<envelope text>"}
 *
 * Pure functions.
 */
#ifndef BQ_REDIS_FRAME_H
#define BQ_REDIS_FRAME_H

#include <babelqueue/binding.h>

/* Appends the element of a body with those properties: a frame when there is a header that is a text and not empty,
 * else the body's own bytes. A body that is not UTF-8 cannot stand in a frame and goes bare, without its headers
 * (*dropped, may be NULL, says so); one that would itself be read as a frame is framed even without any. */
bq_status bq_rd_frame_make(bq_str body, const bq_prop *props, size_t count, bq_buf *out, bool *dropped);
/* Must rd_frame_make be asked, or is the element the body itself? */
bool bq_rd_frame_needed(bq_str body, const bq_prop *props, size_t count);

/* What an element says. Of a bare one `body` is `element`. Of a frame, body and headers are views of `text`, which
 * holds their unescaped bytes; the properties are allocated (bq_free), NULL when there are none. */
typedef struct rd_frame {
    bool framed;
    bq_str body;
    bq_prop *props;
    size_t prop_count;
    bq_buf text;
} rd_frame;

/* NOMEM only. */
bq_status bq_rd_frame_read(bq_str element, rd_frame *out) BQ_MUST_CHECK;
void bq_rd_frame_clear(rd_frame *frame);
/* The texts of a JSON object as properties (BullMQ's telemetry metadata): none when it is no object. NOMEM only. */
bq_status bq_rd_headers_read(bq_str object, rd_frame *out) BQ_MUST_CHECK;

#endif
