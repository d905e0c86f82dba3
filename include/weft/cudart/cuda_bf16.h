/* Weft: CUDA's bfloat16, the upper half of a float, as host programs use it. */
#ifndef WEFT_CUDART_CUDA_BF16_H
#define WEFT_CUDART_CUDA_BF16_H
#define __CUDA_BF16_H__ /* by which programs know that CUDA's is there */

#include <weft/cudart/cuda_fp16.h>

static __inline__ float weft_cudart_bf16_to_float(unsigned short bits)
{
    return weft_cudart_bits_float((uint32_t)bits << 16);
}

/* To nearest, ties to even; a NaN is CUDA's, 0x7FFF. */
static __inline__ unsigned short weft_cudart_float_to_bf16(float value)
{
    uint32_t bits = weft_cudart_float_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return 0x7FFF;
    }
    return (unsigned short)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

typedef struct __nv_bfloat16_raw {
    unsigned short x;
} __nv_bfloat16_raw;

struct __nv_bfloat16 {
    unsigned short __x;
#ifdef __cplusplus
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x)
    {
    }
    __nv_bfloat16(float value) : __x(weft_cudart_float_to_bf16(value))
    {
    }
    __nv_bfloat16(double value) : __x(weft_cudart_float_to_bf16(weft_cudart_double_to_odd(value)))
    {
    }
    __nv_bfloat16(int value) : __x(weft_cudart_float_to_bf16(weft_cudart_double_to_odd(value)))
    {
    }
    __nv_bfloat16(unsigned value) : __x(weft_cudart_float_to_bf16(weft_cudart_double_to_odd(value)))
    {
    }
    __nv_bfloat16(long value)
        : __x(weft_cudart_float_to_bf16(weft_cudart_double_to_odd((double)value)))
    {
    }
    __nv_bfloat16(unsigned long value)
        : __x(weft_cudart_float_to_bf16(weft_cudart_double_to_odd((double)value)))
    {
    }
    operator float() const
    {
        return weft_cudart_bf16_to_float(__x);
    }
    operator __nv_bfloat16_raw() const
    {
        __nv_bfloat16_raw raw = {__x};
        return raw;
    }
#endif
};
typedef struct __nv_bfloat16 __nv_bfloat16;
typedef __nv_bfloat16 nv_bfloat16;

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef struct __nv_bfloat162 __nv_bfloat162;
typedef __nv_bfloat162 nv_bfloat162;

static __inline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 value;
    value.__x = bits;
    return value;
}

static __inline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.__x;
}

static __inline__ __nv_bfloat16 __float2bfloat16(float value)
{
    return __ushort_as_bfloat16(weft_cudart_float_to_bf16(value));
}

static __inline__ __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __float2bfloat16(value);
}

static __inline__ __nv_bfloat16 __double2bfloat16(double value)
{
    return __float2bfloat16(weft_cudart_double_to_odd(value));
}

static __inline__ float __bfloat162float(__nv_bfloat16 value)
{
    return weft_cudart_bf16_to_float(value.__x);
}

static __inline__ __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    __nv_bfloat162 pair;
    pair.x = __float2bfloat16(x);
    pair.y = __float2bfloat16(y);
    return pair;
}

static __inline__ float2 __bfloat1622float2(__nv_bfloat162 pair)
{
    float2 v = {__bfloat162float(pair.x), __bfloat162float(pair.y)};
    return v;
}

#ifdef __cplusplus
#define WEFT_CUDART_BF16(operation)                                                                \
    __float2bfloat16(__bfloat162float(a) operation __bfloat162float(b))
static inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return WEFT_CUDART_BF16(+);
}
static inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return WEFT_CUDART_BF16(-);
}
static inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return WEFT_CUDART_BF16(*);
}
static inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return WEFT_CUDART_BF16(/);
}
static inline __nv_bfloat16 __hneg(__nv_bfloat16 a)
{
    return __ushort_as_bfloat16((unsigned short)(a.__x ^ 0x8000u));
}
#undef WEFT_CUDART_BF16
WEFT_CUDART_OPERATORS(__nv_bfloat16, __hadd, __hsub, __hmul, __hdiv, __hneg)
#endif
#endif
