/* ctest: timeout=240 serial */
/* All-reduce at every power of two up to 256 MiB, and one element less and more, with more ranks on
 * the GPU than it has room for at once if they took what they could. */
#include <setjmp.h>

#include "comm/data.h"
#include "comm/memory.h"
#include "gpu/gpu.h"

#include <cmocka.h>

#define POISON 0x5c
#define GUARD 64 /* bytes behind the result that nobody may touch */

static void check_count(team_t *team, const data_t *data, const buffer_t *src, const buffer_t *dst,
                        size_t count, bool in_place)
{
    size_t bytes = count * sizeof(float), wrong;
    const void *from = in_place ? dst->at : src->at;
    team_note("%zu f32, %s", count, in_place ? "in place" : "out of place");
    CHECK_OK(weft_memset(dst->at, POISON, bytes + GUARD, NULL));
    CHECK_OK(in_place ? weft_memcpy(dst->at, src->at, bytes, NULL) : WEFT_OK);
    CHECK_OK(weft_allreduce(from, dst->at, count, WEFT_F32, WEFT_SUM, team->comm, NULL));
    buffer_pull(dst, dst->host, bytes + GUARD);
    if (!data_check(data, DATA_REDUCED, 0, count, dst->host, &wrong)) {
        FAIL("wrong from element %zu on", wrong);
    }
    for (size_t i = bytes; i < bytes + GUARD; i++) {
        CHECK_EQ(dst->host[i], POISON);
    }
}

/* arg: the largest size */
static void every_size(team_t *team)
{
    size_t most = *(const size_t *)team->arg;
    data_t data = {WEFT_F32, WEFT_SUM, team->size, 7};
    buffer_t src, dst;
    team_note("getting %zu bytes", most);
    buffer_open(&src, most + GUARD, false);
    buffer_open(&dst, most + 2 * GUARD, false);
    data_fill(&data, team->rank, 0, most / sizeof(float) + 1, src.host);
    buffer_push_all(&src);
    team_meet(team);
    for (size_t bytes = 8; bytes <= most; bytes *= 2) {
        size_t count = bytes / sizeof(float);
        check_count(team, &data, &src, &dst, count, false);
        check_count(team, &data, &src, &dst, count - 1, true);
        check_count(team, &data, &src, &dst, count + 1, bytes % 3 == 1);
    }
    team_meet(team);
    buffer_close(&src);
    buffer_close(&dst);
}

static void run(int ranks, int procs, size_t most)
{
    double start = team_now();
    most = gpu_virtual() || team_short() ? most >> 7 : most;
    assert_true(team_run(
        &(team_plan_t){.ranks = ranks, .procs = procs, .limit_s = 90, .arg = &most}, every_size));
    print_message("%d ranks to %zu bytes: %.2f s\n", ranks, most, team_now() - start);
}

static void eight_threads_to_256_mib(void **state)
{
    (void)state;
    run(8, 1, (size_t)256 << 20);
}

static void eight_processes_to_256_mib(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    run(8, 8, (size_t)256 << 20);
}

/* As many ranks as a communicator on GPUs may have. */
static void twelve_threads_to_4_mib(void **state)
{
    (void)state;
    run(12, 1, (size_t)4 << 20);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_to_256_mib),
        cmocka_unit_test(eight_processes_to_256_mib),
        cmocka_unit_test(twelve_threads_to_4_mib),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
