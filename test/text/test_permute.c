/* The permutation: every number once, different for every seed and epoch, and looking random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "text/permute.h"

static void every_number_comes_once(void **state)
{
    (void)state;
    uint8_t *seen = malloc(70000);
    for (uint64_t round = 0; round < 400; round++) {
        uint64_t size = round < 130 ? round + 1
                                    : 1 + weft__rng_at(3, round) % (round < 390 ? 3000 : 70000);
        weft_permutation_t p;
        weft__permutation_init(&p, size, weft__rng_at(4, round), round % 5);
        memset(seen, 0, size);
        for (uint64_t i = 0; i < size; i++) {
            uint64_t at = weft__permutation_at(&p, i);
            assert_true(at < size);
            assert_int_equal(seen[at]++, 0);
        }
    }
    free(seen);
}

static void huge_sizes_stay_inside(void **state)
{
    (void)state;
    const uint64_t sizes[] = {(uint64_t)1 << 40, ((uint64_t)1 << 40) + 1, UINT64_MAX,
                              (uint64_t)1 << 63};
    for (int s = 0; s < 4; s++) {
        weft_permutation_t p;
        weft__permutation_init(&p, sizes[s], 1, 0);
        uint64_t spread = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t at = weft__permutation_at(&p, i);
            assert_true(at < sizes[s]);
            spread = at > spread ? at : spread;
        }
        assert_true(spread > sizes[s] / 2);
    }
}

/* Chi-square of where a thing goes, over seeds and over epochs: 24 orders of 4 things, each as
 * likely. */
static void small_orders_are_even(void **state)
{
    (void)state;
    for (int vary = 0; vary < 2; vary++) {
        enum { ROUNDS = 24000 };
        int count[256] = {0}, kinds = 0;
        for (uint64_t i = 0; i < ROUNDS; i++) {
            weft_permutation_t p;
            weft__permutation_init(&p, 4, vary ? i : 9, vary ? 0 : i);
            int code = 0;
            for (uint64_t k = 0; k < 4; k++) {
                code = code * 4 + (int)weft__permutation_at(&p, k);
            }
            count[code]++;
        }
        double chi = 0;
        for (int code = 0; code < 256; code++) {
            kinds += count[code] > 0 ? 1 : 0;
            double off = count[code] - ROUNDS / 24.0;
            chi += count[code] > 0 ? off * off / (ROUNDS / 24.0) : 0;
        }
        assert_int_equal(kinds, 24);
        assert_true(chi < 60); /* 23 degrees of freedom: beyond 60 once in 40,000 */
    }
}

static void neighbours_are_strangers(void **state)
{
    (void)state;
    weft_permutation_t p, q;
    enum { SIZE = 10007 };
    weft__permutation_init(&p, SIZE, 1, 0);
    weft__permutation_init(&q, SIZE, 1, 1);
    int near = 0, same = 0;
    for (uint64_t i = 0; i + 1 < SIZE; i++) {
        int64_t step = (int64_t)weft__permutation_at(&p, i + 1) -
                       (int64_t)weft__permutation_at(&p, i);
        near += step >= -10 && step <= 10;
        same += weft__permutation_at(&p, i) == weft__permutation_at(&q, i);
    }
    assert_true(near < 50); /* 20 expected */
    assert_true(same < 10); /* 1 expected */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_comes_once),
        cmocka_unit_test(huge_sizes_stay_inside),
        cmocka_unit_test(small_orders_are_even),
        cmocka_unit_test(neighbours_are_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
