/* The registry: what a driver must bring, whose scheme is whose, and what a user learns of a scheme that is not there. */
#include "unit/cmocka_all.h"

#include "base/error.h"
#include "dummy_driver.h"
#include "transport/registry.h"

#include "bq_config.h"

#include <string.h>

static bool lists(const char *name)
{
    const bq_transport_ops *ops;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        if (strcmp(ops->name, name) == 0)
            return true;
    }
    return false;
}

static void built_in_drivers_are_sound(void **state)
{
    (void)state;
    const bq_transport_ops *ops;
    bq_error err;
    for (size_t i = 0; (ops = bq_transport_at(i)); i++) {
        if (bq_transport_check(ops, &err) != BQ_OK)
            fail_msg("%s", err.text);
        assert_non_null(ops->summary);
        assert_non_null(ops->url_syntax);
        for (const bq_option *row = ops->table; row && row->name; row++)
            assert_non_null(row->help);
    }
}

static bool finished(void *t)
{
    (void)t;
    return true;
}

static bool idle(void *t, bool all)
{
    (void)t, (void)all;
    return true;
}

static void required_entries_are_named(void **state)
{
    (void)state;
    bq_error err;
    static const char *const none[] = {NULL};
#define WITHOUT(entry, change)                                                                                         \
    do {                                                                                                               \
        bq_transport_ops ops = dummy_ops;                                                                              \
        change;                                                                                                        \
        if (bq_transport_register(&ops, &err) != BQ_INVALID || !strstr(err.text, entry " is missing"))                 \
            fail_msg("%s: %s", entry, err.text);                                                                       \
    } while (0)
    WITHOUT("name", ops.name = NULL);
    WITHOUT("name", ops.name = "");
    WITHOUT("schemes", ops.schemes = NULL);
    WITHOUT("schemes", ops.schemes = none);
    WITHOUT("binding", ops.binding = NULL);
    WITHOUT("open", ops.open = NULL);
    WITHOUT("close", ops.close = NULL);
    WITHOUT("prepare", ops.prepare = NULL);
    WITHOUT("service", ops.service = NULL);
    WITHOUT("take", ops.take = NULL);
    WITHOUT("submit", ops.submit = NULL);
    WITHOUT("reap", ops.reap = NULL);
    WITHOUT("forget", ops.forget = NULL);
    WITHOUT("finish (beside finished)", ops.finished = finished);
    WITHOUT("finished (beside finish)", ops.finish = dummy_close);
    WITHOUT("idle (BQ_CAP_IDLE)", ops.capabilities = BQ_CAP_IDLE);
    WITHOUT("admin->peek (BQ_CAP_PEEK)", ops.capabilities = BQ_CAP_PEEK);
    static const bq_admin_ops no_peek = {.stats = NULL};
    WITHOUT("admin->peek (BQ_CAP_PEEK)", (ops.capabilities = BQ_CAP_PEEK, ops.admin = &no_peek));
    WITHOUT("(beside BQ_CAP_RETRY_DELAY)", ops.capabilities = BQ_CAP_RETRY_DELAY);
    WITHOUT("(beside BQ_CAP_RELEASE_DELAY)", ops.capabilities = BQ_CAP_RELEASE_DELAY);
#undef WITHOUT
    assert_false(lists("dummy"));
}

static void other_faults_are_refused(void **state)
{
    (void)state;
    bq_error err;
    assert_int_equal(bq_transport_register(NULL, &err), BQ_INVALID);
    bq_transport_ops ops = dummy_ops;
    ops.size -= sizeof(void *);
    assert_int_equal(bq_transport_register(&ops, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "another version"));

    const char *bad[] = {"Upper", "with space", "1st", "", "+x", "a:b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *schemes[] = {"fine", bad[i], NULL};
        ops = dummy_ops;
        ops.schemes = schemes;
        assert_int_equal(bq_transport_register(&ops, &err), BQ_INVALID);
    }
    ops = dummy_ops;
    ops.options_size = 8;
    assert_int_equal(bq_transport_register(&ops, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "driver dummy: option table: "));
}

static void a_capability_may_be_hidden(void **state)
{
    (void)state;
    /* A twin without its optional capabilities keeps the operations: that is how fallbacks are tested. */
    bq_error err;
    bq_transport_ops ops = dummy_ops;
    ops.idle = idle;
    assert_int_equal(bq_transport_check(&ops, &err), BQ_OK);
    ops.capabilities = BQ_CAP_IDLE | BQ_CAP_NATIVE_RETRY | BQ_CAP_RETRY_DELAY;
    assert_int_equal(bq_transport_check(&ops, &err), BQ_OK);
}

