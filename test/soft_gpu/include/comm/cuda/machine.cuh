/* What stands in for src/comm/cuda/machine.cuh: the same, on a CPU. Words are written and read
 * whole, and who polls in vain lets other threads of its block go on. */
#ifndef WEFT_COMM_CUDA_MACHINE_CUH
#define WEFT_COMM_CUDA_MACHINE_CUH

#include <cuda_runtime.h>
#include <ctime>

#include "comm/cuda/launch.h"
#include "soft_gpu/device.h"

typedef weft_cuda_world_t world_t;

/* ---- words ------------------------------------------------------------------------------ */

static inline uint64_t load64(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static inline void store64(uint64_t *to, uint64_t value)
{
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}

static inline void word_store(weft_cuda_word_t *to, uint32_t data, uint32_t flag)
{
    store64(to, (uint64_t)flag << 32 | data);
}

static inline bool word_load(const weft_cuda_word_t *from, uint32_t flag, uint32_t *data_p)
{
    uint64_t word = load64(from);
    *data_p = (uint32_t)word;
    if (word >> 32 != flag) {
        soft_poll();
    }
    return word >> 32 == flag;
}

static inline void ll_store(weft_cuda_word_t *to, const uint32_t (&data)[2], uint32_t flag)
{
    word_store(to, data[0], flag);
    word_store(to + 1, data[1], flag);
}

static inline bool ll_load(const weft_cuda_word_t *from, uint32_t flag, uint32_t (&data)[2])
{
    return word_load(from, flag, &data[0]) && word_load(from + 1, flag, &data[1]);
}

static inline void fence(const world_t &)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

static inline uint64_t acquire64(const world_t &, const uint64_t *from)
{
    soft_poll(); /* only asked in loops */
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

/* As on a GPU. Each may take half a millisecond here, so a rank with many calls queued ends late
 * after another died; but with fewer, kernels give up in calls that are all but done, and tests of
 * deaths count on those. */
#define POLLS_PER_CHECK 256

/* ---- time and order of kernels ----------------------------------------------------------- */

static inline uint64_t now_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Kernels of a stream do not overlap here. */
static inline void await_before() {}
static inline void let_next_come() {}

#endif
