/* TLS over streams: who is trusted and who is not, farewells and cuts, buffered data, and no SIGPIPE. Certificates are
 * made here, by OpenSSL's API, for this run. */
#include "unit/cmocka_all.h"

#include "net_support.h"

#include "unit/alloc_fail.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pty.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* ---- certificates -------------------------------------------------------------------------------------------------- */

typedef struct identity {
    X509 *cert;
    EVP_PKEY *key;
} identity;

static char dir[64];

static const char *file(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(extension);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
}

/* `issuer` NULL: an authority that signs itself. `names` as in "DNS:localhost,IP:127.0.0.1". */
static identity make(const char *name, const char *names, const identity *issuer, int from_days, int to_days)
{
    static long serial = 1;
    identity id = {X509_new(), EVP_EC_gen("P-256")};
    X509 *above = issuer ? issuer->cert : id.cert;
    X509_set_version(id.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), 86400L * from_days);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), 86400L * to_days);
    X509_set_pubkey(id.cert, id.key);
    X509_NAME *subject = X509_get_subject_name(id.cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(id.cert, X509_get_subject_name(above));
    extend(id.cert, above, NID_basic_constraints, issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (names)
        extend(id.cert, above, NID_subject_alt_name, names);
    assert_true(X509_sign(id.cert, issuer ? issuer->key : id.key, EVP_sha256()) > 0);
    return id;
}

static void drop(identity *id)
{
    X509_free(id->cert);
    EVP_PKEY_free(id->key);
}

static void save_cert(const char *name, const identity *id)
{
    FILE *out = fopen(file(name), "w");
    assert_non_null(out);
    PEM_write_X509(out, id->cert);
    fclose(out);
}

static void save_key(const char *name, const identity *id, const char *password)
{
    FILE *out = fopen(file(name), "w");
    assert_non_null(out);
    PEM_write_PrivateKey(out, id->key, password ? EVP_aes_128_cbc() : NULL, (const unsigned char *)password,
                         password ? (int)strlen(password) : 0, NULL, NULL);
    fclose(out);
}

static identity ca, other_ca, good, expired, early, stranger, self_signed, client, other_client;

static int make_all(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/bq-tls-%d", (int)getpid());
    assert_int_equal(mkdir(dir, 0700), 0);
    ca = make("Test CA", NULL, NULL, -1, 30);
    other_ca = make("Other CA", NULL, NULL, -1, 30);
    good = make("server", "DNS:localhost,DNS:broker.example,IP:127.0.0.1,IP:::1", &ca, -1, 30);
    expired = make("expired", "DNS:localhost,IP:127.0.0.1", &ca, -30, -1);
    early = make("early", "DNS:localhost,IP:127.0.0.1", &ca, 1, 30);
    stranger = make("localhost", "DNS:elsewhere.example,IP:127.0.0.9", &ca, -1, 30);
    self_signed = make("server", "DNS:localhost,IP:127.0.0.1", NULL, -1, 30);
    client = make("client", NULL, &ca, -1, 30);
    other_client = make("client", NULL, &other_ca, -1, 30);
    save_cert("ca.pem", &ca);
    save_cert("other-ca.pem", &other_ca);
    save_cert("client.pem", &client);
    save_key("client.key", &client, NULL);
    save_key("client-locked.key", &client, "hush hush");
    save_cert("other-client.pem", &other_client);
    save_key("other-client.key", &other_client, NULL);
    FILE *out = fopen(file("garbage.pem"), "w");
    fputs("no certificate at all\n", out);
    fclose(out);
    /* A directory of authorities: files named by the hash of their subject. */
    char hashed[64];
    assert_int_equal(mkdir(file("authorities"), 0700), 0);
    (void)snprintf(hashed, sizeof hashed, "authorities/%08lx.0", X509_subject_name_hash(ca.cert));
    save_cert(hashed, &ca);
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    identity *all[] = {&ca, &other_ca, &good, &expired, &early, &stranger, &self_signed, &client, &other_client};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        drop(all[i]);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command);
}

/* ---- the other side ------------------------------------------------------------------------------------------------- */

