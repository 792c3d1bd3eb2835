/*
 * contract/splice.c - see splice.h.
 *
 * Thread rule: pure functions over the caller's buffer.
 */
#include "contract/splice.h"

#include <babelqueue/json.h>

#include "contract/props.h"

void bq_pass_keep(bq_pass *pass, const bq_member *m)
{
    if (pass->drop_from != SIZE_MAX) {
        bq_splice_drop(pass->s, pass->drop_from, m->off);
        pass->drop_from = SIZE_MAX;
    }
    pass->kept = true;
    pass->last_end = m->value + m->value_len;
}

void bq_pass_drop(bq_pass *pass, const bq_member *m)
{
    size_t end = m->value + m->value_len;
    if (pass->kept)
        bq_splice_drop(pass->s, pass->last_end, end);
    else if (pass->drop_from == SIZE_MAX)
        pass->drop_from = m->off;
    pass->last_end = end;
}

void bq_pass_end(bq_pass *pass)
{
    if (pass->drop_from != SIZE_MAX)
        bq_splice_drop(pass->s, pass->drop_from, pass->last_end);
}

bool bq_member_is(const char *body, const bq_member *m, bq_str name)
{
    return bq_scan_is((const uint8_t *)body + m->key, m->key_len, name);
}

static bool is_space(char c)
{
    return (bq_scan_class[(uint8_t)c] & BQ_CLASS_SPACE) != 0;
}

size_t bq_closing_brace(const bq_envelope *env)
{
    size_t at = env->len - 1;
    while (is_space(env->body[at]))
        at--;
    return at;
}

bool bq_has_members(const bq_envelope *env, size_t brace)
{
    /* A value never ends in an opening brace, so that one behind the white space is the object's own. */
    size_t at = brace - 1;
    while (is_space(env->body[at]))
        at--;
    return env->body[at] != '{';
}

static void add_text_or_null(bq_buf *out, bq_str text)
{
    if (text.ptr)
        bq_json_add_string(out, text);
    else
        bq_buf_add_lit(out, "null");
}

void bq_add_dead_letter(bq_buf *out, const bq_dead_letter *dl, bq_reason reason)
{
    bq_buf_add_lit(out, "\"dead_letter\":{\"reason\":");
    bq_json_add_string(out, bq_str_of(bq_reason_name(reason)));
    bq_buf_add_lit(out, ",\"error\":");
    add_text_or_null(out, dl->error);
    bq_buf_add_lit(out, ",\"exception\":");
    add_text_or_null(out, dl->exception);
    bq_buf_add_lit(out, ",\"failed_at\":");
    bq_json_add_int(out, dl->failed_at);
    bq_buf_add_lit(out, ",\"original_queue\":");
    bq_json_add_string(out, dl->original_queue);
    bq_buf_add_lit(out, ",\"attempts\":");
    bq_json_add_int(out, dl->attempts);
    bq_buf_add_lit(out, ",\"lang\":");
    bq_json_add_string(out, dl->lang.ptr ? dl->lang : BQ_STR("c"));
    bq_buf_add_byte(out, '}');
}

size_t bq_dead_letter_size(const bq_dead_letter *dl)
{
    return 192 + dl->error.len + dl->exception.len + dl->original_queue.len + dl->lang.len;
}

bq_status bq_splice_finish(bq_buf *out, size_t before, bq_error *err)
{
    bq_status status = bq_buf_reserve(out, 0);
    if (status == BQ_OK)
        return BQ_OK;
    bq_buf_truncate(out, before);
    return bq_fail_buffer(err, status);
}
