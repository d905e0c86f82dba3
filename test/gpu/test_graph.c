/* ctest: timeout=120 serial */
/* Calls captured in a CUDA graph, replayed a thousand times among calls that are not. */
#include <setjmp.h>
#include <stdlib.h>

#include "bench/graph.h"
#include "comm/call.h"
#include "comm/data.h"
#include "comm/memory.h"
#include "gpu/gpu.h"

#include <cmocka.h>

#define POISON 0x5c

/* One of each; the first in pieces, the last a send and a receive. `count` is of a block. */
static const struct {
    weft_coll_t coll;
    size_t count;
} plan[] = {
    {WEFT_COLL_ALLREDUCE, 100},   {WEFT_COLL_ALLREDUCE, 300001},    {WEFT_COLL_REDUCE, 5000},
    {WEFT_COLL_BROADCAST, 70000}, {WEFT_COLL_REDUCE_SCATTER, 3000}, {WEFT_COLL_ALLGATHER, 5000},
    {WEFT_COLL_GATHER, 1000},     {WEFT_COLL_SCATTER, 2000},        {WEFT_COLL_ALLTOALL, 1500},
    {WEFT_COLL_ALLTOALLV, 900},   {WEFT_COLL_BARRIER, 0},           {WEFT_COLL_SEND, 4000},
};
#define CALLS (sizeof(plan) / sizeof(plan[0]))

typedef struct rig {
    team_t *team;
    weft_stream_h s;
    buffer_t src[CALLS], dst[CALLS];
    size_t send_counts[TEAM_MOST], recv_counts[TEAM_MOST], offsets[TEAM_MOST];
} rig_t;

static data_t data_of(const rig_t *r, size_t k)
{
    bool reduces = weft__coll_info[plan[k].coll].reduces;
    return (data_t){WEFT_F32, reduces ? WEFT_SUM : DATA_RAW, r->team->size, (unsigned)k + 3};
}

static int root_of(const rig_t *r, size_t k)
{
    return (int)k % r->team->size;
}

static void rig_open(rig_t *r, team_t *team)
{
    size_t size = (size_t)team->size;
    *r = (rig_t){.team = team};
    CHECK_OK(weft_stream_create(&r->s));
    for (size_t k = 0; k < CALLS; k++) {
        data_t data = data_of(r, k);
        buffer_open(&r->src[k], plan[k].count * size * sizeof(float), false);
        buffer_open(&r->dst[k], plan[k].count * size * sizeof(float), false);
        data_fill(&data, team->rank, 0, plan[k].count * size, r->src[k].host);
        buffer_push_all(&r->src[k]);
    }
    for (int p = 0; p < team->size;
         p++) { /* 300, 600 or 900 to each; at the place of a full block */
        r->send_counts[p] = (size_t)((team->rank + 2 * p) % 3 + 1) * 300;
        r->recv_counts[p] = (size_t)((p + 2 * team->rank) % 3 + 1) * 300;
        r->offsets[p] = (size_t)p * 900;
    }
    team_meet(team);
}

static void rig_close(rig_t *r)
{
    for (size_t k = 0; k < CALLS; k++) {
        buffer_close(&r->src[k]);
        buffer_close(&r->dst[k]);
    }
    CHECK_OK(weft_stream_destroy(r->s));
}

static weft_status_t shift(rig_t *r, size_t k)
{
    int size = r->team->size, rank = r->team->rank;
    weft_group_start();
    weft_send(r->src[k].at, plan[k].count, WEFT_F32, (rank + 1) % size, r->team->comm, r->s);
    weft_recv(r->dst[k].at, plan[k].count, WEFT_F32, (rank + size - 1) % size, r->team->comm, r->s);
    return weft_group_end();
}

