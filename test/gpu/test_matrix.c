/* ctest: timeout=240 serial */
/* The matrix of collectives on one GPU, with ranks that are processes. */
#include <setjmp.h>

#include "comm/matrix.h"
#include "gpu/gpu.h"

#include <cmocka.h>

static const team_fn parts[] = {matrix_small, matrix_medium, matrix_large,  matrix_ragged,
                                matrix_pairs, matrix_floats, matrix_float8, NULL};

static const team_fn short_parts[] = {matrix_small, matrix_medium, matrix_ragged,
                                      matrix_pairs, matrix_float8, NULL};

static void run(int ranks, int procs)
{
    double start = team_now();
    assert_true(team_run(&(team_plan_t){.ranks = ranks,
                                        .procs = procs,
                                        .limit_s = team_short() ? 300 : 90,
                                        .arg = team_short() ? short_parts : parts},
                         gpu_in_a_row));
    print_message("%d ranks: %.2f s\n", ranks, team_now() - start);
}

#define MATRIX_TEST(name, ranks, procs)                                                            \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run(ranks, procs);                                                                         \
    }

MATRIX_TEST(one_process, 1, 1)
MATRIX_TEST(two_processes, 2, 2)
MATRIX_TEST(four_processes, 4, 4)
MATRIX_TEST(eight_processes, 8, 8)
MATRIX_TEST(two_processes_of_two_threads, 4, 2)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process),
        cmocka_unit_test(two_processes),
        cmocka_unit_test(four_processes),
        cmocka_unit_test(eight_processes),
        cmocka_unit_test(two_processes_of_two_threads),
    };
    gpu_start(argc, argv, true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
