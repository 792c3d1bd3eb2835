/*
 * help.h - what the tables say, written for a terminal (help.c), as manual pages (man.c) and as completions for three
 * shells (complete.c).
 */
#ifndef BQ_CLI_HELP_H
#define BQ_CLI_HELP_H

#include "cli.h"

void help_overview(void);
void help_verb(const cli_verb *verb);
/* `bq help urls [SCHEME]`: every URL option of every transport. Exit status. */
int help_urls(const cli_verb *verb, const char *scheme, bool json);

/* Write the files into the directory. Exit status, after a message. */
int man_write(const char *directory);
int complete_write(const char *directory);
/* One file of a directory, whole or not at all. */
int help_write_file(const char *directory, const char *name, bq_str content);

/* "-u, --url URL", without leading blanks. Returns `buf` for convenience. */
const char *help_option_text(const cli_option *option, char *buf, size_t size);
/* The default as the help shows it, or NULL. */
const char *help_option_default(const cli_option *option);

/* What several pages say in the same words. */
typedef struct help_pair {
    const char *term;
    const char *meaning;
} help_pair;
extern const help_pair help_exit_statuses[]; /* end with a NULL term */
extern const help_pair help_environment[];
extern const char *const help_config_text[]; /* paragraphs, end with NULL */

#endif
