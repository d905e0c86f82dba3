/* Weft: CUDA's half, 16-bit floating point, as host programs use it: conversions, and arithmetic by
 * way of float, rounded to nearest even. */
#ifndef WEFT_CUDART_CUDA_FP16_H
#define WEFT_CUDART_CUDA_FP16_H
#define __CUDA_FP16_H__ /* by which programs know that CUDA's is there */

#include <stdint.h>
#include <string.h>

#include <weft/cudart/host_defines.h>
#include <weft/cudart/vector_types.h>

/* ---- bits ------------------------------------------------------------------------------- */

static __inline__ uint32_t weft_cudart_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static __inline__ float weft_cudart_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static __inline__ float weft_cudart_half_to_float(unsigned short half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu;
    uint32_t fraction = half & 0x3FFu;
    if (exponent == 0) { /* zero, or a multiple of 2^-24 */
        return weft_cudart_bits_float(
            weft_cudart_float_bits((float)fraction * (1.0f / 16777216.0f)) | sign);
    }
    return weft_cudart_bits_float(exponent == 31 ? sign | 0x7F800000u | fraction << 13
                                                 : sign | (exponent + 112) << 23 | fraction << 13);
}

/* To nearest, ties to even; above 65504 it is infinite; a NaN is CUDA's, 0x7FFF. */
static __inline__ unsigned short weft_cudart_float_to_half(float value)
{
    uint32_t bits = weft_cudart_float_bits(value), sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) {
        return 0x7FFF;
    }
    if (bits < 0x38800000u) { /* below 2^-14: in steps of 2^-24, to which the sum with 0.5 rounds */
        return (unsigned short)(sign |
                                (weft_cudart_float_bits(weft_cudart_bits_float(bits) + 0.5f) -
                                 0x3F000000u));
    }
    bits += 0xFFFu + (bits >> 13 & 1);
    return (unsigned short)(sign | (bits >= 0x47800000u ? 0x7C00u : (bits - 0x38000000u) >> 13));
}

/* The double as a float that rounds to the same half: a bit that is lost stays visible (rounding to
 * odd), so that nothing is rounded twice. */
static __inline__ float weft_cudart_double_to_odd(double value)
{
    float near_value = (float)value;
    uint32_t bits = weft_cudart_float_bits(near_value);
    if ((double)near_value == value || value != value || bits << 1 == 0xFF000000u) {
        return near_value;
    }
    if (((double)near_value > value) == (value > 0)) { /* its size was rounded up */
        bits--;
    }
    return weft_cudart_bits_float(bits | 1);
}

/* ---- types ------------------------------------------------------------------------------ */

typedef struct __half_raw {
    unsigned short x;
} __half_raw;

struct __half {
    unsigned short __x;
#ifdef __cplusplus
    __half() = default;
    __half(__half_raw raw) : __x(raw.x)
    {
    }
    __half(float value) : __x(weft_cudart_float_to_half(value))
    {
    }
    __half(double value) : __x(weft_cudart_float_to_half(weft_cudart_double_to_odd(value)))
    {
    }
    __half(int value) : __x(weft_cudart_float_to_half(weft_cudart_double_to_odd(value)))
    {
    }
    __half(unsigned value) : __x(weft_cudart_float_to_half(weft_cudart_double_to_odd(value)))
    {
    }
    __half(long value) : __x(weft_cudart_float_to_half(weft_cudart_double_to_odd((double)value)))
    {
    }
    __half(unsigned long value)
        : __x(weft_cudart_float_to_half(weft_cudart_double_to_odd((double)value)))
    {
    }
    operator float() const
    {
        return weft_cudart_half_to_float(__x);
    }
    operator __half_raw() const
    {
        __half_raw raw = {__x};
        return raw;
    }
#endif
};
typedef struct __half __half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
};
typedef struct __half2 __half2;

#if defined(__cplusplus) && !defined(CUDA_NO_HALF)
typedef __half half;
typedef __half2 half2;
#endif

/* ---- conversions ------------------------------------------------------------------------ */

static __inline__ __half __ushort_as_half(unsigned short bits)
{
    __half half;
    half.__x = bits;
    return half;
}

static __inline__ unsigned short __half_as_ushort(__half half)
{
    return half.__x;
}

static __inline__ __half __short_as_half(short bits)
{
    return __ushort_as_half((unsigned short)bits);
}

static __inline__ short __half_as_short(__half half)
{
    return (short)half.__x;
}

static __inline__ __half __float2half(float value)
{
    return __ushort_as_half(weft_cudart_float_to_half(value));
}

static __inline__ __half __float2half_rn(float value)
{
    return __float2half(value);
}

