/*
 * man.c - the tables as manual pages, in the man(7) macros: bq.1, bq-VERB.1 and bq-urls.1. No dates, so that two builds
 * of the same sources write the same bytes.
 */
#include "help.h"
#include "out.h"
#include "text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- roff ------------------------------------------------------------------------------------------------------------ */

/* Text that roff must not read as anything else: backslashes, hyphens (which would become soft ones), and a dot or a
 * quote at the beginning of a line. */
static void roff_text(bq_buf *page, const char *text)
{
    if (*text == '.' || *text == '\'')
        buf_text(page, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            buf_text(page, "\\e");
        else if (*text == '-')
            buf_text(page, "\\-");
        else if (*text == '~')
            buf_text(page, "\\(ti");
        else if (*text == '^')
            buf_text(page, "\\(ha");
        else
            bq_buf_add(page, text, 1);
    }
}

static void roff_bold(bq_buf *page, const char *text)
{
    buf_text(page, "\\fB");
    roff_text(page, text);
    buf_text(page, "\\fR");
}

static void roff_title(bq_buf *page, const char *name)
{
    buf_text(page, ".\\\" Written by bq from its tables of options.\n.TH ");
    for (const char *c = name; *c; c++) {
        char upper = (char)toupper((unsigned char)*c);
        char piece[2] = {upper, '\0'};
        roff_text(page, piece);
    }
    buf_printf(page, " 1 \"\" \"BabelQueue %s\" \"BabelQueue Manual\"\n.nh\n.ad l\n", BQ_CLI_VERSION);
}

static void roff_section(bq_buf *page, const char *name)
{
    buf_printf(page, ".SH %s\n", name);
}

static void roff_paragraphs(bq_buf *page, const char *const *text)
{
    for (size_t i = 0; text && text[i]; i++) {
        bool as_it_is = text[i][0] == ' ';
        if (i > 0) /* a section begins a paragraph by itself */
            buf_text(page, ".PP\n");
        if (as_it_is)
            buf_text(page, ".nf\n");
        roff_text(page, text[i]);
        buf_text(page, as_it_is ? "\n.fi\n" : "\n");
    }
}

static void roff_pairs(bq_buf *page, const help_pair *pairs)
{
    for (; pairs->term; pairs++) {
        buf_text(page, ".TP\n");
        roff_bold(page, pairs->term);
        buf_text(page, "\n");
        roff_text(page, pairs->meaning);
        buf_text(page, "\n");
    }
}

static void roff_option(bq_buf *page, const cli_option *option)
{
    char left[128];
    const char *fallback = help_option_default(option);
    buf_text(page, ".TP\n");
    roff_bold(page, help_option_text(option, left, sizeof(left)));
    buf_text(page, "\n");
    roff_text(page, option->help);
    if (option->kind == CLI_LIST)
        buf_text(page, "; may be repeated");
    if (fallback) {
        buf_text(page, " (");
        roff_text(page, fallback);
        buf_text(page, ")");
    }
    size_t len = strlen(option->help);
    buf_text(page, len > 0 && option->help[len - 1] == '.' && !fallback && option->kind != CLI_LIST ? "\n" : ".\n");
}

static void roff_options(bq_buf *page, const cli_option *table)
{
    for (; table && table->kind != CLI_END; table++) {
        if (table->kind == CLI_SECTION) {
            buf_text(page, ".SS ");
            roff_text(page, table->help);
            buf_text(page, "\n");
        } else {
            roff_option(page, table);
        }
    }
}

/* ---- pages ----------------------------------------------------------------------------------------------------------- */

static void name_section(bq_buf *page, const char *name, const char *summary)
{
    roff_section(page, "NAME");
    roff_text(page, name);
    buf_text(page, " \\- ");
    roff_text(page, summary);
    buf_text(page, "\n");
    roff_section(page, "SYNOPSIS");
}

static void overview_page(bq_buf *page)
{
    roff_title(page, "bq");
    name_section(page, "bq", "publishes, works, inspects and repairs BabelQueue messages");
    buf_text(page, "\\fBbq\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] ...\n");
    roff_section(page, "DESCRIPTION");
    buf_text(page,
             "One command for every broker that BabelQueue knows. Messages and results go to stdout, one JSON object "
             "or one value a line; everything else goes to stderr. Progress is shown on terminals only. Options may "
             "stand before or after operands; \\fB\\-\\-\\fR ends them. Durations: 250ms, 5s, 2m, 1h; a bare number "
             "is seconds.\n");
    roff_section(page, "COMMANDS");
    for (size_t i = 0; cli_verbs[i]; i++) {
        char name[32];
        snprintf(name, sizeof(name), "bq-%s", cli_verbs[i]->name);
        buf_text(page, ".TP\n");
        roff_bold(page, name);
        buf_text(page, "(1)\n");
        roff_text(page, cli_verbs[i]->summary);
        buf_text(page, ".\n");
    }
    roff_section(page, "OPTIONS OF EVERY COMMAND");
    roff_options(page, cli_common_options);
    roff_section(page, "WHICH BROKER");
    roff_paragraphs(page, help_config_text);
    roff_section(page, "EXIT STATUS");
    roff_pairs(page, help_exit_statuses);
    roff_section(page, "ENVIRONMENT");
    roff_pairs(page, help_environment);
    roff_section(page, "FILES");
    buf_text(page, ".TP\n\\fI\\(ti/.config/babelqueue/urls\\fR\nConfigured URLs.\n");
    roff_section(page, "SEE ALSO");
    buf_text(page, "\\fBbq\\-urls\\fR(1)\n");
}

