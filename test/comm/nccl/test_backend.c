/* ctest: timeout=120 tsan waits */
/* The nccl backend with a fake NCCL and a fake GPU: how ranks join, calls on streams, and
 * splitting. */
#include "comm/nccl/backend_fixture.h"

/* ---- joining ---------------------------------------------------------------------------- */

static void ranks_join_call_and_leave(void **state)
{
    (void)state;
    join(3, 10000);
    const char *text;
    for (int r = 0; r < 3; r++) {
        assert_int_equal(comms[r].rank, r);
        assert_int_equal(comms[r].size, 3);
        assert_int_equal(make_call(r, WEFT_COLL_ALLREDUCE), WEFT_OK);
        assert_int_equal(weft__backend_nccl.error(comms[r].ctx, &text), WEFT_OK);
    }
    char expected[128];
    snprintf(expected, sizeof(expected), "AllReduce %p %p 8 float32 sum on %p\n", SRC, DST,
             member_of(1)->stream);
    assert_text(fake->log, expected);
    assert_text(fake->log, "CommInitRank 2 of 3, id iii\n");
}

static void late_joiner_is_named(void **state)
{
    (void)state;
    atomic_store(&fake->stalls, "CommInitRank");
    assert_int_equal(enter(0, 4, 300), WEFT_OK);
    assert_int_equal(enter(2, 4, 300), WEFT_OK);
    assert_int_equal(weft__nccl_comm_meet(&comms[0]), WEFT_ERR_TIMEOUT);
    assert_said("rank 1, rank 3 did not join the communicator within 0.3 s");
    assert_int_equal(weft__nccl_comm_meet(&comms[2]), WEFT_ERR_TIMEOUT);
    assert_said("rank 1, rank 3 did not join the communicator within 0.3 s");
}

static void missing_rank_0_is_named(void **state)
{
    (void)state;
    assert_int_equal(enter(1, 2, 200), WEFT_ERR_TIMEOUT);
    assert_said("rank 0 did not join the communicator within 0.2 s");
}

static void network_that_does_not_connect_gets_advice(void **state)
{
    (void)state;
    atomic_store(&fake->stalls, "CommInitRank");
    assert_int_equal(enter(0, 2, 300), WEFT_OK);
    assert_int_equal(enter(1, 2, 300), WEFT_OK);
    assert_int_equal(weft__nccl_comm_meet(&comms[0]), WEFT_ERR_TIMEOUT);
    assert_said("timed out after 0.3 s in joining: all ranks arrived, but rank 0 does not finish");
    assert_said("NCCL_SOCKET_IFNAME");
}

static void reason_why_rank_0_has_no_id_reaches_all(void **state)
{
    (void)state;
    fake->fails = "GetUniqueId";
    fake->result = WEFT_NCCL_SYSTEM_ERROR;
    fake->text = "no network";
    assert_int_equal(enter(0, 2, 10000), WEFT_ERR_SYSTEM);
    assert_int_equal(enter(1, 2, 10000), WEFT_ERR_SYSTEM);
    assert_said("ncclGetUniqueId failed: unhandled system error; NCCL says: no network");
}

static void rank_that_dies_while_others_join_is_named(void **state)
{
    (void)state;
    atomic_store(&fake->stalls, "CommInitRank");
    assert_int_equal(enter(0, 2, 10000), WEFT_OK);
    assert_int_equal(enter(1, 2, 10000), WEFT_OK);
    weft__store_close(member_of(1)->store);
    member_of(1)->store = NULL;
    uint64_t start = weft__now_ns();
    assert_int_equal(weft__nccl_comm_meet(&comms[0]), WEFT_ERR_RANK_DEAD);
    assert_said("rank 1 (process ");
    assert_true(ms_since(start) < 2000);
}

static void refusal_of_one_rank_ends_the_others_wait(void **state)
{
    (void)state;
    atomic_store(&fake->stalls, "CommInitRank");
    assert_int_equal(enter(0, 2, 10000), WEFT_OK);
    nap(50); /* it is inside */
    fake->fails = "CommInitRank";
    fake->result = WEFT_NCCL_INVALID_USAGE;
    atomic_store(&fake->stalls, NULL);
    assert_int_equal(enter(1, 2, 10000), WEFT_OK);
    assert_int_equal(weft__nccl_comm_meet(&comms[1]), WEFT_ERR_UNSUPPORTED);
    assert_int_equal(weft__nccl_comm_meet(&comms[0]), WEFT_ERR_UNSUPPORTED);
    assert_said("WEFT_ENGINE=weft");
}

/* ---- streams ---------------------------------------------------------------------------- */

