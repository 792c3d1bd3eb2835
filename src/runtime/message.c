/*
 * runtime/message.c - making the operation that publishes one message (contract 1, 5 and 7). See message.h.
 *
 * Thread rule: the caller's thread; the object is its own until it is queued.
 */
#include "runtime/message.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/utf8.h"

#include <string.h>

enum { KEEP_BYTES = 16384 }; /* of each buffer, when the object goes back to the pool */

bq_message *bq_message_new(void)
{
    bq_message *m = bq_calloc(1, sizeof *m);
    if (m) {
        bq_buf_init(&m->body, 0);
        bq_buf_init(&m->texts, 0);
        bq_buf_init(&m->scratch, 0);
    }
    return m;
}

void bq_message_free(bq_message *m)
{
    if (!m)
        return;
    bq_buf_clear(&m->body);
    bq_buf_clear(&m->texts);
    bq_buf_clear(&m->scratch);
    bq_free(m->props);
    bq_free(m);
}

static void shrink(bq_buf *buf)
{
    if (buf->cap > KEEP_BYTES)
        bq_buf_clear(buf);
    else
        bq_buf_reset(buf);
}

void bq_message_reset(bq_message *m)
{
    shrink(&m->body);
    shrink(&m->texts);
    shrink(&m->scratch);
    memset(&m->op, 0, sizeof m->op);
    m->offered = m->refused = m->answered = m->told = false;
    m->done = NULL;
    m->arg = NULL;
    m->next = m->older = m->newer = NULL;
}

static bq_status check_delay(const bq_link *link, const bq_message_spec *spec, bq_error *err)
{
    int64_t delay = spec->delay_ms;
    if (delay < 0)
        return bq_fail(err, BQ_INVALID, "a delay cannot be negative");
    if (delay == 0)
        return BQ_OK;
    if (!(link->caps & BQ_CAP_PUBLISH_DELAY))
        return bq_fail(err, BQ_UNSUPPORTED, "%s cannot delay a message", link->ops->name);
    if (link->binding->delay != BQ_DELAY_SQS)
        return BQ_OK;
    if (delay % 1000 || delay > 900 * 1000)
        return bq_fail(err, BQ_INVALID, "SQS delays by whole seconds, 900 at most");
    if (spec->queue.len > 5 && memcmp(spec->queue.ptr + spec->queue.len - 5, ".fifo", 5) == 0)
        return bq_fail(err, BQ_INVALID, "a FIFO queue cannot delay a message");
    return BQ_OK;
}

static bq_status check(const bq_link *link, const bq_message_spec *spec, bq_error *err)
{
    if (bq_str_blank(spec->queue))
        return bq_fail(err, BQ_INVALID, "no queue is named");
    if (bq_utf8_invalid(spec->queue.ptr, spec->queue.len) < spec->queue.len ||
        memchr(spec->queue.ptr, 0, spec->queue.len))
        return bq_fail(err, BQ_INVALID, "the queue's name is not valid text");
    for (size_t i = 0; i < spec->header_count; i++) {
        const bq_header *h = &spec->headers[i];
        if (bq_utf8_invalid(h->name.ptr, h->name.len) < h->name.len ||
            bq_utf8_invalid(h->value.ptr, h->value.len) < h->value.len)
            return bq_fail(err, BQ_INVALID, "header %zu is not valid UTF-8", i + 1);
    }
    return check_delay(link, spec, err);
}

static void set_id(bq_message *m, bq_str id)
{
    size_t n = bq_utf8_cut(id.ptr, id.len, BQ_ID_SIZE - 1);
    memcpy(m->id, id.ptr ? id.ptr : "", n);
    m->id[n] = 0;
}

static bq_status make_body(bq_message *m, const bq_message_spec *spec, bq_str lang, bq_error *err)
{
    if (spec->body.ptr)
        return bq_buf_add(&m->body, spec->body.ptr, spec->body.len) ? bq_fail_nomem(err) : BQ_OK;
    char id[BQ_UUID_SIZE];
    bq_envelope_spec e = BQ_ENVELOPE_SPEC_INIT;
    e.urn = spec->urn;
    e.trace_id = spec->trace_id;
    e.data = spec->data;
    e.queue = spec->queue;
    e.lang = lang;
    e.id = spec->id;
    e.meta_extra = spec->meta_extra;
    e.created_at = bq_epoch_ms();
    if (!spec->id.len) {
        bq_uuid4(id);
        e.id = bq_str_of(id);
    }
    return bq_envelope_make(&e, &m->body, err);
}

/* Copies a text into the buffer that was reserved for all of them. */
static bq_str keep(bq_message *m, bq_str s)
{
    if (!s.ptr)
        return s;
    size_t at = m->texts.len;
    (void)bq_buf_add(&m->texts, s.ptr, s.len);
    return (bq_str){m->texts.ptr + at, s.len};
}

