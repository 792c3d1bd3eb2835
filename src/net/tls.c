/*
 * tls.c - TLS by OpenSSL 3. The socket is wrapped in a BIO of our own, because OpenSSL's writes without MSG_NOSIGNAL
 * and a reset connection would then kill a program that keeps the default disposition of SIGPIPE. OpenSSL's error
 * queue belongs to the thread and so, perhaps, to the program: it is emptied before each call and after each failure.
 */
#include "net/tls.h"

#include "base/error.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define PASSWORD_MAX 1024

struct bq_tls_context {
    atomic_int refs;
    SSL_CTX *ssl;
    bool verify;
    char *server_name;
};

struct bq_tls {
    SSL *ssl;
    char *name; /* what the certificate must be for; NULL: not verified */
    int fd;
    int system_error; /* of the last socket call */
    bool ended;       /* the socket's end was seen */
};

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* The oldest entry tells the cause, the later ones what it led to. */
static const char *reason(unsigned long *code)
{
    *code = ERR_get_error();
    const char *text = *code ? ERR_reason_error_string(*code) : NULL;
    ERR_clear_error();
    return text ? text : "no reason given";
}

static bq_status fail_config(bq_error *err, const char *option, const char *file)
{
    unsigned long code;
    const char *text = reason(&code);
    if (ERR_SYSTEM_ERROR(code))
        return bq_fail_errno(err, BQ_CONFIG, ERR_GET_REASON(code), "%s=%s", option, file);
    return bq_fail(err, BQ_CONFIG, "%s=%s: %s", option, file, text);
}

/* ---- the socket as a BIO ------------------------------------------------------------------------------------------- */

static BIO_METHOD *socket_method;
static pthread_once_t socket_method_once = PTHREAD_ONCE_INIT;

static int socket_result(BIO *bio, bq_tls *tls, ssize_t n)
{
    BIO_clear_retry_flags(bio);
    if (n >= 0)
        return (int)n;
    tls->system_error = errno;
    return -1;
}

static int socket_write(BIO *bio, const char *from, int len)
{
    bq_tls *tls = BIO_get_data(bio);
    ssize_t n;
    do
        n = send(tls->fd, from, (size_t)len, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    int result = socket_result(bio, tls, n);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        BIO_set_retry_write(bio);
    return result;
}

static int socket_read(BIO *bio, char *to, int size)
{
    bq_tls *tls = BIO_get_data(bio);
    ssize_t n;
    do
        n = recv(tls->fd, to, (size_t)size, 0);
    while (n < 0 && errno == EINTR);
    int result = socket_result(bio, tls, n);
    if (n == 0)
        tls->ended = true;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        BIO_set_retry_read(bio);
    return result;
}

static long socket_ctrl(BIO *bio, int command, long number, void *pointer)
{
    const bq_tls *tls = BIO_get_data(bio);
    (void)number, (void)pointer;
    switch (command) {
    case BIO_CTRL_FLUSH: return 1;
    case BIO_CTRL_EOF: return tls->ended;
    default: return 0;
    }
}

static int socket_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static void make_socket_method(void)
{
    int type = BIO_get_new_index();
    BIO_METHOD *method = type < 0 ? NULL : BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "bq socket");
    if (!method)
        return;
    BIO_meth_set_write(method, socket_write);
    BIO_meth_set_read(method, socket_read);
    BIO_meth_set_ctrl(method, socket_ctrl);
    BIO_meth_set_create(method, socket_create);
    socket_method = method;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

/* Always set: OpenSSL's own would ask at the terminal. */
static int give_password(char *to, int size, int writing, void *arg)
{
    const char *password = arg;
    (void)writing;
    size_t len = password ? strlen(password) : 0;
    if (!password || len > (size_t)size || len > PASSWORD_MAX)
        return -1;
    memcpy(to, password, len);
    return (int)len;
}

static bq_status load_authorities(SSL_CTX *ssl, const bq_tls_options *options, bq_error *err)
{
    if (!options->ca) {
        /* Nothing found is no fault here: verification will say so, and verify=no needs none. */
        if (options->verify)
            (void)SSL_CTX_set_default_verify_paths(ssl);
        return BQ_OK;
    }
    struct stat info;
    if (stat(options->ca, &info) != 0)
        return bq_fail_errno(err, BQ_CONFIG, errno, "tls_ca=%s", options->ca);
    int ok =
        S_ISDIR(info.st_mode) ? SSL_CTX_load_verify_dir(ssl, options->ca) : SSL_CTX_load_verify_file(ssl, options->ca);
    return ok == 1 ? BQ_OK : fail_config(err, "tls_ca", options->ca);
}

static bq_status load_own_certificate(SSL_CTX *ssl, const bq_tls_options *options, bq_error *err)
{
    SSL_CTX_set_default_passwd_cb(ssl, give_password);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, (void *)options->key_password);
    bq_status status = BQ_OK;
    if (options->cert && SSL_CTX_use_certificate_chain_file(ssl, options->cert) != 1)
        status = fail_config(err, "tls_cert", options->cert);
    else if (options->key && SSL_CTX_use_PrivateKey_file(ssl, options->key, SSL_FILETYPE_PEM) != 1)
        status = fail_config(err, "tls_key", options->key);
    else if (options->cert && SSL_CTX_check_private_key(ssl) != 1)
        status = bq_fail(err, BQ_CONFIG, "tls_key is not the key of tls_cert");
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL); /* borrowed for this call only */
    return status;
}

