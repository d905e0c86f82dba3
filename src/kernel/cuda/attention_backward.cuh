/* Attention, backward, on tensor cores. A block has KEYS keys of a key/value head and goes through
 * the queries after them, QUERIES at a time, for each query head of the group:
 *
 *     s^T = k q^T      p^T = exp(s^T - lse)      dp^T = v do^T      ds^T = p^T (dp^T - delta)
 *     dv += p^T do     dk += ds^T q              dq += ds k
 *
 * A warp has 16 keys, so that p^T and ds^T stay in registers for dv and dk; ds goes through shared
 * memory for dq. dq of a tile of queries is a sum over blocks: they add to it one after the other,
 * the block of the last keys first, so that the result does not depend on who is faster. With b the
 * number of a block and i that of a tile of queries, block b is at tile i one step after block b +
 * 1:
 *
 *     step          0     1     2     3
 *     block 0      i=0   i=1   i=2   i=3        (KEYS = QUERIES)
 *     block 1      i=1   i=2   i=3
 *     block 2      i=2   i=3
 *
 * so nobody waits for long. Blocks take their work by ticket, last keys first: whoever is waited
 * for runs already. The sum is kept in f32 in `work`; the first block to come stores it without
 * reading, and block 0 rounds it and writes it to its place. A warp works on the same part of a
 * tile in every block, so flags are per warp and no block has to wait for itself. */
#ifndef WEFT_KERNEL_CUDA_ATTENTION_BACKWARD_CUH
#define WEFT_KERNEL_CUDA_ATTENTION_BACKWARD_CUH

#include "kernel/cuda/attention.cuh"

template <typename T_, int D_, int WARPS_, int QUERIES_> struct backward_shape {
    typedef T_ T;
    enum {
        D = D_,
        WARPS = WARPS_,
        QUERIES = QUERIES_,
        THREADS = 32 * WARPS,
        KEYS = 16 * WARPS,
        SLABS = QUERIES / 16,   /* of 16 queries */
        ACROSS = WARPS / SLABS, /* warps that share a slab of dq */
        WIDTH = D / ACROSS,     /* columns of dq that a warp has */
        KV_BYTES = KEYS * D * 2,
        Q_BYTES = QUERIES * D * 2,
        DS_BYTES = KEYS * QUERIES * 2,
        /* k, v; q, do twice; ds; lse and delta twice */
        SHARED = 2 * KV_BYTES + 4 * Q_BYTES + DS_BYTES + 4 * QUERIES * 4
    };
    /* Of dq: a warp's slab of queries, and its part of the columns. */
    static __device__ __forceinline__ int slab(int warp)
    {
        return warp / ACROSS;
    }
    static __device__ __forceinline__ int part(int warp)
    {
        return warp % ACROSS;
    }
};

template <typename T> struct backward_t {
    heads_t at;
    const T *qkv, *dout;
    const float *lse, *delta;
    T *dqkv;
    float *dq;       /* B x H x tiles x QUERIES x D, in the order of threads */
    uint32_t *flags; /* B x H x tiles x WARPS: blocks that have added; then the ticket */
    uint32_t *ticket;
    int64_t tiles, blocks; /* of queries; of keys */
};

/* Which keys a block has. */
struct keys_t {
    int64_t block, first, b; /* number and first key of the block; sequence */
    int g;
    int64_t k_at, v_at;        /* in qkv */
    int64_t from, each, steps; /* tiles of queries: first, per head, in all */
};

/* ---- sums of dq in order -------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t read_flag(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/* From the L2 cache, and never before a flag was seen: __ldcg would leave that to the compiler. */
static __device__ __forceinline__ float4 read_sum(const float4 *at)
{
    float4 sum;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(sum.x), "=f"(sum.y), "=f"(sum.z), "=f"(sum.w)
                 : "l"(at)
                 : "memory");
    return sum;
}

/* A warp's part of dq of a tile. */
struct dq_part_t {
    float4 *sums;
    uint32_t *flag; /* NULL: there is nothing to tell */
    uint32_t turn;  /* blocks, of later keys, that come before this one */
    bool is_last;
};

template <typename S>
static __device__ __forceinline__ dq_part_t find_dq(const backward_t<typename S::T> &args,
                                                    const keys_t &keys, int h, int64_t tile)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t at = (keys.b * args.at.heads + h) * args.tiles + tile;
    int64_t past = tile * S::QUERIES + S::QUERIES;
    past = past < args.at.seq ? past : args.at.seq;
    return {(float4 *)args.dq + (at * S::WARPS + warp) * (S::WIDTH / 8) * 32 + lane,
            args.flags + at * S::WARPS + warp, (uint32_t)((past - 1) / S::KEYS - keys.block),
            keys.block == 0};
}

/* Until the blocks before have left their sum. For all of a warp. */
static __device__ __forceinline__ void wait_dq(const dq_part_t &part)
{
    if (part.turn > 0) {
        while (read_flag(part.flag) != part.turn) {
        }
        __syncwarp();
    }
}

