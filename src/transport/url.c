/*
 * url.c - parses a URL into one block of memory. The block's size is known from the text's length before anything is
 * decoded (decoding never lengthens), so there is one allocation to fail and one to free:
 *
 *     hosts[n] | options[n] | decoded strings, each with its NUL | room for the masked text
 */
#include "transport/url.h"

#include "base/error.h"
#include "base/mem.h"
#include "transport/options.h"

#include <arpa/inet.h>
#include <string.h>

#define MASK "***"
#define MASK_LEN (sizeof MASK - 1)

/* The pieces of the text, still encoded. An absent piece has a NULL ptr. */
typedef struct pieces {
    bq_str scheme, userinfo, hosts, path, query;
    bool opaque;
} pieces;

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bq_str slice(const char *from, const char *to)
{
    return (bq_str){from, (size_t)(to - from)};
}

static const char *find(bq_str s, char c)
{
    return s.len ? memchr(s.ptr, c, s.len) : NULL;
}

static const char *find_last(bq_str s, char c)
{
    return s.len ? memrchr(s.ptr, c, s.len) : NULL;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

static bq_status check_bytes(bq_str text, bq_error *err)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '#')
            return bq_fail(err, BQ_INVALID, "URL: a '#' must be written %%23 (it stands at position %zu)", i + 1);
        if (c < 0x20 || c == 0x7F)
            return bq_fail(err, BQ_INVALID, "URL: a control character must be percent-encoded (%%%02X at position %zu)",
                           c, i + 1);
    }
    return BQ_OK;
}

static bq_status cut_scheme(bq_str *rest, bq_str *scheme, bq_error *err)
{
    size_t n = 0;
    while (n < rest->len && (is_alpha(rest->ptr[n]) || (n > 0 && (is_digit(rest->ptr[n]) || rest->ptr[n] == '+' ||
                                                                  rest->ptr[n] == '-' || rest->ptr[n] == '.'))))
        n++;
    if (n == 0 || n == rest->len || rest->ptr[n] != ':')
        return bq_fail(err, BQ_INVALID, "URL: it must begin with a scheme and a colon, such as sqlite:bq.db");
    *scheme = (bq_str){rest->ptr, n};
    rest->ptr += n + 1;
    rest->len -= n + 1;
    return BQ_OK;
}

/* The authority is what a raw delimiter within a password cuts short; the '@' that is then left over betrays it. */
static bq_status cut_authority(pieces *p, bq_str rest, bq_error *err)
{
    size_t n = 0;
    while (n < rest.len && rest.ptr[n] != '/' && rest.ptr[n] != '?')
        n++;
    bq_str authority = {rest.ptr, n};
    p->path = (bq_str){rest.ptr + n, rest.len - n};

    const char *at = find(authority, '@');
    if (n > 0 && find(p->path, '@'))
        return bq_fail(err, BQ_INVALID,
                       "URL: an '@' after the hosts must be written %%40; if it ends a password, then write a '/' in "
                       "the password %%2F and a '?' %%3F");
    if (at != find_last(authority, '@'))
        return bq_fail(err, BQ_INVALID, "URL: an '@' in a user name or password must be written %%40");
    p->hosts = authority;
    if (at) {
        p->userinfo = slice(authority.ptr, at);
        p->hosts = slice(at + 1, authority.ptr + authority.len);
    }
    return BQ_OK;
}

