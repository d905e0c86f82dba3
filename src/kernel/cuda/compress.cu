/* Gradients in fewer bits, on GPUs: the same bits as the CPU's (kernel/cpu/compress_impl.h).
 * Products and sums are therefore rounded one by one. */
#include <cuda_fp16.h>

#include "kernel/cuda/common.cuh"
#include "kernel/cuda/compress.h"

enum { THREADS = 256, WARPS = THREADS / 32, EACH = WEFT_QUANT_BLOCK / 32 };

#define INFINITE 0x7f800000
#define ROUNDER                                                                                    \
    12582912.0f /* adding it rounds a number below 2^22 to an integer, in the low bits */

static __device__ __forceinline__ int32_t magnitude(float x)
{
    return __float_as_int(x) & 0x7fffffff;
}

/* A warp has a block: element i of it is in lane i % 32. */
static __global__ void __launch_bounds__(THREADS) quantize(weft_quantize_t args)
{
    int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (block >= args.count / WEFT_QUANT_BLOCK) {
        return;
    }
    int64_t at = block * WEFT_QUANT_BLOCK + threadIdx.x % 32;
    float x[EACH];
    int32_t most = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        x[i] = __fadd_rn(args.in[at + i * 32], args.residual[at + i * 32]);
        most = max(most, magnitude(x[i]));
    }
    most = __reduce_max_sync(0xffffffffu, most);
    float unit = __fdiv_rn(__int_as_float(most), 127.0f);
    float inverse = unit > 0.0f ? __fdiv_rn(1.0f, unit) : 0.0f;
    bool lost = most >= INFINITE, tiny = !lost && inverse > 3e38f; /* too small for a reciprocal */
    if (threadIdx.x % 32 == 0) {
        args.scales[block] = lost ? __int_as_float(0x7fc00000) : tiny ? 0.0f : unit;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int32_t q = __float_as_int(__fadd_rn(__fmul_rn(x[i], inverse), ROUNDER)) -
                    __float_as_int(ROUNDER);
        args.out[at + i * 32] = (int8_t)(lost ? 1 : tiny ? 0 : q);
        args.residual[at + i * 32] = lost   ? 0.0f
                                     : tiny ? x[i]
                                            : __fsub_rn(x[i], __fmul_rn((float)q, unit));
    }
}

static __global__ void __launch_bounds__(THREADS) dequantize(weft_dequantize_t args)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= args.count) {
        return;
    }
    float sum = 0.0f;
    for (int p = 0; p < args.parts; p++) {
        const char *scales = (const char *)args.scales + p * args.stride;
        float scale = ((const float *)scales)[i / WEFT_QUANT_BLOCK];
        sum = __fadd_rn(sum, __fmul_rn((float)args.in[p * args.stride + i], scale));
    }
    args.out[i] = sum;
}

/* *out is 0 before. The largest of all is the same in any order. */
static __global__ void __launch_bounds__(THREADS) peak(weft_peak_t args)
{
    int64_t step = (int64_t)gridDim.x * THREADS;
    int32_t most = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < args.count; i += step) {
        most = max(most, magnitude(args.in[i]));
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % 32 == 0) {
        atomicMax((int32_t *)args.out, min(most, INFINITE));
    }
}

static __device__ __forceinline__ float f16_scale(const weft_f16_t &args)
{
    float top = __fmul_rn(*args.peak, (float)args.sum_of);
    int exponent;
    if (!isfinite(top) || top == 0.0f) {
        return top == 0.0f ? 1.0f : __int_as_float(0x7fc00000);
    }
    float fraction = frexpf(top, &exponent);
    exponent = 15 - exponent + (fraction == 0.5f);
    return ldexpf(1.0f, min(exponent, 126));
}

template <bool NARROW> static __global__ void __launch_bounds__(THREADS) convert(weft_f16_t args)
{
    float scale = f16_scale(args);
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= args.count) {
        return;
    }
    if (NARROW) {
        ((__half *)args.out)[i] = __float2half_rn(__fmul_rn(((const float *)args.in)[i], scale));
    } else {
        float inverse = __fdiv_rn(1.0f, scale);
        ((float *)args.out)[i] = __fmul_rn(__half2float(((const __half *)args.in)[i]), inverse);
    }
}

/* ---- the table ---------------------------------------------------------------------------- */

static int run_quantize(int gpu, const weft_quantize_t *args, void *stream)
{
    WEFT_TRY(cudaSetDevice(gpu));
    quantize<<<grid_of(args->count, WARPS * WEFT_QUANT_BLOCK), THREADS, 0, (cudaStream_t)stream>>>(
        *args);
    return launched();
}

static int run_dequantize(int gpu, const weft_dequantize_t *args, void *stream)
{
    WEFT_TRY(cudaSetDevice(gpu));
    dequantize<<<grid_of(args->count, THREADS), THREADS, 0, (cudaStream_t)stream>>>(*args);
    return launched();
}

static int run_peak(int gpu, const weft_peak_t *args, void *stream)
{
    unsigned grid = grid_of(args->count, THREADS * 16);
    grid = grid < 1024 ? grid : 1024;
    WEFT_TRY(cudaSetDevice(gpu));
    WEFT_TRY(cudaMemsetAsync(args->out, 0, sizeof(float), (cudaStream_t)stream));
    peak<<<grid, THREADS, 0, (cudaStream_t)stream>>>(*args);
    return launched();
}

static int run_to_f16(int gpu, const weft_f16_t *args, void *stream)
{
    WEFT_TRY(cudaSetDevice(gpu));
    convert<true><<<grid_of(args->count, THREADS), THREADS, 0, (cudaStream_t)stream>>>(*args);
    return launched();
}

static int run_from_f16(int gpu, const weft_f16_t *args, void *stream)
{
    WEFT_TRY(cudaSetDevice(gpu));
    convert<false><<<grid_of(args->count, THREADS), THREADS, 0, (cudaStream_t)stream>>>(*args);
    return launched();
}

#define SLOT(name, args_t) run_##name,
extern "C" const weft_cuda_compress_ops_t weft_cuda_compress = {WEFT_CUDA_ABI,
                                                                WEFT_COMPRESS_TABLE(SLOT)};
#undef SLOT
