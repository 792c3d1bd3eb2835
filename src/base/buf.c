/*
 * buf.c - a growable buffer with a ceiling. `cap` is what is allocated and always holds one byte more than `len`
 * for the NUL; `max` bounds `len`. Growth is by half, at least to 64 bytes, never beyond the ceiling, so that
 * appending byte by byte is linear and a ceiling of n costs n + 1 bytes at most.
 */
#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CAP_MIN ((size_t)64)
#define LEN_MAX ((size_t)PTRDIFF_MAX - 1)

void bq_buf_init(bq_buf *buf, size_t max)
{
    *buf = (bq_buf){.max = max};
}

void bq_buf_clear(bq_buf *buf)
{
    bq_free(buf->ptr);
    *buf = (bq_buf){.max = buf->max};
}

void bq_buf_reset(bq_buf *buf)
{
    buf->len = 0;
    buf->failed = false;
    buf->too_large = false;
    if (buf->ptr)
        buf->ptr[0] = '\0';
}

bq_str bq_buf_str(const bq_buf *buf)
{
    return (bq_str){buf->ptr, buf->len};
}

static bq_status fail(bq_buf *buf, bool too_large)
{
    if (!buf->failed)
        buf->too_large = too_large;
    buf->failed = true;
    return buf->too_large ? BQ_DATA : BQ_NOMEM;
}

bq_status bq_buf_reserve(bq_buf *buf, size_t extra)
{
    if (buf->failed)
        return fail(buf, false);
    /* Compared by subtraction: len + extra may overflow. */
    if (extra < buf->cap - buf->len)
        return BQ_OK;
    size_t max = buf->max == 0 || buf->max > LEN_MAX ? LEN_MAX : buf->max;
    if (buf->len > max || extra > max - buf->len)
        return fail(buf, true);
    size_t need = buf->len + extra + 1;
    size_t cap = buf->cap + buf->cap / 2;
    if (cap < CAP_MIN)
        cap = CAP_MIN;
    if (cap > max + 1)
        cap = max + 1;
    if (cap < need)
        cap = need;
    char *ptr = bq_realloc(buf->ptr, cap);
    if (!ptr)
        return fail(buf, false);
    buf->ptr = ptr;
    buf->cap = cap;
    buf->ptr[buf->len] = '\0';
    return BQ_OK;
}

bq_status bq_buf_add(bq_buf *buf, const void *bytes, size_t len)
{
    /* A caller may append a part of the buffer to itself; growing would pull it away. */
    uintptr_t from = (uintptr_t)bytes, own = (uintptr_t)buf->ptr;
    bool inside = buf->ptr && from >= own && from - own < buf->cap;

    bq_status status = bq_buf_reserve(buf, len);
    if (status != BQ_OK)
        return status;
    if (len > 0) {
        memmove(buf->ptr + buf->len, inside ? buf->ptr + (from - own) : bytes, len);
        buf->len += len;
        buf->ptr[buf->len] = '\0';
    }
    return BQ_OK;
}

bq_status bq_buf_add_str(bq_buf *buf, bq_str s)
{
    return bq_buf_add(buf, s.ptr, s.len);
}

bq_status bq_buf_add_byte(bq_buf *buf, char byte)
{
    if (!buf->failed && buf->len + 1 < buf->cap) {
        buf->ptr[buf->len++] = byte;
        buf->ptr[buf->len] = '\0';
        return BQ_OK;
    }
    return bq_buf_add(buf, &byte, 1);
}

bq_status bq_buf_addf(bq_buf *buf, const char *format, ...)
{
    if (buf->failed)
        return fail(buf, false);
    va_list args;
    size_t room = buf->cap - buf->len;
    va_start(args, format);
    int n = vsnprintf(room ? buf->ptr + buf->len : NULL, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room) {
        if (room)
            buf->ptr[buf->len] = '\0'; /* takes back what did not fit */
        if (n < 0)
            return fail(buf, false);
        bq_status status = bq_buf_reserve(buf, (size_t)n);
        if (status != BQ_OK)
            return status;
        va_start(args, format);
        (void)vsnprintf(buf->ptr + buf->len, (size_t)n + 1, format, args);
        va_end(args);
    }
    buf->len += (size_t)n;
    return BQ_OK;
}

void bq_buf_consume(bq_buf *buf, size_t count)
{
    if (count == 0 || buf->len == 0)
        return;
    if (count > buf->len)
        count = buf->len;
    buf->len -= count;
    memmove(buf->ptr, buf->ptr + count, buf->len);
    buf->ptr[buf->len] = '\0';
}

void bq_buf_truncate(bq_buf *buf, size_t len)
{
    if (len >= buf->len)
        return;
    buf->len = len;
    buf->ptr[len] = '\0';
}

char *bq_buf_take(bq_buf *buf, size_t *len)
{
    char *ptr = buf->ptr;
    if (len)
        *len = buf->len;
    buf->ptr = NULL;
    buf->len = buf->cap = 0;
    return ptr;
}
