/* props_text.h - properties as one line each, "header bq-job string urn:x", so that a test can write down a whole
 * projection. */
#ifndef TESTS_CONTRACT_PROPS_TEXT_H
#define TESTS_CONTRACT_PROPS_TEXT_H

#include <babelqueue/binding.h>

#include <inttypes.h>
#include <stdio.h>

static inline void props_text(const bq_prop *props, size_t count, char *out, size_t size)
{
    static const char *const PLACES[] = {"header", "native", "annotation"};
    static const char *const TYPES[] = {"null", "string", "binary", "symbol", "number",
                                        "bool", "int",    "long",   "double", "other"};
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count && n < size; i++) {
        const bq_prop *p = &props[i];
        n += (size_t)snprintf(out + n, size - n, "%s %.*s %s ", PLACES[p->place], (int)p->name.len, p->name.ptr,
                              TYPES[p->type]);
        if (n < size && (p->type == BQ_PROP_INT || p->type == BQ_PROP_LONG || p->type == BQ_PROP_BOOL))
            n += (size_t)snprintf(out + n, size - n, "%" PRId64 "\n", p->num);
        else if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%.*s\n", (int)p->text.len, p->text.ptr ? p->text.ptr : "");
    }
}

#endif
