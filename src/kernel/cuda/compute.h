/* The GPUs' table of compute kernels. */
#ifndef WEFT_KERNEL_CUDA_COMPUTE_H
#define WEFT_KERNEL_CUDA_COMPUTE_H

#include "kernel/compute.h"

/* The table, once the CUDA module and cuBLASLt are there; fails with the reason where they are not.
 *
 * The first call on a stream takes scratch memory for it from the pool of its device, and the first
 * matrix product of a shape looks for an algorithm: run a step before capturing one in a graph. */
weft_status_t weft__compute_cuda(const weft_compute_t **table_p);

/* The GPU that a call on `stream` runs on; NULL: that of the calling thread's device. */
int weft__compute_gpu(weft_stream_h stream);

#endif
