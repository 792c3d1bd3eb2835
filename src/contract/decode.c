/*
 * contract/decode.c - one strict pass over a received body: its verdict (contract 2) and the spans of the envelope's
 * own members.
 *
 * root() and meta() read a body as every producer writes it; where it differs, members() goes on, which takes members
 * in any order and form; everything else is passed over by the scanner's skipper. After a type error the pass goes
 * on, because bytes and syntax come first in the order of verdicts; `meta` and `dead_letter` that are repeated take
 * their earlier children's spans with them, but every occurrence is checked. Nothing is allocated.
 *
 * Thread rule: pure functions.
 */
#include <babelqueue/envelope.h>

#include <string.h>

#include "base/buf.h"
#include "json/walk.h"

/* What a member has to be. */
typedef enum kind {
    KIND_STRING, /* string or null */
    KIND_INT,    /* int64 literal or null */
    KIND_DATA,   /* object of finite numbers, or null */
    KIND_OBJECT, /* meta, dead_letter: object or null */
    KIND_JOB,
    KIND_URN,
    KIND_FORBIDDEN,
    KIND_OTHER,
} kind;

typedef struct member_rule {
    const char *name;
    uint8_t len;
    uint8_t field; /* bq_field */
    uint8_t kind;
    const char *wrong; /* the reason when the type is wrong */
} member_rule;

#define RULE(name, field, kind, wrong)                                                                                 \
    {                                                                                                                  \
        name, sizeof(name) - 1, BQ_FIELD_##field, kind, wrong                                                          \
    }
#define NOT_STRING " is neither a string nor null"
#define NOT_INT " is neither an integer of 64 bits nor null"
#define NOT_OBJECT " is neither an object nor null"

/* In canonical order: the next one is tried first. */
static const member_rule ROOT_RULES[] = {
    RULE("job", JOB, KIND_JOB, ""),
    RULE("trace_id", TRACE_ID, KIND_STRING, "trace_id" NOT_STRING),
    RULE("data", DATA, KIND_DATA, "data" NOT_OBJECT),
    RULE("meta", META, KIND_OBJECT, "meta" NOT_OBJECT),
    RULE("attempts", ATTEMPTS, KIND_INT, "attempts" NOT_INT),
    RULE("dead_letter", DEAD_LETTER, KIND_OBJECT, "dead_letter" NOT_OBJECT),
    RULE("urn", URN_ALIAS, KIND_URN, ""),
    RULE("timestamp", COUNT_, KIND_FORBIDDEN, ""),
    {NULL, 0, 0, KIND_OTHER, ""},
};

static const member_rule META_RULES[] = {
    RULE("id", META_ID, KIND_STRING, "meta.id" NOT_STRING),
    RULE("queue", META_QUEUE, KIND_STRING, "meta.queue" NOT_STRING),
    RULE("lang", META_LANG, KIND_STRING, "meta.lang" NOT_STRING),
    RULE("schema_version", META_SCHEMA_VERSION, KIND_INT, "meta.schema_version" NOT_INT),
    RULE("created_at", META_CREATED_AT, KIND_INT, "meta.created_at" NOT_INT),
    RULE("max_retries", COUNT_, KIND_FORBIDDEN, ""),
    RULE("attempts", COUNT_, KIND_FORBIDDEN, ""),
    RULE("source", COUNT_, KIND_FORBIDDEN, ""),
    RULE("ts", COUNT_, KIND_FORBIDDEN, ""),
    {NULL, 0, 0, KIND_OTHER, ""},
};

