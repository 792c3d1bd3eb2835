/* Lines out of a pipe, whatever the pieces in which they come. */
#include "unit/cmocka_all.h"

#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends[2];
static line_reader reader;

static void open_pipe(size_t max)
{
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[0], F_SETFL, O_NONBLOCK) >= 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
    reader_init(&reader, ends[0], max);
}

static void put(const char *text)
{
    size_t len = strlen(text);
    assert_int_equal(write(ends[1], text, len), len);
}

static void expect(const char *text)
{
    bq_str line = BQ_STR_NULL;
    if (!reader_next(&reader, &line) || !bq_str_equal(line, bq_str_of(text)))
        fail_msg("'%.*s' instead of '%s'", (int)line.len, line.ptr ? line.ptr : "", text);
}

static void expect_none(void)
{
    bq_str line;
    assert_false(reader_next(&reader, &line));
}

static void close_all(void)
{
    reader_clear(&reader);
    close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
}

static void pieces(void **state)
{
    (void)state;
    open_pipe(0);
    expect_none();
    assert_int_equal(reader_fill(&reader), READER_WAIT);
    put("one\ntw");
    assert_int_equal(reader_fill(&reader), READER_MORE);
    expect("one");
    expect_none();
    put("o\n\n\r\nlast");
    assert_int_equal(reader_fill(&reader), READER_MORE);
    expect("two");
    expect("");
    expect("\r");
    expect_none();
    assert_int_equal(reader_rest(&reader), 4);
    close(ends[1]);
    ends[1] = -1;
    assert_int_equal(reader_fill(&reader), READER_EOF);
    expect("last");
    assert_int_equal(reader.number, 5);
    expect_none();
    assert_int_equal(reader_fill(&reader), READER_EOF);
    expect_none();
    close_all();
}

static void long_lines(void **state)
{
    (void)state;
    size_t len = 300000;
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, 'x', len);
    text[len] = '\0';
    open_pipe(0);
    for (int round = 0; round < 3; round++) {
        put(text);
        put("\nshort\n");
        bq_str line;
        while (!reader_next(&reader, &line))
            assert_int_equal(reader_fill(&reader), READER_MORE);
        assert_int_equal(line.len, len);
        while (!reader_next(&reader, &line))
            assert_int_equal(reader_fill(&reader), READER_MORE);
        assert_int_equal(line.len, 5);
    }
    close_all();
    /* A ceiling ends a line that never ends, and only that. */
    open_pipe(100000);
    put("fine\n");
    assert_int_equal(reader_fill(&reader), READER_MORE);
    expect("fine");
    put(text);
    reader_state filled = READER_MORE;
    while (filled == READER_MORE) {
        expect_none();
        filled = reader_fill(&reader);
    }
    assert_int_equal(filled, READER_TOO_LONG);
    assert_true(reader.cap < 2 * len);
    close_all();
    free(text);
}

static void all_of_it(void **state)
{
    (void)state;
    bq_buf all = {0};
    open_pipe(0);
    put("a\nb");
    close(ends[1]);
    ends[1] = -1;
    assert_true(read_all(ends[0], &all));
    assert_string_equal(all.ptr, "a\nb");
    bq_buf_clear(&all);
    close_all();
    assert_false(read_all(-1, &all));
    assert_int_equal(errno, EBADF);
    bq_buf_clear(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces), cmocka_unit_test(long_lines),
                                       cmocka_unit_test(all_of_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
