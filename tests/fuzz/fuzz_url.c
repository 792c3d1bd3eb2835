/*
 * fuzz_url.c - URLs and options from any bytes. The input is a URL of the dummy driver and, after its first NUL, the
 * name and the value of one option. Properties beside "no crash, no leak": an error has a text of one valid line and
 * no output; a success has strings within its block, a loggable form without the secrets, and no byte that was
 * refused; what was accepted is accepted again in its loggable form.
 */
#include "base/error.h"
#include "base/utf8.h"
#include "transport/options.h"
#include "unit/transport/dummy_driver.h"

#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    CHECK(bq_transport_register(&dummy_ops, NULL) == BQ_OK);
    CHECK(bq_transport_register(&dummy_file_ops, NULL) == BQ_OK);
    return 0;
}

static void check_error(const bq_error *err, bq_status status)
{
    size_t len = strnlen(err->text, sizeof err->text);
    CHECK(err->status == status && len > 0 && len < sizeof err->text);
    CHECK(bq_utf8_invalid(err->text, len) == len);
    for (size_t i = 0; i < len; i++)
        CHECK((unsigned char)err->text[i] >= 0x20 && err->text[i] != 0x7F);
}

/* Where the secret is unmistakable: long, and not a piece of the mask. */
static void check_hidden(const char *safe, const char *secret)
{
    if (secret && strlen(secret) >= 12 && !strchr(secret, '*'))
        CHECK(!strstr(safe, secret));
}

static void check_target(const bq_target *target, size_t len)
{
    const bq_url *url = &target->url;
    CHECK(target->ops && target->binding && target->options && url->scheme && url->safe);
    CHECK(strlen(url->scheme) <= len && (!url->path || strlen(url->path) <= len));
    CHECK(!url->user || (*url->user && strlen(url->user) <= len));
    for (size_t i = 0; i < url->host_count; i++)
        CHECK(*url->hosts[i].name && url->hosts[i].port >= 0 && url->hosts[i].port <= 65535);
    CHECK(!strchr(url->safe, '#') && !strchr(url->safe, '\n'));
}

static void fuzz_target(const char *text)
{
    bq_target target, again;
    bq_error err;
    bq_status status = bq_target_parse(&target, text, &err);
    if (status != BQ_OK) {
        check_error(&err, status);
        CHECK(!target.ops && !target.options && !target.storage);
        return;
    }
    check_target(&target, strlen(text));
    const dummy_options *options = target.options;
    /* The same words may stand elsewhere, openly; then nothing can be said. */
    const char *secret = target.url.password, *first = secret ? strstr(text, secret) : NULL;
    if (!strstr(text, "text=") && !strstr(text, "name=") && !(first && strstr(first + 1, secret)))
        check_hidden(target.url.safe, target.url.password);
    if (target.ops == &dummy_ops || target.ops == &dummy_file_ops)
        CHECK(options->net.reconnect_min_ms <= options->net.reconnect_max_ms && options->text);
    /* Masks fit every type that a secret may have but numbers and choices. */
    if (!strstr(text, "pin") && !strstr(text, "secret_choice") && !strchr(text, '%')) {
        CHECK(bq_target_parse(&again, target.url.safe, &err) == BQ_OK);
        CHECK(again.url.host_count == target.url.host_count && !again.url.password == !target.url.password);
        CHECK(strcmp(again.url.safe, target.url.safe) == 0);
        bq_target_clear(&again);
    }
    bq_target_clear(&target);
}

static void fuzz_option(bq_str rest)
{
    const char *nul = rest.len ? memchr(rest.ptr, '\0', rest.len) : NULL;
    if (!nul)
        return;
    bq_str name = {rest.ptr, (size_t)(nul - rest.ptr)}, value = {nul + 1, rest.len - name.len - 1};
    dummy_options options = {0};
    bq_error err;
    bq_status status = bq_options_set(dummy_table, &options, name, value, &err);
    const bq_option *row = bq_options_find(dummy_table, name);
    if (status != BQ_OK) {
        CHECK(status == BQ_INVALID);
        check_error(&err, status);
    } else {
        CHECK(row);
        if (row->type == BQ_OPT_INT || row->type == BQ_OPT_DURATION || row->type == BQ_OPT_SIZE) {
            int64_t number;
            memcpy(&number, (const char *)&options + row->offset, sizeof number);
            CHECK(number >= row->min && number <= row->max);
        }
    }
    bq_options_clear(dummy_table, &options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    CHECK(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    size_t len = strlen(text);
    fuzz_target(text);
    if (len < size)
        fuzz_option((bq_str){text + len + 1, size - len - 1});
    free(text);
    return 0;
}
