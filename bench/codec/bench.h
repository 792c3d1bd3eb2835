/*
 * bench/codec/bench.h - what a contestant of the codec benchmark is: something that reads one body and gives back a
 * number that depends on it, so that the compiler cannot leave the work out.
 */
#ifndef BQ_BENCH_CODEC_H
#define BQ_BENCH_CODEC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct contestant {
    const char *name;
    void *(*open)(size_t largest); /* may be NULL */
    uint64_t (*run)(void *state, const char *body, size_t len);
} contestant;

extern const contestant bench_bq;
extern const contestant bench_bq_rewrite; /* attempts + 1 of a body that was decoded outside of the clock */
extern const contestant bench_copy;       /* malloc, copy, free: what a rewrite is measured by */
extern const contestant bench_yyjson_pool;
extern const contestant bench_yyjson_malloc;
extern const contestant bench_simdjson;
extern const contestant bench_cjson;

#ifdef __cplusplus
}
#endif

#endif
