/* ctest: timeout=60 tsan */
/* Making, splitting, shrinking, growing and ending communicators through NCCL's interface. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <weft/weft.h>

#include "nccl/ranks.h"
#include "nccl/table.h"

/* The communicator adds up: `size` ranks, of which this is `rank`. */
static void expect_works(ncclComm_t comm, int rank, int size)
{
    int is, of, device;
    EXPECT_OK(ncclCommCount(comm, &of));
    EXPECT_OK(ncclCommUserRank(comm, &is));
    EXPECT_OK(ncclCommCuDevice(comm, &device));
    EXPECT(is == rank && of == size);
    int32_t sum = 1 << rank;
    EXPECT_OK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    EXPECT(sum == (1 << size) - 1);
}

static void test_one_thread_drives_all(void **state)
{
    (void)state;
    enum { N = 4, COUNT = 1000 };
    ncclComm_t comms[N], halves[N];
    weft_stream_h streams[N];
    float *buffers[N];
    int devices[N] = {0, 1, 2, 3};
    EXPECT_OK(ncclCommInitAll(comms, N, devices));
    for (int i = 0; i < N; i++) {
        EXPECT(weft_device_set(i) == WEFT_OK);
        EXPECT(weft_stream_create(&streams[i]) == WEFT_OK);
        EXPECT_OK(ncclMemAlloc((void **)&buffers[i], COUNT * sizeof(float)));
        for (int k = 0; k < COUNT; k++) {
            buffers[i][k] = (float)(i + k);
        }
    }
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < N; i++) {
        EXPECT_OK(ncclAllReduce(buffers[i], buffers[i], COUNT, ncclFloat, ncclSum, comms[i],
                                (cudaStream_t)(void *)streams[i]));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int i = 0; i < N; i++) {
        await_stream((cudaStream_t)(void *)streams[i]);
        for (int k = 0; k < COUNT; k++) {
            EXPECT(buffers[i][k] == (float)(4 * k + 6));
        }
    }
    /* One thread splits all of them, in a group. */
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < N; i++) {
        EXPECT_OK(ncclCommSplit(comms[i], i % 2, -i, &halves[i], NULL));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int i = 0; i < N; i++) {
        int rank, size;
        EXPECT_OK(ncclCommUserRank(halves[i], &rank));
        EXPECT_OK(ncclCommCount(halves[i], &size));
        EXPECT(size == 2 && rank == 1 - i / 2);
    }
    for (int i = 0; i < N; i++) {
        EXPECT_OK(ncclCommDestroy(halves[i]));
        EXPECT_OK(ncclCommDestroy(comms[i]));
        EXPECT_OK(ncclMemFree(buffers[i]));
        EXPECT(weft_stream_destroy(streams[i]) == WEFT_OK);
    }
    EXPECT(weft_device_set(0) == WEFT_OK);
}

static void test_one_thread_joins_all(void **state)
{
    (void)state;
    enum { N = 3 };
    ncclComm_t comms[N];
    ncclUniqueId id;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < N; i++) {
        EXPECT(weft_device_set(i) == WEFT_OK);
        EXPECT_OK(ncclCommInitRank(&comms[i], N, id, i));
    }
    EXPECT_OK(ncclGroupEnd());
    for (int i = 0; i < N; i++) {
        int rank, device;
        EXPECT_OK(ncclCommUserRank(comms[i], &rank));
        EXPECT_OK(ncclCommCuDevice(comms[i], &device));
        EXPECT(rank == i && device == i);
    }
    for (int i = 0; i < N; i++) {
        EXPECT_OK(ncclCommDestroy(comms[i]));
    }
    EXPECT(weft_device_set(0) == WEFT_OK);
}

