/* ctest: timeout=60 tsan */
/* Registered memory, on the fake GPU and with an NCCL that only writes down what it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/nccl/fake_nccl.h"
#include "comm/nccl/nccl.h"
#include "device/cuda.h"
#include <weft/device.h>

#define BYTES ((size_t)1 << 20)

static fake_nccl_t *fake;

/* As a program that uses CUDA itself would. */
static char *take(size_t bytes)
{
    void *ptr;
    assert_int_equal(weft__cuda()->alloc(0, &ptr, bytes), 0);
    return ptr;
}

static void give(void *ptr)
{
    assert_int_equal(weft__cuda()->release(0, ptr), 0);
}

static void refused(weft_status_t status, weft_status_t wanted, const char *part)
{
    assert_int_equal(status, wanted);
    if (!strstr(weft_last_error(), part)) {
        fail_msg("\"%s\" has no \"%s\"", weft_last_error(), part);
    }
}

static void allocation_becomes_a_slab_until_all_have_left(void **state)
{
    (void)state;
    weft_cuda_slab_t slab;
    char *ptr = take(BYTES);
    assert_false(weft__cuda_find(ptr, 1, &slab));
    assert_int_equal(weft_register(ptr + 4096, 100), WEFT_OK);
    assert_true(weft__cuda_find(ptr, BYTES, &slab)); /* other processes can only map all of it */
    assert_ptr_equal(slab.base, ptr);
    assert_int_equal(slab.bytes, BYTES);
    assert_false(weft__cuda_find(ptr + 1, BYTES, &slab));
    int number = slab.number;
    assert_int_equal(weft_register(ptr, BYTES), WEFT_OK);
    assert_true(weft__cuda_find(ptr, BYTES, &slab));
    assert_int_equal(slab.number, number);
    assert_int_equal(weft__cuda_slab(0, number).bytes, BYTES);
    refused(weft_free(ptr), WEFT_ERR_INVALID, "is registered memory");

    assert_int_equal(weft_unregister(ptr + 4096), WEFT_OK);
    assert_true(weft__cuda_find(ptr, BYTES, &slab));
    refused(weft_unregister(ptr + 4096), WEFT_ERR_INVALID, "was unregistered already");
    assert_int_equal(weft_unregister(ptr), WEFT_OK);
    assert_false(weft__cuda_find(ptr, 1, &slab));
    assert_int_equal(weft__cuda_slab(0, number).bytes, 0);
    give(ptr);
}

/* A number without a slab when another communicator is made is one that its ranks know as empty. */
static void holes_are_not_filled_while_slabs_are_held(void **state)
{
    (void)state;
    weft_cuda_slab_t slab;
    char *first = take(BYTES), *second = take(BYTES), *third = take(BYTES);
    weft__cuda_hold();
    assert_int_equal(weft_register(first, 1), WEFT_OK);
    assert_int_equal(weft_register(second, 1), WEFT_OK);
    assert_true(weft__cuda_find(first, 1, &slab));
    int hole = slab.number;
    assert_int_equal(weft_unregister(first), WEFT_OK);
    weft__cuda_hold();
    assert_int_equal(weft_register(third, 1), WEFT_OK);
    assert_true(weft__cuda_find(third, 1, &slab));
    assert_int_not_equal(slab.number, hole);
    assert_int_equal(weft_unregister(third), WEFT_OK);
    assert_int_equal(weft_unregister(second), WEFT_OK);
    weft__cuda_unhold();
    weft__cuda_unhold();
    assert_int_equal(weft_register(third, 1), WEFT_OK);
    assert_true(weft__cuda_find(third, 1, &slab));
    assert_int_equal(slab.number, hole); /* nobody knows it any more */
    assert_int_equal(weft_unregister(third), WEFT_OK);
    give(first);
    give(second);
    give(third);
}

/* Others may have the old one mapped under its number. */
static void number_is_not_used_again_while_slabs_are_held(void **state)
{
    (void)state;
    weft_cuda_slab_t first, second;
    char *ptr = take(BYTES);
    weft__cuda_hold();
    assert_int_equal(weft_register(ptr, BYTES), WEFT_OK);
    assert_true(weft__cuda_find(ptr, 1, &first));
    assert_int_equal(weft_unregister(ptr), WEFT_OK);
    assert_int_equal(weft_register(ptr, BYTES), WEFT_OK);
    assert_true(weft__cuda_find(ptr, 1, &second));
    assert_int_not_equal(first.number, second.number);
    assert_true(first.id != second.id);
    int times = 0;
    while (times < 1000 && weft_unregister(ptr) == WEFT_OK && weft_register(ptr, 1) == WEFT_OK) {
        times++;
    }
    assert_in_range(times, 180, 192);
    assert_non_null(strstr(weft_last_error(), "register memory once, not again and again"));
    void *more; /* numbers are left for the pool */
    assert_int_equal(weft_malloc(&more, BYTES), WEFT_OK);
    weft__cuda_unhold();
    weft__cuda_hold(); /* the next communicator knows none of them */
    assert_int_equal(weft_register(ptr, BYTES), WEFT_OK);
    assert_true(weft__cuda_find(more, BYTES, &first));
    assert_true(weft__cuda_find(ptr, BYTES, &second));
    assert_in_range(first.number, 0, 9);
    assert_in_range(second.number, 0, 9);
    assert_ptr_equal(weft__cuda_slab(0, first.number).base, first.base);
    assert_int_equal(weft_unregister(ptr), WEFT_OK);
    assert_int_equal(weft_free(more), WEFT_OK);
    weft__cuda_unhold();
    give(ptr);
}

