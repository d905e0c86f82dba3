/* ctest: timeout=60 tsan */
/* Buffers of calls that are freed, too short, or in the middle of an allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <stdlib.h>

#include "comm/harness.h"

#include <cmocka.h>

#define N 1000

static float *must_alloc(size_t bytes)
{
    void *ptr = NULL;
    CHECK_OK(weft_malloc(&ptr, bytes));
    return ptr;
}

static weft_status_t reduce(team_t *team, const float *src, float *dst, size_t count)
{
    return weft_allreduce(src, dst, count, WEFT_F32, WEFT_SUM, team->comm, NULL);
}

/* All ranks alike refuse, so that no rank waits for another. */
static void refused(weft_status_t status, const char *part, const char *more)
{
    CHECK_STATUS(status, WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), part);
    CHECK_TEXT(weft_last_error(), more);
}

static void too_long(team_t *team)
{
    char rank[32];
    float *src = must_alloc(N * 4), *dst = must_alloc(N * 4 + 1), *large = must_alloc(1 << 20);
    snprintf(rank, sizeof(rank), "of rank %d", team->rank);
    for (int again = 0; again < 3; again++) {
        memset(src, 0, N * 4);
        CHECK_OK(reduce(team, src, dst, N));
        CHECK_OK(reduce(team, src + N - 1, dst + N - 1, 1));
        refused(reduce(team, src, dst, N + 1), "src", "needs 4004 bytes");
        CHECK_TEXT(weft_last_error(), rank);
        CHECK_TEXT(weft_last_error(), "has 4000");
        refused(reduce(team, large, dst, N + 1), "dst", "has 4001");
        refused(reduce(team, src + 1, dst, N), "byte 4 of an allocation", "4000 bytes");
        refused(reduce(team, src, dst, (size_t)1 << 40), "needs 4398046511104 bytes", "has 4000");
        refused(reduce(team, dst, dst, (size_t)1 << 40), "src", "has 4001");
        refused(weft_allgather(src, dst, N, WEFT_F32, team->comm, NULL), "weft_allgather: dst",
                "has 4001");
        CHECK_OK(weft_allgather(src, large, N, WEFT_F32, team->comm, NULL));
    }
    CHECK_OK(weft_free(src));
    CHECK_OK(weft_free(dst));
    CHECK_OK(weft_free(large));
}

/* What was known of an address holds no longer when it is freed, nor when it is given again. */
static void freed(team_t *team)
{
    for (size_t bytes = 64; bytes <= 1 << 20; bytes *= 16) {
        float *src = must_alloc(bytes), *dst = must_alloc(bytes);
        memset(src, 0, bytes);
        CHECK_OK(reduce(team, src, dst, bytes / 4));
        CHECK_OK(weft_free(src));
        refused(reduce(team, src, dst, 1), "src", "not in use");
        refused(reduce(team, dst, src + 1, 1), "dst", "not in use");
        float *shorter = must_alloc(bytes / 2); /* in the same place, as a rule */
        memset(shorter, 0, bytes / 2);
        CHECK_OK(reduce(team, shorter, dst, bytes / 8));
        refused(reduce(team, shorter, dst, bytes / 8 + 1), "src", "but the allocation");
        CHECK_OK(weft_free(shorter));
        CHECK_OK(weft_free(dst));
    }
}

/* Of other memory nothing is known, whatever lies around it; nor of what a call does not use. */
static void not_checked(team_t *team)
{
    static float data[4][N]; /* a row for each rank that is a thread */
    float *fixed = data[team->rank];
    float local[4] = {0}, *plain = calloc(N, 4), *mine = must_alloc(64);
    size_t zero[3] = {0}, one[3] = {1, 1, 1}, all[3] = {16, 16, 16}, places[3] = {0, 16, 32};
    memset(mine, 0, 64);
    CHECK_OK(reduce(team, fixed, plain, N));
    CHECK_OK(reduce(team, local, mine, 4));
    CHECK_OK(weft_free(mine));
    CHECK_OK(
        weft_broadcast(team->rank == 0 ? local : mine, fixed, 4, WEFT_F32, 0, team->comm, NULL));
    CHECK_OK(reduce(team, mine, mine, 0));
    mine = must_alloc(64);
    memset(mine, 0, 64);
    CHECK_OK(weft_alltoallv(mine, zero, all, plain, zero, all, WEFT_F32, team->comm, NULL));
    CHECK_OK(weft_alltoallv(mine, all, zero, plain, all, places, WEFT_F32, team->comm, NULL));
    refused(weft_alltoallv(mine, all, one, plain, all, places, WEFT_F32, team->comm, NULL), "src",
            "has 64");
    CHECK_OK(weft_free(mine));
    free(plain);
}

/* More buffers than are kept in mind, in pieces and whole. */
static void many(team_t *team)
{
    enum { MANY = 100 };
    float *buffers[MANY];
    for (int i = 0; i < MANY; i++) {
        buffers[i] = must_alloc(256 + 4 * (size_t)i);
        memset(buffers[i], 0, 256 + 4 * (size_t)i);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            size_t count = 64 + (size_t)i;
            CHECK_OK(reduce(team, buffers[i], buffers[i], count));
            CHECK_OK(reduce(team, buffers[i] + 10, buffers[i] + 10, count - 10));
            refused(reduce(team, buffers[i] + 10, buffers[i] + 10, count - 9), "byte 40", "src");
        }
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(weft_free(buffers[i]));
    }
}

/* Inside of a symmetric heap: as far as the heap goes. */
static void symmetric(team_t *team)
{
    weft_symm_h heap;
    float *a;
    CHECK_OK(weft_symm_create(team->comm, 1 << 16, &heap));
    CHECK_OK(weft_symm_malloc(heap, 256, (void **)&a));
    CHECK_OK(reduce(team, a, a, 64));
    refused(reduce(team, a, a, 1 << 20), "src", "needs 4194304 bytes");
    CHECK_OK(weft_symm_destroy(heap));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = 2}, fn));                                     \
        assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, fn));                         \
    }

TEAM_TEST(more_than_an_allocation_holds_is_refused, too_long)
TEAM_TEST(freed_memory_is_refused, freed)
TEAM_TEST(other_memory_is_taken_as_it_is, not_checked)
TEAM_TEST(many_buffers_are_told_apart, many)
TEAM_TEST(symmetric_memory_ends_with_its_heap, symmetric)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_an_allocation_holds_is_refused),
        cmocka_unit_test(freed_memory_is_refused),
        cmocka_unit_test(other_memory_is_taken_as_it_is),
        cmocka_unit_test(many_buffers_are_told_apart),
        cmocka_unit_test(symmetric_memory_ends_with_its_heap),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
