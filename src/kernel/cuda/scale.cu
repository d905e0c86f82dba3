/* The product of a buffer and a scalar, in the arithmetic of collectives (kernel/element.cuh). */
#include <cuda_runtime.h>
#include <mutex>
#include <set>

#include "kernel/cuda/scale.h"
#include "kernel/element.cuh"

#define THREADS 256
#define MOST_BLOCKS 2048u /* several for each multiprocessor of any GPU */

template <int TYPE>
static __global__ void __launch_bounds__(THREADS) scale_kernel(const weft_scaling_t args)
{
    typedef weft_element<TYPE> E;
    typedef typename E::T T;
    typedef weft_pack<TYPE, WEFT_PROD, 16> pack_t;
    const T *src = (const T *)args.src;
    T *dst = (T *)args.dst, code;
    if (args.scalar) {
        code = *(const T *)args.scalar;
    } else {
        memcpy(&code, args.value, sizeof(code));
    }
    const typename E::A factor = E::load(code);
    uint64_t first = (uint64_t)blockIdx.x * THREADS + threadIdx.x, step = gridDim.x * THREADS;
    uint64_t even = ((uintptr_t)src | (uintptr_t)dst) % 16 == 0 ? args.count / pack_t::N : 0;
    for (uint64_t i = first; i < even; i += step) {
        uint4 v = ((const uint4 *)src)[i];
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
        pack_t pack;
        pack.set(words);
#pragma unroll
        for (int k = 0; k < pack_t::N; k++) {
            pack.at[k] = weft_mul(pack.at[k], factor);
        }
        pack.get(1, words);
        ((uint4 *)dst)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
    for (uint64_t i = even * pack_t::N + first; i < args.count; i += step) {
        dst[i] = E::store(weft_mul(E::load(src[i]), factor));
    }
}

typedef void (*scale_fn)(const weft_scaling_t);

static const scale_fn kernels[] = {
#define KERNEL(name, text, bytes) scale_kernel<name>,
    WEFT_DTYPE_TABLE(KERNEL)
#undef KERNEL
};

static int scale(int gpu, const weft_scaling_t *args, void *stream)
{
    cudaLaunchConfig_t config = {};
    uint64_t blocks = args->count / (8 * THREADS) + 1;
    config.gridDim = dim3(blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS);
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)stream;
    cudaError_t error = cudaSetDevice(gpu);
    error = error ? error : cudaLaunchKernelEx(&config, kernels[args->type], *args);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return (int)error;
}

static int run_once(int gpu)
{
    int error = 0;
    for (int type = 0; type < WEFT_DTYPE_COUNT && error == 0; type++) {
        weft_scaling_t nothing = {};
        nothing.type = (weft_dtype_t)type;
        error = scale(gpu, &nothing, cudaStreamPerThread);
    }
    return error ? error : (int)cudaStreamSynchronize(cudaStreamPerThread);
}

static int load(int gpu)
{
    static std::mutex lock;
    static std::set<int> loaded;
    std::lock_guard<std::mutex> guard(lock);
    int error = loaded.count(gpu) ? 0 : run_once(gpu);
    if (error == 0) {
        loaded.insert(gpu);
    }
    return error;
}

extern "C" const weft_cuda_scale_ops_t weft_cuda_scale = {WEFT_CUDA_ABI, load, scale};
