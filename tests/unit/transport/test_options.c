/* Option tables: every type's values and limits, errors that name what helps and hide what is secret. */
#include "unit/cmocka_all.h"

#include "base/error.h"
#include "base/mem.h"
#include "dummy_driver.h"
#include "transport/options.h"
#include "unit/alloc_fail.h"

#include <stdlib.h>
#include <string.h>

static void defaults_as_in_the_table(void **state)
{
    (void)state;
    dummy_options options = {0};
    assert_int_equal(bq_options_defaults(dummy_table, &options, NULL), BQ_OK);
    assert_int_equal(options.net.connect_timeout_ms, 10000); /* `bq help urls`, of every network transport */
    assert_int_equal(options.net.timeout_ms, 30000);
    assert_int_equal(options.net.reconnect_min_ms, 100);
    assert_int_equal(options.net.reconnect_max_ms, 10000);
    assert_int_equal(options.net.heartbeat_ms, 0);
    assert_null(options.net.client_name);
    assert_true(options.tls.verify);
    assert_null(options.tls.ca);
    assert_string_equal(options.text, ":processing");
    assert_null(options.token);
    assert_int_equal(options.count, 3);
    assert_int_equal(options.lease_ms, 90000);
    assert_int_equal(options.size, 65536);
    assert_false(options.flag);
    assert_int_equal(options.layout, 0);
    bq_options_clear(dummy_table, &options);
    assert_null(options.text);
    bq_options_clear(dummy_table, &options);
    bq_options_clear(dummy_table, NULL);
    bq_options_clear(NULL, &options);
}

static dummy_options options_with(const char *name, const char *value)
{
    dummy_options options = {0};
    bq_error err;
    if (bq_options_set(dummy_table, &options, bq_str_of(name), bq_str_of(value), &err) != BQ_OK)
        fail_msg("%s=%s: %s", name, value, err.text);
    return options;
}

static void accepted_numbers(void **state)
{
    (void)state;
    assert_int_equal(options_with("count", "-5").count, -5);
    assert_int_equal(options_with("count", "100").count, 100);
    assert_int_equal(options_with("count", "007").count, 7);
    assert_int_equal(options_with("size", "1024").size, 1024);
    assert_int_equal(options_with("size", "1k").size, 1024);
    assert_int_equal(options_with("size", "16m").size, 16777216);
    assert_int_equal(options_with("retry_after", "2m").lease_ms, 120000);
    assert_int_equal(options_with("retry_after", "1.5").lease_ms, 1500);
    assert_int_equal(options_with("retry_after", "off").lease_ms, -1);
    assert_int_equal(options_with("retry_after", "0").lease_ms, -1);
    assert_int_equal(options_with("heartbeat", "off").net.heartbeat_ms, -1);
    assert_int_equal(options_with("connect_timeout", "1ms").net.connect_timeout_ms, 1);
    assert_int_equal(options_with("pin", "0").pin, 0);
}

static void accepted_texts_flags_and_choices(void **state)
{
    (void)state;
    assert_true(options_with("flag", "yes").flag);
    assert_false(options_with("flag", "no").flag);
    assert_int_equal(options_with("layout", "list").layout, 0);
    assert_int_equal(options_with("layout", "laravel").layout, 1);
    assert_int_equal(options_with("secret_choice", "bb").secret_choice, 1);
    dummy_options options = options_with("text", "");
    assert_string_equal(options.text, "");
    assert_int_equal(bq_options_set(dummy_table, &options, BQ_STR("text"), BQ_STR("second"), NULL), BQ_OK);
    assert_string_equal(options.text, "second");
    bq_options_clear(dummy_table, &options);
}

