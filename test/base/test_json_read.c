/* The JSON reader: values, escapes, refusals by line, and noise, which never crashes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"

static weft_json_doc_t doc;

static weft_status_t parse(const char *text)
{
    return weft__json_parse(text, strlen(text), "x.json", &doc);
}

static void values_are_found(void **state)
{
    (void)state;
    int64_t number = 0;
    uint64_t count = 0;
    double real = 0;
    bool truth = false;
    assert_int_equal(parse(" {\"a\": [1, [2, {}], \"s\"], \"b\": {\"c\": -1.5e2, \"d\": true},\n"
                           "\"n\": null, \"big\": 18446744073709551615, \"e\": 1e3, \"\": 0}\t"),
                     WEFT_OK);
    const weft_json_value_t *a = weft__json_get(doc.root, "a"), *b = weft__json_get(doc.root, "b");
    assert_int_equal(a->kind, WEFT_JSON_ARRAY);
    assert_int_equal(a->length, 3);
    const weft_json_value_t *at = weft__json_first(a);
    assert_true(weft__json_to_int(at, &number) && number == 1);
    at = weft__json_next(a, at);
    assert_int_equal(at->length, 2);
    at = weft__json_next(a, at);
    assert_true(weft__json_is(at, "s"));
    assert_null(weft__json_next(a, at));
    assert_true(weft__json_to_double(weft__json_get(b, "c"), &real) && real == -150);
    assert_true(weft__json_to_int(weft__json_get(b, "c"), &number) && number == -150);
    assert_false(weft__json_to_uint(weft__json_get(b, "c"), &count));
    assert_true(weft__json_to_bool(weft__json_get(b, "d"), &truth) && truth);
    assert_int_equal(weft__json_get(doc.root, "n")->kind, WEFT_JSON_NULL);
    assert_true(weft__json_to_uint(weft__json_get(doc.root, "big"), &count) && count == UINT64_MAX);
    assert_false(weft__json_to_int(weft__json_get(doc.root, "big"), &number));
    assert_true(weft__json_to_uint(weft__json_get(doc.root, "e"), &count) && count == 1000);
    assert_true(weft__json_to_int(weft__json_get(doc.root, ""), &number) && number == 0);
    assert_null(weft__json_get(doc.root, "z"));
    assert_null(weft__json_get(a, "z"));
    assert_null(weft__json_get(NULL, "z"));
    assert_false(weft__json_to_int(NULL, &number));
    assert_string_equal(weft__json_text(NULL, "else"), "else");
    weft__json_free(&doc);
}

static void strings_are_resolved(void **state)
{
    (void)state;
    assert_int_equal(
        parse("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u00e9\\u20AC\\ud83d\\ude00\", \"\xC3\xA9\", "
              "\"a\\u0000b\"]"),
        WEFT_OK);
    const weft_json_value_t *at = weft__json_first(doc.root);
    assert_string_equal(at->as.text, "\"\\/\b\f\n\r\t");
    at = weft__json_next(doc.root, at);
    assert_string_equal(at->as.text, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    at = weft__json_next(doc.root, at);
    assert_true(weft__json_is(at, "\xC3\xA9"));
    at = weft__json_next(doc.root, at);
    assert_int_equal(at->length, 3);
    assert_memory_equal(at->as.text, "a\0b", 4);
    weft__json_free(&doc);
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "[",
        "]",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "[01]",
        "[1.]",
        "[.5]",
        "[1e]",
        "[+1]",
        "[-]",
        "[nul]",
        "[truex]",
        "[NaN]",
        "\"a",
        "[\"\\x\"]",
        "[\"\\u12\"]",
        "[\"\\ud800\"]",
        "[\"\\udc00\"]",
        "[\"\n\"]",
        "[\"\xFF\"]",
        "[\"\xED\xA0\x80\"]",
        "[1] 2",
        "{\"a\":1,\"a\":2}",
        "[\"\\ud800\\u0041\"]",
        "\xEF\xBB\xBF[]",
        "'a'",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (parse(bad[i]) != WEFT_ERR_INVALID) {
            fail_msg("accepted: %s", bad[i]);
        }
    }
    assert_int_equal(parse("[\n1,\n\n  oops]"), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "x.json, line 4: "));
    char deep[200];
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    assert_int_equal(parse(deep), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "levels"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found),
        cmocka_unit_test(strings_are_resolved),
        cmocka_unit_test(what_is_no_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
