/* Attention, forward: what the kernels for all tensor cores share. A warp has slabs of 16 queries,
 * whose scores with a tile of keys are in registers. */
#ifndef WEFT_KERNEL_CUDA_ATTENTION_FORWARD_CUH
#define WEFT_KERNEL_CUDA_ATTENTION_FORWARD_CUH

#include "kernel/cuda/attention.cuh"

/* Of elements T; ROWS queries per block, 16 x SLABS per warp; KEYS keys per step. */
template <typename T_, int D_, int WARPS_, int SLABS_, int KEYS_> struct forward_shape {
    typedef T_ T;
    enum {
        D = D_, WARPS = WARPS_, SLABS = SLABS_, KEYS = KEYS_,
        THREADS = 32 * WARPS, ROWS = 16 * WARPS * SLABS,
        Q_BYTES = ROWS * D * 2, KV_BYTES = KEYS * D * 2,
        SHARED = Q_BYTES + 4 * KV_BYTES
    };
};

template <typename S> struct forward_state {
    float out[S::SLABS][S::D / 8][4];
    float max[S::SLABS][2], sum[S::SLABS][2]; /* of rows lane / 4 and + 8; max in units of scores */
};

/* Scores become probabilities up to the sum, which is carried along with the maximum. */
template <typename S>
static __device__ __forceinline__ void soften(forward_state<S> &state,
                                              float scores[S::SLABS][S::KEYS / 8][4],
                                              float scale_log2)
{
#pragma unroll
    for (int s = 0; s < S::SLABS; s++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float max = state.max[s][half];
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++) {
                max = fmaxf(max, fmaxf(scores[s][n][2 * half], scores[s][n][2 * half + 1]));
            }
            max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
            max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
            float shift = max == -INFINITY ? 0.0f : max * scale_log2;
            float shrink = exp2_fast(state.max[s][half] * scale_log2 - shift), sum = 0;
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++) {
#pragma unroll
                for (int j = 2 * half; j < 2 * half + 2; j++) {
                    scores[s][n][j] = exp2_fast(scores[s][n][j] * scale_log2 - shift);
                    sum += scores[s][n][j];
                }
            }
            state.max[s][half] = max;
            state.sum[s][half] = state.sum[s][half] * shrink + sum;
#pragma unroll
            for (int d = 0; d < S::D / 8; d++) {
                state.out[s][d][2 * half] *= shrink;
                state.out[s][d][2 * half + 1] *= shrink;
            }
        }
    }
}

/* Keys after the query (and after the end) do not count. */
template <typename S>
static __device__ __forceinline__ void hide(float scores[S::SLABS][S::KEYS / 8][4], int64_t query,
                                            int64_t key)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < S::SLABS; s++) {
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int64_t row = query + 16 * s + lane / 4 + j / 2 * 8;
                int64_t column = key + 8 * n + lane % 4 * 2 + j % 2;
                scores[s][n][j] = column > row ? -INFINITY : scores[s][n][j];
            }
        }
    }
}

template <typename S>
static __device__ __forceinline__ void drop(float scores[S::SLABS][S::KEYS / 8][4],
                                            const heads_t &at, int64_t b, int h, int64_t query,
                                            int64_t key)
{
    int lane = (int)threadIdx.x % 32;
    for (int s = 0; s < S::SLABS; s++) {
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int64_t row = query + 16 * s + lane / 4 + j / 2 * 8;
                int64_t column = key + 8 * n + lane % 4 * 2 + j % 2;
                scores[s][n][j] *= mask_factor(at.mask, mask_row(at, b, h, row) + column);
            }
        }
    }
}

template <typename S>
static __device__ __forceinline__ void put_out(const forward_state<S> &state, const heads_t &at,
                                               int64_t b, int h, int64_t query,
                                               typename S::T *out, float *lse)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < S::SLABS; s++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = state.sum[s][half];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            int64_t t = query + 16 * s + lane / 4 + 8 * half;
            if (t >= at.seq) {
                continue;
            }
            float factor = 1.0f / sum;
            typename S::T *row = out + ((b * at.seq + t) * at.heads + h) * at.head_dim +
                                 lane % 4 * 2;
#pragma unroll
            for (int d = 0; d < S::D / 8; d++) {
                if (8 * d < at.head_dim) {
                    *reinterpret_cast<uint32_t *>(row + 8 * d) = pack2<typename S::T>(
                        state.out[s][d][2 * half] * factor, state.out[s][d][2 * half + 1] * factor);
                }
            }
            if (lane % 4 == 0) {
                lse[(b * at.heads + h) * at.seq + t] = state.max[s][half] * at.scale + logf(sum);
            }
        }
    }
}

/* Where a block of queries starts, of which head. Blocks with most keys come first: the tile's
 * number is the slowest index, from the last one down. */
template <typename S> struct block_t {
    int64_t first, b; /* query, sequence */
    int h, steps;     /* head; tiles of keys */
    const typename S::T *q, *k, *v;
};

template <typename S>
static __device__ __forceinline__ block_t<S> find_block(const heads_t &at,
                                                        const typename S::T *qkv)
{
    int64_t tiles = (at.seq + S::ROWS - 1) / S::ROWS, heads = at.batch * at.heads;
    block_t<S> block;
    block.first = (tiles - 1 - blockIdx.x / heads) * S::ROWS;
    block.b = blockIdx.x % heads / at.heads;
    block.h = (int)(blockIdx.x % at.heads);
    int64_t last = block.first + S::ROWS < at.seq ? block.first + S::ROWS : at.seq;
    block.steps = (int)((last + S::KEYS - 1) / S::KEYS);
    block.q = qkv + block.b * at.seq * at.row + block.h * at.head_dim;
    block.k = qkv + block.b * at.seq * at.row + (at.heads + block.h / at.group) * at.head_dim;
    block.v = block.k + at.kv_heads * at.head_dim;
    return block;
}

template <typename S> static __device__ __forceinline__ void clear(forward_state<S> &state)
{
#pragma unroll
    for (int s = 0; s < S::SLABS; s++) {
        state.max[s][0] = state.max[s][1] = -INFINITY;
        state.sum[s][0] = state.sum[s][1] = 0;
#pragma unroll
        for (int d = 0; d < S::D / 8; d++) {
            state.out[s][d][0] = state.out[s][d][1] = state.out[s][d][2] = state.out[s][d][3] = 0;
        }
    }
}

/* Start copying keys and values of a step. */
template <typename S>
static __device__ __forceinline__ void fetch_keys(const heads_t &at, const block_t<S> &block,
                                                  uint32_t tiles, int step)
{
    uint32_t to = tiles + (uint32_t)(step % 2) * 2 * S::KV_BYTES;
    int64_t key = (int64_t)step * S::KEYS;
    fetch_tile<S::D, S::KEYS, S::THREADS>(to, block.k, at.row, key, at.seq, at.head_dim);
    fetch_tile<S::D, S::KEYS, S::THREADS>(to + S::KV_BYTES, block.v, at.row, key, at.seq,
                                          at.head_dim);
    fetch_commit();
}

#endif
