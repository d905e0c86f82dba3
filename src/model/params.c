/* The parameters of a slice: which there are, what they are called, how they are cut. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/model.h"

/* ---- the table ---------------------------------------------------------------------------- */

/* A tensor on its way into the table; dims, shape and so on as in weft_param_t. */
typedef struct entry {
    weft_role_t role;
    int dims;
    int64_t rows, columns;
    weft_split_t split;
    int sections;
    float std;
} entry_t;

static void set_local(const weft_model_t *model, weft_param_t *param)
{
    int parts = model->slice.parts;
    param->local[0] = param->shape[0];
    param->local[1] = param->shape[1];
    if (param->role == WEFT_TOKENS || param->role == WEFT_HEAD_WEIGHT) {
        param->local[0] = model->vocab_rows;
    } else if (param->split == WEFT_SPLIT_ROWS) {
        param->local[0] /= parts;
    } else if (param->split == WEFT_SPLIT_COLUMNS) {
        param->local[1] /= parts;
    }
    param->count = param->local[0] * param->local[1];
}

__attribute__((format(printf, 4, 5))) static void add(weft_model_t *model, int layer, entry_t entry,
                                                      const char *name, ...)
{
    weft_param_t *param = &model->params[model->param_count];
    int row = layer >= 0 ? layer - model->slice.layer_first : model->slice.layer_count;
    va_list list;
    va_start(list, name);
    vsnprintf(param->name, sizeof(param->name), name, list);
    va_end(list);
    param->role = entry.role;
    param->layer = layer;
    param->dims = entry.dims;
    param->shape[0] = entry.rows;
    param->shape[1] = entry.dims == 2 ? entry.columns : 1;
    param->split = entry.split;
    param->sections = entry.sections;
    param->decay = entry.dims == 2;
    param->std = entry.std;
    set_local(model, param);
    model->index[row][entry.role] = model->param_count++;
    model->element_count += param->count;
}

/* The rest: how it is split, sections, deviation of initial values. */
#define VECTOR(role, n, ...) ((entry_t){(role), 1, (n), 1, __VA_ARGS__})
#define MATRIX(role, r, c, ...) ((entry_t){(role), 2, (r), (c), __VA_ARGS__})
#define WHOLE WEFT_SPLIT_NONE, 1
#define ROWS WEFT_SPLIT_ROWS, 1
#define COLUMNS WEFT_SPLIT_COLUMNS, 1

enum { ZEROS = 0, ONES = -1 };

static void add_gpt2_block(weft_model_t *model, int l)
{
    const weft_model_config_t *c = &model->config;
    int64_t width = c->width, inner = (int64_t)c->heads * c->head_dim, ffn = c->ffn;
    float std = c->init_std, out_std = std / sqrtf(2.0f * (float)c->layers);
    const char *h = "transformer.h";
    add(model, l, VECTOR(WEFT_NORM1_WEIGHT, width, WHOLE, ONES), "%s.%d.ln_1.weight", h, l);
    add(model, l, VECTOR(WEFT_NORM1_BIAS, width, WHOLE, ZEROS), "%s.%d.ln_1.bias", h, l);
    add(model, l, MATRIX(WEFT_QKV_WEIGHT, width, 3 * inner, WEFT_SPLIT_COLUMNS, 3, std),
        "%s.%d.attn.c_attn.weight", h, l);
    add(model, l, VECTOR(WEFT_QKV_BIAS, 3 * inner, WEFT_SPLIT_ROWS, 3, ZEROS),
        "%s.%d.attn.c_attn.bias", h, l);
    add(model, l, MATRIX(WEFT_PROJ_WEIGHT, inner, width, ROWS, out_std), "%s.%d.attn.c_proj.weight",
        h, l);
    add(model, l, VECTOR(WEFT_PROJ_BIAS, width, WHOLE, ZEROS), "%s.%d.attn.c_proj.bias", h, l);
    add(model, l, VECTOR(WEFT_NORM2_WEIGHT, width, WHOLE, ONES), "%s.%d.ln_2.weight", h, l);
    add(model, l, VECTOR(WEFT_NORM2_BIAS, width, WHOLE, ZEROS), "%s.%d.ln_2.bias", h, l);
    add(model, l, MATRIX(WEFT_UP_WEIGHT, width, ffn, COLUMNS, std), "%s.%d.mlp.c_fc.weight", h, l);
    add(model, l, VECTOR(WEFT_UP_BIAS, ffn, ROWS, ZEROS), "%s.%d.mlp.c_fc.bias", h, l);
    add(model, l, MATRIX(WEFT_DOWN_WEIGHT, ffn, width, ROWS, out_std), "%s.%d.mlp.c_proj.weight", h,
        l);
    add(model, l, VECTOR(WEFT_DOWN_BIAS, width, WHOLE, ZEROS), "%s.%d.mlp.c_proj.bias", h, l);
}