static void the_whole_range_of_int64(void **state)
{
    (void)state;
    struct {
        int64_t value;
    } options = {0};
    const bq_option table[] = {
        {"n", BQ_OPT_INT, 0, NULL, INT64_MIN, INT64_MAX, NULL, 0, NULL, NULL},
        {"s", BQ_OPT_SIZE, 0, NULL, INT64_MIN, INT64_MAX, NULL, 0, NULL, NULL},
        {NULL, BQ_OPT_INT, 0, NULL, 0, 0, NULL, 0, NULL, NULL},
    };
    assert_int_equal(bq_options_set(table, &options, BQ_STR("n"), BQ_STR("9223372036854775807"), NULL), BQ_OK);
    assert_true(options.value == INT64_MAX);
    assert_int_equal(bq_options_set(table, &options, BQ_STR("n"), BQ_STR("-9223372036854775808"), NULL), BQ_OK);
    assert_true(options.value == INT64_MIN);
    options.value = 5;
    const char *beyond[] = {"9223372036854775808", "-9223372036854775809", "92233720368547758080"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(bq_options_set(table, &options, BQ_STR("n"), bq_str_of(beyond[i]), NULL), BQ_INVALID);
    assert_int_equal(bq_options_set(table, &options, BQ_STR("s"), BQ_STR("9223372036854775807k"), NULL), BQ_INVALID);
    assert_int_equal(options.value, 5);
}

/* The error names the option and what is missing, and repeats the value only where it is no secret. */
static void refused_values(void **state)
{
    (void)state;
    const struct {
        const char *name, *value, *advice;
    } rows[] = {
        {"count", "", "whole number"},
        {"count", "-", "whole number"},
        {"count", "1.5", "whole number"},
        {"count", "0x10", "whole number"},
        {"count", " 1", "whole number"},
        {"count", "+1", "whole number"},
        {"count", "1k", "whole number"},
        {"count", "99999999999999999999", "whole number"},
        {"count", "101", "between -5 and 100"},
        {"count", "-6", "between -5 and 100"},
        {"size", "k", "size"},
        {"size", "1g", "size"},
        {"size", "1K", "size"},
        {"size", "1.5k", "size"},
        {"size", "17m", "between 1k and 16m"},
        {"size", "1023", "between 1k and 16m"},
        {"retry_after", "never", "or off"},
        {"retry_after", "-1", "or off"},
        {"retry_after", "3h", "between 0ms and 2h"},
        {"connect_timeout", "off", "250ms"},
        {"connect_timeout", "0", "between 1ms and 1h"},
        {"flag", "true", "yes or no"},
        {"flag", "", "yes or no"},
        {"flag", "YES", "yes or no"},
        {"layout", "hash", "list|laravel"},
        {"layout", "", "list|laravel"},
        {"layout", "list|laravel", "list|laravel"},
        {"pin", "hush", "whole number"},
        {"pin", "77777", "between 0 and 9999"},
        {"secret_choice", "hush", "a|bb"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dummy_options options = {0};
        bq_error err;
        bq_status status =
            bq_options_set(dummy_table, &options, bq_str_of(rows[i].name), bq_str_of(rows[i].value), &err);
        if (status != BQ_INVALID)
            fail_msg("%s=%s was accepted", rows[i].name, rows[i].value);
        if (!strstr(err.text, rows[i].name) || !strstr(err.text, rows[i].advice))
            fail_msg("%s=%s: \"%s\"", rows[i].name, rows[i].value, err.text);
        bool secret = strcmp(rows[i].name, "pin") == 0 || strcmp(rows[i].name, "secret_choice") == 0;
        if (*rows[i].value && secret == (strstr(err.text, rows[i].value) != NULL))
            fail_msg("%s=%s: \"%s\"", rows[i].name, rows[i].value, err.text);
    }
    dummy_options options = {0};
    assert_int_equal(bq_options_set(dummy_table, &options, BQ_STR("text"), BQ_STR("a\0b"), NULL), BQ_INVALID);
    assert_null(options.text);
}

static void unknown_names(void **state)
{
    (void)state;
    const struct {
        const char *name, *near;
    } rows[] = {{"tmeout", "\"timeout\""},
                {"reconect_max", "\"reconnect_max\""},
                {"tls_sever_name", "\"tls_server_name\""},
                {"TEXT", "known"},
                {"", "no"}};
    bq_error err;
    dummy_options options = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(bq_options_set(dummy_table, &options, bq_str_of(rows[i].name), BQ_STR("hush"), &err),
                         BQ_INVALID);
        if (!strstr(err.text, rows[i].near) || !strstr(err.text, rows[i].name) || strstr(err.text, "hush"))
            fail_msg("%s: %s", rows[i].name, err.text);
    }
    /* What is no name may be a piece of a secret. */
    const char *secrets[] = {"hush me", "hush@host", "hush:x", "hushhushhushhushhushhushhushhushhushhushhush",
                             "hush\n"};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        assert_int_equal(bq_options_set(dummy_table, &options, bq_str_of(secrets[i]), BQ_STR(""), &err), BQ_INVALID);
        assert_null(strstr(err.text, "hush"));
    }
    assert_int_equal(bq_options_set(NULL, &options, BQ_STR("x"), BQ_STR("y"), &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "\"x\""));
}

