/* ctest: timeout=60 tsan */
/* The nccl engine against a library that only looks like NCCL: what it asks, and what it makes of
 * the answers. */
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

#include "base/clock.h"
#include "comm/nccl/engine.h"
#include "comm/nccl/fake_nccl.h"
#include "comm/nccl/host_gpu.h"
#include "comm/nccl/nccl.h"
#include <weft/device.h>

#define STREAM ((void *)0x5)
#define SRC ((char *)0x1000)
#define DST ((char *)0x200000)

static fake_nccl_t *fake;
static const weft_nccl_binding_t binding = {.device = 0, .gpu = 3, .ops = &host_gpu};
static const weft_nccl_id_t id = {"abc"};

/* The fake as if nothing had happened, with `version` kept. */
static int reset(void **state)
{
    (void)state;
    fake->fails = NULL;
    fake->result = WEFT_NCCL_SUCCESS;
    fake->text = "";
    atomic_store(&fake->stalls, NULL);
    atomic_store(&fake->stalled, 0);
    atomic_store(&fake->in_progress, 0);
    atomic_store(&fake->async, WEFT_NCCL_SUCCESS);
    atomic_store(&fake->aborted, 0);
    atomic_store(&fake->destroyed, 0);
    atomic_store(&fake->revoked, 0);
    fake->log[0] = '\0';
    fake->logged = 0;
    host_gpu_fails = NULL;
    host_gpu_log[0] = '\0';
    return 0;
}

static size_t device_memory(void)
{
    weft_pool_stats_t stats;
    assert_int_equal(weft_pool_stats(0, &stats), WEFT_OK);
    return stats.in_use;
}

/* Nothing may be left: neither communicators nor device memory. */
static int check_empty(void **state)
{
    (void)state;
    for (int i = 0; i < 1000 && (atomic_load(&fake->communicators) > 0 || device_memory() > 0);
         i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* a thread that was left behind */
    }
    assert_int_equal(atomic_load(&fake->communicators), 0);
    assert_int_equal(device_memory(), 0);
    return 0;
}

static weft_nccl_t *open_engine(int rank, int size)
{
    weft_nccl_t *nccl = NULL;
    assert_int_equal(weft__nccl_open(&id, rank, size, &binding, 10000, &nccl), WEFT_OK);
    fake->log[0] = '\0';
    fake->logged = 0;
    return nccl;
}

static void assert_said(const char *part)
{
    if (!strstr(weft_last_error(), part)) {
        fail_msg("\"%s\" has no \"%s\"", weft_last_error(), part);
    }
}

/* Run calls; the fake must have been asked exactly `expected`. */
static void expect(weft_nccl_t *nccl, const weft_call_t *calls, int n, const char *format, ...)
{
    char expected[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof(expected), format, args);
    va_end(args);
    fake->log[0] = '\0';
    fake->logged = 0;
    assert_int_equal(weft__nccl_launch(nccl, calls, n, STREAM), WEFT_OK);
    assert_string_equal(fake->log, expected);
    assert_int_equal(fake->depth, 0);
}

static weft_call_t call_of(weft_coll_t coll, size_t count, weft_dtype_t type, weft_op_t op,
                           int root)
{
    return (weft_call_t){
        .coll = coll, .src = SRC, .dst = DST, .count = count, .type = type, .op = op, .root = root};
}

/* ---- joining ---------------------------------------------------------------------------- */

static void joins_with_id_rank_and_size(void **state)
{
    (void)state;
    weft_nccl_t *nccl = NULL;
    assert_int_equal(weft__nccl_open(&id, 2, 5, &binding, 10000, &nccl), WEFT_OK);
    assert_string_equal(fake->log, "CommInitRank 2 of 5, id abc\n");
    assert_int_equal(weft__nccl_rank(nccl), 2);
    assert_int_equal(weft__nccl_size(nccl), 5);
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_OK);
    weft__nccl_close(nccl);
    assert_int_equal(fake->destroyed, 1);
    assert_int_equal(fake->aborted, 0);
}

