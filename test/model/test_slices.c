/* Models in slices: two stages of a pipeline, two parts of every matrix with their sums by hand, as
 * parallel/ makes them from ranks; cutting of parameters; memory as docs/memory.md derives it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/numbers.h"
#include "model/rig.h"

enum { B = 2, T = 11, PARTS = 2 };

static weft_model_config_t config_of(weft_family_t family)
{
    weft_model_config_t c = {.family = family,
                             .layers = 3,
                             .width = 24,
                             .heads = 4,
                             .kv_heads = 4,
                             .head_dim = 6,
                             .ffn = 40,
                             .vocab = 51,
                             .context = 16,
                             .tied = true,
                             .norm_eps = 1e-5f,
                             .rope_theta = 10000.0f,
                             .init_std = 0.02f};
    if (family == WEFT_LLAMA) {
        c.kv_heads = 2;
        c.tied = false;
    }
    return c;
}

static const weft_family_t families[] = {WEFT_GPT2, WEFT_LLAMA};

static void open_slice(rig_t *rig, weft_model_config_t config, weft_slice_t slice)
{
    rig_options_t options = {.config = config, .slice = slice, .shape = WEFT_SHAPE(B, T)};
    rig_open(rig, &options);
    rig_init(rig, numbers_seed(), 10.0f);
    rig_tokens(rig, numbers_seed());
}

static double mean_loss(const rig_t *rig)
{
    double sum = 0;
    for (int i = 0; i < B * T; i++) {
        sum += (double)rig->acts.head.losses[i];
    }
    return sum / (B * T);
}

/* ---- pipeline ----------------------------------------------------------------------------- */

static void two_stages_make_the_whole(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        weft_model_config_t config = config_of(families[f]);
        rig_t whole, first, last;
        open_slice(&whole, config, WEFT_SLICE_WHOLE(&config));
        open_slice(&first, config, (weft_slice_t){0, 2, true, false, 0, 1, 1});
        open_slice(&last, config, (weft_slice_t){2, 1, false, true, 0, 1, 1});
        size_t bytes = (size_t)(B * T * config.width) * sizeof(float);
        double loss = rig_run(&whole);
        rig_check(weft__model_forward(&first.pass, &first.acts), "forward");
        memcpy(last.acts.x, first.acts.outs[1], bytes);
        rig_check(weft__model_forward(&last.pass, &last.acts), "forward");
        assert_true(mean_loss(&last) == loss);
        rig_check(weft__model_backward(&last.pass, &last.acts), "backward");
        memcpy(first.pass.scratch.dx, last.pass.scratch.dx, bytes);
        rig_check(weft__model_backward(&first.pass, &first.acts), "backward");
        for (int i = 0; i < whole.model->param_count; i++) {
            const weft_param_t *param = &whole.model->params[i];
            int a = weft__model_param(first.model, param->key);
            int b = weft__model_param(last.model, param->key);
            float *sum = calloc((size_t)param->count, sizeof(*sum));
            assert_true(a >= 0 || b >= 0);
            for (int64_t j = 0; j < param->count; j++) {
                sum[j] = (a >= 0 ? ((float *)first.grads[a])[j] : 0) +
                         (b >= 0 ? ((float *)last.grads[b])[j] : 0); /* both: a tied embedding */
            }
            assert_true(rig_apart(sum, whole.grads[i], param->count) < 1e-6);
            free(sum);
        }
        rig_close(&whole);
        rig_close(&first);
        rig_close(&last);
    }
}

/* ---- tensor parallelism ------------------------------------------------------------------- */

typedef struct team {
    rig_t rigs[PARTS];
} team_t;

/* What an all-reduce would do. */
static void sum_over_parts(float *a, float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        a[i] = b[i] = a[i] + b[i];
    }
}

