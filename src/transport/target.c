/*
 * target.c - from a URL to everything that opening it needs. The order: cut the URL, find the driver, check that the
 * URL has the driver's form, fill its options (defaults, URL, environment), check them against each other, mask the
 * URL for logs. bq_target_clear undoes any prefix of that, so there is one way out.
 */
#include "transport/target.h"

#include "base/error.h"
#include "base/mem.h"
#include "transport/options.h"
#include "transport/registry.h"
#include "transport/url.h"

#include <string.h>

/* ---- form -------------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* "sqlite://file.db" names a host and no file; "redis:host" a file and no host. */
static bq_status check_form(const bq_transport_ops *ops, const bq_url_parts *parts, bq_error *err)
{
    const bq_url *url = &parts->url;
    if (ops->url_syntax) {
        bool hosts = strstr(ops->url_syntax, "://") != NULL;
        bool login = url->user || url->password;
        if (!hosts && (url->host_count > 0 || login))
            return bq_fail(err, BQ_INVALID,
                           "URL: \"%s\" takes no host and no user; it is written %s (a path after "
                           "'//' must begin with a third '/')",
                           url->scheme, ops->url_syntax);
        if (hosts && parts->opaque)
            return bq_fail(err, BQ_INVALID, "URL: \"%s:\" must be followed by '//'; it is written %s", url->scheme,
                           ops->url_syntax);
    }
    if (!ends_with(url->scheme, "+unix"))
        return BQ_OK;
    if (url->host_count > 0 || !url->path || url->path[0] != '/' || url->path[1] == '\0')
        return bq_fail(err, BQ_INVALID,
                       "URL: \"%s\" takes no host, only the absolute path of a socket, as in "
                       "%s:///run/broker.sock",
                       url->scheme, url->scheme);
    return BQ_OK;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bool given_before(const bq_url_parts *parts, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (bq_str_equal(parts->options[i].name, parts->options[index].name))
            return true;
    }
    return false;
}

static bool given(const bq_url_parts *parts, const bq_option *row)
{
    for (size_t i = 0; i < parts->option_count; i++) {
        if (bq_str_equal(parts->options[i].name, bq_str_of(row->name)))
            return true;
    }
    return false;
}

static bq_status set_from_url(bq_target *target, const bq_url_parts *parts, bq_error *err)
{
    const bq_option *table = target->ops->table;
    for (size_t i = 0; i < parts->option_count; i++) {
        const bq_url_option *option = &parts->options[i];
        const bq_option *row = bq_options_find(table, option->name);
        if (!row)
            return bq_options_unknown(table, option->name, err);
        if (!option->value.ptr)
            return bq_fail(err, BQ_INVALID, "option \"%s\": it has no value, as in %s=VALUE", row->name, row->name);
        if (given_before(parts, i))
            return bq_fail(err, BQ_INVALID, "option \"%s\": it is given twice", row->name);
        bq_status status = bq_options_set(table, target->options, option->name, option->value, err);
        if (status != BQ_OK)
            return status;
    }
    return BQ_OK;
}

static bq_status set_from_env(bq_target *target, const bq_url_parts *parts, bq_error *err)
{
    for (const bq_option *row = target->ops->table; row && row->name; row++) {
        if (given(parts, row))
            continue;
        bq_status status = bq_options_from_env(row, target->options, err);
        if (status != BQ_OK)
            return status;
    }
    return BQ_OK;
}

/* The field of a shared row (BQ_OPT_NETWORK, BQ_OPT_TLS) in this driver's options, or NULL. */
static const void *shared_field(const bq_target *target, const char *name, unsigned flag)
{
    const bq_option *row = bq_options_find(target->ops->table, bq_str_of(name));
    return row && (row->flags & flag) ? (const char *)target->options + row->offset : NULL;
}

/* What each option allows, but not both together. */
static bq_status check_together(const bq_target *target, bq_error *err)
{
    const int64_t *min = shared_field(target, "reconnect_min", BQ_OPT_NETWORK);
    const int64_t *max = shared_field(target, "reconnect_max", BQ_OPT_NETWORK);
    if (min && max && *min > *max)
        return bq_fail(err, BQ_CONFIG, "reconnect_min (%lld ms) is longer than reconnect_max (%lld ms)",
                       (long long)*min, (long long)*max);
    const char *const *cert = shared_field(target, "tls_cert", BQ_OPT_TLS);
    const char *const *key = shared_field(target, "tls_key", BQ_OPT_TLS);
    if (cert && key && !*cert != !*key)
        return bq_fail(err, BQ_CONFIG, "tls_cert and tls_key go together: %s is missing",
                       *cert ? "tls_key" : "tls_cert");
    return BQ_OK;
}

static bq_status fill_options(bq_target *target, const bq_url_parts *parts, bq_error *err)
{
    const bq_transport_ops *ops = target->ops;
    target->options = bq_calloc(1, ops->options_size);
    if (!target->options)
        return bq_fail_nomem(err);
    bq_status status = bq_options_defaults(ops->table, target->options, err);
    if (status == BQ_OK)
        status = set_from_url(target, parts, err);
    if (status == BQ_OK)
        status = set_from_env(target, parts, err);
    if (status == BQ_OK)
        status = check_together(target, err);
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

bq_status bq_target_parse(bq_target *out, const char *url, bq_error *err)
{
    bq_url_parts parts;
    *out = (bq_target){0};
    bq_status status = bq_url_parse(&parts, url, err);
    if (status != BQ_OK)
        return status;
    out->storage = parts.storage;
    status = bq_transport_find(bq_str_of(parts.url.scheme), &out->ops, err);
    if (status == BQ_OK)
        status = check_form(out->ops, &parts, err);
    if (status == BQ_OK)
        status = fill_options(out, &parts, err);
    if (status != BQ_OK)
        goto out;
    out->binding = out->ops->binding(out->options);
    if (!out->binding) {
        status = bq_fail(err, BQ_CONFIG, "driver %s: no binding for these options", out->ops->name);
        goto out;
    }
    bq_url_mask(&parts, out->ops->table);
    out->url = parts.url;
out:
    if (status != BQ_OK)
        bq_target_clear(out);
    return status;
}

void bq_target_clear(bq_target *target)
{
    if (target->ops)
        bq_options_clear(target->ops->table, target->options);
    bq_free(target->options);
    bq_free(target->storage);
    *target = (bq_target){0};
}
