/* The route table: thousands of URNs, compared byte for byte. */
#include "bq_test.h"

#include "runtime/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bq_outcome nothing(bq_delivery *d, void *arg)
{
    (void)d;
    (void)arg;
    return BQ_DONE;
}

enum { MANY = 5000 };

static void thousands(void **state)
{
    (void)state;
    static char names[MANY][40];
    static bq_route list[MANY];
    bq_routes routes;
    bq_error err;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "urn:babel:service-%d:event", i);
        list[i] = (bq_route){names[i], nothing, names[i]};
    }
    assert_int_equal(bq_routes_init(&routes, list, MANY, &err), BQ_OK);
    for (int i = 0; i < MANY; i++) {
        const bq_route_slot *slot = bq_routes_find(&routes, bq_str_of(names[i]));
        assert_non_null(slot);
        assert_ptr_equal(slot->arg, names[i]);
    }
    /* Names are the table's own, and nothing but the same bytes matches. */
    names[7][0] = 'U';
    assert_non_null(bq_routes_find(&routes, BQ_STR("urn:babel:service-7:event")));
    assert_null(bq_routes_find(&routes, BQ_STR("URN:babel:service-7:event")));
    assert_null(bq_routes_find(&routes, BQ_STR("urn:babel:service-7:even")));
    assert_null(bq_routes_find(&routes, BQ_STR("urn:babel:service-7:event ")));
    assert_null(bq_routes_find(&routes, (bq_str){"urn:babel:service-7:event\0", 26}));
    assert_null(bq_routes_find(&routes, BQ_STR_NULL));
    bq_routes_clear(&routes);
}

static void none(void **state)
{
    (void)state;
    bq_routes routes;
    bq_error err;
    assert_int_equal(bq_routes_init(&routes, NULL, 0, &err), BQ_OK);
    assert_null(bq_routes_find(&routes, BQ_STR("urn:a")));
    bq_routes_clear(&routes);
    bq_routes_clear(&routes);
}

static void mistakes(void **state)
{
    (void)state;
    bq_routes routes;
    bq_error err;
    bq_route twice[] = {{"urn:a", nothing, NULL}, {"urn:b", nothing, NULL}, {"urn:a", nothing, NULL}};
    bq_route null[] = {{NULL, nothing, NULL}};
    assert_int_equal(bq_routes_init(&routes, twice, 3, &err), BQ_INVALID);
    assert_string_equal(err.text, "two handlers for urn:a");
    assert_int_equal(bq_routes_init(&routes, null, 1, &err), BQ_INVALID);
    assert_string_equal(err.text, "route 1 has no URN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands),
        cmocka_unit_test(none),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
