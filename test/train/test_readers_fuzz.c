/* Damaged tokenizers, configurations, lists of checkpoints and shards: refused with a sentence or
 * read, never a crash. */
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

#include "base/file.h"
#include "train/checkpoint_parts.h"
#include "train/config.h"
#include "train/fixture.h"
#include "train/shards.h"
#include "train/tokenizer_parts.h"

enum { ROOM = 32768 };

static uint64_t state = 1;
static int accepted[4];

/* A copy of exactly its size, so that a sanitizer sees one byte too many. */
static uint8_t *mutated(const char *seed, size_t seed_size, size_t *size_p)
{
    static uint8_t bytes[ROOM];
    size_t size = seed_size;
    memcpy(bytes, seed, size);
    for (uint32_t i = 1 + fuzz_random(&state, 4); i > 0; i--) {
        size = fuzz_mutate(&state, bytes, size, ROOM);
    }
    uint8_t *copy = malloc(size + 1);
    memcpy(copy, bytes, size);
    copy[size] = 0;
    fuzz_data = copy;
    fuzz_size = size;
    *size_p = size;
    return copy;
}

static void fuzz_tokenizer(const char *seed, size_t seed_size)
{
    static const char text[] = "It's 12345 <|endoftext|>  words\n\n\xC3\xA9\xFF";
    size_t size;
    weft_tokenizer_t *tokenizer;
    uint8_t *bytes = mutated(seed, seed_size, &size);
    if (weft__tokenizer_load((const char *)bytes, size, "fuzz", &tokenizer) == WEFT_OK) {
        weft_tokens_t tokens = {0};
        char *back;
        size_t length;
        accepted[0]++;
        CHECK(weft__tokenizer_encode(tokenizer, text, sizeof(text) - 1, false, &tokens) == WEFT_OK);
        for (size_t i = 0; i < tokens.count; i++) {
            CHECK(tokens.at[i] < weft__tokenizer_vocab(tokenizer));
        }
        CHECK(weft__tokenizer_decode(tokenizer, tokens.at, tokens.count, &back, &length) ==
              WEFT_OK);
        free(back);
        free(tokens.at);
        weft__tokenizer_close(tokenizer);
    } else {
        CHECK(strlen(weft_last_error()) > 0);
    }
    free(bytes);
}

static void fuzz_config(const char *seed, size_t seed_size)
{
    size_t size;
    weft_train_config_t config;
    bool help;
    char *words[] = {"train", NULL}, *text;
    uint8_t *bytes = mutated(seed, seed_size, &size);
    CHECK(weft__train_parse(1, words, &config, &help) == WEFT_OK);
    if (weft__train_read_text((const char *)bytes, "fuzz", &config) == WEFT_OK) {
        const weft_train_limits_t limits = {.context = 64, .layers = 3, .heads = 6, .kv_heads = 2};
        accepted[1]++;
        if (weft__train_resolve(&config, &limits) == WEFT_OK) {
            CHECK((int64_t)config.dp * config.micro_batch * config.accumulate == config.batch);
            CHECK((int64_t)config.dp * config.pp * config.tp == config.ranks);
        }
        CHECK(weft__train_write_text(&config, "", &text) == WEFT_OK);
        CHECK(weft__train_read_text(text, "again", &config) == WEFT_OK);
        free(text);
    }
    weft__train_free(&config);
    free(bytes);
}

static void fuzz_manifest(const char *seed, size_t seed_size)
{
    size_t size;
    weft_manifest_t manifest;
    uint8_t *bytes = mutated(seed, seed_size, &size);
    write_file(in_scratch("trainer.json"), bytes, size);
    bool same = size == seed_size && memcmp(bytes, seed, size) == 0;
    if (weft__manifest_read(scratch(), &manifest) == WEFT_OK) {
        accepted[2]++;
        CHECK(same); /* it has a checksum of itself */
    }
    free(manifest.settings);
    free(bytes);
}

static void fuzz_shard(const char *seed, size_t seed_size)
{
    size_t size;
    weft_shard_t shard;
    uint8_t *bytes = mutated(seed, seed_size, &size);
    write_file(in_scratch("s.bin"), bytes, size);
    if (weft__shard_open(in_scratch("s.bin"), &shard) == WEFT_OK) {
        uint64_t sum = 0;
        accepted[3]++;
        for (uint64_t i = 0; i < shard.tokens; i++) {
            sum += weft__shard_token(&shard, i);
        }
        CHECK(sum <= shard.tokens * UINT32_MAX);
        weft__shard_close(&shard);
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}

int main(void)
{
    char *tokenizer, *config = NULL, *manifest, shard[1024 + 40] = {0};
    size_t tokenizer_size, manifest_size;
    bool help;
    char *words[] = {"train", "--data", "x", NULL};
    weft_train_config_t defaults;
    const uint32_t header[] = {20240520, 1, 20};
    memcpy(shard, header, sizeof(header));
    const weft_manifest_t plain = {.state = {.step = 7, .loss_scale = 1},
                                   .files = {{"model.safetensors", 12, 0x1234}},
                                   .count = 1,
                                   .settings = "batch = 8\n"};
    if (weft__file_read(fixture("tokenizer-gpt2.json"), &tokenizer, &tokenizer_size) != WEFT_OK ||
        weft__train_parse(3, words, &defaults, &help) != WEFT_OK ||
        weft__train_write_text(&defaults, "", &config) != WEFT_OK ||
        weft__manifest_write(scratch(), &plain) != WEFT_OK ||
        weft__file_read(in_scratch("trainer.json"), &manifest, &manifest_size) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    for (int i = 0; i < 1500; i++) {
        fuzz_tokenizer(tokenizer, tokenizer_size);
        fuzz_config(config, strlen(config));
        fuzz_manifest(manifest, manifest_size);
        fuzz_shard(shard, sizeof(shard));
    }
    printf("accepted: %d tokenizers, %d configurations, %d lists, %d shards\n", accepted[0],
           accepted[1], accepted[2], accepted[3]);
    free(tokenizer);
    free(config);
    free(manifest);
    return accepted[0] == 0 || accepted[1] == 0 || accepted[3] == 0;
}
