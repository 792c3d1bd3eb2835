/* Logging: levels, silence, and lines that are one line. */
#include "unit/cmocka_all.h"

#include "base/log.h"

#include <string.h>

static struct {
    int count;
    bq_log_level level;
    char line[2048];
    void *arg;
} seen;

static void record(bq_log_level level, const char *line, void *arg)
{
    seen.count++;
    seen.level = level;
    seen.arg = arg;
    strncpy(seen.line, line, sizeof seen.line - 1);
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static int reset(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    evaluated = 0;
    return 0;
}

static void levels_are_checked_before_formatting(void **state)
{
    (void)state;
    bq_logger logger = {record, &seen, BQ_LOG_WARN};
    bq_log(&logger, BQ_LOG_INFO, "%d", evaluate());
    assert_int_equal(evaluated, 0);
    assert_int_equal(seen.count, 0);
    bq_log(&logger, BQ_LOG_WARN, "queue %s: %d", "q", evaluate());
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.level, BQ_LOG_WARN);
    assert_ptr_equal(seen.arg, &seen);
    assert_string_equal(seen.line, "queue q: 1");
    bq_log(&logger, BQ_LOG_ERROR, "x");
    assert_int_equal(seen.count, 2);
}

static void no_logger_is_silence(void **state)
{
    (void)state;
    bq_logger none = {NULL, NULL, BQ_LOG_DEBUG};
    bq_log(NULL, BQ_LOG_ERROR, "%d", evaluate());
    bq_log(&none, BQ_LOG_ERROR, "%d", evaluate());
    assert_int_equal(evaluated, 0);
    bq_log_write(NULL, BQ_LOG_ERROR, "x");
    bq_log_write(&none, BQ_LOG_ERROR, "x");
    bq_logger quiet = {record, NULL, BQ_LOG_NONE};
    bq_log(&quiet, BQ_LOG_ERROR, "x");
    bq_log_write(&quiet, BQ_LOG_ERROR, "x");
    assert_int_equal(seen.count, 0);
}

static void a_line_is_one_clean_line(void **state)
{
    (void)state;
    bq_logger logger = {record, NULL, BQ_LOG_DEBUG};
    bq_log(&logger, BQ_LOG_ERROR, "one\ntwo\x1b[2J\xff");
    assert_string_equal(seen.line, "one two?[2J?");
}

static void a_long_line_is_cut_between_sequences(void **state)
{
    (void)state;
    bq_logger logger = {record, NULL, BQ_LOG_DEBUG};
    char text[1100];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i < sizeof text - 1; i++)
            text[i] = "\xe2\x82\xac"[(i - shift) % 3];
        text[sizeof text - 1] = '\0';
        bq_log(&logger, BQ_LOG_ERROR, "%s", text);
        size_t len = strlen(seen.line);
        assert_true(len > 1000 && len < 1024);
        assert_string_equal(seen.line + len - 6, "\xe2\x82\xac...");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(levels_are_checked_before_formatting, reset),
        cmocka_unit_test_setup(no_logger_is_silence, reset),
        cmocka_unit_test_setup(a_line_is_one_clean_line, reset),
        cmocka_unit_test_setup(a_long_line_is_cut_between_sequences, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