static const member_rule DEAD_RULES[] = {
    RULE("reason", DEAD_REASON, KIND_STRING, "dead_letter.reason" NOT_STRING),
    RULE("error", DEAD_ERROR, KIND_STRING, "dead_letter.error" NOT_STRING),
    RULE("exception", DEAD_EXCEPTION, KIND_STRING, "dead_letter.exception" NOT_STRING),
    RULE("failed_at", DEAD_FAILED_AT, KIND_INT, "dead_letter.failed_at" NOT_INT),
    RULE("original_queue", DEAD_ORIGINAL_QUEUE, KIND_STRING, "dead_letter.original_queue" NOT_STRING),
    RULE("attempts", DEAD_ATTEMPTS, KIND_INT, "dead_letter.attempts" NOT_INT),
    RULE("lang", DEAD_LANG, KIND_STRING, "dead_letter.lang" NOT_STRING),
    {NULL, 0, 0, KIND_OTHER, ""},
};

#define BIT(field) ((uint32_t)1 << BQ_FIELD_##field)
#define META_CHILDREN                                                                                                  \
    (BIT(META_ID) | BIT(META_QUEUE) | BIT(META_LANG) | BIT(META_SCHEMA_VERSION) | BIT(META_CREATED_AT))
#define DEAD_CHILDREN                                                                                                  \
    (BIT(DEAD_REASON) | BIT(DEAD_ERROR) | BIT(DEAD_EXCEPTION) | BIT(DEAD_FAILED_AT) | BIT(DEAD_ORIGINAL_QUEUE) |       \
     BIT(DEAD_ATTEMPTS) | BIT(DEAD_LANG))

typedef struct reader {
    bq_scan s;
    bq_envelope *env;
    const uint8_t *base;
    const uint8_t *safe; /* bq_walk_safe */
    uint32_t present, escaped, is_null;
    unsigned seen;
    const char *wrong; /* the first type error, NULL when there is none */
    size_t wrong_off;
} reader;

static void type_error(reader *r, const uint8_t *value, const char *reason)
{
    if (r->wrong)
        return;
    r->wrong = reason;
    r->wrong_off = (size_t)(value - r->base);
}

static bool is_rule(const member_rule *rule, const uint8_t *name, size_t len, bool escaped)
{
    return escaped ? bq_scan_is(name, len, (bq_str){rule->name, rule->len})
                   : rule->len == len && memcmp(name, rule->name, len) == 0;
}

/* The rule of a name; `expected` is the one that follows the rule of the member before. */
static const member_rule *find_rule(const member_rule *rules, const member_rule *expected, const uint8_t *name,
                                    size_t len, bool escaped)
{
    if (expected->name && is_rule(expected, name, len, escaped))
        return expected;
    const member_rule *rule = rules;
    while (rule->name && !is_rule(rule, name, len, escaped))
        rule++;
    return rule;
}

static const uint8_t *members(reader *r, const uint8_t *p, bool begun, const member_rule *rules, unsigned depth);
static const uint8_t *meta(reader *r, const uint8_t *p);

/* The bits of a member that begins again, and of its children. */
static void begin_member(reader *r, const member_rule *rule)
{
    uint32_t bit = (uint32_t)1 << rule->field, gone = bit;
    if ((r->present | r->is_null) & bit)
        r->seen |= BQ_SEEN_REPEATED;
    if (rule->kind == KIND_OBJECT)
        gone |= rule->field == BQ_FIELD_META ? META_CHILDREN : DEAD_CHILDREN;
    r->present &= ~gone;
    r->is_null &= ~gone;
    r->escaped &= ~gone;
}

/* A value that is no string: what follows it, and whether its type is the rule's. */
static const uint8_t *bare_value(reader *r, const uint8_t *p, const member_rule *rule, unsigned depth, bool *right)
{
    const uint8_t *after;
    if (rule->kind == KIND_INT && (*p == '-' || bq_is_digit(*p))) {
        bool integer = false;
        after = bq_scan_number(&r->s, p, &integer);
        *right = after && integer && bq_scan_int64(p, (size_t)(after - p), NULL);
    } else if (rule->kind == KIND_OBJECT && *p == '{') {
        after = rule->field == BQ_FIELD_META ? meta(r, p + 1) : members(r, p + 1, false, DEAD_RULES, depth + 1);
        *right = true;
    } else {
        after = bq_scan_value(&r->s, p, depth, rule->kind == KIND_DATA);
        *right = *p == 'n' || (rule->kind == KIND_DATA && *p == '{');
    }
    return after;
}

