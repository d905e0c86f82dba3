/* Attention, backward, with the tensor cores' instructions for a warp: attention_backward.cuh says
 * how. */
#include "kernel/cuda/attention_backward.cuh"

/* c = a b^T over D, where a are this warp's 16 rows of one tile and b all rows of another. */
template <typename S>
static __device__ __forceinline__ void products(float c[S::QUERIES / 8][4], uint32_t a_tile,
                                                uint32_t b_tile, int row)
{
#pragma unroll
    for (int step = 0; step < S::D / 16; step++) {
        uint32_t a[4];
        rows_a<S::D>(a, a_tile, row, 2 * step);
#pragma unroll
        for (int n = 0; n < S::QUERIES / 16; n++) {
            uint32_t b[4];
            rows_b<S::D>(b, b_tile, 16 * n, 2 * step);
            multiply<typename S::T>(c[2 * n], a, b);
            multiply<typename S::T>(c[2 * n + 1], a, b + 2);
        }
    }
}

/* sum += x b, where x are this warp's 16 keys by all queries, and b a tile of queries by D. */
template <typename S>
static __device__ __forceinline__ void gather(float sum[S::D / 8][4],
                                              const float x[S::QUERIES / 8][4], uint32_t b_tile)
{
#pragma unroll
    for (int n = 0; n < S::QUERIES / 16; n++) {
        uint32_t a[4];
        as_a<typename S::T>(a, x[2 * n], x[2 * n + 1]);
#pragma unroll
        for (int d = 0; d < S::D / 16; d++) {
            uint32_t b[4];
            cols_b<S::D>(b, b_tile, 16 * n, 2 * d);
            multiply<typename S::T>(sum[2 * d], a, b);
            multiply<typename S::T>(sum[2 * d + 1], a, b + 2);
        }
    }
}

/* dq += ds k of this warp's 16 queries and WIDTH columns, over all keys of the block. */
template <typename S>
static __device__ __forceinline__ void make_dq(float dq[S::WIDTH / 8][4], uint32_t ds, uint32_t k)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int unit = S::slab(warp) * 2 + lane / 8 % 2, column = S::part(warp) * S::WIDTH / LANE;
#pragma unroll
    for (int step = 0; step < S::KEYS / 16; step++) {
        int r = 16 * step + lane % 8 + lane / 16 * 8;
        uint32_t a[4];
        load_matrices_transposed(a, ds + (uint32_t)slope_at<S>(r, unit));
#pragma unroll
        for (int n = 0; n < S::WIDTH / 16; n++) {
            uint32_t b[4];
            cols_b<S::D>(b, k, 16 * step, column + 2 * n);
            multiply<typename S::T>(dq[2 * n], a, b);
            multiply<typename S::T>(dq[2 * n + 1], a, b + 2);
        }
    }
}

template <typename S, bool DROP>
static __global__ void __launch_bounds__(S::THREADS, 1)
    attend_backward(backward_t<typename S::T> args)
{
    extern __shared__ __align__(1024) char shared[];
    const heads_t &at = args.at;
    const keys_t keys = find_keys<S>(args, draw(args));
    uint32_t k = shared_address(shared), v = k + S::KV_BYTES, q = v + S::KV_BYTES;
    uint32_t ds = q + 4 * S::Q_BYTES;
    char *ds_tile = shared + 2 * S::KV_BYTES + 4 * S::Q_BYTES;
    float *statistics = (float *)(ds_tile + S::DS_BYTES);
    int row = 16 * ((int)threadIdx.x / 32);
    int64_t key = keys.first + row;
    float dk[S::D / 8][4] = {}, dv[S::D / 8][4] = {};
    dq_part_t last = {};
    fetch_tile<S::D, S::KEYS, S::THREADS>(k, args.qkv + keys.k_at, at.row, keys.first, at.seq,
                                          at.head_dim);
    fetch_tile<S::D, S::KEYS, S::THREADS>(v, args.qkv + keys.v_at, at.row, keys.first, at.seq,
                                          at.head_dim);
    fetch_step<S>(args, keys, q, statistics, 0);
    for (int64_t step = 0; step < keys.steps; step++) {
        int64_t tile = keys.from + step % keys.each, query = tile * S::QUERIES;
        int h = keys.g * at.group + (int)(step / keys.each), now = (int)(step % 2);
        uint32_t q_now = q + (uint32_t)now * 2 * S::Q_BYTES;
        float *lse = statistics + now * 2 * S::QUERIES;
        float s[S::QUERIES / 8][4] = {}, dp[S::QUERIES / 8][4] = {};
        fetch_wait<0>();
        __syncthreads(); /* this tile is here, and everybody is done with the one before and ds */
        if (step + 1 < keys.steps) {
            fetch_step<S>(args, keys, q, statistics, step + 1);
        }
        tell_dq(last);
        products<S>(s, k, q_now, row);
        probabilities<S>(s, lse, at.scale * LOG2E, key, query);
        products<S>(dp, v, q_now + S::Q_BYTES, row);
        slopes<S, DROP>(s, dp, lse + S::QUERIES, at, keys.b, h, key, query);
        put_slopes<S>(dp, ds_tile, row);
        gather<S>(dv, s, q_now + S::Q_BYTES);
        __syncthreads(); /* ds is complete */
        dq_part_t part = find_dq<S>(args, keys, h, tile);
        float dq[S::WIDTH / 8][4];
        wait_dq(part);
        begin_dq<S>(part, dq);
        gather<S>(dk, dp, q_now);
        make_dq<S>(dq, ds, k);
        end_dq<S>(args, part, dq, keys.b, h, tile);
        last = part;
    }
    __syncwarp();
    tell_dq(last);
    put_rows<S>(dk, at.scale, args.dqkv + keys.k_at, at, key);
    put_rows<S>(dv, 1.0f, args.dqkv + keys.v_at, at, key);
}

template <typename T> using narrow = backward_shape<T, NARROW_HEAD, 8, 64>;
template <typename T> using broad = backward_shape<T, BROAD_HEAD, 4, 32>;

size_t weft_cuda_attention_fast_work(const weft_attention_t *args)
{
    int64_t words = ceil_div(args->batch * args->heads * args->seq, 64) * 64;
    if (attention_has_tiles(args)) {
        parts_t parts = args->head_dim <= NARROW_HEAD ? parts_of<narrow<bf16_t>>(args)
                                             : parts_of<broad<bf16_t>>(args); /* f16 has the same */
        words = parts.delta + parts.dq + parts.flags;
    }
    size_t hopper = weft_cuda_attention_hopper_work(args), warp = (size_t)words * sizeof(float);
    return hopper > warp ? hopper : warp; /* which of them it will be is not known here */
}

template <typename S>
static int run_backward(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    bool drops = args->mask.rate != 0.0f;
    return launch_backward<S>(exec, args,
                              drops ? attend_backward<S, true> : attend_backward<S, false>);
}

int weft_cuda_attention_backward_fast(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    bool f16 = args->type == WEFT_F16;
    if (attention_is_hopper(exec, args)) {
        return weft_cuda_attention_backward_hopper(exec, args);
    }
    if (args->head_dim <= NARROW_HEAD) {
        return f16 ? run_backward<narrow<f16_t>>(exec, args)
                   : run_backward<narrow<bf16_t>>(exec, args);
    }
    return f16 ? run_backward<broad<f16_t>>(exec, args) : run_backward<broad<bf16_t>>(exec, args);
}