static void id_comes_from_nccl_or_says_why_not(void **state)
{
    (void)state;
    weft_nccl_id_t made;
    assert_int_equal(weft__nccl_id_create(&made), WEFT_OK);
    assert_int_equal(made.bytes[127], 'i');
    fake->fails = "GetUniqueId";
    fake->result = WEFT_NCCL_SYSTEM_ERROR;
    fake->text = "no socket interface found";
    assert_int_equal(weft__nccl_id_create(&made), WEFT_ERR_SYSTEM);
    assert_said("ncclGetUniqueId failed: unhandled system error; NCCL says: no socket interface");
}

static void gpu_shared_by_ranks_is_refused_with_advice(void **state)
{
    (void)state;
    weft_nccl_t *nccl = NULL;
    fake->fails = "CommInitRank";
    fake->result = WEFT_NCCL_INVALID_USAGE;
    fake->text = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 18000\n";
    assert_int_equal(weft__nccl_open(&id, 1, 2, &binding, 10000, &nccl), WEFT_ERR_UNSUPPORTED);
    assert_null(nccl);
    assert_said("ncclCommInitRank failed on rank 1 of 2 (GPU 3): invalid usage; NCCL says: "
                "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 18000; ");
    assert_said("WEFT_ENGINE=weft");
    assert_said("NCCL_MULTI_RANK_GPU_ENABLE=1");
}

static void results_become_statuses(void **state)
{
    (void)state;
    static const struct {
        int result;
        weft_status_t status;
    } cases[] = {
        {WEFT_NCCL_CUDA_ERROR, WEFT_ERR_SYSTEM},
        {WEFT_NCCL_SYSTEM_ERROR, WEFT_ERR_SYSTEM},
        {WEFT_NCCL_INTERNAL_ERROR, WEFT_ERR_SYSTEM},
        {WEFT_NCCL_INVALID_ARGUMENT, WEFT_ERR_INVALID},
        {WEFT_NCCL_INVALID_USAGE, WEFT_ERR_UNSUPPORTED},
        {WEFT_NCCL_REMOTE_ERROR, WEFT_ERR_RANK_DEAD},
        {WEFT_NCCL_TIMEOUT, WEFT_ERR_TIMEOUT},
        {77, WEFT_ERR_SYSTEM},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_nccl_t *nccl = NULL;
        fake->fails = "CommInitRank";
        fake->result = (weft_nccl_result_t)cases[i].result;
        assert_int_equal(weft__nccl_open(&id, 0, 2, &binding, 10000, &nccl), cases[i].status);
        assert_said("ncclCommInitRank failed on rank 0 of 2 (GPU 3): ");
    }
}

static void gpu_that_cannot_be_used_is_named(void **state)
{
    (void)state;
    weft_nccl_t *nccl = NULL;
    host_gpu_fails = "fill";
    assert_int_equal(weft__nccl_open(&id, 0, 2, &binding, 10000, &nccl), WEFT_ERR_SYSTEM);
    assert_said("GPU 3 cannot be used: out of memory");
    assert_string_equal(fake->log, "");
}

static void joining_times_out_and_leaves_nothing(void **state)
{
    (void)state;
    weft_nccl_t *nccl = NULL;
    uint64_t start = weft__now_ns();
    atomic_store(&fake->stalls, "CommInitRank");
    assert_int_equal(weft__nccl_open(&id, 1, 4, &binding, 200, &nccl), WEFT_ERR_TIMEOUT);
    assert_true(weft__now_ns() - start >= 200000000u);
    assert_true(weft__now_ns() - start < 5000000000u);
    assert_said("timed out after 0.2 s on rank 1 in ncclCommInitRank: nothing is known");
    /* The thread that was left behind ends what it gets in the end. */
    atomic_store(&fake->stalls, NULL);
    check_empty(NULL);
    assert_int_equal(fake->aborted, 1);
}

