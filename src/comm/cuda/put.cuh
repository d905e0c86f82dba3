/* One-sided stores from inside a kernel: put data into a peer's memory, then a signal that says so,
 * and wait for one. By a whole block; bytes up to 16 a thread travel in one store each. */
#ifndef WEFT_COMM_CUDA_PUT_CUH
#define WEFT_COMM_CUDA_PUT_CUH

#include "comm/cuda/move.cuh"
#include "comm/cuda/sync.cuh"

/* All threads of the block. The signal is seen after the data: every thread's stores come before the
 * barrier, and the fence of the one that signals is cumulative. */
static __device__ __forceinline__ void put_signal(const world_t &world, char *dst, const char *src,
                                                  uint64_t bytes, uint64_t *signal, uint64_t value)
{
    crew_t crew = {0, 1};
    if (bytes == 8 && (((uintptr_t)dst | (uintptr_t)src) & 7) == 0) {
        if (threadIdx.x == 0) { /* the one that signals: no barrier is needed */
            *(uint64_t *)dst = *(const uint64_t *)src;
        }
    } else {
        crew_copy(dst, src, bytes, crew);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        fence(world);
        store64(signal, value);
    }
}

/* Wait until *signal is at least `value`; what was put before it can be read then. False: give up. */
static __device__ __forceinline__ bool await_signal(const world_t &world, int peer,
                                                    const uint64_t *signal, uint64_t value)
{
    __shared__ int stop;
    if (threadIdx.x == 0) {
        waiter_t waiter = {0, 0};
        bool gave_up = false;
        while (!gave_up && acquire64(world, signal) < value) {
            gave_up = poll_failed(world, &waiter, (uint32_t)peer, 0, 0, 0);
        }
        stop = gave_up;
    }
    __syncthreads();
    return !stop;
}

/* Ping-pong between ranks 0 and 1: `rounds` puts of `bytes` each way. result[0]: nanoseconds of one
 * way; result[1]: bytes that were wrong (where check is set). */
static __global__ void __launch_bounds__(256, 1)
    ping_kernel(const __grid_constant__ world_t world, uint64_t bytes, int rounds, int check,
                uint64_t base, double *result)
{
    __shared__ unsigned wrong;
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    box_t *mine = world.box[world.rank], *theirs = world.box[1 - world.rank];
    __shared__ alignas(16) char data[WEFT_CUDA_PING_BYTES];
    if (threadIdx.x == 0) {
        wrong = 0;
    }
    for (uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) {
        data[i] = (char)(i * 7 + 3);
    }
    __syncthreads();
    uint64_t start = 0;
    bool fine = true;
    for (int k = 0; k <= rounds && fine; k++) {
        if (k == 1) { /* the first round is for meeting */
            start = now_ns();
        }
        uint64_t value = base + (uint64_t)k + 1;
        if (check) {
            for (uint64_t i = threadIdx.x; i < bytes; i += blockDim.x) {
                data[i] = (char)(i * 7 + value);
            }
            __syncthreads();
        }
        if (world.rank == 0) {
            put_signal(world, theirs->ping, data, bytes, &theirs->signal, value);
        }
        fine = await_signal(world, 1 - world.rank, &mine->signal, value);
        for (uint64_t i = threadIdx.x; check && fine && i < bytes; i += blockDim.x) {
            if (*(volatile char *)&mine->ping[i] != (char)(i * 7 + value)) {
                atomicAdd(&wrong, 1u);
            }
        }
        __syncthreads();
        if (world.rank == 1 && fine) {
            put_signal(world, theirs->ping, data, bytes, &theirs->signal, value);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        result[0] = (double)(now_ns() - start) / rounds / 2;
        result[1] = fine ? wrong : (double)bytes;
    }
}

#endif
