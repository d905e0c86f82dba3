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

/* The mesh as a picture, and the memory of each rank: predicted, and beside it what was measured
 * (bytes by rank; NULL: nothing was yet). */
weft_status_t weft__planned_print(const weft_setup_t *setup, FILE *out, const double *measured);

weft_status_t weft__planned_open(weft_trainer_t *trainer);
weft_status_t weft__planned_start(weft_trainer_t *trainer);
weft_status_t weft__planned_queue(weft_trainer_t *trainer, const int32_t *inputs,
                                  const int32_t *targets, bool exact, weft_flight_t *flight);
weft_status_t weft__planned_validate(weft_trainer_t *trainer, uint64_t samples, double *sum_p);
weft_status_t weft__planned_save(weft_trainer_t *trainer, weft_checkpoint_writer_t *writer);
weft_status_t weft__planned_sample(weft_trainer_t *trainer, const char *prompt, int count,
                                   char **text_p);

/* The share of the last step in which ranks waited for other stages; by the formula *formula_p. */
double weft__planned_bubble(const weft_trainer_t *trainer, double *formula_p);

#endif
