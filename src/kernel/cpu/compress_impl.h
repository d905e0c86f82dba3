/* The inner loops of compression, written so that compilers make vectors of them. Included by one
 * file per instruction set, which are compiled with its options; all give the same bits. */
#include <math.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernel/cpu/compress.h"

#define BLOCK WEFT_QUANT_BLOCK
#define INFINITE 0x7f800000

/* Adding it rounds a number below 2^22 to an integer, which is then in the low bits. */
#define ROUNDER 12582912.0f

static inline int32_t bits_of(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_of(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Magnitudes order like their bits, and what is not finite comes last. */
static inline int32_t most_bits(const float *x, int64_t count)
{
    int32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t bits = bits_of(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

static void quantize_block(const float *in, float *residual, int8_t *out, float *scale)
{
    float x[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        x[i] = in[i] + residual[i];
    }
    int32_t most = most_bits(x, BLOCK);
    float unit = float_of(most) / 127.0f;
    float inverse = unit > 0.0f ? 1.0f / unit : 0.0f;
    if (most >= INFINITE || inverse > 3e38f) { /* not finite, or too small for a reciprocal */
        *scale = most >= INFINITE ? NAN : 0.0f;
        memset(out, most >= INFINITE ? 1 : 0, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            residual[i] = most >= INFINITE ? 0.0f : x[i];
        }
        return;
    }
    *scale = unit;
    for (int i = 0; i < BLOCK; i++) {
        int32_t q = bits_of(x[i] * inverse + ROUNDER) - bits_of(ROUNDER);
        out[i] = (int8_t)q;
        residual[i] = x[i] - (float)q * unit;
    }
}

static void quantize(const weft_quantize_t *a)
{
    for (int64_t b = 0; b < a->count / BLOCK; b++) {
        quantize_block(a->in + b * BLOCK, a->residual + b * BLOCK, a->out + b * BLOCK,
                       a->scales + b);
    }
}

static void dequantize(const weft_dequantize_t *a)
{
    for (int64_t b = 0; b < a->count / BLOCK; b++) {
        float sum[BLOCK] = {0};
        for (int p = 0; p < a->parts; p++) {
            const int8_t *in = a->in + p * a->stride + b * BLOCK;
            float scale;
            memcpy(&scale, (const char *)(a->scales + b) + p * a->stride, sizeof(scale));
            for (int i = 0; i < BLOCK; i++) {
                sum[i] += (float)in[i] * scale;
            }
        }
        memcpy(a->out + b * BLOCK, sum, sizeof(sum));
    }
}

static void peak(const weft_peak_t *a)
{
    int32_t most = most_bits(a->in, a->count);
    *a->out = float_of(most < INFINITE ? most : INFINITE);
}

/* ---- halves ------------------------------------------------------------------------------- */

/* Round to nearest, ties to even. NaN stays one. */
static inline uint16_t half_of(float value)
{
    uint32_t bits = (uint32_t)bits_of(value);
    uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > INFINITE) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (magnitude >= 0x47800000) { /* 65536 and more; 65520 rounds up to it below */
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude < 0x38800000) { /* below 2^-14: adding 0.5 leaves units of 2^-24 */
        return (uint16_t)(sign |
                          (uint32_t)(bits_of(float_of((int32_t)magnitude) + 0.5f) - 0x3f000000));
    }
    uint32_t rounded = magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | (rounded >> 13));
}

static inline float of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) {
        return float_of((int32_t)(sign | INFINITE | (rest << 13)));
    }
    /* Exponents differ by 112: 2^112 times the bits in place, which is exact, also below 2^-14. */
    return float_of((int32_t)(sign | (rest << 13))) * 0x1p112f;
}

static void to_f16(const weft_f16_t *a, float scale)
{
    const float *in = a->in;
    uint16_t *out = a->out;
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= a->count; i += 8) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(in + i), _mm256_set1_ps(scale));
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < a->count; i++) {
        out[i] = half_of(in[i] * scale);
    }
}

static void from_f16(const weft_f16_t *a, float scale)
{
    const uint16_t *in = a->in;
    float *out = a->out;
    float inverse = 1.0f / scale; /* exact: a power of two */
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= a->count; i += 8) {
        __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i)));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(x, _mm256_set1_ps(inverse)));
    }
#endif
    for (; i < a->count; i++) {
        out[i] = of_half(in[i]) * inverse;
    }
}
