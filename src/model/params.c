/* The parameters of a slice: which there are, what they are called, how they are cut. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/parts.h"

/* ---- by key ------------------------------------------------------------------------------- */

/* Parameters [first, end) of a model. */
typedef struct range {
    int first, end;
} range_t;

static bool is_front(weft_role_t role)
{
    return role < WEFT_NORM1_WEIGHT;
}

static bool is_of_block(weft_role_t role)
{
    return role >= WEFT_NORM1_WEIGHT && role < WEFT_FINAL_WEIGHT;
}

/* The block that the key is of, counted in the slice; -1: in front of all, layer_count: behind
 * them. */
static int block_of(const weft_model_t *model, weft_param_key_t key)
{
    return key.layer >= 0       ? key.layer - model->slice.layer_first
           : is_front(key.role) ? -1
                                : model->slice.layer_count;
}

static range_t range_of(const weft_model_t *model, int block)
{
    return (range_t){block >= 0 ? model->block_at[block] : 0, block < model->slice.layer_count
                                                                  ? model->block_at[block + 1]
                                                                  : model->param_count};
}

int weft__model_lower(const weft_model_t *model, weft_param_key_t key)
{
    range_t range = range_of(model, block_of(model, key));
    while (range.first < range.end) {
        int middle = (range.first + range.end) / 2;
        const weft_param_key_t *there = &model->params[middle].key;
        bool before = there->expert != key.expert ? there->expert < key.expert
                                                  : there->role < key.role;
        range = before ? (range_t){middle + 1, range.end} : (range_t){range.first, middle};
    }
    return range.first;
}

static bool has_block(const weft_model_t *model, weft_param_key_t key)
{
    int block = key.layer - model->slice.layer_first;
    return key.layer < 0 || (block >= 0 && block < model->slice.layer_count);
}

int weft__model_param(const weft_model_t *model, weft_param_key_t key)
{
    int at = has_block(model, key) ? weft__model_lower(model, key) : model->param_count;
    if (at == model->param_count) {
        return -1;
    }
    const weft_param_key_t *there = &model->params[at].key;
    bool same = there->layer == key.layer && there->role == key.role && there->expert == key.expert;
    return same ? at : -1;
}

/* ---- adding to the table ------------------------------------------------------------------ */

static void set_local(const weft_model_t *model, weft_param_t *param)
{
    int parts = model->slice.parts;
    param->local[0] = param->shape[0];
    param->local[1] = param->shape[1];
    if (param->key.role == WEFT_TOKENS || param->key.role == WEFT_HEAD_WEIGHT) {
        param->local[0] = model->vocab_rows;
    } else if (param->split == WEFT_SPLIT_ROWS) {
        param->local[0] /= parts;
    } else if (param->split == WEFT_SPLIT_COLUMNS) {
        param->local[1] /= parts;
    }
    param->count = param->local[0] * param->local[1];
}

static weft_status_t make_room(weft_model_t *model)
{
    int room = model->param_room > 0 ? 2 * model->param_room : 32;
    if (model->param_count < model->param_room) {
        return WEFT_OK;
    }
    weft_param_t *params = realloc(model->params, (size_t)room * sizeof(*params));
    if (params == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for the table of parameters");
    }
    model->params = params;
    model->param_room = room;
    return WEFT_OK;
}

weft_status_t weft__model_add(weft_model_t *model, weft_param_key_t key,
                              const weft_param_form_t *form, const char *name)
{
    if (is_of_block(key.role) != (key.layer >= 0) || !has_block(model, key) ||
        weft__model_param(model, key) >= 0) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "%s cannot be added to layers %d to %d: they have it already, or are not of its "
            "kind",
            name, model->slice.layer_first,
            model->slice.layer_first + model->slice.layer_count - 1);
    }
    WEFT_TRY(make_room(model));
    int at = weft__model_lower(model, key);
    weft_param_t *param = &model->params[at];
    memmove(param + 1, param, (size_t)(model->param_count - at) * sizeof(*param));
    *param = (weft_param_t){.key = key,
                            .dims = form->dims,
                            .shape = {form->shape[0], form->shape[1]},
                            .split = form->split,
                            .sections = form->sections,
                            .decay = form->dims == 2,
                            .std = form->std};
    snprintf(param->name, sizeof(param->name), "%s", name);
    set_local(model, param);
    for (int i = block_of(model, key) + 1; i <= model->slice.layer_count; i++) {
        model->block_at[i]++;
    }
    model->param_count++;
    model->element_count += param->count;
    return WEFT_OK;
}

