/* What kernels ask of the machine in its own language. All of it is here: the tests have a second
 * version of this file, which makes the same kernels run on a CPU, and of start.cuh. */
#ifndef WEFT_COMM_CUDA_MACHINE_CUH
#define WEFT_COMM_CUDA_MACHINE_CUH

#include <cuda_runtime.h>

#include "comm/cuda/launch.h"

typedef weft_cuda_world_t world_t;

/* ---- words ------------------------------------------------------------------------------ */

/* Volatile accesses are not cached and not torn up to 8 bytes; each word has its own flag. */
static __device__ __forceinline__ void word_store(weft_cuda_word_t *to, uint32_t data,
                                                  uint32_t flag)
{
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(data), "r"(flag)
                 : "memory");
}

static __device__ __forceinline__ bool word_load(const weft_cuda_word_t *from, uint32_t flag,
                                                 uint32_t *data_p)
{
    uint32_t data, got;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(data), "=r"(got)
                 : "l"(from)
                 : "memory");
    *data_p = data;
    return got == flag;
}

/* Two words at once: 8 bytes of data. */
static __device__ __forceinline__ void ll_store(weft_cuda_word_t *to, const uint32_t (&data)[2],
                                                  uint32_t flag)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(data[0]),
                 "r"(flag), "r"(data[1])
                 : "memory");
}

static __device__ __forceinline__ bool ll_load(const weft_cuda_word_t *from, uint32_t flag,
                                                 uint32_t (&data)[2])
{
    uint32_t first, second;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(data[0]), "=r"(first), "=r"(data[1]), "=r"(second)
                 : "l"(from)
                 : "memory");
    return first == flag && second == flag;
}

static __device__ __forceinline__ uint64_t load64(const uint64_t *from)
{
    return *(const volatile uint64_t *)from;
}

static __device__ __forceinline__ void store64(uint64_t *to, uint64_t value)
{
    *(volatile uint64_t *)to = value;
}

/* What was written before is seen by whoever sees what is written after, and the other way
 * round. */
static __device__ __forceinline__ void fence(const world_t &world)
{
    if (world.wide) {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.gpu;" ::: "memory"); /* cheaper than __threadfence */
    }
}

/* A flag that others set after a fence: what came before it can be read afterwards. */
static __device__ __forceinline__ uint64_t acquire64(const world_t &world, const uint64_t *from)
{
    uint64_t value;
    if (world.wide) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    } else {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    }
    return value;
}

/* Polls in vain after which a thread looks whether to give up: about 150 us. */
#define POLLS_PER_CHECK 256

/* ---- time and order of kernels ----------------------------------------------------------- */

static __device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Of kernels that were launched to overlap: wait until the kernel before has ended. */
static __device__ __forceinline__ void await_before()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel may become resident, if it was launched to overlap. */
static __device__ __forceinline__ void let_next_come()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
