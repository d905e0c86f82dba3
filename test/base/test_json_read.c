/* The JSON reader: values, escapes, refusals by line, and noise, which never crashes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "fuzz.h"

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

/* Everything that was accepted can be walked and lies inside. */
static size_t walk(const weft_json_value_t *value)
{
    size_t seen = 1;
    if (value->kind == WEFT_JSON_STRING) {
        CHECK(value->as.text[value->length] == '\0');
        return 1;
    }
    uint32_t inside = 0;
    const weft_json_value_t *at = weft__json_first(value);
    for (; at != NULL; at = weft__json_next(value, at), inside++) {
        if (value->kind == WEFT_JSON_OBJECT) {
            CHECK(at->kind == WEFT_JSON_STRING);
            seen += 1 + walk(at + 1);
        } else {
            seen += walk(at);
        }
    }
    CHECK(value->kind < WEFT_JSON_ARRAY || inside == value->length);
    CHECK(seen == value->skip);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_json_doc_t fuzzed;
    fuzz_data = data;
    fuzz_size = size;
    if (weft__json_parse((const char *)data, size, "fuzz", &fuzzed) == WEFT_OK) {
        CHECK(walk(fuzzed.root) == fuzzed.count);
        double real;
        int64_t number;
        weft__json_to_double(fuzzed.root, &real);
        weft__json_to_int(fuzzed.root, &number);
        weft__json_free(&fuzzed);
    }
    return 0;
}

static void noise_does_no_harm(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": [1, -2.5e-3, \"\\u00e9\\n\", {\"b\": {}, \"c\": [[], null]}], \"k\": true}";
    static const char number[] = "-12345678901234567890.5e10";
    const fuzz_seed_t seeds[] = {{text, sizeof(text) - 1}, {number, sizeof(number) - 1}};
    assert_int_equal(fuzz_run(seeds, 2, 40000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found),
        cmocka_unit_test(strings_are_resolved),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(noise_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
