/* The shared library stays mapped when a program closes it: a look-up that was abandoned may still run on a thread of
 * its own (net/resolve.h), and returns into the library's code. */
#include "unit/cmocka_all.h"

#include <dlfcn.h>

static void closing_does_not_unmap(void **state)
{
    (void)state;
    void *library = dlopen(TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    assert_non_null(dlsym(library, "bq_version"));
    assert_int_equal(dlclose(library), 0);
    assert_non_null(dlopen(TEST_LIBRARY, RTLD_NOW | RTLD_NOLOAD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_does_not_unmap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
