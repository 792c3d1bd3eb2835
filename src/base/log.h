/* base/log.h - logging through the caller's function; the level is checked before anything is formatted. */
#ifndef BQ_BASE_LOG_H
#define BQ_BASE_LOG_H

#include <babelqueue/types.h>

#define bq_log(logger, lvl, ...)                                                                                       \
    do {                                                                                                               \
        const bq_logger *bq_log_to_ = (logger);                                                                        \
        if (bq_log_to_ && bq_log_to_->fn && (lvl) <= bq_log_to_->level)                                                \
            bq_log_write(bq_log_to_, (lvl), __VA_ARGS__);                                                              \
    } while (0)

void bq_log_write(const bq_logger *logger, bq_log_level level, const char *format, ...) BQ_PRINTF(3, 4);

#endif