/* dq starts as that sum. Early in a step, so that nobody waits for memory. */
template <typename S>
static __device__ __forceinline__ void begin_dq(const dq_part_t &part, float dq[S::WIDTH / 8][4])
{
#pragma unroll
    for (int n = 0; n < S::WIDTH / 8; n++) {
        float4 sum = read_sum(part.sums + n * 32);
        dq[n][0] = part.turn > 0 ? sum.x : 0.0f;
        dq[n][1] = part.turn > 0 ? sum.y : 0.0f;
        dq[n][2] = part.turn > 0 ? sum.z : 0.0f;
        dq[n][3] = part.turn > 0 ? sum.w : 0.0f;
    }
}

/* Leave the sum to the next block, or write dq, if this is the last one. */
template <typename S>
static __device__ __forceinline__ void end_dq(const backward_t<typename S::T> &args,
                                              const dq_part_t &part,
                                              const float dq[S::WIDTH / 8][4], int64_t b, int h,
                                              int64_t tile)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    if (!part.is_last) {
#pragma unroll
        for (int n = 0; n < S::WIDTH / 8; n++) {
            __stcg(part.sums + n * 32, make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]));
        }
        return;
    }
    int64_t t = tile * S::QUERIES + S::slab(warp) * 16 + lane / 4;
    int column = S::part(warp) * S::WIDTH;
    typename S::T *row = args.dqkv + (b * args.at.seq + t) * args.at.row +
                         h * args.at.head_dim + column + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++, t += 8, row += 8 * args.at.row) {
#pragma unroll
        for (int n = 0; n < S::WIDTH / 8; n++) {
            if (t < args.at.seq && column + 8 * n < args.at.head_dim) {
                *reinterpret_cast<uint32_t *>(row + 8 * n) = pack2<typename S::T>(
                    dq[n][2 * half] * args.at.scale, dq[n][2 * half + 1] * args.at.scale);
            }
        }
    }
}

/* The next block may go on. After a barrier that follows end_dq, so that lane 0's release covers
 * the stores of all lanes; a step later, since they have arrived by then and the release need not
 * wait. */
static __device__ __forceinline__ void tell_dq(const dq_part_t &part)
{
    int tells = threadIdx.x % 32 == 0 && part.flag != NULL && !part.is_last;
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n"
                 "@p st.release.gpu.global.u32 [%0], %1;\n}" ::"l"(part.flag),
                 "r"(part.turn + 1), "r"(tells)
                 : "memory");
}

/* ---- one tile of queries -------------------------------------------------------------------- */

/* s^T becomes p^T; keys after the query have p = 0. */
template <typename S>
static __device__ __forceinline__ void probabilities(float s[S::QUERIES / 8][4], const float *lse,
                                                     float scale_log2, int64_t key, int64_t query)
{
    int lane = (int)threadIdx.x % 32;
    bool cut = key + 15 > query;
#pragma unroll
    for (int n = 0; n < S::QUERIES / 8; n++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int column = 8 * n + lane % 4 * 2 + j % 2;
            bool hidden = cut && key + lane / 4 + j / 2 * 8 > query + column;
            s[n][j] = hidden ? 0.0f : exp2_fast(s[n][j] * scale_log2 - lse[column] * LOG2E);
        }
    }
}

/* ds^T = p^T (dp^T - delta), in place of dp^T. With dropout p is what was multiplied with v, and dp
 * is the gradient of that: the factor (0 or 1 / (1 - rate)) belongs to both. */
template <typename S, bool DROP>
static __device__ __forceinline__ void
slopes(float p[S::QUERIES / 8][4], float dp[S::QUERIES / 8][4], const float *delta,
       const heads_t &at, int64_t b, int h, int64_t key, int64_t query)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < S::QUERIES / 8; n++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int column = 8 * n + lane % 4 * 2 + j % 2;
            float factor = 1.0f;
            if (DROP) {
                factor = mask_factor(at.mask, mask_row(at, b, h, query + column) + key + lane / 4 +
                                                  j / 2 * 8);
            }
            dp[n][j] = p[n][j] * (dp[n][j] * factor - delta[column]);
            p[n][j] *= factor;
        }
    }
}

/* Byte offset of a unit of ds^T in shared memory: KEYS rows of QUERIES. */
template <typename S> static __device__ __forceinline__ int slope_at(int row, int unit)
{
    const int units = S::QUERIES / LANE;
    static_assert(units == 8 || units == 4, "eight rows of a unit are in different banks");
    return (row * units + (unit ^ (units == 8 ? row & 7 : row >> 1 & 3))) * 16;
}

template <typename S>
static __device__ __forceinline__ void put_slopes(const float ds[S::QUERIES / 8][4], char *tile,
                                                  int row)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = row + lane / 4 + 8 * half;
#pragma unroll
        for (int n = 0; n < S::QUERIES / 8; n++) {
            *reinterpret_cast<uint32_t *>(tile + slope_at<S>(r, n) +
                                          lane % 4 * 4) = pack2<typename S::T>(ds[n][2 * half],
                                                                               ds[n][2 * half + 1]);
        }
    }
}

