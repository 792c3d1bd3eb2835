/* Randomness: the form of UUIDs, no repetition across threads and forks, and life in a sandbox without a generator. */
#include "unit/cmocka_all.h"

#include "base/rand.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int compare_uuids(const void *a, const void *b)
{
    return memcmp(a, b, BQ_UUID_SIZE);
}

static void expect_distinct(char (*uuids)[BQ_UUID_SIZE], size_t count)
{
    qsort(uuids, count, sizeof *uuids, compare_uuids);
    for (size_t i = 1; i < count; i++)
        assert_string_not_equal(uuids[i - 1], uuids[i]);
}

static void uuids_have_version_4s_form(void **state)
{
    (void)state;
    char uuid[BQ_UUID_SIZE];
    for (int round = 0; round < 1000; round++) {
        bq_uuid4(uuid);
        assert_int_equal(strlen(uuid), 36);
        for (size_t i = 0; i < 36; i++) {
            if (i == 8 || i == 13 || i == 18 || i == 23)
                assert_int_equal(uuid[i], '-');
            else
                assert_non_null(strchr("0123456789abcdef", uuid[i]));
        }
        assert_int_equal(uuid[14], '4');
        assert_non_null(strchr("89ab", uuid[19]));
    }
}

static void every_bit_varies(void **state)
{
    (void)state;
    uint64_t ones = 0, zeros = 0;
    unsigned char big[256], zero[256] = {0};
    for (int i = 0; i < 200; i++) {
        uint64_t value = bq_random_u64();
        ones |= value;
        zeros |= ~value;
    }
    assert_true(ones == UINT64_MAX && zeros == UINT64_MAX);
    /* Sizes beside those that divide a block. */
    for (size_t len = 1; len <= sizeof big; len += 51) {
        memset(big, 0, sizeof big);
        bq_random(big, len);
        assert_memory_equal(big + len, zero, sizeof big - len);
    }
    bq_random(big, sizeof big);
    assert_memory_not_equal(big, zero, sizeof big);
}

#define THREADS 4
#define EACH 2000

static char of_threads[THREADS * EACH][BQ_UUID_SIZE];

static void *draw(void *arg)
{
    char(*to)[BQ_UUID_SIZE] = arg;
    for (int i = 0; i < EACH; i++)
        bq_uuid4(to[i]);
    return NULL;
}

static void threads_do_not_repeat_each_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, draw, of_threads[i * EACH]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    expect_distinct(of_threads, THREADS * EACH);
}

/* What `in_child` writes to its descriptor is read back; the child must end with status 0. */
static void read_from_child(void (*in_child)(int fd), void *out, size_t len)
{
    int fds[2], wait_status;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        in_child(fds[1]);
        _exit(0);
    }
    close(fds[1]);
    size_t done = 0;
    while (done < len) {
        ssize_t n = read(fds[0], (char *)out + done, len - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    close(fds[0]);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
    assert_int_equal(done, len);
}

static void write_uuids(int fd)
{
    char uuids[40][BQ_UUID_SIZE];
    for (int i = 0; i < 40; i++)
        bq_uuid4(uuids[i]);
    if (write(fd, uuids, sizeof uuids) != (ssize_t)sizeof uuids)
        _exit(1);
}

static void a_child_does_not_repeat_its_parent(void **state)
{
    (void)state;
    static char uuids[160][BQ_UUID_SIZE];
    bq_uuid4(uuids[0]); /* the block is half used when the children take it over */
    read_from_child(write_uuids, uuids[0], 40 * BQ_UUID_SIZE);
    read_from_child(write_uuids, uuids[40], 40 * BQ_UUID_SIZE);
    for (int i = 80; i < 160; i++)
        bq_uuid4(uuids[i]);
    expect_distinct(uuids, 160);
}

/* No getrandom (a filter answers ENOSYS); without descriptors no device either. */
static void forbid_getrandom(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(77);
}

static void write_uuids_from_the_device(int fd)
{
    forbid_getrandom();
    write_uuids(fd);
}

static void write_uuids_from_nothing(int fd)
{
    struct rlimit none = {0, 0};
    forbid_getrandom();
    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        _exit(1);
    write_uuids(fd);
}

static bool filters_work(void)
{
    int wait_status;
    pid_t pid = fork();
    if (pid == 0) {
        forbid_getrandom();
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &wait_status, 0) == pid && wait_status == 0;
}

static void a_sandbox_still_gets_distinct_identifiers(void **state)
{
    (void)state;
    if (!filters_work())
        skip();
    static char uuids[120][BQ_UUID_SIZE];
    read_from_child(write_uuids_from_the_device, uuids[0], 40 * BQ_UUID_SIZE);
    read_from_child(write_uuids_from_nothing, uuids[40], 40 * BQ_UUID_SIZE);
    read_from_child(write_uuids_from_nothing, uuids[80], 40 * BQ_UUID_SIZE);
    expect_distinct(uuids, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uuids_have_version_4s_form),
        cmocka_unit_test(every_bit_varies),
        cmocka_unit_test(threads_do_not_repeat_each_other),
        cmocka_unit_test(a_child_does_not_repeat_its_parent),
        cmocka_unit_test(a_sandbox_still_gets_distinct_identifiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
