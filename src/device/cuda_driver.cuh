/* Functions of the CUDA driver, which the module does not link with. */
#ifndef WEFT_DEVICE_CUDA_DRIVER_CUH
#define WEFT_DEVICE_CUDA_DRIVER_CUH

#include <cuda.h>
#include <cuda_runtime.h>

/* A function as it was in `version`; NULL: there is none. */
static inline void *driver_function(const char *name, unsigned version)
{
    void *fn = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &fn, version, cudaEnableDefault,
                                                         &found);
#else
    cudaError_t error = version > CUDART_VERSION
                            ? cudaErrorNotSupported
                            : cudaGetDriverEntryPoint(name, &fn, cudaEnableDefault, &found);
#endif
    (void)cudaGetLastError();
    return error == cudaSuccess ? fn : NULL;
}

#endif
