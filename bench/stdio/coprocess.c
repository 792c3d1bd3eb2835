/*
 * coprocess.c - the smallest coprocess in C: reads whole lines, takes the number behind {"n": and says that all is well.
 * One read and one write for all the lines that are there, as any coprocess that cares for speed does.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IN = 1 << 20, OUT = 1 << 18 };

static void write_all(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, len);
        if (n <= 0)
            _exit(1);
        bytes += n;
        len -= (size_t)n;
    }
}

/* Appends the answer to one line; `out` has room for it. */
static size_t answer(char *out, const char *line)
{
    static const char head[] = "{\"n\":", tail[] = ",\"ok\":true}\n";
    const char *digits = line + sizeof(head) - 1;
    size_t count = strspn(digits, "0123456789");
    memcpy(out, head, sizeof(head) - 1);
    memcpy(out + sizeof(head) - 1, digits, count);
    memcpy(out + sizeof(head) - 1 + count, tail, sizeof(tail) - 1);
    return sizeof(head) - 1 + count + sizeof(tail) - 1;
}

int main(void)
{
    static char in[IN + 1], out[OUT];
    size_t have = 0;
    for (;;) {
        ssize_t n = read(STDIN_FILENO, in + have, IN - have);
        if (n <= 0)
            return n < 0;
        have += (size_t)n;
        size_t used = 0, made = 0;
        char *feed;
        while ((feed = memchr(in + used, '\n', have - used))) {
            if (made > OUT - 64) {
                write_all(out, made);
                made = 0;
            }
            made += answer(out + made, in + used);
            used = (size_t)(feed + 1 - in);
        }
        write_all(out, made);
        memmove(in, in + used, have - used);
        have -= used;
    }
}
