/* Products of many rows by teams of several threads, whatever this machine has; and products
 * without memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernel/cpu/launch.h"
#include "kernel/cpu/strips.h"
#include "no_memory.h"

enum { M = 301, N = 70, K = 130 };

static float a[M * K], b[K * N], c[M * N];

/* Small whole numbers: sums are exact in any order. */
static float number(int64_t i, int64_t j)
{
    return (float)((i * 7 + j * 3) % 11 - 5);
}

static weft_matmul_t product(void)
{
    for (int64_t i = 0; i < M; i++) {
        for (int64_t q = 0; q < K; q++) {
            a[i * K + q] = number(i, q);
        }
    }
    for (int64_t q = 0; q < K; q++) {
        for (int64_t j = 0; j < N; j++) {
            b[q * N + j] = number(q, 2 * j);
        }
    }
    for (int64_t i = 0; i < M * N; i++) {
        c[i] = (float)i;
    }
    return (weft_matmul_t){.type = WEFT_F32,
                           .c_type = WEFT_F32,
                           .m = M,
                           .n = N,
                           .k = K,
                           .a = a,
                           .b = b,
                           .c = c,
                           .lda = K,
                           .ldb = N,
                           .ldc = N};
}

static void check_product(bool onto_c)
{
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            float sum = onto_c ? (float)(i * N + j) : 0;
            for (int64_t q = 0; q < K; q++) {
                sum += number(i, q) * number(q, 2 * j);
            }
            assert_true(c[i * N + j] == sum);
        }
    }
}

static void every_team_multiplies(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        weft__compute_threads(threads);
        for (int onto_c = 0; onto_c < 2; onto_c++) {
            weft_matmul_t args = product();
            assert_int_equal(weft__run_strips(&args, onto_c, true), WEFT_OK);
            check_product(onto_c);
        }
    }
}

#if MEMORY_FAILS
/* A team keeps what it took, so each time it is another one. */
static void no_memory_is_an_error(void **state)
{
    static float sums[N];
    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_matmul_t args = product();
        args.bias_grad = i == 0 ? NULL : sums;
        weft__compute_threads(1 + i);
        assert_int_equal(weft__team_size(), 1 + i);
        allocations_left = 0;
        assert_int_equal(weft__run_matmul(&args), WEFT_ERR_NO_MEMORY);
        assert_int_equal(allocations_left, -1);
        assert_int_equal(weft__run_matmul(&args), WEFT_OK);
        check_product(false);
    }
}
#endif

int main(void)
{
    setenv("WEFT_BLAS", "own", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_team_multiplies),
#if MEMORY_FAILS
        cmocka_unit_test(no_memory_is_an_error),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
