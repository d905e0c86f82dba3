/* Copies: every size around every boundary, every alignment, both ways of storing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "kernel/kernel.h"
#include "kernel/reference.h"

static void check_copy(const weft_kernels_t *table, size_t bytes, size_t from_at, size_t to_at,
                       weft_store_t store)
{
    box_t from = box_create(bytes, from_at), to = box_create(bytes, to_at);
    reference_fill(from.data, bytes, WEFT_U8, bytes + from_at, 0);
    memset(to.data, 0xee, bytes);
    table->copy(to.data, from.data, bytes, store);
    if (memcmp(to.data, from.data, bytes) != 0 || !box_intact(&to) || !box_intact(&from)) {
        fail_msg("%s: %zu bytes from %zu to %zu, %s", table->name, bytes, from_at, to_at,
                 store == WEFT_STORE_STREAM ? "stream" : "cached");
    }
    box_destroy(&from);
    box_destroy(&to);
}

static void copy_every_small_size_and_alignment(void **state)
{
    (void)state;
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (size_t bytes = 0; bytes <= 700; bytes++) {
            for (size_t at = 0; at < 64; at += bytes < 300 ? 3 : 13) {
                check_copy(*table, bytes, at, (at * 5) % 64, WEFT_STORE_CACHED);
                check_copy(*table, bytes, (at * 7) % 64, at, WEFT_STORE_STREAM);
            }
        }
    }
}

static void copy_large_sizes(void **state)
{
    static const size_t sizes[] = {2047,
                                   2048,
                                   4096,
                                   16383,
                                   16384,
                                   65537,
                                   (256 << 10) - 1,
                                   256 << 10,
                                   (256 << 10) + 63,
                                   (300 << 10) + 17,
                                   (1 << 20) + 1};
    (void)state;
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (size_t at = 0; at < 64; at += 21) {
                check_copy(*table, sizes[i], at, 0, WEFT_STORE_CACHED);
                check_copy(*table, sizes[i], 0, at, WEFT_STORE_CACHED);
                check_copy(*table, sizes[i], at, 0, WEFT_STORE_STREAM);
                check_copy(*table, sizes[i], 0, at, WEFT_STORE_STREAM);
            }
        }
    }
}

static void copy_onto_itself_changes_nothing(void **state)
{
    static unsigned char data[300 << 10], before[300 << 10];
    (void)state;
    reference_fill(before, sizeof(before), WEFT_U8, 1, 0);
    memcpy(data, before, sizeof(data));
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        (*table)->copy(data, data, 5, WEFT_STORE_CACHED);
        (*table)->copy(data, data, sizeof(data), WEFT_STORE_CACHED);
        (*table)->copy(data, data, sizeof(data), WEFT_STORE_STREAM);
        assert_memory_equal(data, before, sizeof(data));
    }
}

/* Source and destination end, or begin, where memory does. */
static void copy_touches_nothing_outside_its_buffers(void **state)
{
    unsigned char *pages[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        pages[i] = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages[i] != MAP_FAILED);
        pages[i] += 4096;
        assert_int_equal(mprotect(pages[i], 2 * 4096, PROT_READ | PROT_WRITE), 0);
    }
    reference_fill(pages[0], 2 * 4096, WEFT_U8, 3, 0);
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (size_t bytes = 1; bytes <= 8192; bytes += bytes < 1100 ? 1 : 97) {
            for (int way = 0; way < 4; way++) {
                unsigned char *from = pages[0] + (way % 2 == 0 ? 0 : 8192 - bytes);
                unsigned char *to = pages[1] + (way / 2 == 0 ? 0 : 8192 - bytes);
                memset(to, 0, bytes);
                (*table)->copy(to, from, bytes, (weft_store_t)(bytes % 2));
                assert_memory_equal(to, from, bytes);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        munmap(pages[i] - 4096, 4 * 4096);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_every_small_size_and_alignment),
        cmocka_unit_test(copy_large_sizes),
        cmocka_unit_test(copy_onto_itself_changes_nothing),
        cmocka_unit_test(copy_touches_nothing_outside_its_buffers),
    };
    return cmocka_run_group_tests_name("kernel/copy", tests, NULL, NULL);
}