#define EACH(call)                                                                                 \
    for (int p = 0; p < PARTS; p++) {                                                              \
        rig_t *r = &team->rigs[p];                                                                 \
        rig_check((call), #call);                                                                  \
    }

#define SUM(what, count) sum_over_parts(team->rigs[0].what, team->rigs[1].what, (count))

static void block_forward(team_t *team, int layer)
{
    int64_t count = B * T * team->rigs[0].model->config.width;
    EACH(weft__block_norm1(&r->pass, layer, &r->acts.blocks[layer]))
    EACH(weft__block_attend(&r->pass, layer, &r->acts.blocks[layer], r->pass.scratch.y))
    SUM(pass.scratch.y, count);
    EACH(weft__block_norm2(&r->pass, layer, &r->acts.blocks[layer], r->pass.scratch.y))
    EACH(weft__block_mlp(&r->pass, layer, &r->acts.blocks[layer], r->pass.scratch.y))
    SUM(pass.scratch.y, count);
    EACH(weft__block_join(&r->pass, layer, &r->acts.blocks[layer], r->pass.scratch.y,
                          r->acts.outs[layer]))
}

static void block_backward(team_t *team, int layer)
{
    int64_t count = B * T * team->rigs[0].model->config.width;
    const void *dy[PARTS];
    EACH(weft__branch_gradient(&r->pass, layer, WEFT_BRANCH_MLP, &dy[p]))
    EACH(weft__block_mlp_input(&r->pass, layer, &r->acts.blocks[layer], dy[p]))
    SUM(pass.scratch.dh_all, count);
    EACH(weft__block_mlp_weights(&r->pass, layer, &r->acts.blocks[layer], dy[p]))
    EACH(weft__block_norm2_backward(&r->pass, layer, &r->acts.blocks[layer]))
    EACH(weft__branch_gradient(&r->pass, layer, WEFT_BRANCH_ATTEND, &dy[p]))
    EACH(weft__block_attend_input(&r->pass, layer, &r->acts.blocks[layer], dy[p]))
    SUM(pass.scratch.dh_all, count);
    EACH(weft__block_attend_weights(&r->pass, layer, &r->acts.blocks[layer], dy[p]))
    EACH(weft__block_norm1_backward(&r->pass, layer, &r->acts.blocks[layer]))
}

/* The classifier over a vocabulary in two parts; returns the mean loss. */
static double classify_parts(team_t *team)
{
    float stats[PARTS][B * T * 3], lse[B * T];
    double loss = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int p = 0; p < PARTS; p++) {
            rig_t *r = &team->rigs[p];
            weft_classify_t args = {.type = WEFT_F32,
                                    .rows = B * T,
                                    .vocab = r->model->vocab_count,
                                    .ld = r->model->vocab_rows,
                                    .vocab_first = r->model->vocab_first,
                                    .logits = r->pass.scratch.logits,
                                    .targets = r->acts.targets,
                                    .stats = stats[p],
                                    .lse = lse,
                                    .scale = r->pass.loss_scale};
            rig_check(pass == 0 ? r->compute->classify_stats(&args, NULL)
                                : r->compute->classify_finish(&args, NULL),
                      "classify");
        }
        for (int i = 0; i < B * T && pass == 0; i++) {
            double a = stats[0][3 * i], b = stats[1][3 * i];
            double sum = stats[0][3 * i + 1] * exp(a) + stats[1][3 * i + 1] * exp(b);
            lse[i] = (float)log(sum);
            loss += log(sum) - stats[0][3 * i + 2] - stats[1][3 * i + 2];
        }
    }
    return loss / (B * T);
}

static double run_parts(team_t *team)
{
    int layers = team->rigs[0].model->config.layers;
    int64_t count = B * T * team->rigs[0].model->config.width;
    EACH(weft__embed_forward(&r->pass, r->acts.tokens, r->acts.x))
    SUM(acts.x, count);
    for (int layer = 0; layer < layers; layer++) {
        block_forward(team, layer);
    }
    EACH(weft__head_norm(&r->pass, &r->acts.head))
    EACH(weft__head_logits(&r->pass, &r->acts.head, 0, B * T))
    double loss = classify_parts(team);
    EACH(weft__head_dlogits(&r->pass, &r->acts.head, 0, B * T))
    SUM(acts.head.dh, count);
    EACH(weft__head_backward(&r->pass, &r->acts.head))
    for (int layer = layers - 1; layer >= 0; layer--) {
        block_backward(team, layer);
    }
    EACH(weft__embed_backward(&r->pass, r->acts.tokens))
    return loss;
}

/* Gradients of split parameters are parts of the whole's; those of the others are the whole's. */
static void compare_parts(const team_t *team, const rig_t *whole)
{
    for (int i = 0; i < whole->model->param_count; i++) {
        const weft_param_t *param = &whole->model->params[i];
        float *joined = malloc((size_t)param->count * sizeof(float));
        for (int p = 0; p < PARTS; p++) {
            const rig_t *rig = &team->rigs[p];
            assert_string_equal(rig->model->params[i].name, param->name);
            weft__param_put(&rig->model->params[i], p, sizeof(float), rig->grads[i], joined);
        }
        double apart = rig_apart(joined, whole->grads[i], param->count);
        if (!(apart < 2e-5)) {
            fail_msg("gradient of %s is off by %g in two parts", param->name, apart);
        }
        free(joined);
    }
}

static void two_parts_make_the_whole(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        for (int dropout = 0; dropout < 2; dropout++) {
            weft_model_config_t config = config_of(families[f]);
            rig_t whole;
            team_t team;
            config.attention_dropout = 0.2f * (float)dropout;
            config.residual_dropout = families[f] == WEFT_GPT2 ? 0.1f * (float)dropout : 0;
            open_slice(&whole, config, WEFT_SLICE_WHOLE(&config));
            for (int p = 0; p < PARTS; p++) {
                open_slice(&team.rigs[p], config,
                           (weft_slice_t){0, config.layers, true, true, p, PARTS, 8});
                team.rigs[p].pass.fuse_residual = false;
                team.rigs[p].pass.row_bias = p == 0;
            }
            double loss = rig_run(&whole), parts = run_parts(&team);
            assert_true(fabs(loss - parts) < 1e-5);
            compare_parts(&team, &whole);
            rig_close(&whole);
            for (int p = 0; p < PARTS; p++) {
                rig_close(&team.rigs[p]);
            }
        }
    }
}

