/* Weft: CUDA's runtime as C++ programs use it: cuda_runtime_api.h, vector types, and calls that
 * take pointers of any type. */
#ifndef WEFT_CUDART_CUDA_RUNTIME_H
#define WEFT_CUDART_CUDA_RUNTIME_H
#define __CUDA_RUNTIME_H__ /* by which programs know that CUDA's is there */

/* What nvcc includes with it, and programs rely on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __cplusplus
#include <utility>
#endif

#include <weft/cudart/cuda_runtime_api.h>
#include <weft/cudart/vector_functions.h>

static __inline__ struct cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth)
{
    struct cudaExtent extent = {width, height, depth};
    return extent;
}

static __inline__ struct cudaPos make_cudaPos(size_t x, size_t y, size_t z)
{
    struct cudaPos pos = {x, y, z};
    return pos;
}

static __inline__ struct cudaPitchedPtr make_cudaPitchedPtr(void *ptr, size_t pitch, size_t xsize,
                                                            size_t ysize)
{
    struct cudaPitchedPtr pitched = {ptr, pitch, xsize, ysize};
    return pitched;
}

#ifdef __cplusplus

template <class T> static inline cudaError_t cudaMalloc(T **ptr, size_t bytes)
{
    return ::cudaMalloc((void **)(void *)ptr, bytes);
}

template <class T>
static inline cudaError_t cudaMallocPitch(T **ptr, size_t *pitch, size_t width, size_t height)
{
    return ::cudaMallocPitch((void **)(void *)ptr, pitch, width, height);
}

template <class T>
static inline cudaError_t cudaMallocHost(T **ptr, size_t bytes, unsigned flags = 0)
{
    return ::cudaHostAlloc((void **)(void *)ptr, bytes, flags);
}

template <class T> static inline cudaError_t cudaHostAlloc(T **ptr, size_t bytes, unsigned flags)
{
    return ::cudaHostAlloc((void **)(void *)ptr, bytes, flags);
}

template <class T>
static inline cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned flags)
{
    return ::cudaHostGetDevicePointer((void **)(void *)device, host, flags);
}

template <class T>
static inline cudaError_t cudaMallocManaged(T **ptr, size_t bytes,
                                            unsigned flags = cudaMemAttachGlobal)
{
    return ::cudaMallocManaged((void **)(void *)ptr, bytes, flags);
}

template <class T>
static inline cudaError_t cudaMallocAsync(T **ptr, size_t bytes, cudaStream_t stream)
{
    return ::cudaMallocAsync((void **)(void *)ptr, bytes, stream);
}

static inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned flags)
{
    return ::cudaEventCreateWithFlags(event, flags);
}

template <class T> static inline cudaError_t cudaGetSymbolAddress(void **ptr, const T &symbol)
{
    return ::cudaGetSymbolAddress(ptr, (const void *)&symbol);
}

template <class T>
static inline cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *src, size_t bytes,
                                             size_t offset = 0,
                                             enum cudaMemcpyKind kind = cudaMemcpyHostToDevice)
{
    return ::cudaMemcpyToSymbol((const void *)&symbol, src, bytes, offset, kind);
}

template <class T>
static inline cudaError_t cudaMemcpyFromSymbol(void *dst, const T &symbol, size_t bytes,
                                               size_t offset = 0,
                                               enum cudaMemcpyKind kind = cudaMemcpyDeviceToHost)
{
    return ::cudaMemcpyFromSymbol(dst, (const void *)&symbol, bytes, offset, kind);
}

template <class T>
static inline cudaError_t cudaLaunchKernel(T *func, dim3 grid, dim3 block, void **args,
                                           size_t shared = 0, cudaStream_t stream = 0)
{
    return ::cudaLaunchKernel((const void *)func, grid, block, args, shared, stream);
}

template <class T>
static inline cudaError_t cudaLaunchCooperativeKernel(T *func, dim3 grid, dim3 block, void **args,
                                                      size_t shared = 0, cudaStream_t stream = 0)
{
    return ::cudaLaunchCooperativeKernel((const void *)func, grid, block, args, shared, stream);
}

template <class T>
static inline cudaError_t cudaFuncSetAttribute(T *func, enum cudaFuncAttribute attr, int value)
{
    return ::cudaFuncSetAttribute((const void *)func, attr, value);
}

template <class T>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, T *func)
{
    return ::cudaFuncGetAttributes(attributes, (const void *)func);
}

#endif
#endif
