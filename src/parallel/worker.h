/* A worker: one rank's share of training under a plan.
 *
 * It owns the rank's slices of the model with their weights, gradients, optimizer state and
 * activations, and runs steps: all micro-batches through the pipeline, exchange of gradients, norm,
 * update. What the plan is makes no difference to the caller:
 *
 *     weft__worker_create(&options, comm, compute, &worker)
 *     weft__worker_start(worker, seed)              or weft__worker_load(worker, read, arg)
 *     for each step:
 *         weft__worker_queue(worker, &input)        queues; on virtual GPUs it also computes
 *         weft__worker_settle(worker, &result)      waits, and tells how the oldest one went
 *     weft__worker_gather(worker, ...)              whole tensors for a checkpoint
 *     weft__worker_destroy(worker)
 *
 * Everything is collective over `comm`: all ranks call the same in the same order. After a failure
 * the worker can only be destroyed, which aborts its communicators, so that ranks that wait for
 * this one learn of it; `comm` itself is the caller's to abort. */
#ifndef WEFT_PARALLEL_WORKER_H
#define WEFT_PARALLEL_WORKER_H

#include <weft/comm.h>

#include "parallel/memory.h"
#include "parallel/mesh.h"
#include "parallel/optimizer.h"
#include "parallel/plan.h"
#include "parallel/timeline.h"
#include "parallel/zero.h"

typedef struct weft_worker weft_worker_t;

typedef struct weft_worker_options {
    weft_plan_t plan; /* checked by the caller (weft__plan_check) */
    weft_model_config_t model;
    weft_dtype_t type;         /* of weights and activations: f32, bf16 or f16 */
    weft_dtype_t grad_type;    /* of gradients: f32, or `type`: less memory, sums are rounded */
    int vocab_multiple;        /* as in weft_slice_t */
    size_t bucket_bytes;       /* of gradients that are exchanged at once; 0: see zero.h */
    bool overlap;              /* communication runs beside computation */
    size_t overlap_bytes;      /* ... sums of activations from this size on */
    size_t gather_bytes;       /* ... all-gathers of them, beside the product that needs them */
    weft_compress_t compress;  /* of gradients on their way over dp; grad_type is f32 then */
    bool naive;                /* for comparison: rank 0 does it all (naive.c); plain dp only */
    uint64_t seed;             /* of dropout */
    weft_stream_h stream;      /* of computation; NULL: the caller's thread, on virtual GPUs */
    weft_timeline_t *timeline; /* or NULL */
} weft_worker_options_t;

#define WEFT_WORKER_OVERLAP_BYTES ((size_t)128 << 10)

weft_status_t weft__worker_create(const weft_worker_options_t *options, weft_comm_h comm,
                                  const weft_compute_t *compute, weft_worker_t **worker_p);
void weft__worker_destroy(weft_worker_t *worker);

/* Initial weights from `seed`: the same under every plan. Moments are zero. Data-parallel ranks
 * compare what they have. */
weft_status_t weft__worker_start(weft_worker_t *worker, uint64_t seed);

/* ---- steps -------------------------------------------------------------------------------- */

typedef struct weft_worker_input {
    uint64_t step;      /* 0, 1, ... */
    weft_hyper_t hyper; /* its step counts from 1 */
    /* Of this data-parallel rank's sequences: micro_batches x micro_batch x length, in host memory
     * that lives until settle. */
    const int32_t *tokens, *targets;
} weft_worker_input_t;

typedef struct weft_worker_result {
    double loss_sum; /* over tokens that this rank answers for; all ranks' sums make the batch's */
    double norm;     /* of the gradient of the whole model, before clipping */
    bool finite;     /* it was a number; if not, nothing was updated */
    double run_s;    /* forward and backward of all micro-batches, waits included */
    double pipeline_s; /* of that, waiting for other stages: the bubble */
    double tensor_s;   /* of that, communication between tensor-parallel ranks that nothing hid */
    double weights_s;  /* of that, waiting for weights under ZeRO */
    double exchange_s; /* waiting for gradients that nothing hid, after backward */
    double norm_s;     /* sums over ranks that norm and update wait for, after backward */
    double update_s;   /* all that came after backward */
} weft_worker_result_t;

/* At most two steps are under way: the host may queue one before it settles the one before. */
weft_status_t weft__worker_queue(weft_worker_t *worker, const weft_worker_input_t *input);
weft_status_t weft__worker_settle(weft_worker_t *worker, weft_worker_result_t *result_p);

/* The sum of losses without training, as weft_worker_result_t.loss_sum. No step is under way. */
weft_status_t weft__worker_evaluate(weft_worker_t *worker, const int32_t *tokens,
                                    const int32_t *targets, double *loss_sum_p);

/* ---- what there is ------------------------------------------------------------------------ */

const weft_mesh_t *weft__worker_mesh(const weft_worker_t *worker);

/* The whole model's parameters, in the order of checkpoints. */
const weft_model_t *weft__worker_whole(const weft_worker_t *worker);

/* This rank's slice and its weights on the device, if that is the whole model and they are all
 * here; NULL otherwise, on all ranks alike. Until the next step. */
void *const *weft__worker_params(weft_worker_t *worker, const weft_model_t **model_p);

/* What was allocated. */
const weft_ledger_t *weft__worker_ledger(const weft_worker_t *worker);

/* What a rank at this place of the mesh would allocate. */
weft_status_t weft__worker_predict(const weft_worker_options_t *options,
                                   const weft_compute_t *compute, int place,
                                   weft_ledger_t *ledger_p);

/* This rank's slices of the model, and residuals of compressed gradients of one of them, as
 * weft__compression_residuals has them, with the layout whose order they have; between steps. */
int weft__worker_chunks(const weft_worker_t *worker);
float *weft__worker_residuals(const weft_worker_t *worker, int chunk,
                              const weft_layout_t **layout_p, int64_t *count_p);

/* Bytes of them on all ranks; ranks of a stage count as alike. */
weft_status_t weft__worker_residual_bytes(const weft_worker_options_t *options, uint64_t *bytes_p);

/* ---- state without a plan ----------------------------------------------------------------- */

/* Parameter `param` of the whole model, f32, into `whole` on rank 0 (NULL elsewhere), in host
 * memory. */
weft_status_t weft__worker_gather(weft_worker_t *worker, int param, weft_state_kind_t what,
                                  float *whole);

/* Read a whole tensor, f32; `param` is of the whole model. */
typedef weft_status_t (*weft_read_fn)(void *arg, const weft_param_t *param, weft_state_kind_t what,
                                      float *whole);

/* Fill this rank's state from whole tensors; `moments`: m and v as well, else they become zero.
 * Each rank reads only what it has a part of. Data-parallel ranks compare their weights. */
weft_status_t weft__worker_load(weft_worker_t *worker, weft_read_fn read, void *arg, bool moments);

#endif
