/* JSON texts: strict RFC 8259. What is accepted is looked at in every way, written again and read
 * again.
 *
 * reads: src/base/json_read.c
 * besides: weft__json_load */
#include "fuzz/fuzz.h"

#include "base/json.h"
#include "base/json_read.h"

const long fuzz_runs = 30000;

typedef struct count {
    size_t values;
    bool odd; /* a string with a NUL inside, which the writer would cut, or a number too large */
} count_t;

static void check_number(const weft_json_value_t *value, count_t *count)
{
    int64_t whole = 7;
    uint64_t natural = 7;
    double real = 7;
    bool is_whole = weft__json_to_int(value, &whole);
    bool is_natural = weft__json_to_uint(value, &natural);
    bool is_real = weft__json_to_double(value, &real);
    CHECK(is_whole || whole == 7);
    CHECK(is_natural || natural == 7);
    CHECK(is_real || real == 7);
    CHECK(!is_whole || !is_natural || (whole >= 0 && (uint64_t)whole == natural));
    CHECK(!is_whole || !is_real || (double)whole == real);
    count->odd = count->odd || !is_real;
}

/* Every value inside, each counted once. */
static void walk(const weft_json_value_t *value, count_t *count)
{
    uint32_t seen = 0;
    bool truth;
    int64_t whole;
    count->values++;
    CHECK(weft__json_to_bool(value, &truth) == (value->kind == WEFT_JSON_BOOL));
    CHECK(value->kind == WEFT_JSON_NUMBER || !weft__json_to_int(value, &whole));
    if (value->kind == WEFT_JSON_NUMBER) {
        check_number(value, count);
    } else if (value->kind == WEFT_JSON_STRING) {
        CHECK(value->as.text[value->length] == '\0');
        bool cut = strlen(value->as.text) != value->length;
        CHECK(cut != weft__json_is(value, weft__json_text(value, NULL)));
        count->odd = count->odd || cut;
    }
    const weft_json_value_t *at = weft__json_first(value);
    for (; at != NULL; at = weft__json_next(value, at), seen++) {
        if (value->kind == WEFT_JSON_OBJECT) {
            CHECK(at->kind == WEFT_JSON_STRING);
            CHECK(strlen(at->as.text) != at->length ||
                  weft__json_get(value, at->as.text) == at + 1);
            walk(at, count);
            walk(at + 1, count);
        } else {
            walk(at, count);
        }
    }
    CHECK(value->kind < WEFT_JSON_ARRAY || seen == value->length);
}

static void write(weft_json_t *json, const char *key, const weft_json_value_t *value)
{
    double real = 0;
    const weft_json_value_t *at;
    switch (value->kind) {
    case WEFT_JSON_NULL:
        weft__json_string(json, key, NULL);
        break;
    case WEFT_JSON_BOOL:
        weft__json_bool(json, key, value->as.truth);
        break;
    case WEFT_JSON_NUMBER:
        weft__json_to_double(value, &real);
        weft__json_double(json, key, real);
        break;
    case WEFT_JSON_STRING:
        weft__json_string(json, key, value->as.text);
        break;
    case WEFT_JSON_ARRAY:
    case WEFT_JSON_OBJECT:
        value->kind == WEFT_JSON_ARRAY ? weft__json_array(json, key) : weft__json_object(json, key);
        for (at = weft__json_first(value); at != NULL; at = weft__json_next(value, at)) {
            bool keyed = value->kind == WEFT_JSON_OBJECT;
            write(json, keyed ? at->as.text : NULL, keyed ? at + 1 : at);
        }
        weft__json_end(json);
        break;
    }
}

static void compare(const weft_json_doc_t *a, const weft_json_doc_t *b)
{
    CHECK(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        const weft_json_value_t *x = &a->values[i], *y = &b->values[i];
        double p = 0, q = 1;
        CHECK(x->kind == y->kind && x->skip == y->skip);
        if (x->kind == WEFT_JSON_NUMBER) {
            CHECK(weft__json_to_double(x, &p) && weft__json_to_double(y, &q) && p == q);
        } else if (x->kind == WEFT_JSON_BOOL) {
            CHECK(x->as.truth == y->as.truth);
        } else {
            CHECK(x->length == y->length);
            CHECK(x->kind != WEFT_JSON_STRING || weft__json_is(y, x->as.text));
        }
    }
}

static void write_and_read(const weft_json_doc_t *doc)
{
    char *text;
    size_t size;
    weft_json_t json;
    weft_json_doc_t again;
    FILE *out = open_memstream(&text, &size);
    CHECK(out != NULL);
    weft__json_start(&json, out);
    write(&json, NULL, doc->root);
    weft_status_t status = weft__json_finish(&json);
    CHECK(fclose(out) == 0);
    if (status == WEFT_OK) { /* its levels are fewer than the reader's */
        CHECK(weft__json_parse(text, size, "again", &again) == WEFT_OK);
        compare(doc, &again);
        weft__json_free(&again);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_json_doc_t doc;
    count_t count = {0};
    if (weft__json_parse((const char *)data, size, "fuzz", &doc) != WEFT_OK) {
        CHECK(strstr(weft_last_error(), "fuzz, line ") != NULL);
        return 0;
    }
    walk(doc.root, &count);
    CHECK(count.values == doc.count && doc.root->skip == doc.count);
    if (!count.odd) {
        write_and_read(&doc);
    }
    weft__json_free(&doc);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"null",
                                        "true",
                                        "false",
                                        "\\u00e9",
                                        "\\ud83d\\ude00",
                                        "1e5",
                                        "-0.5e-3",
                                        "9007199254740993",
                                        "18446744073709551615",
                                        "\\n",
                                        "\\/",
                                        "\xc3\xa9",
                                        "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    fuzz_seed_text("{\"step\": 7, \"loss\": 2.5e-1, \"a\": [1, -2, 0.0, 1e3, 1E+2], \"b\": {\"c\": "
                   "null, \"d\": true, \"e\": false}}\n");
    fuzz_seed_text(
        "[\"\\u00e9\\ud83d\\ude00\\n\\\\\\/\\b\\f\\r\\t\\\"\", \"\xc3\xa9\xe2\x82\xac\"]");
    fuzz_seed_text("[[[[[[[[]]]],{}]]]]");
    fuzz_seed_text("18446744073709551615");
    fuzz_seed_text("-12345678901234567890.5e10");
    fuzz_seed_text(" \"text\" ");
    fuzz_seed_text("{\"a\": 1, \"a\": 2}");
}
