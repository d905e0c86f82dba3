/* Linear layers, norms and masks of one pass. */
#include "model/parts.h"

#include <stdio.h>

const void *weft__param_of(const weft_pass_t *pass, weft_param_key_t key)
{
    int index = weft__model_param(pass->model, key);
    return index >= 0 ? pass->params[index] : NULL;
}

void *weft__grad_of(const weft_pass_t *pass, weft_param_key_t key)
{
    int index = weft__model_param(pass->model, key);
    return index >= 0 && pass->grads != NULL ? pass->grads[index] : NULL;
}

bool weft__grad_is_written(const weft_model_t *model, int param)
{
    switch (model->params[param].key.role) {
    case WEFT_QKV_WEIGHT:
    case WEFT_Q_WEIGHT:
    case WEFT_K_WEIGHT:
    case WEFT_V_WEIGHT:
    case WEFT_PROJ_WEIGHT:
    case WEFT_GATE_WEIGHT:
    case WEFT_UP_WEIGHT:
    case WEFT_DOWN_WEIGHT:
    case WEFT_HEAD_WEIGHT:
        return true;
    case WEFT_TOKENS: /* by the head, before the embedding adds to it */
        return model->config.tied && model->slice.head;
    default:
        return false;
    }
}

void *weft__offset(const weft_pass_t *pass, const void *base, int64_t count)
{
    return (char *)(uintptr_t)base + count * (int64_t)weft_dtype_size(pass->model->type);
}

weft_norm_t weft__norm_args(const weft_pass_t *pass, int64_t rows, int layer, weft_role_t weight,
                            weft_role_t bias)
{
    return (weft_norm_t){.type = pass->model->type,
                         .grad_type = pass->model->grad_type,
                         .rms = !weft__is_gpt2(pass),
                         .rows = rows,
                         .width = pass->model->config.width,
                         .eps = pass->model->config.norm_eps,
                         .weight = weft__param_of(pass, WEFT_KEY(layer, weight)),
                         .bias = weft__param_of(pass, WEFT_KEY(layer, bias)),
                         .dweight = weft__grad_of(pass, WEFT_KEY(layer, weight)),
                         .dbias = weft__grad_of(pass, WEFT_KEY(layer, bias)),
                         .work = pass->scratch.work};
}

/* ---- linear layers --------------------------------------------------------------------------- */

weft_linear_t weft__linear_qkv(const weft_pass_t *pass, int layer)
{
    const weft_model_t *model = pass->model;
    int64_t queries = (int64_t)model->heads * model->config.head_dim;
    int64_t keys = (int64_t)model->kv_heads * model->config.head_dim;
    if (weft__is_gpt2(pass)) {
        return (weft_linear_t){.in = model->config.width,
                               .out = model->qkv_width,
                               .count = 1,
                               .weights = {WEFT_KEY(layer, WEFT_QKV_WEIGHT)},
                               .outs = {model->qkv_width},
                               .bias = WEFT_KEY(layer, WEFT_QKV_BIAS),
                               .biased = true};
    }
    return (weft_linear_t){.in = model->config.width,
                           .out = model->qkv_width,
                           .count = 3,
                           .weights = {WEFT_KEY(layer, WEFT_Q_WEIGHT),
                                       WEFT_KEY(layer, WEFT_K_WEIGHT),
                                       WEFT_KEY(layer, WEFT_V_WEIGHT)},
                           .outs = {queries, keys, keys}};
}

weft_linear_t weft__linear_proj(const weft_pass_t *pass, int layer)
{
    const weft_model_t *model = pass->model;
    return (weft_linear_t){.in = (int64_t)model->heads * model->config.head_dim,
                           .out = model->config.width,
                           .count = 1,
                           .weights = {WEFT_KEY(layer, WEFT_PROJ_WEIGHT)},
                           .outs = {model->config.width},
                           .bias = WEFT_KEY(layer, WEFT_PROJ_BIAS),
                           .biased = weft__is_gpt2(pass)};
}

weft_linear_t weft__linear_up(const weft_pass_t *pass, int layer)
{
    const weft_model_t *model = pass->model;
    if (weft__is_gpt2(pass)) {
        return (weft_linear_t){.in = model->config.width,
                               .out = model->ffn,
                               .count = 1,
                               .weights = {WEFT_KEY(layer, WEFT_UP_WEIGHT)},
                               .outs = {model->ffn},
                               .bias = WEFT_KEY(layer, WEFT_UP_BIAS),
                               .biased = true};
    }
    return (weft_linear_t){
        .in = model->config.width,
        .out = 2 * (int64_t)model->ffn,
        .count = 2,
        .weights = {WEFT_KEY(layer, WEFT_GATE_WEIGHT), WEFT_KEY(layer, WEFT_UP_WEIGHT)},
        .outs = {model->ffn, model->ffn}};
}

