/*
 * contract/reconcile.c - the attempts of a delivery (contract 3.2 and the column of section 7), and what its binding
 * treats as poison (section 2).
 *
 * Thread rule: pure functions.
 */
#include "contract/props.h"

/* 7.6 and 7.8: "valid only as ASCII digits that fit int32". */
static bool header_count(const bq_prop *prop, int64_t *out)
{
    if (!prop || !bq_prop_is_text(prop) || prop->text.len == 0)
        return false;
    int64_t value = 0;
    for (size_t i = 0; i < prop->text.len; i++) {
        unsigned digit = (unsigned)(uint8_t)prop->text.ptr[i] - '0';
        if (digit > 9)
            return false;
        value = value * 10 + digit;
        if (value > INT32_MAX)
            return false;
    }
    *out = value;
    return true;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int32_t bq_reconcile(const bq_binding *binding, const bq_envelope *env, const bq_prop *props, size_t count,
                     int64_t native_count)
{
    int64_t native = larger(native_count, 0), attempts = bq_envelope_attempts(env), header;
    switch (binding->attempts) {
    case BQ_ATTEMPTS_BODY: break;
    case BQ_ATTEMPTS_NATIVE: attempts = native; break;
    case BQ_ATTEMPTS_MAX_NATIVE: attempts = larger(attempts, native); break;
    case BQ_ATTEMPTS_MAX_NATIVE_1: attempts = larger(attempts, native - 1); break;
    case BQ_ATTEMPTS_HEADER:
    case BQ_ATTEMPTS_HEADER_MAX:
        if (header_count(bq_prop_find(props, count, binding->attempts_place, bq_str_of(binding->attempts_name)),
                         &header))
            attempts = header;
        if (binding->attempts == BQ_ATTEMPTS_HEADER_MAX)
            attempts = larger(attempts, native);
        break;
    }
    return attempts > INT32_MAX ? INT32_MAX : (int32_t)attempts;
}

bool bq_is_poison(const bq_binding *binding, const bq_envelope *env)
{
    if (binding->poison == BQ_POISON_CONFORMANT)
        return env->verdict != BQ_VERDICT_OK;
    switch (env->verdict) {
    case BQ_VERDICT_POISON_UTF8:
    case BQ_VERDICT_POISON_JSON:
    case BQ_VERDICT_POISON_TYPE: return true;
    case BQ_VERDICT_POISON_ROOT: return !(env->seen & BQ_SEEN_NULL_ROOT);
    default: return (env->seen & BQ_SEEN_JOB_BAD_TYPE) != 0;
    }
}