static void note_type(reader *r, const uint8_t *p, const member_rule *rule, bool right)
{
    if (rule->kind == KIND_JOB) {
        if (*p != '"')
            r->seen |= BQ_SEEN_JOB_NOT_STRING;
        if (!right)
            r->seen |= BQ_SEEN_JOB_BAD_TYPE;
    } else if (!right && rule->kind != KIND_URN) {
        type_error(r, p, rule->wrong);
    }
    if (rule->kind == KIND_DATA && (r->s.seen & BQ_SCAN_NONFINITE) && !(r->seen & BQ_SEEN_NONFINITE)) {
        r->seen |= BQ_SEEN_NONFINITE;
        type_error(r, p, "data holds a number that is no finite double");
    }
}

/* The value of a member of ours, whatever its type; its span and its bits. */
static const uint8_t *member_value(reader *r, const uint8_t *p, const member_rule *rule, unsigned depth)
{
    uint32_t bit = (uint32_t)1 << rule->field;
    const uint8_t *start = p, *after;
    bool string = *p == '"', escaped = false, right;
    begin_member(r, rule);
    if (string) {
        start = p + 1;
        after = bq_scan_string(&r->s, start, &escaped);
        right = rule->kind == KIND_STRING || rule->kind == KIND_JOB || rule->kind == KIND_URN;
    } else {
        after = bare_value(r, p, rule, depth, &right);
    }
    if (!after)
        return NULL;
    if (*p == 'n')
        r->is_null |= bit;
    else
        r->present |= bit;
    if (escaped)
        r->escaped |= bit;
    r->env->span[rule->field].off = (size_t)(start - r->base);
    r->env->span[rule->field].len = (size_t)(after - start);
    note_type(r, p, rule, right);
    return string ? after + 1 : after;
}

static const uint8_t *member(reader *r, const uint8_t *p, const member_rule *rule, unsigned depth)
{
    switch (rule->kind) {
    case KIND_OTHER: return bq_scan_value(&r->s, p, depth, false);
    case KIND_FORBIDDEN: r->seen |= BQ_SEEN_FORBIDDEN; return bq_scan_value(&r->s, p, depth, false);
    case KIND_URN: r->seen |= BQ_SEEN_URN_MEMBER; break;
    case KIND_OBJECT:
        if (rule->field == BQ_FIELD_DEAD_LETTER)
            r->seen |= BQ_SEEN_DEAD_LETTER;
        break;
    default: break;
    }
    return member_value(r, p, rule, depth);
}

BQ_INLINE const uint8_t *space(const reader *r, const uint8_t *p)
{
    return BQ_UNLIKELY(*p <= ' ') ? bq_walk_blanks(p, r->safe) : p;
}

/* The members of an object that have rules, from `p` on: its first byte, or, with `begun`, what follows a value.
 * `depth` containers are open, this one included. Returns what follows the closing brace. */
static const uint8_t *members(reader *r, const uint8_t *p, bool begun, const member_rule *rules, unsigned depth)
{
    const member_rule *expected = rules;
    p = space(r, p);
    if (*p == '}')
        return p + 1;
    if (!begun)
        goto name;
    for (;;) {
        if (*p != ',')
            return bq_scan_fault(&r->s, p, "neither a comma nor a closing brace after a member");
        p = space(r, p + 1);
    name:
        if (*p != '"')
            return bq_scan_fault(&r->s, p, "an object member without a name");
        bool escaped = false;
        bq_highs highs = BQ_HIGHS_NONE;
        const uint8_t *name = p + 1;
        p = bq_walk_key(&r->s, name, r->safe, &highs, &escaped);
        if (BQ_UNLIKELY(bq_highs_any(highs)))
            r->s.seen |= BQ_SCAN_HIGH;
        if (!p)
            return NULL;
        const member_rule *rule = find_rule(rules, expected, name, (size_t)(p - name), escaped);
        expected = rule->name ? rule + 1 : rule;
        p = space(r, p + 1);
        if (*p != ':')
            return bq_scan_fault(&r->s, p, "a member name without a colon");
        p = member(r, space(r, p + 1), rule, depth);
        if (!p)
            return NULL;
        if (p == r->s.end)
            return bq_scan_fault(&r->s, p, "the body ends inside a container");
        p = space(r, p);
        if (*p == '}')
            return p + 1;
    }
}

