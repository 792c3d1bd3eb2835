/* sample.h - bodies that several tests of the contract use. */
#ifndef TESTS_CONTRACT_SAMPLE_H
#define TESTS_CONTRACT_SAMPLE_H

#include <babelqueue/envelope.h>

#include <string.h>

#define SAMPLE_URN "urn:babel:orders:created"
#define SAMPLE_TRACE "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b"
#define SAMPLE_ID "f1e2d3c4-b5a6-4789-90ab-cdef01234567"

/* A whole envelope; `attempts` and what follows it up to the last brace are the caller's. */
#define SAMPLE_WITH(tail)                                                                                              \
    "{\"job\":\"" SAMPLE_URN "\",\"trace_id\":\"" SAMPLE_TRACE                                                         \
    "\",\"data\":{\"order_id\":1042},\"meta\":{\"id\":\"" SAMPLE_ID                                                    \
    "\",\"queue\":\"orders\",\"lang\":\"php\",\"schema_version\":1,\"created_at\":1749132727000}" tail "}"
#define SAMPLE SAMPLE_WITH(",\"attempts\":2")

static inline bq_envelope sample_decode(const char *body)
{
    bq_envelope env;
    bq_envelope_decode(&env, body, strlen(body));
    return env;
}

#endif
