/* 16-bit floating point, one number at a time; src/kernel has the fast forms. */
#ifndef WEFT_BASE_HALF_H
#define WEFT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float weft__bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Rounded to nearest even; a NaN stays one. */
static inline uint16_t weft__f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

static inline float weft__f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1Fu;
    uint32_t fraction = half & 0x3FFu, bits;
    float value;
    if (exponent == 0) { /* zero, or a multiple of 2^-24 */
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, 4);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7F800000u | fraction << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}

/* To nearest, ties to even; above 65504 it is infinite. */
static inline uint16_t weft__f32_to_f16(float value)
{
    uint32_t bits, sign;
    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) { /* a NaN stays one */
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x1ff));
    }
    if (bits < 0x38800000) { /* below 2^-14: in steps of 2^-24, to which the sum with 0.5 rounds */
        float size, shifted;
        memcpy(&size, &bits, sizeof(size));
        shifted = size + 0.5f;
        memcpy(&bits, &shifted, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits >= 0x47800000 ? 0x7c00 : (bits - 0x38000000) >> 13));
}

#endif
