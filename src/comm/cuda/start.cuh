/* Kernels are started by the driver itself: the runtime looks up the GPU and the kernel in every
 * launch, which is 0.3 to 0.7 us of the 4 that a small call takes. What it would find is kept here,
 * per GPU and kernel. */
#ifndef WEFT_COMM_CUDA_START_CUH
#define WEFT_COMM_CUDA_START_CUH

#include <atomic>
#include <mutex>

#include "device/cuda_driver.cuh"

#define HANDLE_GPUS 32
#define HANDLE_SLOTS 1024u /* of a GPU: several times the kernels there are */

struct handle {
    std::atomic<const void *> kernel; /* released by add_handle, acquired by find_handle */
    CUfunction function;
};

struct handles {
    std::atomic<CUcontext> context; /* NULL: nothing was started on this GPU */
    handle slots[HANDLE_SLOTS];
};

struct driver {
    CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **);
    CUresult (*current)(CUcontext *);
};

static const driver &the_driver()
{
    static const driver found = {
        (decltype(driver::launch))driver_function("cuLaunchKernelEx", 12000),
        (decltype(driver::current))driver_function("cuCtxGetCurrent", 12000)};
    return found;
}

static handles &handles_of(int gpu)
{
    static handles all[HANDLE_GPUS];
    return all[gpu];
}

/* The slot that has the kernel, or the free one that it would get. */
static handle &slot_of(handles &of, const void *kernel)
{
    unsigned i = (unsigned)((uintptr_t)kernel >> 4) * 2654435761u;
    for (;; i++) {
        handle &slot = of.slots[i % HANDLE_SLOTS];
        const void *has = slot.kernel.load(std::memory_order_acquire);
        if (has == kernel || has == NULL) {
            return slot;
        }
    }
}

/* With the GPU selected. */
static cudaError_t add_handle(handles &of, const void *kernel)
{
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    handle &slot = slot_of(of, kernel);
    if (slot.kernel.load(std::memory_order_relaxed) != NULL) {
        return cudaSuccess; /* another thread was first */
    }
    cudaFunction_t function;
    CUcontext context;
    cudaError_t error = cudaGetFuncBySymbol(&function, kernel);
    error = error ? error : (cudaError_t)the_driver().current(&context);
    if (error == cudaSuccess) {
        slot.function = function;
        of.context.store(context, std::memory_order_release);
        slot.kernel.store(kernel, std::memory_order_release);
    }
    return error;
}

/* Select the GPU, unless the thread is there already, and see that the kernel's handle is known. */
static cudaError_t prepare(int gpu, handles &of, const void *kernel)
{
    CUcontext current = NULL;
    bool known = slot_of(of, kernel).kernel.load(std::memory_order_acquire) != NULL;
    if (known && the_driver().current(&current) == CUDA_SUCCESS &&
        current == of.context.load(std::memory_order_acquire)) {
        return cudaSuccess;
    }
    cudaError_t error = cudaSetDevice(gpu);
    return error || known ? error : add_handle(of, kernel);
}

static CUlaunchAttribute attribute_of(const cudaLaunchAttribute &from)
{
    CUlaunchAttribute to = {};
    if (from.id == cudaLaunchAttributePriority) {
        to.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        to.value.priority = from.val.priority;
    } else {
        to.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        to.value.programmaticStreamSerializationAllowed =
            from.val.programmaticStreamSerializationAllowed;
    }
    return to;
}

/* `args` has at least as many as the kernel takes. Attributes: up to two, of the kinds above. */
template <typename KERNEL>
static cudaError_t start_kernel(int gpu, const cudaLaunchConfig_t &config, KERNEL kernel,
                                void **args)
{
    if (gpu >= HANDLE_GPUS || !the_driver().launch || !the_driver().current) {
        cudaError_t error = cudaSetDevice(gpu);
        return error ? error : cudaLaunchKernelExC(&config, (const void *)kernel, args);
    }
    handles &of = handles_of(gpu);
    cudaError_t error = prepare(gpu, of, (const void *)kernel);
    if (error != cudaSuccess) {
        return error;
    }
    CUlaunchAttribute attributes[2];
    for (unsigned i = 0; i < config.numAttrs; i++) {
        attributes[i] = attribute_of(config.attrs[i]);
    }
    CUlaunchConfig launch = {};
    launch.gridDimX = config.gridDim.x;
    launch.blockDimX = config.blockDim.x;
    launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
    launch.hStream = config.stream;
    launch.attrs = attributes;
    launch.numAttrs = config.numAttrs;
    /* Results of the driver have the runtime's numbers. */
    return (cudaError_t)the_driver().launch(&launch, slot_of(of, (const void *)kernel).function,
                                            args, NULL);
}

#endif
