/* Memory: allocated, registered, asked about. */
#include <pthread.h>

#include "nccl/cudart/state.h"

#define PITCH ((size_t)512)

static bool is_device(const weft_cudart_range_t *range)
{
    return range->type != cudaMemoryTypeHost;
}

static bool is_pinned(const weft_cudart_range_t *range)
{
    return range->type == cudaMemoryTypeHost && !range->registered;
}

static bool is_registered(const weft_cudart_range_t *range)
{
    return range->registered;
}

static cudaError_t check_output(const void *output)
{
    return output == NULL ? weft__cudart_fail(cudaErrorInvalidValue) : cudaSuccess;
}

/* ---- device memory ---------------------------------------------------------------------- */

/* Programs say "out of memory" and end; that the machine has less than so many GPUs would have is
 * worth a sentence. */
static void explain_once(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said)) {
        weft__cudart_say("%s", weft_last_error());
    }
}

static cudaError_t allocate(void **ptr, size_t bytes, enum cudaMemoryType type, unsigned flags)
{
    int device;
    cudaError_t error = check_output(ptr);
    if (error == cudaSuccess) {
        error = weft__cudart_device(&device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    *ptr = NULL;
    if (bytes == 0) {
        return cudaSuccess;
    }
    void *memory;
    error = weft__cudart_from(weft_malloc(&memory, bytes));
    if (error != cudaSuccess) {
        explain_once();
        return error;
    }
    error = weft__cudart_range_add(&(weft_cudart_range_t){
        .base = (uintptr_t)memory, .bytes = bytes, .type = type, .device = device, .flags = flags});
    if (error != cudaSuccess) {
        weft_free(memory);
        return error;
    }
    *ptr = memory;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    return allocate(ptr, bytes, cudaMemoryTypeDevice, 0);
}

cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned flags)
{
    if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    return allocate(ptr, bytes, cudaMemoryTypeManaged, flags);
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
    size_t row = (width + PITCH - 1) / PITCH * PITCH;
    if (pitch == NULL || row < width || (height > 0 && row > SIZE_MAX / height)) {
        return weft__cudart_fail(pitch == NULL ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
    }
    *pitch = row;
    return cudaMalloc(ptr, row * height);
}

/* As on a GPU, all work of the device is done before its memory is free. */
cudaError_t cudaFree(void *ptr)
{
    weft_cudart_range_t range;
    int device;
    cudaError_t error = weft__cudart_device(&device);
    if (ptr == NULL || error != cudaSuccess) {
        return error;
    }
    if (!weft__cudart_range_find(ptr, &range) || range.base != (uintptr_t)ptr ||
        !is_device(&range)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    error = weft__cudart_synchronize("cudaFree", range.device);
    if (error == cudaErrorNotPermitted) {
        return error;
    }
    /* Of two that free the same memory one wins. */
    if (!weft__cudart_range_take(ptr, is_device, &range)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    cudaError_t freed = weft__cudart_from(weft_free(ptr));
    return error != cudaSuccess ? error : freed;
}

/* ---- in the order of a stream ------------------------------------------------------------ */

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t handle)
{
    weft_cudart_stream_t *stream;
    int device;
    cudaError_t error = weft__cudart_find(handle, &stream);
    if (error == cudaSuccess) {
        error = weft__cudart_device(&device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    /* The memory is the stream's device's. It is there at once, which no work can tell. */
    weft_device_set(stream->device);
    error = cudaMalloc(ptr, bytes);
    weft_device_set(device);
    return error;
}

static void free_now(void *ptr)
{
    weft_free(ptr);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t handle)
{
    weft_cudart_stream_t *stream;
    weft_cudart_range_t range;
    cudaError_t error = weft__cudart_enter(handle, &stream);
    if (error != cudaSuccess || ptr == NULL) {
        return error;
    }
    if (!weft__cudart_range_take(ptr, is_device, &range)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    error = weft__cudart_from(weft_stream_call(stream->stream, free_now, ptr));
    if (error != cudaSuccess) {
        weft__cudart_range_add(&range);
    }
    return error;
}

/* A device's own pool, the only one there is, is where weft_malloc takes memory from. */
struct CUmemPoolHandle_st {
    _Atomic uint64_t threshold;
};
static struct CUmemPoolHandle_st pools[MAX_DEVICES];

static cudaError_t find_pool(cudaMemPool_t pool, int *device_p)
{
    if (pool < pools || pool >= pools + MAX_DEVICES) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *device_p = (int)(pool - pools);
    return weft__cudart_check_device(*device_p);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    cudaError_t error = check_output(pool);
    if (error == cudaSuccess) {
        error = weft__cudart_check_device(device);
    }
    if (error == cudaSuccess) {
        *pool = &pools[device];
    }
    return error;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
    return cudaDeviceGetDefaultMemPool(pool, device);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    int of = 0;
    cudaError_t error = find_pool(pool, &of);
    return error == cudaSuccess && of != device ? weft__cudart_fail(cudaErrorInvalidValue) : error;
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    int device = 0;
    cudaError_t error = find_pool(pool, &device);
    return error != cudaSuccess ? error : cudaMallocAsync(ptr, bytes, stream);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
    int device = 0;
    cudaError_t error = find_pool(pool, &device);
    if (error == cudaSuccess && (value == NULL || attr < 1 || attr > cudaMemPoolAttrUsedMemHigh)) {
        error = weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (error == cudaSuccess && attr == cudaMemPoolAttrReleaseThreshold) {
        atomic_store(&pool->threshold, *(const uint64_t *)value);
    }
    return error;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
    int device = 0;
    weft_pool_stats_t stats;
    cudaError_t error = find_pool(pool, &device);
    if (error == cudaSuccess && (value == NULL || attr < 1 || attr > cudaMemPoolAttrUsedMemHigh)) {
        error = weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (error == cudaSuccess) {
        error = weft__cudart_from(weft_pool_stats(device, &stats));
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (attr <= cudaMemPoolReuseAllowInternalDependencies) {
        *(int *)value = 1;
    } else {
        *(uint64_t *)value = attr == cudaMemPoolAttrReleaseThreshold ? atomic_load(&pool->threshold)
                             : attr == cudaMemPoolAttrUsedMemCurrent ? stats.in_use
                             : attr == cudaMemPoolAttrUsedMemHigh    ? stats.in_use_peak
                                                                     : stats.reserved;
    }
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    int device = 0;
    cudaError_t error = find_pool(pool, &device);
    return error != cudaSuccess ? error : weft__cudart_from(weft_pool_trim(device, keep));
}

/* ---- host memory ------------------------------------------------------------------------ */

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    int device;
    void *memory;
    cudaError_t error = check_output(ptr);
    if (error == cudaSuccess &&
        flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) {
        error = weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (error == cudaSuccess) {
        error = weft__cudart_device(&device);
    }
    if (error != cudaSuccess) {
        return error;
    }
    *ptr = NULL;
    if (bytes == 0) {
        return cudaSuccess;
    }
    error = weft__cudart_from(weft_host_malloc(&memory, bytes));
    if (error != cudaSuccess) {
        return error;
    }
    error = weft__cudart_range_add(&(weft_cudart_range_t){.base = (uintptr_t)memory,
                                                          .bytes = bytes,
                                                          .type = cudaMemoryTypeHost,
                                                          .device = device,
                                                          .flags = flags});
    if (error != cudaSuccess) {
        weft_host_free(memory);
        return error;
    }
    *ptr = memory;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
    return cudaHostAlloc(ptr, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *ptr)
{
    weft_cudart_range_t range;
    if (ptr == NULL) {
        return cudaSuccess;
    }
    if (!weft__cudart_range_find(ptr, &range) || range.base != (uintptr_t)ptr ||
        !is_pinned(&range)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    cudaError_t error = weft__cudart_synchronize("cudaFreeHost", range.device);
    if (error == cudaErrorNotPermitted) {
        return error;
    }
    if (!weft__cudart_range_take(ptr, is_pinned, &range)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    weft_host_free(ptr);
    return error;
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
    int device;
    cudaError_t error = weft__cudart_device(&device);
    if (error != cudaSuccess) {
        return error;
    }
    if (ptr == NULL || bytes == 0 || flags > 0xF || (uintptr_t)ptr + bytes < (uintptr_t)ptr) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    return weft__cudart_range_add(&(weft_cudart_range_t){.base = (uintptr_t)ptr,
                                                         .bytes = bytes,
                                                         .type = cudaMemoryTypeHost,
                                                         .device = device,
                                                         .registered = true,
                                                         .flags = flags});
}

cudaError_t cudaHostUnregister(void *ptr)
{
    weft_cudart_range_t range;
    return weft__cudart_range_take(ptr, is_registered, &range)
               ? cudaSuccess
               : weft__cudart_fail(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    weft_cudart_range_t range;
    if (device == NULL || flags != 0 || !weft__cudart_range_find(host, &range) ||
        range.type != cudaMemoryTypeHost) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *host)
{
    weft_cudart_range_t range;
    if (flags == NULL || !weft__cudart_range_find(host, &range) ||
        range.type != cudaMemoryTypeHost) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    *flags = range.flags;
    return cudaSuccess;
}

/* ---- questions and advice ---------------------------------------------------------------- */

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    weft_cudart_range_t range;
    cudaError_t error = check_output(attributes);
    if (error != cudaSuccess) {
        return error;
    }
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered,
                                                 .device = cudaInvalidDeviceId,
                                                 .hostPointer = (void *)(uintptr_t)ptr};
    if (weft__cudart_range_find(ptr, &range)) {
        attributes->type = range.type;
        attributes->device = range.device;
        attributes->devicePointer = (void *)(uintptr_t)ptr;
        attributes->hostPointer = range.type == cudaMemoryTypeDevice ? NULL
                                                                     : (void *)(uintptr_t)ptr;
    }
    return cudaSuccess;
}

static cudaError_t check_managed(const void *ptr, size_t bytes, int device)
{
    weft_cudart_range_t range;
    if (bytes == 0 || !weft__cudart_range_find(ptr, &range) ||
        range.type != cudaMemoryTypeManaged ||
        bytes > range.bytes - ((uintptr_t)ptr - range.base)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    return device == cudaCpuDeviceId ? cudaSuccess : weft__cudart_check_device(device);
}

cudaError_t cudaMemPrefetchAsync(const void *ptr, size_t bytes, int device, cudaStream_t handle)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = check_managed(ptr, bytes, device);
    return error != cudaSuccess ? error : weft__cudart_enter(handle, &stream);
}

cudaError_t cudaMemAdvise(const void *ptr, size_t bytes, enum cudaMemoryAdvise advice, int device)
{
    if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    return check_managed(ptr, bytes, device);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t handle, void *ptr, size_t bytes, unsigned flags)
{
    weft_cudart_stream_t *stream;
    weft_cudart_range_t range;
    (void)bytes;
    (void)flags;
    if (!weft__cudart_range_find(ptr, &range) || range.type != cudaMemoryTypeManaged) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    return weft__cudart_enter(handle, &stream);
}
