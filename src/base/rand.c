/*
 * rand.c - random bytes in per-thread blocks: one system call serves 32 UUIDs. A forked child must not hand out the
 * bytes that its parent still holds, so a fork handler advances a generation that every block is checked against.
 * Bytes are wiped from the block as they are given out.
 */
#include "base/rand.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BLOCK_SIZE 512

static atomic_ulong generation = 1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static _Thread_local struct {
    unsigned char bytes[BLOCK_SIZE];
    size_t left;
    unsigned long generation; /* 0: never filled */
} block;

static void in_child(void)
{
    atomic_fetch_add(&generation, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

static size_t read_device(unsigned char *out, size_t len)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t done = 0;
    while (done < len) {
        ssize_t n = read(fd, out + done, len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    close(fd);
    return done;
}

/* Neither getrandom nor the device: a sandbox. Identifiers must still differ, so whatever differs between processes,
 * threads and moments is mixed (splitmix64); secrecy is lost then, which nothing of ours depends on. */
static void last_resort(unsigned char *out, size_t len)
{
    static atomic_ullong counter;
    uint64_t x = (uint64_t)bq_now_us() ^ ((uint64_t)bq_epoch_ms() << 20) ^ ((uint64_t)getpid() << 40) ^
                 (uint64_t)(uintptr_t)&block ^ (uint64_t)(uintptr_t)out;
    x += atomic_fetch_add(&counter, 1) * UINT64_C(0xD1342543DE82EF95);
    for (size_t i = 0; i < len; i++) {
        if (i % 8 == 0) {
            x += UINT64_C(0x9E3779B97F4A7C15);
        }
        uint64_t z = x;
        z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
        z ^= z >> 31;
        out[i] = (unsigned char)(z >> (8 * (i % 8)));
    }
}

static void fill(unsigned char *out, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = getrandom(out + done, len - done, 0);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    if (done < len)
        done += read_device(out + done, len - done);
    if (done < len)
        last_resort(out + done, len - done);
}

void bq_random(void *out, size_t len)
{
    unsigned char *to = out;
    pthread_once(&once, watch_forks);
    unsigned long now = atomic_load_explicit(&generation, memory_order_relaxed);
    while (len > 0) {
        if (block.left == 0 || block.generation != now) {
            fill(block.bytes, sizeof block.bytes);
            block.left = sizeof block.bytes;
            block.generation = now;
        }
        size_t n = len < block.left ? len : block.left;
        unsigned char *from = block.bytes + (sizeof block.bytes - block.left);
        memcpy(to, from, n);
        explicit_bzero(from, n);
        block.left -= n;
        to += n;
        len -= n;
    }
}

uint64_t bq_random_u64(void)
{
    uint64_t value;
    bq_random(&value, sizeof value);
    return value;
}

void bq_uuid4(char out[BQ_UUID_SIZE])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[16];
    bq_random(bytes, sizeof bytes);
    bytes[6] = (unsigned char)((bytes[6] & 0x0F) | 0x40); /* version 4 */
    bytes[8] = (unsigned char)((bytes[8] & 0x3F) | 0x80); /* variant of RFC 4122 */
    char *p = out;
    for (size_t i = 0; i < sizeof bytes; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *p++ = '-';
        *p++ = hex[bytes[i] >> 4];
        *p++ = hex[bytes[i] & 0x0F];
    }
    *p = '\0';
}