/* A gradient of 16 keys. */
template <typename S>
static __device__ __forceinline__ void put_rows(const float sum[S::D / 8][4], float factor,
                                                typename S::T *out, const heads_t &at, int64_t key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t t = key + lane / 4 + 8 * half;
#pragma unroll
        for (int d = 0; d < S::D / 8; d++) {
            if (t < at.seq && 8 * d < at.head_dim) {
                *reinterpret_cast<uint32_t *>(out + t * at.row + 8 * d + lane % 4 * 2) =
                    pack2<typename S::T>(sum[d][2 * half] * factor, sum[d][2 * half + 1] * factor);
            }
        }
    }
}

template <typename S>
static __device__ __forceinline__ keys_t find_keys(const backward_t<typename S::T> &args,
                                                   uint32_t drawn)
{
    const heads_t &at = args.at;
    keys_t keys;
    keys.block = args.blocks - 1 - drawn % args.blocks;
    keys.first = keys.block * S::KEYS;
    keys.b = drawn / args.blocks / at.kv_heads;
    keys.g = (int)(drawn / args.blocks % at.kv_heads);
    keys.k_at = keys.b * at.seq * at.row + (at.heads + keys.g) * at.head_dim;
    keys.v_at = keys.k_at + at.kv_heads * at.head_dim;
    keys.from = keys.first / S::QUERIES;
    keys.each = args.tiles - keys.from;
    keys.steps = keys.each * at.group;
    return keys;
}

/* Start copying the queries of a step, their gradients, and their statistics; twice as much room.
 * Past the end all of these are 0, and so is what comes of them: ds = 1 (0 - 0), dv += 1 x 0. */
template <typename S>
static __device__ __forceinline__ void fetch_step(const backward_t<typename S::T> &args,
                                                  const keys_t &keys, uint32_t tiles,
                                                  float *statistics, int64_t step)
{
    const heads_t &at = args.at;
    int h = keys.g * at.group + (int)(step / keys.each), half = (int)(step % 2);
    int64_t first = (keys.from + step % keys.each) * S::QUERIES, b = keys.b;
    tiles += (uint32_t)half * 2 * S::Q_BYTES;
    statistics += half * 2 * S::QUERIES;
    fetch_tile<S::D, S::QUERIES, S::THREADS>(tiles,
                                             args.qkv + b * at.seq * at.row + h * at.head_dim,
                                             at.row, first, at.seq, at.head_dim);
    fetch_tile<S::D, S::QUERIES, S::THREADS>(tiles + S::Q_BYTES,
                                             args.dout + (b * at.seq * at.heads + h) * at.head_dim,
                                             (int64_t)at.heads * at.head_dim, first, at.seq,
                                             at.head_dim);
    static_assert(2 * S::QUERIES <= S::THREADS, "a thread copies one number at most");
    if ((int)threadIdx.x < 2 * S::QUERIES) {
        int i = (int)threadIdx.x % S::QUERIES;
        bool inside = first + i < at.seq;
        const float *from = (int)threadIdx.x < S::QUERIES ? args.lse : args.delta;
        from += (b * at.heads + h) * at.seq + (inside ? first + i : 0);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                         shared_address(statistics + threadIdx.x)),
                     "l"(from), "r"(inside ? 4 : 0));
    }
    fetch_commit();
}

/* Draw work: last keys first. For all threads of a block. */
template <typename T> static __device__ __forceinline__ uint32_t draw(const backward_t<T> &args)
{
    __shared__ uint32_t drawn;
    if (threadIdx.x == 0) {
        drawn = atomicAdd(args.ticket, 1);
    }
    __syncthreads();
    return drawn;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Parts of `work`: delta, the sums of dq, flags and the ticket. */
struct parts_t {
    int64_t tiles, delta, dq, flags;
};

template <typename S> static parts_t parts_of(const weft_attention_t *args)
{
    int64_t tiles = ceil_div(args->seq, S::QUERIES), heads = args->batch * args->heads;
    return {tiles, ceil_div(heads * args->seq, 64) * 64, heads * tiles * S::QUERIES * S::D,
            heads * tiles * S::WARPS + 1};
}

/* Find delta and set flags to 0; then run the kernel. */
template <typename S>
static int launch_backward(const weft_cuda_exec_t *exec, const weft_attention_t *args,
                           void (*kernel)(backward_t<typename S::T>))
{
    typedef typename S::T T;
    parts_t parts = parts_of<S>(args);
    float *delta = (float *)args->work;
    uint32_t *flags = (uint32_t *)(delta + parts.delta + parts.dq);
    backward_t<T> all = {heads_of(args),
                         (const T *)args->qkv,
                         (const T *)args->dout,
                         args->lse,
                         delta,
                         (T *)args->dqkv,
                         delta + parts.delta,
                         flags,
                         flags + parts.flags - 1,
                         parts.tiles,
                         ceil_div(args->seq, S::KEYS)};
    unsigned grid = (unsigned)(all.blocks * args->batch * args->kv_heads);
    WEFT_TRY(weft_cuda_attention_delta(exec, args, delta, flags, parts.flags));
    WEFT_TRY(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  S::SHARED));
    kernel<<<grid, S::THREADS, S::SHARED, stream_of(exec)>>>(all);
    return launched();
}

#endif
