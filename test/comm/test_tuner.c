/* Which algorithm small calls get: up to a size that was measured for each collective and number of
 * ranks, the data travels with the flag. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/tuner.h"

/* Of all ranks' counts, those at which a limit changes. */
typedef struct limits {
    weft_coll_t coll;
    size_t most[6]; /* bytes of a rank's whole source, for 2, 3, 4, 5, 8 and 9 ranks */
} limits_t;

static const int sizes[] = {2, 3, 4, 5, 8, 9};
static const limits_t limits[] = {
    {WEFT_COLL_ALLREDUCE, {512, 256, 256, 64, 64, 64}},
    {WEFT_COLL_REDUCE, {1024, 256, 256, 64, 64, 64}},
    {WEFT_COLL_REDUCE_SCATTER, {1024, 512, 512, 512, 512, 256}},
    {WEFT_COLL_ALLGATHER, {512, 256, 256, 256, 256, 256}},
    {WEFT_COLL_GATHER, {512, 256, 256, 256, 256, 256}},
    {WEFT_COLL_BROADCAST, {1024, 2048, 2048, 2048, 2048, 2048}},
    {WEFT_COLL_SCATTER, {1024, 2048, 2048, 2048, 2048, 2048}},
    {WEFT_COLL_ALLTOALL, {1024, 2048, 2048, 2048, 2048, 2048}},
};

static weft_algo_t choice(const weft_tuner_t *tuner, weft_coll_t coll, size_t bytes)
{
    return weft__tuner_choose(tuner, coll, bytes).algo;
}

static void limits_are_those_measured(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        for (int s = 0; s < 6; s++) {
            weft_coll_t coll = limits[i].coll;
            weft_tuner_t tuner = {.size = sizes[s], .cache = (size_t)2 << 20};
            size_t blocks = weft__coll_info[coll].src_blocks == 'S' ? (size_t)sizes[s] : 1;
            size_t most = limits[i].most[s] / blocks;
            assert_int_equal(choice(&tuner, coll, most), WEFT_ALGO_ONESHOT);
            assert_int_equal(choice(&tuner, coll, most + 1), WEFT_ALGO_DIRECT);
        }
    }
}

static void crowded_ranks_spare_an_exchange(void **state)
{
    weft_tuner_t tuner = {.size = 8, .oversubscribed = true, .cache = (size_t)2 << 20};
    (void)state;
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLREDUCE, 4096), WEFT_ALGO_ONESHOT);
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLREDUCE, 4097), WEFT_ALGO_DIRECT);
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLTOALLV, 0), WEFT_ALGO_DIRECT);
}

static void a_setting_comes_before_the_table(void **state)
{
    weft_tuner_t tuner = {.size = 3, .oneshot_max = 10000, .cache = (size_t)2 << 20};
    (void)state;
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLREDUCE, 10000), WEFT_ALGO_ONESHOT);
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLREDUCE, 10001), WEFT_ALGO_DIRECT);
    tuner.oneshot_max = 2 * WEFT_SLOT_BYTES;
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLREDUCE, WEFT_SLOT_BYTES), WEFT_ALGO_ONESHOT);
    assert_int_equal(choice(&tuner, WEFT_COLL_ALLREDUCE, WEFT_SLOT_BYTES + 1), WEFT_ALGO_DIRECT);
}

static bool streams(int ranks, int caches, weft_coll_t coll, size_t bytes)
{
    weft_tuner_t tuner = {.size = ranks,
                          .cache = (size_t)2 << 20,
                          .last_cache = (size_t)32 << 20,
                          .last_caches = caches};
    return weft__tuner_choose(&tuner, coll, bytes).store == WEFT_STORE_STREAM;
}

/* While the buffers of all ranks fit into the last-level caches that they share, stores go through
 * them. */
static void stores_bypass_caches_that_are_too_small(void **state)
{
    const size_t mib = (size_t)1 << 20;
    (void)state;
    assert_false(streams(2, 1, WEFT_COLL_ALLREDUCE, mib));
    assert_false(streams(2, 1, WEFT_COLL_ALLREDUCE, 8 * mib)); /* 2 ranks x 2 buffers: 32 MiB */
    assert_true(streams(2, 1, WEFT_COLL_ALLREDUCE, 8 * mib + 128));
    assert_false(streams(2, 2, WEFT_COLL_ALLREDUCE, 16 * mib));
    assert_true(streams(2, 8, WEFT_COLL_ALLREDUCE, 17 * mib)); /* two ranks use two of eight */
    assert_false(streams(4, 1, WEFT_COLL_BROADCAST, 6 * mib)); /* a source, four destinations */
    assert_true(streams(4, 1, WEFT_COLL_BROADCAST, 7 * mib));
    assert_false(streams(8, 1, WEFT_COLL_ALLREDUCE, 2 * mib));
    /* Many ranks on a cache, or one that is not known: what a core's own holds counts. */
    assert_true(streams(16, 1, WEFT_COLL_ALLREDUCE, mib));
    assert_false(streams(16, 1, WEFT_COLL_ALLREDUCE, mib - 128));
    assert_false(streams(16, 2, WEFT_COLL_ALLREDUCE, mib));
    assert_true(streams(2, 0, WEFT_COLL_ALLREDUCE, mib));
    assert_false(streams(2, 0, WEFT_COLL_BROADCAST, mib));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_those_measured),
        cmocka_unit_test(crowded_ranks_spare_an_exchange),
        cmocka_unit_test(a_setting_comes_before_the_table),
        cmocka_unit_test(stores_bypass_caches_that_are_too_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
