/*
 * Rewrites (contract 1 "byte preservation", sections 4 and 6): examples by hand, and a property test in which bodies
 * are made from parts. The parts know where every byte comes from, so the expected output is put together from them
 * and not from the bytes that the code under test reads.
 */
#include "unit/cmocka_all.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "unit/alloc_fail.h"
#include "unit/contract/sample.h"

static const bq_dead_letter DL = {
    .reason = BQ_REASON_FAILED,
    .error = {"boom", 4},
    .exception = {"Err", 3},
    .failed_at = 5,
    .original_queue = {"q", 1},
    .attempts = 3,
};
#define DL_TEXT                                                                                                        \
    "\"dead_letter\":{\"reason\":\"failed\",\"error\":\"boom\",\"exception\":\"Err\",\"failed_at\":5,"                 \
    "\"original_queue\":\"q\",\"attempts\":3,\"lang\":\"c\"}"

typedef enum op { RETRY, RECORD, REDRIVE } op;

static bq_status rewrite(op what, const bq_envelope *env, bq_buf *out, unsigned *dropped, bq_error *err)
{
    switch (what) {
    case RETRY: return bq_rewrite_attempts(env, 7, out, dropped, err);
    case RECORD: return bq_record_envelope(env, &DL, out, dropped, err);
    default: return bq_rewrite_redrive(env, out, dropped, err);
    }
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

#define U BQ_DROPPED_URN
#define TS BQ_DROPPED_TIMESTAMP

static const struct {
    op what;
    const char *body, *expected;
    unsigned dropped;
} CASES[] = {
    /* every other byte survives: white space, order, escapes, numbers as they are, repeated members */
    {RETRY, "{\"job\":\"u\",\"attempts\":2}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, " \t{\n \"attempts\" : 2 ,\r\"job\":\"\\u0075\" } \n",
     " \t{\n \"attempts\" : 7 ,\r\"job\":\"\\u0075\" } \n", 0},
    {RETRY, "{\"job\":\"u\",\"n\":12345678901234567890,\"f\":1.0,\"x\":1e400,\"x\":-0,\"attempts\":0,\"z\":\"\\/\"}",
     "{\"job\":\"u\",\"n\":12345678901234567890,\"f\":1.0,\"x\":1e400,\"x\":-0,\"attempts\":7,\"z\":\"\\/\"}", 0},
    {RETRY, "{\"job\":\"u\",\"attempts\":null}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"job\":\"u\",\"attempts\":-9223372036854775808,\"a\":{\"attempts\":1}}",
     "{\"job\":\"u\",\"attempts\":7,\"a\":{\"attempts\":1}}", 0},
    /* "every occurrence of a replaced member is replaced", however its name is written */
    {RETRY, "{\"attempts\":1,\"job\":\"u\",\"attempts\":2}", "{\"attempts\":7,\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"\\u0061ttempts\":1,\"job\":\"u\",\"attempts\":null}",
     "{\"\\u0061ttempts\":7,\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"job\":\"u\",\"Attempts\":1,\"attempts \":2,\"attempts\":3}",
     "{\"job\":\"u\",\"Attempts\":1,\"attempts \":2,\"attempts\":7}", 0},
    /* "a missing attempts is appended last" */
    {RETRY, "{\"job\":\"u\"}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"job\":\"u\"\n}\n", "{\"job\":\"u\"\n,\"attempts\":7}\n", 0},
    {RETRY, "{\"job\":\"{\"}", "{\"job\":\"{\",\"attempts\":7}", 0},
    {RETRY, "{}", "{\"attempts\":7}", 0},
    {RETRY, "{ }", "{ \"attempts\":7}", 0},
    /* a retry leaves a dead_letter alone, a record replaces all of them, a redrive removes all of them */
    {RETRY, "{\"job\":\"u\",\"dead_letter\":{\"x\":1},\"attempts\":2}",
     "{\"job\":\"u\",\"dead_letter\":{\"x\":1},\"attempts\":7}", 0},
    {RECORD, "{\"job\":\"u\",\"attempts\":2}", "{\"job\":\"u\",\"attempts\":3," DL_TEXT "}", 0},
    {RECORD, "{\"job\":\"u\"}", "{\"job\":\"u\",\"attempts\":3," DL_TEXT "}", 0},
    {RECORD, "{\"job\":\"u\",\"attempts\":2\n}\n", "{\"job\":\"u\",\"attempts\":3\n," DL_TEXT "}\n", 0},
    {RECORD, "{}", "{\"attempts\":3," DL_TEXT "}", 0},
    {RECORD, "{\"dead_letter\":{\"x\":1},\"job\":\"u\",\"dead_letter\":null,\"attempts\":2}",
     "{\"job\":\"u\",\"attempts\":3," DL_TEXT "}", 0},
    {RECORD, "{\"attempts\":2,\"dead_letter\":{}}", "{\"attempts\":3," DL_TEXT "}", 0},
    {RECORD, "{\"dead_letter\":{}}", "{\"attempts\":3," DL_TEXT "}", 0},
    {REDRIVE, "{\"job\":\"u\",\"attempts\":2}", "{\"job\":\"u\",\"attempts\":0}", 0},
    {REDRIVE, "{\"job\":\"u\",\"attempts\":2," DL_TEXT "}", "{\"job\":\"u\",\"attempts\":0}", 0},
    {REDRIVE, "{\"job\":\"u\",\"\\u0064ead_letter\":null,\"attempts\":2}", "{\"job\":\"u\",\"attempts\":0}", 0},
    {REDRIVE, "{" DL_TEXT ",\"job\":\"u\",\"attempts\":2}", "{\"job\":\"u\",\"attempts\":0}", 0},
    {REDRIVE, "{ \"dead_letter\" : {} , \"job\" : \"u\" , \"dead_letter\" : {} }", "{ \"job\" : \"u\" ,\"attempts\":0}",
     0},
    {REDRIVE, "{\n  \"job\": \"u\",\n  \"dead_letter\": {\"a\": [1, 2]},\n  \"attempts\": 1\n}",
     "{\n  \"job\": \"u\",\n  \"attempts\": 0\n}", 0},
    /* "when urn is the identity, its key becomes job and invalid job members go" */
    {RETRY, "{\"urn\":\"u\",\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{ \"\\u0075rn\" : \"u\" ,\"attempts\":1}", "{ \"job\" : \"u\" ,\"attempts\":7}", 0},
    {RETRY, "{\"job\":\"\",\"urn\":\"u\",\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"urn\":\"u\",\"job\":null,\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"urn\":\"u\",\"job\":[1],\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", 0},
    {RETRY, "{\"job\":5,\"urn\":\"u\",\"job\":\" \",\"attempts\":1,\"job\":{}}", "{\"job\":\"u\",\"attempts\":7}", 0},
    /* the last of the repeated ones is the identity; a job before it that was overridden must not come back */
    {RETRY, "{\"urn\":\"a\",\"job\":\"x\",\"urn\":\"u\",\"job\":\"\",\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}",
     U},
    {RETRY, "{\"urn\":5,\"urn\":\"u\"}", "{\"job\":\"u\",\"attempts\":7}", U},
    /* "otherwise urn members go with a warning" */
    {RETRY, "{\"urn\":\"a\",\"job\":\"u\",\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", U},
    {RETRY, "{\"job\":\"u\",\"attempts\":1,\"urn\":\"a\"}", "{\"job\":\"u\",\"attempts\":7}", U},
    {RETRY, "{\"job\":\"u\",\"urn\":5,\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", U},
    {RETRY, "{\"urn\":\"\",\"attempts\":1}", "{\"attempts\":7}", U}, /* Kafka: no identity at all */
    {RETRY, "{\"job\":5,\"urn\":\"\",\"attempts\":1}", "{\"job\":5,\"attempts\":7}", U},
    {RETRY, "{\"job\":\"x\",\"job\":\"u\",\"attempts\":1}", "{\"job\":\"x\",\"job\":\"u\",\"attempts\":7}", 0},
    /* "forbidden members go": first, in the middle, last, alone, repeated, escaped */
    {RETRY, "{\"timestamp\":1,\"job\":\"u\",\"attempts\":1}", "{\"job\":\"u\",\"attempts\":7}", TS},
    {RETRY, "{\"job\":\"u\",\"attempts\":1,\"timestamp\":{\"a\":[\"}\"]}}", "{\"job\":\"u\",\"attempts\":7}", TS},
    {RETRY, "{\"job\":\"u\" , \"timestamp\" : 1 , \"attempts\":1}", "{\"job\":\"u\" , \"attempts\":7}", TS},
    {RETRY, "{ \"t\\u0069mestamp\":1 , \"timestamp\":2 }", "{  \"attempts\":7}", TS},
    {RETRY, "{\"job\":\"u\",\"meta\":{\"ts\":1},\"attempts\":1}", "{\"job\":\"u\",\"meta\":{},\"attempts\":7}",
     BQ_DROPPED_META_TS},
    {RETRY, "{\"job\":\"u\",\"meta\":{ \"ts\":1, \"source\":2 },\"attempts\":1}",
     "{\"job\":\"u\",\"meta\":{  },\"attempts\":7}", BQ_DROPPED_META_TS | BQ_DROPPED_META_SOURCE},
    {RETRY,
     "{\"job\":\"u\",\"meta\":{\"max_retries\":1,\"id\":\"i\",\"attempts\":2,\"a\":1,\"source\":3},\"attempts\":1}",
     "{\"job\":\"u\",\"meta\":{\"id\":\"i\",\"a\":1},\"attempts\":7}",
     BQ_DROPPED_META_MAX_RETRIES | BQ_DROPPED_META_ATTEMPTS | BQ_DROPPED_META_SOURCE},
    {RETRY, "{\"meta\":{\"ts\":1,\"a\":1},\"job\":\"u\",\"meta\":{\"b\":2,\"ts\":2},\"attempts\":1}",
     "{\"meta\":{\"a\":1},\"job\":\"u\",\"meta\":{\"b\":2},\"attempts\":7}", BQ_DROPPED_META_TS},
    {RETRY, "{\"job\":\"u\",\"meta\":{\"x\":{\"ts\":1}},\"data\":{\"timestamp\":1,\"meta\":{\"ts\":1}},\"attempts\":1}",
     "{\"job\":\"u\",\"meta\":{\"x\":{\"ts\":1}},\"data\":{\"timestamp\":1,\"meta\":{\"ts\":1}},\"attempts\":7}", 0},
    {RECORD, "{\"timestamp\":1,\"urn\":\"u\",\"meta\":{\"ts\":2},\"dead_letter\":{},\"attempts\":1}",
     "{\"job\":\"u\",\"meta\":{},\"attempts\":3," DL_TEXT "}", TS | BQ_DROPPED_META_TS},
    {REDRIVE, "{\"job\":\"u\",\"urn\":\"x\",\"timestamp\":1,\"dead_letter\":{},\"attempts\":1}",
     "{\"job\":\"u\",\"attempts\":0}", TS | U},
    /* contract 7.8: "retry copy: value null" */
    {RETRY, "null", "null", 0},
    {RETRY, " null\n", " null\n", 0},
    {RECORD, "null", "{\"raw\":\"null\"," DL_TEXT "}", 0},
    {RECORD, " null\n", "{\"raw\":\" null\\n\"," DL_TEXT "}", 0},
};

static void by_hand(void **state)
{
    (void)state;
    bq_buf out;
    bq_buf_init(&out, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bq_envelope env = sample_decode(CASES[i].body);
        unsigned dropped = 99;
        bq_buf_reset(&out);
        assert_int_equal(bq_buf_add_lit(&out, "before"), BQ_OK); /* appended, never written over */
        bq_status status = rewrite(CASES[i].what, &env, &out, &dropped, NULL);
        if (status != BQ_OK || strcmp(out.ptr + 6, CASES[i].expected) != 0 || memcmp(out.ptr, "before", 6) != 0)
            fail_msg("%zu: %s\nexpected %s\ngot      %s", i, CASES[i].body, CASES[i].expected, out.ptr);
        if (dropped != CASES[i].dropped)
            fail_msg("%zu: %s: dropped %#x instead of %#x", i, CASES[i].body, dropped, CASES[i].dropped);
        bq_buf_reset(&out);
        assert_int_equal(rewrite(CASES[i].what, &env, &out, NULL, NULL), BQ_OK);
        assert_string_equal(out.ptr, CASES[i].expected);
    }
    bq_buf_clear(&out);
}

static void counts(void **state)
{
    (void)state;
    static const int64_t COUNTS[] = {0, 9, 10, 99, 100, 2147483647, INT64_MAX};
    bq_envelope env = sample_decode("{\"job\":\"u\",\"attempts\":123}");
    bq_buf out;
    bq_buf_init(&out, 0);
    for (size_t i = 0; i < sizeof COUNTS / sizeof COUNTS[0]; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "{\"job\":\"u\",\"attempts\":%" PRId64 "}", COUNTS[i]);
        bq_buf_reset(&out);
        assert_int_equal(bq_rewrite_attempts(&env, COUNTS[i], &out, NULL, NULL), BQ_OK);
        assert_string_equal(out.ptr, expected);
    }
    bq_error err;
    bq_buf_reset(&out);
    assert_int_equal(bq_rewrite_attempts(&env, -1, &out, NULL, &err), BQ_INVALID);
    bq_dead_letter dl = DL;
    dl.attempts = -1;
    assert_int_equal(bq_record_envelope(&env, &dl, &out, NULL, &err), BQ_INVALID);
    assert_int_equal(out.len, 0);
    bq_buf_clear(&out);
}

static void what_is_no_envelope(void **state)
{
    (void)state;
    static const char *const BODIES[] = {
        "",
        "[]",
        "5",
        "\"null\"",
        "nul",
        "{",
        "{\"job\":\"u\",}",
        "\xFF",
        "{\"job\":\"\xFF\"}",
        "{\"job\":\"u\",\"attempts\":\"1\"}",
        "{\"job\":\"u\",\"data\":[]}",
    };
    bq_buf out;
    bq_buf_init(&out, 0);
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        bq_envelope env = sample_decode(BODIES[i]);
        for (int what = RETRY; what <= REDRIVE; what++) {
            bq_error err = {0};
            unsigned dropped = 99;
            assert_int_equal(rewrite((op)what, &env, &out, &dropped, &err), BQ_DATA);
            assert_int_equal(err.status, BQ_DATA);
            assert_int_equal(dropped, 0);
            assert_int_equal(out.len, 0);
        }
    }
    bq_envelope null = sample_decode("null");
    assert_int_equal(bq_rewrite_redrive(&null, &out, NULL, NULL), BQ_DATA);
    bq_buf_clear(&out);
}

