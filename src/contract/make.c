/*
 * contract/make.c - a new envelope (contract 1): compact, members in their order, the caller's tokens as they are.
 *
 * What was written is decoded once before it is handed out. That judges `data` (one object of finite numbers, not
 * nested too deep inside of the envelope) by the very rules that its readers will apply.
 *
 * Thread rule: pure functions over the caller's buffer, but for the clock and the random ids of fields not given.
 */
#include <babelqueue/json.h>

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "contract/props.h"
#include "contract/splice.h"

static bq_status check_text(const char *what, bq_str text, bq_error *err)
{
    size_t bad = bq_utf8_invalid(text.ptr, text.len);
    if (bad < text.len)
        return bq_fail(err, BQ_INVALID, "%s is not valid UTF-8 at byte %zu", what, bad);
    return BQ_OK;
}

static bq_status check_spec(const bq_envelope_spec *spec, bq_error *err)
{
    const struct {
        const char *what;
        bq_str text;
    } texts[] = {
        {"the URN", spec->urn},       {"the trace id", spec->trace_id}, {"the queue's name", spec->queue},
        {"the language", spec->lang}, {"the message id", spec->id},
    };
    if (bq_str_blank(spec->urn))
        return bq_fail(err, BQ_INVALID, "a message needs a URN that is not blank");
    if (spec->created_at < 0)
        return bq_fail(err, BQ_INVALID, "created_at is before 1970");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bq_status status = check_text(texts[i].what, texts[i].text, err);
        if (status != BQ_OK)
            return status;
    }
    return BQ_OK;
}

static void add_member(bq_buf *out, const char *key, bq_str text)
{
    bq_buf_add_str(out, bq_str_of(key));
    bq_json_add_string(out, text);
}

/* The text, or a fresh UUID where there is none. */
static void add_id(bq_buf *out, const char *key, bq_str text)
{
    char fresh[BQ_UUID_SIZE];
    if (text.len == 0) {
        bq_uuid4(fresh);
        text = bq_str_of(fresh);
    }
    add_member(out, key, text);
}

static bq_status check_meta_keys(bq_str object, bq_error *err)
{
    static const char *const RESERVED[] = {"id",       "queue",  "lang", "schema_version", "created_at", "max_retries",
                                           "attempts", "source", "ts"};
    bq_members it;
    bq_member m;
    bq_members_start(&it, object.ptr, object.len, 0);
    while (bq_members_next(&it, &m)) {
        for (size_t i = 0; i < sizeof RESERVED / sizeof RESERVED[0]; i++) {
            if (bq_member_is(object.ptr, &m, bq_str_of(RESERVED[i])))
                return bq_fail(err, BQ_INVALID, "/meta/%s is %s", RESERVED[i],
                               i < 5 ? "set by the envelope itself" : "a forbidden key");
        }
    }
    return BQ_OK;
}

/* Appends the caller's members of `meta`, behind ours. */
static bq_status add_meta_extra(bq_buf *out, bq_str extra, bq_error *err)
{
    if (bq_str_blank(extra))
        return BQ_OK;
    size_t at = out->len;
    bq_status status = bq_json_add_compact(out, extra, err);
    if (status != BQ_OK) {
        bq_error_prefix(err, "additional members of meta");
        return status;
    }
    if (out->ptr[at] != '{')
        return bq_fail(err, BQ_DATA, "the additional members of meta are not a JSON object");
    status = check_meta_keys((bq_str){out->ptr + at, out->len - at}, err);
    if (status != BQ_OK)
        return status;
    if (out->ptr[at + 1] == '}') {
        bq_buf_truncate(out, at);
        return BQ_OK;
    }
    /* {"a":1} becomes ,"a":1 */
    out->ptr[at] = ',';
    bq_buf_truncate(out, out->len - 1);
    return BQ_OK;
}

static bq_status add_data(bq_buf *out, bq_str data, bq_error *err)
{
    size_t at = out->len;
    bq_status status = bq_json_add_compact(out, data, err);
    if (status != BQ_OK)
        bq_error_prefix(err, "data");
    else if (out->ptr[at] != '{')
        status = bq_fail(err, BQ_DATA, "data is not a JSON object");
    return status;
}

static bq_status add_envelope(const bq_envelope_spec *spec, bq_buf *out, bq_error *err)
{
    add_member(out, "{\"job\":", bq_str_trim(spec->urn));
    add_id(out, ",\"trace_id\":", bq_str_trim(spec->trace_id));
    bq_buf_add_lit(out, ",\"data\":");
    bq_status status = add_data(out, spec->data, err);
    if (status != BQ_OK)
        return status;
    add_id(out, ",\"meta\":{\"id\":", spec->id);
    add_member(out, ",\"queue\":", spec->queue.len ? spec->queue : BQ_STR("default"));
    add_member(out, ",\"lang\":", spec->lang.len ? spec->lang : BQ_STR("c"));
    bq_buf_add_lit(out, ",\"schema_version\":1,\"created_at\":");
    bq_json_add_int(out, spec->created_at ? spec->created_at : bq_epoch_ms());
    status = add_meta_extra(out, spec->meta_extra, err);
    if (status == BQ_OK)
        status = bq_buf_add_lit(out, "},\"attempts\":0}");
    return status;
}

bq_status bq_envelope_make(const bq_envelope_spec *given, bq_buf *out, bq_error *err)
{
    /* A program built against an older header has a shorter struct; what it lacks is absent. */
    bq_envelope_spec whole = {0};
    if (given->size == 0)
        return bq_fail(err, BQ_INVALID, "bq_envelope_spec was not initialised");
    memcpy(&whole, given, given->size < sizeof whole ? given->size : sizeof whole);
    const bq_envelope_spec *spec = &whole;
    bq_status status = check_spec(spec, err);
    if (status != BQ_OK)
        return status;
    size_t before = out->len;
    bq_buf_hint(out, 320 + spec->urn.len + spec->data.len + spec->queue.len + spec->meta_extra.len);
    status = add_envelope(spec, out, err);
    if (out->failed)
        return bq_splice_finish(out, before, err);
    if (status == BQ_OK) {
        bq_envelope env;
        if (bq_envelope_decode(&env, out->ptr + before, out->len - before) != BQ_VERDICT_OK)
            status = bq_fail(err, BQ_DATA, "not an envelope: %s", bq_envelope_reason(&env));
    }
    if (status != BQ_OK)
        bq_buf_truncate(out, before);
    return status;
}
