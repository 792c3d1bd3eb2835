/*
 * options.c - option tables: from a row and a text to a field of a driver's struct. Every error names the option; it
 * shows the value only where that is no secret.
 */
#include "transport/options.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SHOWN_MAX 40

static void *field(const bq_option *row, void *options)
{
    return (char *)options + row->offset;
}

const bq_option *bq_options_find(const bq_option *table, bq_str name)
{
    for (const bq_option *row = table; row && row->name; row++) {
        if (bq_str_equal(name, bq_str_of(row->name)))
            return row;
    }
    return NULL;
}

/* A mistake may have put a part of a password where a name is expected. */
static bool looks_like_a_name(bq_str name)
{
    if (name.len == 0 || name.len > NAME_SHOWN_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
              c == '-'))
            return false;
    }
    return true;
}

bq_status bq_options_unknown(const bq_option *table, bq_str name, bq_error *err)
{
    bq_nearest nearest = {.wanted = name};
    for (const bq_option *row = table; row && row->name; row++)
        bq_nearest_offer(&nearest, bq_str_of(row->name));
    if (!looks_like_a_name(name))
        return bq_fail(err, BQ_INVALID, "unknown option, with a name that is none");
    if (!nearest.best.ptr)
        return bq_fail(err, BQ_INVALID, "unknown option \"%.*s\": there are no options here", BQ_FMT(name));
    return bq_fail(err, BQ_INVALID, "unknown option \"%.*s\": the nearest known one is \"%.*s\"", BQ_FMT(name),
                   BQ_FMT(nearest.best));
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Decimal digits with an optional minus sign, then an optional `k` or `m` where `sizes`. */
static bool parse_int(bq_str text, bool sizes, int64_t *out)
{
    bool negative = text.len > 0 && text.ptr[0] == '-';
    size_t i = negative;
    int64_t value = 0, unit = 1;
    if (sizes && text.len > 0 && (text.ptr[text.len - 1] == 'k' || text.ptr[text.len - 1] == 'm')) {
        unit = text.ptr[text.len - 1] == 'k' ? 1024 : 1024 * 1024;
        text.len--;
    }
    if (i == text.len)
        return false;
    for (; i < text.len; i++) {
        int digit = text.ptr[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) /* downwards, so that INT64_MIN can be written */
            return false;
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, value, &value))
        return false;
    return !__builtin_mul_overflow(value, unit, out);
}

typedef struct unit {
    const char *suffix;
    int64_t size;
} unit;

