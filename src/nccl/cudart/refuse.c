/* What virtual GPUs cannot do. Each call returns cudaErrorNotSupported, and says once which it was
 * and what to do instead. */
#include <dlfcn.h>
#include <pthread.h>

#include "nccl/cudart/state.h"

#define KERNELS "kernels need a GPU: build the program with nvcc, or take out the launch"
#define GRAPHS "virtual GPUs have no graphs: make the calls on a stream instead"
#define IPC "processes share memory of virtual GPUs by NCCL's calls only"
#define ARRAYS "virtual GPUs have no arrays and no copies of three dimensions: use cudaMemcpy2D"

static cudaError_t refuse(const char *call, const char *instead, atomic_flag *said)
{
    if (!atomic_flag_test_and_set(said)) {
        weft__cudart_say("%s is not supported: %s", call, instead);
    }
    return weft__cudart_fail(cudaErrorNotSupported);
}

/* One row per call: name, parameters, what to do instead. */
#define REFUSALS(X)                                                                                \
    X(cudaFuncSetCacheConfig, (const void *a, enum cudaFuncCache b), KERNELS)                      \
    X(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *a, const void *b, int c, size_t d),     \
      KERNELS)                                                                                     \
    X(cudaStreamBeginCapture, (cudaStream_t a, enum cudaStreamCaptureMode b), GRAPHS)              \
    X(cudaStreamEndCapture, (cudaStream_t a, cudaGraph_t * b), GRAPHS)                             \
    X(cudaGraphCreate, (cudaGraph_t * a, unsigned b), GRAPHS)                                      \
    X(cudaGraphDestroy, (cudaGraph_t a), GRAPHS)                                                   \
    X(cudaGraphInstantiate, (cudaGraphExec_t * a, cudaGraph_t b, weft_cudart_ulonglong_t c),       \
      GRAPHS)                                                                                      \
    X(cudaGraphInstantiateWithFlags,                                                               \
      (cudaGraphExec_t * a, cudaGraph_t b, weft_cudart_ulonglong_t c), GRAPHS)                     \
    X(cudaGraphLaunch, (cudaGraphExec_t a, cudaStream_t b), GRAPHS)                                \
    X(cudaGraphUpload, (cudaGraphExec_t a, cudaStream_t b), GRAPHS)                                \
    X(cudaGraphExecDestroy, (cudaGraphExec_t a), GRAPHS)                                           \
    X(cudaGraphGetNodes, (cudaGraph_t a, cudaGraphNode_t * b, size_t * c), GRAPHS)                 \
    X(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * a, void *b), IPC)                                 \
    X(cudaIpcOpenMemHandle, (void **a, cudaIpcMemHandle_t b, unsigned c), IPC)                     \
    X(cudaIpcCloseMemHandle, (void *a), IPC)                                                       \
    X(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * a, cudaEvent_t b), IPC)                       \
    X(cudaIpcOpenEventHandle, (cudaEvent_t * a, cudaIpcEventHandle_t b), IPC)                      \
    X(cudaMalloc3D, (struct cudaPitchedPtr * a, struct cudaExtent b), ARRAYS)                      \
    X(cudaMemcpy3D, (const struct cudaMemcpy3DParms *a), ARRAYS)                                   \
    X(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *a, cudaStream_t b), ARRAYS)              \
    X(cudaFreeArray, (cudaArray_t a), ARRAYS)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define REFUSE(name, parameters, instead)                                                          \
    cudaError_t name parameters                                                                    \
    {                                                                                              \
        static atomic_flag said = ATOMIC_FLAG_INIT;                                                \
        return refuse(#name, instead, &said);                                                      \
    }
REFUSALS(REFUSE)
#pragma GCC diagnostic pop

/* ---- kernels ---------------------------------------------------------------------------- */

/* Every kernel is named once; the latest is remembered, which is enough for launches in a loop. */
static cudaError_t refuse_kernel(const char *call, const void *func)
{
    static _Atomic(const void *) last;
    Dl_info info = {0};
    if (func == NULL) {
        return weft__cudart_fail(cudaErrorInvalidDeviceFunction);
    }
    if (atomic_exchange(&last, func) != func) {
        if (dladdr(func, &info) != 0 && info.dli_sname != NULL && info.dli_saddr == func) {
            weft__cudart_say("%s of kernel %s is not supported: %s", call, info.dli_sname, KERNELS);
        } else {
            weft__cudart_say("%s of the kernel at %p (its name is known to programs linked with "
                             "-rdynamic) is not supported: %s",
                             call, func, KERNELS);
        }
    }
    return weft__cudart_fail(cudaErrorNotSupported);
}

cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    (void)grid;
    (void)block;
    (void)args;
    (void)shared;
    (void)stream;
    return refuse_kernel("cudaLaunchKernel", func);
}

cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid, dim3 block, void **args,
                                        size_t shared, cudaStream_t stream)
{
    (void)grid;
    (void)block;
    (void)args;
    (void)shared;
    (void)stream;
    return refuse_kernel("cudaLaunchCooperativeKernel", func);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *func, void **args)
{
    (void)config;
    (void)args;
    return refuse_kernel("cudaLaunchKernelExC", func);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *func)
{
    (void)attributes;
    return refuse_kernel("cudaFuncGetAttributes", func);
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    (void)attr;
    (void)value;
    return refuse_kernel("cudaFuncSetAttribute", func);
}
