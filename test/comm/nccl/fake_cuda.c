/* The fake GPU as Weft's CUDA module (WEFT_CUDA_MODULE), for tests of what stands between the
 * public calls and NCCL. It has no kernels: ranks on it can only be brought together by NCCL. */
#define host_gpu weft_cuda_device
#include "comm/nccl/host_gpu.c"

__attribute__((constructor)) static void be_strict(void)
{
    host_gpu_strict = true;
}
