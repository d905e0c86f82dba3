/* ctest: timeout=60 tsan
 * Memory of the CUDA runtime on virtual GPUs: allocations, what is known of addresses, copies of
 * every kind and when they return, fills, rows. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart/cudart.h"

#include <weft/weft.h>

static atomic_bool gate;

static void wait_for_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate)) {
        sched_yield();
    }
}

/* Fill so that every byte says where it is. */
static void number(unsigned char *bytes, size_t count, unsigned start)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (unsigned char)((start + i) * 7 % 251);
    }
}

static void expect_numbers(const unsigned char *bytes, size_t count, unsigned start)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (unsigned char)((start + i) * 7 % 251)) {
            fail_msg("byte %zu is %d", i, bytes[i]);
        }
    }
}

/* ---- allocations ------------------------------------------------------------------------ */

static void expect_pointer(const void *ptr, enum cudaMemoryType type, int device)
{
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, ptr));
    assert_int_equal(attributes.type, type);
    assert_int_equal(attributes.device, device);
    assert_ptr_equal(attributes.devicePointer, type == cudaMemoryTypeUnregistered ? NULL : ptr);
    assert_ptr_equal(attributes.hostPointer, type == cudaMemoryTypeDevice ? NULL : ptr);
}

static void addresses_are_known_while_they_are_allocated(void **state)
{
    char *device, *managed, *pinned, *own = malloc(100);
    (void)state;
    OK(cudaSetDevice(3));
    OK(cudaMalloc((void **)&device, 1000));
    OK(cudaMallocManaged((void **)&managed, 1000, cudaMemAttachGlobal));
    OK(cudaMallocHost((void **)&pinned, 1000));
    OK(cudaSetDevice(0));
    expect_pointer(device, cudaMemoryTypeDevice, 3);
    expect_pointer(device + 999, cudaMemoryTypeDevice, 3);
    expect_pointer(managed + 500, cudaMemoryTypeManaged, 3);
    expect_pointer(pinned + 1, cudaMemoryTypeHost, 3);
    expect_pointer(own, cudaMemoryTypeUnregistered, cudaInvalidDeviceId);
    managed[999] = 1; /* the host reaches it */
    OK(cudaMemPrefetchAsync(managed, 1000, 0, NULL));
    OK(cudaMemAdvise(managed, 1000, cudaMemAdviseSetReadMostly, 0));
    FAILS(cudaErrorInvalidValue, cudaMemPrefetchAsync(managed, 1001, 0, NULL));
    FAILS(cudaErrorInvalidValue, cudaMemAdvise(device, 10, cudaMemAdviseSetReadMostly, 0));

    OK(cudaHostRegister(own, 100, cudaHostRegisterDefault));
    expect_pointer(own + 99, cudaMemoryTypeHost, 0);
    FAILS(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own + 50, 100, 0));
    OK(cudaHostUnregister(own));
    expect_pointer(own, cudaMemoryTypeUnregistered, cudaInvalidDeviceId);
    FAILS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own));

    FAILS(cudaErrorInvalidValue, cudaFree(device + 1));
    FAILS(cudaErrorInvalidValue, cudaFree(pinned));
    FAILS(cudaErrorInvalidValue, cudaFreeHost(device));
    FAILS(cudaErrorInvalidValue, cudaFree(own));
    OK(cudaFree(device));
    FAILS(cudaErrorInvalidValue, cudaFree(device));
    expect_pointer(device, cudaMemoryTypeUnregistered, cudaInvalidDeviceId);
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(NULL));
    OK(cudaFreeHost(NULL));
    free(own);
}

static void sizes_that_cannot_be(void **state)
{
    void *ptr = &ptr;
    size_t pitch;
    (void)state;
    OK(cudaMalloc(&ptr, 0));
    assert_null(ptr);
    FAILS(cudaErrorMemoryAllocation, cudaMalloc(&ptr, (size_t)1 << 60));
    assert_null(ptr);
    FAILS(cudaErrorInvalidValue, cudaMalloc(NULL, 10));
    FAILS(cudaErrorMemoryAllocation, cudaMallocPitch(&ptr, &pitch, SIZE_MAX / 2, 4));
    FAILS(cudaErrorInvalidValue, cudaMallocManaged(&ptr, 0, cudaMemAttachGlobal));
    FAILS(cudaErrorInvalidValue, cudaHostAlloc(&ptr, 10, 0x100));
}