/* ---- the canonical form ---------------------------------------------------------------------------------------- */

/* Every producer writes the members compact and in one order, so that order is tried first, as straight code: each
 * step compares a name and its punctuation at once. Where a body differs the general loop takes over. */

#define AT(p, end, text) ((end) - (p) > (ptrdiff_t)sizeof text && memcmp(p, text, sizeof text - 1) == 0)

BQ_INLINE void set_span(reader *r, bq_field field, const uint8_t *from, const uint8_t *to)
{
    r->env->span[field].off = (size_t)(from - r->base);
    r->env->span[field].len = (size_t)(to - from);
    r->present |= (uint32_t)1 << field;
}

/* A string from behind its opening quote; returns what follows the closing one. */
BQ_INLINE const uint8_t *canonical_string(reader *r, const uint8_t *p, bq_field field)
{
    bool escaped = false;
    bq_highs highs = BQ_HIGHS_NONE;
    const uint8_t *q = bq_walk_string(&r->s, p, r->safe, &highs, &escaped);
    if (BQ_UNLIKELY(!q))
        return NULL;
    if (BQ_UNLIKELY(bq_highs_any(highs)))
        r->s.seen |= BQ_SCAN_HIGH;
    if (BQ_UNLIKELY(escaped))
        r->escaped |= (uint32_t)1 << field;
    set_span(r, field, p, q);
    return q + 1;
}

/* An integer of up to 18 digits; NULL when it is anything else, which is no fault yet. */
BQ_INLINE const uint8_t *canonical_int(reader *r, const uint8_t *p, bq_field field)
{
    const uint8_t *q = p;
    if (!bq_is_digit(*q))
        return NULL;
    q++;
    if (*p != '0') {
        while (bq_is_digit(*q))
            q++;
    }
    if (q - p > 18 || (*q != ',' && *q != '}'))
        return NULL;
    set_span(r, field, p, q);
    return q;
}

/* `meta`, from behind its brace. */
static const uint8_t *meta(reader *r, const uint8_t *p)
{
    const uint8_t *const end = r->s.end, *q = p;
    if (!AT(p, end, "\"id\":\""))
        return members(r, p, false, META_RULES, 2);
    p = canonical_string(r, p + 6, BQ_FIELD_META_ID);
    if (!p)
        return NULL;
    if (!AT(p, end, ",\"queue\":\""))
        goto other;
    p = canonical_string(r, p + 10, BQ_FIELD_META_QUEUE);
    if (!p)
        return NULL;
    if (!AT(p, end, ",\"lang\":\""))
        goto other;
    p = canonical_string(r, p + 9, BQ_FIELD_META_LANG);
    if (!p)
        return NULL;
    if (!AT(p, end, ",\"schema_version\":") || !(q = canonical_int(r, p + 18, BQ_FIELD_META_SCHEMA_VERSION)))
        goto other;
    p = q;
    if (!AT(p, end, ",\"created_at\":") || !(q = canonical_int(r, p + 14, BQ_FIELD_META_CREATED_AT)))
        goto other;
    p = q;
    if (BQ_LIKELY(*p == '}'))
        return p + 1;
other:
    return members(r, p, true, META_RULES, 2);
}

