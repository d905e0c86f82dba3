/* ctest: timeout=120 tsan waits */
/* The nccl backend with a fake NCCL and a fake GPU: what ranks learn of each other when calls go
 * wrong. */
#include "comm/nccl/backend_fixture.h"

/* ---- what goes wrong in calls ----------------------------------------------------------- */

/* Rank 2 dies, `ms` after NCCL has said `seen` of it. */
static void lose_rank_2(weft_nccl_result_t seen, int ms)
{
    caller_t callers[2];
    join(3, 10000);
    weft__nccl_watch_stop(member_of(2));
    block_gpu();
    start_call(&callers[0], 0, WEFT_COLL_ALLREDUCE);
    start_call(&callers[1], 1, WEFT_COLL_ALLREDUCE);
    atomic_store(&fake->async, seen);
    nap(ms);
    die(2);
    for (int i = 0; i < 2; i++) {
        expect(&callers[i], WEFT_ERR_RANK_DEAD, "rank 2 (process ");
        assert_text(callers[i].text, ") died; rank ");
        assert_text(callers[i].text, " noticed in call 1, allreduce of 8 f32, sum");
        assert_int_equal(make_call(i, WEFT_COLL_BARRIER), WEFT_ERR_BROKEN);
        assert_said("broken by an earlier error: rank 2 (process ");
    }
}

static void dead_rank_is_named_to_all(void **state)
{
    (void)state;
    lose_rank_2(WEFT_NCCL_SUCCESS, 300);
}

/* All that NCCL says is that a peer is gone; who it was comes from the store. */
static void death_that_nccl_sees_before_the_store_is_named(void **state)
{
    (void)state;
    lose_rank_2(WEFT_NCCL_REMOTE_ERROR, 1500); /* they have looked before */
}

static void death_between_calls_is_told_by_the_next(void **state)
{
    (void)state;
    join(2, 10000);
    die(1);
    assert_text(wait_error(&comms[0]), ") died; rank 0 noticed while in no call");
    assert_int_equal(make_call(0, WEFT_COLL_BARRIER), WEFT_ERR_RANK_DEAD);
    assert_int_equal(make_call(0, WEFT_COLL_BARRIER), WEFT_ERR_BROKEN);
}

static void late_rank_is_named(void **state)
{
    (void)state;
    caller_t callers[2];
    join(3, 2000);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(make_call(r, WEFT_COLL_BARRIER), WEFT_OK);
    }
    nap(1500); /* they say where they are */
    block_gpu();
    start_call(&callers[0], 0, WEFT_COLL_ALLGATHER);
    start_call(&callers[1], 2, WEFT_COLL_ALLGATHER);
    for (int i = 0; i < 2; i++) {
        expect(
            &callers[i], WEFT_ERR_TIMEOUT,
            "timed out after 2.0 s in call 2, allgather of 8 f32: not arrived: rank 1 (last seen "
            "in call 1, barrier); arrived: 0 2");
        assert_true(callers[i].ms >= 1900 && callers[i].ms < 10000);
    }
}

static void message_without_partner_times_out(void **state)
{
    (void)state;
    caller_t caller;
    join(2, 400);
    block_gpu();
    start_call(&caller, 0, WEFT_COLL_SEND);
    expect(
        &caller, WEFT_ERR_TIMEOUT,
        "timed out after 0.4 s on rank 0 in send of 8 f32 to 1: rank 1 has not made the matching");
}

static void different_calls_are_quoted(void **state)
{
    (void)state;
    caller_t callers[2];
    join(2, 10000);
    block_gpu();
    start_call(&callers[0], 0, WEFT_COLL_ALLREDUCE);
    start_call(&callers[1], 1, WEFT_COLL_BROADCAST);
    for (int i = 0; i < 2; i++) {
        expect(&callers[i], WEFT_ERR_MISMATCH, "allreduce of 8 f32, sum on rank 0");
        assert_text(callers[i].text, "broadcast of 8 f32, root 0 on rank 1");
    }
}

