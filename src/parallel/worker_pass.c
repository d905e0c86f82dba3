/* One micro-batch through one slice: weights are there when they are used, gradients have a place
 * when they are made, activations that were not kept are computed again. */
#include "base/log.h"
#include "parallel/worker_parts.h"

static int bucket_of_block(const weft_chunk_t *chunk, int index)
{
    int layer = chunk->model->slice.layer_first + index;
    return index >= 0 && index < chunk->model->slice.layer_count
               ? weft__layout_block(&chunk->zero.layout, chunk->model, layer)
               : -1;
}

static int bucket_of_end(const weft_chunk_t *chunk, weft_role_t role)
{
    return weft__layout_end(&chunk->zero.layout, chunk->model, role);
}

static weft_status_t need_end(weft_chunk_t *chunk, weft_role_t role, int next)
{
    int bucket = bucket_of_end(chunk, role);
    return bucket >= 0 ? weft__gather_need(&chunk->zero, bucket, next) : WEFT_OK;
}

static weft_status_t drop_end(weft_chunk_t *chunk, weft_role_t role)
{
    int bucket = bucket_of_end(chunk, role);
    return bucket >= 0 ? weft__gather_drop(&chunk->zero, bucket) : WEFT_OK;
}

static weft_status_t use_end(weft_chunk_t *chunk, weft_role_t role)
{
    int bucket = bucket_of_end(chunk, role);
    return bucket >= 0 ? weft__grads_use(&chunk->zero, bucket) : WEFT_OK;
}

/* The gradients that the head makes. */
static weft_status_t use_head(weft_chunk_t *chunk)
{
    WEFT_TRY(use_end(chunk, WEFT_FINAL_WEIGHT));
    return chunk->model->config.tied ? use_end(chunk, WEFT_TOKENS) : WEFT_OK;
}

/* ---- forward ------------------------------------------------------------------------------ */

static weft_status_t embed(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    WEFT_TRY(need_end(chunk, WEFT_POSITIONS, -1));
    WEFT_TRY(need_end(chunk, WEFT_TOKENS, bucket_of_block(chunk, 0)));
    WEFT_TRY(weft__tensor_embed(w->tensor, &chunk->pass, place->acts.tokens, place->acts.x));
    WEFT_TRY(drop_end(chunk, WEFT_POSITIONS));
    return drop_end(chunk, WEFT_TOKENS);
}

static weft_status_t head(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    const weft_acts_t *acts = &place->acts;
    weft_head_acts_t head = acts->head;
    const void *x = head.x;
    head.x = place->head_x != NULL ? place->head_x : head.x;
    WEFT_TRY(need_end(chunk, WEFT_FINAL_WEIGHT, -1));
    if (chunk->model->config.tied) {
        WEFT_TRY(need_end(chunk, WEFT_TOKENS, -1));
    }
    if (w->training) {
        WEFT_TRY(use_head(chunk));
    }
    WEFT_TRY(weft__tensor_head(w->tensor, &chunk->pass, &head, x, acts->targets));
    WEFT_TRY(drop_end(chunk, WEFT_FINAL_WEIGHT));
    return chunk->model->config.tied ? drop_end(chunk, WEFT_TOKENS) : WEFT_OK;
}

weft_status_t weft__chunk_forward(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    const weft_slice_t *slice = &chunk->model->slice;
    if (slice->embed) {
        WEFT_TRY(embed(w, chunk, place));
    }
    for (int i = 0; i < slice->layer_count; i++) {
        int bucket = bucket_of_block(chunk, i), next = bucket_of_block(chunk, i + 1);
        int after = next >= 0 ? next : bucket_of_end(chunk, WEFT_FINAL_WEIGHT);
        WEFT_TRY(weft__gather_need(&chunk->zero, bucket, after));
        WEFT_TRY(weft__tensor_block(w->tensor, &chunk->pass, slice->layer_first + i,
                                    &place->acts.blocks[i], place->acts.outs[i]));
        if (next != bucket) {
            WEFT_TRY(weft__gather_drop(&chunk->zero, bucket));
        }
    }
    return slice->head ? head(w, chunk, place) : WEFT_OK;
}

/* ---- backward ----------------------------------------------------------------------------- */

static weft_status_t head_backward(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    weft_head_acts_t head = place->acts.head;
    int last = chunk->model->slice.layer_count - 1;
    head.x = place->head_x != NULL ? place->head_x : head.x;
    WEFT_TRY(need_end(chunk, WEFT_FINAL_WEIGHT, bucket_of_block(chunk, last)));
    WEFT_TRY(use_head(chunk));
    WEFT_TRY(weft__tensor_head_backward(w->tensor, &chunk->pass, &head));
    return drop_end(chunk, WEFT_FINAL_WEIGHT);
}

static weft_status_t block_backward(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place,
                                    int index)
{
    const weft_block_acts_t *acts = &place->acts.blocks[index];
    int layer = chunk->model->slice.layer_first + index;
    if (chunk->keep == WEFT_KEEP_INPUTS) {
        WEFT_TRY(weft__tensor_block_again(w->tensor, &chunk->pass, layer, acts, w->spare));
    } else if (chunk->keep == WEFT_KEEP_NO_ATTENTION) {
        WEFT_TRY(weft__block_attention(&chunk->pass, layer, acts));
    }
    return weft__tensor_block_backward(w->tensor, &chunk->pass, layer, acts);
}

static weft_status_t embed_backward(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    WEFT_TRY(use_end(chunk, WEFT_POSITIONS));
    WEFT_TRY(use_end(chunk, WEFT_TOKENS));
    return weft__tensor_embed_backward(w->tensor, &chunk->pass, place->acts.tokens);
}

weft_status_t weft__chunk_backward(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    const weft_slice_t *slice = &chunk->model->slice;
    if (slice->head) {
        WEFT_TRY(head_backward(w, chunk, place));
    }
    for (int i = slice->layer_count - 1; i >= 0; i--) {
        int bucket = bucket_of_block(chunk, i), next = bucket_of_block(chunk, i - 1);
        WEFT_TRY(weft__gather_need(&chunk->zero, bucket, next));
        WEFT_TRY(weft__grads_use(&chunk->zero, bucket));
        WEFT_TRY(block_backward(w, chunk, place, i));
        if (next != bucket) {
            WEFT_TRY(weft__gather_drop(&chunk->zero, bucket));
        }
    }
    return slice->embed ? embed_backward(w, chunk, place) : WEFT_OK;
}
