/* Kernels as a user writes them: this header, nvcc, nothing of Weft's inside. */
#include "gpu/kernels_symm.h"

#include <weft/symm_device.cuh>

typedef weft_symm_view_t heap_t;

static __device__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* ---- checks ----------------------------------------------------------------------------- */

static __device__ void note(const symm_check_t &check, bool wrong, uint32_t where)
{
    if (wrong && atomicAdd_system(&check.errors[0], 1u) == 0) {
        check.errors[1] = where;
    }
}

static __device__ uint8_t pattern(uint64_t seed, int from, int round, uint32_t i)
{
    uint64_t x = seed + (uint64_t)from * 0x9e3779b97f4a7c15ull + (uint64_t)round * 1315423911u + i;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
    return (uint8_t)(x >> 56);
}

/* Put with a signal, wait, and get back, by the threads of scope 0 (thread), 1 (warp) or 2 (block),
 * which are those below `crew`. */
static __device__ bool exchange(const heap_t &heap, const symm_check_t &check, int scope, int round,
                                uint32_t at, uint32_t bytes, int to)
{
    char *out = check.areas + (2 * scope) * SYMM_CHECK_BYTES + at;
    char *in = check.areas + (2 * scope + 1) * SYMM_CHECK_BYTES + at;
    uint64_t *flag = &check.flags[scope], value = (uint64_t)round + 1;
    if (scope == 0) {
        weft_symm_put_signal(heap, in, out, bytes, flag, value, WEFT_SIGNAL_SET, to);
        return weft_symm_signal_wait(heap, flag, WEFT_CMP_GE, value);
    }
    if (scope == 1) {
        weft_symm_put_signal_warp(heap, in, out, bytes, flag, 1, WEFT_SIGNAL_ADD, to);
        return weft_symm_signal_wait_warp(heap, flag, WEFT_CMP_EQ, value);
    }
    weft_symm_put_signal_block(heap, in, out, bytes, flag, value, WEFT_SIGNAL_SET, to);
    return weft_symm_signal_wait_block(heap, flag, WEFT_CMP_GT, value - 1);
}

static __device__ bool meet(const heap_t &heap, int scope)
{
    if (scope == 2) {
        return weft_symm_barrier_block(heap);
    }
    __syncthreads();
    int fine = 1;
    if (scope == 1 && threadIdx.x < 32) {
        fine = weft_symm_barrier_warp(heap);
    } else if (scope == 0 && threadIdx.x == 0) {
        fine = weft_symm_barrier(heap);
    }
    return !__syncthreads_or(!fine);
}

static __device__ void check_data(const heap_t &heap, const symm_check_t &check, int scope,
                                  int round)
{
    uint64_t x = check.seed * 31 + (uint64_t)round * 7919 +
                 (uint64_t)scope; /* the same on all ranks */
    x = (x ^ x >> 29) * 0x94d049bb133111ebull;
    uint32_t at = (uint32_t)(x >> 40) % 40, bytes = (uint32_t)(x >> 20) % (SYMM_CHECK_BYTES - 40);
    bytes = round % 5 == 0 ? 8 : round % 5 == 1 ? bytes % 64 : bytes;
    at = round % 3 == 0 ? at / 16 * 16 : at;
    int to = (heap.rank + 1) % heap.size, from = (heap.rank + heap.size - 1) % heap.size;
    char *out = check.areas + (2 * scope) * SYMM_CHECK_BYTES + at;
    const char *in = check.areas + (2 * scope + 1) * SYMM_CHECK_BYTES + at;
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) {
        out[i] = (char)pattern(check.seed, heap.rank, round, i);
    }
    __syncthreads();
    int fine = 1;
    uint32_t crew = scope == 0 ? 1 : scope == 1 ? 32 : blockDim.x;
    if (threadIdx.x < crew) {
        fine = exchange(heap, check, scope, round, at, bytes, to);
    }
    if (__syncthreads_or(!fine)) {
        note(check, threadIdx.x == 0, 1000u + (uint32_t)scope);
        return;
    }
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) {
        bool wrong = (uint8_t)in[i] != pattern(check.seed, from, round, i);
        note(check, wrong, 2000u + (uint32_t)scope);
    }
    __syncthreads();
    char *back = check.areas + (2 * scope) * SYMM_CHECK_BYTES + at; /* ours, sent by now */
    if (threadIdx.x < crew) { /* what the next rank got is what we sent */
        if (scope == 0) {
            weft_symm_get(heap, back, in, bytes, to);
        } else if (scope == 1) {
            weft_symm_get_warp(heap, back, in, bytes, to);
        } else {
            weft_symm_get_block(heap, back, in, bytes, to);
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) {
        bool wrong = (uint8_t)back[i] != pattern(check.seed, heap.rank, round, i);
        note(check, wrong, 3000u + (uint32_t)scope);
    }
}