static bq_status configure(SSL_CTX *ssl, const bq_tls_options *options, bq_error *err)
{
    if (SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) != 1)
        return bq_fail(err, BQ_INTERNAL, "TLS 1.2 is not to be had from OpenSSL");
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ssl,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(ssl, 1);
    SSL_CTX_set_verify(ssl, options->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    bq_status status = load_authorities(ssl, options, err);
    return status == BQ_OK ? load_own_certificate(ssl, options, err) : status;
}

bq_status bq_tls_context_new(bq_tls_context **out, const bq_tls_options *options, bq_error *err)
{
    *out = NULL;
    ERR_clear_error();
    pthread_once(&socket_method_once, make_socket_method);
    bq_tls_context *context = bq_calloc(1, sizeof *context);
    if (!context || !socket_method) {
        bq_free(context);
        return bq_fail_nomem(err);
    }
    atomic_init(&context->refs, 1);
    context->verify = options->verify;
    context->ssl = SSL_CTX_new(TLS_client_method());
    bool named = options->server_name && *options->server_name;
    if (named)
        context->server_name = bq_strndup(bq_str_of(options->server_name));
    bq_status status;
    if (!context->ssl || (named && !context->server_name))
        status = bq_fail_nomem(err);
    else
        status = configure(context->ssl, options, err);
    ERR_clear_error();
    if (status != BQ_OK) {
        bq_tls_context_free(context);
        return status;
    }
    *out = context;
    return BQ_OK;
}

bq_tls_context *bq_tls_context_ref(bq_tls_context *context)
{
    atomic_fetch_add(&context->refs, 1);
    return context;
}

void bq_tls_context_free(bq_tls_context *context)
{
    if (!context || atomic_fetch_sub(&context->refs, 1) > 1)
        return;
    SSL_CTX_free(context->ssl);
    bq_free(context->server_name);
    bq_free(context);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static bool is_address(const char *name)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* Certificates know neither the zone of a link-local address nor the dot that ends a full name. */
static char *certified_name(const char *host)
{
    bq_str name = bq_str_of(host);
    const char *zone = strchr(host, '%');
    if (zone)
        name.len = (size_t)(zone - host);
    if (name.len > 1 && name.ptr[name.len - 1] == '.')
        name.len--;
    return bq_strndup(name);
}

static bool demand_name(bq_tls *tls)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(tls->ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_address(tls->name))
        return X509_VERIFY_PARAM_set1_ip_asc(param, tls->name) == 1;
    return X509_VERIFY_PARAM_set1_host(param, tls->name, 0) == 1;
}

static bool attach_socket(bq_tls *tls)
{
    BIO *bio = BIO_new(socket_method);
    if (!bio)
        return false;
    BIO_set_data(bio, tls);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_connect_state(tls->ssl);
    return true;
}

