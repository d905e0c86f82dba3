/* ctest: timeout=240 serial */
/* What ranks do whose GPUs are their own, tried with ranks that share one (WEFT_GPUS_APART): flags
 * and fences that reach other GPUs, and NCCL beside our kernels, for large calls. NCCL takes
 * several ranks on a GPU if each believes to be on a host of its own. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu.h"

#include <cmocka.h>

#include "comm/comm.h"
#include "comm/cuda/cuda.h"
#include "comm/matrix.h"

#define APART "WEFT_GPUS_APART=1 "
#define NCCL                                                                                       \
    APART "WEFT_ENGINE=auto NCCL_HOSTID=weft-test-% NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1"

static const team_fn parts[] = {matrix_small,  matrix_medium, matrix_large,
                                matrix_ragged, matrix_pairs,  NULL};

static void run_plan(team_fn fn, team_plan_t plan)
{
    double start = team_now();
    plan.limit_s = 90;
    plan.arg = parts;
    assert_true(team_run(&plan, fn));
    print_message("%d ranks: %.2f s\n", plan.ranks, team_now() - start);
}

static void run(team_fn fn, int ranks, int procs, uint32_t dies, const char *env)
{
    run_plan(fn, (team_plan_t){.ranks = ranks, .procs = procs, .may_die = dies, .env = env});
}

static void own_kernels(void **state)
{
    (void)state;
    run(gpu_in_a_row, 2, 2, 0, APART "WEFT_ENGINE=weft");
    run(gpu_in_a_row, 4, 4, 0, APART "WEFT_ENGINE=weft");
    run(gpu_in_a_row, 4, 1, 0, APART "WEFT_ENGINE=weft");
}

/* ---- NCCL beside them --------------------------------------------------------------------- */

/* Is there an NCCL? If not it says so. */
static bool has_nccl(void)
{
    const char *why;
    if (gpu_virtual()) {
        return false;
    }
    if (weft__nccl(&why)) {
        return true;
    }
    printf("skipped: %s\n", why);
    return false;
}

static float sum_of(team_t *team, float *x, float *host, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        host[i] = (float)(team->rank + 1);
    }
    CHECK_OK(weft_memcpy(x, host, count * sizeof(float), NULL));
    CHECK_OK(weft_allreduce(x, x, count, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_memcpy(host, x, count * sizeof(float), NULL));
    for (size_t i = 1; i < count; i++) {
        CHECK(host[i] == host[0]);
    }
    return host[0];
}

/* Small and large calls by turns, so that kernels of both wait for each other on one stream. */
static void both_by_turns(team_t *team)
{
    const size_t most = (size_t)16 << 20;
    float *x, *host = malloc(most * sizeof(float));
    float want = (float)(team->size * (team->size + 1) / 2);
    if (!has_nccl()) {
        return;
    }
    CHECK(host);
    CHECK_OK(weft_malloc((void **)&x, most * sizeof(float)));
    for (int i = 0; i < 20; i++) {
        size_t count = i % 2 ? most >> (i % 3) : (size_t)1 << i % 11;
        team_note("%zu floats", count);
        CHECK(sum_of(team, x, host, count) == want);
    }
    CHECK(((const weft_cuda_t *)team->comm->ctx)->engine_known > 0); /* NCCL was used */
    CHECK_OK(weft_free(x));
    free(host);
    gpu_in_a_row(team);
}

static void nccl_beside_kernels(void **state)
{
    (void)state;
    run(both_by_turns, 2, 2, 0, NCCL);
    run(both_by_turns, 4, 4, 0, NCCL);
}

#define LARGE ((size_t)16 << 20)

/* Large enough for NCCL, which has carried one call when this returns. NULL: there is none. */
static float *first_call(team_t *team)
{
    float *x, *host = malloc(LARGE * sizeof(float));
    if (!has_nccl()) {
        free(host);
        return NULL;
    }
    CHECK(host);
    CHECK_OK(weft_malloc((void **)&x, LARGE * sizeof(float)));
    sum_of(team, x, host, LARGE);
    free(host);
    team_meet(team);
    return x;
}

static void last_dies(team_t *team)
{
    const size_t count = LARGE;
    float *x = first_call(team);
    if (team->rank == team->size - 1) {
        raise(SIGKILL); /* as the plan says */
    }
    if (!x) {
        return;
    }
    double start = team_now();
    CHECK_STATUS(weft_allreduce(x, x, count, WEFT_F32, WEFT_SUM, team->comm, NULL),
                 WEFT_ERR_RANK_DEAD);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK_STATUS(weft_barrier(team->comm, NULL), WEFT_ERR_BROKEN);
}

static void killed_in_a_call_of_nccl(void **state)
{
    (void)state;
    run(last_dies, 3, 3, 1u << 2, NCCL);
}

/* What NCCL says only after a call's work is done is what that call returns. */
static void last_has_an_error(team_t *team)
{
    float *x = first_call(team);
    CHECK(x != NULL);
    if (team->rank == team->size - 1) {
        setenv("FAKE_NCCL_FAILS", "1", 1); /* between two calls, so nobody looks */
        CHECK_STATUS(weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL),
                     WEFT_ERR_SYSTEM);
        CHECK_TEXT(weft_last_error(), "rank 1: ");
        CHECK_TEXT(weft_last_error(), "NCCL");
    } else {
        weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL); /* may be over before */
    }
    team_meet(team);
    CHECK(weft_barrier(team->comm, NULL) != WEFT_OK);
}

