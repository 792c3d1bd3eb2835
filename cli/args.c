/*
 * args.c - parses a command line by the tables of a verb: long and short options, before and after operands,
 * `--name=value` and `--name value`, clusters of letters, `--` before operands that look like options. A mistake is
 * answered with the nearest name that exists.
 */
#include "args.h"
#include "out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    const cli_verb *verb;
    char *values;
    int argc;
    char **argv;
    int next; /* the argument after the present one */
    char **operands;
    size_t count;
    bool stop; /* --help was met */
} parser;

int args_usage_error(const cli_verb *verb, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (verb) {
        out_error("%s: %s", verb->name, text);
        out_hint("bq %s --help", verb->name);
    } else {
        out_error("%s", text);
        out_hint("bq help");
    }
    return CLI_USAGE;
}

/* ---- nearest names ------------------------------------------------------------------------------------------------- */

#define NAME_MAX_LENGTH 40

/* Edits (insert, delete, replace, swap of neighbours) between two words of at most NAME_MAX_LENGTH bytes. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][NAME_MAX_LENGTH + 1];
    size_t *before = rows[0], *above = rows[1], *here = rows[2];
    for (size_t j = 0; j <= m; j++)
        before[j] = above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        here[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = here[j - 1] + 1 < best ? here[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            here[j] = best;
        }
        size_t *oldest = before;
        before = above;
        above = here;
        here = oldest;
    }
    return above[m];
}

const char *args_nearest(const char *word, const char *(*next)(void *state), void *state)
{
    const char *best = NULL, *name;
    size_t n = strlen(word), least = n / 3 + 1;
    if (n == 0 || n > NAME_MAX_LENGTH)
        return NULL;
    while ((name = next(state))) {
        size_t m = strlen(name);
        if (m > NAME_MAX_LENGTH)
            continue;
        if (n >= 3 && strncmp(word, name, n) == 0)
            return name; /* an abbreviation */
        size_t d = distance(word, n, name, m);
        if (d < least || (d == least && !best)) {
            least = d;
            best = name;
        }
    }
    return best;
}

typedef struct option_names {
    const cli_option *tables[2];
    size_t table, row;
} option_names;

static const char *next_option_name(void *state)
{
    option_names *names = state;
    while (names->table < 2) {
        const cli_option *table = names->tables[names->table];
        if (!table || table[names->row].kind == CLI_END) {
            names->table++;
            names->row = 0;
            continue;
        }
        const cli_option *option = &table[names->row++];
        if (option->name)
            return option->name;
    }
    return NULL;
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */

static const cli_option *find_long(const cli_option *table, const char *name, size_t len)
{
    for (; table && table->kind != CLI_END; table++)
        if (table->name && strlen(table->name) == len && memcmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

static const cli_option *find_letter(const cli_option *table, char letter)
{
    for (; table && table->kind != CLI_END; table++)
        if (table->letter && table->letter == letter)
            return table;
    return NULL;
}

static bool takes_value(const cli_option *option)
{
    return option->kind != CLI_FLAG && option->kind != CLI_COUNT && option->kind != CLI_MAYBE;
}

bool args_choice(const char *choices, const char *text, int *index)
{
    size_t len = strlen(text);
    int at = 0;
    for (const char *p = choices;; at++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, text, n) == 0) {
            *index = at;
            return true;
        }
        if (!p[n])
            return false;
        p += n + 1;
    }
}

/* ---- values -------------------------------------------------------------------------------------------------------- */

static int bad_value(const parser *p, const cli_option *option, const char *value, const char *expected)
{
    return args_usage_error(p->verb, "--%s: '%s' is not %s", option->name, value, expected);
}

static int out_of_range(const parser *p, const cli_option *option, const char *value)
{
    if (option->max == INT64_MAX)
        return args_usage_error(p->verb, "--%s: %s is less than %lld", option->name, value, (long long)option->min);
    return args_usage_error(p->verb, "--%s: %s is not between %lld and %lld", option->name, value,
                            (long long)option->min, (long long)option->max);
}

static bool in_range(const cli_option *option, double value)
{
    if (option->min == 0 && option->max == 0)
        return true;
    return value >= (double)option->min && value <= (double)option->max;
}

static int set_int(const parser *p, const cli_option *option, const char *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    bool digits = value[0] == '-' ? value[1] >= '0' && value[1] <= '9' : value[0] >= '0' && value[0] <= '9';
    if (!digits || *end)
        return bad_value(p, option, value, "a whole number");
    if (errno == ERANGE || ((option->min || option->max) && (number < option->min || number > option->max)))
        return out_of_range(p, option, value);
    *(int64_t *)(void *)(p->values + option->offset) = number;
    return CLI_DONE;
}

static int set_duration(const parser *p, const cli_option *option, const char *value)
{
    int64_t ms;
    if ((option->flags & CLI_OFF) && strcmp(value, "off") == 0)
        ms = 0;
    else if (!bq_parse_duration(bq_str_of(value), &ms))
        return bad_value(p, option, value, "a duration such as 250ms, 5s, 2m or 1h");
    else if ((option->min || option->max) && (ms < option->min || ms > option->max))
        return args_usage_error(p->verb, "--%s: %s is too %s", option->name, value,
                                ms < option->min ? "short" : "long");
    *(int64_t *)(void *)(p->values + option->offset) = ms;
    return CLI_DONE;
}

/* A decimal number: digits, a point, digits. Not strtod, which takes "inf", "0x1p3" and, in some locales, a comma. */
static bool parse_decimal(const char *text, size_t len, double *out)
{
    double value = 0, scale = 1;
    size_t digits = 0, i = 0;
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++, digits++)
        value = value * 10 + (text[i] - '0');
    if (i < len && text[i] == '.')
        for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++, digits++)
            value += (text[i] - '0') * (scale /= 10);
    *out = value;
    return digits > 0 && digits <= 18 && i == len;
}

