/*
 * complete.c - the tables as completions: bq.bash, _bq (zsh) and bq.fish. Values of a fixed set come from the tables;
 * queues are asked of the broker that the line names, the names of -u of the file of URLs.
 */
#include "help.h"
#include "out.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int help_write_file(const char *directory, const char *name, bq_str content)
{
    char *path = NULL, *temporary = NULL;
    int status = CLI_TEMPORARY, fd = -1;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return status;
    if (asprintf(&temporary, "%s.part", path) < 0)
        goto out;
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t n = fd < 0 ? -1 : write(fd, content.ptr, content.len);
    if (n >= 0 && (size_t)n == content.len && close(fd) == 0 && rename(temporary, path) == 0) {
        status = CLI_DONE;
    } else {
        out_error("%s: %s", path, strerror(errno));
        status = CLI_IO;
    }
out:
    free(temporary);
    free(path);
    return status;
}

static bool has_value(const cli_option *option)
{
    return option->kind > CLI_COUNT && option->kind != CLI_MAYBE;
}

/* ---- bash ------------------------------------------------------------------------------------------------------------ */

static const char bash_head[] = "# bash completion for bq, written by bq from its tables of options.\n"
                                "_bq_broker() {\n"
                                "  local i\n"
                                "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
                                "    case ${COMP_WORDS[i]} in\n"
                                "    -u | --url) printf '%s\\n' \"${COMP_WORDS[i + 1]}\"; return ;;\n"
                                "    esac\n"
                                "  done\n"
                                "  printf '%s\\n' \"${BQ_URL-}\"\n"
                                "}\n"
                                "_bq_queues() {\n"
                                "  local url\n"
                                "  url=$(_bq_broker)\n"
                                "  [ -n \"$url\" ] && bq queues -u \"$url\" --timeout 1 --quiet 2>/dev/null\n"
                                "}\n"
                                "_bq_values() { # option of the verb: what its value may be\n"
                                "  case $verb:$1 in\n";

static const char bash_tail[] =
    "_bq() {\n"
    "  local cur=${COMP_WORDS[COMP_CWORD]} prev='' verb='' i word IFS=$' \\t\\n'\n"
    "  COMPREPLY=()\n"
    "  ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "    word=${COMP_WORDS[i]}\n"
    "    case $word in\n"
    "    -u | --url | --timeout | --color) ((i++)) ;;\n"
    "    -*) ;;\n"
    "    *) verb=$word; break ;;\n"
    "    esac\n"
    "  done\n"
    "  if [ \"$cur\" = = ]; then cur=\n"
    "  elif [ \"$prev\" = = ] && ((COMP_CWORD > 1)); then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
    "  if [[ $prev = -* ]]; then\n"
    "    local kind\n"
    "    kind=$(_bq_values \"$prev\")\n"
    "    case $kind in\n"
    "    '') ;;\n"
    "    @queue) mapfile -t COMPREPLY < <(compgen -W \"$(_bq_queues)\" -- \"$cur\"); return ;;\n"
    "    @url) mapfile -t COMPREPLY < <(compgen -W \"$(bq help names 2>/dev/null | sed 's/^/@/')\" -- \"$cur\"); "
    "return ;;\n"
    "    @file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n"
    "    @command) mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\"); return ;;\n"
    "    @any) return ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$kind\" -- \"$cur\"); return ;;\n"
    "    esac\n"
    "  fi\n"
    "  if [[ $cur = -* ]]; then\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$(_bq_options)\" -- \"$cur\")\n"
    "  elif [ -z \"$verb\" ]; then\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$_bq_verbs\" -- \"$cur\")\n"
    "  elif [ \"$verb\" = help ]; then\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$_bq_verbs urls\" -- \"$cur\")\n"
    "  elif [ \"$verb\" = inspect ]; then\n"
    "    compopt -o filenames\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "  fi\n"
    "}\n"
    "complete -F _bq bq\n";

static void bash_pattern(bq_buf *file, const char *verb, const cli_option *option)
{
    buf_printf(file, "  %s:--%s", verb, option->name);
    if (option->letter)
        buf_printf(file, " | %s:-%c", verb, option->letter);
    buf_text(file, ") echo '");
}

static void bash_values(bq_buf *file, const char *verb, const cli_option *table)
{
    for (; table && table->kind != CLI_END; table++) {
        if (!table->name || (!has_value(table) && !table->choices))
            continue;
        bash_pattern(file, verb, table);
        if (table->choices)
            for (const char *c = table->choices; *c; c++)
                bq_buf_add(file, *c == '|' ? " " : c, 1);
        else if (table->flags & CLI_IS_QUEUE)
            buf_text(file, "@queue");
        else if (table->flags & CLI_IS_URL)
            buf_text(file, "@url");
        else if (table->flags & CLI_IS_FILE)
            buf_text(file, "@file");
        else if (table->flags & CLI_IS_COMMAND)
            buf_text(file, "@command");
        else
            buf_text(file, "@any");
        buf_text(file, "' ;;\n");
    }
}

