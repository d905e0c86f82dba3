/* Token shards in the format of llm.c: 256 32-bit words of header (magic, version, number of
 * tokens), then the tokens, of 16 bits (GPT-2) or 32 (Llama 3), little-endian. */
#ifndef WEFT_TEXT_SHARDS_H
#define WEFT_TEXT_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "base/file.h"

#define WEFT_SHARD_HEADER_BYTES 1024

typedef struct weft_shard {
    char *path;
    weft_mapped_t file;
    uint64_t tokens;
    int token_bytes; /* 2 or 4 */
} weft_shard_t;

/* Do these bytes, the first of a file, start a shard? */
bool weft__shard_magic(const void *bytes, size_t count);

/* Map one shard. WEFT_ERR_INVALID, naming the file, if it is no shard, is truncated or has bytes
 * too many. */
weft_status_t weft__shard_open(const char *path, weft_shard_t *out);
void weft__shard_close(weft_shard_t *shard);

static inline uint32_t weft__shard_token(const weft_shard_t *shard, uint64_t index)
{
    const uint8_t *at = shard->file.data + WEFT_SHARD_HEADER_BYTES +
                        index * (uint64_t)shard->token_bytes;
    uint32_t low = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    return shard->token_bytes == 2 ? low : low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* ---- writing -------------------------------------------------------------------------------- */

typedef struct weft_shard_writer weft_shard_writer_t;

/* Write shards folder/tokens-00000.bin, -00001.bin, ... of at most `most` tokens each (0: 2^30).
 * Tokens below 65536 fit where token_bytes is 2. */
weft_status_t weft__shards_create(const char *folder, int token_bytes, uint64_t most,
                                  weft_shard_writer_t **writer_p);
weft_status_t weft__shards_write(weft_shard_writer_t *writer, const uint32_t *tokens, size_t count);

/* Finish the last shard and make all durable; *tokens_p (may be NULL) is the total. The writer is
 * gone in any case. */
weft_status_t weft__shards_finish(weft_shard_writer_t *writer, uint64_t *tokens_p);
void weft__shards_abandon(weft_shard_writer_t *writer);

#endif