static void a_dead_letter_s_texts(void **state)
{
    (void)state;
    bq_envelope env = sample_decode("{\"job\":\"u\",\"attempts\":0}");
    bq_buf out;
    bq_buf_init(&out, 0);
    const bq_dead_letter bare = {.reason = BQ_REASON_UNKNOWN_URN, .attempts = 1};
    assert_int_equal(bq_record_envelope(&env, &bare, &out, NULL, NULL), BQ_OK);
    assert_string_equal(out.ptr,
                        "{\"job\":\"u\",\"attempts\":1,\"dead_letter\":{\"reason\":\"unknown_urn\",\"error\":null,"
                        "\"exception\":null,\"failed_at\":0,\"original_queue\":\"\",\"attempts\":1,"
                        "\"lang\":\"c\"}}");
    bq_buf_reset(&out);
    /* Only what JSON wants escaped is; bytes that are no UTF-8 become U+FFFD here, and nowhere else. */
    const bq_dead_letter odd = {.error = BQ_STR("a\"b\\c/d\n\x01\x7F\xC3\xA9\xFF"),
                                .exception = BQ_STR(""),
                                .failed_at = 1749132730000,
                                .original_queue = BQ_STR("q\tx"),
                                .lang = BQ_STR("zig")};
    assert_int_equal(bq_record_envelope(&env, &odd, &out, NULL, NULL), BQ_OK);
    assert_string_equal(out.ptr, "{\"job\":\"u\",\"attempts\":0,\"dead_letter\":{\"reason\":\"failed\",\"error\":"
                                 "\"a\\\"b\\\\c/d\\n\\u0001\x7F\xC3\xA9\xEF\xBF\xBD\",\"exception\":\"\","
                                 "\"failed_at\":1749132730000,\"original_queue\":\"q\\tx\",\"attempts\":0,"
                                 "\"lang\":\"zig\"}}");
    bq_buf_clear(&out);
}

