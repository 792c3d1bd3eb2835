/* utf8.c - UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#include "utf8.h"

size_t utf8_sequence(const unsigned char *p, size_t left)
{
    unsigned char lead = p[0];
    if (lead < 0x80)
        return 1;
    size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || left < n)
        return 0;
    if ((lead == 0xe0 && p[1] < 0xa0) || (lead == 0xed && p[1] > 0x9f) || (lead == 0xf0 && p[1] < 0x90) ||
        (lead == 0xf4 && p[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool utf8_valid(bq_str text)
{
    const unsigned char *p = (const unsigned char *)text.ptr;
    for (size_t i = 0; i < text.len;) {
        size_t n = utf8_sequence(p + i, text.len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}
