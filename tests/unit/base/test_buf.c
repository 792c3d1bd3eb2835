/* Buffers: content against a model, ceilings to the byte, the sticky failure, and ownership. */
#include "unit/cmocka_all.h"

#include "base/buf.h"
#include "base/mem.h"
#include "unit/alloc_fail.h"

#include <stdlib.h>
#include <string.h>

static void starts_absent_and_ends_clean(void **state)
{
    (void)state;
    bq_buf buf;
    bq_buf_init(&buf, 0);
    assert_null(bq_buf_str(&buf).ptr);
    bq_buf_consume(&buf, 1);
    bq_buf_truncate(&buf, 0);
    bq_buf_reset(&buf);
    size_t len = 9;
    assert_null(bq_buf_take(&buf, &len));
    assert_int_equal(len, 0);
    assert_int_equal(bq_buf_add(&buf, NULL, 0), BQ_OK); /* empty is not absent */
    assert_string_equal(bq_buf_str(&buf).ptr, "");
    bq_buf_clear(&buf);
    bq_buf_clear(&buf);
    assert_null(bq_buf_str(&buf).ptr);
}

static void appends_keep_the_nul(void **state)
{
    (void)state;
    bq_buf buf;
    bq_buf_init(&buf, 0);
    assert_int_equal(bq_buf_add_lit(&buf, "one"), BQ_OK);
    assert_int_equal(bq_buf_add_str(&buf, BQ_STR(" two")), BQ_OK);
    assert_int_equal(bq_buf_add_byte(&buf, ' '), BQ_OK);
    assert_int_equal(bq_buf_addf(&buf, "%d-%s", 3, "three"), BQ_OK);
    assert_string_equal(buf.ptr, "one two 3-three");
    assert_int_equal(buf.len, 15);
    bq_buf_consume(&buf, 4);
    assert_string_equal(buf.ptr, "two 3-three");
    bq_buf_truncate(&buf, 3);
    bq_buf_truncate(&buf, 99);
    assert_string_equal(buf.ptr, "two");
    bq_buf_consume(&buf, 99);
    assert_string_equal(buf.ptr, "");
    bq_buf_clear(&buf);
}