static void one_thread_joins_several_ranks(void **state)
{
    (void)state;
    weft_nccl_t *nccl[3];
    atomic_store(&fake->stalls, "CommInitRank");
    for (int r = 0; r < 3; r++) {
        assert_int_equal(weft__nccl_enter(&id, r, 3, &binding, &nccl[r]), WEFT_OK);
    }
    assert_int_equal(weft__nccl_meet(nccl[0], 20), WEFT_PENDING);
    while (atomic_load(&fake->stalled) < 3) { /* all are inside at once */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_store(&fake->stalls, NULL);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(weft__nccl_meet(nccl[r], 10000), WEFT_OK);
        assert_int_equal(weft__nccl_meet(nccl[r], 10000), WEFT_OK);
        weft__nccl_close(nccl[r]);
    }
}

static void in_progress_is_waited_for(void **state)
{
    (void)state;
    weft_nccl_t *nccl = NULL;
    atomic_store(&fake->in_progress, 3);
    assert_int_equal(weft__nccl_open(&id, 0, 1, &binding, 10000, &nccl), WEFT_OK);
    assert_int_equal(fake->in_progress, 0);
    atomic_store(&fake->in_progress, 3);
    weft_call_t call = call_of(WEFT_COLL_ALLTOALL, 1, WEFT_F32, WEFT_SUM, 0);
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_OK);
    assert_int_equal(fake->in_progress, 0);
    atomic_store(&fake->in_progress, 3);
    atomic_store(&fake->async, WEFT_NCCL_REMOTE_ERROR);
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_RANK_DEAD);
    weft__nccl_close(nccl);
}

/* ---- calls ------------------------------------------------------------------------------ */

static void every_type_and_operation_has_its_word(void **state)
{
    (void)state;
    static const char *const types[WEFT_DTYPE_COUNT] = {
        [WEFT_F64] = "float64",   [WEFT_F32] = "float32",       [WEFT_F16] = "float16",
        [WEFT_BF16] = "bfloat16", [WEFT_I8] = "int8",           [WEFT_U8] = "uint8",
        [WEFT_I32] = "int32",     [WEFT_U32] = "uint32",        [WEFT_I64] = "int64",
        [WEFT_U64] = "uint64",    [WEFT_F8E4M3] = "float8e4m3", [WEFT_F8E5M2] = "float8e5m2"};
    static const char *const ops[WEFT_OP_COUNT] = {[WEFT_SUM] = "sum",
                                                   [WEFT_PROD] = "prod",
                                                   [WEFT_MIN] = "min",
                                                   [WEFT_MAX] = "max",
                                                   [WEFT_AVG] = "avg"};
    weft_nccl_t *nccl = open_engine(0, 2);
    for (int t = 0; t < WEFT_DTYPE_COUNT; t++) {
        for (int o = 0; o < WEFT_OP_COUNT; o++) {
            weft_call_t call = call_of(WEFT_COLL_ALLREDUCE, 9, (weft_dtype_t)t, (weft_op_t)o, 0);
            expect(nccl, &call, 1, "AllReduce %p %p 9 %s %s on %p\n", SRC, DST, types[t], ops[o],
                   STREAM);
        }
    }
    weft__nccl_close(nccl);
}

/* Float8 that moves is bytes to every version; older ones do not reduce it. */
static void float8_and_old_versions(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_BROADCAST, 3, WEFT_F8E4M3, WEFT_SUM, 1);
    expect(nccl, &call, 1, "Broadcast %p %p 3 uint8 root 1 on %p\n", SRC, DST, STREAM);
    const weft_nccl_api_t *api = nccl->api;
    weft_nccl_api_t old = *api;
    old.version = 22304;
    nccl->api = &old;
    expect(nccl, &call, 1, "Broadcast %p %p 3 uint8 root 1 on %p\n", SRC, DST, STREAM);
    call = call_of(WEFT_COLL_REDUCE_SCATTER, 3, WEFT_F8E5M2, WEFT_SUM, 0);
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_last_error(), "does not reduce f8e5m2"));
    nccl->api = api;
    nccl->adds_float8 = false; /* as on a GPU before Hopper */
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_UNSUPPORTED);
    nccl->adds_float8 = true;
    expect(nccl, &call, 1, "ReduceScatter %p %p 3 float8e5m2 sum on %p\n", SRC, DST, STREAM);
    weft__nccl_close(nccl);
}