/* An all-reduce in four pieces, which one kernel carries out. */
static weft_status_t in_pieces(rig_t *r, size_t k)
{
    size_t piece = plan[k].count / 4 * sizeof(float);
    weft_group_start();
    for (size_t i = 0; i < 4; i++) {
        weft_allreduce(r->src[k].at + i * piece, r->dst[k].at + i * piece, plan[k].count / 4,
                       WEFT_F32, WEFT_SUM, r->team->comm, r->s);
    }
    return weft_group_end();
}

static weft_status_t issue(rig_t *r, size_t k)
{
    const void *src = r->src[k].at;
    void *dst = r->dst[k].at;
    size_t n = plan[k].count;
    weft_comm_h comm = r->team->comm;
    int root = root_of(r, k);
    switch (plan[k].coll) {
    case WEFT_COLL_ALLREDUCE:
        return n == 100 ? in_pieces(r, k)
                        : weft_allreduce(src, dst, n, WEFT_F32, WEFT_SUM, comm, r->s);
    case WEFT_COLL_REDUCE:
        return weft_reduce(src, dst, n, WEFT_F32, WEFT_SUM, root, comm, r->s);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(src, dst, n, WEFT_F32, root, comm, r->s);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(src, dst, n, WEFT_F32, WEFT_SUM, comm, r->s);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(src, dst, n, WEFT_F32, comm, r->s);
    case WEFT_COLL_GATHER:
        return weft_gather(src, dst, n, WEFT_F32, root, comm, r->s);
    case WEFT_COLL_SCATTER:
        return weft_scatter(src, dst, n, WEFT_F32, root, comm, r->s);
    case WEFT_COLL_ALLTOALL:
        return weft_alltoall(src, dst, n, WEFT_F32, comm, r->s);
    case WEFT_COLL_ALLTOALLV:
        return weft_alltoallv(src, r->send_counts, r->offsets, dst, r->recv_counts, r->offsets,
                              WEFT_F32, comm, r->s);
    case WEFT_COLL_SEND:
        return shift(r, k);
    default:
        return weft_barrier(comm, r->s);
    }
}

/* Every result is made anew: what was there before is overwritten first. */
static void issue_all(rig_t *r)
{
    for (size_t k = 0; k < CALLS; k++) {
        CHECK_OK(weft_memset(r->dst[k].at, POISON, r->dst[k].bytes, r->s));
        CHECK_OK(issue(r, k));
    }
}

/* Block `b` of the result holds `count` elements of `rank` from `first` on. */
static void check_block(rig_t *r, size_t k, size_t b, int rank, size_t first, size_t count)
{
    data_t data = data_of(r, k);
    size_t wrong;
    const char *at = r->dst[k].host + b * plan[k].count * sizeof(float);
    if (!data_check(&data, rank, first, count, at, &wrong)) {
        FAIL("%s, block %zu: wrong from element %zu on", weft__coll_info[plan[k].coll].name, b,
             wrong);
    }
}

static void check_call(rig_t *r, size_t k)
{
    size_t n = plan[k].count, size = (size_t)r->team->size, me = (size_t)r->team->rank;
    int root = root_of(r, k);
    bool is_root = root == r->team->rank;
    buffer_pull_all(&r->dst[k]);
    switch (plan[k].coll) {
    case WEFT_COLL_ALLREDUCE:
        check_block(r, k, 0, DATA_REDUCED, 0, n);
        break;
    case WEFT_COLL_REDUCE:
        check_block(r, k, 0, DATA_REDUCED, 0, is_root ? n : 0);
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        check_block(r, k, 0, DATA_REDUCED, me * n, n);
        break;
    case WEFT_COLL_BROADCAST:
        check_block(r, k, 0, root, 0, n);
        break;
    case WEFT_COLL_SCATTER:
        check_block(r, k, 0, root, me * n, n);
        break;
    case WEFT_COLL_SEND:
        check_block(r, k, 0, (int)((me + size - 1) % size), 0, n);
        break;
    case WEFT_COLL_BARRIER:
        break;
    default: /* a block from every rank */
        for (size_t b = 0; b < size; b++) {
            bool gathers = plan[k].coll == WEFT_COLL_ALLGATHER || plan[k].coll == WEFT_COLL_GATHER;
            size_t count = plan[k].coll == WEFT_COLL_ALLTOALLV            ? r->recv_counts[b]
                           : plan[k].coll == WEFT_COLL_GATHER && !is_root ? 0
                                                                          : n;
            check_block(r, k, b, (int)b, gathers ? 0 : me * n, count);
        }
    }
}

