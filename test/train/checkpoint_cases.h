/* A small model to save and compare, a function of its step. */
#ifndef WEFT_TEST_TRAIN_CHECKPOINT_CASES_H
#define WEFT_TEST_TRAIN_CHECKPOINT_CASES_H

#include <stdbool.h>

#include "train/checkpoint.h"

typedef struct small_run {
    weft_checkpoint_t checkpoint;
    weft_tensor_source_t model[3], optimizer[4], residuals[2];
    float *weights, *moments;
    uint16_t halves[33];
    size_t count; /* of weights and moments */
} small_run_t;

/* `count` numbers in the larger tensors. */
void small_run_init(small_run_t *run, size_t count);

/* Make everything what it is after `step` steps. */
void small_run_set(small_run_t *run, uint64_t step);
void small_run_free(small_run_t *run);

/* Is what was loaded the run at its step? Says what differs. */
bool small_run_same(small_run_t *run, const weft_loaded_t *loaded);

#endif