static void formatted_text_of_every_length(void **state)
{
    (void)state;
    for (int n = 0; n < 300; n++) {
        bq_buf buf;
        bq_buf_init(&buf, 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(bq_buf_addf(&buf, "%0*d", n, 7), BQ_OK);
        size_t each = n > 0 ? (size_t)n : 1;
        assert_int_equal(buf.len, 3 * each);
        assert_int_equal(strlen(buf.ptr), 3 * each);
        assert_true(buf.ptr[each - 1] == '7' && buf.ptr[3 * each - 1] == '7');
        bq_buf_clear(&buf);
    }
}

static void a_ceiling_holds_to_the_byte(void **state)
{
    (void)state;
    char bytes[300];
    memset(bytes, 'x', sizeof bytes);
    for (size_t max = 1; max < 200; max++) {
        bq_buf buf;
        bq_buf_init(&buf, max);
        assert_int_equal(bq_buf_add(&buf, bytes, max), BQ_OK);
        assert_true(buf.cap <= max + 1);
        assert_int_equal(bq_buf_add_byte(&buf, 'y'), BQ_DATA);
        assert_true(buf.failed && buf.too_large);
        assert_int_equal(buf.len, max);
        bq_buf_clear(&buf);
        assert_false(buf.failed);
        assert_int_equal(bq_buf_add(&buf, bytes, max + 1), BQ_DATA); /* the ceiling outlives clear */
        assert_int_equal(buf.len, 0);
        bq_buf_reset(&buf);
        assert_int_equal(bq_buf_addf(&buf, "%0*d", (int)max + 1, 0), BQ_DATA);
        assert_int_equal(buf.len, 0);
        bq_buf_clear(&buf);
    }
}

static void a_failure_is_sticky_and_says_why(void **state)
{
    (void)state;
    bq_buf buf;
    bq_buf_init(&buf, 4);
    assert_int_equal(bq_buf_add_lit(&buf, "ab"), BQ_OK);
    assert_int_equal(bq_buf_add_lit(&buf, "cde"), BQ_DATA);
    assert_int_equal(bq_buf_add_byte(&buf, 'c'), BQ_DATA);
    assert_int_equal(bq_buf_addf(&buf, "c"), BQ_DATA);
    assert_int_equal(bq_buf_add(&buf, "", 0), BQ_DATA);
    assert_int_equal(bq_buf_reserve(&buf, 1), BQ_DATA);
    assert_string_equal(buf.ptr, "ab");
    bq_buf_reset(&buf);
    assert_string_equal(buf.ptr, "");
    assert_int_equal(bq_buf_add_lit(&buf, "abcd"), BQ_OK);
    bq_buf_clear(&buf);

    alloc_fail_state counter;
    alloc_fail_begin(&counter, 2, false);
    bq_buf_init(&buf, 0);
    assert_int_equal(bq_buf_add_lit(&buf, "ab"), BQ_OK);
    assert_int_equal(bq_buf_reserve(&buf, 1000), BQ_NOMEM);
    assert_int_equal(bq_buf_add_byte(&buf, 'c'), BQ_NOMEM);
    assert_false(buf.too_large);
    assert_string_equal(buf.ptr, "ab");
    bq_buf_clear(&buf);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void reserved_room_cannot_fail(void **state)
{
    (void)state;
    alloc_fail_state counter;
    bq_buf buf;
    alloc_fail_begin(&counter, 2, true);
    bq_buf_init(&buf, 0);
    assert_int_equal(bq_buf_reserve(&buf, 500), BQ_OK);
    for (int i = 0; i < 250; i++) {
        assert_int_equal(bq_buf_add_byte(&buf, 'x'), BQ_OK);
        assert_int_equal(bq_buf_addf(&buf, "y"), BQ_OK);
    }
    assert_int_equal(atomic_load(&counter.requests), 1);
    bq_buf_clear(&buf);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void impossible_sizes_are_too_large(void **state)
{
    (void)state;
    bq_buf buf;
    bq_buf_init(&buf, 0);
    assert_int_equal(bq_buf_add_lit(&buf, "x"), BQ_OK);
    assert_int_equal(bq_buf_reserve(&buf, SIZE_MAX), BQ_DATA);
    bq_buf_reset(&buf);
    assert_int_equal(bq_buf_reserve(&buf, PTRDIFF_MAX), BQ_DATA);
    bq_buf_clear(&buf);
    bq_buf_init(&buf, SIZE_MAX);
    assert_int_equal(bq_buf_reserve(&buf, SIZE_MAX), BQ_DATA);
    bq_buf_clear(&buf);
}

static void a_part_may_be_appended_to_itself(void **state)
{
    (void)state;
    bq_buf buf;
    bq_buf_init(&buf, 0);
    assert_int_equal(bq_buf_add_lit(&buf, "0123456789"), BQ_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(bq_buf_add(&buf, buf.ptr, buf.len), BQ_OK);
    assert_int_equal(buf.len, 2560);
    for (size_t i = 0; i < buf.len; i++)
        assert_int_equal(buf.ptr[i], '0' + (int)(i % 10));
    bq_buf_clear(&buf);
}

static void growth_is_geometric(void **state)
{
    (void)state;
    alloc_fail_state counter;
    bq_buf buf;
    alloc_fail_begin(&counter, 0, false);
    bq_buf_init(&buf, 0);
    for (int i = 0; i < 1000000; i++)
        bq_buf_add_byte(&buf, 'x');
    assert_int_equal(buf.len, 1000000);
    assert_true(buf.cap <= 2 * buf.len);
    assert_true(atomic_load(&counter.requests) < 30);
    bq_buf_clear(&buf);
    assert_int_equal(alloc_fail_end(&counter), 0);
}

static void taken_bytes_are_the_callers(void **state)
{
    (void)state;
    bq_buf buf;
    size_t len;
    bq_buf_init(&buf, 0);
    bq_buf_add_lit(&buf, "mine");
    char *taken = bq_buf_take(&buf, &len);
    assert_string_equal(taken, "mine");
    assert_int_equal(len, 4);
    assert_null(bq_buf_str(&buf).ptr);
    bq_buf_add_lit(&buf, "new");
    assert_string_equal(taken, "mine");
    bq_free(taken);
    bq_buf_clear(&buf);
}

/* Random operations against the same on a plain array. */
static void behaves_like_its_model(void **state)
{
    (void)state;
    static char model[1 << 16];
    size_t len = 0;
    bq_buf buf;
    bq_buf_init(&buf, 0);
    srand(7);
    for (int i = 0; i < 20000; i++) {
        char bytes[64];
        size_t n = (size_t)(rand() % 64);
        memset(bytes, 'a' + i % 26, sizeof bytes);
        switch (rand() % 5) {
        case 0:
            n = n % 4;
            bq_buf_consume(&buf, n * 20);
            n = n * 20 < len ? n * 20 : len;
            memmove(model, model + n, len - n);
            len -= n;
            break;
        case 1:
            bq_buf_truncate(&buf, len - (n < len ? n : len));
            len -= n < len ? n : len;
            break;
        default:
            if (len + n > sizeof model)
                continue;
            assert_int_equal(bq_buf_add(&buf, bytes, n), BQ_OK);
            memcpy(model + len, bytes, n);
            len += n;
        }
        assert_int_equal(buf.len, len);
        if (buf.ptr) {
            assert_memory_equal(buf.ptr, model, len);
            assert_int_equal(buf.ptr[len], '\0');
        }
    }
    bq_buf_clear(&buf);
}

static bq_status write_once(void *arg)
{
    (void)arg;
    bq_buf buf;
    bq_buf_init(&buf, 0);
    for (int i = 0; i < 100; i++) {
        (void)bq_buf_add_lit(&buf, "0123456789");
        (void)bq_buf_addf(&buf, "%d", i);
    }
    bq_status status = buf.failed ? BQ_NOMEM : BQ_OK;
    bq_buf_clear(&buf);
    return status;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    assert_true(alloc_fail_each("buffer", write_once, NULL) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_absent_and_ends_clean),
        cmocka_unit_test(appends_keep_the_nul),
        cmocka_unit_test(formatted_text_of_every_length),
        cmocka_unit_test(a_ceiling_holds_to_the_byte),
        cmocka_unit_test(a_failure_is_sticky_and_says_why),
        cmocka_unit_test(reserved_room_cannot_fail),
        cmocka_unit_test(impossible_sizes_are_too_large),
        cmocka_unit_test(a_part_may_be_appended_to_itself),
        cmocka_unit_test(growth_is_geometric),
        cmocka_unit_test(taken_bytes_are_the_callers),
        cmocka_unit_test(behaves_like_its_model),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