static void calls_on_different_streams_keep_their_order(void **state)
{
    (void)state;
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE);
    weft_nccl_inflight_t *a, *b, *c;
    void *const one = (void *)0x1, *const two = (void *)0x2;
    char expected[64];
    join(1, 10000);
    host_gpu_log[0] = '\0';
    assert_int_equal(weft__nccl_depart(member_of(0), &call, one, NULL, &a), 0);
    assert_int_equal(weft__nccl_arrive(member_of(0), a), 0);
    assert_int_equal(weft__nccl_depart(member_of(0), &call, one, NULL, &b), 0);
    assert_int_equal(weft__nccl_arrive(member_of(0), b), 0);
    assert_null(strstr(host_gpu_log, "wait")); /* a stream keeps its own order */
    assert_int_equal(weft__nccl_depart(member_of(0), &call, two, NULL, &c), 0);
    snprintf(expected, sizeof(expected), "wait %p %p\n", two, b->end);
    assert_text(host_gpu_log, expected);
    assert_int_equal(weft__nccl_arrive(member_of(0), c), 0);
    /* and so does the default stream, which needs no marks of its own once all is done */
    assert_int_equal(make_call(0, WEFT_COLL_ALLREDUCE), WEFT_OK);
    snprintf(expected, sizeof(expected), "wait %p %p\n", member_of(0)->stream, c->end);
    assert_text(host_gpu_log, expected);
    host_gpu_log[0] = '\0';
    assert_int_equal(make_call(0, WEFT_COLL_ALLREDUCE), WEFT_OK);
    assert_string_equal(host_gpu_log, "");
}

/* More launches than there are marks: the last mark covers what follows it. */
static void many_launches_are_all_seen(void **state)
{
    (void)state;
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE);
    weft_nccl_sight_t sight;
    join(1, 0);
    block_gpu();
    for (int i = 0; i < 100; i++) {
        weft_nccl_inflight_t *record;
        assert_int_equal(weft__nccl_depart(member_of(0), &call, (void *)0x1, NULL, &record), 0);
        assert_int_equal(weft__nccl_arrive(member_of(0), record), 0);
    }
    assert_false(weft__nccl_idle(member_of(0)));
    assert_false(weft__nccl_oldest(member_of(0), &sight)); /* none has begun */
    atomic_fetch_add(&host_gpu_passed, 1);
    assert_true(weft__nccl_oldest(member_of(0), &sight));
    assert_int_equal(sight.first, 1);
    assert_int_equal(sight.last, 1);
    atomic_fetch_add(&host_gpu_passed, 2 * 31); /* the 31 first ones are done, the next began */
    assert_true(weft__nccl_oldest(member_of(0), &sight));
    assert_int_equal(sight.first, 32);
    assert_int_equal(sight.last, 100);
    atomic_store(&host_gpu_passed, HOST_GPU_ALL);
    assert_true(weft__nccl_idle(member_of(0)));
}

static void call_queued_on_a_stream_times_out_once_it_has_begun(void **state)
{
    (void)state;
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE);
    weft_nccl_inflight_t *record;
    const char *text = "";
    join(2, 400);
    block_gpu();
    assert_int_equal(weft__nccl_depart(member_of(0), &call, (void *)0x1, NULL, &record), 0);
    assert_int_equal(weft__nccl_arrive(member_of(0), record), 0);
    nap(900); /* it waits for its turn on the GPU, which is nobody's fault */
    assert_int_equal(weft__backend_nccl.error(comms[0].ctx, &text), WEFT_OK);
    atomic_fetch_add(&host_gpu_passed, 1);
    assert_text(wait_error(&comms[0]),
                "timed out after 0.4 s in call 1, allreduce of 8 f32, sum: not arrived: rank 1");
}

/* Streams of Weft's own need its devices, and so a fake GPU that is a module, with variables of its
 * own. */
typedef struct module_gpu {
    _Atomic int *recorded, *passed;
    char *log;
} module_gpu_t;

static module_gpu_t load_module(void)
{
    void *module = dlopen(getenv("WEFT_CUDA_MODULE"), RTLD_NOW);
    assert_non_null(module);
    module_gpu_t gpu = {dlsym(module, "host_gpu_recorded"), dlsym(module, "host_gpu_passed"),
                        dlsym(module, "host_gpu_log")};
    assert_true(gpu.recorded && gpu.passed && gpu.log);
    assert_true(weft__cuda_load(NULL));
    binding.ops = weft__cuda();
    return gpu;
}

static weft_nccl_inflight_t *launch_on(weft_stream_h stream)
{
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE);
    weft_nccl_inflight_t *record;
    void *cuda = weft__cuda_stream(stream);
    assert_int_equal(weft__nccl_depart(member_of(0), &call, cuda, stream, &record), 0);
    assert_int_equal(weft__nccl_arrive(member_of(0), record), 0);
    return record;
}