static bq_status cut(pieces *p, bq_str text, bq_error *err)
{
    *p = (pieces){.opaque = true};
    bq_status status = check_bytes(text, err);
    if (status == BQ_OK)
        status = cut_scheme(&text, &p->scheme, err);
    if (status != BQ_OK)
        return status;
    p->path = text;
    if (text.len >= 2 && text.ptr[0] == '/' && text.ptr[1] == '/') {
        p->opaque = false;
        status = cut_authority(p, (bq_str){text.ptr + 2, text.len - 2}, err);
        if (status != BQ_OK)
            return status;
    }
    const char *mark = find(p->path, '?');
    if (mark) {
        p->query = slice(mark + 1, p->path.ptr + p->path.len);
        p->path = slice(p->path.ptr, mark);
    }
    return BQ_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static int hex(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes to *room, adds a NUL and moves *room on. `what` names the piece, never its content. */
static bq_status decode(bq_str in, const char *what, char **room, bq_str *out, bq_error *err)
{
    char *to = *room;
    for (size_t i = 0; i < in.len; i++) {
        char c = in.ptr[i];
        if (c == '%') {
            int high = i + 2 < in.len ? hex(in.ptr[i + 1]) : -1;
            int low = i + 2 < in.len ? hex(in.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return bq_fail(err, BQ_INVALID,
                               "URL: a '%%' in the %s must be followed by two hexadecimal digits "
                               "(a '%%' itself is written %%25)",
                               what);
            c = (char)(high << 4 | low);
            if (c == '\0')
                return bq_fail(err, BQ_INVALID, "URL: a NUL byte (%%00) in the %s", what);
            i += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    *out = (bq_str){*room, (size_t)(to - *room)};
    *room = to + 1;
    return BQ_OK;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static bq_status parse_port(bq_str text, int *port, bq_error *err)
{
    int value = 0;
    for (size_t i = 0; i < text.len && value <= 65535; i++) {
        if (!is_digit(text.ptr[i])) {
            value = 0;
            break;
        }
        value = value * 10 + (text.ptr[i] - '0');
    }
    /* Not shown: with a '/' or '?' in a password, this is where a part of it arrives. */
    if (value < 1 || value > 65535)
        return bq_fail(err, BQ_INVALID,
                       "URL: a port must be a number from 1 to 65535; in a password, '/' is written "
                       "%%2F, '?' %%3F and '@' %%40");
    *port = value;
    return BQ_OK;
}

/* An address with an optional zone ("fe80::1%eth0", RFC 6874's %25 already decoded). */
static bool is_ipv6(bq_str name)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr parsed;
    const char *zone = find(name, '%');
    size_t len = zone ? (size_t)(zone - name.ptr) : name.len;
    if (len >= sizeof address || (zone && len + 1 == name.len))
        return false;
    memcpy(address, name.ptr, len);
    address[len] = '\0';
    return inet_pton(AF_INET6, address, &parsed) == 1;
}

static bool is_host_name(bq_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!(is_alpha(c) || is_digit(c) || c == '-' || c == '.' || c == '_' || (unsigned char)c >= 0x80))
            return false;
    }
    return name.len > 0 && name.len <= 255;
}

static bq_status parse_host(bq_str text, bq_url_host *host, char **room, bq_error *err)
{
    bq_str name = text, port = BQ_STR_NULL;
    bool bracket = text.len > 0 && text.ptr[0] == '[';
    if (bracket) {
        const char *end = find(text, ']');
        if (!end)
            return bq_fail(err, BQ_INVALID, "URL: a '[' without its ']'");
        name = slice(text.ptr + 1, end);
        port = slice(end + 1, text.ptr + text.len);
        if (port.len > 0 && port.ptr[0] != ':')
            return bq_fail(err, BQ_INVALID, "URL: only a port may follow the ']' of an address");
    } else {
        const char *colon = find(text, ':');
        if (colon != find_last(text, ':'))
            return bq_fail(err, BQ_INVALID,
                           "URL: an IPv6 address stands in brackets, as in [::1]:6379; a ':' in a "
                           "user name is written %%3A");
        if (colon) {
            name = slice(text.ptr, colon);
            port = slice(colon, text.ptr + text.len);
        }
    }
    bq_str decoded;
    bq_status status = decode(name, "host", room, &decoded, err);
    if (status != BQ_OK)
        return status;
    if (bracket ? !is_ipv6(decoded) : !is_host_name(decoded))
        return bq_fail(err, BQ_INVALID,
                       bracket       ? "URL: what stands in brackets is no IPv6 address"
                       : decoded.len ? "URL: a host has a character that no host name has"
                                     : "URL: a host is missing");
    *host = (bq_url_host){.name = decoded.ptr};
    if (port.ptr && port.len > 0)
        status = parse_port((bq_str){port.ptr + 1, port.len - 1}, &host->port, err);
    return status;
}

/* ---- assembling --------------------------------------------------------------------------------------------------- */

static size_t count_items(bq_str list, char separator)
{
    size_t n = list.len > 0;
    for (size_t i = 0; i < list.len; i++)
        n += list.ptr[i] == separator;
    return n;
}

/* Cuts the next item off the list; false at its end. */
static bool next_item(bq_str *list, char separator, bq_str *item)
{
    if (!list->ptr)
        return false;
    const char *end = find(*list, separator);
    if (!end) {
        *item = *list;
        *list = BQ_STR_NULL;
        return true;
    }
    *item = slice(list->ptr, end);
    *list = slice(end + 1, list->ptr + list->len);
    return true;
}

static bq_status parse_hosts(bq_str list, bq_url_host *hosts, size_t *count, char **room, bq_error *err)
{
    bq_str item;
    if (list.len == 0)
        return BQ_OK;
    while (next_item(&list, ',', &item)) {
        bq_status status = parse_host(item, &hosts[*count], room, err);
        if (status != BQ_OK)
            return status;
        ++*count;
    }
    return BQ_OK;
}

static bq_status parse_userinfo(bq_url_parts *out, bq_str userinfo, char **room, bq_error *err)
{
    bq_str user = userinfo, decoded;
    const char *colon = find(userinfo, ':');
    if (colon) {
        user = slice(userinfo.ptr, colon);
        out->raw_password = slice(colon + 1, userinfo.ptr + userinfo.len);
        bq_status status = decode(out->raw_password, "password", room, &decoded, err);
        if (status != BQ_OK)
            return status;
        out->url.password = decoded.ptr;
    }
    if (user.len == 0)
        return BQ_OK;
    bq_status status = decode(user, "user name", room, &decoded, err);
    out->url.user = status == BQ_OK ? decoded.ptr : NULL;
    return status;
}

static bq_status parse_options(bq_str query, bq_url_option *options, size_t *count, char **room, bq_error *err)
{
    bq_str item;
    while (next_item(&query, '&', &item)) {
        if (item.len == 0)
            continue;
        bq_url_option *option = &options[*count];
        const char *equals = find(item, '=');
        bq_str name = equals ? slice(item.ptr, equals) : item;
        *option = (bq_url_option){0};
        bq_status status = decode(name, "name of an option", room, &option->name, err);
        if (status == BQ_OK && equals) {
            option->raw_value = slice(equals + 1, item.ptr + item.len);
            status = decode(option->raw_value, "value of an option", room, &option->value, err);
        }
        if (status != BQ_OK)
            return status;
        ++*count;
    }
    return BQ_OK;
}

static bq_status fill(bq_url_parts *out, const pieces *p, bq_url_host *hosts, bq_url_option *options, char *room,
                      bq_error *err)
{
    bq_str text;
    char *scheme = room;
    bq_status status = decode(p->scheme, "scheme", &room, &text, err);
    if (status != BQ_OK)
        return status;
    for (char *c = scheme; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + ('a' - 'A') : *c);
    out->url.scheme = scheme;
    status = parse_userinfo(out, p->userinfo, &room, err);
    if (status == BQ_OK)
        status = parse_hosts(p->hosts, hosts, &out->url.host_count, &room, err);
    if (status == BQ_OK)
        status = parse_options(p->query, options, &out->option_count, &room, err);
    if (status != BQ_OK)
        return status;
    out->url.hosts = hosts;
    out->options = options;
    out->opaque = p->opaque;

    bq_str path = p->path;
    if (out->url.host_count > 0 && path.len > 0) {
        path.ptr++; /* the slash that ended the hosts */
        path.len--;
    }
    if (path.len > 0) {
        status = decode(path, "path", &room, &text, err);
        out->url.path = status == BQ_OK ? text.ptr : NULL;
    }
    out->safe = room;
    return status;
}

bq_status bq_url_parse(bq_url_parts *out, const char *text, bq_error *err)
{
    *out = (bq_url_parts){.text = text};
    if (!text || !*text)
        return bq_fail(err, BQ_INVALID, "URL: it is empty");
    bq_str all = bq_str_of(text);
    pieces p;
    bq_status status = cut(&p, all, err);
    if (status != BQ_OK)
        return status;

    size_t hosts = count_items(p.hosts, ','), options = count_items(p.query, '&');
    /* Each decoded string is no longer than its piece, and each adds a NUL: scheme, user, password, path, a host
     * each, a name and a value each. The masked text adds at most the mask for each secret. */
    size_t decoded = all.len + 4 + hosts + 2 * options;
    size_t masked = all.len + MASK_LEN * (1 + options) + 1;
    size_t structs = hosts * sizeof(bq_url_host) + options * sizeof(bq_url_option);
    char *block = bq_calloc(1, structs + decoded + masked);
    if (!block)
        return bq_fail_nomem(err);
    out->storage = block;
    bq_url_option *option_list = (void *)block;
    bq_url_host *host_list = (void *)(block + options * sizeof(bq_url_option));
    status = fill(out, &p, host_list, option_list, block + structs, err);
    if (status != BQ_OK)
        bq_url_parts_clear(out);
    return status;
}

/* ---- masking ----------------------------------------------------------------------------------------------------- */

static char *copy_to(char *to, const char *from, const char *end)
{
    size_t n = (size_t)(end - from);
    memcpy(to, from, n);
    return to + n;
}

void bq_url_mask(bq_url_parts *parts, const bq_option *table)
{
    const char *from = parts->text, *end = from + strlen(from);
    char *to = parts->safe;
    if (parts->raw_password.ptr) {
        to = copy_to(to, from, parts->raw_password.ptr);
        to = copy_to(to, MASK, &MASK[MASK_LEN]);
        from = parts->raw_password.ptr + parts->raw_password.len;
    }
    for (size_t i = 0; i < parts->option_count; i++) {
        const bq_url_option *given = &parts->options[i];
        const bq_option *row = bq_options_find(table, given->name);
        /* What no table knows may be a secret, too. */
        if (!given->raw_value.ptr || (row && !(row->flags & BQ_OPT_SECRET)))
            continue;
        to = copy_to(to, from, given->raw_value.ptr);
        to = copy_to(to, MASK, &MASK[MASK_LEN]);
        from = given->raw_value.ptr + given->raw_value.len;
    }
    to = copy_to(to, from, end);
    *to = '\0';
    parts->url.safe = parts->safe;
}

void bq_url_parts_clear(bq_url_parts *parts)
{
    bq_free(parts->storage);
    *parts = (bq_url_parts){0};
}
