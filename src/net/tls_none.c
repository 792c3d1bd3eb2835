/* tls_none.c - what a build without OpenSSL (BQ_TLS off) says. No context can be made, so nothing else is reached. */
#include "net/tls.h"

#include "base/error.h"

bq_status bq_tls_context_new(bq_tls_context **out, const bq_tls_options *options, bq_error *err)
{
    (void)options;
    *out = NULL;
    return bq_fail(err, BQ_NOT_BUILT, "TLS is not built into this library (build it with BQ_TLS)");
}

bq_tls_context *bq_tls_context_ref(bq_tls_context *context)
{
    return context;
}

void bq_tls_context_free(bq_tls_context *context)
{
    (void)context;
}

bq_status bq_tls_new(bq_tls **out, bq_tls_context *context, int fd, const char *host, bq_error *err)
{
    (void)context, (void)fd, (void)host;
    *out = NULL;
    return bq_fail(err, BQ_NOT_BUILT, "TLS is not built into this library (build it with BQ_TLS)");
}

bq_tls_result bq_tls_handshake(bq_tls *tls, bq_error *err)
{
    (void)tls, (void)err;
    return BQ_TLS_FAILED;
}

bq_tls_result bq_tls_read(bq_tls *tls, void *to, size_t size, size_t *count, bq_error *err)
{
    (void)tls, (void)to, (void)size, (void)err;
    *count = 0;
    return BQ_TLS_FAILED;
}

bq_tls_result bq_tls_write(bq_tls *tls, const void *from, size_t len, size_t *count, bq_error *err)
{
    (void)tls, (void)from, (void)len, (void)err;
    *count = 0;
    return BQ_TLS_FAILED;
}

bq_tls_result bq_tls_finish(bq_tls *tls)
{
    (void)tls;
    return BQ_TLS_DONE;
}

void bq_tls_free(bq_tls *tls)
{
    (void)tls;
}
