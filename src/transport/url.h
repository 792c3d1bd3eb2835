/*
 * transport/url.h - the grammar of URLs. Two forms:
 *
 *     scheme://[user[:password]@][host[:port][,host[:port]...]][/path][?name=value[&name=value...]]
 *     scheme:path[?name=value...]                                       (sqlite:PATH, memory:NAME)
 *
 * User, password, hosts, path, names and values are percent-decoded. Characters that would move a delimiter when
 * they are part of a password ('#', '/', '?', '@', ':') must be percent-encoded, and errors say so; no error repeats
 * a part of the URL that could be a secret.
 */
#ifndef BQ_TRANSPORT_URL_H
#define BQ_TRANSPORT_URL_H

#include <babelqueue/transport.h>

typedef struct bq_url_option {
    bq_str name;
    bq_str value;     /* ptr NULL: written without '=' */
    bq_str raw_value; /* as written, in the caller's text */
} bq_url_option;

typedef struct bq_url_parts {
    bq_url url;  /* without `safe` */
    bool opaque; /* the second form */
    const bq_url_option *options;
    size_t option_count;
    const char *text;    /* the caller's; needed by bq_url_mask only */
    bq_str raw_password; /* as written, ptr NULL: none */
    void *storage;       /* one block: free it, and everything above is gone */
    char *safe;          /* room for the masked form within the block */
} bq_url_parts;

bq_status bq_url_parse(bq_url_parts *out, const char *text, bq_error *err) BQ_MUST_CHECK;
/* Fills url.safe: the text with the password, and the values of options that `table` calls secret, as "***". */
void bq_url_mask(bq_url_parts *parts, const bq_option *table);
/* Frees `storage` unless it was taken (set to NULL). */
void bq_url_parts_clear(bq_url_parts *parts);

#endif