typedef struct tls_script {
    const identity *id;
    int max_version;
    bool wants_client;
    void (*talk)(SSL *ssl, struct tls_script *sc); /* NULL: echo */
    size_t len;
    sem_t go;
    bool intact, ended;
    char server_name[64];
} tls_script;

static void echo(SSL *ssl, tls_script *sc)
{
    char bytes[5000];
    int n;
    (void)sc;
    while ((n = SSL_read(ssl, bytes, sizeof bytes)) > 0)
        (void)SSL_write(ssl, bytes, n);
    (void)SSL_shutdown(ssl);
}

static void serve_tls(int fd, void *arg)
{
    tls_script *sc = arg;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_security_level(context, 0); /* so that TLS 1.1 can be offered at all */
    SSL_CTX_use_certificate(context, sc->id->cert);
    SSL_CTX_use_PrivateKey(context, sc->id->key);
    SSL_CTX_set_min_proto_version(context, 0);
    SSL_CTX_set_max_proto_version(context, sc->max_version);
    if (sc->wants_client) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.cert);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        (void)snprintf(sc->server_name, sizeof sc->server_name, "%s", name ? name : "");
        (sc->talk ? sc->talk : echo)(ssl, sc);
    } else {
        await_end(fd); /* so that the alert is not lost to a reset */
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    ERR_clear_error();
}

static bq_tls_options trusting(const char *authority)
{
    return (bq_tls_options){.ca = authority ? file(authority) : NULL, .verify = true};
}

static bq_stream *dial(const char *host, int port, const bq_tls_options *options)
{
    bq_tls_context *context;
    bq_error err;
    expect_ok(bq_tls_context_new(&context, options, &err), &err);
    bq_stream_config config = {.host = host, .port = port, .tls = context, .connect_timeout_ms = PATIENCE_MS};
    bq_stream *s = open_stream(&config);
    bq_tls_context_free(context); /* the stream has its own reference */
    return s;
}

static bq_status say_hello(bq_stream *s, bq_error *err)
{
    size_t five = 5;
    bq_status status = bq_stream_write(s, BQ_STR("hello"), err);
    if (status == BQ_OK)
        status = run_until(s, has_input, &five, err);
    if (status == BQ_OK)
        assert_memory_equal(bq_stream_input(s).ptr, "hello", 5);
    return status;
}

/* ---- trust ----------------------------------------------------------------------------------------------------------- */

typedef struct trust_row {
    const char *host;
    const identity *id;
    bq_tls_options options;
    bool wants_client;
    bq_status status;
    const char *mentions;
} trust_row;

static void try_trust(const trust_row *row, int max_version)
{
    server srv = {0};
    tls_script sc = {.id = row->id, .max_version = max_version, .wants_client = row->wants_client};
    bq_error err;
    server_start(&srv, strchr(row->host, ':') ? "::1" : "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial(row->host, srv.port, &row->options);
    bq_status status = say_hello(s, &err);
    if (row->status == BQ_OK)
        expect_ok(status, &err);
    else
        expect_failure(status, row->status, &err, row->mentions);
    bq_stream_close(s);
    server_end(&srv);
}

static bool ipv6_is_there(void)
{
    int port, fd = listen_at("::1", 1, &port);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void who_is_trusted(void **state)
{
    (void)state;
    const char *authority = file("ca.pem");
    bq_tls_options trust = {.ca = authority, .verify = true}, blind = {.verify = false};
    bq_tls_options named = trust, misnamed = trust, by_address = trust, by_dir = trust, dotted = trust;
    bq_tls_options other = {.ca = file("other-ca.pem"), .verify = true}, system_only = {.verify = true};
    named.server_name = "broker.example";
    misnamed.server_name = "elsewhere.example";
    by_address.server_name = "127.0.0.1";
    by_dir.ca = file("authorities");
    dotted.server_name = "broker.example.";
    const trust_row rows[] = {
        {"localhost", &good, trust, false, BQ_OK, NULL},
        {"127.0.0.1", &good, trust, false, BQ_OK, NULL},
        {"::1", &good, trust, false, BQ_OK, NULL},
        {"127.0.0.1", &good, named, false, BQ_OK, NULL},
        {"127.0.0.1", &good, dotted, false, BQ_OK, NULL},
        {"localhost", &good, by_address, false, BQ_OK, NULL},
        {"127.0.0.1", &good, by_dir, false, BQ_OK, NULL},
        {"127.0.0.1", &good, misnamed, false, BQ_AUTH, "elsewhere.example"},
        {"localhost", &stranger, trust, false, BQ_AUTH, "mismatch"}, /* the common name does not count beside names */
        {"127.0.0.1", &stranger, trust, false, BQ_AUTH, "IP address mismatch"},
        {"127.0.0.1", &expired, trust, false, BQ_AUTH, "expired"},
        {"127.0.0.1", &early, trust, false, BQ_AUTH, "not yet valid"},
        {"127.0.0.1", &self_signed, trust, false, BQ_AUTH, "self-signed"},
        {"127.0.0.1", &good, other, false, BQ_AUTH, "issuer"},
        {"127.0.0.1", &good, system_only, false, BQ_AUTH, "issuer"},
        {"127.0.0.1", &stranger, blind, false, BQ_OK, NULL},
        {"127.0.0.1", &expired, blind, false, BQ_OK, NULL},
        {"127.0.0.1", &self_signed, blind, false, BQ_OK, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].host, "::1") == 0 && !ipv6_is_there())
            continue;
        try_trust(&rows[i], TLS1_2_VERSION);
        try_trust(&rows[i], TLS1_3_VERSION);
    }
}