weft_linear_t weft__linear_down(const weft_pass_t *pass, int layer)
{
    const weft_model_t *model = pass->model;
    return (weft_linear_t){.in = model->ffn,
                           .out = model->config.width,
                           .count = 1,
                           .weights = {WEFT_KEY(layer, WEFT_DOWN_WEIGHT)},
                           .outs = {model->config.width},
                           .bias = WEFT_KEY(layer, WEFT_DOWN_BIAS),
                           .biased = weft__is_gpt2(pass)};
}

typedef void *(*place_fn)(const weft_pass_t *pass, weft_param_key_t key);

static void *weight_place(const weft_pass_t *pass, weft_param_key_t key)
{
    return (void *)(uintptr_t)weft__param_of(pass, key);
}

/* The same layer with its matrices as one, if they lie behind each other. */
static weft_linear_t joined(const weft_pass_t *pass, const weft_linear_t *linear, place_fn place,
                            int64_t element)
{
    weft_linear_t one = *linear;
    for (int i = 1; i < linear->count; i++) {
        const char *before = place(pass, linear->weights[i - 1]);
        const char *here = place(pass, linear->weights[i]);
        if (here != before + linear->outs[i - 1] * linear->in * element) {
            return one;
        }
    }
    one.count = 1;
    one.outs[0] = one.out;
    return one;
}

static weft_matmul_t product(const weft_pass_t *pass)
{
    return (weft_matmul_t){.type = pass->model->type, .c_type = pass->model->type};
}

/* Some rows of a product, whose tensors are given from their first row on. */
typedef struct rows {
    int64_t from, to, count; /* where they start in what is read, and in what is written */
} rows_t;

static void *row_of(const weft_pass_t *pass, const void *base, int64_t row, int64_t width)
{
    return base != NULL ? weft__offset(pass, base, row * width) : NULL;
}

static weft_status_t forward_rows(const weft_pass_t *pass, const weft_linear_t *linear, rows_t rows,
                                  const void *x, void *y, weft_ending_t ending)
{
    int64_t element = (int64_t)weft_dtype_size(pass->model->type), column = 0;
    weft_linear_t l = joined(pass, linear, weight_place, element);
    for (int i = 0; i < l.count; column += l.outs[i++]) {
        weft_matmul_t args = product(pass);
        args.m = rows.count;
        args.n = l.outs[i];
        args.k = l.in;
        args.a = row_of(pass, x, rows.from, l.in);
        args.b = weft__param_of(pass, l.weights[i]);
        args.trans_b = !weft__is_gpt2(pass);
        args.c = weft__offset(pass, y, rows.to * l.out + column);
        args.ldc = l.out;
        args.bias = l.biased && !ending.no_bias ? weft__param_of(pass, l.bias) : NULL;
        args.add = row_of(pass, ending.add, rows.to, l.out);
        args.aux = row_of(pass, ending.aux, rows.to, l.out);
        args.epilogue = ending.epilogue;
        WEFT_TRY(pass->compute->matmul(&args, pass->stream));
    }
    return WEFT_OK;
}

static weft_status_t input_rows(const weft_pass_t *pass, const weft_linear_t *linear, rows_t rows,
                                const void *dy, void *dx, weft_ending_t ending)
{
    int64_t element = (int64_t)weft_dtype_size(pass->model->type), column = 0;
    weft_linear_t l = joined(pass, linear, weight_place, element);
    for (int i = 0; i < l.count; column += l.outs[i++]) {
        weft_matmul_t args = product(pass);
        args.m = rows.count;
        args.n = l.in;
        args.k = l.outs[i];
        args.a = weft__offset(pass, dy, rows.from * l.out + column);
        args.lda = l.out;
        args.b = weft__param_of(pass, l.weights[i]);
        args.trans_b = weft__is_gpt2(pass);
        args.c = row_of(pass, dx, rows.to, l.in);
        args.accumulate = i > 0;
        args.aux = row_of(pass, ending.aux, rows.to, l.in);
        args.epilogue = ending.epilogue;
        WEFT_TRY(pass->compute->matmul(&args, pass->stream));
    }
    return WEFT_OK;
}

typedef weft_status_t (*rows_fn)(const weft_pass_t *pass, const weft_linear_t *linear, rows_t rows,
                                 const void *from, void *to, weft_ending_t ending);

static rows_t all_rows(const weft_pass_t *pass)
{
    return (rows_t){0, 0, weft__rows(pass)};
}

/* Own rows, then those before and those behind them. */
static weft_status_t in_turns(const weft_pass_t *pass, const weft_linear_t *linear, rows_fn run,
                              const void *from, void *to, weft_ending_t ending)
{
    int64_t first = pass->row_first, end = first + pass->shape.norm_rows, all = weft__rows(pass);
    rows_t own = {0, first, end - first}, before = {0, 0, first}, behind = {end, end, all - end};
    if (pass->await_rows == NULL) {
        return run(pass, linear, all_rows(pass), from, to, ending);
    }
    WEFT_TRY(run(pass, linear, own, pass->own_rows, to, ending));
    WEFT_TRY(pass->await_rows(pass->await_rows_arg));
    if (before.count > 0) {
        WEFT_TRY(run(pass, linear, before, from, to, ending));
    }
    return behind.count > 0 ? run(pass, linear, behind, from, to, ending) : WEFT_OK;
}

