/* AdamW, and the gradient norm by which gradients are scaled. */
#include <cmath>

#include "kernel/cuda/common.cuh"

enum { THREADS = 256, SUMS = 8, CLIP_THREADS = 1024, CLIP_FETCH = 4096 };

/* ---- AdamW --------------------------------------------------------------------------------- */

struct adamw_t {
    weft_adamw_t args;
    float correct1, correct2; /* 1 / (1 - beta^step) */
    bool wide;
};

template <typename T, typename G>
static __global__ void __launch_bounds__(THREADS) update(adamw_t adamw)
{
    const weft_adamw_t &args = adamw.args;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LANE, left = args.count - i;
    float scale = args.grad_scale != NULL ? *args.grad_scale : 1.0f;
    if (left <= 0 || scale == 0.0f) {
        return;
    }
    bool wide = adamw.wide && left >= LANE;
    float *weights = args.master != NULL ? args.master : (float *)args.param;
    lane8 g = load8((const G *)args.grad + i, left, wide), m = load8(args.m + i, left, wide);
    lane8 v = load8(args.v + i, left, wide), w = load8(weights + i, left, wide);
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        float x = g.x[j] * scale;
        m.x[j] = args.beta1 * m.x[j] + (1.0f - args.beta1) * x;
        v.x[j] = args.beta2 * v.x[j] + (1.0f - args.beta2) * x * x;
        float move = m.x[j] * adamw.correct1 / (sqrtf(v.x[j] * adamw.correct2) + args.eps);
        w.x[j] -= args.lr * (move + args.decay * w.x[j]);
    }
    store8(args.m + i, m, left, wide);
    store8(args.v + i, v, left, wide);
    store8(weights + i, w, left, wide);
    if (args.master != NULL) {
        store8((T *)args.param + i, w, left, wide);
    }
}

int weft_cuda_adamw(const weft_cuda_place_t *place, const weft_adamw_t *args)
{
    adamw_t adamw = {*args, 0, 0,
                     is_wide(LANE, args->param, args->master, args->grad, args->m, args->v)};
    adamw.correct1 = (float)(1.0 / (1.0 - std::pow((double)args->beta1, (double)args->step)));
    adamw.correct2 = (float)(1.0 / (1.0 - std::pow((double)args->beta2, (double)args->step)));
    unsigned grid = grid_of(args->count, THREADS * LANE);
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
static __global__ void __launch_bounds__(THREADS) squares(const T *in, int64_t count,
                                                          double *partial)
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

/* One thread adds in order what the block has fetched. */
static __global__ void __launch_bounds__(CLIP_THREADS) clip(weft_clip_t args)
{
    __shared__ double fetched[CLIP_FETCH];
    double sum = 0;
    for (int64_t first = 0; first < args.count; first += CLIP_FETCH) {
        int count = (int)(args.count - first < CLIP_FETCH ? args.count - first : CLIP_FETCH);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < count; i += CLIP_THREADS) {
            fetched[i] = args.partial[first + i];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
#pragma unroll 16
            for (int i = 0; i < count; i++) {
                sum += fetched[i];
            }
        }
    }
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