static void split(nccl_rank_t *r)
{
    ncclComm_t part;
    for (int round = 0; round < 3; round++) {
        int color = r->rank == round ? NCCL_SPLIT_NOCOLOR : r->rank % 2;
        EXPECT_OK(ncclCommSplit(r->comm, color, 0, &part, NULL));
        EXPECT((part == NULL) == (color == NCCL_SPLIT_NOCOLOR));
        if (part) {
            int rank = 0, size = 0;
            for (int k = 0; k < r->size; k++) {
                if (k != round && k % 2 == color) {
                    rank += k < r->rank;
                    size++;
                }
            }
            expect_works(part, rank, size);
            EXPECT_OK(ncclCommDestroy(part));
        }
    }
    expect_works(r->comm, r->rank, r->size);
}

static void test_split(void **state)
{
    (void)state;
    run_ranks(5, split, NULL);
}

static void shrink(nccl_rank_t *r)
{
    ncclComm_t left;
    int gone[2] = {3, 1};
    if (r->rank != 1 && r->rank != 3) {
        EXPECT_OK(ncclCommShrink(r->comm, gone, 2, &left, NULL, NCCL_SHRINK_DEFAULT));
        expect_works(left, r->rank / 2, 3);
        /* Of what is left, one goes too; and the first one is as it was. */
        int last[1] = {2};
        ncclComm_t two = NULL;
        if (r->rank != 4) {
            EXPECT_OK(ncclCommShrink(left, last, 1, &two, NULL, NCCL_SHRINK_DEFAULT));
            expect_works(two, r->rank / 2, 2);
            EXPECT_OK(ncclCommDestroy(two));
        }
        EXPECT_OK(ncclCommDestroy(left));
    }
    expect_works(r->comm, r->rank, r->size);
}

static void test_shrink(void **state)
{
    (void)state;
    run_ranks(5, shrink, NULL);
}

/* One rank does not come; the others are in a call with it, and go on without. */
static void shrink_after_loss(nccl_rank_t *r)
{
    ncclComm_t left;
    int gone[1] = {2};
    int32_t sum = 1;
    if (r->rank == 2) {
        usleep(100000);
        EXPECT_OK(ncclCommAbort(r->comm));
        r->comm = NULL;
        return;
    }
    ncclResult_t result = ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, r->comm, r->stream);
    if (result == ncclSuccess) {
        EXPECT(weft_stream_synchronize((weft_stream_h)(void *)r->stream) != WEFT_OK);
    }
    EXPECT_OK(ncclCommGetAsyncError(r->comm, &result));
    EXPECT(result == ncclRemoteError);
    EXPECT(strstr(ncclGetLastError(r->comm), "rank 2") != NULL);
    EXPECT_OK(ncclCommShrink(r->comm, gone, 1, &left, NULL, NCCL_SHRINK_ABORT));
    expect_works(left, r->rank == 3 ? 2 : r->rank, 3);
    EXPECT_OK(ncclCommDestroy(left));
}

static void test_shrink_after_loss(void **state)
{
    (void)state;
    run_ranks(4, shrink_after_loss, NULL);
}

/* Ranks 0 and 1 have a communicator; 2 and 3 come to it. */
static ncclUniqueId for_newcomers;
static pthread_barrier_t published;

static void grow(nccl_rank_t *r)
{
    ncclComm_t two = NULL, four;
    if (r->rank < 2) {
        EXPECT_OK(ncclCommInitRank(&two, 2, r->id, r->rank));
    }
    if (r->rank == 1) {
        ncclUniqueId again;
        EXPECT_OK(ncclCommGetUniqueId(two, &for_newcomers));
        EXPECT_RESULT(ncclCommGetUniqueId(two, &again), ncclInvalidUsage);
    }
    pthread_barrier_wait(&published);
    EXPECT_OK(
        ncclCommGrow(two, 4, r->rank > 0 ? &for_newcomers : NULL, two ? -1 : r->rank, &four, NULL));
    expect_works(four, r->rank, 4);
    EXPECT_OK(ncclCommDestroy(four));
    EXPECT_OK(ncclCommDestroy(two));
}

