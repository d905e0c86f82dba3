/* The few calls of CUDA's driver that host programs make, by way of the runtime. They leave the
 * runtime's last error as it is. */
#include <stdio.h>
#include <string.h>

#include <weft/cudart/cuda.h>

#include "nccl/cudart/state.h"

/* Errors have the same numbers. */
#define RETURN_OF(call)                                                                            \
    do {                                                                                           \
        cudaError_t kept = cudaPeekAtLastError();                                                  \
        cudaError_t error = (call);                                                                \
        weft__cudart_swap_last(kept);                                                              \
        return (CUresult)error;                                                                    \
    } while (0)

CUresult cuInit(unsigned flags)
{
    int count;
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    RETURN_OF(cudaGetDeviceCount(&count));
}

CUresult cuDriverGetVersion(int *version)
{
    RETURN_OF(cudaDriverGetVersion(version));
}

/* CUDA_ERROR_... of the errors that cuda.h has; the runtime's name of others. */
static const char *name_of(CUresult error)
{
    switch (error) {
    case CUDA_SUCCESS:
        return "CUDA_SUCCESS";
    case CUDA_ERROR_INVALID_VALUE:
        return "CUDA_ERROR_INVALID_VALUE";
    case CUDA_ERROR_OUT_OF_MEMORY:
        return "CUDA_ERROR_OUT_OF_MEMORY";
    case CUDA_ERROR_NOT_INITIALIZED:
        return "CUDA_ERROR_NOT_INITIALIZED";
    case CUDA_ERROR_DEINITIALIZED:
        return "CUDA_ERROR_DEINITIALIZED";
    case CUDA_ERROR_NO_DEVICE:
        return "CUDA_ERROR_NO_DEVICE";
    case CUDA_ERROR_INVALID_DEVICE:
        return "CUDA_ERROR_INVALID_DEVICE";
    case CUDA_ERROR_INVALID_CONTEXT:
        return "CUDA_ERROR_INVALID_CONTEXT";
    case CUDA_ERROR_INVALID_HANDLE:
        return "CUDA_ERROR_INVALID_HANDLE";
    case CUDA_ERROR_NOT_FOUND:
        return "CUDA_ERROR_NOT_FOUND";
    case CUDA_ERROR_NOT_READY:
        return "CUDA_ERROR_NOT_READY";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        return "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED";
    case CUDA_ERROR_PEER_ACCESS_NOT_ENABLED:
        return "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED";
    case CUDA_ERROR_LAUNCH_FAILED:
        return "CUDA_ERROR_LAUNCH_FAILED";
    case CUDA_ERROR_NOT_PERMITTED:
        return "CUDA_ERROR_NOT_PERMITTED";
    case CUDA_ERROR_NOT_SUPPORTED:
        return "CUDA_ERROR_NOT_SUPPORTED";
    case CUDA_ERROR_UNKNOWN:
        return "CUDA_ERROR_UNKNOWN";
    }
    return cudaGetErrorName((cudaError_t)error);
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (text == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = name_of(error);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (text == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

static cudaError_t device_get(CUdevice *device, int ordinal)
{
    cudaError_t error = device == NULL ? cudaErrorInvalidValue : weft__cudart_check_device(ordinal);
    if (error == cudaSuccess) {
        *device = ordinal;
    }
    return error;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    RETURN_OF(device_get(device, ordinal));
}

CUresult cuDeviceGetCount(int *count)
{
    RETURN_OF(cudaGetDeviceCount(count));
}

static cudaError_t properties(struct cudaDeviceProp *prop, const void *output, CUdevice device)
{
    return output == NULL ? cudaErrorInvalidValue : cudaGetDeviceProperties(prop, device);
}

static cudaError_t device_name(char *name, int length, CUdevice device)
{
    struct cudaDeviceProp prop;
    cudaError_t error = length <= 0 ? cudaErrorInvalidValue : properties(&prop, name, device);
    if (error == cudaSuccess) {
        snprintf(name, (size_t)length, "%s", prop.name);
    }
    return error;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    RETURN_OF(device_name(name, length, device));
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    RETURN_OF(cudaDeviceGetPCIBusId(text, length, device));
}

static cudaError_t total_memory(size_t *bytes, CUdevice device)
{
    struct cudaDeviceProp prop;
    cudaError_t error = properties(&prop, bytes, device);
    if (error == cudaSuccess) {
        *bytes = prop.totalGlobalMem;
    }
    return error;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    RETURN_OF(total_memory(bytes, device));
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice device)
{
    RETURN_OF(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attr, device));
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    RETURN_OF(cudaGetDevice(device));
}

CUresult cuCtxSynchronize(void)
{
    RETURN_OF(cudaDeviceSynchronize());
}

static cudaError_t allocate(CUdeviceptr *ptr, size_t bytes)
{
    void *memory = NULL;
    /* Unlike the runtime's, the driver's call refuses 0 bytes. */
    cudaError_t error = ptr == NULL || bytes == 0 ? cudaErrorInvalidValue
                                                  : cudaMalloc(&memory, bytes);
    if (error == cudaSuccess) {
        *ptr = (CUdeviceptr)(uintptr_t)memory;
    }
    return error;
}

CUresult cuMemAlloc(CUdeviceptr *ptr, size_t bytes)
{
    RETURN_OF(allocate(ptr, bytes));
}

CUresult cuMemFree(CUdeviceptr ptr)
{
    RETURN_OF(cudaFree((void *)(uintptr_t)ptr));
}

CUresult cuMemGetInfo(size_t *available, size_t *total)
{
    RETURN_OF(cudaMemGetInfo(available, total));
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t bytes)
{
    RETURN_OF(cudaMemcpy((void *)(uintptr_t)dst, src, bytes, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t bytes)
{
    RETURN_OF(cudaMemcpy(dst, (const void *)(uintptr_t)src, bytes, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    RETURN_OF(cudaMemcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes,
                         cudaMemcpyDeviceToDevice));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    RETURN_OF(cudaStreamSynchronize(stream));
}

CUresult cuStreamQuery(CUstream stream)
{
    RETURN_OF(cudaStreamQuery(stream));
}
