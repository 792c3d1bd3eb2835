/* redis/args.c - see args.h. */
#include "transport/redis/args.h"

#include "base/buf.h"
#include "base/mem.h"

#include <hiredis/hiredis.h>

#include <limits.h>
#include <stdio.h>

void bq_rd_args_init(rd_args *args)
{
    *args = (rd_args){0};
    bq_buf_init(&args->own, 0);
}

void bq_rd_args_clear(rd_args *args)
{
    bq_free(args->ptr);
    bq_free(args->len);
    bq_free(args->off);
    bq_buf_clear(&args->own);
    bq_rd_args_init(args);
}

void bq_rd_args_reset(rd_args *args)
{
    args->count = args->bytes = 0;
    args->failed = false;
    bq_buf_reset(&args->own);
}

static bool grow(rd_args *args)
{
    size_t cap = args->cap ? args->cap * 2 : 64;
    const char **ptr = bq_realloc_array(args->ptr, cap, sizeof(*ptr));
    if (ptr)
        args->ptr = ptr;
    size_t *len = ptr ? bq_realloc_array(args->len, cap, sizeof(*len)) : NULL;
    if (len)
        args->len = len;
    size_t *off = len ? bq_realloc_array(args->off, cap, sizeof(*off)) : NULL;
    if (off)
        args->off = off;
    if (!off) {
        args->failed = true;
        return false;
    }
    args->cap = cap;
    return true;
}

static void add(rd_args *args, const char *ptr, size_t len, size_t off)
{
    if (args->count == args->cap && !grow(args))
        return;
    args->ptr[args->count] = ptr;
    args->len[args->count] = len;
    args->off[args->count] = off;
    args->count++;
    args->bytes += len + 16;
}

void bq_rd_arg(rd_args *args, bq_str text)
{
    add(args, text.ptr ? text.ptr : "", text.len, 0);
}

size_t bq_rd_arg_begin(rd_args *args)
{
    return args->own.len;
}

void bq_rd_arg_end(rd_args *args, size_t begun)
{
    if (args->own.failed)
        args->failed = true;
    else
        add(args, NULL, args->own.len - begun, begun);
}

void bq_rd_arg_int(rd_args *args, int64_t value)
{
    size_t begun = bq_rd_arg_begin(args);
    (void)bq_buf_addf(&args->own, "%lld", (long long)value);
    bq_rd_arg_end(args, begun);
}

void bq_rd_arg_join(rd_args *args, bq_str a, bq_str b)
{
    size_t begun = bq_rd_arg_begin(args);
    (void)bq_buf_add_str(&args->own, a);
    (void)bq_buf_add_str(&args->own, b);
    bq_rd_arg_end(args, begun);
}

char *bq_rd_args_format(rd_args *args, size_t *len)
{
    char *text = NULL;
    if (args->failed || args->count > INT_MAX)
        return NULL;
    for (size_t i = 0; i < args->count; i++)
        if (!args->ptr[i])
            args->ptr[i] = args->own.ptr ? args->own.ptr + args->off[i] : "";
    int written = redisFormatCommandArgv(&text, (int)args->count, args->ptr, args->len);
    if (written < 0)
        return NULL;
    *len = (size_t)written;
    return text;
}

void bq_rd_format_free(char *text)
{
    redisFreeCommand(text);
}
