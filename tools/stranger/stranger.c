/* A stranger's first program: does the installed library compile, link and run? */
#include <babelqueue/types.h>
#include <stdio.h>

int main(void)
{
    puts(bq_version());
    return 0;
}