/* ---- parameters --------------------------------------------------------------------------- */

static void parts_are_cut_from_the_whole(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        weft_model_config_t config = config_of(families[f]);
        rig_t whole, part;
        open_slice(&whole, config, WEFT_SLICE_WHOLE(&config));
        for (int p = 0; p < PARTS; p++) {
            open_slice(&part, config, (weft_slice_t){0, config.layers, true, true, p, PARTS, 8});
            for (int i = 0; i < whole.model->param_count; i++) {
                const weft_param_t *param = &part.model->params[i];
                float *cut = malloc((size_t)param->count * sizeof(float));
                weft__param_cut(param, p, sizeof(float), whole.params[i], cut);
                assert_memory_equal(cut, part.params[i], (size_t)param->count * sizeof(float));
                free(cut);
            }
            rig_close(&part);
        }
        rig_close(&whole);
    }
}

static void parameters_count_as_the_formula(void **state)
{
    (void)state;
    for (int i = 0; weft__config_preset_name(i) != NULL; i++) {
        weft_model_config_t config;
        weft_model_t *model;
        rig_check(weft__config_preset(weft__config_preset_name(i), &config), "preset");
        weft_slice_t slice = WEFT_SLICE_WHOLE(&config);
        rig_check(weft__model_create(&config, &slice, WEFT_BF16, WEFT_F32, &model), "model");
        assert_int_equal(model->element_count, weft__config_params(&config));
        weft__model_destroy(model);
    }
}

static void known_models_have_known_sizes(void **state)
{
    static const struct {
        const char *name;
        int64_t count;
    } known[] = {{"gpt2-124m", 124439808},   {"gpt2-355m", 354823168}, {"gpt2-774m", 774030080},
                 {"gpt2-1558m", 1557611200}, {"llama-1b", 1100048384}, {"llama-7b", 6738415616},
                 {"llama-8b", 8030261248}};
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        weft_model_config_t config;
        rig_check(weft__config_preset(known[i].name, &config), "preset");
        assert_int_equal(weft__config_params(&config), known[i].count);
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

static size_t up(int64_t bytes)
{
    return (size_t)(bytes + 255) / 256 * 256;
}

/* The tables of docs/memory.md, for bf16 (e = 2) at 124M: what the code counts. */
static void memory_is_what_the_document_says(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        weft_model_config_t c;
        weft_model_t *model;
        const weft_compute_t *compute = numbers_table();
        rig_check(weft__config_preset(f == 0 ? "gpt2-124m" : "llama-1b", &c), "preset");
        weft_slice_t slice = WEFT_SLICE_WHOLE(&c);
        rig_check(weft__model_create(&c, &slice, WEFT_BF16, WEFT_F32, &model), "model");
        weft_shape_t shape = WEFT_SHAPE(4, 1024);
        int64_t e = 2, n = 4096, C = c.width, F = c.ffn, V = c.vocab;
        int64_t A = (int64_t)c.heads * c.head_dim, Q = A + 2 * (int64_t)c.kv_heads * c.head_dim;
        size_t stats = up(4 * n);
        size_t block = 3 * up(e * n * C) + up(e * n * Q) + up(e * n * A) + up(4 * n * c.heads) +
                       (f == 0 ? 2 * up(e * n * F) + 4 * stats
                               : up(e * n * 2 * F) + up(e * n * F) + 2 * stats);
        size_t head = 2 * up(e * n * C) + (f == 0 ? 3 : 2) * stats;
        size_t all = (size_t)c.layers * (block + up(e * n * C)) + up(e * n * C) + 2 * stats + head;
        assert_int_equal(weft__block_acts_bytes(model, &shape), block);
        assert_int_equal(weft__acts_bytes(model, &shape), all);
        int64_t rows = (1 << 21) / V > 256 ? (1 << 21) / V : 256;
        weft_norm_t norm = {.rows = n, .width = C};
        size_t scratch = 2 * up(e * n * C) + up(e * n * Q) + up(e * n * A) +
                         (f == 0 ? up(e * n * F) : up(e * n * 2 * F) + up(e * n * F)) +
                         up(e * rows * V) + up((int64_t)compute->norm_work(&norm));
        assert_int_equal(weft__scratch_bytes(model, compute, &shape), scratch);
        weft__model_destroy(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_stages_make_the_whole),
        cmocka_unit_test(two_parts_make_the_whole),
        cmocka_unit_test(parts_are_cut_from_the_whole),
        cmocka_unit_test(parameters_count_as_the_formula),
        cmocka_unit_test(known_models_have_known_sizes),
        cmocka_unit_test(memory_is_what_the_document_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
