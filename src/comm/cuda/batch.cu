#include "comm/cuda/families.cuh"
#include "comm/cuda/ll.cuh"

const batch_fn batch_family[WEFT_DTYPE_COUNT][WEFT_OP_COUNT] = {OF_REDUCTIONS(batch_kernel)};
