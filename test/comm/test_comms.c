/* ctest: timeout=120 */
/* Making, splitting and destroying communicators on virtual GPUs. */
#include <setjmp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/comm_cases.h"

#include <cmocka.h>

static void run_teams(team_fn fn)
{
    assert_true(team_run(&(team_plan_t){.ranks = 8}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 3}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 2}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 6, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 1}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){__VA_ARGS__}, fn));                                    \
    }

TEAM_TEST(split_in_many_colours_at_once, comm_colours)
TEAM_TEST(split_with_negative_colour, comm_negative_colour)
TEAM_TEST(split_orders_by_key, comm_keys)
TEAM_TEST(split_a_split_comm, comm_split_of_split)
TEAM_TEST(split_has_its_own_configuration, comm_split_config)
TEAM_TEST(destroyed_comm_is_refused, comm_destroyed)
TEAM_TEST(destroy_is_not_collective, comm_leaving)
PLAN_TEST(two_hundred_comms_of_processes, comm_growth, .ranks = 4, .limit_s = 60)
PLAN_TEST(two_hundred_comms_of_init_all, comm_growth_all, .ranks = 1, .bare = true, .limit_s = 60)
TEAM_TEST(calls_go_on_while_comms_come_and_go, comm_busy)
PLAN_TEST(eight_ranks_take_little_memory, comm_memory, .ranks = 8)
PLAN_TEST(wrong_arguments_are_refused, comm_arguments, .ranks = 1, .bare = true)
PLAN_TEST(duplicate_rank_is_refused, comm_duplicate, .ranks = 3, .bare = true)
PLAN_TEST(duplicate_rank_of_threads_is_refused, comm_duplicate, .ranks = 3, .procs = 1,
          .bare = true)
PLAN_TEST(second_rank_0_is_refused_at_once, comm_duplicate_first, .ranks = 3, .bare = true)
PLAN_TEST(second_rank_0_of_threads_is_refused_at_once, comm_duplicate_first, .ranks = 3, .procs = 1,
          .bare = true)
PLAN_TEST(rank_0_may_try_again, comm_first_again, .ranks = 2, .bare = true)
/* Let this process open nothing more, or as much as before. */
static void close_the_door(bool closed)
{
    static struct rlimit usual;
    struct rlimit none;
    if (!closed) {
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
        return;
    }
    int next = dup(0);
    CHECK(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &usual) == 0);
    none = usual;
    none.rlim_cur = (rlim_t)next;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void without_descriptors(team_t *team)
{
    weft_comm_h comm = NULL, child = NULL;
    void *memory;
    CHECK_OK(weft_malloc(&memory, 8)); /* the device has its own already */
    if (team->rank == 0) {
        close_the_door(true);
        CHECK_STATUS(weft_comm_init_all(&comm, 1, NULL), WEFT_ERR_SYSTEM);
        CHECK(comm == NULL);
        CHECK_TEXT(weft_last_error(), "Too many open files");
    }
    CHECK(weft_comm_split(team->comm, 0, team->rank, &child, NULL) != WEFT_OK && child == NULL);
    if (team->rank == 0) {
        close_the_door(false);
        CHECK_OK(weft_comm_init_all(&comm, 1, NULL));
        CHECK_OK(weft_comm_destroy(comm));
    }
    CHECK_OK(weft_free(memory));
}

static void in_a_wrong_job(team_t *team)
{
    int rank = -7;
    (void)team;
    setenv("WEFT_RANK", "5", 1);
    setenv("WEFT_SIZE", "2", 1);
    CHECK_STATUS(weft_job_info(&rank, NULL, NULL, NULL), WEFT_ERR_INVALID);
    CHECK_EQ(rank, -7);
}

PLAN_TEST(wrong_job_is_told, in_a_wrong_job, .ranks = 1, .bare = true)
PLAN_TEST(no_descriptor_is_no_comm, without_descriptors, .ranks = 2)
PLAN_TEST(sizes_must_agree, comm_sizes_differ, .ranks = 2, .bare = true)
PLAN_TEST(settings_must_agree, comm_settings_differ, .ranks = 3, .bare = true)
PLAN_TEST(handle_of_the_parent_is_refused, comm_after_fork, .ranks = 2)
PLAN_TEST(missing_rank_is_named, comm_late, .ranks = 3, .bare = true)
PLAN_TEST(missing_first_rank_is_named, comm_first_late, .ranks = 3, .bare = true)
PLAN_TEST(job_of_one_process, comm_job_of_one, .ranks = 1, .bare = true)
PLAN_TEST(ranks_have_their_devices, comm_devices, .ranks = 1, .bare = true)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_in_many_colours_at_once),
        cmocka_unit_test(split_with_negative_colour),
        cmocka_unit_test(split_orders_by_key),
        cmocka_unit_test(split_a_split_comm),
        cmocka_unit_test(split_has_its_own_configuration),
        cmocka_unit_test(destroyed_comm_is_refused),
        cmocka_unit_test(destroy_is_not_collective),
        cmocka_unit_test(two_hundred_comms_of_processes),
        cmocka_unit_test(two_hundred_comms_of_init_all),
        cmocka_unit_test(calls_go_on_while_comms_come_and_go),
        cmocka_unit_test(eight_ranks_take_little_memory),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(duplicate_rank_is_refused),
        cmocka_unit_test(duplicate_rank_of_threads_is_refused),
        cmocka_unit_test(second_rank_0_is_refused_at_once),
        cmocka_unit_test(second_rank_0_of_threads_is_refused_at_once),
        cmocka_unit_test(rank_0_may_try_again),
        cmocka_unit_test(wrong_job_is_told),
        cmocka_unit_test(no_descriptor_is_no_comm),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(settings_must_agree),
        cmocka_unit_test(handle_of_the_parent_is_refused),
        cmocka_unit_test(missing_rank_is_named),
        cmocka_unit_test(missing_first_rank_is_named),
        cmocka_unit_test(job_of_one_process),
        cmocka_unit_test(ranks_have_their_devices),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    cmocka_set_skip_filter(argc > 2 ? argv[2] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
