/* Windows of tokens over shards, in the order of a permutation. */
#include "text/data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "text/permute.h"
#include "text/shards.h"
#include "text/sources.h"

#define PRINT_BLOCK 4096  /* tokens */
#define PRINT_BLOCKS 1024 /* all of small data, 4 million tokens of large data */
#define MADE_UP_WINDOWS (UINT64_C(1) << 40)
#define FIRST_TOKENS 4096 /* of each shard, compared with the vocabulary before anything starts */

struct weft_data {
    weft_data_options_t options;
    weft_shard_t *shards;
    uint64_t *starts; /* of each shard in the row of all tokens, and the end: count + 1 */
    int count;        /* 0: tokens are made up */
    uint64_t windows, validation;
};

/* ---- opening -------------------------------------------------------------------------------- */

static weft_status_t open_shards(weft_data_t *data, const weft_sources_t *files)
{
    data->shards = calloc((size_t)files->count, sizeof(*data->shards));
    data->starts = calloc((size_t)files->count + 1, sizeof(*data->starts));
    if (data->shards == NULL || data->starts == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d shards", files->count);
    }
    for (int i = 0; i < files->count; i++) {
        WEFT_TRY(weft__shard_open(files->files[i].path, &data->shards[i]));
        data->count++;
        data->starts[i + 1] = data->starts[i] + data->shards[i].tokens;
    }
    return WEFT_OK;
}

static weft_status_t bad_token(const weft_data_t *data, int shard, uint64_t at, uint32_t token)
{
    return weft__fail(WEFT_ERR_INVALID,
                      "token %u at place %" PRIu64
                      " of %s is not in the model's vocabulary of %u: the data "
                      "was made with another tokenizer, which --tokenizer should name",
                      token, at, data->shards[shard].path, data->options.vocab);
}

static weft_status_t check_first_tokens(const weft_data_t *data)
{
    for (int i = 0; i < data->count; i++) {
        const weft_shard_t *shard = &data->shards[i];
        for (uint64_t at = 0; at < shard->tokens && at < FIRST_TOKENS; at++) {
            uint32_t token = weft__shard_token(shard, at);
            if (token >= data->options.vocab) {
                return bad_token(data, i, at, token);
            }
        }
    }
    return WEFT_OK;
}

static weft_status_t cut_windows(weft_data_t *data, const char *path)
{
    uint64_t tokens = data->starts[data->count], length = data->options.length;
    uint64_t all = tokens > 0 ? (tokens - 1) / length : 0;
    bool keeps_some = data->options.validation > 0;
    if (all < (keeps_some ? 2u : 1u)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s has %" PRIu64 " tokens; %s of %" PRIu64 " tokens needs %" PRIu64
                          ": take a shorter --length or more data",
                          path, tokens,
                          keeps_some ? "a sequence for training and one for validation, each"
                                     : "a sequence",
                          length, length * (keeps_some ? 2 : 1) + 1);
    }
    data->validation = (uint64_t)((double)all * data->options.validation);
    data->validation = keeps_some && data->validation == 0 ? 1 : data->validation;
    data->validation = data->validation >= all ? all - 1 : data->validation;
    data->windows = all - data->validation;
    return WEFT_OK;
}

/* The shards themselves, or those that weft__data_prepare made of texts. */
static weft_status_t find_shards(const char *path, const weft_tokenizer_t *tokenizer,
                                 const char *cache, weft_sources_t *out)
{
    weft_sources_t texts;
    weft_status_t status = weft__sources_find(path, out);
    if (status != WEFT_OK || out->shards) {
        return status;
    }
    texts = *out;
    *out = (weft_sources_t){0};
    char folder[WEFT_PATH_BYTES];
    status = weft__sources_cache(&texts, tokenizer, cache, folder);
    weft__sources_free(&texts);
    bool there = false;
    status = status == WEFT_OK ? weft__is_folder(folder, &there) : status;
    if (status == WEFT_OK && !there) {
        status = weft__fail(
            WEFT_ERR_NOT_FOUND,
            "the tokens of %s are not in %s: its files changed after they were encoded", path,
            folder);
    }
    return status == WEFT_OK ? weft__sources_find(folder, out) : status;
}

weft_status_t weft__data_open(const char *path, const weft_tokenizer_t *tokenizer,
                              const char *cache, const weft_data_options_t *options,
                              weft_data_t **data_p)
{
    if (options->length == 0 || !(options->validation >= 0 && options->validation < 1)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "data: sequences of %u tokens, %g of them for validation, "
                          "cannot be made",
                          options->length, options->validation);
    }
    weft_data_t *data = calloc(1, sizeof(*data));
    if (data == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to open %s", path);
    }
    data->options = *options;
    weft_sources_t files = {0};
    weft_status_t status = find_shards(path, tokenizer, cache, &files);
    status = status == WEFT_OK ? open_shards(data, &files) : status;
    status = status == WEFT_OK ? check_first_tokens(data) : status;
    status = status == WEFT_OK ? cut_windows(data, path) : status;
    weft__sources_free(&files);
    if (status != WEFT_OK) {
        weft__data_close(data);
        return status;
    }
    *data_p = data;
    return WEFT_OK;
}

weft_status_t weft__data_make_up(const weft_data_options_t *options, weft_data_t **data_p)
{
    weft_data_t *data = calloc(1, sizeof(*data));
    if (data == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to make up tokens");
    }
    data->options = *options;
    data->options.shuffle = false;
    data->windows = MADE_UP_WINDOWS;
    data->validation = options->validation > 0 ? MADE_UP_WINDOWS : 0;
    *data_p = data;
    return WEFT_OK;
}

