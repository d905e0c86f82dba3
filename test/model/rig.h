/* A model with its memory, for tests: parameters, gradients, activations on the host's heap. */
#ifndef WEFT_TEST_MODEL_RIG_H
#define WEFT_TEST_MODEL_RIG_H

#include "model/model.h"

typedef struct rig {
    weft_model_t *model;
    const weft_compute_t *compute;
    weft_shape_t shape;
    void **params, **grads; /* by index */
    float **m, **v;         /* of AdamW; f32 models only */
    weft_acts_t acts;
    weft_pass_t pass;
    void *blocks[8]; /* what the above lies in */
    int block_count;
} rig_t;

typedef struct rig_options {
    weft_model_config_t config;
    weft_slice_t slice;           /* layer_count 0 and parts 0: the whole model */
    weft_dtype_t type, grad_type; /* 0 (f64) stands for f32 */
    weft_shape_t shape;
    bool spread; /* a gap between parameters, so that LLaMA's do not make one matrix */
} rig_options_t;

/* Ends the test with a message if something fails. Parameters and gradients are zero. */
void rig_open(rig_t *rig, const rig_options_t *options);
void rig_close(rig_t *rig);

/* Initial values of all parameters from a seed, scaled: with 1 as in training; larger ones make
 * gradients large enough to be compared. */
void rig_init(rig_t *rig, uint64_t seed, float scale);

void rig_zero_grads(rig_t *rig);

/* Random tokens and targets. */
void rig_tokens(rig_t *rig, uint64_t seed);

/* Forward (and backward, if the pass is training); the mean loss. */
double rig_run(rig_t *rig);

/* One step of AdamW on all parameters with clipping; returns the norm before clipping. */
float rig_step(rig_t *rig, int64_t step, const weft_adamw_t *settings, float max_norm);

/* Largest difference of two arrays, relative to the largest element of the second. */
double rig_apart(const float *a, const float *b, int64_t count);

/* Fail the test with this sentence and weft_last_error() unless OK. */
void rig_check(weft_status_t status, const char *what);

#endif
