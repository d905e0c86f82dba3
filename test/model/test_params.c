/* Parameters by key: those of experts stand beside the others in one table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "model/parts.h"
#include "parallel/layout.h"

enum { WIDTH = 16, FFN = 24, FIRST = 1, LAYERS = 2, PARTS = 2 };

static const weft_role_t expert_roles[] = {WEFT_GATE_WEIGHT, WEFT_UP_WEIGHT, WEFT_DOWN_WEIGHT};

/* Blocks 1 and 2 of 4, with or without the ends, as part 1 of 2. */
static weft_model_t *make_model(bool ends)
{
    weft_model_config_t config = {.family = WEFT_LLAMA,
                                  .layers = 4,
                                  .width = WIDTH,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 4,
                                  .ffn = FFN,
                                  .vocab = 50,
                                  .context = 8,
                                  .norm_eps = 1e-5f,
                                  .rope_theta = 1e4f,
                                  .init_std = 0.02f};
    weft_slice_t slice = {FIRST, LAYERS, ends, ends, 1, PARTS, 1};
    weft_model_t *model;
    assert_int_equal(weft__model_create(&config, &slice, WEFT_F32, WEFT_F32, &model), WEFT_OK);
    return model;
}

static weft_status_t add_expert(weft_model_t *model, int layer, int expert, weft_role_t role)
{
    bool down = role == WEFT_DOWN_WEIGHT;
    weft_param_form_t form = {.dims = 2,
                              .shape = {down ? WIDTH : FFN, down ? FFN : WIDTH},
                              .split = down ? WEFT_SPLIT_COLUMNS : WEFT_SPLIT_ROWS,
                              .sections = 1,
                              .std = 0.02f};
    char name[WEFT_PARAM_NAME];
    snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.%d.weight", layer, expert,
             (int)role);
    return weft__model_add(model, (weft_param_key_t){layer, role, expert}, &form, name);
}

/* Some experts of both blocks, as a rank of several has them, in an order that is not theirs. */
static void add_experts(weft_model_t *model)
{
    static const int experts[] = {7, 4, 63, 5};
    for (int i = 0; i < 4; i++) {
        for (int r = 2; r >= 0; r--) {
            for (int layer = FIRST + LAYERS - 1; layer >= FIRST; layer--) {
                assert_int_equal(add_expert(model, layer, experts[i], expert_roles[r]), WEFT_OK);
            }
        }
    }
}

/* ---- order and lookup --------------------------------------------------------------------- */

/* Blocks in the order of the model; in a block experts after what is of none, and roles as in
 * forward. */
static bool is_before(const weft_param_key_t *a, const weft_param_key_t *b)
{
    int block_a = a->layer >= 0 ? a->layer : a->role < WEFT_NORM1_WEIGHT ? -1 : 1000;
    int block_b = b->layer >= 0 ? b->layer : b->role < WEFT_NORM1_WEIGHT ? -1 : 1000;
    if (block_a != block_b || a->expert != b->expert) {
        return block_a != block_b ? block_a < block_b : a->expert < b->expert;
    }
    return a->role < b->role;
}

static void check_keys(const weft_model_t *model)
{
    int found = 0;
    for (int i = 0; i + 1 < model->param_count; i++) {
        assert_true(is_before(&model->params[i].key, &model->params[i + 1].key));
    }
    for (int layer = -1; layer <= 4; layer++) {
        for (int role = 0; role < WEFT_ROLE_COUNT; role++) {
            for (int expert = -1; expert < 70; expert++) {
                weft_param_key_t key = {layer, (weft_role_t)role, expert};
                int index = weft__model_param(model, key);
                if (index >= 0) {
                    assert_memory_equal(&model->params[index].key, &key, sizeof(key));
                    found++;
                }
            }
        }
    }
    assert_int_equal(found, model->param_count);
}

static void every_key_finds_its_parameter_and_no_other(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        weft_model_t *model = make_model(ends);
        int dense = model->param_count;
        int64_t elements = model->element_count;
        check_keys(model);
        assert_int_equal(weft__model_param(model, (weft_param_key_t){1, WEFT_UP_WEIGHT, 4}), -1);
        add_experts(model);
        check_keys(model);
        assert_int_equal(model->param_count, dense + LAYERS * 4 * 3);
        assert_int_equal(model->element_count,
                         elements + (int64_t)LAYERS * 4 * 3 * WIDTH * FFN / PARTS);
        weft__model_destroy(model);
    }
}