static const uint8_t *root(reader *r, const uint8_t *p)
{
    const uint8_t *const end = r->s.end, *q = p;
    if (!AT(p, end, "\"job\":\""))
        return members(r, p, false, ROOT_RULES, 1);
    p = canonical_string(r, p + 7, BQ_FIELD_JOB);
    if (!p)
        return NULL;
    if (!AT(p, end, ",\"trace_id\":\""))
        goto other;
    p = canonical_string(r, p + 13, BQ_FIELD_TRACE_ID);
    if (!p)
        return NULL;
    if (!AT(p, end, ",\"data\":{"))
        goto other;
    q = p + 8;
    p = bq_scan_value(&r->s, q, 1, true);
    if (!p)
        return NULL;
    set_span(r, BQ_FIELD_DATA, q, p);
    if (BQ_UNLIKELY(r->s.seen & BQ_SCAN_NONFINITE)) {
        r->seen |= BQ_SEEN_NONFINITE;
        type_error(r, q, "data holds a number that is no finite double");
    }
    if (!AT(p, end, ",\"meta\":{"))
        goto other;
    q = p + 8;
    p = meta(r, q + 1);
    if (!p)
        return NULL;
    set_span(r, BQ_FIELD_META, q, p);
    if (AT(p, end, ",\"attempts\":") && (q = canonical_int(r, p + 12, BQ_FIELD_ATTEMPTS)))
        p = q;
other:
    if (p == end)
        return bq_scan_fault(&r->s, p, "the body ends inside a container");
    return members(r, p, true, ROOT_RULES, 1);
}

/* ---- the verdict ----------------------------------------------------------------------------------------------- */

static bq_verdict judged(bq_envelope *env, bq_verdict verdict, size_t offset, const char *reason)
{
    env->verdict = verdict;
    env->error_offset = offset;
    env->reason = reason;
    return verdict;
}

/* A string member that is there and not blank once its escapes are resolved. */
static bool filled(const bq_envelope *env, bq_field field)
{
    if (!(env->present >> field & 1))
        return false;
    const uint8_t *p = (const uint8_t *)env->body + env->span[field].off, *end = p + env->span[field].len;
    if (p[-1] != '"')
        return false;
    while (p < end) {
        uint8_t unit = *p;
        size_t used = 1;
        if (unit == '\\') {
            bool lone = false;
            char text[4];
            used = p[1] == 'u' ? 6 : 2;
            size_t n = bq_scan_unescape(p, used, text, &lone);
            unit = n == 1 ? (uint8_t)text[0] : 0xFF;
        }
        if (unit != ' ' && (unit < '\t' || unit > '\r'))
            return true;
        p += used;
    }
    return false;
}

/* The rules that make a body with an identity an `ok` one. */
static bq_verdict conformance(bq_envelope *env)
{
#define BREAKS(field, missing, null)                                                                                   \
    if (!(env->present & BIT(field)))                                                                                  \
    return judged(env, BQ_VERDICT_NONCONFORMANT, 0, env->is_null & BIT(field) ? null : missing)
    BREAKS(META, "meta is missing", "meta is null");
    BREAKS(META_SCHEMA_VERSION, "meta.schema_version is missing", "meta.schema_version is null");
    size_t version = env->span[BQ_FIELD_META_SCHEMA_VERSION].off;
    if (env->span[BQ_FIELD_META_SCHEMA_VERSION].len != 1 || env->body[version] != '1')
        return judged(env, BQ_VERDICT_NONCONFORMANT, version, "meta.schema_version is not the integer 1");
    BREAKS(DATA, "data is missing", "data is null");
    BREAKS(ATTEMPTS, "attempts is missing", "attempts is null");
    BREAKS(TRACE_ID, "trace_id is missing", "trace_id is null");
#undef BREAKS
    if (!filled(env, BQ_FIELD_TRACE_ID))
        return judged(env, BQ_VERDICT_NONCONFORMANT, env->span[BQ_FIELD_TRACE_ID].off, "trace_id is blank");
    return judged(env, BQ_VERDICT_OK, 0, "");
}

static void take_identity(bq_envelope *env, bq_field from)
{
    env->span[BQ_FIELD_URN] = env->span[from];
    env->present |= BIT(URN);
    if (env->escaped >> from & 1)
        env->escaped |= BIT(URN);
}

