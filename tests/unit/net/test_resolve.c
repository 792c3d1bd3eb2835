/* Names to addresses: numbers at once, names on threads that can be abandoned and are bounded. */
#include "unit/cmocka_all.h"

#include "net_support.h"

#include "net/resolve.h"
#include "unit/alloc_fail.h"

#include <semaphore.h>

static sem_t gate;
static int scripted_code;

static int blocked_lookup(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    (void)node;
    while (sem_wait(&gate) != 0) {
    }
    return getaddrinfo("127.0.0.1", service, hints, out);
}

static int failing_lookup(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    (void)node, (void)service, (void)hints, (void)out;
    errno = ENETDOWN;
    return scripted_code;
}

static int give_lookup_back(void **state)
{
    (void)state;
    bq_resolve_override(NULL);
    return 0;
}

static void await(const bq_resolve *resolve)
{
    struct pollfd fd = {.fd = bq_resolve_fd(resolve), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
    assert_true(bq_resolve_done(resolve));
}

static void addresses_need_no_thread(void **state)
{
    (void)state;
    const struct addrinfo *list;
    bq_resolve *resolve;
    bq_error err;
    bq_resolve_override(failing_lookup);
    expect_ok(bq_resolve_start(&resolve, "127.0.0.1", 6379, &err), &err);
    assert_true(bq_resolve_done(resolve));
    assert_int_equal(bq_resolve_running(), 0);
    await(resolve);
    expect_ok(bq_resolve_result(resolve, &list, &err), &err);
    const struct sockaddr_in *v4 = (const void *)list->ai_addr;
    assert_int_equal(v4->sin_family, AF_INET);
    assert_int_equal(ntohs(v4->sin_port), 6379);
    assert_int_equal(ntohl(v4->sin_addr.s_addr), INADDR_LOOPBACK);
    bq_resolve_free(resolve);
    expect_ok(bq_resolve_start(&resolve, "::1", 65535, &err), &err);
    expect_ok(bq_resolve_result(resolve, &list, &err), &err);
    assert_int_equal(list->ai_family, AF_INET6);
    bq_resolve_free(resolve);
    bq_resolve_free(NULL);
}

static void names_are_looked_up(void **state)
{
    (void)state;
    const struct addrinfo *list;
    bq_resolve *resolve;
    bq_error err;
    expect_ok(bq_resolve_start(&resolve, "localhost", 80, &err), &err);
    await(resolve);
    expect_ok(bq_resolve_result(resolve, &list, &err), &err);
    assert_non_null(list);
    bq_resolve_free(resolve);
    await_lookups();
}

static void failures_are_told(void **state)
{
    (void)state;
    const struct {
        int code;
        bq_status status;
        const char *mentions;
    } rows[] = {
        {EAI_NONAME, BQ_UNAVAILABLE, "broker.example"},
        {EAI_AGAIN, BQ_UNAVAILABLE, "broker.example"},
        {EAI_SYSTEM, BQ_UNAVAILABLE, "Network is down"},
        {EAI_MEMORY, BQ_NOMEM, "memory"},
    };
    bq_resolve_override(failing_lookup);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct addrinfo *list;
        bq_resolve *resolve;
        bq_error err;
        scripted_code = rows[i].code;
        expect_ok(bq_resolve_start(&resolve, "broker.example", 80, &err), &err);
        await(resolve);
        expect_failure(bq_resolve_result(resolve, &list, &err), rows[i].status, &err, rows[i].mentions);
        assert_true(err.flags & BQ_ERROR_RETRYABLE);
        assert_null(list);
        bq_resolve_free(resolve);
    }
    await_lookups();
}

static void abandoned_lookups_are_bounded(void **state)
{
    (void)state;
    bq_resolve *resolves[BQ_RESOLVE_MAX + 1];
    bq_error err;
    bq_resolve_override(blocked_lookup);
    for (int i = 0; i < BQ_RESOLVE_MAX; i++)
        expect_ok(bq_resolve_start(&resolves[i], "slow.example", 80, &err), &err);
    assert_int_equal(bq_resolve_running(), BQ_RESOLVE_MAX);
    expect_failure(bq_resolve_start(&resolves[BQ_RESOLVE_MAX], "slow.example", 80, &err), BQ_UNAVAILABLE, &err,
                   "other lookups");
    assert_null(resolves[BQ_RESOLVE_MAX]);
    assert_false(bq_resolve_done(resolves[0]));
    for (int i = 0; i < BQ_RESOLVE_MAX; i++)
        bq_resolve_free(resolves[i]); /* returns although getaddrinfo does not */
    assert_int_equal(bq_resolve_running(), BQ_RESOLVE_MAX);
    for (int i = 0; i < BQ_RESOLVE_MAX; i++)
        sem_post(&gate);
    await_lookups();

    /* And the places are free again. */
    sem_post(&gate);
    expect_ok(bq_resolve_start(&resolves[0], "slow.example", 80, &err), &err);
    await(resolves[0]);
    bq_resolve_free(resolves[0]);
    await_lookups();
}

static bq_status resolve_once(void *arg)
{
    const struct addrinfo *list;
    bq_resolve *resolve;
    bq_error err;
    bq_status status = bq_resolve_start(&resolve, arg, 80, &err);
    if (status == BQ_OK) {
        await(resolve);
        status = bq_resolve_result(resolve, &list, &err);
    }
    bq_resolve_free(resolve);
    await_lookups();
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    static char address[] = "127.0.0.1", name[] = "localhost";
    assert_int_equal(alloc_fail_each("address", resolve_once, address), 1);
    assert_int_equal(alloc_fail_each("name", resolve_once, name), 1);
}

int main(void)
{
    sem_init(&gate, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(addresses_need_no_thread, give_lookup_back),
        cmocka_unit_test_teardown(names_are_looked_up, give_lookup_back),
        cmocka_unit_test_teardown(failures_are_told, give_lookup_back),
        cmocka_unit_test_teardown(abandoned_lookups_are_bounded, give_lookup_back),
        cmocka_unit_test_teardown(survives_every_failing_allocation, give_lookup_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
