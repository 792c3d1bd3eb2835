/*
 * json/tape.h - the layout of a bq_json's tape: one entry of 8 bytes for each token, in the order of the text.
 *
 *   bits 60-63  the type (bq_json_type), or BQ_TAPE_END
 *   bit  59     a string holds escapes
 *   bits 0-58   the offset of the token's first byte (a string's quote)
 *
 * A container is an entry, a link whose bits are the index of its end entry, its children (an object's are names and
 * values in turn), and the end entry, whose offset is that of the closing bracket. While the tape is being built the
 * link of an open container holds the index of the container around it, so that no stack is needed.
 */
#ifndef BQ_JSON_TAPE_H
#define BQ_JSON_TAPE_H

#include <babelqueue/json.h>

#include "json/vec.h"

struct bq_json_entry {
    uint64_t bits;
};

enum { BQ_TAPE_END = BQ_JSON_OBJECT + 1 };
#define BQ_TAPE_ESCAPED ((uint64_t)1 << 59)
#define BQ_TAPE_OFFSET (BQ_TAPE_ESCAPED - 1)

typedef struct bq_tape {
    const uint8_t *base;
    struct bq_json_entry *entries;
    size_t count, cap;
    size_t parent; /* the innermost open container, SIZE_MAX for none */
    bool no_memory;
} bq_tape;

bool bq_tape_grow(bq_tape *tape);

BQ_INLINE bool bq_tape_put(bq_tape *tape, unsigned type, const uint8_t *at, bool escaped)
{
    if (BQ_UNLIKELY(tape->count == tape->cap) && !bq_tape_grow(tape))
        return false;
    tape->entries[tape->count++].bits =
        (uint64_t)type << 60 | (uint64_t)(at - tape->base) | (escaped ? BQ_TAPE_ESCAPED : 0);
    return true;
}

BQ_INLINE bool bq_tape_open(bq_tape *tape, unsigned type, const uint8_t *at)
{
    if (!bq_tape_put(tape, type, at, false) || !bq_tape_put(tape, 0, tape->base, false))
        return false;
    tape->entries[tape->count - 1].bits = tape->parent;
    tape->parent = tape->count - 2;
    return true;
}

BQ_INLINE bool bq_tape_close(bq_tape *tape, const uint8_t *at)
{
    struct bq_json_entry *link = &tape->entries[tape->parent + 1];
    tape->parent = (size_t)link->bits;
    link->bits = tape->count;
    return bq_tape_put(tape, BQ_TAPE_END, at, false);
}

/* The type of a number or literal by its first byte; anything else is about to be a fault. */
BQ_INLINE unsigned bq_tape_type(uint8_t first)
{
    return first == 't' || first == 'f' ? BQ_JSON_BOOL : first == 'n' ? BQ_JSON_NULL : BQ_JSON_NUMBER;
}

#endif