static void test_grow(void **state)
{
    (void)state;
    pthread_barrier_init(&published, NULL, 4);
    run_ranks_bare(4, grow, NULL);
    pthread_barrier_destroy(&published);
}

static void await_ready(ncclComm_t comm)
{
    ncclResult_t result;
    do {
        EXPECT_OK(ncclCommGetAsyncError(comm, &result));
    } while (result == ncclInProgress && usleep(1000) == 0);
    EXPECT_RESULT(result, ncclSuccess);
}

/* One thread makes both ranks, one after the other, and waits for neither. */
static void test_nonblocking(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result;
    int32_t one = 1;
    config.blocking = 0;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_RESULT(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
    usleep(20000);
    EXPECT_OK(ncclCommGetAsyncError(comms[0], &result));
    EXPECT(result == ncclInProgress);
    EXPECT_RESULT(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidUsage);
    EXPECT_RESULT(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
    await_ready(comms[0]);
    await_ready(comms[1]);
    EXPECT_OK(ncclCommFinalize(comms[0]));
    EXPECT_RESULT(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, comms[0], NULL), ncclInvalidUsage);
    EXPECT_OK(ncclCommDestroy(comms[0]));
    EXPECT_OK(ncclCommDestroy(comms[1]));

    /* What an older program knew of the struct is read, and what it did not know is not. */
    config.size = offsetof(ncclConfig_t, splitShare);
    config.version = NCCL_VERSION(2, 17, 1);
    config.blocking = 1;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclCommInitRankConfig(&comms[0], 1, id, 0, &config));
    EXPECT_OK(ncclCommDestroy(comms[0]));
    config.magic = 7;
    EXPECT_RESULT(ncclCommInitRankConfig(&comms[0], 1, id, 0, &config), ncclInvalidArgument);
}

/* A thread waits for a rank that does not come; another one aborts. */
static void *abort_soon(void *arg)
{
    usleep(50000);
    EXPECT_OK(ncclCommAbort(arg));
    return NULL;
}

static void wait_in_vain(nccl_rank_t *r)
{
    pthread_t thread;
    int32_t one = 1;
    if (r->rank == 1) {
        usleep(200000);
        return;
    }
    EXPECT(pthread_create(&thread, NULL, abort_soon, r->comm) == 0);
    EXPECT_RESULT(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, r->comm, NULL), ncclRemoteError);
    pthread_join(thread, NULL);
    EXPECT_RESULT(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, r->comm, NULL),
                  ncclInvalidArgument);
    EXPECT(strstr(ncclGetLastError(NULL), "aborted") != NULL);
    r->comm = NULL;
}

static void test_abort(void **state)
{
    (void)state;
    run_ranks(2, wait_in_vain, NULL);
}

static void revoke_it(nccl_rank_t *r)
{
    int32_t one = 1;
    EXPECT_OK(ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT));
    EXPECT_RESULT(ncclAllReduce(&one, &one, 1, ncclInt, ncclSum, r->comm, NULL), ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(NULL), "revoked") != NULL);
}

static void test_revoke(void **state)
{
    (void)state;
    run_ranks(2, revoke_it, NULL);
}

/* Different calls are named on both sides. */
static void differ(nccl_rank_t *r)
{
    int32_t one[4] = {1, 1, 1, 1};
    ncclResult_t result;
    if (r->rank == 0) {
        result = ncclAllReduce(one, one, 4, ncclInt, ncclSum, r->comm, NULL);
    } else {
        result = ncclBroadcast(one, one, 3, ncclInt, 0, r->comm, NULL);
    }
    EXPECT(result == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(r->comm), "allreduce of 4") != NULL);
    EXPECT(strstr(ncclGetLastError(r->comm), "broadcast of 3") != NULL);
}

static void test_mismatch(void **state)
{
    (void)state;
    run_ranks(2, differ, NULL);
}

