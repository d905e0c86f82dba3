/* Pairs of training: the same model and the same batch in several ways. A round of a way is a step,
 * or as many steps as train as many tokens as one step of the others.
 *
 * A way is the text of a configuration of weft train, so what is compared is what a user can ask
 * for, run by the same code (train/benchmark.h). The model is small on virtual GPUs and larger on
 * real ones.
 *
 * Plans of pipelines and tensors take a power of two of the ranks, at most 8; further ranks have
 * nothing to do.
 *
 * check() trains some steps from the start in every way and on rank 0 alone, which no part of
 * parallelism has touched, on tokens and weights of a new seed, and compares the losses of all
 * steps: within a bound of those of one rank and, where ways must not even round differently, bit
 * for bit with the baseline's. */
#ifndef WEFT_BENCH_TRAIN_TRAIN_H
#define WEFT_BENCH_TRAIN_TRAIN_H

#include "bench/pair.h"

typedef enum weft_train_shape {
    WEFT_SHAPE_DATA,     /* all ranks are data-parallel */
    WEFT_SHAPE_PIPELINE, /* up to 4 stages */
    WEFT_SHAPE_TENSOR    /* up to 4 tensor-parallel ranks */
} weft_train_shape_t;

typedef struct weft_train_pair {
    weft_pair_t pair;
    weft_train_shape_t shape;
    bool exact;         /* all ways leave the same bits */
    bool memory;        /* memory is part of the comparison */
    const char *common; /* configuration of all ways: lines of name = value */
    struct {
        const char *options; /* of one, behind it */
        int steps;           /* of a round; 0: 1 */
    } ways[WEFT_PAIR_WAYS];
} weft_train_pair_t;

/* Data parallel. */
extern const weft_train_pair_t weft__pair_dp_feed;
extern const weft_train_pair_t weft__pair_dp_buckets;
extern const weft_train_pair_t weft__pair_dp_overlap;
extern const weft_train_pair_t weft__pair_dp_sync;
extern const weft_train_pair_t weft__pair_dp_batch;

/* Pipeline, tensor. */
extern const weft_train_pair_t weft__pair_pp_schedule;
extern const weft_train_pair_t weft__pair_tp_reduce;
extern const weft_train_pair_t weft__pair_tp_gather;
extern const weft_train_pair_t weft__pair_tp_sequence;

/* Memory. */
extern const weft_train_pair_t weft__pair_zero;
extern const weft_train_pair_t weft__pair_recompute;
extern const weft_train_pair_t weft__pair_offload;

/* What the pairs above are made of (run.c). */
weft_status_t weft__train_pair_open(weft_pair_run_t *run);
void weft__train_pair_close(weft_pair_run_t *run);
weft_status_t weft__train_pair_check(weft_pair_run_t *run, size_t *wrong_p);
weft_status_t weft__train_pair_way_0(weft_pair_run_t *run, int rounds);
weft_status_t weft__train_pair_way_1(weft_pair_run_t *run, int rounds);
weft_status_t weft__train_pair_way_2(weft_pair_run_t *run, int rounds);
weft_status_t weft__train_pair_way_3(weft_pair_run_t *run, int rounds);

#define WEFT_TRAIN_BOUND "1e-4 (in 16 bits 5e-3) of the losses of one rank"
#define WEFT_TRAIN_BOUND_EXACT WEFT_TRAIN_BOUND "; the same bits in all ways"

#endif
