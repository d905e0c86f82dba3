/* Residuals of compressed gradients (parallel/compression.h) in checkpoints: residuals.safetensors.
 *
 * With --compress int8 every rank keeps what rounding has left so far, and adds it to the next
 * gradients. A run that goes on bit for bit needs it. Unlike weights and moments it belongs to a
 * plan: to as many ranks, and to gradients in the same order. A tensor's name says which:
 *
 *     stage-0-of-1.dp-1-of-2.tp-0-of-1.layout-5c01d9e2
 *
 * Under another plan, where not all ranks find theirs, all start from zero again, which costs the
 * rounding of one step. So do runs that go on from a checkpoint without the file: of another way of
 * compression, or of a version that left no residuals in the step before a checkpoint.
 *
 * Ranks send theirs to rank 0, which reads them as the last tensors of a checkpoint. */
#ifndef WEFT_TRAIN_RESIDUALS_H
#define WEFT_TRAIN_RESIDUALS_H

#include "train/trainer.h"

/* Those of all ranks. */
typedef struct weft_residuals {
    weft_trainer_t *trainer;
    struct weft_residual_row *rows; /* in the order of ranks */
    int count;
    weft_tensor_source_t *sources; /* rank 0: as many */
    float *piece;                  /* rank 0: room for one that nobody reads */
    int next;                      /* rank 0: the first row that is not all here, */
    int64_t at;                    /* and elements of it that are */
} weft_residuals_t;

/* Describe them in trainer->residuals, which stays NULL if there are none, so that saving needs no
 * memory of its own; and take those of the checkpoint that the run goes on from, if they are of
 * this plan. Collective. */
weft_status_t weft__residuals_open(weft_trainer_t *trainer);
void weft__residuals_close(weft_trainer_t *trainer);

/* Of a checkpoint: begin to read from `sources`, on rank 0. */
void weft__residuals_begin(weft_trainer_t *trainer);
/* End it. Other ranks send theirs; rank 0, which has read them from `sources`, takes what it has
 * not where a failure came first, so that none waits. `status` is what came of the checkpoint so
 * far; returns the first failure. */
weft_status_t weft__residuals_finish(weft_trainer_t *trainer, weft_status_t status);

#endif
