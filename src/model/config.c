/* Presets, checks and sizes of configurations. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

/* ---- presets ------------------------------------------------------------------------------ */

#define GPT2(L, C, H, V, T)                                                                        \
    {                                                                                              \
        .family = WEFT_GPT2, .layers = (L), .width = (C), .heads = (H), .kv_heads = (H),           \
        .head_dim = (C) / (H), .ffn = 4 * (C), .vocab = (V), .context = (T), .norm_eps = 1e-5f,    \
        .tied = true, .init_std = 0.02f, .bos_token = -1, .eos_token = -1                          \
    }

#define LLAMA(L, C, H, G, F, V, T, THETA, TIED)                                                    \
    {                                                                                              \
        .family = WEFT_LLAMA, .layers = (L), .width = (C), .heads = (H), .kv_heads = (G),          \
        .head_dim = (C) / (H), .ffn = (F), .vocab = (V), .context = (T), .norm_eps = 1e-5f,        \
        .rope_theta = (THETA), .tied = (TIED), .init_std = 0.02f, .bos_token = -1, .eos_token = -1 \
    }

static const struct {
    const char *name;
    weft_model_config_t config;
} presets[] = {
    {"tiny", GPT2(4, 128, 4, 256, 256)},
    {"small", GPT2(6, 384, 6, 256, 256)},
    {"gpt2-124m", GPT2(12, 768, 12, 50257, 1024)},
    {"gpt2-355m", GPT2(24, 1024, 16, 50257, 1024)},
    {"gpt2-774m", GPT2(36, 1280, 20, 50257, 1024)},
    {"gpt2-1558m", GPT2(48, 1600, 25, 50257, 1024)},
    {"llama-tiny", LLAMA(4, 128, 4, 2, 344, 256, 256, 10000.0f, false)},
    {"llama-small", LLAMA(6, 384, 6, 2, 1024, 256, 256, 10000.0f, false)},
    {"llama-1b", LLAMA(22, 2048, 32, 4, 5632, 32000, 2048, 10000.0f, false)},
    {"llama-7b", LLAMA(32, 4096, 32, 32, 11008, 32000, 4096, 10000.0f, false)},
    {"llama-8b", LLAMA(32, 4096, 32, 8, 14336, 128256, 8192, 500000.0f, false)},
};

enum { PRESETS = sizeof(presets) / sizeof(presets[0]) };

const char *weft__config_preset_name(int index)
{
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

bool weft__config_is_preset(const char *name)
{
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

weft_status_t weft__config_preset(const char *name, weft_model_config_t *config_p)
{
    char list[512] = "";
    size_t used = 0;
    for (int i = 0; i < PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *config_p = presets[i].config;
            return WEFT_OK;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "",
                                 presets[i].name);
    }
    return weft__fail(WEFT_ERR_INVALID,
                      "there is no model \"%s\"; there are %s, or give the path of a config.json",
                      name, list);
}

weft_status_t weft__config_find(const char *name_or_path, weft_model_config_t *config_p)
{
    char path[WEFT_PATH_BYTES];
    bool folder, file = false;
    WEFT_TRY(weft__is_folder(name_or_path, &folder));
    if (folder) {
        WEFT_TRY(weft__path_join(path, name_or_path, "config.json"));
        return weft__config_read(path, config_p);
    }
    WEFT_TRY(weft__is_file(name_or_path, &file));
    return file || strchr(name_or_path, '/') != NULL
               ? weft__config_read(name_or_path, config_p) /* or says why it cannot be read */
               : weft__config_preset(name_or_path, config_p);
}

/* ---- checks ------------------------------------------------------------------------------- */

static weft_status_t check_range(const char *what, int value, int least, int most)
{
    if (value < least || value > most) {
        return weft__fail(WEFT_ERR_INVALID, "a model with %s %d is not possible; %d to %d are",
                          what, value, least, most);
    }
    return WEFT_OK;
}

static weft_status_t check_sizes(const weft_model_config_t *c)
{
    const struct {
        const char *what;
        int value, least, most;
    } sizes[] = {
        {"layers", c->layers, 1, 10000},       {"width", c->width, 1, 1 << 20},
        {"heads", c->heads, 1, 1 << 16},       {"kv_heads", c->kv_heads, 1, 1 << 16},
        {"head_dim", c->head_dim, 1, 1 << 12}, {"ffn", c->ffn, 1, 1 << 24},
        {"vocab", c->vocab, 1, 1 << 28},       {"context", c->context, 1, 1 << 26},
    };
    weft_status_t status = WEFT_OK;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && status == WEFT_OK; i++) {
        status = check_range(sizes[i].what, sizes[i].value, sizes[i].least, sizes[i].most);
    }
    /* so that the number of parameters fits in 64 bits, whatever the rest */
    return status == WEFT_OK ? check_range("heads x head_dim", c->heads * c->head_dim, 1, 1 << 24)
                             : status;
}

