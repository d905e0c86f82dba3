#ifndef WEFT_TEST_SOFT_GPU_CUDA_BF16_H
#define WEFT_TEST_SOFT_GPU_CUDA_BF16_H

#include <cuda_runtime.h>

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (x != x) {
        return {0x7fff};
    }
    return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

#endif
