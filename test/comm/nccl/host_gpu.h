/* A GPU that is none: host memory, and streams that do what they are given at once. Enough for what
 * surrounds NCCL. */
#ifndef WEFT_TEST_COMM_NCCL_HOST_GPU_H
#define WEFT_TEST_COMM_NCCL_HOST_GPU_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/cuda_module.h"

/* How many events were recorded, and how many of these have passed: streams are idle if all
 * have. */
extern _Atomic int host_gpu_recorded, host_gpu_passed;
#define HOST_GPU_ALL 1000000000

/* The function of this name fails, with error 2; NULL: none does. */
extern const char *host_gpu_fails;

/* Blocks of memory, events and streams that exist. */
extern _Atomic int host_gpu_things;

/* Set: memory that is not its own is out of its reach. */
extern bool host_gpu_strict;

/* One line for each copy, wait and record, as in "wait 0x.. for 0x..\n"; emptied by the test. */
extern char host_gpu_log[4096];

extern const weft_cuda_device_ops_t host_gpu;

#endif
