/*
 * contract/splice.h - writing received bytes again with a few of them replaced (contract 1, "byte preservation").
 *
 * A splice walks forward over a body: what lies before `done` has been written or left out, and every byte that nobody
 * names is copied. A failed append is sticky in the buffer, so only the end asks.
 */
#ifndef BQ_CONTRACT_SPLICE_H
#define BQ_CONTRACT_SPLICE_H

#include <babelqueue/envelope.h>

#include "base/buf.h"
#include "json/scan.h"

typedef struct bq_splice {
    const char *body;
    size_t done;
    bq_buf *out;
} bq_splice;

static inline void bq_splice_keep(bq_splice *s, size_t until)
{
    bq_buf_add(s->out, s->body + s->done, until - s->done);
    s->done = until;
}

static inline void bq_splice_drop(bq_splice *s, size_t from, size_t until)
{
    bq_splice_keep(s, from);
    s->done = until;
}

static inline void bq_splice_replace(bq_splice *s, size_t from, size_t until, bq_str text)
{
    bq_splice_drop(s, from, until);
    bq_buf_add_str(s->out, text);
}

/* The members of one object on their way through a splice, each kept or dropped, in order. A dropped member takes with
 * it the comma before it and the white space around that comma; while no member has been kept yet, the comma behind
 * it. All other white space stays. */
typedef struct bq_pass {
    bq_splice *s;
    size_t last_end;  /* behind the last member's value */
    size_t drop_from; /* first byte of the dropped members before the first kept one; SIZE_MAX: none */
    bool kept;        /* any so far */
} bq_pass;

#define BQ_PASS_INIT(splice)                                                                                           \
    {                                                                                                                  \
        (splice), 0, SIZE_MAX, false                                                                                   \
    }

void bq_pass_keep(bq_pass *pass, const bq_member *m);
void bq_pass_drop(bq_pass *pass, const bq_member *m);
void bq_pass_end(bq_pass *pass);

/* True when the member's key, escapes resolved, is `name`. */
bool bq_member_is(const char *body, const bq_member *m, bq_str name);

/* Offset of an object body's closing brace, the white space behind it skipped. */
size_t bq_closing_brace(const bq_envelope *env);
/* Whether anything but white space is between the braces. */
bool bq_has_members(const bq_envelope *env, size_t brace);

/* Appends `"dead_letter":{...}`, members in the order of contract 1, with `reason`. */
void bq_add_dead_letter(bq_buf *out, const bq_dead_letter *dl, bq_reason reason);
/* How much that will take at least, for reserving. */
size_t bq_dead_letter_size(const bq_dead_letter *dl);

/* The end of an append to `out`, whose length was `before`: BQ_OK, or `out` as it was and the reason in `err`. */
bq_status bq_splice_finish(bq_buf *out, size_t before, bq_error *err);

#endif
