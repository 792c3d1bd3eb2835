/* "Did you mean": the edit distance and the choice of the nearest. */
#include "unit/cmocka_all.h"

#include "base/nearest.h"

#include <string.h>

static void distances(void **state)
{
    (void)state;
    const struct {
        const char *a, *b;
        size_t distance;
    } rows[] = {
        {"", "", 0},          {"", "abc", 3},        {"abc", "abc", 0},        {"kitten", "sitting", 3},
        {"redis", "rdis", 1}, {"redis", "redsi", 1}, {"sqlite", "sqllite", 1}, {"timeout", "timout", 1},
        {"ab", "ba", 1},      {"abcd", "badc", 2},   {"flaw", "lawn", 2},      {"a", "xyz", 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(bq_edit_distance(bq_str_of(rows[i].a), bq_str_of(rows[i].b)), rows[i].distance);
        assert_int_equal(bq_edit_distance(bq_str_of(rows[i].b), bq_str_of(rows[i].a)), rows[i].distance);
    }
}

static void long_names_count_by_their_beginning(void **state)
{
    (void)state;
    char a[500], b[500];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    assert_int_equal(bq_edit_distance((bq_str){a, sizeof a}, (bq_str){b, sizeof b}), 64);
    assert_int_equal(bq_edit_distance((bq_str){a, sizeof a}, (bq_str){a, 70}), 0);
}

static void the_first_of_the_nearest(void **state)
{
    (void)state;
    bq_nearest nearest = {.wanted = BQ_STR("tmeout")};
    assert_null(nearest.best.ptr);
    bq_nearest_offer(&nearest, BQ_STR("heartbeat"));
    assert_true(bq_str_equal(nearest.best, BQ_STR("heartbeat")));
    bq_nearest_offer(&nearest, BQ_STR("timeout"));
    bq_nearest_offer(&nearest, BQ_STR("tmeouts"));
    bq_nearest_offer(&nearest, BQ_STR("client_name"));
    assert_true(bq_str_equal(nearest.best, BQ_STR("timeout")));
    assert_int_equal(nearest.distance, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(long_names_count_by_their_beginning),
        cmocka_unit_test(the_first_of_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
