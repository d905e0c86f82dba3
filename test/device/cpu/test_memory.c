/* Device memory through the public API, each test in a process with settings of its own. */
#define _GNU_SOURCE 1 /* memfd_create */
#include "device/child.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <weft/device.h>

#include "device/cpu/heap.h"
#include "device/cpu/memory.h"
#include "device/sysmem.h"

#define MIB (UINT64_C(1) << 20)

static void *must_alloc(size_t bytes)
{
    void *ptr = NULL;
    if (weft_malloc(&ptr, bytes) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        exit(1);
    }
    return ptr;
}

CHILD_TEST(allocate_use_and_free)
{
    char *a = must_alloc(1000), *b = must_alloc(0), *c = must_alloc(MIB);
    CHECK_EQ((uintptr_t)a % 256, 0);
    CHECK_EQ((uintptr_t)b % 256, 0);
    CHECK_EQ((uintptr_t)c % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    CHECK(a != b);
    memset(a, 1, 1000);
    memset(c, 2, MIB);
    CHECK_EQ(a[999], 1);
    CHECK_EQ(weft_memcpy(a, c, 10, NULL), WEFT_OK);
    CHECK_EQ(a[9], 2);
    CHECK_EQ(a[10], 1);
    CHECK_EQ(weft_memset(a, 7, 5, NULL), WEFT_OK);
    CHECK_EQ(a[4], 7);
    CHECK_EQ(a[5], 2);
    CHECK_EQ(weft_memcpy(c + 1, c, 100, NULL), WEFT_OK);
    CHECK_EQ(weft_free(a), WEFT_OK);
    CHECK_EQ(weft_free(b), WEFT_OK);
    CHECK_EQ(weft_free(c), WEFT_OK);
    CHECK_EQ(weft_free(NULL), WEFT_OK);
}

CHILD_TEST(default_capacity_is_the_machines_memory)
{
    weft_pool_stats_t stats;
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    uint64_t total = weft__sysmem_total(weft__sysmem());
    CHECK(stats.capacity >= total);
    CHECK(stats.capacity < total + 65536);
}

CHILD_TEST(bad_frees_are_refused)
{
    char *ptr = must_alloc(100), *other = must_alloc(100), *large = must_alloc(MIB), local;
    CHECK_EQ(weft_free(ptr), WEFT_OK);
    CHECK_EQ(weft_free(ptr), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "freed already");
    CHECK_EQ(weft_free(large + 4096), WEFT_ERR_INVALID);
    CHECK_EQ(weft_free(&local), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "not memory of a device");
    weft_pool_stats_t stats;
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.allocs, 3);
    CHECK_EQ(stats.frees, 1);
    CHECK_EQ(weft_free(other), WEFT_OK);
    CHECK_EQ(weft_free(large), WEFT_OK);
    CHECK_EQ(weft_free(large), WEFT_ERR_INVALID);
}

CHILD_TEST(devices_say_of_what_kind_they_are)
{
    const char *kind = NULL;
    CHECK_EQ(weft_device_kind(&kind), WEFT_OK);
    CHECK(kind != NULL && strcmp(kind, "cpu") == 0);
    CHECK_EQ(weft_device_kind(NULL), WEFT_ERR_INVALID);
}