/* All threads of all ranks on the words of the last rank. */
static __device__ void use_atomics(const heap_t &heap, const symm_check_t &check)
{
    int home = heap.size - 1;
    uint64_t *w = check.words;
    weft_symm_atomic_fetch_add(heap, &w[0], (uint64_t)1, home);
    weft_symm_atomic_add(heap, (uint32_t *)&w[1], (uint32_t)3, home);
    weft_symm_atomic_add(heap, (float *)&w[2], 1.0f, home);
    weft_symm_atomic_add(heap, (double *)&w[3], 0.5, home);
    weft_symm_atomic_or(heap, &w[4], (uint64_t)1 << (threadIdx.x % 64), home);
    weft_symm_atomic_xor(heap, &w[5], (uint64_t)1 << (threadIdx.x % 64), home);
    if (threadIdx.x == 0) { /* a lock */
        while (weft_symm_atomic_cswap(heap, (int32_t *)&w[6], 0, heap.rank + 1, home) != 0) {
        }
        weft_symm_fence(heap);
        uint64_t count = weft_symm_g(heap, &w[7], home);
        weft_symm_p(heap, &w[7], count + 1, home);
        weft_symm_quiet(heap);
        int32_t mine = weft_symm_atomic_swap(heap, (int32_t *)&w[6], 0, home);
        note(check, mine != heap.rank + 1, 4001);
    }
}

static __device__ void check_atomics(const heap_t &heap, const symm_check_t &check, int round)
{
    int home = heap.size - 1;
    uint64_t times = (uint64_t)(round + 1) * (uint64_t)heap.size, all = times * blockDim.x;
    const uint64_t *w = check.words;
    note(check, weft_symm_atomic_fetch(heap, &w[0], home) != all, 4010);
    note(check, weft_symm_atomic_fetch(heap, (const uint32_t *)&w[1], home) != 3 * all, 4011);
    note(check, weft_symm_g(heap, (const float *)&w[2], home) != (float)all, 4012);
    note(check, weft_symm_g(heap, (const double *)&w[3], home) != (double)all / 2, 4013);
    note(check, weft_symm_g(heap, &w[4], home) != ~0ull, 4014);
    note(check, weft_symm_g(heap, &w[5], home) != 0, 4015); /* twice 64 threads: an even number */
    note(check, weft_symm_g(heap, &w[7], home) != times, 4016);
}

static __global__ void __launch_bounds__(SYMM_CHECK_THREADS)
    check_kernel(const __grid_constant__ heap_t heap, const __grid_constant__ symm_check_t check)
{
    for (int round = 0; round < check.rounds; round++) {
        for (int scope = 0; scope < 3; scope++) {
            check_data(heap, check, scope, round);
        }
        bool fine = meet(heap, round % 3);
        use_atomics(heap, check);
        fine = meet(heap, (round + 1) % 3) && fine;
        if (threadIdx.x == 0) {
            check_atomics(heap, check, round);
        }
        fine = meet(heap, (round + 2) % 3) && fine;
        if (!fine) {
            note(check, threadIdx.x == 0, 5000);
            return;
        }
    }
}