weft_status_t weft__linear_forward(const weft_pass_t *pass, const weft_linear_t *linear,
                                   const void *x, void *y, weft_ending_t ending)
{
    return forward_rows(pass, linear, all_rows(pass), x, y, ending);
}

weft_status_t weft__linear_forward_first(const weft_pass_t *pass, const weft_linear_t *linear,
                                         const void *x, void *y, weft_ending_t ending)
{
    return in_turns(pass, linear, forward_rows, x, y, ending);
}

weft_status_t weft__linear_input(const weft_pass_t *pass, const weft_linear_t *linear,
                                 const void *dy, void *dx, weft_ending_t ending)
{
    return input_rows(pass, linear, all_rows(pass), dy, dx, ending);
}

weft_status_t weft__linear_input_first(const weft_pass_t *pass, const weft_linear_t *linear,
                                       const void *dy, void *dx, weft_ending_t ending)
{
    return in_turns(pass, linear, input_rows, dy, dx, ending);
}

weft_status_t weft__linear_weights(const weft_pass_t *pass, const weft_linear_t *linear,
                                   const void *x, const void *dy)
{
    int64_t element = (int64_t)weft_dtype_size(pass->model->grad_type), column = 0;
    weft_linear_t l = joined(pass, linear, weft__grad_of, element);
    for (int i = 0; i < l.count; column += l.outs[i++]) {
        const void *dy_part = weft__offset(pass, dy, column);
        bool gpt2 = weft__is_gpt2(pass);
        weft_matmul_t args = product(pass);
        args.c_type = pass->model->grad_type;
        args.m = gpt2 ? l.in : l.outs[i];
        args.n = gpt2 ? l.outs[i] : l.in;
        args.k = weft__rows(pass);
        args.a = gpt2 ? x : dy_part;
        args.lda = gpt2 ? l.in : l.out;
        args.b = gpt2 ? dy_part : x;
        args.ldb = gpt2 ? l.out : l.in;
        args.trans_a = true;
        args.c = weft__grad_of(pass, l.weights[i]);
        args.accumulate = !pass->fresh;
        args.bias_grad = l.biased ? weft__grad_of(pass, l.bias) : NULL;
        WEFT_TRY(pass->compute->matmul(&args, pass->stream));
    }
    return WEFT_OK;
}

/* ---- dropout ------------------------------------------------------------------------------ */

static uint64_t site_key(const weft_pass_t *pass, int layer, const char *site)
{
    char name[64];
    snprintf(name, sizeof(name), "dropout.%d.%s", layer, site);
    return weft__mask_key(pass->seed, name, pass->step);
}

weft_mask_t weft__stream_mask(const weft_pass_t *pass, int layer, const char *site, float rate)
{
    if (!pass->training || rate == 0.0f) {
        return (weft_mask_t){0};
    }
    return (weft_mask_t){.rate = rate,
                         .key = site_key(pass, layer, site),
                         .row0 = pass->sample_first * pass->shape.seq + pass->row_first,
                         .width = pass->model->config.width};
}

weft_mask_t weft__attention_mask(const weft_pass_t *pass, int layer)
{
    const weft_model_t *model = pass->model;
    if (!pass->training || model->config.attention_dropout == 0.0f) {
        return (weft_mask_t){0};
    }
    return (weft_mask_t){.rate = model->config.attention_dropout,
                         .key = site_key(pass, layer, "attention"),
                         .row0 = pass->sample_first,
                         .column0 = (int64_t)model->slice.part * model->heads,
                         .width = model->config.heads};
}

/* ---- RoPE --------------------------------------------------------------------------------- */

weft_rope_t weft__rope_args(const weft_pass_t *pass, void *qkv)
{
    return (weft_rope_t){.type = pass->model->type,
                         .batch = pass->shape.batch,
                         .seq = pass->shape.seq,
                         .heads = pass->model->heads,
                         .kv_heads = pass->model->kv_heads,
                         .head_dim = pass->model->config.head_dim,
                         .position_first = pass->position_first,
                         .ragged = pass->ragged,
                         .theta = pass->model->config.rope_theta,
                         .qkv = qkv};
}

/* ---- gradients that are complete ---------------------------------------------------------- */

void weft__tell_ready(const weft_pass_t *pass, int layer, weft_role_t first, weft_role_t last)
{
    const weft_model_t *model = pass->model;
    if (pass->grad_ready == NULL) {
        return;
    }
    int from = weft__model_lower(model, WEFT_KEY(layer, first)), to = from;
    while (to < model->param_count && model->params[to].key.layer == layer &&
           model->params[to].key.role >= first && model->params[to].key.role <= last) {
        to++;
    }
    if (to > from) {
        pass->grad_ready(pass->grad_ready_arg, from, to - from);
    }
}