static void collectives_that_nccl_has(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(1, 4);
    weft_call_t call = call_of(WEFT_COLL_REDUCE, 7, WEFT_BF16, WEFT_MAX, 3);
    expect(nccl, &call, 1, "Reduce %p %p 7 bfloat16 max root 3 on %p\n", SRC, DST, STREAM);
    call = call_of(WEFT_COLL_BROADCAST, 0, WEFT_U64, WEFT_SUM, 2);
    expect(nccl, &call, 1, "Broadcast %p %p 0 uint64 root 2 on %p\n", SRC, DST, STREAM);
    call = call_of(WEFT_COLL_REDUCE_SCATTER, 5, WEFT_F16, WEFT_AVG, 0);
    expect(nccl, &call, 1, "ReduceScatter %p %p 5 float16 avg on %p\n", SRC, DST, STREAM);
    call = call_of(WEFT_COLL_ALLGATHER, 1, WEFT_I8, WEFT_SUM, 0);
    expect(nccl, &call, 1, "AllGather %p %p 1 int8 on %p\n", SRC, DST, STREAM);
    weft__nccl_close(nccl);
}

static void barrier_reduces_a_word_of_the_engines_own(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = {.coll = WEFT_COLL_BARRIER, .type = WEFT_U8};
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_OK);
    void *src, *dst, *on;
    assert_int_equal(sscanf(fake->log, "AllReduce %p %p 1 int32 sum on %p\n", &src, &dst, &on), 3);
    assert_non_null(src);
    assert_ptr_equal(src, dst);
    assert_ptr_equal(on, STREAM);
    weft__nccl_close(nccl);
}

static void gather_and_scatter_are_messages_in_a_group(void **state)
{
    (void)state;
    weft_nccl_t *root = open_engine(1, 3), *other = open_engine(2, 3);
    weft_call_t call = call_of(WEFT_COLL_GATHER, 2, WEFT_F32, WEFT_SUM, 1);
    expect(root, &call, 1,
           "GroupStart\nSend %p 2 float32 to 1 on %p\nRecv %p 2 float32 from 0 on %p\n"
           "Recv %p 2 float32 from 1 on %p\nRecv %p 2 float32 from 2 on %p\nGroupEnd\n",
           SRC, STREAM, DST, STREAM, DST + 8, STREAM, DST + 16, STREAM);
    expect(other, &call, 1, "GroupStart\nSend %p 2 float32 to 1 on %p\nGroupEnd\n", SRC, STREAM);
    call.src = DST + 8; /* in place on the root: its own block stays where it is */
    expect(root, &call, 1,
           "GroupStart\nRecv %p 2 float32 from 0 on %p\nRecv %p 2 float32 from 2 on %p\nGroupEnd\n",
           DST, STREAM, DST + 16, STREAM);
    call = call_of(WEFT_COLL_SCATTER, 2, WEFT_F32, WEFT_SUM, 1);
    expect(root, &call, 1,
           "GroupStart\nSend %p 2 float32 to 0 on %p\nSend %p 2 float32 to 1 on %p\n"
           "Send %p 2 float32 to 2 on %p\nRecv %p 2 float32 from 1 on %p\nGroupEnd\n",
           SRC, STREAM, SRC + 8, STREAM, SRC + 16, STREAM, DST, STREAM);
    expect(other, &call, 1, "GroupStart\nRecv %p 2 float32 from 1 on %p\nGroupEnd\n", DST, STREAM);
    call.dst = SRC + 8;
    expect(root, &call, 1,
           "GroupStart\nSend %p 2 float32 to 0 on %p\nSend %p 2 float32 to 2 on %p\nGroupEnd\n",
           SRC, STREAM, SRC + 16, STREAM);
    weft__nccl_close(root);
    weft__nccl_close(other);
}

