/* The pairs of training, as configurations. */
#include "bench/train/train.h"

#define COMMON                                                                                     \
    .open = weft__train_pair_open, .close = weft__train_pair_close,                                \
    .check = weft__train_pair_check, .gpu = true

/* ---- data parallel ------------------------------------------------------------------------ */

const weft_train_pair_t weft__pair_dp_feed = {
    .pair = {.target = "dp-feed",
             .group = "data parallel",
             .text = "a step; one process collects all gradients and hands out all weights, or all "
                     "sum buckets",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"one feeds all", weft__train_pair_way_0},
                      {"buckets", weft__train_pair_way_1}},
             COMMON},
    .common = "micro-batch = 2",
    .ways = {{"dp-style = naive", 0}, {"dp-style = buckets", 0}}};

const weft_train_pair_t weft__pair_dp_buckets = {
    .pair = {.target = "dp-buckets",
             .group = "data parallel",
             .text = "a step; each gradient is summed by itself, or in buckets",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"by tensor", weft__train_pair_way_0}, {"buckets", weft__train_pair_way_1}},
             COMMON},
    .common = "micro-batch = 2",
    .ways = {{"bucket = 0", 0}, {"bucket = 25M", 0}}};

const weft_train_pair_t weft__pair_dp_overlap = {
    .pair = {.target = "dp-overlap",
             .group = "data parallel",
             .text = "a step; gradients are summed after the backward pass, or beside it",
             .bound = WEFT_TRAIN_BOUND_EXACT,
             .ranks = 2,
             .ways = {{"after backward", weft__train_pair_way_0},
                      {"overlapped", weft__train_pair_way_1}},
             COMMON},
    .exact = true,
    .common = "micro-batch = 4\nbucket = 256K",
    .ways = {{"overlap = no", 0}, {"overlap = yes", 0}}};

const weft_train_pair_t weft__pair_dp_sync = {
    .pair = {.target = "dp-sync",
             .group = "data parallel",
             .text = "a step of 4 micro-batches under ZeRO 2; gradients are exchanged after each "
                     "of them, or once",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"every micro-batch", weft__train_pair_way_0},
                      {"once", weft__train_pair_way_1}},
             COMMON},
    .memory = true,
    .common = "zero = 2\nbucket = 256K\nmicro-batch = 1\naccumulate = 4",
    .ways = {{"lean = yes", 0}, {"lean = no", 0}}};

const weft_train_pair_t weft__pair_dp_batch = {
    .pair = {.target = "dp-batch",
             .group = "data parallel",
             .text = "4 micro-batches of one sequence; as many steps, or added up to one",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"4 small steps", weft__train_pair_way_0},
                      {"accumulated", weft__train_pair_way_1}},
             COMMON},
    .common = "micro-batch = 1",
    .ways = {{"accumulate = 1", 4}, {"accumulate = 4", 1}}};

/* ---- pipeline, tensor --------------------------------------------------------------------- */

const weft_train_pair_t weft__pair_pp_schedule = {
    .pair = {.target = "pp-schedule",
             .group = "pipeline, tensor",
             .text = "a step of 8 micro-batches through up to 4 stages, by schedule",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"gpipe", weft__train_pair_way_0},
                      {"1f1b", weft__train_pair_way_1},
                      {"interleaved", weft__train_pair_way_2}},
             COMMON},
    .shape = WEFT_SHAPE_PIPELINE,
    .memory = true,
    .common = "micro-batch = 2\naccumulate = 8",
    .ways = {{"schedule = gpipe", 0}, {"schedule = 1f1b", 0}, {"schedule = interleaved", 0}}};

const weft_train_pair_t weft__pair_tp_reduce = {
    .pair = {.target = "tp-reduce",
             .group = "pipeline, tensor",
             .text = "a step of up to 4 tensor-parallel ranks; sums of activations block, or run "
                     "beside products",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"blocking", weft__train_pair_way_0}, {"overlapped", weft__train_pair_way_1}},
             COMMON},
    .shape = WEFT_SHAPE_TENSOR,
    .common = "micro-batch = 16",
    .ways = {{"overlap = no", 0}, {"overlap = yes", 0}}};

const weft_train_pair_t weft__pair_tp_gather = {
    .pair = {.target = "tp-gather",
             .group = "pipeline, tensor",
             .text = "a step with sequence parallelism; products wait for gathered rows, or run "
                     "beside the gathering",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"gather, product", weft__train_pair_way_0},
                      {"overlapped", weft__train_pair_way_1}},
             COMMON},
    .shape = WEFT_SHAPE_TENSOR,
    .common = "micro-batch = 16\nsequence-parallel = yes",
    .ways = {{"overlap = no", 0}, {"overlap = yes", 0}}};

const weft_train_pair_t weft__pair_tp_sequence = {
    .pair = {.target = "tp-sequence",
             .group = "pipeline, tensor",
             .text = "a step of up to 4 tensor-parallel ranks; norms and residuals on all of them, "
                     "or cut by rows",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 2,
             .ways = {{"tensor", weft__train_pair_way_0}, {"+ sequence", weft__train_pair_way_1}},
             COMMON},
    .shape = WEFT_SHAPE_TENSOR,
    .memory = true,
    .common = "micro-batch = 16",
    .ways = {{"sequence-parallel = no", 0}, {"sequence-parallel = yes", 0}}};

/* ---- memory ------------------------------------------------------------------------------- */

const weft_train_pair_t weft__pair_zero = {
    .pair = {.target = "zero",
             .group = "memory",
             .text = "a step; optimizer, gradients and weights everywhere, or spread one after the "
                     "other",
             .bound = WEFT_TRAIN_BOUND_EXACT,
             .ranks = 2,
             .ways = {{"ZeRO 0", weft__train_pair_way_0},
                      {"ZeRO 1", weft__train_pair_way_1},
                      {"ZeRO 2", weft__train_pair_way_2},
                      {"ZeRO 3", weft__train_pair_way_3}},
             COMMON},
    .exact = true,
    .memory = true,
    .common = "micro-batch = 2\nbucket = 256K",
    .ways = {{"zero = 0", 0}, {"zero = 1", 0}, {"zero = 2", 0}, {"zero = 3", 0}}};

const weft_train_pair_t weft__pair_recompute = {
    .pair = {.target = "recompute",
             .group = "memory",
             .text = "a step; backward reads what forward kept, or computes attention or all of a "
                     "block again",
             .bound = WEFT_TRAIN_BOUND_EXACT,
             .ranks = 1,
             .ways = {{"none", weft__train_pair_way_0},
                      {"selective", weft__train_pair_way_1},
                      {"full", weft__train_pair_way_2}},
             COMMON},
    .exact = true,
    .memory = true,
    .common = "micro-batch = 4",
    .ways = {{"recompute = none", 0}, {"recompute = selective", 0}, {"recompute = full", 0}}};

const weft_train_pair_t weft__pair_offload = {
    .pair = {.target = "offload",
             .group = "memory",
             .text = "a step; the optimizer's state is on the device, or on the host and updated "
                     "there",
             .bound = WEFT_TRAIN_BOUND,
             .ranks = 1,
             .ways = {{"on device", weft__train_pair_way_0}, {"offloaded", weft__train_pair_way_1}},
             COMMON},
    .memory = true,
    .common = "micro-batch = 2",
    .ways = {{"offload = none", 0}, {"offload = optimizer", 0}}};
