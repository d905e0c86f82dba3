/* The memory pool on heaps of its own: random calls against a shadow, statistics against what the
 * system says about the file. */
#include "device/child.h"
#include "device/cpu/pool.h"

#include <signal.h>
#include <sys/time.h>

#define MIB (UINT64_C(1) << 20)
#define LIVE_MOST 400

typedef struct piece {
    unsigned char *ptr;
    size_t bytes;   /* as asked for */
    uint64_t taken; /* after rounding */
    unsigned char fill;
} piece_t;

typedef struct bench {
    weft_heap_t heap;
    weft_pool_t pool;
    piece_t live[LIVE_MOST];
    int count;
    uint64_t in_use, peak, allocs, frees;
} bench_t;

static uint64_t seed;

static uint64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return seed >> 33;
}

static void bench_start(bench_t *bench, uint64_t capacity, uint64_t keep)
{
    memset(bench, 0, sizeof(*bench));
    assert_int_equal(weft__heap_create(0, capacity, &bench->heap), WEFT_OK);
    assert_int_equal(weft__pool_init(&bench->pool, &bench->heap, keep), WEFT_OK);
}

static void bench_stop(bench_t *bench)
{
    weft__pool_cleanup(&bench->pool);
    weft__heap_destroy(&bench->heap);
}

static void check_stats(bench_t *bench)
{
    weft_pool_stats_t stats;
    weft__pool_stats(&bench->pool, &stats);
    assert_int_equal(stats.capacity, bench->heap.bytes - bench->heap.page);
    assert_int_equal(stats.in_use, bench->in_use);
    assert_int_equal(stats.in_use_peak, bench->peak);
    assert_int_equal(stats.allocs, bench->allocs);
    assert_int_equal(stats.frees, bench->frees);
    assert_true(stats.reserved >= stats.in_use);
    assert_true(stats.reused <= stats.allocs);
    /* The header is the one page that the pool does not count. */
    assert_int_equal(file_memory(bench->heap.fd), stats.reserved + bench->heap.page);
}

static bool bench_alloc(bench_t *bench, size_t bytes)
{
    weft_shortage_t shortage;
    piece_t *piece = &bench->live[bench->count];
    uint64_t unit = bytes < WEFT_POOL_LARGE ? WEFT_POOL_GRANULE : bench->heap.page;
    void *ptr;
    if (weft__pool_alloc(&bench->pool, bytes, &ptr, &shortage) != WEFT_OK) {
        assert_int_equal(shortage.kind, WEFT_SHORT_DEVICE);
        return false;
    }
    piece->ptr = ptr;
    piece->bytes = bytes;
    piece->taken = ((bytes == 0 ? 1 : bytes) + unit - 1) / unit * unit;
    piece->fill = (unsigned char)next_random();
    assert_int_equal((uintptr_t)ptr % unit, 0);
    assert_true(piece->ptr >= (unsigned char *)bench->heap.base + bench->heap.page);
    assert_true(piece->ptr + bytes <= (unsigned char *)bench->heap.base + bench->heap.bytes);
    for (int i = 0; i < bench->count; i++) {
        piece_t *other = &bench->live[i];
        assert_true(piece->ptr + piece->taken <= other->ptr ||
                    other->ptr + other->taken <= piece->ptr);
    }
    memset(ptr, piece->fill, bytes);
    bench->count++;
    bench->allocs++;
    bench->in_use += piece->taken;
    bench->peak = bench->in_use > bench->peak ? bench->in_use : bench->peak;
    return true;
}

static void bench_free(bench_t *bench, int which)
{
    piece_t *piece = &bench->live[which];
    for (size_t i = 0; i < piece->bytes; i++) {
        if (piece->ptr[i] != piece->fill) {
            fail_msg("byte %zu of %zu changed", i, piece->bytes);
        }
    }
    uint64_t offset = (uint64_t)((char *)piece->ptr - bench->heap.base);
    assert_int_equal(weft__pool_free(&bench->pool, offset), WEFT_OK);
    bench->in_use -= piece->taken;
    bench->frees++;
    *piece = bench->live[--bench->count];
}

