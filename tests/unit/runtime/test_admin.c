/* Administration through the public API: counting, listing, peeking, purging, and what a driver cannot do. */
#include "bq_test.h"

#include "../fake_transport.h"

#include <babelqueue/redrive.h>

#include <stdio.h>
#include <string.h>

#define ENVELOPE "{\"job\":\"urn:a\",\"trace_id\":\"t\",\"data\":{},\"meta\":{\"schema_version\":1},\"attempts\":4}"

static bq_admin *admin;
static bq_error err;

static int setup(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bq_admin_close(admin);
    admin = NULL;
    fake_clear();
    return 0;
}

static void open_it(const char *url)
{
    if (bq_admin_open(&admin, url, 1000, NULL, &err))
        fail_msg("%s", err.text);
}

static void counts(void **state)
{
    (void)state;
    bq_stats s = {.size = sizeof s};
    fake_put("q", "1", NULL, 0);
    fake_put("q", "2", NULL, 0);
    open_it("fake:x");
    assert_int_equal(bq_admin_stats(admin, BQ_STR("q"), &s, &err), BQ_OK);
    assert_int_equal(s.ready, 2);
    assert_int_equal(s.delayed, 0);
    assert_int_equal(s.dead, -1);
    assert_string_equal(bq_admin_binding(admin)->name, "memory");
    assert_int_equal(bq_admin_stats(admin, BQ_STR(" "), &s, &err), BQ_INVALID);
}

/* An older caller's struct is smaller, and stays within its size. */
static void a_smaller_struct(void **state)
{
    (void)state;
    bq_stats s;
    memset(&s, 0x55, sizeof s);
    s.size = offsetof(bq_stats, in_flight);
    fake_put("q", "1", NULL, 0);
    open_it("fake:x");
    assert_int_equal(bq_admin_stats(admin, BQ_STR("q"), &s, &err), BQ_OK);
    assert_int_equal(s.ready, 1);
    assert_int_equal(s.in_flight, 0x5555555555555555);
}

static bool list(bq_str queue, void *arg)
{
    char *out = arg;
    size_t at = strlen(out);
    snprintf(out + at, 64 - at, "%.*s;", (int)queue.len, queue.ptr);
    return at < 4;
}

static void lists(void **state)
{
    (void)state;
    char seen[64] = "";
    fake_put("a", "1", NULL, 0);
    fake_put("b", "1", NULL, 0);
    fake_put("a", "2", NULL, 0);
    fake_put("c", "1", NULL, 0);
    fake_put("d", "1", NULL, 0);
    open_it("fake:x");
    assert_int_equal(bq_admin_queues(admin, list, seen, &err), BQ_OK);
    assert_string_equal(seen, "a;b;c;");
}

typedef struct looked {
    int count;
    uint64_t last;
    bq_peeked first;
    char route[64], body[256];
    bq_verdict verdict;
} looked;

static bool look(const bq_peeked *m, void *arg)
{
    looked *k = arg;
    if (k->count++ == 0) {
        k->first = *m;
        k->verdict = m->envelope->verdict;
        snprintf(k->route, sizeof k->route, "%.*s", (int)m->route.len, m->route.ptr ? m->route.ptr : "");
        snprintf(k->body, sizeof k->body, "%.*s", (int)m->body.len, m->body.ptr ? m->body.ptr : "");
    }
    k->last = m->position;
    return true;
}

static void peeks(void **state)
{
    (void)state;
    looked k = {0};
    bq_prop props[] = {
        {.place = BQ_PLACE_NATIVE, .type = BQ_PROP_STRING, .name = BQ_STR("type"), .text = BQ_STR("urn:routed")}};
    fake_put("q", ENVELOPE, props, 1);
    fake_put("q", "junk", NULL, 0);
    fake_put("q", ENVELOPE, NULL, 0);
    open_it("fake:x?binding=rabbitmq");
    assert_int_equal(bq_admin_peek(admin, BQ_STR("q"), 0, 2, look, &k, &err), BQ_OK);
    assert_int_equal(k.count, 2);
    assert_string_equal(k.route, "urn:routed");
    assert_string_equal(k.body, ENVELOPE);
    assert_int_equal(k.verdict, BQ_VERDICT_OK);
    assert_int_equal(k.first.attempts, 4);
    assert_int_equal(k.first.prop_count, 1);
    /* And on from there. */
    uint64_t after = k.last;
    memset(&k, 0, sizeof k);
    assert_int_equal(bq_admin_peek(admin, BQ_STR("q"), after, 10, look, &k, &err), BQ_OK);
    assert_int_equal(k.count, 1);
    assert_int_equal(fake_ops(-1), 0);
    assert_int_equal(fake_ready("q"), 3);
}

static void purges(void **state)
{
    (void)state;
    int64_t count = 0;
    fake_put("q", "1", NULL, 0);
    fake_put("q", "2", NULL, 0);
    fake_put("r", "3", NULL, 0);
    open_it("fake:x");
    assert_int_equal(bq_admin_purge(admin, BQ_STR("q"), &count, &err), BQ_OK);
    assert_int_equal(count, 2);
    assert_int_equal(fake_ready("q"), 0);
    assert_int_equal(fake_ready("r"), 1);
    assert_int_equal(bq_admin_purge(admin, BQ_STR("r"), NULL, &err), BQ_OK);
}

static void what_a_driver_cannot_do(void **state)
{
    (void)state;
    bq_stats s = {.size = sizeof s};
    looked k = {0};
    open_it("fakebare:x");
    assert_int_equal(bq_admin_stats(admin, BQ_STR("q"), &s, &err), BQ_UNSUPPORTED);
    assert_string_equal(err.text, "fakebare cannot count messages");
    assert_int_equal(bq_admin_queues(admin, list, NULL, &err), BQ_UNSUPPORTED);
    assert_int_equal(bq_admin_peek(admin, BQ_STR("q"), 0, 1, look, &k, &err), BQ_UNSUPPORTED);
    assert_int_equal(bq_admin_purge(admin, BQ_STR("q"), NULL, &err), BQ_UNSUPPORTED);
}

/* Between two calls the connection may have gone: the next one notices, and waits for it. */
static void reconnects(void **state)
{
    (void)state;
    bq_stats s = {.size = sizeof s};
    open_it("fake:x?timeout=50ms");
    fake_down("gone");
    assert_int_equal(bq_admin_stats(admin, BQ_STR("q"), &s, &err), BQ_UNAVAILABLE);
    assert_non_null(strstr(err.text, "gone"));
    fake_up();
    assert_int_equal(bq_admin_stats(admin, BQ_STR("q"), &s, &err), BQ_OK);
}

static void not_connected(void **state)
{
    (void)state;
    fake_down("no route");
    assert_int_equal(bq_admin_open(&admin, "fake:x", 30, NULL, &err), BQ_UNAVAILABLE);
    assert_non_null(strstr(err.text, "no route"));
    assert_null(admin);
    fake_fatal(BQ_AUTH, "wrong password");
    assert_int_equal(bq_admin_open(&admin, "fake:x", 1000, NULL, &err), BQ_AUTH);
    assert_int_equal(bq_admin_open(&admin, "fake:x?nosuch=1", 1000, NULL, &err), BQ_INVALID);
    bq_admin_close(NULL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(counts), T(a_smaller_struct),        T(lists),      T(peeks),
        T(purges), T(what_a_driver_cannot_do), T(reconnects), T(not_connected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
