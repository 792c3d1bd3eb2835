/*
 * babelqueue/envelope.h - the envelope (contract sections 1, 2 and 4): make one, judge a received body, read its
 * members, and write it again with only the members changed that the operation changes.
 *
 * Pure functions: no I/O, no threads, no clock but where a field says so. Decoding allocates nothing: a bq_envelope
 * is a set of views into the received bytes, which must outlive it and must not change meanwhile.
 */
#ifndef BABELQUEUE_ENVELOPE_H
#define BABELQUEUE_ENVELOPE_H

#include <babelqueue/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decoding ------------------------------------------------------------------------------------------------ */

/* One strict pass decides (contract section 2). In order of precedence, the poison ones from UTF8 down. */
typedef enum bq_verdict {
    BQ_VERDICT_OK,
    BQ_VERDICT_NONCONFORMANT,   /* decodes and has an identity, but breaks the envelope's rules */
    BQ_VERDICT_POISON_UTF8,     /* not valid UTF-8 */
    BQ_VERDICT_POISON_JSON,     /* not exactly one JSON value */
    BQ_VERDICT_POISON_ROOT,     /* the value is not an object */
    BQ_VERDICT_POISON_TYPE,     /* a known member has the wrong type */
    BQ_VERDICT_POISON_IDENTITY, /* neither a valid `job` nor a valid `urn` */
    BQ_VERDICT_COUNT_
} bq_verdict;

BQ_API const char *bq_verdict_name(bq_verdict verdict); /* "ok", "nonconformant", "poison/utf8", ... */

/* The envelope's own members. BQ_FIELD_URN is the identity: `job` if its last occurrence is valid, else `urn` if its
 * last one is. */
#define BQ_FIELD_MAP(X)                                                                                                \
    X(URN, "urn")                                                                                                      \
    X(JOB, "job")                                                                                                      \
    X(URN_ALIAS, "urn")                                                                                                \
    X(TRACE_ID, "trace_id")                                                                                            \
    X(DATA, "data")                                                                                                    \
    X(META, "meta")                                                                                                    \
    X(ATTEMPTS, "attempts")                                                                                            \
    X(DEAD_LETTER, "dead_letter")                                                                                      \
    X(META_ID, "id")                                                                                                   \
    X(META_QUEUE, "queue")                                                                                             \
    X(META_LANG, "lang")                                                                                               \
    X(META_SCHEMA_VERSION, "schema_version")                                                                           \
    X(META_CREATED_AT, "created_at")                                                                                   \
    X(DEAD_REASON, "reason")                                                                                           \
    X(DEAD_ERROR, "error")                                                                                             \
    X(DEAD_EXCEPTION, "exception")                                                                                     \
    X(DEAD_FAILED_AT, "failed_at")                                                                                     \
    X(DEAD_ORIGINAL_QUEUE, "original_queue")                                                                           \
    X(DEAD_ATTEMPTS, "attempts")                                                                                       \
    X(DEAD_LANG, "lang")

typedef enum bq_field {
#define BQ_FIELD_ENUM(name, text) BQ_FIELD_##name,
    BQ_FIELD_MAP(BQ_FIELD_ENUM)
#undef BQ_FIELD_ENUM
        BQ_FIELD_COUNT_
} bq_field;

/* What decoding saw besides the verdict. */
enum {
    BQ_SEEN_NULL_ROOT = 1 << 0,      /* the body is a bare `null` (contract 7.8) */
    BQ_SEEN_LONE_SURROGATE = 1 << 1, /* an unpaired \ud800..\udfff escape: never spliced (section 4) */
    BQ_SEEN_NONFINITE = 1 << 2,      /* a number inside `data` is no finite double */
    BQ_SEEN_JOB_NOT_STRING = 1 << 3, /* a `job` that is no string: ignored, with a warning */
    BQ_SEEN_REPEATED = 1 << 4,       /* a member of the envelope occurs more than once */
    BQ_SEEN_FORBIDDEN = 1 << 5,      /* `timestamp`, or a forbidden key of `meta` */
    BQ_SEEN_URN_MEMBER = 1 << 6,     /* a top-level `urn` member */
    BQ_SEEN_DEAD_LETTER = 1 << 7,    /* a top-level `dead_letter` member, whatever its type */
    BQ_SEEN_JOB_BAD_TYPE = 1 << 8,   /* a `job` neither a string nor null (poison/type on Kafka) */
};

