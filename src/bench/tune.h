/* Finding the sizes at which one way of carrying out a call overtakes another, on GPUs. */
#ifndef WEFT_BENCH_TUNE_H
#define WEFT_BENCH_TUNE_H

#include "comm/comm.h"

/* Microseconds of a call with blocks of about `bytes`; called by all ranks, the same on all. */
typedef weft_status_t (*weft_tune_time_fn)(void *ctx, size_t bytes, double *us_p);

/* Time `coll` by every way that `comm` has, over sizes from 1 KiB to 64 MiB, and save where to change
 * (comm/cuda/tune.h). Rank 0 prints what was found. WEFT_ERR_UNSUPPORTED on virtual GPUs. */
weft_status_t weft__bench_tune(weft_comm_h comm, weft_coll_t coll, weft_tune_time_fn time,
                               void *ctx);

#endif