static void alltoall_exchanges_with_everybody(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLTOALL, 3, WEFT_I64, WEFT_SUM, 0);
    expect(nccl, &call, 1,
           "GroupStart\nSend %p 3 int64 to 0 on %p\nRecv %p 3 int64 from 0 on %p\n"
           "Send %p 3 int64 to 1 on %p\nRecv %p 3 int64 from 1 on %p\nGroupEnd\n",
           SRC, STREAM, DST, STREAM, SRC + 24, STREAM, DST + 24, STREAM);
    call.count = 0;
    expect(nccl, &call, 1, "GroupStart\nGroupEnd\n");
    weft__nccl_close(nccl);
}

static void alltoallv_sends_what_the_vectors_say(void **state)
{
    (void)state;
    size_t v[4][2] = {{1, 0}, {4, 0}, {1, 2}, {0, 5}};
    weft_vectors_t vectors = {v[0], v[1], v[2], v[3]};
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLTOALLV, 0, WEFT_F64, WEFT_SUM, 0);
    call.vectors = &vectors;
    expect(nccl, &call, 1,
           "GroupStart\nSend %p 1 float64 to 0 on %p\nRecv %p 1 float64 from 0 on %p\n"
           "Recv %p 2 float64 from 1 on %p\nGroupEnd\n",
           SRC + 32, STREAM, DST, STREAM, DST + 40, STREAM);
    weft__nccl_close(nccl);
}

static void alltoall_in_place_sends_a_copy(void **state)
{
    (void)state;
    char data[512 << 10], *src;
    void *copied_to, *copied_from;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLTOALL, sizeof(data) / 2, WEFT_U8, WEFT_SUM, 0);
    memset(data, 'd', sizeof(data));
    call.src = call.dst = data;
    size_t before = 0;
    for (int i = 0; i < 3; i++) { /* again and again in the same place */
        fake->log[0] = host_gpu_log[0] = '\0';
        fake->logged = 0;
        assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_OK);
        assert_int_equal(sscanf(host_gpu_log, "copy %p %p", &copied_to, &copied_from), 2);
        assert_ptr_equal(copied_from, data);
        assert_int_equal(sscanf(fake->log, "GroupStart\nSend %p", (void **)&src), 1);
        assert_ptr_equal(src, copied_to);
        assert_memory_equal(src, data, sizeof(data));
        before = i == 0 ? device_memory() : before;
    }
    assert_int_equal(device_memory(), before); /* in one and the same place */
    weft__nccl_close(nccl);
}

/* All copies are made before NCCL starts at the end of the group: they must not share a place. */
static void alltoalls_in_place_of_one_group_have_copies_of_their_own(void **state)
{
    (void)state;
    static char data[4][700 << 10];
    void *to[4], *from[4];
    weft_nccl_t *nccl = open_engine(0, 2);
    assert_int_equal(weft__nccl_group_start(), WEFT_OK);
    for (int i = 0; i < 4; i++) {
        weft_call_t call = call_of(WEFT_COLL_ALLTOALL, sizeof(data[i]) / 2, WEFT_U8, WEFT_SUM, 0);
        call.src = call.dst = data[i];
        memset(data[i], 'a' + i, sizeof(data[i]));
        assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_OK);
    }
    assert_int_equal(sscanf(host_gpu_log, "copy %p %p\ncopy %p %p\ncopy %p %p\ncopy %p %p", &to[0],
                            &from[0], &to[1], &from[1], &to[2], &from[2], &to[3], &from[3]),
                     8);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(to[i], data[i], sizeof(data[i]));
    }
    assert_int_equal(weft__nccl_group_end(), WEFT_OK);
    weft__nccl_close(nccl);
}

static void no_room_for_a_copy_says_what_to_do(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLTOALL, (size_t)1 << 47, WEFT_U8, WEFT_SUM, 0);
    call.dst = SRC;
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_NO_MEMORY);
    assert_said("an alltoall in place needs a copy; use two buffers, or less: ");
    /* The other ranks are in this call: it cannot go on as if nothing had happened. */
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_ERR_NO_MEMORY);
    weft__nccl_close(nccl);
}