static void pointers(void **state)
{
    (void)state;
    assert_string_equal(bq_dropped_pointer(BQ_DROPPED_TIMESTAMP), "/timestamp");
    assert_string_equal(bq_dropped_pointer(BQ_DROPPED_META_MAX_RETRIES), "/meta/max_retries");
    assert_string_equal(bq_dropped_pointer(BQ_DROPPED_META_ATTEMPTS), "/meta/attempts");
    assert_string_equal(bq_dropped_pointer(BQ_DROPPED_META_SOURCE), "/meta/source");
    assert_string_equal(bq_dropped_pointer(BQ_DROPPED_META_TS), "/meta/ts");
    assert_string_equal(bq_dropped_pointer(BQ_DROPPED_URN), "/urn");
    assert_string_equal(bq_dropped_pointer(0), "");
    assert_string_equal(bq_reason_name(BQ_REASON_FAILED), "failed");
    assert_string_equal(bq_reason_name(BQ_REASON_UNKNOWN_URN), "unknown_urn");
    assert_string_equal(bq_reason_name(BQ_REASON_POISON), "poison");
}

/* ---- bodies from parts ------------------------------------------------------------------------------------------- */

#define PARTS_MAX 10
#define TEXT_MAX 400

typedef struct part {
    char gap[16]; /* before the key: white space, for all but the first with its comma */
    const char *name;
    char key[64]; /* as written, with its quotes */
    char colon[8];
    char value[TEXT_MAX];     /* as written */
    char rewritten[TEXT_MAX]; /* meta without its forbidden members */
    bool valid_urn;           /* job, urn: a string that is not blank */
} part;

