/* Attention, forward, on tensor cores: a block has some queries of a head and goes through the keys
 * before them, with the running maximum and sum of exponentials (Milakov and Gimelshein 2018; Dao
 * et al. 2022). Keys and values arrive a tile ahead. */
#include "kernel/cuda/attention_forward.cuh"

/* This warp's queries, for all steps. */
template <typename S> struct queries {
    uint32_t a[S::SLABS][S::D / 16][4];
};

template <typename S>
static __device__ __forceinline__ void load_queries(queries<S> &q, uint32_t tile, int row)
{
#pragma unroll
    for (int s = 0; s < S::SLABS; s++) {
#pragma unroll
        for (int step = 0; step < S::D / 16; step++) {
            rows_a<S::D>(q.a[s][step], tile, row + 16 * s, 2 * step);
        }
    }
}

/* scores = q k^T of this warp's rows and one tile of keys. */
template <typename S>
static __device__ __forceinline__ void score(float scores[S::SLABS][S::KEYS / 8][4],
                                             const queries<S> &q, uint32_t k)
{
#pragma unroll
    for (int step = 0; step < S::D / 16; step++) {
#pragma unroll
        for (int n = 0; n < S::KEYS / 16; n++) {
            uint32_t b[4];
            rows_b<S::D>(b, k, 16 * n, 2 * step);
#pragma unroll
            for (int s = 0; s < S::SLABS; s++) {
                multiply<typename S::T>(scores[s][2 * n], q.a[s][step], b);
                multiply<typename S::T>(scores[s][2 * n + 1], q.a[s][step], b + 2);
            }
        }
    }
}

template <typename S>
static __device__ __forceinline__ void weigh(forward_state<S> &state,
                                             const float scores[S::SLABS][S::KEYS / 8][4],
                                             uint32_t v)
{
#pragma unroll
    for (int n = 0; n < S::KEYS / 16; n++) {
        uint32_t a[S::SLABS][4];
#pragma unroll
        for (int s = 0; s < S::SLABS; s++) {
            as_a<typename S::T>(a[s], scores[s][2 * n], scores[s][2 * n + 1]);
        }
#pragma unroll
        for (int d = 0; d < S::D / 16; d++) {
            uint32_t b[4];
            cols_b<S::D>(b, v, 16 * n, 2 * d);
#pragma unroll
            for (int s = 0; s < S::SLABS; s++) {
                multiply<typename S::T>(state.out[s][2 * d], a[s], b);
                multiply<typename S::T>(state.out[s][2 * d + 1], a[s], b + 2);
            }
        }
    }
}

template <typename S, bool DROP>
static __global__ void __launch_bounds__(S::THREADS)
    attend(heads_t at, const typename S::T *__restrict__ qkv, typename S::T *__restrict__ out,
           float *__restrict__ lse)
{
    extern __shared__ __align__(1024) char shared[];
    const block_t<S> block = find_block<S>(at, qkv);
    int row = 16 * S::SLABS * ((int)threadIdx.x / 32);
    int64_t mine = block.first + row;
    uint32_t q = shared_address(shared), kv = q + S::Q_BYTES;
    forward_state<S> state;
    queries<S> queries;
    clear(state);
    fetch_tile<S::D, S::ROWS, S::THREADS>(q, block.q, at.row, block.first, at.seq, at.head_dim);
    fetch_keys<S>(at, block, kv, 0);
    for (int step = 0; step < block.steps; step++) {
        uint32_t k = kv + (uint32_t)(step % 2) * 2 * S::KV_BYTES, v = k + S::KV_BYTES;
        int64_t key = (int64_t)step * S::KEYS;
        if (step + 1 < block.steps) {
            fetch_keys<S>(at, block, kv, step + 1);
            fetch_wait<1>();
        } else {
            fetch_wait<0>();
        }
        __syncthreads();
        if (step == 0) {
            load_queries<S>(queries, q, row);
        }
        if (key < mine + 16 * S::SLABS) { /* else all of its keys come after this warp's queries */
            float scores[S::SLABS][S::KEYS / 8][4] = {};
            score<S>(scores, queries, k);
            if (key + S::KEYS > mine + 1) {
                hide<S>(scores, mine, key);
            }
            soften<S>(state, scores, at.scale * LOG2E);
            if (DROP) {
                drop<S>(scores, at, block.b, block.h, mine, key);
            }
            weigh<S>(state, scores, v);
        }
        __syncthreads();
    }
    put_out<S>(state, at, block.b, block.h, mine, out, lse);
}

template <typename S, bool DROP>
static int launch(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    typedef typename S::T T;
    heads_t at = heads_of(args);
    unsigned grid = (unsigned)(ceil_div(args->seq, S::ROWS) * args->batch * args->heads);
    WEFT_TRY(cudaFuncSetAttribute((const void *)attend<S, DROP>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED));
    attend<S, DROP><<<grid, S::THREADS, S::SHARED, stream_of(exec)>>>(
        at, (const T *)args->qkv, (T *)args->out, args->lse);
    return launched();
}

template <typename T>
static int run_forward(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    typedef forward_shape<T, NARROW_HEAD, 4, 2, 64> narrow;
    typedef forward_shape<T, BROAD_HEAD, 8, 1, 64> broad;
    bool drops = args->mask.rate != 0.0f;
    if (args->head_dim <= NARROW_HEAD) {
        return drops ? launch<narrow, true>(exec, args) : launch<narrow, false>(exec, args);
    }
    return drops ? launch<broad, true>(exec, args) : launch<broad, false>(exec, args);
}

int weft_cuda_attention_forward(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    if (args->batch == 0 || args->seq == 0) {
        return 0;
    }
    if (!attention_is_fast(exec, args)) {
        return weft_cuda_attention_forward_plain(exec, args);
    }
    if (attention_is_hopper(exec, args)) {
        return weft_cuda_attention_forward_hopper(exec, args);
    }
    return args->type == WEFT_F16 ? run_forward<f16_t>(exec, args)
                                  : run_forward<bf16_t>(exec, args);
}

int weft_cuda_attention_backward(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    if (args->batch == 0 || args->seq == 0) {
        return 0;
    }
    return attention_is_fast(exec, args) ? weft_cuda_attention_backward_fast(exec, args)
                                   : weft_cuda_attention_backward_plain(exec, args);
}

/* Room for delta, and for what the kernels with tensor cores want beside it. */
size_t weft_cuda_attention_work(int gpu, const weft_attention_t *args)
{
    (void)gpu;
    return weft_cuda_attention_fast_work(args);
}
