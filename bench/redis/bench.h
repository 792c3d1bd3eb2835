/* bench/redis/bench.h - what the measurements of bench-redis share. See redis.c for what each one is. */
#ifndef BENCH_REDIS_H
#define BENCH_REDIS_H

#include <stddef.h>

double bench_now(void); /* seconds */
_Noreturn void bench_die(const char *what);
void bench_report(long count, double start); /* messages per second */
/* `data` such that the whole body has about `size` bytes; to be freed. */
char *bench_data(size_t size);

/* raw.c; the arguments of the command line. */
void raw_push(char **argv, long batch);
void raw_work(char **argv, long batch, int pipelined);
void raw_hold(char **argv);

#endif
