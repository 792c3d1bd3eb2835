/* utf8.h - UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BQ_CLI_UTF8_H
#define BQ_CLI_UTF8_H

#include <babelqueue/types.h>

/* Bytes of the sequence that starts at p, of which `left` bytes are there; 0 when it is not valid. */
size_t utf8_sequence(const unsigned char *p, size_t left);
bool utf8_valid(bq_str text);

#endif
