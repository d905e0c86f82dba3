/* One rank of a run: a worker (parallel/worker.h), and what a step needs besides. Internal to the
 * loop; its files:
 *
 *   trainer.c   putting it all together
 *   run_plan.c  the plan that the configuration asks for, and its memory
 *   weights.c   where weights come from: initial ones, a checkpoint
 *   step.c      one step, validation
 *   step_stats.c  what ranks tell each other in every step
 *   save.c      checkpoints
 *   residuals.c what ranks keep of compressed gradients, in checkpoints
 *   sample.c    text
 *   ending.c    the end before the last step
 *   loop.c      what happens when */
#ifndef WEFT_TRAIN_TRAINER_H
#define WEFT_TRAIN_TRAINER_H

#include "parallel/worker.h"
#include "train/feed.h"
#include "train/loop.h"
#include "train/metrics.h"

/* One under way, the one before that is being settled, and the end of the one before that. */
#define WEFT_INFLIGHT_STEPS 3

/* A step that was queued. */
typedef struct weft_inflight_step {
    bool there;
    uint64_t step; /* 0 is the first of the whole run */
    double lr;
    double data_s;     /* seconds in which the host waited for its tokens */
    double loss_scale; /* of this step: the state's may have changed since */
    weft_event_h start, end;
} weft_inflight_step_t;

/* What every rank tells all others after each step. Doubles only: it travels as such. */
typedef struct weft_step_stats {
    double loss; /* sum over the tokens that this rank answers for */
    double grad_norm;
    double exposed; /* share of its step: communication that nothing hid */
    double run;     /* seconds of forward and backward ... */
    double waited;  /* ... of which it waited for other pipeline stages */
    double tensor;  /* ... and for tensor-parallel ranks */
    double weights; /* ... and for weights under ZeRO */
    double exchange,
        update;    /* seconds after them: for gradients; and all, norm and optimizer too */
    double norm;   /* of that, sums over ranks that norm and update wait for */
    double data;   /* seconds before them: for tokens */
    double told;   /* ... and for these statistics of the step before, where nothing hid it */
    double step;   /* seconds from the end of the step before, or from its own start */
    double memory; /* peak bytes of the device */
    double stop;   /* the signal that asked it to end the run; 0: none did */
} weft_step_stats_t;

typedef struct weft_trainer {
    weft_setup_t *setup;
    const weft_train_config_t *config;
    weft_comm_h comm;
    int rank, size;
    const weft_compute_t *compute;
    weft_stream_h stream; /* of computation; NULL on virtual GPUs, where the caller computes */
    weft_stream_h side;   /* of step statistics, likewise */
    weft_trace_t *trace;
    weft_timeline_t *timeline;
    weft_worker_t *worker;

    weft_step_stats_t *stats_memory; /* on the device: this rank's, then everybody's */
    weft_step_stats_t *stats;        /* on the host: everybody's of the last step */
    double told_s;                   /* seconds that gathering them took, where nothing hid it */
    bool paused;                     /* something else happened since the last step: its time
                                      * starts anew; the loop's to set */
    weft_inflight_step_t inflight[WEFT_INFLIGHT_STEPS]; /* in turn */
    weft_feed_t *feed;
    weft_train_state_t state;
    struct weft_residuals *residuals; /* of compressed gradients (residuals.h); NULL: none */
    bool took_residuals;              /* from the checkpoint that the run goes on from */
} weft_trainer_t;

/* Everything allocated, weights in place and equal on all ranks. Collective. */
weft_status_t weft__trainer_open(weft_setup_t *setup, weft_comm_h comm, weft_trace_t *trace,
                                 weft_trainer_t *trainer);
void weft__trainer_close(weft_trainer_t *trainer);

/* Sequences of a step that this rank has: as many as its row of the mesh. */
int64_t weft__trainer_sequences(const weft_trainer_t *trainer);

/* Weights and optimizer state from the setup's checkpoint or the seed. Collective. */
weft_status_t weft__weights_start(weft_trainer_t *trainer);

/* Queue step `step` (0, 1, ...) and describe it in *queued. */
weft_status_t weft__step_queue(weft_trainer_t *trainer, uint64_t step,
                               weft_inflight_step_t *queued);

/* Wait for it, and gather what all ranks have to say about it in trainer->statistics. `stop`: what
 * this rank says, as in weft_step_stats_t. */
weft_status_t weft__step_settle(weft_trainer_t *trainer, weft_inflight_step_t *queued, int stop);

/* The loss on validation data, over all ranks; NaN if there is none. No step is under way.
 * Collective. */
weft_status_t weft__step_validate(weft_trainer_t *trainer, double *loss_p);

/* Tell everybody `mine`, and gather trainer->statistics. Collective. */
weft_status_t weft__step_stats_gather(weft_trainer_t *trainer, const weft_step_stats_t *mine);

/* Where the time of a step went, from the statistics on it. */
typedef struct weft_plan_times {
    double bubble; /* share of forward and backward in which ranks waited for other stages, */
    double
        uneven; /* and what it should be with stages as unlike as they were; NaN without stages */
    double tensor, exchange, update; /* seconds, as in weft_step_stats_t; mean over ranks */
} weft_plan_times_t;

void weft__step_stats_times(const weft_trainer_t *trainer, weft_plan_times_t *times_p);

/* Begin to write a checkpoint of trainer->state; `writer` is rank 0's. Collective. */
weft_status_t weft__save(weft_trainer_t *trainer, weft_checkpoint_writer_t *writer);

/* The text that --sample asks for, malloced, on rank 0. Where it could not be written, *text_p is
 * NULL, and weft_last_error says why. Collective. */
weft_status_t weft__sample(weft_trainer_t *trainer, char **text_p);

#endif
