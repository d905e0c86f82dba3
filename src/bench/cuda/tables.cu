/* The way into the module. */
#include "bench/cuda/launch.h"
#include "comm/cuda/launch.h"
#include "kernel/cuda/compress.h"
#include "kernel/cuda/launch.h"
#include "symm/cuda/launch.h"

extern "C" __attribute__((visibility("default"))) const weft_cuda_tables_t *
weft_cuda_tables(uint32_t abi)
{
    static const weft_cuda_tables_t tables = {&weft_cuda_device,  &weft_cuda_comm,
                                              &weft_cuda_symm,    &weft_cuda_bench,
                                              &weft_cuda_compute, &weft_cuda_compress};
    return abi == WEFT_CUDA_ABI ? &tables : NULL;
}
