/* Vectors of floats for the kernels of training, as wide as this file is compiled for: 16 lanes
 * with AVX-512, 8 with AVX2, else 4. Written with the compilers' vector types; intrinsics only
 * where those have no word for it.
 *
 * Loads and stores take how many elements are `left`: fewer than LANES are padded with zeros, or
 * not written. `type` is f32, bf16 or f16 and a constant wherever it counts, so that it costs
 * nothing. */
#ifndef WEFT_KERNEL_CPU_LANES_H
#define WEFT_KERNEL_CPU_LANES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "base/half.h"
#include "kernel/cpu/inner.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float lanes_t __attribute__((vector_size(LANES * 4)));
typedef int32_t ilanes_t __attribute__((vector_size(LANES * 4)));
typedef uint32_t ulanes_t __attribute__((vector_size(LANES * 4)));
typedef uint16_t half_lanes_t __attribute__((vector_size(LANES * 2)));
typedef double wide_lanes_t __attribute__((vector_size(LANES * 8)));

INLINE lanes_t splat(float value)
{
    return value - (lanes_t){0};
}

INLINE lanes_t select_lanes(ilanes_t mask, lanes_t yes, lanes_t no)
{
    return (lanes_t)((mask & (ilanes_t)yes) | (~mask & (ilanes_t)no));
}

INLINE lanes_t max_lanes(lanes_t a, lanes_t b)
{
#if defined(__AVX512F__)
    return (lanes_t)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (lanes_t)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return select_lanes(a > b, a, b);
#endif
}

INLINE lanes_t sqrt_lanes(lanes_t a)
{
#if defined(__AVX512F__)
    return (lanes_t)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
    return (lanes_t)_mm256_sqrt_ps((__m256)a);
#else
    for (int i = 0; i < LANES; i++) {
        a[i] = sqrtf(a[i]);
    }
    return a;
#endif
}

/* a b + c, rounded once where the instruction set can: said outright, since a compiler may do so in
 * one copy of a loop and not in another. */
INLINE lanes_t multiply_add(lanes_t a, lanes_t b, lanes_t c)
{
#if defined(__AVX512F__)
    return (lanes_t)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (lanes_t)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* ---- over lanes, always in the same order: the upper half to the lower, again and again ---- */

#if defined(__AVX2__)
INLINE float fold_lanes(lanes_t a, const bool max)
{
#if LANES == 16
    __m256 low = _mm512_castps512_ps256((__m512)a), high = _mm512_extractf32x8_ps((__m512)a, 1);
    __m256 eight = max ? _mm256_max_ps(low, high) : _mm256_add_ps(low, high);
#else
    __m256 eight = (__m256)a;
#endif
    __m128 left = _mm256_castps256_ps128(eight), right = _mm256_extractf128_ps(eight, 1);
    __m128 four = max ? _mm_max_ps(left, right) : _mm_add_ps(left, right);
    __m128 pair = _mm_movehl_ps(four, four);
    __m128 two = max ? _mm_max_ps(four, pair) : _mm_add_ps(four, pair);
    __m128 last = _mm_shuffle_ps(two, two, 1);
    return _mm_cvtss_f32(max ? _mm_max_ss(two, last) : _mm_add_ss(two, last));
}

INLINE float sum_lanes(lanes_t a)
{
    return fold_lanes(a, false);
}

INLINE float max_of_lanes(lanes_t a)
{
    return fold_lanes(a, true);
}
#else
INLINE float sum_lanes(lanes_t a)
{
    float part[LANES];
    memcpy(part, &a, sizeof(a));
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++) {
            part[i] += part[i + width];
        }
    }
    return part[0];
}

INLINE float max_of_lanes(lanes_t a)
{
    float part[LANES];
    memcpy(part, &a, sizeof(a));
    for (int i = 1; i < LANES; i++) {
        part[0] = part[i] > part[0] ? part[i] : part[0];
    }
    return part[0];
}
#endif

/* ---- loads and stores -------------------------------------------------------------------- */

INLINE lanes_t widen_bf16(half_lanes_t halves)
{
    return (lanes_t)(__builtin_convertvector(halves, ulanes_t) << 16);
}

