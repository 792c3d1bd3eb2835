/*
 * sqlite/props.h - properties as bytes, for the column bq_message.props. NULL when there are none, else:
 *
 *     version (1) | count | per property: place, type, width, name, value
 *
 * Numbers are LEB128, signed ones zigzag; a name is its length and its bytes; a value is, by type, a text (length + 1
 * and its bytes, 0 for an absent one), a number, the eight bytes of a double (little endian), or nothing.
 *
 * Pure functions.
 */
#ifndef BQ_SQLITE_PROPS_H
#define BQ_SQLITE_PROPS_H

#include <babelqueue/binding.h>

/* Appends to `out`; NOMEM. */
bq_status bq_sq_props_encode(const bq_prop *props, size_t count, bq_buf *out);

/* How many properties the bytes hold; false when they are damaged. */
bool bq_sq_props_count(bq_str bytes, size_t *count);
/* Fills `count` properties whose texts are views of `bytes`. Only after bq_sq_props_count said so. */
void bq_sq_props_decode(bq_str bytes, bq_prop *props, size_t count);

#endif