/* ---- what models consist of --------------------------------------------------------------- */

/* What the sizes of tensors are. */
typedef enum extent { ONE, WIDTH, QUERIES, KEYS, QKV, FFN, VOCAB, CONTEXT, EXTENTS } extent_t;

/* Initial values; OUT: of a matrix whose product is added to the residual stream. */
typedef enum start { ZEROS, UNITS, NORMAL, OUT } start_t;

/* A tensor, of each block if its role is a block's. */
typedef struct row {
    weft_role_t role;
    extent_t rows, columns; /* columns ONE: a vector */
    weft_split_t split;
    int sections;
    start_t start;
    const char *name; /* behind that of the block */
} row_t;

#define WHOLE WEFT_SPLIT_NONE, 1
#define ROWS WEFT_SPLIT_ROWS, 1
#define COLUMNS WEFT_SPLIT_COLUMNS, 1

static const row_t gpt2_rows[] = {
    {WEFT_TOKENS, VOCAB, WIDTH, ROWS, NORMAL, "transformer.wte.weight"},
    {WEFT_POSITIONS, CONTEXT, WIDTH, WHOLE, NORMAL, "transformer.wpe.weight"},
    {WEFT_NORM1_WEIGHT, WIDTH, ONE, WHOLE, UNITS, "ln_1.weight"},
    {WEFT_NORM1_BIAS, WIDTH, ONE, WHOLE, ZEROS, "ln_1.bias"},
    {WEFT_QKV_WEIGHT, WIDTH, QKV, WEFT_SPLIT_COLUMNS, 3, NORMAL, "attn.c_attn.weight"},
    {WEFT_QKV_BIAS, QKV, ONE, WEFT_SPLIT_ROWS, 3, ZEROS, "attn.c_attn.bias"},
    {WEFT_PROJ_WEIGHT, QUERIES, WIDTH, ROWS, OUT, "attn.c_proj.weight"},
    {WEFT_PROJ_BIAS, WIDTH, ONE, WHOLE, ZEROS, "attn.c_proj.bias"},
    {WEFT_NORM2_WEIGHT, WIDTH, ONE, WHOLE, UNITS, "ln_2.weight"},
    {WEFT_NORM2_BIAS, WIDTH, ONE, WHOLE, ZEROS, "ln_2.bias"},
    {WEFT_UP_WEIGHT, WIDTH, FFN, COLUMNS, NORMAL, "mlp.c_fc.weight"},
    {WEFT_UP_BIAS, FFN, ONE, ROWS, ZEROS, "mlp.c_fc.bias"},
    {WEFT_DOWN_WEIGHT, FFN, WIDTH, ROWS, OUT, "mlp.c_proj.weight"},
    {WEFT_DOWN_BIAS, WIDTH, ONE, WHOLE, ZEROS, "mlp.c_proj.bias"},
    {WEFT_FINAL_WEIGHT, WIDTH, ONE, WHOLE, UNITS, "transformer.ln_f.weight"},
    {WEFT_FINAL_BIAS, WIDTH, ONE, WHOLE, ZEROS, "transformer.ln_f.bias"},
    {WEFT_HEAD_WEIGHT, VOCAB, WIDTH, ROWS, NORMAL, "lm_head.weight"},
};

/* Queries, keys and values are neighbours, and gate and up: where their storage is too, each group
 * is one product. */
static const row_t llama_rows[] = {
    {WEFT_TOKENS, VOCAB, WIDTH, ROWS, NORMAL, "model.embed_tokens.weight"},
    {WEFT_NORM1_WEIGHT, WIDTH, ONE, WHOLE, UNITS, "input_layernorm.weight"},
    {WEFT_Q_WEIGHT, QUERIES, WIDTH, ROWS, NORMAL, "self_attn.q_proj.weight"},
    {WEFT_K_WEIGHT, KEYS, WIDTH, ROWS, NORMAL, "self_attn.k_proj.weight"},
    {WEFT_V_WEIGHT, KEYS, WIDTH, ROWS, NORMAL, "self_attn.v_proj.weight"},
    {WEFT_PROJ_WEIGHT, WIDTH, QUERIES, COLUMNS, NORMAL, "self_attn.o_proj.weight"},
    {WEFT_NORM2_WEIGHT, WIDTH, ONE, WHOLE, UNITS, "post_attention_layernorm.weight"},
    {WEFT_GATE_WEIGHT, FFN, WIDTH, ROWS, NORMAL, "mlp.gate_proj.weight"},
    {WEFT_UP_WEIGHT, FFN, WIDTH, ROWS, NORMAL, "mlp.up_proj.weight"},
    {WEFT_DOWN_WEIGHT, WIDTH, FFN, COLUMNS, NORMAL, "mlp.down_proj.weight"},
    {WEFT_FINAL_WEIGHT, WIDTH, ONE, WHOLE, UNITS, "model.norm.weight"},
    {WEFT_HEAD_WEIGHT, VOCAB, WIDTH, ROWS, NORMAL, "lm_head.weight"},
};

