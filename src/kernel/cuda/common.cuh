/* What compute kernels share: 8 elements at a time in f32, sums over warps and blocks in a fixed
 * order, dropout masks, choosing an instance by type. */
#ifndef WEFT_KERNEL_CUDA_COMMON_CUH
#define WEFT_KERNEL_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernel/cuda/launch.h"

typedef __nv_bfloat16 bf16_t;
typedef __half f16_t;

#define WEFT_TRY(call)                                                                             \
    do {                                                                                           \
        int error_ = (int)(call);                                                                  \
        if (error_ != 0) {                                                                         \
            (void)cudaGetLastError();                                                              \
            return error_;                                                                         \
        }                                                                                          \
    } while (0)

/* The kernels of the table, each in the file of its name or group. */
#define WEFT_RUN_DECLARE(name, args_t)                                                             \
    int weft_cuda_##name(const weft_cuda_exec_t *exec, const args_t *args);
WEFT_COMPUTE_TABLE(WEFT_RUN_DECLARE)
#undef WEFT_RUN_DECLARE
#define WEFT_LIST_DECLARE(name, args_t)                                                            \
    int weft_cuda_##name##_list(const weft_cuda_exec_t *exec, const args_t *list, int count);
WEFT_COMPUTE_LISTS(WEFT_LIST_DECLARE)
#undef WEFT_LIST_DECLARE
size_t weft_cuda_embed_work(int gpu, const weft_embed_t *args);
size_t weft_cuda_norm_work(int gpu, const weft_norm_t *args);
size_t weft_cuda_attention_work(int gpu, const weft_attention_t *args);

/* ---- host: grids, types, alignment -------------------------------------------------------- */

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline unsigned grid_of(int64_t work, int64_t per_block)
{
    return (unsigned)ceil_div(work > 0 ? work : 1, per_block);
}

/* May rows of `width` be read 16 bytes at a time at all of these addresses? NULL is fine. */
template <typename... P> static inline bool is_wide(int64_t width, P... at)
{
    uintptr_t bits = (... | (uintptr_t)at);
    return width % 8 == 0 && bits % 16 == 0;
}

static inline cudaStream_t stream_of(const weft_cuda_exec_t *exec)
{
    return (cudaStream_t)exec->stream;
}

/* After a launch: what went wrong with it, if anything. */
static inline int launched(void)
{
    return (int)cudaGetLastError();
}

/* Call f with a zero of the type that tensors are stored in: f is a lambda of (auto zero), and
 * decltype(zero) what a kernel is instantiated with. */
template <typename F> static inline auto by_type(weft_dtype_t type, F f)
{
    return type == WEFT_F32 ? f(float()) : type == WEFT_F16 ? f(f16_t()) : f(bf16_t());
}

/* The same with that of gradients or results behind it, which is f32 or the same. */
template <typename F> static inline auto by_types(weft_dtype_t type, weft_dtype_t other, F f)
{
    return by_type(
        type, [&](auto zero) { return other == WEFT_F32 ? f(zero, float()) : f(zero, zero); });
}

/* ---- 8 elements ---------------------------------------------------------------------------- */

enum { LANE = 8 };

struct lane8 {
    float x[LANE];
};

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(bf16_t x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(f16_t x)
{
    return __half2float(x);
}
template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ bf16_t from_float<bf16_t>(float x)
{
    return __float2bfloat16_rn(x);
}
/* What is too large becomes infinite, never the largest number: that is how loss scaling hears of
 * it. */
template <> __device__ __forceinline__ f16_t from_float<f16_t>(float x)
{
    return __float2half_rn(x);
}

/* Two elements of 16 bits in a word, the first one in the lower half. */
template <typename T> __device__ __forceinline__ float2 unpack2(uint32_t word);
template <> __device__ __forceinline__ float2 unpack2<bf16_t>(uint32_t word)
{
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
template <> __device__ __forceinline__ float2 unpack2<f16_t>(uint32_t word)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&word));
}
template <typename T> __device__ __forceinline__ uint32_t pack2(float low, float high);
template <> __device__ __forceinline__ uint32_t pack2<bf16_t>(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}
template <> __device__ __forceinline__ uint32_t pack2<f16_t>(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

template <typename T> __device__ __forceinline__ lane8 unpack(uint4 word)
{
    lane8 v;
    const uint32_t words[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = unpack2<T>(words[i]);
        v.x[2 * i] = two.x;
        v.x[2 * i + 1] = two.y;
    }
    return v;
}

/* Of elements of 16 bits; those of f32 below. */
template <typename T> __device__ __forceinline__ lane8 load_wide(const T *at)
{
    return unpack<T>(*reinterpret_cast<const uint4 *>(at));
}

__device__ __forceinline__ lane8 load_wide(const float *at)
{
    float4 a = reinterpret_cast<const float4 *>(at)[0], b = reinterpret_cast<const float4 *>(at)[1];
    return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

template <typename T> __device__ __forceinline__ void store_wide(T *at, const lane8 &v)
{
    *reinterpret_cast<uint4 *>(at) = make_uint4(pack2<T>(v.x[0], v.x[1]), pack2<T>(v.x[2], v.x[3]),
                                                pack2<T>(v.x[4], v.x[5]), pack2<T>(v.x[6], v.x[7]));
}

__device__ __forceinline__ void store_wide(float *at, const lane8 &v)
{
    reinterpret_cast<float4 *>(at)[0] = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
    reinterpret_cast<float4 *>(at)[1] = make_float4(v.x[4], v.x[5], v.x[6], v.x[7]);
}

/* 8 elements, or the first `left` of them (zeros after). */
template <typename T> __device__ __forceinline__ lane8 load8(const T *at, int64_t left, bool wide)
{
    if (wide) {
        return left > 0 ? load_wide(at) : lane8{};
    }
    lane8 v;
#pragma unroll
    for (int i = 0; i < LANE; i++) {
        v.x[i] = i < left ? to_float(at[i]) : 0.0f;
    }
    return v;
}

template <typename T>
__device__ __forceinline__ void store8(T *at, const lane8 &v, int64_t left, bool wide)
{
    if (wide) {
        if (left > 0) {
            store_wide(at, v);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < LANE; i++) {
        if (i < left) {
            at[i] = from_float<T>(v.x[i]);
        }
    }
}

/* As it will be read again. */
template <typename T> __device__ __forceinline__ float rounded(float x)
{
    return to_float(from_float<T>(x));
}

/* ---- sums ---------------------------------------------------------------------------------- */

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(~0u, x, step);
    }
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    }
    return x;
}

