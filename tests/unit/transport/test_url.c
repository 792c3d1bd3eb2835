/* The grammar of URLs: what every form gives, what is refused with which advice, and that no refusal repeats a secret
 * (celery-once#135: '#' and '%' in a password). */
#include "unit/cmocka_all.h"

#include "base/error.h"
#include "transport/url.h"
#include "unit/alloc_fail.h"

#include <stdio.h>
#include <string.h>

static bq_url_parts parsed(const char *text)
{
    bq_url_parts parts;
    bq_error err;
    if (bq_url_parse(&parts, text, &err) != BQ_OK)
        fail_msg("%s: %s", text, err.text);
    return parts;
}

static void expect_text(const char *what, const char *got, const char *expected)
{
    if (!got != !expected || (got && strcmp(got, expected) != 0))
        fail_msg("%s: \"%s\" instead of \"%s\"", what, got ? got : "(none)", expected ? expected : "(none)");
}

static void accepted(void **state)
{
    (void)state;
    const struct {
        const char *text, *scheme, *user, *password, *host;
        int port;
        const char *path;
        bool opaque;
    } rows[] = {
        {"redis://localhost", "redis", NULL, NULL, "localhost", 0, NULL, false},
        {"redis://localhost/", "redis", NULL, NULL, "localhost", 0, NULL, false},
        {"redis://:p%23%25%40@[::1]:6379/2", "redis", NULL, "p#%@", "::1", 6379, "2", false},
        {"REDISS://u:p@h:1/0", "rediss", "u", "p", "h", 1, "0", false},
        {"redis://u@h", "redis", "u", NULL, "h", 0, NULL, false},
        {"redis://u:@h", "redis", "u", "", "h", 0, NULL, false},
        {"redis://@h", "redis", NULL, NULL, "h", 0, NULL, false},
        {"redis://u:a:b@h", "redis", "u", "a:b", "h", 0, NULL, false},
        {"redis://u%3Ax:p%2F%3F@h:65535", "redis", "u:x", "p/?", "h", 65535, NULL, false},
        {"amqp://g:g@h/%2F", "amqp", "g", "g", "h", 0, "/", false},
        {"amqp://h//", "amqp", NULL, NULL, "h", 0, "/", false},
        {"redis+unix:///run/redis.sock?db=0", "redis+unix", NULL, NULL, NULL, 0, "/run/redis.sock", false},
        {"redis+unix://u:p@/run/a%20b", "redis+unix", "u", "p", NULL, 0, "/run/a b", false},
        {"sqlite:bq.db", "sqlite", NULL, NULL, NULL, 0, "bq.db", true},
        {"sqlite:./dir/b q.db", "sqlite", NULL, NULL, NULL, 0, "./dir/b q.db", true},
        {"sqlite:/abs/x", "sqlite", NULL, NULL, NULL, 0, "/abs/x", true},
        {"sqlite:///abs/x", "sqlite", NULL, NULL, NULL, 0, "/abs/x", false},
        {"sqlite:a%23b%3Fc@d", "sqlite", NULL, NULL, NULL, 0, "a#b?c@d", true},
        {"memory:", "memory", NULL, NULL, NULL, 0, NULL, true},
        {"memory:shop", "memory", NULL, NULL, NULL, 0, "shop", true},
        {"sqs://eu-central-1", "sqs", NULL, NULL, "eu-central-1", 0, NULL, false},
        {"x://[fe80::1%25eth0]:5", "x", NULL, NULL, "fe80::1%eth0", 5, NULL, false},
        {"x://[::ffff:10.0.0.1]", "x", NULL, NULL, "::ffff:10.0.0.1", 0, NULL, false},
        {"x://10.0.0.1:007", "x", NULL, NULL, "10.0.0.1", 7, NULL, false},
        {"x://b\xc3\xbc"
         "cher.example",
         "x", NULL, NULL,
         "b\xc3\xbc"
         "cher.example",
         0, NULL, false},
        {"x://h?", "x", NULL, NULL, "h", 0, NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bq_url_parts parts = parsed(rows[i].text);
        expect_text(rows[i].text, parts.url.scheme, rows[i].scheme);
        expect_text(rows[i].text, parts.url.user, rows[i].user);
        expect_text(rows[i].text, parts.url.password, rows[i].password);
        expect_text(rows[i].text, parts.url.path, rows[i].path);
        assert_int_equal(parts.opaque, rows[i].opaque);
        assert_int_equal(parts.url.host_count, rows[i].host != NULL);
        if (rows[i].host) {
            expect_text(rows[i].text, parts.url.hosts[0].name, rows[i].host);
            assert_int_equal(parts.url.hosts[0].port, rows[i].port);
        }
        bq_url_parts_clear(&parts);
    }
}

static void several_hosts(void **state)
{
    (void)state;
    bq_url_parts parts = parsed("redis+sentinel://h1:26379,h2,[::1]:3/0?master=m");
    assert_int_equal(parts.url.host_count, 3);
    assert_string_equal(parts.url.hosts[0].name, "h1");
    assert_int_equal(parts.url.hosts[0].port, 26379);
    assert_string_equal(parts.url.hosts[1].name, "h2");
    assert_int_equal(parts.url.hosts[1].port, 0);
    assert_string_equal(parts.url.hosts[2].name, "::1");
    assert_int_equal(parts.url.hosts[2].port, 3);
    assert_string_equal(parts.url.path, "0");
    bq_url_parts_clear(&parts);
}

static void options_in_order(void **state)
{
    (void)state;
    bq_url_parts parts = parsed("x:p?a=1&b=%26%3D&&c=&d&a=x=y+z&");
    const char *expected[][2] = {{"a", "1"}, {"b", "&="}, {"c", ""}, {"d", NULL}, {"a", "x=y+z"}};
    assert_int_equal(parts.option_count, 5);
    for (size_t i = 0; i < 5; i++) {
        expect_text("name", parts.options[i].name.ptr, expected[i][0]);
        expect_text("value", parts.options[i].value.ptr, expected[i][1]);
    }
    bq_url_parts_clear(&parts);
}

/* Each refusal says what helps, and none repeats "hush", which stands for the secret. */
static void refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *advice;
    } rows[] = {
        {"", "empty"},
        {"hush", "scheme"},
        {"hush@host", "scheme"},
        {"://h", "scheme"},
        {"1x://h", "scheme"},
        {"Endpoint=sb://x;SharedAccessKey=hush", "scheme"},
        {" redis://h", "scheme"},
        {"redis://:p#hush@h", "%23"},
        {"redis://h/0#hush", "%23"},
        {"sqlite:a#b", "%23"},
        {"redis://h/0\n", "%0A"},
        {"redis://:hu\tsh@h", "%09"},
        {"redis://:%hush@h", "%25"},
        {"redis://:hush%@h", "%25"},
        {"redis://:hush%4@h", "%25"},
        {"redis://:hush%zz@h", "%25"},
        {"redis://h?token=hush%", "%25"},
        {"redis://h?%zz=hush", "%25"},
        {"sqlite:100%", "%25"},
        {"redis://:hush%00@h", "NUL"},
        {"sqlite:a%00b", "NUL"},
        {"redis://h?a%00=1", "NUL"},
        {"redis://:hush@sh@h", "%40"},
        {"redis://:hu/sh@h:6379/0", "%2F"},
        {"redis://user:hu/sh@h", "%2F"},
        {"redis://user:12?hush@h", "%3F"},
        {"redis://user:1/hush=x@h", "%2F"},
        {"redis://u:1@b/hush@h", "%2F"},
        {"redis://:hush", "host"},
        {"redis://h:hush", "port"},
        {"redis://h:", "port"},
        {"redis://h:0", "port"},
        {"redis://h:65536", "port"},
        {"redis://h:99999999999999999999", "port"},
        {"redis://h:-1", "port"},
        {"redis://h:+1", "port"},
        {"redis://h: 1", "port"},
        {"redis://::1", "brackets"},
        {"redis://::1:6379/0", "brackets"},
        {"redis://[::1", "']'"},
        {"redis://[::1]6379", "port"},
        {"redis://[::1]:", "port"},
        {"redis://[hush]", "IPv6"},
        {"redis://[]", "IPv6"},
        {"redis://[fe80::1%25]", "IPv6"},
        {"redis://[127.0.0.1]", "IPv6"},
        {"redis://[1111:2222:3333:4444:5555:6666:7777:8888:9999]", "IPv6"},
        {"redis://[0000000000000000000000000000000000000000000000000001]", "IPv6"},
        {"redis://:6379", "host"},
        {"redis://a,,b", "host"},
        {"redis://a,", "host"},
        {"redis://,a", "host"},
        {"redis://ho st", "host"},
        {"redis://h%2Fst", "host"},
        {"redis://h%00", "NUL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bq_url_parts parts;
        bq_error err;
        bq_status status = bq_url_parse(&parts, rows[i].text, &err);
        if (status != BQ_INVALID)
            fail_msg("\"%s\" was accepted", rows[i].text);
        assert_null(parts.storage);
        if (!strstr(err.text, rows[i].advice))
            fail_msg("\"%s\": \"%s\" does not mention %s", rows[i].text, err.text, rows[i].advice);
        if (strstr(err.text, "hush") || strstr(err.text, "hu/sh"))
            fail_msg("\"%s\": \"%s\" tells a secret", rows[i].text, err.text);
    }
    bq_url_parts parts;
    assert_int_equal(bq_url_parse(&parts, NULL, NULL), BQ_INVALID);
}

