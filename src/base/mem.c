/*
 * mem.c - allocation through one replaceable function. The hook is set once, before any thread of ours exists
 * (types.h), so it is read without synchronisation. Without a hook the C library is called directly.
 */
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bq_realloc_fn hook;
static void *hook_arg;

void bq_set_allocator(bq_realloc_fn realloc_fn, void *arg)
{
    hook = realloc_fn;
    hook_arg = arg;
}

/* Size 0 would free in a hook and is the implementation's choice in malloc: a block of one byte instead. */
void *bq_malloc(size_t size)
{
    if (size == 0)
        size = 1;
    return hook ? hook(NULL, size, hook_arg) : malloc(size);
}

void *bq_calloc(size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    if (total == 0)
        total = 1;
    if (!hook)
        return calloc(1, total);
    void *ptr = hook(NULL, total, hook_arg);
    if (ptr)
        memset(ptr, 0, total);
    return ptr;
}

void *bq_realloc(void *ptr, size_t size)
{
    if (size == 0)
        size = 1;
    return hook ? hook(ptr, size, hook_arg) : realloc(ptr, size);
}

void *bq_realloc_array(void *ptr, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return bq_realloc(ptr, total);
}

void bq_free(void *ptr)
{
    if (!ptr)
        return;
    if (hook)
        (void)hook(ptr, 0, hook_arg);
    else
        free(ptr);
}

char *bq_strndup(bq_str s)
{
    if (s.len == SIZE_MAX)
        return NULL;
    char *copy = bq_malloc(s.len + 1);
    if (!copy)
        return NULL;
    if (s.len > 0)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return copy;
}