static void check_all(rig_t *r)
{
    CHECK_OK(weft_stream_synchronize(r->s));
    for (size_t k = 0; k < CALLS; k++) {
        check_call(r, k);
    }
}

/* ---- replaying ------------------------------------------------------------------------------- */

static void *capture(rig_t *r)
{
    void *graph = NULL;
    team_note("capturing");
    CHECK_OK(weft__bench_record(r->s));
    issue_all(r);
    CHECK_OK(weft__bench_recorded(r->s, &graph));
    for (size_t k = 0; k < CALLS; k++) { /* nothing has run yet */
        memset(r->dst[k].host, 0, r->dst[k].bytes);
        buffer_push_all(&r->dst[k]);
    }
    return graph;
}

/* A call between two replays, behind them on their stream, or on none once they are done. */
static void call_between(rig_t *r, int i, buffer_t *x)
{
    int32_t *value = (int32_t *)(void *)x->host;
    bool alone = i % 20 == 0;
    if (alone) {
        CHECK_OK(weft_stream_synchronize(r->s));
    }
    size_t count = i % 3 == 0 ? 30000 : 5;
    for (size_t j = 0; j < count; j++) {
        value[j] = r->team->rank + i;
    }
    buffer_push(x, x->host, count * sizeof(*value));
    CHECK_OK(weft_allreduce(x->at, x->at, count, WEFT_I32, WEFT_SUM, r->team->comm,
                            alone ? NULL : r->s));
    CHECK_OK(weft_stream_synchronize(r->s));
    buffer_pull(x, x->host, count * sizeof(*value));
    int size = r->team->size;
    CHECK_EQ(value[0], size * i + size * (size - 1) / 2);
    CHECK_EQ(value[count - 1], size * i + size * (size - 1) / 2);
}

static void replays(team_t *team)
{
    rig_t r;
    buffer_t x;
    const int times = team_short() ? 5 : 1000;
    rig_open(&r, team);
    buffer_open(&x, 30000 * sizeof(int32_t), false);
    team_meet(team);
    team_note("the calls without a graph");
    issue_all(&r);
    check_all(&r);
    team_meet(team);
    if (gpu_virtual()) {
        goto out;
    }
    void *graph = capture(&r);
    for (int i = 0; i < times; i++) {
        team_note("replay %d", i);
        CHECK_OK(weft__bench_replay(graph, r.s));
        if (i % 10 == 0) {
            call_between(&r, i, &x);
        }
        if (i % 100 == 0) {
            check_all(&r);
        }
    }
    check_all(&r);
    team_meet(team);
    weft__bench_forget(graph, r.s);
    team_note("the calls after the graph");
    issue_all(&r);
    check_all(&r);
out:
    team_meet(team);
    buffer_close(&x);
    rig_close(&r);
}

/* Plain memory of the program is read anew with every replay, and written: small, large, and in
 * pieces. */
