/*
 * fuzz_decode.c - any bytes through bq_envelope_decode and every reader of its result, compared with the model of
 * contract 2 (unit/contract/decode_model.h). The body is a copy of exactly its length, so that the sanitizer sees
 * every byte read outside of it.
 */
#include "unit/contract/decode_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    model m;
    bq_envelope env;
    char *body = malloc(size ? size : 1);
    if (!body)
        return 0;
    memcpy(body, data, size);
    bq_envelope_decode(&env, body, size);
    model_decode(&m, body, size);
    const char *what = model_differs(&m, &env);
    if (what) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
    for (unsigned i = 0; i < BQ_FIELD_COUNT_; i++)
        (void)bq_envelope_int(&env, (bq_field)i, -1);
    if (bq_envelope_attempts(&env) < 0)
        abort();
    model_clear(&m);
    free(body);
    return 0;
}
