/* The table "avx2": built with -mavx2 -mfma -mf16c. */
#if defined(__x86_64__)

#include "kernel/cpu/vec_avx2.h"

#include "kernel/cpu/reduce_impl.h"

const weft_kernels_t weft__kernels_avx2 = {
    .name = "avx2",
    .copy = copy,
    .reduce = reduce,
    .combine = combine,
    .finish = finish,
};

#else
typedef int nothing_t; /* a file must declare something */
#endif
