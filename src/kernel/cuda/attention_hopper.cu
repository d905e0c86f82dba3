/* Attention, forward, with Hopper's products of warpgroups, for heads of 64: the steps of
 * attention.cu in the manner of hopper.cuh. A piece of work is 128 queries of a head; keys and
 * values come in steps. Two blocks an SM: four groups, each at another point of its step (three
 * groups in one block, with the sum of a step under the exponentials of the next, took a fifth
 * longer). */
#define WEFT_HOPPER_BLOCKS 2

#include "kernel/cuda/attention_forward.cuh"
#include "kernel/cuda/hopper.cuh"
#include "kernel/cuda/wgmma.cuh"

template <typename T> using shape_64 = forward_shape<T, SIDE, TAKERS, 1, SIDE>;

struct attend_t {
    heads_t at;
    float *lse;
    uint32_t *ticket;
    int blocks; /* of a sequence */
    uint32_t pieces;
};

struct attend_maps_t {
    CUtensorMap qkv, out;
};

enum {
    PIECE_BYTES = GROUPS * TILE_BYTES,
    STEP_BYTES = 2 * TILE_BYTES,
    STEPS_AT = PIECES * PIECE_BYTES,
    OUT_AT = STEPS_AT + STEPS * STEP_BYTES,
    RINGS_AT = OUT_AT + GROUPS * TILE_BYTES,
    SHARED = RINGS_AT + (int)sizeof(rings_t)
};

#if HOPPER

struct piece_t {
    int b, head, first, steps;
};

/* The last queries of a head have most keys and come first, then the others of the same head, which
 * find its keys and values in the cache. */
static __device__ __forceinline__ piece_t find_piece(const attend_t &args, uint32_t drawn)
{
    int head = (int)drawn / args.blocks, block = args.blocks - 1 - (int)drawn % args.blocks;
    int first = block * BLOCK_ROWS, seq = (int)args.at.seq;
    int last = first + BLOCK_ROWS < seq ? first + BLOCK_ROWS : seq;
    return {head / args.at.heads, head % args.at.heads, first, (last + SIDE - 1) / SIDE};
}

static __device__ __forceinline__ void feed(const attend_maps_t &maps, const attend_t &args,
                                            uint32_t shared, rings_t *rings)
{
    cursor_t<PIECES> piece = {};
    cursor_t<STEPS> step = {};
    uint32_t drawn = atomicAdd(args.ticket, 1);
    for (; piece_offer(rings, piece, drawn, args.pieces, PIECE_BYTES); piece.next()) {
        piece_t work = find_piece(args, drawn);
        int k = (args.at.heads + work.head / args.at.group) * SIDE, v = k + args.at.kv_heads * SIDE;
        uint32_t full = bar(&rings->piece_full[piece.at]);
        for (int i = 0; i < GROUPS; i++) {
            tile_load(shared + (uint32_t)(piece.at * PIECE_BYTES + i * TILE_BYTES), maps.qkv,
                      work.head * SIDE, work.first + i * SIDE, work.b, full);
        }
        drawn = atomicAdd(args.ticket, 1);
        for (int i = 0; i < work.steps; i++, step.next()) {
            uint32_t to = shared + (uint32_t)(STEPS_AT + step.at * STEP_BYTES);
            full = bar(&rings->step_full[step.at]);
            barrier_wait(bar(&rings->step_free[step.at]), step.parity ^ 1);
            barrier_announce(full, STEP_BYTES);
            tile_load(to, maps.qkv, k, i * SIDE, work.b, full);
            tile_load(to + TILE_BYTES, maps.qkv, v, i * SIDE, work.b, full);
        }
    }
}

/* Divide by the sums, and keep their logarithms. `first` is the group's first query. */
template <typename S>
static __device__ __forceinline__ void finish(forward_state<S> &state, const attend_t &args,
                                              const piece_t &work, int first)
{
    int lane = (int)threadIdx.x % 32, local = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = state.sum[0][half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        int t = first + local + 8 * half;
        float factor = 1.0f / sum;
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++) {
            state.out[0][n][2 * half] *= factor;
            state.out[0][n][2 * half + 1] *= factor;
        }
        if (lane % 4 == 0 && t < args.at.seq) {
            args.lse[((int64_t)work.b * args.at.heads + work.head) * args.at.seq + t] =
                state.max[0][half] * args.at.scale + logf(sum);
        }
    }
}

