/* redis/reply.c - see reply.h. */
#include "transport/redis/reply.h"

#include "base/error.h"
#include "base/mem.h"

#include <hiredis/hiredis.h>
#include <hiredis/read.h>

#include <string.h>

/* No script of ours answers with more. */
#define ITEMS_MAX (1 << 20)
#define SPARE_MAX ((size_t)1 << 20)

struct rd_reader {
    redisReader *hiredis;
};

#if HIREDIS_MAJOR >= 1
typedef size_t rd_count;
#else
typedef int rd_count;
#endif

/* ---- what the reader calls --------------------------------------------------------------------------------------- */

static void *attach(const redisReadTask *task, rd_reply *reply)
{
    if (reply && task->parent) {
        rd_reply *parent = task->parent->obj;
        parent->items[task->idx] = reply;
    }
    return reply;
}

static rd_reply *make(rd_type type, size_t text)
{
    rd_reply *reply = bq_malloc(sizeof(*reply) + text + 1);
    if (reply)
        *reply = (rd_reply){.type = type, .count = text};
    return reply;
}

static void *make_string(const redisReadTask *task, char *text, size_t len)
{
    rd_type type = task->type == REDIS_REPLY_ERROR    ? RD_ERROR
                   : task->type == REDIS_REPLY_STATUS ? RD_STATUS
                                                      : RD_STRING;
    rd_reply *reply = make(type, len);
    if (reply) {
        memcpy(reply->text, text, len);
        reply->text[len] = '\0';
    }
    return attach(task, reply);
}

static void *make_array(const redisReadTask *task, rd_count count)
{
    if (count > ITEMS_MAX)
        return NULL;
    rd_reply *reply = make(RD_ARRAY, 0);
    if (!reply)
        return NULL;
    if (count > 0) {
        reply->items = bq_calloc((size_t)count, sizeof(*reply->items));
        if (!reply->items) {
            bq_free(reply);
            return NULL;
        }
        reply->count = (size_t)count;
    }
    return attach(task, reply);
}

static void *make_integer(const redisReadTask *task, long long value)
{
    rd_reply *reply = make(RD_INTEGER, 0);
    if (reply)
        reply->integer = value;
    return attach(task, reply);
}

static void *make_nil(const redisReadTask *task)
{
    return attach(task, make(RD_NIL, 0));
}

/* The reader nests arrays to a fixed depth, so this does too. */
static void free_object(void *object)
{
    rd_reply *reply = object;
    if (!reply)
        return;
    if (reply->type == RD_ARRAY) {
        for (size_t i = 0; i < reply->count; i++)
            free_object(reply->items[i]);
        bq_free(reply->items);
    }
    bq_free(reply);
}

static redisReplyObjectFunctions functions = {.createString = make_string,
                                              .createArray = make_array,
                                              .createInteger = make_integer,
                                              .createNil = make_nil,
                                              .freeObject = free_object};

/* ---- the reader --------------------------------------------------------------------------------------------------- */

rd_reader *bq_rd_reader_new(void)
{
    rd_reader *reader = bq_malloc(sizeof(*reader));
    if (!reader)
        return NULL;
    reader->hiredis = redisReaderCreateWithFunctions(&functions);
    if (!reader->hiredis) {
        bq_free(reader);
        return NULL;
    }
    reader->hiredis->maxbuf = SPARE_MAX;
    return reader;
}

void bq_rd_reader_free(rd_reader *reader)
{
    if (!reader)
        return;
    redisReaderFree(reader->hiredis);
    bq_free(reader);
}

static bq_status broken(const rd_reader *reader, bq_error *err)
{
    if (reader->hiredis->err == REDIS_ERR_OOM)
        return bq_fail_nomem(err);
    return bq_fail(err, BQ_DATA, "this is no Redis reply: %s", reader->hiredis->errstr);
}

bq_status bq_rd_reader_feed(rd_reader *reader, bq_str bytes, bq_error *err)
{
    if (bytes.len == 0 || redisReaderFeed(reader->hiredis, bytes.ptr, bytes.len) == REDIS_OK)
        return BQ_OK;
    return broken(reader, err);
}

bq_status bq_rd_reader_next(rd_reader *reader, rd_reply **reply, bq_error *err)
{
    void *object = NULL;
    *reply = NULL;
    if (redisReaderGetReply(reader->hiredis, &object) != REDIS_OK)
        return broken(reader, err);
    *reply = object;
    return BQ_OK;
}

void bq_rd_reply_free(rd_reply *reply)
{
    free_object(reply);
}

/* ---- reading replies ------------------------------------------------------------------------------------------------ */

bq_str bq_rd_text(const rd_reply *reply)
{
    if (!reply || (reply->type != RD_STRING && reply->type != RD_STATUS && reply->type != RD_ERROR))
        return BQ_STR_NULL;
    return (bq_str){reply->text, reply->count};
}

const rd_reply *bq_rd_at(const rd_reply *reply, size_t index)
{
    return reply && reply->type == RD_ARRAY && index < reply->count ? reply->items[index] : NULL;
}

int64_t bq_rd_int_at(const rd_reply *reply, size_t index, int64_t otherwise)
{
    static const int64_t most = INT64_C(1) << 53;
    const rd_reply *item = bq_rd_at(reply, index);
    if (!item || item->type != RD_INTEGER)
        return otherwise;
    return item->integer > most ? most : item->integer < -most ? -most : item->integer;
}

rd_reply *bq_rd_take_at(rd_reply *reply, size_t index)
{
    const rd_reply *item = bq_rd_at(reply, index);
    if (!item || item->type != RD_STRING)
        return NULL;
    rd_reply *taken = reply->items[index];
    reply->items[index] = NULL;
    return taken;
}
