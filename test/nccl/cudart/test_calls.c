/* ctest: timeout=60 tsan
 * The CUDA runtime on virtual GPUs: devices, errors, streams, events, what is refused. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl/cudart/cudart.h"

#include <weft/cudart/cuda.h>
#include <weft/weft.h>

static atomic_bool gate;

static void wait_for_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate)) {
        sched_yield();
    }
}

static void sleep_ms(void *arg)
{
    struct timespec time = {.tv_nsec = 1000000L * *(const int *)arg};
    nanosleep(&time, NULL);
}

/* ---- devices ---------------------------------------------------------------------------- */

static void devices_are_as_many_as_weft_has(void **state)
{
    int count = 0, weft_count = 0, device = -1;
    (void)state;
    OK(cudaGetDeviceCount(&count));
    assert_int_equal(weft_device_count(&weft_count), WEFT_OK);
    assert_int_equal(count, weft_count);
    for (int i = 0; i < count; i++) {
        OK(cudaSetDevice(i));
        OK(cudaGetDevice(&device));
        assert_int_equal(device, i);
    }
    FAILS(cudaErrorInvalidDevice, cudaSetDevice(count));
    FAILS(cudaErrorInvalidDevice, cudaSetDevice(-1));
    OK(cudaGetDevice(&device));
    assert_int_equal(device, count - 1);
    FAILS(cudaErrorInvalidValue, cudaGetDevice(NULL));
    OK(cudaSetDevice(0));
}

static void properties_and_attributes_agree(void **state)
{
    struct cudaDeviceProp first, second;
    int value;
    char bus[16];
    (void)state;
    OK(cudaGetDeviceProperties(&first, 0));
    OK(cudaGetDeviceProperties(&second, 1));
    assert_string_equal(first.name, "Weft virtual GPU");
    assert_true(first.totalGlobalMem > 0 && first.warpSize == 32);
    assert_memory_not_equal(&first.uuid, &second.uuid, sizeof(first.uuid));
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(value, first.multiProcessorCount);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    assert_int_equal(value, first.major);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxGridDimY, 0));
    assert_int_equal(value, first.maxGridSize[1]);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, 0));
    assert_int_equal(value, first.unifiedAddressing);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrCooperativeLaunch, 0));
    assert_int_equal(value, 0);
    FAILS(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr)9999, 0));
    FAILS(cudaErrorInvalidDevice, cudaGetDeviceProperties(&first, 12345));
    OK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 5));
    OK(cudaDeviceGetByPCIBusId(&value, bus));
    assert_int_equal(value, 5);
    FAILS(cudaErrorInvalidValue, cudaDeviceGetPCIBusId(bus, 5, 0));
    FAILS(cudaErrorInvalidValue, cudaDeviceGetByPCIBusId(&value, "nonsense"));
    OK(cudaRuntimeGetVersion(&value));
    assert_int_equal(value, CUDART_VERSION);
}

static void peers_are_enabled_once(void **state)
{
    int can = 0;
    (void)state;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    OK(cudaDeviceCanAccessPeer(&can, 1, 1));
    assert_int_equal(can, 0);
    OK(cudaDeviceEnablePeerAccess(1, 0));
    FAILS(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
    OK(cudaDeviceDisablePeerAccess(1));
    FAILS(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
    FAILS(cudaErrorInvalidDevice, cudaDeviceEnablePeerAccess(0, 0));
    FAILS(cudaErrorInvalidValue, cudaDeviceEnablePeerAccess(1, 1));
}

static void a_reset_frees_what_the_device_has(void **state)
{
    void *kept, *lost;
    cudaStream_t stream;
    weft_pool_stats_t stats;
    struct cudaPointerAttributes attributes;
    (void)state;
    OK(cudaMalloc(&kept, 100));
    OK(cudaSetDevice(4));
    OK(cudaMalloc(&lost, 100));
    OK(cudaStreamCreate(&stream));
    OK(cudaMemsetAsync(lost, 0, 100, stream));
    OK(cudaDeviceReset());
    assert_int_equal(weft_pool_stats(4, &stats), WEFT_OK);
    assert_int_equal(stats.in_use, 0);
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream));
    OK(cudaPointerGetAttributes(&attributes, kept));
    assert_int_equal(attributes.type, cudaMemoryTypeDevice);
    OK(cudaMalloc(&lost, 100)); /* the device works as before */
    OK(cudaMemset(lost, 0, 100));
    OK(cudaFree(lost));
    OK(cudaSetDevice(0));
    OK(cudaFree(kept));
}

