/* What a model is, apart from its weights: sizes and choices, as presets and as Hugging Face's
 * config.json. */
#ifndef WEFT_MODEL_CONFIG_H
#define WEFT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <weft/status.h>

typedef enum weft_family {
    WEFT_GPT2, /* learned positions, LayerNorm, biases, GELU (tanh form); weights in x out */
    WEFT_LLAMA /* RoPE, RMSNorm, no biases, SwiGLU, grouped-query attention; weights out x in */
} weft_family_t;

typedef struct weft_model_config {
    weft_family_t family;
    int layers;
    int width;    /* of the residual stream, C */
    int heads;    /* of queries, H */
    int kv_heads; /* of keys and values, G; divides heads. GPT-2: equal to heads */
    int head_dim; /* D; GPT-2: width / heads. Even for LLaMA */
    int ffn;      /* inner width of the MLP, F */
    int vocab;
    int context; /* most positions of a sequence */
    float norm_eps;
    float rope_theta; /* LLaMA */
    bool tied;        /* the head's matrix is the token embedding */
    float embed_dropout, attention_dropout, residual_dropout;
    float init_std; /* of initial weights; GPT-2 divides that of output projections by sqrt(2
                       layers) */
    int bos_token, eos_token; /* -1: none */
} weft_model_config_t;

/* A preset by name ("tiny", "gpt2-124m", "llama-1b", ...). WEFT_ERR_INVALID, with the list of
 * names, if there is none. */
weft_status_t weft__config_preset(const char *name, weft_model_config_t *config_p);

/* Names of presets, one by one; NULL after the last. */
const char *weft__config_preset_name(int index);
bool weft__config_is_preset(const char *name);

/* Whether sizes fit together: divisibility, ranges. The sentence names the field. */
weft_status_t weft__config_check(const weft_model_config_t *config);

/* Read config.json of GPT2LMHeadModel or LlamaForCausalLM. What would make the model compute
 * something else than we do (rope_scaling, other activations, biases of attention, ...) is refused
 * with the field's name. What is missing has Hugging Face's default. */
weft_status_t weft__config_read(const char *path, weft_model_config_t *config_p);

/* The text of a config.json, for the caller to free. */
weft_status_t weft__config_text(const weft_model_config_t *config, char **text_p);

/* A preset, or the path of a config.json or of a folder with one (it contains a '/' or is a
 * file). */
weft_status_t weft__config_find(const char *name_or_path, weft_model_config_t *config_p);

/* All parameters; a tied matrix counts once. */
int64_t weft__config_params(const weft_model_config_t *config);

/* Operations per token of a training step at sequence length `seq`: 6 per parameter, 12 layers H D
 * seq for attention (as if it were not causal, the usual measure for MFU). Embedding rows count as
 * parameters, as in published figures. */
double weft__config_flops(const weft_model_config_t *config, int64_t seq);

#endif
