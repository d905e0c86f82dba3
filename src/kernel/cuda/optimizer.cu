/* AdamW, and the gradient norm by which gradients are scaled. */
#include <cmath>

#include "kernel/cuda/common.cuh"

enum { THREADS = 256, EACH = 4, SUMS = 8, CLIP_THREADS = 1024 };

/* ---- AdamW --------------------------------------------------------------------------------- */

/* A thread has EACH elements, so that what a warp reads or writes at a time is in one piece. */
struct four_t {
    float x[EACH];
};

static __device__ __forceinline__ four_t load_four(const float *at)
{
    float4 v = *reinterpret_cast<const float4 *>(at);
    return {v.x, v.y, v.z, v.w};
}

static __device__ __forceinline__ four_t load_four(const bf16_t *at)
{
    uint2 v = *reinterpret_cast<const uint2 *>(at);
    return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
            __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u)};
}

static __device__ __forceinline__ void store_four(float *at, const four_t &v)
{
    *reinterpret_cast<float4 *>(at) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
}

static __device__ __forceinline__ void store_four(bf16_t *at, const four_t &v)
{
    *reinterpret_cast<uint2 *>(at) = make_uint2(pack2(v.x[0], v.x[1]), pack2(v.x[2], v.x[3]));
}

/* All of them if `whole`, else the first `left`. */
template <typename T>
static __device__ __forceinline__ four_t load4(const T *at, int64_t left, bool whole)
{
    if (whole) {
        return load_four(at);
    }
    four_t v;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        v.x[j] = j < left ? to_float(at[j]) : 0.0f;
    }
    return v;
}

template <typename T>
static __device__ __forceinline__ void store4(T *at, const four_t &v, int64_t left, bool whole)
{
    if (whole) {
        store_four(at, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (j < left) {
            at[j] = from_float<T>(v.x[j]);
        }
    }
}

struct adamw_t {
    weft_adamw_t args;
    float correct1, correct2; /* 1 / (1 - beta^step) */
    bool wide;
};

template <typename T, typename G>
static __global__ void __launch_bounds__(THREADS) update(adamw_t adamw)
{
    const weft_adamw_t &args = adamw.args;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH, left = args.count - i;
    float scale = args.grad_scale != NULL ? *args.grad_scale : 1.0f;
    if (left <= 0 || scale == 0.0f) {
        return;
    }
    bool whole = adamw.wide && left >= EACH;
    float *weights = args.master != NULL ? args.master : (float *)args.param;
    four_t g = load4((const G *)args.grad + i, left, whole), m = load4(args.m + i, left, whole);
    four_t v = load4(args.v + i, left, whole), w = load4(weights + i, left, whole);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        float x = g.x[j] * scale;
        m.x[j] = args.beta1 * m.x[j] + (1.0f - args.beta1) * x;
        v.x[j] = args.beta2 * v.x[j] + (1.0f - args.beta2) * x * x;
        float move = m.x[j] * adamw.correct1 / (sqrtf(v.x[j] * adamw.correct2) + args.eps);
        w.x[j] -= args.lr * (move + args.decay * w.x[j]);
    }
    store4(args.m + i, m, left, whole);
    store4(args.v + i, v, left, whole);
    store4(weights + i, w, left, whole);
    if (args.master != NULL) {
        store4((T *)args.param + i, w, left, whole);
    }
}

int weft_cuda_adamw(const weft_cuda_place_t *place, const weft_adamw_t *args)
{
    adamw_t adamw = {*args, 0, 0,
                     is_wide(LANE, args->param, args->master, args->grad, args->m, args->v)};
    adamw.correct1 = (float)(1.0 / (1.0 - std::pow((double)args->beta1, (double)args->step)));
    adamw.correct2 = (float)(1.0 / (1.0 - std::pow((double)args->beta2, (double)args->step)));
    unsigned grid = grid_of(args->count, THREADS * EACH);
    cudaStream_t stream = stream_of(place);
    if (args->type == WEFT_F32 && args->grad_type == WEFT_F32) {
        update<float, float><<<grid, THREADS, 0, stream>>>(adamw);
    } else if (args->type == WEFT_F32) {
        update<float, bf16_t><<<grid, THREADS, 0, stream>>>(adamw);
    } else if (args->grad_type == WEFT_F32) {
        update<bf16_t, float><<<grid, THREADS, 0, stream>>>(adamw);
    } else {
        update<bf16_t, bf16_t><<<grid, THREADS, 0, stream>>>(adamw);
    }
    return launched();
}

/* ---- sums of squares ----------------------------------------------------------------------- */

/* In the order of the CPU's kernel, so that the bits are the same: eight sums per chunk, element i in
 * number i % 8, then those in order. A thread has one of the sums; squares of f32 are exact in f64. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    squares(const T *in, int64_t count, double *partial)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, chunk = at / SUMS;
    int64_t from = chunk * WEFT_SUMSQ_CHUNK, to = from + WEFT_SUMSQ_CHUNK;
    int number = (int)(at % SUMS);
    double sum = 0;
    to = to < count ? to : count;
#pragma unroll 16
    for (int64_t i = from + number; i < to; i += SUMS) {
        double x = (double)to_float(in[i]);
        sum += x * x;
    }
    double total = 0;
#pragma unroll
    for (int j = 0; j < SUMS; j++) {
        total += __shfl_sync(~0u, sum, j, SUMS);
    }
    if (number == 0 && from < count) {
        partial[chunk] = total;
    }
}

int weft_cuda_sumsq(const weft_cuda_place_t *place, const weft_sumsq_t *args)
{
    unsigned grid = grid_of(ceil_div(args->count, WEFT_SUMSQ_CHUNK) * SUMS, THREADS);
    if (args->type == WEFT_F32) {
        squares<<<grid, THREADS, 0, stream_of(place)>>>((const float *)args->in, args->count,
                                                        args->partial);
    } else {
        squares<<<grid, THREADS, 0, stream_of(place)>>>((const bf16_t *)args->in, args->count,
                                                        args->partial);
    }
    return launched();
}

/* Thread i adds numbers i, i + CLIP_THREADS, ... in order; then half of the threads add the sums of the
 * other half, until one is left. */
static __global__ void __launch_bounds__(CLIP_THREADS) clip(weft_clip_t args)
{
    __shared__ double sums[CLIP_THREADS];
    double sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < args.count; i += CLIP_THREADS) {
        sum += args.partial[i];
    }
    sums[threadIdx.x] = sum;
    for (int half = CLIP_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) {
            sums[threadIdx.x] += sums[threadIdx.x + half];
        }
    }
    sum = sums[0]; /* thread 0 has written it last */
    if (threadIdx.x == 0) {
        double norm = (double)args.scale * sqrt(sum);
        double factor = args.max_norm > 0 && norm > args.max_norm ? args.max_norm / norm : 1.0;
        args.norm[0] = (float)norm;
        args.norm[1] = isfinite(norm) ? (float)((double)args.scale * factor) : 0.0f;
    }
}

int weft_cuda_clip(const weft_cuda_place_t *place, const weft_clip_t *args)
{
    clip<<<1, CLIP_THREADS, 0, stream_of(place)>>>(*args);
    return launched();
}
