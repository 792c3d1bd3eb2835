/*
 * environment.h - the environment of a handler: bq's own, without what another bq put there for its handler, and the
 * message's variables. Any thread, once environment_setup has run.
 */
#ifndef BQ_CLI_ENVIRONMENT_H
#define BQ_CLI_ENVIRONMENT_H

#include "cli.h"

/* A value longer than this is left out: the system refuses to start a program with a longer one. */
#define ENVIRONMENT_VALUE_MAX ((size_t)64 * 1024)

/* Remembers what is inherited. False: no memory. */
bool environment_setup(void);
void environment_clear(void);
/* As inherited. */
char **environment_inherited(void);

typedef struct environment {
    char **variables; /* ends with NULL */
    bq_buf text;
} environment;

/* The variables of one message. False: no memory. */
bool environment_make(environment *env, const bq_delivery *delivery);
void environment_free(environment *env);

#endif