static void client_certificates(void **state)
{
    (void)state;
    bq_tls_options none = trusting("ca.pem"), ours = none, locked = none, others = none;
    ours.cert = locked.cert = file("client.pem");
    ours.key = file("client.key");
    locked.key = file("client-locked.key");
    locked.key_password = "hush hush";
    others.cert = file("other-client.pem");
    others.key = file("other-client.key");
    const trust_row rows[] = {
        {"127.0.0.1", &good, ours, true, BQ_OK, NULL},
        {"127.0.0.1", &good, locked, true, BQ_OK, NULL},
        {"127.0.0.1", &good, ours, false, BQ_OK, NULL},
        {"127.0.0.1", &good, none, true, BQ_AUTH, "refuses us"},
        {"127.0.0.1", &good, others, true, BQ_AUTH, "refuses us"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        try_trust(&rows[i], TLS1_2_VERSION);
        try_trust(&rows[i], TLS1_3_VERSION);
    }
}

static void the_name_that_is_asked_for(void **state)
{
    (void)state;
    const char *rows[][3] = {
        {"localhost", NULL, "localhost"},
        {"127.0.0.1", NULL, ""}, /* an address is never asked for (RFC 6066) */
        {"127.0.0.1", "broker.example", "broker.example"},
        {"127.0.0.1", "broker.example.", "broker.example"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        server srv = {0};
        tls_script sc = {.id = &good};
        bq_error err;
        bq_tls_options options = trusting("ca.pem");
        options.server_name = rows[i][1];
        server_start(&srv, "127.0.0.1", serve_tls, &sc);
        bq_stream *s = dial(rows[i][0], srv.port, &options);
        expect_ok(say_hello(s, &err), &err);
        bq_stream_close(s);
        server_end(&srv);
        assert_string_equal(sc.server_name, rows[i][2]);
    }
}

static void files_that_do_not_serve(void **state)
{
    (void)state;
    const struct {
        const char *ca, *cert, *key, *password, *mentions;
    } rows[] = {
        {"missing.pem", NULL, NULL, NULL, "missing.pem: No such file"},
        {"garbage.pem", NULL, NULL, NULL, "tls_ca="},
        {"ca.pem", "missing.pem", "client.key", NULL, "missing.pem: No such file"},
        {"ca.pem", "garbage.pem", "client.key", NULL, "tls_cert="},
        {"ca.pem", "client.pem", "missing.key", NULL, "missing.key: No such file"},
        {"ca.pem", "client.pem", "garbage.pem", NULL, "tls_key="},
        {"ca.pem", "client.pem", "other-client.key", NULL, "key"},
        {"ca.pem", "client.pem", NULL, NULL, "key"},
        {"ca.pem", "client.pem", "client-locked.key", NULL, "tls_key="}, /* and asks nobody */
        {"ca.pem", "client.pem", "client-locked.key", "hush", "tls_key="},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bq_tls_context *context;
        bq_error err;
        bq_tls_options options = trusting(rows[i].ca);
        options.cert = rows[i].cert ? file(rows[i].cert) : NULL;
        options.key = rows[i].key ? file(rows[i].key) : NULL;
        options.key_password = rows[i].password;
        expect_failure(bq_tls_context_new(&context, &options, &err), BQ_CONFIG, &err, rows[i].mentions);
        assert_null(context);
        assert_null(strstr(err.text, "hush"));
        assert_int_equal(ERR_peek_error(), 0); /* nothing is left to the program's own OpenSSL */
    }
    bq_tls_context_free(NULL);
}

/* With a terminal at hand, where OpenSSL would ask for the password and wait. */
static void nobody_is_asked_for_a_password(void **state)
{
    (void)state;
    int terminal, wait_status;
    pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    assert_true(pid >= 0);
    if (pid == 0) {
        bq_tls_context *context;
        bq_tls_options options = trusting("ca.pem");
        options.cert = file("client.pem");
        options.key = file("client-locked.key");
        _exit(bq_tls_context_new(&context, &options, NULL) == BQ_CONFIG ? 0 : 1);
    }
    char asked[200];
    struct pollfd fd = {.fd = terminal, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    ssize_t n = read(terminal, asked, sizeof asked); /* the terminal's end: EIO */
    close(terminal);
    if (n > 0)
        fail_msg("\"%.*s\"", (int)n, asked);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
}

static void a_unix_socket_needs_a_name(void **state)
{
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/tls.sock", dir);
    for (int named = 0; named < 2; named++) {
        server srv = {0};
        tls_script sc = {.id = &good};
        bq_tls_context *context;
        bq_error err;
        bq_tls_options options = trusting("ca.pem");
        options.server_name = named ? "broker.example" : "";
        expect_ok(bq_tls_context_new(&context, &options, &err), &err);
        server_begin(&srv, listen_at_path(path, 4), serve_tls, &sc);
        bq_stream_config config = {.path = path, .tls = context, .connect_timeout_ms = PATIENCE_MS};
        bq_stream *s = open_stream(&config);
        if (named)
            expect_ok(say_hello(s, &err), &err);
        else
            expect_failure(say_hello(s, &err), BQ_CONFIG, &err, "tls_server_name");
        bq_stream_close(s);
        bq_tls_context_free(context);
        server_end(&srv);
        unlink(path);
    }
}

/* ---- other protocols ---------------------------------------------------------------------------------------------------- */

static void old_versions_are_refused(void **state)
{
    (void)state;
    const trust_row row = {"127.0.0.1", &good, trusting("ca.pem"), false, BQ_UNAVAILABLE, "version"};
    try_trust(&row, TLS1_1_VERSION);
}

static void speak_plainly(int fd, void *arg)
{
    (void)arg;
    (void)send_all(fd, "220 welcome to a plain protocol\r\n", 33);
    await_end(fd);
}

static void a_plain_port(void **state)
{
    (void)state;
    server srv = {0};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    server_start(&srv, "127.0.0.1", speak_plainly, NULL);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "does not speak TLS");
    bq_stream_close(s);
    server_end(&srv);
}

static void stay_silent(int fd, void *arg)
{
    (void)arg;
    await_end(fd);
}

static void a_handshake_that_never_comes(void **state)
{
    (void)state;
    server srv = {0};
    bq_error err;
    bq_tls_context *context;
    bq_tls_options options = trusting("ca.pem");
    expect_ok(bq_tls_context_new(&context, &options, &err), &err);
    server_start(&srv, "127.0.0.1", stay_silent, NULL);
    bq_stream_config config = {.host = "127.0.0.1", .port = srv.port, .tls = context, .connect_timeout_ms = 200};
    bq_stream *s = open_stream(&config);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "no TLS handshake within");
    bq_stream_close(s);
    bq_tls_context_free(context);
    server_end(&srv);
}

static void hang_up(int fd, void *arg)
{
    char bytes[100];
    (void)arg;
    (void)recv(fd, bytes, sizeof bytes, 0);
}

static void a_handshake_that_is_cut(void **state)
{
    (void)state;
    server srv = {0};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    server_start(&srv, "127.0.0.1", hang_up, NULL);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    expect_failure(run_until(s, is_open, NULL, &err), BQ_UNAVAILABLE, &err, "connect to 127.0.0.1");
    bq_stream_close(s);
    server_end(&srv);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

static void send_much(SSL *ssl, tls_script *sc)
{
    char bytes[16384];
    for (size_t i = 0; i < sc->len; i += sizeof bytes) {
        fill_pattern(bytes, i, sizeof bytes);
        if (SSL_write(ssl, bytes, sizeof bytes) <= 0)
            return;
    }
    (void)SSL_shutdown(ssl);
    await_end(SSL_get_fd(ssl));
}

/* The loop trusts prepare alone: data that only TLS knows of must be announced by the deadline, or it is stuck. */
static void buffered_data_is_announced(void **state)
{
    (void)state;
    static const size_t ceilings[] = {1, 1000, 16384, 16385, 1 << 20};
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++) {
        server srv = {0};
        tls_script sc = {.id = &good, .len = ceilings[i] == 1 ? 16384 : 16384 * 100, .talk = send_much};
        bq_error err;
        bq_tls_options options = trusting("ca.pem");
        server_start(&srv, "127.0.0.1", serve_tls, &sc);
        bq_stream *s = dial("127.0.0.1", srv.port, &options);
        bq_stream_set_read_max(s, ceilings[i]);
        intake in = {.len = sc.len};
        expect_ok(run_until(s, take_pattern, &in, &err), &err);
        expect_ok(run_until(s, has_ended, NULL, &err), &err);
        bq_stream_close(s);
        server_end(&srv);
    }
}

static void a_full_queue_does_not_spin(void **state)
{
    (void)state;
    server srv = {0};
    tls_script sc = {.id = &good, .len = 16384 * 4, .talk = send_much};
    bq_error err;
    size_t full = 100;
    bq_tls_options options = trusting("ca.pem");
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    bq_stream_set_read_max(s, full);
    expect_ok(run_until(s, has_input, &full, &err), &err);
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 0);
    assert_int_equal(deadline, BQ_NEVER);
    bq_stream_consume(s, 1);
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
    assert_true(deadline <= bq_now_ms());
    bq_stream_close(s);
    server_end(&srv);
}

