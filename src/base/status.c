/* status.c - names, texts and exit statuses, all from BQ_STATUS_MAP. */
#include <babelqueue/types.h>

#define EX_INTERNAL 70

static const struct {
    const char *name;
    const char *text;
    int exit_status;
} statuses[] = {
#define STATUS_ROW(name, exit_status, text) {#name, text, exit_status},
    BQ_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

/* A value that is none of ours may still come from a driver built against a later version. */
static bool known(bq_status status)
{
    return (unsigned)status < BQ_STATUS_COUNT_;
}

const char *bq_status_name(bq_status status)
{
    return known(status) ? statuses[status].name : "UNKNOWN_STATUS";
}

const char *bq_status_text(bq_status status)
{
    return known(status) ? statuses[status].text : "unknown status";
}

int bq_status_exit(bq_status status)
{
    return known(status) ? statuses[status].exit_status : EX_INTERNAL;
}