static void misuse(nccl_rank_t *r)
{
    float x = 1;
    ncclRedOp_t op;
    void *handle;
    EXPECT_RESULT(ncclAllReduce(&x, &x, 1, (ncclDataType_t)77, ncclSum, r->comm, NULL),
                  ncclInvalidArgument);
    EXPECT_RESULT(ncclAllReduce(&x, &x, 1, ncclFloat, (ncclRedOp_t)99, r->comm, NULL),
                  ncclInvalidArgument);
    EXPECT_RESULT(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument);
    EXPECT_RESULT(ncclAllReduce(NULL, &x, 1, ncclFloat, ncclSum, r->comm, NULL),
                  ncclInvalidArgument);
    EXPECT_RESULT(ncclBroadcast(&x, &x, 1, ncclFloat, 9, r->comm, NULL), ncclInvalidArgument);
    EXPECT_RESULT(ncclCommCount(r->comm, NULL), ncclInvalidArgument);
    EXPECT_RESULT(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_OK(ncclRedOpCreatePreMulSum(&op, &x, ncclFloat, ncclScalarHostImmediate, r->comm));
    EXPECT_RESULT(ncclAllReduce(&x, &x, 1, ncclInt, op, r->comm, NULL), ncclInvalidArgument);
    EXPECT_OK(ncclRedOpDestroy(op, r->comm));
    EXPECT_RESULT(ncclRedOpDestroy(op, r->comm), ncclInvalidArgument);
    EXPECT_OK(ncclCommRegister(r->comm, &x, sizeof(x), &handle));
    EXPECT_OK(ncclCommDeregister(r->comm, handle));
    EXPECT_RESULT(ncclCommDeregister(r->comm, NULL), ncclInvalidArgument);
    EXPECT_OK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
    EXPECT_RESULT(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, r->comm, NULL), ncclInvalidUsage);
    EXPECT_OK(ncclCommResume(r->comm));
    EXPECT_RESULT(ncclCommResume(r->comm), ncclInvalidUsage);
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    EXPECT_OK(ncclAllReduceConfig(&x, &x, 1, ncclFloat, ncclSum, r->comm, NULL, &config));
    config.magic = 0;
    EXPECT_RESULT(ncclAllReduceConfig(&x, &x, 1, ncclFloat, ncclSum, r->comm, NULL, &config),
                  ncclInvalidArgument);
    ncclComm_t gone = r->comm;
    EXPECT_OK(ncclCommDestroy(r->comm));
    r->comm = NULL;
    EXPECT_RESULT(ncclCommDestroy(gone), ncclInvalidArgument);
    EXPECT_RESULT(ncclSignal(0, 0, 0, 0, gone, NULL), ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(NULL), "one-sided") != NULL);
}

static void test_misuse(void **state)
{
    (void)state;
    run_ranks(1, misuse, NULL);
}

/* A call of a group fails: nothing of it is run, also no sum through memory of its own. */
static void fail_in_group(nccl_rank_t *r)
{
    float x = 1, y = 1;
    uint8_t small[4] = {1, 2, 3, 4};
    ncclComm_t other = NULL;
    ncclUniqueId id;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    EXPECT_OK(ncclAllReduce(small, small, 4, ncclFloat8e4m3, ncclSum, r->comm, r->stream));
    EXPECT_OK(ncclCommInitRank(&other, 1, id, 0));
    EXPECT_RESULT(ncclAllReduce(&y, &y, 1, (ncclDataType_t)50, ncclSum, r->comm, r->stream),
                  ncclInvalidArgument);
    EXPECT_RESULT(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT(strstr(ncclGetLastError(NULL), "no ncclDataType_t 50") != NULL);
    await_stream(r->stream);
    EXPECT(x == 1 && small[3] == 4);
    EXPECT_RESULT(ncclAllReduce(&y, &y, 1, ncclFloat, ncclSum, other, NULL), ncclInvalidUsage);
    EXPECT_OK(ncclCommDestroy(other));
    expect_works(r->comm, r->rank, r->size); /* and the next group is a new one */
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    EXPECT_OK(ncclGroupEnd());
    await_stream(r->stream);
    EXPECT(x == (float)r->size);
}

static void test_failed_group(void **state)
{
    (void)state;
    run_ranks(2, fail_in_group, NULL);
}

/* It ends the group, as NCCL's does, and what follows is carried out. */
static void simulate(nccl_rank_t *r)
{
    float x = 1;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_RESULT(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, r->comm, r->stream));
    EXPECT_RESULT(ncclGroupSimulateEnd(&info), ncclInvalidUsage);
    EXPECT(x == 1);
    expect_works(r->comm, r->rank, r->size);
}