static size_t random_size(void)
{
    switch (next_random() % 8) {
    case 0:
        return (size_t)(next_random() % (2 * MIB));
    case 1:
    case 2:
        return (size_t)(next_random() % 100000); /* around the border of small and large */
    default:
        return (size_t)(next_random() % 3000);
    }
}

static void stress(uint64_t keep)
{
    static bench_t bench;
    int failed = 0;
    seed = 1 + keep;
    bench_start(&bench, 24 * MIB, keep);
    for (int i = 0; i < 8000; i++) {
        bool grow = next_random() % 1000 < (unsigned)(i / 1000 % 2 == 0 ? 600 : 400);
        if (grow && bench.count < LIVE_MOST) {
            failed += !bench_alloc(&bench, random_size());
        } else if (bench.count > 0) {
            bench_free(&bench, (int)(next_random() % (unsigned)bench.count));
        }
        if (i % 16 == 0) {
            check_stats(&bench);
        }
    }
    assert_true(failed > 0); /* it was full at times */
    while (bench.count > 0) {
        bench_free(&bench, bench.count - 1);
    }
    check_stats(&bench);
    assert_true(bench.heap.reserved <= keep);
    weft__pool_trim(&bench.pool, 0);
    check_stats(&bench);
    assert_int_equal(bench.heap.reserved, 0);
    assert_true(bench_alloc(&bench, 24 * MIB)); /* all of it is in one piece again */
    check_stats(&bench);
    bench_stop(&bench);
}

static void random_calls_keeping_nothing(void **state)
{
    (void)state;
    stress(0);
}

static void random_calls_keeping_some(void **state)
{
    (void)state;
    stress(3 * MIB);
}

static void random_calls_keeping_all(void **state)
{
    (void)state;
    stress(24 * MIB);
}

static void freed_memory_is_kept_then_given_back(void **state)
{
    (void)state;
    static bench_t bench;
    weft_pool_stats_t stats;
    bench_start(&bench, 64 * MIB, 8 * MIB);
    assert_true(bench_alloc(&bench, 16 * MIB));
    void *first = bench.live[0].ptr;
    bench_free(&bench, 0);
    check_stats(&bench);
    assert_int_equal(bench.heap.reserved, 8 * MIB);
    assert_true(bench_alloc(&bench, 8 * MIB));
    assert_ptr_equal(bench.live[0].ptr, first);
    weft__pool_stats(&bench.pool, &stats);
    assert_int_equal(stats.reused, 1);
    assert_int_equal(stats.reserved, 8 * MIB);
    bench_free(&bench, 0);
    assert_int_equal(weft__pool_trim(&bench.pool, 5 * MIB), 3 * MIB);
    check_stats(&bench);
    assert_int_equal(bench.heap.reserved, 5 * MIB);
    assert_int_equal(weft__pool_trim(&bench.pool, 5 * MIB), 0);
    bench_stop(&bench);
}

static void a_pool_that_keeps_nothing_takes_no_page_ahead(void **state)
{
    (void)state;
    static bench_t bench;
    weft_pool_stats_t stats;
    bench_start(&bench, 64 * MIB, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(bench_alloc(&bench, MIB + 1));
        weft__pool_stats(&bench.pool, &stats);
        assert_int_equal(stats.reserved, stats.in_use);
        check_stats(&bench);
    }
    bench_stop(&bench);
}

static void memory_given_back_reads_as_zero(void **state)
{
    (void)state;
    static bench_t bench;
    bench_start(&bench, 4 * MIB, 0);
    seed = 3;
    assert_true(bench_alloc(&bench, MIB));
    bench_free(&bench, 0);
    assert_true(bench_alloc(&bench, 0));
    bench.live[0].bytes = 0;
    for (size_t i = 0; i < MIB; i++) {
        assert_int_equal(bench.heap.base[bench.heap.page + i], 0);
    }
    bench_stop(&bench);
}

