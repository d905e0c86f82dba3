/* ctest: timeout=120 waits */
/* Ranks on virtual GPUs that die, stop or come late. */
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/fault_cases.h"
#include "comm/tuner.h"

#include <cmocka.h>

static void kill_in(weft_coll_t coll, size_t count, bool plain, const char *algo)
{
    fault_t fault = {coll, count, (int)coll % 4, plain};
    team_plan_t plan = {
        .ranks = 4, .algo = algo, .may_die = 1u << fault.victim, .limit_s = 60, .arg = &fault};
    if (!team_run(&plan, fault_killed)) {
        fail_msg("kill -9 of rank %d in %s of %zu, %s memory, %s", fault.victim,
                 weft__coll_info[coll].name, count, plain ? "plain" : "device", algo);
    }
}

static void kill_in_small_calls(void **state)
{
    (void)state;
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        kill_in((weft_coll_t)coll, 5, coll % 2, "auto");
    }
}

static void kill_in_large_calls(void **state)
{
    (void)state;
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        kill_in((weft_coll_t)coll, 300000, false, "auto");
        kill_in((weft_coll_t)coll, 300000, true, "auto");
    }
}

static void kill_in_every_algorithm(void **state)
{
    (void)state;
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        for (int a = WEFT_ALGO_RING; a < WEFT_ALGO_COUNT; a++) {
            if (weft__tuner_has((weft_coll_t)coll, (weft_algo_t)a)) {
                kill_in((weft_coll_t)coll, 100000, false, weft__algo_name((weft_algo_t)a));
            }
        }
    }
}

static int leftovers;

static int count_leftovers(void **state)
{
    (void)state;
    leftovers = team_leftovers();
    return 0;
}

static int check_leftovers(void **state)
{
    (void)state;
    return team_left_more(leftovers) ? -1 : 0;
}

/* All who have not come are named, also those who never did. */
static void first_call_waits(team_t *team)
{
    float x = 1;
    if (team->rank != 0) {
        team_await(1);
        return;
    }
    CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_last_error(),
               "not arrived: rank 1 (made no call yet), rank 2 (made no call yet)");
    team_tell();
}

/* Rank 1 may open no more files, so it cannot reach what the others make: it tells them, who wait
 * for it there, long before the timeout. */
static void no_files_to_split(team_t *team)
{
    weft_comm_h child = NULL;
    struct rlimit limit;
    if (team->rank == 1) {
        int next = dup(STDERR_FILENO); /* the lowest number that is free */
        CHECK(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = (rlim_t)next;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    double start = team_now();
    CHECK_STATUS(weft_comm_split(team->comm, 0, 0, &child, NULL), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "rank 1 cannot join the new communicator");
    CHECK_TEXT(weft_last_error(), "Too many open files");
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(child == NULL);
}

/* Rank 0 made the id, so the store is in its process: it dies while rank 1 waits for it to join. */
static void store_dies(team_t *team)
{
    weft_unique_id_t *id = (weft_unique_id_t *)(void *)team->shared;
    weft_comm_config_t config = team_config();
    weft_comm_h comm = NULL;
    if (team->rank == 0) {
        CHECK_OK(weft_unique_id_create(id));
        team_tell(); /* the id is there */
        team_await(2);
        team_sleep(0.3); /* rank 1 is in its call */
        raise(SIGKILL);
    }
    team_await(1);
    team_tell();
    double start = team_now();
    CHECK_STATUS(weft_comm_init_rank(&comm, 2, *id, 1, &config), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "store");
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(comm == NULL);
}

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(dead_between_calls, fault_between, .ranks = 4, .may_die = 2)
PLAN_TEST(dead_rank_is_told_although_another_is_late, fault_gone_and_late, .ranks = 3, .may_die = 4)
PLAN_TEST(rank_dead_inside_is_told_although_another_is_late, fault_gone_inside_and_late, .ranks = 3,
          .may_die = 4)
PLAN_TEST(dead_sender_is_told_although_another_is_late, fault_gone_and_late_messages, .ranks = 3,
          .may_die = 4)
PLAN_TEST(what_a_dead_rank_sent_arrives, fault_last_words, .ranks = 3, .may_die = 2)
PLAN_TEST(kill_in_split, fault_split, .ranks = 4, .may_die = 4)
PLAN_TEST(split_without_files, no_files_to_split, .ranks = 3)
PLAN_TEST(kill_with_calls_on_streams, fault_streams, .ranks = 3, .may_die = 1)
PLAN_TEST(kill_of_all_leaves_nothing, fault_all, .ranks = 4, .may_die = 15)
PLAN_TEST(store_that_dies_is_told_to_who_joins, store_dies, .ranks = 2, .bare = true, .may_die = 1)
PLAN_TEST(late_first_calls_are_named, first_call_waits, .ranks = 3, .timeout_ms = 2000)
PLAN_TEST(late_messages_are_named, fault_late_messages, .ranks = 3, .timeout_ms = 2000)

static void run_faults(team_fn fn, const fault_t *faults, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!team_run(
                &(team_plan_t){.ranks = 4, .timeout_ms = 2000, .limit_s = 60, .arg = &faults[i]},
                fn)) {
            fail_msg("%s of %zu, %s memory", weft__coll_info[faults[i].coll].name, faults[i].count,
                     faults[i].plain ? "plain" : "device");
        }
    }
}

