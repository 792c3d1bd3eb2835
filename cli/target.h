/*
 * target.h - which broker: `-u URL`, else $BQ_URL; `@NAME` is looked up in the file of configured URLs.
 */
#ifndef BQ_CLI_TARGET_H
#define BQ_CLI_TARGET_H

#include "cli.h"

/* The URL to use, allocated: free it. CLI_DONE, CLI_USAGE (none given) or CLI_CONFIG (the file), after a message. */
int target_url(const cli_verb *verb, const cli_common *common, char **url);

/* Warns when the messages of this URL live in this process only (memory:). `consequence` says what that means for the
 * command. */
void target_warn_private(const char *url, const char *consequence);

/* Calls `fn` for every configured name, for the completions. Silent about faults. */
void target_names(void (*fn)(const char *name, void *arg), void *arg);

/* The driver of the URL's scheme; NULL when it is not built in (opening will say why). */
const bq_transport_ops *target_transport(const char *url);
/* The scheme's family whether built in or not: "bullmq" of "bullmqs+sentinel://...". */
bool target_is(const char *url, const char *family);
/* The URL's query sets that option, to something else than `except` (may be NULL). */
bool target_has_option(const char *url, const char *name, const char *except);
/* Failing messages are by default dropped there, or stop a partition (Pulsar, Artemis, Kafka without retry topics): the
 * user has to say what is wanted. */
bool target_loses_failures(const bq_binding *binding, const char *url);

#endif
