/* test_redis_fault.c - error replies, as servers of several versions word them, and replies as they arrive. */
#include "bq_test.h"

#include "transport/redis/fault.h"
#include "transport/redis/reply.h"

#include <string.h>

static void meanings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        rd_meaning means;
        bq_status status;
    } rows[] = {
        {"NOAUTH Authentication required.", RD_MEANS_AUTH, BQ_AUTH},
        {"WRONGPASS invalid username-password pair or user is disabled.", RD_MEANS_AUTH, BQ_AUTH},
        {"ERR invalid password", RD_MEANS_AUTH, BQ_AUTH},
        {"ERR Client sent AUTH, but no password is set", RD_MEANS_AUTH, BQ_AUTH},
        {"ERR AUTH <password> called without any password configured for the default user.", RD_MEANS_AUTH, BQ_AUTH},
        {"NOPERM User x has no permissions to run the 'evalsha' command", RD_MEANS_AUTH, BQ_AUTH},
        {"ERR The user executing the script can't run this command or subcommand script: 1", RD_MEANS_AUTH, BQ_AUTH},
        {"READONLY You can't write against a read only replica.", RD_MEANS_RECONNECT, BQ_REFUSED},
        {"LOADING Redis is loading the dataset in memory", RD_MEANS_RECONNECT, BQ_REFUSED},
        {"MASTERDOWN Link with MASTER is down", RD_MEANS_RECONNECT, BQ_REFUSED},
        {"UNBLOCKED force unblock from blocking operation", RD_MEANS_RECONNECT, BQ_REFUSED},
        {"ERR max number of clients reached", RD_MEANS_RECONNECT, BQ_REFUSED},
        {"OOM command not allowed when used memory > 'maxmemory'.", RD_MEANS_FULL, BQ_REFUSED},
        {"-OOM command not allowed", RD_MEANS_FULL, BQ_REFUSED},
        {"ERR Error running script (call to f_7a): @user_script:3: @user_script: 3: -OOM command not allowed",
         RD_MEANS_FULL, BQ_REFUSED},
        {"ERR Error running script (call to f_7a): @user_script:3: -READONLY You can't write", RD_MEANS_RECONNECT,
         BQ_REFUSED},
        {"MISCONF Redis is configured to save RDB snapshots", RD_MEANS_FULL, BQ_REFUSED},
        {"NOREPLICAS Not enough good replicas to write.", RD_MEANS_FULL, BQ_REFUSED},
        {"BUSY Redis is busy running a script.", RD_MEANS_BUSY, BQ_REFUSED},
        {"CLUSTERDOWN The cluster is down", RD_MEANS_BUSY, BQ_REFUSED},
        {"NOSCRIPT No matching script. Please use EVAL.", RD_MEANS_NOSCRIPT, BQ_REFUSED},
        {"MOVED 3999 127.0.0.1:6381", RD_MEANS_CLUSTER, BQ_CONFIG},
        {"ASK 3999 127.0.0.1:6381", RD_MEANS_CLUSTER, BQ_CONFIG},
        {"CROSSSLOT Keys in request don't hash to the same slot", RD_MEANS_CLUSTER, BQ_CONFIG},
        {"WRONGTYPE Operation against a key holding the wrong kind of value", RD_MEANS_TYPE, BQ_CONFIG},
        {"ERR unknown command 'LMOVE'", RD_MEANS_OLD, BQ_UNSUPPORTED},
        {"ERR Unknown Redis command called from script", RD_MEANS_OLD, BQ_UNSUPPORTED},
        {"ERR DB index is out of range", RD_MEANS_DB, BQ_CONFIG},
        {"ERR something else", RD_MEANS_OTHER, BQ_REFUSED},
        {"OOMPH is no code", RD_MEANS_OTHER, BQ_REFUSED},
        {"", RD_MEANS_OTHER, BQ_REFUSED},
        {"-", RD_MEANS_OTHER, BQ_REFUSED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bq_error err;
        if (bq_rd_fault_meaning(bq_str_of(rows[i].text)) != rows[i].means)
            fail_msg("%s", rows[i].text);
        assert_int_equal(bq_rd_fault_error(bq_str_of(rows[i].text), "cannot", &err), rows[i].status);
        assert_int_equal(err.status, rows[i].status);
        assert_memory_equal(err.text, "cannot: ", 8);
    }
}

