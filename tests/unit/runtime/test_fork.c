/* What was opened before fork is refused in the child at once, and works on in the parent. */
#include "unit/cmocka_all.h"

#include <babelqueue/babelqueue.h>

#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define URL "memory:fork"

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Runs `child` in a forked process; it returns the number of its first check that failed, 0 for none. */
static void in_child(int (*child)(void *arg), void *arg)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20); /* a lock that nobody frees must not hang the test */
        _exit(child(arg));
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool refused(bq_status status, const bq_error *err)
{
    return status == BQ_INVALID && err->status == BQ_INVALID && strstr(err->text, URL ": opened before fork");
}

static bq_message_spec message(void)
{
    bq_message_spec spec = BQ_MESSAGE_SPEC_INIT;
    spec.queue = BQ_STR("q");
    spec.urn = BQ_STR("urn:x");
    spec.data = BQ_STR("{}");
    return spec;
}

static void never(bq_status status, const char *id, const bq_error *err, void *arg)
{
    (void)status, (void)id, (void)err;
    *(int *)arg += 1;
}

static int publisher_in_child(void *arg)
{
    bq_publisher *publisher = arg;
    bq_message_spec spec = message();
    char id[BQ_ID_SIZE] = "";
    int called = 0;
    bq_error err;
    int64_t began = now_ms();
    if (!refused(bq_publish(publisher, &spec, id, &err), &err))
        return 1;
    if (!refused(bq_publish_async(publisher, &spec, never, &called, &err), &err) || called)
        return 2;
    if (!refused(bq_publisher_wait(publisher, 10000, &err), &err))
        return 3;
    if (!refused(bq_publisher_flush(publisher, 10000, &err), &err))
        return 4;
    bq_publisher_close(publisher, 10000);
    return now_ms() - began > 5000 ? 5 : 0;
}

static int publish_one(void *arg)
{
    bq_publisher *publisher = NULL;
    bq_publisher_options options = BQ_PUBLISHER_OPTIONS_INIT;
    bq_message_spec spec = message();
    char id[BQ_ID_SIZE];
    bq_error err;
    (void)arg;
    if (bq_publisher_open(&publisher, URL, &options, &err) != BQ_OK)
        return 1;
    bool published = bq_publish(publisher, &spec, id, &err) == BQ_OK;
    bq_publisher_close(publisher, 1000);
    return published ? 0 : 2;
}

/* What the child opens for itself is its own. No thread of the parent is left that could hold a lock while it forks. */
static void one_of_the_childs_own(void **state)
{
    (void)state;
    assert_int_equal(publish_one(NULL), 0);
    in_child(publish_one, NULL);
    assert_int_equal(publish_one(NULL), 0);
}

static void a_publisher(void **state)
{
    (void)state;
    bq_publisher *publisher = NULL;
    bq_publisher_options options = BQ_PUBLISHER_OPTIONS_INIT;
    bq_message_spec spec = message();
    char id[BQ_ID_SIZE];
    bq_error err;
    assert_int_equal(bq_publisher_open(&publisher, URL, &options, &err), BQ_OK);
    assert_int_equal(bq_publish(publisher, &spec, id, &err), BQ_OK);
    in_child(publisher_in_child, publisher);
    assert_int_equal(bq_publish(publisher, &spec, id, &err), BQ_OK);
    bq_publisher_close(publisher, 1000);
}

static bq_outcome done(bq_delivery *delivery, void *arg)
{
    (void)delivery, (void)arg;
    return BQ_DONE;
}

static int consumer_in_child(void *arg)
{
    bq_consumer *consumer = arg;
    bq_error err;
    int64_t began = now_ms();
    if (!refused(bq_consumer_wait_connected(consumer, 10000, &err), &err))
        return 1;
    if (!refused(bq_consumer_wait(consumer, 10000, &err), &err))
        return 2;
    bq_consumer_close(consumer);
    return now_ms() - began > 5000 ? 3 : 0;
}

static void a_consumer(void **state)
{
    (void)state;
    static const char *const queues[] = {"q"};
    bq_consumer *consumer = NULL;
    bq_consumer_options options;
    bq_error err;
    BQ_CONSUMER_OPTIONS_INIT(&options);
    options.queues = queues;
    options.queue_count = 1;
    options.any = done;
    assert_int_equal(bq_consumer_open(&consumer, URL, &options, &err), BQ_OK);
    assert_int_equal(bq_consumer_wait_connected(consumer, 10000, &err), BQ_OK);
    in_child(consumer_in_child, consumer);
    assert_int_equal(bq_consumer_wait_connected(consumer, 10000, &err), BQ_OK);
    assert_int_equal(bq_consumer_wait(consumer, 0, &err), BQ_TIMEOUT);
    bq_consumer_close(consumer);
}

static int admin_in_child(void *arg)
{
    bq_admin *admin = arg;
    bq_stats stats = {.size = sizeof stats};
    int64_t count = 0;
    bq_error err;
    if (!refused(bq_admin_stats(admin, BQ_STR("q"), &stats, &err), &err))
        return 1;
    if (!refused(bq_admin_purge(admin, BQ_STR("q"), &count, &err), &err))
        return 2;
    return 0;
}

static void an_admin(void **state)
{
    (void)state;
    bq_admin *admin = NULL;
    bq_stats stats = {.size = sizeof stats};
    bq_error err;
    assert_int_equal(bq_admin_open(&admin, URL, 1000, NULL, &err), BQ_OK);
    in_child(admin_in_child, admin);
    assert_int_equal(bq_admin_stats(admin, BQ_STR("q"), &stats, &err), BQ_OK);
    bq_admin_close(admin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_the_childs_own),
        cmocka_unit_test(a_publisher),
        cmocka_unit_test(a_consumer),
        cmocka_unit_test(an_admin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
