/*
 * main.c - the command bq: finds the verb, parses its options and runs it.
 */
#include "args.h"
#include "cli.h"
#include "help.h"
#include "out.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const cli_option cli_common_options[] = {
    {CLI_TEXT, 'u', "url", "URL", offsetof(cli_common, url), NULL, NULL, 0, 0, CLI_IS_URL,
     "the broker ($BQ_URL), or @NAME: a configured URL"},
    {CLI_DURATION, 0, "timeout", "D", offsetof(cli_common, timeout_ms), "30s", NULL, 1, INT64_C(86400000), 0,
     "how long one operation, or the first connection, may take"},
    {CLI_COUNT, 'v', "verbose", NULL, offsetof(cli_common, verbose), NULL, NULL, 0, 0, 0,
     "say more on stderr; twice: everything"},
    {CLI_FLAG, 0, "quiet", NULL, offsetof(cli_common, quiet), NULL, NULL, 0, 0, 0, "only errors on stderr"},
    {CLI_FLAG, 0, "json", NULL, offsetof(cli_common, json), NULL, NULL, 0, 0, 0, "results as JSON, one object a line"},
    {CLI_CHOICE, 0, "color", "WHEN", offsetof(cli_common, color), "auto", "auto|always|never", 0, 0, 0,
     "colours: auto, always or never"},
    {CLI_FLAG, 'h', "help", NULL, offsetof(cli_common, help), NULL, NULL, 0, 0, 0, "show this help"},
    CLI_OPTIONS_END};

const cli_verb *const cli_verbs[] = {&cli_publish, &cli_work,  &cli_inspect, &cli_peek,    &cli_queues, &cli_stats,
                                     &cli_redrive, &cli_purge, &cli_help,    &cli_version, NULL};

const cli_verb *cli_find_verb(const char *name)
{
    for (size_t i = 0; cli_verbs[i]; i++)
        if (strcmp(cli_verbs[i]->name, name) == 0)
            return cli_verbs[i];
    return NULL;
}

static const char *next_verb_name(void *state)
{
    size_t *at = state;
    return cli_verbs[*at] ? cli_verbs[(*at)++]->name : NULL;
}

const char *cli_nearest_verb(const char *name)
{
    size_t at = 0;
    return args_nearest(name, next_verb_name, &at);
}

static int unknown_verb(const char *name)
{
    const char *nearest = cli_nearest_verb(name);
    if (nearest)
        return args_usage_error(NULL, "unknown command '%s': did you mean '%s'?", name, nearest);
    return args_usage_error(NULL, "unknown command '%s'", name);
}

/* A file opened later must not become somebody's stdin, stdout or stderr: what is closed is opened, in the direction
 * in which using it fails. */
static void hold_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            abort();
}

static int run(const cli_verb *verb, int argc, char **argv)
{
    void *values = calloc(1, verb->values_size);
    char **operands = calloc((size_t)argc + 1, sizeof(*operands));
    size_t count = 0;
    int status = CLI_TEMPORARY;
    if (!values || !operands) {
        out_error("out of memory");
        goto out;
    }
    status = args_parse(verb, argc, argv, values, operands, &count);
    const cli_common *common = values;
    if (status)
        goto out;
    out_setup(common);
    if (common->help)
        help_verb(verb);
    else
        status = verb->run(verb, values, operands, count);
out:
    if (values)
        args_clear(verb, values);
    free(values);
    free(operands);
    return status;
}

/* `bq --help`, `bq --version` and `bq -v`: words before the verb, or none. */
static int without_verb(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help_overview();
            return CLI_DONE;
        }
    }
    args_usage_error(NULL, "which command? bq COMMAND ...");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    static char version[] = "version";
    hold_standard_descriptors();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of write, told apart there */
    signal(SIGXFSZ, SIG_IGN); /* as a full disk */
    argc = argc > 0 ? argc - 1 : 0;
    argv++;
    if (argc == 1 && (strcmp(argv[0], "--version") == 0 || strcmp(argv[0], "-V") == 0))
        argv[0] = version;
    int at = args_find_verb(argc, argv);
    if (at < 0)
        return CLI_USAGE;
    if (at == argc)
        return out_end(without_verb(argc, argv));
    const cli_verb *verb = cli_find_verb(argv[at]);
    if (!verb)
        return out_end(unknown_verb(argv[at]));
    /* The verb itself is taken out, so that common options may stand before it. */
    memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof(*argv));
    return out_end(run(verb, argc - 1, argv));
}
