/* Device memory between processes: export here, open there, both see what the other writes. */
#include "device/child.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <weft/device.h>

#include "device/cpu/heap.h"
#include "device/device.h"

#define MIB (UINT64_C(1) << 20)

/* What the owner tells the peer through a pipe. */
typedef struct note {
    weft_heap_handle_t handle;
    uint64_t offset;
} note_t;

static void put(int fd, const void *data, size_t bytes)
{
    CHECK_EQ(write(fd, data, bytes), (ssize_t)bytes);
}

static void get(int fd, void *data, size_t bytes)
{
    CHECK_EQ(read(fd, data, bytes), (ssize_t)bytes);
}

/* Start a process that has not used Weft: `body` with the ends of two pipes. */
static pid_t start(void (*body)(int in, int out), int *to_p, int *from_p)
{
    int to[2], from[2];
    CHECK_EQ(pipe(to), 0);
    CHECK_EQ(pipe(from), 0);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        close(to[1]);
        close(from[0]);
        body(to[0], from[1]);
        exit(0);
    }
    close(to[0]);
    close(from[1]);
    *to_p = to[1];
    *from_p = from[0];
    return pid;
}

static bool is_mapped(const char *base)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        found = found || (uintptr_t)base == (uintptr_t)strtoull(line, NULL, 16);
    }
    fclose(maps);
    return found;
}

static int count_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        struct stat stat;
        count += fstat(fd, &stat) == 0;
    }
    return count;
}

static void reader_writer(int in, int out)
{
    note_t note;
    char *base, *again, byte = 1;
    get(in, &note, sizeof(note));
    int before = count_descriptors();
    CHECK_EQ(weft__heap_open(&note.handle, &base), WEFT_OK);
    CHECK_EQ(weft__heap_open(&note.handle, &again), WEFT_OK);
    CHECK(base == again);
    CHECK_EQ(count_descriptors(), before);
    unsigned *data = (unsigned *)(base + note.offset);
    for (unsigned i = 0; i < MIB / 4; i++) {
        CHECK_EQ(data[i], i * 3);
        data[i] = i * 5;
    }
    weft__heap_close(&note.handle);
    CHECK(is_mapped(base));
    CHECK_EQ(data[7], 35);
    put(out, &byte, 1);
    get(in, &byte, 1); /* the owner wrote again */
    CHECK_EQ(data[7], 99);
    weft__heap_close(&note.handle);
    CHECK(!is_mapped(base));
    CHECK_EQ(weft__heap_open(&note.handle, &base), WEFT_OK);
    CHECK_EQ(((unsigned *)(base + note.offset))[7], 99);
    weft__heap_close(&note.handle);
}

CHILD_TEST(both_sides_see_writes)
{
    note_t note;
    int to, from, device;
    char byte;
    pid_t pid = start(reader_writer, &to, &from);
    unsigned *data;
    setenv("WEFT_DEVICE_MEMORY", "64M", 1);
    CHECK_EQ(weft_malloc((void **)&data, MIB), WEFT_OK);
    for (unsigned i = 0; i < MIB / 4; i++) {
        data[i] = i * 3;
    }
    CHECK(weft__heap_find(data, MIB, &device, &note.offset));
    CHECK_EQ(weft__heap_export(device, &note.handle), WEFT_OK);
    put(to, &note, sizeof(note));
    get(from, &byte, 1);
    for (unsigned i = 0; i < MIB / 4; i++) {
        CHECK_EQ(data[i], i * 5);
    }
    data[7] = 99;
    put(to, &byte, 1);
    CHECK_EQ(wait_child(pid), 0);
    CHECK_EQ(weft_free(data), WEFT_OK);
}

CHILD_TEST(own_memory_opens_as_itself)
{
    weft_heap_handle_t handle;
    char *base, *ptr;
    int device;
    uint64_t offset;
    setenv("WEFT_DEVICE_MEMORY", "64M", 1);
    CHECK_EQ(weft_device_set(3), WEFT_OK);
    CHECK_EQ(weft_malloc((void **)&ptr, 1000), WEFT_OK);
    CHECK(weft__heap_find(ptr, 1000, &device, &offset));
    CHECK_EQ(device, 3);
    CHECK_EQ(weft__heap_export(3, &handle), WEFT_OK);
    CHECK_EQ(handle.pid, getpid());
    CHECK(handle.id != 0);
    CHECK_EQ(weft__heap_open(&handle, &base), WEFT_OK);
    CHECK(base + offset == ptr);
    weft__heap_close(&handle);
    ptr[999] = 1; /* still there */
    handle.id ^= 1;
    CHECK_EQ(weft__heap_open(&handle, &base), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "no such device memory");
}

static void announce(int in, int out)
{
    weft_heap_handle_t handle;
    char byte;
    setenv("WEFT_DEVICE_MEMORY", "64M", 1);
    CHECK_EQ(weft__heap_export(0, &handle), WEFT_OK);
    put(out, &handle, sizeof(handle));
    CHECK_EQ(read(in, &byte, 1), 0); /* until the other side hangs up */
}

