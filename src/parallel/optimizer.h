/* The update of one rank's weights: sums of gradients that are still open, norm, clipping, AdamW.
 *
 * The norm is the same number on all ranks, and the same bits under every stage of ZeRO: each piece
 * (pieces.h) has its sums of squares in a place of its own in one array, which ranks fill in where
 * they own the piece and leave zero elsewhere: beside backward (grads.c), or here where sums are
 * still open. The sum of all ranks' arrays is exact, since only one of them has something in each
 * place, and it is added up in one order.
 *
 * Offloaded, the moments and an f32 copy of the weights are in host memory, and the host's cores do
 * the update, segment by segment on two streams in turn: while one segment is computed, the
 * gradients of the next come and the weights of the one before go. */
#ifndef WEFT_PARALLEL_OPTIMIZER_H
#define WEFT_PARALLEL_OPTIMIZER_H

#include "parallel/mesh.h"
#include "parallel/zero.h"

typedef struct weft_hyper {
    float lr, beta1, beta2, eps, decay;
    float max_norm;   /* 0: no limit */
    float loss_scale; /* that gradients have; 0: 1 */
    int64_t step;     /* from 1 */
} weft_hyper_t;

static inline double weft__hyper_scale(const weft_hyper_t *hyper)
{
    return hyper->loss_scale > 0.0f ? (double)hyper->loss_scale : 1.0;
}

typedef struct weft_optimizer weft_optimizer_t;

/* For the `count` slices of this rank, which must outlive the optimizer. Collective over the mesh's
 * ranks, unless the ledger is dry (then the mesh has no communicators). */
weft_status_t weft__optimizer_create(weft_zero_t *const *zeros, int count, const weft_mesh_t *mesh,
                                     weft_ledger_t *ledger, weft_optimizer_t **optimizer_p);
void weft__optimizer_destroy(weft_optimizer_t *optimizer);

/* Start a step, before its first backward pass: there are no sums of squares yet. */
weft_status_t weft__optimizer_begin(weft_optimizer_t *optimizer);

/* Queue an update on the zeros' stream. Gradients have been exchanged over dp. */
weft_status_t weft__optimizer_run(weft_optimizer_t *optimizer, const weft_hyper_t *hyper);

/* Two values in device memory as weft_clip_t gives them: the norm, and the factor that was used. */
const float *weft__optimizer_norm(const weft_optimizer_t *optimizer);

/* AdamW of a whole piece that this rank owns, where its tensors are; `norm` as
 * weft__optimizer_norm. */
weft_adamw_t weft__optimizer_args(const weft_zero_t *zero, const weft_piece_t *piece,
                                  const weft_hyper_t *hyper, const float *norm);

/* ---- offload.c ---------------------------------------------------------------------------- */

typedef struct weft_offload weft_offload_t;

weft_status_t weft__offload_create(weft_zero_t *const *zeros, int count, weft_ledger_t *ledger,
                                   weft_offload_t **offload_p);
void weft__offload_destroy(weft_offload_t *offload);

/* Queue the update of all pieces that this rank owns; `norm` is in device memory. The zeros' stream
 * goes on when the new weights are there. */
weft_status_t weft__offload_run(weft_offload_t *offload, const weft_hyper_t *hyper,
                                const float *norm);

#endif
