/* ctest: timeout=120 */
/* Tokenizers and texts made to take long, or to write past the end of something. What is linear
 * takes a second here; what is not takes minutes, so that the limits need not be near. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fixture.h"
#include "base/rng.h"
#include "text/names.h"
#include "text/tokenizer_parts.h"

enum { LIMIT_S = 20 }; /* of this thread's time; the square of a million takes an hour */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- names ---------------------------------------------------------------------------------- */

static void every_place_has_its_longest_name(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        weft_names_t *names;
        weft_name_matches_t matches = {0};
        char list[12][9], text[200];
        int count = 0;
        uint64_t n = 0;
        assert_int_equal(weft__names_create(&names), WEFT_OK);
        for (int i = 0; i < 12; i++) {
            size_t length = 1 + weft__rng_at(round, n++) % 8;
            for (size_t k = 0; k < length; k++) {
                list[count][k] = "aab"[weft__rng_at(round, n++) % 3];
            }
            list[count][length] = '\0';
            bool twice = false;
            for (int k = 0; k < count; k++) {
                twice = twice || strcmp(list[k], list[count]) == 0;
            }
            weft_status_t status = weft__names_add(names, list[count], length, (uint32_t)count);
            assert_int_equal(status, twice ? WEFT_ERR_INVALID : WEFT_OK);
            count += !twice;
        }
        assert_int_equal(weft__names_build(names), WEFT_OK);
        for (size_t i = 0; i < sizeof(text); i++) {
            text[i] = "aaabc"[weft__rng_at(round, n++) % 5];
        }
        assert_int_equal(weft__names_find(names, text, sizeof(text), &matches), WEFT_OK);
        size_t found = 0;
        for (size_t at = sizeof(text); at-- > 0;) {
            int best = -1;
            for (int k = 0; k < count; k++) {
                size_t length = strlen(list[k]);
                if (length <= sizeof(text) - at && memcmp(list[k], text + at, length) == 0 &&
                    (best < 0 || length > strlen(list[best]))) {
                    best = k;
                }
            }
            if (best >= 0) {
                assert_true(found < matches.count);
                assert_int_equal(matches.list[found].at, at);
                assert_int_equal(matches.list[found].value, best);
                found++;
            }
        }
        assert_int_equal(found, matches.count);
        free(matches.list);
        weft__names_destroy(names);
    }
    weft__names_destroy(NULL);
}

/* ---- tokenizers ----------------------------------------------------------------------------- */

/* A tokenizer.json that grows: that of bytes, and what is put in. */
typedef struct recipe {
    char *added, *vocab, *merges;
    size_t sizes[3];
    FILE *to_added, *to_vocab, *to_merges;
    int tokens;
} recipe_t;

static void begin(recipe_t *r)
{
    *r = (recipe_t){.tokens = 257};
    r->to_added = open_memstream(&r->added, &r->sizes[0]);
    r->to_vocab = open_memstream(&r->vocab, &r->sizes[1]);
    r->to_merges = open_memstream(&r->merges, &r->sizes[2]);
}

static void repeat(FILE *to, const char *what, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        fputs(what, to);
    }
}

/* An added token: `times` letters a, then `end`. */
static int add_name(recipe_t *r, size_t times, const char *end)
{
    fprintf(r->to_added, "{\"id\": %d, \"content\": \"", r->tokens);
    repeat(r->to_added, "a", times);
    fprintf(r->to_added, "%s\", \"special\": false, \"normalized\": %s},", end,
            r->tokens % 2 ? "true" : "false");
    return r->tokens++;
}

/* A token of `left` + `right` letters a, made by joining these. */
static void add_merge(recipe_t *r, size_t left, size_t right)
{
    fputs("\"", r->to_vocab);
    repeat(r->to_vocab, "a", left + right);
    fprintf(r->to_vocab, "\": %d,", r->tokens++);
    fprintf(r->to_merges, "%s\"", ftell(r->to_merges) > 0 ? "," : "");
    repeat(r->to_merges, "a", left);
    fputs(" ", r->to_merges);
    repeat(r->to_merges, "a", right);
    fputs("\"", r->to_merges);
}

