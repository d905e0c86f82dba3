/* ctest: timeout=180 serial tsan */
/* Groups of calls on GPUs. */
#include <setjmp.h>

#include "comm/group_cases.h"
#include "gpu/gpu.h"

#include <cmocka.h>

static const team_fn all[] = {group_mixed,     group_fused,   group_pieces, group_messages,
                              group_ring,      group_self,    group_nested, group_refused,
                              group_destroyed, group_streams, NULL};

static void run_threads(team_fn fn)
{
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1, .all = true}, fn));
}

#define THREAD_TEST(name, fn)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_threads(fn);                                                                           \
    }

THREAD_TEST(group_of_100_mixed_calls, group_mixed)
THREAD_TEST(group_of_300_allreduces, group_fused)
THREAD_TEST(pieces_of_all_types, group_pieces)
THREAD_TEST(messages_of_all_pairs_in_any_order, group_messages)
THREAD_TEST(ring_exchange_of_large_messages, group_ring)
THREAD_TEST(send_to_self, group_self)
THREAD_TEST(groups_nest, group_nested)
THREAD_TEST(refused_call_runs_nothing, group_refused)
THREAD_TEST(comm_destroyed_inside_group, group_destroyed)
THREAD_TEST(batch_on_different_streams, group_streams)

static void one_rank_alone(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 1, .arg = all}, gpu_in_a_row));
}

static void all_of_it_with_processes(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .limit_s = 60, .arg = all}, gpu_in_a_row));
    assert_true(team_run(&(team_plan_t){.ranks = 5, .limit_s = 60, .arg = all}, gpu_in_a_row));
    assert_true(
        team_run(&(team_plan_t){.ranks = 4, .procs = 2, .limit_s = 60, .arg = all}, gpu_in_a_row));
    assert_true(team_run(&(team_plan_t){.ranks = 2, .bare = true}, group_joined_by_two));
}

/* Every buffer is memory of its own, to be mapped by all before a kernel may use it. */
static void new_memory_to_oneself(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .env = "WEFT_POOL=0"}, group_self_anew));
}

#define LARGE ((size_t)16 << 20)

/* Others can know of so many pieces of memory, and no more. */
static void until_none_is_left(team_t *team)
{
    weft_status_t status = WEFT_OK;
    weft_comm_h comm;
    int made = 0;
    void *first, *x;
    CHECK_OK(weft_malloc(&first, LARGE));
    CHECK_OK(weft_allreduce(first, first, LARGE / 4, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &comm, NULL));
    for (; status == WEFT_OK && made < 300; made++) {
        CHECK_OK(weft_malloc(&x, 1000 + 16 * (size_t)made));
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(x, 100, WEFT_U8, team->rank, comm, NULL));
        CHECK_OK(weft_recv(x, 100, WEFT_U8, team->rank, comm, NULL));
        status = weft_group_end();
    }
    CHECK_STATUS(status, WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "has no numbers for more");
    CHECK(made > 200);
    /* A result that others can reach does not make up for a source that they cannot. */
    CHECK_OK(weft_malloc(&x, LARGE));
    CHECK_STATUS(weft_allreduce(x, first, LARGE / 4, WEFT_F32, WEFT_SUM, team->comm, NULL),
                 WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "has no numbers for more");
    CHECK_OK(weft_comm_destroy(comm));
}

static void too_many_shared_buffers_are_refused(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .env = "WEFT_POOL=0"}, until_none_is_left));
}

/* More pieces of memory than others could know of. */
static void hundreds_of_buffers_without_a_pool(void **state)
{
    (void)state;
    team_plan_t plan = {.ranks = 4, .procs = 1, .env = "WEFT_POOL=0"};
    assert_true(team_run(&plan, group_fused));
}

/* For compute-sanitizer, which takes its time. */
static void pieces_of_two_processes(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .limit_s = 200}, group_pieces));
}

/* One thread makes the calls of all ranks: nothing may wait before the last of them is made,
 * whatever memory the buffers are in. */
static void drive(int ranks, team_fn fn)
{
    assert_true(team_run(&(team_plan_t){.ranks = 1, .bare = true, .arg = &ranks}, fn));
}

#define DRIVE_TEST(name, ranks, fn)                                                                \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        drive(ranks, fn);                                                                          \
    }

DRIVE_TEST(one_thread_drives_two, 2, group_driven)
DRIVE_TEST(one_thread_drives_four, 4, group_driven)
DRIVE_TEST(one_thread_drives_eight, 8, group_driven)
DRIVE_TEST(one_thread_joins_five, 5, group_joined)

static void refused_join_joins_nobody(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 1, .bare = true}, group_join_refused));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_of_100_mixed_calls),
        cmocka_unit_test(group_of_300_allreduces),
        cmocka_unit_test(pieces_of_all_types),
        cmocka_unit_test(messages_of_all_pairs_in_any_order),
        cmocka_unit_test(ring_exchange_of_large_messages),
        cmocka_unit_test(send_to_self),
        cmocka_unit_test(groups_nest),
        cmocka_unit_test(refused_call_runs_nothing),
        cmocka_unit_test(comm_destroyed_inside_group),
        cmocka_unit_test(batch_on_different_streams),
        cmocka_unit_test(one_rank_alone),
        cmocka_unit_test(one_thread_drives_two),
        cmocka_unit_test(one_thread_drives_four),
        cmocka_unit_test(one_thread_drives_eight),
        cmocka_unit_test(one_thread_joins_five),
        cmocka_unit_test(refused_join_joins_nobody),
        cmocka_unit_test(new_memory_to_oneself),
        cmocka_unit_test(hundreds_of_buffers_without_a_pool),
        cmocka_unit_test(too_many_shared_buffers_are_refused),
        cmocka_unit_test(all_of_it_with_processes),
        cmocka_unit_test(pieces_of_two_processes),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