typedef struct parts {
    char before[4], after[4]; /* white space around the object */
    part part[PARTS_MAX];
    size_t count;
    char tail[4]; /* white space before the closing brace */
    unsigned meta_dropped;
} parts;

static uint64_t seed;

static unsigned draw(unsigned below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((seed >> 33) % below);
}

static const char *space(void)
{
    static const char *const SPACES[] = {"", "", "", "", " ", "\n", "\t", "\r\n"};
    return SPACES[draw(8)];
}

static void write_key(char *out, size_t size, const char *name)
{
    size_t n = (size_t)snprintf(out, size, "\"");
    size_t at = draw(4) == 0 && name[0] ? draw((unsigned)strlen(name)) : SIZE_MAX;
    for (size_t i = 0; name[i]; i++)
        n += (size_t)snprintf(out + n, size - n, i == at ? "\\u00%02x" : "%c", (unsigned char)name[i]);
    snprintf(out + n, size - n, "\"");
}

static const char *pick(const char *const *from, unsigned count)
{
    return from[draw(count)];
}
#define PICK(array) pick(array, sizeof(array) / sizeof((array)[0]))

static const char *const URNS[] = {"\"urn:a\"", "\"b\"", "\" c \"", "\"\\u0064\""};
static const char *const NO_URNS[] = {"\"\"", "\" \"", "null", "5", "[1,{\"a\":\"]\"}]", "\"\\t\\u000b\"", "true"};
static const char *const INTS[] = {"0", "2", "-1", "2147483648", "9223372036854775807", "null"};
static const char *const DATA[] = {"{}", "{\"a\":1}", "{ \"a\" : [ 1.0 , {\"}\":\"{\\\"\"} ] }", "null"};
static const char *const ANY[] = {"1.0",
                                  "1e400",
                                  "\"x\\\\\"",
                                  "[]",
                                  "{\"dead_letter\":{\"urn\":1}}",
                                  "12345678901234567890",
                                  "null",
                                  "\"\xF0\x9F\x98\x80\"",
                                  "[[[{\"attempts\":1}]]]"};
