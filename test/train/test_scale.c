/* Loss scaling: when the scale halves, doubles and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "train/scale.h"

static weft_train_state_t started(double scale)
{
    weft_train_config_t config = {.loss_scale = scale};
    weft_setup_t setup = {.config = &config, .type = WEFT_F16};
    weft_train_state_t state = {.loss_scale = 1.0};
    weft__scale_start(&setup, &state);
    return state;
}

static void starts_with_a_power_of_two(void **state)
{
    (void)state;
    assert_true(started(65536).loss_scale == 65536);
    assert_true(started(100000).loss_scale == 65536);
    assert_true(started(0.001).loss_scale == 2);
    assert_true(started(1e300).loss_scale == 0x1p40);
}

static void only_fp16_has_one(void **state)
{
    weft_train_config_t config = {.loss_scale = 65536};
    weft_setup_t setup = {.config = &config, .type = WEFT_BF16};
    weft_train_state_t from_fp16 = {.loss_scale = 1024, .loss_scale_steps = 7, .skipped = 3};
    (void)state;
    assert_false(weft__scale_used(&setup));
    weft__scale_start(&setup, &from_fp16);
    assert_true(from_fp16.loss_scale == 1 && from_fp16.skipped == 0);
}

static void a_resumed_run_goes_on_with_its_own(void **state)
{
    weft_train_config_t config = {.loss_scale = 65536};
    weft_setup_t setup = {.config = &config, .type = WEFT_F16};
    weft_train_state_t kept = {.loss_scale = 1024, .loss_scale_steps = 1999, .skipped = 3};
    (void)state;
    weft__scale_start(&setup, &kept);
    assert_true(kept.loss_scale == 1024 && kept.loss_scale_steps == 1999 && kept.skipped == 3);
    assert_true(weft__scale_update(&kept, 1.0));
    assert_true(kept.loss_scale == 2048 && kept.loss_scale_steps == 0);
}

static void halves_on_overflow_and_doubles_with_patience(void **state)
{
    weft_train_state_t s = started(8);
    (void)state;
    assert_true(weft__scale_update(&s, INFINITY) && s.loss_scale == 4 && s.skipped == 1);
    for (int i = 1; i < WEFT_SCALE_PATIENCE; i++) {
        assert_true(weft__scale_update(&s, 1.0) && s.loss_scale == 4);
    }
    assert_true(weft__scale_update(&s, NAN) && s.loss_scale == 2 && s.skipped == 2);
    for (int i = 0; i < WEFT_SCALE_PATIENCE; i++) {
        assert_true(s.loss_scale == 2 && weft__scale_update(&s, 0.0));
    }
    assert_true(s.loss_scale == 4);
    assert_true(weft__scale_update(&s, NAN) && s.loss_scale == 2);
    assert_false(weft__scale_update(&s, NAN)); /* none is smaller */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_with_a_power_of_two),
        cmocka_unit_test(only_fp16_has_one),
        cmocka_unit_test(a_resumed_run_goes_on_with_its_own),
        cmocka_unit_test(halves_on_overflow_and_doubles_with_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