/* Queries, keys and values are neighbours, and gate and up: where their storage is too, each group is
 * one product. */
static void add_llama_block(weft_model_t *model, int l)
{
    const weft_model_config_t *c = &model->config;
    int64_t width = c->width, inner = (int64_t)c->heads * c->head_dim, ffn = c->ffn;
    int64_t kv = (int64_t)c->kv_heads * c->head_dim;
    float std = c->init_std;
    const char *h = "model.layers";
    add(model, l, VECTOR(WEFT_NORM1_WEIGHT, width, WHOLE, ONES), "%s.%d.input_layernorm.weight", h,
        l);
    add(model, l, MATRIX(WEFT_Q_WEIGHT, inner, width, ROWS, std), "%s.%d.self_attn.q_proj.weight",
        h, l);
    add(model, l, MATRIX(WEFT_K_WEIGHT, kv, width, ROWS, std), "%s.%d.self_attn.k_proj.weight", h,
        l);
    add(model, l, MATRIX(WEFT_V_WEIGHT, kv, width, ROWS, std), "%s.%d.self_attn.v_proj.weight", h,
        l);
    add(model, l, MATRIX(WEFT_PROJ_WEIGHT, width, inner, COLUMNS, std),
        "%s.%d.self_attn.o_proj.weight", h, l);
    add(model, l, VECTOR(WEFT_NORM2_WEIGHT, width, WHOLE, ONES),
        "%s.%d.post_attention_layernorm.weight", h, l);
    add(model, l, MATRIX(WEFT_GATE_WEIGHT, ffn, width, ROWS, std), "%s.%d.mlp.gate_proj.weight", h,
        l);
    add(model, l, MATRIX(WEFT_UP_WEIGHT, ffn, width, ROWS, std), "%s.%d.mlp.up_proj.weight", h, l);
    add(model, l, MATRIX(WEFT_DOWN_WEIGHT, width, ffn, COLUMNS, std), "%s.%d.mlp.down_proj.weight",
        h, l);
}

