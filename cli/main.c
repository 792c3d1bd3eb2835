/* The command bq: a placeholder until the verbs are in. */
#include <babelqueue/types.h>
#include <stdio.h>

int main(void)
{
    printf("bq %s\n", bq_version());
    return 0;
}