static void calls_close_behind_another_are_marked_together(void **state)
{
    (void)state;
    module_gpu_t gpu = load_module();
    weft_nccl_sight_t sight;
    weft_stream_h one, two;
    char expected[64];
    join(1, 0);
    assert_int_equal(weft_stream_create(&one), WEFT_OK);
    assert_int_equal(weft_stream_create(&two), WEFT_OK);
    member_of(0)->unmarked_ns = UINT64_MAX;
    int before = atomic_load(gpu.recorded);
    atomic_store(gpu.passed, before);
    assert_non_null(launch_on(one));
    for (int i = 0; i < 99; i++) {
        assert_null(launch_on(one));
    }
    assert_int_equal(atomic_load(gpu.recorded), before + 2);
    atomic_store(gpu.passed, before + 2);        /* the first is done */
    assert_false(weft__nccl_idle(member_of(0))); /* the others are not, which now is marked */
    assert_int_equal(atomic_load(gpu.recorded), before + 3);
    assert_true(weft__nccl_oldest(member_of(0), &sight));
    assert_int_equal(sight.first, 2);
    assert_int_equal(sight.last, 100);
    atomic_store(gpu.passed, before + 3);
    assert_true(weft__nccl_idle(member_of(0)));

    /* A call on another stream waits for what trails on this one, a new in-flight record on this
     * one covers it. */
    assert_null(launch_on(one));
    gpu.log[0] = '\0';
    assert_non_null(launch_on(two));
    const weft_nccl_inflight_t *unmarked = &member_of(0)->inflight[member_of(0)->newest - 1];
    snprintf(expected, sizeof(expected), "wait %p %p\n", weft__cuda_stream(two), unmarked->end);
    assert_text(gpu.log, expected);
    assert_null(launch_on(two));
    member_of(0)->unmarked_ns = 0;
    assert_int_equal(launch_on(two)->first, 103);

    /* A stream that was destroyed was waited for. */
    member_of(0)->unmarked_ns = UINT64_MAX;
    assert_null(launch_on(two));
    assert_int_equal(weft_stream_destroy(two), WEFT_OK);
    gpu.log[0] = '\0';
    assert_non_null(launch_on(one));
    assert_null(strstr(gpu.log, "wait"));
    atomic_store(gpu.passed, HOST_GPU_ALL);
    assert_int_equal(weft_stream_destroy(one), WEFT_OK);
    binding.ops = &host_gpu;
}

/* ---- splitting -------------------------------------------------------------------------- */

static void child_has_errors_of_its_own(void **state)
{
    (void)state;
    const char *text = "";
    join(4, 10000);
    for (int r = 0; r < 4; r++) {
        children[r].timeout_ms = 10000;
        assert_int_equal(weft__backend_nccl.split(comms[r].ctx, r % 2, r, &children[r]), WEFT_OK);
        assert_int_equal(children[r].rank, r / 2);
        assert_int_equal(children[r].size, 2);
    }
    weft__backend_nccl.abort(children[2].ctx); /* rank 1 of the even ones */
    assert_string_equal(wait_error(&children[0]), "rank 1 aborted the communicator");
    assert_int_equal(weft__backend_nccl.error(children[1].ctx, &text), WEFT_OK);
    assert_int_equal(weft__backend_nccl.error(children[3].ctx, &text), WEFT_OK);
    assert_int_equal(weft__backend_nccl.error(comms[0].ctx, &text), WEFT_OK);
    assert_int_equal(weft__backend_nccl.split(comms[0].ctx, -1, 0, &children[0]), WEFT_OK);
}

static void split_that_hangs_breaks_the_parent(void **state)
{
    (void)state;
    join(2, 300);
    children[0].timeout_ms = 300;
    atomic_store(&fake->stalls, "CommSplit");
    assert_int_equal(weft__backend_nccl.split(comms[0].ctx, 0, 0, &children[0]), WEFT_ERR_TIMEOUT);
    assert_said("timed out after 0.3 s on rank 0 in ncclCommSplit: nothing is known");
    assert_text(wait_error(&comms[1]), "on rank 0 in ncclCommSplit");
}

int main(void)
{
    if (!load_fakes()) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        TEST(ranks_join_call_and_leave),
        TEST(late_joiner_is_named),
        TEST(missing_rank_0_is_named),
        TEST(network_that_does_not_connect_gets_advice),
        TEST(reason_why_rank_0_has_no_id_reaches_all),
        TEST(rank_that_dies_while_others_join_is_named),
        TEST(refusal_of_one_rank_ends_the_others_wait),
        TEST(calls_on_different_streams_keep_their_order),
        TEST(many_launches_are_all_seen),
        TEST(calls_close_behind_another_are_marked_together),
        TEST(call_queued_on_a_stream_times_out_once_it_has_begun),
        TEST(child_has_errors_of_its_own),
        TEST(split_that_hangs_breaks_the_parent),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
