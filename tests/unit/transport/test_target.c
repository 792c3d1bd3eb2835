/* Targets: a whole URL to a driver with its options filled, by precedence URL, environment, default; and the form that
 * may be logged. */
#include "unit/cmocka_all.h"

#include "base/error.h"
#include "dummy_driver.h"
#include "unit/alloc_fail.h"

#include <stdlib.h>
#include <string.h>

static int add_drivers(void **state)
{
    (void)state;
    return bq_transport_register(&dummy_ops, NULL) != BQ_OK || bq_transport_register(&dummy_file_ops, NULL) != BQ_OK;
}

static void everything_of_a_url(void **state)
{
    (void)state;
    bq_target target;
    bq_error err;
    assert_int_equal(bq_target_parse(&target,
                                     "dummys://u:p%23%25%40@[::1]:6379,h2/2?timeout=5&token=hush&layout=laravel"
                                     "&heartbeat=off&tls_verify=no",
                                     &err),
                     BQ_OK);
    const dummy_options *options = target.options;
    assert_ptr_equal(target.ops, &dummy_ops);
    assert_ptr_equal(target.binding, &dummy_binding);
    assert_string_equal(target.url.scheme, "dummys");
    assert_string_equal(target.url.password, "p#%@");
    assert_int_equal(target.url.host_count, 2);
    assert_string_equal(target.url.path, "2");
    assert_int_equal(options->net.timeout_ms, 5000);
    assert_int_equal(options->net.connect_timeout_ms, 10000);
    assert_int_equal(options->net.heartbeat_ms, -1);
    assert_string_equal(options->token, "hush");
    assert_int_equal(options->layout, 1);
    assert_false(options->tls.verify);
    assert_string_equal(target.url.safe, "dummys://u:***@[::1]:6379,h2/2?timeout=5&token=***&layout=laravel"
                                         "&heartbeat=off&tls_verify=no");
    bq_target_clear(&target);
    bq_target_clear(&target);
    assert_null(target.options);
}

static void the_text_need_not_outlive_the_call(void **state)
{
    (void)state;
    bq_target target;
    char text[] = "dummyfile:a%20b?text=x";
    assert_int_equal(bq_target_parse(&target, text, NULL), BQ_OK);
    memset(text, '#', sizeof text - 1);
    assert_string_equal(target.url.path, "a b");
    assert_string_equal(target.url.safe, "dummyfile:a%20b?text=x");
    assert_string_equal(((const dummy_options *)target.options)->text, "x");
    bq_target_clear(&target);
}

static void the_environment_fills_gaps(void **state)
{
    (void)state;
    bq_target target;
    setenv("BQ_TEST_TEXT", "outside", 1);
    setenv("BQ_TEST_TOKEN", "hush", 1);
    assert_int_equal(bq_target_parse(&target, "dummy://h?text=inside", NULL), BQ_OK);
    const dummy_options *options = target.options;
    assert_string_equal(options->text, "inside");
    assert_string_equal(options->token, "hush");
    assert_null(strstr(target.url.safe, "hush"));
    bq_target_clear(&target);
    assert_int_equal(bq_target_parse(&target, "dummy://h", NULL), BQ_OK);
    assert_string_equal(((const dummy_options *)target.options)->text, "outside");
    bq_target_clear(&target);

    bq_error err;
    setenv("BQ_TEST_COUNT", "many", 1);
    assert_int_equal(bq_target_parse(&target, "dummy://h?count=1", &err), BQ_OK); /* not even looked at */
    bq_target_clear(&target);
    assert_int_equal(bq_target_parse(&target, "dummy://h", &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "BQ_TEST_COUNT"));
    unsetenv("BQ_TEST_TEXT");
    unsetenv("BQ_TEST_TOKEN");
    unsetenv("BQ_TEST_COUNT");
}

