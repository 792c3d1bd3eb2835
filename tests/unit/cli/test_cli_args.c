/* Command lines against a table of every kind of option: values, mistakes, nearest names. */
#include "unit/cmocka_all.h"

#include "args.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    cli_common common;
    bool flag;
    const char *text;
    cli_list list;
    int64_t number;
    int64_t duration;
    double factor;
    double rate;
    int choice;
    cli_maybe maybe;
} values;

#define AT(field) offsetof(values, field)

static const cli_option table[] = {CLI_OPTIONS_SECTION("A heading"),
                                   {CLI_FLAG, 'f', "flag", NULL, AT(flag), NULL, NULL, 0, 0, 0, "help"},
                                   {CLI_TEXT, 't', "text", "T", AT(text), "fallback", NULL, 0, 0, 0, "help"},
                                   {CLI_LIST, 'q', "queue", "Q", AT(list), NULL, NULL, 0, 0, 0, "help"},
                                   {CLI_INT, 'n', "number", "N", AT(number), NULL, NULL, 1, 100, 0, "help"},
                                   {CLI_DURATION, 0, "delay", "D", AT(duration), "5s", NULL, 1, 60000, CLI_OFF, "help"},
                                   {CLI_NUMBER, 0, "factor", "X", AT(factor), "1", NULL, 1, 10, 0, "help"},
                                   {CLI_RATE, 0, "rate", "N/s", AT(rate), NULL, NULL, 0, 0, 0, "help"},
                                   {CLI_CHOICE, 0, "kind", "K", AT(choice), NULL, "red|green|blue", 0, 0, 0, "help"},
                                   {CLI_MAYBE, 0, "drain", NULL, AT(maybe), NULL, "all", 0, 0, 0, "help"},
                                   CLI_OPTIONS_END};

static const cli_verb verb = {.name = "test",
                              .operands = "A [B]",
                              .options = table,
                              .values_size = sizeof(values),
                              .min_operands = 0,
                              .max_operands = 2};

static const cli_verb strict = {
    .name = "strict", .operands = "A", .values_size = sizeof(values), .min_operands = 1, .max_operands = 1};

const cli_option cli_common_options[] = {
    {CLI_TEXT, 'u', "url", "URL", offsetof(cli_common, url), NULL, NULL, 0, 0, 0, "help"},
    {CLI_COUNT, 'v', "verbose", NULL, offsetof(cli_common, verbose), NULL, NULL, 0, 0, 0, "help"},
    {CLI_FLAG, 'h', "help", NULL, offsetof(cli_common, help), NULL, NULL, 0, 0, 0, "help"},
    CLI_OPTIONS_END};

/* ---- what a mistake says, caught from stderr ------------------------------------------------------------------------ */

static char said[4096];
static int saved = -1, ends[2] = {-1, -1};

static void listen(void)
{
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[0], F_SETFL, O_NONBLOCK) >= 0);
    saved = dup(STDERR_FILENO);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
}

static void heard(void)
{
    (void)dup2(saved, STDERR_FILENO);
    ssize_t n = read(ends[0], said, sizeof(said) - 1);
    said[n > 0 ? n : 0] = '\0';
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

typedef struct parsed {
    values v;
    char *operands[20];
    size_t count;
    int status;
} parsed;

static void parse(const cli_verb *of, parsed *p, const char *const *words)
{
    int argc = 0;
    while (words[argc])
        argc++;
    memset(p, 0, sizeof(*p));
    listen();
    p->status = args_parse(of, argc, (char **)(uintptr_t)words, &p->v, p->operands, &p->count);
    heard();
}

#define PARSE(p, ...) parse(&verb, (p), (const char *const[]){__VA_ARGS__, NULL})

static void defaults(void **state)
{
    (void)state;
    parsed p;
    parse(&verb, &p, (const char *const[]){NULL});
    assert_int_equal(p.status, CLI_DONE);
    assert_int_equal(p.count, 0);
    assert_string_equal(p.v.text, "fallback");
    assert_int_equal(p.v.number, -1);
    assert_int_equal(p.v.duration, 5000);
    assert_true(p.v.factor == 1);
    assert_int_equal(p.v.choice, -1);
    assert_false(p.v.flag || p.v.maybe.given);
    assert_string_equal(said, "");
}

static void every_kind(void **state)
{
    (void)state;
    parsed p;
    PARSE(&p, "--flag", "--text", "x=y", "--queue=a", "-q", "b", "-qc", "--number", "100", "--delay", "1.5",
          "--factor=2.5", "--rate", "50/s", "--kind", "blue", "--drain=all", "-vv");
    assert_int_equal(p.status, CLI_DONE);
    assert_true(p.v.flag);
    assert_string_equal(p.v.text, "x=y");
    assert_int_equal(p.v.list.count, 3);
    assert_string_equal(p.v.list.items[2], "c");
    assert_int_equal(p.v.number, 100);
    assert_int_equal(p.v.duration, 1500);
    assert_true(p.v.factor == 2.5 && p.v.rate == 50);
    assert_int_equal(p.v.choice, 2);
    assert_true(p.v.maybe.given);
    assert_string_equal(p.v.maybe.value, "all");
    assert_int_equal(p.v.common.verbose, 2);
    args_clear(&verb, &p.v);
    assert_int_equal(p.v.list.count, 0);
}

static void operands_and_options_mix(void **state)
{
    (void)state;
    parsed p;
    PARSE(&p, "one", "--flag", "-", "-t", "-");
    assert_int_equal(p.status, CLI_DONE);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.operands[1], "-");
    assert_string_equal(p.v.text, "-");
    assert_true(p.v.flag);
    PARSE(&p, "--", "--flag", "-x");
    assert_int_equal(p.status, CLI_DONE);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.operands[0], "--flag");
    assert_false(p.v.flag);
    assert_null(p.operands[2]);
}