CHILD_TEST(memory_of_a_dead_process_is_refused)
{
    weft_heap_handle_t handle;
    int to, from;
    char *base = NULL, text[64];
    pid_t pid = start(announce, &to, &from);
    get(from, &handle, sizeof(handle));
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(wait_child(pid), 128 + SIGKILL);
    CHECK_EQ(weft__heap_open(&handle, &base), WEFT_ERR_SYSTEM);
    CHECK(base == NULL);
    snprintf(text, sizeof(text), "device memory of process %d", (int)pid);
    CHECK_TEXT(weft_last_error(), text);
    CHECK_TEXT(weft_last_error(), "it has ended");
}

CHILD_TEST(a_mapping_outlives_its_owner)
{
    weft_heap_handle_t handle;
    int to, from;
    char *base, *again;
    pid_t pid = start(announce, &to, &from);
    get(from, &handle, sizeof(handle));
    CHECK_EQ(weft__heap_open(&handle, &base), WEFT_OK);
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(wait_child(pid), 128 + SIGKILL);
    memset(base + 4096, 1, MIB);
    CHECK_EQ(base[4096], 1);
    CHECK_EQ(weft__heap_open(&handle, &again), WEFT_OK); /* known already */
    CHECK(again == base);
    weft__heap_close(&handle);
    weft__heap_close(&handle);
    CHECK(!is_mapped(base));
    weft__heap_close(&handle); /* once too often: nothing happens */
}

CHILD_TEST(something_else_behind_the_handle_is_refused)
{
    weft_heap_handle_t handle, wrong;
    int to, from;
    char *base;
    pid_t pid = start(announce, &to, &from);
    get(from, &handle, sizeof(handle));
    wrong = handle;
    wrong.id ^= 2;
    CHECK_EQ(weft__heap_open(&wrong, &base), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "other device memory");
    wrong = handle;
    wrong.bytes += 4096;
    CHECK_EQ(weft__heap_open(&wrong, &base), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "bytes expected");
    wrong = handle;
    wrong.fd = 0;
    CHECK_EQ(weft__heap_open(&wrong, &base), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "its descriptor 0 is");
    wrong.fd = 250;
    CHECK_EQ(weft__heap_open(&wrong, &base), WEFT_ERR_SYSTEM);
    wrong = handle;
    wrong.pid = -1;
    CHECK_EQ(weft__heap_open(&wrong, &base), WEFT_ERR_SYSTEM);
    CHECK_EQ(weft__heap_open(&handle, &base), WEFT_OK);
    weft__heap_close(&handle);
    close(to);
    CHECK_EQ(wait_child(pid), 0);
}

/* A file that ends before its header does, and is otherwise what it says. */
static void announce_cut(int in, int out)
{
    char byte;
    int fd = memfd_create("weft-device-cut", MFD_CLOEXEC);
    weft_heap_header_t header = {WEFT_HEAP_MAGIC, 7, sizeof(header) - 1};
    weft_heap_handle_t handle = {.id = 7, .bytes = header.bytes, .pid = getpid(), .fd = fd};
    put(fd, &header, sizeof(header) - 1);
    put(out, &handle, sizeof(handle));
    CHECK_EQ(read(in, &byte, 1), 0);
}

CHILD_TEST(memory_without_a_whole_header_is_refused)
{
    weft_heap_handle_t handle;
    int to, from;
    char *base;
    pid_t pid = start(announce_cut, &to, &from);
    get(from, &handle, sizeof(handle));
    CHECK_EQ(weft__heap_open(&handle, &base), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "other device memory");
    close(to);
    CHECK_EQ(wait_child(pid), 0);
}

static weft_heap_handle_t shared_handle;

static void *open_and_close(void *arg)
{
    char *base;
    (void)arg;
    for (int i = 0; i < 500; i++) {
        CHECK_EQ(weft__heap_open(&shared_handle, &base), WEFT_OK);
        CHECK_EQ(*(volatile uint64_t *)base != 0, 1);
        weft__heap_close(&shared_handle);
    }
    return NULL;
}

CHILD_TEST(threads_share_one_mapping)
{
    pthread_t threads[4];
    int to, from;
    pid_t pid = start(announce, &to, &from);
    get(from, &shared_handle, sizeof(shared_handle));
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    close(to);
    CHECK_EQ(wait_child(pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_see_writes),
        cmocka_unit_test(own_memory_opens_as_itself),
        cmocka_unit_test(memory_of_a_dead_process_is_refused),
        cmocka_unit_test(a_mapping_outlives_its_owner),
        cmocka_unit_test(something_else_behind_the_handle_is_refused),
        cmocka_unit_test(memory_without_a_whole_header_is_refused),
        cmocka_unit_test(threads_share_one_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