static void environment(void **state)
{
    (void)state;
    dummy_options options = {0};
    bq_error err;
    const bq_option *text = bq_options_find(dummy_table, BQ_STR("text"));
    const bq_option *pin = bq_options_find(dummy_table, BQ_STR("pin"));
    const bq_option *flag = bq_options_find(dummy_table, BQ_STR("flag"));
    assert_int_equal(bq_options_from_env(text, &options, &err), BQ_OK);
    assert_int_equal(bq_options_from_env(flag, &options, &err), BQ_OK);
    assert_null(options.text);
    setenv("BQ_TEST_TEXT", "", 1);
    assert_int_equal(bq_options_from_env(text, &options, &err), BQ_OK);
    assert_null(options.text);
    setenv("BQ_TEST_TEXT", "from outside", 1);
    assert_int_equal(bq_options_from_env(text, &options, &err), BQ_OK);
    assert_string_equal(options.text, "from outside");
    setenv("BQ_TEST_PIN", "hush", 1);
    assert_int_equal(bq_options_from_env(pin, &options, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "BQ_TEST_PIN"));
    assert_null(strstr(err.text, "hush"));
    unsetenv("BQ_TEST_TEXT");
    unsetenv("BQ_TEST_PIN");
    bq_options_clear(dummy_table, &options);
}

static void unsound_tables(void **state)
{
    (void)state;
    const struct {
        bq_option row;
        const char *advice;
    } rows[] = {
        {{"two words", BQ_OPT_BOOL, 0, NULL, 0, 0, NULL, 0, NULL, NULL}, "no name"},
        {{"n", (bq_option_type)77, 0, NULL, 0, 0, NULL, 0, NULL, NULL}, "type"},
        {{"n", BQ_OPT_INT, 16, NULL, 0, 9, NULL, 0, NULL, NULL}, "outside"},
        {{"n", BQ_OPT_INT, 12, NULL, 0, 9, NULL, 0, NULL, NULL}, "outside"},
        {{"n", BQ_OPT_INT, 4, NULL, 0, 9, NULL, 0, NULL, NULL}, "outside"},
        {{"n", BQ_OPT_INT, SIZE_MAX, NULL, 0, 9, NULL, 0, NULL, NULL}, "outside"},
        {{"n", BQ_OPT_INT, 0, NULL, 9, 0, NULL, 0, NULL, NULL}, "range"},
        {{"n", BQ_OPT_INT, 0, "10", 0, 9, NULL, 0, NULL, NULL}, "default"},
        {{"n", BQ_OPT_CHOICE, 0, NULL, 0, 0, NULL, 0, NULL, NULL}, "choices"},
        {{"n", BQ_OPT_CHOICE, 0, "c", 0, 0, "a|b", 0, NULL, NULL}, "default"},
    };
    bq_error err;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bq_option table[] = {rows[i].row, {NULL, BQ_OPT_INT, 0, NULL, 0, 0, NULL, 0, NULL, NULL}};
        if (bq_options_check(table, 16, &err) != BQ_INVALID || !strstr(err.text, rows[i].advice))
            fail_msg("row %zu: %s", i, err.text);
    }
    const bq_option twice[] = {{"n", BQ_OPT_BOOL, 0, NULL, 0, 0, NULL, 0, NULL, NULL},
                               {"n", BQ_OPT_BOOL, 1, NULL, 0, 0, NULL, 0, NULL, NULL},
                               {NULL, BQ_OPT_BOOL, 0, NULL, 0, 0, NULL, 0, NULL, NULL}};
    assert_int_equal(bq_options_check(twice, 16, &err), BQ_INVALID);
    assert_int_equal(bq_options_check(dummy_table, sizeof(dummy_options), &err), BQ_OK);
    assert_int_equal(bq_options_check(NULL, 0, &err), BQ_OK);
}

static bq_status fill_once(void *arg)
{
    (void)arg;
    dummy_options options = {0};
    bq_error err;
    bq_status status = bq_options_defaults(dummy_table, &options, &err);
    if (status == BQ_OK)
        status = bq_options_set(dummy_table, &options, BQ_STR("text"), BQ_STR("replaced"), &err);
    if (status == BQ_OK)
        status = bq_options_set(dummy_table, &options, BQ_STR("token"), BQ_STR("t"), &err);
    bq_options_clear(dummy_table, &options);
    if (status == BQ_OK)
        status = bq_options_check(dummy_table, sizeof(dummy_options), &err);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    assert_true(alloc_fail_each("options", fill_once, NULL) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_as_in_the_table),
        cmocka_unit_test(accepted_numbers),
        cmocka_unit_test(accepted_texts_flags_and_choices),
        cmocka_unit_test(the_whole_range_of_int64),
        cmocka_unit_test(refused_values),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(environment),
        cmocka_unit_test(unsound_tables),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