static void several_calls_form_a_group(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t sums[2] = {call_of(WEFT_COLL_ALLREDUCE, 1, WEFT_F32, WEFT_SUM, 0),
                           call_of(WEFT_COLL_ALLREDUCE, 2, WEFT_F32, WEFT_SUM, 0)};
    expect(nccl, sums, 2,
           "GroupStart\nAllReduce %p %p 1 float32 sum on %p\nAllReduce %p %p 2 float32 sum on %p\n"
           "GroupEnd\n",
           SRC, DST, STREAM, SRC, DST, STREAM);
    weft_call_t messages[2] = {call_of(WEFT_COLL_RECV, 4, WEFT_U32, WEFT_SUM, 1),
                               call_of(WEFT_COLL_SEND, 4, WEFT_U32, WEFT_SUM, 1)};
    expect(nccl, messages, 2,
           "GroupStart\nRecv %p 4 uint32 from 1 on %p\nSend %p 4 uint32 to 1 on %p\nGroupEnd\n",
           DST, STREAM, SRC, STREAM);
    weft__nccl_close(nccl);
}

/* ---- groups ----------------------------------------------------------------------------- */

static void groups_nest_and_end_together(void **state)
{
    (void)state;
    weft_nccl_t *a = open_engine(0, 2), *b = open_engine(1, 2);
    weft_call_t sum = call_of(WEFT_COLL_ALLREDUCE, 1, WEFT_F32, WEFT_SUM, 0);
    weft_call_t all = call_of(WEFT_COLL_ALLTOALL, 0, WEFT_F32, WEFT_SUM, 0);
    assert_int_equal(weft__nccl_group_start(), WEFT_OK);
    assert_int_equal(weft__nccl_launch(a, &sum, 1, STREAM), WEFT_OK);
    assert_int_equal(weft__nccl_group_start(), WEFT_OK);
    assert_int_equal(weft__nccl_launch(b, &all, 1, STREAM), WEFT_OK);
    assert_int_equal(weft__nccl_group_end(), WEFT_OK);
    assert_int_equal(fake->depth, 1);
    assert_int_equal(weft__nccl_launch(a, &sum, 1, STREAM), WEFT_OK);
    assert_int_equal(weft__nccl_group_end(), WEFT_OK);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(weft__nccl_launch(a, &sum, 1, STREAM), WEFT_OK);
    assert_int_equal(weft__nccl_group_end(), WEFT_ERR_INVALID);
    weft__nccl_close(a);
    weft__nccl_close(b);
}

static void group_that_fails_breaks_all_in_it(void **state)
{
    (void)state;
    weft_nccl_t *a = open_engine(0, 2), *b = open_engine(1, 2), *c = open_engine(0, 1);
    weft_call_t sum = call_of(WEFT_COLL_ALLREDUCE, 1, WEFT_F32, WEFT_SUM, 0);
    assert_int_equal(weft__nccl_group_start(), WEFT_OK);
    assert_int_equal(weft__nccl_launch(a, &sum, 1, STREAM), WEFT_OK);
    assert_int_equal(weft__nccl_launch(b, &sum, 1, STREAM), WEFT_OK);
    fake->fails = "GroupEnd";
    fake->result = WEFT_NCCL_SYSTEM_ERROR;
    fake->text = "no route to host";
    assert_int_equal(weft__nccl_group_end(), WEFT_ERR_SYSTEM);
    assert_said("ncclGroupEnd failed on rank");
    assert_said("no route to host");
    fake->fails = NULL;
    assert_int_equal(weft__nccl_launch(a, &sum, 1, STREAM), WEFT_ERR_SYSTEM);
    assert_int_equal(weft__nccl_launch(b, &sum, 1, STREAM), WEFT_ERR_SYSTEM);
    assert_int_equal(weft__nccl_launch(c, &sum, 1, STREAM), WEFT_OK);
    weft__nccl_close(a);
    weft__nccl_close(b);
    weft__nccl_close(c);
    assert_int_equal(fake->aborted, 2);
    assert_int_equal(fake->destroyed, 1);
}

/* ---- errors ----------------------------------------------------------------------------- */

