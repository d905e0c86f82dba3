/* ctest: timeout=120 tsan slow */
/* The matrix of collectives, with ranks that are threads. */
#include <setjmp.h>

#include "comm/matrix.h"

#include <cmocka.h>

static const int sizes[] = {1, 2, 3, 4, 7, 8};

static void run_sizes(team_fn fn)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (UNDER_SANITIZER && sizes[i] != 2 && sizes[i] != 7) {
            continue;
        }
        double start = team_now();
        assert_true(team_run(&(team_plan_t){.ranks = sizes[i], .procs = 1, .limit_s = 60}, fn));
        print_message("%d ranks: %.2f s\n", sizes[i], team_now() - start);
    }
}

#define MATRIX_TEST(name, fn)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_sizes(fn);                                                                             \
    }

MATRIX_TEST(small_counts_all_types_and_operations, matrix_small)
MATRIX_TEST(medium_counts_every_algorithm, matrix_medium)
MATRIX_TEST(large_odd_counts, matrix_large)
MATRIX_TEST(ragged_alltoallv, matrix_ragged)
MATRIX_TEST(pairs_of_all_sizes, matrix_pairs)
MATRIX_TEST(random_floats_same_bits, matrix_floats)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_counts_all_types_and_operations),
        cmocka_unit_test(medium_counts_every_algorithm),
        cmocka_unit_test(large_odd_counts),
        cmocka_unit_test(ragged_alltoallv),
        cmocka_unit_test(pairs_of_all_sizes),
        cmocka_unit_test(random_floats_same_bits),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
