/* broker.h - the verbs that administrate queues: they open the broker in the same way and end in the same way. */
#ifndef BQ_CLI_BROKER_H
#define BQ_CLI_BROKER_H

#include "cli.h"

/* Opens what -u names. CLI_DONE, or the exit status after a message. Close with bq_admin_close. */
int broker_open(const cli_verb *verb, const cli_common *common, bq_admin **admin);
/* A failed operation on a queue: prints it, returns the exit status. */
int broker_failure(const cli_verb *verb, const char *queue, const bq_error *err);

#endif
