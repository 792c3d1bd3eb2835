/* duration.c - "250ms", "5s", "2m", "1h", "1.5": durations as people write them. Integers only, so that 0.1 is exact. */
#include <babelqueue/types.h>

#include <string.h>

/* About 292 years: still an int64 in nanoseconds. */
#define DURATION_MAX_MS INT64_C(9223372036854)

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int64_t unit_ms(bq_str unit)
{
    if (unit.len == 0 || bq_str_equal(unit, BQ_STR("s")))
        return 1000;
    if (bq_str_equal(unit, BQ_STR("ms")))
        return 1;
    if (bq_str_equal(unit, BQ_STR("m")))
        return 60 * 1000;
    if (bq_str_equal(unit, BQ_STR("h")))
        return 60 * 60 * 1000;
    return 0;
}

/* The digits after the point, as milliseconds of that unit: rounded up, so that no positive duration becomes 0. */
static int64_t fraction_ms(bq_str digits, int64_t unit)
{
    /* 3.6e6 ms an hour: seven digits decide the milliseconds, what follows only whether to round up. */
    int64_t value = 0, scale = 1;
    bool rest = false;
    for (size_t i = 0; i < digits.len; i++) {
        if (i < 9) {
            value = value * 10 + (digits.ptr[i] - '0');
            scale *= 10;
        } else if (digits.ptr[i] != '0') {
            rest = true;
        }
    }
    int64_t scaled = value * unit;
    return scaled / scale + (scaled % scale != 0 || rest);
}

bool bq_parse_duration(bq_str text, int64_t *ms)
{
    size_t i = 0;
    int64_t whole = 0;
    while (i < text.len && is_digit(text.ptr[i])) {
        if (whole <= DURATION_MAX_MS)
            whole = whole * 10 + (text.ptr[i] - '0');
        i++;
    }
    if (i == 0)
        return false;
    bq_str fraction = {text.ptr + i, 0};
    if (i < text.len && text.ptr[i] == '.') {
        fraction.ptr = text.ptr + ++i;
        while (i < text.len && is_digit(text.ptr[i]))
            i++;
        fraction.len = (size_t)(text.ptr + i - fraction.ptr);
        if (fraction.len == 0)
            return false;
    }
    int64_t unit = unit_ms((bq_str){text.ptr + i, text.len - i});
    if (unit == 0 || whole > DURATION_MAX_MS / unit)
        return false;
    int64_t total = whole * unit + fraction_ms(fraction, unit);
    if (total > DURATION_MAX_MS)
        return false;
    *ms = total;
    return true;
}
