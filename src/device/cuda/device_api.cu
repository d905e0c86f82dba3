/* Devices, for the table of module.h: thin calls of the CUDA runtime. */
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#include "device/cuda_driver.cuh"
#include "device/cuda_module.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            (void)cudaGetLastError(); /* it is reported, so it must not show up again */           \
            return (int)error_;                                                                    \
        }                                                                                          \
    } while (0)

/* A call on `gpu`. Selecting the GPU that is selected already costs a few nanoseconds. */
#define ON(gpu, call)                                                                              \
    do {                                                                                           \
        TRY(cudaSetDevice(gpu));                                                                   \
        TRY(call);                                                                                 \
        return 0;                                                                                  \
    } while (0)

static const char *error_text(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

static int count(int *count_p)
{
    TRY(cudaGetDeviceCount(count_p));
    return 0;
}

static int read_mps(int gpu)
{
#if CUDART_VERSION >= 12040
    typedef CUresult (*attribute_fn)(int *, CUdevice_attribute, CUdevice);
    attribute_fn attribute = (attribute_fn)driver_function("cuDeviceGetAttribute", 12040);
    int value;
    if (attribute &&
        attribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, (CUdevice)gpu) == CUDA_SUCCESS) {
        return value != 0;
    }
#endif
    return -1;
}

static int props(int gpu, weft_cuda_props_t *props_p)
{
    cudaDeviceProp p;
    TRY(cudaGetDeviceProperties(&p, gpu));
    memset(props_p, 0, sizeof(*props_p));
    snprintf(props_p->name, sizeof(props_p->name), "%.*s", (int)sizeof(props_p->name) - 1, p.name);
    memcpy(props_p->uuid, p.uuid.bytes, sizeof(props_p->uuid));
    TRY(cudaDeviceGetPCIBusId(props_p->pci, sizeof(props_p->pci), gpu));
    props_p->memory = p.totalGlobalMem;
    props_p->major = p.major;
    props_p->minor = p.minor;
    props_p->sms = p.multiProcessorCount;
    props_p->l2 = p.l2CacheSize;
    props_p->mps = read_mps(gpu);
    return 0;
}

static int memory(int gpu, size_t *free_p, size_t *total_p)
{
    ON(gpu, cudaMemGetInfo(free_p, total_p));
}

/* While it lives, what this thread asks for does not spoil graphs that it or others capture. */
struct unnoticed {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    unnoticed() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
    ~unnoticed() { (void)cudaThreadExchangeStreamCaptureMode(&mode); }
};

static int alloc(int gpu, void **ptr_p, size_t bytes)
{
    unnoticed here;
    ON(gpu, cudaMalloc(ptr_p, bytes));
}

static int release(int gpu, void *ptr)
{
    ON(gpu, cudaFree(ptr));
}

static int host_alloc(void **ptr_p, size_t bytes)
{
    unnoticed here;
    TRY(cudaHostAlloc(ptr_p, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    return 0;
}

static int host_release(void *ptr)
{
    TRY(cudaFreeHost(ptr));
    return 0;
}

static int host_register(void *ptr, size_t bytes)
{
    TRY(cudaHostRegister(ptr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    return 0;
}

static int host_unregister(void *ptr)
{
    TRY(cudaHostUnregister(ptr));
    return 0;
}

static int range(int gpu, const void *ptr, void **base_p, size_t *bytes_p, bool *shares_p)
{
    typedef CUresult (*range_fn)(CUdeviceptr *, size_t *, CUdeviceptr);
    typedef CUresult (*attribute_fn)(void *, CUpointer_attribute, CUdeviceptr);
    range_fn range_of = (range_fn)driver_function("cuMemGetAddressRange", 12000);
    attribute_fn attribute = (attribute_fn)driver_function("cuPointerGetAttribute", 12000);
    CUdeviceptr base = 0, at = (CUdeviceptr)(uintptr_t)ptr;
    int legacy = 0;
    TRY(cudaSetDevice(gpu));
    if (!range_of || !attribute || range_of(&base, bytes_p, at) != CUDA_SUCCESS) {
        return (int)cudaErrorInvalidValue;
    }
    *base_p = (void *)(uintptr_t)base;
    *shares_p = attribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at) ==
                    CUDA_SUCCESS &&
                legacy != 0;
    return 0;
}

static int where(const void *ptr, int *gpu_p)
{
    cudaPointerAttributes attributes;
    TRY(cudaPointerGetAttributes(&attributes, ptr));
    switch (attributes.type) {
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
        *gpu_p = attributes.device;
        break;
    case cudaMemoryTypeHost: /* registered by somebody, it may have another address for GPUs */
        *gpu_p = attributes.devicePointer == ptr ? -1 : -2;
        break;
    default:
        *gpu_p = -2;
    }
    return 0;
}

static cudaStream_t native(void *stream)
{
    return (cudaStream_t)stream;
}

static int copy(int gpu, void *dst, const void *src, size_t bytes, void *stream)
{
    ON(gpu, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(stream)));
}

static int fill(int gpu, void *dst, int value, size_t bytes, void *stream)
{
    ON(gpu, cudaMemsetAsync(dst, value, bytes, native(stream)));
}

/* ---- streams and events ----------------------------------------------------------------- */

static int stream_create(int gpu, void **stream_p)
{
    ON(gpu, cudaStreamCreateWithFlags((cudaStream_t *)stream_p, cudaStreamNonBlocking));
}

static int stream_destroy(int gpu, void *stream)
{
    ON(gpu, cudaStreamDestroy(native(stream)));
}

static int stream_sync(int gpu, void *stream)
{
    ON(gpu, cudaStreamSynchronize(native(stream)));
}

static int stream_idle(int gpu, void *stream, bool *idle_p)
{
    unnoticed here;
    TRY(cudaSetDevice(gpu));
    cudaError_t error = cudaStreamQuery(native(stream));
    *idle_p = error != cudaErrorNotReady;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    return (int)error;
}

static int stream_wait(int gpu, void *stream, void *event)
{
    ON(gpu, cudaStreamWaitEvent(native(stream), (cudaEvent_t)event, 0));
}

static int stream_call(int gpu, void *stream, void (*fn)(void *arg), void *arg)
{
    ON(gpu, cudaLaunchHostFunc(native(stream), fn, arg));
}

static int relax()
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    return 0;
}

static int stream_capturing(int gpu, void *stream, bool *capturing_p)
{
    cudaStreamCaptureStatus status;
    (void)gpu;
    TRY(cudaStreamIsCapturing(native(stream), &status));
    *capturing_p = status != cudaStreamCaptureStatusNone;
    return 0;
}

static int graph_begin(int gpu, void *stream)
{
    ON(gpu, cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal));
}

