/* Attention without tensor cores: f32, heads of any size up to MOST_D, and decoding over a cache. A
 * warp has a row; it looks at 32 rows of the other side at a time, one per thread, and then adds
 * them up with a thread for every 32nd column. */
#include "kernel/cuda/attention.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, MOST_D = 256, COLUMNS = MOST_D / 32 };

/* Rows of queries, keys and values, wherever they are; strides in elements. */
template <typename T> struct rows_t {
    const T *q, *k, *v;
    T *out;
    float *lse;                         /* or NULL */
    int64_t q_batch, q_row, kv_batch, kv_row; /* from a sequence, a token, to the next */
    int64_t past;                       /* keys before the first query */
};

template <typename T>
static __device__ __forceinline__ float dot(const T *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) {
        sum += to_float(a[i]) * b[i];
    }
    return sum;
}

/* A row into shared memory as f32. */
template <typename T>
static __device__ __forceinline__ void copy_row(float *to, const T *from, int n)
{
    for (int i = (int)threadIdx.x % 32; i < n; i += 32) {
        to[i] = to_float(from[i]);
    }
    __syncwarp();
}

/* ---- forward -------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(THREADS) attend_plain(heads_t at, rows_t<T> rows)
{
    __shared__ float query[WARPS][MOST_D];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, d = at.head_dim;
    int64_t item = (int64_t)blockIdx.x * WARPS + warp, t = item % at.seq;
    int64_t b = item / at.seq / at.heads;
    int h = (int)(item / at.seq % at.heads);
    if (b >= at.batch) {
        return;
    }
    const T *k = rows.k + b * rows.kv_batch + h / at.group * d;
    const T *v = rows.v + b * rows.kv_batch + h / at.group * d;
    float acc[COLUMNS] = {}, max = -INFINITY, sum = 0;
    copy_row(query[warp], rows.q + b * rows.q_batch + t * rows.q_row + h * d, d);
    int64_t keys = rows.past + t + 1;
    for (int64_t first = 0; first < keys; first += 32) {
        int64_t key = first + lane;
        float s = key < keys ? dot(k + key * rows.kv_row, query[warp], d) * at.scale : -INFINITY;
        float most = fmaxf(max, warp_max(s)), shrink = expf(max - most), p = expf(s - most);
        sum = sum * shrink + warp_sum(p);
        max = most;
        if (at.mask.limit != 0 && key < keys) {
            p *= mask_factor(at.mask, mask_row(at, b, h, t) + key);
        }
        for (int c = 0; c < COLUMNS; c++) {
            acc[c] *= shrink;
        }
        for (int j = 0; j < 32 && first + j < keys; j++) {
            float weight = __shfl_sync(~0u, p, j);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                if (lane + 32 * c < d) {
                    acc[c] += weight * to_float(v[(first + j) * rows.kv_row + lane + 32 * c]);
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (lane + 32 * c < d) {
            rows.out[((b * at.seq + t) * at.heads + h) * d + lane + 32 * c] =
                from_float<T>(acc[c] / sum);
        }
    }
    if (rows.lse != NULL && lane == 0) {
        rows.lse[(b * at.heads + h) * at.seq + t] = max + logf(sum);
    }
}

template <typename T>
static int run_forward(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    heads_t at = heads_of(args);
    const T *qkv = (const T *)args->qkv, *k = qkv + args->heads * args->head_dim;
    rows_t<T> rows = {qkv, k, k + args->kv_heads * args->head_dim, (T *)args->out, args->lse,
                      at.seq * at.row, at.row, at.seq * at.row, at.row, 0};
    unsigned grid = grid_of(at.batch * at.heads * at.seq, WARPS);
    attend_plain<T><<<grid, THREADS, 0, stream_of(exec)>>>(at, rows);
    return launched();
}

int weft_cuda_attention_forward_plain(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    if (args->head_dim > MOST_D) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    return by_type(args->type,
                   [&](auto zero) { return run_forward<decltype(zero)>(exec, args); });
}

/* ---- decoding ------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(THREADS) append(weft_decode_t args)
{
    int64_t width = (int64_t)args.kv_heads * args.head_dim;
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t i = at % width, t = at / width % args.seq, b = at / width / args.seq;
    if (b >= args.batch) {
        return;
    }
    int64_t row = (args.heads + 2 * args.kv_heads) * (int64_t)args.head_dim;
    const T *from = (const T *)args.qkv + (b * args.seq + t) * row +
                    args.heads * (int64_t)args.head_dim + i;
    int64_t to = (b * args.capacity + args.past + t) * width + i;
    ((T *)args.keys)[to] = from[0];
    ((T *)args.values)[to] = from[width];
}

template <typename T> static int run_decode(const weft_cuda_exec_t *exec, const weft_decode_t *args)
{
    int64_t width = (int64_t)args->kv_heads * args->head_dim;
    int64_t row = (args->heads + 2 * args->kv_heads) * (int64_t)args->head_dim;
    heads_t at = {args->batch, args->seq, row, args->heads, args->kv_heads, args->head_dim,
                  args->heads / args->kv_heads, args->scale, {}};
    rows_t<T> rows = {(const T *)args->qkv, (const T *)args->keys, (const T *)args->values,
                      (T *)args->out, NULL, at.seq * row, row, args->capacity * width, width,
                      args->past};
    append<T><<<grid_of(args->batch * args->seq * width, THREADS), THREADS, 0,
                stream_of(exec)>>>(*args);
    attend_plain<T><<<grid_of(at.batch * at.heads * at.seq, WARPS), THREADS, 0,
                      stream_of(exec)>>>(at, rows);
    return launched();
}

int weft_cuda_decode(const weft_cuda_exec_t *exec, const weft_decode_t *args)
{
    if (args->head_dim > MOST_D) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    return by_type(args->type, [&](auto zero) { return run_decode<decltype(zero)>(exec, args); });
}

/* ---- backward ------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    delta_of_rows(heads_t at, const T *out, const T *dout, float *delta, uint32_t *flags,
                  int64_t flag_count)
{
    int lane = (int)threadIdx.x % 32, d = at.head_dim;
    int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int64_t i = thread; i < flag_count; i += (int64_t)gridDim.x * THREADS) {
        flags[i] = 0;
    }
    /* Eight threads a head where heads are of whole units, else all of a warp. */
    int64_t item = thread / 32;
    if (item >= at.batch * at.seq * at.heads) {
        return;
    }
    float sum = 0;
    for (int i = lane; i < d; i += 32) {
        sum += to_float(out[item * d + i]) * to_float(dout[item * d + i]);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        int64_t h = item % at.heads, t = item / at.heads % at.seq, b = item / at.heads / at.seq;
        delta[(b * at.heads + h) * at.seq + t] = sum;
    }
}