static const char *const DEAD_VALUES[] = {"{}", "null", "{\"reason\":\"failed\",\"attempts\":3}", "{\"x\":\",\\\"\"}"};
static const char *const TRACES[] = {"\"t\"", "null", "\"\"", "\"\\u0041\""};

/* A meta object of random members, and the same without the forbidden ones, put together side by side. */
static void write_meta(part *p, unsigned *dropped)
{
    static const struct {
        const char *name, *value;
        unsigned bit;
    } MEMBERS[] = {
        {"id", "\"i\"", 0},
        {"queue", "\"q\"", 0},
        {"schema_version", "1", 0},
        {"created_at", "1749132727000", 0},
        {"x", "{\"ts\":1}", 0},
        {"max_retries", "3", BQ_DROPPED_META_MAX_RETRIES},
        {"attempts", "[1,2]", BQ_DROPPED_META_ATTEMPTS},
        {"source", "\"a,b\"", BQ_DROPPED_META_SOURCE},
        {"ts", "{\"a\":{}}", BQ_DROPPED_META_TS},
    };
    unsigned count = draw(6);
    bool kept = false;
    const char *head = space(), *tail = space();
    size_t n = (size_t)snprintf(p->value, TEXT_MAX, "{%s", head);
    size_t k = (size_t)snprintf(p->rewritten, TEXT_MAX, "{%s", head);
    for (unsigned i = 0; i < count; i++) {
        unsigned which = draw(9);
        char gap[16] = "", key[32], member[80];
        if (i > 0)
            snprintf(gap, sizeof gap, "%s,%s", space(), space());
        write_key(key, sizeof key, MEMBERS[which].name);
        snprintf(member, sizeof member, "%s%s:%s%s", key, space(), space(), MEMBERS[which].value);
        n += (size_t)snprintf(p->value + n, TEXT_MAX - n, "%s%s", gap, member);
        *dropped |= MEMBERS[which].bit;
        if (MEMBERS[which].bit)
            continue;
        k += (size_t)snprintf(p->rewritten + k, TEXT_MAX - k, "%s%s", kept ? gap : "", member);
        kept = true;
    }
    snprintf(p->value + n, TEXT_MAX - n, "%s}", tail);
    snprintf(p->rewritten + k, TEXT_MAX - k, "%s}", tail);
}

