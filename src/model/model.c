/* A whole slice, forward and backward, and the generation of text with it. */
#include <math.h>

#include "base/log.h"
#include "model/parts.h"

weft_pass_t weft__pass_make(const weft_model_t *model, const weft_compute_t *compute,
                            const weft_shape_t *shape)
{
    return (weft_pass_t){.model = model,
                         .compute = compute,
                         .shape = *shape,
                         .training = true,
                         .row_bias = true,
                         .fuse_residual = model->config.residual_dropout == 0.0f,
                         .loss_scale = 1.0f / (float)(shape->batch * shape->seq)};
}

weft_status_t weft__model_forward(const weft_pass_t *pass, const weft_acts_t *acts)
{
    const weft_slice_t *slice = &pass->model->slice;
    if (slice->embed) {
        WEFT_TRY(weft__embed_forward(pass, acts->tokens, acts->x));
    }
    for (int i = 0; i < slice->layer_count; i++) {
        WEFT_TRY(
            weft__block_forward(pass, slice->layer_first + i, &acts->blocks[i], acts->outs[i]));
    }
    if (slice->head) {
        WEFT_TRY(weft__head_norm(pass, &acts->head));
        WEFT_TRY(weft__head_loss(pass, &acts->head, acts->targets));
    }
    return WEFT_OK;
}

weft_status_t weft__model_backward(const weft_pass_t *pass, const weft_acts_t *acts)
{
    const weft_slice_t *slice = &pass->model->slice;
    if (slice->head) {
        WEFT_TRY(weft__head_backward(pass, &acts->head));
    }
    for (int i = slice->layer_count - 1; i >= 0; i--) {
        WEFT_TRY(weft__block_backward(pass, slice->layer_first + i, &acts->blocks[i]));
    }
    return slice->embed ? weft__embed_backward(pass, acts->tokens) : WEFT_OK;
}

/* ---- generating -------------------------------------------------------------------------------------- */

static weft_status_t extend_attend(const weft_pass_t *pass, const weft_cache_t *cache, int layer,
                                   const weft_block_acts_t *acts)
{
    const weft_model_t *model = pass->model;
    int64_t kv = (int64_t)model->kv_heads * model->config.head_dim;
    int64_t at = layer * cache->batch * cache->capacity * kv;
    weft_linear_t qkv = weft__linear_qkv(pass, layer), proj = weft__linear_proj(pass, layer);
    weft_decode_t args = {.type = model->type,
                          .batch = cache->batch,
                          .seq = pass->shape.seq,
                          .past = cache->length,
                          .capacity = cache->capacity,
                          .heads = model->heads,
                          .kv_heads = model->kv_heads,
                          .head_dim = model->config.head_dim,
                          .scale = 1.0f / sqrtf((float)model->config.head_dim),
                          .qkv = acts->qkv,
                          .keys = weft__offset(pass, cache->keys, at),
                          .values = weft__offset(pass, cache->values, at),
                          .out = acts->attended};
    WEFT_TRY(weft__linear_forward(pass, &qkv, acts->h1, acts->qkv, (weft_ending_t){0}));
    if (!weft__is_gpt2(pass)) {
        weft_rope_t rope = weft__rope_args(pass, acts->qkv);
        rope.position_first = cache->length;
        WEFT_TRY(pass->compute->rope(&rope, pass->stream));
    }
    WEFT_TRY(pass->compute->decode(&args, pass->stream));
    return weft__linear_forward(pass, &proj, acts->attended, acts->x2,
                                (weft_ending_t){.add = acts->x});
}

/* Logits of the last position of every sequence. */
static weft_status_t extend_logits(const weft_pass_t *pass, const weft_cache_t *cache, void *logits)
{
    const weft_model_t *model = pass->model;
    int64_t width = model->config.width, seq = pass->shape.seq;
    weft_role_t role = model->config.tied ? WEFT_TOKENS : WEFT_HEAD_WEIGHT;
    weft_matmul_t args = {.type = model->type,
                          .c_type = model->type,
                          .m = cache->batch,
                          .n = model->vocab_rows,
                          .k = width,
                          .a = weft__offset(pass, cache->head.h, (seq - 1) * width),
                          .lda = seq * width,
                          .b = weft__param_of(pass, WEFT_KEY(-1, role)),
                          .trans_b = true,
                          .c = logits};
    return pass->compute->matmul(&args, pass->stream);
}

static weft_status_t check_extend(const weft_pass_t *pass, const weft_cache_t *cache, int64_t seq)
{
    int64_t context = pass->model->config.context, end = cache->length + seq;
    if (seq < 1 || seq > cache->chunk || end > cache->capacity || end > context) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "%lld tokens cannot be added to the %lld in the cache: it takes %lld at a "
            "time and holds %lld, and the model's context is %lld",
            (long long)seq, (long long)cache->length, (long long)cache->chunk,
            (long long)cache->capacity, (long long)context);
    }
    return WEFT_OK;
}

weft_status_t weft__model_extend(const weft_pass_t *outer, weft_cache_t *cache,
                                 const int32_t *tokens, int64_t seq, void *logits)
{
    WEFT_TRY(check_extend(outer, cache, seq));
    weft_pass_t copy = *outer, *pass = &copy;
    pass->shape = WEFT_SHAPE(cache->batch, seq);
    pass->training = false;
    pass->row_bias = pass->fuse_residual = true;
    weft_block_acts_t acts = cache->acts;
    acts.x = cache->stream[0];
    void *out = cache->stream[1];
    WEFT_TRY(weft__embed_at(pass, tokens, cache->length, acts.x));
    for (int layer = 0; layer < pass->model->config.layers; layer++) {
        WEFT_TRY(weft__block_norm1(pass, layer, &acts));
        WEFT_TRY(extend_attend(pass, cache, layer, &acts));
        WEFT_TRY(weft__block_norm2(pass, layer, &acts, acts.x2));
        WEFT_TRY(weft__block_mlp(pass, layer, &acts, out));
        void *swap = acts.x;
        acts.x = out;
        out = swap;
    }
    cache->head.x = acts.x;
    WEFT_TRY(weft__head_norm(pass, &cache->head));
    WEFT_TRY(extend_logits(pass, cache, logits));
    cache->length += seq;
    return WEFT_OK;
}