static void rank_that_left_is_named(void **state)
{
    (void)state;
    caller_t caller;
    join(2, 10000);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(make_call(r, WEFT_COLL_BARRIER), WEFT_OK);
    }
    leave(1);
    block_gpu();
    start_call(&caller, 0, WEFT_COLL_ALLREDUCE);
    expect(
        &caller, WEFT_ERR_RANK_LEFT,
        "rank 1 destroyed its handle while rank 0 waits for it in call 2, allreduce of 8 f32, sum");
}

/* It has done its part of the last call: the others may still be in it. */
static void rank_that_leaves_after_the_last_call_harms_nobody(void **state)
{
    (void)state;
    caller_t caller;
    join(2, 10000);
    assert_int_equal(make_call(1, WEFT_COLL_BARRIER), WEFT_OK);
    leave(1);
    block_gpu();
    start_call(&caller, 0, WEFT_COLL_BARRIER);
    nap(1500);
    atomic_store(&host_gpu_passed, HOST_GPU_ALL);
    expect(&caller, WEFT_OK, "");
}

static void abort_reaches_all_ranks(void **state)
{
    (void)state;
    caller_t callers[2];
    join(2, 10000);
    block_gpu();
    start_call(&callers[0], 0, WEFT_COLL_ALLREDUCE);
    start_call(&callers[1], 1, WEFT_COLL_ALLREDUCE);
    nap(300);
    weft__backend_nccl.abort(comms[1].ctx);
    expect(&callers[0], WEFT_ERR_ABORTED, "rank 1 aborted the communicator");
    expect(&callers[1], WEFT_ERR_ABORTED, "rank 1 aborted the communicator");
}

static void error_of_nccl_ends_a_call_that_waits(void **state)
{
    (void)state;
    caller_t callers[2];
    join(2, 10000);
    block_gpu();
    start_call(&callers[0], 0, WEFT_COLL_ALLREDUCE);
    start_call(&callers[1], 1, WEFT_COLL_ALLREDUCE);
    nap(300);
    fake->text = "link down";
    atomic_store(&fake->async, WEFT_NCCL_SYSTEM_ERROR);
    expect(&callers[0], WEFT_ERR_SYSTEM, "NCCL says: link down");
    expect(&callers[1], WEFT_ERR_SYSTEM, "NCCL says: link down");
    assert_string_equal(callers[0].text, callers[1].text); /* one sentence for all */
}

static void launch_that_fails_breaks_it_for_all(void **state)
{
    (void)state;
    caller_t caller;
    join(2, 10000);
    block_gpu();
    start_call(&caller, 0, WEFT_COLL_ALLREDUCE);
    nap(300);
    fake->fails = "Broadcast";
    fake->result = WEFT_NCCL_INTERNAL_ERROR;
    assert_int_equal(make_call(1, WEFT_COLL_BROADCAST), WEFT_ERR_SYSTEM);
    assert_said("ncclBroadcast failed on rank 1 of 2");
    expect(&caller, WEFT_ERR_SYSTEM, "ncclBroadcast failed on rank 1 of 2");
}

static void launch_stuck_inside_nccl_times_out(void **state)
{
    (void)state;
    caller_t caller;
    join(2, 500);
    atomic_store(&fake->stalls, "AllReduce");
    start_call(&caller, 0, WEFT_COLL_ALLREDUCE);
    expect(&caller, WEFT_ERR_TIMEOUT,
           "not arrived: rank 1 (it has not said where it is); arrived: 0");
}

