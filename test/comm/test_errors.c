/* ctest: timeout=120 tsan waits */
/* Ranks on virtual GPUs that disagree, leave, abort, or pass nonsense. */
#include <setjmp.h>

#include "comm/error_cases.h"

#include <cmocka.h>

static void run_teams(team_fn fn)
{
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 2}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 5}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 2}, fn));
    }
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

TEAM_TEST(different_calls_are_quoted_on_all_ranks, error_disputes)
TEAM_TEST(different_order_is_quoted, error_order)
TEAM_TEST(different_call_after_many_is_quoted, error_after_many)
TEAM_TEST(different_groups_are_quoted, error_groups)
TEAM_TEST(different_ragged_counts_are_quoted, error_ragged)
TEAM_TEST(different_messages_are_quoted, error_messages)
TEAM_TEST(rank_that_left_is_named, error_left)
TEAM_TEST(abort_ends_blocked_calls, error_abort)
TEAM_TEST(abort_comes_at_any_moment, error_abort_any_moment)
TEAM_TEST(rank_that_gives_up_tells_why_and_keeps_its_handle, error_break)
TEAM_TEST(wrong_arguments_change_nothing, error_arguments)
TEAM_TEST(interleaved_blocks_are_no_overlap, error_interleaved)

static void staging_without_memory_is_told(void **state)
{
    (void)state;
    assert_true(
        team_run(&(team_plan_t){.ranks = 3, .env = "WEFT_DEVICE_MEMORY=256K"}, error_no_memory));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_calls_are_quoted_on_all_ranks),
        cmocka_unit_test(different_order_is_quoted),
        cmocka_unit_test(different_call_after_many_is_quoted),
        cmocka_unit_test(different_groups_are_quoted),
        cmocka_unit_test(different_ragged_counts_are_quoted),
        cmocka_unit_test(different_messages_are_quoted),
        cmocka_unit_test(rank_that_left_is_named),
        cmocka_unit_test(abort_ends_blocked_calls),
        cmocka_unit_test(abort_comes_at_any_moment),
        cmocka_unit_test(rank_that_gives_up_tells_why_and_keeps_its_handle),
        cmocka_unit_test(wrong_arguments_change_nothing),
        cmocka_unit_test(interleaved_blocks_are_no_overlap),
        cmocka_unit_test(staging_without_memory_is_told),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