static void receive_all(SSL *ssl, tls_script *sc)
{
    char bytes[10000];
    int n;
    size_t received = 0;
    sc->intact = true;
    if (sc->ended) /* starts late, so that the client's socket fills up */
        while (sem_wait(&sc->go) != 0) {
        }
    while ((n = SSL_read(ssl, bytes, sizeof bytes)) > 0) {
        for (int i = 0; i < n; i++)
            sc->intact = sc->intact && bytes[i] == pattern(received + (size_t)i);
        received += (size_t)n;
    }
    sc->ended = SSL_get_error(ssl, n) == SSL_ERROR_ZERO_RETURN;
    sc->intact = sc->intact && received == sc->len;
    fill_pattern(bytes, 0, 10);
    (void)SSL_write(ssl, bytes, 10);
    (void)SSL_shutdown(ssl);
}

static void much_output_and_half_a_close(void **state)
{
    (void)state;
    server srv = {0};
    tls_script sc = {.id = &good, .talk = receive_all, .len = 12000000, .ended = true};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    char *bytes = malloc(300000);
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    for (size_t sent = 0; sent < sc.len; sent += 300000) {
        fill_pattern(bytes, sent, 300000);
        bq_str parts[] = {{bytes, 7}, {bytes + 7, 300000 - 7}};
        expect_ok(bq_stream_writev(s, parts, 2, &err), &err);
        expect_ok(bq_stream_flush(s, &err), &err);
        if (sent == 0)
            expect_ok(run_until(s, all_sent, NULL, &err), &err);
    }
    assert_true(bq_stream_queued(s) > 0);
    bq_stream_finish(s);
    sem_post(&sc.go);
    intake in = {.len = 10};
    expect_ok(run_until(s, take_pattern, &in, &err), &err); /* the other direction is still open */
    expect_ok(run_until(s, has_ended, NULL, &err), &err);
    bq_stream_close(s);
    server_end(&srv);
    assert_true(sc.intact && sc.ended);
    free(bytes);
}