static void refused(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bq_status status;
        const char *advice;
    } rows[] = {
        {"dummy://:p#hush@h", BQ_INVALID, "%23"},
        {"dumy://u:hush@h", BQ_INVALID, "\"dummy\""},
        {"dummy://u:hush@h?tmeout=1", BQ_INVALID, "\"timeout\""},
        {"dummy://u:hush@h?timeout", BQ_INVALID, "timeout=VALUE"},
        {"dummy://h?token", BQ_INVALID, "token=VALUE"},
        {"dummy://h?blah", BQ_INVALID, "unknown option"},
        {"dummy://h?token=hush&token=hush", BQ_INVALID, "twice"},
        {"dummy://h?token=hush&t%6Fken=hush", BQ_INVALID, "twice"},
        {"dummy://h?pin=hush", BQ_INVALID, "pin"},
        {"dummy://h?timeout=0", BQ_INVALID, "1ms"},
        {"dummy:h", BQ_INVALID, "dummy://"},
        {"dummy:/h", BQ_INVALID, "dummy://"},
        {"dummyfile://rel.db", BQ_INVALID, "dummyfile:PATH"},
        {"dummyfile://u:hush@/x", BQ_INVALID, "dummyfile:PATH"},
        {"dummy+unix://run/x.sock", BQ_INVALID, "dummy+unix:///"},
        {"dummy+unix://", BQ_INVALID, "dummy+unix:///"},
        {"dummy+unix:///", BQ_INVALID, "dummy+unix:///"},
        {"dummy+unix:/run/x", BQ_INVALID, "dummy://"},
        {"dummy://h?reconnect_min=20s", BQ_CONFIG, "reconnect_max"},
        {"dummy://h?reconnect_min=2s&reconnect_max=1s", BQ_CONFIG, "reconnect_max"},
        {"dummy://h?tls_cert=c.pem", BQ_CONFIG, "tls_key is missing"},
        {"dummy://h?tls_key=hush.pem", BQ_CONFIG, "tls_cert is missing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bq_target target;
        bq_error err;
        bq_status status = bq_target_parse(&target, rows[i].text, &err);
        if (status != rows[i].status)
            fail_msg("%s: %s", rows[i].text, bq_status_name(status));
        assert_int_equal(err.status, rows[i].status);
        assert_null(target.ops);
        assert_null(target.options);
        assert_null(target.storage);
        if (!strstr(err.text, rows[i].advice))
            fail_msg("%s: \"%s\" does not mention %s", rows[i].text, err.text, rows[i].advice);
        if (strstr(err.text, "hush"))
            fail_msg("%s: \"%s\" tells a secret", rows[i].text, err.text);
    }
}

static const bq_binding *bind_nothing(const void *options)
{
    (void)options;
    return NULL;
}

static void a_driver_without_options_or_binding(void **state)
{
    (void)state;
    static const char *const plain_schemes[] = {"plain", NULL}, *const unbound_schemes[] = {"unbound", NULL};
    static bq_transport_ops plain, unbound;
    bq_target target;
    bq_error err;
    plain = dummy_ops;
    plain.name = "plain";
    plain.schemes = plain_schemes;
    plain.table = NULL;
    plain.options_size = 0;
    plain.url_syntax = NULL;
    unbound = plain;
    unbound.name = "unbound";
    unbound.schemes = unbound_schemes;
    unbound.binding = bind_nothing;
    assert_int_equal(bq_transport_register(&plain, &err), BQ_OK);
    assert_int_equal(bq_transport_register(&unbound, &err), BQ_OK);
    assert_int_equal(bq_target_parse(&target, "plain:x", &err), BQ_OK);
    bq_target_clear(&target);
    assert_int_equal(bq_target_parse(&target, "plain://h?a=1", &err), BQ_INVALID);
    assert_int_equal(bq_target_parse(&target, "unbound:x", &err), BQ_CONFIG);
    assert_null(target.storage);
}

static bq_status parse_once(void *arg)
{
    bq_target target;
    bq_error err;
    bq_status status = bq_target_parse(&target, arg, &err);
    bq_target_clear(&target);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    static char text[] = "dummy://u:p@h1:1,h2:2/0?text=a&token=b&tls_ca=c";
    assert_true(alloc_fail_each("target", parse_once, text) >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_of_a_url),
        cmocka_unit_test(the_text_need_not_outlive_the_call),
        cmocka_unit_test(the_environment_fills_gaps),
        cmocka_unit_test(refused),
        cmocka_unit_test(a_driver_without_options_or_binding),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, add_drivers, NULL);
}
