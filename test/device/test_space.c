/* The offset allocator against a plain array of what must be true. */
#include "device/child.h"
#include "device/space.h"

#define SPACE 4096u
#define ROUNDS 200000

static uint64_t seed;

static uint64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return seed >> 33;
}

/* The size of the smallest run of free units that has `want`, and the start of the lowest such. */
static bool best_run(const unsigned char *units, unsigned want, unsigned *start_p)
{
    unsigned best = SPACE + 1;
    for (unsigned at = 0; at < SPACE;) {
        unsigned end = at;
        while (end < SPACE && units[end] == units[at] && units[at] == 0) {
            end++;
        }
        if (end - at >= want && end - at < best) {
            best = end - at;
            *start_p = at;
        }
        at = end > at ? end : at + 1;
    }
    return best <= SPACE;
}

static void random_calls_are_best_fit(void **state)
{
    (void)state;
    static unsigned char units[SPACE];
    static uint64_t live[SPACE];
    unsigned count = 0;
    weft_space_t space;
    seed = 7;
    weft__space_init(&space);
    assert_true(weft__space_add(&space, 0, SPACE));
    for (int i = 0; i < ROUNDS; i++) {
        if (next_random() % 2 == 0) {
            unsigned want = 1 + (unsigned)(next_random() % (next_random() % 8 == 0 ? 400 : 20));
            unsigned start = 0;
            bool fits = best_run(units, want, &start);
            weft_block_t *block = weft__space_alloc(&space, want);
            assert_int_equal(block != NULL, fits);
            if (fits) {
                assert_int_equal(block->offset, start);
                assert_int_equal(block->bytes, want);
                memset(units + start, 1, want);
                live[count++] = start;
            }
        } else if (count > 0) {
            unsigned pick = (unsigned)(next_random() % count);
            weft_block_t *block = weft__space_find(&space, live[pick]);
            assert_non_null(block);
            memset(units + block->offset, 0, block->bytes);
            weft_block_t *whole = weft__space_free(&space, block);
            assert_true(whole->offset == 0 || units[whole->offset - 1] == 1);
            assert_true(whole->offset + whole->bytes == SPACE ||
                        units[whole->offset + whole->bytes] == 1);
            assert_null(weft__space_find(&space, live[pick]));
            live[pick] = live[--count];
        }
        unsigned somewhere = (unsigned)(next_random() % SPACE);
        weft_block_t *around = weft__space_around(&space, somewhere);
        assert_int_equal(around != NULL, units[somewhere]);
        if (around != NULL) {
            assert_in_range(somewhere, around->offset, around->offset + around->bytes - 1);
            assert_int_not_equal(atomic_load(&around->serial), 0);
        }
    }
    while (count > 0) {
        weft__space_free(&space, weft__space_find(&space, live[--count]));
    }
    assert_int_equal(weft__space_largest(&space)->bytes, SPACE);
    assert_null(weft__space_smaller(&space, weft__space_largest(&space)));
    weft__space_cleanup(&space);
}

static void regions_do_not_merge(void **state)
{
    (void)state;
    weft_space_t space;
    weft__space_init(&space);
    assert_true(weft__space_add(&space, 0, 100));
    assert_true(weft__space_add(&space, 100, 100));
    assert_null(weft__space_alloc(&space, 101));
    weft_block_t *first = weft__space_alloc(&space, 100);
    weft_block_t *second = weft__space_alloc(&space, 100);
    assert_int_equal(first->offset, 0);
    assert_int_equal(second->offset, 100);
    weft__space_free(&space, first);
    second = weft__space_free(&space, second);
    assert_int_equal(second->bytes, 100);
    weft__space_remove(&space, second);
    assert_int_equal(weft__space_alloc(&space, 50)->offset, 0);
    assert_null(weft__space_alloc(&space, 51));
    weft__space_cleanup(&space);
}

static void free_blocks_come_by_size(void **state)
{
    (void)state;
    weft_space_t space;
    uint64_t last = UINT64_MAX;
    int count = 0;
    weft__space_init(&space);
    for (uint64_t i = 0; i < 500; i++) {
        assert_true(weft__space_add(&space, i * 1000, 1 + i * 7919 % 503));
    }
    for (weft_block_t *block = weft__space_largest(&space); block != NULL;
         block = weft__space_smaller(&space, block)) {
        assert_true(block->bytes <= last);
        last = block->bytes;
        count++;
    }
    assert_int_equal(count, 500);
    weft__space_cleanup(&space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_are_best_fit),
        cmocka_unit_test(regions_do_not_merge),
        cmocka_unit_test(free_blocks_come_by_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