/* Is an end's tensor in this slice? */
static bool has_end(const weft_model_t *model, weft_role_t role)
{
    const weft_slice_t *slice = &model->slice;
    bool tied = model->config.tied;
    return role == WEFT_TOKENS        ? slice->embed || (slice->head && tied)
           : role == WEFT_POSITIONS   ? slice->embed
           : role == WEFT_HEAD_WEIGHT ? slice->head && !tied
                                      : slice->head;
}

static weft_status_t add_row(weft_model_t *model, const row_t *row, int layer)
{
    const weft_model_config_t *c = &model->config;
    const int64_t extents[EXTENTS] = {[ONE] = 1,
                                      [WIDTH] = c->width,
                                      [QUERIES] = (int64_t)c->heads * c->head_dim,
                                      [KEYS] = (int64_t)c->kv_heads * c->head_dim,
                                      [QKV] = 3 * (int64_t)c->heads * c->head_dim,
                                      [FFN] = c->ffn,
                                      [VOCAB] = c->vocab,
                                      [CONTEXT] = c->context};
    const float stds[] = {[ZEROS] = 0.0f,
                          [UNITS] = -1.0f,
                          [NORMAL] = c->init_std,
                          [OUT] = c->init_std / sqrtf(2.0f * (float)c->layers)};
    weft_param_form_t form = {.dims = row->columns == ONE ? 1 : 2,
                              .shape = {extents[row->rows], extents[row->columns]},
                              .split = row->split,
                              .sections = row->sections,
                              .std = stds[row->start]};
    char name[WEFT_PARAM_NAME];
    const char *blocks = c->family == WEFT_GPT2 ? "transformer.h" : "model.layers";
    if (layer >= 0) {
        snprintf(name, sizeof(name), "%s.%d.%s", blocks, layer, row->name);
    }
    return weft__model_add(model, WEFT_KEY(layer, row->role), &form, layer >= 0 ? name : row->name);
}

static weft_status_t add_all(weft_model_t *model)
{
    bool gpt2 = model->config.family == WEFT_GPT2;
    const row_t *rows = gpt2 ? gpt2_rows : llama_rows;
    size_t count = gpt2 ? sizeof(gpt2_rows) / sizeof(row_t) : sizeof(llama_rows) / sizeof(row_t);
    for (size_t i = 0; i < count; i++) {
        if (!is_of_block(rows[i].role) && has_end(model, rows[i].role)) {
            WEFT_TRY(add_row(model, &rows[i], -1));
        }
    }
    for (int l = 0; l < model->slice.layer_count; l++) {
        for (size_t i = 0; i < count; i++) {
            if (is_of_block(rows[i].role)) {
                WEFT_TRY(add_row(model, &rows[i], model->slice.layer_first + l));
            }
        }
    }
    return WEFT_OK;
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
    weft_model_t *model = calloc(1, sizeof(*model));
    int *block_at = calloc((size_t)slice->layer_count + 1, sizeof(int));
    if (model == NULL || block_at == NULL) {
        free(model);
        free(block_at);
        return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for the table of parameters");
    }
    model->config = *config;
    model->slice = *slice;
    model->type = type;
    model->grad_type = grad_type;
    model->block_at = block_at;
    set_sizes(model);
    status = add_all(model);
    if (status != WEFT_OK) {
        weft__model_destroy(model);
        return status;
    }
    *model_p = model;
    return WEFT_OK;
}

void weft__model_destroy(weft_model_t *model)
{
    if (model != NULL) {
        free(model->params);
        free(model->block_at);
        free(model);
    }
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