/* Between the two sides: lets single bytes through. */
typedef struct relay {
    server srv;
    int target_port;
} relay;

static bool pass_one(int from, int to)
{
    char byte;
    return recv(from, &byte, 1, 0) == 1 && send_all(to, &byte, 1);
}

static void dribble(int fd, void *arg)
{
    const relay *r = arg;
    const int on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)r->target_port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int up = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(up, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    bool ok = connect(up, (struct sockaddr *)&to, sizeof to) == 0;
    while (ok) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = up, .events = POLLIN}};
        ok = poll(fds, 2, PATIENCE_MS) > 0;
        if (ok && fds[0].revents)
            ok = pass_one(fd, up);
        if (ok && fds[1].revents)
            ok = pass_one(up, fd);
    }
    close(up);
}

static void a_line_of_single_bytes(void **state)
{
    (void)state;
    server srv = {0};
    tls_script sc = {.id = &good};
    relay r = {0};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    r.target_port = srv.port;
    server_start(&r.srv, "127.0.0.1", dribble, &r);
    bq_stream *s = dial("127.0.0.1", r.srv.port, &options);
    char bytes[3000];
    fill_pattern(bytes, 0, sizeof bytes);
    expect_ok(bq_stream_write(s, (bq_str){bytes, sizeof bytes}, &err), &err);
    intake in = {.len = sizeof bytes};
    expect_ok(run_until(s, take_pattern, &in, &err), &err);
    bq_stream_close(s);
    server_end(&r.srv);
    server_end(&srv);
}

