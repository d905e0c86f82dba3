/* tokenizer.json, and texts that are encoded with what it says.
 *
 *     kind[1]  json NUL text     kind & 1: the json is read from a file. In it, the first @ stands
 *                                for the tokens of all bytes, without which no tokenizer is
 *                                accepted
 *
 * reads: src/text/tokenizer_load.c src/text/tokenizer.c src/text/bpe.c src/text/split.c
 * reads: src/text/unicode.c
 * besides: weft__tokenizer_is_bytes weft__tokenizer_identity */
#include "fuzz/fuzz.h"

#include "text/tokenizer_parts.h"

const long fuzz_runs = 3000;

/* The members of the vocabulary of bytes: "!": 33, ... */
static const char *byte_tokens(size_t *length_p)
{
    static char *json;
    static const char *start;
    static size_t length;
    if (json == NULL) {
        size_t size;
        CHECK(weft__tokenizer_of_bytes(&json, &size) == WEFT_OK);
        start = strstr(json, "\"vocab\"");
        start = strchr(start, '{') + 1;
        const char *end = strstr(start, "\"merges\"");
        while (*--end != '}') {
        }
        length = (size_t)(end - start);
    }
    *length_p = length;
    return start;
}

/* Put the tokens of bytes where the first @ is. */
static char *expand(const char *text, size_t *length_p)
{
    const char *at = strchr(text, '@');
    size_t length = strlen(text), more = 0;
    const char *tokens = byte_tokens(&more);
    char *out = malloc(length + more + 1);
    CHECK(out != NULL);
    if (at == NULL) {
        memcpy(out, text, length + 1);
        *length_p = length;
        return out;
    }
    size_t before = (size_t)(at - text);
    memcpy(out, text, before);
    memcpy(out + before, tokens, more);
    memcpy(out + before + more, at + 1, length - before);
    *length_p = length + more - 1;
    return out;
}

static void check_tokens(const weft_tokenizer_t *tokenizer, const weft_tokens_t *tokens)
{
    for (size_t i = 0; i < tokens->count; i++) {
        size_t length;
        CHECK(tokens->at[i] < weft__tokenizer_vocab(tokenizer));
        CHECK(weft__tokenizer_bytes(tokenizer, tokens->at[i], &length) != NULL && length > 0);
    }
}

static void check_decode(const weft_tokenizer_t *t, const weft_tokens_t *tokens, const char *text,
                         size_t size)
{
    char *back;
    size_t length;
    CHECK(weft__tokenizer_decode(t, tokens->at, tokens->count, &back, &length) == WEFT_OK);
    CHECK(back[length] == '\0');
    /* a token that is added may have the number of another, whose bytes are then lost */
    CHECK(t->added_count > 0 || (length == size && memcmp(back, text, size) == 0));
    free(back);
}

static void check_cut(weft_tokenizer_t *t, const weft_tokens_t *whole, const char *text,
                      size_t size)
{
    weft_tokens_t parts = {0};
    size_t cut = weft__tokenizer_cut(t, text, size);
    CHECK(cut <= size);
    CHECK(weft__tokenizer_encode(t, text, cut, false, &parts) == WEFT_OK);
    CHECK(weft__tokenizer_encode(t, text + cut, size - cut, false, &parts) == WEFT_OK);
    CHECK(parts.count == whole->count);
    CHECK(whole->count == 0 || memcmp(parts.at, whole->at, whole->count * sizeof(uint32_t)) == 0);
    free(parts.at);
}

static void encode(weft_tokenizer_t *tokenizer, const char *text, size_t size)
{
    weft_tokens_t plain = {0}, special = {0};
    CHECK(weft__tokenizer_encode(tokenizer, text, size, false, &plain) == WEFT_OK);
    check_tokens(tokenizer, &plain);
    check_decode(tokenizer, &plain, text, size);
    check_cut(tokenizer, &plain, text, size);
    CHECK(weft__tokenizer_encode(tokenizer, text, size, true, &special) == WEFT_OK);
    check_tokens(tokenizer, &special);
    CHECK(special.count <= size && plain.count <= size);
    free(plain.at);
    free(special.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest);
    char *text = fuzz_text(&rest, 0);
    size_t length;
    char *json = expand(text, &length);
    weft_tokenizer_t *tokenizer;
    weft_status_t status = (kind & 1) != 0
                               ? weft__tokenizer_open(fuzz_file(json, length), &tokenizer)
                               : weft__tokenizer_load(json, length, "fuzz", &tokenizer);
    if (status == WEFT_OK) {
        size_t kept;
        CHECK(memcmp(weft__tokenizer_json(tokenizer, &kept), json, length) == 0 && kept == length);
        CHECK(weft__tokenizer_end(tokenizer) < (int64_t)weft__tokenizer_vocab(tokenizer));
        encode(tokenizer, (const char *)rest.at, rest.left);
        weft__tokenizer_close(tokenizer);
    } else {
        CHECK(strlen(weft_last_error()) > 0);
    }
    free(json);
    free(text);
    return 0;
}

