/* Softmax and cross-entropy. A block has a row. Rows of 16 bits that fit into shared memory, two of
 * them in an SM, are read once and written once. Others take one pass from memory for maximum and
 * sum together, and, for the gradient, a second one that finds most of the row in the L2 cache,
 * since it goes backwards. */
#include "kernel/cuda/common.cuh"

enum {
    THREADS = 1024,
    HELD_THREADS = 512,   /* at most */
    HELD_MOST = 112 << 10 /* bytes of a row that is held */
};

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

/* ---- a row in shared memory ------------------------------------------------------------------ */

/* Two elements at a time; -inf as it is in memory. */
template <typename T> struct pair_t;
template <> struct pair_t<bf16_t> {
    typedef __nv_bfloat162 type;
    static const uint32_t HIDDEN = 0xff80;
};
template <> struct pair_t<f16_t> {
    typedef __half2 type;
    static const uint32_t HIDDEN = 0xfc00;
};

/* Start copying; a thread reads only what it has copied itself, so that no barrier is needed. */
template <typename T>
static __device__ __forceinline__ void hold_row(uint4 *held, const T *row, int chunks)
{
    for (int c = threadIdx.x; c < chunks; c += (int)blockDim.x) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         (uint32_t)__cvta_generic_to_shared(held + c)),
                     "l"(row + (int64_t)c * LANE));
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

/* The larger of each of the 8. */
template <typename P>
static __device__ __forceinline__ void larger(P max[4], const uint4 &word)
{
    const uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        max[i] = __hmax2(max[i], *reinterpret_cast<const P *>(&words[i]));
    }
}

/* Elements from `n` on do not count. */
template <typename T> static __device__ __forceinline__ uint4 cut_chunk(uint4 word, int left)
{
    const uint32_t hidden = pair_t<T>::HIDDEN;
    uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = 2 * i < left ? words[i] : hidden << 16 | hidden;
        words[i] = 2 * i + 1 < left ? words[i] : (words[i] & 0xffff) | hidden << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

template <typename T>
static __device__ __forceinline__ float held_max(const uint4 *held, int n, float *slots)
{
    typedef typename pair_t<T>::type P;
    const T least = from_float<T>(-INFINITY);
    const P none = {least, least};
    P max[4] = {none, none, none, none};
    int c = threadIdx.x;
    for (; (c + 1) * LANE <= n; c += (int)blockDim.x) {
        larger(max, held[c]);
    }
    if (c * LANE < n) {
        larger(max, cut_chunk<T>(held[c], n - c * LANE));
    }
    P most = __hmax2(__hmax2(max[0], max[1]), __hmax2(max[2], max[3]));
    return block_max(fmaxf(__low2float(most), __high2float(most)), slots);
}

template <typename T>
static __device__ __forceinline__ float held_sum(const uint4 *held, int n, float max, float *slots)
{
    float shift = max * LOG2E, sum[2] = {};
    int c = threadIdx.x;
    for (; c * LANE < n; c += (int)blockDim.x) {
        uint4 word = (c + 1) * LANE <= n ? held[c] : cut_chunk<T>(held[c], n - c * LANE);
        lane8 x = unpack<T>(word);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            sum[j % 2] += exp2_fast(x.x[j] * LOG2E - shift);
        }
    }
    return block_sum(sum[0] + sum[1], slots);
}

/* The gradient goes to memory straight away; chunks that have the target or padding in them are
 * few. */
template <typename T>
static __device__ __forceinline__ void held_gradient(const weft_classify_t &args, const uint4 *held,
                                                     T *row, int64_t target, float lse,
                                                     int chunks)
{
    float shift = lse * LOG2E, scale = target >= 0 ? args.scale : 0.0f;
    int hit = (int)(target / LANE), n = (int)args.vocab;
    for (int c = threadIdx.x; c < chunks; c += (int)blockDim.x) {
        lane8 x = unpack<T>(held[c]);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            x.x[j] = exp2_fast(x.x[j] * LOG2E - shift) * scale;
        }
        if (c == hit || (c + 1) * LANE > n || scale == 0.0f) {
#pragma unroll
            for (int j = 0; j < LANE; j++) {
                int i = c * LANE + j;
                x.x[j] = i >= n || scale == 0.0f ? 0.0f : x.x[j] - (i == target ? scale : 0.0f);
            }
        }
        store_wide(row + (int64_t)c * LANE, x);
    }
}