static void failing_call_breaks_the_engine_and_closes_its_group(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLTOALL, 3, WEFT_I64, WEFT_SUM, 0);
    const char *text;
    fake->fails = "Recv";
    fake->result = WEFT_NCCL_INVALID_ARGUMENT;
    fake->text = "Recv : dst is not a device pointer";
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_INVALID);
    assert_said("ncclRecv failed on rank 0 of 2 (GPU 3): invalid argument; NCCL says: Recv : dst");
    assert_int_equal(fake->depth, 0);
    fake->fails = NULL;
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_INVALID);
    assert_int_equal(weft__nccl_error(nccl, &text), WEFT_ERR_INVALID);
    assert_non_null(strstr(text, "ncclRecv failed"));
    weft__nccl_close(nccl);
    assert_int_equal(fake->aborted, 1);
}

static void asynchronous_error_is_found_by_asking(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE, 3, WEFT_I64, WEFT_SUM, 0);
    const char *text;
    atomic_store(&fake->async, WEFT_NCCL_IN_PROGRESS);
    assert_int_equal(weft__nccl_error(nccl, &text), WEFT_OK);
    assert_string_equal(text, "");
    atomic_store(&fake->async, WEFT_NCCL_REMOTE_ERROR);
    fake->text = "connection closed by remote peer";
    assert_int_equal(weft__nccl_error(nccl, &text), WEFT_ERR_RANK_DEAD);
    assert_non_null(strstr(text, "remote process exited"));
    assert_non_null(strstr(text, "connection closed by remote peer"));
    atomic_store(&fake->async, WEFT_NCCL_SUCCESS); /* the first error stays */
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_ERR_RANK_DEAD);
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_RANK_DEAD);
    weft__nccl_close(nccl);
}

static void abort_ends_it_once(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(1, 2);
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE, 3, WEFT_I64, WEFT_SUM, 0);
    weft__nccl_abort(nccl);
    weft__nccl_abort(nccl);
    assert_int_equal(fake->aborted, 1);
    assert_int_equal(weft__nccl_launch(nccl, &call, 1, STREAM), WEFT_ERR_ABORTED);
    assert_said("aborted on rank 1 of 2");
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_OK);
    weft__nccl_close(nccl);
    assert_int_equal(fake->aborted, 1);
    assert_int_equal(fake->destroyed, 0);
}

static void *launch_thread(void *arg)
{
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE, 3, WEFT_I64, WEFT_SUM, 0);
    return (void *)(intptr_t)weft__nccl_launch(arg, &call, 1, STREAM);
}

/* A launch hangs while NCCL connects to a peer that does not come. */
static void abort_gets_a_stuck_launch_out(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(1, 2);
    pthread_t thread;
    void *status;
    atomic_store(&fake->stalls, "AllReduce");
    pthread_create(&thread, NULL, launch_thread, nccl);
    while (atomic_load(&fake->stalled) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    weft__nccl_abort(nccl);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, WEFT_ERR_SYSTEM);
    assert_int_equal(fake->revoked, 1); /* which frees nothing under the launch's feet */
    assert_int_equal(fake->aborted, 1);
    weft__nccl_close(nccl);
}

/* The same with an NCCL that cannot revoke. */
static void abort_gets_a_stuck_launch_out_of_old_nccl(void **state)
{
    (void)state;
    weft_nccl_api_t *api = (weft_nccl_api_t *)weft__nccl(NULL);
    weft_nccl_result_t (*revoke)(weft_nccl_comm_h, int) = api->CommRevoke;
    weft_nccl_t *nccl = open_engine(1, 2);
    pthread_t thread;
    void *status;
    api->CommRevoke = NULL;
    atomic_store(&fake->stalls, "AllReduce");
    pthread_create(&thread, NULL, launch_thread, nccl);
    while (atomic_load(&fake->stalled) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    weft__nccl_abort(nccl);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, WEFT_ERR_SYSTEM);
    assert_int_equal(fake->aborted, 1);
    weft__nccl_close(nccl);
    api->CommRevoke = revoke;
}

/* ---- splitting -------------------------------------------------------------------------- */

