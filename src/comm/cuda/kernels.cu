/* The kernels and how they are launched. */
#include <cuda_runtime.h>
#include <mutex>
#include <set>

#include "comm/cuda/exchange.cuh"
#include "comm/cuda/families.cuh"
#include "comm/cuda/start.cuh"

static const uint64_t element_bytes[] = {
#define DTYPE_BYTES(name, text, bytes) bytes,
    WEFT_DTYPE_TABLE(DTYPE_BYTES)
#undef DTYPE_BYTES
};

static bool reduces(int coll)
{
    return coll == WEFT_COLL_ALLREDUCE || coll == WEFT_COLL_REDUCE ||
           coll == WEFT_COLL_REDUCE_SCATTER;
}

static int highest_priority()
{
    static const int highest = [] {
        int least = 0, greatest = 0;
        return cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess ? greatest : 0;
    }();
    return highest;
}

template <typename KERNEL>
static int launch(int gpu, KERNEL kernel, int blocks, int threads, void **args, void *stream,
                  bool overlap = false, bool urgent = false)
{
    cudaLaunchAttribute attributes[2] = {};
    unsigned n = 0;
    if (overlap) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (urgent) {
        attributes[n].id = cudaLaunchAttributePriority;
        attributes[n++].val.priority = highest_priority();
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.stream = (cudaStream_t)stream;
    config.attrs = attributes;
    config.numAttrs = n;
    cudaError_t error = start_kernel(gpu, config, kernel, args);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return (int)error;
}

/* Kernel and shape of a collective. */
static kernel_fn kernel_of(const weft_cuda_call_t *call, unsigned *threads_p)
{
    int type = reduces(call->coll) ? call->type : WEFT_DTYPE_COUNT;
    int op = reduces(call->coll) ? call->op : WEFT_SUM;
    *threads_p = call->direct ? direct_threads : line_threads;
    return call->direct ? direct_family[type][op]
           : call->even ? even_line_family[type][op]
                        : line_family[type][op];
}

/* The gate, if the call has one, and the grid. */
template <typename GATE, typename KERNEL>
static int launch_call(int gpu, const weft_cuda_call_t *call, GATE gate, KERNEL kernel, int threads,
                       void **args, void *stream)
{
    bool overlap = call->overlap != 0, gated = call->gate != 0;
    int error = gated ? launch(gpu, gate, 1, 32, args, stream, overlap, gated) : 0;
    return error ? error : launch(gpu, kernel, call->blocks, threads, args, stream, overlap, gated);
}

static int collective(int gpu, const weft_cuda_world_t *world, const weft_cuda_call_t *call,
                      void *stream)
{
    uint64_t bytes = call->count * element_bytes[call->type];
    unsigned threads;
    kernel_fn kernel = kernel_of(call, &threads);
    void *args[] = {(void *)world, (void *)call, &bytes};
    return launch_call(gpu, call, gate_kernel, kernel, (int)threads, args, stream);
}

static int ragged(int gpu, const weft_cuda_world_t *world, const weft_cuda_call_t *call,
                  const weft_cuda_ragged_t *ragged, void *stream)
{
    void *args[] = {(void *)world, (void *)call, (void *)ragged};
    return launch_call(gpu, call, ragged_gate_kernel, ragged_kernel, WEFT_CUDA_THREADS, args,
                       stream);
}

static int batch(int gpu, const weft_cuda_world_t *world, const weft_cuda_call_t *call,
                 const weft_cuda_batch_t *batch, void *stream)
{
    void *args[] = {(void *)world, (void *)call, (void *)batch};
    return launch(gpu, batch_family[call->type][call->op], call->blocks, (int)line_threads, args,
                  stream, call->overlap != 0);
}

static int exchange(int gpu, const weft_cuda_world_t *world, const weft_cuda_exchange_t *exchange,
                    void *stream)
{
    void *args[] = {(void *)world, (void *)exchange};
    return launch(gpu, exchange_kernel, exchange->lanes * exchange->lane_blocks, WEFT_CUDA_THREADS,
                  args, stream);
}

/* ---- loading ---------------------------------------------------------------------------- */

/* A kernel is loaded, and gets the local memory it needs, when it is first run: run all of them
 * once with nobody to wait for. */
static int run_once(int gpu)
{
    weft_cuda_world_t nobody = {};
    weft_cuda_call_t call = {};
    weft_cuda_ragged_t vectors = {};
    weft_cuda_batch_t pieces = {};
    weft_cuda_exchange_t messages = {};
    int error = (int)cudaSetDevice(
        gpu); /* priorities are asked for before the first launch selects it */
    call.gate = call.blocks = messages.lanes = messages.lane_blocks = 1;
    for (int i = 0; i < (WEFT_DTYPE_COUNT + 1) * WEFT_OP_COUNT && error == 0; i++) {
        call.coll = i / WEFT_OP_COUNT < WEFT_DTYPE_COUNT ? WEFT_COLL_ALLREDUCE
                                                         : WEFT_COLL_BROADCAST;
        call.type = call.coll == WEFT_COLL_ALLREDUCE ? i / WEFT_OP_COUNT : WEFT_U8;
        call.op = i % WEFT_OP_COUNT;
        for (int kind = 0; kind < 3 && error == 0; kind++) {
            call.direct = kind == 0;
            call.even = kind == 1;
            error = collective(gpu, &nobody, &call, cudaStreamPerThread);
        }
        if (call.coll == WEFT_COLL_ALLREDUCE && error == 0) {
            error = batch(gpu, &nobody, &call, &pieces, cudaStreamPerThread);
        }
    }
    error = error ? error : ragged(gpu, &nobody, &call, &vectors, cudaStreamPerThread);
    error = error ? error : exchange(gpu, &nobody, &messages, cudaStreamPerThread);
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

extern "C" const weft_cuda_comm_ops_t weft_cuda_comm = {
    WEFT_CUDA_ABI, load, collective, ragged, batch, exchange};
