/*
 * bq_envelope_decode: every row of contract 2, every typed member with every JSON type, alone, repeated and under an
 * escaped name; precedence, depth, spans, and that nothing is allocated or read outside of the body.
 */
#include "unit/cmocka_all.h"

#include <babelqueue/envelope.h>

#include "base/buf.h"
#include "base/mem.h"
#include "unit/alloc_fail.h"
#include "unit/guarded.h"

#include <stdio.h>
#include <string.h>

#define META "\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"lang\":\"c\",\"schema_version\":1,\"created_at\":5}"
#define GOOD                                                                                                           \
    "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"lang\":\"c\","         \
    "\"schema_version\":1,\"created_at\":5},\"attempts\":0}"

static guarded pages;

static int setup(void **state)
{
    (void)state;
    pages = guarded_new(1 << 21);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    guarded_free(&pages);
    return 0;
}

/* Decodes bytes that end where their page ends. */
static bq_envelope decode(const char *body, size_t len)
{
    bq_envelope env;
    bq_envelope_decode(&env, guarded_end(&pages, body, len), len);
    return env;
}

static bq_envelope decode_text(const char *body)
{
    return decode(body, strlen(body));
}

static void expect(const char *body, bq_verdict verdict, const char *reason)
{
    bq_envelope env = decode_text(body);
    if (env.verdict != verdict || (reason && strcmp(bq_envelope_reason(&env), reason) != 0))
        fail_msg("%s\n  is %s (%s)\n  should be %s (%s)", body, bq_verdict_name(env.verdict), bq_envelope_reason(&env),
                 bq_verdict_name(verdict), reason ? reason : "any reason");
}

/* ---- the rows of contract 2 ------------------------------------------------------------------------------------ */

static void verdicts_have_names(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"ok",          "nonconformant", "poison/utf8",    "poison/json",
                                        "poison/root", "poison/type",   "poison/identity"};
    for (int i = 0; i < BQ_VERDICT_COUNT_; i++)
        assert_string_equal(bq_verdict_name((bq_verdict)i), NAMES[i]);
    assert_string_equal(bq_verdict_name((bq_verdict)99), "unknown");
    assert_string_equal(bq_verdict_name((bq_verdict)-1), "unknown");
}