static void memory_in_use_is_counted(void **state)
{
    size_t before, after, total;
    void *ptr;
    (void)state;
    OK(cudaMemGetInfo(&before, &total));
    assert_true(before <= total && total > 0);
    OK(cudaMalloc(&ptr, 1 << 20));
    OK(cudaMemGetInfo(&after, NULL));
    assert_true(before - after >= 1 << 20);
    OK(cudaFree(ptr));
}

static void freeing_waits_for_the_device(void **state)
{
    unsigned char *from, *to, *pinned;
    cudaStream_t stream;
    (void)state;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc((void **)&from, 1 << 20));
    OK(cudaMalloc((void **)&to, 1 << 20));
    OK(cudaMallocHost((void **)&pinned, 1 << 20));
    number(from, 1 << 20, 5);
    for (int i = 0; i < 20; i++) {
        OK(cudaMemcpyAsync(to, from, 1 << 20, cudaMemcpyDeviceToDevice, stream));
        OK(cudaMemcpyAsync(pinned, to, 1 << 20, cudaMemcpyDeviceToHost, stream));
    }
    OK(cudaFree(to)); /* a copy that still ran would be seen by the sanitizers, or fault */
    OK(cudaStreamQuery(stream));
    expect_numbers(pinned, 1 << 20, 5);
    OK(cudaFreeHost(pinned));
    OK(cudaFree(from));
    OK(cudaStreamDestroy(stream));
}

static void memory_in_the_order_of_a_stream(void **state)
{
    unsigned char *ptr, *host;
    cudaStream_t stream;
    cudaMemPool_t pool;
    uint64_t threshold = UINT64_MAX, used;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocHost((void **)&host, 100000));
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    OK(cudaMallocAsync((void **)&ptr, 100000, stream));
    OK(cudaMemsetAsync(ptr, 9, 100000, stream));
    OK(cudaMemcpyAsync(host, ptr, 100000, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(ptr, stream));
    FAILS(cudaErrorInvalidValue, cudaFreeAsync(ptr, stream));
    atomic_store(&gate, true);
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(host[0], 9);
    assert_int_equal(host[99999], 9);
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &used));
    assert_true(used == UINT64_MAX);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    OK(cudaMemPoolTrimTo(pool, 0));
    FAILS(cudaErrorInvalidValue, cudaMemPoolTrimTo((cudaMemPool_t)(void *)&used, 0));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
}

/* ---- copies ----------------------------------------------------------------------------- */

static void every_kind_copies(void **state)
{
    static const size_t sizes[] = {1, 64, 16384, 16385, 300000};
    unsigned char *memory[4]; /* two of the host, two of a device */
    (void)state;
    memory[0] = malloc(300000);
    memory[1] = malloc(300000);
    OK(cudaMalloc((void **)&memory[2], 300000));
    OK(cudaMalloc((void **)&memory[3], 300000));
    for (int kind = cudaMemcpyHostToHost; kind <= cudaMemcpyDefault; kind++) {
        for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
            size_t bytes = sizes[i / 2];
            int last = kind == cudaMemcpyDefault ? cudaMemcpyDeviceToDevice : kind;
            unsigned char *src = memory[last & 2 ? 2 : 0], *dst = memory[last & 1 ? 3 : 1];
            number(src, bytes, (unsigned)i + 1);
            memset(dst, 255, bytes);
            if (i % 2 == 0) {
                OK(cudaMemcpy(dst, src, bytes, (enum cudaMemcpyKind)kind));
            } else {
                OK(cudaMemcpyAsync(dst, src, bytes, (enum cudaMemcpyKind)kind, NULL));
            }
            OK(cudaDeviceSynchronize());
            expect_numbers(dst, bytes, (unsigned)i + 1);
        }
    }
    FAILS(cudaErrorInvalidMemcpyDirection,
          cudaMemcpy(memory[1], memory[0], 1, (enum cudaMemcpyKind)5));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(memory[0], memory[2], 1, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(memory[2], memory[0], 1, cudaMemcpyDeviceToHost));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(NULL, memory[0], 1, cudaMemcpyDefault));
    FAILS(cudaErrorInvalidValue, cudaMemcpy(memory[2], NULL, 1, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidValue,
          cudaMemcpy(memory[2] + 1, memory[0], 300000, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidValue,
          cudaMemcpyAsync(memory[3], memory[2] + 299999, 2, cudaMemcpyDeviceToDevice, NULL));
    OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault));
    OK(cudaFree(memory[2]));
    OK(cudaFree(memory[3]));
    free(memory[0]);
    free(memory[1]);
}