static rd_reply *read_whole(const char *text, size_t len, size_t step)
{
    bq_error err;
    rd_reply *reply = NULL;
    rd_reader *reader = bq_rd_reader_new();
    assert_non_null(reader);
    for (size_t at = 0; at < len; at += step) {
        assert_null(reply); /* not before its last byte */
        assert_int_equal(bq_rd_reader_feed(reader, (bq_str){text + at, at + step < len ? step : len - at}, &err),
                         BQ_OK);
        assert_int_equal(bq_rd_reader_next(reader, &reply, &err), BQ_OK);
    }
    bq_rd_reader_free(reader);
    assert_non_null(reply);
    return reply;
}

/* The same reply however it is cut. */
static void replies_in_pieces(void **state)
{
    (void)state;
    static const char text[] = "*6\r\n:1796085335348\r\n$-1\r\n$5\r\na\0b\r\n\r\n+OK\r\n-ERR no\r\n*2\r\n:-1\r\n*0\r\n";
    for (size_t step = 1; step < sizeof(text); step++) {
        rd_reply *reply = read_whole(text, sizeof(text) - 1, step);
        assert_int_equal(reply->type, RD_ARRAY);
        assert_int_equal(reply->count, 6);
        assert_true(bq_rd_int_at(reply, 0, 0) == INT64_C(1796085335348));
        assert_int_equal(bq_rd_at(reply, 1)->type, RD_NIL);
        assert_true(bq_str_equal(bq_rd_text(bq_rd_at(reply, 2)), (bq_str){"a\0b\r\n", 5}));
        assert_int_equal(bq_rd_at(reply, 3)->type, RD_STATUS);
        assert_int_equal(bq_rd_at(reply, 4)->type, RD_ERROR);
        assert_int_equal(bq_rd_int_at(bq_rd_at(reply, 5), 0, 0), -1);
        assert_int_equal(bq_rd_at(bq_rd_at(reply, 5), 1)->count, 0);
        assert_null(bq_rd_at(reply, 6));
        assert_int_equal(bq_rd_int_at(reply, 2, 7), 7);
        assert_null(bq_rd_take_at(reply, 0));
        rd_reply *taken = bq_rd_take_at(reply, 2);
        assert_null(bq_rd_at(reply, 2));
        bq_rd_reply_free(reply);
        assert_true(bq_str_equal(bq_rd_text(taken), (bq_str){"a\0b\r\n", 5}));
        bq_rd_reply_free(taken);
    }
}

static void what_is_no_reply(void **state)
{
    (void)state;
    static const char *const texts[] = {"HTTP/1.1 400 Bad Request\r\n", "*2000000\r\n", "?\r\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        bq_error err;
        rd_reply *reply;
        rd_reader *reader = bq_rd_reader_new();
        bq_status status = bq_rd_reader_feed(reader, bq_str_of(texts[i]), &err);
        if (status == BQ_OK)
            status = bq_rd_reader_next(reader, &reply, &err);
        assert_true(status == BQ_DATA || status == BQ_NOMEM);
        assert_true(err.text[0] != '\0');
        bq_rd_reader_free(reader);
    }
}

/* Where a cluster's node sends us. */
static void redirections(void **state)
{
    static const struct {
        const char *text;
        bool is;
        const char *host;
        int port;
    } rows[] = {
        {"MOVED 3999 127.0.0.1:6381", true, "127.0.0.1", 6381},
        {"MOVED 3999 node-2.example:1", true, "node-2.example", 1},
        {"MOVED 3999 ::1:65535", true, "::1", 65535},
        {"MOVED 3999 :7002", true, "", 7002},
        {"ASK 3999 127.0.0.1:6381", true, "", 0},
        {"MOVED", false, "", 0},
        {"MOVED 3999 127.0.0.1", false, "", 0},
        {"MOVED 3999 127.0.0.1:", false, "", 0},
        {"MOVED 3999 127.0.0.1:0", false, NULL, 0},
        {"MOVED 3999 127.0.0.1:65536", false, NULL, 0},
        {"MOVED 3999 127.0.0.1:123456", false, "", 0},
        {"MOVED 3999 127.0.0.1:63x1", false, "", 0},
        {"ERR MOVED 3999 127.0.0.1:6381", false, "", 0},
        {"", false, "", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bq_str host;
        int port;
        if (bq_rd_fault_redirects(bq_str_of(rows[i].text), &host, &port) != rows[i].is)
            fail_msg("'%s'", rows[i].text);
        if (rows[i].is && (!bq_str_equal(host, bq_str_of(rows[i].host)) || port != rows[i].port))
            fail_msg("'%s': to %.*s:%d", rows[i].text, (int)host.len, host.ptr, port);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(redirections),
        cmocka_unit_test(meanings),
        cmocka_unit_test(replies_in_pieces),
        cmocka_unit_test(what_is_no_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
