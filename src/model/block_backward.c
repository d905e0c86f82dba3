/* A transformer block, backward. */
#include <math.h>

#include "model/parts.h"

weft_status_t weft__branch_gradient(const weft_pass_t *pass, int layer, weft_branch_t branch,
                                    const void **dy_p)
{
    const char *site = branch == WEFT_BRANCH_MLP ? "mlp" : "attend";
    weft_dropout_t args = {
        .type = pass->model->type,
        .rows = pass->shape.norm_rows,
        .width = pass->model->config.width,
        .in = pass->scratch.dx,
        .out = pass->scratch.dropped,
        .mask = weft__stream_mask(pass, layer, site, pass->model->config.residual_dropout)};
    if (args.mask.rate == 0.0f) {
        *dy_p = pass->scratch.dx;
        return WEFT_OK;
    }
    *dy_p = pass->scratch.dropped;
    return pass->compute->dropout(&args, pass->stream);
}

/* dx += the gradient that comes back through a norm from scratch.dh. */
static weft_status_t norm_backward(const weft_pass_t *pass, weft_norm_t *args, const void *x,
                                   float *mean, float *rstd)
{
    args->x = x;
    args->mean = mean;
    args->rstd = rstd;
    args->dout = pass->scratch.dh;
    args->dresidual = pass->scratch.dx;
    args->dx = pass->scratch.dx;
    return pass->compute->norm_backward(args, pass->stream);
}

/* ---- MLP ---------------------------------------------------------------------------------- */

weft_status_t weft__block_mlp_input(const weft_pass_t *pass, int layer,
                                    const weft_block_acts_t *acts, const void *dy)
{
    weft_linear_t up = weft__linear_up(pass, layer), down = weft__linear_down(pass, layer);
    const weft_scratch_t *scratch = &pass->scratch;
    if (weft__is_gpt2(pass)) {
        weft_ending_t slope = {.aux = acts->up, .epilogue = WEFT_EPILOGUE_DGELU};
        WEFT_TRY(weft__linear_input_first(pass, &down, dy, scratch->dup, slope));
    } else {
        weft_swiglu_t swiglu = {.type = pass->model->type,
                                .rows = weft__rows(pass),
                                .width = pass->model->ffn,
                                .in = acts->up,
                                .dout = scratch->dact,
                                .din = scratch->dup};
        WEFT_TRY(weft__linear_input_first(pass, &down, dy, scratch->dact, (weft_ending_t){0}));
        WEFT_TRY(pass->compute->swiglu_backward(&swiglu, pass->stream));
    }
    return weft__linear_input(pass, &up, scratch->dup, scratch->dh_all, (weft_ending_t){0});
}

weft_status_t weft__block_mlp_weights(const weft_pass_t *pass, int layer,
                                      const weft_block_acts_t *acts, const void *dy)
{
    weft_linear_t up = weft__linear_up(pass, layer), down = weft__linear_down(pass, layer);
    WEFT_TRY(weft__linear_weights(pass, &down, acts->act, dy));
    WEFT_TRY(weft__linear_weights(pass, &up, acts->h2_all, pass->scratch.dup));
    weft__tell_ready(pass, layer, WEFT_GATE_WEIGHT, WEFT_DOWN_BIAS);
    return WEFT_OK;
}

weft_status_t weft__block_norm2_backward(const weft_pass_t *pass, int layer,
                                         const weft_block_acts_t *acts)
{
    weft_norm_t args = weft__norm_args(pass, pass->shape.norm_rows, layer, WEFT_NORM2_WEIGHT,
                                       WEFT_NORM2_BIAS);
    WEFT_TRY(norm_backward(pass, &args, acts->x2, acts->mean2, acts->rstd2));
    weft__tell_ready(pass, layer, WEFT_NORM2_WEIGHT, WEFT_NORM2_BIAS);
    return WEFT_OK;
}

