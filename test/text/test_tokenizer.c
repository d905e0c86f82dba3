/* Tokenizers: the tokens of the `tokenizers` package for each kind of file (fixtures by
 * make_tokenizers.py), any bytes there and back, long words against short ones, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/fixture.h"
#include "base/json_read.h"
#include "base/rng.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

static weft_tokenizer_t *open_fixture(const char *kind)
{
    char name[64];
    weft_tokenizer_t *tokenizer;
    snprintf(name, sizeof(name), "tokenizer-%s.json", kind);
    weft_status_t status = weft__tokenizer_open(fixture("text", name), &tokenizer);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return tokenizer;
}

static void check_tokens(weft_tokenizer_t *tokenizer, const weft_json_value_t *text, bool specials,
                         const weft_json_value_t *wanted)
{
    weft_tokens_t tokens = {0};
    assert_int_equal(
        weft__tokenizer_encode(tokenizer, text->as.text, text->length, specials, &tokens), WEFT_OK);
    bool same = tokens.count == wanted->length;
    const weft_json_value_t *id = weft__json_first(wanted);
    for (size_t i = 0; same && i < tokens.count; i++, id = weft__json_next(wanted, id)) {
        int64_t value = -1;
        same = weft__json_to_int(id, &value) && value == (int64_t)tokens.at[i];
    }
    if (!same) {
        fprintf(stderr, "\"%s\" became", text->as.text);
        for (size_t i = 0; i < tokens.count; i++) {
            fprintf(stderr, " %u", tokens.at[i]);
        }
        fprintf(stderr, "\n");
    }
    assert_true(same);
    free(tokens.at);
}

static void check_kind(const char *kind)
{
    char name[64];
    weft_json_doc_t cases;
    weft_tokenizer_t *tokenizer = open_fixture(kind);
    snprintf(name, sizeof(name), "tokens-%s.json", kind);
    assert_int_equal(weft__json_load(fixture("text", name), &cases), WEFT_OK);
    assert_true(cases.root->length > 150);
    const weft_json_value_t *one = weft__json_first(cases.root);
    for (; one != NULL; one = weft__json_next(cases.root, one)) {
        const weft_json_value_t *text = weft__json_get(one, "text"),
                                *ids = weft__json_get(one, "ids");
        const weft_json_value_t *plain = weft__json_get(one, "plain");
        check_tokens(tokenizer, text, true, ids);
        check_tokens(tokenizer, text, false, plain != NULL ? plain : ids);
    }
    weft__json_free(&cases);
    weft__tokenizer_close(tokenizer);
}

static void tokens_are_those_of_the_package(void **state)
{
    (void)state;
    check_kind("gpt2");
    check_kind("llama3");
    check_kind("cl100k");
    check_kind("qwen2");
}

static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(weft__rng_at(7, draws++) % below);
}

/* Random bytes of several flavours, most of them not UTF-8. */
static size_t random_bytes(char *out, size_t room)
{
    size_t length = draw((uint32_t)room);
    uint32_t flavour = draw(4);
    for (size_t i = 0; i < length; i++) {
        static const char few[] = " \n\tab'sS0129.\xC3\xA9\xE2\x80\xA8";
        out[i] = flavour == 0   ? (char)draw(256)
                 : flavour == 1 ? few[draw(sizeof(few) - 1)]
                 : flavour == 2 ? (char)(32 + draw(95))
                                : "aab "[draw(4)];
    }
    return length;
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gpt2", "llama3", "cl100k", "qwen2", NULL};
    for (int k = 0; k < 5; k++) {
        weft_tokenizer_t *tokenizer;
        if (kinds[k] != NULL) {
            tokenizer = open_fixture(kinds[k]);
        } else {
            assert_int_equal(weft__tokenizer_open("bytes", &tokenizer), WEFT_OK);
        }
        for (int round = 0; round < 1000; round++) {
            char text[400], *back;
            size_t length = random_bytes(text, sizeof(text)), back_length;
            weft_tokens_t tokens = {0};
            assert_int_equal(weft__tokenizer_encode(tokenizer, text, length, false, &tokens),
                             WEFT_OK);
            for (size_t i = 0; i < tokens.count; i++) {
                assert_true(tokens.at[i] < weft__tokenizer_vocab(tokenizer));
            }
            assert_int_equal(
                weft__tokenizer_decode(tokenizer, tokens.at, tokens.count, &back, &back_length),
                WEFT_OK);
            assert_int_equal(back_length, length);
            assert_memory_equal(back, text, length);
            free(back);
            free(tokens.at);
        }
        weft__tokenizer_close(tokenizer);
    }
}

