/*
 * json/write.c - strings and integers as JSON (contract 1), and one value without the white space between its tokens.
 *
 * Thread rule: pure functions over the caller's buffer.
 */
#include <babelqueue/json.h>

#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "json/scan.h"

/* Writes the escape of one control character, quote or backslash; returns what follows it. */
static char *put_escape(char *to, uint8_t c)
{
    static const char HEX[] = "0123456789abcdef";
    static const char SHORT[0x20] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    char letter = c < 0x20 ? SHORT[c] : (char)c;
    *to++ = '\\';
    if (letter) {
        *to++ = letter;
        return to;
    }
    memcpy(to, "u00", 3);
    to[3] = HEX[c >> 4];
    to[4] = HEX[c & 15];
    return to + 5;
}

/* Appends valid UTF-8, escaped: a piece at a time into room for the worst case. */
static void put_text(bq_buf *out, const uint8_t *p, size_t len)
{
    enum { PIECE = 128, WORST = 6 };
    while (len > 0) {
        size_t piece = len < PIECE ? len : PIECE, plain = 0;
        while (plain < len && !(bq_scan_class[p[plain]] & BQ_CLASS_STOP))
            plain++;
        if (plain > 0) {
            bq_buf_add(out, p, plain);
            piece = plain;
        } else {
            char text[PIECE * WORST], *to = text;
            for (size_t i = 0; i < piece; i++) {
                if (bq_scan_class[p[i]] & BQ_CLASS_STOP)
                    to = put_escape(to, p[i]);
                else
                    *to++ = (char)p[i];
            }
            bq_buf_add(out, text, (size_t)(to - text));
        }
        p += piece;
        len -= piece;
    }
}

/* The end of an append: all of it or nothing. A buffer that had failed before is left alone. */
static bq_status finish(bq_buf *out, size_t before)
{
    bq_status status = bq_buf_reserve(out, 0); /* says why when an append failed */
    if (status != BQ_OK)
        bq_buf_truncate(out, before);
    return status;
}

bq_status bq_json_add_string(bq_buf *out, bq_str text)
{
    size_t before = out->len;
    const uint8_t *p = (const uint8_t *)text.ptr;
    size_t left = text.len;
    bq_buf_add_byte(out, '"');
    while (left > 0) {
        size_t valid = bq_scan_utf8(p, left);
        put_text(out, p, valid);
        p += valid;
        left -= valid;
        if (left > 0) {
            bq_buf_add_lit(out, "\xEF\xBF\xBD");
            p++;
            left--;
        }
    }
    bq_buf_add_byte(out, '"');
    return finish(out, before);
}

bq_status bq_json_add_int(bq_buf *out, int64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        digits[--at] = '-';
    return bq_buf_add(out, digits + at, sizeof digits - at);
}

bq_status bq_json_add_compact(bq_buf *out, bq_str value, bq_error *err)
{
    bq_scanned scanned;
    if (!bq_scan_document(&scanned, value.ptr, value.len, false))
        return bq_fail(err, BQ_DATA, "not valid JSON at byte %zu: %s", scanned.fault, scanned.reason);
    size_t before = out->len;
    const uint8_t *p = (const uint8_t *)value.ptr + scanned.off, *end = p + scanned.len;
    bq_scan s = {end, NULL, "", 0};
    while (p < end) {
        const uint8_t *from = p;
        while (p < end && !(bq_scan_class[*p] & BQ_CLASS_SPACE)) {
            bool escaped = false;
            p = *p == '"' ? bq_scan_string(&s, p + 1, &escaped) + 1 : p + 1;
        }
        bq_buf_add(out, from, (size_t)(p - from));
        while (p < end && (bq_scan_class[*p] & BQ_CLASS_SPACE))
            p++;
    }
    bq_status status = finish(out, before);
    return status == BQ_OK ? BQ_OK : bq_fail(err, status, "no room for %zu bytes of JSON", scanned.len);
}
