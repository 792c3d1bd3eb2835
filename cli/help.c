/*
 * help.c - the tables as text for a terminal: the overview, one verb's help, and the URL options of the transports.
 */
#include "help.h"
#include "args.h"
#include "out.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const help_pair help_exit_statuses[] = {
    {"0", "done; also work that SIGTERM or SIGINT stopped cleanly, and output into a pipe that was closed"},
    {"1", "some of the work failed: the counts are on stderr"},
    {"64", "usage: unknown option, bad value, no broker named"},
    {"65", "bad data: poison, not a JSON object, ..."},
    {"69", "broker unreachable"},
    {"70", "a fault inside bq"},
    {"74", "a file could not be read, or the output not written"},
    {"75", "outcome unknown, or a temporary failure: try again"},
    {"77", "authentication or permission refused"},
    {"78", "configuration: an existing queue with other arguments, something this broker cannot do, a transport that "
           "is not built in, an unusable file of URLs"},
    {NULL, NULL}};

const help_pair help_environment[] = {
    {"BQ_URL", "the broker, when there is no -u; a URL or @NAME"},
    {"BQ_CONFIG", "the file of configured URLs, instead of ~/.config/babelqueue/urls"},
    {"NO_COLOR", "not empty: no colours, unless --color always"},
    {NULL, NULL}};

const char *const help_config_text[] = {
    "The URL is the value of -u when it is given, else that of BQ_URL. A URL of the form @NAME is looked up in the "
    "file "
    "that BQ_CONFIG names, else in ~/.config/babelqueue/urls: lines NAME URL; empty lines and lines that begin with # "
    "are skipped. URLs may hold passwords, so the file is refused when its group or others may read it. What a URL "
    "leaves out comes from the environment variable that 'bq help urls' names for the option, else from its default.",
    NULL};

/* ---- wrapping ------------------------------------------------------------------------------------------------------- */

static size_t text_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < 40 ? 40 : size.ws_col > 100 ? 100 : size.ws_col;
}

static void spaces(size_t n)
{
    out_printf("%*s", (int)n, "");
}

/* Writes `text` from column `at` on, each further line from column `indent`. */
static void wrap(const char *text, size_t at, size_t indent)
{
    size_t width = text_width();
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (!first && at + 1 + n > width) {
            out_text("\n");
            spaces(indent);
            at = indent;
        } else if (!first) {
            out_text(" ");
            at++;
        }
        out_put((bq_str){text, n});
        at += n;
        first = false;
        text += n;
        text += strspn(text, " ");
    }
    out_text("\n");
}

static void heading(const char *text)
{
    out_printf("\n%s%s:%s\n", out_bold(), text, out_plain());
}

/* ---- options -------------------------------------------------------------------------------------------------------- */

const char *help_option_text(const cli_option *option, char *buf, size_t size)
{
    char letter[5] = "";
    const char *value = option->value ? option->value : option->choices;
    if (option->letter)
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    if (option->kind == CLI_MAYBE)
        snprintf(buf, size, "%s--%s[=%s]", letter, option->name, value);
    else if (option->kind == CLI_FLAG || option->kind == CLI_COUNT)
        snprintf(buf, size, "%s--%s", letter, option->name);
    else
        snprintf(buf, size, "%s--%s %s", letter, option->name, value);
    return buf;
}

const char *help_option_default(const cli_option *option)
{
    return option->fallback;
}

static void print_option(const cli_option *option)
{
    enum { COLUMN = 28 };
    char left[96], right[640];
    help_option_text(option, left, sizeof(left));
    size_t indent = option->letter ? 2 : 6, used = indent + strlen(left);
    spaces(indent);
    out_text(left);
    if (used + 2 > COLUMN) {
        out_text("\n");
        used = 0;
    }
    spaces(COLUMN - used);
    const char *fallback = help_option_default(option);
    snprintf(right, sizeof(right), "%s%s%s%s%s", option->help, option->kind == CLI_LIST ? "; may be repeated" : "",
             fallback ? " (" : "", fallback ? fallback : "", fallback ? ")" : "");
    wrap(right, COLUMN, COLUMN);
}

