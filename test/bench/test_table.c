/* What tables of results say of several loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/table.h"

static void the_median_is_in_the_middle(void **state)
{
    (void)state;
    assert_true(weft__sample_median(&(weft_sample_t){.repeats = 0}) == 0);
    assert_true(weft__sample_median(&(weft_sample_t){.repeats = 1, .us = {3}}) == 3);
    assert_true(weft__sample_median(&(weft_sample_t){.repeats = 3, .us = {9, 1, 2}}) == 2);
    assert_true(weft__sample_median(&(weft_sample_t){.repeats = 2, .us = {4, 1}}) == 2.5);
    assert_true(weft__sample_median(&(weft_sample_t){.repeats = 4, .us = {8, 1, 2, 4}}) == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
