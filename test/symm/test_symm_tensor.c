/* ctest: timeout=120 tsan */
/* The distributed tensor on virtual GPUs. */
#include <setjmp.h>
#include <signal.h>

#include "gpu/gpu.h"
#include "symm/shared_cases.h"

#include <cmocka.h>

/* A rank that dies: its rows can be read, and rebalancing says who is missing and changes
 * nothing. */
static void dies(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_dtensor_h tensor;
    uint64_t row[30], *own;
    size_t first, rows;
    CHECK_OK(weft_dtensor_create(symm, 30, 8, NULL, &tensor));
    CHECK_OK(weft_dtensor_local(tensor, (void **)&own, &first, &rows));
    for (size_t i = 0; i < rows; i++) {
        own[i] = 100 + first + i;
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    if (team->rank == 1) {
        raise(SIGKILL);
    }
    double start = team_now();
    CHECK_STATUS(weft_dtensor_rebalance(tensor, NULL), WEFT_ERR_RANK_DEAD);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK_TEXT(weft_last_error(), "rank 1 (process");
    CHECK_OK(weft_dtensor_get(tensor, 0, 30, row, NULL));
    for (size_t i = 0; i < 30; i++) {
        CHECK_EQ(row[i], 100 + i);
    }
    CHECK(weft_dtensor_destroy(tensor) != WEFT_OK);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

static const team_fn all[] = {tensor_slices, tensor_refused, NULL};

/* Under TSan some are not run. */
#define PLAN_TEST(name, fn, ...)                                                                   \
    static __attribute__((unused)) void name(void **state)                                         \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(one_rank, gpu_in_a_row, .ranks = 1, .arg = all)
PLAN_TEST(four_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = all)
PLAN_TEST(two_processes, gpu_in_a_row, .ranks = 2, .arg = all)
PLAN_TEST(seven_processes, gpu_in_a_row, .ranks = 7, .arg = all)
PLAN_TEST(killed_before_a_rebalance, dies, .ranks = 3, .may_die = 2)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(four_threads),
#if !UNDER_TSAN /* which sees one process at a time */
        cmocka_unit_test(two_processes),
        cmocka_unit_test(seven_processes),
        cmocka_unit_test(killed_before_a_rebalance),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
