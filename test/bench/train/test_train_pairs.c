/* ctest: timeout=300 slow plain */
/* Pairs of training: all ways run, agree and are told apart where they do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/train/train.h"
#include "comm/harness.h"

static const weft_train_pair_t *const pairs[] = {
    &weft__pair_dp_feed,     &weft__pair_dp_buckets,  &weft__pair_dp_overlap, &weft__pair_dp_sync,
    &weft__pair_dp_batch,    &weft__pair_pp_schedule, &weft__pair_tp_reduce,  &weft__pair_tp_gather,
    &weft__pair_tp_sequence, &weft__pair_zero,        &weft__pair_recompute,  &weft__pair_offload,
};
enum { PAIRS = sizeof(pairs) / sizeof(pairs[0]) };

static void measure(const weft_train_pair_t *pair, weft_comm_h comm, weft_pair_row_t *row)
{
    const weft_pair_plan_t plan = {.iters = 1, .least = 1, .most = 1, .check = true, .seed = 5};
    team_note("%s", pair->pair.target);
    CHECK_STATUS(weft__pair_measure(&plan, &pair->pair, comm, 0, row), WEFT_OK);
    for (int i = 0; i < weft__pair_ways(&pair->pair); i++) {
        CHECK_EQ(row->ways[i].repeats, 1);
        CHECK((row->held[i] > 0) == pair->memory);
    }
}

static void all_agree(team_t *team)
{
    weft_pair_row_t row;
    for (int i = 0; i < PAIRS; i++) {
        measure(pairs[i], team->comm, &row);
        CHECK_EQ(row.wrong, 0);
    }
}

/* Some take a part of the ranks, some all: 3 do as well. */
static void on_three(team_t *team)
{
    weft_pair_row_t row;
    measure(&weft__pair_pp_schedule, team->comm, &row);
    CHECK_EQ(row.wrong, 0);
    CHECK(row.held[1] < row.held[0]); /* 1f1b keeps fewer micro-batches than gpipe */
    measure(&weft__pair_zero, team->comm, &row);
    CHECK_EQ(row.wrong, 0);
    for (int i = 1; i < 4; i++) {
        CHECK(row.held[i] < row.held[i - 1]);
    }
}

static void on_one(team_t *team)
{
    weft_pair_row_t row;
    measure(&weft__pair_recompute, team->comm, &row);
    CHECK_EQ(row.wrong, 0);
    CHECK(row.held[1] < row.held[0] && row.held[2] < row.held[1]);
    measure(&weft__pair_offload, team->comm, &row);
    CHECK_EQ(row.wrong, 0);
    CHECK(row.held[1] < row.held[0]);
}

/* A way that trains otherwise is wrong in every step but the first, whose loss comes before the
 * update, on every rank and in both checks. */
static void other_numbers_are_found(team_t *team)
{
    weft_train_pair_t broken = weft__pair_dp_buckets;
    weft_pair_row_t row;
    broken.ways[1].options = "lr = 0.01\nmin-lr = 0.01";
    measure(&broken, team->comm, &row);
    CHECK_EQ(row.wrong, 2 * 2 * team->size);
}

/* Rounded gradients are near enough for the bound, and not the same bits. */
static void other_bits_are_found(team_t *team)
{
    weft_train_pair_t broken = weft__pair_dp_overlap;
    weft_pair_row_t row;
    broken.ways[1].options = "compress = bf16";
    measure(&broken, team->comm, &row);
    CHECK_EQ(row.wrong, 2 * 2 * team->size);
    broken.exact = false;
    measure(&broken, team->comm, &row);
    CHECK_EQ(row.wrong, 0);
}

#define CASE(name, count, threads, function)                                                       \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = (count),                                      \
                                            .procs = (threads) ? 1 : 0,                            \
                                            .limit_s = 100,                                        \
                                            .timeout_ms = 120000},                                 \
                             function));                                                           \
    }

CASE(all_ways_of_all_pairs_agree_on_4_ranks, 4, false, all_agree)
CASE(pairs_on_3_threads, 3, true, on_three)
CASE(pairs_on_1_rank, 1, false, on_one)
CASE(a_way_that_trains_otherwise_is_wrong, 2, false, other_numbers_are_found)
CASE(a_way_with_other_bits_is_wrong, 2, false, other_bits_are_found)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_of_all_pairs_agree_on_4_ranks),
        cmocka_unit_test(pairs_on_3_threads),
        cmocka_unit_test(pairs_on_1_rank),
        cmocka_unit_test(a_way_that_trains_otherwise_is_wrong),
        cmocka_unit_test(a_way_with_other_bits_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
