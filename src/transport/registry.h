/* transport/registry.h - finding a driver by the scheme of a URL. */
#ifndef BQ_TRANSPORT_REGISTRY_H
#define BQ_TRANSPORT_REGISTRY_H

#include <babelqueue/transport.h>

/* INVALID: no such scheme, with the nearest known one if one is near; NOT_BUILT: known, but without a
 * driver in this library. */
bq_status bq_transport_find(bq_str scheme, const bq_transport_ops **ops, bq_error *err) BQ_MUST_CHECK;
/* What bq_transport_register demands of a driver by itself: required entries, agreement of capabilities and
 * operations, a sound option table. */
bq_status bq_transport_check(const bq_transport_ops *ops, bq_error *err) BQ_MUST_CHECK;

#endif