static void bash_names(bq_buf *file, const cli_option *table)
{
    for (; table && table->kind != CLI_END; table++)
        if (table->name)
            buf_printf(file, " --%s", table->name);
}

static void write_bash(bq_buf *file)
{
    buf_text(file, bash_head);
    bash_values(file, "*", cli_common_options);
    for (size_t i = 0; cli_verbs[i]; i++)
        bash_values(file, cli_verbs[i]->name, cli_verbs[i]->options);
    buf_text(file, "  esac\n}\n_bq_options() {\n  case $verb in\n");
    for (size_t i = 0; cli_verbs[i]; i++) {
        if (!cli_verbs[i]->options)
            continue;
        buf_printf(file, "  %s) printf '%%s\\n'", cli_verbs[i]->name);
        bash_names(file, cli_verbs[i]->options);
        buf_text(file, " ;;\n");
    }
    buf_text(file, "  esac\n  printf '%s\\n'");
    bash_names(file, cli_common_options);
    buf_text(file, "\n}\n_bq_verbs='");
    for (size_t i = 0; cli_verbs[i]; i++)
        buf_printf(file, "%s%s", i ? " " : "", cli_verbs[i]->name);
    buf_text(file, "'\n");
    buf_text(file, bash_tail);
}

/* ---- zsh ------------------------------------------------------------------------------------------------------------- */

static const char zsh_head[] =
    "#compdef bq\n"
    "# zsh completion for bq, written by bq from its tables of options.\n"
    "_bq_queues() {\n"
    "  local url=${opt_args[-u]:-${opt_args[--url]:-$BQ_URL}}\n"
    "  local -a queues\n"
    "  [[ -n $url ]] && queues=(${(f)\"$(bq queues -u ${(Q)url} --timeout 1 --quiet 2>/dev/null)\"})\n"
    "  compadd -a queues\n"
    "}\n"
    "_bq_urls() {\n"
    "  local -a names\n"
    "  names=(@${^${(f)\"$(bq help names 2>/dev/null)\"}})\n"
    "  compadd -a names\n"
    "}\n";

/* A description within '[...]' of an _arguments specification, which stands in single quotes. */
static void zsh_text(bq_buf *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            buf_text(file, "'\\''");
        else if (*text == '[' || *text == ']' || *text == ':' || *text == '\\')
            buf_printf(file, "\\%c", *text);
        else
            bq_buf_add(file, text, 1);
    }
}

static void zsh_action(bq_buf *file, const cli_option *option)
{
    const char *value = option->value ? option->value : "value";
    buf_text(file, option->kind == CLI_MAYBE ? "::" : ":");
    zsh_text(file, value);
    buf_text(file, ":");
    if (option->choices) {
        buf_text(file, "(");
        for (const char *c = option->choices; *c; c++)
            bq_buf_add(file, *c == '|' ? " " : c, 1);
        buf_text(file, ")");
    } else if (option->flags & CLI_IS_QUEUE) {
        buf_text(file, "_bq_queues");
    } else if (option->flags & CLI_IS_URL) {
        buf_text(file, "_bq_urls");
    } else if (option->flags & CLI_IS_FILE) {
        buf_text(file, "_files");
    } else if (option->flags & CLI_IS_COMMAND) {
        buf_text(file, "_command_names");
    }
}

static void zsh_spec(bq_buf *file, const cli_option *option, bool by_letter)
{
    char name[48];
    if (by_letter)
        snprintf(name, sizeof(name), "-%c", option->letter);
    else
        snprintf(name, sizeof(name), "--%s", option->name);
    bool repeats = option->kind == CLI_LIST || option->kind == CLI_COUNT;
    const char *joins = by_letter ? "+" : option->kind == CLI_MAYBE ? "=-" : "=";
    bool value = has_value(option) || option->kind == CLI_MAYBE;
    buf_printf(file, "    '%s%s%s[", repeats ? "*" : "", name, value ? joins : "");
    zsh_text(file, option->help);
    buf_text(file, "]");
    if (value)
        zsh_action(file, option);
    buf_text(file, "'\n");
}

static void zsh_options(bq_buf *file, const cli_option *table)
{
    for (; table && table->kind != CLI_END; table++) {
        if (!table->name)
            continue;
        zsh_spec(file, table, false);
        if (table->letter)
            zsh_spec(file, table, true);
    }
}