template <typename T>
static __global__ void __launch_bounds__(HELD_THREADS, 2) classify_held(weft_classify_t args)
{
    extern __shared__ __align__(16) uint4 held[];
    __shared__ float slots[32];
    T *row = (T *)args.logits + blockIdx.x * args.ld;
    int64_t target = args.targets[blockIdx.x];
    int chunks = (int)(args.ld / LANE), n = (int)args.vocab;
    float at_target = target >= 0 && threadIdx.x == 0 ? to_float(row[target]) : 0.0f;
    hold_row(held, row, chunks);
    float max = held_max<T>(held, n, slots);
    float lse = max + logf(held_sum<T>(held, n, max, slots));
    if (threadIdx.x == 0) {
        args.losses[blockIdx.x] = target >= 0 ? lse - at_target : 0.0f;
    }
    held_gradient(args, held, row, target, lse, chunks);
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef void (*kernel_fn)(weft_classify_t args, bool wide);

#define KERNEL_OF(type, name)                                                                      \
    by_type(type, [](auto zero) -> kernel_fn { return name<decltype(zero)>; })

static weft_classify_t filled_in(const weft_classify_t *args)
{
    weft_classify_t filled = *args;
    filled.ld = args->ld > 0 ? args->ld : args->vocab;
    return filled;
}

static int run(const weft_cuda_exec_t *exec, const weft_classify_t *args, kernel_fn kernel)
{
    weft_classify_t filled = filled_in(args);
    bool wide = is_wide(filled.ld, args->logits);
    if (args->rows == 0) {
        return 0;
    }
    kernel<<<(unsigned)args->rows, THREADS, 0, stream_of(exec)>>>(filled, wide);
    return launched();
}

/* Bytes of a row that this GPU's blocks can hold, or 0. */
static int held_bytes(const weft_cuda_exec_t *exec, const weft_classify_t *args)
{
    int most = 0;
    if (args->type == WEFT_F32 || args->scale == 0.0f || args->ld > HELD_MOST / 2 ||
        !is_wide(args->ld, args->logits) ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, exec->gpu) !=
            cudaSuccess) {
        return 0;
    }
    return (int)args->ld * 2 + 1024 <= most ? (int)args->ld * 2 : 0;
}

int weft_cuda_classify(const weft_cuda_exec_t *exec, const weft_classify_t *args)
{
    weft_classify_t filled = filled_in(args);
    int bytes = held_bytes(exec, &filled);
    if (args->rows == 0 || bytes == 0) {
        return run(exec, args, KERNEL_OF(args->type, classify_rows));
    }
    void (*kernel)(weft_classify_t) = args->type == WEFT_F16 ? classify_held<f16_t>
                                                             : classify_held<bf16_t>;
    WEFT_TRY(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  bytes));
    unsigned threads = (unsigned)ceil_div(filled.ld / LANE, 32) *
                       32; /* no more than have something to do */
    threads = threads < HELD_THREADS ? threads : (unsigned)HELD_THREADS;
    kernel<<<(unsigned)args->rows, threads, (size_t)bytes, stream_of(exec)>>>(filled);
    return launched();
}

int weft_cuda_classify_stats(const weft_cuda_exec_t *exec, const weft_classify_t *args)
{
    return run(exec, args, KERNEL_OF(args->type, stats_of_rows));
}

int weft_cuda_classify_finish(const weft_cuda_exec_t *exec, const weft_classify_t *args)
{
    return run(exec, args, KERNEL_OF(args->type, finish_rows));
}