static void verb_page(bq_buf *page, const cli_verb *verb)
{
    char name[32];
    snprintf(name, sizeof(name), "bq-%s", verb->name);
    roff_title(page, name);
    name_section(page, name, verb->summary);
    buf_printf(page, "\\fBbq %s\\fR [\\fIOPTIONS\\fR]%s", verb->name, *verb->operands ? " " : "");
    roff_text(page, verb->operands);
    buf_text(page, "\n");
    roff_section(page, "DESCRIPTION");
    roff_paragraphs(page, verb->text);
    if (verb->options)
        roff_section(page, "OPTIONS");
    roff_options(page, verb->options);
    roff_section(page, "OPTIONS OF EVERY COMMAND");
    roff_options(page, cli_common_options);
    if (verb->examples)
        roff_section(page, "EXAMPLES");
    for (const cli_example *example = verb->examples; example && example->command; example++) {
        if (example != verb->examples)
            buf_text(page, ".PP\n");
        roff_text(page, example->meaning);
        buf_text(page, ":\n.PP\n.RS\n.nf\n");
        roff_text(page, example->command);
        buf_text(page, "\n.fi\n.RE\n");
    }
    roff_section(page, "EXIT STATUS");
    roff_pairs(page, help_exit_statuses);
    roff_section(page, "SEE ALSO");
    buf_text(page, "\\fBbq\\fR(1), \\fBbq\\-urls\\fR(1)\n");
}

static void url_option(bq_buf *page, const bq_option *option)
{
    buf_text(page, ".TP\n");
    roff_bold(page, option->name);
    buf_text(page, "\n");
    roff_text(page, option->help ? option->help : "");
    if (option->choices) {
        buf_text(page, ": ");
        roff_text(page, option->choices);
    }
    if (option->fallback) {
        buf_text(page, " (");
        roff_text(page, option->fallback);
        buf_text(page, ")");
    }
    if (option->env) {
        buf_text(page, "; else the environment variable ");
        roff_text(page, option->env);
    }
    buf_text(page, option->flags & BQ_OPT_SECRET ? "; secret.\n" : ".\n");
}

static void urls_page(bq_buf *page)
{
    const bq_transport_ops *ops;
    roff_title(page, "bq-urls");
    name_section(page, "bq-urls", "the URLs of the brokers, and their options");
    buf_text(page, "\\fBbq help urls\\fR [\\fISCHEME\\fR]\n");
    roff_section(page, "DESCRIPTION");
    buf_text(page,
             "A URL names a broker. Options stand in its query: scheme://host/path?name=value&name=value; an unknown "
             "one is an error. Durations: 250ms, 5s, 2m, 1h, a bare number is seconds; sizes: bytes, with k or m; "
             "flags: yes or no. These are the transports that are built in.\n");
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        buf_text(page, ".SS ");
        roff_text(page, ops->url_syntax ? ops->url_syntax : ops->name);
        buf_text(page, "\n");
        roff_text(page, ops->summary ? ops->summary : "");
        buf_text(page, "\n");
        for (const bq_option *option = ops->table; option && option->name; option++)
            url_option(page, option);
    }
    roff_section(page, "SEE ALSO");
    buf_text(page, "\\fBbq\\fR(1)\n");
}

static int write_page(const char *directory, const char *name, const bq_buf *page)
{
    if (!page->failed)
        return help_write_file(directory, name, bq_buf_str(page));
    out_error("out of memory");
    return CLI_TEMPORARY;
}

int man_write(const char *directory)
{
    bq_buf page = {0};
    overview_page(&page);
    int status = write_page(directory, "bq.1", &page);
    bq_buf_reset(&page);
    urls_page(&page);
    if (!status)
        status = write_page(directory, "bq-urls.1", &page);
    for (size_t i = 0; !status && cli_verbs[i]; i++) {
        char name[40];
        snprintf(name, sizeof(name), "bq-%s.1", cli_verbs[i]->name);
        bq_buf_reset(&page);
        verb_page(&page, cli_verbs[i]);
        status = write_page(directory, name, &page);
    }
    bq_buf_clear(&page);
    return status;
}
