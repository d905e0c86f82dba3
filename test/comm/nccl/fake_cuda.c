/* The fake GPU as Weft's CUDA module (WEFT_CUDA_MODULE), for tests of what stands between the public calls
 * and NCCL. It has no kernels: ranks on it can only be brought together by NCCL. */
#include "comm/nccl/host_gpu.c"

const weft_cuda_tables_t *weft_cuda_tables(uint32_t abi);

const weft_cuda_tables_t *weft_cuda_tables(uint32_t abi)
{
    static const weft_cuda_tables_t tables = {.device = &host_gpu};
    host_gpu_strict = true;
    return abi == WEFT_CUDA_ABI ? &tables : NULL;
}
