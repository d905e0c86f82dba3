/* Calls of the host on symmetric heaps, as kernels. */
#include <cuda_runtime.h>
#include <mutex>
#include <set>

#include "symm/cuda/launch.h"

#include <weft/symm_device.cuh>

#define THREADS 512
#define BLOCK_PUT 65536u /* bytes that one block puts faster than two launches begin */
#define SWAP_BLOCKS 264u

static_assert(sizeof(weft_symm_head_t) <= 4096, "the head fits behind the heap");

/* Called by one thread of each block of a swap after the block's last access: true in the last
 * one. */
static __device__ __forceinline__ bool last_block(const weft_symm_view_t &heap, uint64_t *counter)
{
    unsigned long long *at = (unsigned long long *)counter;
    weft_symm_fence(heap);
    if (atomicAdd(at, 1ull) != gridDim.x - 1) {
        return false;
    }
    weft__symm_store(counter, 0);
    weft_symm_fence(heap);
    return true;
}

/* ---- calls ------------------------------------------------------------------------------ */

/* A put of one block, and its signal. */
static __global__ void __launch_bounds__(THREADS)
    signal_kernel(const __grid_constant__ weft_symm_view_t heap,
                  const __grid_constant__ weft_symm_call_t call)
{
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    weft__symm_copy(call.dst, call.src, call.bytes, threadIdx.x, THREADS);
    __syncthreads();
    if (threadIdx.x == 0) {
        weft__symm_signal(heap, call.word, call.value, (weft_signal_op_t)call.op);
    }
}

static __device__ uint64_t run_atomic(const weft_symm_view_t &heap, const weft_symm_call_t &call)
{
    unsigned long long *word = (unsigned long long *)call.word, value = call.value;
    switch (call.op) {
    case WEFT_ATOMIC_ADD:
        return heap.wide ? atomicAdd_system(word, value) : atomicAdd(word, value);
    case WEFT_ATOMIC_AND:
        return heap.wide ? atomicAnd_system(word, value) : atomicAnd(word, value);
    case WEFT_ATOMIC_OR:
        return heap.wide ? atomicOr_system(word, value) : atomicOr(word, value);
    case WEFT_ATOMIC_XOR:
        return heap.wide ? atomicXor_system(word, value) : atomicXor(word, value);
    case WEFT_ATOMIC_FETCH:
        return weft__symm_acquire(heap, call.word);
    case WEFT_ATOMIC_CSWAP:
        return heap.wide ? atomicCAS_system(word, (unsigned long long)call.expected, value)
                         : atomicCAS(word, (unsigned long long)call.expected, value);
    default:
        return heap.wide ? atomicExch_system(word, value) : atomicExch(word, value);
    }
}

static __global__ void word_kernel(const __grid_constant__ weft_symm_view_t heap,
                                   const __grid_constant__ weft_symm_call_t call)
{
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    if (call.kind == WEFT_SYMM_WAIT) {
        weft_symm_signal_wait(heap, call.word, (weft_cmp_t)call.op, call.value);
    } else if (call.kind == WEFT_SYMM_SIGNAL) {
        weft__symm_signal(heap, call.word, call.value, (weft_signal_op_t)call.op);
    } else {
        weft_symm_fence(heap);
        uint64_t old = run_atomic(heap, call);
        weft_symm_fence(heap);
        if (call.old_p) {
            *call.old_p = old;
        }
    }
}

/* ---- parameters ------------------------------------------------------------------------- */

static __device__ __forceinline__ weft_params_head_t *params_head(const weft_symm_view_t &heap,
                                                                  const weft_params_view_t &params,
                                                                  int rank)
{
    return (weft_params_head_t *)(heap.base[rank] + params.head);
}

/* The lock of rank 0; `own`: the same word of this rank, by whose offset a report names it. */
static __device__ bool take_lock(const weft_symm_view_t &heap, uint64_t *lock, const uint64_t *own)
{
    unsigned long long *at = (unsigned long long *)lock;
    uint64_t since = 0;
    uint32_t polls = 0;
    while (atomicCAS_system(at, 0ull, (unsigned long long)heap.rank + 1) != 0) {
        __nanosleep(500);
        if (++polls % 64 == 0 && weft__symm_give_up(heap, own, WEFT_CMP_EQ, 0, &since)) {
            return false;
        }
    }
    weft_symm_fence(heap); /* partner: the fence before the lock is given back, in swap_kernel */
    return true;
}

/* One warp: take the lock, find the next version, and say on every replica which buffer is about to
 * be overwritten. */
static __global__ void plan_kernel(const __grid_constant__ weft_symm_view_t heap,
                                   const __grid_constant__ weft_params_view_t params)
{
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    int lane = threadIdx.x, mine = 0;
    weft_params_head_t *own = params_head(heap, params, heap.rank);
    if (lane == 0) {
        mine = take_lock(heap, &params_head(heap, params, 0)->lock, &own->lock);
    }
    if (!__shfl_sync(0xffffffffu, mine, 0)) {
        own->plan = 0;
        return;
    }
    uint64_t newest = 0;
    weft_params_head_t *theirs = params_head(heap, params, lane < heap.size ? lane : 0);
    if (lane < heap.size) {
        newest = weft__symm_load(&theirs->current);
    }
    for (int half = 16; half > 0; half /= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, newest, half);
        newest = other > newest ? other : newest;
    }
    if (lane < heap.size) {
        weft__symm_store(&theirs->writing, newest + 1);
        weft_symm_fence(heap); /* partner: the fence of readers before they look at `writing` */
    }
    if (lane == 0) {
        own->plan = newest + 1;
    }
}

