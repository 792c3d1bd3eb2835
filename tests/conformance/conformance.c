/*
 * conformance.c - runs a conformance manifest: the public one of BabelQueue, or the project's own beside this file.
 *
 *     conformance DIRECTORY     the directory holds manifest.json and the fixtures that it names
 *     conformance --public      $BQ_CONFORMANCE_DIR, else ../shared/conformance beside the source tree, else skipped
 *
 * Nothing about a block is written here but how its facts are asked of the library: blocks, cases and fixtures come
 * from the manifest. A block that the runner does not know is a failure, so that a new one is not passed over; two
 * that belong to features not built yet are listed as such (contract 8).
 */
#include <babelqueue/binding.h>
#include <babelqueue/json.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define SKIPPED 77

typedef struct suite {
    const char *directory;
    bq_buf text; /* of the manifest */
    bq_json doc;
    bq_buf scratch;
    char where[160]; /* the case at hand */
    size_t checks, failures, later;
} suite;

/* ---- telling ----------------------------------------------------------------------------------------------------- */

BQ_PRINTF(3, 4) static void check(suite *s, bool ok, const char *format, ...)
{
    s->checks++;
    if (ok)
        return;
    s->failures++;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "FAILED %s: ", s->where);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
}

static void fatal(const char *what, const char *detail)
{
    fprintf(stderr, "conformance: %s: %s\n", what, detail);
    exit(2);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool read_file(suite *s, const char *name, bq_buf *out)
{
    char path[1024], bytes[4096];
    snprintf(path, sizeof path, "%s/%s", s->directory, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        bq_buf_add(out, bytes, n);
    bool ok = !ferror(file) && !out->failed;
    fclose(file);
    return ok;
}

static bq_json_ref member(const suite *s, bq_json_ref object, const char *name)
{
    return bq_json_member(&s->doc, object, bq_str_of(name));
}

/* A string of the manifest, NUL-terminated; "" when there is none. */
static const char *text(suite *s, bq_json_ref ref)
{
    bq_str out;
    if (ref == BQ_JSON_MISSING || bq_json_text(&s->doc, ref, &out, NULL) != BQ_OK)
        return "";
    size_t at = s->scratch.len;
    if (bq_buf_reserve(&s->scratch, out.len + 1) != BQ_OK)
        fatal("out of memory", "reading the manifest");
    bq_buf_add_str(&s->scratch, out);
    bq_buf_add_byte(&s->scratch, '\0');
    return s->scratch.ptr + at;
}

static int64_t integer(const suite *s, bq_json_ref ref, int64_t otherwise)
{
    int64_t value;
    return ref != BQ_JSON_MISSING && bq_json_int(&s->doc, ref, &value) ? value : otherwise;
}

/* Names the case at hand, and takes back the texts of the one before. */
static void enter(suite *s, const char *block, const char *part, bq_json_ref named)
{
    bq_buf_reset(&s->scratch);
    if (bq_buf_reserve(&s->scratch, 65536) != BQ_OK)
        fatal("out of memory", block);
    const char *name = named == BQ_JSON_MISSING ? "" : text(s, member(s, named, "name"));
    snprintf(s->where, sizeof s->where, "%s/%s%s%s", block, part, *name ? "/" : "", name);
}

/* Decodes the fixture that a member of `object` names, into `body`. */
static bq_envelope fixture(suite *s, bq_json_ref object, const char *name_of, bq_buf *body)
{
    bq_envelope env;
    const char *file = text(s, member(s, object, name_of));
    check(s, *file && read_file(s, file, body), "no fixture %s", file);
    bq_envelope_decode(&env, body->ptr, body->len);
    return env;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool same_value(suite *s, bq_json_ref a, bq_json *other, bq_json_ref b);

static bool same_containers(suite *s, bq_json_ref a, bq_json *other, bq_json_ref b)
{
    size_t it_a = 0, it_b = 0, count = 0, count_b = 0;
    bq_json_ref key, value, value_b;
    bool object = bq_json_typeof(&s->doc, a) == BQ_JSON_OBJECT;
    while (bq_json_next(other, b, &it_b, NULL, &value_b))
        count_b++;
    it_b = 0;
    while (bq_json_next(&s->doc, a, &it_a, &key, &value)) {
        count++;
        if (object)
            value_b = bq_json_member(other, b, bq_str_of(text(s, key)));
        else if (!bq_json_next(other, b, &it_b, NULL, &value_b))
            return false;
        if (value_b == BQ_JSON_MISSING || !same_value(s, value, other, value_b))
            return false;
    }
    return count == count_b;
}

/* Equal as JSON: members in any order, text after unescaping, integers exactly. */
static bool same_value(suite *s, bq_json_ref a, bq_json *other, bq_json_ref b)
{
    bq_json_type type = bq_json_typeof(&s->doc, a);
    if (type != bq_json_typeof(other, b))
        return false;
    int64_t int_a, int_b;
    double double_a, double_b;
    bool bool_a, bool_b;
    bq_str text_b;
    switch (type) {
    case BQ_JSON_STRING:
        return bq_json_text(other, b, &text_b, NULL) == BQ_OK && bq_str_equal(bq_str_of(text(s, a)), text_b);
    case BQ_JSON_NUMBER:
        if (bq_json_int(&s->doc, a, &int_a))
            return bq_json_int(other, b, &int_b) && int_a == int_b;
        return bq_json_double(&s->doc, a, &double_a) && bq_json_double(other, b, &double_b) && double_a == double_b;
    case BQ_JSON_BOOL: return bq_json_bool(&s->doc, a, &bool_a) && bq_json_bool(other, b, &bool_b) && bool_a == bool_b;
    case BQ_JSON_ARRAY:
    case BQ_JSON_OBJECT: return same_containers(s, a, other, b);
    default: return true;
    }
}

/* Every member of `expected` is in `raw`, which may have more (with `exactly`: not more). */
static void check_object(suite *s, const char *what, bq_json_ref expected, bq_str raw, bool exactly)
{
    bq_json other;
    bq_json_init(&other);
    bool parsed = raw.ptr && bq_json_parse(&other, raw, NULL) == BQ_OK;
    check(s, parsed, "no %s", what);
    if (parsed && exactly) {
        check(s, same_value(s, expected, &other, BQ_JSON_ROOT), "%s is %.*s", what, (int)raw.len, raw.ptr);
    } else if (parsed) {
        size_t it = 0;
        bq_json_ref key, value;
        while (bq_json_next(&s->doc, expected, &it, &key, &value)) {
            const char *name = text(s, key);
            bq_json_ref is = bq_json_member(&other, BQ_JSON_ROOT, bq_str_of(name));
            check(s, is != BQ_JSON_MISSING && same_value(s, value, &other, is), "%s.%s", what, name);
        }
    }
    bq_json_clear(&other);
}

static void check_field(suite *s, const bq_envelope *env, bq_field field, const char *expected)
{
    bq_buf scratch;
    bq_str is;
    bq_buf_init(&scratch, 0);
    bool ok = bq_envelope_text(env, field, &scratch, &is) == BQ_OK && bq_str_equal(is, bq_str_of(expected));
    check(s, ok, "\"%.*s\" instead of \"%s\"", (int)is.len, is.ptr ? is.ptr : "", expected);
    bq_buf_clear(&scratch);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static void check_expected(suite *s, bq_json_ref expect, const bq_envelope *env)
{
    size_t it = 0;
    bq_json_ref key, value;
    while (bq_json_next(&s->doc, expect, &it, &key, &value)) {
        const char *name = text(s, key);
        if (strcmp(name, "urn") == 0)
            check_field(s, env, BQ_FIELD_URN, text(s, value));
        else if (strcmp(name, "lang") == 0)
            check_field(s, env, BQ_FIELD_META_LANG, text(s, value));
        else if (strcmp(name, "data") == 0)
            check_object(s, name, value, bq_envelope_raw(env, BQ_FIELD_DATA), true);
        else if (strcmp(name, "dead_letter") == 0)
            check_object(s, name, value, bq_envelope_raw(env, BQ_FIELD_DEAD_LETTER), false);
        else if (strcmp(name, "attempts") == 0)
            check(s, bq_envelope_attempts(env) == integer(s, value, -1), "attempts %d", (int)bq_envelope_attempts(env));
        else if (strcmp(name, "schema_version") == 0)
            check(s, bq_envelope_int(env, BQ_FIELD_META_SCHEMA_VERSION, 0) == integer(s, value, -1), "schema_version");
        else
            check(s, false, "unknown expectation %s", name);
    }
}

/* A rewritten envelope says the same, but for the count. */
static void check_rewritten(suite *s, bq_json_ref expect, const bq_envelope *env)
{
    bq_buf out;
    bq_envelope after;
    bq_error err = {0};
    bq_buf_init(&out, 0);
    bool ok = bq_rewrite_attempts(env, integer(s, member(s, expect, "attempts"), 0), &out, NULL, &err) == BQ_OK;
    check(s, ok, "rewrite: %s", err.text);
    check(s, bq_envelope_decode(&after, out.ptr, out.len) == BQ_VERDICT_OK, "rewrite: %s", bq_envelope_reason(&after));
    check_expected(s, expect, &after);
    bq_buf_clear(&out);
}

static void run_cases(suite *s, const char *block, bq_json_ref cases)
{
    size_t it = 0;
    bq_json_ref one;
    while (bq_json_next(&s->doc, cases, &it, NULL, &one)) {
        bq_buf body;
        bool valid;
        enter(s, block, "envelope", one);
        bq_buf_init(&body, 0);
        bq_envelope env = fixture(s, one, "file", &body);
        bool said = bq_json_bool(&s->doc, member(s, one, "valid"), &valid);
        check(s, said, "neither valid nor not");
        if (said)
            check(s, (env.verdict == BQ_VERDICT_OK) == valid, "%s: %s", bq_verdict_name(env.verdict),
                  bq_envelope_reason(&env));
        bq_json_ref expect = member(s, one, "expect");
        if (said && valid && expect != BQ_JSON_MISSING) {
            check_expected(s, expect, &env);
            check_rewritten(s, expect, &env);
        }
        bq_buf_clear(&body);
    }
}

/* ---- projections ------------------------------------------------------------------------------------------------- */

typedef struct projected {
    bq_prop prop[BQ_PROJECTED_MAX];
    size_t count;
    bool seen[BQ_PROJECTED_MAX];
} projected;

static bq_str decimal(int64_t value, char *digits, size_t size)
{
    return (bq_str){digits, (size_t)snprintf(digits, size, "%" PRId64, value)};
}

/* One property: a JSON string is text, a JSON number a native integer. `number` = an SQS Number. */
static void check_prop(suite *s, projected *p, bq_place place, const char *name, bq_json_ref value, bool number)
{
    char digits[24];
    bool native = bq_json_typeof(&s->doc, value) == BQ_JSON_NUMBER;
    for (size_t i = 0; i < p->count; i++) {
        const bq_prop *prop = &p->prop[i];
        if (prop->place != place || !bq_str_equal(prop->name, bq_str_of(name)))
            continue;
        p->seen[i] = true;
        bool integral = prop->type == BQ_PROP_INT || prop->type == BQ_PROP_LONG;
        if (native)
            check(s, integral && prop->num == integer(s, value, INT64_MIN), "%s is no such number", name);
        else
            check(s,
                  prop->type == (number ? BQ_PROP_NUMBER : BQ_PROP_STRING) &&
                      bq_str_equal(prop->text, bq_str_of(text(s, value))),
                  "%s is \"%.*s\"", name, (int)prop->text.len,
                  integral ? decimal(prop->num, digits, sizeof digits).ptr : prop->text.ptr);
        return;
    }
    check(s, false, "%s is not projected", name);
}

/* The members of `object` as properties of that place; with `exactly`, there are no others of that place. */
static void check_props(suite *s, projected *p, bq_place place, bq_json_ref object, bool exactly)
{
    size_t it = 0;
    bq_json_ref key, value;
    check(s, bq_json_typeof(&s->doc, object) == BQ_JSON_OBJECT, "no properties to compare with");
    while (bq_json_next(&s->doc, object, &it, &key, &value)) {
        const char *name = text(s, key);
        bool attribute = bq_json_typeof(&s->doc, value) == BQ_JSON_OBJECT; /* SQS: {DataType, StringValue} */
        bool number = attribute && strcmp(text(s, member(s, value, "DataType")), "Number") == 0;
        check_prop(s, p, place, name, attribute ? member(s, value, "StringValue") : value, number);
    }
    for (size_t i = 0; exactly && i < p->count; i++) {
        if (p->prop[i].place == place)
            check(s, p->seen[i], "%.*s is projected too", (int)p->prop[i].name.len, p->prop[i].name.ptr);
    }
}

static void run_projection(suite *s, const char *block, const bq_binding *binding, bq_json_ref part)
{
    bq_buf body, scratch;
    projected p = {.count = 0};
    bq_buf_init(&body, 0);
    bq_buf_init(&scratch, 0);
    enter(s, block, "projection", BQ_JSON_MISSING);
    bq_envelope env = fixture(s, part, "envelope_file", &body);
    bq_status status = bq_project(binding, &env, bq_envelope_attempts(&env), p.prop, &p.count, &scratch, NULL);
    check(s, status == BQ_OK, "%s", bq_status_name(status));
    size_t it = 0;
    bq_json_ref key, value;
    while (bq_json_next(&s->doc, part, &it, &key, &value)) {
        const char *name = text(s, key);
        if (strcmp(name, "description") == 0 || strcmp(name, "envelope_file") == 0 ||
            strcmp(name, "jms_type_annotation") == 0)
            continue;
        if (strcmp(name, "message_attributes") == 0 || strcmp(name, "application_properties") == 0 ||
            strcmp(name, "headers") == 0)
            check_props(s, &p, BQ_PLACE_HEADER, value, true);
        else if (strcmp(name, "message") == 0)
            check_props(s, &p, BQ_PLACE_NATIVE, value, true);
        else if (strcmp(name, "properties") == 0) /* RabbitMQ's are slots of the protocol, and we set two more */
            check_props(s, &p, strcmp(block, "rabbitmq") == 0 ? BQ_PLACE_NATIVE : BQ_PLACE_HEADER, value,
                        strcmp(block, "rabbitmq") != 0);
        else if (strcmp(name, "jms_type") == 0)
            check_prop(s, &p, BQ_PLACE_ANNOTATION, text(s, member(s, part, "jms_type_annotation")), value, false);
        else if (strcmp(name, "correlation_id") == 0)
            check_prop(s, &p, BQ_PLACE_NATIVE, name, value, false);
        else
            check(s, false, "unknown expectation %s", name);
    }
    bq_buf_clear(&body);
    bq_buf_clear(&scratch);
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */

/* The broker's count as a driver hands it over: -1 when there is none, or when it is garbage. */
static int64_t native_count(suite *s, bq_json_ref one)
{
    bq_json_ref text_count = member(s, one, "approximate_receive_count");
    if (text_count != BQ_JSON_MISSING) {
        char *end;
        const char *digits = text(s, text_count);
        long long value = strtoll(digits, &end, 10);
        return *digits && !*end ? value : -1;
    }
    if (member(s, one, "redelivery_count") != BQ_JSON_MISSING)
        return integer(s, member(s, one, "redelivery_count"), -1);
    return integer(s, member(s, one, "delivery_count"), -1);
}

static void run_attempts(suite *s, const char *block, const bq_binding *binding, bq_json_ref part)
{
    size_t it = 0;
    bq_json_ref one;
    bool azure = strcmp(block, "asb") == 0;
    while (bq_json_next(&s->doc, member(s, part, "cases"), &it, NULL, &one)) {
        enter(s, block, "attempts", one);
        char body[128], header[24];
        snprintf(body, sizeof body, "{\"job\":\"u\",\"attempts\":%" PRId64 "}",
                 integer(s, member(s, one, "body_attempts"), INT64_MIN));
        bq_envelope env;
        bq_envelope_decode(&env, body, strlen(body));
        int64_t in_header = integer(s, member(s, one, "header_attempts"), -1);
        bq_prop prop = {.name = bq_str_of(binding->attempts_name),
                        .place = binding->attempts_place,
                        .type = BQ_PROP_STRING,
                        .text = decimal(in_header, header, sizeof header)};
        /* The manifest shows Service Bus's DeliveryCount as its clients do; the wire, and our driver, count from 0. */
        int64_t native = native_count(s, one) - (azure ? 1 : 0);
        int32_t is = bq_reconcile(binding, &env, &prop, in_header >= 0 ? 1 : 0, native);
        int64_t expected = integer(s, member(s, one, "expected_attempts"), -1);
        check(s, is == expected, "%" PRId32 " instead of %" PRId64, is, expected);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Redis: the element is the envelope, so that there is nothing to put beside it. */
static void run_identity(suite *s, const char *block, const bq_binding *binding, bq_json_ref part)
{
    bq_buf body, scratch;
    projected p = {.count = 0};
    bq_buf_init(&body, 0);
    bq_buf_init(&scratch, 0);
    enter(s, block, "payload_identity", BQ_JSON_MISSING);
    bq_envelope env = fixture(s, part, "envelope_file", &body);
    bool ok = bq_project(binding, &env, 0, p.prop, &p.count, &scratch, NULL) == BQ_OK;
    check(s, ok && p.count == 0, "%zu properties", p.count);
    check(s, env.verdict == BQ_VERDICT_OK && env.body == body.ptr && env.len == body.len, "not the bytes themselves");
    bq_buf_clear(&body);
    bq_buf_clear(&scratch);
}

static void run_binding(suite *s, const char *block, const char *name, bq_json_ref object)
{
    const bq_binding *binding = bq_binding_find(bq_str_of(name));
    size_t it = 0;
    bq_json_ref key, part;
    if (!binding)
        fatal("no binding", name);
    while (bq_json_next(&s->doc, object, &it, &key, &part)) {
        enter(s, block, "", BQ_JSON_MISSING);
        const char *what = text(s, key);
        if (strcmp(what, "attribute_projection") == 0 || strcmp(what, "property_projection") == 0)
            run_projection(s, block, binding, part);
        else if (strcmp(what, "attempts_reconciliation") == 0)
            run_attempts(s, block, binding, part);
        else if (strcmp(what, "payload_identity") == 0)
            run_identity(s, block, binding, part);
        else
            check(s, strcmp(what, "description") == 0, "unknown part %s", what);
    }
}

static void run_block(suite *s, const char *block, bq_json_ref value)
{
    static const char *const BINDINGS[][2] = {{"sqs", "sqs"},          {"asb", "sb"},          {"pulsar", "pulsar"},
                                              {"kafka", "kafka"},      {"artemis", "artemis"}, {"redis", "redis"},
                                              {"rabbitmq", "rabbitmq"}};
    if (strcmp(block, "description") == 0 || strcmp(block, "schema_version") == 0)
        return;
    if (strcmp(block, "idempotency") == 0 || strcmp(block, "payload_schema") == 0) {
        printf("%-16s not built yet (contract 8)\n", block);
        s->later++;
        return;
    }
    size_t before = s->checks;
    if (strcmp(block, "cases") == 0) {
        run_cases(s, block, value);
    } else {
        size_t i = 0;
        while (i < sizeof BINDINGS / sizeof BINDINGS[0] && strcmp(BINDINGS[i][0], block) != 0)
            i++;
        enter(s, block, "", BQ_JSON_MISSING);
        if (i < sizeof BINDINGS / sizeof BINDINGS[0])
            run_binding(s, block, BINDINGS[i][1], value);
        else
            check(s, false, "a block that this runner does not know");
    }
    check(s, s->checks > before, "nothing was checked");
    printf("%-16s %zu checks\n", block, s->checks - before);
}

static void run(suite *s)
{
    bq_error err = {0};
    if (!read_file(s, "manifest.json", &s->text))
        fatal("cannot read manifest.json in", s->directory);
    if (bq_json_parse(&s->doc, bq_buf_str(&s->text), &err) != BQ_OK)
        fatal("manifest.json", err.text);
    size_t it = 0;
    bq_json_ref key, value;
    while (bq_json_next(&s->doc, BQ_JSON_ROOT, &it, &key, &value)) {
        char block[64];
        enter(s, "manifest", "", BQ_JSON_MISSING);
        snprintf(block, sizeof block, "%s", text(s, key));
        run_block(s, block, value);
    }
}

static const char *public_directory(void)
{
    static char path[1024];
    const char *given = getenv("BQ_CONFORMANCE_DIR");
    if (given && *given)
        return given;
    snprintf(path, sizeof path, "%s/../shared/conformance/manifest.json", BQ_TEST_SOURCE_DIR);
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fclose(file);
    *strrchr(path, '/') = '\0';
    return path;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fatal("usage", "conformance DIRECTORY | --public");
    suite s = {.directory = argv[1]};
    if (strcmp(argv[1], "--public") == 0)
        s.directory = public_directory();
    if (!s.directory) {
        printf("no public fixtures here (BQ_CONFORMANCE_DIR)\n");
        return SKIPPED;
    }
    bq_buf_init(&s.text, 0);
    bq_buf_init(&s.scratch, 0);
    bq_json_init(&s.doc);
    run(&s);
    printf("%zu checks, %zu failed, %zu blocks for later\n", s.checks, s.failures, s.later);
    bq_json_clear(&s.doc);
    bq_buf_clear(&s.scratch);
    bq_buf_clear(&s.text);
    return s.failures ? 1 : 0;
}
