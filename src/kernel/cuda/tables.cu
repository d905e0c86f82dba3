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
    static int name##_on_gpu(const weft_cuda_place_t *place, const args_t *args)                   \
    {                                                                                              \
        WEFT_TRY(cudaSetDevice(place->gpu));                                                       \
        return weft_cuda_##name(place, args);                                                      \
    }
WEFT_COMPUTE_TABLE(ON_GPU)
#undef ON_GPU

static int adamw_list_on_gpu(const weft_cuda_place_t *place, const weft_adamw_t *list, int count)
{
    WEFT_TRY(cudaSetDevice(place->gpu));
    return weft_cuda_adamw_list(place, list, count);
}

#define SLOT(name, args_t) name##_on_gpu,
extern "C" const weft_cuda_compute_ops_t weft_cuda_compute = {
    WEFT_CUDA_ABI, weft_cuda_blas_open, WEFT_COMPUTE_TABLE(SLOT) adamw_list_on_gpu,
    weft_cuda_embed_work, weft_cuda_norm_work, weft_cuda_attention_work, error_text};
#undef SLOT