CHILD_TEST(copies_stay_inside_of_allocations)
{
    char host[4096] = {0};
    char *a, *b;
    CHECK_EQ(weft_malloc((void **)&a, 1000), WEFT_OK);
    CHECK_EQ(weft_malloc((void **)&b, 4096), WEFT_OK);
    CHECK_EQ(weft_memcpy(a, host, 1000, NULL), WEFT_OK);
    CHECK_EQ(weft_memcpy(a + 999, b + 4095, 1, NULL), WEFT_OK);
    CHECK_EQ(weft_memcpy(a, host, 1001, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "dst needs 1001 bytes");
    CHECK_TEXT(weft_last_error(), "of 1000 bytes");
    CHECK_EQ(weft_memcpy(host, b + 4000, 97, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "src needs 97 bytes");
    CHECK_TEXT(weft_last_error(), "byte 4000");
    CHECK_EQ(weft_memset(a, 1, 1001, NULL), WEFT_ERR_INVALID);
    CHECK_EQ(weft_free(a), WEFT_OK);
    CHECK_EQ(weft_memset(a, 1, 1, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "not in use");
    CHECK_EQ(weft_memcpy(a, b, 0, NULL), WEFT_OK);
    CHECK_EQ(weft_free(b), WEFT_OK);
}

CHILD_TEST(bad_arguments_are_refused)
{
    char buffer[8];
    weft_pool_stats_t stats;
    int count;
    CHECK_EQ(weft_malloc(NULL, 8), WEFT_ERR_INVALID);
    CHECK_EQ(weft_device_count(NULL), WEFT_ERR_INVALID);
    CHECK_EQ(weft_device_get(NULL), WEFT_ERR_INVALID);
    CHECK_EQ(weft_device_count(&count), WEFT_OK);
    CHECK_EQ(weft_device_set(-1), WEFT_ERR_INVALID);
    CHECK_EQ(weft_device_set(count), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "WEFT_DEVICES");
    CHECK_EQ(weft_pool_stats(count, &stats), WEFT_ERR_INVALID);
    CHECK_EQ(weft_pool_stats(0, NULL), WEFT_ERR_INVALID);
    CHECK_EQ(weft_pool_trim(-1, 0), WEFT_ERR_INVALID);
    CHECK_EQ(weft_memcpy(NULL, buffer, 1, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "dst is NULL");
    CHECK_EQ(weft_memcpy(buffer, NULL, 1, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "src is NULL");
    CHECK_EQ(weft_memcpy(NULL, NULL, 0, NULL), WEFT_OK);
    CHECK_EQ(weft_memcpy(buffer, buffer, SIZE_MAX, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "past the end");
    CHECK_EQ(weft_memset(NULL, 0, 1, NULL), WEFT_ERR_INVALID);
    CHECK_EQ(weft_memset(NULL, 0, 0, NULL), WEFT_OK);
}

/* Sizes that a rounding up would carry past the largest number. */
CHILD_TEST(sizes_near_the_largest_are_no_memory)
{
    for (size_t less = 0; less <= 8192; less++) {
        void *ptr = &ptr;
        CHECK_EQ(weft_host_malloc(&ptr, SIZE_MAX - less), WEFT_ERR_NO_MEMORY);
        CHECK(ptr == &ptr);
        CHECK_EQ(weft_malloc(&ptr, SIZE_MAX - less), WEFT_ERR_NO_MEMORY);
        CHECK(ptr == &ptr);
    }
    void *ptr = NULL, *other = NULL;
    CHECK_EQ(weft_host_malloc(&ptr, 0), WEFT_OK);
    CHECK_EQ(weft_host_malloc(&other, 4097), WEFT_OK);
    CHECK(ptr != NULL && ptr != other);
    memset(other, 1, 4097);
    CHECK_EQ(weft_host_free(ptr), WEFT_OK);
    CHECK_EQ(weft_host_free(other), WEFT_OK);
}

CHILD_TEST(devices_are_per_thread_and_counted)
{
    int count, device;
    setenv("WEFT_DEVICES", "3", 1);
    CHECK_EQ(weft_device_count(&count), WEFT_OK);
    CHECK_EQ(count, 3);
    CHECK_EQ(weft_device_get(&device), WEFT_OK);
    CHECK_EQ(device, 0);
    weft__device_set_default(6);
    CHECK_EQ(weft_device_get(&device), WEFT_OK);
    CHECK_EQ(device, 6);
    CHECK_EQ(weft_device_count(&count), WEFT_OK);
    CHECK_EQ(count, 7);
    CHECK_EQ(weft_device_set(2), WEFT_OK);
    CHECK_EQ(weft_device_get(&device), WEFT_OK);
    CHECK_EQ(device, 2);
    uint64_t offset;
    char *ptr = must_alloc(300);
    CHECK(weft__heap_find(ptr, 300, &device, &offset));
    CHECK_EQ(device, 2);
}

CHILD_TEST(local_rank_is_the_first_device)
{
    int count, device;
    setenv("WEFT_RANK", "9", 1);
    setenv("WEFT_SIZE", "12", 1);
    setenv("WEFT_LOCAL_RANK", "9", 1);
    setenv("WEFT_LOCAL_SIZE", "12", 1);
    CHECK_EQ(weft_device_get(&device), WEFT_OK);
    CHECK_EQ(device, 9);
    CHECK_EQ(weft_device_count(&count), WEFT_OK);
    CHECK_EQ(count, 12);
}

CHILD_TEST(heap_find_knows_the_borders)
{
    weft_heap_handle_t handle;
    char *base;
    int device;
    uint64_t offset;
    setenv("WEFT_DEVICE_MEMORY", "1M", 1);
    CHECK(!weft__heap_find(&device, 1, &device, &offset));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft__heap_export(i, &handle), WEFT_OK);
        CHECK_EQ(weft__heap_open(&handle, &base), WEFT_OK);
        CHECK(weft__heap_find(base + 5, handle.bytes - 5, &device, &offset));
        CHECK_EQ(device, i);
        CHECK_EQ(offset, 5);
        CHECK(weft__heap_find(base + handle.bytes - 1, 1, &device, &offset));
        CHECK(weft__heap_find(base + handle.bytes - 1, 0, &device, &offset));
        CHECK_EQ(offset, handle.bytes - 1);
        CHECK(!weft__heap_find(base + handle.bytes - 1, 2, &device, &offset));
        CHECK(!weft__heap_find(base + 1, SIZE_MAX, &device, &offset));
        CHECK(!weft__heap_find(NULL, 0, &device, &offset));
        weft__heap_close(&handle);
    }
    CHECK_EQ(weft__heap_export(WEFT_MAX_DEVICES, &handle), WEFT_ERR_INVALID);
    CHECK_EQ(weft__heap_export(-1, &handle), WEFT_ERR_INVALID);
}

CHILD_TEST(a_full_device_says_what_it_has)
{
    void *ptr = (void *)1;
    setenv("WEFT_DEVICE_MEMORY", "64M", 1);
    char *first = must_alloc(40 * MIB);
    CHECK_EQ(weft_malloc(&ptr, 32 * MIB), WEFT_ERR_NO_MEMORY);
    CHECK(ptr == (void *)1);
    CHECK_TEXT(weft_last_error(), "device 0 cannot give 32 MiB");
    CHECK_TEXT(weft_last_error(), "it has 64 MiB, 40 MiB in use");
    CHECK_TEXT(weft_last_error(), "largest free piece is 24 MiB");
    CHECK_TEXT(weft_last_error(), "WEFT_DEVICE_MEMORY");
    CHECK_EQ(weft_malloc(&ptr, SIZE_MAX), WEFT_ERR_NO_MEMORY);
    char *second = must_alloc(24 * MIB);
    CHECK_EQ(weft_malloc(&ptr, 1), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft_free(first), WEFT_OK);
    CHECK_EQ(weft_free(must_alloc(1)), WEFT_OK);
    CHECK_EQ(weft_free(second), WEFT_OK);
    CHECK_EQ(weft_free(must_alloc(64 * MIB)), WEFT_OK);
}

CHILD_TEST(more_than_the_machine_has_is_refused)
{
    void *ptr = (void *)1;
    weft_pool_stats_t stats;
    setenv("WEFT_DEVICE_MEMORY", "4T", 1);
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.capacity, UINT64_C(4) << 40);
    CHECK_EQ(weft_malloc(&ptr, (size_t)3 << 40), WEFT_ERR_NO_MEMORY);
    CHECK(ptr == (void *)1);
    CHECK_TEXT(weft_last_error(), "device 0 cannot give 3 TiB: it needs 3 TiB more");
    CHECK_TEXT(weft_last_error(), "0 bytes in use of 4 TiB (WEFT_DEVICE_MEMORY)");
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.in_use, 0);
    CHECK_EQ(stats.reserved, 0);
}

/* Let this process believe that the machine has `kib` left. */
static void pretend_room(const char *root, unsigned kib)
{
    char name[128];
    snprintf(name, sizeof(name), "%s/proc", root);
    mkdir(name, 0700);
    snprintf(name, sizeof(name), "%s/proc/meminfo", root);
    FILE *file = fopen(name, "w");
    CHECK(file != NULL);
    fprintf(file, "MemTotal: 1000000 kB\nMemAvailable: %u kB\n", kib);
    CHECK_EQ(fclose(file), 0);
    weft__sysmem_find(root, (weft_sysmem_t *)weft__sysmem());
}

CHILD_TEST(kept_memory_goes_before_an_allocation_fails)
{
    char root[] = "/tmp/weft-test-memory-XXXXXX", name[128];
    void *ptr;
    weft_pool_stats_t stats;
    setenv("WEFT_DEVICE_MEMORY", "1G", 1);
    CHECK(mkdtemp(root) != NULL);
    pretend_room(root, 100 * 1024);
    void *kept = must_alloc(50 * MIB);
    CHECK_EQ(weft_free(kept), WEFT_OK);
    CHECK_EQ(weft_device_set(1), WEFT_OK);
    pretend_room(root, 10 * 1024);
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.reserved, 50 * MIB);
    CHECK_EQ(weft_malloc(&ptr, 20 * MIB), WEFT_ERR_NO_MEMORY);
    CHECK_TEXT(weft_last_error(), "device 1 cannot give 20 MiB: it needs 20 MiB more");
    CHECK_TEXT(weft_last_error(), "which has 10 MiB left");
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.reserved, 0);
    void *fits = must_alloc(9 * MIB);
    CHECK_EQ(weft_pool_stats(1, &stats), WEFT_OK);
    CHECK_EQ(stats.reserved, 9 * MIB); /* nothing ahead where there is so little */
    CHECK_EQ(weft_free(fits), WEFT_OK);
    snprintf(name, sizeof(name), "%s/proc/meminfo", root);
    unlink(name);
    snprintf(name, sizeof(name), "%s/proc", root);
    rmdir(name);
    rmdir(root);
}

