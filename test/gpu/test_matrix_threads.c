/* ctest: timeout=240 serial */
/* The matrix of collectives on one GPU, with ranks that are threads. With WEFT_TEST_SHORT, what
 * compute-sanitizer looks at: every kernel, but few cases of each. */
#include <setjmp.h>

#include "comm/matrix.h"
#include "gpu/gpu.h"

#include <cmocka.h>

static const team_fn parts[] = {matrix_small, matrix_medium, matrix_large, matrix_ragged,
                                matrix_pairs, matrix_floats, NULL};
static const team_fn short_parts[] = {matrix_small, matrix_medium, matrix_ragged, matrix_pairs,
                                      NULL};

static void run(int ranks)
{
    if (team_short() && ranks != 2 && ranks != 4) {
        return;
    }
    double start = team_now();
    assert_true(team_run(
        &(team_plan_t){
            .ranks = ranks, .procs = 1, .limit_s = 90, .arg = team_short() ? short_parts : parts},
        gpu_in_a_row));
    print_message("%d ranks: %.2f s\n", ranks, team_now() - start);
}

#define MATRIX_TEST(name, ranks)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run(ranks);                                                                                \
    }

MATRIX_TEST(one_thread, 1)
MATRIX_TEST(two_threads, 2)
MATRIX_TEST(three_threads, 3)
MATRIX_TEST(four_threads, 4)
MATRIX_TEST(seven_threads, 7)
MATRIX_TEST(eight_threads, 8)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),    cmocka_unit_test(two_threads),
        cmocka_unit_test(three_threads), cmocka_unit_test(four_threads),
        cmocka_unit_test(seven_threads), cmocka_unit_test(eight_threads),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
