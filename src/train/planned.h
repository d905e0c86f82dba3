/* Runs whose plan is more than data parallel: what the loop does with a worker (parallel/worker.h) in
 * place of memory of its own. The functions do what their namesakes in trainer.h do; all of them are
 * collective, saving and sampling too. */
#ifndef WEFT_TRAIN_PLANNED_H
#define WEFT_TRAIN_PLANNED_H

#include "train/trainer.h"

/* The plan that a resolved configuration asks for, and whether it needs a worker. */
weft_plan_t weft__planned_plan(const weft_train_config_t *config);
bool weft__planned(const weft_train_config_t *config);

/* WEFT_ERR_INVALID with the reason and the nearest plan, if it cannot work. */
weft_status_t weft__planned_check(const weft_setup_t *setup);

/* Add to the sentence of `status`, why ranks cannot be arranged as asked for, how they can. */
weft_status_t weft__planned_suggest(const weft_setup_t *setup, weft_status_t status);

/* Before a run: the mesh as a picture, and the memory that each rank is going to need. */
weft_status_t weft__planned_print(const weft_setup_t *setup, FILE *out);

/* The same as numbers: device memory of all ranks and of the one that needs most, and what all have on
 * the host. Ranks of a stage count as alike. */
weft_status_t weft__planned_bytes(const weft_setup_t *setup, uint64_t *all_p, uint64_t *most_p,
                                  uint64_t *host_p);

/* Residuals of compressed gradients of all ranks, likewise. */
weft_status_t weft__planned_residuals(const weft_setup_t *setup, uint64_t *bytes_p);

/* After it, with a worker: what each rank was predicted to need, and what was measured (bytes, by rank). */
weft_status_t weft__planned_print_memory(const weft_trainer_t *trainer, FILE *out,
                                         const double *measured);

weft_status_t weft__planned_open(weft_trainer_t *trainer);
weft_status_t weft__planned_start(weft_trainer_t *trainer);
weft_status_t weft__planned_queue(weft_trainer_t *trainer, const int32_t *inputs,
                                  const int32_t *targets, weft_flight_t *flight);
weft_status_t weft__planned_validate(weft_trainer_t *trainer, uint64_t samples, double *sum_p);
weft_status_t weft__planned_save(weft_trainer_t *trainer, weft_checkpoint_writer_t *writer);
weft_status_t weft__planned_sample(weft_trainer_t *trainer, const char *prompt, int count,
                                   char **text_p);

/* Where the time of a step went, from the votes on it. */
typedef struct weft_plan_times {
    double bubble; /* share of forward and backward in which ranks waited for other stages, */
    double uneven; /* and what it should be with stages as unlike as they were */
    double tensor, exchange, update; /* seconds, as in weft_vote_t; mean over ranks */
} weft_plan_times_t;

void weft__planned_times(const weft_trainer_t *trainer, weft_plan_times_t *times_p);

#endif
