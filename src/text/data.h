/* Training data: one long row of tokens, cut into windows, in an order that nothing but the seed
 * decides.
 *
 *     tokens   | shard 0 ............ | shard 1 ......... | shard 2 ........ |
 *     windows  |----|----|----|----|----|----|----|----|----|----|----|----|xx
 *              0    1    2    for training ...           | for validation
 *
 * Windows are T apart and T + 1 long, so that each token but the first is predicted once.
 * Windows run on across shards; fewer than T tokens at the very end are left over. Sample s of a
 * run (s = 0, 1, ...) is window P(s mod N) of the N windows for training, P being a permutation
 * that depends on (seed, s div N), the epoch. It is computed, not stored (permute.h). So
 *   - the position in the data is one number, the samples taken so far;
 *   - the order does not depend on how many ranks there are, and goes on after a restart;
 *   - every window comes once per epoch, whatever the batch. */
#ifndef WEFT_TEXT_DATA_H
#define WEFT_TEXT_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "text/tokenizer.h"

typedef struct weft_data weft_data_t;

/* Is told how many bytes of text are encoded, of how many: before the first, then every
 * megabyte. */
typedef struct weft_data_watch {
    void (*encoded)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
} weft_data_watch_t;

/* Turn what the user named into token shards. `path` is
 *   - a .bin file of llm.c (GPT-2: 16-bit tokens, magic 20240520; Llama 3: 32-bit, 20240801), a
 *     folder that holds some, or a pattern such as "train_*.bin": nothing is to be done;
 *   - a text file, or a folder of them (recursively, in the order of their names; hidden files,
 *       run
 *     folders and files with a NUL byte in their first 8 KiB are left out): encoded into shards
 *         in `cache`,
 *     names of special tokens in them taken for these tokens, each text followed by the
 *     tokenizer's end token, if it has one. If that was done before, with the same files, sizes,
 *     times and tokenizer, nothing is to be done.
 * One rank calls this before all of them open the data. `watch` may be NULL. Errors: nothing there,
 * no text in it, disk full. */
weft_status_t weft__data_prepare(const char *path, weft_tokenizer_t *tokenizer, const char *cache,
                                 const weft_data_watch_t *watch);

typedef struct weft_data_options {
    uint32_t length;   /* T: tokens of a sample, at least 1 */
    uint32_t vocab;    /* tokens must be less than this (the model's vocabulary) */
    double validation; /* share of the windows kept for validation, at the end; 0: none, < 1 */
    uint64_t seed;     /* of the order */
    bool shuffle;      /* false: windows in the order of the data */
} weft_data_options_t;

/* Map the shards. `path` and `cache` as for weft__data_prepare. WEFT_ERR_INVALID if a shard is
 * truncated or of another kind, if there are fewer tokens than one window, or if the first tokens
 * of a shard exceed the vocabulary. */
weft_status_t weft__data_open(const char *path, const weft_tokenizer_t *tokenizer,
                              const char *cache, const weft_data_options_t *options,
                              weft_data_t **data_p);
void weft__data_close(weft_data_t *data);

/* Made-up tokens, for benchmarks: uniform over the vocabulary, a function of the seed and the place
 * in the row. Nothing is read, and no epoch ends. Of the options `shuffle` means nothing. */
weft_status_t weft__data_make_up(const weft_data_options_t *options, weft_data_t **data_p);

typedef struct weft_data_info {
    uint64_t tokens;
    uint64_t windows; /* for training: samples of an epoch */
    uint64_t validation_windows;
    int shards;
    int token_bytes; /* 2 or 4 */
} weft_data_info_t;

void weft__data_info(const weft_data_t *data, weft_data_info_t *out);

/* A number that other data hardly has: of how many tokens there are, and of all of them, or where
 * they are more than 4 million of blocks from all over them. Not 0. */
uint64_t weft__data_print(const weft_data_t *data);

/* The T inputs and T targets of sample `sample` of the run. WEFT_ERR_INVALID, naming shard and
 * place, if a token is not in the vocabulary. Any thread. */
weft_status_t weft__data_sample(const weft_data_t *data, uint64_t sample, int32_t *inputs,
                                int32_t *targets);

/* The same for validation, in the order of the data; taken modulo their number. */
weft_status_t weft__data_validation(const weft_data_t *data, uint64_t sample, int32_t *inputs,
                                    int32_t *targets);

/* Which epoch a sample belongs to, and its place in it. */
void weft__data_position(const weft_data_t *data, uint64_t sample, uint64_t *epoch_p,
                         uint64_t *index_p);

/* Samples [*begin_p, *end_p) of a batch of `batch` belong to rank `rank` of `ranks`: contiguous,
 * all of them together the batch, sizes differ by one at most. Batch number b starts at sample b
 * * batch. */
void weft__data_share(uint64_t batch, int rank, int ranks, uint64_t *begin_p, uint64_t *end_p);

#endif
