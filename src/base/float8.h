/* 8-bit floating point, one number at a time, in C and in CUDA. CPUs and GPUs give the same bits
 * because both run this code: integers throughout, but for one exact product.
 *
 *   e4m3   1 sign, 4 exponent, 3 fraction bits, bias 7. Up to 448; code 0x7f is NaN, there are no
 *          infinities.
 *   e5m2   1, 5 and 2 bits, bias 15: the upper half of an f16.
 *
 * The two differ in the number of `fraction` bits, which the compiler knows wherever this is used.
 * Compilers make vectors of loops over these functions. */
#ifndef WEFT_BASE_FLOAT8_H
#define WEFT_BASE_FLOAT8_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define WEFT_FLOAT8 static __host__ __device__ __forceinline__
#else
#define WEFT_FLOAT8 static inline __attribute__((always_inline, unused))
#endif

enum { WEFT_E4M3 = 3, WEFT_E5M2 = 2 }; /* fraction bits */

/* Masks in place of conditions: compilers do not make vectors where a product is conditional. */
WEFT_FLOAT8 float weft__float8_widen(uint8_t code, int fraction)
{
    const uint32_t bias = (1u << (6 - fraction)) - 1;
    const uint32_t unit = (128 - bias - (uint32_t)fraction) << 23; /* the least number, as f32 */
    const uint32_t first = fraction == WEFT_E5M2 ? 0x7cu : 0x7fu;  /* of what is no number */
    uint32_t size = code & 0x7fu, normal = (size << (23 - fraction)) + ((127 - bias) << 23);
    uint32_t is_tiny = 0u - (uint32_t)(size < 1u << fraction);
    uint32_t is_special = 0u - (uint32_t)(size >= first);
    uint32_t special = 0x7fc00000u, bits;
    float value;
    if (fraction == WEFT_E5M2) {
        special = 0x7f800000u | (uint32_t)(size > first) << 22;
    }
    memcpy(&value, &unit, 4);
    value *= (float)(int32_t)size; /* exact */
    memcpy(&bits, &value, 4);
    bits = (bits & is_tiny) | (normal & ~is_tiny);
    bits = (special & is_special) | (bits & ~is_special) | (uint32_t)(code & 0x80u) << 24;
    memcpy(&value, &bits, 4);
    return value;
}

/* To nearest even. A NaN becomes 0x7f, without its sign: which of two NaNs a sum gives is up to the
 * machine. */
WEFT_FLOAT8 uint8_t weft__float8_narrow(float value, int fraction)
{
    const uint32_t bias = (1u << (6 - fraction)) - 1, drop = 23 - (uint32_t)fraction;
    const uint32_t least = 128 - bias; /* exponent of the least normal number, as f32 has it */
    const uint32_t most = fraction == WEFT_E5M2 ? 0x7cu : 0x7eu; /* infinity, or 448 */
    uint32_t bits, size, exponent, below, rest, shift, code;
    memcpy(&bits, &value, 4);
    size = bits & 0x7fffffffu;
    exponent = size >> 23;
    below = exponent < least ? least - exponent : 0; /* bits that a small number has not */
    shift = drop + below;
    shift = shift > 25 ? 25 : shift; /* nothing is left either way */
    rest = below ? (size & 0x7fffffu) | 0x800000u : size - ((127 - bias) << 23);
    /* The codes follow each other: rounding up may carry into the exponent. */
    code = (rest + (1u << (shift - 1)) - 1 + (rest >> shift & 1)) >> shift;
    code = code > most ? most : code;
    code |= bits >> 24 & 0x80u;
    return (uint8_t)(size > 0x7f800000u ? 0x7fu : code);
}

WEFT_FLOAT8 float weft__e4m3_to_f32(uint8_t code)
{
    return weft__float8_widen(code, WEFT_E4M3);
}

WEFT_FLOAT8 uint8_t weft__f32_to_e4m3(float value)
{
    return weft__float8_narrow(value, WEFT_E4M3);
}

WEFT_FLOAT8 float weft__e5m2_to_f32(uint8_t code)
{
    return weft__float8_widen(code, WEFT_E5M2);
}

WEFT_FLOAT8 uint8_t weft__f32_to_e5m2(float value)
{
    return weft__float8_narrow(value, WEFT_E5M2);
}

#endif
