/*
 * guarded.h - bytes between two pages that may not be touched: reading one byte before the first or behind the last
 * ends the test program. guarded_end puts the bytes against the page behind them, guarded_start against the one before.
 */
#ifndef TESTS_GUARDED_H
#define TESTS_GUARDED_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
    char *base;
    size_t room, page;
} guarded;

static inline guarded guarded_new(size_t largest)
{
    guarded g;
    g.page = (size_t)sysconf(_SC_PAGESIZE);
    g.room = (largest + g.page - 1) / g.page * g.page;
    if (g.room == 0)
        g.room = g.page;
    g.base = mmap(NULL, g.room + 2 * g.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.base == MAP_FAILED || mprotect(g.base + g.page, g.room, PROT_READ | PROT_WRITE) != 0)
        abort();
    return g;
}

static inline char *guarded_end(guarded *g, const void *bytes, size_t len)
{
    char *to = g->base + g->page + g->room - len;
    if (len > 0)
        memcpy(to, bytes, len);
    return to;
}

static inline char *guarded_start(guarded *g, const void *bytes, size_t len)
{
    char *to = g->base + g->page;
    if (len > 0)
        memcpy(to, bytes, len);
    return to;
}

static inline void guarded_free(guarded *g)
{
    munmap(g->base, g->room + 2 * g->page);
}

#endif