static void test_simulate(void **state)
{
    (void)state;
    run_ranks(2, simulate, NULL);
}

/* What goes through memory of its own is checked as other reductions are. */
static void staged_misuse(nccl_rank_t *r)
{
    uint8_t small[4] = {0};
    ncclRedOp_t op;
    float half = 0.5f, *room, *after;
    void *handle;
    EXPECT_OK(ncclMemAlloc((void **)&room, 4096));
    EXPECT_OK(ncclMemAlloc((void **)&after, 4096));
    memset(after, 0, 4096);
    EXPECT_OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, r->comm));
    EXPECT_RESULT(ncclAllReduce(small, NULL, 4, ncclFloat8e4m3, ncclSum, r->comm, r->stream),
                  ncclInvalidArgument);
    EXPECT_RESULT(ncclAllReduce(NULL, small, 4, ncclFloat8e4m3, ncclSum, r->comm, r->stream),
                  ncclInvalidArgument);
    EXPECT_RESULT(ncclAllReduce(room, room, 3 << 20, ncclFloat8e5m2, ncclSum, r->comm, r->stream),
                  ncclInvalidArgument);
    EXPECT_RESULT(
        ncclAllReduce(room, room, ((size_t)1 << 62) + 1, ncclFloat, op, r->comm, r->stream),
        ncclInvalidArgument);
    await_stream(r->stream);
    for (int i = 0; i < 1024; i++) {
        EXPECT(after[i] == 0);
    }
    EXPECT_OK(ncclCommRegister(r->comm, room, 4096, &handle));
    EXPECT_OK(ncclCommDeregister(r->comm, handle));
    EXPECT_RESULT(ncclCommDeregister(r->comm, handle), ncclInvalidArgument);
    EXPECT_OK(ncclMemFree(room));
    EXPECT_OK(ncclMemFree(after));
}

static void test_staged_misuse(void **state)
{
    (void)state;
    run_ranks(1, staged_misuse, NULL);
}

/* Groups of joins and splits: the current device stays, who has no color gets NULL, a communicator
 * aborted before it was made is not made, and one that need not wait does not. */
static void test_groups_of_joins(void **state)
{
    (void)state;
    ncclComm_t comms[2], parts[2], lost = NULL, found = NULL;
    ncclUniqueId id, other;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int device = -1;
    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        EXPECT(weft_device_set(i + 1) == WEFT_OK);
        EXPECT_OK(ncclCommInitRank(&comms[i], 2, id, i));
    }
    EXPECT(weft_device_set(0) == WEFT_OK);
    EXPECT_OK(ncclGroupEnd());
    EXPECT(weft_device_get(&device) == WEFT_OK && device == 0);
    EXPECT_OK(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(ncclCommSplit(comms[i], i == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &parts[i], NULL));
    }
    EXPECT_OK(ncclGroupEnd());
    EXPECT(weft_device_get(&device) == WEFT_OK && device == 0);
    EXPECT(parts[0] != NULL && parts[1] == NULL);
    EXPECT_OK(ncclCommDestroy(parts[0]));

    EXPECT_OK(ncclGetUniqueId(&id));
    EXPECT_OK(ncclGetUniqueId(&other));
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommInitRank(&lost, 1, id, 0));
    EXPECT_OK(ncclCommAbort(lost));
    EXPECT_OK(ncclCommInitRank(&found, 1, other, 0));
    EXPECT(lost != found);
    EXPECT_OK(ncclGroupEnd());
    expect_works(found, 0, 1);
    EXPECT_OK(ncclCommDestroy(found));

    EXPECT_OK(ncclGetUniqueId(&id));
    config.blocking = 0;
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclCommInitRankConfig(&parts[0], 2, id, 0, &config));
    EXPECT_RESULT(ncclGroupEnd(), ncclInProgress);
    EXPECT_RESULT(ncclCommInitRankConfig(&parts[1], 2, id, 1, &config), ncclInProgress);
    for (int i = 0; i < 2; i++) {
        await_ready(parts[i]);
        EXPECT_OK(ncclCommDestroy(parts[i]));
        EXPECT_OK(ncclCommDestroy(comms[i]));
    }
}

