/* The inner loops "avx512": built with the options of kernels_avx512.c. */
#if defined(__x86_64__)

#include "kernel/cpu/amx.h"
#include "kernel/cpu/inner_impl.h"

const weft_inner_t weft__inner_avx512 = INNER_TABLE("avx512", OWN_PRODUCTS);

#if defined(WEFT_AMX)
#define AMX_PRODUCTS                                                                               \
    .product = weft__amx_product, .pack_strip = weft__amx_pack_strip,                              \
    .strip_rows = weft__amx_strip_rows, .packing = WEFT_AMX_PACKING

const weft_inner_t weft__inner_amx = INNER_TABLE("amx", AMX_PRODUCTS);
#endif

#else
typedef int nothing_t; /* a file must declare something */
#endif
