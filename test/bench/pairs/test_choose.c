/* Which pairs and sizes are measured, and what is outside of expectations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/pairs/internal.h"

static weft_status_t nothing(weft_pair_run_t *run, int rounds)
{
    (void)run;
    (void)rounds;
    return WEFT_OK;
}

static const weft_pair_t pair = {.target = "hand",
                                 .name = "left",
                                 .group = "data parallel",
                                 .ways = {{"a", nothing}, {"b", nothing}, {"c", nothing}},
                                 .min = 1 << 10,
                                 .max = 1 << 20};

static void a_profile_takes_the_middle_three_or_all_sizes(void **state)
{
    (void)state;
    size_t bytes[WEFT_PAIRS_SIZES];
    assert_int_equal(weft__pairs_sizes(&pair, 1, bytes), 1);
    assert_int_equal(bytes[0], 64 << 10); /* of 1K, 4K, 16K, 64K, 256K, 1M */
    assert_int_equal(weft__pairs_sizes(&pair, 3, bytes), 3);
    assert_true(bytes[0] == 1 << 10 && bytes[1] == 64 << 10 && bytes[2] == 1 << 20);
    assert_int_equal(weft__pairs_sizes(&pair, 0, bytes), 6);
    assert_true(bytes[1] == 4 << 10 && bytes[5] == 1 << 20);
    weft_pair_t one = pair;
    one.max = one.min;
    assert_int_equal(weft__pairs_sizes(&one, 3, bytes), 1);
    assert_int_equal(bytes[0], 1 << 10);
    one.min = one.max = 0;
    assert_int_equal(weft__pairs_sizes(&one, 3, bytes), 1);
    assert_int_equal(bytes[0], 0);
}

static bool asked(const char *name)
{
    const weft_pairs_t pairs = {.names = (char *const[]){(char *)name}, .name_count = 1};
    return weft__pairs_asked(&pairs, &pair);
}

static void names_are_of_pairs_targets_and_groups(void **state)
{
    (void)state;
    assert_true(weft__pairs_asked(&(weft_pairs_t){.name_count = 0}, &pair));
    assert_true(asked("hand"));
    assert_true(asked("hand/left"));
    assert_true(asked("data parallel"));
    assert_true(asked("data-parallel"));
    assert_false(asked("hand/right"));
    assert_false(asked("data"));
    assert_false(asked("data-parallel-"));
    weft_pair_t alone = pair;
    alone.ways[1].loop = NULL; /* with one way there is nothing to compare */
    assert_false(weft__pairs_asked(&(weft_pairs_t){.name_count = 0}, &alone));
}

static void ways_end_with_the_first_that_has_no_loop(void **state)
{
    (void)state;
    weft_pair_t full = pair;
    assert_int_equal(weft__pair_ways(&pair), 3);
    for (int i = 0; i < WEFT_PAIR_WAYS; i++) {
        full.ways[i].loop = nothing;
    }
    assert_int_equal(weft__pair_ways(&full), WEFT_PAIR_WAYS);
}

static void outside_is_beyond_doubt(void **state)
{
    (void)state;
    const weft_expectation_t e = {.low = 2, .high = 3};
    weft_ratio_t r = {
        .ratio = 1.5, .sure_low = 1.4, .sure_high = 1.9, .verdict = WEFT_VERDICT_FASTER};
    double missed = weft__expectation_missed(&e, &r);
    assert_true(missed < -0.24 && missed > -0.26);
    r.sure_high = 2.1; /* it may be inside */
    assert_true(weft__expectation_missed(&e, &r) == 0);
    r = (weft_ratio_t){
        .ratio = 4.5, .sure_low = 3.1, .sure_high = 6, .verdict = WEFT_VERDICT_FASTER};
    missed = weft__expectation_missed(&e, &r);
    assert_true(missed > 0.49 && missed < 0.51);
    r.verdict = WEFT_VERDICT_NOISY;
    assert_true(weft__expectation_missed(&e, &r) == 0);
}

static void every_pair_can_be_told_from_the_others(void **state)
{
    (void)state;
    for (const weft_pair_t *const *a = weft__pairs; *a; a++) {
        char label[WEFT_PAIR_LABEL], other[WEFT_PAIR_LABEL];
        weft__pair_label(*a, label);
        assert_non_null((*a)->group);
        assert_non_null((*a)->text);
        assert_non_null((*a)->open);
        assert_non_null((*a)->check);
        assert_null((*a)->absent[0]);
        for (const weft_pair_t *const *b = a + 1; *b; b++) {
            weft__pair_label(*b, other);
            assert_string_not_equal(label, other);
        }
        for (int i = 0; i < weft__pair_ways(*a); i++) {
            for (int k = 0; k < i; k++) {
                assert_string_not_equal((*a)->ways[i].name, (*a)->ways[k].name);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_takes_the_middle_three_or_all_sizes),
        cmocka_unit_test(names_are_of_pairs_targets_and_groups),
        cmocka_unit_test(ways_end_with_the_first_that_has_no_loop),
        cmocka_unit_test(outside_is_beyond_doubt),
        cmocka_unit_test(every_pair_can_be_told_from_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
