/* ctest: timeout=60 tsan */
/* Collectives on streams of virtual GPUs. */
#include <setjmp.h>

#include "comm/stream_cases.h"

#include <cmocka.h>

static void run_teams(team_fn fn)
{
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 2}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 4}, fn));
    }
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1, .all = true}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

TEAM_TEST(calls_on_a_stream_run_in_order, stream_row)
TEAM_TEST(all_but_one_run_far_ahead, stream_ahead)
TEAM_TEST(group_waits_for_the_stream_before, stream_then_group)
TEAM_TEST(call_on_a_stream_returns_when_queued, stream_queues)
TEAM_TEST(order_holds_across_streams, stream_order)
TEAM_TEST(comms_on_two_streams_overlap, stream_comms)
TEAM_TEST(events_tie_compute_and_communication, stream_overlap)
TEAM_TEST(messages_travel_on_streams, stream_messages)
TEAM_TEST(alltoallv_copies_its_counts, stream_vectors)
TEAM_TEST(destroy_finishes_queued_calls, stream_destroy)
TEAM_TEST(synchronize_tells_the_error, stream_errors)
TEAM_TEST(synchronize_tells_the_error_of_the_first_of_many, stream_many)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_on_a_stream_run_in_order),
        cmocka_unit_test(all_but_one_run_far_ahead),
        cmocka_unit_test(group_waits_for_the_stream_before),
        cmocka_unit_test(call_on_a_stream_returns_when_queued),
        cmocka_unit_test(order_holds_across_streams),
        cmocka_unit_test(comms_on_two_streams_overlap),
        cmocka_unit_test(events_tie_compute_and_communication),
        cmocka_unit_test(messages_travel_on_streams),
        cmocka_unit_test(alltoallv_copies_its_counts),
        cmocka_unit_test(destroy_finishes_queued_calls),
        cmocka_unit_test(synchronize_tells_the_error),
        cmocka_unit_test(synchronize_tells_the_error_of_the_first_of_many),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
