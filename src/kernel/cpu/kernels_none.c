/* The table "none": plain C, for any CPU. */

#include "kernel/cpu/vec_none.h"

#include "kernel/cpu/reduce_impl.h"

const weft_kernels_t weft__kernels_none = {
    .name = "none",
    .copy = copy,
    .reduce = reduce,
    .combine = combine,
    .finish = finish,
};
