/* ctest: timeout=120 tsan */
/* Groups on virtual GPUs. */
#include <setjmp.h>

#include "comm/group_cases.h"

#include <cmocka.h>

/* As processes, as threads and mixed; only threads where races are looked for. */
static void run_teams(team_fn fn)
{
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 2}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 5}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 2}, fn));
    }
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1, .all = true}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 1}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

#define BARE_TEST(name, n, fn)                                                                     \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = n, .bare = true}, fn));                       \
    }

TEAM_TEST(group_of_100_mixed_calls, group_mixed)
TEAM_TEST(group_of_300_allreduces, group_fused)
TEAM_TEST(pieces_of_all_types, group_pieces)
TEAM_TEST(messages_of_all_pairs_in_any_order, group_messages)
TEAM_TEST(ring_exchange_of_large_messages, group_ring)
TEAM_TEST(send_to_self, group_self)
TEAM_TEST(groups_nest, group_nested)
TEAM_TEST(refused_call_runs_nothing, group_refused)
TEAM_TEST(comm_destroyed_inside_group, group_destroyed)
TEAM_TEST(batch_on_different_streams, group_streams)
BARE_TEST(two_processes_join_three_each, 2, group_joined_by_two)
BARE_TEST(refused_join_joins_nobody, 1, group_join_refused)

/* Fused calls hold something else where others have a root. */
static void groups_by_every_algorithm(void **state)
{
    (void)state;
    static const char *const algorithms[] = {"oneshot", "direct", "ring", "tree", "doubling"};
    for (int i = 0; i < 5 && !UNDER_TSAN;
         i++) { /* the algorithms themselves are tried there elsewhere */
        for (int ranks = 2; ranks <= 5; ranks += 3) {
            team_plan_t plan = {.ranks = ranks, .algo = algorithms[i]};
            assert_true(team_run(&plan, group_fused));
            assert_true(team_run(&plan, group_pieces));
        }
    }
}

static void drive(int ranks, team_fn fn)
{
    assert_true(team_run(&(team_plan_t){.ranks = 1, .bare = true, .arg = &ranks}, fn));
}

static void one_thread_drives_init_all(void **state)
{
    (void)state;
    drive(6, group_driven);
    drive(3, group_driven);
}

static void one_thread_joins_all_ranks(void **state)
{
    (void)state;
    drive(6, group_joined);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_of_100_mixed_calls),
        cmocka_unit_test(group_of_300_allreduces),
        cmocka_unit_test(pieces_of_all_types),
        cmocka_unit_test(groups_by_every_algorithm),
        cmocka_unit_test(messages_of_all_pairs_in_any_order),
        cmocka_unit_test(ring_exchange_of_large_messages),
        cmocka_unit_test(send_to_self),
        cmocka_unit_test(groups_nest),
        cmocka_unit_test(refused_call_runs_nothing),
        cmocka_unit_test(comm_destroyed_inside_group),
        cmocka_unit_test(batch_on_different_streams),
        cmocka_unit_test(one_thread_drives_init_all),
        cmocka_unit_test(one_thread_joins_all_ranks),
        cmocka_unit_test(two_processes_join_three_each),
        cmocka_unit_test(refused_join_joins_nobody),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