void weft__data_close(weft_data_t *data)
{
    if (data == NULL) {
        return;
    }
    for (int i = 0; i < data->count; i++) {
        weft__shard_close(&data->shards[i]);
    }
    free(data->shards);
    free(data->starts);
    free(data);
}

void weft__data_info(const weft_data_t *data, weft_data_info_t *out)
{
    bool made_up = data->count == 0;
    *out = (weft_data_info_t){.tokens = made_up ? data->windows * data->options.length
                                                : data->starts[data->count],
                              .windows = data->windows,
                              .validation_windows = data->validation,
                              .shards = data->count,
                              .token_bytes = made_up ? 4 : data->shards[0].token_bytes};
}

/* The shard that holds token `at` of the row. */
static int shard_of(const weft_data_t *data, uint64_t at)
{
    int low = 0, high = data->count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (data->starts[middle] <= at) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static uint32_t print_block(const weft_data_t *data, uint64_t at, uint32_t crc)
{
    uint64_t end = at + PRINT_BLOCK, tokens = data->starts[data->count];
    for (int shard = shard_of(data, at); at < end && at < tokens; at++) {
        while (at >= data->starts[shard + 1]) {
            shard++; /* over empty ones too */
        }
        uint32_t token = weft__shard_token(&data->shards[shard], at - data->starts[shard]);
        crc = weft__crc32c(crc, &token, sizeof(token));
    }
    return crc;
}

uint64_t weft__data_print(const weft_data_t *data)
{
    if (data->count == 0) {
        return weft__rng_at(data->options.seed, data->options.vocab) | 1;
    }
    uint64_t tokens = data->starts[data->count];
    uint32_t crc = weft__crc32c(0, &tokens, sizeof(tokens));
    uint64_t blocks = (tokens + PRINT_BLOCK - 1) / PRINT_BLOCK;
    uint64_t taken = blocks < PRINT_BLOCKS ? blocks : PRINT_BLOCKS;
    for (uint64_t i = 0; i < taken; i++) {
        uint64_t block = blocks / taken * i + blocks % taken * i / taken; /* evenly spread */
        crc = print_block(data, block * PRINT_BLOCK, crc);
    }
    return (uint64_t)crc + 1;
}

/* ---- taking samples ------------------------------------------------------------------------- */

/* 32 random bits times the vocabulary: no token is likelier than another by more than 2^-32 times
 * it. */
static uint32_t made_up_token(const weft_data_t *data, uint64_t at)
{
    uint64_t bits = weft__rng_at(data->options.seed, at) >> 32;
    return (uint32_t)(bits * data->options.vocab >> 32);
}

static void make_up_window(const weft_data_t *data, uint64_t window, int32_t *inputs,
                           int32_t *targets)
{
    uint64_t length = data->options.length, at = window * length;
    for (uint64_t i = 0; i < length; i++) {
        inputs[i] = (int32_t)(i == 0 ? made_up_token(data, at) : (uint32_t)targets[i - 1]);
        targets[i] = (int32_t)made_up_token(data, at + i + 1);
    }
}

static weft_status_t read_window(const weft_data_t *data, uint64_t window, int32_t *inputs,
                                 int32_t *targets)
{
    uint64_t length = data->options.length, at = window * length;
    if (data->count == 0) {
        make_up_window(data, window, inputs, targets);
        return WEFT_OK;
    }
    int shard = shard_of(data, at);
    for (uint64_t i = 0; i <= length; i++, at++) {
        while (at >= data->starts[shard + 1]) {
            shard++; /* over empty ones too */
        }
        uint64_t place = at - data->starts[shard];
        uint32_t token = weft__shard_token(&data->shards[shard], place);
        if (token >= data->options.vocab) {
            return bad_token(data, shard, place, token);
        }
        if (i < length) {
            inputs[i] = (int32_t)token;
        }
        if (i > 0) {
            targets[i - 1] = (int32_t)token;
        }
    }
    return WEFT_OK;
}

void weft__data_position(const weft_data_t *data, uint64_t sample, uint64_t *epoch_p,
                         uint64_t *index_p)
{
    *epoch_p = sample / data->windows;
    *index_p = sample % data->windows;
}

weft_status_t weft__data_sample(const weft_data_t *data, uint64_t sample, int32_t *inputs,
                                int32_t *targets)
{
    uint64_t epoch, index;
    weft__data_position(data, sample, &epoch, &index);
    if (data->options.shuffle) {
        weft_permutation_t order;
        weft__permutation_init(&order, data->windows, data->options.seed, epoch);
        index = weft__permutation_at(&order, index);
    }
    return read_window(data, index, inputs, targets);
}

weft_status_t weft__data_validation(const weft_data_t *data, uint64_t sample, int32_t *inputs,
                                    int32_t *targets)
{
    if (data->validation == 0) {
        return weft__fail(WEFT_ERR_INVALID, "none of the data is kept for validation");
    }
    return read_window(data, data->windows + sample % data->validation, inputs, targets);
}

void weft__data_share(uint64_t batch, int rank, int ranks, uint64_t *begin_p, uint64_t *end_p)
{
    uint64_t each = batch / (uint64_t)ranks, more = batch % (uint64_t)ranks, r = (uint64_t)rank;
    *begin_p = r * each + (r < more ? r : more);
    *end_p = *begin_p + each + (r < more ? 1 : 0);
}
