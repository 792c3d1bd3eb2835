/* redis/fault.c - see fault.h. */
#include "transport/redis/fault.h"

#include "base/error.h"

#include <string.h>

static const struct {
    const char *code;
    rd_meaning means;
} codes[] = {
    {"NOAUTH", RD_MEANS_AUTH},         {"WRONGPASS", RD_MEANS_AUTH},
    {"NOPERM", RD_MEANS_AUTH},         {"READONLY", RD_MEANS_RECONNECT},
    {"LOADING", RD_MEANS_RECONNECT},   {"MASTERDOWN", RD_MEANS_RECONNECT},
    {"UNBLOCKED", RD_MEANS_RECONNECT}, {"OOM", RD_MEANS_FULL},
    {"MISCONF", RD_MEANS_FULL},        {"NOREPLICAS", RD_MEANS_FULL},
    {"BUSY", RD_MEANS_BUSY},           {"CLUSTERDOWN", RD_MEANS_BUSY},
    {"TRYAGAIN", RD_MEANS_BUSY},       {"NOSCRIPT", RD_MEANS_NOSCRIPT},
    {"MOVED", RD_MEANS_CLUSTER},       {"ASK", RD_MEANS_CLUSTER},
    {"CROSSSLOT", RD_MEANS_CLUSTER},   {"WRONGTYPE", RD_MEANS_TYPE},
    {"NOREPLICA", RD_MEANS_RECONNECT}, {"IDONTKNOW", RD_MEANS_RECONNECT},
};

/* Texts that come with the code ERR. */
static const struct {
    const char *text;
    rd_meaning means;
} texts[] = {
    {"invalid password", RD_MEANS_AUTH},
    {"without any password configured", RD_MEANS_AUTH},
    {"no password is set", RD_MEANS_AUTH},
    {"can't run this command", RD_MEANS_AUTH},
    {"max number of clients", RD_MEANS_RECONNECT},
    {"nknown command", RD_MEANS_OLD},
    {"Unknown Redis command", RD_MEANS_OLD},
    {"wrong number of arguments for 'auth'", RD_MEANS_OLD},
    {"DB index", RD_MEANS_DB},
    {"NOSCRIPT", RD_MEANS_NOSCRIPT},
};

static bool contains(bq_str text, const char *part)
{
    size_t len = strlen(part);
    for (size_t i = 0; i + len <= text.len; i++)
        if (memcmp(text.ptr + i, part, len) == 0)
            return true;
    return false;
}

static bool begins(bq_str text, const char *code)
{
    size_t len = strlen(code);
    return text.len >= len && memcmp(text.ptr, code, len) == 0 && (text.len == len || text.ptr[len] == ' ');
}

static rd_meaning meaning_of_code(bq_str text)
{
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (begins(text, codes[i].code))
            return codes[i].means;
    return RD_MEANS_OTHER;
}

rd_meaning bq_rd_fault_meaning(bq_str text)
{
    if (text.len > 0 && *text.ptr == '-') { /* as a script of an older server sees it */
        text.ptr++;
        text.len--;
    }
    rd_meaning means = meaning_of_code(text);
    if (means != RD_MEANS_OTHER)
        return means;
    /* "ERR Error running script (call to f_...): @user_script:7: -OOM command not allowed ..." */
    for (size_t i = 0; i + 3 < text.len; i++)
        if (memcmp(text.ptr + i, ": -", 3) == 0 &&
            (means = meaning_of_code((bq_str){text.ptr + i + 3, text.len - i - 3})) != RD_MEANS_OTHER)
            return means;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (contains(text, texts[i].text))
            return texts[i].means;
    return RD_MEANS_OTHER;
}

bq_status bq_rd_fault_error(bq_str text, const char *what, bq_error *err)
{
    static const struct {
        bq_status status;
        unsigned flags;
        const char *hint;
    } rows[] = {
        [RD_MEANS_OTHER] = {BQ_REFUSED, 0, ""},
        [RD_MEANS_AUTH] = {BQ_AUTH, 0, ""},
        [RD_MEANS_RECONNECT] = {BQ_REFUSED, BQ_ERROR_RETRYABLE, ""},
        [RD_MEANS_FULL] = {BQ_REFUSED, BQ_ERROR_RETRYABLE, ""},
        [RD_MEANS_BUSY] = {BQ_REFUSED, BQ_ERROR_RETRYABLE, ""},
        [RD_MEANS_NOSCRIPT] = {BQ_REFUSED, BQ_ERROR_RETRYABLE, ""},
        [RD_MEANS_CLUSTER] = {BQ_CONFIG, 0, " (the keys of a queue must be on one server: this one is a cluster)"},
        [RD_MEANS_TYPE] = {BQ_CONFIG, 0, " (a key with the name of this queue is of another kind)"},
        [RD_MEANS_OLD] = {BQ_UNSUPPORTED, 0, " (Redis 6.2 or newer is needed)"},
        [RD_MEANS_DB] = {BQ_CONFIG, 0, ""},
    };
    rd_meaning means = bq_rd_fault_meaning(text);
    return bq_fail_flags(err, rows[means].status, rows[means].flags, 0, "%s: %.*s%s", what, BQ_FMT(text),
                         rows[means].hint);
}

bool bq_rd_fault_redirects(bq_str text, bq_str *host, int *port)
{
    *host = BQ_STR_NULL;
    *port = 0;
    if (begins(text, "ASK"))
        return true;
    if (!begins(text, "MOVED"))
        return false;
    size_t from = text.len, colon;
    while (from > 0 && text.ptr[from - 1] != ' ')
        from--;
    for (colon = text.len; colon > from && text.ptr[colon - 1] != ':'; colon--)
        ;
    if (colon == from || text.len - colon > 5)
        return false;
    int value = 0;
    for (size_t i = colon; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        value = value * 10 + (text.ptr[i] - '0');
    }
    *host = (bq_str){text.ptr + from, colon - 1 - from};
    *port = value;
    return value > 0 && value < 65536;
}