static const fault_t slow_faults[] = {
    {WEFT_COLL_ALLREDUCE, 10, 2, false},     {WEFT_COLL_ALLREDUCE, 600000, 2, false},
    {WEFT_COLL_ALLREDUCE, 600000, 2, true},  {WEFT_COLL_REDUCE_SCATTER, 3000, 2, true},
    {WEFT_COLL_BROADCAST, 1000000, 2, true}, {WEFT_COLL_ALLTOALL, 100000, 2, true},
};
#define SLOW_FAULTS (sizeof(slow_faults) / sizeof(slow_faults[0]))

/* Small calls in which some ranks need not wait for all others in each. */
static const fault_t loose_faults[] = {
    {WEFT_COLL_BROADCAST, 10, 2, false},
    {WEFT_COLL_GATHER, 10, 2, true},
    {WEFT_COLL_SCATTER, 100, 2, false},
};
#define LOOSE_FAULTS (sizeof(loose_faults) / sizeof(loose_faults[0]))

static void late_rank_is_named(void **state)
{
    (void)state;
    run_faults(fault_late, slow_faults, SLOW_FAULTS);
}

static void stopped_rank_is_named(void **state)
{
    (void)state;
    run_faults(fault_stopped, slow_faults, SLOW_FAULTS);
}

static void rank_stopped_inside_a_call_is_named(void **state)
{
    (void)state;
    run_faults(fault_stopped_inside, slow_faults, SLOW_FAULTS);
    run_faults(fault_stopped_inside, loose_faults, LOOSE_FAULTS);
}

int main(int argc, char **argv)
{
#define FAULT_TEST(name) cmocka_unit_test_setup_teardown(name, count_leftovers, check_leftovers)
    const struct CMUnitTest tests[] = {
        FAULT_TEST(kill_in_small_calls),
        FAULT_TEST(kill_in_large_calls),
        FAULT_TEST(kill_in_every_algorithm),
        FAULT_TEST(kill_in_split),
        FAULT_TEST(split_without_files),
        FAULT_TEST(kill_with_calls_on_streams),
        FAULT_TEST(kill_of_all_leaves_nothing),
        FAULT_TEST(dead_between_calls),
        FAULT_TEST(dead_rank_is_told_although_another_is_late),
        FAULT_TEST(rank_dead_inside_is_told_although_another_is_late),
        FAULT_TEST(dead_sender_is_told_although_another_is_late),
        FAULT_TEST(what_a_dead_rank_sent_arrives),
        FAULT_TEST(store_that_dies_is_told_to_who_joins),
        FAULT_TEST(late_rank_is_named),
        FAULT_TEST(stopped_rank_is_named),
        FAULT_TEST(rank_stopped_inside_a_call_is_named),
        FAULT_TEST(late_first_calls_are_named),
        FAULT_TEST(late_messages_are_named),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