static void split_asks_nccl_who_we_are(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(5, 8), *child = NULL, *none = nccl;
    assert_int_equal(weft__nccl_split(nccl, 1, 50, 10000, &child), WEFT_OK);
    assert_string_equal(fake->log, "CommSplit color 1 key 50 config (nil)\n");
    assert_int_equal(weft__nccl_rank(child), 2);
    assert_int_equal(weft__nccl_size(child), 4);
    assert_int_equal(weft__nccl_split(nccl, -7, 0, 10000, &none), WEFT_OK);
    assert_null(none);
    assert_non_null(strstr(fake->log, "CommSplit color -1 key 0"));
    weft__nccl_close(nccl); /* a child outlives its parent */
    weft_call_t call = call_of(WEFT_COLL_ALLREDUCE, 3, WEFT_I64, WEFT_SUM, 0);
    assert_int_equal(weft__nccl_launch(child, &call, 1, STREAM), WEFT_OK);
    weft__nccl_close(child);
    assert_int_equal(fake->destroyed, 2);
}

static void split_that_fails_breaks_the_parent(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2), *child;
    fake->fails = "CommSplit";
    fake->result = WEFT_NCCL_REMOTE_ERROR;
    assert_int_equal(weft__nccl_split(nccl, 0, 0, 10000, &child), WEFT_ERR_RANK_DEAD);
    assert_null(child);
    assert_said("ncclCommSplit failed on rank 0 of 2");
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_ERR_RANK_DEAD);
    weft__nccl_close(nccl);
}

static void split_times_out_while_the_parent_is_held(void **state)
{
    (void)state;
    weft_nccl_t *nccl = open_engine(0, 2), *child;
    atomic_store(&fake->stalls, "CommSplit");
    assert_int_equal(weft__nccl_split(nccl, 0, 0, 100, &child), WEFT_ERR_TIMEOUT);
    assert_said("timed out after 0.1 s on rank 0 in ncclCommSplit");
    assert_int_equal(weft__nccl_error(nccl, NULL), WEFT_ERR_TIMEOUT);
    weft__nccl_close(nccl); /* the thread in ncclCommSplit still uses it, and frees it */
    assert_int_equal(fake->communicators, 2); /* it, and the one that is about to be */
    atomic_store(&fake->stalls, NULL);
    check_empty(NULL);
    assert_int_equal(fake->aborted, 2); /* the child that nobody waits for, and the parent */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, check_empty)

int main(void)
{
    fake = fake_nccl_load();
    if (!fake) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        TEST(joins_with_id_rank_and_size),
        TEST(id_comes_from_nccl_or_says_why_not),
        TEST(gpu_shared_by_ranks_is_refused_with_advice),
        TEST(results_become_statuses),
        TEST(gpu_that_cannot_be_used_is_named),
        TEST(joining_times_out_and_leaves_nothing),
        TEST(one_thread_joins_several_ranks),
        TEST(in_progress_is_waited_for),
        TEST(every_type_and_operation_has_its_word),
        TEST(float8_and_old_versions),
        TEST(collectives_that_nccl_has),
        TEST(barrier_reduces_a_word_of_the_engines_own),
        TEST(gather_and_scatter_are_messages_in_a_group),
        TEST(alltoall_exchanges_with_everybody),
        TEST(alltoallv_sends_what_the_vectors_say),
        TEST(alltoall_in_place_sends_a_copy),
        TEST(alltoalls_in_place_of_one_group_have_copies_of_their_own),
        TEST(no_room_for_a_copy_says_what_to_do),
        TEST(several_calls_form_a_group),
        TEST(groups_nest_and_end_together),
        TEST(group_that_fails_breaks_all_in_it),
        TEST(failing_call_breaks_the_engine_and_closes_its_group),
        TEST(asynchronous_error_is_found_by_asking),
        TEST(abort_ends_it_once),
        TEST(abort_gets_a_stuck_launch_out),
        TEST(abort_gets_a_stuck_launch_out_of_old_nccl),
        TEST(split_asks_nccl_who_we_are),
        TEST(split_that_fails_breaks_the_parent),
        TEST(split_times_out_while_the_parent_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
