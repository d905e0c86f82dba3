/* src/comm/cuda/start.cuh against a runtime and a driver that are made here: which GPU is selected,
 * which handle a launch gets, and what else travels with it. Compiled and run by test_start.sh. */
#include <cassert>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/cuda/start.cuh"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- the runtime and the driver ----------------------------------------------------------- */

static const int GPUS = 40;
static char contexts[GPUS]; /* their addresses stand for them */
static thread_local CUcontext current;
static thread_local int selected, resolved, by_runtime; /* how often */
static std::atomic<bool> no_driver, no_kernels;

struct launched {
    CUfunction function;
    CUcontext context;
    CUlaunchConfig config;
    std::vector<CUlaunchAttribute> attributes;
    void **args;
};
static thread_local launched last;
static CUresult answer = CUDA_SUCCESS;

/* What a handle points to. Launches read it without a lock, which would keep races from the thread
 * sanitizer. */
struct meaning {
    const void *kernel;
    CUcontext context;
};
static std::mutex lock;
static std::deque<meaning> meanings;

static CUcontext context_of(int gpu)
{
    return (CUcontext)(void *)&contexts[gpu];
}

static CUresult fake_launch(const CUlaunchConfig *config, CUfunction function, void **args, void **)
{
    last = {function, current, *config, {config->attrs, config->attrs + config->numAttrs}, args};
    return answer;
}

static CUresult fake_current(CUcontext *context_p)
{
    *context_p = current;
    return CUDA_SUCCESS;
}

extern "C" {
cudaError_t cudaSetDevice(int gpu)
{
    selected++;
    current = context_of(gpu);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function_p, const void *kernel)
{
    resolved++;
    if (no_kernels) {
        return cudaErrorInvalidDeviceFunction;
    }
    std::lock_guard<std::mutex> guard(lock);
    meanings.push_back({kernel, current});
    *function_p = (CUfunction)(void *)&meanings.back();
    return cudaSuccess;
}

static cudaError_t entry_point(const char *name, void **fn_p)
{
    *fn_p = no_driver                                ? NULL
            : strcmp(name, "cuLaunchKernelEx") == 0 ? (void *)fake_launch
            : strcmp(name, "cuCtxGetCurrent") == 0  ? (void *)fake_current
                                                     : NULL;
    return *fn_p ? cudaSuccess : cudaErrorSymbolNotFound;
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn_p, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult *)
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **fn_p, unsigned long long,
                                    cudaDriverEntryPointQueryResult *)
#endif
{
    return entry_point(name, fn_p);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **)
{
    by_runtime++;
    return cudaSuccess;
}
}

/* ---- the checks --------------------------------------------------------------------------- */

typedef void (*kernel_fn)(int);

/* Kernels are never called here, so any address will do. These fall into one slot of the table,
 * every second one; the others into slots of their own. */
static kernel_fn kernel(int n)
{
    uintptr_t step = n % 2 ? 0x100000 : 0x10;
    return (kernel_fn)(0x500000000000u + (uintptr_t)n * step);
}

static cudaLaunchConfig_t shape(cudaLaunchAttribute *attributes, unsigned n)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(17);
    config.blockDim = dim3(96);
    config.stream = (cudaStream_t)0x1230;
    config.attrs = attributes;
    config.numAttrs = n;
    return config;
}

static void looks_up_once()
{
    CHECK(start_kernel(1, shape(NULL, 0), kernel(0), NULL) == cudaSuccess);
    CHECK(selected == 1 && resolved == 1);
    for (int i = 0; i < 1000; i++) {
        CHECK(start_kernel(1, shape(NULL, 0), kernel(0), NULL) == cudaSuccess);
    }
    CHECK(selected == 1 && resolved == 1 && by_runtime == 0);
    current = (CUcontext)0x77; /* the program went to another GPU meanwhile */
    CHECK(start_kernel(1, shape(NULL, 0), kernel(0), NULL) == cudaSuccess);
    CHECK(selected == 2 && resolved == 1 && last.context == context_of(1));
}

static void everything_travels()
{
    cudaLaunchAttribute attributes[2] = {};
    void *args[1] = {NULL};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributePriority;
    attributes[1].val.priority = -5;
    CHECK(start_kernel(0, shape(attributes, 2), kernel(1), args) == cudaSuccess);
    CHECK(last.config.gridDimX == 17 && last.config.gridDimY == 1 && last.config.gridDimZ == 1);
    CHECK(last.config.blockDimX == 96 && last.config.blockDimY == 1 && last.config.blockDimZ == 1);
    CHECK(last.config.hStream == (CUstream)0x1230 && last.config.sharedMemBytes == 0 &&
          last.args == args);
    CHECK(last.attributes.size() == 2);
    CHECK(last.attributes[0].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
          last.attributes[0].value.programmaticStreamSerializationAllowed == 1);
    CHECK(last.attributes[1].id == CU_LAUNCH_ATTRIBUTE_PRIORITY &&
          last.attributes[1].value.priority == -5);
}

static void errors_are_told()
{
    answer = CUDA_ERROR_LAUNCH_FAILED;
    CHECK(start_kernel(0, shape(NULL, 0), kernel(1), NULL) == cudaErrorLaunchFailure);
    answer = CUDA_SUCCESS;
    no_kernels = true;
    CHECK(start_kernel(0, shape(NULL, 0), kernel(2), NULL) == cudaErrorInvalidDeviceFunction);
    no_kernels = false;
    CHECK(start_kernel(0, shape(NULL, 0), kernel(2), NULL) == cudaSuccess);
}

/* Every launch has the handle of its own kernel and GPU, whoever was there first. */
static void threads_and_gpus()
{
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([t] {
            for (int i = 0; i < 3000; i++) {
                int gpu = i % 3, k = i / 3 % 300;
                CHECK(start_kernel(gpu, shape(NULL, 0), kernel(k), NULL) == cudaSuccess);
                const meaning *is = (const meaning *)(void *)last.function;
                CHECK(is->kernel == (const void *)kernel(k) && is->context == context_of(gpu));
                CHECK(last.context == context_of(gpu));
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

int main(int argc, char **argv)
{
    no_driver = argc > 1 && strcmp(argv[1], "old") == 0;
    if (no_driver) { /* one without these functions: the runtime launches */
        CHECK(start_kernel(3, shape(NULL, 0), kernel(0), NULL) == cudaSuccess);
        CHECK(by_runtime == 1 && selected == 1 && current == context_of(3));
        return 0;
    }
    looks_up_once();
    everything_travels();
    errors_are_told();
    threads_and_gpus();
    CHECK(start_kernel(39, shape(NULL, 0), kernel(0), NULL) ==
          cudaSuccess); /* more GPUs than there is room for */
    CHECK(by_runtime == 1 && current == context_of(39));
    puts("all is so");
    return 0;
}