bq_status bq_tls_new(bq_tls **out, bq_tls_context *context, int fd, const char *host, bq_error *err)
{
    *out = NULL;
    ERR_clear_error();
    const char *name = context->server_name ? context->server_name : host;
    if (context->verify && !name)
        return bq_fail(err, BQ_CONFIG, "TLS without a host needs tls_server_name, to know whom to expect");
    bq_tls *tls = bq_calloc(1, sizeof *tls);
    if (!tls)
        return bq_fail_nomem(err);
    tls->fd = fd;
    bool ok = (!name || (tls->name = certified_name(name))) && (tls->ssl = SSL_new(context->ssl)) && attach_socket(tls);
    if (ok && name && !is_address(tls->name))
        ok = SSL_set_tlsext_host_name(tls->ssl, tls->name) == 1;
    if (ok && context->verify)
        ok = demand_name(tls);
    ERR_clear_error();
    if (!ok) {
        bq_tls_free(tls);
        return bq_fail_nomem(err);
    }
    *out = tls;
    return BQ_OK;
}

void bq_tls_free(bq_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    ERR_clear_error();
    bq_free(tls->name);
    bq_free(tls);
}

/* Does the peer's alert say that it does not accept who we are? A missing client certificate is a mere handshake
 * failure in TLS 1.2, and has its own alert in TLS 1.3. */
static bool refuses_us(int code)
{
    switch (code) {
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_NO_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED: return true;
    default: return false;
    }
}

/* The peer ended the connection without TLS's own farewell: what came before is all there is, but perhaps not all
 * that was sent. */
static bool was_cut_off(const bq_tls *tls, unsigned long code)
{
    return (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) ||
           (code == 0 && tls->ended);
}

static void describe_failure(const bq_tls *tls, bq_error *err)
{
    unsigned long code;
    const char *text = reason(&code);
    long verdict = SSL_get_verify_result(tls->ssl);
    int ssl_reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;

    if (ssl_reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        (void)bq_fail_flags(err, BQ_AUTH, 0, verdict, "TLS: the certificate is not accepted for \"%s\": %s",
                            tls->name ? tls->name : "", X509_verify_cert_error_string(verdict));
    else if (refuses_us(ssl_reason))
        (void)bq_fail_flags(err, BQ_AUTH, 0, ssl_reason, "TLS: the server refuses us or our certificate: %s", text);
    else if (ssl_reason == SSL_R_WRONG_VERSION_NUMBER)
        (void)bq_fail(err, BQ_UNAVAILABLE, "TLS: the peer does not speak TLS on this port");
    else if (code == 0 && tls->system_error != 0)
        (void)bq_fail_errno(err, BQ_UNAVAILABLE, tls->system_error, "TLS");
    else if (was_cut_off(tls, code))
        (void)bq_fail(err, BQ_UNAVAILABLE, "the peer cut the connection off");
    else
        (void)bq_fail_flags(err, BQ_UNAVAILABLE, BQ_ERROR_RETRYABLE, ssl_reason, "TLS: %s", text);
}

static bq_tls_result result_of(bq_tls *tls, int code, bq_error *err)
{
    switch (SSL_get_error(tls->ssl, code)) {
    case SSL_ERROR_NONE: return BQ_TLS_DONE;
    case SSL_ERROR_WANT_READ: return BQ_TLS_WANT_READ;
    case SSL_ERROR_WANT_WRITE: return BQ_TLS_WANT_WRITE;
    case SSL_ERROR_ZERO_RETURN: return BQ_TLS_EOF;
    default: describe_failure(tls, err); return BQ_TLS_FAILED;
    }
}

static void before_call(bq_tls *tls)
{
    ERR_clear_error();
    tls->system_error = 0;
}

bq_tls_result bq_tls_handshake(bq_tls *tls, bq_error *err)
{
    before_call(tls);
    return result_of(tls, SSL_do_handshake(tls->ssl), err);
}

bq_tls_result bq_tls_read(bq_tls *tls, void *to, size_t size, size_t *count, bq_error *err)
{
    before_call(tls);
    *count = 0;
    return result_of(tls, SSL_read_ex(tls->ssl, to, size, count), err);
}

bq_tls_result bq_tls_write(bq_tls *tls, const void *from, size_t len, size_t *count, bq_error *err)
{
    before_call(tls);
    *count = 0;
    return result_of(tls, SSL_write_ex(tls->ssl, from, len, count), err);
}

bq_tls_result bq_tls_finish(bq_tls *tls)
{
    before_call(tls);
    /* 0: ours is sent, the peer's has not come; nobody here waits for that. */
    int code = SSL_is_init_finished(tls->ssl) ? SSL_shutdown(tls->ssl) : 0;
    bq_tls_result result = code >= 0 ? BQ_TLS_DONE : result_of(tls, code, NULL);
    ERR_clear_error();
    return result;
}
