/* The inner loops "avx512": built with the options of kernels_avx512.c. */
#if defined(__x86_64__)

#include "kernel/cpu/inner_impl.h"

const weft_inner_t weft__inner_avx512 = INNER_TABLE("avx512");

#else
typedef int nothing_t; /* a file must declare something */
#endif