static int set_number(const parser *p, const cli_option *option, const char *value)
{
    size_t len = strlen(value);
    double number;
    bool rate = option->kind == CLI_RATE;
    if (rate && len > 2 && strcmp(value + len - 2, "/s") == 0)
        len -= 2;
    if (!parse_decimal(value, len, &number) || (rate && number <= 0))
        return bad_value(p, option, value, rate ? "a rate such as 100/s" : "a number such as 2 or 1.5");
    if (!in_range(option, number))
        return out_of_range(p, option, value);
    *(double *)(void *)(p->values + option->offset) = number;
    return CLI_DONE;
}

static int set_choice(const parser *p, const cli_option *option, const char *value)
{
    int index;
    if (!args_choice(option->choices, value, &index)) {
        char expected[160];
        snprintf(expected, sizeof(expected), "one of %s", option->choices);
        return bad_value(p, option, value, expected);
    }
    *(int *)(void *)(p->values + option->offset) = index;
    return CLI_DONE;
}

static int add_item(const parser *p, const cli_option *option, const char *value)
{
    cli_list *list = (cli_list *)(void *)(p->values + option->offset);
    const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    if (!items) {
        out_error("out of memory");
        return CLI_TEMPORARY;
    }
    list->items = items;
    list->items[list->count++] = value;
    return CLI_DONE;
}

/* `value` NULL: given without one, which only FLAG, COUNT and MAYBE allow. */
static int set_value(parser *p, const cli_option *option, const char *value)
{
    char *field = p->values + option->offset;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)(void *)field = true;
        p->stop = p->stop || field == (char *)&((cli_common *)(void *)p->values)->help;
        return CLI_DONE;
    case CLI_COUNT: ++*(int *)(void *)field; return CLI_DONE;
    case CLI_TEXT: *(const char **)(void *)field = value; return CLI_DONE;
    case CLI_LIST: return add_item(p, option, value);
    case CLI_INT: return set_int(p, option, value);
    case CLI_DURATION: return set_duration(p, option, value);
    case CLI_NUMBER:
    case CLI_RATE: return set_number(p, option, value);
    case CLI_CHOICE: return set_choice(p, option, value);
    case CLI_MAYBE: {
        int index;
        if (value && option->choices && !args_choice(option->choices, value, &index))
            return bad_value(p, option, value, option->choices);
        *(cli_maybe *)(void *)field = (cli_maybe){true, value};
        return CLI_DONE;
    }
    case CLI_END:
    case CLI_SECTION: break;
    }
    return CLI_USAGE;
}

static int set_defaults(parser *p, const cli_option *table)
{
    for (; table && table->kind != CLI_END; table++) {
        int rc = CLI_DONE;
        if (table->fallback)
            rc = set_value(p, table, table->fallback);
        else if (table->kind == CLI_INT || table->kind == CLI_DURATION)
            *(int64_t *)(void *)(p->values + table->offset) = -1;
        else if (table->kind == CLI_CHOICE)
            *(int *)(void *)(p->values + table->offset) = -1;
        if (rc)
            return rc;
    }
    return CLI_DONE;
}

/* ---- words --------------------------------------------------------------------------------------------------------- */