/* The same for rows of whole units: eight threads have a head, 16 bytes at a time. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    delta_of_units(heads_t at, const T *out, const T *dout, float *delta, uint32_t *flags,
                   int64_t flag_count)
{
    int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, item = thread / 8;
    int part = (int)(thread % 8);
    for (int64_t i = thread; i < flag_count; i += (int64_t)gridDim.x * THREADS) {
        flags[i] = 0;
    }
    bool inside = item < at.batch * at.seq * at.heads;
    float sum = 0;
    for (int i = part * LANE; i < at.head_dim && inside; i += 8 * LANE) {
        lane8 x = load_wide(out + item * at.head_dim + i);
        lane8 y = load_wide(dout + item * at.head_dim + i);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            sum += x.x[j] * y.x[j];
        }
    }
#pragma unroll
    for (int step = 4; step > 0; step /= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
    }
    if (part == 0 && inside) {
        int64_t h = item % at.heads, t = item / at.heads % at.seq, b = item / at.heads / at.seq;
        delta[(b * at.heads + h) * at.seq + t] = sum;
    }
}

template <typename T>
static int run_delta(const weft_cuda_exec_t *exec, const weft_attention_t *args, float *delta,
                     uint32_t *flags, int64_t flag_count)
{
    heads_t at = heads_of(args);
    int64_t items = at.batch * at.seq * at.heads;
    const T *out = (const T *)args->out, *dout = (const T *)args->dout;
    cudaStream_t stream = stream_of(exec);
    if constexpr (sizeof(T) == 2) {
        if (is_wide(args->head_dim, out, dout)) {
            delta_of_units<<<grid_of(items, THREADS / 8), THREADS, 0, stream>>>(
                at, out, dout, delta, flags, flag_count);
            return launched();
        }
    }
    delta_of_rows<<<grid_of(items, WARPS), THREADS, 0, stream>>>(at, out, dout, delta, flags,
                                                                 flag_count);
    return launched();
}

int weft_cuda_attention_delta(const weft_cuda_exec_t *exec, const weft_attention_t *args,
                              float *delta, uint32_t *flags, int64_t flag_count)
{
    return by_type(args->type, [&](auto zero) {
        return run_delta<decltype(zero)>(exec, args, delta, flags, flag_count);
    });
}

/* What backward reads and writes of one kind of row. */
template <typename T> struct gradients_t {
    const T *qkv, *dout;
    const float *lse, *delta;
    T *dqkv;
};

/* p and ds of (query t, key j) from their rows in shared memory and elsewhere. */
struct pair_t {
    float p, ds;
};

static __device__ __forceinline__ pair_t pair_of(const heads_t &at, int64_t b, int h, int64_t t,
                                                 int64_t key, float s, float dp, float lse,
                                                 float delta)
{
    float p = expf(s * at.scale - lse), factor = 1.0f;
    if (at.mask.limit != 0) {
        factor = mask_factor(at.mask, mask_row(at, b, h, t) + key);
    }
    return {p * factor, p * (dp * factor - delta)};
}