/* Every part of src is read once and written to all replicas. */
static __device__ __forceinline__ void copy_to_all(const weft_symm_view_t &heap, char *const *to,
                                                   const char *src, uint64_t bytes)
{
    const int DEPTH = 4;
    uint64_t first = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    uint64_t vectors = ((uintptr_t)src & 15) == 0 ? bytes / 16 : 0; /* buffers are aligned */
    for (uint64_t i = first; i < vectors; i += DEPTH * step) {
        uint4 part[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (i + k * step < vectors) {
                part[k] = ((const uint4 *)src)[i + k * step];
            }
        }
        for (int p = 0; p < heap.size; p++) {
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                if (i + k * step < vectors) {
                    ((uint4 *)to[p])[i + k * step] = part[k];
                }
            }
        }
    }
    for (uint64_t i = vectors * 16 + first; i < bytes; i += step) {
        for (int p = 0; p < heap.size; p++) {
            to[p][i] = src[i];
        }
    }
}

static __global__ void __launch_bounds__(THREADS)
    swap_kernel(const __grid_constant__ weft_symm_view_t heap,
                const __grid_constant__ weft_params_view_t params, const char *src)
{
    __shared__ char *to[WEFT_SYMM_VIEW_RANKS];
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    weft_params_head_t *own = params_head(heap, params, heap.rank);
    uint64_t version = weft__symm_load(&own->plan);
    if (version == 0) {
        return;
    }
    if (threadIdx.x < heap.size) {
        to[threadIdx.x] = heap.base[threadIdx.x] + params.buffer[version & 1];
    }
    __syncthreads();
    copy_to_all(heap, to, src, params.bytes);
    __syncthreads();
    if (threadIdx.x != 0 || !last_block(heap, &own->blocks)) {
        return;
    }
    for (int p = 0; p < heap.size; p++) { /* last_block has fenced: data first, then this */
        weft__symm_store(&params_head(heap, params, p)->current, version);
    }
    weft_symm_fence(heap); /* partner: take_lock of the next one */
    weft__symm_store(&params_head(heap, params, 0)->lock, 0);
}

static __global__ void __launch_bounds__(THREADS)
    read_kernel(const __grid_constant__ weft_symm_view_t heap,
                const __grid_constant__ weft_params_view_t params, int rank, uint64_t offset,
                uint64_t bytes, char *dst, uint64_t *version_p)
{
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    weft_params_read_block(heap, params, rank, offset, bytes, dst, version_p);
}

/* ---- launching -------------------------------------------------------------------------- */

static int launch(int gpu, const void *kernel, unsigned blocks, unsigned threads, void **args,
                  void *stream)
{
    cudaError_t error = cudaSetDevice(gpu);
    error = error ? error
                  : cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), args, 0,
                                     (cudaStream_t)stream);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return (int)error;
}

static int call(int gpu, const weft_symm_view_t *view, const weft_symm_call_t *call, void *stream)
{
    void *args[] = {(void *)view, (void *)call};
    if (call->kind != WEFT_SYMM_SIGNAL || call->bytes == 0) {
        return launch(gpu, (const void *)word_kernel, 1, 1, args, stream);
    }
    if (call->bytes <= BLOCK_PUT) {
        return launch(gpu, (const void *)signal_kernel, 1, THREADS, args, stream);
    }
    /* Large: the copy has the whole GPU, and its end is the order that the signal needs. */
    weft_symm_call_t copy = *call, signal = *call;
    signal.bytes = 0;
    cudaError_t error = cudaSetDevice(gpu);
    error = error ? error
                  : cudaMemcpyAsync(copy.dst, copy.src, copy.bytes, cudaMemcpyDefault,
                                    (cudaStream_t)stream);
    void *after[] = {(void *)view, &signal};
    return error ? (int)error : launch(gpu, (const void *)word_kernel, 1, 1, after, stream);
}

static int swap(int gpu, const weft_symm_view_t *view, const weft_params_view_t *params,
                const void *src, void *stream)
{
    uint64_t blocks = (params->bytes + THREADS * 16 - 1) / (THREADS * 16);
    blocks = blocks < 1 ? 1 : blocks > SWAP_BLOCKS ? SWAP_BLOCKS : blocks;
    void *plan[] = {(void *)view, (void *)params}, *copy[] = {(void *)view, (void *)params, &src};
    int error = launch(gpu, (const void *)plan_kernel, 1, 32, plan, stream);
    return error ? error
                 : launch(gpu, (const void *)swap_kernel, (unsigned)blocks, THREADS, copy, stream);
}

static int read(int gpu, const weft_symm_view_t *view, const weft_params_view_t *params, int rank,
                uint64_t offset, uint64_t bytes, void *dst, uint64_t *version_p, void *stream)
{
    void *args[] = {(void *)view, (void *)params, &rank, &offset, &bytes, &dst, &version_p};
    return launch(gpu, (const void *)read_kernel, 1, THREADS, args, stream);
}

/* A kernel is loaded when it is first run: run all of them once with nobody to wait for. */
static int run_once(int gpu)
{
    weft_symm_view_t nobody = {};
    weft_symm_call_t word = {};
    weft_params_view_t params = {};
    word.kind = WEFT_SYMM_ATOMIC;
    void *stream = cudaStreamPerThread;
    int error = call(gpu, &nobody, &word, stream);
    error = error ? error : swap(gpu, &nobody, &params, NULL, stream);
    error = error ? error : read(gpu, &nobody, &params, 0, 0, 0, NULL, NULL, stream);
    word.kind = WEFT_SYMM_SIGNAL;
    word.bytes = 1;
    error = error ? error : call(gpu, &nobody, &word, stream);
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

extern "C" const weft_cuda_symm_ops_t weft_cuda_symm = {WEFT_CUDA_ABI, load, call, swap, read};