static void error_of_nccl(void **state)
{
    const char *library = getenv("WEFT_NCCL");
    (void)state;
    if (library == NULL || strstr(library, "fake_nccl_by_weft") == NULL) {
        print_message("not tried: the true NCCL does not fail when told to\n");
        skip();
    }
    run(last_has_an_error, 2, 2, 0, NCCL);
}

static void last_is_late(team_t *team)
{
    float *x = first_call(team);
    if (!x) {
        return;
    }
    double start = team_now();
    if (team->rank == team->size - 1) {
        team_await(team->size - 1);
        CHECK(weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL) != WEFT_OK);
        return;
    }
    CHECK_STATUS(weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL),
                 WEFT_ERR_TIMEOUT);
    team_tell();
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(strstr(weft_last_error(), "not arrived: rank 2") != NULL);
}

/* In the first call NCCL connects ranks, inside the caller. */
static void last_never_comes(team_t *team)
{
    float *x;
    if (!has_nccl()) {
        return;
    }
    CHECK_OK(weft_malloc((void **)&x, LARGE * sizeof(float)));
    double start = team_now();
    if (team->rank == team->size - 1) {
        team_await(team->size - 1);
        return;
    }
    CHECK_STATUS(weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL),
                 WEFT_ERR_TIMEOUT);
    team_tell();
    CHECK_WITHIN(team_now() - start, SOON);
}

/* Messages between calls of NCCL's, which wait for longer than it takes to call ranks different. */
static void messages_in_between(team_t *team)
{
    float *x = first_call(team);
    if (!x) {
        return;
    }
    if (team->rank == 0) {
        CHECK_OK(weft_recv(x, 16, WEFT_F32, 1, team->comm, NULL));
    } else if (team->rank == 1) {
        sleep(3);
        CHECK_OK(weft_send(x, 16, WEFT_F32, 0, team->comm, NULL));
    }
    CHECK_OK(weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL));
}

static void late_for_a_call_of_nccl(void **state)
{
    (void)state;
    run_plan(last_never_comes,
             (team_plan_t){.ranks = 3, .procs = 3, .timeout_ms = 2000, .env = NCCL});
    run(messages_in_between, 3, 3, 0, NCCL);
    run_plan(last_is_late, (team_plan_t){.ranks = 3, .procs = 3, .timeout_ms = 2000, .env = NCCL});
}

/* `x` may be anybody's memory: what is not the GPU's is staged. */
static void differ(team_t *team, float *x)
{
    double start = team_now();
    weft_status_t status = team->rank == team->size - 1
                               ? weft_broadcast(x, x, LARGE, WEFT_F32, 0, team->comm, NULL)
                               : weft_allreduce(x, x, LARGE, WEFT_F32, WEFT_SUM, team->comm, NULL);
    CHECK_STATUS(status, WEFT_ERR_MISMATCH);
    CHECK_WITHIN(team_now() - start, SOON);
}

static void last_calls_something_else(team_t *team)
{
    float *x = first_call(team);
    if (x) {
        differ(team, x);
    }
}

static void last_calls_something_else_staged(team_t *team)
{
    float *plain = calloc(LARGE, sizeof(float));
    CHECK(plain);
    if (first_call(team)) {
        differ(team, plain);
    }
    free(plain);
}

static void different_calls_of_nccl(void **state)
{
    (void)state;
    run(last_calls_something_else, 3, 3, 0, NCCL);
    run(last_calls_something_else_staged, 3, 3, 0, NCCL);
}

/* ---- GPUs that do not reach each other ---------------------------------------------------- */

#define OUT_OF_REACH                                                                               \
    "WEFT_GPUS_APART=2 WEFT_ENGINE=auto WEFT_NCCL_REGISTER=1 NCCL_HOSTID=weft-test-% "             \
    "NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1"

/* Registered memory among it, of which NCCL is told. */
static void by_nccl_alone(team_t *team)
{
    const size_t count = 1 << 20;
    void *x;
    float *host = malloc(count * sizeof(float));
    float want = (float)(team->size * (team->size + 1) / 2);
    weft_comm_config_t config = team_config();
    if (!has_nccl()) {
        return;
    }
    CHECK(host);
    CHECK_OK(weft_comm_init_rank(&team->comm, team->size, team->id, team->rank, &config));
    CHECK(strcmp(team->comm->backend->name, "nccl") == 0);
    CHECK_EQ(weft__cuda()->alloc(weft__cuda_gpu(team->comm->device), &x, count * sizeof(float)), 0);
    CHECK(sum_of(team, x, host, count) == want);
    CHECK_OK(weft_register(x, count * sizeof(float)));
    CHECK(sum_of(team, x, host, count) == want);
    CHECK(sum_of(team, x, host, 3) == want);
    CHECK_OK(weft_unregister(x));
    CHECK(sum_of(team, x, host, count) == want);
    team_meet(team);
    free(host);
    gpu_in_a_row(team);
}

static void out_of_reach(void **state)
{
    (void)state;
    run_plan(by_nccl_alone,
             (team_plan_t){.ranks = 2, .procs = 2, .bare = true, .env = OUT_OF_REACH});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_kernels),
        cmocka_unit_test(nccl_beside_kernels),
        cmocka_unit_test(killed_in_a_call_of_nccl),
        cmocka_unit_test(error_of_nccl),
        cmocka_unit_test(late_for_a_call_of_nccl),
        cmocka_unit_test(different_calls_of_nccl),
        cmocka_unit_test(out_of_reach),
    };
    gpu_start(argc, argv, true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
