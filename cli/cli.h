/*
 * cli.h - what the verbs of bq share: exit statuses, the tables that describe them, and the options they have in
 * common. The tables are the single source of parsing (args.c), of `--help` (usage.c), of the manual pages (man.c)
 * and of the shell completions (complete.c).
 *
 * The command uses nothing but the public headers of the library. All of it runs on the main thread, except where a
 * header says otherwise.
 */
#ifndef BQ_CLI_H
#define BQ_CLI_H

#include <babelqueue/babelqueue.h>
#include <babelqueue/transport.h>

/* Exit statuses (those of sysexits.h). Errors of the library map by bq_status_exit. */
enum {
    CLI_DONE = 0,
    CLI_PARTLY = 1, /* some of the work failed; the counts are on stderr */
    CLI_USAGE = 64,
    CLI_DATA = 65,
    CLI_IO = 74,
    CLI_TEMPORARY = 75,
    CLI_CONFIG = 78,
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_END,      /* last row of a table */
    CLI_SECTION,  /* a heading in the help: `help` is its text */
    CLI_FLAG,     /* bool */
    CLI_COUNT,    /* int, how often it was given */
    CLI_TEXT,     /* const char * */
    CLI_LIST,     /* cli_list: may be repeated */
    CLI_INT,      /* int64_t between min and max */
    CLI_DURATION, /* int64_t milliseconds between min and max; "off" is 0 where CLI_OFF is set */
    CLI_NUMBER,   /* double between min and max */
    CLI_RATE,     /* double, messages a second: "N" or "N/s" */
    CLI_CHOICE,   /* int, index into `choices` */
    CLI_MAYBE,    /* cli_maybe: --name or --name=VALUE */
} cli_kind;

/* Flags of an option. */
enum {
    CLI_OFF = 1 << 0,      /* a duration that may be "off" */
    CLI_BULLMQ = 1 << 1,   /* only BullMQ has it */
    CLI_IS_QUEUE = 1 << 2, /* completed by the queues of the broker */
    CLI_IS_URL = 1 << 3,   /* completed by the configured names */
    CLI_IS_FILE = 1 << 4,
    CLI_IS_COMMAND = 1 << 5,
};

typedef struct cli_list {
    const char **items;
    size_t count;
} cli_list;

typedef struct cli_maybe {
    bool given;
    const char *value; /* NULL: given without one */
} cli_maybe;

/* One option: `offset` is that of its field in the verb's struct of values. */
typedef struct cli_option {
    cli_kind kind;
    char letter; /* 0: none */
    const char *name;
    const char *value; /* how the help calls the value */
    size_t offset;
    const char *fallback; /* as it would be typed; NULL: the zero value, for INT, DURATION and CHOICE -1 */
    const char *choices;  /* "a|b|c" */
    int64_t min, max;     /* both 0: not checked */
    unsigned flags;
    const char *help;
} cli_option;

#define CLI_OPTIONS_END                                                                                                \
    {                                                                                                                  \
        CLI_END, 0, NULL, NULL, 0, NULL, NULL, 0, 0, 0, NULL                                                           \
    }
#define CLI_OPTIONS_SECTION(text)                                                                                      \
    {                                                                                                                  \
        CLI_SECTION, 0, NULL, NULL, 0, NULL, NULL, 0, 0, 0, text                                                       \
    }

/* ---- verbs ------------------------------------------------------------------------------------------------------- */

/* The options that every verb has: the first member of every struct of values. */
typedef struct cli_common {
    const char *url;
    int64_t timeout_ms;
    int verbose;
    bool quiet;
    bool json;
    int color; /* CLI_COLOR_* */
    bool help;
} cli_common;

enum { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER };

typedef struct cli_example {
    const char *command;
    const char *meaning;
} cli_example;

typedef struct cli_verb {
    const char *name;
    const char *operands;    /* "URN [DATA]" */
    const char *summary;     /* one line, no full stop */
    const char *const *text; /* paragraphs of the help and the manual, ends with NULL; one that begins with a
                                blank is shown as it is */
    const cli_option *options;
    const cli_example *examples; /* ends with a NULL command */
    size_t values_size;
    size_t min_operands, max_operands;
    bool offline;       /* no broker: -u and --timeout are accepted and have no use */
    bool operand_files; /* operands are files (completion) */
    /* Runs the verb; `values` is its struct, `operands` are NULL-terminated. Returns the exit status. */
    int (*run)(const struct cli_verb *verb, void *values, char **operands, size_t count);
} cli_verb;

extern const cli_option cli_common_options[];
/* The verbs in the order of the help; ends with NULL. */
extern const cli_verb *const cli_verbs[];
const cli_verb *cli_find_verb(const char *name);
/* The verb that a misspelt name resembles; NULL: none. */
const char *cli_nearest_verb(const char *name);

extern const cli_verb cli_publish, cli_work, cli_inspect, cli_peek, cli_queues, cli_stats, cli_redrive, cli_purge,
    cli_help, cli_version;

#endif
