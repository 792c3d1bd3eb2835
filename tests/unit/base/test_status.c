/* Status codes: what scripts and logs see of them, and the version. */
#include "unit/cmocka_all.h"

#include <babelqueue/types.h>

#include <stdio.h>
#include <string.h>

static void names_texts_and_exit_statuses(void **state)
{
    (void)state;
    assert_int_equal(BQ_OK, 0);
    assert_string_equal(bq_status_name(BQ_UNAVAILABLE), "UNAVAILABLE");
    assert_string_equal(bq_status_text(BQ_UNAVAILABLE), "broker unreachable");
    /* The exit statuses that `bq help` lists. */
    assert_int_equal(bq_status_exit(BQ_OK), 0);
    assert_int_equal(bq_status_exit(BQ_INVALID), 64);
    assert_int_equal(bq_status_exit(BQ_DATA), 65);
    assert_int_equal(bq_status_exit(BQ_UNAVAILABLE), 69);
    assert_int_equal(bq_status_exit(BQ_UNKNOWN), 75);
    assert_int_equal(bq_status_exit(BQ_AUTH), 77);
    assert_int_equal(bq_status_exit(BQ_CONFIG), 78);
}

static void every_status_has_its_own_name(void **state)
{
    (void)state;
    for (int i = 0; i < BQ_STATUS_COUNT_; i++) {
        assert_true(strlen(bq_status_name((bq_status)i)) > 0);
        assert_true(strlen(bq_status_text((bq_status)i)) > 0);
        assert_true(i == 0 ? bq_status_exit(BQ_OK) == 0 : bq_status_exit((bq_status)i) >= 64);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(bq_status_name((bq_status)i), bq_status_name((bq_status)j));
    }
}

static void foreign_values_are_survived(void **state)
{
    (void)state;
    for (int i = -1; i <= BQ_STATUS_COUNT_; i += BQ_STATUS_COUNT_ + 1) {
        assert_non_null(bq_status_name((bq_status)i));
        assert_non_null(bq_status_text((bq_status)i));
        assert_int_equal(bq_status_exit((bq_status)i), 70);
    }
}

static void the_version_is_the_headers(void **state)
{
    (void)state;
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", BQ_VERSION_MAJOR, BQ_VERSION_MINOR, BQ_VERSION_PATCH);
    assert_string_equal(bq_version(), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_texts_and_exit_statuses),
        cmocka_unit_test(every_status_has_its_own_name),
        cmocka_unit_test(foreign_values_are_survived),
        cmocka_unit_test(the_version_is_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
