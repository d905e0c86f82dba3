#ifndef WEFT_TEST_SOFT_GPU_CUDA_FP16_H
#define WEFT_TEST_SOFT_GPU_CUDA_FP16_H

#include <cmath>
#include <cuda_runtime.h>

struct __half {
    uint16_t bits;
};

static inline __half __ushort_as_half(uint16_t bits)
{
    return {bits};
}

static inline uint16_t __half_as_ushort(__half x)
{
    return x.bits;
}

static inline float __half2float(__half x)
{
    int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
    float value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(mantissa + 1024), exponent - 25)
                                 : ldexpf((float)mantissa, -24);
    return x.bits & 0x8000 ? -value : value;
}

static inline __half __float2half_rn(float x)
{
    uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    int exponent;
    if (x != x) {
        return {0x7fff};
    }
    if (std::isinf(x)) {
        return {(uint16_t)(sign | 0x7c00)};
    }
    frexpf(x, &exponent);                                 /* |x| < 2^exponent */
    int unit = exponent - 11 < -24 ? -24 : exponent - 11; /* of the last bit */
    unsigned steps = (unsigned)nearbyintf(ldexpf(fabsf(x), -unit));
    /* Rounding up to the next power of two carries into the exponent by itself. */
    unsigned bits = steps < 1024 ? steps : ((unsigned)(unit + 24) << 10) + steps;
    return {(uint16_t)(sign | (bits < 0x7c00 ? bits : 0x7c00))};
}

#endif