static __inline__ __half __double2half(double value)
{
    return __float2half(weft_cudart_double_to_odd(value));
}

static __inline__ float __half2float(__half half)
{
    return weft_cudart_half_to_float(half.__x);
}

static __inline__ __half __int2half_rn(int value)
{
    return __double2half(value);
}

static __inline__ __half2 __floats2half2_rn(float x, float y)
{
    __half2 pair;
    pair.x = __float2half(x);
    pair.y = __float2half(y);
    return pair;
}

static __inline__ __half2 __float22half2_rn(float2 v)
{
    return __floats2half2_rn(v.x, v.y);
}

static __inline__ __half2 __float2half2_rn(float value)
{
    return __floats2half2_rn(value, value);
}

static __inline__ float2 __half22float2(__half2 pair)
{
    float2 v = {__half2float(pair.x), __half2float(pair.y)};
    return v;
}

static __inline__ __half2 __halves2half2(__half x, __half y)
{
    __half2 pair;
    pair.x = x;
    pair.y = y;
    return pair;
}

static __inline__ float __low2float(__half2 pair)
{
    return __half2float(pair.x);
}

static __inline__ float __high2float(__half2 pair)
{
    return __half2float(pair.y);
}

/* ---- arithmetic ------------------------------------------------------------------------- */

/* Sums, differences, products and quotients of two halves are rounded to a half as if once: a float
 * has more than twice the digits. */
static __inline__ __half __hadd(__half a, __half b)
{
    return __float2half(__half2float(a) + __half2float(b));
}

static __inline__ __half __hsub(__half a, __half b)
{
    return __float2half(__half2float(a) - __half2float(b));
}

static __inline__ __half __hmul(__half a, __half b)
{
    return __float2half(__half2float(a) * __half2float(b));
}

static __inline__ __half __hdiv(__half a, __half b)
{
    return __float2half(__half2float(a) / __half2float(b));
}

static __inline__ __half __hneg(__half a)
{
    return __ushort_as_half((unsigned short)(a.__x ^ 0x8000u));
}

static __inline__ __half __habs(__half a)
{
    return __ushort_as_half((unsigned short)(a.__x & 0x7FFFu));
}

#ifdef __cplusplus
#define WEFT_CUDART_OPERATORS(type, add, sub, mul, div, neg)                                       \
    static inline type operator+(type a, type b)                                                   \
    {                                                                                              \
        return add(a, b);                                                                          \
    }                                                                                              \
    static inline type operator-(type a, type b)                                                   \
    {                                                                                              \
        return sub(a, b);                                                                          \
    }                                                                                              \
    static inline type operator*(type a, type b)                                                   \
    {                                                                                              \
        return mul(a, b);                                                                          \
    }                                                                                              \
    static inline type operator/(type a, type b)                                                   \
    {                                                                                              \
        return div(a, b);                                                                          \
    }                                                                                              \
    static inline type operator-(type a)                                                           \
    {                                                                                              \
        return neg(a);                                                                             \
    }                                                                                              \
    static inline type &operator+=(type &a, type b)                                                \
    {                                                                                              \
        return a = add(a, b);                                                                      \
    }                                                                                              \
    static inline type &operator-=(type &a, type b)                                                \
    {                                                                                              \
        return a = sub(a, b);                                                                      \
    }                                                                                              \
    static inline type &operator*=(type &a, type b)                                                \
    {                                                                                              \
        return a = mul(a, b);                                                                      \
    }                                                                                              \
    static inline type &operator/=(type &a, type b)                                                \
    {                                                                                              \
        return a = div(a, b);                                                                      \
    }                                                                                              \
    static inline bool operator==(type a, type b)                                                  \
    {                                                                                              \
        return (float)a == (float)b;                                                               \
    }                                                                                              \
    static inline bool operator!=(type a, type b)                                                  \
    {                                                                                              \
        return (float)a != (float)b;                                                               \
    }                                                                                              \
    static inline bool operator<(type a, type b)                                                   \
    {                                                                                              \
        return (float)a < (float)b;                                                                \
    }                                                                                              \
    static inline bool operator>(type a, type b)                                                   \
    {                                                                                              \
        return (float)a > (float)b;                                                                \
    }                                                                                              \
    static inline bool operator<=(type a, type b)                                                  \
    {                                                                                              \
        return (float)a <= (float)b;                                                               \
    }                                                                                              \
    static inline bool operator>=(type a, type b)                                                  \
    {                                                                                              \
        return (float)a >= (float)b;                                                               \
    }

WEFT_CUDART_OPERATORS(__half, __hadd, __hsub, __hmul, __hdiv, __hneg)
#endif
#endif
