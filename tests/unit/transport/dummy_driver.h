/* dummy_driver.h - drivers that move nothing, for tests of URLs and of the registry: "dummy" takes hosts and has an
 * option of every type, "dummyfile" takes a path. */
#ifndef TESTS_DUMMY_DRIVER_H
#define TESTS_DUMMY_DRIVER_H

#include "transport/target.h"

typedef struct dummy_options {
    bq_network_options net;
    bq_tls_options tls;
    const char *text;
    const char *token;
    int64_t count;
    int64_t lease_ms;
    int64_t size;
    int64_t pin;
    bool flag;
    int layout;
    int secret_choice;
} dummy_options;

/* clang-format off */
static const bq_option dummy_table[] = {
    BQ_NETWORK_OPTION_ROWS(dummy_options, net),
    BQ_TLS_OPTION_ROWS(dummy_options, tls),
    {"text", BQ_OPT_STRING, offsetof(dummy_options, text), ":processing", 0, 0, NULL, 0, "BQ_TEST_TEXT", "a text"},
    {"token", BQ_OPT_STRING, offsetof(dummy_options, token), NULL, 0, 0, NULL, BQ_OPT_SECRET, "BQ_TEST_TOKEN", "secret"},
    {"count", BQ_OPT_INT, offsetof(dummy_options, count), "3", -5, 100, NULL, 0, "BQ_TEST_COUNT", "a number"},
    {"retry_after", BQ_OPT_DURATION, offsetof(dummy_options, lease_ms), "90s", -1, 7200000, NULL, 0, NULL, "a lease"},
    {"size", BQ_OPT_SIZE, offsetof(dummy_options, size), "64k", 1024, 16777216, NULL, 0, NULL, "a size"},
    {"pin", BQ_OPT_INT, offsetof(dummy_options, pin), NULL, 0, 9999, NULL, BQ_OPT_SECRET, "BQ_TEST_PIN", "a secret"},
    {"flag", BQ_OPT_BOOL, offsetof(dummy_options, flag), "no", 0, 0, NULL, 0, NULL, "a flag"},
    {"layout", BQ_OPT_CHOICE, offsetof(dummy_options, layout), "list", 0, 0, "list|laravel", 0, NULL, "a choice"},
    {"secret_choice", BQ_OPT_CHOICE, offsetof(dummy_options, secret_choice), NULL, 0, 0, "a|bb", BQ_OPT_SECRET, NULL,
     "a secret choice"},
    {NULL, BQ_OPT_STRING, 0, NULL, 0, 0, NULL, 0, NULL, NULL},
};
/* clang-format on */

static const bq_binding dummy_binding = {.name = "dummy"};

static inline const bq_binding *dummy_bind(const void *options)
{
    (void)options;
    return &dummy_binding;
}

static inline bq_status dummy_open(void *t, const bq_transport_config *config, bq_error *err)
{
    (void)t, (void)config, (void)err;
    return BQ_OK;
}

static inline void dummy_close(void *t, int64_t timeout_ms)
{
    (void)t, (void)timeout_ms;
}

static inline size_t dummy_prepare(void *t, size_t want, struct pollfd *fds, size_t max, int64_t *deadline_ms)
{
    (void)t, (void)want, (void)fds, (void)max, (void)deadline_ms;
    return 0;
}

static inline void dummy_service(void *t, const struct pollfd *fds, size_t count)
{
    (void)t, (void)fds, (void)count;
}

static inline size_t dummy_take(void *t, bq_incoming **out, size_t max)
{
    (void)t, (void)out, (void)max;
    return 0;
}

static inline size_t dummy_submit(void *t, bq_op *const *ops, size_t count)
{
    (void)t, (void)ops, (void)count;
    return 0;
}

static inline size_t dummy_reap(void *t, bq_completion *out, size_t max)
{
    (void)t, (void)out, (void)max;
    return 0;
}

static inline void dummy_forget(void *t, bq_incoming *in)
{
    (void)t, (void)in;
}

#define DUMMY_ENTRIES                                                                                                  \
    .size = sizeof(bq_transport_ops), .binding = dummy_bind, .open = dummy_open, .close = dummy_close,                 \
    .prepare = dummy_prepare, .service = dummy_service, .take = dummy_take, .submit = dummy_submit,                    \
    .reap = dummy_reap, .forget = dummy_forget

static const char *const dummy_schemes[] = {"dummy", "dummys", "dummy+unix", NULL};
static const bq_transport_ops dummy_ops = {
    DUMMY_ENTRIES,
    .name = "dummy",
    .schemes = dummy_schemes,
    .summary = "moves nothing",
    .url_syntax = "dummy://USER:PASSWORD@HOST:PORT/DB",
    .table = dummy_table,
    .options_size = sizeof(dummy_options),
};

static const char *const dummy_file_schemes[] = {"dummyfile", NULL};
static const bq_transport_ops dummy_file_ops = {
    DUMMY_ENTRIES,
    .name = "dummyfile",
    .schemes = dummy_file_schemes,
    .summary = "moves nothing",
    .url_syntax = "dummyfile:PATH",
    .table = dummy_table,
    .options_size = sizeof(dummy_options),
};

#endif