/* ---- measurements ----------------------------------------------------------------------- */

static __device__ void hand_off(const heap_t &heap, char *buffer, const char *data, uint64_t bytes,
                                uint64_t *flag, uint64_t value, int to)
{
    if (blockDim.x == 1) {
        weft_symm_put_signal(heap, buffer, data, bytes, flag, value, WEFT_SIGNAL_SET, to);
    } else if (blockDim.x == 32) {
        weft_symm_put_signal_warp(heap, buffer, data, bytes, flag, value, WEFT_SIGNAL_SET, to);
    } else {
        weft_symm_put_signal_block(heap, buffer, data, bytes, flag, value, WEFT_SIGNAL_SET, to);
    }
}

static __device__ bool await(const heap_t &heap, const uint64_t *flag, uint64_t value)
{
    if (blockDim.x == 1) {
        return weft_symm_signal_wait(heap, flag, WEFT_CMP_GE, value);
    }
    return blockDim.x == 32 ? weft_symm_signal_wait_warp(heap, flag, WEFT_CMP_GE, value)
                            : weft_symm_signal_wait_block(heap, flag, WEFT_CMP_GE, value);
}

static __device__ bool await_relaxed(const heap_t &heap, const uint64_t *flag, uint64_t value)
{
    int late = 0;
    if (threadIdx.x == 0) {
        uint64_t since = 0;
        uint32_t polls = 0;
        while (!late && *(const volatile uint64_t *)flag < value) {
            late = ++polls % 1024 == 0 &&
                   weft__symm_give_up(heap, flag, WEFT_CMP_GE, value, &since);
        }
        weft_symm_fence(heap);
    }
    return !__syncthreads_or(late);
}

/* Of the second half of the buffer, which is where the data comes from, into the first. */
static __global__ void __launch_bounds__(1024)
    handoff_kernel(const __grid_constant__ heap_t heap, char *buffer, uint64_t *flag, uint64_t base,
                   uint64_t bytes, int rounds, int relaxed, double *ns)
{
    uint64_t start = 0;
    const char *data = buffer + bytes;
    for (int k = 0; k <= rounds; k++) {
        start = k == 1 ? now_ns() : start; /* the first round is for meeting */
        uint64_t value = base + (uint64_t)k + 1;
        if (heap.rank == 0) {
            hand_off(heap, buffer, data, bytes, flag, value, 1);
        }
        if (!(relaxed ? await_relaxed(heap, flag, value) : await(heap, flag, value))) {
            return;
        }
        if (heap.rank == 1) {
            hand_off(heap, buffer, data, bytes, flag, value, 0);
        }
    }
    if (threadIdx.x == 0) {
        *ns = (double)(now_ns() - start) / rounds / 2;
    }
}

static __global__ void __launch_bounds__(256)
    lookup_kernel(const __grid_constant__ heap_t heap,
                  const __grid_constant__ weft_params_view_t params, int rank, uint64_t bytes,
                  int rounds, double *ns)
{
    __shared__ __align__(16) char found[16384];
    uint64_t version = 0, start = 0, parts = params.bytes / bytes;
    bool fine = true;
    for (int k = 0; k <= rounds && fine; k++) {
        start = k == 1 ? now_ns() : start;
        uint64_t offset = (uint64_t)k * 7919 % parts * bytes;
        fine = weft_params_read_block(heap, params, rank, offset, bytes, found, &version);
    }
    if (threadIdx.x == 0) {
        *ns = fine ? (double)(now_ns() - start) / rounds : -1;
    }
}