static int graph_end(int gpu, void *stream, void **graph_p)
{
    cudaGraph_t graph;
    TRY(cudaSetDevice(gpu));
    TRY(cudaStreamEndCapture(native(stream), &graph));
    cudaError_t error = cudaGraphInstantiate((cudaGraphExec_t *)graph_p, graph,
                                             cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    TRY(error);
    return 0;
}

static int graph_launch(int gpu, void *graph, void *stream)
{
    ON(gpu, cudaGraphLaunch((cudaGraphExec_t)graph, native(stream)));
}

static int graph_destroy(int gpu, void *graph)
{
    ON(gpu, cudaGraphExecDestroy((cudaGraphExec_t)graph));
}

static int event_create(int gpu, void **event_p)
{
    ON(gpu, cudaEventCreate((cudaEvent_t *)event_p));
}

static int event_destroy(int gpu, void *event)
{
    ON(gpu, cudaEventDestroy((cudaEvent_t)event));
}

static int event_record(int gpu, void *event, void *stream)
{
    ON(gpu, cudaEventRecord((cudaEvent_t)event, native(stream)));
}

static int event_done(int gpu, void *event, bool *done_p)
{
    unnoticed here;
    TRY(cudaSetDevice(gpu));
    cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    *done_p = error != cudaErrorNotReady;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    return (int)error;
}

static int event_sync(int gpu, void *event)
{
    ON(gpu, cudaEventSynchronize((cudaEvent_t)event));
}

static int event_elapsed(int gpu, void *start, void *end, float *ms_p)
{
    ON(gpu, cudaEventElapsedTime(ms_p, (cudaEvent_t)start, (cudaEvent_t)end));
}

/* ---- other processes, other GPUs -------------------------------------------------------- */

static_assert(sizeof(cudaIpcMemHandle_t) == WEFT_CUDA_IPC_BYTES, "a handle fits the table's");

static int ipc_export(int gpu, void *ptr, uint8_t handle[WEFT_CUDA_IPC_BYTES])
{
    cudaIpcMemHandle_t h;
    TRY(cudaSetDevice(gpu));
    TRY(cudaIpcGetMemHandle(&h, ptr));
    memcpy(handle, &h, sizeof(h));
    return 0;
}

static int ipc_open(int gpu, const uint8_t handle[WEFT_CUDA_IPC_BYTES], void **ptr_p)
{
    cudaIpcMemHandle_t h;
    memcpy(&h, handle, sizeof(h));
    ON(gpu, cudaIpcOpenMemHandle(ptr_p, h, cudaIpcMemLazyEnablePeerAccess));
}

static int ipc_close(int gpu, void *ptr)
{
    ON(gpu, cudaIpcCloseMemHandle(ptr));
}

static int reach(int gpu, int other, bool *reached_p)
{
    int can = 1;
    *reached_p = true;
    if (gpu == other) {
        return 0;
    }
    TRY(cudaDeviceCanAccessPeer(&can, gpu, other));
    *reached_p = can != 0;
    if (!can) {
        return 0;
    }
    TRY(cudaSetDevice(gpu));
    cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    (void)cudaGetLastError();
    return error == cudaErrorPeerAccessAlreadyEnabled ? 0 : (int)error;
}

extern "C" const int weft_cuda_version = CUDART_VERSION;

extern "C" const weft_cuda_device_ops_t weft_cuda_device = {
    WEFT_CUDA_ABI, error_text,    count,        props,        memory,           alloc,
    release,       host_alloc,    host_release, host_register, host_unregister, range,
    where,         copy,          fill,
    stream_create, stream_destroy, stream_sync, stream_idle,  stream_wait,      stream_call,
    relax,         stream_capturing, graph_begin, graph_end,  graph_launch,     graph_destroy,
    event_create,  event_destroy, event_record, event_done,   event_sync,       event_elapsed,
    ipc_export,    ipc_open,      ipc_close,    reach,
};
