/* base/rand.h - randomness: UUIDs and tokens from the system's generator (drawn in blocks, one syscall for many),
 * jitter from the same. Thread-safe, and safe across fork. */
#ifndef BQ_BASE_RAND_H
#define BQ_BASE_RAND_H

#include <babelqueue/types.h>

#define BQ_UUID_SIZE 37 /* with its NUL */

void bq_random(void *out, size_t len); /* len <= 256 */
uint64_t bq_random_u64(void);
void bq_uuid4(char out[BQ_UUID_SIZE]); /* lower case */

#endif
