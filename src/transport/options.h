/* transport/options.h - what the table's public operations (babelqueue/transport.h) do not say. */
#ifndef BQ_TRANSPORT_OPTIONS_H
#define BQ_TRANSPORT_OPTIONS_H

#include <babelqueue/transport.h>

/* The row of that name, or NULL. `table` may be NULL: no options. */
const bq_option *bq_options_find(const bq_option *table, bq_str name);
/* Refuses an unknown name, saying the nearest known one; the name is shown only when it looks like one. */
bq_status bq_options_unknown(const bq_option *table, bq_str name, bq_error *err);
/* Takes the row's environment variable when it is set and not empty. */
bq_status bq_options_from_env(const bq_option *row, void *options, bq_error *err) BQ_MUST_CHECK;
/* Is the table itself sound: names, places within `options_size`, choices, defaults within their ranges? */
bq_status bq_options_check(const bq_option *table, size_t options_size, bq_error *err) BQ_MUST_CHECK;

#endif
