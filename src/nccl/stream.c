/* Streams and devices of the CUDA runtime that the program uses. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart.h"
#include "nccl/handle.h"

void *weft__nccl_cuda(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool virtual_gpus;
static weft_cudart_enter_fn enter; /* of Weft's CUDA runtime; NULL: the program does without */
static int (*get_device)(int *device_p); /* of the CUDA runtime, where it is a shared library */
static int (*get_context_device)(int *device_p); /* else of the driver: every runtime keeps to it */

enum { NO_CONTEXT = 201 }; /* CUDA_ERROR_INVALID_CONTEXT: the program has not chosen a device yet */

static void look(void)
{
    const char *kind = "cpu";
    virtual_gpus = weft_device_kind(&kind) != WEFT_OK || strcmp(kind, "cpu") == 0;
    /* POSIX lets an address of dlsym be a function's; C has no cast for that. */
    void *address = weft__nccl_cuda(WEFT_CUDART_ENTER);
    memcpy(&enter, &address, sizeof(address));
    address = weft__nccl_cuda("cudaGetDevice");
    memcpy(&get_device, &address, sizeof(address));
    void *driver = address || virtual_gpus ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    address = driver ? dlsym(driver, "cuCtxGetDevice") : NULL;
    memcpy(&get_context_device, &address, sizeof(address));
}

ncclResult_t weft__nccl_device(int *device_p)
{
    pthread_once(&once, look);
    if (get_device) {
        int error = get_device(device_p);
        if (error != 0) {
            return weft__nccl_fail(ncclUnhandledCudaError, "cudaGetDevice returns error %d", error);
        }
        return weft__nccl_result(weft_device_set(*device_p));
    }
    int error = get_context_device ? get_context_device(device_p) : NO_CONTEXT;
    if (error == 0) {
        return weft__nccl_result(weft_device_set(*device_p));
    }
    if (error != NO_CONTEXT) {
        return weft__nccl_fail(ncclUnhandledCudaError, "cuCtxGetDevice returns error %d", error);
    }
    return weft__nccl_result(weft_device_get(device_p));
}

/* CUDA's streams that were wrapped, by address. Few programs have more than some dozen; an address
 * that CUDA uses again for another stream is as good as the first. Never removed. */
typedef struct wrapped {
    cudaStream_t native;
    int device;
    weft_stream_h stream;
    struct wrapped *next;
} wrapped_t;

enum { BUCKETS = 64 };

static _Atomic(wrapped_t *) buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who add */

static wrapped_t *find(wrapped_t *first, cudaStream_t native, int device)
{
    while (first && (first->native != native || first->device != device)) {
        first = first->next;
    }
    return first;
}

static ncclResult_t wrap(cudaStream_t native, int device, wrapped_t **found_p)
{
    wrapped_t *new = calloc(1, sizeof(*new));
    if (!new) {
        return weft__nccl_fail(ncclSystemError, "no memory for a stream's handle");
    }
    int before = 0;
    weft_device_get(&before);
    weft_status_t status = weft_device_set(device);
    if (status == WEFT_OK) {
        status = weft_stream_wrap(native, &new->stream);
        weft_device_set(before);
    }
    if (status != WEFT_OK) {
        free(new);
        return weft__nccl_result(status);
    }
    new->native = native;
    new->device = device;
    *found_p = new;
    return ncclSuccess;
}

static ncclResult_t wrapped(cudaStream_t native, int device, weft_stream_h *stream_p)
{
    native = native ? native : (cudaStream_t)1; /* cudaStreamLegacy */
    _Atomic(wrapped_t *) *bucket = &buckets[((uintptr_t)native >> 4) % BUCKETS];
    /* Acquire: pairs with the release below, so that an entry seen is whole. */
    wrapped_t *found = find(atomic_load_explicit(bucket, memory_order_acquire), native, device);
    if (!found) {
        pthread_mutex_lock(&lock);
        wrapped_t *first = atomic_load_explicit(bucket, memory_order_relaxed);
        found = find(first, native, device);
        ncclResult_t result = found ? ncclSuccess : wrap(native, device, &found);
        if (result == ncclSuccess && !find(first, native, device)) {
            found->next = first;
            atomic_store_explicit(bucket, found, memory_order_release);
        }
        pthread_mutex_unlock(&lock);
        WEFT_NCCL_TRY(result);
    }
    *stream_p = found->stream;
    return ncclSuccess;
}

ncclResult_t weft__nccl_stream(cudaStream_t stream, int device, weft_stream_h *stream_p)
{
    pthread_once(&once, look);
    if (!virtual_gpus) {
        return wrapped(stream, device, stream_p);
    }
    if (enter) {
        return enter(stream, device, stream_p) == WEFT_OK
                   ? ncclSuccess
                   : weft__nccl_fail(ncclInvalidArgument,
                                     "the stream was destroyed, or is not one of device %d",
                                     device);
    }
    *stream_p = (weft_stream_h)(void *)stream;
    return ncclSuccess;
}
