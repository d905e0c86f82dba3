/* Numbers for people, and the ticks of axes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "report/number.h"

static void expect(double value, weft_number_format_t format, const char *expected)
{
    char text[WEFT_NUMBER_TEXT];
    assert_string_equal(weft__number_text(text, value, format), expected);
}

static void numbers_are_short(void **state)
{
    (void)state;
    expect(0, WEFT_NUMBER_PLAIN, "0");
    expect(12.5, WEFT_NUMBER_PLAIN, "12.5");
    expect(0.0125, WEFT_NUMBER_PLAIN, "0.0125");
    expect(-1234.56, WEFT_NUMBER_PLAIN, "-1235");
    expect(1e-9, WEFT_NUMBER_PLAIN, "1e-09");
    expect(100, WEFT_NUMBER_PLAIN, "100");
    expect(NAN, WEFT_NUMBER_PLAIN, "-");
    expect(INFINITY, WEFT_NUMBER_BYTES, "-");
    expect(15230, WEFT_NUMBER_SI, "15.23k");
    expect(999, WEFT_NUMBER_SI, "999");
    expect(2.5e9, WEFT_NUMBER_SI, "2.5G");
    expect(512, WEFT_NUMBER_BYTES, "512 B");
    expect(65536, WEFT_NUMBER_BYTES, "64 KiB");
    expect(1.5 * 1073741824, WEFT_NUMBER_BYTES, "1.5 GiB");
    expect(0.125, WEFT_NUMBER_PERCENT, "12.5%");
    expect(1, WEFT_NUMBER_PERCENT, "100%");
    expect(1.7e308, WEFT_NUMBER_BYTES, "1.51e+293 PiB"); /* absurd, but no overflow */
}

static weft_axis_t axis_of(weft_axis_scale_t scale, weft_number_format_t format, double least,
                           double most, int wanted)
{
    weft_axis_t axis = {.scale = scale, .format = format};
    const double values[] = {least, most};
    weft__axis_fit(&axis, values, 2);
    weft__axis_ready(&axis, wanted);
    return axis;
}

/* The ticks, as they are written, with spaces between. */
static void expect_ticks(const weft_axis_t *axis, const char *expected)
{
    char all[WEFT_TICKS_MOST * WEFT_NUMBER_TEXT] = "", text[WEFT_NUMBER_TEXT];
    for (int i = 0; i < axis->count; i++) {
        size_t length = strlen(all);
        snprintf(all + length, sizeof(all) - length, "%s%s", i > 0 ? " | " : "",
                 weft__axis_text(axis, i, text));
    }
    assert_string_equal(all, expected);
}

static void linear_ticks_are_round(void **state)
{
    (void)state;
    weft_axis_t axis = axis_of(WEFT_AXIS_LINEAR, WEFT_NUMBER_PLAIN, 4.7, 5.53, 6);
    expect_ticks(&axis, "4.6 | 4.8 | 5.0 | 5.2 | 5.4 | 5.6");
    axis = axis_of(WEFT_AXIS_LINEAR, WEFT_NUMBER_PLAIN, 0, 3e-4, 6);
    expect_ticks(&axis, "0 | 0.5e-4 | 1.0e-4 | 1.5e-4 | 2.0e-4 | 2.5e-4 | 3.0e-4");
    axis = axis_of(WEFT_AXIS_LINEAR, WEFT_NUMBER_PERCENT, 0, 0.3, 6);
    expect_ticks(&axis, "0% | 5% | 10% | 15% | 20% | 25% | 30%");
    axis = axis_of(WEFT_AXIS_LINEAR, WEFT_NUMBER_PERCENT, 0.401, 0.409, 4);
    expect_ticks(&axis, "40.0% | 40.2% | 40.4% | 40.6% | 40.8% | 41.0%");
    axis = axis_of(WEFT_AXIS_LINEAR, WEFT_NUMBER_BYTES, 0, 5.0 * 1073741824, 6);
    expect_ticks(&axis, "0 B | 1 GiB | 2 GiB | 3 GiB | 4 GiB | 5 GiB");
    axis = axis_of(WEFT_AXIS_LINEAR, WEFT_NUMBER_PLAIN, -3, 7, 5);
    expect_ticks(&axis, "-4 | -2 | 0 | 2 | 4 | 6 | 8");
    axis = (weft_axis_t){.from_zero = true};
    const double five = 5;
    weft__axis_fit(&axis, &five, 1);
    weft__axis_ready(&axis, 5);
    expect_ticks(&axis, "0 | 1 | 2 | 3 | 4 | 5");
    axis = (weft_axis_t){.whole = true};
    const double ends[] = {1, 3};
    weft__axis_fit(&axis, ends, 2);
    weft__axis_ready(&axis, 8);
    expect_ticks(&axis, "1 | 2 | 3");
}

static void logarithmic_ticks_are_powers(void **state)
{
    (void)state;
    weft_axis_t axis = axis_of(WEFT_AXIS_LOG2, WEFT_NUMBER_BYTES, 8, 1048576, 7);
    expect_ticks(&axis, "8 B | 64 B | 512 B | 4 KiB | 32 KiB | 256 KiB");
    assert_float_equal(axis.most, 1048576, 0);
    axis = axis_of(WEFT_AXIS_LOG2, WEFT_NUMBER_PLAIN, 1, 8, 7);
    expect_ticks(&axis, "1 | 2 | 4 | 8");
    axis = axis_of(WEFT_AXIS_LOG10, WEFT_NUMBER_PLAIN, 3, 2000, 7);
    expect_ticks(&axis, "1 | 10 | 100 | 1000 | 10000");
    axis = axis_of(WEFT_AXIS_LOG10, WEFT_NUMBER_PLAIN, 12, 340, 7);
    expect_ticks(&axis, "10 | 20 | 50 | 100 | 200 | 500");
    axis = axis_of(WEFT_AXIS_LOG10, WEFT_NUMBER_PLAIN, 0.75, 1.41, 7);
    expect_ticks(&axis, "0.7 | 0.8 | 0.9 | 1 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5");
    axis = axis_of(WEFT_AXIS_LOG2, WEFT_NUMBER_PLAIN, 16, 16, 7);
    expect_ticks(&axis, "16 | 32");
}