static void many_small_ones_share_pages(void **state)
{
    (void)state;
    static bench_t bench;
    weft_pool_stats_t stats;
    bench_start(&bench, 1024 * MIB, 64 * MIB);
    for (int i = 0; i < LIVE_MOST; i++) {
        assert_true(bench_alloc(&bench, 1));
    }
    check_stats(&bench);
    weft__pool_stats(&bench.pool, &stats);
    assert_int_equal(stats.in_use, LIVE_MOST * WEFT_POOL_GRANULE);
    assert_int_equal(stats.reused, LIVE_MOST - 1); /* one look at the machine for all of them */
    assert_true(stats.reserved <= 2 * MIB);
    bench_stop(&bench);
}

static void what_is_not_in_use_is_not_freed(void **state)
{
    (void)state;
    static bench_t bench;
    bench_start(&bench, 4 * MIB, 0);
    assert_true(bench_alloc(&bench, 100));
    assert_true(bench_alloc(&bench, 100));
    uint64_t offset = (uint64_t)((char *)bench.live[0].ptr - bench.heap.base);
    assert_int_equal(weft__pool_free(&bench.pool, offset + 1), WEFT_ERR_INVALID);
    assert_int_equal(weft__pool_free(&bench.pool, offset + 512), WEFT_ERR_INVALID);
    assert_int_equal(weft__pool_free(&bench.pool, 0), WEFT_ERR_INVALID);
    bench_free(&bench, 0);
    /* A region still starts there, but it is not the caller's. */
    assert_int_equal(weft__pool_free(&bench.pool, offset), WEFT_ERR_INVALID);
    check_stats(&bench);
    bench_stop(&bench);
}

static void full_to_the_last_byte(void **state)
{
    (void)state;
    static bench_t bench;
    bench_start(&bench, 256 * 1024, 0);
    while (bench_alloc(&bench, 1024)) {
        assert_true(bench.count < LIVE_MOST);
    }
    assert_int_equal(bench.in_use, 256 * 1024);
    assert_false(bench_alloc(&bench, 0));
    assert_false(bench_alloc(&bench, SIZE_MAX));
    assert_false(bench_alloc(&bench, (size_t)1 << 63));
    bench_free(&bench, 17);
    assert_true(bench_alloc(&bench, 1024));
    check_stats(&bench);
    bench_stop(&bench);
}

/* ---- signals ---------------------------------------------------------------------------- */

static volatile sig_atomic_t ticks;

static void tick(int signal)
{
    (void)signal;
    ticks++;
}

static void pages_are_made_under_a_storm_of_signals(void **state)
{
    (void)state;
    static bench_t bench;
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = tick}, old;
    bench_start(&bench, 256 * MIB, 0);
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    weft_shortage_t shortage;
    void *ptr;
    weft_status_t status = weft__pool_alloc(&bench.pool, 256 * MIB, &ptr, &shortage);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(status, WEFT_OK);
    assert_true(ticks > 0);
    assert_int_equal(file_memory(bench.heap.fd), bench.heap.bytes);
    bench_stop(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_keeping_nothing),
        cmocka_unit_test(random_calls_keeping_some),
        cmocka_unit_test(random_calls_keeping_all),
        cmocka_unit_test(freed_memory_is_kept_then_given_back),
        cmocka_unit_test(a_pool_that_keeps_nothing_takes_no_page_ahead),
        cmocka_unit_test(memory_given_back_reads_as_zero),
        cmocka_unit_test(many_small_ones_share_pages),
        cmocka_unit_test(what_is_not_in_use_is_not_freed),
        cmocka_unit_test(full_to_the_last_byte),
        cmocka_unit_test(pages_are_made_under_a_storm_of_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
