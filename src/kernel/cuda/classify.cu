/* Softmax and cross-entropy. A block has a row: one pass from memory for maximum and sum together,
 * and, for the gradient, a second one that finds most of the row in the L2 cache, since it goes
 * backwards. */
#include "kernel/cuda/common.cuh"

enum { THREADS = 1024 };

static const float LOG2E = 1.4426950408889634f;

/* A maximum and the sum of exp(x - maximum). */
struct peak_t {
    float max, sum;
};

static __device__ __forceinline__ float exp_of(float x)
{
    return exp2_fast(x * LOG2E);
}

/* 8 more elements; those past `left` do not count. */
static __device__ __forceinline__ void take8(peak_t &peak, const lane8 &x, int64_t left)
{
    float max = peak.max;
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        max = j < left ? fmaxf(max, x.x[j]) : max;
    }
    if (max > peak.max) {
        peak.sum *= exp_of(peak.max - max);
        peak.max = max;
    }
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        peak.sum += j < left ? exp_of(x.x[j] - peak.max) : 0.0f;
    }
}

template <typename T>
static __device__ peak_t row_peak(const T *row, int64_t n, bool wide, float *slots)
{
    peak_t peak = {-INFINITY, 0.0f};
    for (int64_t i = (int64_t)threadIdx.x * LANE; i < n; i += THREADS * LANE) {
        take8(peak, load8(row + i, n - i, wide && n - i >= LANE), n - i);
    }
    float max = block_max(peak.max, slots);
    float sum = peak.max == -INFINITY ? 0.0f : peak.sum * exp_of(peak.max - max);
    return {max, block_sum(sum, slots)};
}

/* row = (exp(row - lse) - [target]) scale, and 0 in the padding. */
template <typename T>
static __device__ void row_gradient(const weft_classify_t &args, T *row, int64_t target, float lse,
                                    float scale, bool wide)
{
    int64_t n = args.vocab, chunks = (args.ld + LANE - 1) / LANE;
    for (int64_t c = chunks - 1 - threadIdx.x; c >= 0; c -= THREADS) {
        int64_t i = c * LANE, left = args.ld - i;
        lane8 x = load8(row + i, left, wide && left >= LANE);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            float hit = i + j == target ? 1.0f : 0.0f;
            float g = (exp_of(x.x[j] - lse) - hit) * scale;
            x.x[j] = i + j < n && scale != 0.0f ? g : 0.0f;
        }
        store8(row + i, x, left, wide && left >= LANE);
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) classify_rows(weft_classify_t args, bool wide)
{
    __shared__ float slots[32];
    T *row = (T *)args.logits + blockIdx.x * args.ld;
    int64_t target = args.targets[blockIdx.x];
    peak_t peak = row_peak(row, args.vocab, wide, slots);
    float lse = peak.max + logf(peak.sum);
    if (threadIdx.x == 0) {
        args.losses[blockIdx.x] = target >= 0 ? lse - to_float(row[target]) : 0.0f;
    }
    if (args.scale != 0.0f) {
        __syncthreads(); /* the target's logit has been read */
        row_gradient(args, row, target, lse, target >= 0 ? args.scale : 0.0f, wide);
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) stats_of_rows(weft_classify_t args, bool wide)
{
    __shared__ float slots[32];
    const T *row = (const T *)args.logits + blockIdx.x * args.ld;
    int64_t target = args.targets[blockIdx.x] - args.vocab_first;
    peak_t peak = row_peak(row, args.vocab, wide, slots);
    if (threadIdx.x == 0) {
        float *stats = args.stats + 3 * (int64_t)blockIdx.x;
        stats[0] = peak.max;
        stats[1] = peak.sum;
        stats[2] = target >= 0 && target < args.vocab ? to_float(row[target]) : 0.0f;
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) finish_rows(weft_classify_t args, bool wide)
{
    T *row = (T *)args.logits + blockIdx.x * args.ld;
    int64_t target = args.targets[blockIdx.x];
    row_gradient(args, row, target - args.vocab_first, args.lse[blockIdx.x],
                 target >= 0 ? args.scale : 0.0f, wide);
}

typedef void (*kernel_fn)(weft_classify_t args, bool wide);

static int run(const weft_cuda_place_t *place, const weft_classify_t *args, kernel_fn f32,
               kernel_fn bf16)
{
    weft_classify_t filled = *args;
    filled.ld = args->ld > 0 ? args->ld : args->vocab;
    bool wide = is_wide(filled.ld, args->logits);
    if (args->rows == 0) {
        return 0;
    }
    (args->type == WEFT_F32 ? f32 : bf16)<<<(unsigned)args->rows, THREADS, 0, stream_of(place)>>>(
        filled, wide);
    return launched();
}

int weft_cuda_classify(const weft_cuda_place_t *place, const weft_classify_t *args)
{
    return run(place, args, classify_rows<float>, classify_rows<bf16_t>);
}

int weft_cuda_classify_stats(const weft_cuda_place_t *place, const weft_classify_t *args)
{
    return run(place, args, stats_of_rows<float>, stats_of_rows<bf16_t>);
}

int weft_cuda_classify_finish(const weft_cuda_place_t *place, const weft_classify_t *args)
{
    return run(place, args, finish_rows<float>, finish_rows<bf16_t>);
}
