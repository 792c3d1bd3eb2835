/* redis/layout.c - keys and arguments as both list layouts write them. See layout.h, redis.h. */
#include "transport/redis/redis.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/rand.h"

#include <stdio.h>
#include <string.h>

int64_t bq_rd_look_ms(const rd_transport *t)
{
    return t->layout->look_ms ? t->layout->look_ms(t) : RD_LOOK_MS;
}

/* ---- keys --------------------------------------------------------------------------------------------------------- */

bq_status bq_rd_keys_make(const char *prefix, bq_str queue, const char *const suffix[4][2], rd_keys *out)
{
    bq_buf text;
    size_t end[5] = {0};
    bq_buf_init(&text, 0);
    for (size_t i = 0; i < 4; i++) {
        (void)bq_buf_addf(&text, "%s", prefix);
        (void)bq_buf_add_str(&text, queue);
        (void)bq_buf_addf(&text, "%s%s", suffix[i][0], suffix[i][1]);
        end[i + 1] = text.len;
    }
    if (text.failed) {
        bq_buf_clear(&text);
        return BQ_NOMEM;
    }
    size_t len;
    out->storage = bq_buf_take(&text, &len);
    for (size_t i = 0; i < 4; i++)
        out->key[i] = (bq_str){out->storage + end[i], end[i + 1] - end[i]};
    return BQ_OK;
}

void bq_rd_keys_clear(rd_keys *keys)
{
    bq_free(keys->storage);
    *keys = (rd_keys){0};
}

bool bq_rd_strip(bq_str *name, const char *suffix)
{
    size_t len = strlen(suffix);
    if (name->len <= len || memcmp(name->ptr + name->len - len, suffix, len) != 0)
        return false;
    name->len -= len;
    return true;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------- */

void bq_rd_random_hex(char *out, size_t digits)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[16];
    bq_random(bytes, digits / 2);
    for (size_t i = 0; i < digits; i++)
        out[i] = hex[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
    out[digits] = '\0';
}

void bq_rd_random_token(char out[25])
{
    do
        bq_rd_random_hex(out, 24);
    while (memcmp(out, "00000000", 8) == 0);
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

void bq_rd_arg_script(rd_args *args, rd_script script, size_t keys)
{
    bq_rd_args_reset(args);
    rd_arg_lit(args, "EVALSHA");
    bq_rd_arg(args, (bq_str){bq_rd_scripts[script].sha1, 40});
    bq_rd_arg_int(args, (int64_t)keys);
}

void bq_rd_arg_keys(rd_args *args, const rd_keys *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bq_rd_arg(args, keys->key[i]);
}

void bq_rd_arg_copy(rd_args *args, bq_str text)
{
    bq_rd_arg_join(args, text, BQ_STR(""));
}

void bq_rd_arg_millionths(rd_args *args, uint32_t millionths)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "0.%06u", millionths % 1000000);
    bq_rd_arg_copy(args, bq_str_of(text));
}

/* Whole seconds, as the scores are; never shorter than what was asked for. */
static int64_t lease_seconds(const rd_transport *t)
{
    return (t->options->retry_after_ms + 999) / 1000;
}

void bq_rd_arg_lease(const rd_transport *t, rd_args *args)
{
    if (t->options->retry_after_ms < 0)
        rd_arg_lit(args, "+inf");
    else
        bq_rd_arg_int(args, lease_seconds(t));
}

void bq_rd_lease_from(const rd_transport *t, rd_delivery *d, int64_t sent_ms, int64_t server_ms)
{
    if (t->options->retry_after_ms < 0) {
        d->held.in.lease_until_ms = 0;
        return;
    }
    int64_t deadline =
        t->layout->deadline ? t->layout->deadline(t, server_ms) : (server_ms / 1000 + lease_seconds(t)) * 1000;
    d->score = deadline / 1000;
    /* Counted from when the command was sent: the server looked at its clock later than that. What was known before
     * holds as well, and the latest of such bounds is the best. */
    int64_t until = sent_ms + (deadline - server_ms);
    if (until > d->held.in.lease_until_ms)
        d->held.in.lease_until_ms = until;
}