/* ---- attention ---------------------------------------------------------------------------- */

static weft_status_t attention_backward(const weft_pass_t *pass, int layer,
                                        const weft_block_acts_t *acts)
{
    const weft_model_t *model = pass->model;
    weft_attention_t args = {.type = model->type,
                             .batch = pass->shape.batch,
                             .seq = pass->shape.seq,
                             .heads = model->heads,
                             .kv_heads = model->kv_heads,
                             .head_dim = model->config.head_dim,
                             .scale = 1.0f / sqrtf((float)model->config.head_dim),
                             .qkv = acts->qkv,
                             .out = acts->attended,
                             .lse = acts->lse,
                             .mask = weft__attention_mask(pass, layer),
                             .dout = pass->scratch.dattended,
                             .dqkv = pass->scratch.dqkv,
                             .work = pass->scratch.work};
    return pass->compute->attention_backward(&args, pass->stream);
}

weft_status_t weft__block_attend_input(const weft_pass_t *pass, int layer,
                                       const weft_block_acts_t *acts, const void *dy)
{
    weft_linear_t qkv = weft__linear_qkv(pass, layer), proj = weft__linear_proj(pass, layer);
    const weft_scratch_t *scratch = &pass->scratch;
    WEFT_TRY(weft__linear_input_first(pass, &proj, dy, scratch->dattended, (weft_ending_t){0}));
    WEFT_TRY(attention_backward(pass, layer, acts));
    if (!weft__is_gpt2(pass)) {
        weft_rope_t rope = weft__rope_args(pass, scratch->dqkv);
        rope.inverse = true;
        WEFT_TRY(pass->compute->rope(&rope, pass->stream));
    }
    return weft__linear_input(pass, &qkv, scratch->dqkv, scratch->dh_all, (weft_ending_t){0});
}

weft_status_t weft__block_attend_weights(const weft_pass_t *pass, int layer,
                                         const weft_block_acts_t *acts, const void *dy)
{
    weft_linear_t qkv = weft__linear_qkv(pass, layer), proj = weft__linear_proj(pass, layer);
    WEFT_TRY(weft__linear_weights(pass, &proj, acts->attended, dy));
    WEFT_TRY(weft__linear_weights(pass, &qkv, acts->h1_all, pass->scratch.dqkv));
    weft__tell_ready(pass, layer, WEFT_QKV_WEIGHT, WEFT_PROJ_BIAS);
    return WEFT_OK;
}

weft_status_t weft__block_norm1_backward(const weft_pass_t *pass, int layer,
                                         const weft_block_acts_t *acts)
{
    weft_norm_t args = weft__norm_args(pass, pass->shape.norm_rows, layer, WEFT_NORM1_WEIGHT,
                                       WEFT_NORM1_BIAS);
    WEFT_TRY(norm_backward(pass, &args, acts->x, acts->mean1, acts->rstd1));
    weft__tell_ready(pass, layer, WEFT_NORM1_WEIGHT, WEFT_NORM1_BIAS);
    return WEFT_OK;
}

weft_status_t weft__block_backward(const weft_pass_t *pass, int layer,
                                   const weft_block_acts_t *acts)
{
    const void *dy;
    WEFT_TRY(weft__branch_gradient(pass, layer, WEFT_BRANCH_MLP, &dy));
    WEFT_TRY(weft__block_mlp_input(pass, layer, acts, dy));
    WEFT_TRY(weft__block_mlp_weights(pass, layer, acts, dy));
    WEFT_TRY(weft__block_norm2_backward(pass, layer, acts));
    WEFT_TRY(weft__branch_gradient(pass, layer, WEFT_BRANCH_ATTEND, &dy));
    WEFT_TRY(weft__block_attend_input(pass, layer, acts, dy));
    WEFT_TRY(weft__block_attend_weights(pass, layer, acts, dy));
    return weft__block_norm1_backward(pass, layer, acts);
}