/* dq of a query: sum over keys of ds k. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) query_gradients(heads_t at, gradients_t<T> args)
{
    __shared__ float query[WARPS][MOST_D], dout[WARPS][MOST_D];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, d = at.head_dim;
    int64_t item = (int64_t)blockIdx.x * WARPS + warp, t = item % at.seq;
    int64_t b = item / at.seq / at.heads;
    int h = (int)(item / at.seq % at.heads);
    if (b >= at.batch) {
        return;
    }
    int64_t token = b * at.seq + t, statistic = (b * at.heads + h) * at.seq + t;
    const T *k = args.qkv + b * at.seq * at.row + (at.heads + h / at.group) * d;
    const T *v = k + at.kv_heads * d;
    float acc[COLUMNS] = {};
    copy_row(query[warp], args.qkv + token * at.row + h * d, d);
    copy_row(dout[warp], args.dout + (token * at.heads + h) * d, d);
    for (int64_t first = 0; first <= t; first += 32) {
        int64_t key = first + lane;
        pair_t pair = {};
        if (key <= t) {
            pair = pair_of(at, b, h, t, key, dot(k + key * at.row, query[warp], d),
                           dot(v + key * at.row, dout[warp], d), args.lse[statistic],
                           args.delta[statistic]);
        }
        for (int j = 0; j < 32 && first + j <= t; j++) {
            float ds = __shfl_sync(~0u, pair.ds, j);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                if (lane + 32 * c < d) {
                    acc[c] += ds * to_float(k[(first + j) * at.row + lane + 32 * c]);
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (lane + 32 * c < d) {
            args.dqkv[token * at.row + h * d + lane + 32 * c] = from_float<T>(acc[c] * at.scale);
        }
    }
}

/* dk and dv of a key: sums over the queries after it, of all heads of its group. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) key_gradients(heads_t at, gradients_t<T> args)
{
    __shared__ float keys[WARPS][MOST_D], values[WARPS][MOST_D];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, d = at.head_dim;
    int64_t item = (int64_t)blockIdx.x * WARPS + warp, key = item % at.seq;
    int64_t b = item / at.seq / at.kv_heads;
    int g = (int)(item / at.seq % at.kv_heads);
    if (b >= at.batch) {
        return;
    }
    int64_t k_at = (b * at.seq + key) * at.row + (at.heads + g) * d, v_at = k_at + at.kv_heads * d;
    float dk[COLUMNS] = {}, dv[COLUMNS] = {};
    copy_row(keys[warp], args.qkv + k_at, d);
    copy_row(values[warp], args.qkv + v_at, d);
    for (int h = g * at.group; h < (g + 1) * at.group; h++) {
        const T *q = args.qkv + b * at.seq * at.row + h * d;
        const T *dout = args.dout + (b * at.seq * at.heads + h) * d;
        for (int64_t first = key / 32 * 32; first < at.seq; first += 32) {
            int64_t t = first + lane, statistic = (b * at.heads + h) * at.seq + t;
            pair_t pair = {};
            if (t >= key && t < at.seq) {
                pair = pair_of(at, b, h, t, key, dot(q + t * at.row, keys[warp], d),
                               dot(dout + t * at.heads * d, values[warp], d), args.lse[statistic],
                               args.delta[statistic]);
            }
            for (int j = 0; j < 32 && first + j < at.seq; j++) {
                float p = __shfl_sync(~0u, pair.p, j), ds = __shfl_sync(~0u, pair.ds, j);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    int i = lane + 32 * c;
                    if (i < d) {
                        dv[c] += p * to_float(dout[(first + j) * at.heads * d + i]);
                        dk[c] += ds * to_float(q[(first + j) * at.row + i]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (lane + 32 * c < d) {
            args.dqkv[k_at + lane + 32 * c] = from_float<T>(dk[c] * at.scale);
            args.dqkv[v_at + lane + 32 * c] = from_float<T>(dv[c]);
        }
    }
}

template <typename T>
static int run_backward(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    heads_t at = heads_of(args);
    float *delta = (float *)args->work;
    gradients_t<T> all = {(const T *)args->qkv, (const T *)args->dout, args->lse, delta,
                          (T *)args->dqkv};
    WEFT_TRY(weft_cuda_attention_delta(exec, args, delta, NULL, 0));
    query_gradients<T><<<grid_of(at.batch * at.heads * at.seq, WARPS), THREADS, 0,
                         stream_of(exec)>>>(at, all);
    key_gradients<T><<<grid_of(at.batch * at.kv_heads * at.seq, WARPS), THREADS, 0,
                       stream_of(exec)>>>(at, all);
    return launched();
}

int weft_cuda_attention_backward_plain(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    if (args->head_dim > MOST_D) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    return by_type(args->type,
                   [&](auto zero) { return run_backward<decltype(zero)>(exec, args); });
}