static const unit duration_units[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
static const unit size_units[] = {{"m", 1024 * 1024}, {"k", 1024}, {"", 1}};
static const unit plain_units[] = {{"", 1}};

#define LIMIT_SIZE 32

/* A limit as the user would write it, in the largest unit that is exact. */
static const char *limit_text(char out[LIMIT_SIZE], bq_option_type type, int64_t value)
{
    const unit *u = type == BQ_OPT_DURATION ? duration_units : type == BQ_OPT_SIZE ? size_units : plain_units;
    while (u->size != 1 && (value == 0 || value % u->size != 0))
        u++;
    (void)snprintf(out, LIMIT_SIZE, "%lld%s", (long long)(value / u->size), u->suffix);
    return out;
}

static bool may_be_off(const bq_option *row)
{
    return row->type == BQ_OPT_DURATION && row->min == -1;
}

static const char *kind(const bq_option *row)
{
    switch (row->type) {
    case BQ_OPT_BOOL: return "yes or no";
    case BQ_OPT_INT: return "a whole number";
    case BQ_OPT_DURATION:
        return may_be_off(row) ? "a duration (such as 250ms, 5s, 2m, 1h) or off"
                               : "a duration (such as 250ms, 5s, 2m, 1h)";
    case BQ_OPT_SIZE: return "a size in bytes (such as 4096, 64k, 1m)";
    default: return "a text without a NUL byte";
    }
}

static bq_status bad_kind(const bq_option *row, bq_str value, bq_error *err)
{
    if (row->flags & BQ_OPT_SECRET)
        return bq_fail(err, BQ_INVALID, "option \"%s\": must be %s", row->name, kind(row));
    return bq_fail(err, BQ_INVALID, "option \"%s\": \"%.*s\" is not %s", row->name, BQ_FMT(value), kind(row));
}

static bq_status out_of_range(const bq_option *row, bq_str value, bq_error *err)
{
    char min[LIMIT_SIZE], max[LIMIT_SIZE];
    (void)limit_text(min, row->type, may_be_off(row) ? 0 : row->min);
    (void)limit_text(max, row->type, row->max);
    if (row->flags & BQ_OPT_SECRET)
        return bq_fail(err, BQ_INVALID, "option \"%s\": must be between %s and %s", row->name, min, max);
    return bq_fail(err, BQ_INVALID, "option \"%s\": \"%.*s\" is not between %s and %s", row->name, BQ_FMT(value), min,
                   max);
}

static bq_status set_number(const bq_option *row, int64_t *to, bq_str value, bq_error *err)
{
    int64_t number;
    if (row->type == BQ_OPT_DURATION) {
        if (may_be_off(row) && bq_str_equal(value, BQ_STR("off"))) {
            *to = -1;
            return BQ_OK;
        }
        if (!bq_parse_duration(value, &number))
            return bad_kind(row, value, err);
        if (may_be_off(row) && number == 0)
            number = -1;
    } else if (!parse_int(value, row->type == BQ_OPT_SIZE, &number)) {
        return bad_kind(row, value, err);
    }
    if (number < row->min || number > row->max)
        return out_of_range(row, value, err);
    *to = number;
    return BQ_OK;
}

static bq_status set_choice(const bq_option *row, int *to, bq_str value, bq_error *err)
{
    const char *at = row->choices;
    for (int index = 0; at; index++) {
        const char *bar = strchr(at, '|');
        bq_str choice = {at, bar ? (size_t)(bar - at) : strlen(at)};
        if (bq_str_equal(choice, value)) {
            *to = index;
            return BQ_OK;
        }
        at = bar ? bar + 1 : NULL;
    }
    if (row->flags & BQ_OPT_SECRET)
        return bq_fail(err, BQ_INVALID, "option \"%s\": must be one of %s", row->name, row->choices);
    return bq_fail(err, BQ_INVALID, "option \"%s\": \"%.*s\" is not one of %s", row->name, BQ_FMT(value), row->choices);
}

static bq_status set_string(const bq_option *row, const char **to, bq_str value, bq_error *err)
{
    if (value.len > 0 && memchr(value.ptr, '\0', value.len))
        return bad_kind(row, BQ_STR("(text with a NUL byte)"), err);
    char *copy = bq_strndup(value);
    if (!copy)
        return bq_fail_nomem(err);
    bq_free((void *)*to);
    *to = copy;
    return BQ_OK;
}

static bq_status set_row(const bq_option *row, void *options, bq_str value, bq_error *err)
{
    void *to = field(row, options);
    switch (row->type) {
    case BQ_OPT_STRING: return set_string(row, to, value, err);
    case BQ_OPT_BOOL:
        if (!bq_str_equal(value, BQ_STR("yes")) && !bq_str_equal(value, BQ_STR("no")))
            return bad_kind(row, value, err);
        *(bool *)to = value.len == 3;
        return BQ_OK;
    case BQ_OPT_INT:
    case BQ_OPT_DURATION:
    case BQ_OPT_SIZE: return set_number(row, to, value, err);
    case BQ_OPT_CHOICE: return set_choice(row, to, value, err);
    }
    return bq_fail(err, BQ_INTERNAL, "option \"%s\" has no known type", row->name);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

bq_status bq_options_defaults(const bq_option *table, void *options, bq_error *err)
{
    for (const bq_option *row = table; row && row->name; row++) {
        if (!row->fallback)
            continue;
        bq_status status = set_row(row, options, bq_str_of(row->fallback), err);
        if (status != BQ_OK)
            return status;
    }
    return BQ_OK;
}

bq_status bq_options_set(const bq_option *table, void *options, bq_str name, bq_str value, bq_error *err)
{
    const bq_option *row = bq_options_find(table, name);
    return row ? set_row(row, options, value, err) : bq_options_unknown(table, name, err);
}

bq_status bq_options_from_env(const bq_option *row, void *options, bq_error *err)
{
    const char *value = row->env ? getenv(row->env) : NULL;
    if (!value || !*value)
        return BQ_OK;
    bq_status status = set_row(row, options, bq_str_of(value), err);
    if (status != BQ_OK)
        bq_error_prefix(err, "environment variable %s", row->env);
    return status;
}

void bq_options_clear(const bq_option *table, void *options)
{
    for (const bq_option *row = table; options && row && row->name; row++) {
        if (row->type == BQ_OPT_STRING) {
            const char **text = field(row, options);
            bq_free((void *)*text);
            *text = NULL;
        }
    }
}

/* ---- soundness of a table ------------------------------------------------------------------------------------------ */

static size_t field_size(bq_option_type type)
{
    switch (type) {
    case BQ_OPT_STRING: return sizeof(const char *);
    case BQ_OPT_BOOL: return sizeof(bool);
    case BQ_OPT_INT:
    case BQ_OPT_DURATION:
    case BQ_OPT_SIZE: return sizeof(int64_t);
    case BQ_OPT_CHOICE: return sizeof(int);
    }
    return 0;
}

static bq_status check_row(const bq_option *table, const bq_option *row, size_t options_size, bq_error *err)
{
    size_t size = field_size(row->type);
    if (!looks_like_a_name(bq_str_of(row->name)))
        return bq_fail(err, BQ_INVALID, "option table: \"%s\" is no name for an option", row->name);
    if (bq_options_find(table, bq_str_of(row->name)) != row)
        return bq_fail(err, BQ_INVALID, "option table: \"%s\" stands in it twice", row->name);
    if (size == 0)
        return bq_fail(err, BQ_INVALID, "option table: \"%s\" has no known type", row->name);
    if (row->offset > options_size || size > options_size - row->offset || row->offset % size != 0)
        return bq_fail(err, BQ_INVALID, "option table: \"%s\" lies outside the options struct", row->name);
    if (row->type == BQ_OPT_CHOICE && (!row->choices || !*row->choices))
        return bq_fail(err, BQ_INVALID, "option table: \"%s\" has no choices", row->name);
    if (size == sizeof(int64_t) && row->type != BQ_OPT_STRING && row->min > row->max)
        return bq_fail(err, BQ_INVALID, "option table: \"%s\" has an empty range", row->name);
    return BQ_OK;
}

bq_status bq_options_check(const bq_option *table, size_t options_size, bq_error *err)
{
    for (const bq_option *row = table; row && row->name; row++) {
        bq_status status = check_row(table, row, options_size, err);
        if (status != BQ_OK)
            return status;
    }
    void *options = bq_calloc(1, options_size);
    if (!options)
        return bq_fail_nomem(err);
    bq_status status = bq_options_defaults(table, options, err);
    bq_options_clear(table, options);
    bq_free(options);
    if (status != BQ_OK)
        bq_error_prefix(err, "option table: default");
    return status;
}