/* `text` up to and with what follows `key` up to `bracket`; moves behind it. */
static void copy_until(FILE *out, char **text, const char *key, char bracket)
{
    char *end = strchr(strstr(*text, key), bracket) + 1;
    fwrite(*text, 1, (size_t)(end - *text), out);
    *text = end;
}

static weft_tokenizer_t *finish(recipe_t *r)
{
    char *bytes, *json;
    size_t length;
    weft_tokenizer_t *tokenizer = NULL;
    fclose(r->to_added);
    fclose(r->to_vocab);
    fclose(r->to_merges);
    assert_int_equal(weft__tokenizer_of_bytes(&bytes, &length), WEFT_OK);
    FILE *out = open_memstream(&json, &length);
    char *at = bytes;
    copy_until(out, &at, "\"added_tokens\"", '[');
    fputs(r->added, out);
    copy_until(out, &at, "\"vocab\"", '{');
    fputs(r->vocab, out);
    copy_until(out, &at, "\"merges\"", '[');
    fputs(r->merges, out);
    fputs(at, out);
    fclose(out);
    weft_status_t status = weft__tokenizer_load(json, length, "hard.json", &tokenizer);
    if (status != WEFT_OK) {
        print_message("%s\n", weft_last_error());
    }
    assert_int_equal(status, WEFT_OK);
    free(bytes);
    free(json);
    free(r->added);
    free(r->vocab);
    free(r->merges);
    return tokenizer;
}

/* Encode, look at the time, and decode; returns how many tokens there are. */
static size_t encode(weft_tokenizer_t *tokenizer, const char *text, size_t length)
{
    weft_tokens_t tokens = {0};
    char *back;
    size_t count;
    double start = seconds();
    assert_int_equal(weft__tokenizer_encode(tokenizer, text, length, true, &tokens), WEFT_OK);
    double took = seconds() - start;
    print_message("%zu bytes, %zu tokens, %.3f s\n", length, tokens.count, took);
    assert_true(took < LIMIT_S);
    assert_int_equal(weft__tokenizer_decode(tokenizer, tokens.at, tokens.count, &back, &count),
                     WEFT_OK);
    assert_int_equal(count, length);
    assert_memory_equal(back, text, length);
    count = tokens.count;
    free(back);
    free(tokens.at);
    return count;
}

#define MILLION 1000000

static char *letters(size_t count)
{
    char *text = malloc(count + 1);
    memset(text, 'a', count);
    text[count] = '\0';
    return text;
}

static void a_long_name_that_never_ends(void **state)
{
    (void)state;
    recipe_t r;
    char *text = letters(MILLION);
    begin(&r);
    add_name(&r, MILLION + 1, "");
    add_name(&r, MILLION + 1, "b");
    weft_tokenizer_t *tokenizer = finish(&r);
    assert_int_equal(encode(tokenizer, text, MILLION), MILLION);
    weft__tokenizer_close(tokenizer);
    /* The same, where a short one is found at every place before the long one fails. */
    begin(&r);
    add_name(&r, 1, "");
    add_name(&r, MILLION / 2, "b");
    add_name(&r, 3, "c");
    tokenizer = finish(&r);
    assert_int_equal(encode(tokenizer, text, MILLION), MILLION);
    text[MILLION - 1] = 'b';
    assert_int_equal(encode(tokenizer, text, MILLION), MILLION / 2);
    weft__tokenizer_close(tokenizer);
    free(text);
}

static void thousands_of_names_begin_alike(void **state)
{
    (void)state;
    recipe_t r;
    char *text = letters(MILLION);
    begin(&r);
    for (size_t i = 1; i <= 1500; i++) {
        add_name(&r, i, "");
        add_name(&r, i, "x");
        add_name(&r, 1500 - i, "y");
    }
    weft_tokenizer_t *tokenizer = finish(&r);
    /* Of both passes: those with an even number are looked for first. */
    assert_true(encode(tokenizer, text, MILLION) <= MILLION / 1499 + 2);
    weft__tokenizer_close(tokenizer);
    free(text);
}