/* From pageable memory the data is taken before the call returns, whatever the stream does. */
static void pageable_sources_may_change_at_once(void **state)
{
    unsigned char *device, source[40000];
    cudaStream_t stream;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc((void **)&device, 2 * sizeof(source)));
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    number(source, sizeof(source), 1);
    OK(cudaMemcpyAsync(device, source, sizeof(source), cudaMemcpyHostToDevice, stream));
    memset(source, 0, sizeof(source));
    number(source, sizeof(source), 2);
    OK(cudaMemcpy2DAsync(device + sizeof(source), 400, source, 200, 100, 100,
                         cudaMemcpyHostToDevice, stream));
    memset(source, 0, sizeof(source));
    FAILS(cudaErrorNotReady, cudaStreamQuery(stream));
    atomic_store(&gate, true);
    OK(cudaStreamSynchronize(stream));
    expect_numbers(device, sizeof(source), 1);
    for (size_t row = 0; row < 100; row++) {
        expect_numbers(device + sizeof(source) + 400 * row, 100, 2 + 200 * (unsigned)row);
    }
    OK(cudaFree(device));
    OK(cudaStreamDestroy(stream));
}

static void pinned_copies_do_not_wait(void **state)
{
    unsigned char *device, *pinned;
    cudaStream_t stream;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc((void **)&device, 100));
    OK(cudaMallocHost((void **)&pinned, 100));
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    OK(cudaMemcpyAsync(device, pinned, 100, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(pinned, device, 100, cudaMemcpyDeviceToHost, stream));
    OK(cudaMemsetAsync(device, 1, 100, stream));
    OK(cudaMemcpyAsync(pinned, device, 100, cudaMemcpyDefault, stream));
    FAILS(cudaErrorNotReady, cudaStreamQuery(stream));
    pinned[0] = 42; /* copied when the stream comes to it */
    atomic_store(&gate, true);
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(pinned[0], 1);
    OK(cudaFree(device));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(stream));
}

static void *open_later(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        sched_yield();
    }
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

/* To pageable memory a copy is done when the call returns; memory that is not CUDA's but Weft's is
 * copied in the stream's order too. */
static void copies_that_return_when_they_are_done(void **state)
{
    unsigned char *device, *weft, host[1000];
    cudaStream_t stream;
    pthread_t thread;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc((void **)&device, sizeof(host)));
    assert_int_equal(weft_malloc((void **)&weft, sizeof(host)), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        atomic_store(&gate, false);
        memset(host, 0, sizeof(host));
        OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
        OK(cudaMemsetAsync(i == 2 ? weft : device, 7 + i, sizeof(host), stream));
        assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
        if (i == 0) {
            OK(cudaMemcpyAsync(host, device, sizeof(host), cudaMemcpyDeviceToHost, stream));
        } else if (i == 1) {
            OK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
        } else {
            OK(cudaMemcpyAsync(device, weft, sizeof(host), cudaMemcpyDefault, stream));
            memcpy(host, device, sizeof(host));
        }
        assert_int_equal(host[0], 7 + i);
        assert_int_equal(host[999], 7 + i);
        pthread_join(thread, NULL);
    }
    OK(cudaFree(device));
    weft_free(weft);
    OK(cudaStreamDestroy(stream));
}

static void copies_between_devices(void **state)
{
    unsigned char *first, *second;
    cudaStream_t stream;
    (void)state;
    OK(cudaSetDevice(0));
    OK(cudaMalloc((void **)&first, 50000));
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&second, 50000));
    OK(cudaStreamCreate(&stream));
    atomic_store(&gate, false);
    OK(cudaMemset(second, 3, 50000));
    number(first, 50000, 9);
    OK(cudaSetDevice(2));
    OK(cudaMemcpyPeer(second, 1, first, 0, 50000)); /* after all that both devices had */
    expect_numbers(second, 50000, 9);
    OK(cudaMemsetAsync(second, 8, 50000, stream));
    OK(cudaMemcpyPeerAsync(first, 0, second, 1, 50000, stream));
    OK(cudaStreamSynchronize(stream));
    assert_int_equal(first[49999], 8);
    FAILS(cudaErrorInvalidDevice, cudaMemcpyPeer(second, 1000, first, 0, 1));
    FAILS(cudaErrorInvalidDevice, cudaMemcpyPeerAsync(second, 1, first, -1, 1, stream));
    OK(cudaFree(first));
    OK(cudaFree(second));
    OK(cudaStreamDestroy(stream));
    OK(cudaSetDevice(0));
}

/* ---- rows ------------------------------------------------------------------------------- */