CHILD_TEST(ranks_share_the_machine)
{
    char root[] = "/tmp/weft-test-memory-XXXXXX", name[128];
    weft_pool_stats_t stats;
    CHECK(mkdtemp(root) != NULL);
    pretend_room(root, 500 * 1024);
    weft__device_share(50);
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.capacity, UINT64_C(1000000) * 1024 / 50);
    void *more = must_alloc(100 * MIB); /* as long as others leave it */
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK(stats.capacity >= 100 * MIB && stats.capacity < 200 * MIB);
    CHECK_EQ(weft_free(more), WEFT_OK);
    snprintf(name, sizeof(name), "%s/proc/meminfo", root);
    unlink(name);
    snprintf(name, sizeof(name), "%s/proc", root);
    rmdir(name);
    rmdir(root);
}

CHILD_TEST(trim_gives_memory_to_the_system)
{
    weft_heap_handle_t handle;
    setenv("WEFT_DEVICE_MEMORY", "256M", 1);
    CHECK_EQ(weft_pool_trim(0, 0), WEFT_OK); /* not used yet */
    void *ptr = must_alloc(64 * MIB);
    CHECK_EQ(weft__heap_export(0, &handle), WEFT_OK);
    CHECK(file_memory(handle.fd) >= 64 * MIB);
    CHECK_EQ(weft_free(ptr), WEFT_OK);
    CHECK(file_memory(handle.fd) >= 64 * MIB);
    CHECK_EQ(weft_pool_trim(0, 32 * MIB), WEFT_OK);
    CHECK_EQ(file_memory(handle.fd), 32 * MIB + (uint64_t)sysconf(_SC_PAGESIZE));
    CHECK_EQ(weft_pool_trim(0, 0), WEFT_OK);
    CHECK_EQ(file_memory(handle.fd), sysconf(_SC_PAGESIZE));
}

