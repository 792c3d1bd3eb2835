/* str.c - views of bytes: comparison and the contract's notion of white space (six ASCII bytes, contract preamble). */
#include <babelqueue/types.h>

#include <string.h>

bq_str bq_str_of(const char *text)
{
    return (bq_str){text, text ? strlen(text) : 0};
}

bool bq_str_equal(bq_str a, bq_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Not isspace(): that follows the program's locale. */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool bq_str_blank(bq_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!is_space(s.ptr[i]))
            return false;
    }
    return true;
}

bq_str bq_str_trim(bq_str s)
{
    while (s.len > 0 && is_space(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && is_space(s.ptr[s.len - 1]))
        s.len--;
    return s;
}
