/* Where parameters lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "parallel/layout.h"

static weft_model_t *make_model(const char *preset)
{
    weft_model_config_t config;
    weft_model_t *model;
    assert_int_equal(weft__config_preset(preset, &config), WEFT_OK);
    weft_slice_t slice = WEFT_SLICE_WHOLE(&config);
    assert_int_equal(weft__model_create(&config, &slice, WEFT_F32, WEFT_F32, &model), WEFT_OK);
    return model;
}

/* Everything that must hold for any limit. */
static void check_layout(const weft_model_t *model, const weft_layout_t *layout, int64_t limit,
                         int64_t align)
{
    int64_t end = 0;
    int param = model->param_count;
    for (int b = 0; b < layout->bucket_count; b++) {
        const weft_bucket_t *bucket = &layout->buckets[b];
        assert_true(bucket->first == end && bucket->first % align == 0);
        assert_true(bucket->param_count >= 1);
        assert_true(bucket->param_count == 1 || bucket->count <= limit + align);
        assert_int_equal(bucket->param_first + bucket->param_count, param);
        end = bucket->first + bucket->count;
        int64_t at = bucket->first;
        for (int i = param - 1; i >= bucket->param_first; i--) {
            assert_int_equal(layout->bucket_of[i], b);
            assert_true(layout->offset[i] >= at && layout->offset[i] % 64 == 0);
            at = layout->offset[i] + model->params[i].count;
        }
        assert_true(at <= end);
        param = bucket->param_first;
    }
    assert_int_equal(param, 0);
    assert_true(layout->total == end);
}

static void every_parameter_has_a_place_of_its_own(void **state)
{
    const int64_t limits[] = {0, 1, 1000, 100000, 1 << 22, INT64_MAX / 2};
    const char *const presets[] = {"tiny", "llama-tiny"};
    (void)state;
    for (int p = 0; p < 2; p++) {
        weft_model_t *model = make_model(presets[p]);
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            weft_layout_t layout;
            int64_t align = WEFT_SUMSQ_CHUNK * (int64_t)(1 + 2 * (i % 2));
            assert_int_equal(weft__layout_create(model, limits[i], align, &layout), WEFT_OK);
            check_layout(model, &layout, limits[i], align);
            assert_true(limits[i] > 0 || layout.bucket_count == model->param_count);
            weft__layout_destroy(&layout);
        }
        weft__model_destroy(model);
    }
}

static void runs_cover_all_and_keep_decay_apart(void **state)
{
    weft_layout_t layout;
    (void)state;
    weft_model_t *model = make_model("tiny");
    weft_run_t *runs = calloc((size_t)model->param_count, sizeof(*runs));
    assert_int_equal(weft__layout_create(model, 100000, WEFT_SUMSQ_CHUNK, &layout), WEFT_OK);
    int count = weft__layout_runs(&layout, model, runs);
    assert_true(count > 1 && count <= model->param_count);
    for (int i = 0; i < model->param_count; i++) {
        int found = 0;
        for (int r = 0; r < count; r++) {
            int64_t end = runs[r].first + runs[r].count;
            if (layout.offset[i] >= runs[r].first && layout.offset[i] < end) {
                assert_true(layout.offset[i] + model->params[i].count <= end);
                assert_int_equal(runs[r].decay, model->params[i].decay);
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
    free(runs);
    weft__layout_destroy(&layout);
    weft__model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_has_a_place_of_its_own),
        cmocka_unit_test(runs_cover_all_and_keep_decay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