static void rows(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bq_verdict verdict;
        const char *reason;
    } ROWS[] = {
        {GOOD, BQ_VERDICT_OK, ""},
        {" \t\r\n" GOOD "\n\n", BQ_VERDICT_OK, ""},
        {"{\"urn\":\"urn:a\",\"trace_id\":\"t\",\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_OK, ""},
        {"{\"attempts\":-0," META ",\"data\":{},\"trace_id\":\"t\",\"job\":\"urn:a\"}", BQ_VERDICT_OK, ""},
        {"{\"job\":\"\xD1\x83\",\"trace_id\":\"t\",\"data\":{\"\xE2\x82\xAC\":1}," META ",\"attempts\":0}",
         BQ_VERDICT_OK, ""},

        {"{\"job\":\"urn:a\"}", BQ_VERDICT_NONCONFORMANT, "meta is missing"},
        {"{\"job\":\"urn:a\",\"meta\":null}", BQ_VERDICT_NONCONFORMANT, "meta is null"},
        {"{\"job\":\"urn:a\",\"meta\":{}}", BQ_VERDICT_NONCONFORMANT, "meta.schema_version is missing"},
        {"{\"job\":\"urn:a\",\"meta\":{\"schema_version\":null}}", BQ_VERDICT_NONCONFORMANT,
         "meta.schema_version is null"},
        {"{\"job\":\"urn:a\",\"meta\":{\"schema_version\":2}}", BQ_VERDICT_NONCONFORMANT,
         "meta.schema_version is not the integer 1"},
        {"{\"job\":\"urn:a\",\"meta\":{\"schema_version\":-1}}", BQ_VERDICT_NONCONFORMANT,
         "meta.schema_version is not the integer 1"},
        {"{\"job\":\"urn:a\",\"meta\":{\"schema_version\":11}}", BQ_VERDICT_NONCONFORMANT,
         "meta.schema_version is not the integer 1"},
        {"{\"job\":\"urn:a\"," META "}", BQ_VERDICT_NONCONFORMANT, "data is missing"},
        {"{\"job\":\"urn:a\",\"data\":null," META "}", BQ_VERDICT_NONCONFORMANT, "data is null"},
        {"{\"job\":\"urn:a\",\"data\":{}," META "}", BQ_VERDICT_NONCONFORMANT, "attempts is missing"},
        {"{\"job\":\"urn:a\",\"data\":{}," META ",\"attempts\":null}", BQ_VERDICT_NONCONFORMANT, "attempts is null"},
        {"{\"job\":\"urn:a\",\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_NONCONFORMANT, "trace_id is missing"},
        {"{\"job\":\"urn:a\",\"trace_id\":null,\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_NONCONFORMANT,
         "trace_id is null"},
        {"{\"job\":\"urn:a\",\"trace_id\":\"\",\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_NONCONFORMANT,
         "trace_id is blank"},
        {"{\"job\":\"urn:a\",\"trace_id\":\" \\t\\n\\u000b\\f\\r\\u0020\",\"data\":{}," META ",\"attempts\":0}",
         BQ_VERDICT_NONCONFORMANT, "trace_id is blank"},
        {"{\"job\":\"urn:a\",\"trace_id\":\" \\b\",\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_OK, ""},
        {"{\"job\":\"urn:a\",\"trace_id\":\"\\u00a0\",\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_OK, ""},
        {"{\"job\":\"urn:a\",\"trace_id\":\"\\ud800\",\"data\":{}," META ",\"attempts\":0}", BQ_VERDICT_OK, ""},

        {"{}", BQ_VERDICT_POISON_IDENTITY, "job is missing, and so is urn"},
        {"{\"job\":null}", BQ_VERDICT_POISON_IDENTITY, "neither job nor urn is a string that is not blank"},
        {"{\"job\":7}", BQ_VERDICT_POISON_IDENTITY, "neither job nor urn is a string that is not blank"},
        {"{\"job\":\"\"}", BQ_VERDICT_POISON_IDENTITY, "neither job nor urn is a string that is not blank"},
        {"{\"job\":\" \\u000B\",\"urn\":[]}", BQ_VERDICT_POISON_IDENTITY,
         "neither job nor urn is a string that is not blank"},
        {"{\"Job\":\"urn:a\",\"URN\":\"urn:a\"}", BQ_VERDICT_POISON_IDENTITY, "job is missing, and so is urn"},

        {"null", BQ_VERDICT_POISON_ROOT, "the body is null"},
        {"true", BQ_VERDICT_POISON_ROOT, "the body is not an object"},
        {"0", BQ_VERDICT_POISON_ROOT, "the body is not an object"},
        {"-1.5e3", BQ_VERDICT_POISON_ROOT, "the body is not an object"},
        {"\"{}\"", BQ_VERDICT_POISON_ROOT, "the body is not an object"},
        {"[]", BQ_VERDICT_POISON_ROOT, "the body is not an object"},
        {"[{\"job\":\"urn:a\"}]", BQ_VERDICT_POISON_ROOT, "the body is not an object"},

        {"", BQ_VERDICT_POISON_JSON, "empty"},
        {" \n", BQ_VERDICT_POISON_JSON, "nothing but white space"},
        {"\xEF\xBB\xBF{}", BQ_VERDICT_POISON_JSON, "a byte order mark before the value"},
        {"{}{}", BQ_VERDICT_POISON_JSON, "trailing bytes after the value"},
        {"{} x", BQ_VERDICT_POISON_JSON, "trailing bytes after the value"},
        {"{\"job\":\"urn:a\"}}", BQ_VERDICT_POISON_JSON, "trailing bytes after the value"},
        {"{\"a\":{\"job\":\"urn:a\"}", BQ_VERDICT_POISON_JSON, "the body ends inside a container"},
        {"{\"job\":\"urn:a\"", BQ_VERDICT_POISON_JSON, "the body ends inside a container"},
        {"{\"job\":\"urn:a}", BQ_VERDICT_POISON_JSON, "a string that does not end"},
        {"{\"job\":NaN}", BQ_VERDICT_POISON_JSON, "a byte that begins no value"},
        {"{\"job\":Infinity}", BQ_VERDICT_POISON_JSON, "a byte that begins no value"},
        {"{\"job\":-Infinity}", BQ_VERDICT_POISON_JSON, "a minus sign without a digit"},
        {"{\"attempts\":01}", BQ_VERDICT_POISON_JSON, "a number with a leading zero"},
        {"{\"a\":\"\x01\"}", BQ_VERDICT_POISON_JSON, "a raw control character in a string"},
        {"{\"a\":\"\\x\"}", BQ_VERDICT_POISON_JSON, "an unknown escape in a string"},
        {"{\"a\":\"\\u12g4\"}", BQ_VERDICT_POISON_JSON, "a \\u escape without four hexadecimal digits"},
        {"{a:1}", BQ_VERDICT_POISON_JSON, "an object member without a name"},
        {"{\"a\" 1}", BQ_VERDICT_POISON_JSON, "a member name without a colon"},
        {"{\"a\":1,}", BQ_VERDICT_POISON_JSON, "an object member without a name"},
        {"{\"a\":1 \"b\":2}", BQ_VERDICT_POISON_JSON, "neither a comma nor a closing brace after a member"},
        {"{\"a\":[1 2]}", BQ_VERDICT_POISON_JSON, "neither a comma nor a closing bracket after an element"},

        {"{\"a\":\"\xC0\xAF\"}", BQ_VERDICT_POISON_UTF8, "not valid UTF-8"},
        {"\xFF", BQ_VERDICT_POISON_UTF8, "not valid UTF-8"},
        {"{\"job\":\"\xED\xA0\x80\"}", BQ_VERDICT_POISON_UTF8, "not valid UTF-8"},
        {"{\"job\":\"\xF4\x90\x80\x80\"}", BQ_VERDICT_POISON_UTF8, "not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        expect(ROWS[i].body, ROWS[i].verdict, ROWS[i].reason);
}

/* Each body has the faults of two rows; the earlier row of contract 2 is the verdict. */
static void precedence(void **state)
{
    (void)state;
    expect("{\"a\":tru,\"b\":\"\xFF\"}", BQ_VERDICT_POISON_UTF8, NULL); /* behind the syntax error */
    expect("{\"\xFF\":1,\"a\":tru}", BQ_VERDICT_POISON_UTF8, NULL);     /* and before it */
    expect("\"\xFF", BQ_VERDICT_POISON_UTF8, NULL);
    expect("[\"\xFF\"]", BQ_VERDICT_POISON_UTF8, NULL);
    expect("{\"trace_id\":7,\"b\":\"\xFF\"}", BQ_VERDICT_POISON_UTF8, NULL);
    expect("{\"trace_id\":7,\"b\":}", BQ_VERDICT_POISON_JSON, NULL);
    expect("[1,]", BQ_VERDICT_POISON_JSON, NULL);
    expect("{\"trace_id\":7}", BQ_VERDICT_POISON_TYPE, NULL); /* no identity either */
    expect("{\"job\":\"urn:a\",\"trace_id\":7}", BQ_VERDICT_POISON_TYPE, NULL);
    expect("{\"trace_id\":\"\"}", BQ_VERDICT_POISON_IDENTITY, NULL);
    bq_envelope env = decode_text("{\"data\":[],\"attempts\":\"x\",\"trace_id\":7}");
    assert_string_equal(bq_envelope_reason(&env), "data is neither an object nor null"); /* the first one */
    assert_int_equal(env.error_offset, 8);
}

/* ---- typed members --------------------------------------------------------------------------------------------- */

enum { STRING, INTEGER, DATA, OBJECT };
static const struct {
    const char *parent, *name;
    int kind;
    bq_field field;
} TYPED[] = {
    {NULL, "trace_id", STRING, BQ_FIELD_TRACE_ID},
    {NULL, "attempts", INTEGER, BQ_FIELD_ATTEMPTS},
    {NULL, "data", DATA, BQ_FIELD_DATA},
    {NULL, "meta", OBJECT, BQ_FIELD_META},
    {NULL, "dead_letter", OBJECT, BQ_FIELD_DEAD_LETTER},
    {"meta", "id", STRING, BQ_FIELD_META_ID},
    {"meta", "queue", STRING, BQ_FIELD_META_QUEUE},
    {"meta", "lang", STRING, BQ_FIELD_META_LANG},
    {"meta", "schema_version", INTEGER, BQ_FIELD_META_SCHEMA_VERSION},
    {"meta", "created_at", INTEGER, BQ_FIELD_META_CREATED_AT},
    {"dead_letter", "reason", STRING, BQ_FIELD_DEAD_REASON},
    {"dead_letter", "error", STRING, BQ_FIELD_DEAD_ERROR},
    {"dead_letter", "exception", STRING, BQ_FIELD_DEAD_EXCEPTION},
    {"dead_letter", "failed_at", INTEGER, BQ_FIELD_DEAD_FAILED_AT},
    {"dead_letter", "original_queue", STRING, BQ_FIELD_DEAD_ORIGINAL_QUEUE},
    {"dead_letter", "attempts", INTEGER, BQ_FIELD_DEAD_ATTEMPTS},
    {"dead_letter", "lang", STRING, BQ_FIELD_DEAD_LANG},
};
enum { TYPED_COUNT = sizeof TYPED / sizeof TYPED[0] };

/* Values of every type; `fits` has a bit per kind. */
#define FITS(kind) (1 << (kind))
static const struct {
    const char *text;
    int fits;
} VALUES[] = {
    {"null", FITS(STRING) | FITS(INTEGER) | FITS(DATA) | FITS(OBJECT)},
    {"true", 0},
    {"false", 0},
    {"\"\"", FITS(STRING)},
    {"\"text\"", FITS(STRING)},
    {"\"5\"", FITS(STRING)},
    {"\"\\u0041\\n\"", FITS(STRING)},
    {"0", FITS(INTEGER)},
    {"-0", FITS(INTEGER)},
    {"-7", FITS(INTEGER)},
    {"1784000000000", FITS(INTEGER)},
    {"9223372036854775807", FITS(INTEGER)},
    {"-9223372036854775808", FITS(INTEGER)},
    {"9223372036854775808", 0},
    {"-9223372036854775809", 0},
    {"10000000000000000000", 0},
    {"1000000000000000000000000000000", 0},
    {"1.0", 0},
    {"1e3", 0},
    {"1E+2", 0},
    {"0.5", 0},
    {"[]", 0},
    {"[{}]", 0},
    {"{}", FITS(DATA) | FITS(OBJECT)},
    {"{ }", FITS(DATA) | FITS(OBJECT)},
    {"{\"x\":{\"id\":5,\"reason\":5}}", FITS(DATA) | FITS(OBJECT)},
    {"{\"x\":[1.7976931348623157e308,-0.0,1e-400]}", FITS(DATA) | FITS(OBJECT)},
    {"{\"x\":[1e400]}", FITS(OBJECT)},
};
enum { VALUE_COUNT = sizeof VALUES / sizeof VALUES[0] };

/* How a name may be spelled: as it is, with its first and last letter escaped, all of it escaped. */
static void spell(char *out, size_t size, const char *name, int spelling)
{
    size_t n = strlen(name), at = 0;
    for (size_t i = 0; i < n; i++) {
        bool escape = spelling == 2 || (spelling == 1 && (i == 0 || i == n - 1));
        at += (size_t)snprintf(out + at, size - at, escape ? (i % 2 ? "\\u%04x" : "\\u%04X") : "%c", (unsigned)name[i]);
    }
}

/* The member under test as a member of its parent: {"job":…,<before><parent>:{<name>:<value>}}. */
static void one_member(char *out, size_t size, int t, const char *value, int spelling, const char *blank)
{
    char name[128], parent[128];
    spell(name, sizeof name, TYPED[t].name, spelling);
    if (!TYPED[t].parent) {
        snprintf(out, size, "\"%s\"%s:%s%s%s", name, blank, blank, value, blank);
        return;
    }
    spell(parent, sizeof parent, TYPED[t].parent, spelling);
    snprintf(out, size, "\"%s\"%s:%s{%s\"%s\"%s:%s%s%s}", parent, blank, blank, blank, name, blank, blank, value,
             blank);
}

static void check_type(const char *body, bool fits, int t, bool null)
{
    bq_envelope env = decode_text(body);
    bool poison = env.verdict == BQ_VERDICT_POISON_TYPE;
    if (poison == fits || (fits && env.verdict != BQ_VERDICT_NONCONFORMANT && env.verdict != BQ_VERDICT_OK))
        fail_msg("%s is %s (%s)", body, bq_verdict_name(env.verdict), bq_envelope_reason(&env));
    if (poison) {
        char member[64];
        snprintf(member, sizeof member, "%s%s%s ", TYPED[t].parent ? TYPED[t].parent : "", TYPED[t].parent ? "." : "",
                 TYPED[t].name);
        if (strncmp(bq_envelope_reason(&env), member, strlen(member)) != 0)
            fail_msg("%s: the reason '%s' does not name the member", body, bq_envelope_reason(&env));
    }
    assert_int_equal(bq_envelope_has(&env, TYPED[t].field), !null);
    assert_int_equal(env.is_null >> TYPED[t].field & 1, null);
}

static void every_member_with_every_type(void **state)
{
    (void)state;
    char member[512], body[1024];
    static const char *const BLANKS[] = {"", " ", "\n        "};
    for (int t = 0; t < TYPED_COUNT; t++) {
        for (int v = 0; v < VALUE_COUNT; v++) {
            bool fits = (VALUES[v].fits & FITS(TYPED[t].kind)) != 0, null = v == 0;
            for (int spelling = 0; spelling < 3; spelling++) {
                one_member(member, sizeof member, t, VALUES[v].text, spelling, BLANKS[spelling]);
                snprintf(body, sizeof body, "{\"job\":\"urn:a\",%s}", member);
                check_type(body, fits, t, null);
                snprintf(body, sizeof body, "{%s%s,%s\"urn\":\"urn:a\"}", BLANKS[spelling], member, BLANKS[spelling]);
                check_type(body, fits, t, null);
            }
        }
    }
}

/* A value that fits and a value that may not, in both orders: every occurrence is checked, the last one counts. */
static void every_occurrence_is_checked(void **state)
{
    (void)state;
    static const char *const GOOD_VALUE[] = {"\"text\"", "7", "{}", "{}"};
    char good[512], other[512], body[1200];
    for (int t = 0; t < TYPED_COUNT; t++) {
        for (int v = 0; v < VALUE_COUNT; v++) {
            bool fits = (VALUES[v].fits & FITS(TYPED[t].kind)) != 0;
            for (int spelling = 0; spelling < 2; spelling++) {
                one_member(good, sizeof good, t, GOOD_VALUE[TYPED[t].kind], 1 - spelling, "");
                one_member(other, sizeof other, t, VALUES[v].text, spelling, "");
                snprintf(body, sizeof body, "{\"job\":\"urn:a\",%s,%s}", good, other);
                check_type(body, fits, t, v == 0);
                snprintf(body, sizeof body, "{\"job\":\"urn:a\",%s,%s}", other, good);
                check_type(body, fits, t, false);
                bq_envelope env = decode_text(body);
                assert_true(env.seen & BQ_SEEN_REPEATED);
                bq_str raw = bq_envelope_raw(&env, TYPED[t].field);
                bool quoted = TYPED[t].kind == STRING;
                assert_int_equal(raw.len, strlen(GOOD_VALUE[TYPED[t].kind]) - (quoted ? 2 : 0));
                assert_memory_equal(raw.ptr, GOOD_VALUE[TYPED[t].kind] + quoted, raw.len);
            }
        }
    }
}

/* Names are compared case-sensitively and whole, and only where they belong. */
static void other_names_are_only_syntax(void **state)
{
    (void)state;
    static const char *const BODIES[] = {
        "{\"job\":\"u\",\"Trace_id\":7,\"trace_idx\":7,\"trace_i\":7,\"attempt\":\"x\",\"ATTEMPTS\":1.5}",
        "{\"job\":\"u\",\"id\":7,\"queue\":7}",
        "{\"job\":\"u\",\"data\":{\"attempts\":1.5,\"meta\":7,\"trace_id\":[]}}",
        "{\"job\":\"u\",\"meta\":{\"ID\":7,\"reason\":7,\"trace_id\":7,\"data\":7,\"meta\":7,\"x\":{\"id\":7}}}",
        "{\"job\":\"u\",\"dead_letter\":{\"id\":7,\"schema_version\":\"x\",\"dead_letter\":[]}}",
        "{\"job\":\"u\",\"\\u0074race_i\\u0064\\u0000\":7,\"trace_id\\ud800\":7}",
        "{\"job\":\"u\",\"x\":{\"meta\":{\"id\":7}},\"y\":[{\"trace_id\":7}],\"z\":1e400}",
    };
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++)
        expect(BODIES[i], BQ_VERDICT_NONCONFORMANT, NULL);
}

/* A new `meta` or `dead_letter`, of whatever type, takes the children of the one before with it. */
static void a_new_parent_clears_its_children(void **state)
{
    (void)state;
    static const char *const AGAIN[] = {"{}", "null", "7", "[]", "\"x\"", "{\"x\":1}"};
    char body[512];
    for (size_t i = 0; i < sizeof AGAIN / sizeof AGAIN[0]; i++) {
        snprintf(body, sizeof body,
                 "{\"job\":\"u\",\"meta\":{\"id\":\"i\",\"queue\":null,\"schema_version\":1},\"dead_letter\":{"
                 "\"reason\":\"failed\","
                 "\"attempts\":3,\"error\":null},\"meta\":%s,\"dead_letter\":%s}",
                 AGAIN[i], AGAIN[i]);
        bq_envelope env = decode_text(body);
        for (unsigned f = BQ_FIELD_META_ID; f < BQ_FIELD_COUNT_; f++) {
            assert_false(bq_envelope_has(&env, (bq_field)f));
            assert_false(env.is_null >> f & 1);
        }
        assert_int_equal(bq_envelope_has(&env, BQ_FIELD_META), i != 1);
        assert_int_equal(env.verdict, i >= 2 && i <= 4 ? BQ_VERDICT_POISON_TYPE : BQ_VERDICT_NONCONFORMANT);
    }
}

/* ---- identity -------------------------------------------------------------------------------------------------- */

static void identity(void **state)
{
    (void)state;
    static const struct {
        const char *body, *urn;
        unsigned seen;
    } ROWS[] = {
        {"{\"job\":\"j\"}", "j", 0},
        {"{\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER},
        {"{\"urn\":\"u\",\"job\":\"j\"}", "j", BQ_SEEN_URN_MEMBER},
        {"{\"job\":\"j\",\"urn\":7}", "j", BQ_SEEN_URN_MEMBER},
        {"{\"job\":\"\",\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER},
        {"{\"job\":\"\\n\\u0009\",\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER},
        {"{\"job\":null,\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER | BQ_SEEN_JOB_NOT_STRING},
        {"{\"job\":{\"a\":1},\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER | BQ_SEEN_JOB_NOT_STRING | BQ_SEEN_JOB_BAD_TYPE},
        {"{\"job\":1,\"job\":\"j\"}", "j", BQ_SEEN_REPEATED | BQ_SEEN_JOB_NOT_STRING | BQ_SEEN_JOB_BAD_TYPE},
        {"{\"job\":\"i\",\"\\u006aob\":\"j\"}", "j", BQ_SEEN_REPEATED},
        {"{\"job\":\"j\",\"job\":\"\",\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER | BQ_SEEN_REPEATED},
        {"{\"job\":\"j\",\"job\":null,\"urn\":\"u\"}", "u",
         BQ_SEEN_URN_MEMBER | BQ_SEEN_REPEATED | BQ_SEEN_JOB_NOT_STRING},
        {"{\"job\":\"j\",\"job\":\" \"}", NULL, BQ_SEEN_REPEATED},
        {"{\"urn\":\"v\",\"urn\":\"u\"}", "u", BQ_SEEN_URN_MEMBER | BQ_SEEN_REPEATED},
        {"{\"urn\":\"v\",\"urn\":false}", NULL, BQ_SEEN_URN_MEMBER | BQ_SEEN_REPEATED},
        {"{\"job\":\" j \"}", " j ", 0}, /* never trimmed */
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bq_envelope env = decode_text(ROWS[i].body);
        bq_str urn = bq_envelope_raw(&env, BQ_FIELD_URN);
        if (env.seen != ROWS[i].seen)
            fail_msg("%s: seen %x, should be %x", ROWS[i].body, env.seen, ROWS[i].seen);
        assert_int_equal(env.verdict == BQ_VERDICT_POISON_IDENTITY, ROWS[i].urn == NULL);
        assert_int_equal(urn.ptr != NULL, ROWS[i].urn != NULL);
        if (ROWS[i].urn)
            assert_true(bq_str_equal(urn, bq_str_of(ROWS[i].urn)));
    }
}

static void flags(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        unsigned seen;
    } ROWS[] = {
        {GOOD, 0},
        {"null", BQ_SEEN_NULL_ROOT},
        {" null ", BQ_SEEN_NULL_ROOT},
        {"nul", 0},
        {"{\"job\":\"u\",\"x\":\"\\ud800\"}", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"\\udfff\":1}", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"data\":{\"x\":[\"\\ud83d \\ude9a\"]}}", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"x\":\"\\ude9a\\ud83d\"}", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"x\":\"\\ud83d\\ud83d\\ude9a\"}", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"x\":\"\\ud83d\\u0041\"}", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"x\":\"\\ud83d\\ude9a\\uD83D\\uDE9A\"}", 0},
        {"{\"job\":\"u\",\"x\":\"\\\\ud800\"}", 0},
        {"\"\\ud800\"", BQ_SEEN_LONE_SURROGATE},
        {"{\"job\":\"u\",\"data\":{\"x\":1e309}}", BQ_SEEN_NONFINITE},
        {"{\"job\":\"u\",\"data\":{\"x\":1e309},\"data\":{}}", BQ_SEEN_NONFINITE | BQ_SEEN_REPEATED},
        {"{\"job\":\"u\",\"x\":1e309,\"meta\":{\"x\":1e309},\"attempts\":0}", 0},
        {"{\"job\":\"u\",\"timestamp\":null}", BQ_SEEN_FORBIDDEN},
        {"{\"job\":\"u\",\"\\u0074imestamp\":1}", BQ_SEEN_FORBIDDEN},
        {"{\"job\":\"u\",\"meta\":{\"max_retries\":1}}", BQ_SEEN_FORBIDDEN},
        {"{\"job\":\"u\",\"meta\":{\"attempts\":\"x\"}}", BQ_SEEN_FORBIDDEN},
        {"{\"job\":\"u\",\"meta\":{\"source\":{}}}", BQ_SEEN_FORBIDDEN},
        {"{\"job\":\"u\",\"meta\":{\"ts\":[]}}", BQ_SEEN_FORBIDDEN},
        {"{\"job\":\"u\",\"meta\":{\"timestamp\":1},\"max_retries\":1,\"source\":1,\"ts\":1,\"data\":{\"timestamp\":1}"
         "}",
         0},
        {"{\"job\":\"u\",\"dead_letter\":null}", BQ_SEEN_DEAD_LETTER},
        {"{\"job\":\"u\",\"dead_letter\":7}", BQ_SEEN_DEAD_LETTER},
        {"{\"job\":\"u\",\"meta\":{\"dead_letter\":7}}", 0},
        {"{\"job\":\"u\",\"meta\":{\"id\":\"a\",\"id\":\"b\"}}", BQ_SEEN_REPEATED},
        {"{\"job\":\"u\",\"meta\":{\"id\":\"a\"},\"meta\":{\"id\":\"b\"}}", BQ_SEEN_REPEATED},
        {"{\"job\":\"u\",\"x\":1,\"x\":1,\"data\":{\"y\":1,\"y\":1}}", 0},
        /* Nothing is known of a body that is no JSON. */
        {"{\"job\":1,\"urn\":1,\"timestamp\":1,\"x\":\"\\ud800\",\"dead_letter\":1,}", 0},
        {"{\"job\":1,\"urn\":1,\"timestamp\":1,\"x\":\"\xFF\"}", 0},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bq_envelope env = decode_text(ROWS[i].body);
        if (env.seen != ROWS[i].seen)
            fail_msg("%s: seen %x, should be %x", ROWS[i].body, env.seen, ROWS[i].seen);
    }
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static bq_str text_of(const bq_envelope *env, bq_field field, bq_buf *scratch)
{
    bq_str out;
    assert_int_equal(bq_envelope_text(env, field, scratch, &out), BQ_OK);
    return out;
}

static void assert_text(bq_str is, const char *expected)
{
    if (!bq_str_equal(is, bq_str_of(expected)))
        fail_msg("'%.*s', should be '%s'", (int)is.len, is.ptr ? is.ptr : "", expected);
}

static void members_are_read(void **state)
{
    (void)state;
    static const char BODY[] = "{\"job\":\"urn:\\u0061\",\"trace_id\":\"t\\n\\ud83d\\ude9a\",\"data\":{\"a\": "
                               "1},\"meta\":{\"id\":\"i\",\"queue\":\"\\ud800q\","
                               "\"lang\":null,\"schema_version\":1,\"created_at\":-5},\"attempts\":7}";
    bq_envelope env = decode_text(BODY);
    bq_buf scratch;
    bq_buf_init(&scratch, 0);
    assert_int_equal(env.verdict, BQ_VERDICT_OK);
    assert_text(bq_envelope_raw(&env, BQ_FIELD_URN), "urn:\\u0061");
    assert_text(bq_envelope_raw(&env, BQ_FIELD_DATA), "{\"a\": 1}");
    assert_text(bq_envelope_raw(&env, BQ_FIELD_ATTEMPTS), "7");
    assert_null(bq_envelope_raw(&env, BQ_FIELD_META_LANG).ptr);
    assert_null(bq_envelope_raw(&env, BQ_FIELD_DEAD_LETTER).ptr);
    assert_false(bq_envelope_has(&env, BQ_FIELD_META_LANG));
    assert_false(bq_envelope_has(&env, BQ_FIELD_COUNT_));
    assert_text(text_of(&env, BQ_FIELD_URN, &scratch), "urn:a");
    assert_text(text_of(&env, BQ_FIELD_TRACE_ID, &scratch), "t\n\xF0\x9F\x9A\x9A");
    assert_text(text_of(&env, BQ_FIELD_META_QUEUE, &scratch), "\xEF\xBF\xBDq");
    assert_ptr_equal(text_of(&env, BQ_FIELD_META_ID, &scratch).ptr, bq_envelope_raw(&env, BQ_FIELD_META_ID).ptr);
    assert_null(text_of(&env, BQ_FIELD_META_LANG, &scratch).ptr);
    assert_null(text_of(&env, BQ_FIELD_ATTEMPTS, &scratch).ptr);
    assert_null(text_of(&env, BQ_FIELD_DATA, &scratch).ptr);
    assert_int_equal(bq_envelope_int(&env, BQ_FIELD_META_CREATED_AT, 9), -5);
    assert_int_equal(bq_envelope_int(&env, BQ_FIELD_DEAD_ATTEMPTS, 9), 9);
    assert_int_equal(bq_envelope_int(&env, BQ_FIELD_META_ID, 9), 9);
    assert_int_equal(bq_envelope_int(&env, BQ_FIELD_DATA, 9), 9);
    bq_buf_clear(&scratch);
}

/* Texts stay where they are however often one asks, whatever else the scratch holds. */
static void texts_stay_valid(void **state)
{
    (void)state;
    bq_envelope env = decode_text(
        "{\"job\":\"\\u0061\\u0061\\u0061\",\"trace_id\":\"\\u0062\",\"meta\":{\"id\":\"\\u0063 long enough to "
        "outgrow whatever the buffer had left over from the text before it, which was short\","
        "\"queue\":\"\\n\"}}");
    for (size_t filler = 0; filler < 200; filler += 7) {
        bq_buf scratch;
        bq_buf_init(&scratch, 0);
        for (size_t i = 0; i < filler; i++)
            bq_buf_add_byte(&scratch, '.');
        bq_str urn = text_of(&env, BQ_FIELD_URN, &scratch), queue = text_of(&env, BQ_FIELD_META_QUEUE, &scratch);
        size_t len = scratch.len;
        for (int i = 0; i < 50; i++) {
            bq_str id = text_of(&env, BQ_FIELD_META_ID, &scratch), trace = text_of(&env, BQ_FIELD_TRACE_ID, &scratch);
            assert_int_equal(id.ptr[0], 'c');
            assert_text(trace, "b");
            assert_ptr_equal(text_of(&env, BQ_FIELD_URN, &scratch).ptr, urn.ptr);
        }
        assert_text(urn, "aaa");
        assert_text(queue, "\n");
        assert_int_equal(scratch.len, len);
        assert_int_equal(strspn(scratch.ptr, "."), filler);
        bq_buf_clear(&scratch);
    }
}

static bq_status read_texts(void *arg)
{
    bq_envelope env = decode_text("{\"job\":\"\\u0061\",\"trace_id\":\"\\u0062\"}");
    bq_buf scratch;
    bq_str out = {"x", 1};
    (void)arg;
    bq_buf_init(&scratch, 0);
    bq_status status = bq_envelope_text(&env, BQ_FIELD_URN, &scratch, &out);
    assert_int_equal(out.ptr == NULL, status != BQ_OK);
    bq_buf_clear(&scratch);
    return status;
}

static void texts_without_memory(void **state)
{
    (void)state;
    assert_int_equal(alloc_fail_each("bq_envelope_text", read_texts, NULL), 1);
    bq_envelope env = decode_text("{\"job\":\"\\u0061\"}");
    bq_buf scratch;
    bq_str out;
    bq_buf_init(&scratch, 8);
    assert_int_equal(bq_envelope_text(&env, BQ_FIELD_JOB, &scratch, &out), BQ_DATA); /* the ceiling */
    assert_null(out.ptr);
    bq_buf_clear(&scratch);
}

/* Contract 3.2: clamped, and 0 for whatever is no count. */
static void attempts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t attempts;
    } ROWS[] = {{"0", 0},
                {"-0", 0},
                {"3", 3},
                {"-1", 0},
                {"-9223372036854775808", 0},
                {"2147483647", INT32_MAX},
                {"2147483648", INT32_MAX},
                {"9223372036854775807", INT32_MAX},
                {"9223372036854775808", 0},
                {"null", 0},
                {"\"3\"", 0},
                {"3.0", 0},
                {"3e0", 0},
                {"[3]", 0},
                {"true", 0},
                {"{}", 0}};
    char body[128];
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        snprintf(body, sizeof body, "{\"job\":\"u\",\"attempts\":%s}", ROWS[i].text);
        bq_envelope env = decode_text(body);
        assert_int_equal(bq_envelope_attempts(&env), ROWS[i].attempts);
    }
    bq_envelope env = decode_text("{\"job\":\"u\"}");
    assert_int_equal(bq_envelope_attempts(&env), 0);
    /* A poison body still has what it has. */
    env = decode_text("{\"trace_id\":5,\"attempts\":4}");
    assert_int_equal(bq_envelope_attempts(&env), 4);
    env = decode_text("{\"attempts\":4,}");
    assert_int_equal(bq_envelope_attempts(&env), 0);
}

/* Integers of every length where the canonical order puts them, and what is none. */
static void integers_in_canonical_order(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fits;
    } ROWS[] = {{"7", true},
                {"-7", true},
                {"999999999999999999", true},
                {"9223372036854775807", true},
                {"9223372036854775808", false},
                {"99999999999999999999", false},
                {"7.0", false},
                {"7e0", false},
                {"-9223372036854775808", true},
                {"-9223372036854775809", false},
                {"\"7\"", false},
                {"null", true},
                {"[7]", false}};
    char body[512];
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        for (int place = 0; place < 3; place++) {
            snprintf(
                body, sizeof body,
                "{\"job\":\"u\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"id\":\"i\",\"queue\":\"q\",\"lang\":\"c\","
                "\"schema_version\":%s,\"created_at\":%s},\"attempts\":%s}",
                place == 0 ? ROWS[i].text : "1", place == 1 ? ROWS[i].text : "5", place == 2 ? ROWS[i].text : "0");
            bq_envelope env = decode_text(body);
            if ((env.verdict == BQ_VERDICT_POISON_TYPE) == ROWS[i].fits)
                fail_msg("%s is %s", body, bq_verdict_name(env.verdict));
        }
    }
}

static void no_value_is_an_empty_body(void **state)
{
    (void)state;
    bq_envelope env, empty = decode_text("");
    assert_int_equal(bq_envelope_decode_null(&env), BQ_VERDICT_POISON_JSON);
    assert_string_equal(bq_envelope_reason(&env), bq_envelope_reason(&empty));
    assert_int_equal(env.len, 0);
    assert_int_equal(bq_envelope_decode(&env, NULL, 0), BQ_VERDICT_POISON_JSON);
    assert_int_equal(bq_envelope_attempts(&env), 0);
}

static void error_offsets(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        size_t offset;
    } ROWS[] = {
        {"{\"a\":1}x", 7},
        {"{\"a\":x}", 5},
        {"{\"a\":\"\xFF\"}", 6},
        {"{\"a\":1", 6},
        {"{\"trace_id\": 7}", 13},
        {"{\"data\":{\"x\":1e999}}", 8},
        {"[1,2,]", 5},
        {"{\"a\":\"\\q\"}", 6},
        {"  {\"a\":1}  x", 11},
        {"1.", 2},
        {"\"abc", 4},
        {"  ", 0},
        {"{\"meta\":{\"id\":[]}}", 14},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bq_envelope env = decode_text(ROWS[i].body);
        if (env.error_offset != ROWS[i].offset)
            fail_msg("%s: at %zu, should be %zu", ROWS[i].body, env.error_offset, ROWS[i].offset);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_have_names),
        cmocka_unit_test(rows),
        cmocka_unit_test(precedence),
        cmocka_unit_test(every_member_with_every_type),
        cmocka_unit_test(every_occurrence_is_checked),
        cmocka_unit_test(other_names_are_only_syntax),
        cmocka_unit_test(a_new_parent_clears_its_children),
        cmocka_unit_test(identity),
        cmocka_unit_test(flags),
        cmocka_unit_test(members_are_read),
        cmocka_unit_test(texts_stay_valid),
        cmocka_unit_test(texts_without_memory),
        cmocka_unit_test(attempts),
        cmocka_unit_test(integers_in_canonical_order),
        cmocka_unit_test(no_value_is_an_empty_body),
        cmocka_unit_test(error_offsets),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
