/* Plans that are not possible are refused with the reason and the nearest that is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/mesh.h"
#include "parallel/plan.h"

static weft_model_config_t config(void)
{
    weft_model_config_t model;
    assert_int_equal(weft__config_preset("tiny", &model), WEFT_OK);
    model.layers = 4;
    model.heads = 12;
    model.kv_heads = 12;
    model.width = 96;
    model.head_dim = 8;
    model.ffn = 384;
    return model;
}

static weft_plan_t plan(int dp, int pp, int tp)
{
    weft_plan_t made = weft__plan_single(1, 16);
    made.dp = dp;
    made.pp = pp;
    made.tp = tp;
    made.micro_batches = 8 / dp;
    return made;
}

static void refused(const weft_plan_t *made, int ranks, int64_t batch, const char *why,
                    const char *nearest)
{
    weft_model_config_t model = config();
    assert_int_equal(weft__plan_check(made, &model, ranks, batch), WEFT_ERR_INVALID);
    if (strstr(weft_last_error(), why) == NULL || strstr(weft_last_error(), nearest) == NULL) {
        fail_msg("\"%s\" has no \"%s\" or no \"%s\"", weft_last_error(), why, nearest);
    }
}

static void a_possible_plan_is_accepted(void **state)
{
    weft_model_config_t model = config();
    weft_plan_t made = plan(2, 2, 2);
    (void)state;
    assert_int_equal(weft__plan_check(&made, &model, 8, 8), WEFT_OK);
}

static void heads_that_do_not_divide_are_refused(void **state)
{
    weft_plan_t made = plan(1, 1, 8);
    (void)state;
    refused(&made, 8, 8, "12 heads cannot be split evenly among 8 tensor-parallel ranks",
            "--dp 2 --pp 1 --tp 4");
}

static void too_few_layers_are_refused(void **state)
{
    weft_plan_t made = plan(1, 8, 1);
    (void)state;
    refused(&made, 8, 8, "4 layers are too few for 8 pipeline stages", "--dp 2 --pp 4 --tp 1");
}

static void a_batch_that_does_not_divide_is_refused(void **state)
{
    weft_plan_t made = plan(4, 1, 1);
    (void)state;
    refused(&made, 4, 6, "a batch of 6 sequences", "--dp 2 --pp");
}

static void a_grid_of_another_size_is_refused(void **state)
{
    weft_plan_t made = plan(2, 2, 1);
    (void)state;
    refused(&made, 8, 8, "dp 2 x pp 2 x tp 1 does not make 8 ranks", "the nearest plan that works");
}

static void interleaving_wants_a_multiple_of_micro_batches(void **state)
{
    weft_plan_t made = plan(1, 2, 1);
    (void)state;
    made.schedule = WEFT_INTERLEAVED;
    made.virtual_stages = 2;
    made.micro_batches = 3;
    made.micro_batch = 2;
    refused(&made, 2, 6, "needs a multiple of 2 micro-batches, not 3",
            "interleaved --virtual-stages 2 --micro-batch 3 --micro-batches 2");
    made.pp = 1;
    refused(&made, 1, 6, "an interleaved pipeline needs 2 ranks", "--dp 1 --pp 1 --tp 1");
}

static void nothing_possible_is_said(void **state)
{
    weft_plan_t made = plan(1, 1, 7);
    (void)state;
    refused(&made, 7, 5, "12 heads cannot be split", "no other plan for 7 ranks");
}

static void stages_share_layers_evenly(void **state)
{
    int first, count, sum = 0;
    (void)state;
    for (int stage = 0; stage < 3; stage++) {
        weft__plan_layers(8, 3, stage, &first, &count);
        assert_int_equal(first, sum);
        assert_true(count == 2 || count == 3);
        sum += count;
    }
    assert_int_equal(sum, 8);
}

static void a_mesh_keeps_tp_together(void **state)
{
    weft_mesh_t mesh;
    weft_plan_t made = plan(2, 2, 2);
    char text[512];
    (void)state;
    assert_int_equal(weft__mesh_arrange(&made, 5, 8, NULL, &mesh), WEFT_OK);
    assert_int_equal(mesh.index[WEFT_AXIS_TENSOR], 1);
    assert_int_equal(mesh.index[WEFT_AXIS_DATA], 0);
    assert_int_equal(mesh.index[WEFT_AXIS_PIPELINE], 1);
    assert_string_equal(weft__mesh_picture(&mesh, text, sizeof(text)),
                        "8 ranks: dp 2 x pp 2 x tp 2\n"
                        "  stage 0  [0 1] [2 3]\n"
                        "  stage 1  [4 5] [6 7]\n");
    weft__mesh_destroy(&mesh, false);
}

/* Every place has indices of its own, the innermost axis counting fastest, and they lead back to
 * it. */
static void places_are_counted_from_the_innermost_axis(void **state)
{
    weft_mesh_t mesh;
    weft_plan_t made = plan(3, 2, 4);
    (void)state;
    assert_int_equal(weft__axes_ranks(made.size), 24);
    assert_int_equal(weft__mesh_arrange(&made, 0, 24, NULL, &mesh), WEFT_OK);
    for (int place = 0, step = 1; place < 24; place++, step = 1) {
        int index[WEFT_AXES], sum = 0;
        weft__mesh_index(&mesh, place, index);
        for (int i = 0; i < WEFT_AXES; i++) {
            weft_axis_t axis = weft__axis_order[i];
            assert_in_range(index[axis], 0, made.size[axis] - 1);
            sum += index[axis] * step;
            step *= made.size[axis];
        }
        assert_int_equal(sum, place);
        assert_int_equal(weft__mesh_rank(&mesh, index), place);
    }
    weft__mesh_destroy(&mesh, false);
    made.tp = 0;
    assert_int_equal(weft__axes_ranks(made.size), 0);
    made.tp = made.dp = made.pp = 1 << 30;
    assert_int_equal(weft__axes_ranks(made.size), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_possible_plan_is_accepted),
        cmocka_unit_test(heads_that_do_not_divide_are_refused),
        cmocka_unit_test(too_few_layers_are_refused),
        cmocka_unit_test(a_batch_that_does_not_divide_is_refused),
        cmocka_unit_test(a_grid_of_another_size_is_refused),
        cmocka_unit_test(interleaving_wants_a_multiple_of_micro_batches),
        cmocka_unit_test(nothing_possible_is_said),
        cmocka_unit_test(stages_share_layers_evenly),
        cmocka_unit_test(a_mesh_keeps_tp_together),
        cmocka_unit_test(places_are_counted_from_the_innermost_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
