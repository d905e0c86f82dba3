/* Weft: CUDA's 8-bit floating point as host programs use it: E4M3 (no infinity, at most 448) and
 * E5M2 (at most 57344), converted to nearest even. */
#ifndef WEFT_CUDART_CUDA_FP8_H
#define WEFT_CUDART_CUDA_FP8_H
#define __CUDA_FP8_H__ /* by which programs know that CUDA's is there */

#include <weft/cudart/cuda_bf16.h>

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
/* What is too large becomes infinite (E4M3: NaN), or the largest number. */
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

static __inline__ float weft_cudart_fp8_to_float(__nv_fp8_storage_t x,
                                                 __nv_fp8_interpretation_t form)
{
    unsigned short sign = (unsigned short)((x & 0x80u) << 8);
    if (form == __NV_E5M2) { /* the upper half of a half */
        return weft_cudart_half_to_float((unsigned short)(x << 8));
    }
    if ((x & 0x7Fu) == 0x7Fu) {
        return weft_cudart_half_to_float(0x7FFF);
    }
    /* The same bits in a half are the number divided by 2^(15-7). */
    return weft_cudart_half_to_float((unsigned short)(sign | (x & 0x7Fu) << 7)) * 256.0f;
}

static __inline__ __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t saturate,
                                                           __nv_fp8_interpretation_t form)
{
    uint32_t bits = weft_cudart_float_bits(value), sign = bits >> 24 & 0x80u, size;
    int digits = form == __NV_E4M3 ? 3 : 2, bias = form == __NV_E4M3 ? 7 : 15;
    uint32_t largest = form == __NV_E4M3 ? 0x7Eu : 0x7Bu, drop = 23 - (uint32_t)digits;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) {
        return form == __NV_E4M3 ? 0x7Fu : 0x7Eu;
    }
    if (bits >> 23 < (uint32_t)(128 - bias)) {
        /* Below the smallest normal number, 2^(1-bias): in steps of 2^(1-bias-digits), to which the
         * sum with 2^23 steps rounds. */
        float steps = weft_cudart_bits_float((uint32_t)(127 + 1 - bias - digits + 23) << 23);
        size = weft_cudart_float_bits(weft_cudart_bits_float(bits) + steps) -
               weft_cudart_float_bits(steps);
    } else {
        size = bits + ((1u << (drop - 1)) - 1) + (bits >> drop & 1);
        size = (size >> drop) - ((uint32_t)(127 - bias) << digits);
    }
    if (size > largest) {
        size = saturate == __NV_SATFINITE ? largest : form == __NV_E4M3 ? 0x7Fu : 0x7Cu;
    }
    return (__nv_fp8_storage_t)(sign | size);
}

static __inline__ __nv_fp8_storage_t
__nv_cvt_double_to_fp8(double value, __nv_saturation_t saturate, __nv_fp8_interpretation_t form)
{
    return __nv_cvt_float_to_fp8(weft_cudart_double_to_odd(value), saturate, form);
}

static __inline__ __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x,
                                                     __nv_fp8_interpretation_t form)
{
    __half_raw raw;
    raw.x = weft_cudart_float_to_half(weft_cudart_fp8_to_float(x, form));
    return raw;
}

#ifdef __cplusplus
#define WEFT_CUDART_FP8(name, form)                                                                \
    struct name {                                                                                  \
        __nv_fp8_storage_t __x;                                                                    \
        name() = default;                                                                          \
        explicit name(float value) : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, form))       \
        {                                                                                          \
        }                                                                                          \
        explicit name(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, form))     \
        {                                                                                          \
        }                                                                                          \
        explicit name(int value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, form))        \
        {                                                                                          \
        }                                                                                          \
        explicit name(__half value) : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, form))      \
        {                                                                                          \
        }                                                                                          \
        explicit name(__nv_bfloat16 value)                                                         \
            : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, form))                              \
        {                                                                                          \
        }                                                                                          \
        explicit operator float() const                                                            \
        {                                                                                          \
            return weft_cudart_fp8_to_float(__x, form);                                            \
        }                                                                                          \
        explicit operator double() const                                                           \
        {                                                                                          \
            return weft_cudart_fp8_to_float(__x, form);                                            \
        }                                                                                          \
    };
#else
#define WEFT_CUDART_FP8(name, form)                                                                \
    typedef struct name {                                                                          \
        __nv_fp8_storage_t __x;                                                                    \
    } name;
#endif
WEFT_CUDART_FP8(__nv_fp8_e4m3, __NV_E4M3)
WEFT_CUDART_FP8(__nv_fp8_e5m2, __NV_E5M2)
#undef WEFT_CUDART_FP8

#endif
