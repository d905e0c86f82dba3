/* The symmetric allocator against a plain array of what must be true, and against itself: two
 * arenas that get the same calls hand out the same offsets. */
#include "device/child.h"
#include "symm/arena.h"

#define GRANULES 4096u
#define ROUNDS 60000

static uint64_t seed;

static uint64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return seed >> 33;
}

static unsigned char taken[GRANULES];

/* Is there a free run of `want` granules that starts at a multiple of `align` granules? */
static bool some_run_fits(unsigned want, unsigned align)
{
    for (unsigned at = 0; at + want <= GRANULES; at += align) {
        unsigned n = 0;
        while (n < want && taken[at + n] == 0) {
            n++;
        }
        if (n == want) {
            return true;
        }
    }
    return false;
}

static unsigned largest_run(void)
{
    unsigned most = 0, run = 0;
    for (unsigned at = 0; at < GRANULES; at++) {
        run = taken[at] ? 0 : run + 1;
        most = run > most ? run : most;
    }
    return most;
}

static void mark(uint64_t offset, uint64_t bytes, unsigned char from, unsigned char to)
{
    for (uint64_t g = 0; g < bytes / WEFT_ARENA_GRANULE; g++) {
        assert_int_equal(taken[offset / WEFT_ARENA_GRANULE + g], from);
        taken[offset / WEFT_ARENA_GRANULE + g] = to;
    }
}

static uint64_t alloc_checked(weft_arena_t *arenas)
{
    uint64_t bytes = next_random() % (next_random() % 8 == 0 ? 9000 : 700);
    uint64_t align = UINT64_C(1) << (next_random() % 13);
    unsigned granules = align <= WEFT_ARENA_GRANULE ? 1 : (unsigned)(align / WEFT_ARENA_GRANULE);
    bool fits = some_run_fits((unsigned)(weft__arena_need(bytes) / WEFT_ARENA_GRANULE), granules);
    uint64_t offset = weft__arena_alloc(&arenas[0], bytes, align);
    assert_int_equal(offset, weft__arena_alloc(&arenas[1], bytes, align));
    assert_int_equal(offset != WEFT_ARENA_NONE, fits);
    if (fits) {
        assert_int_equal(offset % align, 0);
        assert_int_equal(weft__arena_size(&arenas[0], offset), weft__arena_need(bytes));
        mark(offset, weft__arena_need(bytes), 0, 1);
    }
    return offset;
}

static void resize_checked(weft_arena_t *arenas, uint64_t offset)
{
    uint64_t bytes = next_random() % 1500;
    uint64_t old = weft__arena_size(&arenas[0], offset), need = weft__arena_need(bytes);
    mark(offset, old, 1, 2);
    bool fits = need <= old;
    if (!fits) {
        uint64_t at = (offset + old) / WEFT_ARENA_GRANULE;
        uint64_t end = (offset + need) / WEFT_ARENA_GRANULE;
        while (at < end && at < GRANULES && taken[at] == 0) {
            at++;
        }
        fits = at == end;
    }
    assert_int_equal(weft__arena_resize(&arenas[0], offset, bytes), fits);
    assert_int_equal(weft__arena_resize(&arenas[1], offset, bytes), fits);
    mark(offset, old, 2, 0);
    mark(offset, weft__arena_size(&arenas[0], offset), 0, 1);
    assert_int_equal(weft__arena_size(&arenas[0], offset), fits ? need : old);
}

static void random_calls_fit_exactly_and_alike(void **state)
{
    (void)state;
    static uint64_t live[GRANULES];
    weft_arena_t arenas[2];
    unsigned count = 0;
    seed = 11;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft__arena_init(&arenas[i], GRANULES * WEFT_ARENA_GRANULE + 63), WEFT_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        unsigned what = (unsigned)(next_random() % 5);
        unsigned pick = count > 0 ? (unsigned)(next_random() % count) : 0;
        if (what < 2 || count == 0) {
            uint64_t offset = alloc_checked(arenas);
            if (offset != WEFT_ARENA_NONE) {
                live[count++] = offset;
            }
        } else if (what == 2) {
            resize_checked(arenas, live[pick]);
        } else {
            mark(live[pick], weft__arena_size(&arenas[0], live[pick]), 1, 0);
            assert_true(weft__arena_free(&arenas[0], live[pick]));
            assert_true(weft__arena_free(&arenas[1], live[pick]));
            live[pick] = live[--count];
        }
        if (round % 100 == 0) {
            assert_int_equal(weft__arena_largest(&arenas[0]), largest_run() * WEFT_ARENA_GRANULE);
            assert_int_equal(arenas[0].count, count);
        }
    }
    while (count > 0) {
        assert_true(weft__arena_free(&arenas[0], live[--count]));
    }
    assert_int_equal(arenas[0].used, 0);
    assert_int_equal(weft__arena_largest(&arenas[0]), GRANULES * WEFT_ARENA_GRANULE);
    weft__arena_cleanup(&arenas[0]);
    weft__arena_cleanup(&arenas[1]);
}

static void what_is_not_an_allocation_is_refused(void **state)
{
    (void)state;
    weft_arena_t arena;
    assert_int_equal(weft__arena_init(&arena, 4096), WEFT_OK);
    uint64_t a = weft__arena_alloc(&arena, 100, 8);
    assert_int_equal(a, 0);
    assert_false(weft__arena_free(&arena, 64));
    assert_false(weft__arena_resize(&arena, 64, 10));
    assert_int_equal(weft__arena_size(&arena, 64), 0);
    assert_true(weft__arena_free(&arena, a));
    assert_false(weft__arena_free(&arena, a));
    assert_true(weft__arena_alloc(&arena, UINT64_MAX - 3, 8) == WEFT_ARENA_NONE);
    assert_true(weft__arena_alloc(&arena, 4097, 8) == WEFT_ARENA_NONE);
    weft__arena_cleanup(&arena);
    assert_int_equal(weft__arena_init(&arena, 10), WEFT_OK);
    assert_true(weft__arena_alloc(&arena, 1, 8) == WEFT_ARENA_NONE);
    assert_int_equal(weft__arena_largest(&arena), 0);
    weft__arena_cleanup(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_fit_exactly_and_alike),
        cmocka_unit_test(what_is_not_an_allocation_is_refused),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
