/* Patterns inside kernels, the host's side. */
#ifndef WEFT_BENCH_PATTERNS_GPU_H
#define WEFT_BENCH_PATTERNS_GPU_H

#include "bench/cuda/launch.h"
#include "bench/pair.h"
#include "comm/comm.h"
#include "device/cuda.h"

static inline const weft_cuda_bench_ops_t *weft__bench_kernels(void)
{
    static weft_cuda_table_t table = {.name = "weft_cuda_bench"};
    return weft__cuda_table(&table);
}

static inline int weft__bench_gpu(weft_comm_h comm)
{
    return weft__cuda_gpu(comm->device);
}

/* Before the first kernel that waits for another rank's: loading one may wait for an idle GPU.
 * Collective in effect: callers meet in weft_symm_malloc after it. */
static inline weft_status_t weft__bench_load(weft_comm_h comm)
{
    return weft__cuda_status(weft__bench_kernels()->load(weft__bench_gpu(comm)),
                             "kernels of patterns cannot be loaded");
}

#endif
