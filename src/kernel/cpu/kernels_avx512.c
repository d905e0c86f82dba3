/* The table "avx512": built with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mf16c. */
#if defined(__x86_64__)

#include "kernel/cpu/vec_avx512.h"

#include "kernel/cpu/reduce_impl.h"

const weft_kernels_t weft__kernels_avx512 = {
    .name = "avx512",
    .copy = copy,
    .reduce = reduce,
    .combine = combine,
    .finish = finish,
};

#else
typedef int nothing_t; /* a file must declare something */
#endif
