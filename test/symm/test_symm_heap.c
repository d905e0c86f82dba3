/* ctest: timeout=120 tsan */
/* The symmetric heap on virtual GPUs: allocation, puts and gets, signals, atomics, errors. */
#include <setjmp.h>

#include "gpu/gpu.h"
#include "symm/symm_cases.h"

#include <cmocka.h>

static const team_fn all[] = {
    symm_alloc,           symm_refused,    symm_freed,   symm_sizes_differ, symm_put_get,
    symm_ring_of_signals, symm_on_streams, symm_atomics, symm_views,        NULL};

/* Under TSan some are not run. */
#define PLAN_TEST(name, fn, ...)                                                                   \
    static __attribute__((unused)) void name(void **state)                                         \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(one_rank, gpu_in_a_row, .ranks = 1, .arg = all)
PLAN_TEST(two_threads, gpu_in_a_row, .ranks = 2, .procs = 1, .arg = all)
PLAN_TEST(four_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = all)
PLAN_TEST(seven_threads, gpu_in_a_row, .ranks = 7, .procs = 1, .arg = all)
PLAN_TEST(settings, symm_settings, .ranks = 2, .env = "WEFT_SYMM_SIZE=3M WEFT_DEVICE_MEMORY=32M")
PLAN_TEST(late_threads, symm_late, .ranks = 2, .procs = 1, .timeout_ms = 2000)
PLAN_TEST(two_processes, gpu_in_a_row, .ranks = 2, .arg = all)
PLAN_TEST(seven_processes, gpu_in_a_row, .ranks = 7, .arg = all)
PLAN_TEST(both, gpu_in_a_row, .ranks = 4, .procs = 2, .arg = all)
PLAN_TEST(late_processes, symm_late, .ranks = 2, .timeout_ms = 2000)
PLAN_TEST(killed_before_a_signal, symm_killed, .ranks = 3, .may_die = 2)
PLAN_TEST(killed_before_the_end, symm_left_in_barrier, .ranks = 3, .may_die = 2)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(four_threads),
        cmocka_unit_test(seven_threads),
        cmocka_unit_test(late_threads),
#if !UNDER_TSAN /* which sees one process at a time */
        cmocka_unit_test(settings),
        cmocka_unit_test(two_processes),
        cmocka_unit_test(seven_processes),
        cmocka_unit_test(both),
        cmocka_unit_test(late_processes),
        cmocka_unit_test(killed_before_a_signal),
        cmocka_unit_test(killed_before_the_end),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
