/* redis/script.h - the Lua scripts of lua/, embedded at build time, with the digests by which a server knows them. */
#ifndef BQ_REDIS_SCRIPT_H
#define BQ_REDIS_SCRIPT_H

#include <stddef.h>

typedef enum rd_script {
    RD_LIST_RESERVE,
    RD_LIST_SETTLE,
    RD_LIST_PARK,
    RD_LIST_ADOPT,
    RD_LIST_STATS,
    RD_LIST_PARKED,
    RD_LIST_PURGE,
    RD_LARAVEL_RESERVE,
    RD_LARAVEL_SETTLE,
    RD_LARAVEL_PUSH,
    RD_LARAVEL_DELAY,
    RD_LARAVEL_STATS,
    RD_LARAVEL_PURGE,
    RD_BULL_ADD,
    RD_BULL_RESERVE,
    RD_BULL_SETTLE,
    RD_BULL_STALLED,
    RD_BULL_STATS,
    RD_BULL_PURGE,
    RD_BULL_PEEK,
    RD_BULL_FAILED,
    RD_BULL_RETRY,
    RD_SCRIPTS
} rd_script;

typedef struct rd_script_text {
    const char *name;
    const char *sha1; /* 40 lower-case hex digits */
    const unsigned char *text;
    size_t len;
} rd_script_text;

extern const rd_script_text bq_rd_scripts[RD_SCRIPTS];

#endif
