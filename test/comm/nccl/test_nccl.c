/* ctest: timeout=300 gpu */
/* The nccl backend with the real NCCL, on as many GPUs as there are, a process each. Where there is
 * one GPU, two ranks on it must be refused with advice, or work: by NCCL 2.30 and later if it is
 * told to, and by all versions if each believes to be on a host of its own (NCCL_HOSTID). Then NCCL
 * goes through the network, as it does between hosts. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/harness.h"

#include <cmocka.h>

#include "base/settings.h"
#include "comm/nccl/api.h"
#include "device/cuda.h"

#define MOST 8

/* Found out by a process of its own: ranks are forked from one that has not touched CUDA. */
typedef struct found {
    int gpus, version;
    char why[600];
} found_t;

static found_t found;

static void probe(int fd)
{
    found_t f = {0};
    const char *why;
    weft_nccl_api_t api;
    if (!weft__cuda_load(&why)) {
        snprintf(f.why, sizeof(f.why), "%s", why);
    } else if (weft__nccl_load(weft__settings()->nccl, &api, f.why, sizeof(f.why))) {
        f.gpus = weft__cuda_gpus();
        f.version = api.version;
    }
    _exit(write(fd, &f, sizeof(f)) != (ssize_t)sizeof(f));
}

static bool look_around(void)
{
    int fds[2];
    if (pipe(fds) != 0) {
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        probe(fds[1]);
    }
    close(fds[1]);
    bool good = read(fds[0], &found, sizeof(found)) == (ssize_t)sizeof(found);
    close(fds[0]);
    waitpid(pid, NULL, 0);
    return good;
}

/* ---- data ------------------------------------------------------------------------------- */

/* Element i of what rank r gives to block b: exact in a float, also as a sum over ranks. */
static float given(int r, int b, size_t i)
{
    return (float)((r + 1) * 3 + b * 5 + (int)(i % 97));
}

typedef struct buffers {
    float *src, *dst;   /* on the device */
    float *host, *want; /* what is there, what should be */
    size_t count;       /* of a block */
    int blocks;
} buffers_t;

static buffers_t make_buffers(const team_t *team, size_t count)
{
    buffers_t b = {.count = count, .blocks = team->size};
    size_t bytes = (count * (size_t)team->size + 1) * sizeof(float);
    CHECK_OK(weft_malloc((void **)&b.src, bytes));
    CHECK_OK(weft_malloc((void **)&b.dst, bytes));
    b.host = calloc(1, bytes);
    b.want = calloc(1, bytes);
    CHECK(b.host && b.want);
    return b;
}

static void free_buffers(buffers_t *b)
{
    CHECK_OK(weft_free(b->src));
    CHECK_OK(weft_free(b->dst));
    free(b->host);
    free(b->want);
}

/* src: all blocks of this rank; dst: nothing of interest. */
static void fill(const buffers_t *b, int rank)
{
    size_t all = b->count * (size_t)b->blocks;
    for (size_t i = 0; i < all; i++) {
        b->host[i] = b->count ? given(rank, (int)(i / b->count), i % b->count) : 0;
        b->want[i] = -1;
    }
    CHECK_OK(weft_memcpy(b->src, b->host, all * sizeof(float), NULL));
    CHECK_OK(weft_memset(b->dst, 0xff, all * sizeof(float), NULL));
}

static void check(const buffers_t *b, const float *at, int blocks, const char *what)
{
    size_t all = b->count * (size_t)blocks;
    CHECK_OK(weft_memcpy(b->host, at, all * sizeof(float), NULL));
    for (size_t i = 0; i < all; i++) {
        if (b->host[i] != b->want[i]) {
            FAIL("%s: element %zu of %zu is %g, not %g", what, i, all, b->host[i], b->want[i]);
        }
    }
}

static void want_sum(const buffers_t *b, int size, int from_block, int blocks)
{
    for (int k = 0; k < blocks; k++) {
        for (size_t i = 0; i < b->count; i++) {
            float sum = 0;
            for (int r = 0; r < size; r++) {
                sum += given(r, from_block + k, i);
            }
            b->want[(size_t)k * b->count + i] = sum;
        }
    }
}

/* Block k of the result is block `b_of` of rank k, or of `root` if that is >= 0 (then block k). */
static void want_blocks(const buffers_t *b, int size, int root, int b_of)
{
    for (int k = 0; k < size; k++) {
        for (size_t i = 0; i < b->count; i++) {
            b->want[(size_t)k * b->count + i] = root >= 0 ? given(root, b_of, i)
                                                          : given(k, b_of, i);
        }
    }
}