/* A decoded body: views into its bytes. Read it through the functions below; the members are public only so that
 * it can live on the caller's stack. Of a repeated member the last occurrence counts. */
typedef struct bq_envelope {
    const char *body;
    size_t len;
    bq_verdict verdict;
    unsigned seen;    /* BQ_SEEN_* */
    uint32_t present; /* bit per bq_field: there is such a member and it is not null */
    uint32_t escaped; /* bit per bq_field: a string with at least one escape */
    uint32_t is_null; /* bit per bq_field: the member is there and null */
    size_t error_offset;
    const char *reason; /* static English text, "" when the verdict is ok */
    struct {
        size_t off;          /* strings: first byte after the quote; else first byte of the value */
        size_t len;          /* strings: without the quotes */
    } span[BQ_FIELD_COUNT_]; /* undefined where the bits of neither `present` nor `is_null` say that there is one */
    uint64_t reserved_[8];
} bq_envelope;

/* Judges `body` and fills `env` (never fails: bad bytes are a verdict). O(len), no allocation, no recursion. */
BQ_API bq_verdict bq_envelope_decode(bq_envelope *env, const void *body, size_t len);

/* The same for a body that came with no value at all (a Kafka record with a null value, contract 7.8): judged as
 * an empty body. */
BQ_API bq_verdict bq_envelope_decode_null(bq_envelope *env);

/* Why the verdict is what it is, in English: "trailing bytes after the value". Static. "" when ok. */
BQ_API const char *bq_envelope_reason(const bq_envelope *env);

/* True when the member is there and not null. */
BQ_API bool bq_envelope_has(const bq_envelope *env, bq_field field);

/* The member's bytes as received: a string without its quotes and still escaped, an object with its braces.
 * Absent view when missing or null. */
BQ_API bq_str bq_envelope_raw(const bq_envelope *env, bq_field field);

/* A string member as text, escapes resolved (an unpaired surrogate escape becomes U+FFFD here, and only here). A
 * view into the body when there is nothing to resolve, else into `scratch`, an initialised buffer that grows at
 * most once per envelope, however often it is asked: texts of this envelope that were read earlier stay valid until
 * it is reset or another envelope's are read into it. Missing, null or not a string: an absent view and BQ_OK. */
BQ_API bq_status bq_envelope_text(const bq_envelope *env, bq_field field, bq_buf *scratch, bq_str *out);

/* An integer member, `otherwise` when it is missing, null or not an int64 literal. */
BQ_API int64_t bq_envelope_int(const bq_envelope *env, bq_field field, int64_t otherwise);

/* The body's attempts as contract 3.2 reads them: clamped to 0..2^31-1; absent, negative or unparseable is 0. */
BQ_API int32_t bq_envelope_attempts(const bq_envelope *env);

/* ---- making -------------------------------------------------------------------------------------------------- */

typedef struct bq_envelope_spec {
    size_t size;        /* sizeof(bq_envelope_spec), set by the INIT macro */
    bq_str urn;         /* trimmed; blank is an error */
    bq_str trace_id;    /* trimmed; absent or blank: a fresh UUIDv4 */
    bq_str data;        /* one JSON object; its tokens are kept byte for byte, white space between them is dropped */
    bq_str queue;       /* meta.queue; empty: "default" */
    bq_str lang;        /* meta.lang; absent: "c" */
    bq_str id;          /* meta.id; absent: a fresh UUIDv4 */
    int64_t created_at; /* meta.created_at, epoch ms; 0: now */
    bq_str meta_extra;  /* absent, or one JSON object whose members are appended to meta; a core or forbidden key is
                           an error that names its RFC 6901 pointer */
} bq_envelope_spec;

#define BQ_ENVELOPE_SPEC_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(bq_envelope_spec), {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, 0,                 \
        {                                                                                                              \
            NULL, 0                                                                                                    \
        }                                                                                                              \
    }

