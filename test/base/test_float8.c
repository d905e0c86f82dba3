/* Float8: every code, and every number at which rounding could go wrong, against a definition in
 * double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

#include "base/float8.h"
#include "base/half.h"

static int largest(int fraction) /* its code; the next one is infinite or NaN */
{
    return fraction == WEFT_E4M3 ? 0x7e : 0x7b;
}

/* What a code without a sign stands for. */
static double value_of(int code, int fraction)
{
    int bias = fraction == WEFT_E4M3 ? 7 : 15, exponent = code >> fraction;
    int bits = code & ((1 << fraction) - 1);
    if (code > largest(fraction)) {
        return fraction == WEFT_E5M2 && code == 0x7c ? INFINITY : NAN;
    }
    return exponent == 0 ? ldexp(bits, 1 - bias - fraction)
                         : ldexp(bits + (1 << fraction), exponent - bias - fraction);
}

/* The nearest code, the even one of two. e5m2 is infinite from half a step above the largest on,
 * e4m3 never. */
static int code_of(double value, int fraction)
{
    int sign = signbit(value) ? 0x80 : 0, low = 0, high = largest(fraction);
    double size = fabs(value);
    if (isnan(value)) {
        return 0x7f;
    }
    while (low < high) { /* the largest that is not above it */
        int middle = (low + high + 1) / 2;
        if (value_of(middle, fraction) > size) {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    double below = size - value_of(low, fraction);
    if (low == largest(fraction)) {
        double step = value_of(low, fraction) - value_of(low - 1, fraction);
        return sign | (fraction == WEFT_E5M2 && below >= step / 2 ? 0x7c : low);
    }
    double above = value_of(low + 1, fraction) - size;
    return sign | (above < below || (above == below && low % 2 == 1) ? low + 1 : low);
}

static void expect_code(float value, int fraction)
{
    int is = weft__float8_narrow(value, fraction), want = code_of((double)value, fraction);
    if (is != want) {
        fail_msg("%a in %d bits of fraction is %#x, not %#x", (double)value, fraction, (unsigned)is,
                 (unsigned)want);
    }
}

static void expect_near(float value, int fraction)
{
    for (int negative = 0; negative < 2; negative++) {
        float x = negative ? -value : value;
        expect_code(x, fraction);
        expect_code(nextafterf(x, 0), fraction);
        expect_code(nextafterf(x, negative ? -INFINITY : INFINITY), fraction);
    }
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void every_code_there_and_back(void **state)
{
    (void)state;
    for (int fraction = WEFT_E5M2; fraction <= WEFT_E4M3; fraction++) {
        for (int code = 0; code < 256; code++) {
            float is = weft__float8_widen((uint8_t)code, fraction);
            double want = value_of(code & 0x7f, fraction);
            assert_true(isnan(want) ? isnan(is) : fabs((double)is) == want);
            assert_int_equal(signbit(is) != 0, code >> 7);
            assert_int_equal(weft__float8_narrow(is, fraction), isnan(want) ? 0x7f : code);
        }
    }
    assert_true(weft__e4m3_to_f32(0x7e) == 448 && weft__e5m2_to_f32(0x7b) == 57344);
    assert_int_equal(weft__f32_to_e4m3(-1e30f), 0xfe);
    assert_int_equal(weft__f32_to_e5m2(-1e30f), 0xfc);
}

static void rounding_at_and_next_to_every_tie(void **state)
{
    (void)state;
    for (int fraction = WEFT_E5M2; fraction <= WEFT_E4M3; fraction++) {
        for (int code = 0; code <= largest(fraction); code++) {
            double here = value_of(code, fraction);
            double next = code < largest(fraction) ? value_of(code + 1, fraction)
                                                   : 2 * here - value_of(code - 1, fraction);
            expect_near((float)here, fraction);
            expect_near((float)((here + next) / 2), fraction); /* exact in f32 */
        }
    }
}

static void rounding_of_all_halves_and_of_many_floats(void **state)
{
    (void)state;
    for (int fraction = WEFT_E5M2; fraction <= WEFT_E4M3; fraction++) {
        for (uint32_t i = 0; i < 65536; i++) {
            expect_code(weft__f16_to_f32((uint16_t)i), fraction);
            expect_code(of_bits(i << 16), fraction); /* every exponent, NaNs, infinities */
            expect_code(of_bits(i << 16 | 1), fraction);
            expect_code(of_bits(i << 16 | 0xffff), fraction);
            expect_code(of_bits(i * 2654435761u), fraction);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_there_and_back),
        cmocka_unit_test(rounding_at_and_next_to_every_tie),
        cmocka_unit_test(rounding_of_all_halves_and_of_many_floats),
    };
    return cmocka_run_group_tests_name("base/float8", tests, NULL, NULL);
}