static void what_has_no_place_is_refused(void **state)
{
    (void)state;
    weft_model_t *model = make_model(true);
    int count = model->param_count;
    add_experts(model);
    assert_int_equal(add_expert(model, 2, 63, WEFT_UP_WEIGHT), WEFT_ERR_INVALID); /* it is there */
    assert_int_equal(add_expert(model, 0, 1, WEFT_UP_WEIGHT), WEFT_ERR_INVALID);  /* no block */
    assert_int_equal(add_expert(model, 3, 1, WEFT_UP_WEIGHT), WEFT_ERR_INVALID);
    assert_int_equal(add_expert(model, -1, 1, WEFT_UP_WEIGHT), WEFT_ERR_INVALID); /* no end's */
    assert_int_equal(add_expert(model, 1, 1, WEFT_HEAD_WEIGHT), WEFT_ERR_INVALID);
    assert_int_equal(model->param_count, count + LAYERS * 4 * 3);
    weft__model_destroy(model);
}

/* ---- what goes by them -------------------------------------------------------------------- */

/* Names are in checkpoints and decide initial values: each expert has its own. */
static void experts_have_names_and_values_of_their_own(void **state)
{
    (void)state;
    weft_model_t *model = make_model(false);
    float a[WIDTH * FFN], b[WIDTH * FFN];
    add_experts(model);
    int first = weft__model_param(model, (weft_param_key_t){2, WEFT_UP_WEIGHT, 5});
    int second = weft__model_param(model, (weft_param_key_t){2, WEFT_UP_WEIGHT, 63});
    assert_string_equal(model->params[first].name, "model.layers.2.mlp.experts.5.14.weight");
    assert_string_equal(model->params[second].name, "model.layers.2.mlp.experts.63.14.weight");
    assert_int_equal(model->params[first].local[0], FFN / PARTS);
    assert_int_equal(weft__param_init(&model->params[first], 1, 3, a), WEFT_OK);
    assert_int_equal(weft__param_init(&model->params[second], 1, 3, b), WEFT_OK);
    assert_memory_not_equal(a, b, (size_t)model->params[first].count * sizeof(float));
    weft__model_destroy(model);
}

typedef struct told {
    int first, count;
} told_t;

static void note(void *arg, int first, int count)
{
    told_t *told = arg;
    *told = (told_t){first, count};
}

/* The MLP's gradients are one range, its experts' too, in one bucket with their block. */
static void experts_are_part_of_their_block(void **state)
{
    (void)state;
    weft_model_t *model = make_model(true);
    weft_layout_t layout;
    weft_layout_rules_t rules = {.bucket_elements = 1, .align = WEFT_SUMSQ_CHUNK};
    told_t told = {0};
    weft_pass_t pass = {.model = model, .grad_ready = note, .grad_ready_arg = &told};
    add_experts(model);
    weft__tell_ready(&pass, 2, WEFT_GATE_WEIGHT, WEFT_DOWN_BIAS);
    assert_int_equal(told.first, weft__model_param(model, WEFT_KEY(2, WEFT_GATE_WEIGHT)));
    assert_int_equal(told.count, 3 + 4 * 3);
    weft__tell_ready(&pass, 2, WEFT_NORM2_WEIGHT, WEFT_NORM2_BIAS);
    assert_int_equal(told.first, weft__model_param(model, WEFT_KEY(2, WEFT_NORM2_WEIGHT)));
    assert_int_equal(told.count, 1);
    assert_int_equal(weft__layout_create(model, &rules, &layout), WEFT_OK);
    for (int i = 0; i < model->param_count; i++) {
        if (model->params[i].key.layer >= 0) {
            assert_int_equal(layout.bucket_of[i],
                             weft__layout_block(&layout, model, model->params[i].key.layer));
        }
    }
    assert_int_not_equal(weft__layout_block(&layout, model, 1),
                         weft__layout_block(&layout, model, 2));
    weft__layout_destroy(&layout);
    weft__model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_finds_its_parameter_and_no_other),
        cmocka_unit_test(what_has_no_place_is_refused),
        cmocka_unit_test(experts_have_names_and_values_of_their_own),
        cmocka_unit_test(experts_are_part_of_their_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