static void merges_in_long_chains(void **state)
{
    (void)state;
    recipe_t r;
    char *text = letters(MILLION);
    begin(&r);
    for (size_t i = 1; i < 1000; i++) { /* each from the one before and one more letter */
        add_merge(&r, i, 1);
    }
    weft_tokenizer_t *tokenizer = finish(&r);
    encode(tokenizer, text, MILLION);
    weft__tokenizer_close(tokenizer);
    begin(&r);
    for (size_t i = 1; i <= 1 << 15; i *= 2) { /* each twice the one before */
        add_merge(&r, i, i);
    }
    tokenizer = finish(&r);
    assert_int_equal(encode(tokenizer, text, 1 << 16), 1);
    assert_int_equal(encode(tokenizer, text, (1 << 19) + 5), 8 + 2);
    weft__tokenizer_close(tokenizer);
    free(text);
}

static void runs_of_one_character(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gpt2", "llama3", "cl100k", "qwen2"};
    static const char *const runs[] = {"a",  " ",   "\n", "'",        "1",    "ab",
                                       " a", "\n ", "'s", "\xC3\xA9", "\xFF", "<|endoftext|"};
    char *text = malloc(MILLION + 16), path[64];
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        weft_tokenizer_t *tokenizer;
        snprintf(path, sizeof(path), "tokenizer-%s.json", kinds[i]);
        assert_int_equal(weft__tokenizer_open(fixture("text", path), &tokenizer), WEFT_OK);
        for (size_t k = 0; k < sizeof(runs) / sizeof(runs[0]); k++) {
            size_t length = 0, each = strlen(runs[k]);
            for (; length + each <= MILLION / 4; length += each) {
                memcpy(text + length, runs[k], each);
            }
            encode(tokenizer, text, length);
        }
        weft__tokenizer_close(tokenizer);
    }
    free(text);
}

/* Every growth of the room for bytes of tokens, to the byte. */
static void tokens_of_any_length_are_kept(void **state)
{
    (void)state;
    static const size_t around[] = {2048, 4096, 4097, 8192, 12289, 70000};
    for (uint64_t round = 0; round < 40; round++) {
        weft_bpe_t *bpe;
        char *all[48];
        size_t lengths[48];
        assert_int_equal(weft__bpe_create(48 + 256, &bpe), WEFT_OK);
        for (uint32_t b = 0; b < 256; b++) {
            char byte = (char)b;
            assert_int_equal(weft__bpe_add(bpe, 48 + b, &byte, 1), WEFT_OK);
        }
        for (uint32_t i = 0; i < 48; i++) {
            uint64_t random = weft__rng_at(round, i);
            lengths[i] = i % 3 == 0 ? around[random % 6] - 300 + (random >> 8) % 600
                                    : 2 + (random >> 8) % (i % 3 == 1 ? 30 : 6000);
            all[i] = malloc(lengths[i]); /* to the byte, for the address sanitizer */
            for (size_t k = 0; k < lengths[i]; k++) {
                all[i][k] = (char)weft__rng_at(round * 64 + i, k);
            }
            assert_int_equal(weft__bpe_add(bpe, i, all[i], lengths[i]), WEFT_OK);
        }
        for (uint32_t i = 0; i < 48; i++) {
            size_t length;
            const char *bytes = weft__bpe_bytes(bpe, i, &length);
            assert_int_equal(length, lengths[i]);
            assert_memory_equal(bytes, all[i], length);
            assert_int_equal(weft__bpe_find(bpe, all[i], length), i);
            free(all[i]);
        }
        weft__bpe_destroy(bpe);
    }
}