/* The plainest form of the rule, for comparison: look for the best pair, join it, start again. */
static size_t join_slowly(weft_bpe_t *bpe, const uint32_t (*merges)[2], uint32_t merge_count,
                          uint32_t *tokens, size_t count)
{
    for (;;) {
        uint32_t best = merge_count;
        size_t where = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            for (uint32_t m = 0; m < best; m++) {
                if (merges[m][0] == tokens[i] && merges[m][1] == tokens[i + 1]) {
                    best = m;
                    where = i;
                }
            }
        }
        if (best == merge_count) {
            return count;
        }
        size_t a_length, b_length;
        const char *a = weft__bpe_bytes(bpe, merges[best][0], &a_length);
        const char *b = weft__bpe_bytes(bpe, merges[best][1], &b_length);
        char both[512];
        memcpy(both, a, a_length);
        memcpy(both + a_length, b, b_length);
        tokens[where] = (uint32_t)weft__bpe_find(bpe, both, a_length + b_length);
        memmove(tokens + where + 1, tokens + where + 2, (count - where - 2) * sizeof(*tokens));
        count--;
    }
}

static void words_of_any_length_are_joined_by_rank(void **state)
{
    (void)state;
    enum { MERGES = 60 };
    for (int round = 0; round < 40; round++) {
        weft_bpe_t *bpe;
        uint32_t merges[MERGES][2], made = 0, vocab = 256;
        assert_int_equal(weft__bpe_create(256 + MERGES, &bpe), WEFT_OK);
        for (uint32_t b = 0; b < 256; b++) {
            char byte = (char)b;
            assert_int_equal(weft__bpe_add(bpe, b, &byte, 1), WEFT_OK);
        }
        for (int i = 0; i < MERGES; i++) { /* of the letters a to c and what was made of them */
            uint32_t of[2];
            char both[512];
            size_t length = 0;
            for (int side = 0; side < 2; side++) {
                size_t bytes;
                of[side] = draw(2) == 0 || vocab == 256 ? 'a' + draw(3) : 256 + draw(vocab - 256);
                const char *at = weft__bpe_bytes(bpe, of[side], &bytes);
                if (length + bytes > 200) {
                    of[side] = 'a';
                    at = weft__bpe_bytes(bpe, 'a', &bytes);
                }
                memcpy(both + length, at, bytes);
                length += bytes;
            }
            if (weft__bpe_find(bpe, both, length) < 0) {
                assert_int_equal(weft__bpe_add(bpe, vocab++, both, length), WEFT_OK);
                merges[made][0] = of[0];
                merges[made][1] = of[1];
                assert_int_equal(weft__bpe_merge(bpe, of[0], of[1], made), WEFT_OK);
                made++;
            }
        }
        for (int word = 0; word < 20; word++) {
            char text[300];
            uint32_t slow[300];
            size_t length = 1 + draw(word % 2 == 0 ? 20 : 299);
            for (size_t i = 0; i < length; i++) {
                text[i] = (char)('a' + draw(3));
                slow[i] = (unsigned char)text[i];
            }
            size_t count = join_slowly(bpe, merges, made, slow, length);
            for (int again = 0; again < 2; again++) { /* the second time may be remembered */
                weft_tokens_t tokens = {0};
                assert_int_equal(weft__bpe_encode(bpe, text, length, false, &tokens), WEFT_OK);
                assert_int_equal(tokens.count, count);
                assert_memory_equal(tokens.at, slow, count * sizeof(*slow));
                free(tokens.at);
            }
        }
        weft__bpe_destroy(bpe);
    }
}

static void bytes_are_tokens(void **state)
{
    (void)state;
    weft_tokenizer_t *tokenizer, *same;
    weft_tokens_t tokens = {0}, again = {0};
    static const char text[] = "a\xFF<|endoftext|>\n";
    assert_int_equal(weft__tokenizer_open("bytes", &tokenizer), WEFT_OK);
    assert_int_equal(weft__tokenizer_vocab(tokenizer), 257);
    assert_int_equal(weft__tokenizer_end(tokenizer), 256);
    assert_int_equal(weft__tokenizer_encode(tokenizer, text, sizeof(text) - 1, true, &tokens),
                     WEFT_OK);
    const uint32_t wanted[] = {'a', 0xFF, 256, '\n'};
    assert_int_equal(tokens.count, 4);
    assert_memory_equal(tokens.at, wanted, sizeof(wanted));

    /* its tokenizer.json, read back, does the same by another way */
    size_t length;
    const char *json = weft__tokenizer_json(tokenizer, &length);
    write_file(in_scratch("tokenizer.json"), json, length);
    assert_int_equal(weft__tokenizer_open(scratch(), &same), WEFT_OK);
    assert_int_equal(weft__tokenizer_encode(same, text, sizeof(text) - 1, true, &again), WEFT_OK);
    assert_int_equal(again.count, 4);
    assert_memory_equal(again.at, wanted, sizeof(wanted));
    assert_int_equal(weft__tokenizer_identity(same), weft__tokenizer_identity(tokenizer));
    weft__tokenizer_close(same);
    weft__tokenizer_close(tokenizer);
    free(tokens.at);
    free(again.at);
}

