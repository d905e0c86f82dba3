/* Attention with the products of warpgroups that Hopper has, for heads of 64: the same steps as
 * attention.cu and attention_backward.cu, with tiles that the tensor cores read by themselves. */
#include "kernel/cuda/attention_backward.cuh"
#include "kernel/cuda/attention_forward.cuh"
#include "kernel/cuda/wgmma.cuh"

typedef forward_shape<64, 8, 1, 64> forward_64;
typedef backward_shape<64, 8, 64, true> backward_64;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER 1
#else
#define HOPPER 0
#endif

#if HOPPER /* other chips are compiled for too, and would not use them */

/* c = a b^T over 64: 64 rows of one tile, all of another. */
static __device__ __forceinline__ void products_64(float c[8][4], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        group_multiply_tiles(c, tile_at(a) + i * STEP_ALONG, tile_at(b) + i * STEP_ALONG, i > 0);
    }
}

/* sum += x b: x is 64 by 64 in registers, b a tile of 64 rows. */
static __device__ __forceinline__ void gather_64(float sum[8][4], const uint32_t x[4][4],
                                                 uint32_t b)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        group_multiply(sum, x[i], tile_at(b) + i * STEP_TURNED);
    }
}

#endif

/* ---- forward -------------------------------------------------------------------------------- */

template <typename S, bool DROP>
static __global__ void __launch_bounds__(S::THREADS, 2)
    attend_hopper(heads_t at, const bf16_t *__restrict__ qkv, bf16_t *__restrict__ out,
                  float *__restrict__ lse)
{
#if HOPPER
    extern __shared__ __align__(1024) char shared[];
    const block_t<S> block = find_block<S>(at, qkv);
    int row = 16 * ((int)threadIdx.x / 32);
    int64_t mine = block.first + row, group = block.first + row / 64 * 64;
    uint32_t q = shared_address(shared), kv = q + S::Q_BYTES;
    uint32_t q_mine = q + (uint32_t)(row / 64) * 64 * S::D * 2;
    forward_state<S> state;
    clear(state);
    fetch_tile<S::D, S::ROWS, S::THREADS>(q, block.q, at.row, block.first, at.seq);
    fetch_keys<S>(at, block, kv, 0);
    for (int step = 0; step < block.steps; step++) {
        uint32_t k = kv + (uint32_t)(step % 2) * 2 * S::KV_BYTES, v = k + S::KV_BYTES;
        int64_t key = (int64_t)step * S::KEYS;
        fetch_wait<0>();
        publish();
        __syncthreads(); /* this step's keys are here, and nobody needs those of the last one */
        if (step + 1 < block.steps) {
            fetch_keys<S>(at, block, kv, step + 1);
        }
        if (key >= group + 64) { /* all of its keys come after this warpgroup's queries */
            continue;
        }
        float scores[1][S::KEYS / 8][4];
        group_start();
        products_64(scores[0], q_mine, k);
        group_commit();
        group_wait<0>();
        settle(scores[0]);
        if (key + S::KEYS > mine + 1) {
            hide<S>(scores, mine, key);
        }
        soften<S>(state, scores, at.scale * LOG2E);
        if (DROP) {
            drop<S>(scores, at, block.b, block.h, mine, key);
        }
        uint32_t weights[S::KEYS / 16][4];
#pragma unroll
        for (int i = 0; i < S::KEYS / 16; i++) {
            as_a(weights[i], scores[0][2 * i], scores[0][2 * i + 1]);
        }
        settle(state.out[0]);
        group_start();
        gather_64(state.out[0], weights, v);
        group_commit();
        group_wait<0>();
        settle(state.out[0]);
    }
    put_out<S>(state, at, block.b, block.h, mine, out, lse);
#endif
}

/* ---- backward ------------------------------------------------------------------------------- */

