/*
 * fuzz_redis.c - what a Redis server could say. The input's first byte chooses the layout and how the rest is cut; the
 * rest is both an element of a list (read as a frame, written again, read the same) and the server's side of a
 * conversation: the driver is put behind a connection that was never made, and reads these bytes as the answers to its
 * greeting, reservations, settlements, publishes and heartbeats. Properties beside "no crash, no leak": every accepted
 * operation gets exactly one completion, with a text when it failed; a frame survives its own reading.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "transport/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

enum { OPS = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- frames ---------------------------------------------------------------------------------------------------------- */

static void fuzz_frame(bq_str element)
{
    rd_frame first, second;
    bq_buf out;
    bool dropped;
    bq_buf_init(&out, 0);
    CHECK(bq_rd_frame_read(element, &first) == BQ_OK);
    CHECK(bq_rd_frame_make(first.body, first.props, first.prop_count, &out, &dropped) == BQ_OK);
    CHECK(!dropped || !first.framed);
    CHECK(bq_rd_frame_read(bq_buf_str(&out), &second) == BQ_OK);
    if (!dropped) {
        CHECK(bq_str_equal(first.body, second.body) && first.prop_count == second.prop_count);
        for (size_t i = 0; i < first.prop_count; i++)
            CHECK(bq_str_equal(first.props[i].name, second.props[i].name) &&
                  bq_str_equal(first.props[i].text, second.props[i].text));
    }
    bq_rd_frame_clear(&first);
    bq_rd_frame_clear(&second);
    bq_buf_clear(&out);
}

/* ---- the conversation --------------------------------------------------------------------------------------------------- */

enum { BULLMQ = RD_LARAVEL + 1, LAYOUTS };

extern const bq_transport_ops bq_redis_ops, bq_bullmq_ops;

static int finished[OPS];

static void reap(rd_transport *t)
{
    bq_completion done[8];
    size_t count;
    while ((count = bq_redis_ops.reap(t, done, 8)) > 0)
        for (size_t i = 0; i < count; i++) {
            CHECK(done[i].cookie < OPS && finished[done[i].cookie]++ == 0);
            CHECK(done[i].status == BQ_OK || done[i].error.text[0]);
        }
}

static void converse(const uint8_t *data, size_t size, size_t step, int layout)
{
    static const bq_op_kind kinds[] = {BQ_OP_ACK,     BQ_OP_RETRY,  BQ_OP_DEAD_LETTER, BQ_OP_NATIVE_RETRY,
                                       BQ_OP_RELEASE, BQ_OP_EXTEND, BQ_OP_REJECT};
    rd_options options = {.net = {1000, 1000, 100000, 100000, -1, NULL},
                          .layout = layout == RD_LARAVEL ? RD_LARAVEL : RD_LIST,
                          .processing_suffix = ":processing",
                          .prefix = "queues:",
                          .retry_after_ms = 90000,
                          .stalled_interval_ms = 30000,
                          .drain_delay_ms = 5000,
                          .adopt_ms = -1,
                          .db = -1};
    bq_url_host host = {"127.0.0.1", 1};
    bq_url url = {.scheme = "redis", .hosts = &host, .host_count = 1, .safe = "redis://127.0.0.1:1"};
    bq_str queue = BQ_STR("q");
    bq_transport_host runtime = {.now_ms = bq_now_ms};
    bq_transport_config config = {.url = &url,
                                  .options = &options,
                                  .roles = BQ_ROLE_CONSUME | BQ_ROLE_PUBLISH,
                                  .queues = &queue,
                                  .queue_count = 1,
                                  .prefetch = 16,
                                  .host = &runtime};
    bq_stream_config nowhere = {.path = "/nonexistent/redis.sock", .connect_timeout_ms = 1000};
    static bq_op ops[OPS];
    size_t used = 0;
    bq_incoming *in[OPS], *waiting = NULL;
    rd_transport *t = calloc(1, sizeof(*t));
    memset(finished, 0, sizeof(finished));
    const bq_transport_ops *driver = layout == BULLMQ ? &bq_bullmq_ops : &bq_redis_ops;
    CHECK(t && driver->open(t, &config, NULL) == BQ_OK);
    CHECK(bq_rd_conn_open(&t->main, &nowhere, bq_now_ms(), NULL) == BQ_OK);
    t->state = RD_UP;
    t->want = 16;
    for (size_t at = 0; at < size && t->state == RD_UP; at += step) {
        int64_t now = bq_now_ms();
        if (used < OPS && used % 3 == 0) {
            ops[used] = (bq_op){.kind = BQ_OP_PUBLISH, .cookie = used, .deadline_ms = now + 60000};
            ops[used].out = (bq_outgoing){.queue = queue, .body = BQ_STR("{}"), .delay_ms = used % 2 ? 5000 : 0};
            bq_op *op = &ops[used];
            used += bq_redis_ops.submit(t, &op, 1);
        }
        if (used < OPS && (waiting || bq_redis_ops.take(t, in, 1) == 1)) {
            waiting = waiting ? waiting : in[0];
            ops[used] = (bq_op){.kind = kinds[used % 7], .cookie = used, .deadline_ms = now + 60000, .in = waiting};
            ops[used].out = (bq_outgoing){.queue = queue, .body = BQ_STR("{}"), .delay_ms = 5};
            bq_op *op = &ops[used];
            waiting = NULL;
            used += bq_redis_ops.submit(t, &op, 1);
        }
        bq_rd_send(t, now);
        bq_str bytes = {(const char *)data + at, at + step < size ? step : size - at};
        if (!rd_conn_is_open(&t->main) || bq_rd_reader_feed(t->main.reader, bytes, NULL) != BQ_OK)
            break;
        bq_rd_answers(t, now);
        reap(t);
    }
    bq_error err = {.status = BQ_UNAVAILABLE, .text = "over"};
    if (t->state == RD_UP)
        bq_rd_down(t, &err, bq_now_ms());
    reap(t);
    for (size_t i = 0; i < used; i++)
        CHECK(finished[i] == 1);
    bq_redis_ops.close(t, 0);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    fuzz_frame((bq_str){(const char *)data + 1, size - 1});
    converse(data + 1, size - 1, 1 + (size_t)(data[0] & 0x3f), (data[0] >> 6) % LAYOUTS);
    return 0;
}
