/*
 * judge.c - what the contract's pure functions say of many bodies, in one process: the project's side of the
 * comparison with the peer (tests/interop).
 *
 * Wire layout, on standard input and output alike: records of
 *     kind (1 byte)  count (1 byte)  then `count` fields: length (4 bytes, little endian, 0xffffffff: absent), bytes
 * in as 'B' (a body and the block of a dead-letter record) or 'M' (the parts of an envelope to make), out in the
 * same order. Field numbers stand beside the code that reads and writes them; tests/support/judge.py is the other
 * half. Ends with 0 at the end of the input, with 1 and a line on standard error when anything breaks the promises
 * of the headers. One thread.
 */
#include <babelqueue/babelqueue.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 16
#define ABSENT 0xffffffffu

typedef struct record {
    int kind;
    size_t count;
    bq_str field[FIELDS_MAX];
    char *storage[FIELDS_MAX];
} record;

static void die(const char *what)
{
    fprintf(stderr, "judge: %s\n", what);
    exit(1);
}

static bool read_exactly(void *to, size_t len)
{
    return fread(to, 1, len, stdin) == len;
}

static uint32_t read_length(void)
{
    unsigned char b[4];
    if (!read_exactly(b, sizeof b))
        die("the input ends within a length");
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* False at the end of the input. Every field has an allocation of exactly its own size, so that a sanitizer sees a
 * read of one byte too many. */
static bool read_record(record *r)
{
    unsigned char head[2];
    size_t got = fread(head, 1, sizeof head, stdin);
    if (got == 0)
        return false;
    if (got != sizeof head || head[1] > FIELDS_MAX)
        die("malformed record");
    r->kind = head[0];
    r->count = head[1];
    for (size_t i = 0; i < FIELDS_MAX; i++) {
        r->field[i] = BQ_STR_NULL;
        r->storage[i] = NULL;
    }
    for (size_t i = 0; i < r->count; i++) {
        uint32_t len = read_length();
        if (len == ABSENT)
            continue;
        r->storage[i] = malloc(len ? len : 1);
        if (!r->storage[i])
            die("out of memory");
        if (!read_exactly(r->storage[i], len))
            die("the input ends within a field");
        r->field[i] = (bq_str){r->storage[i], len};
    }
    return true;
}

static void free_record(record *r)
{
    for (size_t i = 0; i < FIELDS_MAX; i++)
        free(r->storage[i]);
}

static void write_field(bq_str s)
{
    uint32_t len = s.ptr ? (uint32_t)s.len : ABSENT;
    unsigned char b[4] = {(unsigned char)len, (unsigned char)(len >> 8), (unsigned char)(len >> 16),
                          (unsigned char)(len >> 24)};
    if (fwrite(b, 1, sizeof b, stdout) != sizeof b)
        die("cannot write");
    if (s.ptr && s.len && fwrite(s.ptr, 1, s.len, stdout) != s.len)
        die("cannot write");
}

static void write_text(const char *text)
{
    write_field(bq_str_of(text));
}

static void write_number(long long value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", value);
    write_text(text);
}

static void write_head(int kind, int count)
{
    if (putchar(kind) == EOF || putchar(count) == EOF)
        die("cannot write");
}

static long long number(bq_str s)
{
    char text[32];
    if (!s.ptr || s.len >= sizeof text)
        return 0;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    return strtoll(text, NULL, 10);
}

/* ---- 'B': a body ------------------------------------------------------------------------------------------------ */

typedef bq_status (*rewriter)(const bq_envelope *env, const record *r, bq_buf *out, unsigned *dropped, bq_error *err);

static bq_dead_letter dead_letter_of(const record *r)
{
    bq_dead_letter dl = {0};
    dl.reason = r->field[2].len && r->field[2].ptr[0] == 'u' ? BQ_REASON_UNKNOWN_URN : BQ_REASON_FAILED;
    dl.error = r->field[3];
    dl.exception = r->field[4];
    dl.failed_at = number(r->field[5]);
    dl.original_queue = r->field[6];
    dl.attempts = number(r->field[7]);
    dl.lang = r->field[8];
    return dl;
}

static bq_status retry(const bq_envelope *env, const record *r, bq_buf *out, unsigned *dropped, bq_error *err)
{
    return bq_rewrite_attempts(env, number(r->field[1]), out, dropped, err);
}

static bq_status record_envelope(const bq_envelope *env, const record *r, bq_buf *out, unsigned *dropped, bq_error *err)
{
    bq_dead_letter dl = dead_letter_of(r);
    return bq_record_envelope(env, &dl, out, dropped, err);
}

static bq_status redrive(const bq_envelope *env, const record *r, bq_buf *out, unsigned *dropped, bq_error *err)
{
    (void)r;
    return bq_rewrite_redrive(env, out, dropped, err);
}

static bq_status record_poison(const bq_envelope *env, const record *r, bq_buf *out, unsigned *dropped, bq_error *err)
{
    bq_dead_letter dl = dead_letter_of(r);
    *dropped = 0;
    return bq_record_poison(env, &dl, 0, out, err);
}

static bq_status record_poison_kafka(const bq_envelope *env, const record *r, bq_buf *out, unsigned *dropped,
                                     bq_error *err)
{
    bq_dead_letter dl = dead_letter_of(r);
    *dropped = 0;
    return bq_record_poison(env, &dl, BQ_RECORD_KAFKA, out, err);
}

/* Writes what `rewrite` makes, absent when it refuses. The buffer starts with bytes of its own, which must stay
 * ("all of these append to `out`, which is as it was on failure"). */
static void write_rewritten(rewriter rewrite, const bq_envelope *env, const record *r, unsigned *dropped)
{
    bq_buf out;
    bq_error err;
    bq_buf_init(&out, 0);
    if (bq_buf_add(&out, "kept", 4) != BQ_OK)
        die("out of memory");
    bq_status status = rewrite(env, r, &out, dropped, &err);
    if (out.len < 4 || memcmp(out.ptr, "kept", 4) != 0)
        die("a rewrite changed what was in the buffer");
    if (status != BQ_OK && out.len != 4)
        die("a failed rewrite left bytes in the buffer");
    if (status != BQ_OK && status != BQ_DATA)
        die(err.text);
    write_field(status == BQ_OK ? (bq_str){out.ptr + 4, out.len - 4} : BQ_STR_NULL);
    bq_buf_clear(&out);
}

static void write_member(const bq_envelope *env, bq_field field)
{
    bq_buf scratch;
    bq_str text;
    bq_buf_init(&scratch, 0);
    if (bq_envelope_text(env, field, &scratch, &text) != BQ_OK)
        die("out of memory");
    write_field(text);
    bq_buf_clear(&scratch);
}

static void judge_body(const record *r)
{
    bq_envelope env;
    unsigned dropped = 0, ignored = 0;
    char poison[33];
    size_t bindings = 0;
    bq_verdict verdict = bq_envelope_decode(&env, r->field[0].ptr, r->field[0].len);

    for (const bq_binding *b; bindings < 32 && (b = bq_binding_at(bindings)); bindings++) {
        poison[bindings] = bq_is_poison(b, &env) ? '1' : '0';
    }
    poison[bindings] = 0;

    write_head('B', 15);
    write_text(bq_verdict_name(verdict));                    /* 0 */
    write_text(bq_envelope_reason(&env));                    /* 1 */
    write_member(&env, BQ_FIELD_URN);                        /* 2 */
    write_member(&env, BQ_FIELD_TRACE_ID);                   /* 3 */
    write_member(&env, BQ_FIELD_META_ID);                    /* 4 */
    write_member(&env, BQ_FIELD_META_QUEUE);                 /* 5 */
    write_member(&env, BQ_FIELD_DEAD_ORIGINAL_QUEUE);        /* 6 */
    write_number(bq_envelope_attempts(&env));                /* 7 */
    write_text(poison);                                      /* 8: a digit per binding, in the order of the table */
    write_rewritten(record_poison, &env, r, &ignored);       /* 9 */
    write_rewritten(record_poison_kafka, &env, r, &ignored); /* 10 */
    write_rewritten(retry, &env, r, &dropped);               /* 11 */
    write_rewritten(record_envelope, &env, r, &ignored);     /* 12 */
    write_rewritten(redrive, &env, r, &ignored);             /* 13 */
    write_number((long long)dropped);                        /* 14: BQ_DROPPED_* of the retry */
}

/* ---- 'M': an envelope to make ----------------------------------------------------------------------------------- */

static void make(const record *r)
{
    bq_envelope_spec spec = BQ_ENVELOPE_SPEC_INIT;
    bq_error err = {0};
    bq_buf out;
    spec.urn = r->field[0];
    spec.trace_id = r->field[1];
    spec.data = r->field[2];
    spec.queue = r->field[3];
    spec.lang = r->field[4];
    spec.id = r->field[5];
    spec.created_at = number(r->field[6]);
    spec.meta_extra = r->field[7];
    bq_buf_init(&out, 0);
    bq_status status = bq_envelope_make(&spec, &out, &err);
    if (status != BQ_OK && out.len != 0)
        die("a refused envelope left bytes in the buffer");
    write_head('M', 3);
    write_text(bq_status_name(status));                            /* 0 */
    write_field(status == BQ_OK ? bq_buf_str(&out) : BQ_STR_NULL); /* 1 */
    write_text(status == BQ_OK ? "" : err.text);                   /* 2 */
    bq_buf_clear(&out);
}

int main(void)
{
    record r;
    while (read_record(&r)) {
        switch (r.kind) {
        case 'B': judge_body(&r); break;
        case 'M': make(&r); break;
        default: die("unknown kind of record");
        }
        free_record(&r);
    }
    if (fflush(stdout) != 0)
        die("cannot write");
    return 0;
}