static void add_all(weft_model_t *model)
{
    const weft_model_config_t *c = &model->config;
    const weft_slice_t *slice = &model->slice;
    bool gpt2 = c->family == WEFT_GPT2;
    if (slice->embed || (slice->head && c->tied)) {
        add(model, -1, MATRIX(WEFT_TOKENS, c->vocab, c->width, ROWS, c->init_std), "%s",
            gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
    }
    if (slice->embed && gpt2) {
        add(model, -1, MATRIX(WEFT_POSITIONS, c->context, c->width, WHOLE, c->init_std),
            "transformer.wpe.weight");
    }
    for (int l = slice->layer_first; l < slice->layer_first + slice->layer_count; l++) {
        if (gpt2) {
            add_gpt2_block(model, l);
        } else {
            add_llama_block(model, l);
        }
    }
    if (slice->head) {
        add(model, -1, VECTOR(WEFT_FINAL_WEIGHT, c->width, WHOLE, ONES), "%s",
            gpt2 ? "transformer.ln_f.weight" : "model.norm.weight");
    }
    if (slice->head && gpt2) {
        add(model, -1, VECTOR(WEFT_FINAL_BIAS, c->width, WHOLE, ZEROS), "transformer.ln_f.bias");
    }
    if (slice->head && !c->tied) {
        add(model, -1, MATRIX(WEFT_HEAD_WEIGHT, c->vocab, c->width, ROWS, c->init_std),
            "lm_head.weight");
    }
}

/* ---- making a slice ------------------------------------------------------------------------ */

static weft_status_t check_slice(const weft_model_config_t *c, const weft_slice_t *slice)
{
    if (slice->layer_first < 0 || slice->layer_count < 0 ||
        slice->layer_first + slice->layer_count > c->layers) {
        return weft__fail(WEFT_ERR_INVALID, "there are no layers %d to %d in a model of %d",
                          slice->layer_first, slice->layer_first + slice->layer_count - 1,
                          c->layers);
    }
    if (slice->parts < 1 || slice->part < 0 || slice->part >= slice->parts) {
        return weft__fail(WEFT_ERR_INVALID, "there is no part %d of %d", slice->part, slice->parts);
    }
    const struct {
        const char *what;
        int count;
    } cuts[] = {{"heads", c->heads}, {"key/value heads", c->kv_heads}, {"MLP columns", c->ffn}};
    for (int i = 0; i < 3; i++) {
        if (cuts[i].count % slice->parts != 0) {
            return weft__fail(WEFT_ERR_INVALID, "%d %s cannot be split evenly among %d ranks",
                              cuts[i].count, cuts[i].what, slice->parts);
        }
    }
    return WEFT_OK;
}

static weft_status_t check_types(weft_dtype_t type, weft_dtype_t grad_type)
{
    bool known = type == WEFT_F32 || type == WEFT_BF16 || type == WEFT_F16;
    if (!known || (grad_type != WEFT_F32 && grad_type != type)) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "a model in %s with gradients in %s is not possible; parameters are f32, "
                          "bf16 or f16, gradients f32 or like them",
                          weft_dtype_name(type), weft_dtype_name(grad_type));
    }
    return WEFT_OK;
}

static void set_sizes(weft_model_t *model)
{
    const weft_model_config_t *c = &model->config;
    int64_t parts = model->slice.parts;
    int64_t multiple = model->slice.vocab_multiple > 0 ? model->slice.vocab_multiple : 1;
    int64_t rows = (c->vocab + parts - 1) / parts;
    model->heads = c->heads / (int)parts;
    model->kv_heads = c->kv_heads / (int)parts;
    model->ffn = c->ffn / (int)parts;
    model->qkv_width = (int64_t)(model->heads + 2 * model->kv_heads) * c->head_dim;
    model->vocab_rows = (rows + multiple - 1) / multiple * multiple;
    model->vocab_first = model->slice.part * model->vocab_rows;
    int64_t left = c->vocab - model->vocab_first;
    left = left > 0 ? left : 0;
    model->vocab_count = left < model->vocab_rows ? left : model->vocab_rows;
}

weft_status_t weft__model_create(const weft_model_config_t *config, const weft_slice_t *slice,
                                 weft_dtype_t type, weft_dtype_t grad_type, weft_model_t **model_p)
{
    weft_status_t status = weft__config_check(config);
    status = status == WEFT_OK ? check_slice(config, slice) : status;
    status = status == WEFT_OK ? check_types(type, grad_type) : status;
    if (status != WEFT_OK) {
        return status;
    }
    size_t rows = (size_t)slice->layer_count + 1;
    weft_model_t *model = calloc(1, sizeof(*model));
    weft_param_t *params = calloc(rows * WEFT_ROLE_COUNT, sizeof(*params));
    int(*index)[WEFT_ROLE_COUNT] = malloc(rows * sizeof(*index));
    if (model == NULL || params == NULL || index == NULL) {
        free(model);
        free(params);
        free(index);
        return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for the table of parameters");
    }
    memset(index, -1, rows * sizeof(*index));
    model->config = *config;
    model->slice = *slice;
    model->type = type;
    model->grad_type = grad_type;
    model->params = params;
    model->index = index;
    set_sizes(model);
    add_all(model);
    *model_p = model;
    return WEFT_OK;
}

void weft__model_destroy(weft_model_t *model)
{
    if (model != NULL) {
        free(model->params);
        free(model->index);
        free(model);
    }
}

