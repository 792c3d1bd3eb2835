/*
 * work_print.c - `bq work --print`: each message is a line on stdout, and is acknowledged once the line is written.
 */
#include "out.h"
#include "text.h"
#include "work.h"

static bool next_header(const void *source, size_t index, bq_str *name, bq_str *value)
{
    return bq_delivery_header_at(source, index, name, value);
}

bq_outcome work_print(bq_delivery *delivery, void *arg)
{
    bq_buf line = {0};
    printed_message message = {.queue = bq_delivery_queue(delivery),
                               .route = bq_delivery_urn(delivery),
                               .body = bq_delivery_body(delivery),
                               .key = bq_delivery_key(delivery),
                               .attempts = bq_delivery_attempts(delivery),
                               .envelope = bq_delivery_envelope(delivery),
                               .header = next_header,
                               .source = delivery};
    message_add(&line, *(const message_format *)arg, &message);
    bool written = !line.failed && out_line_now(bq_buf_str(&line));
    bool failed = line.failed;
    bq_buf_clear(&line);
    if (written)
        return BQ_DONE;
    if (failed)
        out_error("out of memory");
    /* Nobody takes the lines: what was not written stays on the queue. */
    work_stop();
    return BQ_RELEASED;
}
