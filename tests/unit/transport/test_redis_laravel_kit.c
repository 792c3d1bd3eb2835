/* test_redis_laravel_kit.c - the Redis driver against the kit, as it is and stripped, in Laravel's layout. */
#include "unit/transport_kit.h"

#include "unit/transport/redis_place.h"

extern const bq_transport_ops bq_redis_ops;

int main(void)
{
    redis_places(11 + KIT_STRIPPED * 5, 5);
    redis_options("layout=laravel");
    const kit_broker broker = {.ops = &bq_redis_ops,
                               .place = redis_place,
                               .lease_option = "retry_after",
                               .lease_min_ms = 2000,
                               .lacks = BQ_CAP_HEADERS | BQ_CAP_LAPSES,
                               .traits = KIT_EMPTY_BODY | KIT_FIFO | KIT_SHARED | KIT_GIVES_BACK | KIT_EARLY_SECOND};
#if KIT_STRIPPED
    return kit_run_stripped(&broker, "redis kit, laravel", "laravel-bare");
#else
    return kit_run(&broker, "redis kit, laravel");
#endif
}
