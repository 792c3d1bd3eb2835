/*
 * lines.h - one line of `bq publish --lines`, or the DATA of `bq publish --raw`, as a message to publish. Pure: no I/O.
 */
#ifndef BQ_CLI_LINES_H
#define BQ_CLI_LINES_H

#include <babelqueue/json.h>
#include <babelqueue/publisher.h>

typedef enum line_mode {
    LINE_DATA,   /* the line is the message's data */
    LINE_OBJECT, /* {"urn":...,"data":...,...}, or what `--format full` prints */
    LINE_RAW,    /* the line is the whole body, or what `--format full` prints */
} line_mode;

typedef struct line_parser {
    bq_json doc;
    bq_header *headers; /* those of the command line first, then the line's */
    size_t header_cap;
    bq_buf body; /* decoded from base64 */
    char why[200];
} line_parser;

void line_parser_init(line_parser *parser);
void line_parser_clear(line_parser *parser);

/* Fills `spec`, which holds the defaults of the command line, with what the line says. All of it are views into the
 * line and the parser, valid until the next call. False: parser->why says why. */
bool line_parse(line_parser *parser, line_mode mode, bq_str line, bq_message_spec *spec);

#endif
