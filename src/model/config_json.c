/* Hugging Face's config.json, read and written. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/json_read.h"
#include "base/log.h"
#include "model/config.h"

/* Fields are asked for one after the other; the first that is wrong decides. */
typedef struct reader {
    const char *path;
    const weft_json_value_t *root;
    weft_status_t status;
} reader_t;

static const weft_json_value_t *field(const reader_t *reader, const char *name)
{
    const weft_json_value_t *value = weft__json_get(reader->root, name);
    return value != NULL && value->kind == WEFT_JSON_NULL ? NULL : value;
}

static void wrong(reader_t *reader, const char *name, const char *what)
{
    if (reader->status == WEFT_OK) {
        reader->status = weft__fail(WEFT_ERR_INVALID, "%s: the field \"%s\" %s", reader->path, name,
                                    what);
    }
}

/* `otherwise` -1: there must be one. */
static int get_int(reader_t *reader, const char *name, int otherwise)
{
    const weft_json_value_t *value = field(reader, name);
    int64_t number = otherwise;
    if (value == NULL && otherwise < 0) {
        wrong(reader, name, "is missing");
    } else if (value != NULL &&
               (!weft__json_to_int(value, &number) || number < 0 || number > INT32_MAX)) {
        wrong(reader, name, "is not a whole number in range");
        return -1;
    }
    return (int)number;
}

/* Sets *out_p unless `value` (may be NULL) is no number, or one that a float has no room for. */
static bool to_float(const weft_json_value_t *value, float *out_p)
{
    double number;
    if (!weft__json_to_double(value, &number) || !(fabs(number) <= (double)FLT_MAX)) {
        return false;
    }
    *out_p = (float)number;
    return true;
}

static float get_float(reader_t *reader, const char *name, float otherwise)
{
    const weft_json_value_t *value = field(reader, name);
    float number = otherwise;
    if (value != NULL && !to_float(value, &number)) {
        wrong(reader, name, "is not a number in range");
    }
    return number;
}

static bool get_bool(reader_t *reader, const char *name, bool otherwise)
{
    const weft_json_value_t *value = field(reader, name);
    bool truth = otherwise;
    if (value != NULL && !weft__json_to_bool(value, &truth)) {
        wrong(reader, name, "is neither true nor false");
    }
    return truth;
}

/* Token ids may be absent, or several in a list, of which the first counts. */
static int get_token(const reader_t *reader, const char *name)
{
    const weft_json_value_t *value = field(reader, name);
    int64_t id = -1;
    if (value != NULL && value->kind == WEFT_JSON_ARRAY) {
        value = weft__json_first(value);
    }
    return weft__json_to_int(value, &id) && id >= 0 && id <= INT32_MAX ? (int)id : -1;
}

static void refuse_unless(reader_t *reader, const char *name, bool expected, bool otherwise)
{
    if (get_bool(reader, name, otherwise) != expected) {
        wrong(reader, name,
              expected ? "is false, which Weft does not compute"
                       : "is true, which Weft does not compute");
    }
}

static void expect_text(reader_t *reader, const char *name, const char *const *allowed,
                        const char *what)
{
    const weft_json_value_t *value = field(reader, name);
    for (int i = 0; value != NULL && allowed[i] != NULL; i++) {
        if (weft__json_is(value, allowed[i])) {
            return;
        }
    }
    if (value != NULL) {
        wrong(reader, name, what);
    }
}

