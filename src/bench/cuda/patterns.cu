#include <cuda_runtime.h>

#include "bench/cuda/launch.h"

#include <weft/symm_device.cuh>

#define THREADS 1024
#define PING_THREADS 256

static __global__ void __launch_bounds__(THREADS)
    handoff_kernel(const __grid_constant__ weft_symm_view_t heap,
                   const __grid_constant__ weft_bench_handoff_t handoff)
{
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    int next = (heap.rank + 1) % heap.size;
    float *last = handoff.inbox + handoff.bytes / sizeof(float) - 1;
    for (int k = 0; k < handoff.rounds; k++) {
        uint64_t lap = handoff.laps + (uint64_t)k + 1;
        if (heap.rank > 0 &&
            !weft_symm_signal_wait_block(heap, handoff.signal, WEFT_CMP_GE, lap)) {
            return;
        }
        if (threadIdx.x == 0) {
            *handoff.inbox += (float)(heap.rank + 1);
            *last += (float)(heap.rank + 1);
        }
        __syncthreads();
        weft_symm_put_signal_block(heap, handoff.inbox, handoff.inbox, handoff.bytes,
                                   handoff.signal, lap, WEFT_SIGNAL_SET, next);
        if (heap.rank == 0 &&
            !weft_symm_signal_wait_block(heap, handoff.signal, WEFT_CMP_GE, lap)) {
            return;
        }
    }
}

static __global__ void __launch_bounds__(THREADS)
    lookup_kernel(const __grid_constant__ weft_symm_view_t heap,
                  const __grid_constant__ weft_bench_lookup_t lookup)
{
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    for (int k = 0; k < lookup.rounds; k++) {
        uint64_t row = weft__bench_row(lookup.seed, lookup.asked + (uint64_t)k, lookup.rows);
        const char *from = weft_dtensor_row(heap, lookup.table, row, NULL);
        weft__symm_copy(lookup.got, from, lookup.table.row_bytes, threadIdx.x, blockDim.x);
        __syncthreads(); /* the row is there before the next one is looked for */
    }
}

static __device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void __launch_bounds__(PING_THREADS, 1)
    ping_kernel(const __grid_constant__ weft_symm_view_t heap,
                const __grid_constant__ weft_bench_ping_t ping)
{
    extern __shared__ __align__(16) char data[];
    __shared__ unsigned wrong;
    if (heap.size == 0) {
        return; /* only to be loaded */
    }
    int peer = 1 - heap.rank;
    if (threadIdx.x == 0) {
        wrong = 0;
    }
    for (uint64_t i = threadIdx.x; i < ping.bytes; i += blockDim.x) {
        data[i] = (char)(i * 7 + 3);
    }
    __syncthreads();
    uint64_t start = 0;
    bool fine = true;
    for (int k = 0; k <= ping.rounds && fine; k++) {
        if (k == 1) { /* the first round is for meeting */
            start = now_ns();
        }
        uint64_t value = ping.base + (uint64_t)k + 1;
        if (ping.check) {
            for (uint64_t i = threadIdx.x; i < ping.bytes; i += blockDim.x) {
                data[i] = (char)(i * 7 + value);
            }
            __syncthreads();
        }
        if (heap.rank == 0) {
            weft_symm_put_signal_block(heap, ping.buffer, data, ping.bytes, ping.signal, value,
                                       WEFT_SIGNAL_SET, peer);
        }
        fine = weft_symm_signal_wait_block(heap, ping.signal, WEFT_CMP_GE, value);
        for (uint64_t i = threadIdx.x; ping.check && fine && i < ping.bytes; i += blockDim.x) {
            if (*(volatile char *)&ping.buffer[i] != (char)(i * 7 + value)) {
                atomicAdd(&wrong, 1u);
            }
        }
        if (ping.check) {
            __syncthreads();
        }
        if (heap.rank == 1 && fine) {
            weft_symm_put_signal_block(heap, ping.buffer, data, ping.bytes, ping.signal, value,
                                       WEFT_SIGNAL_SET, peer);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ping.result[0] = (double)(now_ns() - start) / ping.rounds / 2;
        ping.result[1] = fine ? wrong : (double)ping.bytes;
    }
}

static int launch(int gpu, const void *kernel, unsigned threads, void **args, size_t shared,
                  void *stream)
{
    cudaError_t error = cudaSetDevice(gpu);
    error = error ? error
                  : cudaLaunchKernel(kernel, dim3(1), dim3(threads), args, shared,
                                     (cudaStream_t)stream);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return (int)error;
}

/* Few threads meet faster; many copy faster. */
static unsigned threads_for(uint64_t bytes)
{
    uint64_t wanted = (bytes / 16 + 31) / 32 * 32;
    return wanted < 32 ? 32u : wanted > THREADS ? (unsigned)THREADS : (unsigned)wanted;
}

static int handoff(int gpu, const weft_symm_view_t *view, const weft_bench_handoff_t *handoff,
                   void *stream)
{
    void *args[] = {(void *)view, (void *)handoff};
    return launch(gpu, (const void *)handoff_kernel, threads_for(handoff->bytes), args, 0,
                  stream);
}

static int lookup(int gpu, const weft_symm_view_t *view, const weft_bench_lookup_t *lookup,
                  void *stream)
{
    void *args[] = {(void *)view, (void *)lookup};
    return launch(gpu, (const void *)lookup_kernel, threads_for(lookup->table.row_bytes), args, 0,
                  stream);
}

static int ping(int gpu, const weft_symm_view_t *view, const weft_bench_ping_t *ping, void *stream)
{
    void *args[] = {(void *)view, (void *)ping};
    cudaError_t error = cudaSetDevice(gpu);
    error = error ? error
                  : cudaFuncSetAttribute((const void *)ping_kernel,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         WEFT_BENCH_PING_BYTES);
    return error ? (int)error
                 : launch(gpu, (const void *)ping_kernel, PING_THREADS, args, (size_t)ping->bytes,
                          stream);
}

static int load(int gpu)
{
    weft_symm_view_t nobody = {};
    weft_bench_handoff_t no_handoff = {};
    weft_bench_lookup_t no_lookup = {};
    weft_bench_ping_t no_ping = {};
    int error = handoff(gpu, &nobody, &no_handoff, cudaStreamPerThread);
    error = error ? error : lookup(gpu, &nobody, &no_lookup, cudaStreamPerThread);
    error = error ? error : ping(gpu, &nobody, &no_ping, cudaStreamPerThread);
    return error ? error : (int)cudaStreamSynchronize(cudaStreamPerThread);
}

extern "C" const weft_cuda_bench_ops_t weft_cuda_bench = {WEFT_CUDA_ABI, load, handoff, lookup,
                                                          ping};
