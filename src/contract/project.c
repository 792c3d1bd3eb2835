/*
 * contract/project.c - the envelope's members as native properties (contract 7): one loop over the binding's row.
 *
 * A body that is no JSON object has nothing to project but the constants and the count; of one whose members have
 * wrong types, the members that are right are projected (contract 3, "what its members' types allow").
 *
 * Thread rule: pure functions.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "contract/props.h"

#define DECIMAL_MAX 20 /* "-9223372036854775808" */

/* Room in `scratch` for every text that will be taken out of `env`, so that none of them moves another. */
static bq_status reserve_texts(const bq_envelope *env, bq_buf *scratch)
{
    /* The identity may be taken twice, and has a span of its own beside that of its member. */
    size_t total = 2 * (DECIMAL_MAX + 1);
    for (unsigned i = 0; i < BQ_FIELD_COUNT_; i++) {
        if (env->escaped >> i & 1)
            total += env->span[i].len + 1;
    }
    return bq_buf_reserve(scratch, total);
}

static bool is_text_type(bq_projected_as as)
{
    return as == BQ_AS_STRING || as == BQ_AS_NUMBER;
}

static void set_text(bq_prop *prop, bq_projected_as as, bq_str text)
{
    prop->type = as == BQ_AS_NUMBER ? BQ_PROP_NUMBER : BQ_PROP_STRING;
    prop->text = text;
}

static bq_status set_number(bq_prop *prop, bq_projected_as as, int64_t value, bq_buf *scratch)
{
    if (!is_text_type(as)) {
        prop->type = as == BQ_AS_INT ? BQ_PROP_INT : BQ_PROP_LONG;
        prop->num = value;
        return BQ_OK;
    }
    char digits[DECIMAL_MAX + 1];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)value);
    size_t at = scratch->len;
    bq_status status = bq_buf_add(scratch, digits, (size_t)len);
    if (status == BQ_OK)
        set_text(prop, as, (bq_str){scratch->ptr + at, (size_t)len});
    return status;
}

/* A number among the constants is one digit. */
static void set_constant(bq_prop *prop, bq_projected_as as, const char *text)
{
    if (is_text_type(as)) {
        set_text(prop, as, bq_str_of(text));
        return;
    }
    prop->type = as == BQ_AS_INT ? BQ_PROP_INT : BQ_PROP_LONG;
    prop->num = text[0] - '0';
}

/* Fills `prop`; `*there` is false when the body lacks the field or it may not be projected. */
static bq_status project_one(const bq_projection *row, const bq_envelope *env, int64_t attempts, bq_prop *prop,
                             bool *there, bq_buf *scratch)
{
    *prop = (bq_prop){.place = row->place, .name = bq_str_of(row->name)};
    *there = true;
    if (row->constant) {
        set_constant(prop, row->as, row->constant);
        return BQ_OK;
    }
    if (row->field == BQ_FIELD_ATTEMPTS)
        return set_number(prop, row->as, attempts, scratch);
    if (!bq_envelope_has(env, row->field)) {
        *there = false;
        return BQ_OK;
    }
    if (row->field == BQ_FIELD_META_SCHEMA_VERSION) {
        *there = bq_envelope_int(env, row->field, 0) == 1;
        return *there ? set_number(prop, row->as, 1, scratch) : BQ_OK;
    }
    if (row->field == BQ_FIELD_META_CREATED_AT) {
        int64_t value = bq_envelope_int(env, row->field, INT64_MIN);
        *there = value != INT64_MIN;
        return *there ? set_number(prop, row->as, value, scratch) : BQ_OK;
    }
    bq_str text;
    bq_status status = bq_envelope_text(env, row->field, scratch, &text);
    /* Empty values are dropped, as of every header (contract 5); SQS would refuse one. */
    *there = text.len > 0;
    set_text(prop, row->as, text);
    return status;
}

bq_status bq_project(const bq_binding *binding, const bq_envelope *env, int64_t attempts, bq_prop out[BQ_PROJECTED_MAX],
                     size_t *count, bq_buf *scratch, bq_error *err)
{
    *count = 0;
    bq_status status = reserve_texts(env, scratch);
    if (status != BQ_OK)
        return bq_fail_buffer(err, status);
    for (size_t i = 0; i < binding->projection_count; i++) {
        bool there;
        status = project_one(&binding->projection[i], env, attempts, &out[*count], &there, scratch);
        if (status != BQ_OK)
            return bq_fail_buffer(err, status);
        if (there)
            ++*count;
    }
    return BQ_OK;
}