static void the_end_is_known(void **state)
{
    (void)state;
    size_t length;
    weft_tokenizer_t *tokenizer = open_fixture("llama3");
    assert_int_equal(weft__tokenizer_end(tokenizer), 700);
    assert_int_equal(weft__tokenizer_vocab(tokenizer), 706);
    assert_string_equal(weft__tokenizer_bytes(tokenizer, 700, &length), "<|endoftext|>");
    assert_null(weft__tokenizer_bytes(tokenizer, 706, &length));
    weft__tokenizer_close(tokenizer);
}

/* The file of a kind with the first `from` in it replaced. */
static weft_status_t open_changed(const char *kind, const char *from, const char *to)
{
    char name[64], *text, changed[65536];
    size_t size;
    weft_tokenizer_t *tokenizer = NULL;
    snprintf(name, sizeof(name), "tokenizer-%s.json", kind);
    assert_int_equal(weft__file_read(fixture("text", name), &text, &size), WEFT_OK);
    const char *at = strstr(text, from);
    assert_non_null(at);
    int length = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to,
                          at + strlen(from));
    write_file(in_scratch("changed.json"), changed, (size_t)length);
    weft_status_t status = weft__tokenizer_open(in_scratch("changed.json"), &tokenizer);
    weft__tokenizer_close(tokenizer);
    free(text);
    return status;
}

static void what_is_not_implemented_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *from, *to;
        weft_status_t status;
        const char *says;
    } cases[] = {
        {"gpt2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", WEFT_ERR_UNSUPPORTED,
         "normalizer \"NFC\""},
        {"gpt2", "\"add_prefix_space\":false", "\"add_prefix_space\":true", WEFT_ERR_UNSUPPORTED,
         "add_prefix_space"},
        {"gpt2", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", WEFT_ERR_UNSUPPORTED, "Unigram"},
        {"gpt2", "\"byte_fallback\":false", "\"byte_fallback\":true", WEFT_ERR_UNSUPPORTED,
         "byte_fallback"},
        {"gpt2", "\"dropout\":null", "\"dropout\":0.1", WEFT_ERR_UNSUPPORTED, "dropout"},
        {"gpt2", "\"lstrip\":false", "\"lstrip\":true", WEFT_ERR_UNSUPPORTED, "lstrip"},
        {"gpt2", "\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"", WEFT_ERR_UNSUPPORTED,
         "Whitespace"},
        {"llama3", "{1,3}", "{1,4}", WEFT_ERR_UNSUPPORTED, "splitting by"},
        {"llama3", "\"Isolated\"", "\"Removed\"", WEFT_ERR_UNSUPPORTED, "behavior"},
        {"llama3", "\"merges\":[[", "\"merges\":[[\"qqqq\",\"zzz\"],[", WEFT_ERR_INVALID, "merge"},
        {"llama3", "\"vocab\"", "\"words\"", WEFT_ERR_INVALID, "no vocabulary"},
        {"llama3", "\"vocab\":{\"!\":0,", "\"vocab\":{", WEFT_ERR_UNSUPPORTED, "byte 0x21"},
        {"llama3", "\"vocab\":{\"!\":0,", "\"vocab\":{\"!\":1,", WEFT_ERR_INVALID, "token 1"},
        {"llama3", "\"model\":{", "\"model\":", WEFT_ERR_INVALID, "line 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(open_changed(cases[i].kind, cases[i].from, cases[i].to), cases[i].status);
        assert_true(error_says(cases[i].says));
        assert_true(error_says("changed.json"));
    }
    weft_tokenizer_t *tokenizer;
    assert_int_equal(weft__tokenizer_open(in_scratch("none"), &tokenizer), WEFT_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_the_package),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(words_of_any_length_are_joined_by_rank),
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(the_end_is_known),
        cmocka_unit_test(what_is_not_implemented_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
