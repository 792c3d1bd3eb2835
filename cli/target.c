/*
 * target.c - which broker: `-u URL`, else $BQ_URL; `@NAME` is looked up in $BQ_CONFIG, else
 * ~/.config/babelqueue/urls. That file holds passwords, so it is refused when others may read it.
 *
 * Layout of the file: lines `NAME URL`; empty lines and lines that begin with `#` are skipped.
 */
#include "target.h"
#include "args.h"
#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_MAX ((size_t)1024 * 1024)

/* The path, allocated; NULL without a home. */
static char *config_path(void)
{
    const char *path = getenv("BQ_CONFIG");
    if (path && *path)
        return strdup(path);
    const char *home = getenv("HOME");
    if (!home || !*home) {
        const struct passwd *user = getpwuid(getuid());
        home = user ? user->pw_dir : NULL;
    }
    char *out = NULL;
    if (!home || asprintf(&out, "%s/.config/babelqueue/urls", home) < 0)
        return NULL;
    return out;
}

/* The whole file in `text`; 0, EPERM when others may read it, EFBIG, or another errno. */
static int read_config(const char *path, bq_buf *text)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = errno;
    else if (!S_ISREG(st.st_mode))
        rc = EINVAL;
    else if (st.st_mode & (S_IRGRP | S_IROTH))
        rc = EPERM;
    bq_buf_init(text, CONFIG_MAX);
    while (!rc) {
        char chunk[4096];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            rc = errno;
        else if (n > 0 && bq_buf_add(text, chunk, (size_t)n) != BQ_OK)
            rc = EFBIG;
    }
    close(fd);
    return rc;
}

typedef struct config_line {
    int number;
    bq_str name, url;
} config_line;

/* The next line that holds something, split; false at the end. A line without a URL has an absent one. */
static bool next_line(bq_str *rest, config_line *line)
{
    while (rest->len > 0) {
        const char *feed = memchr(rest->ptr, '\n', rest->len);
        size_t len = feed ? (size_t)(feed - rest->ptr) : rest->len;
        bq_str text = bq_str_trim((bq_str){rest->ptr, len});
        len += feed ? 1 : 0;
        *rest = (bq_str){rest->ptr + len, rest->len - len};
        line->number++;
        if (text.len == 0 || text.ptr[0] == '#')
            continue;
        size_t n = 0;
        while (n < text.len && text.ptr[n] != ' ' && text.ptr[n] != '\t')
            n++;
        line->name = (bq_str){text.ptr, n};
        line->url = bq_str_trim((bq_str){text.ptr + n, text.len - n});
        return true;
    }
    return false;
}

/* The line number of `name`, its URL in *url; 0 when there is none, -1 after a message about the file. */
static int find_name(const char *path, bq_str content, const char *name, bq_str *url)
{
    config_line line = {0};
    int found = 0;
    while (next_line(&content, &line)) {
        if (line.url.len == 0 || memchr(line.url.ptr, ' ', line.url.len) || memchr(line.url.ptr, '\0', line.url.len)) {
            out_error("%s, line %d: expected NAME URL", path, line.number);
            return -1;
        }
        if (!bq_str_equal(line.name, bq_str_of(name)))
            continue;
        if (found) {
            out_error("%s, line %d: '%s' stands in line %d already", path, line.number, name, found);
            return -1;
        }
        found = line.number;
        *url = line.url;
    }
    return found;
}

static int config_failure(const char *path, const char *name, int rc)
{
    if (rc == EPERM)
        out_error("%s: others may read it, and it may hold passwords", path);
    else if (rc == EINVAL)
        out_error("@%s is looked up in %s: not a file", name, path);
    else
        out_error("@%s is looked up in %s: %s", name, path, strerror(rc));
    if (rc == EPERM)
        out_hint("chmod 600 %s", path);
    return CLI_CONFIG;
}

