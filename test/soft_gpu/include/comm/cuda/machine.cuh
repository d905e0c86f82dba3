/* What stands in for src/comm/cuda/machine.cuh: the same, on a CPU. Words are written and read whole, and who
 * polls in vain lets other threads of its block go on. */
#ifndef WEFT_COMM_CUDA_MACHINE_CUH
#define WEFT_COMM_CUDA_MACHINE_CUH

#include <cuda_runtime.h>
#include <ctime>
#include <functional>
#include <tuple>

#include "comm/call.h"
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

static inline void line_store(weft_cuda_word_t *to, const uint32_t (&data)[2], uint32_t flag)
{
    word_store(to, data[0], flag);
    word_store(to + 1, data[1], flag);
}

static inline bool line_load(const weft_cuda_word_t *from, uint32_t flag, uint32_t (&data)[2])
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

/* ---- the host's side -------------------------------------------------------------------- */

/* Would a GPU reach what the kernel is given, as far as it can be known here? Buffers that a rank does not
 * have in a call may be anything. */
static inline bool in_reach(const world_t &world, const weft_cuda_call_t &call, uint64_t = 0)
{
    bool reads = true, writes = true;
    if (call.count == 0) {
        return true;
    }
    if (call.coll == WEFT_COLL_BROADCAST || call.coll == WEFT_COLL_SCATTER) {
        reads = call.root == world.rank;
    } else if (call.coll == WEFT_COLL_REDUCE || call.coll == WEFT_COLL_GATHER) {
        writes = call.root == world.rank;
    }
    return (!reads || soft_reaches(call.src, 1)) && (!writes || soft_reaches(call.dst, 1));
}

static inline bool in_reach(const world_t &world, const weft_cuda_call_t &call,
                            const weft_cuda_ragged_t &ragged)
{
    for (int p = 0; p < world.size; p++) {
        if (!soft_reaches((const char *)call.src + ragged.send_at[p], ragged.send_bytes[p]) ||
            !soft_reaches((const char *)call.dst + ragged.recv_at[p], ragged.recv_bytes[p])) {
            return false;
        }
    }
    return true;
}

static inline bool in_reach(const world_t &, const weft_cuda_call_t &,
                            const weft_cuda_batch_t &batch)
{
    for (int i = 0; i < batch.n; i++) {
        if (!soft_reaches(batch.piece[i].src, batch.piece[i].bytes) ||
            !soft_reaches(batch.piece[i].dst, batch.piece[i].bytes)) {
            return false;
        }
    }
    return true;
}

static inline bool in_reach(const world_t &world, const weft_cuda_exchange_t &exchange)
{
    const weft_cuda_message_t *messages = exchange.messages ? exchange.messages : exchange.few;
    if (!soft_reaches(exchange.messages, 1)) {
        return false;
    }
    for (int lane = 0; world.size > 0 && lane < exchange.lanes; lane++) {
        for (int i = exchange.first[lane]; i >= 0; i = messages[i].next) {
            if (!messages[i].sends && !soft_reaches(messages[i].at, messages[i].bytes)) {
                return false;
            }
        }
    }
    return true;
}

template <typename... ARGS, size_t... I>
static cudaError_t start_with(const cudaLaunchConfig_t &config, void (*kernel)(ARGS...), void **args,
                              std::index_sequence<I...>)
{
    std::tuple<std::remove_const_t<ARGS>...> copy(*(const std::remove_const_t<ARGS> *)args[I]...);
    if (!in_reach(std::get<I>(copy)...)) {
        return SOFT_ILLEGAL_ADDRESS;
    }
    unsigned blocks = config.gridDim.x, threads = config.blockDim.x;
    return soft_enqueue(config.stream, [=] {
        soft_run_grid(blocks, threads, [&] { std::apply(kernel, copy); });
    });
}

template <typename... ARGS>
static cudaError_t start_kernel(const cudaLaunchConfig_t &config, void (*kernel)(ARGS...), void **args)
{
    return start_with(config, kernel, args, std::index_sequence_for<ARGS...>());
}

#endif