static bq_status reserve(bq_message *m, const bq_link *link, const bq_message_spec *spec, bq_error *err)
{
    size_t bytes = spec->queue.len + spec->key.len + spec->group.len + 1;
    size_t props = link->binding->projection_count + spec->header_count;
    for (size_t i = 0; i < spec->header_count; i++)
        bytes += spec->headers[i].name.len + spec->headers[i].value.len;
    if (bq_buf_reserve(&m->texts, bytes))
        return bq_fail_nomem(err);
    if (props > m->prop_cap) {
        bq_prop *more = bq_realloc_array(m->props, props, sizeof *more);
        if (!more)
            return bq_fail_nomem(err);
        m->props = more;
        m->prop_cap = props;
    }
    return BQ_OK;
}

/* Where the names of many headers stand, by hash: whoever writes headers may be a stranger, and comparing each with all
 * before it would let one message hold its publisher for minutes. */
typedef struct header_index {
    size_t *places; /* 1 + the place in `props`, 0: free; NULL: few enough to look through */
    size_t mask;
    uint64_t seed; /* nobody can choose names that collide */
} header_index;

enum { FEW_HEADERS = 16 };

static bq_status index_init(header_index *index, size_t headers, bq_error *err)
{
    size_t size = 2;
    *index = (header_index){NULL, 0, 0};
    if (headers <= FEW_HEADERS)
        return BQ_OK;
    while (size < headers * 2)
        size *= 2;
    index->places = bq_calloc(size, sizeof *index->places);
    if (!index->places)
        return bq_fail_nomem(err);
    index->mask = size - 1;
    index->seed = bq_random_u64();
    return BQ_OK;
}

static size_t name_hash(const header_index *index, bq_str name)
{
    uint64_t h = UINT64_C(14695981039346656037) ^ index->seed;
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (unsigned char)name.ptr[i]) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 32);
}

/* Where the header of that name stands between `first` and `count`; `count`, which it then has, when it is new. */
static size_t place_of(const bq_message *m, header_index *index, size_t first, size_t count, bq_str name)
{
    if (!index->places) {
        size_t at = first;
        while (at < count && !bq_str_equal(m->props[at].name, name))
            at++;
        return at;
    }
    size_t slot = name_hash(index, name) & index->mask;
    for (; index->places[slot]; slot = (slot + 1) & index->mask)
        if (bq_str_equal(m->props[index->places[slot] - 1].name, name))
            return index->places[slot] - 1;
    index->places[slot] = count + 1;
    return count;
}

/* Section 5: empty names and values are dropped, the contract's own names win, of a repeated name the last counts. */
static bq_status add_headers(bq_message *m, const bq_link *link, const bq_message_spec *spec, size_t *total,
                             bq_error *err)
{
    size_t first = *total, count = first;
    header_index index;
    if (!(link->caps & BQ_CAP_HEADERS) || !link->binding->carries_headers)
        return BQ_OK;
    bq_status st = index_init(&index, spec->header_count, err);
    if (st)
        return st;
    for (size_t i = 0; i < spec->header_count; i++) {
        const bq_header *h = &spec->headers[i];
        if (!h->name.len || !h->value.len || bq_binding_owns(link->binding, BQ_PLACE_HEADER, h->name))
            continue;
        size_t at = place_of(m, &index, first, count, h->name);
        m->props[at] = (bq_prop){.place = BQ_PLACE_HEADER, .type = BQ_PROP_STRING};
        m->props[at].name = keep(m, h->name);
        m->props[at].text = keep(m, h->value);
        if (at == count)
            count++;
    }
    bq_free(index.places);
    *total = count;
    return BQ_OK;
}

bq_status bq_message_build(bq_message *m, const bq_link *link, const bq_message_spec *given, bq_str lang, bq_error *err)
{
    static const bq_message_spec none = BQ_MESSAGE_SPEC_INIT;
    bq_message_spec spec = none;
    memcpy(&spec, given, given->size && given->size < sizeof spec ? given->size : sizeof spec);
    bq_status st = check(link, &spec, err);
    if (!st)
        st = make_body(m, &spec, lang, err);
    if (!st)
        st = reserve(m, link, &spec, err);
    if (st)
        return st;
    bq_envelope env;
    bq_str id = {NULL, 0};
    size_t count = 0;
    (void)bq_envelope_decode(&env, m->body.ptr, m->body.len);
    if (bq_envelope_text(&env, BQ_FIELD_META_ID, &m->scratch, &id))
        return bq_fail_nomem(err);
    set_id(m, id);
    st = bq_project(link->binding, &env, 0, m->props, &count, &m->scratch, err);
    if (st)
        return st;
    bq_outgoing *out = &m->op.out;
    m->op.kind = BQ_OP_PUBLISH;
    out->queue = keep(m, spec.queue);
    out->key = keep(m, spec.key);
    out->group = keep(m, spec.group);
    out->body = m->body.len ? bq_buf_str(&m->body) : (bq_str){"", 0};
    st = add_headers(m, link, &spec, &count, err);
    if (st)
        return st;
    out->prop_count = count;
    out->props = m->props;
    out->delay_ms = spec.delay_ms;
    out->timestamp_ms = bq_envelope_int(&env, BQ_FIELD_META_CREATED_AT, 0);
    out->dedup_id = m->id[0] ? bq_str_of(m->id) : BQ_STR_NULL;
    out->extra = spec.extra;
    m->weight = m->body.len + m->texts.len;
    return BQ_OK;
}