static void read_gpt2(reader_t *reader, weft_model_config_t *c)
{
    static const char *const gelu[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    c->family = WEFT_GPT2;
    c->layers = get_int(reader, "n_layer", -1);
    c->width = get_int(reader, "n_embd", -1);
    c->heads = c->kv_heads = get_int(reader, "n_head", -1);
    c->head_dim = c->heads > 0 ? c->width / c->heads : 0;
    c->ffn = get_int(reader, "n_inner", c->width > 0 && c->width < (1 << 20) ? 4 * c->width : 0);
    c->vocab = get_int(reader, "vocab_size", -1);
    c->context = get_int(reader, "n_positions", -1);
    c->norm_eps = get_float(reader, "layer_norm_epsilon", 1e-5f);
    c->tied = get_bool(reader, "tie_word_embeddings", true);
    c->embed_dropout = get_float(reader, "embd_pdrop", 0.1f);
    c->attention_dropout = get_float(reader, "attn_pdrop", 0.1f);
    c->residual_dropout = get_float(reader, "resid_pdrop", 0.1f);
    expect_text(reader, "activation_function", gelu,
                "is not gelu_new, the only activation that Weft has for GPT-2");
    refuse_unless(reader, "scale_attn_weights", true, true);
    refuse_unless(reader, "scale_attn_by_inverse_layer_idx", false, false);
    refuse_unless(reader, "add_cross_attention", false, false);
}

/* Scaled RoPE (Llama 3.1 and later) turns by other angles; "default" is the plain one. */
static void check_rope(reader_t *reader, weft_model_config_t *c)
{
    const weft_json_value_t *scaling = field(reader, "rope_scaling");
    const weft_json_value_t *newer = field(reader, "rope_parameters");
    const weft_json_value_t *rope = scaling != NULL ? scaling : newer;
    const weft_json_value_t *type = weft__json_get(rope, "rope_type");
    const weft_json_value_t *theta = weft__json_get(newer, "rope_theta");
    type = type != NULL ? type : weft__json_get(rope, "type");
    if (rope != NULL && !weft__json_is(type, "default")) {
        wrong(reader, scaling != NULL ? "rope_scaling" : "rope_parameters",
              "asks for scaled positions, which Weft does not compute; models without it work");
    }
    if (theta != NULL && theta->kind != WEFT_JSON_NULL && !to_float(theta, &c->rope_theta)) {
        wrong(reader, "rope_parameters", "has a rope_theta that is not a number in range");
    }
}

static void read_llama(reader_t *reader, weft_model_config_t *c)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    c->family = WEFT_LLAMA;
    c->layers = get_int(reader, "num_hidden_layers", -1);
    c->width = get_int(reader, "hidden_size", -1);
    c->heads = get_int(reader, "num_attention_heads", -1);
    c->kv_heads = get_int(reader, "num_key_value_heads", c->heads > 0 ? c->heads : 0);
    c->head_dim = get_int(reader, "head_dim", c->heads > 0 ? c->width / c->heads : 0);
    c->ffn = get_int(reader, "intermediate_size", -1);
    c->vocab = get_int(reader, "vocab_size", -1);
    c->context = get_int(reader, "max_position_embeddings", -1);
    c->norm_eps = get_float(reader, "rms_norm_eps", 1e-6f);
    c->rope_theta = get_float(reader, "rope_theta", 10000.0f);
    c->tied = get_bool(reader, "tie_word_embeddings", false);
    c->attention_dropout = get_float(reader, "attention_dropout", 0.0f);
    check_rope(reader, c);
    expect_text(reader, "hidden_act", silu,
                "is not silu, the only activation that Weft has for LLaMA");
    refuse_unless(reader, "attention_bias", false, false);
    refuse_unless(reader, "mlp_bias", false, false);
}

static void read_any(reader_t *reader, weft_model_config_t *c)
{
    const weft_json_value_t *type = field(reader, "model_type");
    if (weft__json_is(type, "gpt2")) {
        read_gpt2(reader, c);
    } else if (weft__json_is(type, "llama")) {
        read_llama(reader, c);
    } else {
        wrong(reader, "model_type", "is neither \"gpt2\" nor \"llama\", the models that Weft has");
    }
    c->init_std = get_float(reader, "initializer_range", 0.02f);
    c->bos_token = get_token(reader, "bos_token_id");
    c->eos_token = get_token(reader, "eos_token_id");
}