static void rows_are_copied_and_filled(void **state)
{
    unsigned char *device, host[40 * 100], back[37 * 100];
    size_t pitch;
    cudaStream_t stream;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocPitch((void **)&device, &pitch, 37, 100));
    assert_true(pitch >= 37 && pitch % 32 == 0);
    memset(device, 200, pitch * 100);
    number(host, sizeof(host), 4);
    OK(cudaMemcpy2D(device, pitch, host, 40, 37, 100, cudaMemcpyHostToDevice));
    assert_int_equal(device[37], 200); /* between rows nothing changes */
    OK(cudaMemcpy2DAsync(back, 37, device, pitch, 37, 100, cudaMemcpyDeviceToHost, stream));
    for (size_t row = 0; row < 100; row++) {
        expect_numbers(back + 37 * row, 37, 4 + 40 * (unsigned)row);
    }
    OK(cudaMemset2D(device, pitch, 11, 30, 99));
    OK(cudaMemset2DAsync(device + 30, pitch, 12, 2, 99, stream));
    OK(cudaDeviceSynchronize());
    assert_int_equal(device[98 * pitch + 29], 11);
    assert_int_equal(device[98 * pitch + 31], 12);
    expect_numbers(device + 98 * pitch + 32, 5, 4 + 40 * 98 + 32);
    expect_numbers(device + 99 * pitch, 37, 4 + 40 * 99);
    FAILS(cudaErrorInvalidPitchValue,
          cudaMemcpy2D(device, 36, host, 40, 37, 2, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidPitchValue, cudaMemset2D(device, 10, 0, 11, 2));
    FAILS(cudaErrorInvalidValue,
          cudaMemcpy2D(device, pitch, host, 40, 37, 102, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidValue, cudaMemset2D(device + 1, pitch, 0, pitch, 100));
    OK(cudaMemcpy2D(device, pitch, host, 40, 0, 100, cudaMemcpyHostToDevice));
    OK(cudaFree(device));
    OK(cudaStreamDestroy(stream));
}

static int variable[4];

static void variables_are_symbols(void **state)
{
    int values[2] = {5, 6}, back = 0;
    void *address;
    (void)state;
    OK(cudaMemcpyToSymbol(variable, values, sizeof(values), sizeof(int), cudaMemcpyHostToDevice));
    assert_int_equal(variable[1], 5);
    assert_int_equal(variable[2], 6);
    OK(cudaMemcpyFromSymbol(&back, variable, sizeof(int), 2 * sizeof(int), cudaMemcpyDeviceToHost));
    assert_int_equal(back, 6);
    OK(cudaGetSymbolAddress(&address, variable));
    assert_ptr_equal(address, variable);
    FAILS(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(NULL, values, 4, 0, cudaMemcpyHostToDevice));
}

/* ---- many ------------------------------------------------------------------------------- */

static void *allocate_and_free(void *arg)
{
    void *kept[50] = {0};
    unsigned random = *(unsigned *)arg;
    for (int i = 0; i < 3000; i++) {
        random = random * 1103515245u + 12345u;
        int at = (int)(random >> 8) % 50;
        struct cudaPointerAttributes attributes;
        if (kept[at] != NULL) {
            OK(cudaPointerGetAttributes(&attributes, (char *)kept[at] + 10));
            assert_int_equal(attributes.type, at % 2 ? cudaMemoryTypeHost : cudaMemoryTypeDevice);
            OK(at % 2 ? cudaFreeHost(kept[at]) : cudaFree(kept[at]));
            kept[at] = NULL;
        } else {
            OK(at % 2 ? cudaMallocHost(&kept[at], 11 + random % 5000)
                      : cudaMalloc(&kept[at], 11 + random % 5000));
        }
    }
    for (int i = 0; i < 50; i++) {
        OK(i % 2 ? cudaFreeHost(kept[i]) : cudaFree(kept[i]));
    }
    return NULL;
}

static void threads_allocate_at_the_same_time(void **state)
{
    pthread_t threads[3];
    unsigned seeds[3] = {1, 2, 3};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &seeds[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_known_while_they_are_allocated),
        cmocka_unit_test(sizes_that_cannot_be),
        cmocka_unit_test(memory_in_use_is_counted),
        cmocka_unit_test(freeing_waits_for_the_device),
        cmocka_unit_test(memory_in_the_order_of_a_stream),
        cmocka_unit_test(every_kind_copies),
        cmocka_unit_test(pageable_sources_may_change_at_once),
        cmocka_unit_test(pinned_copies_do_not_wait),
        cmocka_unit_test(copies_that_return_when_they_are_done),
        cmocka_unit_test(copies_between_devices),
        cmocka_unit_test(rows_are_copied_and_filled),
        cmocka_unit_test(variables_are_symbols),
        cmocka_unit_test(threads_allocate_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