static void settings_are_kept(void **state)
{
    size_t limit;
    unsigned flags;
    (void)state;
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 12345));
    OK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    assert_int_equal(limit, 12345);
    FAILS(cudaErrorUnsupportedLimit, cudaDeviceGetLimit(&limit, (enum cudaLimit)77));
    OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    OK(cudaGetDeviceFlags(&flags));
    assert_true(flags & cudaDeviceScheduleBlockingSync);
    FAILS(cudaErrorInvalidValue, cudaSetDeviceFlags(0x10000));
    OK(cudaProfilerStart());
    OK(cudaProfilerStop());
}

/* ---- errors ----------------------------------------------------------------------------- */

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    bool clean = cudaPeekAtLastError() == cudaSuccess;
    cudaSetDevice(-5);
    return clean && cudaGetLastError() == cudaErrorInvalidDevice ? NULL : "wrong";
}

static void the_last_error_stays_until_it_is_asked_for(void **state)
{
    pthread_t thread;
    void *result;
    int count;
    (void)state;
    OK(cudaGetLastError());
    EXPECT(cudaErrorInvalidDevice, cudaSetDevice(-1));
    OK(cudaGetDeviceCount(&count)); /* a call that works leaves it */
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, &result); /* every thread has its own */
    assert_null(result);
    EXPECT(cudaErrorInvalidDevice, cudaPeekAtLastError());
    EXPECT(cudaErrorInvalidDevice, cudaGetLastError());
    OK(cudaGetLastError());
    assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    assert_string_equal(cudaGetErrorString(cudaSuccess), "no error");
    assert_string_equal(cudaGetErrorString((cudaError_t)123456), "unrecognized error code");
}

/* ---- streams ---------------------------------------------------------------------------- */

static void streams_say_what_they_are(void **state)
{
    cudaStream_t first, second;
    unsigned flags;
    int number, least, greatest;
    weft_cudart_ulonglong_t id, other;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    (void)state;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaSetDevice(2));
    OK(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest - 10));
    OK(cudaStreamCreate(&second));
    OK(cudaSetDevice(0));
    OK(cudaStreamGetFlags(first, &flags));
    assert_int_equal(flags, cudaStreamNonBlocking);
    OK(cudaStreamGetPriority(first, &number));
    assert_int_equal(number, greatest);
    OK(cudaStreamGetDevice(first, &number));
    assert_int_equal(number, 2);
    OK(cudaStreamGetDevice(NULL, &number));
    assert_int_equal(number, 0);
    OK(cudaStreamGetId(first, &id));
    OK(cudaStreamGetId(second, &other));
    assert_true(id != other);
    OK(cudaStreamIsCapturing(first, &status));
    assert_int_equal(status, cudaStreamCaptureStatusNone);
    FAILS(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&first, 8));
    FAILS(cudaErrorInvalidValue, cudaStreamCreate(NULL));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamDestroy(first));
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(first));
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamDestroy(NULL));
    FAILS(cudaErrorInvalidResourceHandle, cudaStreamDestroy(cudaStreamPerThread));
}

