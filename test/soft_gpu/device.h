/* A GPU made of host memory and threads: real streams, events, graphs and memory that other
 * processes map. It is a CUDA module (WEFT_CUDA_MODULE) with the true kernels of collectives,
 * compiled for the CPU, so that all that surrounds them can be tried where there is no GPU. It is
 * no model of a GPU's memory order or speed. SOFT_GPUS=n: so many of them, which reach each other's
 * memory. */
#ifndef WEFT_TEST_SOFT_GPU_DEVICE_H
#define WEFT_TEST_SOFT_GPU_DEVICE_H

#include <functional>

#include "device/cuda_module.h"

/* CUDA's numbers. */
#define SOFT_INVALID 1
#define SOFT_NO_MEMORY 2
#define SOFT_NO_DEVICE 100
#define SOFT_ILLEGAL_ADDRESS 700
#define SOFT_CAPTURED 900 /* not while the stream is captured */
#define SOFT_CAPTURE_ENDED 901
#define SOFT_CAPTURE_APART 905 /* a captured stream and an event of another */

/* Do this when all before it on the stream is done; a graph's part if the stream is captured. */
int soft_enqueue(void *stream, std::function<void()> work);

/* Is it device memory, of this process or mapped from another, or pinned host memory, from end to
 * end? Of NULL and of 0 bytes there is nothing to reach. */
bool soft_reaches(const void *ptr, size_t bytes);

#endif
