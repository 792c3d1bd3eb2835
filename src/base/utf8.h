/* base/utf8.h - UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BQ_BASE_UTF8_H
#define BQ_BASE_UTF8_H

#include <babelqueue/types.h>

/* Offset of the first byte that is not part of a valid sequence, or len when all of it is valid. */
size_t bq_utf8_invalid(const void *bytes, size_t len);
/* The longest prefix of at most `max` bytes that does not cut a sequence. */
size_t bq_utf8_cut(const char *bytes, size_t len, size_t max);
/* Writes `bytes` as one line that is safe to print: line ends and tabs become spaces, other control characters and
 * invalid bytes "?". What does not fit into `cap` (at least 4), or what the caller says is missing (`more`), ends in
 * "...". NUL-terminated; returns the length. */
size_t bq_utf8_line(char *out, size_t cap, const char *bytes, size_t len, bool more);

#endif