static void destroying_a_stream_does_not_wait(void **state)
{
    int value = 0;
    (void)state;
    for (int i = 0; i < 50; i++) {
        cudaStream_t stream;
        int *memory;
        OK(cudaMallocHost((void **)&memory, 4));
        OK(cudaStreamCreate(&stream));
        atomic_store(&gate, false);
        OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
        OK(cudaMemsetAsync(memory, 1, 4, stream));
        OK(cudaStreamDestroy(stream)); /* its work is still done */
        atomic_store(&gate, true);
        OK(cudaDeviceSynchronize());
        value += *memory == 0x01010101;
        OK(cudaFreeHost(memory));
    }
    assert_int_equal(value, 50);
}

static void on_callback(cudaStream_t stream, cudaError_t status, void *arg)
{
    *(cudaStream_t *)arg = status == cudaSuccess ? stream : NULL;
}

static void try_to_wait(void *arg)
{
    *(cudaError_t *)arg = cudaDeviceSynchronize();
}

static void functions_run_in_the_order_of_the_stream(void **state)
{
    cudaStream_t stream, seen = NULL;
    cudaError_t error = cudaSuccess;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamAddCallback(stream, on_callback, &seen, 0));
    OK(cudaLaunchHostFunc(stream, try_to_wait, &error));
    OK(cudaStreamSynchronize(stream));
    assert_ptr_equal(seen, stream);
    assert_int_equal(error, cudaErrorNotPermitted); /* it would wait for itself */
    FAILS(cudaErrorInvalidValue, cudaStreamAddCallback(stream, on_callback, &seen, 1));
    FAILS(cudaErrorInvalidValue, cudaLaunchHostFunc(stream, NULL, NULL));
    OK(cudaStreamDestroy(stream));
}

/* ---- events ----------------------------------------------------------------------------- */

static void events_measure_time(void **state)
{
    cudaEvent_t start, end, untimed;
    cudaStream_t stream;
    float ms = -1;
    int nap = 20;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, end));
    OK(cudaEventQuery(start)); /* never recorded: nothing to wait for */
    OK(cudaEventSynchronize(end));
    OK(cudaEventRecord(start, stream));
    OK(cudaLaunchHostFunc(stream, sleep_ms, &nap));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventRecord(untimed, stream));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    assert_true(ms >= 20 && ms < 10000);
    OK(cudaEventElapsedTime(&ms, end, start));
    assert_true(ms <= -20);
    FAILS(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, untimed));
    FAILS(cudaErrorInvalidValue, cudaEventElapsedTime(NULL, start, end));
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    OK(cudaEventRecord(end, stream));
    FAILS(cudaErrorNotReady, cudaEventQuery(end));
    FAILS(cudaErrorNotReady, cudaEventElapsedTime(&ms, start, end));
    atomic_store(&gate, true);
    OK(cudaEventSynchronize(end));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(untimed));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventDestroy(end));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventRecord(end, stream));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventQuery(NULL));
    OK(cudaStreamDestroy(stream));
}

static void events_belong_to_their_device(void **state)
{
    cudaEvent_t event;
    cudaStream_t stream;
    (void)state;
    OK(cudaEventCreate(&event));
    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&stream));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventRecord(event, stream));
    FAILS(cudaErrorInvalidResourceHandle, cudaEventRecord(event, NULL));
    OK(cudaSetDevice(0));
    OK(cudaEventRecord(event, NULL));
    OK(cudaStreamWaitEvent(stream, event, 0)); /* all devices may wait for it */
    OK(cudaStreamSynchronize(stream));
    FAILS(cudaErrorInvalidValue, cudaStreamWaitEvent(stream, event, 9));
    FAILS(cudaErrorInvalidValue, cudaEventCreateWithFlags(&event, 99));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}

/* ---- refused ---------------------------------------------------------------------------- */

/* What `call` says on stderr, in `said`. */
static void listen_to(cudaError_t (*call)(void), cudaError_t wanted, char *said, size_t room)
{
    int ends[2], kept = dup(2);
    fflush(stderr);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], 2);
    cudaError_t error = call();
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    close(ends[1]);
    ssize_t got = read(ends[0], said, room - 1);
    close(ends[0]);
    said[got > 0 ? got : 0] = '\0';
    EXPECT(wanted, error);
    EXPECT(wanted, cudaGetLastError());
}

