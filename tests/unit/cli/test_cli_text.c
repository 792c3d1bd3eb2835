/* Base64, UTF-8, and the three formats of a message. */
#include "unit/cmocka_all.h"

#include "text.h"
#include "utf8.h"

#include <string.h>

static void base64(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"\xff\xfe\xfd", "//79"}};
    bq_buf buf = {0}, back = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bq_buf_reset(&buf);
        bq_buf_reset(&back);
        base64_add(&buf, bq_str_of(rows[i][0]));
        assert_string_equal(buf.ptr ? buf.ptr : "", rows[i][1]);
        assert_true(base64_decode(bq_str_of(rows[i][1]), &back));
        assert_true(bq_str_equal(bq_buf_str(&back), bq_str_of(rows[i][0])));
    }
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z===", "====", "Zg-_", "Zm 9", "=Zg="};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bq_buf_reset(&back);
        if (base64_decode(bq_str_of(bad[i]), &back))
            fail_msg("'%s' was decoded", bad[i]);
    }
    bq_buf_clear(&buf);
    bq_buf_clear(&back);
}

static void utf8(void **state)
{
    (void)state;
    static const char *const good[] = {
        "", "a", "\xc3\xa9", "\xe2\x98\x95", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {
        "\xff", "\xc0\x80", "\xc3",    "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
        "\x80", "\xe2\x98", "\xc3\x28"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(utf8_valid(bq_str_of(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(utf8_valid(bq_str_of(bad[i])));
}

static bool one_header(const void *source, size_t index, bq_str *name, bq_str *value)
{
    (void)source;
    *name = BQ_STR("a");
    *value = BQ_STR("b\"");
    return index == 0;
}

static void formatted(message_format format, bq_str body, const char *expected)
{
    bq_envelope env;
    bq_buf line = {0};
    (void)bq_envelope_decode(&env, body.ptr, body.len);
    printed_message message = {.queue = BQ_STR("q"),
                               .route = BQ_STR("u"),
                               .body = body,
                               .attempts = 3,
                               .envelope = &env,
                               .header = one_header};
    message_add(&line, format, &message);
    assert_string_equal(line.ptr ? line.ptr : "", expected);
    assert_null(memchr(line.ptr, '\n', line.len));
    bq_buf_clear(&line);
}

static void formats(void **state)
{
    (void)state;
    formatted(FORMAT_BODY, BQ_STR("{ \"job\":\"u\" }"), "{ \"job\":\"u\" }");
    formatted(FORMAT_BODY, BQ_STR("{\n\"job\" : \"u\"\r\n}"), "{\"job\":\"u\"}");
    formatted(FORMAT_BODY, BQ_STR("not json"), "not json");
    formatted(FORMAT_BODY, BQ_STR("not\njson"), "{\"raw\":\"not\\njson\"}");
    formatted(FORMAT_BODY, BQ_STR("\x1b[2J"), "{\"raw\":\"\\u001b[2J\"}");
    formatted(FORMAT_BODY, BQ_STR("\xff\n"), "{\"raw\":\"/wo=\",\"raw_encoding\":\"base64\"}");
    formatted(FORMAT_DATA, BQ_STR("{\"job\":\"u\",\"data\":{\"a\": 1}}"), "{\"a\": 1}");
    formatted(FORMAT_DATA, BQ_STR("{\"job\":\"u\",\"data\":{\n}}"), "{}");
    formatted(FORMAT_DATA, BQ_STR("{\"job\":\"u\"}"), "null");
    formatted(FORMAT_DATA, BQ_STR("nonsense"), "null");
    formatted(FORMAT_FULL, BQ_STR("{\n\"job\":\"u\"}"),
              "{\"queue\":\"q\",\"route\":\"u\",\"headers\":{\"a\":\"b\\\"\"},\"key\":null,\"attempts\":3,"
              "\"body\":\"{\\n\\\"job\\\":\\\"u\\\"}\"}");
    formatted(FORMAT_FULL, BQ_STR("\xff"),
              "{\"queue\":\"q\",\"route\":\"u\",\"headers\":{\"a\":\"b\\\"\"},\"key\":null,\"attempts\":3,"
              "\"body\":\"/w==\",\"body_encoding\":\"base64\"}");
}

static void objects(void **state)
{
    (void)state;
    bq_buf buf = {0};
    json_object object = json_open(&buf);
    json_text(&object, "t", BQ_STR("x"));
    json_text(&object, "none", BQ_STR_NULL);
    json_int(&object, "i", INT64_MIN);
    json_bool(&object, "b", false);
    json_raw(&object, "r", BQ_STR("[1,\n 2]"));
    json_raw(&object, "bad", BQ_STR("[1,\n 2"));
    json_close(&object);
    assert_string_equal(buf.ptr,
                        "{\"t\":\"x\",\"none\":null,\"i\":-9223372036854775808,\"b\":false,\"r\":[1,2],\"bad\":null}");
    bq_buf_clear(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64),
        cmocka_unit_test(utf8),
        cmocka_unit_test(formats),
        cmocka_unit_test(objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
