/*
 * sqlite/props.c - see props.h. Decoding runs twice over the bytes, once to check and count and once to fill, with the
 * same reader, so that what was counted is what is filled.
 */
#include "transport/sqlite/props.h"

#include "base/buf.h"

#include <string.h>

#define VERSION 1

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void put_number(bq_buf *out, uint64_t value)
{
    char bytes[10];
    size_t len = 0;
    do {
        bytes[len++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    (void)bq_buf_add(out, bytes, len);
}

static void put_signed(bq_buf *out, int64_t value)
{
    put_number(out, ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0));
}

static void put_real(bq_buf *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(bits >> (8 * i) & 0xff);
    (void)bq_buf_add(out, bytes, sizeof(bytes));
}

bq_status bq_sq_props_encode(const bq_prop *props, size_t count, bq_buf *out)
{
    (void)bq_buf_add_byte(out, VERSION);
    put_number(out, count);
    for (size_t i = 0; i < count; i++) {
        const bq_prop *p = &props[i];
        put_number(out, (uint64_t)p->place);
        put_number(out, (uint64_t)p->type);
        put_number(out, p->width);
        put_number(out, p->name.len);
        (void)bq_buf_add_str(out, p->name);
        switch (p->type) {
        case BQ_PROP_NULL: break;
        case BQ_PROP_BOOL:
        case BQ_PROP_INT:
        case BQ_PROP_LONG: put_signed(out, p->num); break;
        case BQ_PROP_DOUBLE: put_real(out, p->real); break;
        case BQ_PROP_STRING:
        case BQ_PROP_BINARY:
        case BQ_PROP_SYMBOL:
        case BQ_PROP_NUMBER:
        case BQ_PROP_OTHER:
            put_number(out, p->text.ptr ? p->text.len + 1 : 0);
            (void)bq_buf_add_str(out, p->text);
            break;
        }
    }
    return out->failed ? BQ_NOMEM : BQ_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    bool bad;
} reader;

static uint64_t get_number(reader *r)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            break;
        unsigned char byte = (unsigned char)*r->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    r->bad = true;
    return 0;
}

static int64_t get_signed(reader *r)
{
    uint64_t value = get_number(r);
    return (int64_t)((value >> 1) ^ (value & 1 ? UINT64_MAX : 0));
}

static bq_str get_bytes(reader *r, uint64_t len)
{
    if (r->bad || len > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        return BQ_STR_NULL;
    }
    bq_str bytes = {r->at, (size_t)len};
    r->at += len;
    return bytes;
}

static double get_real(reader *r)
{
    bq_str bytes = get_bytes(r, 8);
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes.len; i++)
        bits |= (uint64_t)(unsigned char)bytes.ptr[i] << (8 * i);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void get_prop(reader *r, bq_prop *p)
{
    *p = (bq_prop){0};
    uint64_t place = get_number(r), type = get_number(r), width = get_number(r);
    if (place > BQ_PLACE_ANNOTATION || type > BQ_PROP_OTHER || width > UINT32_MAX)
        r->bad = true;
    p->place = (bq_place)place;
    p->type = (bq_prop_type)type;
    p->width = (unsigned)width;
    p->name = get_bytes(r, get_number(r));
    if (r->bad)
        return;
    switch (p->type) {
    case BQ_PROP_NULL: break;
    case BQ_PROP_BOOL:
    case BQ_PROP_INT:
    case BQ_PROP_LONG: p->num = get_signed(r); break;
    case BQ_PROP_DOUBLE: p->real = get_real(r); break;
    case BQ_PROP_STRING:
    case BQ_PROP_BINARY:
    case BQ_PROP_SYMBOL:
    case BQ_PROP_NUMBER:
    case BQ_PROP_OTHER: {
        uint64_t len = get_number(r);
        if (len > 0)
            p->text = get_bytes(r, len - 1);
        break;
    }
    }
}

static reader start(bq_str bytes, uint64_t *count)
{
    reader r = {bytes.ptr, bytes.ptr + bytes.len, false};
    if (get_number(&r) != VERSION)
        r.bad = true;
    *count = get_number(&r);
    return r;
}

bool bq_sq_props_count(bq_str bytes, size_t *count)
{
    *count = 0;
    if (bytes.len == 0)
        return true;
    uint64_t announced;
    reader r = start(bytes, &announced);
    bq_prop prop;
    for (uint64_t i = 0; i < announced && !r.bad; i++)
        get_prop(&r, &prop);
    if (r.bad || r.at != r.end)
        return false;
    *count = (size_t)announced;
    return true;
}

void bq_sq_props_decode(bq_str bytes, bq_prop *props, size_t count)
{
    if (count == 0)
        return;
    uint64_t announced;
    reader r = start(bytes, &announced);
    for (size_t i = 0; i < count; i++)
        get_prop(&r, &props[i]);
}
