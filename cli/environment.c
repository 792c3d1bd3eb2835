/*
 * environment.c - the environment of a handler. Values are text without NUL: a NUL that a message holds becomes U+FFFD,
 * since cutting the value there would make it another value.
 */
#include "environment.h"
#include "out.h"
#include "process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

#define HEADERS_MAX ((size_t)512 * 1024) /* of all headers together */
#define HEADERS_COUNT 1024 /* whoever publishes chooses how many there are, and each is compared with all */

static char **inherited;
static size_t inherited_count;

/* Names that a handler of bq finds in its environment: those of another bq must not reach ours. */
static bool is_ours(const char *variable)
{
    static const char *const names[] = {"BQ_URN",  "BQ_ID",         "BQ_TRACE_ID", "BQ_ATTEMPTS",      "BQ_QUEUE",
                                        "BQ_LANG", "BQ_CREATED_AT", "BQ_REPLAY",   "BQ_ENVELOPE_FILE", "TRACEPARENT"};
    size_t len = strcspn(variable, "=");
    if (strncmp(variable, "BQ_HEADER_", 10) == 0)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == len && memcmp(names[i], variable, len) == 0)
            return true;
    return false;
}

bool environment_setup(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    inherited = calloc(count + 1, sizeof(*inherited));
    if (!inherited)
        return false;
    inherited_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_ours(environ[i]))
            inherited[inherited_count++] = environ[i];
    return true;
}

void environment_clear(void)
{
    free(inherited);
    inherited = NULL;
    inherited_count = 0;
}

char **environment_inherited(void)
{
    return inherited;
}

/* ---- one message ----------------------------------------------------------------------------------------------------- */

static void add_value(bq_buf *text, bq_str value)
{
    while (value.len > 0) {
        const char *nul = memchr(value.ptr, '\0', value.len);
        size_t n = nul ? (size_t)(nul - value.ptr) : value.len;
        bq_buf_add(text, value.ptr, n);
        if (nul)
            bq_buf_add(text, "\xEF\xBF\xBD", 3);
        n += nul ? 1 : 0;
        value = (bq_str){value.ptr + n, value.len - n};
    }
}

/* Variables stand in `text` one behind the other, each with its NUL. */
static void add(bq_buf *text, const char *name, bq_str value)
{
    if (value.len > ENVIRONMENT_VALUE_MAX) {
        out_warn("%s is left out of a handler's environment: it has %zu bytes", name, value.len);
        return;
    }
    bq_buf_add(text, name, strlen(name));
    bq_buf_add(text, "=", 1);
    add_value(text, value);
    bq_buf_add(text, "", 1);
}

static void add_number(bq_buf *text, const char *name, int64_t value)
{
    char number[24];
    int n = snprintf(number, sizeof(number), "%" PRId64, value);
    add(text, name, (bq_str){number, (size_t)n});
}

/* "BQ_HEADER_X_TENANT": upper case, every other byte than A-Z and 0-9 becomes "_". */
static void header_variable(bq_str name, char *out, size_t size)
{
    size_t n = 0;
    for (const char *prefix = "BQ_HEADER_"; *prefix; prefix++)
        out[n++] = *prefix;
    for (size_t i = 0; i < name.len && n + 1 < size; i++) {
        char c = name.ptr[i];
        if (c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        bool keep = (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        out[n++] = keep ? c : '_';
    }
    out[n] = '\0';
}

/* Two headers may have one variable ("a-b", "a_b"): the first one has it. */
static bool has_variable(const bq_buf *text, size_t from, const char *name)
{
    size_t len = strlen(name);
    for (size_t at = from; at < text->len; at += strlen(text->ptr + at) + 1)
        if (strncmp(text->ptr + at, name, len) == 0 && text->ptr[at + len] == '=')
            return true;
    return false;
}

static void add_headers(bq_buf *text, const bq_delivery *delivery)
{
    bq_str name, value;
    char variable[256];
    size_t from = text->len, count = 0, rest = 0;
    for (size_t i = 0; bq_delivery_header_at(delivery, i, &name, &value); i++) {
        if (count >= HEADERS_COUNT) {
            rest++;
            continue;
        }
        header_variable(name, variable, sizeof(variable));
        if (has_variable(text, from, variable))
            continue;
        count++;
        if (text->len - from + value.len > HEADERS_MAX) {
            out_warn("%s is left out of a handler's environment: the headers are too long together", variable);
            continue;
        }
        add(text, variable, value);
    }
    if (rest)
        out_warn("%zu headers are left out of a handler's environment: it takes %d", rest, HEADERS_COUNT);
    value = bq_delivery_header(delivery, BQ_STR("traceparent"));
    if (value.ptr)
        add(text, "TRACEPARENT", value);
}

static bool point(environment *env)
{
    size_t count = 0, at = inherited_count;
    for (size_t i = 0; i < env->text.len; i++)
        count += env->text.ptr[i] == '\0';
    env->variables = calloc(inherited_count + count + 1, sizeof(*env->variables));
    if (!env->variables)
        return false;
    memcpy(env->variables, inherited, inherited_count * sizeof(*inherited));
    for (size_t i = 0; i < env->text.len; i += strlen(env->text.ptr + i) + 1)
        env->variables[at++] = env->text.ptr + i;
    return true;
}

bool environment_make(environment *env, const bq_delivery *delivery)
{
    char file[32];
    *env = (environment){NULL, {0}};
    bq_buf *text = &env->text;
    add(text, "BQ_URN", bq_delivery_urn(delivery));
    add(text, "BQ_ID", bq_delivery_id(delivery));
    add(text, "BQ_TRACE_ID", bq_delivery_trace_id(delivery));
    add_number(text, "BQ_ATTEMPTS", bq_delivery_attempts(delivery));
    add(text, "BQ_QUEUE", bq_delivery_queue(delivery));
    add(text, "BQ_LANG", bq_delivery_lang(delivery));
    add_number(text, "BQ_CREATED_AT", bq_delivery_created_at(delivery));
    add(text, "BQ_REPLAY", bq_delivery_is_replay(delivery) ? BQ_STR("1") : BQ_STR("0"));
    snprintf(file, sizeof(file), "/dev/fd/%d", SPAWN_ENVELOPE_FD);
    add(text, "BQ_ENVELOPE_FILE", bq_str_of(file));
    add_headers(text, delivery);
    if (!text->failed && point(env))
        return true;
    environment_free(env);
    return false;
}

void environment_free(environment *env)
{
    free(env->variables);
    env->variables = NULL;
    bq_buf_clear(&env->text);
}
