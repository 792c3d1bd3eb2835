/*
 * runtime/settle.h - what the parts of settling share: replace.c makes what is written in a delivery's place, report.c
 * says what happened, settle.c carries decisions out.
 *
 * Thread rule: the I/O thread.
 */
#ifndef BQ_RUNTIME_SETTLE_H
#define BQ_RUNTIME_SETTLE_H

#include "runtime/worker.h"

static inline bool bq_can(const bq_delivery *d, unsigned capability)
{
    return (d->consumer->link.caps & capability) != 0;
}

static inline bq_str bq_queue_of(const bq_delivery *d)
{
    return d->consumer->queues[d->queue].name;
}

/* ---- replace.c ---- */
/* The delivery's buffers, borrowed from the consumer's at first use; NULL without memory. */
bq_write *bq_write_of(bq_delivery *delivery);
void bq_write_put(bq_delivery *delivery);
/* Fills delivery->op.out with what is written in its place, with everything that travels with it (contract 3, 4). */
bq_status bq_replacement_make(bq_delivery *delivery, bq_error *err) BQ_MUST_CHECK;

/* ---- report.c ---- */
/* Before the settlement: what a record and the report name, and what the report will still need after it. */
void bq_report_prepare(bq_delivery *delivery);
/* After it: on_error, once, when there is something to tell. */
void bq_report(bq_delivery *delivery, bq_settled settled, const bq_error *why);
/* For log lines: the route, as long as its bytes are there. */
bq_str bq_report_route(const bq_delivery *delivery);

#endif
