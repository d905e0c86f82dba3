/* A whole slice, forward and backward, and the generation of text with it. */
#include <math.h>

#include <weft/device.h>

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

/* ---- generating --------------------------------------------------------------------------- */

static weft_status_t extend_attend(const weft_pass_t *pass, const weft_cache_t *cache, int layer,
                                   int64_t slot, const weft_block_acts_t *acts)
{
    const weft_model_t *model = pass->model;
    int64_t kv = (int64_t)model->kv_heads * model->config.head_dim;
    int64_t at = (layer * cache->slots + slot) * cache->capacity * kv;
    weft_linear_t qkv = weft__linear_qkv(pass, layer), proj = weft__linear_proj(pass, layer);
    weft_decode_t args = {.type = model->type,
                          .batch = pass->shape.batch,
                          .seq = pass->shape.seq,
                          .past = pass->position_first,
                          .ragged = pass->ragged,
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
        WEFT_TRY(pass->compute->rope(&rope, pass->stream));
    }
    WEFT_TRY(pass->compute->decode(&args, pass->stream));
    return weft__linear_forward(pass, &proj, acts->attended, acts->x2,
                                (weft_ending_t){.add = acts->x});
}

/* Logits of the last token of every sequence. x: the residual stream; room: as much, for other
 * rows. */
static weft_status_t extend_logits(const weft_pass_t *outer, const weft_cache_t *cache,
                                   const weft_sequences_t *batch, void *x, void *room, void *logits)
{
    weft_pass_t copy = *outer, *pass = &copy;
    const weft_model_t *model = pass->model;
    int64_t width = model->config.width;
    weft_head_acts_t head = cache->head;
    head.x = batch->count == 1 ? weft__offset(pass, x, (batch->rows - 1) * width) : x;
    if (batch->count > 1 && batch->count < batch->rows) {
        size_t bytes = (size_t)width * weft_dtype_size(model->type);
        head.x = room;
        for (int64_t i = 0; i < batch->count; i++) {
            int64_t last = batch->list[i].row + batch->list[i].length - 1;
            WEFT_TRY(weft_memcpy(weft__offset(pass, room, i * width),
                                 weft__offset(pass, x, last * width), bytes, pass->stream));
        }
    }
    weft_matmul_t args = {
        .type = model->type,
        .c_type = model->type,
        .m = batch->count,
        .n = model->vocab_rows,
        .k = width,
        .a = head.h,
        .b = weft__param_of(pass,
                            WEFT_KEY(-1, model->config.tied ? WEFT_TOKENS : WEFT_HEAD_WEIGHT)),
        .trans_b = true,
        .c = logits};
    pass->shape = WEFT_SHAPE(1, batch->count);
    WEFT_TRY(weft__head_norm(pass, &head));
    return pass->compute->matmul(&args, pass->stream);
}

static weft_status_t check_extend(const weft_pass_t *pass, const weft_cache_t *cache,
                                  const weft_sequences_t *batch)
{
    int64_t context = pass->model->config.context, row = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        const weft_sequence_t *s = &batch->list[i];
        int64_t end = s->position + s->length;
        if (s->length < 1 || s->position < 0 || end > cache->capacity || end > context) {
            return weft__fail(WEFT_ERR_INVALID,
                              "%lld tokens cannot be added to the %lld of a sequence in the cache, "
                              "which holds %lld of each; the model's context is %lld",
                              (long long)s->length, (long long)s->position,
                              (long long)cache->capacity, (long long)context);
        }
        if (s->row != row || s->slot < 0 || s->slot >= cache->slots) {
            return weft__fail(WEFT_ERR_INVALID,
                              "sequence %lld of a batch is in row %lld and slot %lld, but should "
                              "be in row %lld and in one of %lld slots",
                              (long long)i, (long long)s->row, (long long)s->slot, (long long)row,
                              (long long)cache->slots);
        }
        row += s->length;
    }
    if (batch->count < 1 || row != batch->rows || row > cache->rows) {
        return weft__fail(WEFT_ERR_INVALID,
                          "a batch of %lld sequences has %lld rows, not %lld; the cache takes %lld "
                          "at a time",
                          (long long)batch->count, (long long)row, (long long)batch->rows,
                          (long long)cache->rows);
    }
    return WEFT_OK;
}

/* Do all sequences have one length and one position, in slots that follow each other? */
static bool is_dense(const weft_sequences_t *batch)
{
    const weft_sequence_t *first = &batch->list[0];
    bool dense = true;
    for (int64_t i = 1; i < batch->count; i++) {
        const weft_sequence_t *s = &batch->list[i];
        dense = dense && s->length == first->length && s->position == first->position &&
                s->slot == first->slot + i;
    }
    return dense;
}

weft_status_t weft__model_extend(const weft_pass_t *outer, const weft_cache_t *cache,
                                 const weft_sequences_t *batch, const int32_t *tokens, void *logits)
{
    WEFT_TRY(check_extend(outer, cache, batch));
    const weft_sequence_t *first = &batch->list[0];
    bool dense = is_dense(batch);
    weft_pass_t copy = *outer, *pass = &copy;
    pass->shape = dense ? WEFT_SHAPE(batch->count, first->length) : WEFT_SHAPE(1, batch->rows);
    pass->position_first = dense ? first->position : 0;
    pass->ragged = dense ? NULL : batch;
    pass->training = false;
    pass->row_bias = pass->fuse_residual = true;
    weft_block_acts_t acts = cache->acts;
    acts.x = cache->stream[0];
    void *out = cache->stream[1];
    WEFT_TRY(weft__embed_forward(pass, tokens, acts.x));
    for (int layer = 0; layer < pass->model->config.layers; layer++) {
        WEFT_TRY(weft__block_norm1(pass, layer, &acts));
        WEFT_TRY(extend_attend(pass, cache, layer, dense ? first->slot : 0, &acts));
        WEFT_TRY(weft__block_norm2(pass, layer, &acts, acts.x2));
        WEFT_TRY(weft__block_mlp(pass, layer, &acts, out));
        void *swap = acts.x;
        acts.x = out;
        out = swap;
    }
    return extend_logits(pass, cache, batch, acts.x, out, logits);
}
