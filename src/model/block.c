/* A transformer block, forward. */
#include <math.h>

#include "model/parts.h"

weft_status_t weft__block_norm1(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts)
{
    weft_norm_t args = weft__norm_args(pass, pass->shape.norm_rows, layer, WEFT_NORM1_WEIGHT,
                                       WEFT_NORM1_BIAS);
    args.x = acts->x;
    args.out = acts->h1;
    args.mean = acts->mean1;
    args.rstd = acts->rstd1;
    return pass->compute->norm_forward(&args, pass->stream);
}

static weft_status_t attention(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts)
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
                             .mask = weft__attention_mask(pass, layer)};
    return pass->compute->attention_forward(&args, pass->stream);
}

/* How a branch ends: as it is, or with the residual added. */
static weft_ending_t branch_ending(const weft_pass_t *pass, const void *residual)
{
    return (weft_ending_t){.add = pass->fuse_residual ? residual : NULL,
                           .no_bias = !pass->row_bias};
}

weft_status_t weft__block_attention(const weft_pass_t *pass, int layer,
                                    const weft_block_acts_t *acts)
{
    weft_linear_t qkv = weft__linear_qkv(pass, layer);
    WEFT_TRY(weft__linear_forward_first(pass, &qkv, acts->h1_all, acts->qkv, (weft_ending_t){0}));
    if (!weft__is_gpt2(pass)) {
        weft_rope_t rope = weft__rope_args(pass, acts->qkv);
        WEFT_TRY(pass->compute->rope(&rope, pass->stream));
    }
    return attention(pass, layer, acts);
}

weft_status_t weft__block_attend(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                                 void *y)
{
    weft_linear_t proj = weft__linear_proj(pass, layer);
    WEFT_TRY(weft__block_attention(pass, layer, acts));
    return weft__linear_forward(pass, &proj, acts->attended, y, branch_ending(pass, acts->x));
}

weft_status_t weft__block_norm2(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                                const void *y)
{
    weft_norm_t args = weft__norm_args(pass, pass->shape.norm_rows, layer, WEFT_NORM2_WEIGHT,
                                       WEFT_NORM2_BIAS);
    args.x = pass->fuse_residual ? y : acts->x;
    args.branch = pass->fuse_residual ? NULL : y;
    args.sum = acts->x2;
    args.mask = weft__stream_mask(pass, layer, "attend", pass->model->config.residual_dropout);
    args.out = acts->h2;
    args.mean = acts->mean2;
    args.rstd = acts->rstd2;
    return pass->compute->norm_forward(&args, pass->stream);
}

weft_status_t weft__block_mlp(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                              void *y)
{
    weft_linear_t up = weft__linear_up(pass, layer), down = weft__linear_down(pass, layer);
    if (weft__is_gpt2(pass)) {
        weft_ending_t gelu = {.aux = acts->up, .epilogue = WEFT_EPILOGUE_GELU};
        WEFT_TRY(weft__linear_forward_first(pass, &up, acts->h2_all, acts->act, gelu));
    } else {
        weft_swiglu_t swiglu = {.type = pass->model->type,
                                .rows = weft__rows(pass),
                                .width = pass->model->ffn,
                                .in = acts->up,
                                .out = acts->act};
        WEFT_TRY(weft__linear_forward_first(pass, &up, acts->h2_all, acts->up, (weft_ending_t){0}));
        WEFT_TRY(pass->compute->swiglu_forward(&swiglu, pass->stream));
    }
    return weft__linear_forward(pass, &down, acts->act, y, branch_ending(pass, acts->x2));
}

weft_status_t weft__block_join(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                               const void *y, void *out)
{
    weft_dropout_t args = {
        .type = pass->model->type,
        .rows = pass->shape.norm_rows,
        .width = pass->model->config.width,
        .in = y,
        .residual = acts->x2,
        .out = out,
        .mask = weft__stream_mask(pass, layer, "mlp", pass->model->config.residual_dropout)};
    return pass->compute->dropout(&args, pass->stream);
}

weft_status_t weft__block_forward(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                                  void *out)
{
    void *attended = pass->fuse_residual ? acts->x2 : pass->scratch.y;
    void *y = pass->fuse_residual ? out : pass->scratch.y;
    WEFT_TRY(weft__block_norm1(pass, layer, acts));
    WEFT_TRY(weft__block_attend(pass, layer, acts, attended));
    WEFT_TRY(weft__block_norm2(pass, layer, acts, attended));
    WEFT_TRY(weft__block_mlp(pass, layer, acts, y));
    return pass->fuse_residual ? WEFT_OK : weft__block_join(pass, layer, acts, y, out);
}
