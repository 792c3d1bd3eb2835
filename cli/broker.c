/* broker.c - the verbs that administrate queues: they open the broker in the same way and end in the same way. */
#include "broker.h"
#include "out.h"
#include "target.h"

#include <stdio.h>
#include <stdlib.h>

int broker_open(const cli_verb *verb, const cli_common *common, bq_admin **admin)
{
    char *url = NULL;
    bq_error err;
    bq_logger logger = out_logger();
    int status = target_url(verb, common, &url);
    if (!status && bq_admin_open(admin, url, common->timeout_ms, &logger, &err) != BQ_OK)
        status = out_failure(verb->name, &err);
    if (!status)
        target_warn_private(url, "nothing that was published elsewhere is there");
    free(url);
    return status;
}

int broker_failure(const cli_verb *verb, const char *queue, const bq_error *err)
{
    char what[160];
    if (!queue)
        return out_failure(verb->name, err);
    snprintf(what, sizeof(what), "%s: %.100s", verb->name, queue);
    return out_failure(what, err);
}