/* A word whose links do not fit into what is left: it must not become a text of no tokens. */
static void a_word_without_memory_is_an_error(void **state)
{
    (void)state;
    enum { WORD = 16 << 20, LEFT = 128 << 20 }; /* its tokens fit, its links do not */
    const char *sanitizer = getenv("SANITIZER");
    if (sanitizer != NULL && sanitizer[0] != '\0') {
        print_message("skipped: sanitizers reserve more addresses than a limit would leave\n");
        skip();
    }
    weft_bpe_t *bpe;
    char *word = letters(WORD);
    assert_int_equal(weft__bpe_create(256, &bpe), WEFT_OK);
    for (uint32_t b = 0; b < 256; b++) {
        char byte = (char)b;
        assert_int_equal(weft__bpe_add(bpe, b, &byte, 1), WEFT_OK);
    }
    pid_t pid = fork();
    if (pid == 0) {
        unsigned long pages = 0;
        weft_tokens_t tokens = {0};
        FILE *file = fopen("/proc/self/statm", "re");
        bool known = file != NULL && fscanf(file, "%lu", &pages) == 1;
        rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + LEFT;
        known = known && setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) == 0;
        weft_status_t status = weft__bpe_encode(bpe, word, WORD, false, &tokens);
        _exit(!known || status != WEFT_ERR_NO_MEMORY || tokens.count != 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    weft__bpe_destroy(bpe);
    free(word);
}

/* Tokens of which a file could choose the bytes so that an unkeyed hash (multiply and shift, from 8
 * bytes to the next) were the same for all. */
static void tokens_that_would_share_a_row(void **state)
{
    (void)state;
    enum { TOKENS = 60000 };
    weft_bpe_t *bpe;
    assert_int_equal(weft__bpe_create(TOKENS, &bpe), WEFT_OK);
    clock_t start = clock();
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint64_t words[2] = {i * 0x9E3779B97F4A7C15u, 0};
        uint64_t hash = (0x9E3779B97F4A7C15u ^ 16 ^ words[0]) * 0xFF51AFD7ED558CCDu;
        words[1] = hash ^ hash >> 32;
        assert_int_equal(weft__bpe_add(bpe, i, (const char *)words, sizeof(words)), WEFT_OK);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_true(seconds < 2); /* of this process; one by one it were 6 */
    weft__bpe_destroy(bpe);
}

/* A space is written as another character, so one that is written as itself is part of no token of
 * bytes. */
static void characters_that_stand_for_no_byte(void **state)
{
    recipe_t r;
    (void)state;
    begin(&r);
    fprintf(r.to_vocab, "\"x y\": %d,", r.tokens++);
    weft_tokenizer_t *tokenizer = finish(&r);
    assert_true(weft__bpe_find(tokenizer->bpe, "x\0y", 3) < 0);
    assert_true(weft__bpe_find(tokenizer->bpe, "x y", 3) < 0);
    weft__tokenizer_close(tokenizer);
}

/* What is kept with a checkpoint is known again, and as fast as before. */
static void bytes_are_known_from_their_file(void **state)
{
    char *json;
    size_t length;
    weft_tokenizer_t *tokenizer;
    (void)state;
    assert_int_equal(weft__tokenizer_of_bytes(&json, &length), WEFT_OK);
    for (int changed = 0; changed < 2; changed++) {
        write_file(in_scratch("tokenizer.json"), json,
                   length - (size_t)changed); /* a newline less */
        assert_int_equal(weft__tokenizer_open(in_scratch("tokenizer.json"), &tokenizer), WEFT_OK);
        assert_int_equal(weft__tokenizer_is_bytes(tokenizer), !changed);
        weft__tokenizer_close(tokenizer);
    }
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_has_its_longest_name),
        cmocka_unit_test(a_long_name_that_never_ends),
        cmocka_unit_test(thousands_of_names_begin_alike),
        cmocka_unit_test(merges_in_long_chains),
        cmocka_unit_test(runs_of_one_character),
        cmocka_unit_test(tokens_of_any_length_are_kept),
        cmocka_unit_test(a_word_without_memory_is_an_error),
        cmocka_unit_test(tokens_that_would_share_a_row),
        cmocka_unit_test(characters_that_stand_for_no_byte),
        cmocka_unit_test(bytes_are_known_from_their_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
