/* The inner loops "avx2": built with the options of kernels_avx2.c. */
#if defined(__x86_64__)

#include "kernel/cpu/inner_impl.h"

const weft_inner_t weft__inner_avx2 = INNER_TABLE("avx2", OWN_PRODUCTS);

#else
typedef int nothing_t; /* a file must declare something */
#endif
