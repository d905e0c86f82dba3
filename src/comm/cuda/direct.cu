#include "comm/cuda/direct.cuh"
#include "comm/cuda/families.cuh"

const family_t direct_family = BY_TYPE(direct_kernel);
const unsigned direct_threads = WEFT_CUDA_THREADS;
