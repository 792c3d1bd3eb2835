/* redis_place.c - see redis_place.h. */
#include "unit/transport/redis_place.h"

#include "unit/cmocka_all.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int port, first_db, db_count, turn, fd = -1;
static const char *common = "", *scheme = "redis";

void redis_places(int first, int count)
{
    const char *address = getenv("BQ_TEST_REDIS"), *colon = address ? strrchr(address, ':') : NULL;
    if (!colon) {
        (void)fprintf(stderr, "BQ_TEST_REDIS is not set (tests/brokers/redis.sh start): skipped\n");
        exit(77);
    }
    port = (int)strtol(colon + 1, NULL, 10);
    first_db = first;
    db_count = count;
}

void redis_options(const char *options)
{
    common = options ? options : "";
}

void redis_scheme(const char *name)
{
    scheme = name;
}

int redis_port(void)
{
    return port;
}

const char *redis_do(const char *command)
{
    static char reply[65536];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    size_t len = 0;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    }
    char line[4096];
    int size = snprintf(line, sizeof(line), "SELECT %d\r\n%s\r\nECHO end-of-reply\r\n",
                        first_db + (turn > 0 ? turn - 1 : 0) % db_count, command);
    assert_int_equal(write(fd, line, (size_t)size), size);
    static const char end[] = "$12\r\nend-of-reply\r\n";
    do {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        assert_true(poll(&poller, 1, 10000) == 1);
        ssize_t got = read(fd, reply + len, sizeof(reply) - 1 - len);
        assert_true(got > 0);
        len += (size_t)got;
        reply[len] = '\0';
    } while (len < sizeof(end) - 1 || memcmp(reply + len - (sizeof(end) - 1), end, sizeof(end) - 1) != 0);
    reply[len - (sizeof(end) - 1)] = '\0';
    return reply + 5; /* behind SELECT's +OK */
}

const char *redis_place(const char *options)
{
    static char url[1024];
    turn++;
    (void)redis_do("FLUSHDB");
    int len = snprintf(url, sizeof(url), "%s://127.0.0.1:%d/%d", scheme, port, first_db + (turn - 1) % db_count);
    const char *parts[] = {common, options};
    char mark = '?';
    for (int i = 0; i < 2; i++)
        if (*parts[i]) {
            len += snprintf(url + len, sizeof(url) - (size_t)len, "%c%s", mark, parts[i]);
            mark = '&';
        }
    return url;
}
