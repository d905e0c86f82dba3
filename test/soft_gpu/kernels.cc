/* The kernels of collectives and their launches, as they are, with the headers in include/ in place
 * of CUDA's. */
#include "comm/cuda/batch.cu"
#include "comm/cuda/direct.cu"
#include "comm/cuda/kernels.cu"
#include "comm/cuda/ll.cu"
