/* The part of CUDA that the kernels of collectives and their launches use, on a CPU (grid.h). */
#ifndef WEFT_TEST_SOFT_GPU_CUDA_RUNTIME_H
#define WEFT_TEST_SOFT_GPU_CUDA_RUNTIME_H

/* Before the words below become macros, which some of these use as names. */
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <type_traits>

#include "soft_gpu/device.h"
#include "soft_gpu/grid.h"

#define __device__
#define __global__
#define __shared__ static thread_local /* a block has a thread to itself */
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

/* As variables, since a launch has members of these names. */
template <soft_dim soft_place::*WHICH> struct soft_index {
    struct {
        operator unsigned() const
        {
            return (soft_here().*WHICH).x;
        }
    } x;
};
static const soft_index<&soft_place::thread> threadIdx = {};
static const soft_index<&soft_place::block> blockIdx = {};
static const soft_index<&soft_place::threads> blockDim = {};
static const soft_index<&soft_place::blocks> gridDim = {};

struct uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

static inline void __syncthreads()
{
    soft_sync_block();
}

static inline void __syncwarp()
{
    soft_any(false);
}

static inline bool __any_sync(uint32_t, bool value)
{
    return soft_any(value);
}

static inline uint32_t __shfl_sync(uint32_t, uint32_t value, int from, int width)
{
    unsigned lane = threadIdx.x % 32;
    return (uint32_t)soft_shuffle(value, lane / (unsigned)width * (unsigned)width + (unsigned)from);
}

static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline uint32_t atomicCAS(uint32_t *at, uint32_t expected, uint32_t value)
{
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

static inline uint32_t atomicAdd(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __uint_as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- the host's side ---------------------------------------------------------------------- */

typedef int cudaError_t;
typedef void *cudaStream_t;
#define cudaSuccess 0
#define cudaStreamPerThread ((cudaStream_t)2)

struct dim3 {
    unsigned x;
    dim3(unsigned x_ = 1) : x(x_)
    {
    }
};

enum cudaLaunchAttributeID {
    cudaLaunchAttributeProgrammaticStreamSerialization,
    cudaLaunchAttributePriority
};

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed, priority;
    } val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

cudaError_t cudaSetDevice(int gpu);
cudaError_t cudaGetLastError();
cudaError_t cudaDeviceGetStreamPriorityRange(int *least_p, int *greatest_p);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

template <typename... WANTED, typename... GIVEN>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                             void (*kernel)(WANTED...), GIVEN &&...args)
{
    std::tuple<std::remove_const_t<WANTED>...> copy(args...);
    unsigned blocks = config->gridDim.x, threads = config->blockDim.x;
    return soft_enqueue(config->stream,
                        [=] { soft_run_grid(blocks, threads, [&] { std::apply(kernel, copy); }); });
}

#endif