static int lookup(const char *name, char **url)
{
    bq_buf content = {0};
    bq_str found = BQ_STR_NULL;
    int status = CLI_CONFIG;
    char *path = config_path();
    if (!path) {
        out_error("no home directory, and BQ_CONFIG is not set: cannot look up @%s", name);
        return CLI_CONFIG;
    }
    int rc = read_config(path, &content);
    if (rc) {
        config_failure(path, name, rc);
        goto out;
    }
    int line = find_name(path, bq_buf_str(&content), name, &found);
    if (line == 0)
        out_error("%s: no URL is called '%s'", path, name);
    if (line <= 0)
        goto out;
    *url = strndup(found.ptr, found.len);
    status = *url ? CLI_DONE : CLI_TEMPORARY;
out:
    bq_buf_clear(&content);
    free(path);
    return status;
}

int target_url(const cli_verb *verb, const cli_common *common, char **url)
{
    const char *given = common->url, *env = getenv("BQ_URL");
    *url = NULL;
    if (!given && env && *env)
        given = env;
    if (!given) {
        out_error("%s: no broker: give -u URL, or set BQ_URL", verb->name);
        out_hint("export BQ_URL=sqlite:bq.db");
        return CLI_USAGE;
    }
    if (given[0] == '@')
        return lookup(given + 1, url);
    if (!*given)
        return args_usage_error(verb, "the URL is empty");
    *url = strdup(given);
    return *url ? CLI_DONE : CLI_TEMPORARY;
}

void target_names(void (*fn)(const char *name, void *arg), void *arg)
{
    bq_buf content = {0};
    char *path = config_path();
    if (path && read_config(path, &content) == 0) {
        bq_str rest = bq_buf_str(&content);
        config_line line = {0};
        while (next_line(&rest, &line)) {
            char *name = strndup(line.name.ptr, line.name.len);
            if (name)
                fn(name, arg);
            free(name);
        }
    }
    bq_buf_clear(&content);
    free(path);
}

/* ---- what a URL says of itself --------------------------------------------------------------------------------------- */

static size_t scheme_length(const char *url)
{
    return strcspn(url, ":/?#");
}

static bool same_scheme(const char *url, size_t len, const char *scheme)
{
    return strlen(scheme) == len && strncasecmp(url, scheme, len) == 0;
}

const bq_transport_ops *target_transport(const char *url)
{
    size_t len = scheme_length(url);
    const bq_transport_ops *ops;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++)
        for (const char *const *scheme = ops->schemes; *scheme; scheme++)
            if (same_scheme(url, len, *scheme))
                return ops;
    return NULL;
}

void target_warn_private(const char *url, const char *consequence)
{
    const bq_transport_ops *ops = target_transport(url);
    if (ops && strcmp(ops->name, "memory") == 0)
        out_warn("%.100s lives in this process only: %s", url, consequence);
}

bool target_is(const char *url, const char *family)
{
    size_t n = strlen(family), len = scheme_length(url);
    if (len < n || strncasecmp(url, family, n) != 0)
        return false;
    /* "bullmqs" and "bullmq+unix" are of the family "bullmq", "redis" is not of "r". */
    return len == n || url[n] == '+' || ((url[n] == 's' || url[n] == 'S') && (len == n + 1 || url[n + 1] == '+'));
}

bool target_has_option(const char *url, const char *name, const char *except)
{
    size_t n = strlen(name);
    const char *query = strchr(url, '?');
    while (query && *query) {
        const char *option = query + 1;
        size_t len = strcspn(option, "&");
        if (len > n && strncmp(option, name, n) == 0 && option[n] == '=') {
            bq_str value = {option + n + 1, len - n - 1};
            return value.len > 0 && !(except && bq_str_equal(value, bq_str_of(except)));
        }
        query = strchr(option, '&');
    }
    return false;
}

bool target_loses_failures(const bq_binding *binding, const char *url)
{
    if (binding->dead_default == BQ_DEAD_OPT_IN)
        return binding->off_exhausted == BQ_OFF_DROP;
    return binding->dead_default == BQ_DEAD_WITH_RETRY && !target_has_option(url, "retry", "none");
}
