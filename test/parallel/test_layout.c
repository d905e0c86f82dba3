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
static void check_layout(const weft_model_t *model, const weft_layout_t *layout,
                         const weft_layout_rules_t *rules)
{
    int64_t end = 0;
    int param = model->param_count, placed = 0;
    for (int b = 0; b < layout->bucket_count; b++) {
        const weft_bucket_t *bucket = &layout->buckets[b];
        assert_true(bucket->first == end && bucket->first % rules->align == 0);
        assert_true(bucket->param_count >= 1);
        assert_int_equal(bucket->param_first + bucket->param_count, param);
        end = bucket->first + bucket->count;
        int64_t at = bucket->first;
        for (int k = 0; k < bucket->param_count; k++) {
            int i = layout->by_place[placed++];
            assert_true(i >= bucket->param_first && i < param);
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

/* Blocks are whole, ends are alone, and a bucket of several blocks is within the limit. */
static void check_units(const weft_model_t *model, const weft_layout_t *layout, int64_t limit)
{
    for (int i = 0; i + 1 < model->param_count; i++) {
        bool same = model->params[i].key.layer == model->params[i + 1].key.layer;
        if (same && model->params[i].key.layer >= 0) {
            assert_int_equal(layout->bucket_of[i], layout->bucket_of[i + 1]);
            assert_true(layout->offset[i] < layout->offset[i + 1]);
        }
    }
    for (int b = 0; b < layout->bucket_count; b++) {
        const weft_bucket_t *bucket = &layout->buckets[b];
        const weft_param_t *first = &model->params[bucket->param_first];
        const weft_param_t *last = &model->params[bucket->param_first + bucket->param_count - 1];
        const weft_param_t *tail = &model->params[bucket->param_first];
        assert_int_equal(first->key.layer >= 0, last->key.layer >= 0);
        for (int i = bucket->param_first; i < bucket->param_first + bucket->param_count; i++) {
            tail = layout->offset[i] > layout->offset[tail - model->params] ? &model->params[i]
                                                                            : tail;
        }
        int64_t used = layout->offset[tail - model->params] + tail->count - bucket->first;
        assert_true(first->key.layer == last->key.layer || used <= limit);
        assert_int_equal(weft__layout_has_blocks(layout, model, b), first->key.layer >= 0);
    }
    int tokens = weft__layout_end(layout, model, WEFT_TOKENS);
    assert_int_equal(tokens, layout->bucket_count - 1);
    assert_int_equal(layout->buckets[tokens].param_count, 1);
}

static void every_parameter_has_a_place_of_its_own(void **state)
{
    const int64_t limits[] = {0, 1, 1000, 100000, 1 << 22, INT64_MAX / 2};
    const char *const presets[] = {"tiny", "llama-tiny"};
    (void)state;
    for (int k = 0; k < 24; k++) {
        weft_model_t *model = make_model(presets[k % 2]);
        weft_layout_rules_t rules = {.bucket_elements = limits[k / 2 % 6],
                                     .align = WEFT_SUMSQ_CHUNK * (int64_t)(1 + 2 * (k / 2 % 2)),
                                     .tensors = k >= 12};
        weft_layout_t layout;
        assert_int_equal(weft__layout_create(model, &rules, &layout), WEFT_OK);
        check_layout(model, &layout, &rules);
        if (rules.tensors) {
            assert_int_equal(layout.bucket_count, model->param_count);
        } else {
            check_units(model, &layout, rules.bucket_elements);
        }
        weft__layout_destroy(&layout);
        weft__model_destroy(model);
    }
}

static void all_but_what_a_fresh_pass_writes_is_made_zero(void **state)
{
    weft_layout_t layout;
    weft_layout_rules_t rules = {.bucket_elements = 100000, .align = WEFT_SUMSQ_CHUNK};
    (void)state;
    weft_model_t *model = make_model("tiny");
    weft_run_t *runs = calloc((size_t)model->param_count + 1, sizeof(*runs));
    assert_int_equal(weft__layout_create(model, &rules, &layout), WEFT_OK);
    char *touched = calloc((size_t)layout.total, 1);
    int count = weft__layout_added(&layout, model, runs);
    assert_true(count > 1 && count <= model->param_count + 1);
    for (int r = 0; r < count; r++) {
        memset(touched + runs[r].first, 1, (size_t)runs[r].count);
    }
    for (int i = 0; i < model->param_count; i++) {
        for (int64_t k = 0; k < model->params[i].count && weft__grad_is_written(model, i); k++) {
            assert_int_equal(touched[layout.offset[i] + k]++, 0);
        }
    }
    for (int64_t k = 0; k < layout.total; k++) {
        assert_int_equal(touched[k], 1);
    }
    free(touched);
    free(runs);
    weft__layout_destroy(&layout);
    weft__model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_parameter_has_a_place_of_its_own),
        cmocka_unit_test(all_but_what_a_fresh_pass_writes_is_made_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
