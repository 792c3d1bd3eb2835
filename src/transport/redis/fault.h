/* redis/fault.h - what an error reply means for the operation and for the connection. Pure functions. */
#ifndef BQ_REDIS_FAULT_H
#define BQ_REDIS_FAULT_H

#include <babelqueue/types.h>

typedef enum rd_meaning {
    RD_MEANS_OTHER,
    RD_MEANS_AUTH,      /* NOAUTH, WRONGPASS, NOPERM: trying again cannot help */
    RD_MEANS_RECONNECT, /* READONLY, LOADING, MASTERDOWN, UNBLOCKED, too many clients: not the server to talk to now */
    RD_MEANS_FULL,      /* OOM, MISCONF, NOREPLICAS: no writes for now */
    RD_MEANS_BUSY,      /* BUSY, CLUSTERDOWN, TRYAGAIN: not now */
    RD_MEANS_NOSCRIPT,
    RD_MEANS_CLUSTER, /* MOVED, ASK, CROSSSLOT */
    RD_MEANS_TYPE,    /* WRONGTYPE: a key of that name holds something else */
    RD_MEANS_OLD,     /* a command that this server does not know */
    RD_MEANS_DB,      /* no such database */
} rd_meaning;

rd_meaning bq_rd_fault_meaning(bq_str text);

/* Fills *err and returns the status of an operation that was answered so. Every one but RD_MEANS_OTHER is a certain
 * no. `what` is what was tried: "cannot publish". */
bq_status bq_rd_fault_error(bq_str text, const char *what, bq_error *err);

/* "MOVED 3999 10.0.0.2:6381": where to (an empty host: the one that said so). "ASK ...": *port is 0, as the slot is only on
 * its way there. False: it is neither. */
bool bq_rd_fault_redirects(bq_str text, bq_str *host, int *port);

#endif
