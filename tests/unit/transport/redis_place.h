/*
 * redis_place.h - a real Redis server for tests in C: its address comes from $BQ_TEST_REDIS (host:port), which
 * scripts/test sets after it has started one. Places are databases of it, emptied before use. Without the variable
 * a test exits 77, which scripts/test takes for a failure.
 */
#ifndef TESTS_REDIS_PLACE_H
#define TESTS_REDIS_PLACE_H

/* The test's own databases: `count` of them from `first`. Exits 77 without a server. */
void redis_places(int first, int count);
/* The URL of an empty place, the next of them, with the options of redis_options() and then `options`. */
const char *redis_place(const char *options);
/* Options that every place gets: "layout=laravel"; NULL: none. */
void redis_options(const char *options);
/* The scheme of the URLs; "redis" until then. */
void redis_scheme(const char *name);
/* One inline command on the current place, its reply as it came ("+OK\r\n"); valid until the next call. */
const char *redis_do(const char *command);
int redis_port(void);

#endif