/* ---- ends ------------------------------------------------------------------------------------------------------------ */

static void send_and_cut(SSL *ssl, tls_script *sc)
{
    char bytes[10];
    (void)sc;
    fill_pattern(bytes, 0, sizeof bytes);
    (void)SSL_write(ssl, bytes, sizeof bytes);
}

static void a_cut_is_not_an_end(void **state)
{
    (void)state;
    server srv = {0};
    tls_script sc = {.id = &good, .talk = send_and_cut};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    expect_failure(run_until(s, has_ended, NULL, &err), BQ_UNAVAILABLE, &err, "cut");
    assert_int_equal(bq_stream_input(s).len, 10); /* what came before stays */
    expect_pattern(bq_stream_input(s).ptr, 0, 10);
    bq_stream_close(s);
    server_end(&srv);
}

static void leave(SSL *ssl, tls_script *sc)
{
    (void)ssl;
    while (sem_wait(&sc->go) != 0) {
    }
    /* The socket is closed now, without a farewell. */
}

static bq_stream *connect_to_one_that_left(void)
{
    server srv = {0};
    tls_script sc = {.id = &good, .talk = leave};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    sem_post(&sc.go);
    server_end(&srv);
    return s;
}

static bq_status write_and_flush(bq_stream *s, bq_error *err)
{
    bq_status status = bq_stream_write(s, BQ_STR("more"), err);
    return status == BQ_OK ? bq_stream_flush(s, err) : status;
}

static void no_sigpipe(void **state)
{
    (void)state;
    struct sigaction action;
    bq_error err;
    bq_status status = BQ_OK;
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
    bq_stream *s = connect_to_one_that_left();
    for (int i = 0; i < 100000 && status == BQ_OK; i++)
        status = write_and_flush(s, &err);
    expect_failure(status, BQ_UNAVAILABLE, &err, "Broken pipe");
    bq_stream_close(s);
}

/* A farewell into a connection that is broken already, which nobody but this call has noticed. */
static void a_farewell_to_nobody(void **state)
{
    (void)state;
    bq_error err;
    struct pollfd fd;
    int64_t deadline = BQ_NEVER;
    bq_stream *s = connect_to_one_that_left();
    expect_ok(write_and_flush(s, &err), &err);
    assert_int_equal(bq_stream_prepare(s, &fd, &deadline), 1);
    fd.events = 0; /* only for what breaks */
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    assert_int_equal(bq_stream_queued(s), 0);
    bq_stream_close(s);
}

