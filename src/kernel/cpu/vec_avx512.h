/* Vectors of 64 bytes: AVX-512 F, BW, VL and DQ. Tails are one masked vector. */
#ifndef WEFT_KERNEL_CPU_VEC_AVX512_H
#define WEFT_KERNEL_CPU_VEC_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) ||                   \
    !defined(__AVX512DQ__)
#error "compile this with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mf16c"
#endif

#define VEC_BYTES 64
#define VEC_MASKED 1
#define VEC_STREAMS 1
#define VEC_WIDE 4 /* 256 bytes of one stream at a time: more loses when there are many streams */
#define VEC_WIDE_HALF 8

#include <immintrin.h>

#include "kernel/cpu/vec.h"

typedef __m256i half_t; /* sixteen halves */

/* `to` is aligned to VEC_BYTES. */
INLINE void vec_stream(void *to, vec_t value)
{
    _mm512_stream_si512((__m512i *)to, (__m512i)value);
}

INLINE void vec_fence(void)
{
    _mm_sfence();
}

/* The first `lanes` lanes of `size` bytes (8, 4 or 1, a constant); the rest is zero. */
INLINE vec_t vec_load_lanes(const void *from, size_t lanes, size_t size)
{
    uint64_t mask = ((uint64_t)1 << lanes) - 1;
    if (size == 8) {
        return (vec_t)_mm512_maskz_loadu_epi64((__mmask8)mask, from);
    }
    if (size == 4) {
        return (vec_t)_mm512_maskz_loadu_epi32((__mmask16)mask, from);
    }
    return (vec_t)_mm512_maskz_loadu_epi8(mask, from);
}

INLINE void vec_store_lanes(void *to, vec_t value, size_t lanes, size_t size)
{
    uint64_t mask = ((uint64_t)1 << lanes) - 1;
    if (size == 8) {
        _mm512_mask_storeu_epi64(to, (__mmask8)mask, (__m512i)value);
    } else if (size == 4) {
        _mm512_mask_storeu_epi32(to, (__mmask16)mask, (__m512i)value);
    } else {
        _mm512_mask_storeu_epi8(to, mask, (__m512i)value);
    }
}

INLINE half_t half_load_lanes(const void *from, size_t lanes)
{
    return _mm256_maskz_loadu_epi16((__mmask16)((1u << lanes) - 1), from);
}

INLINE void half_store_lanes(void *to, half_t value, size_t lanes)
{
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << lanes) - 1), value);
}

INLINE half_t half_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

INLINE void half_store(void *to, half_t value)
{
    _mm256_storeu_si256((__m256i *)to, value);
}

INLINE vec_t half_widen_f16(half_t halves)
{
    return (vec_t)_mm512_cvtph_ps(halves);
}

INLINE half_t half_narrow_f16(vec_t value)
{
    return _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vec_t half_widen_bf16(half_t halves)
{
    return (vec_t)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

/* Not the AVX512-BF16 instruction: it takes subnormals for zero. */
INLINE half_t half_narrow_bf16(vec_t value)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)vec_round_bf16(value), 16));
}

/* Two vectors of f32 to one of halves. */
INLINE vec_t half_join_f16(vec_t a, vec_t b)
{
    __m512i low = _mm512_castsi256_si512(half_narrow_f16(a));
    return (vec_t)_mm512_inserti64x4(low, half_narrow_f16(b), 1);
}

INLINE vec_t half_join_bf16(vec_t a, vec_t b)
{
    __m512i low = _mm512_castsi256_si512(half_narrow_bf16(a));
    return (vec_t)_mm512_inserti64x4(low, half_narrow_bf16(b), 1);
}

/* a < b ? a : b, lane by lane; the float instructions mean exactly that */
INLINE vec_t vec_min(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return (vec_t)_mm512_min_pd((__m512d)a, (__m512d)b);
    case WEFT_I8:
        return (vec_t)_mm512_min_epi8((__m512i)a, (__m512i)b);
    case WEFT_U8:
        return (vec_t)_mm512_min_epu8((__m512i)a, (__m512i)b);
    case WEFT_I32:
        return (vec_t)_mm512_min_epi32((__m512i)a, (__m512i)b);
    case WEFT_U32:
        return (vec_t)_mm512_min_epu32((__m512i)a, (__m512i)b);
    case WEFT_I64:
        return (vec_t)_mm512_min_epi64((__m512i)a, (__m512i)b);
    case WEFT_U64:
        return (vec_t)_mm512_min_epu64((__m512i)a, (__m512i)b);
    default:
        return (vec_t)_mm512_min_ps((__m512)a, (__m512)b);
    }
}

/* a > b ? a : b, lane by lane */
INLINE vec_t vec_max(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return (vec_t)_mm512_max_pd((__m512d)a, (__m512d)b);
    case WEFT_I8:
        return (vec_t)_mm512_max_epi8((__m512i)a, (__m512i)b);
    case WEFT_U8:
        return (vec_t)_mm512_max_epu8((__m512i)a, (__m512i)b);
    case WEFT_I32:
        return (vec_t)_mm512_max_epi32((__m512i)a, (__m512i)b);
    case WEFT_U32:
        return (vec_t)_mm512_max_epu32((__m512i)a, (__m512i)b);
    case WEFT_I64:
        return (vec_t)_mm512_max_epi64((__m512i)a, (__m512i)b);
    case WEFT_U64:
        return (vec_t)_mm512_max_epu64((__m512i)a, (__m512i)b);
    default:
        return (vec_t)_mm512_max_ps((__m512)a, (__m512)b);
    }
}

#endif