static void print_options(const cli_option *table)
{
    for (; table && table->kind != CLI_END; table++) {
        if (table->kind == CLI_SECTION)
            heading(table->help);
        else
            print_option(table);
    }
}

/* ---- pages ---------------------------------------------------------------------------------------------------------- */

static void print_pairs(const help_pair *pairs, size_t column)
{
    for (; pairs->term; pairs++) {
        out_printf("  %-*s", (int)column - 2, pairs->term);
        wrap(pairs->meaning, column, column);
    }
}

void help_overview(void)
{
    out_text("Usage: bq COMMAND [OPTIONS] ...\n\n");
    wrap("Publishes, works, inspects and repairs BabelQueue messages on any of the brokers that are built in.", 0, 0);
    heading("Commands");
    for (size_t i = 0; cli_verbs[i]; i++) {
        out_printf("  %-10s", cli_verbs[i]->name);
        wrap(cli_verbs[i]->summary, 12, 12);
    }
    heading("Options of every command");
    print_options(cli_common_options);
    heading("Which broker");
    for (size_t i = 0; help_config_text[i]; i++)
        wrap(help_config_text[i], 0, 0);
    heading("Exit status");
    print_pairs(help_exit_statuses, 6);
    heading("Environment");
    print_pairs(help_environment, 14);
    out_text("\n");
    wrap("A command's own help: bq COMMAND --help. The URLs and their options: bq help urls.", 0, 0);
}

void help_verb(const cli_verb *verb)
{
    out_printf("Usage: bq %s [OPTIONS]%s%s\n\n", verb->name, *verb->operands ? " " : "", verb->operands);
    char summary[256];
    snprintf(summary, sizeof(summary), "%c%s.", verb->summary[0] - 'a' + 'A', verb->summary + 1);
    wrap(summary, 0, 0);
    for (size_t i = 0; verb->text && verb->text[i]; i++) {
        out_text("\n");
        if (verb->text[i][0] == ' ')
            out_printf("%s\n", verb->text[i]);
        else
            wrap(verb->text[i], 0, 0);
    }
    if (verb->options && verb->options->kind != CLI_SECTION && verb->options->kind != CLI_END)
        heading("Options");
    print_options(verb->options);
    heading("Options of every command");
    print_options(cli_common_options);
    if (verb->examples && verb->examples->command)
        heading("Examples");
    for (const cli_example *example = verb->examples; example && example->command; example++) {
        out_printf("  %s\n", example->command);
        spaces(6);
        wrap(example->meaning, 6, 6);
    }
    out_text("\nExit statuses and how the broker is found: bq help\n");
}

/* ---- URL options ---------------------------------------------------------------------------------------------------- */

static const char *option_type_name(const bq_option *option)
{
    switch (option->type) {
    case BQ_OPT_BOOL: return "yes|no";
    case BQ_OPT_INT: return "N";
    case BQ_OPT_DURATION: return option->min == -1 ? "D|off" : "D";
    case BQ_OPT_SIZE: return "SIZE";
    case BQ_OPT_CHOICE: return option->choices;
    case BQ_OPT_STRING: break;
    }
    return "TEXT";
}

static void print_url_option(const bq_option *option)
{
    enum { COLUMN = 28 };
    char left[128], right[640];
    snprintf(left, sizeof(left), "%s=%s", option->name, option_type_name(option));
    snprintf(right, sizeof(right), "%s%s%s%s%s%s%s", option->help, option->fallback ? " (" : "",
             option->fallback ? option->fallback : "", option->fallback ? ")" : "", option->env ? "; else $" : "",
             option->env ? option->env : "", option->flags & BQ_OPT_SECRET ? "; secret" : "");
    out_printf("    %s", left);
    size_t used = 4 + strlen(left);
    if (used + 2 > COLUMN) {
        out_text("\n");
        used = 0;
    }
    spaces(COLUMN - used);
    wrap(right, COLUMN, COLUMN);
}

static void print_transport(const bq_transport_ops *ops)
{
    out_printf("%s%s%s\n", out_bold(), ops->url_syntax ? ops->url_syntax : ops->name, out_plain());
    spaces(4);
    wrap(ops->summary ? ops->summary : "", 4, 4);
    for (const bq_option *option = ops->table; option && option->name; option++)
        print_url_option(option);
    out_text("\n");
}

