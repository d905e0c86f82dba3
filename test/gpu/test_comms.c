/* ctest: timeout=240 serial */
/* Making, splitting and destroying communicators on GPUs. */
#include <setjmp.h>

#include "comm/comm_cases.h"
#include "device/cuda.h"
#include "gpu/gpu.h"

#include <cmocka.h>

static const team_fn all[] = {comm_colours,
                              comm_negative_colour,
                              comm_keys,
                              comm_split_of_split,
                              comm_split_config,
                              comm_destroyed,
                              comm_leaving,
                              comm_busy,
                              NULL};

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){__VA_ARGS__}, fn));                                    \
    }

#define PROCESS_TEST(name, fn, ...)                                                                \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        if (!gpu_processes()) {                                                                    \
            skip();                                                                                \
        }                                                                                          \
        assert_true(team_run(&(team_plan_t){__VA_ARGS__}, fn));                                    \
    }

PLAN_TEST(splits_of_threads, gpu_in_a_row, .ranks = 6, .procs = 1, .limit_s = 60, .arg = all)
PLAN_TEST(splits_of_one_rank, gpu_in_a_row, .ranks = 1, .arg = all)
PLAN_TEST(two_hundred_comms_of_threads, comm_growth, .ranks = 4, .procs = 1, .limit_s = 60)
PLAN_TEST(two_hundred_comms_of_init_all, comm_growth_all, .ranks = 1, .bare = true, .limit_s = 60)
PLAN_TEST(duplicate_rank_of_threads_is_refused, comm_duplicate, .ranks = 3, .procs = 1,
          .bare = true)
PLAN_TEST(ranks_have_their_devices, comm_devices, .ranks = 1, .bare = true)
PLAN_TEST(missing_rank_is_named, comm_late, .ranks = 3, .procs = 1, .bare = true)
PROCESS_TEST(splits_of_processes, gpu_in_a_row, .ranks = 4, .limit_s = 60, .arg = all)
PROCESS_TEST(splits_of_both, gpu_in_a_row, .ranks = 4, .procs = 2, .limit_s = 60, .arg = all)
PROCESS_TEST(two_hundred_comms_of_processes, comm_growth, .ranks = 4, .limit_s = 60)
PROCESS_TEST(handle_of_the_parent_is_refused, comm_after_fork, .ranks = 2)

/* 32 ranks are the most of a communicator, 12 of them threads of one process on one GPU; one more
 * is refused, and 12 still work. */
static void most_ranks(team_t *team)
{
    enum { MOST = 12, TOO_MANY = 33 };
    weft_comm_h comms[TOO_MANY] = {NULL};
    int devices[TOO_MANY];
    (void)team;
    for (int i = 0; i < TOO_MANY; i++) {
        devices[i] = i % 8;
    }
    if (!gpu_virtual()) {
        CHECK_STATUS(weft_comm_init_all(comms, TOO_MANY, devices), WEFT_ERR_UNSUPPORTED);
        CHECK_TEXT(weft_last_error(), "33 ranks");
        CHECK_TEXT(weft_last_error(), "32");
    }
    if (!gpu_virtual() && weft__cuda_gpus() == 1) {
        CHECK_STATUS(weft_comm_init_all(comms, MOST + 1, devices), WEFT_ERR_UNSUPPORTED);
        CHECK_TEXT(weft_last_error(), "13 ranks");
        CHECK_TEXT(weft_last_error(), "12");
    }
    CHECK_OK(weft_comm_init_all(comms, MOST, devices));
    CHECK_OK(weft_group_start());
    for (int i = 0; i < MOST; i++) {
        CHECK_OK(weft_barrier(comms[i], NULL));
    }
    CHECK_OK(weft_group_end());
    for (int i = 0; i < MOST; i++) {
        CHECK_OK(weft_comm_destroy(comms[i]));
    }
}

PLAN_TEST(too_many_ranks_are_refused, most_ranks, .ranks = 1, .bare = true)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_of_threads),
        cmocka_unit_test(splits_of_one_rank),
        cmocka_unit_test(two_hundred_comms_of_threads),
        cmocka_unit_test(two_hundred_comms_of_init_all),
        cmocka_unit_test(duplicate_rank_of_threads_is_refused),
        cmocka_unit_test(ranks_have_their_devices),
        cmocka_unit_test(missing_rank_is_named),
        cmocka_unit_test(too_many_ranks_are_refused),
        cmocka_unit_test(splits_of_processes),
        cmocka_unit_test(splits_of_both),
        cmocka_unit_test(two_hundred_comms_of_processes),
        cmocka_unit_test(handle_of_the_parent_is_refused),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
