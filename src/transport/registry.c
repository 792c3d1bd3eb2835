/*
 * registry.c - which drivers there are: those built in (cmake decides, bq_config.h tells), then those that the program
 * registers; and which schemes of the contract have no driver in this library, so that a user learns that rather than
 * "unknown". Registration happens before any connection is opened, from one thread; the count is
 * published last, so that lookups from other threads see whole entries.
 */
#include "transport/registry.h"

#include "base/error.h"
#include "base/nearest.h"
#include "transport/options.h"

#include "bq_config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define REGISTERED_MAX 32
#define SCHEME_MAX 32 /* longer words are compared with none */

extern const bq_transport_ops bq_memory_ops;
#if BQ_HAVE_SQLITE
extern const bq_transport_ops bq_sqlite_ops;
#endif
#if BQ_HAVE_REDIS
extern const bq_transport_ops bq_redis_ops, bq_bullmq_ops;
#endif

static const bq_transport_ops *const built_in[] = {
    &bq_memory_ops,
#if BQ_HAVE_SQLITE
    &bq_sqlite_ops,
#endif
#if BQ_HAVE_REDIS
    &bq_redis_ops,  &bq_bullmq_ops,
#endif
    NULL,
};

/* Every scheme of a broker that the contract knows, so that a user of one whose driver is missing here is not told
 * "unknown"; and the build option that would bring the driver. NULL: this version has none, and no option helps. */
static const struct {
    const char *scheme;
    const char *option;
} known[] = {
    {"memory", NULL},      {"sqlite", "BQ_TRANSPORT_SQLITE"},
    {"redis", NULL},       {"rediss", NULL},
    {"redis+unix", NULL},  {"redis+sentinel", NULL},
    {"bullmq", NULL},      {"bullmqs", NULL},
    {"bullmq+unix", NULL}, {"bullmq+sentinel", NULL},
    {"amqp", NULL},        {"amqps", NULL},
    {"kafka", NULL},       {"sqs", NULL},
    {"sb", NULL},          {"artemis", NULL},
    {"artemis+ssl", NULL}, {"pulsar", NULL},
    {"pulsar+ssl", NULL},
};

#define KNOWN_COUNT (sizeof known / sizeof *known)

static const bq_transport_ops *registered[REGISTERED_MAX];
static atomic_size_t registered_count;

const bq_transport_ops *bq_transport_at(size_t index)
{
    for (const bq_transport_ops *const *ops = built_in; *ops; ops++) {
        if (index-- == 0)
            return *ops;
    }
    return index < atomic_load_explicit(&registered_count, memory_order_acquire) ? registered[index] : NULL;
}

static const bq_transport_ops *driver_of(bq_str scheme)
{
    const bq_transport_ops *ops;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        for (const char *const *own = ops->schemes; *own; own++) {
            if (bq_str_equal(scheme, bq_str_of(*own)))
                return ops;
        }
    }
    return NULL;
}

const char *bq_transport_missing_at(size_t index)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (!driver_of(bq_str_of(known[i].scheme)) && index-- == 0)
            return known[i].scheme;
    }
    return NULL;
}

/* The nearest of what can be opened and what is known. A word that is far from all of them resembles none: absent. */
static bq_str nearest_scheme(bq_str scheme)
{
    bq_nearest nearest = {.wanted = scheme};
    const bq_transport_ops *ops;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        for (const char *const *own = ops->schemes; *own; own++)
            bq_nearest_offer(&nearest, bq_str_of(*own));
    }
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        bq_nearest_offer(&nearest, bq_str_of(known[i].scheme));
    return scheme.len <= SCHEME_MAX && nearest.distance <= scheme.len / 3 + 1 ? nearest.best : BQ_STR_NULL;
}

/* "memory, sqlite": the drivers there are, as far as they fit. */
static void list_drivers(char *buf, size_t size)
{
    size_t used = 0;
    const bq_transport_ops *ops;
    buf[0] = '\0';
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        int n = snprintf(buf + used, size - used, "%s%s", i ? ", " : "", ops->name);
        if (n < 0 || (size_t)n >= size - used) {
            buf[used] = '\0';
            return;
        }
        used += (size_t)n;
    }
}

static bq_status not_built(size_t at, bq_error *err)
{
    char drivers[160];
    if (known[at].option)
        return bq_fail(err, BQ_NOT_BUILT, "\"%s\" is not built into this library (build it with %s)", known[at].scheme,
                       known[at].option);
    list_drivers(drivers, sizeof drivers);
    return bq_fail(err, BQ_NOT_BUILT, "\"%s\" is not in this version (%s): built in are %s", known[at].scheme,
                   bq_version(), drivers);
}

