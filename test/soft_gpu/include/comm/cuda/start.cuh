/* What stands in for src/comm/cuda/start.cuh: kernels are queued on streams made of threads. */
#ifndef WEFT_COMM_CUDA_START_CUH
#define WEFT_COMM_CUDA_START_CUH

#include <functional>
#include <tuple>

#include "comm/call.h"
#include "comm/cuda/machine.cuh"

/* Would a GPU reach what the kernel is given, as far as it can be known here? Buffers that a rank
 * does not have in a call may be anything. */
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
static cudaError_t start_with(const cudaLaunchConfig_t &config, void (*kernel)(ARGS...),
                              void **args, std::index_sequence<I...>)
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
static cudaError_t start_kernel(int gpu, const cudaLaunchConfig_t &config, void (*kernel)(ARGS...),
                                void **args)
{
    cudaError_t error = cudaSetDevice(gpu);
    return error ? error : start_with(config, kernel, args, std::index_sequence_for<ARGS...>());
}

#endif