static void make_part(parts *b, part *p)
{
    static const char *const NAMES[] = {
        "job",         "job",       "urn", "trace_id", "data",    "meta",      "attempts", "attempts",
        "dead_letter", "timestamp", "x",   "Job",      "attempt", "attempts2", "",         "DEAD_LETTER"};
    const char *name = PICK(NAMES);
    p->name = name;
    p->valid_urn = false;
    write_key(p->key, sizeof p->key, name);
    snprintf(p->colon, sizeof p->colon, "%s:%s", space(), space());
    if (strcmp(name, "meta") == 0 && draw(8) != 0) {
        write_meta(p, &b->meta_dropped);
        return;
    }
    const char *value = PICK(ANY);
    if (strcmp(name, "job") == 0 || strcmp(name, "urn") == 0) {
        p->valid_urn = draw(3) != 0;
        value = p->valid_urn ? PICK(URNS) : PICK(NO_URNS);
    } else if (strcmp(name, "attempts") == 0) {
        value = PICK(INTS);
    } else if (strcmp(name, "data") == 0) {
        value = PICK(DATA);
    } else if (strcmp(name, "dead_letter") == 0) {
        value = PICK(DEAD_VALUES);
    } else if (strcmp(name, "trace_id") == 0) {
        value = PICK(TRACES);
    } else if (strcmp(name, "meta") == 0) {
        value = "null";
    }
    snprintf(p->value, sizeof p->value, "%s", value);
    snprintf(p->rewritten, sizeof p->rewritten, "%s", value);
}

static void make_parts(parts *b)
{
    memset(b, 0, sizeof *b);
    snprintf(b->before, sizeof b->before, "%s", space());
    snprintf(b->after, sizeof b->after, "%s", space());
    snprintf(b->tail, sizeof b->tail, "%s", space());
    b->count = draw(PARTS_MAX + 1);
    for (size_t i = 0; i < b->count; i++) {
        part *p = &b->part[i];
        if (i == 0)
            snprintf(p->gap, sizeof p->gap, "%s", space());
        else
            snprintf(p->gap, sizeof p->gap, "%s,%s", space(), space());
        make_part(b, p);
    }
}