static void what_cannot_be_registered_is_refused(void **state)
{
    (void)state;
    char *ptr = take(BYTES);
    refused(weft_register(NULL, 5), WEFT_ERR_INVALID, "the address is NULL");
    refused(weft_register(ptr, 0), WEFT_ERR_INVALID, "cannot be registered");
    refused(weft_register(ptr, SIZE_MAX), WEFT_ERR_INVALID, "past the end of memory");
    refused(weft_register(ptr + 1, BYTES), WEFT_ERR_INVALID, "beyond their allocation");
    refused(weft_unregister(ptr), WEFT_ERR_INVALID, "is not registered");
    /* Device 1 is on another GPU, which the memory is not of. */
    assert_int_equal(weft_device_set(1), WEFT_OK);
    refused(weft_register(ptr, BYTES), WEFT_ERR_INVALID, "is memory of GPU 0");
    /* Device 4 is on the same one, but it is device 0's already. */
    assert_int_equal(weft_device_set(0), WEFT_OK);
    assert_int_equal(weft_register(ptr, BYTES), WEFT_OK);
    assert_int_equal(weft_device_set(4), WEFT_OK);
    refused(weft_register(ptr, BYTES), WEFT_ERR_UNSUPPORTED, "is registered for device 0");
    assert_int_equal(weft_device_set(0), WEFT_OK);
    assert_int_equal(weft_unregister(ptr), WEFT_OK);
    give(ptr);
}

static void memory_of_ours_needs_it_not(void **state)
{
    (void)state;
    void *ptr;
    assert_int_equal(weft_malloc(&ptr, BYTES), WEFT_OK);
    assert_int_equal(weft_register(ptr, BYTES), WEFT_OK);
    assert_int_equal(weft_unregister(ptr), WEFT_OK);
    assert_int_equal(weft_free(ptr), WEFT_OK);
}

static int where(const char *ptr)
{
    int gpu = -3;
    assert_int_equal(weft__cuda()->where(ptr, &gpu), 0);
    return gpu;
}

static void host_memory_is_pinned_meanwhile(void **state)
{
    (void)state;
    weft_cuda_slab_t slab;
    char *ptr = malloc(BYTES);
    assert_non_null(ptr);
    assert_int_equal(weft_register(ptr, BYTES / 2), WEFT_OK);
    assert_int_equal(where(ptr + 5), -1);
    assert_int_equal(weft_register(ptr + 4096, 100), WEFT_OK); /* inside of it */
    assert_false(weft__cuda_find(ptr, 1, &slab));
    assert_int_equal(weft__cuda_where(ptr, BYTES / 2), -1);
    assert_int_equal(weft__cuda_where(ptr, BYTES), -2); /* not all of it */
    assert_int_equal(weft_unregister(ptr), WEFT_OK);
    assert_int_equal(where(ptr + 4096), -1);
    assert_int_equal(weft_unregister(ptr + 4096), WEFT_OK);
    assert_int_equal(where(ptr + 4096), -2);
    free(ptr);
}

static void nccl_is_told_once(void **state)
{
    (void)state;
    const weft_nccl_id_t id = {"abc"};
    const weft_nccl_binding_t binding = {.device = 0, .gpu = 0, .ops = weft__cuda()};
    weft_nccl_t *nccl;
    char *src = take(BYTES), *other = take(BYTES), expected[300];
    assert_int_equal(weft_register(src, BYTES), WEFT_OK);
    assert_int_equal(weft__nccl_open(&id, 0, 2, &binding, 10000, &nccl), WEFT_OK);
    fake->log[0] = '\0';
    fake->logged = 0;
    weft_call_t call = {
        .coll = WEFT_COLL_ALLREDUCE, .type = WEFT_F32, .src = src + 64, .dst = other, .count = 8};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft__nccl_launch(nccl, &call, 1, NULL), WEFT_OK);
        call.src = src + 128; /* the same piece */
    }
    snprintf(expected, sizeof(expected),
             "CommRegister %p %zu\nAllReduce %p %p 8 float32 sum on (nil)\n"
             "AllReduce %p %p 8 float32 sum on (nil)\n",
             (void *)src, BYTES, (void *)(src + 64), (void *)other, (void *)(src + 128),
             (void *)other);
    assert_string_equal(fake->log, expected);
    /* What NCCL thinks of it breaks nothing. */
    assert_int_equal(weft_register(other, BYTES), WEFT_OK);
    fake->fails = "CommRegister";
    fake->result = WEFT_NCCL_SYSTEM_ERROR;
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, NULL), WEFT_OK);
    fake->fails = NULL;
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_OK);
    weft__nccl_close(nccl);
    assert_int_equal(weft_unregister(src), WEFT_OK);
    assert_int_equal(weft_unregister(other), WEFT_OK);
    give(src);
    give(other);
}

int main(void)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/test/comm/nccl/fake_cuda.so", getenv("WEFT_BUILD"));
    setenv("WEFT_DEVICE", "cuda", 1);
    setenv("WEFT_DEVICES", "8", 1);
    setenv("WEFT_NCCL_REGISTER", "1", 1);
    setenv("WEFT_CUDA_MODULE", path, 1);
    fake = fake_nccl_load();
    if (!fake || !weft__cuda_load(NULL)) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocation_becomes_a_slab_until_all_have_left),
        cmocka_unit_test(holes_are_not_filled_while_slabs_are_held),
        cmocka_unit_test(number_is_not_used_again_while_slabs_are_held),
        cmocka_unit_test(what_cannot_be_registered_is_refused),
        cmocka_unit_test(memory_of_ours_needs_it_not),
        cmocka_unit_test(host_memory_is_pinned_meanwhile),
        cmocka_unit_test(nccl_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