/* Appends the compact envelope to `out` (contract section 1). On failure `out` is as it was.
 * BQ_INVALID: blank URN, bytes that are not UTF-8, a meta key. BQ_DATA: `data` is not one JSON object of finite
 * numbers. */
BQ_API bq_status bq_envelope_make(const bq_envelope_spec *spec, bq_buf *out, bq_error *err) BQ_MUST_CHECK;

/* ---- writing a received body again (sections 1 and 4) --------------------------------------------------------- */

/* What a rewrite dropped, one bit each, for the caller's warnings. */
enum {
    BQ_DROPPED_TIMESTAMP = 1 << 0,        /* top-level `timestamp` */
    BQ_DROPPED_META_MAX_RETRIES = 1 << 1, /* meta.max_retries */
    BQ_DROPPED_META_ATTEMPTS = 1 << 2,    /* meta.attempts */
    BQ_DROPPED_META_SOURCE = 1 << 3,      /* meta.source */
    BQ_DROPPED_META_TS = 1 << 4,          /* meta.ts */
    BQ_DROPPED_URN = 1 << 5,              /* top-level `urn`, the identity being `job` */
};

/* The pointer of one BQ_DROPPED_ bit: "/meta/max_retries". */
BQ_API const char *bq_dropped_pointer(unsigned bit);

typedef enum bq_reason { BQ_REASON_FAILED, BQ_REASON_UNKNOWN_URN, BQ_REASON_POISON } bq_reason;
BQ_API const char *bq_reason_name(bq_reason reason); /* "failed" */

/* The dead_letter member. Strings are text (they are escaped on the way out); bytes in them that are not UTF-8
 * become U+FFFD, since they describe a failure and are no part of the message. */
typedef struct bq_dead_letter {
    bq_reason reason;
    bq_str error;          /* absent: null */
    bq_str exception;      /* absent: null */
    int64_t failed_at;     /* epoch ms */
    bq_str original_queue; /* text */
    int64_t attempts;
    bq_str lang; /* absent: "c" */
} bq_dead_letter;

/* All of these append to `out`, which is as it was on failure and must not hold the body itself. `dropped`, when not
 * NULL, receives BQ_DROPPED_*. They need a body that is an object whose members have the right types (else BQ_DATA),
 * except bq_record_poison; an identity is not needed, since Kafka routes by a header. Of a bare `null` (contract 7.8)
 * the retried body is the same bytes, and the record is {"raw":"null","dead_letter":{...}}. */

/* Retry: `attempts` set, every occurrence; nothing else changes but what section 1 says of `urn` and forbidden
 * members. */
BQ_API bq_status bq_rewrite_attempts(const bq_envelope *env, int64_t attempts, bq_buf *out, unsigned *dropped,
                                     bq_error *err) BQ_MUST_CHECK;

/* The record of an envelope: `attempts` = dl->attempts, every `dead_letter` gone, the new one last. */
BQ_API bq_status bq_record_envelope(const bq_envelope *env, const bq_dead_letter *dl, bq_buf *out, unsigned *dropped,
                                    bq_error *err) BQ_MUST_CHECK;

/* Redrive: every `dead_letter` gone, `attempts` 0. */
BQ_API bq_status bq_rewrite_redrive(const bq_envelope *env, bq_buf *out, unsigned *dropped,
                                    bq_error *err) BQ_MUST_CHECK;

enum {
    BQ_RECORD_KAFKA = 1 << 0, /* section 4: an existing dead_letter is replaced; a non-finite number means wrap */
};

/* The record of a poison body: splice where the bytes allow it, else wrap. `env` is the decoded body (its verdict
 * and flags decide); `dl->reason` is ignored: it is poison. */
BQ_API bq_status bq_record_poison(const bq_envelope *env, const bq_dead_letter *dl, unsigned flags, bq_buf *out,
                                  bq_error *err) BQ_MUST_CHECK;

/* "Undecodable BabelQueue body: <cause>", the `error` of a poison record, appended to `out`. */
BQ_API bq_status bq_poison_error(const bq_envelope *env, bq_buf *out) BQ_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
