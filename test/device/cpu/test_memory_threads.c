/* Device memory used by many threads at once.
 * ctest: labels=tsan */
#include "device/child.h"

#include <pthread.h>
#include <stdatomic.h>

#include <weft/device.h>

#include "device/device.h"

#define THREADS 4
#define DEVICES 3
#define ROUNDS 3000
#define HELD 32

static atomic_bool bad;
static pthread_barrier_t start;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            atomic_store(&bad, true);                                                              \
        }                                                                                          \
    } while (0)

static void free_checked(unsigned char *ptr, size_t bytes, unsigned char fill)
{
    int device;
    uint64_t offset;
    EXPECT(weft__heap_find(ptr, bytes, &device, &offset));
    EXPECT(ptr[0] == fill && ptr[bytes / 2] == fill && ptr[bytes - 1] == fill);
    EXPECT(weft_free(ptr) == WEFT_OK);
}

/* Threads meet the devices in different orders, and each other in making them. */
static void *allocate_and_free(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg, random = me * 77u + 1;
    unsigned char *held[HELD] = {NULL};
    size_t sizes[HELD];
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned slot = i % HELD;
        random = random * 1664525u + 1013904223u;
        if (held[slot] != NULL) {
            free_checked(held[slot], sizes[slot], (unsigned char)(me * 16 + slot % 16));
        }
        sizes[slot] = 1 + (random >> 8) % (random % 50 == 0 ? 300000u : 5000u);
        EXPECT(weft_device_set((int)((i + me) % DEVICES)) == WEFT_OK);
        EXPECT(weft_malloc((void **)&held[slot], sizes[slot]) == WEFT_OK);
        memset(held[slot], (int)(me * 16 + slot % 16), sizes[slot]);
        if (i % 500 == 0) {
            EXPECT(weft_pool_trim((int)(random % DEVICES), 1 << 20) == WEFT_OK);
        }
    }
    for (unsigned slot = 0; slot < HELD; slot++) {
        free_checked(held[slot], sizes[slot], (unsigned char)(me * 16 + slot % 16));
    }
    return NULL;
}

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    pthread_barrier_destroy(&start);
    assert_false(atomic_load(&bad));
}

static void threads_allocate_and_free(void **state)
{
    (void)state;
    uint64_t allocs = 0;
    run_threads(allocate_and_free);
    for (int i = 0; i < DEVICES; i++) {
        weft_pool_stats_t stats;
        assert_int_equal(weft_pool_stats(i, &stats), WEFT_OK);
        assert_int_equal(stats.in_use, 0);
        assert_int_equal(stats.allocs, stats.frees);
        allocs += stats.allocs;
    }
    assert_int_equal(allocs, THREADS * ROUNDS);
}

/* What one thread allocates the next one frees. */
static _Atomic(void *) passed_on[THREADS];

static void *pass_on(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    pthread_barrier_wait(&start);
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *mine;
        EXPECT(weft_malloc(&mine, 64 + i % 1000) == WEFT_OK);
        memset(mine, (int)i, 64);
        EXPECT(weft_free(atomic_exchange(&passed_on[me], mine)) == WEFT_OK);
        EXPECT(weft_free(atomic_exchange(&passed_on[(me + 1) % THREADS], NULL)) == WEFT_OK);
    }
    return NULL;
}

static void threads_free_each_others_memory(void **state)
{
    (void)state;
    weft_pool_stats_t stats;
    run_threads(pass_on);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(weft_free(passed_on[i]), WEFT_OK);
    }
    assert_int_equal(weft_pool_stats(0, &stats), WEFT_OK);
    assert_int_equal(stats.in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_allocate_and_free),
        cmocka_unit_test(threads_free_each_others_memory),
    };
    setenv("WEFT_DEVICE_MEMORY", "256M", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