template <typename T, bool DROP>
static __device__ __forceinline__ void take(const attend_maps_t &maps, const attend_t &args,
                                            char *memory, rings_t *rings)
{
    typedef shape_64<T> S;
    const uint32_t shared = shared_address(memory);
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 128;
    char *leave = memory + OUT_AT + group * TILE_BYTES;
    cursor_t<PIECES> piece = {};
    cursor_t<STEPS> step = {};
    uint32_t drawn;
    for (; piece_take(rings, piece, args.pieces, &drawn); piece.next()) {
        const piece_t work = find_piece(args, drawn);
        const int first = work.first + group * SIDE,
                  query = first + (int)threadIdx.x % 128 / 32 * 16;
        const int mine = first < args.at.seq ? first / SIDE + 1 : 0; /* tiles of keys */
        const uint32_t q = shared + (uint32_t)(piece.at * PIECE_BYTES + group * TILE_BYTES);
        forward_state<S> state;
        clear(state);
        for (int i = 0; i < work.steps; i++, step.next()) {
            const uint32_t k = shared + (uint32_t)(STEPS_AT + step.at * STEP_BYTES);
            float scores[1][SIDE / 8][4];
            uint32_t weights[4][4];
            barrier_wait(bar(&rings->step_full[step.at]), step.parity);
            if (i >= mine) {
                step_release(rings, step.at);
                continue;
            }
            group_start();
            products_64<T>(scores[0], q, k);
            group_commit();
            group_wait<0>();
            settle(scores[0]);
            if (i == mine - 1) {
                hide<S>(scores, query, i * SIDE);
            }
            soften<S>(state, scores, args.at.scale * LOG2E);
            if (DROP) {
                drop<S>(scores, args.at, work.b, work.head, query, i * SIDE);
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                as_a<T>(weights[n], scores[0][2 * n], scores[0][2 * n + 1]);
            }
            settle(state.out[0]);
            group_start();
            gather_64<T>(state.out[0], weights, k + TILE_BYTES);
            group_commit();
            group_wait<0>();
            settle(state.out[0]);
            step_release(rings, step.at);
        }
        barrier_arrive(bar(&rings->piece_free[piece.at]), lane == 0);
        finish(state, args, work, first);
        tile_stored(); /* the one of the piece before, by the thread that has sent it */
        group_sync(group);
        put_tile<T>(state.out[0], 1.0f, leave);
        publish();
        group_sync(group);
        if (threadIdx.x % 128 == 0 && first < args.at.seq) {
            tile_store(maps.out, work.head * SIDE, first, work.b, shared_address(leave));
        }
    }
    tile_stored();
}

#endif

template <typename T, bool DROP>
static __global__ void __launch_bounds__(HOPPER_THREADS, WEFT_HOPPER_BLOCKS)
    attend_hopper(const __grid_constant__ attend_maps_t maps, const attend_t args)
{
#if HOPPER
    extern __shared__ __align__(1024) char shared[];
    rings_t *rings = (rings_t *)(shared + RINGS_AT);
    rings_open(rings);
    if (threadIdx.x < 128 * GROUPS) {
        taker_starts();
        take<T, DROP>(maps, args, shared, rings);
    } else {
        feeder_starts();
        if (threadIdx.x == 128 * GROUPS) {
            feed(maps, args, shared_address(shared), rings);
        }
    }
#endif
}

/* ---- maps of tensors for the copy engine -------------------------------------------------- */

/* The driver's function, looked for at run time. */
typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn find_encode(void)
{
    void *fn = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return found == cudaDriverEntryPointSuccess ? (encode_fn)fn : NULL;
}

int weft_cuda_tile_map(CUtensorMap *map, weft_dtype_t type, const void *tensor, int64_t batch,
                       int64_t seq, int64_t width)
{
    static const encode_fn encode = find_encode();
    const cuuint64_t sizes[] = {(cuuint64_t)width, (cuuint64_t)seq, (cuuint64_t)batch};
    const cuuint64_t strides[] = {(cuuint64_t)width * 2, (cuuint64_t)(width * seq) * 2};
    const cuuint32_t box[] = {SIDE, SIDE, 1}, steps[] = {1, 1, 1};
    if (encode == NULL) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    CUresult result = encode(map,
                             type == WEFT_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                              : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                             3, (void *)(uintptr_t)tensor, sizes, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return (int)result; /* the runtime's errors have the same numbers */
}

/* ---- launches ------------------------------------------------------------------------------- */

/* Only sm_90a has the instructions, so this is for chips of that very number, and for modules built
 * for it. */
bool attention_is_hopper(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
#ifdef WEFT_SM_90A
    int major = 0, minor = 0;
    return exec->attention == WEFT_CUDA_ATTENTION_AUTO && args->head_dim == SIDE &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, exec->gpu) == 0 &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, exec->gpu) == 0 &&
           major == 9 && minor == 0;
#else
    (void)exec;
    (void)args;
    return false;
#endif
}

template <typename T, bool DROP>
static int launch(const weft_cuda_exec_t *exec, const attend_maps_t &maps, const attend_t &all)
{
    int sms = 0;
    WEFT_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, exec->gpu));
    WEFT_TRY(cudaFuncSetAttribute((const void *)attend_hopper<T, DROP>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    unsigned grid = blocks_of(all.pieces, WEFT_HOPPER_BLOCKS * sms);
    attend_hopper<T, DROP><<<grid, HOPPER_THREADS, SHARED, stream_of(exec)>>>(maps, all);
    return launched();
}

int weft_cuda_attention_forward_hopper(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    attend_maps_t maps;
    int64_t width = (int64_t)args->heads * SIDE;
    int blocks = (int)ceil_div(args->seq, BLOCK_ROWS);
    attend_t all = {heads_of(args), args->lse, (uint32_t *)exec->space, blocks,
                    (uint32_t)(args->batch * args->heads * blocks)};
    WEFT_TRY(weft_cuda_tile_map(&maps.qkv, args->type, args->qkv, args->batch, args->seq,
                                width + 2 * (int64_t)args->kv_heads * SIDE));
    WEFT_TRY(weft_cuda_tile_map(&maps.out, args->type, args->out, args->batch, args->seq, width));
    WEFT_TRY(cudaMemsetAsync(all.ticket, 0, sizeof(*all.ticket), stream_of(exec)));
    bool drops = args->mask.rate != 0.0f;
    if (args->type == WEFT_F16) {
        return drops ? launch<f16_t, true>(exec, maps, all) : launch<f16_t, false>(exec, maps, all);
    }
    return drops ? launch<bf16_t, true>(exec, maps, all) : launch<bf16_t, false>(exec, maps, all);
}