/* To nearest, ties to even; NaNs stay NaNs. */
INLINE half_lanes_t narrow_bf16(lanes_t value)
{
    ulanes_t bits = (ulanes_t)value;
    ulanes_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    ulanes_t quiet = (bits >> 16) | 0x40;
    ulanes_t nan = (ulanes_t)(value != value);
    return __builtin_convertvector((nan & quiet) | (~nan & rounded), half_lanes_t);
}

/* f16, by the instructions that come with AVX2. Above 65504 it is infinite. */
INLINE lanes_t widen_f16(half_lanes_t halves)
{
#if LANES == 16
    return (lanes_t)_mm512_cvtph_ps((__m256i)halves);
#elif LANES == 8
    return (lanes_t)_mm256_cvtph_ps((__m128i)halves);
#else
    lanes_t value;
    for (int i = 0; i < LANES; i++) {
        value[i] = weft__f16_to_f32(halves[i]);
    }
    return value;
#endif
}

INLINE half_lanes_t narrow_f16(lanes_t value)
{
#if LANES == 16
    return (half_lanes_t)_mm512_cvtps_ph((__m512)value,
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif LANES == 8
    return (half_lanes_t)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#else
    half_lanes_t halves;
    for (int i = 0; i < LANES; i++) {
        halves[i] = weft__f32_to_f16(value[i]);
    }
    return halves;
#endif
}

INLINE lanes_t widen(half_lanes_t halves, weft_dtype_t type)
{
    return type == WEFT_F16 ? widen_f16(halves) : widen_bf16(halves);
}

INLINE half_lanes_t narrow(lanes_t value, weft_dtype_t type)
{
    return type == WEFT_F16 ? narrow_f16(value) : narrow_bf16(value);
}

/* Fewer than LANES of them. Out of line, or else the vectors of the usual case would go through
 * memory as well: a copy of `left` bytes needs an address. */
#if LANES == 16
INLINE lanes_t load_part(const float *x, int64_t left)
{
    return (lanes_t)_mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), x);
}

INLINE void store_part(float *x, int64_t left, lanes_t value)
{
    _mm512_mask_storeu_ps(x, (__mmask16)((1u << left) - 1), (__m512)value);
}
#else
static __attribute__((noinline)) lanes_t load_part(const float *x, int64_t left)
{
    lanes_t value = {0};
    memcpy(&value, x, (size_t)left * sizeof(*x));
    return value;
}

static __attribute__((noinline)) void store_part(float *x, int64_t left, lanes_t value)
{
    memcpy(x, &value, (size_t)left * sizeof(*x));
}
#endif

static __attribute__((noinline)) half_lanes_t load_halves(const uint16_t *x, int64_t left)
{
    half_lanes_t halves = {0};
    memcpy(&halves, x, (size_t)left * sizeof(*x));
    return halves;
}

static __attribute__((noinline)) void store_halves(uint16_t *x, int64_t left, half_lanes_t halves)
{
    memcpy(x, &halves, (size_t)left * sizeof(*x));
}

INLINE lanes_t load(const void *from, int64_t at, int64_t left, weft_dtype_t type)
{
    if (type == WEFT_F32) {
        const float *x = (const float *)from + at;
        lanes_t value;
        if (left < LANES) {
            return load_part(x, left);
        }
        memcpy(&value, x, sizeof(value));
        return value;
    }
    const uint16_t *x = (const uint16_t *)from + at;
    half_lanes_t halves;
    if (left < LANES) {
        return widen(load_halves(x, left), type);
    }
    memcpy(&halves, x, sizeof(halves));
    return widen(halves, type);
}

INLINE void store(void *to, int64_t at, int64_t left, lanes_t value, weft_dtype_t type)
{
    if (type == WEFT_F32) {
        float *x = (float *)to + at;
        if (left < LANES) {
            store_part(x, left, value);
        } else {
            memcpy(x, &value, sizeof(value));
        }
        return;
    }
    half_lanes_t halves = narrow(value, type);
    uint16_t *x = (uint16_t *)to + at;
    if (left < LANES) {
        store_halves(x, left, halves);
    } else {
        memcpy(x, &halves, sizeof(halves));
    }
}