weft_status_t weft__config_read(const char *path, weft_model_config_t *config_p)
{
    weft_json_doc_t doc;
    weft_model_config_t config = {0};
    weft_status_t status = weft__json_load(path, &doc);
    if (status != WEFT_OK) {
        return status;
    }
    reader_t reader = {path, doc.root, WEFT_OK};
    read_any(&reader, &config);
    weft__json_free(&doc);
    if (reader.status == WEFT_OK) {
        reader.status = weft__config_check(&config);
    }
    if (reader.status == WEFT_OK) {
        *config_p = config;
    }
    return reader.status;
}

/* ---- writing ------------------------------------------------------------------------------ */

static void put_text(weft_json_t *json, const char *name, const char *value)
{
    weft__json_string(json, name, value);
}

static void put_int(weft_json_t *json, const char *name, int value)
{
    weft__json_int(json, name, value);
}

/* As the shortest decimal that reads back as the same float: 1e-05 and not 9.99999974e-06. */
static void put_float(weft_json_t *json, const char *name, float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) {
            break;
        }
    }
    weft__json_double(json, name, strtod(text, NULL));
}

static void put_bool(weft_json_t *json, const char *name, bool value)
{
    weft__json_bool(json, name, value);
}

static void put_architecture(weft_json_t *json, const char *class_name, const char *type)
{
    weft__json_array(json, "architectures");
    weft__json_string(json, NULL, class_name);
    weft__json_end(json);
    put_text(json, "model_type", type);
}

static void write_gpt2(weft_json_t *json, const weft_model_config_t *c)
{
    put_architecture(json, "GPT2LMHeadModel", "gpt2");
    put_text(json, "activation_function", "gelu_new");
    put_int(json, "n_layer", c->layers);
    put_int(json, "n_embd", c->width);
    put_int(json, "n_head", c->heads);
    put_int(json, "n_inner", c->ffn);
    put_int(json, "n_positions", c->context);
    put_float(json, "layer_norm_epsilon", c->norm_eps);
    put_float(json, "embd_pdrop", c->embed_dropout);
    put_float(json, "attn_pdrop", c->attention_dropout);
    put_float(json, "resid_pdrop", c->residual_dropout);
}

static void write_llama(weft_json_t *json, const weft_model_config_t *c)
{
    put_architecture(json, "LlamaForCausalLM", "llama");
    put_text(json, "hidden_act", "silu");
    put_int(json, "num_hidden_layers", c->layers);
    put_int(json, "hidden_size", c->width);
    put_int(json, "num_attention_heads", c->heads);
    put_int(json, "num_key_value_heads", c->kv_heads);
    put_int(json, "head_dim", c->head_dim);
    put_int(json, "intermediate_size", c->ffn);
    put_int(json, "max_position_embeddings", c->context);
    put_float(json, "rms_norm_eps", c->norm_eps);
    put_float(json, "rope_theta", c->rope_theta);
    put_float(json, "attention_dropout", c->attention_dropout);
    put_bool(json, "attention_bias", false);
    put_bool(json, "mlp_bias", false);
}

static void write_all(weft_json_t *json, const weft_model_config_t *c)
{
    weft__json_object(json, NULL);
    if (c->family == WEFT_GPT2) {
        write_gpt2(json, c);
    } else {
        write_llama(json, c);
    }
    put_int(json, "vocab_size", c->vocab);
    put_bool(json, "tie_word_embeddings", c->tied);
    put_float(json, "initializer_range", c->init_std);
    if (c->bos_token >= 0) {
        put_int(json, "bos_token_id", c->bos_token);
    }
    if (c->eos_token >= 0) {
        put_int(json, "eos_token_id", c->eos_token);
    }
    weft__json_end(json);
}

weft_status_t weft__config_text(const weft_model_config_t *config, char **text_p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (file == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for the text of a config.json");
    }
    weft_json_t json;
    weft__json_start(&json, file);
    write_all(&json, config);
    weft_status_t status = weft__json_finish(&json);
    if (fclose(file) != 0 && status == WEFT_OK) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for the text of a config.json");
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    *text_p = text;
    return WEFT_OK;
}