static weft_status_t check_dropout(const char *what, float rate)
{
    if (!(rate >= 0.0f && rate < 1.0f)) {
        return weft__fail(WEFT_ERR_INVALID, "%s is %g; it must be at least 0 and below 1", what,
                          (double)rate);
    }
    return WEFT_OK;
}

weft_status_t weft__config_check(const weft_model_config_t *c)
{
    weft_status_t status = check_sizes(c);
    if (status != WEFT_OK) {
        return status;
    }
    if (c->heads % c->kv_heads != 0) {
        return weft__fail(WEFT_ERR_INVALID, "%d heads cannot share %d key/value heads evenly",
                          c->heads, c->kv_heads);
    }
    if (c->family == WEFT_GPT2 &&
        (c->kv_heads != c->heads || c->heads * c->head_dim != c->width || c->width % c->heads)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "GPT-2's width %d must be a multiple of its %d heads, each with keys and "
                          "values of its own",
                          c->width, c->heads);
    }
    if (c->family == WEFT_LLAMA && (c->head_dim % 2 != 0 || !(c->rope_theta > 0.0f))) {
        return weft__fail(WEFT_ERR_INVALID,
                          "RoPE needs an even head_dim and a theta above 0; they are %d and %g",
                          c->head_dim, (double)c->rope_theta);
    }
    if (!(c->norm_eps > 0.0f) || !(c->init_std >= 0.0f)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "a norm's epsilon must be above 0 and the deviation of initial weights "
                          "not below; they are %g and %g",
                          (double)c->norm_eps, (double)c->init_std);
    }
    status = check_dropout("dropout of embeddings", c->embed_dropout);
    if (status == WEFT_OK) {
        status = check_dropout("dropout in attention", c->attention_dropout);
    }
    return status == WEFT_OK ? check_dropout("dropout of residuals", c->residual_dropout) : status;
}

/* ---- sizes -------------------------------------------------------------------------------- */

int64_t weft__config_params(const weft_model_config_t *c)
{
    int64_t width = c->width, inner = (int64_t)c->heads * c->head_dim;
    int64_t kv = (int64_t)c->kv_heads * c->head_dim, ffn = c->ffn;
    int64_t ends = (int64_t)c->vocab * width * (c->tied ? 1 : 2);
    if (c->family == WEFT_GPT2) {
        int64_t block = 4 * width + (width + 1) * 3 * inner + (inner + 1) * width +
                        (width + 1) * ffn + (ffn + 1) * width;
        return ends + (int64_t)c->context * width + c->layers * block + 2 * width;
    }
    int64_t block = 2 * width + width * (inner + 2 * kv) + inner * width + 3 * width * ffn;
    return ends + c->layers * block + width;
}

double weft__config_flops(const weft_model_config_t *c, int64_t seq)
{
    return 6.0 * (double)weft__config_params(c) +
           12.0 * c->layers * c->heads * c->head_dim * (double)seq;
}