static void write_body(const parts *b, bq_buf *out)
{
    bq_buf_addf(out, "%s{", b->before);
    for (size_t i = 0; i < b->count; i++) {
        const part *p = &b->part[i];
        bq_buf_addf(out, "%s%s%s%s", p->gap, p->key, p->colon, p->value);
    }
    bq_buf_addf(out, "%s}%s", b->tail, b->after);
}

static bool is(const part *p, const char *name)
{
    return strcmp(p->name, name) == 0;
}

static const part *last(const parts *b, const char *name)
{
    const part *found = NULL;
    for (size_t i = 0; i < b->count; i++) {
        if (is(&b->part[i], name))
            found = &b->part[i];
    }
    return found;
}

/* The contract's sentences, over the parts. */
static void write_expected(const parts *b, op what, bq_buf *out, unsigned *dropped)
{
    const part *job = last(b, "job"), *urn = last(b, "urn");
    const part *identity = job && job->valid_urn ? job : urn && urn->valid_urn ? urn : NULL;
    const char *count = what == RETRY ? "7" : what == RECORD ? "3" : "0";
    bool kept = false, has_attempts = false;
    *dropped = b->meta_dropped;
    bq_buf_addf(out, "%s{%s", b->before, b->count ? b->part[0].gap : "");
    for (size_t i = 0; i < b->count; i++) {
        const part *p = &b->part[i];
        bool goes = is(p, "timestamp") || (is(p, "urn") && p != identity) ||
                    (is(p, "job") && identity && is(identity, "urn")) || (is(p, "dead_letter") && what != RETRY);
        if (is(p, "timestamp"))
            *dropped |= BQ_DROPPED_TIMESTAMP;
        if (is(p, "urn") && p != identity)
            *dropped |= BQ_DROPPED_URN;
        if (goes)
            continue;
        bq_buf_addf(out, "%s%s%s%s", kept ? p->gap : "", p == identity && is(p, "urn") ? "\"job\"" : p->key, p->colon,
                    is(p, "attempts") ? count : p->rewritten);
        has_attempts |= is(p, "attempts");
        kept = true;
    }
    bq_buf_addf(out, "%s", b->tail);
    if (!has_attempts)
        bq_buf_addf(out, "%s\"attempts\":%s", kept ? "," : "", count);
    if (what == RECORD)
        bq_buf_addf(out, "," DL_TEXT);
    bq_buf_addf(out, "}%s", b->after);
}

static void check_same(const bq_envelope *before, const bq_envelope *after, bq_field field)
{
    assert_int_equal(bq_envelope_has(before, field), bq_envelope_has(after, field));
    assert_true(bq_str_equal(bq_envelope_raw(before, field), bq_envelope_raw(after, field)));
}

/* Every output decodes to the verdict it should have, to the same identity, and to nothing that had to go. */
static void check_decoded(const bq_envelope *before, op what, const bq_buf *out)
{
    bq_envelope after;
    bq_envelope_decode(&after, out->ptr, out->len);
    bool identity = bq_envelope_has(before, BQ_FIELD_URN);
    if (identity)
        assert_in_range(after.verdict, BQ_VERDICT_OK, BQ_VERDICT_NONCONFORMANT);
    else
        assert_int_equal(after.verdict, BQ_VERDICT_POISON_IDENTITY);
    if (before->verdict == BQ_VERDICT_OK)
        assert_int_equal(after.verdict, BQ_VERDICT_OK);
    check_same(before, &after, BQ_FIELD_URN);
    check_same(before, &after, BQ_FIELD_TRACE_ID);
    check_same(before, &after, BQ_FIELD_DATA);
    check_same(before, &after, BQ_FIELD_META_ID);
    check_same(before, &after, BQ_FIELD_META_CREATED_AT);
    assert_int_equal(bq_envelope_int(&after, BQ_FIELD_ATTEMPTS, -1), what == RETRY ? 7 : what == RECORD ? 3 : 0);
    assert_false(after.seen & (BQ_SEEN_URN_MEMBER | BQ_SEEN_FORBIDDEN));
    if (what == REDRIVE)
        assert_false(after.seen & BQ_SEEN_DEAD_LETTER);
    if (what == RECORD)
        assert_int_equal(bq_envelope_int(&after, BQ_FIELD_DEAD_FAILED_AT, -1), 5);
}

