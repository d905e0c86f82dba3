/* Inside a worker. Its files:
 *
 *   worker.c         what it is made of
 *   worker_step.c    a step: run, exchange, update; validation
 *   worker_run.c     micro-batches through the pipeline, in the order of the schedule
 *   worker_pass.c    one micro-batch through one slice, forward and backward
 *   worker_state.c   initial weights, whole tensors */
#ifndef WEFT_PARALLEL_WORKER_PARTS_H
#define WEFT_PARALLEL_WORKER_PARTS_H

#include "parallel/meter.h"
#include "parallel/pipeline.h"
#include "parallel/schedule.h"
#include "parallel/tensor.h"
#include "parallel/worker.h"

enum { DX_MOST = 3, STEPS_MOST = 2 };

/* Room for the activations of one micro-batch. */
typedef struct weft_act_slot {
    int micro; /* -1: free */
    char *memory;
    void *head_x; /* all rows of the head's input, where rows are cut */
    weft_acts_t acts;
    weft_event_h arrived, sent, freed;
} weft_act_slot_t;

/* One of the rank's slices. */
typedef struct weft_chunk {
    weft_model_t *model;
    bool first, last; /* of the whole pipeline */
    weft_zero_t zero;
    weft_pass_t pass;
    weft_keep_t keep;
    int place_count;
    weft_act_slot_t *places;
    int forwards, backwards; /* done in this step */
} weft_chunk_t;

/* A gradient of the residual stream on its way through a slice. */
typedef struct weft_dx {
    void *memory;
    weft_event_h arrived, sent;
} weft_dx_t;

/* What a step will have left on the host when `end` has passed. */
typedef struct weft_outcome {
    float *losses; /* of all micro-batches */
    float *norm;   /* 2 */
    weft_event_h end;
} weft_outcome_t;

struct weft_worker {
    weft_worker_options_t o;
    const weft_compute_t *compute;
    weft_mesh_t mesh;
    bool failed;
    weft_ledger_t ledger;
    weft_meter_t meter;
    weft_model_t *whole; /* descriptions: of everything, and of everything in tp parts */
    weft_model_t *cut;
    weft_shape_t shape;
    weft_tensor_t *tensor;
    weft_pipeline_t pipeline;

    int chunk_count;
    weft_chunk_t *chunks;
    weft_zero_t **zeros;
    weft_optimizer_t *optimizer;

    char *again; /* activations that are computed again */
    void *spare;
    char *scratch;
    weft_dx_t dx[DX_MOST];
    int dx_count;

    int train_count, eval_count;
    weft_action_t *train_ops, *eval_ops;

    uint64_t queued, settled; /* steps; of those between, each has one of the outcomes, in turn */
    weft_outcome_t outcomes[STEPS_MOST];

    /* The step that is being queued. */
    const weft_action_t *ops;
    int op_count, prepared;
    int64_t forwards, backwards; /* begun and prepared, for the rings */
    const int32_t *tokens, *targets;
    bool training;
    float loss_scale; /* of the step, over the tokens of its batch */
    uint64_t step;
    float *losses; /* its outcome's */
};

/* One micro-batch through one slice. Forward leaves its result in the last of place->acts.outs, or
 * losses; backward takes and leaves chunk->pass.scratch.dx. */
weft_status_t weft__chunk_forward(weft_worker_t *worker, weft_chunk_t *chunk,
                                  weft_act_slot_t *place);
weft_status_t weft__chunk_backward(weft_worker_t *worker, weft_chunk_t *chunk,
                                   weft_act_slot_t *place);

/* All micro-batches; then, in training, gradients are complete and exchanged. */
weft_status_t weft__worker_run(weft_worker_t *worker, bool training);

/* The virtual stage that chunk `chunk` of pipeline rank `rank` is. */
static inline int weft__stage_of(const weft_plan_t *plan, int rank, int chunk)
{
    return chunk * plan->pp + rank;
}

/* How the state of any slice is kept; what depends on the rank is left open. */
weft_zero_options_t weft__worker_store(const weft_worker_options_t *options);

weft_slice_t weft__stage_slice(const weft_worker_options_t *options, int stage, int part);

#endif
