/*
 * decode_model.h - contract 2 once more, written to be read, not to be fast: a recursive parser that builds a tree, and
 * the verdict as a walk over it. The decoder is compared with it on generated bodies (test_decode_model.c) and by the
 * fuzzer (tests/fuzz/fuzz_decode.c). It shares no code with the library: UTF-8 goes code point by code point, numbers
 * through strtoll and strtod.
 */
#ifndef TESTS_DECODE_MODEL_H
#define TESTS_DECODE_MODEL_H

#include <babelqueue/envelope.h>

typedef struct model {
    bq_verdict verdict;
    unsigned seen;
    uint32_t present, is_null;
    struct {
        size_t off, len;
    } span[BQ_FIELD_COUNT_];
    /* Texts of string members, escapes resolved; NULL when the member is no string. Malloced. */
    char *text[BQ_FIELD_COUNT_];
    size_t text_len[BQ_FIELD_COUNT_];
} model;

void model_decode(model *m, const char *body, size_t len);
void model_clear(model *m);

/* NULL when the decoder's answer is the model's, else what differs. */
const char *model_differs(const model *m, const bq_envelope *env);

#endif