static void clusters(void **state)
{
    (void)state;
    parsed p;
    PARSE(&p, "-vfvq", "orders");
    assert_int_equal(p.status, CLI_DONE);
    assert_int_equal(p.v.common.verbose, 2);
    assert_true(p.v.flag);
    assert_string_equal(p.v.list.items[0], "orders");
    args_clear(&verb, &p.v);
    PARSE(&p, "-fx");
    assert_int_equal(p.status, CLI_USAGE);
    assert_non_null(strstr(said, "'-x' in '-fx'"));
}

static void help_ends_the_parsing(void **state)
{
    (void)state;
    parsed p;
    PARSE(&p, "--help", "--nonsense", "a", "b", "c");
    assert_int_equal(p.status, CLI_DONE);
    assert_true(p.v.common.help);
    PARSE(&p, "--text", "--help");
    assert_false(p.v.common.help);
    assert_string_equal(p.v.text, "--help");
}

static void bad(const char *word, const char *value, const char *expected)
{
    parsed p;
    PARSE(&p, word, value);
    assert_int_equal(p.status, CLI_USAGE);
    if (!strstr(said, expected))
        fail_msg("%s %s said: %s", word, value ? value : "", said);
    args_clear(&verb, &p.v);
}

static void bad_values(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"--number", "0", "not between 1 and 100"},
        {"--number", "101", "not between 1 and 100"},
        {"--number", "99999999999999999999", "not between"},
        {"--number", "1x", "'1x' is not a whole number"},
        {"--number", "", "is not a whole number"},
        {"--number", " 1", "is not a whole number"},
        {"--number", "+1", "is not a whole number"},
        {"--number", "0x10", "is not a whole number"},
        {"--number", "-", "is not a whole number"},
        {"--delay", "5 s", "is not a duration"},
        {"--delay", "5d", "is not a duration"},
        {"--delay", "-1s", "is not a duration"},
        {"--delay", "", "is not a duration"},
        {"--delay", "2m", "too long"},
        {"--delay", "0", "too short"},
        {"--factor", "0.5", "not between"},
        {"--factor", "inf", "is not a number"},
        {"--factor", "1e1", "is not a number"},
        {"--factor", ".", "is not a number"},
        {"--rate", "0", "is not a rate"},
        {"--rate", "5/m", "is not a rate"},
        {"--rate", "/s", "is not a rate"},
        {"--kind", "re", "not one of red|green|blue"},
        {"--kind", "", "not one of"},
        {"--kind", "red|green", "not one of"},
        {"--drain=al", NULL, "'al' is not all"},
        {"--drain=", NULL, "the value is empty"},
        {"--flag=yes", NULL, "takes no value"},
        {"--number", NULL, "needs a value"},
        {"-n", NULL, "needs a value"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bad(rows[i][0], rows[i][1], rows[i][2]);
}

static void nearest_names(void **state)
{
    (void)state;
    bad("--numbr", NULL, "did you mean --number?");
    bad("--nubmer=1", NULL, "did you mean --number?");
    bad("--num", NULL, "did you mean --number?");
    bad("--verbos", NULL, "did you mean --verbose?");
    bad("--xyzzy", NULL, "unknown option '--xyzzy'\n");
    bad("--a-name-that-is-much-longer-than-any-option-could-ever-be", NULL, "unknown option");
}

static void operand_counts(void **state)
{
    (void)state;
    parsed p;
    PARSE(&p, "a", "b", "c");
    assert_int_equal(p.status, CLI_USAGE);
    assert_non_null(strstr(said, "too many arguments, from 'c' on"));
    parse(&strict, &p, (const char *const[]){NULL});
    assert_int_equal(p.status, CLI_USAGE);
    assert_non_null(strstr(said, "too few arguments: bq strict A"));
}

static int find(const char *const *words)
{
    int argc = 0;
    while (words[argc])
        argc++;
    listen();
    int at = args_find_verb(argc, (char **)(uintptr_t)words);
    heard();
    return at;
}

#define FIND(...) find((const char *const[]){__VA_ARGS__, NULL})

static void the_verb(void **state)
{
    (void)state;
    assert_int_equal(FIND("publish", "-q", "x"), 0);
    assert_int_equal(FIND("-u", "publish", "stats"), 2);
    assert_int_equal(FIND("--url=x", "-v", "stats"), 2);
    assert_int_equal(FIND("-v", "-v"), 2);
    assert_int_equal(FIND("--", "stats"), 1);
    assert_int_equal(FIND("--queue", "x", "stats"), -1);
    assert_int_equal(FIND("-u"), -1);
}

static void choices(void **state)
{
    (void)state;
    int index = -1;
    assert_true(args_choice("a|bc|d", "bc", &index));
    assert_int_equal(index, 1);
    assert_true(args_choice("a|bc|d", "d", &index));
    assert_int_equal(index, 2);
    assert_false(args_choice("a|bc|d", "b", &index));
    assert_false(args_choice("a|bc|d", "bc|d", &index));
    assert_false(args_choice("a|bc|d", "", &index));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_kind),
        cmocka_unit_test(operands_and_options_mix),
        cmocka_unit_test(clusters),
        cmocka_unit_test(help_ends_the_parsing),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(nearest_names),
        cmocka_unit_test(operand_counts),
        cmocka_unit_test(the_verb),
        cmocka_unit_test(choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
