/*
 * base/mem.h - the only way the library allocates: every call goes through the function that bq_set_allocator gave,
 * so that tests can count allocations and fail each of them.
 */
#ifndef BQ_BASE_MEM_H
#define BQ_BASE_MEM_H

#include <babelqueue/types.h>

void *bq_malloc(size_t size);
void *bq_calloc(size_t count, size_t size); /* NULL on overflow too */
void *bq_realloc(void *ptr, size_t size);   /* size > 0; the old block survives a failure */
void *bq_realloc_array(void *ptr, size_t count, size_t size);
void bq_free(void *ptr);
char *bq_strndup(bq_str s); /* NUL-terminated copy; an absent view gives "" */

#endif