static void plain_replays(team_t *team)
{
    enum { SMALL = 100, LARGE = 300001, MADE = 3 };
    static const size_t counts[MADE] = {SMALL, LARGE, SMALL};
    float *src[MADE], *dst[MADE];
    void *graph = NULL;
    weft_stream_h s;
    CHECK_OK(weft_stream_create(&s));
    for (int k = 0; k < MADE; k++) {
        src[k] = calloc(counts[k], sizeof(float));
        dst[k] = calloc(counts[k], sizeof(float));
        CHECK(src[k] && dst[k]);
    }
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    team_note("capturing calls with plain memory");
    CHECK_OK(weft__bench_record(s));
    CHECK_OK(weft_allreduce(src[0], dst[0], SMALL, WEFT_F32, WEFT_SUM, team->comm, s));
    CHECK_OK(weft_allreduce(src[1], dst[1], LARGE, WEFT_F32, WEFT_SUM, team->comm, s));
    CHECK_OK(weft_group_start());
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_allreduce(src[2] + 25 * i, dst[2] + 25 * i, 25, WEFT_F32, WEFT_SUM,
                                team->comm, s));
    }
    CHECK_OK(weft_group_end());
    CHECK_OK(weft__bench_recorded(s, &graph));
    for (int i = 0; i < 20; i++) {
        team_note("replay %d with plain memory", i);
        for (int k = 0; k < MADE; k++) {
            for (size_t j = 0; j < counts[k]; j++) {
                src[k][j] = (float)(team->rank + i + (int)(j % 7));
            }
        }
        CHECK_OK(weft__bench_replay(graph, s));
        CHECK_OK(weft_stream_synchronize(s));
        for (int k = 0; k < MADE; k++) {
            for (size_t j = 0; j < counts[k]; j++) {
                int each = i + (int)(j % 7), ranks = team->size * (team->size - 1) / 2;
                CHECK_EQ((int)dst[k][j], team->size * each + ranks);
            }
        }
    }
    team_meet(team);
    weft__bench_forget(graph, s);
    CHECK_OK(weft_stream_destroy(s));
    for (int k = 0; k < MADE; k++) {
        free(src[k]);
        free(dst[k]);
    }
}

/* Rank 1 does not replay: the kernels of the others end, and say who is missing. */
static void late_replay(team_t *team)
{
    rig_t r;
    const char *text;
    rig_open(&r, team);
    issue_all(&r);
    check_all(&r);
    team_meet(team);
    void *graph = capture(&r);
    CHECK_OK(weft__bench_replay(graph, r.s));
    check_all(&r);
    team_meet(team);
    double start = team_now();
    if (team->rank != 1) {
        CHECK_OK(weft__bench_replay(graph, r.s));
        CHECK_STATUS(weft_stream_synchronize(r.s), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_last_error(), "rank 1");
        CHECK_TEXT(weft_last_error(), "group of 4 allreduces of together 100 f32, sum");
        CHECK_WITHIN(team_now() - start, SOON);
    }
    team_meet(team);
    CHECK_STATUS(weft_comm_error(team->comm, &text), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(text, "rank 1");
    if (team->rank == 1) { /* its stream has not been asked yet */
        CHECK_STATUS(weft_stream_synchronize(r.s), WEFT_ERR_TIMEOUT);
    }
    weft__bench_forget(graph, r.s);
    rig_close(&r);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void run(int ranks, int procs)
{
    double start = team_now();
    assert_true(team_run(&(team_plan_t){.ranks = ranks, .procs = procs, .limit_s = 60}, replays));
    print_message("%d ranks: %.2f s\n", ranks, team_now() - start);
}

static void thousand_replays_of_threads(void **state)
{
    (void)state;
    run(2, 1);
    run(4, 1);
    if (!team_short()) {
        run(1, 1);
        run(8, 1);
    }
}

static void thousand_replays_of_processes(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    run(2, 2);
    if (!team_short()) {
        run(8, 8);
    }
}

static void plain_memory_is_read_anew(void **state)
{
    (void)state;
    if (gpu_virtual()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, plain_replays));
    if (gpu_processes()) {
        assert_true(team_run(&(team_plan_t){.ranks = 2}, plain_replays));
    }
}

static void rank_that_does_not_replay_is_named(void **state)
{
    (void)state;
    if (team_short() || gpu_virtual()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1, .timeout_ms = 2000}, late_replay));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousand_replays_of_threads),
        cmocka_unit_test(thousand_replays_of_processes),
        cmocka_unit_test(plain_memory_is_read_anew),
        cmocka_unit_test(rank_that_does_not_replay_is_named),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