static bq_verdict judge_object(bq_envelope *env, const reader *r)
{
    env->present = r->present;
    env->is_null = r->is_null;
    env->escaped = r->escaped;
    env->seen = r->seen | (r->s.seen & BQ_SCAN_LONE ? BQ_SEEN_LONE_SURROGATE : 0);
    bool identity = true;
    if (filled(env, BQ_FIELD_JOB))
        take_identity(env, BQ_FIELD_JOB);
    else if (filled(env, BQ_FIELD_URN_ALIAS))
        take_identity(env, BQ_FIELD_URN_ALIAS);
    else
        identity = false;
    if (r->wrong)
        return judged(env, BQ_VERDICT_POISON_TYPE, r->wrong_off, r->wrong);
    if (!identity)
        return judged(env, BQ_VERDICT_POISON_IDENTITY, 0,
                      (r->present | r->is_null) & (BIT(JOB) | BIT(URN_ALIAS))
                          ? "neither job nor urn is a string that is not blank"
                          : "job is missing, and so is urn");
    return conformance(env);
}

/* Anything but an object that at least ends like one: poison, and only the cause is in question. */
static bq_verdict judge_other(bq_envelope *env)
{
    bq_scanned doc;
    bool ok = bq_scan_document(&doc, env->body, env->len, false);
    if (!ok)
        return judged(env, doc.bad_utf8 ? BQ_VERDICT_POISON_UTF8 : BQ_VERDICT_POISON_JSON, doc.fault, doc.reason);
    if (doc.seen & BQ_SCAN_LONE)
        env->seen |= BQ_SEEN_LONE_SURROGATE;
    bool null = env->body[doc.off] == 'n';
    if (null)
        env->seen |= BQ_SEEN_NULL_ROOT;
    return judged(env, BQ_VERDICT_POISON_ROOT, doc.off, null ? "the body is null" : "the body is not an object");
}

bq_verdict bq_envelope_decode(bq_envelope *env, const void *body, size_t len)
{
    const uint8_t *base = body ? body : (const uint8_t *)"", *p = base, *end = base + len;
    env->body = (const char *)base;
    env->len = len;
    env->seen = 0;
    env->present = env->escaped = env->is_null = 0;
    while (end > p && (bq_scan_class[end[-1]] & BQ_CLASS_SPACE))
        end--;
    while (p < end && (bq_scan_class[*p] & BQ_CLASS_SPACE))
        p++;
    if (p == end || *p != '{' || end[-1] != '}')
        return judge_other(env);

    reader r = {.s = {end, NULL, "", 0}, .env = env, .base = base, .safe = bq_walk_safe(base, end)};
    const uint8_t *after = root(&r, p + 1);
    if (after && after != end)
        after = bq_scan_fault(&r.s, bq_scan_space(after), "trailing bytes after the value");
    if (!after || (r.s.seen & BQ_SCAN_HIGH)) {
        size_t bad = bq_scan_utf8(base, len);
        if (bad != len)
            return judged(env, BQ_VERDICT_POISON_UTF8, bad, "not valid UTF-8");
        if (!after)
            return judged(env, BQ_VERDICT_POISON_JSON, (size_t)(r.s.fault - base), r.s.reason);
    }
    return judge_object(env, &r);
}