static void transport_json(const bq_transport_ops *ops)
{
    bq_buf line = {0};
    json_object object = json_open(&line);
    json_text(&object, "transport", bq_str_of(ops->name));
    json_text(&object, "url", bq_str_of(ops->url_syntax));
    json_text(&object, "summary", bq_str_of(ops->summary));
    json_key(&object, "schemes");
    for (const char *const *scheme = ops->schemes; *scheme; scheme++) {
        buf_text(&line, scheme == ops->schemes ? "[" : ",");
        bq_json_add_string(&line, bq_str_of(*scheme));
    }
    buf_text(&line, *ops->schemes ? "]" : "[]");
    json_key(&object, "options");
    buf_text(&line, "[");
    for (const bq_option *option = ops->table; option && option->name; option++) {
        if (option != ops->table)
            buf_text(&line, ",");
        json_object row = json_open(&line);
        json_text(&row, "name", bq_str_of(option->name));
        json_text(&row, "type", bq_str_of(option_type_name(option)));
        json_text(&row, "default", bq_str_of(option->fallback));
        json_text(&row, "environment", bq_str_of(option->env));
        json_bool(&row, "secret", option->flags & BQ_OPT_SECRET);
        json_text(&row, "help", bq_str_of(option->help));
        json_close(&row);
    }
    buf_text(&line, "]");
    json_close(&object);
    out_line(bq_buf_str(&line));
    bq_buf_clear(&line);
}

static bool transport_has_scheme(const bq_transport_ops *ops, const char *scheme)
{
    if (strcmp(ops->name, scheme) == 0)
        return true;
    for (const char *const *at = ops->schemes; *at; at++)
        if (strcmp(*at, scheme) == 0)
            return true;
    return false;
}

/* The schemes of one state machine of names: those of every transport, then the ones not built in. */
typedef struct scheme_names {
    size_t transport, scheme, missing;
} scheme_names;

static const char *next_scheme(void *state)
{
    scheme_names *at = state;
    const bq_transport_ops *ops;
    while ((ops = bq_transport_at(at->transport))) {
        if (ops->schemes[at->scheme])
            return ops->schemes[at->scheme++];
        at->transport++;
        at->scheme = 0;
    }
    return bq_transport_missing_at(at->missing) ? bq_transport_missing_at(at->missing++) : NULL;
}

static int no_such_scheme(const cli_verb *verb, const char *scheme)
{
    scheme_names names = {0};
    const char *missing;
    for (size_t i = 0; (missing = bq_transport_missing_at(i)); i++) {
        if (strcmp(missing, scheme) == 0) {
            /* Why, and what would help, the library says to whoever wants to open such a URL; nothing is opened. */
            char url[64];
            bq_admin *admin = NULL;
            bq_error err;
            snprintf(url, sizeof(url), "%s://localhost", missing);
            if (bq_admin_open(&admin, url, 1, NULL, &err) != BQ_OK)
                return out_failure(verb->name, &err);
            bq_admin_close(admin);
        }
    }
    const char *nearest = args_nearest(scheme, next_scheme, &names);
    if (nearest)
        return args_usage_error(verb, "unknown scheme '%s': did you mean '%s'?", scheme, nearest);
    return args_usage_error(verb, "unknown scheme '%s'", scheme);
}

int help_urls(const cli_verb *verb, const char *scheme, bool json)
{
    const bq_transport_ops *ops;
    size_t shown = 0;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        if (scheme && !transport_has_scheme(ops, scheme))
            continue;
        shown++;
        if (json)
            transport_json(ops);
        else
            print_transport(ops);
    }
    if (scheme && !shown)
        return no_such_scheme(verb, scheme);
    if (!scheme && !json && bq_transport_missing_at(0)) {
        out_text("Not built in:");
        const char *missing;
        for (size_t i = 0; (missing = bq_transport_missing_at(i)); i++)
            out_printf(" %s", missing);
        out_text("\n\n");
    }
    if (!json)
        wrap("An option stands in the query: scheme://host/path?name=value&name=value. D is a duration (250ms 5s 2m "
             "1h, a "
             "bare number is seconds), SIZE a number of bytes with k or m.",
             0, 0);
    return CLI_DONE;
}
