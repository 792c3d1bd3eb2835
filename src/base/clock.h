/* base/clock.h - time, replaceable in tests. Deadlines are on the monotonic clock; what goes onto the wire is epoch
 * milliseconds. */
#ifndef BQ_BASE_CLOCK_H
#define BQ_BASE_CLOCK_H

#include <stdint.h>

#define BQ_NEVER INT64_MAX

int64_t bq_now_ms(void);   /* monotonic */
int64_t bq_now_us(void);   /* monotonic */
int64_t bq_epoch_ms(void); /* wall clock */

/* now + delay, saturating; a negative delay (none) gives BQ_NEVER. */
int64_t bq_deadline(int64_t now_ms, int64_t delay_ms);
/* Milliseconds until `deadline_ms` as poll(2) takes them: -1 for BQ_NEVER, 0 when past. */
int bq_poll_timeout(int64_t now_ms, int64_t deadline_ms);

/* Tests only: replaces both clocks; NULL gives the real ones back. */
void bq_clock_override(int64_t (*monotonic_us)(void), int64_t (*epoch_ms)(void));

#endif
