/* The counter-based generator against its published vectors, and the kernel's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* Known answers of the Random123 distribution for philox4x32_10: counter, key, result. */
static void philox_known_answers(void **state)
{
    (void)state;
    static const uint32_t cases[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        weft__philox(cases[i], cases[i] + 4, out);
        for (int j = 0; j < 4; j++) {
            assert_int_equal(out[j], cases[i][6 + j]);
        }
    }
}

static void rng_at_is_a_function_of_seed_and_index(void **state)
{
    (void)state;
    assert_true(weft__rng_at(0, 0) == UINT64_C(0xe169c58d6627e8d5));
    uint64_t seed = UINT64_C(0x123456789abcdef0);
    /* Both halves of the seed and of the index matter. */
    uint64_t base = weft__rng_at(seed, 5);
    assert_true(base == weft__rng_at(seed, 5));
    assert_true(base != weft__rng_at(seed ^ 1, 5));
    assert_true(base != weft__rng_at(seed ^ (UINT64_C(1) << 63), 5));
    assert_true(base != weft__rng_at(seed, 6));
    assert_true(base != weft__rng_at(seed, 5 + (UINT64_C(1) << 32)));
}

/* Each of the 64 bits is set half of the time: within five standard deviations. */
static void bits_are_balanced(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    int ones[64] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t value = weft__rng_at(42, i);
        for (int bit = 0; bit < 64; bit++) {
            ones[bit] += (int)(value >> bit & 1);
        }
    }
    for (int bit = 0; bit < 64; bit++) {
        assert_in_range(ones[bit], DRAWS / 2 - 500, DRAWS / 2 + 500);
    }
}

static void kernel_bytes_fill_all_and_differ(void **state)
{
    (void)state;
    enum { BYTES = 1000000 }; /* more than one getrandom call need give */
    unsigned char *a = calloc(2, BYTES), *b = a + BYTES;
    assert_non_null(a);
    assert_int_equal(weft__random_bytes(a, BYTES), WEFT_OK);
    assert_int_equal(weft__random_bytes(b, BYTES), WEFT_OK);
    assert_memory_not_equal(a, b, BYTES);
    int zero_run = 0;
    for (int i = 0; i < BYTES; i++) {
        zero_run = a[i] == 0 ? zero_run + 1 : 0;
        assert_true(zero_run < 12); /* a tail that was left alone */
    }
    free(a);
    assert_int_equal(weft__random_bytes(NULL, 0), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(rng_at_is_a_function_of_seed_and_index),
        cmocka_unit_test(bits_are_balanced),
        cmocka_unit_test(kernel_bytes_fill_all_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