static cudaError_t begin_capture(void)
{
    return cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal);
}

static cudaError_t share_memory(void)
{
    cudaIpcMemHandle_t handle;
    return cudaIpcGetMemHandle(&handle, NULL);
}

static cudaError_t launch(void)
{
    dim3 one = {1, 1, 1};
    return cudaLaunchKernel((const void *)(uintptr_t)cudaGetLastError, one, one, NULL, 0, NULL);
}

static cudaError_t launch_nothing(void)
{
    dim3 one = {1, 1, 1};
    return cudaLaunchKernel(NULL, one, one, NULL, 0, NULL);
}

static cudaError_t allocate_too_much(void)
{
    void *ptr;
    return cudaMalloc(&ptr, (size_t)1 << 60);
}

static void what_is_refused_is_named_once(void **state)
{
    char said[2000];
    (void)state;
    listen_to(begin_capture, cudaErrorNotSupported, said, sizeof(said));
    assert_non_null(strstr(said, "cudaStreamBeginCapture is not supported: "));
    listen_to(begin_capture, cudaErrorNotSupported, said, sizeof(said));
    assert_string_equal(said, "");
    listen_to(share_memory, cudaErrorNotSupported, said, sizeof(said));
    assert_non_null(strstr(said, "cudaIpcGetMemHandle is not supported: "));
    listen_to(launch, cudaErrorNotSupported, said, sizeof(said));
    assert_non_null(strstr(said, "cudaLaunchKernel of kernel cudaGetLastError is not supported: "));
    assert_non_null(strstr(said, "nvcc"));
    listen_to(launch_nothing, cudaErrorInvalidDeviceFunction, said, sizeof(said));
    assert_string_equal(said, "");
    listen_to(allocate_too_much, cudaErrorMemoryAllocation, said, sizeof(said));
    assert_non_null(strstr(said, "device 0 cannot give"));
    listen_to(allocate_too_much, cudaErrorMemoryAllocation, said, sizeof(said));
    assert_string_equal(said, "");
}

/* ---- the driver's names ------------------------------------------------------------------ */

static void the_driver_leaves_the_last_error_alone(void **state)
{
    CUdeviceptr ptr = 0;
    CUdevice device;
    int count = 0, value = 7, back = 0;
    const char *text;
    char name[64];
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetCount(&count), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    OK(cudaGetLastError());
    assert_int_equal(cuDeviceGet(&device, 1), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGetName(name, sizeof(name), device), CUDA_SUCCESS);
    assert_string_equal(name, "Weft virtual GPU");
    assert_int_equal(cuMemAlloc(&ptr, 4), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD(ptr, &value, 4), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(&back, ptr, 4), CUDA_SUCCESS);
    assert_int_equal(back, 7);
    assert_int_equal(cuMemFree(ptr), CUDA_SUCCESS);
    assert_int_equal(cuMemFree(ptr), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetErrorName(CUDA_ERROR_NOT_READY, &text), CUDA_SUCCESS);
    assert_string_equal(text, "CUDA_ERROR_NOT_READY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_as_many_as_weft_has),
        cmocka_unit_test(properties_and_attributes_agree),
        cmocka_unit_test(peers_are_enabled_once),
        cmocka_unit_test(a_reset_frees_what_the_device_has),
        cmocka_unit_test(settings_are_kept),
        cmocka_unit_test(the_last_error_stays_until_it_is_asked_for),
        cmocka_unit_test(streams_say_what_they_are),
        cmocka_unit_test(destroying_a_stream_does_not_wait),
        cmocka_unit_test(functions_run_in_the_order_of_the_stream),
        cmocka_unit_test(events_measure_time),
        cmocka_unit_test(events_belong_to_their_device),
        cmocka_unit_test(what_is_refused_is_named_once),
        cmocka_unit_test(the_driver_leaves_the_last_error_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
