/* Weft's own matrix product on AMX, Intel's unit for matrices of bf16. Internal to this folder.
 *
 * A float has 24 bits of mantissa and a bf16 has 8, so every float x is the sum of three of them:
 * x = x1 + x2 + x3, with nothing lost. A product is then
 *
 *     x y  =  x1 y1  +  x1 y2 + x2 y1  +  x2 y2 + x1 y3 + x3 y1  +  (x2 y3 + x3 y2 + x3 y3)
 *
 * of which the last bracket is below the last bit of a float and left out. Products of bf16 are
 * exact, and sums are floats: results are about as good as those of float instructions. A sum is
 * one of all of k, where AVX-512 begins anew every 192 steps: at k = 1024 errors are the same, at
 * 4096 twice as large.
 *
 * What differs: parts and sums that are no normal numbers count as zero, so numbers below 2^-103
 * lose their last bits; and infinities, or numbers that a bf16 rounds to one (above 3.39e38), make
 * NaNs. */
#ifndef WEFT_KERNEL_CPU_AMX_H
#define WEFT_KERNEL_CPU_AMX_H

#include "kernel/cpu/inner.h"

/* See the members of weft_inner_t that have these names. */
void weft__amx_product(const weft_own_product_t *args);
void weft__amx_pack_strip(const weft_own_product_t *args, int64_t strip, int64_t first, int64_t end,
                          void *packed);
void weft__amx_strip_rows(const weft_own_product_t *args, const void *packed, int64_t first,
                          int64_t end, void *scratch);

/* Panels and strips are two tiles of 16; a step of k is what one instruction multiplies. */
#define WEFT_AMX_PACKING                                                                           \
    {                                                                                              \
        .strip = 32, .panel = 32, .step = 32, .element = 3 * sizeof(uint16_t)                      \
    }

#endif
