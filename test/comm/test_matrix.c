/* ctest: timeout=120 slow */
/* The matrix of collectives, with ranks that are processes. */
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
        assert_true(team_run(&(team_plan_t){.ranks = sizes[i], .limit_s = 60}, fn));
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
MATRIX_TEST(float8_every_pair_of_codes, matrix_float8)

/* Ranks that are threads of several processes. */
static void threads_of_two_processes(void **state)
{
    static const team_fn fns[] = {matrix_small, matrix_medium, matrix_ragged, matrix_pairs};
    (void)state;
    for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
        assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 2, .limit_s = 60}, fns[i]));
    }
}

/* Chunks that fit nothing: pieces and pipelines of many odd steps. */
static void small_odd_chunks(void **state)
{
    static const team_fn fns[] = {matrix_medium, matrix_ragged, matrix_floats};
    (void)state;
    for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
        team_plan_t plan = {.ranks = 3, .limit_s = 60, .env = "WEFT_CHUNK=20011"};
        assert_true(team_run(&plan, fns[i]));
    }
}

/* Without vector instructions the results are the same. */
static void without_simd(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 2, .limit_s = 60, .env = "WEFT_SIMD=none"},
                         matrix_medium));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_counts_all_types_and_operations),
        cmocka_unit_test(medium_counts_every_algorithm),
        cmocka_unit_test(large_odd_counts),
        cmocka_unit_test(ragged_alltoallv),
        cmocka_unit_test(pairs_of_all_sizes),
        cmocka_unit_test(random_floats_same_bits),
        cmocka_unit_test(float8_every_pair_of_codes),
        cmocka_unit_test(threads_of_two_processes),
        cmocka_unit_test(small_odd_chunks),
        cmocka_unit_test(without_simd),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