int weft__model_param(const weft_model_t *model, int layer, weft_role_t role)
{
    int row = layer >= 0 ? layer - model->slice.layer_first : model->slice.layer_count;
    return row >= 0 && row <= model->slice.layer_count ? model->index[row][role] : -1;
}

int weft__model_find(const weft_model_t *model, const char *name)
{
    for (int i = 0; i < model->param_count; i++) {
        if (strcmp(model->params[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- cutting whole tensors ------------------------------------------------------------------ */

/* One dimension of a tensor: which indices of the whole the part has. */
typedef struct cut {
    int64_t whole, local; /* sizes of a section */
    int64_t first;        /* of the part in every section of the whole */
    int64_t count;        /* of those, without padding */
    int sections;
} cut_t;

static cut_t cut_of(const weft_param_t *param, int dim, int part)
{
    bool split = param->split == (dim == 0 ? WEFT_SPLIT_ROWS : WEFT_SPLIT_COLUMNS);
    int sections = split ? param->sections : 1;
    cut_t cut = {.whole = param->shape[dim] / sections,
                 .local = param->local[dim] / sections,
                 .sections = sections};
    cut.first = split ? part * cut.local : 0;
    int64_t left = cut.whole - cut.first;
    left = left > 0 ? left : 0;
    cut.count = left < cut.local ? left : cut.local;
    return cut;
}

typedef void (*run_fn)(void *arg, int64_t whole, int64_t local, int64_t count);

/* Call fn for every run of neighbouring elements that the part has: where it is in the whole tensor
 * and in the part. */
static void each_run(const weft_param_t *param, int part, run_fn fn, void *arg)
{
    cut_t rows = cut_of(param, 0, part), columns = cut_of(param, 1, part);
    for (int rs = 0; rs < rows.sections; rs++) {
        for (int64_t r = 0; r < rows.count; r++) {
            int64_t whole_row = rs * rows.whole + rows.first + r, local_row = rs * rows.local + r;
            for (int cs = 0; cs < columns.sections; cs++) {
                fn(arg, whole_row * param->shape[1] + cs * columns.whole + columns.first,
                   local_row * param->local[1] + cs * columns.local, columns.count);
            }
        }
    }
}

typedef struct copy {
    char *whole, *local;
    size_t element;
    bool to_local;
} copy_t;

static void copy_run(void *arg, int64_t whole, int64_t local, int64_t count)
{
    const copy_t *copy = arg;
    char *in_whole = copy->whole + (size_t)whole * copy->element;
    char *in_local = copy->local + (size_t)local * copy->element;
    memcpy(copy->to_local ? in_local : in_whole, copy->to_local ? in_whole : in_local,
           (size_t)count * copy->element);
}

void weft__param_cut(const weft_param_t *param, int part, size_t element, const void *whole,
                     void *local)
{
    copy_t copy = {(char *)(uintptr_t)whole, local, element, true};
    memset(local, 0, (size_t)param->count * element);
    each_run(param, part, copy_run, &copy);
}

void weft__param_put(const weft_param_t *param, int part, size_t element, const void *local,
                     void *whole)
{
    copy_t copy = {whole, (char *)(uintptr_t)local, element, false};
    each_run(param, part, copy_run, &copy);
}

/* ---- initial values -------------------------------------------------------------------------- */

typedef struct init {
    uint64_t key;
    float std;
    float *local;
    weft_status_t status;
} init_t;

static void init_run(void *arg, int64_t whole, int64_t local, int64_t count)
{
    init_t *init = arg;
    if (init->status == WEFT_OK) {
        init->status = weft__fill_normal(init->key, whole, count, init->std, init->local + local);
    }
}

weft_status_t weft__param_init(const weft_param_t *param, int part, uint64_t seed, float *local)
{
    init_t init = {weft__name_key(seed, param->name), param->std, local, WEFT_OK};
    for (int64_t i = 0; i < param->count; i++) {
        local[i] = param->std < 0 ? 1.0f : 0.0f;
    }
    if (param->std > 0 && param->local[0] == param->shape[0] &&
        param->local[1] == param->shape[1]) {
        init_run(&init, 0, 0, param->count); /* in one piece, for all threads */
    } else if (param->std > 0) {
        each_run(param, part, init_run, &init);
    }
    return init.status;
}
