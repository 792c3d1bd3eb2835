/*
 * runtime/report.c - what is said about a delivery: the texts that a record and on_error name, kept or copied so that
 * they outlive the settlement, and the call of on_error, never before it (contract 3.6).
 *
 * Thread rule: the I/O thread.
 */
#include "runtime/settle.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"

/* ---- what is said about a failure ------------------------------------------------------------------------------------- */

static void say_timeout(bq_delivery *d)
{
    bq_write *w = bq_write_of(d);
    d->say_exception = BQ_STR("HandlerTimeout");
    if (w && !bq_buf_addf(&w->text, "The handler did not finish within %lld ms.",
                          (long long)d->consumer->options.handler_timeout_ms))
        d->say_error = bq_buf_str(&w->text);
}

/* The handler's own words, or those of the cause. Absent where there are none, or no memory for them. */
static void say(bq_delivery *d)
{
    const bq_decision *what = &d->decision;
    if (what->cause == BQ_CAUSE_HANDLER) {
        /* A handler that still runs may be writing its words right now. */
        if (d->timed_out && (d->forced || (!d->has_exception && !d->has_error))) {
            say_timeout(d);
            return;
        }
        if (d->has_exception)
            d->say_exception = bq_buf_str(&d->exception);
        if (d->has_error)
            d->say_error = bq_buf_str(&d->error);
        return;
    }
    d->say_exception = bq_str_of(bq_cause_exception(what->cause));
    if (what->cause == BQ_CAUSE_NONE)
        return;
    bq_write *w = bq_write_of(d);
    bq_str detail = what->cause == BQ_CAUSE_GATED ? d->detail : d->route;
    if (w && !bq_cause_error(what->cause, &d->env, detail, what->attempts, &w->text))
        d->say_error = bq_buf_str(&w->text);
}

/* on_error sees the message after its settlement: it is kept where the driver can, copied where it cannot. */
static void keep_for_report(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    if (!d->decision.reported || !c->options.on_error || bq_can(d, BQ_CAP_KEEP))
        return;
    bq_write *w = bq_write_of(d);
    size_t body = d->in->body.len;
    if (!w || bq_buf_reserve(&w->report, body + d->route.len + 1))
        return;
    (void)bq_buf_add_str(&w->report, d->in->body);
    (void)bq_buf_add_str(&w->report, d->route);
    if (d->in->body.ptr)
        d->say_body = (bq_str){w->report.ptr, body};
    if (d->route.ptr)
        d->say_route = (bq_str){w->report.ptr + body, d->route.len};
}

void bq_report(bq_delivery *d, bq_settled settled, const bq_error *why)
{
    bq_consumer *c = d->consumer;
    bool failed = settled == BQ_SETTLED_FAILED || settled == BQ_SETTLED_LOST;
    if (d->reported || !c->options.on_error || (!d->decision.reported && !failed))
        return;
    d->reported = true;
    bq_str body = d->in ? d->in->body : d->say_body;
    /* The envelope's views point into the body that was received: here they look at what is left of it. */
    bq_envelope env = d->env;
    env.body = body.ptr;
    bool shown = d->judged && !d->facts.poison && body.ptr;
    bq_failure f = {d->decision.reported ? d->decision.trouble : BQ_TROUBLE_SETTLEMENT,
                    settled,
                    bq_queue_of(d),
                    d->in ? d->route : d->say_route,
                    body,
                    shown ? &env : NULL,
                    d->say_exception,
                    d->say_error,
                    d->decision.attempts,
                    why};
    if (!atomic_load(&c->silent))
        c->options.on_error(&f, c->options.arg);
}

bq_str bq_report_route(const bq_delivery *d)
{
    return d->in ? d->route : d->say_route;
}

static void log_delay(bq_delivery *d)
{
    bq_consumer *c = d->consumer;
    const bq_decision *what = &d->decision;
    if (what->delay_cut)
        bq_log(&c->link.logger, BQ_LOG_WARN, "queue %.*s: a delay was cut to the longest that %s allows",
               BQ_FMT(bq_queue_of(d)), c->link.binding->name);
    if (what->delay_ignored && !c->warned_delay)
        bq_log(&c->link.logger, BQ_LOG_WARN, "%s: the retry topic decides the delay, others are ignored",
               c->link.binding->name);
    c->warned_delay |= what->delay_ignored;
}

void bq_report_prepare(bq_delivery *d)
{
    if (d->decision.reported || d->decision.act == BQ_ACT_DEAD_LETTER)
        say(d);
    keep_for_report(d);
    log_delay(d);
}
