/* runtime/redrive_failed.h - replaying the failed messages that a broker keeps with their queue (contract 7.3). */
#ifndef BQ_RUNTIME_REDRIVE_FAILED_H
#define BQ_RUNTIME_REDRIVE_FAILED_H

#include <babelqueue/redrive.h>

bq_status bq_redrive_failed(const char *url, bq_str queue, const bq_redrive_options *options, bq_redrive_result *result,
                            bq_error *err) BQ_MUST_CHECK;

#endif