static void what_cannot_be_drawn_is_left_out(void **state)
{
    (void)state;
    weft_axis_t axis = {.scale = WEFT_AXIS_LOG10};
    const double values[] = {NAN, 0, -5, INFINITY, 20, 3000};
    weft__axis_fit(&axis, values, 6);
    assert_float_equal(axis.least, 20, 0);
    assert_float_equal(axis.most, 3000, 0);
    assert_false(weft__axis_shows(&axis, 0));
    assert_false(weft__axis_shows(&axis, NAN));
    axis = (weft_axis_t){.scale = WEFT_AXIS_LINEAR};
    weft__axis_fit(&axis, values, 1);
    assert_false(axis.fitted);
    weft__axis_ready(&axis, 5);
    assert_true(axis.count >= 2);
    assert_true(weft__axis_shows(&axis, -5));
    assert_false(weft__axis_shows(&axis, INFINITY));
}

/* Whatever the values: the ends enclose them, ticks rise from end to end and read differently. */
static void any_range_has_good_ticks(void **state)
{
    (void)state;
    uint64_t index = 0;
#define NEXT(n) (weft__rng_at(7, index++) % (n))
    for (int round = 0; round < 20000; round++) {
        weft_axis_scale_t scale = (weft_axis_scale_t)(NEXT(3));
        bool percent = NEXT(4) == 0;
        double size = pow(10, percent ? (double)NEXT(4) - 5 : (double)NEXT(400) / 10 - 20);
        double first = size * (1 + (double)NEXT(1000));
        double second = first * (1 + (double)NEXT(5000) / 100);
        if (scale == WEFT_AXIS_LINEAR && NEXT(2)) {
            first = -first;
        }
        weft_axis_t axis = axis_of(scale, percent ? WEFT_NUMBER_PERCENT : WEFT_NUMBER_PLAIN, first,
                                   second, 2 + (int)NEXT(9));
        assert_true(axis.least <= first * (first < 0 ? 0.999 : 1.001));
        assert_true(axis.most >= second * 0.999);
        assert_true(axis.count >= 2 && axis.count <= WEFT_TICKS_MOST);
        for (int i = 1; i < axis.count; i++) {
            char before[WEFT_NUMBER_TEXT], text[WEFT_NUMBER_TEXT];
            assert_true(axis.ticks[i] > axis.ticks[i - 1]);
            assert_string_not_equal(weft__axis_text(&axis, i, text),
                                    weft__axis_text(&axis, i - 1, before));
            double at = weft__axis_at(&axis, axis.ticks[i]);
            assert_true(at > 0 && at < 1.0001);
        }
    }
}

/* Ends and places of axes are finite for whatever a file may say. */
static void any_double_has_a_place(void **state)
{
    (void)state;
    static const double values[] = {0,     5e-324,  1e-308,  1e-299, 1e-290,   1,
                                    1e290, 1e299,   1e300,   1e308,  -1e308,   -1e299,
                                    -1,    -1e-299, -5e-324, NAN,    INFINITY, -INFINITY};
    enum { VALUES = sizeof(values) / sizeof(values[0]), FORMATS = 4, SCALES = 3 };
    for (int i = 0; i < VALUES * VALUES * FORMATS * SCALES * 2; i++) {
        const double both[] = {values[i % VALUES], values[i / VALUES % VALUES]};
        int kind = i / VALUES / VALUES;
        weft_axis_t axis = {.format = (weft_number_format_t)(kind % FORMATS),
                            .scale = (weft_axis_scale_t)(kind / FORMATS % SCALES),
                            .from_zero = kind / FORMATS / SCALES == 1};
        weft__axis_fit(&axis, both, 2);
        weft__axis_ready(&axis, 6);
        assert_true(isfinite(axis.least) && isfinite(axis.most) && axis.least < axis.most);
        assert_true(axis.count >= 2);
        for (int tick = 0; tick < axis.count; tick++) {
            char text[WEFT_NUMBER_TEXT];
            weft__axis_text(&axis, tick, text);
            assert_true(isfinite(axis.ticks[tick]));
            assert_null(strstr(text, "nan"));
            assert_null(strstr(text, "inf"));
        }
        for (int j = 0; j < VALUES; j++) {
            double at = weft__axis_at(&axis, values[j]);
            assert_true(at >= 0 && at <= 1);
        }
        assert_true(weft__axis_at(&axis, axis.least) == 0 && weft__axis_at(&axis, axis.most) == 1);
    }
    expect(1e307, WEFT_NUMBER_PERCENT, "-");
    expect(1e307, WEFT_NUMBER_PLAIN, "1e+307");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_short),
        cmocka_unit_test(linear_ticks_are_round),
        cmocka_unit_test(logarithmic_ticks_are_powers),
        cmocka_unit_test(what_cannot_be_drawn_is_left_out),
        cmocka_unit_test(any_range_has_good_ticks),
        cmocka_unit_test(any_double_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
