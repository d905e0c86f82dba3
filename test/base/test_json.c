/* The JSON writer: exact output, escaping, numbers that read back, misuse, a full disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

typedef struct sink {
    weft_json_t json;
    FILE *file;
    char *text;
    size_t bytes;
} sink_t;

static void open_sink(sink_t *sink)
{
    sink->text = NULL;
    sink->file = open_memstream(&sink->text, &sink->bytes);
    assert_non_null(sink->file);
    weft__json_start(&sink->json, sink->file);
}

/* Finish, close, compare. `expected` NULL: the writer must have complained instead. */
static void close_sink(sink_t *sink, const char *expected)
{
    weft_status_t status = weft__json_finish(&sink->json);
    fclose(sink->file);
    if (expected == NULL) {
        assert_int_equal(status, WEFT_ERR_INVALID);
    } else {
        assert_int_equal(status, WEFT_OK);
        assert_string_equal(sink->text, expected);
    }
    free(sink->text);
}

static void nested_values(void **state)
{
    (void)state;
    sink_t sink;
    open_sink(&sink);
    weft_json_t *json = &sink.json;
    weft__json_object(json, NULL);
    weft__json_int(json, "ranks", -8);
    weft__json_uint(json, "bytes", UINT64_MAX);
    weft__json_bool(json, "ok", true);
    weft__json_string(json, "none", NULL);
    weft__json_array(json, "rows");
    weft__json_object(json, NULL);
    weft__json_end(json);
    weft__json_double(json, NULL, 1.5);
    weft__json_array(json, NULL);
    weft__json_end(json);
    weft__json_end(json);
    weft__json_end(json);
    close_sink(&sink, "{\n"
                      "  \"ranks\": -8,\n"
                      "  \"bytes\": 18446744073709551615,\n"
                      "  \"ok\": true,\n"
                      "  \"none\": null,\n"
                      "  \"rows\": [\n"
                      "    {},\n"
                      "    1.5,\n"
                      "    []\n"
                      "  ]\n"
                      "}\n");
}

static void strings_are_escaped(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "\"\"\n"},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\"\n"},
        {"\b\f\n\r\t\x01\x1f\x7f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"\n"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"\n"},
        {"\xff", "\"\\ufffd\"\n"},
        {"a\xc3", "\"a\\ufffd\"\n"},                                  /* cut short by the end */
        {"\xc0\xaf", "\"\\ufffd\\ufffd\"\n"},                         /* overlong */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},              /* surrogate */
        {"\xf4\x90\x80\x80x", "\"\\ufffd\\ufffd\\ufffd\\ufffdx\"\n"}, /* above U+10FFFF */
        {"\xe2\x82"
         "A",
         "\"\\ufffd\\ufffdA\"\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sink_t sink;
        open_sink(&sink);
        weft__json_string(&sink.json, NULL, cases[i][0]);
        close_sink(&sink, cases[i][1]);
    }
}

static void doubles_are_short_and_exact(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0\n"},
                 {0.1, "0.1\n"},
                 {-2.5, "-2.5\n"},
                 {1e300, "1e+300\n"},
                 {INFINITY, "null\n"},
                 {NAN, "null\n"},
                 {1.0 / 3, "0.3333333333333333\n"},
                 {DBL_MIN, "2.2250738585072014e-308\n"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sink_t sink;
        open_sink(&sink);
        weft__json_double(&sink.json, NULL, cases[i].value);
        close_sink(&sink, cases[i].text);
    }
}

static void misuse_is_reported_not_written(void **state)
{
    (void)state;
    sink_t sink;
    open_sink(&sink);
    close_sink(&sink, NULL); /* nothing at all */

    open_sink(&sink);
    weft__json_object(&sink.json, NULL);
    weft__json_int(&sink.json, NULL, 1); /* no key */
    weft__json_end(&sink.json);
    close_sink(&sink, NULL);

    open_sink(&sink);
    weft__json_array(&sink.json, NULL);
    weft__json_int(&sink.json, "k", 1); /* a key in an array */
    weft__json_end(&sink.json);
    close_sink(&sink, NULL);

    open_sink(&sink);
    weft__json_int(&sink.json, "k", 1); /* a key at the top */
    close_sink(&sink, NULL);

    open_sink(&sink);
    weft__json_array(&sink.json, NULL); /* left open */
    close_sink(&sink, NULL);

    open_sink(&sink);
    weft__json_int(&sink.json, NULL, 1);
    weft__json_int(&sink.json, NULL, 2); /* second at the top */
    close_sink(&sink, NULL);

    open_sink(&sink);
    weft__json_end(&sink.json);
    close_sink(&sink, NULL);

    open_sink(&sink);
    for (int i = 0; i <= WEFT_JSON_DEPTH; i++) {
        weft__json_array(&sink.json, NULL);
    }
    close_sink(&sink, NULL);
}

/* Buffered, the last flush fails; unbuffered, only the writes before it did. */
static void full_disk_is_reported(void **state)
{
    (void)state;
    for (int unbuffered = 0; unbuffered < 2; unbuffered++) {
        FILE *full = fopen("/dev/full", "w");
        assert_non_null(full);
        setvbuf(full, NULL, unbuffered ? _IONBF : _IOFBF, BUFSIZ);
        weft_json_t json;
        weft__json_start(&json, full);
        weft__json_array(&json, NULL);
        for (int i = 0; i < 10000; i++) { /* more than stdio buffers */
            weft__json_int(&json, NULL, i);
        }
        weft__json_end(&json);
        assert_int_equal(weft__json_finish(&json), WEFT_ERR_SYSTEM);
        fclose(full);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_values),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(doubles_are_short_and_exact),
        cmocka_unit_test(misuse_is_reported_not_written),
        cmocka_unit_test(full_disk_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
