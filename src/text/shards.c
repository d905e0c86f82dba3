/* Token shards in the format of llm.c. */
#include "text/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/output.h"

#define MAGIC_GPT2 20240520u
#define VERSION_GPT2 1u
#define MAGIC_LLAMA3 20240801u
#define VERSION_LLAMA3 7u
#define MAGIC_EVALUATION 20240522u
#define BUFFER_BYTES ((size_t)1 << 20)

static uint32_t word_at(const uint8_t *bytes, int index)
{
    const uint8_t *at = bytes + 4 * index;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

bool weft__shard_magic(const void *bytes, size_t count)
{
    uint32_t magic = count >= 4 ? word_at(bytes, 0) : 0;
    return magic == MAGIC_GPT2 || magic == MAGIC_LLAMA3;
}

static weft_status_t read_header(const char *path, weft_shard_t *shard)
{
    const uint8_t *header = shard->file.data;
    if (shard->file.size < WEFT_SHARD_HEADER_BYTES) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s has %zu bytes; a token shard of llm.c starts with %d of "
                          "header",
                          path, shard->file.size, WEFT_SHARD_HEADER_BYTES);
    }
    uint32_t magic = word_at(header, 0), version = word_at(header, 1);
    if (magic == MAGIC_EVALUATION) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s holds multiple-choice questions of llm.c, not tokens to "
                          "train on",
                          path);
    }
    bool gpt2 = magic == MAGIC_GPT2 && version == VERSION_GPT2;
    bool llama3 = magic == MAGIC_LLAMA3 && version == VERSION_LLAMA3;
    if (!gpt2 && !llama3) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "%s is no token shard of llm.c: it starts with %u, version %u; what can be read is "
            "%u, version %u (GPT-2) and %u, version %u (Llama 3)",
            path, magic, version, MAGIC_GPT2, VERSION_GPT2, MAGIC_LLAMA3, VERSION_LLAMA3);
    }
    shard->tokens = word_at(header, 2);
    shard->token_bytes = gpt2 ? 2 : 4;
    uint64_t expected = WEFT_SHARD_HEADER_BYTES + shard->tokens * (uint64_t)shard->token_bytes;
    if (shard->file.size != expected) {
        return weft__fail(WEFT_ERR_INVALID, "%s is %s: %zu bytes, but its %llu tokens take %llu",
                          path, shard->file.size < expected ? "truncated" : "damaged",
                          shard->file.size, (unsigned long long)shard->tokens,
                          (unsigned long long)expected);
    }
    return WEFT_OK;
}

weft_status_t weft__shard_open(const char *path, weft_shard_t *out)
{
    weft_shard_t shard = {.path = strdup(path)};
    if (shard.path == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to open %s", path);
    }
    weft_status_t status = weft__file_map(path, &shard.file);
    if (status == WEFT_OK) {
        status = read_header(path, &shard);
    }
    if (status != WEFT_OK) {
        weft__shard_close(&shard);
        return status;
    }
    *out = shard;
    return WEFT_OK;
}

void weft__shard_close(weft_shard_t *shard)
{
    weft__file_unmap(&shard->file);
    free(shard->path);
    shard->path = NULL;
}

/* ---- writing -------------------------------------------------------------------------------- */

struct weft_shard_writer {
    char folder[WEFT_PATH_BYTES];
    int token_bytes;
    uint64_t most;        /* tokens of a shard */
    uint64_t here, total; /* tokens of this shard, of all */
    int number;
    weft_output_t *out; /* NULL: between two shards */
    uint8_t *buffer;
    size_t filled;
};

weft_status_t weft__shards_create(const char *folder, int token_bytes, uint64_t most,
                                  weft_shard_writer_t **writer_p)
{
    weft_shard_writer_t *writer = calloc(1, sizeof(*writer));
    uint8_t *buffer = malloc(BUFFER_BYTES);
    weft_status_t status = writer != NULL && buffer != NULL
                               ? weft__path_join(writer->folder, "", folder)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write tokens");
    if (status != WEFT_OK) {
        free(writer);
        free(buffer);
        return status;
    }
    writer->buffer = buffer;
    writer->token_bytes = token_bytes;
    writer->most = most != 0 && most < (1u << 30) ? most : 1u << 30; /* llm.c counts in 31 bits */
    *writer_p = writer;
    return WEFT_OK;
}

static weft_status_t flush(weft_shard_writer_t *writer)
{
    weft_status_t status = weft__output_write(writer->out, writer->buffer, writer->filled);
    writer->filled = 0;
    return status;
}

static weft_status_t begin_shard(weft_shard_writer_t *writer)
{
    char name[32], path[WEFT_PATH_BYTES];
    snprintf(name, sizeof(name), "tokens-%05d.bin", writer->number++);
    WEFT_TRY(weft__path_join(path, writer->folder, name));
    WEFT_TRY(weft__output_open_inside(path, &writer->out));
    memset(writer->buffer, 0, WEFT_SHARD_HEADER_BYTES); /* filled in when the number is known */
    writer->filled = WEFT_SHARD_HEADER_BYTES;
    writer->here = 0;
    return WEFT_OK;
}

static void put_word(uint8_t *header, int index, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        header[4 * index + i] = (uint8_t)(value >> 8 * i);
    }
}

static weft_status_t end_shard(weft_shard_writer_t *writer)
{
    weft_status_t status = flush(writer);
    uint8_t header[12];
    bool small = writer->token_bytes == 2;
    put_word(header, 0, small ? MAGIC_GPT2 : MAGIC_LLAMA3);
    put_word(header, 1, small ? VERSION_GPT2 : VERSION_LLAMA3);
    put_word(header, 2, (uint32_t)writer->here);
    if (status == WEFT_OK) {
        status = weft__output_patch(writer->out, 0, header, sizeof(header));
    }
    status = weft__output_end(writer->out, status);
    writer->out = NULL;
    return status;
}

weft_status_t weft__shards_write(weft_shard_writer_t *writer, const uint32_t *tokens, size_t count)
{
    weft_status_t status = WEFT_OK;
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        if (writer->out != NULL && writer->here == writer->most) {
            status = end_shard(writer);
        }
        if (status == WEFT_OK && writer->out == NULL) {
            status = begin_shard(writer);
        }
        if (status == WEFT_OK && writer->filled + 4 > BUFFER_BYTES) {
            status = flush(writer);
        }
        if (status != WEFT_OK) {
            return status;
        }
        for (int b = 0; b < writer->token_bytes; b++) {
            writer->buffer[writer->filled++] = (uint8_t)(tokens[i] >> 8 * b);
        }
        writer->here++;
        writer->total++;
    }
    return status;
}

weft_status_t weft__shards_finish(weft_shard_writer_t *writer, uint64_t *tokens_p)
{
    weft_status_t status = writer->out != NULL ? end_shard(writer) : WEFT_OK;
    if (status == WEFT_OK) {
        status = weft__folder_sync(writer->folder);
    }
    if (status == WEFT_OK && tokens_p != NULL) {
        *tokens_p = writer->total;
    }
    weft__shards_abandon(writer);
    return status;
}

void weft__shards_abandon(weft_shard_writer_t *writer)
{
    if (writer != NULL) {
        weft__output_discard(writer->out);
        free(writer->buffer);
        free(writer);
    }
}
