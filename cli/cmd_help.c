/*
 * cmd_help.c - `bq help [COMMAND]`, `bq help urls [SCHEME]`; and, for the build, `bq help man DIR` and
 * `bq help completions DIR`, which write the manual pages and the completions.
 */
#include "args.h"
#include "help.h"
#include "out.h"
#include "target.h"

#include <string.h>

typedef struct help_values {
    cli_common common;
} help_values;

static void print_name(const char *name, void *arg)
{
    (void)arg;
    out_printf("%s\n", name);
}

static int run(const cli_verb *verb, void *values, char **operands, size_t count)
{
    const help_values *v = values;
    const char *topic = count > 0 ? operands[0] : NULL;
    const char *argument = count > 1 ? operands[1] : NULL;
    if (!topic) {
        help_overview();
        return CLI_DONE;
    }
    if (strcmp(topic, "urls") == 0)
        return help_urls(verb, argument, v->common.json);
    /* The names that `-u @NAME` knows, for the completions. */
    if (strcmp(topic, "names") == 0 && !argument) {
        target_names(print_name, NULL);
        return CLI_DONE;
    }
    if (argument && strcmp(topic, "man") == 0)
        return man_write(argument);
    if (argument && strcmp(topic, "completions") == 0)
        return complete_write(argument);
    const cli_verb *about = cli_find_verb(topic);
    if (!about && cli_nearest_verb(topic))
        return args_usage_error(NULL, "no help on '%s': did you mean '%s'?", topic, cli_nearest_verb(topic));
    if (!about)
        return args_usage_error(NULL, "no help on '%s'", topic);
    if (argument)
        return args_usage_error(verb, "too many arguments, from '%s' on", argument);
    help_verb(about);
    return CLI_DONE;
}

static const cli_example examples[] = {{"bq help publish", "the options of one command"},
                                       {"bq help urls", "how the URL of every broker looks, and its options"},
                                       {"bq help urls sqlite --json", "the same of one scheme, for programs"},
                                       {NULL, NULL}};

static const char *const text[] = {
    "Without a topic: the commands, the options they share, the exit statuses. With the name of a command: its help. "
    "'urls' lists every URL option of every transport with its default and meaning, and which transports are built in; "
    "a scheme restricts it.",
    NULL};

const cli_verb cli_help = {.name = "help",
                           .operands = "[COMMAND | urls [SCHEME]]",
                           .summary = "explains the commands and the URLs",
                           .text = text,
                           .options = NULL,
                           .examples = examples,
                           .values_size = sizeof(help_values),
                           .min_operands = 0,
                           .max_operands = 2,
                           .offline = true,
                           .run = run};
