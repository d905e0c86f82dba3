/* Tensor and sequence parallelism: the parts of a model (model.h) with communication between them.
 *
 * Matrices that widen (qkv, up) are cut by columns, those that narrow (proj, down) by rows, so a
 * branch of a block runs without communication and ends with partial sums:
 *
 *                 forward                backward                a block
 *   tensor        all-reduce of y        all-reduce of dh        2 + 2 calls
 *   sequence      all-gather of h,       all-gather of dy,       the same bytes; norms and
 *                 reduce-scatter of y    reduce-scatter of dh    residual stream are cut too
 *
 * In backward the sum of dh runs on a stream of its own while the gradients of the branch's
 * matrices are computed; an all-gather beside the product that needs it, which takes this part's
 * own rows first. The vocabulary is cut as well: each rank has the logits of its words, and ranks
 * exchange three numbers a token for the loss.
 *
 * With one part these functions are the model's own. */
#ifndef WEFT_PARALLEL_TENSOR_H
#define WEFT_PARALLEL_TENSOR_H

#include <weft/comm.h>

#include "model/model.h"
#include "parallel/memory.h"
#include "parallel/meter.h"

typedef struct weft_tensor weft_tensor_t;

typedef struct weft_tensor_options {
    int part, parts;
    bool sequence;
    weft_comm_h comm; /* NULL with a dry ledger */
    weft_stream_h stream;
    weft_meter_t *meter;
    size_t overlap_bytes; /* sums of at least this many bytes run beside other work, */
    size_t gather_bytes;  /* and all-gathers of this many */
    int64_t head_rows;    /* most rows whose logits exist at a time */
} weft_tensor_options_t;

weft_status_t weft__tensor_create(const weft_tensor_options_t *options, weft_ledger_t *ledger,
                                  weft_tensor_t **tensor_p);
void weft__tensor_destroy(weft_tensor_t *tensor);

/* Forward. x and out have norm_rows rows. With several parts the pass has row_bias on part 0 only,
 * and fuse_residual nowhere. */
weft_status_t weft__tensor_embed(weft_tensor_t *tensor, const weft_pass_t *pass,
                                 const int32_t *tokens, void *x);
weft_status_t weft__tensor_block(weft_tensor_t *tensor, const weft_pass_t *pass, int layer,
                                 const weft_block_acts_t *acts, void *out);
/* `x` has norm_rows rows; with sequence parallelism acts->x has all, and is filled. */
weft_status_t weft__tensor_head(weft_tensor_t *tensor, const weft_pass_t *pass,
                                const weft_head_acts_t *acts, const void *x,
                                const int32_t *targets);

/* Backward, as in model.h: the gradient of the residual stream is in scratch.dx, norm_rows rows. */
weft_status_t weft__tensor_head_backward(weft_tensor_t *tensor, const weft_pass_t *pass,
                                         const weft_head_acts_t *acts);
weft_status_t weft__tensor_block_backward(weft_tensor_t *tensor, const weft_pass_t *pass, int layer,
                                          const weft_block_acts_t *acts);
weft_status_t weft__tensor_embed_backward(weft_tensor_t *tensor, const weft_pass_t *pass,
                                          const int32_t *tokens);

/* What backward computes again: all activations of a block but its output, or attention's only.
 * `spare` is rows x width that may be overwritten. */
weft_status_t weft__tensor_block_again(weft_tensor_t *tensor, const weft_pass_t *pass, int layer,
                                       const weft_block_acts_t *acts, void *spare);

/* ---- vocabulary.c ------------------------------------------------------------------------- */

typedef struct weft_vocabulary weft_vocabulary_t;

weft_status_t weft__vocabulary_create(const weft_tensor_options_t *options, weft_ledger_t *ledger,
                                      weft_vocabulary_t **vocabulary_p);
void weft__vocabulary_destroy(weft_vocabulary_t *vocabulary);

/* As weft__head_loss, for a vocabulary that is cut. In training, acts->dh has this part's share. */
weft_status_t weft__vocabulary_loss(weft_vocabulary_t *vocabulary, const weft_pass_t *pass,
                                    const weft_head_acts_t *acts, const int32_t *targets);

#endif
