/* One rank of a run: the model, its memory, and what a step needs. Internal to the loop; its files:
 *
 *   trainer.c   memory, and putting it all together
 *   weights.c   where weights come from: initial ones, a checkpoint; and that all ranks have them
 *   step.c      one step, validation
 *   vote.c      what ranks tell each other in every step
 *   save.c      checkpoints
 *   residuals.c what ranks keep of compressed gradients, in checkpoints
 *   planned.c   all of these with a worker (parallel/worker.h), where the plan asks for one
 *   ending.c    the end before the last step
 *   loop.c      what happens when */
#ifndef WEFT_TRAIN_TRAINER_H
#define WEFT_TRAIN_TRAINER_H

#include "parallel/dp.h"
#include "parallel/worker.h"
#include "train/feed.h"
#include "train/loop.h"
#include "train/metrics.h"

/* One under way, the one before that is being settled, and the end of the one before that. */
#define WEFT_FLIGHTS 3

/* A step that was queued, and what it will have left on the host when `end` has passed. */
typedef struct weft_flight {
    bool there;
    uint64_t step; /* 0 is the first of the whole run */
    double lr;
    double loss_scale; /* of this step: the state's may have changed since */
    weft_event_h start, end;
    float *losses;               /* of this rank's tokens, pinned */
    float *norm;                 /* 2 values as weft_clip_t gives them, pinned */
    weft_worker_result_t result; /* with a worker, in place of both */
} weft_flight_t;

/* What every rank tells all others after each step. Doubles only: it travels as such. */
typedef struct weft_vote {
    double loss;    /* sum over this rank's tokens */
    double norm;    /* of the gradient */
    double exposed; /* share of its step: communication that nothing hid */
    double run;     /* with a worker: seconds of forward and backward ... */
    double waited;  /* ... of which it waited for other pipeline stages */
    double tensor;  /* ... and for tensor-parallel ranks */
    double exchange,
        update;     /* seconds after them: for gradients; and all, norm and optimizer too */
    double memory;  /* peak bytes of the device */
    double stop;    /* the signal that asked it to end the run; 0: none did */
} weft_vote_t;

typedef struct weft_trainer {
    weft_setup_t *setup;
    const weft_train_config_t *config;
    weft_comm_h comm;
    int rank, size;
    const weft_compute_t *compute;
    weft_stream_h stream; /* of computation; NULL on virtual GPUs, where the caller computes */
    weft_stream_h side;   /* of votes, likewise */
    weft_trace_t *trace;
    weft_timeline_t *timeline;

    weft_model_t *model;
    weft_shape_t shape; /* of a micro-batch */
    weft_dp_t *dp;
    bool naive;
    int part, parts; /* which of the shares of a batch is this rank's */

    /* With a plan that is more than data parallel (planned.h) this has the model and its memory, and
     * what follows, down to `norm`, is not there. */
    weft_worker_t *worker;

    /* Rows of memory with dp's layout. */
    void *weights;
    float *master; /* NULL where weights are f32 */
    float *m, *v;
    void **params; /* by index, into weights */
    weft_run_t *runs;
    int run_count;

    void *acts_memory, *scratch_memory;
    weft_acts_t acts;
    weft_pass_t pass;
    float *norm;        /* as weft_clip_t */
    int32_t *scattered; /* naive: tokens from rank 0, and on rank 0 all of them behind */

    weft_vote_t *vote_memory;            /* on the device: this rank's, then everybody's */
    weft_vote_t *votes;                  /* on the host: everybody's of the last vote */
    weft_flight_t flights[WEFT_FLIGHTS]; /* in turn */
    weft_feed_t *feed;
    weft_train_state_t state;
    struct weft_residuals *residuals; /* of compressed gradients (residuals.h); NULL: none */
    bool took_residuals;              /* from the checkpoint that the run goes on from */
} weft_trainer_t;

/* Everything allocated, weights in place and equal on all ranks. Collective. */
weft_status_t weft__trainer_open(weft_setup_t *setup, weft_comm_h comm, weft_trace_t *trace,
                                 weft_trainer_t *trainer);
void weft__trainer_close(weft_trainer_t *trainer);

/* This rank's sequences of a step. */
int64_t weft__trainer_sequences(const weft_trainer_t *trainer);

/* Weights and optimizer state from the setup's checkpoint or the seed, on rank 0, then everywhere. */
weft_status_t weft__weights_start(weft_trainer_t *trainer);

/* Updates of the weights when `step`, the next one, is done: steps, less those that were skipped. */
static inline int64_t weft__trainer_updates(const weft_trainer_t *trainer, uint64_t step)
{
    return (int64_t)(step + 1 - trainer->state.skipped);
}

/* Queue step `step` (0, 1, ...) and describe it in *flight. */
weft_status_t weft__step_queue(weft_trainer_t *trainer, uint64_t step, weft_flight_t *flight);

/* Wait for it, and gather what all ranks have to say about it in trainer->votes. `stop`: what this
 * rank says, as in weft_vote_t. */
weft_status_t weft__step_settle(weft_trainer_t *trainer, weft_flight_t *flight, int stop);

/* The loss on validation data, over all ranks; NaN if there is none. Collective. */
weft_status_t weft__step_validate(weft_trainer_t *trainer, double *loss_p);

/* Samples [first, first + count) of the validation data; those from `end` on are tokens that count for
 * nothing. */
weft_status_t weft__step_samples(const weft_trainer_t *trainer, uint64_t first, uint64_t end,
                                 int64_t count, int32_t *inputs, int32_t *targets);

/* Tell everybody `mine`, and gather trainer->votes. Collective. */
weft_status_t weft__vote(weft_trainer_t *trainer, const weft_vote_t *mine);

/* Begin to write a checkpoint of trainer->state; `writer` is rank 0's. Collective. */
weft_status_t weft__save(weft_trainer_t *trainer, weft_checkpoint_writer_t *writer);

/* The tensors of a checkpoint, of which rank 0 reads those of the model first, then those of the optimizer. */
typedef struct weft_save_list {
    const weft_tensor_source_t *model, *optimizer;
    int model_count, optimizer_count;
} weft_save_list_t;

/* The same, of these tensors and the residuals, which are read last. Rank 0 only. */
weft_status_t weft__save_tensors(weft_trainer_t *trainer, weft_checkpoint_writer_t *writer,
                                 const weft_save_list_t *list);

/* Text of `count` tokens that follows `prompt`, malloced. Rank 0 only. */
weft_status_t weft__sample(weft_trainer_t *trainer, const char *prompt, int count, char **text_p);

#endif
