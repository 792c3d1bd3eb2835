/* nearest.c - edit distance for error messages: three rows of the usual table on the stack, names cut at 64 bytes. */
#include "base/nearest.h"

#include <string.h>

#define NAME_MAX_LEN 64

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t bq_edit_distance(bq_str a, bq_str b)
{
    size_t before[NAME_MAX_LEN + 1] = {0}, last[NAME_MAX_LEN + 1], row[NAME_MAX_LEN + 1];
    size_t rows = least(a.len, NAME_MAX_LEN), columns = least(b.len, NAME_MAX_LEN);
    for (size_t j = 0; j <= columns; j++)
        last[j] = j;
    for (size_t i = 1; i <= rows; i++) {
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t best = last[j - 1] + (a.ptr[i - 1] != b.ptr[j - 1]);
            best = least(best, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1])
                best = least(best, before[j - 2] + 1);
            row[j] = best;
        }
        memcpy(before, last, sizeof before);
        memcpy(last, row, sizeof last);
    }
    return last[columns];
}

void bq_nearest_offer(bq_nearest *nearest, bq_str candidate)
{
    size_t distance = bq_edit_distance(nearest->wanted, candidate);
    if (nearest->best.ptr && distance >= nearest->distance)
        return;
    nearest->best = candidate;
    nearest->distance = distance;
}
