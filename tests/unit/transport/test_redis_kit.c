/* test_redis_kit.c - the Redis driver against the kit, as it is and stripped, in the list layout. */
#include "unit/transport_kit.h"

#include "unit/transport/redis_place.h"

extern const bq_transport_ops bq_redis_ops;

int main(void)
{
    redis_places(1 + KIT_STRIPPED * 5, 5);
    const kit_broker broker = {.ops = &bq_redis_ops,
                               .place = redis_place,
                               .lease_option = "retry_after",
                               .lease_min_ms = 2000,
                               .traits = KIT_EMPTY_BODY | KIT_FIFO | KIT_SHARED | KIT_GIVES_BACK | KIT_LAST_ALONE};
#if KIT_STRIPPED
    return kit_run_stripped(&broker, "redis kit", "redis-bare");
#else
    return kit_run(&broker, "redis kit");
#endif
}