#define LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
#define PLAIN "\"pre_tokenizer\":" LEVEL "true},"
#define SPLIT(pattern)                                                                             \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" \
    "{"                                                                                            \
    "\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\",\"invert\":false}," LEVEL "false}]},"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "         \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "              \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define MODEL(more, merges)                                                                        \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{@" more "},\"merges\":[" merges "]}}"
#define ADDED(id, name, special)                                                                   \
    "{\"id\":" id ",\"content\":\"" name "\",\"normalized\":false,\"special\":" special "}"
#define LETTERS ",\"ab\":256,\"abab\":257,\"\u0120a\":258,\"it\":259"
#define MERGES "\"a b\",[\"ab\",\"ab\"],\"\u0120 a\",\"i t\""

static void seed(uint8_t kind, const char *json, const char *text)
{
    size_t length = strlen(json), size = strlen(text);
    uint8_t *bytes = malloc(length + size + 2);
    CHECK(bytes != NULL);
    bytes[0] = kind;
    memcpy(bytes + 1, json, length + 1);
    memcpy(bytes + length + 2, text, size);
    fuzz_seed(bytes, length + size + 2);
    free(bytes);
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"'re",
                                        " \xC3\xA9",
                                        "\xE2\x80\x89",
                                        "12345",
                                        "\r\n",
                                        "<|endoftext|>",
                                        "\"ignore_merges\":true,",
                                        "\"dropout\":0.1,",
                                        "\"normalizer\":{\"type\":\"NFC\"},",
                                        "\"lstrip\":true",
                                        "\"normalized\":true",
                                        "\"byte_fallback\":true,",
                                        "abababababab",
                                        "\"decoder\":" LEVEL "true},",
                                        "\"type\":\"Split\""};
    static const char text[] = "It's 12345 ababab  <|endoftext|> a b\n\n\xC3\xA9\xFF we'll\r\n abx";
    static const char longer[] =
        "abababababababababababababababababababababababababababababababababababab "
        "itititabababit it's";
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    char *bytes;
    size_t length;
    CHECK(weft__tokenizer_of_bytes(&bytes, &length) == WEFT_OK);
    seed(1, bytes, text);
    free(bytes);
    seed(1, "{" PLAIN MODEL("", ""), text);
    seed(0, "{" PLAIN MODEL("", ""),
         "\xF0\x90\x90\x80 \xF0\x9D\x9F\x8E\xE4\xB8\x80\xE3\x80\x80\xD9\xA0 \xF3\xA0\x84\x80");
    seed(0, "{" PLAIN MODEL(LETTERS, MERGES), text);
    seed(0, "{" SPLIT(LLAMA3) MODEL(LETTERS, MERGES), text);
    seed(0, "{" SPLIT(QWEN2) MODEL(LETTERS, MERGES), text);
    seed(0, "{\"pre_tokenizer\":" LEVEL "false}," MODEL(LETTERS, MERGES), longer);
    seed(0,
         "{\"added_tokens\":[" ADDED("300", "<|endoftext|>", "true") "," ADDED(
             "301", "abx", "false") "," ADDED("302", "ab", "false") "]," PLAIN MODEL(LETTERS,
                                                                                     MERGES),
         text);
    seed(0,
         "{\"normalizer\":null," PLAIN "\"model\":{\"ignore_merges\":true,\"vocab\":{@" LETTERS
         ",\"ababababababababababababababababababababababababababababababababababababab\":400},"
         "\"merges\":[" MERGES "]}}",
         longer);
    seed(0, "{" PLAIN "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", text);
}
