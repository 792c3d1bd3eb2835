/* test_bullmq_kit.c - the BullMQ layout against the kit, as it is and stripped (KIT_STRIPPED). */
#include "unit/transport_kit.h"

#include "unit/transport/redis_place.h"

extern const bq_transport_ops bq_bullmq_ops;

int main(void)
{
    redis_places(36 + KIT_STRIPPED * 5, 5);
    redis_scheme("bullmq");
    redis_options("stalled_interval=1s&max_stalled=1000");
    const kit_broker broker = {.ops = &bq_bullmq_ops,
                               .place = redis_place,
                               .lease_option = "lock_duration",
                               .lease_min_ms = 1000,
                               .traits = KIT_EMPTY_BODY | KIT_FIFO | KIT_SHARED | KIT_GIVES_BACK};
#if KIT_STRIPPED
    return kit_run_stripped(&broker, "bullmq kit", "bullmq-bare");
#else
    return kit_run(&broker, "bullmq kit");
#endif
}