static void write_zsh(bq_buf *file)
{
    buf_text(file, zsh_head);
    buf_text(file, "_bq() {\n  local context state state_descr line curcontext=$curcontext\n  typeset -A opt_args\n"
                   "  local -a common specs verbs\n  common=(\n");
    zsh_options(file, cli_common_options);
    buf_text(file, "  )\n  verbs=(\n");
    for (size_t i = 0; cli_verbs[i]; i++) {
        buf_printf(file, "    '%s:", cli_verbs[i]->name);
        zsh_text(file, cli_verbs[i]->summary);
        buf_text(file, "'\n");
    }
    buf_text(file,
             "  )\n  _arguments -C -s $common '1:command:->verb' '*::argument:->rest' && return\n  case $state in\n"
             "  verb) _describe command verbs ;;\n  rest)\n    case $words[1] in\n");
    for (size_t i = 0; cli_verbs[i]; i++) {
        const cli_verb *verb = cli_verbs[i];
        buf_printf(file, "    %s) specs=(\n", verb->name);
        zsh_options(file, verb->options);
        if (verb->operand_files)
            buf_text(file, "    '*:file:_files'\n");
        else if (verb == &cli_help)
            buf_text(file, "    \"1:topic:(urls ${(j: :)${(@)verbs%%:*}})\"\n");
        else if (verb->max_operands)
            buf_text(file, "    '*:argument:'\n");
        buf_text(file, "    ) ;;\n");
    }
    buf_text(file, "    esac\n    _arguments -s $common $specs\n    ;;\n  esac\n}\n_bq \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------------------------------ */

static const char fish_head[] = "# fish completion for bq, written by bq from its tables of options.\n"
                                "function __bq_queues\n"
                                "  set -l url $BQ_URL\n"
                                "  set -l words (commandline -opc)\n"
                                "  for i in (seq (math (count $words) - 1))\n"
                                "    contains -- $words[$i] -u --url; and set url $words[(math $i + 1)]\n"
                                "  end\n"
                                "  test -n \"$url\"; and bq queues -u \"$url\" --timeout 1 --quiet 2>/dev/null\n"
                                "end\n"
                                "function __bq_urls\n"
                                "  bq help names 2>/dev/null | string replace -r '^' @\n"
                                "end\n"
                                "complete -c bq -f\n";

static void fish_quoted(bq_buf *file, const char *text)
{
    buf_text(file, "'");
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            buf_text(file, "\\");
        bq_buf_add(file, text, 1);
    }
    buf_text(file, "'");
}

static void fish_option(bq_buf *file, const char *condition, const cli_option *option)
{
    buf_text(file, "complete -c bq");
    if (condition)
        buf_printf(file, " -n %s", condition);
    buf_printf(file, " -l %s", option->name);
    if (option->letter)
        buf_printf(file, " -s %c", option->letter);
    if (has_value(option))
        buf_text(file, " -x");
    if (option->choices) {
        buf_text(file, " -a '");
        for (const char *c = option->choices; *c; c++)
            bq_buf_add(file, *c == '|' ? " " : c, 1);
        buf_text(file, "'");
    } else if (option->flags & CLI_IS_QUEUE) {
        buf_text(file, " -a '(__bq_queues)'");
    } else if (option->flags & CLI_IS_URL) {
        buf_text(file, " -a '(__bq_urls)'");
    } else if (option->flags & CLI_IS_COMMAND) {
        buf_text(file, " -a '(__fish_complete_command)'");
    }
    buf_text(file, " -d ");
    fish_quoted(file, option->help);
    buf_text(file, "\n");
}

static void write_fish(bq_buf *file)
{
    buf_text(file, fish_head);
    for (const cli_option *option = cli_common_options; option->kind != CLI_END; option++)
        fish_option(file, NULL, option);
    for (size_t i = 0; cli_verbs[i]; i++) {
        buf_printf(file, "complete -c bq -n __fish_use_subcommand -a %s -d ", cli_verbs[i]->name);
        fish_quoted(file, cli_verbs[i]->summary);
        buf_text(file, "\n");
    }
    for (size_t i = 0; cli_verbs[i]; i++) {
        const cli_verb *verb = cli_verbs[i];
        char condition[80];
        snprintf(condition, sizeof(condition), "'__fish_seen_subcommand_from %s'", verb->name);
        for (const cli_option *option = verb->options; option && option->kind != CLI_END; option++)
            if (option->name)
                fish_option(file, condition, option);
        if (verb->operand_files)
            buf_printf(file, "complete -c bq -n %s -F\n", condition);
        if (verb == &cli_help) {
            buf_printf(file, "complete -c bq -n %s -a 'urls", condition);
            for (size_t j = 0; cli_verbs[j]; j++)
                buf_printf(file, " %s", cli_verbs[j]->name);
            buf_text(file, "'\n");
        }
    }
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

static int write_one(const char *directory, const char *name, void (*write_to)(bq_buf *file))
{
    bq_buf file = {0};
    int status = CLI_TEMPORARY;
    write_to(&file);
    if (file.failed)
        out_error("out of memory");
    else
        status = help_write_file(directory, name, bq_buf_str(&file));
    bq_buf_clear(&file);
    return status;
}

int complete_write(const char *directory)
{
    int status = write_one(directory, "bq.bash", write_bash);
    if (!status)
        status = write_one(directory, "_bq", write_zsh);
    if (!status)
        status = write_one(directory, "bq.fish", write_fish);
    return status;
}
