/* The table of compute kernels that the module offers. */
#include <cstdio>

#include "kernel/cuda/blas.cuh"

static const char *error_text(int error)
{
    static thread_local char text[160];
    if (error == WEFT_CUDA_UNSUPPORTED) {
        return "there is no kernel for rows or heads of this size";
    }
    if (error <= -WEFT_CUDA_BLAS_ERROR) {
        snprintf(text, sizeof(text), "cuBLASLt says: %s",
                 weft_cuda_blas_text(-error - WEFT_CUDA_BLAS_ERROR));
        return text;
    }
    return cudaGetErrorString((cudaError_t)error);
}

/* Every slot selects its GPU first. */
#define ON_GPU(name, args_t)                                                                       \
    static int name##_on_gpu(const weft_cuda_exec_t *exec, const args_t *args)                   \
    {                                                                                              \
        WEFT_TRY(cudaSetDevice(exec->gpu));                                                       \
        return weft_cuda_##name(exec, args);                                                      \
    }
WEFT_COMPUTE_TABLE(ON_GPU)
#undef ON_GPU

#define LIST_ON_GPU(name, args_t)                                                                  \
    static int name##_list_on_gpu(const weft_cuda_exec_t *exec, const args_t *list, int count)     \
    {                                                                                              \
        WEFT_TRY(cudaSetDevice(exec->gpu));                                                        \
        return weft_cuda_##name##_list(exec, list, count);                                         \
    }
WEFT_COMPUTE_LISTS(LIST_ON_GPU)
#undef LIST_ON_GPU

#define SLOT(name, args_t) name##_on_gpu,
#define LIST_SLOT(name, args_t) name##_list_on_gpu,
extern "C" const weft_cuda_compute_ops_t weft_cuda_compute = {
    WEFT_CUDA_ABI, weft_cuda_blas_open, WEFT_COMPUTE_TABLE(SLOT) WEFT_COMPUTE_LISTS(LIST_SLOT)
    weft_cuda_embed_work, weft_cuda_norm_work, weft_cuda_attention_work, error_text};
#undef SLOT
#undef LIST_SLOT
