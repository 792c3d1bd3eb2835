/*
 * bench/codec/references.c - yyjson and cJSON as contestants: parse, look at the identity, let go.
 */
#include "bench.h"

#include <stdlib.h>

#if BQ_BENCH_YYJSON
#include "yyjson.h"

typedef struct pool {
    void *memory;
    size_t size;
} pool;

static void *pool_open(size_t largest)
{
    pool *p = malloc(sizeof *p);
    if (!p)
        abort();
    p->size = yyjson_read_max_memory_usage(largest, 0);
    p->memory = malloc(p->size);
    if (!p->memory)
        abort();
    return p;
}

static uint64_t identity(yyjson_doc *doc)
{
    return doc ? yyjson_get_len(yyjson_obj_get(yyjson_doc_get_root(doc), "job")) : 0;
}

static uint64_t pool_run(void *state, const char *body, size_t len)
{
    pool *p = state;
    yyjson_alc alc;
    yyjson_alc_pool_init(&alc, p->memory, p->size);
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)body, len, 0, &alc, NULL);
    uint64_t out = identity(doc);
    yyjson_doc_free(doc);
    return out;
}

static uint64_t malloc_run(void *state, const char *body, size_t len)
{
    (void)state;
    yyjson_doc *doc = yyjson_read(body, len, 0);
    uint64_t out = identity(doc);
    yyjson_doc_free(doc);
    return out;
}

const contestant bench_yyjson_pool = {"yyjson, pool", pool_open, pool_run};
const contestant bench_yyjson_malloc = {"yyjson, malloc", NULL, malloc_run};
#endif

#if BQ_BENCH_CJSON
#include <cjson/cJSON.h>
#include <string.h>

static uint64_t cjson_run(void *state, const char *body, size_t len)
{
    (void)state;
    cJSON *doc = cJSON_ParseWithLength(body, len);
    const char *job = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(doc, "job"));
    uint64_t out = job ? strlen(job) : 0;
    cJSON_Delete(doc);
    return out;
}

const contestant bench_cjson = {"cJSON", NULL, cjson_run};
#endif
