/* AdamW over lists of tensors, and the gradient norm by which gradients are scaled. */
#include <cmath>

#include "kernel/cuda/common.cuh"

enum { THREADS = 256, EACH = 4, SUMS = 8, CLIP_THREADS = 1024 };

/* ---- lists ---------------------------------------------------------------------------------- */

/* Which blocks of a launch are whose. Tensors of many blocks and those of one follow each other, so
 * that no SM is idle at the end of a tensor. */
struct blocks_t {
    int past[WEFT_LIST_MOST]; /* the first block behind those of this tensor */
};

/* The tensor of this block, and the block's number among the tensor's. */
static __device__ __forceinline__ int find_tensor(const blocks_t &blocks, int64_t *block_p)
{
    int low = 0, high = WEFT_LIST_MOST - 1; /* past[] of what is not there is as large as can be */
    while (low < high) {
        int middle = (low + high) / 2;
        if ((int)blockIdx.x < blocks.past[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *block_p = (int64_t)blockIdx.x - (low > 0 ? blocks.past[low - 1] : 0);
    return low;
}

/* A block for so many elements each. How many blocks there are in all. */
template <typename ARGS>
static unsigned share_blocks(const ARGS *list, int count, int64_t elements, blocks_t *blocks)
{
    int64_t all = 0;
    for (int i = 0; i < WEFT_LIST_MOST; i++) {
        all += i < count ? ceil_div(list[i].count, elements) : 0;
        blocks->past[i] = (int)all;
    }
    return (unsigned)all;
}

/* ---- AdamW --------------------------------------------------------------------------------- */

/* A thread has EACH elements, so that what a warp reads or writes at a time is in one piece. */
struct four_t {
    float x[EACH];
};

template <typename T> static __device__ __forceinline__ four_t load_four(const T *at)
{
    uint2 v = *reinterpret_cast<const uint2 *>(at);
    float2 a = unpack2<T>(v.x), b = unpack2<T>(v.y);
    return {a.x, a.y, b.x, b.y};
}

static __device__ __forceinline__ four_t load_four(const float *at)
{
    float4 v = *reinterpret_cast<const float4 *>(at);
    return {v.x, v.y, v.z, v.w};
}

template <typename T> static __device__ __forceinline__ void store_four(T *at, const four_t &v)
{
    *reinterpret_cast<uint2 *>(at) = make_uint2(pack2<T>(v.x[0], v.x[1]), pack2<T>(v.x[2], v.x[3]));
}

static __device__ __forceinline__ void store_four(float *at, const four_t &v)
{
    *reinterpret_cast<float4 *>(at) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
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

/* Tensors that are updated in one launch. */
struct tensors_t {
    void *param[WEFT_LIST_MOST];
    float *master[WEFT_LIST_MOST]; /* or NULL */
    const void *grad[WEFT_LIST_MOST];
    float *m[WEFT_LIST_MOST], *v[WEFT_LIST_MOST];
    int64_t count[WEFT_LIST_MOST];
    float decay[WEFT_LIST_MOST];
    blocks_t blocks;
    uint64_t wide; /* a bit each: may 16 bytes be read at a time? */
};

/* What is the same for all of them. */
struct rule_t {
    const float *grad_scale;
    float lr, beta1, beta2, eps;
    float correct1, correct2; /* 1 / (1 - beta^step) */
};

static_assert(sizeof(tensors_t) + sizeof(rule_t) <= 4096, "arguments of a kernel");

/* To 2 ulp, as the quotient is. */
static __device__ __forceinline__ float root(float x)
{
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <typename T, typename G>
static __global__ void __launch_bounds__(THREADS)
    update(const __grid_constant__ tensors_t tensors, const __grid_constant__ rule_t rule)
{
    int64_t block;
    int t = find_tensor(tensors.blocks, &block);
    int64_t i = (block * THREADS + threadIdx.x) * EACH, left = tensors.count[t] - i;
    float scale = rule.grad_scale != NULL ? *rule.grad_scale : 1.0f;
    if (left <= 0 || scale == 0.0f) {
        return;
    }
    bool whole = (tensors.wide >> t & 1) != 0 && left >= EACH,
         has_master = tensors.master[t] != NULL;
    float *weights = (has_master ? tensors.master[t] : (float *)tensors.param[t]) + i;
    float *at_m = tensors.m[t] + i, *at_v = tensors.v[t] + i;
    four_t g = load4((const G *)tensors.grad[t] + i, left, whole), m = load4(at_m, left, whole);
    four_t v = load4(at_v, left, whole), w = load4(weights, left, whole);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        float x = g.x[j] * scale;
        m.x[j] = rule.beta1 * m.x[j] + (1.0f - rule.beta1) * x;
        v.x[j] = rule.beta2 * v.x[j] + (1.0f - rule.beta2) * x * x;
        float move = __fdividef(m.x[j] * rule.correct1, root(v.x[j] * rule.correct2) + rule.eps);
        w.x[j] -= rule.lr * (move + tensors.decay[t] * w.x[j]);
    }
    store4(at_m, m, left, whole);
    store4(at_v, v, left, whole);
    store4(weights, w, left, whole);
    if (has_master) {
        store4((T *)tensors.param[t] + i, w, left, whole);
    }
}

static rule_t rule_of(const weft_adamw_t *args)
{
    double beta1 = (double)args->beta1, beta2 = (double)args->beta2, step = (double)args->step;
    return {args->grad_scale, args->lr, args->beta1, args->beta2, args->eps,
            (float)(1.0 / (1.0 - std::pow(beta1, step))),
            (float)(1.0 / (1.0 - std::pow(beta2, step)))};
}

typedef void (*update_fn)(const tensors_t, const rule_t);

/* Beside parameters of f32, gradients of 16 bits are bf16. */
static update_fn find_update(weft_dtype_t type, weft_dtype_t grad_type)
{
    if (type == WEFT_F32 && grad_type != WEFT_F32) {
        return update<float, bf16_t>;
    }
    return by_types(type, grad_type, [](auto zero, auto grad) -> update_fn {
        return update<decltype(zero), decltype(grad)>;
    });
}

int weft_cuda_adamw_list(const weft_cuda_exec_t *exec, const weft_adamw_t *list, int count)
{
    tensors_t tensors = {};
    unsigned blocks = share_blocks(list, count, THREADS * EACH, &tensors.blocks);
    if (blocks == 0) {
        return 0;
    }
    rule_t rule = rule_of(&list[0]);
    for (int i = 0; i < count; i++) {
        const weft_adamw_t *one = &list[i];
        tensors.param[i] = one->param, tensors.master[i] = one->master;
        tensors.grad[i] = one->grad, tensors.m[i] = one->m, tensors.v[i] = one->v;
        tensors.count[i] = one->count, tensors.decay[i] = one->decay;
        bool wide = is_wide(LANE, one->param, one->master, one->grad, one->m, one->v);
        tensors.wide |= (uint64_t)wide << i;
    }
    update_fn kernel = find_update(list[0].type, list[0].grad_type);
    kernel<<<blocks, THREADS, 0, stream_of(exec)>>>(tensors, rule);
    return launched();
}

int weft_cuda_adamw(const weft_cuda_exec_t *exec, const weft_adamw_t *args)
{
    return weft_cuda_adamw_list(exec, args, 1);
}

/* ---- sums of squares ----------------------------------------------------------------------- */

/* Tensors whose squares are summed in one launch. */
struct summed_t {
    const void *in[WEFT_LIST_MOST];
    double *partial[WEFT_LIST_MOST];
    int64_t count[WEFT_LIST_MOST];
    blocks_t blocks;
};

/* In the order of the CPU's kernel, so that the bits are the same: eight sums per chunk, element i
 * in number i % 8, then those in order. A thread has one of the sums; squares of f32 are exact in
 * f64. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) squares(const __grid_constant__ summed_t summed)
{
    int64_t block;
    int t = find_tensor(summed.blocks, &block);
    const T *in = (const T *)summed.in[t];
    int64_t count = summed.count[t], at = block * THREADS + threadIdx.x, chunk = at / SUMS;
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
        summed.partial[t][chunk] = total;
    }
}

int weft_cuda_sumsq_list(const weft_cuda_exec_t *exec, const weft_sumsq_t *list, int count)
{
    summed_t summed = {};
    int64_t elements = (int64_t)THREADS / SUMS * WEFT_SUMSQ_CHUNK;
    unsigned blocks = share_blocks(list, count, elements, &summed.blocks);
    if (blocks == 0) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        summed.in[i] = list[i].in, summed.partial[i] = list[i].partial;
        summed.count[i] = list[i].count;
    }
    by_type(list[0].type, [&](auto zero) {
        squares<decltype(zero)><<<blocks, THREADS, 0, stream_of(exec)>>>(summed);
    });
    return launched();
}

int weft_cuda_sumsq(const weft_cuda_exec_t *exec, const weft_sumsq_t *args)
{
    return weft_cuda_sumsq_list(exec, args, 1);
}

/* Thread i adds numbers i, i + CLIP_THREADS, ... in order; then half of the threads add the sums of
 * the other half, until one is left. */
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

int weft_cuda_clip(const weft_cuda_exec_t *exec, const weft_clip_t *args)
{
    clip<<<1, CLIP_THREADS, 0, stream_of(exec)>>>(*args);
    return launched();
}