static void masks_what_is_secret(void **state)
{
    (void)state;
    static const bq_option table[] = {
        {"token", BQ_OPT_STRING, 0, NULL, 0, 0, NULL, BQ_OPT_SECRET, NULL, NULL},
        {"pin", BQ_OPT_STRING, 0, NULL, 0, 0, NULL, BQ_OPT_SECRET, NULL, NULL},
        {"db", BQ_OPT_STRING, 0, NULL, 0, 0, NULL, 0, NULL, NULL},
        {NULL, BQ_OPT_STRING, 0, NULL, 0, 0, NULL, 0, NULL, NULL},
    };
    const char *rows[][2] = {
        {"redis://h:1/0", "redis://h:1/0"},
        {"redis://u:hush%23@h1,h2:3/0?db=1", "redis://u:***@h1,h2:3/0?db=1"},
        {"redis://:hush@h", "redis://:***@h"},
        {"redis://u:@h", "redis://u:***@h"},
        {"x://u:hush@h?token=hush&db=1&pin=", "x://u:***@h?token=***&db=1&pin=***"},
        {"x:p?t%6Fken=hush&token", "x:p?t%6Fken=***&token"},
        {"x:p?other=hush&db=2", "x:p?other=***&db=2"},
        {"sqlite:a b.db", "sqlite:a b.db"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bq_url_parts parts = parsed(rows[i][0]);
        bq_url_mask(&parts, table);
        assert_string_equal(parts.url.safe, rows[i][1]);
        bq_url_parts_clear(&parts);
    }
}

/* The block is sized from the text alone: the fullest URLs for their length must fit (ASan watches). */
static void the_block_is_large_enough(void **state)
{
    (void)state;
    char text[600];
    for (int n = 1; n < 60; n++) {
        int len = snprintf(text, sizeof text, "a://b:@");
        for (int i = 0; i < n; i++)
            len += snprintf(text + len, sizeof text - (size_t)len, i ? ",h" : "h");
        len += snprintf(text + len, sizeof text - (size_t)len, "/p?");
        for (int i = 0; i < n; i++)
            len += snprintf(text + len, sizeof text - (size_t)len, i ? "&x=" : "x=");
        bq_url_parts parts = parsed(text);
        assert_int_equal(parts.url.host_count, n);
        assert_int_equal(parts.option_count, n);
        bq_url_mask(&parts, NULL);
        assert_int_equal(strlen(parts.url.safe), (size_t)len + 3 * (size_t)(n + 1));
        bq_url_parts_clear(&parts);
    }
}

static bq_status parse_once(void *arg)
{
    bq_url_parts parts;
    bq_error err;
    bq_status status = bq_url_parse(&parts, arg, &err);
    if (status == BQ_OK)
        bq_url_mask(&parts, NULL);
    bq_url_parts_clear(&parts);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    static char text[] = "redis://u:p@h1:1,h2:2/0?a=1&b=2";
    assert_int_equal(alloc_fail_each("url", parse_once, text), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(several_hosts),
        cmocka_unit_test(options_in_order),
        cmocka_unit_test(refused),
        cmocka_unit_test(masks_what_is_secret),
        cmocka_unit_test(the_block_is_large_enough),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
