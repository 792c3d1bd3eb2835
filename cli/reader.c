/*
 * reader.c - lines out of a descriptor, by large reads. What is unread stands in one piece between `start` and `end`;
 * it moves to the front of the buffer before the buffer grows.
 */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK ((size_t)64 * 1024)

void reader_init(line_reader *reader, int fd, size_t max)
{
    *reader = (line_reader){.fd = fd, .max = max};
}

void reader_clear(line_reader *reader)
{
    free(reader->ptr);
    *reader = (line_reader){.fd = -1};
}

size_t reader_rest(const line_reader *reader)
{
    return reader->end - reader->start;
}

static bool make_room(line_reader *reader)
{
    if (reader->start > 0) {
        memmove(reader->ptr, reader->ptr + reader->start, reader_rest(reader));
        reader->end -= reader->start;
        reader->scanned -= reader->start;
        reader->start = 0;
    }
    if (reader->cap - reader->end >= CHUNK)
        return true;
    size_t cap = reader->cap + reader->cap / 2 + CHUNK;
    char *ptr = realloc(reader->ptr, cap);
    if (!ptr)
        return false;
    reader->ptr = ptr;
    reader->cap = cap;
    return true;
}

reader_state reader_fill(line_reader *reader)
{
    if (reader->eof)
        return READER_EOF;
    if (reader->max && reader_rest(reader) > reader->max && reader->scanned == reader->end)
        return READER_TOO_LONG;
    if (!make_room(reader)) {
        errno = ENOMEM;
        return READER_FAILED;
    }
    ssize_t n;
    do
        n = read(reader->fd, reader->ptr + reader->end, reader->cap - reader->end);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? READER_WAIT : READER_FAILED;
    if (n == 0) {
        reader->eof = true;
        return READER_EOF;
    }
    reader->end += (size_t)n;
    return READER_MORE;
}

bool reader_next(line_reader *reader, bq_str *line)
{
    char *from = reader->ptr + reader->start;
    size_t rest = reader_rest(reader);
    if (rest == 0)
        return false;
    char *feed = memchr(reader->ptr + reader->scanned, '\n', reader->end - reader->scanned);
    if (!feed) {
        reader->scanned = reader->end;
        if (!reader->eof)
            return false;
        *line = (bq_str){from, rest};
        reader->start = reader->end;
    } else {
        *line = (bq_str){from, (size_t)(feed - from)};
        reader->start = (size_t)(feed + 1 - reader->ptr);
    }
    if (reader->scanned < reader->start)
        reader->scanned = reader->start;
    reader->number++;
    return true;
}

bool read_all(int fd, bq_buf *out)
{
    char *chunk = malloc(CHUNK);
    ssize_t n = -1;
    if (!chunk)
        return false;
    for (;;) {
        n = read(fd, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if (bq_buf_add(out, chunk, (size_t)n) != BQ_OK) {
            errno = ENOMEM;
            n = -1;
            break;
        }
    }
    int saved = errno;
    free(chunk);
    errno = saved;
    return n == 0;
}