/* ---- every collective ------------------------------------------------------------------- */

static void reductions(team_t *t, const buffers_t *b, weft_stream_h s)
{
    int root = t->size - 1;
    fill(b, t->rank);
    CHECK_OK(weft_allreduce(b->src, b->dst, b->count, WEFT_F32, WEFT_SUM, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_sum(b, t->size, 0, 1);
    check(b, b->dst, 1, "allreduce");
    CHECK_OK(weft_allreduce(b->src, b->src, b->count, WEFT_F32, WEFT_SUM, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    check(b, b->src, 1, "allreduce in place");
    fill(b, t->rank);
    CHECK_OK(weft_reduce(b->src, b->dst, b->count, WEFT_F32, WEFT_SUM, root, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    if (t->rank == root) {
        want_sum(b, t->size, 0, 1);
        check(b, b->dst, 1, "reduce");
    }
    fill(b, t->rank);
    CHECK_OK(weft_reduce_scatter(b->src, b->dst, b->count, WEFT_F32, WEFT_SUM, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_sum(b, t->size, t->rank, 1);
    check(b, b->dst, 1, "reduce_scatter");
}

static void movements(team_t *t, const buffers_t *b, weft_stream_h s)
{
    int root = t->size - 1;
    fill(b, t->rank);
    CHECK_OK(weft_broadcast(b->src, b->dst, b->count, WEFT_F32, root, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_blocks(b, 1, root, 0);
    check(b, b->dst, 1, "broadcast");
    fill(b, t->rank);
    CHECK_OK(weft_allgather(b->src, b->dst, b->count, WEFT_F32, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_blocks(b, t->size, -1, 0);
    check(b, b->dst, t->size, "allgather");
    fill(b, t->rank);
    CHECK_OK(weft_gather(b->src, b->dst, b->count, WEFT_F32, root, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    if (t->rank == root) {
        want_blocks(b, t->size, -1, 0);
        check(b, b->dst, t->size, "gather");
    }
    fill(b, t->rank);
    CHECK_OK(weft_scatter(b->src, b->dst, b->count, WEFT_F32, root, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_blocks(b, 1, root, t->rank);
    check(b, b->dst, 1, "scatter");
}

static void exchanges(team_t *t, const buffers_t *b, weft_stream_h s)
{
    size_t counts[MOST], offsets[MOST];
    int next = (t->rank + 1) % t->size, before = (t->rank + t->size - 1) % t->size;
    for (int p = 0; p < t->size; p++) {
        counts[p] = b->count;
        offsets[p] = (size_t)p * b->count;
    }
    fill(b, t->rank);
    CHECK_OK(weft_alltoall(b->src, b->dst, b->count, WEFT_F32, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_blocks(b, t->size, -1, t->rank);
    check(b, b->dst, t->size, "alltoall");
    CHECK_OK(weft_alltoall(b->src, b->src, b->count, WEFT_F32, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    check(b, b->src, t->size, "alltoall in place");
    fill(b, t->rank);
    CHECK_OK(
        weft_alltoallv(b->src, counts, offsets, b->dst, counts, offsets, WEFT_F32, t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
    want_blocks(b, t->size, -1, t->rank);
    check(b, b->dst, t->size, "alltoallv");
    fill(b, t->rank);
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_send(b->src, b->count, WEFT_F32, next, t->comm, s));
    CHECK_OK(weft_recv(b->dst, b->count, WEFT_F32, before, t->comm, s));
    CHECK_OK(weft_group_end());
    CHECK_OK(weft_stream_synchronize(s));
    want_blocks(b, 1, before, 0);
    check(b, b->dst, 1, "send and recv");
    CHECK_OK(weft_barrier(t->comm, s));
    CHECK_OK(weft_stream_synchronize(s));
}

static void every_collective(team_t *team)
{
    static const size_t counts[] = {0, 1, 7, 1000, 300001};
    weft_stream_h stream;
    CHECK_OK(weft_stream_create(&stream));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int on_stream = 0; on_stream < 2; on_stream++) {
            buffers_t b = make_buffers(team, counts[i]);
            team_note("%zu elements, stream %d", counts[i], on_stream);
            reductions(team, &b, on_stream ? stream : NULL);
            movements(team, &b, on_stream ? stream : NULL);
            exchanges(team, &b, on_stream ? stream : NULL);
            free_buffers(&b);
        }
    }
    CHECK_OK(weft_stream_destroy(stream));
}

/* ---- the rest --------------------------------------------------------------------------- */

static void host_memory_is_staged(team_t *team)
{
    float x[5], y[5];
    for (int i = 0; i < 5; i++) {
        x[i] = (float)(team->rank + i);
    }
    CHECK_OK(weft_allreduce(x, y, 5, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_allreduce(x, x, 5, WEFT_F32, WEFT_SUM, team->comm, NULL));
    for (int i = 0; i < 5; i++) {
        float want = (float)(team->size * (team->size - 1) / 2 + i * team->size);
        CHECK(x[i] == want && y[i] == want);
    }
}

/* One buffer lies in the other, and is the smaller one. */
static void host_memory_is_staged_in_place(team_t *team)
{
    enum { BLOCK = 3000 };
    static float x[MOST * BLOCK];
    int size = team->size, all = size * BLOCK;
    float *mine = x + team->rank * BLOCK;
    for (int i = 0; i < all; i++) {
        x[i] = (float)(team->rank + i % 1009);
    }
    CHECK_OK(weft_reduce_scatter(x, mine, BLOCK, WEFT_F32, WEFT_SUM, team->comm, NULL));
    for (int i = 0; i < all; i++) {
        int sum = size * (size - 1) / 2 + size * (i % 1009);
        CHECK_EQ(x[i], i / BLOCK == team->rank ? sum : team->rank + i % 1009);
    }
    CHECK_OK(weft_allgather(mine, x, BLOCK, WEFT_F32, team->comm, NULL));
    for (int i = 0; i < all; i++) {
        CHECK_EQ(x[i], size * (size - 1) / 2 + size * (i % 1009));
    }
}

static void split_in_two(team_t *team)
{
    weft_comm_h child;
    int rank, size, color = team->rank % 2;
    CHECK_OK(weft_comm_split(team->comm, color, -team->rank, &child, NULL));
    CHECK_OK(weft_comm_rank(child, &rank));
    CHECK_OK(weft_comm_size(child, &size));
    CHECK_EQ(size, (team->size + 1 - color) / 2);
    CHECK_EQ(rank, size - 1 - team->rank / 2); /* the order of the keys */
    int32_t one = 1;
    CHECK_OK(weft_allreduce(&one, &one, 1, WEFT_I32, WEFT_SUM, child, NULL));
    CHECK_EQ(one, size);
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_barrier(team->comm, NULL));
}

/* Streams take turns without a word from the caller. */
static void calls_on_streams_keep_their_order(team_t *team)
{
    weft_stream_h streams[3];
    const size_t count = 100000;
    float *x, *host = malloc(count * sizeof(float));
    CHECK(host);
    CHECK_OK(weft_malloc((void **)&x, count * sizeof(float)));
    for (size_t i = 0; i < count; i++) {
        host[i] = 1;
    }
    CHECK_OK(weft_memcpy(x, host, count * sizeof(float), NULL));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_stream_create(&streams[i]));
    }
    float want = 1;
    for (int i = 0; i < 12; i++) {
        CHECK_OK(weft_allreduce(x, x, count, WEFT_F32, WEFT_AVG, team->comm, streams[i % 3]));
    }
    CHECK_OK(weft_allreduce(x, x, count, WEFT_F32, WEFT_SUM, team->comm, NULL));
    want *= (float)team->size;
    CHECK_OK(weft_memcpy(host, x, count * sizeof(float), NULL));
    for (size_t i = 0; i < count; i++) {
        CHECK(host[i] == want);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_stream_destroy(streams[i]));
    }
    CHECK_OK(weft_free(x));
    free(host);
}

static void killed_rank_is_named(team_t *team)
{
    float *x;
    CHECK_OK(weft_malloc((void **)&x, 1000 * sizeof(float)));
    CHECK_OK(weft_memset(x, 0, 1000 * sizeof(float), NULL));
    CHECK_OK(weft_allreduce(x, x, 1000, WEFT_F32, WEFT_SUM, team->comm, NULL));
    team_meet(team);
    if (team->rank == team->size - 1) {
        raise(SIGKILL);
    }
    double start = team_now();
    CHECK_STATUS(weft_allreduce(x, x, 1000, WEFT_F32, WEFT_SUM, team->comm, NULL),
                 WEFT_ERR_RANK_DEAD);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK_STATUS(weft_barrier(team->comm, NULL), WEFT_ERR_BROKEN);
}

static void late_rank_is_named(team_t *team)
{
    float *x;
    CHECK_OK(weft_malloc((void **)&x, 1000 * sizeof(float)));
    CHECK_OK(weft_memset(x, 0, 1000 * sizeof(float), NULL));
    CHECK_OK(weft_allreduce(x, x, 1000, WEFT_F32, WEFT_SUM, team->comm, NULL));
    if (team->rank == team->size - 1) {
        team_await(team->size - 1);
    }
    weft_status_t status = weft_allreduce(x, x, 1000, WEFT_F32, WEFT_SUM, team->comm, NULL);
    team_tell();
    CHECK_EQ(status, WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_last_error(), "timed out after 2.0 s in call 2, allreduce of 1000 f32, sum");
    team_meet(team);
}

static void two_on_one_gpu_are_refused(team_t *team)
{
    weft_comm_h comm;
    weft_comm_config_t config = team_config();
    CHECK_STATUS(weft_comm_init_rank(&comm, team->size, team->id, team->rank, &config),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_last_error(), "WEFT_ENGINE=weft");
}

#define HOSTS_OF_THEIR_OWN "NCCL_HOSTID=weft-test-% NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1"

static void run_with(team_fn fn, int ranks, int timeout_ms, bool dies, const char *env)
{
    print_message("%d ranks%s%s\n", ranks, env ? ", " : "", env ? env : "");
    assert_true(team_run(&(team_plan_t){.ranks = ranks,
                                        .limit_s = 60,
                                        .timeout_ms = timeout_ms,
                                        .env = env,
                                        .may_die = dies ? 1u << (ranks - 1) : 0},
                         fn));
}

static void run(team_fn fn, int least, int timeout_ms, bool dies)
{
    int most = found.gpus < MOST ? found.gpus : MOST;
    for (int n = least; n <= most; n++) {
        run_with(fn, n, timeout_ms, dies, NULL);
    }
    if (found.gpus == 1) {
        for (int n = 2; n <= 4; n++) {
            run_with(fn, n, timeout_ms, dies, HOSTS_OF_THEIR_OWN);
        }
    }
    if (found.gpus == 1 && found.version >= 23000) {
        run_with(fn, 2, timeout_ms, dies, "NCCL_MULTI_RANK_GPU_ENABLE=1");
    }
}

/* Ranks that NCCL connects may be on several hosts: there is no memory to share. */
static void symmetric_memory_is_refused(team_t *team)
{
    weft_symm_h symm;
    float one = 1;
    CHECK_STATUS(weft_symm_create(team->comm, 4096, &symm), WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_last_error(), "connected by nccl and cannot reach each other's memory");
    CHECK_OK(weft_allreduce(&one, &one, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_EQ(one, team->size);
}

#define RUN_TEST(name, fn, ...)                                                                    \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run(fn, __VA_ARGS__);                                                                      \
    }

RUN_TEST(collectives_on_1_to_all_gpus, every_collective, 1, 0, false)
RUN_TEST(host_memory, host_memory_is_staged, 1, 0, false)
RUN_TEST(host_memory_in_place, host_memory_is_staged_in_place, 1, 0, false)
RUN_TEST(split, split_in_two, 1, 0, false)
RUN_TEST(order_across_streams, calls_on_streams_keep_their_order, 1, 0, false)
RUN_TEST(symmetric_memory, symmetric_memory_is_refused, 1, 0, false)
RUN_TEST(killed_rank, killed_rank_is_named, 2, 0, true)
RUN_TEST(late_rank, late_rank_is_named, 2, 2000, false)

static void shared_gpu(void **state)
{
    (void)state;
    if (found.gpus > 1 || found.version >= 23000) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .bare = true, .limit_s = 60},
                         two_on_one_gpu_are_refused));
}

int main(int argc, char **argv)
{
    if (!look_around() || found.gpus == 0) {
        printf("skipped: %s\n", found.why);
        return 77;
    }
    printf("NCCL %d, %d GPUs\n", found.version, found.gpus);
    setenv("WEFT_DEVICE", "cuda", 1);
    setenv("WEFT_ENGINE", "nccl", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_on_1_to_all_gpus),
        cmocka_unit_test(host_memory),
        cmocka_unit_test(host_memory_in_place),
        cmocka_unit_test(split),
        cmocka_unit_test(order_across_streams),
        cmocka_unit_test(symmetric_memory),
        cmocka_unit_test(killed_rank),
        cmocka_unit_test(late_rank),
        cmocka_unit_test(shared_gpu),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