static int unknown_option(const parser *p, const char *word, const char *name, size_t len)
{
    char copy[NAME_MAX_LENGTH + 1];
    option_names names = {{p->verb ? p->verb->options : NULL, cli_common_options}, 0, 0};
    const char *nearest = NULL;
    if (len <= NAME_MAX_LENGTH) {
        memcpy(copy, name, len);
        copy[len] = '\0';
        nearest = args_nearest(copy, next_option_name, &names);
    }
    if (nearest)
        return args_usage_error(p->verb, "unknown option '%s': did you mean --%s?", word, nearest);
    return args_usage_error(p->verb, "unknown option '%s'", word);
}

static int parse_long(parser *p, const char *word)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const cli_option *option = find_long(p->verb ? p->verb->options : NULL, name, len);
    if (!option)
        option = find_long(cli_common_options, name, len);
    if (!option)
        return unknown_option(p, word, name, len);
    if (!takes_value(option)) {
        if (equals && option->kind != CLI_MAYBE)
            return args_usage_error(p->verb, "--%s takes no value", option->name);
        if (equals && !equals[1])
            return args_usage_error(p->verb, "--%s=: the value is empty", option->name);
        return set_value(p, option, equals ? equals + 1 : NULL);
    }
    if (equals)
        return set_value(p, option, equals + 1);
    if (p->next >= p->argc)
        return args_usage_error(p->verb, "--%s needs a value: --%s %s", option->name, option->name, option->value);
    return set_value(p, option, p->argv[p->next++]);
}

static int unknown_letter(const parser *p, const char *word, char letter)
{
    if (!word[2])
        return args_usage_error(p->verb, "unknown option '%s'", word);
    return args_usage_error(p->verb, "unknown option '-%c' in '%s'", letter, word);
}

/* -v, -vv, -vq QUEUE, -qQUEUE. */
static int parse_letters(parser *p, const char *word)
{
    for (const char *at = word + 1; *at && !p->stop; at++) {
        const cli_option *option = find_letter(p->verb ? p->verb->options : NULL, *at);
        if (!option)
            option = find_letter(cli_common_options, *at);
        if (!option)
            return unknown_letter(p, word, *at);
        if (!takes_value(option)) {
            int rc = set_value(p, option, NULL);
            if (rc)
                return rc;
            continue;
        }
        if (at[1])
            return set_value(p, option, at + 1);
        if (p->next >= p->argc)
            return args_usage_error(p->verb, "-%c needs a value: -%c %s", *at, *at, option->value);
        return set_value(p, option, p->argv[p->next++]);
    }
    return CLI_DONE;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1];
}

int args_parse(const cli_verb *verb, int argc, char **argv, void *values, char **operands, size_t *count)
{
    parser p = {verb, values, argc, argv, 0, operands, 0, false};
    bool only_operands = false;
    int rc = set_defaults(&p, cli_common_options);
    if (!rc)
        rc = set_defaults(&p, verb->options);
    while (!rc && !p.stop && p.next < argc) {
        char *word = argv[p.next++];
        if (only_operands || !is_option(word))
            operands[p.count++] = word;
        else if (strcmp(word, "--") == 0)
            only_operands = true;
        else if (word[1] == '-')
            rc = parse_long(&p, word);
        else
            rc = parse_letters(&p, word);
    }
    operands[p.count] = NULL;
    *count = p.count;
    if (!rc && !p.stop && p.count < verb->min_operands)
        rc = args_usage_error(verb, "too few arguments: bq %s %s", verb->name, verb->operands);
    if (!rc && !p.stop && p.count > verb->max_operands) {
        const char *extra = operands[verb->max_operands];
        rc = args_usage_error(verb, "too many arguments, from '%s' on", extra);
    }
    return rc;
}

void args_clear(const cli_verb *verb, void *values)
{
    for (const cli_option *option = verb->options; option && option->kind != CLI_END; option++) {
        if (option->kind != CLI_LIST)
            continue;
        cli_list *list = (cli_list *)(void *)((char *)values + option->offset);
        free(list->items);
        *list = (cli_list){NULL, 0};
    }
}

int args_find_verb(int argc, char **argv)
{
    cli_common scratch = {0};
    parser p = {NULL, (char *)&scratch, argc, argv, 0, NULL, 0, false};
    while (p.next < argc) {
        char *word = argv[p.next];
        if (!is_option(word))
            return p.next;
        p.next++;
        if (strcmp(word, "--") == 0)
            break;
        int rc = word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word);
        if (rc)
            return -1;
    }
    return p.next < argc ? p.next : argc;
}