/* Over a block of up to 1024 threads; `slots` is 32 floats of shared memory. */
__device__ __forceinline__ float block_sum(float x, float *slots)
{
    int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0) {
        slots[warp] = x;
    }
    __syncthreads();
    return warp_sum(lane < warps ? slots[lane] : 0.0f);
}

__device__ __forceinline__ float block_max(float x, float *slots)
{
    int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) {
        slots[warp] = x;
    }
    __syncthreads();
    return warp_max(lane < warps ? slots[lane] : -INFINITY);
}

/* 2^x to 2 ulp; results below the smallest normal number become 0. */
__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- activations --------------------------------------------------------------------------- */

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
}

/* GELU, tanh form: tanh(u) = 2 sigmoid(2u) - 1. */
__device__ __forceinline__ float gelu_of(float x)
{
    return x * sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
}

__device__ __forceinline__ float gelu_slope(float x)
{
    float s = sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
    return s + x * s * (1.0f - s) * (1.5957691216f + 0.2140644488f * x * x);
}

/* ---- dropout ------------------------------------------------------------------------------- */

/* weft__philox of base/rng.h. */
__device__ __forceinline__ uint4 philox(uint64_t index, uint64_t key)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* A weft_mask_t as kernels want it. */
struct mask_t {
    uint64_t key;
    int64_t row0, column0, width;
    uint32_t limit; /* 0: nothing is dropped */
    float keep;
};

static inline mask_t mask_of(const weft_mask_t *mask)
{
    mask_t m = {mask->key, mask->row0, mask->column0, mask->width, 0, 1.0f};
    if (mask->rate != 0.0f) {
        m.limit = (uint32_t)((double)mask->rate * 4294967296.0);
        m.keep = 1.0f / (1.0f - mask->rate);
    }
    return m;
}

__device__ __forceinline__ uint32_t word_of(const uint4 &words, int lane)
{
    return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
}

/* The factor of the element with this index: 0, or 1 / (1 - rate). */
__device__ __forceinline__ float mask_factor(const mask_t &mask, int64_t index)
{
    uint4 words = philox((uint64_t)index / 4, mask.key);
    return word_of(words, (int)(index & 3)) >= mask.limit ? mask.keep : 0.0f;
}

/* mask(v), for 8 elements from (row, column) on. */
__device__ __forceinline__ void drop8(const mask_t &mask, int64_t row, int64_t column, lane8 &v)
{
    if (mask.limit == 0) {
        return;
    }
    uint64_t index = (uint64_t)((mask.row0 + row) * mask.width + mask.column0 + column);
    int shift = (int)(index & 3); /* words of the first four that come before */
    uint32_t words[LANE + 4];
#pragma unroll
    for (int i = 0; i < (LANE + 4) / 4; i++) {
        uint4 four = philox(index / 4 + i, mask.key);
        words[4 * i] = four.x, words[4 * i + 1] = four.y;
        words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < LANE; i++) {
        uint32_t word = shift == 0   ? words[i]
                        : shift == 1 ? words[i + 1]
                        : shift == 2 ? words[i + 2]
                                     : words[i + 3];
        v.x[i] *= word >= mask.limit ? mask.keep : 0.0f;
    }
}

#endif
