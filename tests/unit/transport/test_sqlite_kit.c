/* test_sqlite_kit.c - the SQLite driver against the kit: built once for each kind of commit, and once stripped. */
#include "unit/transport_kit.h"

#include "unit/transport/scratch.h"

extern const bq_transport_ops bq_sqlite_ops;

static char url[512];

static const char *place(const char *options)
{
    char all[256];
    (void)snprintf(all, sizeof(all), "sync=%s%s%s", KIT_SYNC, *options ? "&" : "", options);
    return scratch_url(url, sizeof(url), scratch_new(), all);
}

int main(void)
{
    kit_broker broker = {.ops = &bq_sqlite_ops,
                         .place = place,
                         .done = scratch_clear,
                         .lease_option = "retry_after",
                         .traits = KIT_NULL_BODY | KIT_EMPTY_BODY | KIT_TYPED_PROPS | KIT_FIFO | KIT_KEEPS_PLACE |
                                   KIT_SHARED | KIT_GIVES_BACK | KIT_LAST_ALONE | KIT_LOCAL};
#if KIT_STRIPPED
    return kit_run_stripped(&broker, "sqlite kit", "sqlite-bare");
#else
    return kit_run(&broker, KIT_SYNC);
#endif
}