CHILD_TEST(file_size_limit_makes_a_smaller_device)
{
    struct rlimit limit = {100 * MIB, 100 * MIB};
    weft_pool_stats_t stats;
    setenv("WEFT_DEVICE_MEMORY", "1G", 1);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK_EQ(stats.capacity, 64 * MIB);
    CHECK_EQ(weft_free(must_alloc(64 * MIB)), WEFT_OK);
}

CHILD_TEST(too_small_a_limit_fails_with_the_numbers)
{
    struct rlimit limit = {32 * MIB, 32 * MIB};
    weft_pool_stats_t stats;
    void *ptr;
    setenv("WEFT_DEVICE_MEMORY", "1G", 1);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(weft_pool_stats(5, &stats), WEFT_ERR_NO_MEMORY);
    CHECK_TEXT(weft_last_error(), "device 5: 1 GiB of memory were asked for");
    CHECK_EQ(weft_malloc(&ptr, 1), WEFT_ERR_NO_MEMORY); /* again, and nothing half made */
}

CHILD_TEST(address_space_limit_makes_a_smaller_device)
{
    struct rlimit limit = {600 * MIB, 600 * MIB};
    weft_pool_stats_t stats;
    if (UNDER_SANITIZER) {
        return; /* a sanitizer needs terabytes of address space for itself */
    }
    setenv("WEFT_DEVICE_MEMORY", "1G", 1);
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK_EQ(weft_pool_stats(0, &stats), WEFT_OK);
    CHECK(stats.capacity == 512 * MIB || stats.capacity == 256 * MIB);
}

