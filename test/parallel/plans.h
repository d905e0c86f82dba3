/* Training of tiny models under plans, for tests: the numbers of a run, to be compared with those
 * of one rank that uses no part of src/parallel. */
#ifndef WEFT_TEST_PARALLEL_PLANS_H
#define WEFT_TEST_PARALLEL_PLANS_H

#include "comm/harness.h"
#include "parallel/worker.h"

enum { PLAN_STEPS = 20, PLAN_BATCH = 16, PLAN_LENGTH = 8 };

/* A model of 4 layers with sizes that divide by 8, and a vocabulary that divides by nothing. For
 * more stages there are deeper ones: 8 layers with PLAN_DEEP added, 16 with it added twice. */
typedef enum plan_model {
    PLAN_GPT2,
    PLAN_LLAMA,
    PLAN_LLAMA_TIED,
    PLAN_DROPOUT,
    PLAN_KINDS,
    PLAN_DEEP = PLAN_KINDS,
    PLAN_MODELS = 3 * PLAN_KINDS
} plan_model_t;

weft_model_config_t plan_config(plan_model_t model);

/* What a run did. */
typedef struct plan_numbers {
    double loss[PLAN_STEPS];
    double norm[PLAN_STEPS];
    uint64_t state; /* a checksum of weights and moments at the end */
} plan_numbers_t;

typedef struct plan_run {
    plan_model_t model;
    weft_plan_t plan;
    int steps;
    weft_dtype_t type, grad_type; /* 0 (f64) stands for f32 */
    size_t bucket_bytes;
    bool no_overlap;
    bool streamed; /* computes on a stream, as on a GPU, and not in the thread that queues */
    weft_compress_t compress;
} plan_run_t;

/* The tokens of step `step` that belong to sequences [first, first + count). */
void plan_tokens(const weft_model_config_t *config, int step, int64_t first, int64_t count,
                 int32_t *tokens, int32_t *targets);

/* Without src/parallel, by the caller alone. */
void plan_reference(plan_model_t model, int steps, plan_numbers_t *numbers);

/* The settings of AdamW in all runs. */
weft_hyper_t plan_hyper(int step);

/* By the ranks of `comm`; every rank gets the numbers, rank 0 the checksum. */
void plan_train(const plan_run_t *run, weft_comm_h comm, plan_numbers_t *numbers);

/* Options of a worker for a run. */
weft_worker_options_t plan_options(const plan_run_t *run);

/* Fail the test unless both agree: relative 1e-4. */
void plan_compare(const plan_run_t *run, const plan_numbers_t *numbers,
                  const plan_numbers_t *reference);

/* "gpt2 --dp 2 ...". Returns text. */
const char *plan_name(const plan_run_t *run, char *text, size_t room);

#endif