static void missing_schemes_and_neighbours(void **state)
{
    (void)state;
    const bq_transport_ops *ops;
    const char *scheme;
    bq_error err;
    size_t count = 0;
    for (; (scheme = bq_transport_missing_at(count)); count++) {
        assert_int_equal(bq_transport_find(bq_str_of(scheme), &ops, &err), BQ_NOT_BUILT);
        assert_null(ops);
        assert_non_null(strstr(err.text, scheme));
        /* An option is named only where there is one: nobody shall rebuild in vain. */
        bool has_option = strcmp(scheme, "sqlite") == 0;
        assert_true((strstr(err.text, "BQ_TRANSPORT_SQLITE") != NULL) == has_option);
        assert_true((strstr(err.text, "BQ_") != NULL) == has_option);
        if (has_option)
            continue;
        assert_non_null(strstr(err.text, "is not in this version ("));
        assert_non_null(strstr(err.text, bq_version()));
        assert_non_null(strstr(err.text, "built in are memory"));
#if BQ_HAVE_SQLITE
        assert_non_null(strstr(err.text, "built in are memory, sqlite"));
#endif
    }
    assert_int_equal(bq_transport_find(BQ_STR("rdis"), &ops, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "\"redis\""));
    assert_int_equal(bq_transport_find(BQ_STR("sqllite"), &ops, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "\"sqlite\""));
    /* What resembles nothing is compared with nothing ("sqs" is two letters away from "mysql" in half of them). */
    assert_int_equal(bq_transport_find(BQ_STR("mysql"), &ops, &err), BQ_INVALID);
    assert_null(strstr(err.text, "nearest"));
    assert_non_null(strstr(err.text, "unknown scheme \"mysql\": built in are memory"));
    assert_int_equal(bq_transport_find(BQ_STR("redis"), &ops, &err), lists("redis") ? BQ_OK : BQ_NOT_BUILT);
#if !BQ_HAVE_SQLITE
    assert_int_equal(bq_transport_find(BQ_STR("sqlite"), &ops, &err), BQ_NOT_BUILT);
#endif
}

static void drivers_of_the_program(void **state)
{
    (void)state;
    bq_error err;
    const bq_transport_ops *ops;
    assert_int_equal(bq_transport_find(BQ_STR("dummys"), &ops, &err), BQ_INVALID);
    assert_int_equal(bq_transport_register(&dummy_ops, &err), BQ_OK);
    assert_true(lists("dummy"));
    assert_int_equal(bq_transport_find(BQ_STR("dummys"), &ops, &err), BQ_OK);
    assert_ptr_equal(ops, &dummy_ops);
    assert_int_equal(bq_transport_register(&dummy_ops, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "of that name already"));

    bq_transport_ops second = dummy_ops;
    second.name = "second";
    assert_int_equal(bq_transport_register(&second, &err), BQ_INVALID);
    assert_non_null(strstr(err.text, "\"dummy\" belongs to the driver dummy"));

    /* A scheme that this build lacks may come from the program. */
    const char *lacking = bq_transport_missing_at(0);
    if (!lacking)
        return;
    static const char *own[2];
    static bq_transport_ops third;
    own[0] = lacking;
    third = dummy_ops;
    third.name = "third";
    third.schemes = own;
    assert_int_equal(bq_transport_register(&third, &err), BQ_OK);
    assert_int_equal(bq_transport_find(bq_str_of(lacking), &ops, &err), BQ_OK);
    const char *now = bq_transport_missing_at(0);
    assert_true(!now || strcmp(now, lacking) != 0);
}

static void the_limit_is_reported(void **state)
{
    (void)state;
    static char names[64][8];
    static const char *schemes[64][2];
    static bq_transport_ops many[64];
    bq_error err;
    bq_status status = BQ_OK;
    size_t n = 0;
    for (; n < 64 && status == BQ_OK; n++) {
        names[n][0] = 'z';
        names[n][1] = (char)('a' + n / 8);
        names[n][2] = (char)('a' + n % 8);
        schemes[n][0] = names[n];
        many[n] = dummy_ops;
        many[n].name = names[n];
        many[n].schemes = schemes[n];
        status = bq_transport_register(&many[n], &err);
    }
    assert_int_equal(status, BQ_BUSY);
    assert_true(n > 16);
    assert_false(lists(names[n - 1]));
    assert_true(lists(names[n - 2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_drivers_are_sound),     cmocka_unit_test(required_entries_are_named),
        cmocka_unit_test(other_faults_are_refused),       cmocka_unit_test(a_capability_may_be_hidden),
        cmocka_unit_test(missing_schemes_and_neighbours), cmocka_unit_test(drivers_of_the_program),
        cmocka_unit_test(the_limit_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