static void speak_first(SSL *ssl, tls_script *sc)
{
    (void)SSL_write(ssl, "welcome", 7);
    sem_post(&sc->go);
    await_end(SSL_get_fd(ssl));
}

/* The end of a TLS 1.2 handshake and the first data may come in one piece, and be read by the handshake. */
static void data_behind_the_handshake(void **state)
{
    (void)state;
    server srv = {0};
    tls_script sc = {.id = &good, .max_version = TLS1_2_VERSION, .talk = speak_first};
    bq_error err;
    size_t seven = 7;
    bq_tls_options options = trusting("ca.pem");
    sem_init(&sc.go, 0, 0);
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    while (!bq_stream_is_open(s)) {
        struct pollfd fd;
        struct timespec soon;
        int64_t deadline = bq_now_ms() + PATIENCE_MS;
        size_t count = bq_stream_prepare(s, &fd, &deadline);
        assert_true(poll(&fd, count, PATIENCE_MS) > 0);
        /* If this is the last step, all that the server has to say is there when it is done. */
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 100000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        (void)sem_timedwait(&sc.go, &soon);
        expect_ok(bq_stream_service(s, fd.revents, &err), &err);
    }
    expect_ok(run_until(s, has_input, &seven, &err), &err);
    assert_memory_equal(bq_stream_input(s).ptr, "welcome", 7);
    bq_stream_close(s);
    server_end(&srv);
}

static void wait_for_the_end(SSL *ssl, tls_script *sc)
{
    char byte;
    int n = SSL_read(ssl, &byte, 1);
    sc->ended = SSL_get_error(ssl, n) == SSL_ERROR_ZERO_RETURN;
}

static void closing_says_farewell(void **state)
{
    (void)state;
    server srv = {0};
    tls_script sc = {.id = &good, .talk = wait_for_the_end};
    bq_error err;
    bq_tls_options options = trusting("ca.pem");
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream *s = dial("127.0.0.1", srv.port, &options);
    expect_ok(run_until(s, is_open, NULL, &err), &err);
    bq_stream_close(s);
    server_end(&srv);
    assert_true(sc.ended);
}

/* ---- allocation failures ----------------------------------------------------------------------------------------------- */

static bq_status talk_once(void *arg)
{
    bq_tls_context *context;
    bq_error err;
    bq_tls_options options = {.ca = arg, .verify = true, .server_name = "broker.example"};
    bq_status status = bq_tls_context_new(&context, &options, &err);
    if (status != BQ_OK)
        return status;
    server srv = {0};
    tls_script sc = {.id = &good};
    bq_stream *s;
    server_start(&srv, "127.0.0.1", serve_tls, &sc);
    bq_stream_config config = {.host = "127.0.0.1", .port = srv.port, .tls = context, .connect_timeout_ms = -1};
    status = bq_stream_open(&s, &config, &err);
    if (status == BQ_OK)
        status = say_hello(s, &err);
    bq_stream_close(s);
    bq_tls_context_free(context);
    server_end(&srv);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof path, "%s", file("ca.pem"));
    assert_true(alloc_fail_each("tls", talk_once, path) >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_trusted),
        cmocka_unit_test(client_certificates),
        cmocka_unit_test(the_name_that_is_asked_for),
        cmocka_unit_test(files_that_do_not_serve),
        cmocka_unit_test(nobody_is_asked_for_a_password),
        cmocka_unit_test(a_unix_socket_needs_a_name),
        cmocka_unit_test(old_versions_are_refused),
        cmocka_unit_test(a_plain_port),
        cmocka_unit_test(a_handshake_that_never_comes),
        cmocka_unit_test(a_handshake_that_is_cut),
        cmocka_unit_test(buffered_data_is_announced),
        cmocka_unit_test(data_behind_the_handshake),
        cmocka_unit_test(a_full_queue_does_not_spin),
        cmocka_unit_test(much_output_and_half_a_close),
        cmocka_unit_test(a_line_of_single_bytes),
        cmocka_unit_test(a_cut_is_not_an_end),
        cmocka_unit_test(no_sigpipe),
        cmocka_unit_test(a_farewell_to_nobody),
        cmocka_unit_test(closing_says_farewell),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, make_all, drop_all);
}
