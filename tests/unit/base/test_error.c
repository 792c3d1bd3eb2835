/* Errors: one clean line of UTF-8 whatever was formatted, the flags that go with a status, nothing allocated. */
#include "unit/cmocka_all.h"

#include "base/error.h"
#include "base/utf8.h"
#include "unit/alloc_fail.h"

#include <errno.h>
#include <string.h>

static void returns_its_status_also_without_an_error(void **state)
{
    (void)state;
    assert_int_equal(bq_fail(NULL, BQ_DATA, "x"), BQ_DATA);
    assert_int_equal(bq_fail_flags(NULL, BQ_IO, 0, 0, "x"), BQ_IO);
    assert_int_equal(bq_fail_errno(NULL, BQ_IO, EIO, "x"), BQ_IO);
    assert_int_equal(bq_fail_nomem(NULL), BQ_NOMEM);
    bq_error_prefix(NULL, "x");
    bq_error_clear(NULL);
}

static void fills_every_field(void **state)
{
    (void)state;
    bq_error err;
    memset(&err, 0xAA, sizeof err);
    assert_int_equal(bq_fail(&err, BQ_UNKNOWN, "queue %s: %d", "orders", 7), BQ_UNKNOWN);
    assert_int_equal(err.status, BQ_UNKNOWN);
    assert_int_equal(err.flags, BQ_ERROR_MAYBE_DONE);
    assert_int_equal(err.native, 0);
    assert_string_equal(err.text, "queue orders: 7");

    bq_fail_flags(&err, BQ_IO, BQ_ERROR_FATAL, -5, "broken");
    assert_int_equal(err.flags, BQ_ERROR_FATAL);
    assert_int_equal(err.native, -5);

    assert_int_equal(bq_fail_errno(&err, BQ_UNAVAILABLE, ECONNREFUSED, "connect to %s", "[::1]:1"), BQ_UNAVAILABLE);
    assert_int_equal(err.native, ECONNREFUSED);
    assert_int_equal(err.flags, BQ_ERROR_RETRYABLE);
    assert_string_equal(err.text, "connect to [::1]:1: Connection refused");

    bq_fail_nomem(&err);
    assert_int_equal(err.status, BQ_NOMEM);
    assert_int_equal(err.flags, BQ_ERROR_RETRYABLE);
    assert_string_equal(err.text, "out of memory");

    bq_error_clear(&err);
    assert_int_equal(err.status, BQ_OK);
    assert_int_equal(err.flags, 0);
    assert_string_equal(err.text, "");
}

static void flags_follow_the_status(void **state)
{
    (void)state;
    const bq_status retryable[] = {BQ_UNAVAILABLE, BQ_NOMEM, BQ_TIMEOUT, BQ_BUSY};
    bq_error err;
    for (int status = 0; status < BQ_STATUS_COUNT_; status++) {
        unsigned expected = status == BQ_UNKNOWN ? BQ_ERROR_MAYBE_DONE : 0;
        for (size_t i = 0; i < sizeof retryable / sizeof *retryable; i++) {
            if (retryable[i] == (bq_status)status)
                expected = BQ_ERROR_RETRYABLE;
        }
        bq_fail(&err, (bq_status)status, "x");
        assert_int_equal(err.flags, expected);
    }
}

static void control_characters_and_bad_bytes_are_replaced(void **state)
{
    (void)state;
    bq_error err;
    bq_fail(&err, BQ_DATA, "%s", "a\nb\tc\rd\x1b[31m\x7f|\xff|\xc3|\xed\xa0\x80|\xc2\x9b|\xe2\x80\xa8|\xc3\xbc");
    assert_string_equal(err.text, "a b c d?[31m?|?|?|???|?| |\xc3\xbc");
    assert_int_equal(bq_utf8_invalid(err.text, strlen(err.text)), strlen(err.text));
}

static void long_texts_are_cut_between_sequences(void **state)
{
    (void)state;
    bq_error err;
    char text[1200];
    /* Every offset of a three-byte sequence against the cut, and lengths around both limits. */
    for (size_t shift = 0; shift < 4; shift++) {
        for (size_t len = sizeof err.text - 8; len < sizeof text; len++) {
            memset(text, 'a', shift);
            for (size_t i = shift; i < len; i++)
                text[i] = "\xe2\x82\xac"[(i - shift) % 3];
            text[len] = '\0';
            bq_fail(&err, BQ_DATA, "%s", text);
            size_t got = strlen(err.text);
            assert_int_equal(bq_utf8_invalid(err.text, got), got);
            if (len < sizeof err.text)
                continue;
            assert_true(got <= sizeof err.text - 1 && got >= sizeof err.text - 1 - 5);
            assert_string_equal(err.text + got - 3, "...");
            assert_memory_equal(err.text, text, got - 3);
        }
    }
}

static void the_longest_text_that_fits_is_whole(void **state)
{
    (void)state;
    bq_error err;
    char text[sizeof err.text + 1];
    memset(text, 'x', sizeof text);
    text[sizeof err.text - 1] = '\0';
    bq_fail(&err, BQ_DATA, "%s", text);
    assert_string_equal(err.text, text);
    text[sizeof err.text - 1] = 'x';
    text[sizeof err.text] = '\0';
    bq_fail(&err, BQ_DATA, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 4, "...");
}

static void prefixes_and_arguments_may_be_the_error_itself(void **state)
{
    (void)state;
    bq_error err;
    bq_fail(&err, BQ_AUTH, "refused");
    bq_error_prefix(&err, "queue %d", 3);
    assert_string_equal(err.text, "queue 3: refused");
    assert_int_equal(err.status, BQ_AUTH);
    bq_fail(&err, BQ_AUTH, "again: %s", err.text);
    assert_string_equal(err.text, "again: queue 3: refused");
    for (int i = 0; i < 200; i++)
        bq_error_prefix(&err, "%s", err.text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 4, "...");
}

static void nothing_is_allocated(void **state)
{
    (void)state;
    alloc_fail_state counter;
    bq_error err;
    alloc_fail_begin(&counter, 0, false);
    bq_fail(&err, BQ_DATA, "%s %d", "x", 1);
    bq_fail_errno(&err, BQ_IO, EIO, "x");
    bq_error_prefix(&err, "y");
    bq_fail_nomem(&err);
    assert_int_equal(atomic_load(&counter.requests), 0);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void fmt_prints_absent_and_long_views(void **state)
{
    (void)state;
    bq_error err;
    char big[300];
    memset(big, 'b', sizeof big);
    bq_fail(&err, BQ_DATA, "[%.*s]", BQ_FMT(BQ_STR_NULL));
    assert_string_equal(err.text, "[]");
    bq_fail(&err, BQ_DATA, "%.*s", BQ_FMT(((bq_str){big, sizeof big})));
    assert_int_equal(strlen(err.text), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returns_its_status_also_without_an_error),
        cmocka_unit_test(fills_every_field),
        cmocka_unit_test(flags_follow_the_status),
        cmocka_unit_test(control_characters_and_bad_bytes_are_replaced),
        cmocka_unit_test(long_texts_are_cut_between_sequences),
        cmocka_unit_test(the_longest_text_that_fits_is_whole),
        cmocka_unit_test(prefixes_and_arguments_may_be_the_error_itself),
        cmocka_unit_test(nothing_is_allocated),
        cmocka_unit_test(fmt_prints_absent_and_long_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
