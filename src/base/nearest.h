/* base/nearest.h - "did you mean": the known name that is closest to what was written. */
#ifndef BQ_BASE_NEAREST_H
#define BQ_BASE_NEAREST_H

#include <babelqueue/types.h>

/* Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. Only the first 64 bytes of
 * each count. */
size_t bq_edit_distance(bq_str a, bq_str b);

/* Feed it candidates; `best` is the nearest (the first of several), absent when there was none. */
typedef struct bq_nearest {
    bq_str wanted;
    bq_str best;
    size_t distance;
} bq_nearest;

void bq_nearest_offer(bq_nearest *nearest, bq_str candidate);

#endif
