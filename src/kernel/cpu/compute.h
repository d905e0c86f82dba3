/* The CPU's table of compute kernels. */
#ifndef WEFT_KERNEL_CPU_COMPUTE_H
#define WEFT_KERNEL_CPU_COMPUTE_H

#include "kernel/compute.h"

extern const weft_compute_t weft__compute_cpu;

#endif
