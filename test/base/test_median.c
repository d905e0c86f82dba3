/* Medians and shuffles. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/median.h"
#include "base/rng.h"

static void medians(void **state)
{
    double odd[] = {9, 1, 2}, even[] = {8, 1, 2, 4}, large[] = {DBL_MAX, DBL_MAX};
    (void)state;
    assert_true(weft__median(NULL, 0) == 0);
    assert_true(weft__median((double[]){3}, 1) == 3);
    assert_true(weft__median(odd, 3) == 2);
    assert_true(odd[0] == 1 && odd[1] == 2 && odd[2] == 9); /* sorted */
    assert_true(weft__median(even, 4) == 3);
    assert_true(weft__middle(even, 4) == 3);
    assert_true(weft__median(large, 2) == DBL_MAX);
}

/* Every order is as likely as any other, and each number is there once. */
static void shuffles(void **state)
{
    int seen[6] = {0};
    (void)state;
    for (uint64_t i = 0; i < 6000; i++) {
        int order[3], again[3], sum = 0;
        weft__shuffle(7, 3 * i, order, 3);
        weft__shuffle(7, 3 * i, again, 3);
        assert_memory_equal(order, again, sizeof(order));
        for (int k = 0; k < 3; k++) {
            assert_in_range(order[k], 0, 2);
            sum |= 1 << order[k];
        }
        assert_int_equal(sum, 7);
        seen[2 * order[0] + (order[1] > order[2])]++;
    }
    for (int i = 0; i < 6; i++) {
        assert_in_range(seen[i], 850, 1150); /* 1000 +- 5 standard deviations */
    }
    weft__shuffle(7, 0, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians),
        cmocka_unit_test(shuffles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
