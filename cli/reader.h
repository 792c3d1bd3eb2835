/*
 * reader.h - lines out of a descriptor, by large reads. A line is handed out as a view into the reader's buffer, valid
 * until the next reader_fill.
 */
#ifndef BQ_CLI_READER_H
#define BQ_CLI_READER_H

#include "cli.h"

typedef struct line_reader {
    int fd;
    size_t max; /* longest line in bytes; 0: memory */
    char *ptr;
    size_t start, end, cap; /* what is unread */
    size_t scanned;         /* no line feed between start and here */
    bool eof;
    uint64_t number; /* of the line that reader_next gave last, from 1 */
} line_reader;

typedef enum reader_state { READER_MORE, READER_EOF, READER_WAIT, READER_TOO_LONG, READER_FAILED } reader_state;

void reader_init(line_reader *reader, int fd, size_t max);
void reader_clear(line_reader *reader);
/* One read. READER_WAIT: a non-blocking descriptor has nothing now. READER_FAILED: errno says why. READER_TOO_LONG:
 * the line under way is longer than `max`. */
reader_state reader_fill(line_reader *reader);
/* The next whole line, without its line feed; after the end of the input also what stands behind the last one. */
bool reader_next(line_reader *reader, bq_str *line);
/* Bytes of a line under way. */
size_t reader_rest(const line_reader *reader);

/* All of a descriptor. False: errno says why. */
bool read_all(int fd, bq_buf *out);

#endif