static void lost_store_leaves_timeouts(void **state)
{
    (void)state;
    caller_t caller;
    join(2, 500);
    weft__nccl_watch_stop(member_of(0));
    weft__store_close(member_of(0)->store);
    member_of(0)->store = NULL;
    member_of(0)->stop = false;
    assert_int_equal(weft__nccl_watch_start(member_of(0)), WEFT_OK);
    block_gpu();
    start_call(&caller, 0, WEFT_COLL_ALLREDUCE);
    expect(&caller, WEFT_ERR_TIMEOUT,
           "on rank 0 in call 1, allreduce of 8 f32, sum: nothing is known of the other ranks");
}

/* The ranks from here on meet at a store of their own, for a test to end. */
static weft_store_server_t *own_store(void)
{
    weft_store_server_t *own = NULL;
    assert_int_equal(weft__store_serve(HOST, 0, secret, &own, &road.port), WEFT_OK);
    return own;
}

static void store_that_ends_while_ranks_join_is_told(void **state)
{
    (void)state;
    weft_store_server_t *own = own_store();
    atomic_store(&fake->stalls, "CommInitRank");
    assert_int_equal(enter(0, 2, 10000), WEFT_OK);
    assert_int_equal(enter(1, 2, 10000), WEFT_OK);
    weft__store_stop(own);
    uint64_t start = weft__now_ns();
    assert_int_equal(weft__nccl_comm_meet(&comms[0]), WEFT_ERR_RANK_DEAD);
    assert_said(
        "the process that made the id, which served the store, died; rank 0 noticed while joining");
    member_of(1)->server = 0; /* as in a job of several hosts */
    assert_int_equal(weft__nccl_comm_meet(&comms[1]), WEFT_ERR_RANK_DEAD);
    assert_said("rank 0, which served the store, died; rank 1 noticed while joining");
    assert_true(ms_since(start) < 2000);
}

/* Rank 0 of 2 dies, and its store with it; NCCL says `seen` of it. Returns how long a call waits,
 * in ms. */
static double lose_server(weft_nccl_result_t seen, const char *part)
{
    caller_t caller;
    weft_store_server_t *own = own_store();
    join(2, 30000);
    weft__nccl_watch_stop(member_of(1));
    member_of(1)->server = 0;
    member_of(1)->stop = false;
    weft__store_stop(own);
    die(0);
    block_gpu();
    atomic_store(&fake->async, seen);
    assert_int_equal(weft__nccl_watch_start(member_of(1)), WEFT_OK);
    start_call(&caller, 1, WEFT_COLL_ALLREDUCE);
    expect(&caller, WEFT_ERR_RANK_DEAD, part);
    return caller.ms;
}

static void rank_that_ended_with_its_store_is_named(void **state)
{
    (void)state;
    double ms = lose_server(
        WEFT_NCCL_SUCCESS,
        "rank 0, which served the store, died; rank 1 noticed in call 1, allreduce of 8");
    assert_true(ms > 2000 && ms < 15000);
}

static void rank_that_died_with_its_store_is_named(void **state)
{
    (void)state;
    lose_server(WEFT_NCCL_REMOTE_ERROR, "rank 0, which served the store, died; rank 1 noticed in ");
}

int main(void)
{
    if (!load_fakes()) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        TEST(dead_rank_is_named_to_all),
        TEST(death_between_calls_is_told_by_the_next),
        TEST(death_that_nccl_sees_before_the_store_is_named),
        TEST(late_rank_is_named),
        TEST(message_without_partner_times_out),
        TEST(different_calls_are_quoted),
        TEST(rank_that_left_is_named),
        TEST(rank_that_leaves_after_the_last_call_harms_nobody),
        TEST(abort_reaches_all_ranks),
        TEST(error_of_nccl_ends_a_call_that_waits),
        TEST(launch_that_fails_breaks_it_for_all),
        TEST(launch_stuck_inside_nccl_times_out),
        TEST(lost_store_leaves_timeouts),
        TEST(store_that_ends_while_ranks_join_is_told),
        TEST(rank_that_ended_with_its_store_is_named),
        TEST(rank_that_died_with_its_store_is_named),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
