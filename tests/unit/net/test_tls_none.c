/* A library built without TLS says so, at the first moment and without allocating. */
#include "unit/cmocka_all.h"

#include "net/tls.h"

#include <string.h>

static void no_context_is_made(void **state)
{
    (void)state;
    bq_tls_context *context;
    bq_tls *tls;
    bq_error err;
    const bq_tls_options options = {.verify = true};
    assert_int_equal(bq_tls_context_new(&context, &options, &err), BQ_NOT_BUILT);
    assert_null(context);
    assert_non_null(strstr(err.text, "BQ_TLS"));
    assert_int_equal(bq_tls_new(&tls, NULL, -1, "h", &err), BQ_NOT_BUILT);
    assert_null(tls);
    bq_tls_context_free(NULL);
    bq_tls_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_context_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
