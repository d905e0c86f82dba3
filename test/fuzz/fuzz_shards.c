/* Token shards of llm.c. What is accepted is read, and a few tokens of it are written and read
 * again.
 *
 *     kind[1]  0: what follows is the file; else the first words of a header, which is filled up
 *              with zeros,
 *     words[12], and tokens
 *
 * reads: src/text/shards.c */
#include "fuzz/fuzz.h"

#include "text/shards.h"

const long fuzz_runs = 20000;

enum { WORDS = 12, TOKENS = 64 };

static void write_and_read(const weft_shard_t *shard)
{
    uint32_t tokens[TOKENS];
    uint64_t written;
    uint64_t count = shard->tokens < TOKENS ? shard->tokens : TOKENS;
    for (uint64_t i = 0; i < count; i++) {
        tokens[i] = weft__shard_token(shard, i);
    }
    weft_shard_writer_t *writer;
    weft_shard_t again;
    CHECK(weft__shards_create(fuzz_folder(), shard->token_bytes, 40, &writer) == WEFT_OK);
    CHECK(weft__shards_write(writer, tokens, count) == WEFT_OK);
    CHECK(weft__shards_finish(writer, &written) == WEFT_OK && written == count);
    if (count > 0) {
        CHECK(weft__shard_open(fuzz_path("tokens-00000.bin"), &again) == WEFT_OK);
        CHECK(again.tokens == (count < 40 ? count : 40));
        CHECK(weft__shard_token(&again, 0) == tokens[0]);
        weft__shard_close(&again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_shard_t shard;
    size_t file_size = size > 0 ? size - 1 : 0;
    const uint8_t *rest = size > 0 ? data + 1 : data;
    uint8_t *file = calloc(1, WEFT_SHARD_HEADER_BYTES + size);
    CHECK(file != NULL);
    if (size > 1 + WORDS && data[0] != 0) {
        memcpy(file, rest, WORDS);
        memcpy(file + WEFT_SHARD_HEADER_BYTES, rest + WORDS, file_size - WORDS);
        file_size += WEFT_SHARD_HEADER_BYTES - WORDS;
    } else {
        memcpy(file, rest, file_size);
    }
    if (weft__shard_open(fuzz_file(file, file_size), &shard) == WEFT_OK) {
        uint64_t sum = 0;
        CHECK(weft__shard_magic(file, file_size));
        for (uint64_t i = 0; i < shard.tokens; i++) {
            sum += weft__shard_token(&shard, i);
        }
        CHECK(sum <= shard.tokens * UINT32_MAX);
        write_and_read(&shard);
        weft__shard_close(&shard);
    } else {
        CHECK(strlen(weft_last_error()) > 10);
    }
    free(file);
    return 0;
}

static void seed(uint32_t magic, uint32_t version, uint32_t tokens, int bytes)
{
    uint8_t input[1 + WORDS + 64] = {1};
    const uint32_t words[] = {magic, version, tokens};
    memcpy(input + 1, words, WORDS);
    for (int i = 0; i < bytes; i++) {
        input[1 + WORDS + i] = (uint8_t)(i * 7);
    }
    fuzz_seed(input, 1 + WORDS + (size_t)bytes);
}

void fuzz_seeds(void)
{
    seed(20240520, 1, 4, 8);
    seed(20240520, 1, 30, 60);
    seed(20240801, 7, 3, 12);
    seed(20240801, 7, 0, 0);
    seed(20240522, 1, 0, 0);
    seed(20240520, 1, 0xffffffff, 2);
    fuzz_seed_text("");
}