static __global__ void sum_kernel(const __grid_constant__ heap_t heap,
                                  const __grid_constant__ weft_dtensor_view_t tensor, uint64_t rows,
                                  uint64_t *sum)
{
    __shared__ unsigned long long all;
    uint64_t mine = 0;
    if (threadIdx.x == 0) {
        all = 0;
    }
    __syncthreads();
    for (uint64_t row = threadIdx.x; row < rows; row += blockDim.x) {
        int owner;
        const uint64_t *words = (const uint64_t *)weft_dtensor_row(heap, tensor, row, &owner);
        for (uint64_t i = 0; i < tensor.row_bytes / 8; i++) {
            mine += words[i];
        }
    }
    atomicAdd(&all, (unsigned long long)mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        *sum = all;
    }
}

static __global__ void wait_kernel(const __grid_constant__ heap_t heap, uint64_t *flag,
                                   uint64_t value, uint32_t *result)
{
    bool fine = weft_symm_signal_wait_block(heap, flag, WEFT_CMP_GE, value);
    if (threadIdx.x == 0) {
        *result = fine ? 1 : 2;
    }
}

static __global__ void barrier_kernel(const __grid_constant__ heap_t heap, int rounds, double *ns)
{
    uint64_t start = 0;
    bool fine = true;
    for (int k = 0; k <= rounds && fine; k++) {
        start = k == 1 ? now_ns() : start;
        fine = weft_symm_barrier_block(heap);
    }
    if (threadIdx.x == 0) {
        *ns = fine ? (double)(now_ns() - start) / rounds : -1;
    }
}

/* ---- launching -------------------------------------------------------------------------- */

/* Kernels are loaded at their first launch unless somebody asks before, and that may wait for those
 * that run; they may wait for this one. */
static int load(int gpu)
{
    const void *all[] = {(const void *)check_kernel,  (const void *)handoff_kernel,
                         (const void *)lookup_kernel, (const void *)sum_kernel,
                         (const void *)wait_kernel,   (const void *)barrier_kernel};
    cudaError_t error = cudaSetDevice(gpu);
    for (const void *kernel : all) {
        cudaFuncAttributes attributes;
        error = error ? error : cudaFuncGetAttributes(&attributes, kernel);
    }
    return (int)error;
}

#define LAUNCH(kernel, threads, ...)                                                               \
    kernel<<<1, threads, 0, (cudaStream_t)stream>>>(__VA_ARGS__);                                  \
    return (int)cudaGetLastError()

static int check(const heap_t *heap, const symm_check_t *check, void *stream)
{
    LAUNCH(check_kernel, SYMM_CHECK_THREADS, *heap, *check);
}

static int handoff(const heap_t *heap, char *buffer, uint64_t *flag, uint64_t base, uint64_t bytes,
                   int threads, int rounds, double *ns, void *stream)
{
    int relaxed = threads < 0;
    threads = relaxed ? -threads : threads;
    LAUNCH(handoff_kernel, (unsigned)threads, *heap, buffer, flag, base, bytes, rounds, relaxed,
           ns);
}

static int lookup(const heap_t *heap, const weft_params_view_t *params, int rank, uint64_t bytes,
                  int rounds, double *ns, void *stream)
{
    LAUNCH(lookup_kernel, 256, *heap, *params, rank, bytes, rounds, ns);
}

static int sum(const heap_t *heap, const weft_dtensor_view_t *tensor, uint64_t rows, uint64_t *sum,
               void *stream)
{
    LAUNCH(sum_kernel, 128, *heap, *tensor, rows, sum);
}

static int wait(const heap_t *heap, uint64_t *flag, uint64_t value, uint32_t *result, void *stream)
{
    LAUNCH(wait_kernel, 64, *heap, flag, value, result);
}

static int barrier(const heap_t *heap, int rounds, double *ns, void *stream)
{
    LAUNCH(barrier_kernel, 64, *heap, rounds, ns);
}

extern "C" __attribute__((visibility("default"))) const symm_kernels_t symm_kernels = {
    load, check, handoff, lookup, sum, wait, barrier};
