/*
 * text.h - small writers: JSON objects member by member, base64, and the three formats in which a message is printed.
 */
#ifndef BQ_CLI_TEXT_H
#define BQ_CLI_TEXT_H

#include "cli.h"

/* A JSON object under construction at the end of `buf`. Failures stick to the buffer. */
typedef struct json_object {
    bq_buf *buf;
    bool comma;
} json_object;

json_object json_open(bq_buf *buf);
void json_close(json_object *object);
void json_key(json_object *object, const char *name);
void json_text(json_object *object, const char *name, bq_str value); /* absent: null */
void json_int(json_object *object, const char *name, int64_t value);
void json_bool(json_object *object, const char *name, bool value);
void json_null(json_object *object, const char *name);
/* `value` is JSON; absent: null. White space between its tokens is dropped, so that it stays on one line. */
void json_raw(json_object *object, const char *name, bq_str value);

void buf_text(bq_buf *buf, const char *text);
void buf_printf(bq_buf *buf, const char *format, ...) BQ_PRINTF(2, 3);

/* A name on a line that people read: as it is, or as a JSON string when it would break the line or drive a terminal. */
void buf_name(bq_buf *buf, bq_str name);

void base64_add(bq_buf *buf, bq_str bytes);
/* False when `text` is not standard base64 with its padding. */
bool base64_decode(bq_str text, bq_buf *out);

/* ---- a message as a line -------------------------------------------------------------------------------------------- */

typedef enum message_format { FORMAT_BODY, FORMAT_DATA, FORMAT_FULL } message_format;
#define FORMAT_CHOICES "body|data|full"

typedef struct printed_message {
    bq_str queue;
    bq_str route;
    bq_str body;
    bq_str key; /* ptr NULL: none */
    int32_t attempts;
    const bq_envelope *envelope;
    /* Yields the headers one by one: false past the last. */
    bool (*header)(const void *source, size_t index, bq_str *name, bq_str *value);
    const void *source;
} printed_message;

/* Appends the message without a line feed; it never holds one. `body` is the body as it is, with the white space
 * between its tokens dropped where there is a line feed among it. A body that is no JSON and holds control bytes
 * becomes {"raw":"..."}, or with "raw_encoding":"base64" when it is not UTF-8. `full` holds the body as a string, byte
 * for byte, or as base64 with "body_encoding":"base64". */
void message_add(bq_buf *buf, message_format format, const printed_message *message);

#endif
