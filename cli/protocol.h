/*
 * protocol.h - the lines between `bq work --handle-stdio` and a coprocess: a message out, an answer in. Pure: no I/O.
 */
#ifndef BQ_CLI_PROTOCOL_H
#define BQ_CLI_PROTOCOL_H

#include "cli.h"

/* Appends {"n":..,"queue":..,"urn":..,"id":..,"trace_id":..,"attempts":..,"replay":..,"headers":{..},"envelope":{..}}
 * and a line feed. The envelope is the received bytes; only when a line break stands between its tokens is the white
 * space there dropped. */
void protocol_add_message(bq_buf *out, uint64_t n, const bq_delivery *delivery);

typedef struct protocol_answer {
    uint64_t n;
    bq_outcome outcome;      /* DONE, FAILED or REJECTED */
    bq_str error, exception; /* absent or text */
    bq_str result;           /* absent or JSON */
    int64_t retry_after_ms;  /* -1: not said */
} protocol_answer;

/* Reads {"n":1,"ok":true} or {"n":1,"error":..}. The views are valid until `doc` is parsed again. False: *why says what
 * is wrong with it. */
bool protocol_read_answer(bq_json *doc, bq_str line, protocol_answer *answer, const char **why);

#endif