bq_status bq_transport_find(bq_str scheme, const bq_transport_ops **ops, bq_error *err)
{
    *ops = driver_of(scheme);
    if (*ops)
        return BQ_OK;
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (bq_str_equal(scheme, bq_str_of(known[i].scheme)))
            return not_built(i, err);
    }
    bq_str nearest = nearest_scheme(scheme);
    if (nearest.ptr)
        return bq_fail(err, BQ_INVALID, "unknown scheme \"%.*s\": the nearest known one is \"%.*s\"", BQ_FMT(scheme),
                       BQ_FMT(nearest));
    char drivers[160];
    list_drivers(drivers, sizeof drivers);
    return bq_fail(err, BQ_INVALID, "unknown scheme \"%.*s\": built in are %s", BQ_FMT(scheme), drivers);
}

/* ---- registration -------------------------------------------------------------------------------------------------- */

static const char *missing_entry(const bq_transport_ops *ops)
{
    const struct {
        const char *name;
        bool there;
    } required[] = {
        {"name", ops->name && *ops->name},
        {"schemes", ops->schemes && ops->schemes[0]},
        {"binding", ops->binding != NULL},
        {"open", ops->open != NULL},
        {"close", ops->close != NULL},
        {"prepare", ops->prepare != NULL},
        {"service", ops->service != NULL},
        {"take", ops->take != NULL},
        {"submit", ops->submit != NULL},
        {"reap", ops->reap != NULL},
        {"forget", ops->forget != NULL},
        {"finish (beside finished)", ops->finish || !ops->finished},
        {"finished (beside finish)", ops->finished || !ops->finish},
        {"idle (BQ_CAP_IDLE)", ops->idle || !(ops->capabilities & BQ_CAP_IDLE)},
        {"admin->peek (BQ_CAP_PEEK)", (ops->admin && ops->admin->peek) || !(ops->capabilities & BQ_CAP_PEEK)},
        {"BQ_CAP_RETRY or BQ_CAP_NATIVE_RETRY (beside BQ_CAP_RETRY_DELAY)",
         (ops->capabilities & (BQ_CAP_RETRY | BQ_CAP_NATIVE_RETRY)) || !(ops->capabilities & BQ_CAP_RETRY_DELAY)},
        {"BQ_CAP_RELEASE (beside BQ_CAP_RELEASE_DELAY)",
         (ops->capabilities & BQ_CAP_RELEASE) || !(ops->capabilities & BQ_CAP_RELEASE_DELAY)},
    };
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        if (!required[i].there)
            return required[i].name;
    }
    return NULL;
}

static bool is_scheme(const char *scheme)
{
    size_t n = 0;
    for (; scheme[n]; n++) {
        char c = scheme[n];
        bool first = c >= 'a' && c <= 'z';
        if (!first && (n == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.')))
            return false;
    }
    return n > 0;
}

bq_status bq_transport_check(const bq_transport_ops *ops, bq_error *err)
{
    if (!ops)
        return bq_fail(err, BQ_INVALID, "driver: none was given");
    if (ops->size != sizeof *ops)
        return bq_fail(err, BQ_INVALID,
                       "driver: its table has size %zu instead of %zu, so it was built against "
                       "another version of babelqueue/transport.h",
                       ops->size, sizeof *ops);
    const char *missing = missing_entry(ops);
    if (missing)
        return bq_fail(err, BQ_INVALID, "driver %s: %s is missing",
                       ops->name && *ops->name ? ops->name : "without name", missing);
    for (const char *const *scheme = ops->schemes; *scheme; scheme++) {
        if (!is_scheme(*scheme))
            return bq_fail(err, BQ_INVALID,
                           "driver %s: \"%s\" is no scheme (lower-case letters first, then digits and "
                           "+ - . too)",
                           ops->name, *scheme);
    }
    bq_status status = bq_options_check(ops->table, ops->options_size, err);
    if (status != BQ_OK)
        bq_error_prefix(err, "driver %s", ops->name);
    return status;
}

static bq_status check_against_others(const bq_transport_ops *ops, bq_error *err)
{
    const bq_transport_ops *other;
    for (size_t i = 0; (other = bq_transport_at(i)); i++) {
        if (strcmp(other->name, ops->name) == 0)
            return bq_fail(err, BQ_INVALID, "driver %s: there is one of that name already", ops->name);
    }
    for (const char *const *scheme = ops->schemes; *scheme; scheme++) {
        other = driver_of(bq_str_of(*scheme));
        if (other)
            return bq_fail(err, BQ_INVALID, "driver %s: the scheme \"%s\" belongs to the driver %s", ops->name, *scheme,
                           other->name);
    }
    return BQ_OK;
}

bq_status bq_transport_register(const bq_transport_ops *ops, bq_error *err)
{
    bq_status status = bq_transport_check(ops, err);
    if (status == BQ_OK)
        status = check_against_others(ops, err);
    if (status != BQ_OK)
        return status;
    size_t count = atomic_load_explicit(&registered_count, memory_order_relaxed);
    if (count == REGISTERED_MAX)
        return bq_fail(err, BQ_BUSY, "driver %s: %d drivers are registered, and that is the limit", ops->name,
                       REGISTERED_MAX);
    registered[count] = ops;
    atomic_store_explicit(&registered_count, count + 1, memory_order_release);
    return BQ_OK;
}
