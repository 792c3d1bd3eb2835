/* publish.h - what the two halves of `bq publish` share. */
#ifndef BQ_CLI_PUBLISH_H
#define BQ_CLI_PUBLISH_H

#include "bullmq.h"
#include "cli.h"
#include "lines.h"

typedef struct publish_values {
    cli_common common;
    const char *queue;
    bool lines;
    bool raw;
    const char *trace_id;
    cli_list headers;
    int64_t delay_ms;
    const char *key;
    const char *group;
    const char *lang;
    bullmq_values bullmq;
    const char *urn;
    const char *data;
} publish_values;

/* stdin, line by line; `spec` holds what the command line says of all of them. Exit status. */
int publish_lines(const publish_values *v, bq_publisher *publisher, const bq_message_spec *spec);
void publish_print_id(const publish_values *v, const char *id, bq_str queue);

#endif
