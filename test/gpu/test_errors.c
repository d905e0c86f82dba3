/* ctest: timeout=180 serial */
/* Ranks on GPUs that disagree, leave, abort, or pass nonsense. After each of these the device
 * works: the next one makes its communicator on it. */
#include <setjmp.h>

#include "comm/error_cases.h"
#include "gpu/gpu.h"

#include <cmocka.h>

static const team_fn all[] = {error_disputes,
                              error_order,
                              error_after_many,
                              error_groups,
                              error_ragged,
                              error_messages,
                              error_left,
                              error_abort,
                              error_abort_any_moment,
                              error_break,
                              error_arguments,
                              error_interleaved,
                              NULL};

#define THREAD_TEST(name, fn)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, fn));                         \
    }

THREAD_TEST(different_calls_are_quoted_on_all_ranks, error_disputes)
THREAD_TEST(different_order_is_quoted, error_order)
THREAD_TEST(different_call_after_many_is_quoted, error_after_many)
THREAD_TEST(different_groups_are_quoted, error_groups)
THREAD_TEST(different_ragged_counts_are_quoted, error_ragged)
THREAD_TEST(different_messages_are_quoted, error_messages)
THREAD_TEST(rank_that_left_is_named, error_left)
THREAD_TEST(abort_ends_blocked_calls, error_abort)
THREAD_TEST(abort_comes_at_any_moment, error_abort_any_moment)
THREAD_TEST(rank_that_gives_up_tells_why_and_keeps_its_handle, error_break)
THREAD_TEST(wrong_arguments_change_nothing, error_arguments)
THREAD_TEST(interleaved_blocks_are_no_overlap, error_interleaved)

static void all_of_it_with_processes(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .limit_s = 60, .arg = all}, gpu_in_a_row));
    assert_true(team_run(&(team_plan_t){.ranks = 5, .limit_s = 60, .arg = all}, gpu_in_a_row));
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
        cmocka_unit_test(all_of_it_with_processes),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
