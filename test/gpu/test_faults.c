/* ctest: timeout=240 serial */
/* Ranks on GPUs that die, stop or come late: the kernels that wait for them end, all others are
 * told, and go on with a new communicator on the same GPU. */
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/fault_cases.h"
#include "gpu/gpu.h"

#include <cmocka.h>

/* ---- killed ---------------------------------------------------------------------------------- */

static void kill_in(weft_coll_t coll, size_t count, bool plain)
{
    fault_t fault = {coll, count, (int)coll % 4, plain};
    team_plan_t plan = {.ranks = 4, .may_die = 1u << fault.victim, .limit_s = 30, .arg = &fault};
    if (!team_run(&plan, fault_killed)) {
        fail_msg("kill -9 of rank %d in %s of %zu, %s memory", fault.victim,
                 weft__coll_info[coll].name, count, plain ? "plain" : "device");
    }
}

static void kill_in_small_calls(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        kill_in((weft_coll_t)coll, 5, coll % 4 == 3);
    }
}

static void kill_in_large_calls(void **state)
{
    static const weft_coll_t colls[] = {WEFT_COLL_ALLREDUCE, WEFT_COLL_BROADCAST,
                                        WEFT_COLL_ALLTOALL, WEFT_COLL_ALLTOALLV, WEFT_COLL_SEND};
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
        kill_in(colls[i], 1000000, false);
    }
    kill_in(WEFT_COLL_ALLREDUCE, 1000000, true);
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

PROCESS_TEST(dead_between_calls, fault_between, .ranks = 4, .may_die = 2)
PROCESS_TEST(dead_rank_is_told_although_another_is_late, fault_gone_and_late, .ranks = 3,
             .may_die = 4)
PROCESS_TEST(rank_dead_inside_is_told_although_another_is_late, fault_gone_inside_and_late,
             .ranks = 3, .may_die = 4)
PROCESS_TEST(dead_sender_is_told_although_another_is_late, fault_gone_and_late_messages, .ranks = 3,
             .may_die = 4)
PROCESS_TEST(what_a_dead_rank_sent_arrives, fault_last_words, .ranks = 3, .may_die = 2)
PROCESS_TEST(kill_in_split, fault_split, .ranks = 4, .may_die = 4)
PROCESS_TEST(kill_with_calls_on_streams, fault_streams, .ranks = 3, .may_die = 1)
PROCESS_TEST(kill_of_all_leaves_nothing, fault_all, .ranks = 4, .may_die = 15)

/* ---- late and stopped --------------------------------------------------------------------- */

static const fault_t faults[] = {
    {WEFT_COLL_ALLREDUCE, 10, 2, false},
    {WEFT_COLL_ALLREDUCE, 600000, 2, false},
    {WEFT_COLL_REDUCE_SCATTER, 3000, 2, true},
};

static void run_faults(team_fn fn, int procs)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        team_plan_t plan = {.ranks = 4, .procs = procs, .timeout_ms = 2000, .arg = &faults[i]};
        if (!team_run(&plan, fn)) {
            fail_msg("%s of %zu, %s memory", weft__coll_info[faults[i].coll].name, faults[i].count,
                     faults[i].plain ? "plain" : "device");
        }
    }
}

static void late_thread_is_named(void **state)
{
    (void)state;
    run_faults(fault_late, 1);
}

static void late_process_is_named(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    run_faults(fault_late, 4);
}

static void stopped_process_is_named(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    run_faults(fault_stopped, 4);
}

static void process_stopped_inside_a_call_is_named(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    run_faults(fault_stopped_inside, 4);
}

static void late_messages_are_named(void **state)
{
    (void)state;
    assert_true(
        team_run(&(team_plan_t){.ranks = 3, .procs = 1, .timeout_ms = 2000}, fault_late_messages));
}

/* ---- processes without MPS ---------------------------------------------------------------- */

/* Two processes are refused at once, and each can use the GPU for itself. */
static void without_mps(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    weft_unique_id_t own;
    float x = 3, y = 0;
    double start = team_now();
    CHECK_STATUS(weft_comm_init_rank(&comm, 2, team->id, team->rank, &config),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_last_error(), "MPS is off");
    CHECK_TEXT(weft_last_error(), "ranks 0 and 1");
    CHECK_TEXT(weft_last_error(), "nvidia-cuda-mps-control");
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(comm == NULL);
    CHECK_OK(weft_unique_id_create(&own));
    CHECK_OK(weft_comm_init_rank(&comm, 1, own, 0, &config));
    CHECK_OK(weft_allreduce(&x, &y, 1, WEFT_F32, WEFT_SUM, comm, NULL));
    CHECK_EQ(y, 3);
    CHECK_OK(weft_comm_destroy(comm));
}

static void threads_without_mps(team_t *team)
{
    float x = 3, y = 0;
    CHECK_OK(weft_allreduce(&x, &y, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_EQ(y, 3 * team->size);
}

static void processes_need_mps_and_threads_do_not(void **state)
{
    char folder[] = "/tmp/no-mps-XXXXXX", env[64];
    (void)state;
    if (gpu_virtual()) {
        skip();
    }
    assert_non_null(mkdtemp(folder)); /* no daemon listens in it */
    snprintf(env, sizeof(env), "CUDA_MPS_PIPE_DIRECTORY=%s", folder);
    bool refused = team_run(&(team_plan_t){.ranks = 2, .bare = true, .env = env}, without_mps);
    bool fine = team_run(&(team_plan_t){.ranks = 4, .procs = 1, .env = env}, threads_without_mps);
    rmdir(folder);
    assert_true(refused);
    assert_true(fine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_thread_is_named),
        cmocka_unit_test(late_messages_are_named),
        cmocka_unit_test(processes_need_mps_and_threads_do_not),
        cmocka_unit_test(late_process_is_named),
        cmocka_unit_test(stopped_process_is_named),
        cmocka_unit_test(process_stopped_inside_a_call_is_named),
        cmocka_unit_test(dead_between_calls),
        cmocka_unit_test(dead_rank_is_told_although_another_is_late),
        cmocka_unit_test(rank_dead_inside_is_told_although_another_is_late),
        cmocka_unit_test(dead_sender_is_told_although_another_is_late),
        cmocka_unit_test(what_a_dead_rank_sent_arrives),
        cmocka_unit_test(kill_in_split),
        cmocka_unit_test(kill_with_calls_on_streams),
        cmocka_unit_test(kill_of_all_leaves_nothing),
        cmocka_unit_test(kill_in_small_calls),
        cmocka_unit_test(kill_in_large_calls),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