/* Two halves that exclude each other are two communicators. */
static void part(nccl_rank_t *r)
{
    int others[2] = {r->rank < 2 ? 2 : 1, r->rank < 2 ? 3 : 0};
    ncclComm_t half;
    EXPECT_OK(ncclCommShrink(r->comm, others, 2, &half, NULL, NCCL_SHRINK_DEFAULT));
    int32_t sum = 1 << r->rank;
    EXPECT_OK(ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, half, NULL));
    EXPECT(sum == (r->rank < 2 ? 3 : 12));
    EXPECT_OK(ncclCommDestroy(half));
}

static void test_partition(void **state)
{
    (void)state;
    run_ranks(4, part, NULL);
}

/* Every function of the table and its twin is exported, and none of Weft's. */
static void test_exports(void **state)
{
    (void)state;
    static const char *const names[] = {
#define NAME4(name, result, parameters, arguments) #name,
#define NAME3(name, parameters, why) #name,
#define NAME1(name) #name,
        WEFT_NCCL_FUNCTIONS(NAME4, NAME3, NAME1) "ResetDebugInit", "ParamDumpAll"};
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    EXPECT(library != NULL);
    char twin[100];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(twin, sizeof(twin), "pnccl%s", names[i]);
        EXPECT(dlsym(library, twin + 1) && dlsym(library, twin));
    }
    EXPECT(sizeof(names) / sizeof(names[0]) == 96); /* of 97: one has no twin */
    EXPECT(dlsym(library, "ncclResetDebugInitInternal") != NULL);
    EXPECT(dlsym(library, "weft__nccl_fail") == NULL);
    int version;
    EXPECT_OK(ncclGetVersion(&version));
    EXPECT(version == NCCL_VERSION_CODE);
}

/* Many communicators, one after the other: handles are used again. */
static void make_many(nccl_rank_t *r)
{
    for (int i = 0; i < 50; i++) {
        ncclComm_t part;
        EXPECT_OK(ncclCommSplit(r->comm, 0, r->rank, &part, NULL));
        expect_works(part, r->rank, r->size);
        EXPECT_OK(ncclCommDestroy(part));
    }
}

static void test_many(void **state)
{
    (void)state;
    run_ranks(3, make_many, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_thread_drives_all),
                                       cmocka_unit_test(test_one_thread_joins_all),
                                       cmocka_unit_test(test_split),
                                       cmocka_unit_test(test_shrink),
                                       cmocka_unit_test(test_shrink_after_loss),
                                       cmocka_unit_test(test_grow),
                                       cmocka_unit_test(test_nonblocking),
                                       cmocka_unit_test(test_abort),
                                       cmocka_unit_test(test_revoke),
                                       cmocka_unit_test(test_mismatch),
                                       cmocka_unit_test(test_misuse),
                                       cmocka_unit_test(test_exports),
                                       cmocka_unit_test(test_failed_group),
                                       cmocka_unit_test(test_simulate),
                                       cmocka_unit_test(test_staged_misuse),
                                       cmocka_unit_test(test_groups_of_joins),
                                       cmocka_unit_test(test_partition),
                                       cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
