/* Elements and reductions on the GPU. They give the very bits of the CPU's kernels: operands are
 * taken in the order of the ranks, halves and float8 are summed in f32 and rounded once, and
 * products and sums are never contracted (the module is compiled with -fmad=false). */
#ifndef WEFT_KERNEL_ELEMENT_CUH
#define WEFT_KERNEL_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include <weft/types.h>

#include "base/float8.h"

/* T: in memory. A: while it is reduced. */
template <int TYPE> struct weft_element;

#define WEFT_PLAIN_ELEMENT(TYPE, type)                                                             \
    template <> struct weft_element<TYPE> {                                                        \
        typedef type T;                                                                            \
        typedef type A;                                                                            \
        static __device__ __forceinline__ A load(T x)                                              \
        {                                                                                          \
            return x;                                                                              \
        }                                                                                          \
        static __device__ __forceinline__ T store(A x)                                             \
        {                                                                                          \
            return x;                                                                              \
        }                                                                                          \
    };
WEFT_PLAIN_ELEMENT(WEFT_F64, double)
WEFT_PLAIN_ELEMENT(WEFT_F32, float)
WEFT_PLAIN_ELEMENT(WEFT_I8, int8_t)
WEFT_PLAIN_ELEMENT(WEFT_U8, uint8_t)
WEFT_PLAIN_ELEMENT(WEFT_I32, int32_t)
WEFT_PLAIN_ELEMENT(WEFT_U32, uint32_t)
WEFT_PLAIN_ELEMENT(WEFT_I64, int64_t)
WEFT_PLAIN_ELEMENT(WEFT_U64, uint64_t)
#undef WEFT_PLAIN_ELEMENT

template <> struct weft_element<WEFT_F16> {
    typedef uint16_t T;
    typedef float A;
    static __device__ __forceinline__ A load(T x)
    {
        return __half2float(__ushort_as_half(x));
    }
    static __device__ __forceinline__ T store(A x)
    {
        return __half_as_ushort(__float2half_rn(x));
    }
};

template <> struct weft_element<WEFT_BF16> {
    typedef uint16_t T;
    typedef float A;
    static __device__ __forceinline__ A load(T x)
    {
        return __uint_as_float((uint32_t)x << 16);
    }
    static __device__ __forceinline__ T store(A x)
    {
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }
};

#define WEFT_FLOAT8_ELEMENT(TYPE, format)                                                          \
    template <> struct weft_element<TYPE> {                                                        \
        typedef uint8_t T;                                                                         \
        typedef float A;                                                                           \
        static __device__ __forceinline__ A load(T x)                                              \
        {                                                                                          \
            return weft__##format##_to_f32(x);                                                     \
        }                                                                                          \
        static __device__ __forceinline__ T store(A x)                                             \
        {                                                                                          \
            return weft__f32_to_##format(x);                                                       \
        }                                                                                          \
    };
WEFT_FLOAT8_ELEMENT(WEFT_F8E4M3, e4m3)
WEFT_FLOAT8_ELEMENT(WEFT_F8E5M2, e5m2)
#undef WEFT_FLOAT8_ELEMENT

/* Sums and products wrap; signed overflow is not for C to decide. */
template <typename A> __device__ __forceinline__ A weft_add(A a, A b)
{
    return (A)(a + b);
}
template <typename A> __device__ __forceinline__ A weft_mul(A a, A b)
{
    return (A)(a * b);
}
template <> __device__ __forceinline__ int32_t weft_add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
template <> __device__ __forceinline__ int32_t weft_mul(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}
template <> __device__ __forceinline__ int64_t weft_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
template <> __device__ __forceinline__ int64_t weft_mul(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

template <int OP, typename A> __device__ __forceinline__ A weft_combine(A a, A b)
{
    switch (OP) {
    case WEFT_PROD:
        return weft_mul(a, b);
    case WEFT_MIN: /* of 0 and -0 the later one, as on CPUs */
        return a < b ? a : b;
    case WEFT_MAX:
        return a > b ? a : b;
    default: /* the sum, also of an average */
        return weft_add(a, b);
    }
}

/* The sum of `n` ranks to their average; powers of two as a product, which is exact. */
template <typename A> __device__ __forceinline__ A weft_divide(A a, int n)
{
    return (A)(a / (A)n);
}
template <> __device__ __forceinline__ float weft_divide(float a, int n)
{
    return (n & (n - 1)) == 0 ? a * (1.0f / (float)n) : __fdiv_rn(a, (float)n);
}
template <> __device__ __forceinline__ double weft_divide(double a, int n)
{
    return (n & (n - 1)) == 0 ? a * (1.0 / n) : a / n;
}
template <> __device__ __forceinline__ int8_t weft_divide(int8_t a, int n)
{
    return (int8_t)((int)a / n);
}
template <> __device__ __forceinline__ uint8_t weft_divide(uint8_t a, int n)
{
    return (uint8_t)((unsigned)a / (unsigned)n);
}

/* ---- packs: a few elements in registers --------------------------------------------------- */

/* BYTES of elements, as they are in memory, and as they are reduced. */
template <int TYPE, int OP, int BYTES> struct weft_pack {
    typedef weft_element<TYPE> E;
    static const int N = BYTES / (int)sizeof(typename E::T);
    typename E::A at[N];

    __device__ __forceinline__ void set(const uint32_t (&words)[BYTES / 4])
    {
        typename E::T raw[N];
        memcpy(raw, words, BYTES);
#pragma unroll
        for (int i = 0; i < N; i++) {
            at[i] = E::load(raw[i]);
        }
    }

    __device__ __forceinline__ void combine(const uint32_t (&words)[BYTES / 4])
    {
        weft_pack other;
        other.set(words);
#pragma unroll
        for (int i = 0; i < N; i++) {
            at[i] = weft_combine<OP>(at[i], other.at[i]);
        }
    }

    __device__ __forceinline__ void get(int ranks, uint32_t (&words)[BYTES / 4]) const
    {
        typename E::T raw[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            raw[i] = E::store(OP == WEFT_AVG ? weft_divide(at[i], ranks) : at[i]);
        }
        memcpy(words, raw, BYTES);
    }
};

#endif
