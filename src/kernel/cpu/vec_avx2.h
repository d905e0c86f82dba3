/* Vectors of 32 bytes: AVX2 with F16C. */
#ifndef WEFT_KERNEL_CPU_VEC_AVX2_H
#define WEFT_KERNEL_CPU_VEC_AVX2_H

#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile this with -mavx2 -mfma -mf16c"
#endif

#define VEC_BYTES 32
#define VEC_MASKED 0
#define VEC_STREAMS 1
#define VEC_WIDE 8
#define VEC_WIDE_HALF 8

#include <immintrin.h>

#include "kernel/cpu/vec.h"

typedef __m128i half_t; /* eight halves */

/* `to` is aligned to VEC_BYTES. */
INLINE void vec_stream(void *to, vec_t value)
{
    _mm256_stream_si256((__m256i *)to, (__m256i)value);
    VEC_IN_ORDER();
}

INLINE void vec_fence(void)
{
    _mm_sfence();
}

/* The low `bytes` (1, 2, 4, 8 or 16, a constant); the rest is zero. */
INLINE half_t half_load_low(const void *from, size_t bytes)
{
    switch (bytes) {
    case 16:
        return _mm_loadu_si128((const __m128i *)from);
    case 8:
        return _mm_loadl_epi64((const __m128i *)from);
    case 4: {
        int value;
        memcpy(&value, from, 4);
        return _mm_cvtsi32_si128(value);
    }
    case 2: {
        uint16_t value;
        memcpy(&value, from, 2);
        return _mm_cvtsi32_si128(value);
    }
    default:
        return _mm_cvtsi32_si128(*(const uint8_t *)from);
    }
}

INLINE void half_store_low(void *to, half_t value, size_t bytes)
{
    switch (bytes) {
    case 16:
        _mm_storeu_si128((__m128i *)to, value);
        break;
    case 8:
        _mm_storel_epi64((__m128i *)to, value);
        break;
    case 4: {
        int low = _mm_cvtsi128_si32(value);
        memcpy(to, &low, 4);
        break;
    }
    case 2: {
        uint16_t low = (uint16_t)_mm_cvtsi128_si32(value);
        memcpy(to, &low, 2);
        break;
    }
    default:
        *(uint8_t *)to = (uint8_t)_mm_cvtsi128_si32(value);
        break;
    }
}

INLINE vec_t vec_load_low(const void *from, size_t bytes)
{
    return (vec_t)_mm256_zextsi128_si256(half_load_low(from, bytes));
}

INLINE void vec_store_low(void *to, vec_t value, size_t bytes)
{
    half_store_low(to, _mm256_castsi256_si128((__m256i)value), bytes);
}

INLINE half_t half_load(const void *from)
{
    return half_load_low(from, 16);
}

INLINE void half_store(void *to, half_t value)
{
    half_store_low(to, value, 16);
}

INLINE vec_t half_widen_f16(half_t halves)
{
    return (vec_t)_mm256_cvtph_ps(halves);
}

INLINE half_t half_narrow_f16(vec_t value)
{
    return _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vec_t half_widen_bf16(half_t halves)
{
    return (vec_t)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}

INLINE __m256i round_bf16(vec_t value)
{
    return _mm256_srli_epi32((__m256i)vec_round_bf16(value), 16);
}

/* Two vectors of f32 to one of halves. */
INLINE vec_t half_join_f16(vec_t a, vec_t b)
{
    return (vec_t)_mm256_set_m128i(half_narrow_f16(b), half_narrow_f16(a));
}

INLINE vec_t half_join_bf16(vec_t a, vec_t b)
{
    /* The pack works within each 16 bytes; bring its quarters into order. */
    __m256i packed = _mm256_packus_epi32(round_bf16(a), round_bf16(b));
    return (vec_t)_mm256_permute4x64_epi64(packed, 0xd8);
}

INLINE half_t half_narrow_bf16(vec_t value)
{
    return _mm256_castsi256_si128((__m256i)half_join_bf16(value, value));
}

/* AVX2 compares 64-bit lanes as signed only; moving the sign bit makes that an unsigned order. */
INLINE __m256i greater_64(vec_t a, vec_t b, weft_dtype_t type)
{
    if (type == WEFT_U64) {
        const __m256i top = _mm256_set1_epi64x(INT64_MIN);
        return _mm256_cmpgt_epi64(_mm256_xor_si256((__m256i)a, top),
                                  _mm256_xor_si256((__m256i)b, top));
    }
    return _mm256_cmpgt_epi64((__m256i)a, (__m256i)b);
}

/* a < b ? a : b, lane by lane; the float instructions mean exactly that */
INLINE vec_t vec_min(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return (vec_t)_mm256_min_pd((__m256d)a, (__m256d)b);
    case WEFT_I8:
        return (vec_t)_mm256_min_epi8((__m256i)a, (__m256i)b);
    case WEFT_U8:
        return (vec_t)_mm256_min_epu8((__m256i)a, (__m256i)b);
    case WEFT_I32:
        return (vec_t)_mm256_min_epi32((__m256i)a, (__m256i)b);
    case WEFT_U32:
        return (vec_t)_mm256_min_epu32((__m256i)a, (__m256i)b);
    case WEFT_I64:
    case WEFT_U64:
        return (vec_t)_mm256_blendv_epi8((__m256i)a, (__m256i)b, greater_64(a, b, type));
    default:
        return (vec_t)_mm256_min_ps((__m256)a, (__m256)b);
    }
}

/* a > b ? a : b, lane by lane */
INLINE vec_t vec_max(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return (vec_t)_mm256_max_pd((__m256d)a, (__m256d)b);
    case WEFT_I8:
        return (vec_t)_mm256_max_epi8((__m256i)a, (__m256i)b);
    case WEFT_U8:
        return (vec_t)_mm256_max_epu8((__m256i)a, (__m256i)b);
    case WEFT_I32:
        return (vec_t)_mm256_max_epi32((__m256i)a, (__m256i)b);
    case WEFT_U32:
        return (vec_t)_mm256_max_epu32((__m256i)a, (__m256i)b);
    case WEFT_I64:
    case WEFT_U64:
        return (vec_t)_mm256_blendv_epi8((__m256i)b, (__m256i)a, greater_64(a, b, type));
    default:
        return (vec_t)_mm256_max_ps((__m256)a, (__m256)b);
    }
}

#endif
