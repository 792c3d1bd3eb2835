/* memory/memory.h - what the parts of the memory driver share with each other. */
#ifndef BQ_MEMORY_MEMORY_H
#define BQ_MEMORY_MEMORY_H

#include "transport/memory/store.h"

extern const bq_transport_ops bq_memory_ops;
extern const bq_admin_ops bq_memory_admin;

mem_store *bq_memory_store(void *state);
int64_t bq_memory_now(void *state);

#endif
