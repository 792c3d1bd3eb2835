/* base/buf.h - the rest of bq_buf's operations (see babelqueue/types.h for the type and its ceiling). */
#ifndef BQ_BASE_BUF_H
#define BQ_BASE_BUF_H

#include <babelqueue/types.h>

/* Makes room for `extra` more bytes, so that the next appends of that size cannot fail. */
bq_status bq_buf_reserve(bq_buf *buf, size_t extra);
bq_status bq_buf_add_str(bq_buf *buf, bq_str s);
bq_status bq_buf_add_byte(bq_buf *buf, char byte);
bq_status bq_buf_addf(bq_buf *buf, const char *format, ...) BQ_PRINTF(2, 3);
#define bq_buf_add_lit(buf, literal) bq_buf_add((buf), "" literal, sizeof(literal) - 1)
/* Drops bytes from the front (a consumed prefix) or from the back. */
void bq_buf_consume(bq_buf *buf, size_t count);
void bq_buf_truncate(bq_buf *buf, size_t len);
/* Hands the bytes over (free with bq_free); the buffer is empty afterwards. NULL when nothing was ever added. */
char *bq_buf_take(bq_buf *buf, size_t *len);

#endif
