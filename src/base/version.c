/* The library's own version. CMake and the public header each say it once; they must agree. */
#include <babelqueue/types.h>

#include "bq_config.h"

_Static_assert(BQ_VERSION_MAJOR == BQ_BUILD_VERSION_MAJOR && BQ_VERSION_MINOR == BQ_BUILD_VERSION_MINOR &&
                   BQ_VERSION_PATCH == BQ_BUILD_VERSION_PATCH,
               "types.h and CMakeLists.txt disagree about the version");

const char *bq_version(void)
{
    return BQ_BUILD_VERSION;
}