/* One element. */
INLINE float load_one(const void *from, int64_t at, weft_dtype_t type)
{
    if (type == WEFT_F32) {
        return ((const float *)from)[at];
    }
    if (type == WEFT_F16) {
        half_lanes_t halves = {((const uint16_t *)from)[at]};
        return widen_f16(halves)[0];
    }
    uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Lanes below `left` as they are, the others `rest`. */
INLINE lanes_t keep_left(lanes_t value, int64_t left, float rest)
{
#if LANES == 16
    __mmask16 mask = left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
    return (lanes_t)_mm512_mask_blend_ps(mask, _mm512_set1_ps(rest), (__m512)value);
#else
    ilanes_t index;
    for (int i = 0; i < LANES; i++) {
        index[i] = i;
    }
    return select_lanes(index < (int32_t)(left < LANES ? left : LANES), value, splat(rest));
#endif
}

/* Where an element of this type is. */
INLINE void *element(const void *base, int64_t at, weft_dtype_t type)
{
    return (char *)(uintptr_t)base + at * (type == WEFT_F32 ? 4 : 2);
}

/* ---- functions --------------------------------------------------------------------------- */

/* e^x within 2 units in the last place. Below -87.3, where results are not normal numbers any
 * more, 0; above 88.3 about 2.4e38 for ever. e^x = 2^k e^r with |r| <= log(2) / 2, and e^r by its
 * Taylor series, whose first term left out is below 2^-27. */
INLINE lanes_t exp_series(lanes_t r)
{
    lanes_t p = splat(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    return p * r + 1.0f;
}

#if LANES == 16
INLINE lanes_t exp_lanes(lanes_t x)
{
    const __m512 low = _mm512_set1_ps(-87.3f);
    /* Of two operands the second is the result where one is a NaN, which so stays one. */
    __m512 clamped = _mm512_max_ps(low, _mm512_min_ps(_mm512_set1_ps(88.3f), (__m512)x));
    __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0.693359375f), clamped);
    r = _mm512_fnmadd_ps(k, _mm512_set1_ps(-2.12194440e-4f), r);
    __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, low, _CMP_NLT_UQ);
    return (lanes_t)_mm512_maskz_scalef_ps(normal, (__m512)exp_series((lanes_t)r), k);
}
#else
INLINE lanes_t exp_lanes(lanes_t x)
{
    const lanes_t magic = splat(12582912.0f); /* 1.5 x 2^23: adding it rounds to an integer */
    lanes_t clamped = select_lanes(x < 88.3f, x, splat(88.3f));
    clamped = select_lanes(clamped > -87.3f, clamped, splat(-87.3f));
    lanes_t shifted = clamped * 1.44269504f + magic;
    lanes_t k = shifted - magic;
    /* log(2) in two parts, the first with few digits, so that k times it is exact. */
    lanes_t r = clamped - k * 0.693359375f;
    r = r - k * -2.12194440e-4f;
    lanes_t p = exp_series(r);
    ilanes_t exponent = ((ilanes_t)shifted - (ilanes_t)magic) << 23;
    lanes_t result = (lanes_t)((ilanes_t)p + exponent);
    ilanes_t tiny = x < -87.3f;
    result = (lanes_t)(~tiny & (ilanes_t)result);
    return select_lanes(x == x, result, x); /* a NaN stays one */
}
#endif

INLINE lanes_t sigmoid_lanes(lanes_t x)
{
    return 1.0f / (1.0f + exp_lanes(-x));
}

/* 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
INLINE lanes_t gelu_sigmoid(lanes_t x)
{
    return sigmoid_lanes(x * (1.5957691216f + 0.0713548163f * x * x));
}

INLINE lanes_t gelu_lanes(lanes_t x)
{
    return x * gelu_sigmoid(x);
}

INLINE lanes_t gelu_slope(lanes_t x)
{
    lanes_t s = gelu_sigmoid(x);
    return s + x * s * (1.0f - s) * (1.5957691216f + 0.2140644488f * x * x);
}

#endif
