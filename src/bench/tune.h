/* Finding the sizes at which one way of carrying out a call overtakes another, on GPUs. */
#ifndef WEFT_BENCH_TUNE_H
#define WEFT_BENCH_TUNE_H

#include "comm/comm.h"

/* Time `coll` by every way that `comm` has, over sizes from 1 KiB to 64 MiB, and save where to
 * change. Rank 0 prints what was found. WEFT_ERR_UNSUPPORTED on virtual GPUs. */
weft_status_t weft__bench_tune(weft_comm_h comm, weft_coll_t coll, weft_tune_time_fn time,
                               void *arg);

#endif
