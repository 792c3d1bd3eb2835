/* fifo.c - see fifo.h. */
#include "net/fifo.h"

#include "base/mem.h"

#include <string.h>

#define CAP_MIN ((size_t)4096)
/* What an idle connection may keep. */
#define CAP_KEPT ((size_t)256 * 1024)

bool bq_fifo_reserve(bq_fifo *fifo, size_t extra)
{
    if (extra <= fifo->cap - fifo->start - fifo->len)
        return true;
    if (extra > (size_t)PTRDIFF_MAX - fifo->len)
        return false;
    size_t need = fifo->len + extra;
    if (need <= fifo->cap && fifo->start >= fifo->cap / 2) {
        memmove(fifo->ptr, fifo->ptr + fifo->start, fifo->len);
        fifo->start = 0;
        return true;
    }
    size_t cap = fifo->cap < CAP_MIN ? CAP_MIN : fifo->cap + fifo->cap / 2;
    if (cap < need)
        cap = need;
    /* A new block rather than realloc: what was consumed need not be copied. */
    char *ptr = bq_malloc(cap);
    if (!ptr)
        return false;
    if (fifo->len > 0)
        memcpy(ptr, fifo->ptr + fifo->start, fifo->len);
    bq_free(fifo->ptr);
    fifo->ptr = ptr;
    fifo->start = 0;
    fifo->cap = cap;
    return true;
}

char *bq_fifo_tail(bq_fifo *fifo, size_t *room)
{
    *room = fifo->cap - fifo->start - fifo->len;
    return *room ? fifo->ptr + fifo->start + fifo->len : NULL;
}

void bq_fifo_produce(bq_fifo *fifo, size_t count)
{
    fifo->len += count;
}

void bq_fifo_put(bq_fifo *fifo, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    memcpy(fifo->ptr + fifo->start + fifo->len, bytes, len);
    fifo->len += len;
}

bq_str bq_fifo_content(const bq_fifo *fifo)
{
    return fifo->len ? (bq_str){fifo->ptr + fifo->start, fifo->len} : BQ_STR_NULL;
}

void bq_fifo_consume(bq_fifo *fifo, size_t count)
{
    if (count < fifo->len) {
        fifo->start += count;
        fifo->len -= count;
        return;
    }
    fifo->start = fifo->len = 0;
}

void bq_fifo_trim(bq_fifo *fifo)
{
    if (fifo->len == 0 && fifo->cap > CAP_KEPT)
        bq_fifo_clear(fifo);
}

void bq_fifo_clear(bq_fifo *fifo)
{
    bq_free(fifo->ptr);
    *fifo = (bq_fifo){0};
}