static void from_parts(void **state)
{
    (void)state;
    bq_buf body, expected, out, again;
    bq_buf_init(&body, 0);
    bq_buf_init(&expected, 0);
    bq_buf_init(&out, 0);
    bq_buf_init(&again, 0);
    unsigned identities = 0;
    seed = 1;
    for (unsigned round = 0; round < 60000; round++) {
        parts b;
        make_parts(&b);
        bq_buf_reset(&body);
        write_body(&b, &body);
        bq_envelope env;
        bq_envelope_decode(&env, body.ptr, body.len);
        identities += bq_envelope_has(&env, BQ_FIELD_URN);
        for (int what = RETRY; what <= REDRIVE; what++) {
            unsigned dropped, dropped_expected;
            bq_buf_reset(&expected);
            bq_buf_reset(&out);
            bq_buf_reset(&again);
            write_expected(&b, (op)what, &expected, &dropped_expected);
            bq_error err = {0};
            if (rewrite((op)what, &env, &out, &dropped, &err) != BQ_OK)
                fail_msg("%s: %s", body.ptr, err.text);
            if (strcmp(out.ptr, expected.ptr) != 0)
                fail_msg("%d: %s\nexpected %s\ngot      %s", what, body.ptr, expected.ptr, out.ptr);
            assert_int_equal(dropped, dropped_expected);
            check_decoded(&env, (op)what, &out);
            bq_envelope after; /* done twice is done once */
            bq_envelope_decode(&after, out.ptr, out.len);
            assert_int_equal(rewrite((op)what, &after, &again, &dropped, NULL), BQ_OK);
            if (what != RECORD)
                assert_string_equal(again.ptr, out.ptr);
            assert_int_equal(dropped, 0);
        }
    }
    assert_in_range(identities, 20000, 59000);
    bq_buf_clear(&body);
    bq_buf_clear(&expected);
    bq_buf_clear(&out);
    bq_buf_clear(&again);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static bq_status scenario(void *arg)
{
    bq_envelope env = sample_decode(arg);
    bq_buf out;
    bq_buf_init(&out, 0);
    bq_status status = BQ_OK;
    for (int what = RETRY; what <= REDRIVE && status == BQ_OK; what++) {
        size_t before = out.len;
        bq_error err = {0};
        status = rewrite((op)what, &env, &out, NULL, &err);
        if (status != BQ_OK) {
            assert_int_equal(out.len, before);
            assert_int_equal(err.status, BQ_NOMEM);
        }
    }
    bq_buf_clear(&out);
    return status;
}

static void without_memory(void **state)
{
    (void)state;
    char plain[] = "{\"job\":\"u\",\"attempts\":1}", other[] = "{\"timestamp\":1,\"urn\":\"u\",\"dead_letter\":{}}";
    alloc_fail_each("plain", scenario, plain);
    alloc_fail_each("other", scenario, other);
}

static void at_the_ceiling(void **state)
{
    (void)state;
    bq_envelope env = sample_decode("{\"job\":\"u\",\"attempts\":1}");
    for (size_t max = 1; max < 64; max++) {
        bq_buf out;
        bq_error err = {0};
        bq_buf_init(&out, max);
        bq_status status = bq_rewrite_attempts(&env, 10, &out, NULL, &err);
        if (status == BQ_OK) {
            assert_string_equal(out.ptr, "{\"job\":\"u\",\"attempts\":10}");
        } else {
            assert_int_equal(status, BQ_DATA);
            assert_int_equal(out.len, 0);
            assert_true(max < 25);
        }
        bq_buf_clear(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(counts),
        cmocka_unit_test(what_is_no_envelope),
        cmocka_unit_test(a_dead_letter_s_texts),
        cmocka_unit_test(pointers),
        cmocka_unit_test(from_parts),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(at_the_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