CHILD_TEST(no_descriptor_left_is_an_error)
{
    struct rlimit old, none;
    void *ptr;
    setenv("WEFT_DEVICE_MEMORY", "1M", 1);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){3, old.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_EQ(weft_malloc(&ptr, 1), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "memfd_create");
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    CHECK_EQ(weft_free(must_alloc(1)), WEFT_OK); /* and it recovers */
}

CHILD_TEST(a_closed_descriptor_harms_no_other_file)
{
    weft_heap_handle_t handle;
    char byte = 1;
    void *ptr;
    setenv("WEFT_DEVICE_MEMORY", "16M", 1);
    setenv("WEFT_POOL_KEEP", "0", 1);
    void *mine = must_alloc(MIB);
    CHECK_EQ(weft__heap_export(0, &handle), WEFT_OK);
    int other = memfd_create("other", MFD_CLOEXEC);
    CHECK_EQ(pwrite(other, &byte, 1, 2 * (off_t)MIB), 1);
    CHECK_EQ(pwrite(other, &byte, 1, 8192), 1);
    uint64_t before = file_memory(other);
    CHECK_EQ(dup2(other, handle.fd), handle.fd);
    CHECK_EQ(weft_malloc(&ptr, MIB), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "closed by the program");
    CHECK_EQ(weft_free(mine), WEFT_OK);
    CHECK_EQ(file_memory(other), before);
}

CHILD_TEST(a_forked_child_is_told_so)
{
    void *ptr = must_alloc(100);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        weft_heap_handle_t handle;
        weft_stream_h stream;
        void *more;
        CHECK_EQ(weft_malloc(&more, 100), WEFT_ERR_UNSUPPORTED);
        CHECK_TEXT(weft_last_error(), "weft_malloc: this process was forked");
        CHECK_EQ(weft_free(ptr), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_stream_create(&stream), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_device_synchronize(), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft__heap_export(0, &handle), WEFT_ERR_UNSUPPORTED);
        _exit(0);
    }
    CHECK_EQ(wait_child(pid), 0);
    CHECK_EQ(weft_free(ptr), WEFT_OK);
}

/* Virtual GPUs copy memory of one's own either way; mistakes show on them, too. */
static void registering_is_counted(void **state)
{
    (void)state;
    char own[64];
    void *ptr;
    CHECK_EQ(weft_malloc(&ptr, 100), WEFT_OK);
    CHECK_EQ(weft_register(ptr, 100), WEFT_OK);
    CHECK_EQ(weft_register(own, sizeof(own)), WEFT_OK);
    CHECK_EQ(weft_register(own, sizeof(own)), WEFT_OK);
    CHECK_EQ(weft_unregister(own), WEFT_OK);
    CHECK_EQ(weft_unregister(own), WEFT_OK);
    CHECK_EQ(weft_unregister(own), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "is not registered, or was unregistered already");
    CHECK_EQ(weft_register(NULL, 10), WEFT_ERR_INVALID);
    CHECK_EQ(weft_register(own, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_register: 0 bytes");
    CHECK_EQ(weft_unregister(ptr), WEFT_OK);
    CHECK_EQ(weft_free(ptr), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocate_use_and_free),
        cmocka_unit_test(default_capacity_is_the_machines_memory),
        cmocka_unit_test(ranks_share_the_machine),
        cmocka_unit_test(bad_frees_are_refused),
        cmocka_unit_test(devices_say_of_what_kind_they_are),
        cmocka_unit_test(copies_stay_inside_of_allocations),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(sizes_near_the_largest_are_no_memory),
        cmocka_unit_test(devices_are_per_thread_and_counted),
        cmocka_unit_test(local_rank_is_the_first_device),
        cmocka_unit_test(heap_find_knows_the_borders),
        cmocka_unit_test(a_full_device_says_what_it_has),
        cmocka_unit_test(more_than_the_machine_has_is_refused),
        cmocka_unit_test(kept_memory_goes_before_an_allocation_fails),
        cmocka_unit_test(trim_gives_memory_to_the_system),
        cmocka_unit_test(file_size_limit_makes_a_smaller_device),
        cmocka_unit_test(too_small_a_limit_fails_with_the_numbers),
        cmocka_unit_test(address_space_limit_makes_a_smaller_device),
        cmocka_unit_test(no_descriptor_left_is_an_error),
        cmocka_unit_test(a_closed_descriptor_harms_no_other_file),
        cmocka_unit_test(a_forked_child_is_told_so),
        cmocka_unit_test(registering_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
