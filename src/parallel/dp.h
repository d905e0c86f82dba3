/* Data parallelism: every rank has the whole model and a part of the batch; gradients are summed.
 *
 * Gradients live in buckets (layout.h). When backward has completed the last gradient of a bucket,
 * the bucket's all-reduce is queued on a stream of its own, behind an event of the compute stream,
 * and runs while backward goes on:
 *
 *     compute   forward | backward: head, block L-1 | block L-2 | ... | embedding | wait | optimizer
 *     comm                                 | bucket 0 | bucket 1 | ...         | last |
 *
 * One step of several micro-batches:
 *
 *     weft__dp_begin(dp, step)
 *     for each micro-batch:
 *         weft__dp_micro(dp, last)                 only the last one exchanges
 *         weft__model_backward(pass, acts)         pass.grads and pass.grad_ready are dp's
 *     weft__dp_finish(dp)                          the stream goes on when all sums are there
 *
 * Gradients are summed, not averaged: with the same loss_scale on all ranks, 1 / tokens of the whole
 * batch, the sum is the mean, and no pass over memory is spent on a division. All ranks get the same
 * bits, so their optimizers stay together without ever comparing.
 *
 * Baselines to compare with: without overlap (all buckets after backward, on the compute stream);
 * without buckets (a bucket limit of 0: a call per tensor); and `naive`, the way of one process that
 * feeds all devices: rank 0 collects the gradients, has the only optimizer, and hands out weights in
 * every step. */
#ifndef WEFT_PARALLEL_DP_H
#define WEFT_PARALLEL_DP_H

#include <weft/comm.h>
#include <weft/device.h>

#include "parallel/layout.h"
#include "parallel/squeeze.h"
#include "parallel/timeline.h"

typedef struct weft_dp weft_dp_t;

typedef struct weft_dp_options {
    size_t bucket_bytes; /* 0: a bucket per tensor */
    bool overlap;
    bool naive;
    bool fresh; /* the first micro-batch of a step is a fresh pass (model.h) */
    weft_compress_t compress;

    /* For those who keep gradients themselves (ZeRO). With a layout, dp makes none of its own;
     * `memory` has that layout, or is NULL where gradients are not in one piece. `exchange` takes
     * the place of the sum over all ranks: it is called for each bucket in turn, when the bucket's
     * gradients are complete, and queues what is to be done with them on `lane`. Squares are then
     * not summed. */
    const weft_layout_t *layout;
    float *memory;
    weft_status_t (*exchange)(void *arg, int bucket, weft_stream_h lane);
    void *exchange_arg;
    const char *exchange_name; /* in traces; NULL: that of dp's own */
} weft_dp_options_t;

/* Describe buckets and allocate the gradients of `model` (f32) on the current device. `stream` is
 * where backward runs; the model, the communicator and the timeline (may be NULL) must outlive dp.
 * Collective only in that all ranks must use it alike. */
weft_status_t weft__dp_create(const weft_model_t *model, const weft_compute_t *compute,
                              weft_comm_h comm, const weft_dp_options_t *options,
                              weft_stream_h stream, weft_timeline_t *timeline, weft_dp_t **dp_p);
void weft__dp_destroy(weft_dp_t *dp);

const weft_layout_t *weft__dp_layout(const weft_dp_t *dp);
float *weft__dp_memory(const weft_dp_t *dp);      /* all gradients, layout.total elements */
void *const *weft__dp_grads(const weft_dp_t *dp); /* by parameter, for weft_pass_t.grads */

/* Sums of squares of the exchanged gradients, layout.total / WEFT_SUMSQ_CHUNK of them, there when the
 * stream has passed weft__dp_finish: made bucket by bucket, while each is still in the cache. */
const double *weft__dp_squares(const weft_dp_t *dp);

/* Residuals of compressed gradients, as weft__squeeze_residuals has them; complete between steps. */
float *weft__dp_residuals(const weft_dp_t *dp, int64_t *count_p);

/* Start a step: gradients become 0, where they are added to. `step` counts up by one. */
weft_status_t weft__dp_begin(weft_dp_t *dp, int64_t step);

/* Start a micro-batch; `last`: its backward completes the gradients. With an `exchange` of one's own
 * there may be several such in a step. */
void weft__dp_micro(weft_dp_t *dp, bool last);

/* For weft_pass_t.grad_ready, with dp as its argument. */
void weft__dp_ready(void *dp, int first, int count);

/* Let the compute stream wait for all sums. Errors of calls that failed meanwhile, a rank that died
 * among them. */
weft_status_t weft__dp_finish(weft_dp_t *dp);

/* Seconds that the compute stream has waited for the exchange of `step`, the present one or the one
 * before, and for weights that are handed out: communication that nothing hid. Call it when that step is done; 0 before. */
double weft__dp_exposed(const weft_dp_t *dp, int64_t step);

/* Is this rank the one that updates weights? All are, but naive. */
bool weft__dp_updates(const weft_dp_t *dp);

/* Naive: hand rank 0's weights (all of the layout, elements of `type`) to all. */
weft_status_t weft__dp_hand_out(weft_dp_t *dp, void *weights, weft_dtype_t type);

/* Bytes of device memory that create takes, and of these the residuals'. */
weft_status_t weft__dp_bytes(const weft_model_t *model, const weft_dp_options_t *options, int ranks,
                             size_t *bytes_p);
weft_status_t weft__dp_residual_bytes(const weft_model_t *model, const weft_dp_options_t *options,
                                      int ranks, size_t *bytes_p);

#endif
