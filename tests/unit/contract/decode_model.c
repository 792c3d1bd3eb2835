/* The model of decode_model.h. */
#include "unit/contract/decode_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

typedef enum type { T_NULL, T_TRUE, T_FALSE, T_NUMBER, T_STRING, T_ARRAY, T_OBJECT } type;

typedef struct node {
    type type;
    size_t off, len; /* the token, quotes and brackets included */
    char *text;      /* a string's text; unpaired surrogates as U+FFFD */
    size_t text_len;
    bool lone, integer;
    char *key; /* in an object */
    size_t key_len;
    bool key_lone;
    struct node *child, *last, *next;
} node;

typedef struct parser {
    const char *body;
    size_t len, at;
    bool lone; /* an unpaired surrogate anywhere */
} parser;

static void free_node(node *n)
{
    while (n) {
        node *next = n->next;
        free_node(n->child);
        free(n->text);
        free(n->key);
        free(n);
        n = next;
    }
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static int peek(const parser *p)
{
    return p->at < p->len ? (unsigned char)p->body[p->at] : -1;
}

static void space(parser *p)
{
    while (peek(p) == ' ' || peek(p) == '\t' || peek(p) == '\n' || peek(p) == '\r')
        p->at++;
}

static bool utf8_ok(const unsigned char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        unsigned char a = s[i];
        unsigned more = a < 0x80 ? 0 : a >= 0xF0 ? 3 : a >= 0xE0 ? 2 : a >= 0xC0 ? 1 : 9;
        static const uint32_t LEAST[] = {0, 0x80, 0x800, 0x10000};
        if (more > 3 || a > 0xF7 || len - i <= more)
            return false;
        uint32_t cp = more == 0 ? a : more == 1 ? a & 0x1Fu : more == 2 ? a & 0xFu : a & 7u;
        for (unsigned k = 1; k <= more; k++) {
            if ((s[i + k] & 0xC0) != 0x80)
                return false;
            cp = cp << 6 | (s[i + k] & 0x3Fu);
        }
        if (cp < LEAST[more] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
            return false;
        i += more + 1;
    }
    return true;
}

static int hex_digits(const parser *p, size_t at)
{
    int value = 0;
    for (size_t i = at; i < at + 4; i++) {
        if (i >= p->len)
            return -1;
        const char *digit = strchr("0123456789abcdefABCDEF", p->body[i]);
        if (!digit || !*digit)
            return -1;
        int d = (int)(digit - "0123456789abcdefABCDEF");
        value = value * 16 + (d > 15 ? d - 6 : d);
    }
    return value;
}

static void add_code_point(char *text, size_t *n, uint32_t cp)
{
    if (cp < 0x80) {
        text[(*n)++] = (char)cp;
        return;
    }
    int more = cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
    static const unsigned char LEAD[] = {0, 0xC0, 0xE0, 0xF0};
    text[(*n)++] = (char)(LEAD[more] | cp >> (6 * more));
    while (more-- > 0)
        text[(*n)++] = (char)(0x80 | (cp >> (6 * more) & 0x3F));
}

/* From the opening quote; text is malloced. */
static bool parse_string(parser *p, char **out, size_t *out_len, bool *lone)
{
    char *text = must(malloc(p->len + 4));
    size_t n = 0;
    *lone = false;
    for (p->at++; peek(p) != '"';) {
        int c = peek(p);
        if (c < 0x20)
            goto wrong; /* the end, or a control character */
        p->at++;
        if (c != '\\') {
            text[n++] = (char)c;
            continue;
        }
        c = peek(p);
        p->at++;
        static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
        const char *simple = c > 0 ? strchr(FROM, c) : NULL;
        if (simple) {
            text[n++] = TO[simple - FROM];
            continue;
        }
        int unit = c == 'u' ? hex_digits(p, p->at) : -1;
        if (unit < 0)
            goto wrong;
        p->at += 4;
        uint32_t cp = (uint32_t)unit;
        if (unit >= 0xD800 && unit <= 0xDFFF) {
            int low = p->at + 1 < p->len && p->body[p->at] == '\\' && p->body[p->at + 1] == 'u'
                          ? hex_digits(p, p->at + 2)
                          : -1;
            if (unit < 0xDC00 && low >= 0xDC00 && low <= 0xDFFF) {
                cp = 0x10000 + (((uint32_t)unit - 0xD800) << 10 | ((uint32_t)low - 0xDC00));
                p->at += 6;
            } else {
                cp = 0xFFFD;
                *lone = p->lone = true;
            }
        }
        add_code_point(text, &n, cp);
    }
    p->at++;
    *out = text;
    *out_len = n;
    return true;
wrong:
    free(text);
    return false;
}

static bool digits(parser *p)
{
    size_t from = p->at;
    while (peek(p) >= '0' && peek(p) <= '9')
        p->at++;
    return p->at > from;
}

static bool parse_number(parser *p, node *n)
{
    n->integer = true;
    if (peek(p) == '-')
        p->at++;
    if (peek(p) == '0')
        p->at++;
    else if (!digits(p))
        return false;
    if (peek(p) == '.') {
        n->integer = false;
        p->at++;
        if (!digits(p))
            return false;
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        n->integer = false;
        p->at++;
        if (peek(p) == '+' || peek(p) == '-')
            p->at++;
        if (!digits(p))
            return false;
    }
    return true;
}

static node *parse_value(parser *p, unsigned depth);

static bool parse_members(parser *p, node *n, unsigned depth)
{
    bool object = n->type == T_OBJECT;
    char close = object ? '}' : ']';
    p->at++;
    space(p);
    if (peek(p) == close) {
        p->at++;
        return true;
    }
    for (;;) {
        char *key = NULL;
        size_t key_len = 0;
        bool key_lone = false;
        space(p);
        if (object) {
            if (peek(p) != '"' || !parse_string(p, &key, &key_len, &key_lone))
                return false;
            space(p);
            if (peek(p) != ':') {
                free(key);
                return false;
            }
            p->at++;
            space(p);
        }
        node *child = parse_value(p, depth);
        if (!child) {
            free(key);
            return false;
        }
        child->key = key;
        child->key_len = key_len;
        child->key_lone = key_lone;
        if (n->last)
            n->last->next = child;
        else
            n->child = child;
        n->last = child;
        space(p);
        int c = peek(p);
        p->at++;
        if (c == close)
            return true;
        if (c != ',')
            return false;
    }
}

static node *parse_value(parser *p, unsigned depth)
{
    node *n = must(calloc(1, sizeof *n));
    bool ok = false;
    n->off = p->at;
    switch (peek(p)) {
    case '"':
        n->type = T_STRING;
        ok = parse_string(p, &n->text, &n->text_len, &n->lone);
        break;
    case '{':
    case '[':
        n->type = peek(p) == '{' ? T_OBJECT : T_ARRAY;
        ok = depth < 10000 && parse_members(p, n, depth + 1);
        break;
    case 't':
    case 'f':
    case 'n': {
        static const char *const WORDS[] = {"null", "true", "false"};
        for (int i = 0; i < 3 && !ok; i++) {
            size_t w = strlen(WORDS[i]);
            if (p->len - p->at >= w && memcmp(p->body + p->at, WORDS[i], w) == 0) {
                n->type = (type)(T_NULL + i);
                p->at += w;
                ok = true;
            }
        }
        break;
    }
    default:
        n->type = T_NUMBER;
        ok = parse_number(p, n);
        break;
    }
    n->len = p->at - n->off;
    if (ok)
        return n;
    free_node(n);
    return NULL;
}

/* ---- the rules ------------------------------------------------------------------------------------------------- */

static bool named(const node *n, const char *name)
{
    return !n->key_lone && n->key_len == strlen(name) && memcmp(n->key, name, n->key_len) == 0;
}

static char *literal(const model *m, const char *body, const node *n)
{
    (void)m;
    char *text = must(malloc(n->len + 1));
    memcpy(text, body + n->off, n->len);
    text[n->len] = '\0';
    return text;
}

static bool all_finite(const model *m, const char *body, const node *n)
{
    if (n->type == T_NUMBER) {
        char *text = literal(m, body, n);
        bool ok = isfinite(strtod(text, NULL));
        free(text);
        return ok;
    }
    for (const node *c = n->child; c; c = c->next) {
        if (!all_finite(m, body, c))
            return false;
    }
    return true;
}

static bool is_int64(const model *m, const char *body, const node *n)
{
    if (n->type != T_NUMBER || !n->integer)
        return false;
    char *text = literal(m, body, n);
    errno = 0;
    strtoll(text, NULL, 10);
    bool ok = errno == 0;
    free(text);
    return ok;
}

static void forget(model *m, bq_field field)
{
    m->present &= ~(1u << field);
    m->is_null &= ~(1u << field);
    free(m->text[field]);
    m->text[field] = NULL;
}

static void put(model *m, bq_field field, const node *n)
{
    if ((m->present | m->is_null) >> field & 1)
        m->seen |= BQ_SEEN_REPEATED;
    forget(m, field);
    if (n->type == T_NULL)
        m->is_null |= 1u << field;
    else
        m->present |= 1u << field;
    bool string = n->type == T_STRING;
    m->span[field].off = n->off + (string ? 1 : 0);
    m->span[field].len = n->len - (string ? 2 : 0);
    if (string) {
        m->text[field] = must(malloc(n->text_len + 1));
        memcpy(m->text[field], n->text, n->text_len);
        m->text_len[field] = n->text_len;
    }
}

enum { STRING = 's', INTEGER = 'i' };
static const struct {
    const char *parent, *name;
    bq_field field;
    char kind;
} CHILDREN[] = {
    {"meta", "id", BQ_FIELD_META_ID, STRING},
    {"meta", "queue", BQ_FIELD_META_QUEUE, STRING},
    {"meta", "lang", BQ_FIELD_META_LANG, STRING},
    {"meta", "schema_version", BQ_FIELD_META_SCHEMA_VERSION, INTEGER},
    {"meta", "created_at", BQ_FIELD_META_CREATED_AT, INTEGER},
    {"dead_letter", "reason", BQ_FIELD_DEAD_REASON, STRING},
    {"dead_letter", "error", BQ_FIELD_DEAD_ERROR, STRING},
    {"dead_letter", "exception", BQ_FIELD_DEAD_EXCEPTION, STRING},
    {"dead_letter", "failed_at", BQ_FIELD_DEAD_FAILED_AT, INTEGER},
    {"dead_letter", "original_queue", BQ_FIELD_DEAD_ORIGINAL_QUEUE, STRING},
    {"dead_letter", "attempts", BQ_FIELD_DEAD_ATTEMPTS, INTEGER},
    {"dead_letter", "lang", BQ_FIELD_DEAD_LANG, STRING},
};
enum { CHILD_COUNT = sizeof CHILDREN / sizeof CHILDREN[0] };

static bool right(const model *m, const char *body, const node *n, char kind)
{
    return n->type == T_NULL || (kind == STRING ? n->type == T_STRING : is_int64(m, body, n));
}

/* meta or dead_letter; false when a type is wrong. */
static bool put_parent(model *m, const char *body, const node *n, bq_field field, const char *name)
{
    bool ok = n->type == T_OBJECT || n->type == T_NULL;
    put(m, field, n);
    for (int i = 0; i < CHILD_COUNT; i++) {
        if (strcmp(CHILDREN[i].parent, name) == 0)
            forget(m, CHILDREN[i].field);
    }
    if (n->type != T_OBJECT)
        return ok;
    for (const node *c = n->child; c; c = c->next) {
        for (int i = 0; i < CHILD_COUNT; i++) {
            if (strcmp(CHILDREN[i].parent, name) != 0 || !named(c, CHILDREN[i].name))
                continue;
            put(m, CHILDREN[i].field, c);
            ok = right(m, body, c, CHILDREN[i].kind) && ok;
        }
        if (field == BQ_FIELD_META &&
            (named(c, "max_retries") || named(c, "attempts") || named(c, "source") || named(c, "ts")))
            m->seen |= BQ_SEEN_FORBIDDEN;
    }
    return ok;
}

static bool put_member(model *m, const char *body, const node *n)
{
    if (named(n, "job")) {
        put(m, BQ_FIELD_JOB, n);
        if (n->type != T_STRING)
            m->seen |= BQ_SEEN_JOB_NOT_STRING;
        if (n->type != T_STRING && n->type != T_NULL)
            m->seen |= BQ_SEEN_JOB_BAD_TYPE;
        return true;
    }
    if (named(n, "urn")) {
        m->seen |= BQ_SEEN_URN_MEMBER;
        put(m, BQ_FIELD_URN_ALIAS, n);
        return true;
    }
    if (named(n, "trace_id")) {
        put(m, BQ_FIELD_TRACE_ID, n);
        return right(m, body, n, STRING);
    }
    if (named(n, "attempts")) {
        put(m, BQ_FIELD_ATTEMPTS, n);
        return right(m, body, n, INTEGER);
    }
    if (named(n, "data")) {
        put(m, BQ_FIELD_DATA, n);
        bool finite = all_finite(m, body, n);
        if (!finite)
            m->seen |= BQ_SEEN_NONFINITE;
        return finite && (n->type == T_OBJECT || n->type == T_NULL);
    }
    if (named(n, "timestamp"))
        m->seen |= BQ_SEEN_FORBIDDEN;
    if (named(n, "dead_letter"))
        m->seen |= BQ_SEEN_DEAD_LETTER;
    if (named(n, "meta"))
        return put_parent(m, body, n, BQ_FIELD_META, "meta");
    if (named(n, "dead_letter"))
        return put_parent(m, body, n, BQ_FIELD_DEAD_LETTER, "dead_letter");
    return true;
}

static bool filled(const model *m, bq_field field)
{
    if (!m->text[field])
        return false;
    for (size_t i = 0; i < m->text_len[field]; i++) {
        if (!memchr(" \t\n\v\f\r", m->text[field][i], 6))
            return true;
    }
    return false;
}

static bool conformant(const model *m, const char *body)
{
    const unsigned version = BQ_FIELD_META_SCHEMA_VERSION;
    return m->present >> BQ_FIELD_META & 1 && m->present >> version & 1 && m->span[version].len == 1 &&
           body[m->span[version].off] == '1' && m->present >> BQ_FIELD_DATA & 1 &&
           m->present >> BQ_FIELD_ATTEMPTS & 1 && filled(m, BQ_FIELD_TRACE_ID);
}

static bq_verdict judge(model *m, const char *body, const node *root)
{
    bool types = true;
    for (const node *c = root->child; c; c = c->next)
        types = put_member(m, body, c) && types;
    bq_field from = filled(m, BQ_FIELD_JOB)         ? BQ_FIELD_JOB
                    : filled(m, BQ_FIELD_URN_ALIAS) ? BQ_FIELD_URN_ALIAS
                                                    : BQ_FIELD_URN;
    if (from != BQ_FIELD_URN) {
        m->present |= 1u << BQ_FIELD_URN;
        m->span[BQ_FIELD_URN] = m->span[from];
        m->text_len[BQ_FIELD_URN] = m->text_len[from];
        m->text[BQ_FIELD_URN] = must(malloc(m->text_len[from] + 1));
        memcpy(m->text[BQ_FIELD_URN], m->text[from], m->text_len[from]);
    }
    if (!types)
        return BQ_VERDICT_POISON_TYPE;
    if (from == BQ_FIELD_URN)
        return BQ_VERDICT_POISON_IDENTITY;
    return conformant(m, body) ? BQ_VERDICT_OK : BQ_VERDICT_NONCONFORMANT;
}

void model_decode(model *m, const char *body, size_t len)
{
    memset(m, 0, sizeof *m);
    if (!utf8_ok((const unsigned char *)body, len)) {
        m->verdict = BQ_VERDICT_POISON_UTF8;
        return;
    }
    parser p = {body, len, 0, false};
    space(&p);
    node *root = parse_value(&p, 0);
    space(&p);
    if (!root || p.at != len) {
        m->verdict = BQ_VERDICT_POISON_JSON;
    } else {
        if (root->type == T_OBJECT) {
            m->verdict = judge(m, body, root);
        } else {
            m->verdict = BQ_VERDICT_POISON_ROOT;
            m->seen = root->type == T_NULL ? BQ_SEEN_NULL_ROOT : 0;
        }
        if (p.lone)
            m->seen |= BQ_SEEN_LONE_SURROGATE;
    }
    free_node(root);
}

void model_clear(model *m)
{
    for (int i = 0; i < BQ_FIELD_COUNT_; i++)
        free(m->text[i]);
    memset(m, 0, sizeof *m);
}

static bool texts_differ(const model *m, const bq_envelope *env)
{
    bq_buf scratch;
    bq_str text[BQ_FIELD_COUNT_];
    bool differ = false;
    bq_buf_init(&scratch, 0);
    /* All are asked for first: a later answer must not move an earlier one. */
    for (unsigned i = 0; i < BQ_FIELD_COUNT_; i++) {
        if (bq_envelope_text(env, (bq_field)i, &scratch, &text[i]) != BQ_OK)
            differ = true;
    }
    for (unsigned i = 0; i < BQ_FIELD_COUNT_ && !differ; i++) {
        differ = m->text[i] ? !text[i].ptr || text[i].len != m->text_len[i] ||
                                  memcmp(text[i].ptr, m->text[i], text[i].len) != 0
                            : text[i].ptr != NULL;
    }
    bq_buf_clear(&scratch);
    return differ;
}

const char *model_differs(const model *m, const bq_envelope *env)
{
    static char what[160];
    if (env->verdict != m->verdict) {
        snprintf(what, sizeof what, "verdict %s (%s), should be %s", bq_verdict_name(env->verdict), env->reason,
                 bq_verdict_name(m->verdict));
        return what;
    }
    if (env->seen != m->seen) {
        snprintf(what, sizeof what, "seen %x, should be %x", env->seen, m->seen);
        return what;
    }
    if ((env->reason[0] == '\0') != (m->verdict == BQ_VERDICT_OK))
        return "a reason without a fault, or a fault without a reason";
    if (env->escaped & ~env->present)
        return "escapes in a member that is not there";
    if (env->error_offset > env->len)
        return "error_offset outside of the body";
    for (unsigned i = 0; i < BQ_FIELD_COUNT_; i++) {
        bool has = m->present >> i & 1;
        bq_str raw = bq_envelope_raw(env, (bq_field)i);
        if (bq_envelope_has(env, (bq_field)i) != has || (env->is_null >> i & 1) != (m->is_null >> i & 1) ||
            (raw.ptr != NULL) != has || (has && (raw.ptr != env->body + m->span[i].off || raw.len != m->span[i].len))) {
            snprintf(what, sizeof what, "field %u differs", i);
            return what;
        }
    }
    return texts_differ(m, env) ? "a text differs" : NULL;
}
