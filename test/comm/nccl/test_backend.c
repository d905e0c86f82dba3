/* ctest: timeout=120 tsan waits */
/* The nccl backend with a fake NCCL and a fake GPU, and a real store: what ranks learn of each
 * other. All ranks are in this process; one that dies is one whose connection to the store ends. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "boot/store_fixture.h"
#include "comm/nccl/fake_nccl.h"
#include "comm/nccl/host_gpu.h"
#include "comm/nccl/member.h"

#define MOST 4
#define SRC ((char *)0x1000)
#define DST ((char *)0x200000)

static fake_nccl_t *fake;
static weft_nccl_binding_t binding = {.device = 0, .gpu = 0, .ops = &host_gpu};
static struct weft_comm comms[MOST], children[MOST];
static weft_rendezvous_t road;

static weft_nccl_member_t *member_of(int rank)
{
    return comms[rank].ctx;
}

static void nap(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void assert_text(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" has no \"%s\"", text, part);
    }
}

static void assert_said(const char *part)
{
    assert_text(weft_last_error(), part);
}

/* ---- a GPU that ends what is aborted ---------------------------------------------------- */

static pthread_t gpu;
static _Atomic int gpu_stop, living; /* ranks: their calls end when all of them have aborted */

static void *run_gpu(void *arg)
{
    (void)arg;
    while (!atomic_load(&gpu_stop)) {
        int most = atomic_load(&living);
        if (most > 0 && atomic_load(&fake->aborted) >= most) {
            atomic_store(&host_gpu_passed, HOST_GPU_ALL);
        }
        nap(1);
    }
    return NULL;
}

static int set_up(void **state)
{
    (void)state;
    static int number;
    fake->fails = NULL;
    fake->text = "";
    atomic_store(&fake->stalls, NULL);
    atomic_store(&fake->stalled, 0);
    atomic_store(&fake->async, WEFT_NCCL_SUCCESS);
    atomic_store(&fake->aborted, 0);
    atomic_store(&fake->destroyed, 0);
    fake->log[0] = host_gpu_log[0] = '\0';
    fake->logged = 0;
    host_gpu_fails = NULL;
    atomic_store(&host_gpu_passed, HOST_GPU_ALL);
    memset(comms, 0, sizeof(comms));
    memset(children, 0, sizeof(children));
    road = (weft_rendezvous_t){.host = HOST, .port = port};
    memcpy(road.secret, secret, sizeof(secret));
    snprintf(road.key, sizeof(road.key), "comm/%d", ++number);
    atomic_store(&gpu_stop, 0);
    atomic_store(&living, 0);
    return pthread_create(&gpu, NULL, run_gpu, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    atomic_store(&fake->stalls, NULL);
    for (int r = 0; r < MOST; r++) {
        if (children[r].ctx) {
            weft__backend_nccl.close(children[r].ctx);
        }
        if (comms[r].ctx) {
            weft__backend_nccl.close(comms[r].ctx);
        }
    }
    atomic_store(&gpu_stop, 1);
    pthread_join(gpu, NULL);
    for (int i = 0;
         i < 1000 && (atomic_load(&fake->communicators) > 0 || atomic_load(&host_gpu_things) > 0);
         i++) {
        nap(5);
    }
    assert_int_equal(atomic_load(&fake->communicators), 0);
    assert_int_equal(atomic_load(&host_gpu_things), 0);
    return 0;
}

static weft_status_t enter(int rank, int size, int timeout_ms)
{
    comms[rank].timeout_ms = timeout_ms;
    weft_nccl_member_t *member = weft__nccl_member_create(&comms[rank], &road, &binding, rank,
                                                          size);
    assert_non_null(member);
    return weft__nccl_member_enter(member);
}

static void join(int size, int timeout_ms)
{
    for (int r = 0; r < size; r++) {
        assert_int_equal(enter(r, size, timeout_ms), WEFT_OK);
    }
    for (int r = 0; r < size; r++) {
        assert_int_equal(weft__nccl_comm_meet(&comms[r]), WEFT_OK);
    }
    atomic_store(&living, size);
}

/* What the communicator says is wrong, once it does. */
static const char *wait_error(struct weft_comm *comm)
{
    const char *text = "";
    for (int i = 0; i < 3000 && weft__backend_nccl.error(comm->ctx, &text) == WEFT_OK; i++) {
        nap(10);
    }
    return text;
}

/* From here on the GPU finishes nothing. */
static void block_gpu(void)
{
    atomic_store(&host_gpu_passed, atomic_load(&host_gpu_recorded));
}

/* ---- calls in threads of their own ------------------------------------------------------ */

typedef struct caller {
    pthread_t thread;
    int rank;
    weft_coll_t coll;
    weft_status_t status;
    char text[WEFT_ERROR_TEXT];
    double ms;
} caller_t;

static weft_call_t call_of(weft_coll_t coll)
{
    return (weft_call_t){.coll = coll, .src = SRC, .dst = DST, .count = 8, .type = WEFT_F32};
}

static weft_status_t make_call(int rank, weft_coll_t coll)
{
    weft_call_t call = call_of(coll);
    call.root = coll == WEFT_COLL_SEND ? 1 - rank : 0;
    return weft__backend_nccl.launch(comms[rank].ctx, &call, 1, NULL);
}

static void *run_caller(void *arg)
{
    caller_t *caller = arg;
    uint64_t start = weft__now_ns();
    caller->status = make_call(caller->rank, caller->coll);
    snprintf(caller->text, sizeof(caller->text), "%s", weft_last_error());
    caller->ms = ms_since(start);
    return NULL;
}

static void start_call(caller_t *caller, int rank, weft_coll_t coll)
{
    *caller = (caller_t){.rank = rank, .coll = coll};
    pthread_create(&caller->thread, NULL, run_caller, caller);
}

static void expect(caller_t *caller, weft_status_t status, const char *part)
{
    pthread_join(caller->thread, NULL);
    if (caller->status != status) {
        fail_msg("rank %d got %s, not %s: %s", caller->rank, weft_status_name(caller->status),
                 weft_status_name(status), caller->text);
    }
    assert_text(caller->text, part);
}

static void leave(int rank)
{
    weft__backend_nccl.close(comms[rank].ctx);
    comms[rank].ctx = NULL;
    atomic_fetch_sub(&living, 1);
}

/* As if its process had ended. */
static void die(int rank)
{
    atomic_fetch_sub(&living, 1);
    weft_nccl_member_t *member = member_of(rank);
    weft__nccl_watch_stop(member);
    weft__store_close(member->store);
    member->store = NULL;
}

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
    assert_said(
        "timed out after 0.3 s in joining: all ranks arrived, but it does not end on rank 0");
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    char module[1024];
    snprintf(module, sizeof(module), "%s/test/comm/nccl/fake_cuda.so", getenv("WEFT_BUILD"));
    setenv("WEFT_CUDA_MODULE", module, 1);
    setenv("WEFT_DEVICE", "cuda", 1);
    fake = fake_nccl_load();
    if (!fake) {
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
        TEST(calls_on_different_streams_keep_their_order),
        TEST(many_launches_are_all_seen),
        TEST(calls_close_behind_another_are_marked_together),
        TEST(call_queued_on_a_stream_times_out_once_it_has_begun),
        TEST(child_has_errors_of_its_own),
        TEST(split_that_hangs_breaks_the_parent),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