bq_verdict bq_envelope_decode_null(bq_envelope *env)
{
    return bq_envelope_decode(env, "", 0);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

const char *bq_verdict_name(bq_verdict verdict)
{
    static const char *const NAMES[BQ_VERDICT_COUNT_] = {
        [BQ_VERDICT_OK] = "ok",
        [BQ_VERDICT_NONCONFORMANT] = "nonconformant",
        [BQ_VERDICT_POISON_UTF8] = "poison/utf8",
        [BQ_VERDICT_POISON_JSON] = "poison/json",
        [BQ_VERDICT_POISON_ROOT] = "poison/root",
        [BQ_VERDICT_POISON_TYPE] = "poison/type",
        [BQ_VERDICT_POISON_IDENTITY] = "poison/identity",
    };
    return (unsigned)verdict < BQ_VERDICT_COUNT_ ? NAMES[verdict] : "unknown";
}

const char *bq_envelope_reason(const bq_envelope *env)
{
    return env->reason;
}

bool bq_envelope_has(const bq_envelope *env, bq_field field)
{
    return (unsigned)field < BQ_FIELD_COUNT_ && (env->present >> field & 1);
}

bq_str bq_envelope_raw(const bq_envelope *env, bq_field field)
{
    if (!bq_envelope_has(env, field))
        return BQ_STR_NULL;
    return (bq_str){env->body + env->span[field].off, env->span[field].len};
}

/* Of a member's span only a string's has a quote right before it. */
static bool is_string(const bq_envelope *env, bq_field field)
{
    return bq_envelope_has(env, field) && env->span[field].off > 0 && env->body[env->span[field].off - 1] == '"';
}

/* Where the texts of one envelope stand in a scratch: this heading and then a slot for each escaped member, as long as
 * its bytes in the body. It is found again by its bytes, so that asking twice takes no more room, and whatever else
 * the scratch holds does not matter. */
typedef struct heading {
    uint64_t magic;
    uintptr_t body;
    size_t slots;
} heading;

/* Bytes of the slots before `field`; of all of them for BQ_FIELD_COUNT_. */
static size_t slots_before(const bq_envelope *env, unsigned field)
{
    size_t sum = 0;
    for (unsigned i = 0; i < field; i++)
        sum += env->escaped >> i & 1 ? env->span[i].len : 0;
    return sum;
}

/* The first slot; NULL without memory. */
static char *slots(const bq_envelope *env, bq_buf *scratch, bq_status *status)
{
    heading head = {UINT64_C(0x6271207465787473), (uintptr_t)env->body, slots_before(env, BQ_FIELD_COUNT_)};
    char *at = scratch->len >= sizeof head ? memmem(scratch->ptr, scratch->len, &head, sizeof head) : NULL;
    if (at && (size_t)(scratch->ptr + scratch->len - at) - sizeof head >= head.slots)
        return at + sizeof head;
    *status = bq_buf_reserve(scratch, sizeof head + head.slots);
    if (*status != BQ_OK)
        return NULL;
    at = scratch->ptr + scratch->len;
    memcpy(at, &head, sizeof head);
    memset(at + sizeof head, 0, head.slots + 1);
    scratch->len += sizeof head + head.slots;
    return at + sizeof head;
}

bq_status bq_envelope_text(const bq_envelope *env, bq_field field, bq_buf *scratch, bq_str *out)
{
    *out = BQ_STR_NULL;
    if (!is_string(env, field))
        return BQ_OK;
    bq_str raw = bq_envelope_raw(env, field);
    if (!(env->escaped >> field & 1)) {
        *out = raw;
        return BQ_OK;
    }
    bq_status status = BQ_OK;
    char *slot = slots(env, scratch, &status);
    if (!slot)
        return status;
    slot += slots_before(env, (unsigned)field);
    *out = (bq_str){slot, bq_scan_unescape((const uint8_t *)raw.ptr, raw.len, slot, NULL)};
    return BQ_OK;
}

int64_t bq_envelope_int(const bq_envelope *env, bq_field field, int64_t otherwise)
{
    bq_str raw = bq_envelope_raw(env, field);
    int64_t value;
    if (!raw.ptr || is_string(env, field) || !bq_scan_int64((const uint8_t *)raw.ptr, raw.len, &value))
        return otherwise;
    return value;
}

int32_t bq_envelope_attempts(const bq_envelope *env)
{
    int64_t value = bq_envelope_int(env, BQ_FIELD_ATTEMPTS, 0);
    if (value < 0)
        return 0;
    return value > INT32_MAX ? INT32_MAX : (int32_t)value;
}
