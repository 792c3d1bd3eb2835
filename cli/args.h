/*
 * args.h - parses a command line by the tables of a verb.
 */
#ifndef BQ_CLI_ARGS_H
#define BQ_CLI_ARGS_H

#include "cli.h"

/* Fills `values` (zeroed, verb->values_size bytes) with the defaults, then with what argv holds; argv[0] is the first
 * argument, not the program. Operands are collected in `operands`, which has room for argc + 1 pointers. Lists are
 * allocated and freed by args_clear. CLI_DONE, or CLI_USAGE after a message. Parsing ends early, successfully, at
 * --help, which sets common.help. */
int args_parse(const cli_verb *verb, int argc, char **argv, void *values, char **operands, size_t *count);
void args_clear(const cli_verb *verb, void *values);

/* The index of the verb in argv: the first word that is neither a common option nor the value of one; argc when there
 * is none; -1 after a message about an option that does not belong there. */
int args_find_verb(int argc, char **argv);

/* "bq VERB: ..." and where to read more, on stderr. Always CLI_USAGE. */
int args_usage_error(const cli_verb *verb, const char *format, ...) BQ_PRINTF(2, 3);

/* The nearest of the names that `next` yields (NULL ends), or NULL when none is near. */
const char *args_nearest(const char *word, const char *(*next)(void *state), void *state);

/* True when `text` is one of "a|b|c"; its index. */
bool args_choice(const char *choices, const char *text, int *index);

#endif