template <typename S, bool DROP>
static __global__ void __launch_bounds__(S::THREADS, 1) attend_backward_hopper(backward_t args)
{
#if HOPPER
    extern __shared__ __align__(1024) char shared[];
    const heads_t &at = args.at;
    const keys_t keys = find_keys<S>(args, draw(args));
    uint32_t k = shared_address(shared), v = k + S::KV_BYTES, q = v + S::KV_BYTES;
    uint32_t ds = q + 4 * S::Q_BYTES;
    char *ds_tile = shared + 2 * S::KV_BYTES + 4 * S::Q_BYTES;
    float *statistics = (float *)(ds_tile + S::DS_BYTES);
    int row = 16 * ((int)threadIdx.x / 32), part = (int)threadIdx.x / 128;
    uint32_t k_mine = k + (uint32_t)part * 64 * S::D * 2,
             v_mine = v + (uint32_t)part * 64 * S::D * 2;
    int64_t key = keys.first + row;
    float dk[8][4] = {}, dv[8][4] = {};
    dq_part_t last = {};
    fetch_tile<S::D, S::KEYS, S::THREADS>(k, args.qkv + keys.k_at, at.row, keys.first, at.seq);
    fetch_tile<S::D, S::KEYS, S::THREADS>(v, args.qkv + keys.v_at, at.row, keys.first, at.seq);
    fetch_step<S>(args, keys, q, statistics, 0);
    for (int64_t step = 0; step < keys.steps; step++) {
        int64_t tile = keys.from + step % keys.each, query = tile * S::QUERIES;
        int h = keys.g * at.group + (int)(step / keys.each), now = (int)(step % 2);
        uint32_t q_now = q + (uint32_t)now * 2 * S::Q_BYTES, do_now = q_now + S::Q_BYTES;
        float *lse = statistics + now * 2 * S::QUERIES;
        float s[8][4], dp[8][4], dq[4][4];
        dq_part_t part_now = find_dq<S>(args, keys, h, tile);
        uint32_t p_a[4][4], ds_a[4][4];
        wait_dq(part_now);
        fetch_wait<0>();
        publish();
        __syncthreads(); /* this tile is here, and everybody is done with the one before and ds */
        if (step + 1 < keys.steps) {
            fetch_step<S>(args, keys, q, statistics, step + 1);
        }
        group_start();
        products_64(s, k_mine, q_now);
        group_commit();
        products_64(dp, v_mine, do_now);
        group_commit();
        tell_dq(last); /* while the tensor cores are busy */
        begin_dq<S>(part_now, dq);
        group_wait<1>();
        settle(s);
        probabilities<S>(s, lse, at.scale * LOG2E, key, query);
        group_wait<0>();
        settle(dp);
        slopes<S, DROP>(s, dp, lse + S::QUERIES, at, keys.b, h, key, query);
        put_slopes<S>(dp, ds_tile, row);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            as_a(p_a[i], s[2 * i], s[2 * i + 1]);
            as_a(ds_a[i], dp[2 * i], dp[2 * i + 1]);
        }
        publish();
        group_start();
        gather_64(dv, p_a, do_now);
        gather_64(dk, ds_a, q_now);
        group_commit();
        __syncthreads(); /* ds is complete */
        settle(dq);
        group_start();
#pragma unroll
        for (int i = 0; i < S::KEYS / 16; i++) {
            group_multiply_turned(dq, tile_at(ds) + i * STEP_TURNED,
                                  tile_at(k + (uint32_t)part * 64) + i * STEP_TURNED);
        }
        group_commit();
        group_wait<0>();
        settle(dq);
        end_dq<S>(args, part_now, dq, keys.b, h, tile);
        last = part_now;
    }
    __syncwarp();
    tell_dq(last);
    settle(dk);
    settle(dv);
    put_rows<S>(dk, at.scale, args.dqkv + keys.k_at, at, key);
    put_rows<S>(dv, 1.0f, args.dqkv + keys.v_at, at, key);
#endif
}

/* ---- launches ------------------------------------------------------------------------------- */

/* Only sm_90a has the instructions, so this is for chips of that very number, and for modules built for
 * it. */
bool attention_is_hopper(const weft_cuda_place_t *place, const weft_attention_t *args)
{
#ifdef WEFT_SM_90A
    int major = 0, minor = 0;
    return place->attention == WEFT_CUDA_ATTENTION_AUTO && args->head_dim == 64 &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, place->gpu) == 0 &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, place->gpu) == 0 &&
           major == 9 && minor == 0;
#else
    (void)place;
    (void)args;
    return false;
#endif
}

template <bool DROP>
static int launch_forward(const weft_cuda_place_t *place, const weft_attention_t *args)
{
    typedef forward_64 S;
    heads_t at = heads_of(args);
    unsigned grid = (unsigned)(ceil_div(args->seq, S::ROWS) * args->batch * args->heads);
    WEFT_TRY(cudaFuncSetAttribute((const void *)attend_hopper<S, DROP>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED));
    attend_hopper<S, DROP><<<grid, S::THREADS, S::SHARED, stream_of(place)>>>(
        at, (const bf16_t *)args->qkv, (bf16_t *)args->out, args->lse);
    return launched();
}

int weft_cuda_attention_forward_hopper(const weft_cuda_place_t *place, const weft_attention_t *args)
{
    return args->mask.rate != 0.0f ? launch_forward<true>(place, args)
                                   : launch_forward<false>(place, args);
}

int weft_cuda_attention_backward_hopper(const weft_cuda_place_t *place,
                                        const weft_attention_t *args)
{
    return launch_backward<backward_64>(place, args,
                                        args->mask.rate != 0.0f
                                            ? attend_backward_hopper<backward_64, true>
                                            : attend_backward_hopper<backward_64, false>);
}
