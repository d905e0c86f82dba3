/* Symmetric heaps on GPUs, the host's side. */
#ifndef WEFT_SYMM_CUDA_CUDA_H
#define WEFT_SYMM_CUDA_CUDA_H

#include "comm/reach.h"
#include "device/cuda.h"
#include "symm/cuda/launch.h"
#include "symm/symm.h"

typedef struct weft_symm_gpu {
    weft_symm_view_t view;
    weft_symm_report_t *report; /* pinned */
    uint64_t *word; /* pinned: what an atomic in the calling thread found; under `lock` */
    pthread_mutex_t lock;
    weft_reach_observer_t observer;
    weft_reach_gpu_t on;
    _Atomic bool
        told; /* the report was turned into an error; relaxed, whoever comes second is idle */
} weft_symm_gpu_t;

/* Kernels on heaps. */
static inline const weft_cuda_symm_ops_t *weft__symm_kernels(void)
{
    static weft_cuda_table_t table = {.name = "weft_cuda_symm"};
    return weft__cuda_table(&table);
}

/* CUDA's number of the GPU that a heap is on. */
static inline int weft__symm_on(const struct weft_symm *symm)
{
    return ((const weft_symm_gpu_t *)symm->kind)->on.gpu;
}

/* The launch on `stream` gave `error`. If it did not fail: wait for it where the stream is NULL. Of
 * a kernel that `waits` for others ask whether it did so in vain: now, or when the stream is waited
 * for. */
weft_status_t weft__symm_launched(weft_symm_h symm, int error, bool waits, weft_stream_h stream);

/* Can kernels read and write it? Not what malloc gave, on most machines. */
bool weft__symm_reachable(const void *ptr);

/* The CUDA stream of a call, and whether it exists. */
weft_status_t weft__symm_stream(weft_symm_h symm, weft_stream_h stream, bool waits,
                                void **native_p);

#endif
