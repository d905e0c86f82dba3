/* ctest: timeout=120 tsan */
/* Data parallelism with gradients that the test makes itself: whatever the buckets and the order,
 * all ranks end with the sum. */
#include <setjmp.h>

#include "comm/harness.h"

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "parallel/agree.h"
#include "parallel/dp.h"

typedef struct plan {
    weft_dp_options_t options;
    int micros, steps;
    double tolerance; /* relative to the largest magnitude */
    bool overflows;   /* in the first step, of which nothing must be left in the next */
} plan_t;

static weft_model_t *make_model(void)
{
    weft_model_config_t config;
    weft_model_t *model;
    CHECK_OK(weft__config_preset("tiny", &config));
    config.layers = 2;
    config.width = 32;
    config.heads = config.kv_heads = 2;
    config.head_dim = 16;
    config.ffn = 96;
    config.vocab = 100;
    config.context = 16;
    weft_slice_t slice = WEFT_SLICE_WHOLE(&config);
    CHECK_OK(weft__model_create(&config, &slice, WEFT_F32, WEFT_F32, &model));
    return model;
}

/* What micro-batch `micro` of a rank adds to element `i` of a parameter in a step: whole numbers, so
 * that sums are exact, unless they are compressed. */
static float part_of(int rank, int step, int micro, int param, int64_t i)
{
    uint64_t bits = weft__rng_at((uint64_t)(rank * 1000 + step * 100 + micro),
                                 (uint64_t)param << 32 | (uint64_t)i);
    return (float)((int)(bits % 2001) - 1000);
}

static float sum_of(int ranks, int step, int micros, int param, int64_t i)
{
    float sum = 0.0f;
    for (int r = 0; r < ranks; r++) {
        for (int m = 0; m < micros; m++) {
            sum += part_of(r, step, m, param, i);
        }
    }
    return sum;
}

/* As backward does: ranges of parameters from the last to the first. */
static void backward(const team_t *team, const weft_model_t *model, weft_dp_t *dp, int step,
                     int micro, bool fresh)
{
    int end = model->param_count;
    while (end > 0) {
        int count = 1 + (end * 7 + step) % 4;
        int first = end > count ? end - count : 0;
        for (int p = first; p < end; p++) {
            float *grad = weft__dp_grads(dp)[p];
            bool written = fresh && weft__grad_is_written(model, p);
            for (int64_t i = 0; i < model->params[p].count; i++) {
                float part = part_of(team->rank, step, micro, p, i);
                grad[i] = written ? part : grad[i] + part;
            }
        }
        weft__dp_ready(dp, first, end - first);
        end = first;
    }
}

static void check_sums(const team_t *team, const plan_t *plan, const weft_model_t *model,
                       weft_dp_t *dp, int step)
{
    double squares = 0.0, expected_squares = 0.0, most = 1000.0 * team->size * plan->micros;
    for (int p = 0; p < model->param_count; p++) {
        const float *grad = weft__dp_grads(dp)[p];
        for (int64_t i = 0; i < model->params[p].count; i++) {
            float expected = sum_of(team->size, step, plan->micros, p, i);
            if (!(fabs((double)grad[i] - (double)expected) <= plan->tolerance * most)) {
                FAIL("step %d, %s[%lld] is %g, not %g", step, model->params[p].name, (long long)i,
                     (double)grad[i], (double)expected);
            }
            expected_squares += (double)grad[i] * (double)grad[i];
        }
    }
    const weft_layout_t *layout = weft__dp_layout(dp);
    for (int64_t i = 0; i < layout->total / WEFT_SUMSQ_CHUNK; i++) {
        squares += weft__dp_squares(dp)[i];
    }
    CHECK(fabs(squares - expected_squares) <= 1e-9 * expected_squares);
}

static void run_plan(team_t *team)
{
    const plan_t *plan = team->arg;
    const weft_compute_t *compute;
    weft_dp_t *dp;
    weft_model_t *model = make_model();
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft__dp_create(model, compute, team->comm, &plan->options, NULL, NULL, &dp));
    for (int step = 0; step < plan->steps; step++) {
        team_note("step %d", step);
        CHECK_OK(weft__dp_begin(dp, step));
        for (int micro = 0; micro < plan->micros; micro++) {
            weft__dp_micro(dp, micro + 1 == plan->micros);
            for (int p = 0; p < model->param_count && plan->overflows && step == 0; p++) {
                *(float *)weft__dp_grads(dp)[p] = INFINITY; /* in all buckets */
            }
            backward(team, model, dp, step, micro, plan->options.fresh && micro == 0);
        }
        CHECK_OK(weft__dp_finish(dp));
        if (weft__dp_updates(dp) && !(plan->overflows && step == 0)) {
            check_sums(team, plan, model, dp, step);
        }
        CHECK(weft__dp_exposed(dp, step) >= 0.0);
        size_t bytes = (size_t)weft__dp_layout(dp)->total * sizeof(float);
        CHECK_OK(weft__dp_hand_out(dp, weft__dp_memory(dp), WEFT_F32));
        CHECK_OK(weft__agree_check(weft__dp_memory(dp), bytes, "gradients", team->comm));
    }
    weft__dp_destroy(dp);
    weft__model_destroy(model);
}

static void run_teams(plan_t plan)
{
    plan.steps = plan.steps > 0 ? plan.steps : 3;
    plan.micros = plan.micros > 0 ? plan.micros : 1;
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1, .arg = &plan}, run_plan));
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 3, .arg = &plan}, run_plan));
        assert_true(team_run(&(team_plan_t){.ranks = 1, .arg = &plan}, run_plan));
    }
}

/* A communicator that breaks is told at the end of a step, also where all sums of it are there. */
static void run_broken(team_t *team)
{
    const weft_dp_options_t options = {.bucket_bytes = 10000, .overlap = true};
    const weft_compute_t *compute;
    weft_dp_t *dp;
    weft_model_t *model = make_model();
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft__dp_create(model, compute, team->comm, &options, NULL, NULL, &dp));
    CHECK_OK(weft__dp_begin(dp, 0));
    weft__dp_micro(dp, true);
    backward(team, model, dp, 0, 0, false);
    CHECK_OK(weft__dp_finish(dp));
    team_meet(team); /* or one that is ahead breaks it for those who are still there */
    float *memory = weft__dp_memory(dp);
    weft_status_t status = team->rank == 0 ? weft_barrier(team->comm, NULL)
                                           : weft_allreduce(memory, memory, 1, WEFT_F32, WEFT_SUM,
                                                            team->comm, NULL);
    CHECK_EQ(status, WEFT_ERR_MISMATCH);
    CHECK_STATUS(weft__dp_finish(dp), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "different calls");
    weft__dp_destroy(dp);
    weft__model_destroy(model);
    weft_comm_destroy(team->comm);
    team->comm = NULL;
}

static void a_broken_step_is_told(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, run_broken));
}

static void buckets_of_any_size_give_the_sum(void **state)
{
    const size_t sizes[] = {0, 10000, 25 << 20};
    (void)state;
    for (int i = 0; i < 6; i++) {
        run_teams((plan_t){.options = {.bucket_bytes = sizes[i % 3], .overlap = i < 3}});
    }
}

static void only_the_last_micro_batch_exchanges(void **state)
{
    (void)state;
    run_teams((plan_t){.options = {.bucket_bytes = 10000, .overlap = true}, .micros = 3});
    run_teams((plan_t){.options = {.bucket_bytes = 10000}, .micros = 2});
}

static void fresh_passes_start_without_zeros(void **state)
{
    (void)state;
    run_teams((plan_t){.options = {.bucket_bytes = 10000, .overlap = true, .fresh = true}});
    run_teams((plan_t){.options = {.bucket_bytes = 0, .fresh = true}, .micros = 2});
}

static void naive_gives_the_sum_to_rank_0_and_hands_out(void **state)
{
    (void)state;
    run_teams((plan_t){.options = {.bucket_bytes = 10000, .naive = true}});
}

static void compressed_sums_are_near(void **state)
{
    const double near[] = {0.0, 1.0 / 128, 1.0 / 1024, 1.0 / 60};
    (void)state;
    for (int kind = WEFT_COMPRESS_BF16; kind <= WEFT_COMPRESS_INT8; kind++) {
        run_teams((plan_t){.options = {.bucket_bytes = 10000,
                                       .overlap = kind % 2 == 0,
                                       .compress = (weft_compress_t)kind},
                           .tolerance = near[kind]});
    }
}

static void an_overflow_is_over_in_the_next_step(void **state)
{
    const double near[] = {0.0, 1.0 / 128, 1.0 / 1024, 1.0 / 60};
    (void)state;
    if (UNDER_TSAN) {
        print_message("numbers only: not under the thread sanitizer\n");
        return;
    }
    for (int kind = WEFT_COMPRESS_NONE; kind <= WEFT_COMPRESS_INT8; kind++) {
        run_teams((plan_t){
            .options = {.bucket_bytes = 1 << 20, .fresh = true, .compress = (weft_compress_t)kind},
            .steps = 2,
            .tolerance = near[kind],
            .overflows = true});
    }
}

/* ---- error feedback -------------------------------------------------------------------------- */

/* What all ranks keep back, of what they sent and of their parts of each bucket's sum. */
static void add_residuals(const team_t *team, const weft_dp_t *dp, double *delivered)
{
    const weft_layout_t *layout = weft__dp_layout(dp);
    int64_t count;
    const float *residuals = weft__dp_residuals(dp, &count);
    float *all = calloc((size_t)layout->total, sizeof(float));
    CHECK(all != NULL && count == layout->total + layout->total / team->size);
    for (int64_t i = 0; i < layout->total; i++) {
        all[i] = residuals[i];
    }
    for (int b = 0; b < layout->bucket_count; b++) {
        int64_t first = layout->buckets[b].first, part = layout->buckets[b].count / team->size;
        for (int64_t i = 0; i < part; i++) {
            all[first + team->rank * part + i] += residuals[layout->total + first / team->size + i];
        }
    }
    CHECK_OK(weft_allreduce(all, all, (size_t)layout->total, WEFT_F32, WEFT_SUM, team->comm, NULL));
    for (int64_t i = 0; i < layout->total; i++) {
        delivered[i] += (double)all[i];
    }
    free(all);
}

/* The same gradients in every step: what was delivered in all of them together must not drift from
 * what was meant, and what is missing must be in the residuals. */
static void run_feedback(team_t *team)
{
    enum { STEPS = 40 };
    const weft_compute_t *compute;
    weft_dp_t *dp;
    weft_model_t *model = make_model();
    weft_dp_options_t options = {.bucket_bytes = 20000, .compress = WEFT_COMPRESS_INT8};
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft__dp_create(model, compute, team->comm, &options, NULL, NULL, &dp));
    int64_t total = weft__dp_layout(dp)->total;
    double *delivered = calloc((size_t)total, sizeof(double)), worst = 0.0, first = 0.0;
    CHECK(delivered != NULL);
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(weft__dp_begin(dp, step));
        weft__dp_micro(dp, true);
        backward(team, model, dp, 0, 0, false); /* of step 0, always */
        CHECK_OK(weft__dp_finish(dp));
        worst = 0.0;
        for (int p = 0; p < model->param_count; p++) {
            int64_t at = weft__dp_layout(dp)->offset[p];
            for (int64_t i = 0; i < model->params[p].count; i++) {
                delivered[at + i] += (double)weft__dp_memory(dp)[at + i];
                double meant = (step + 1) * (double)sum_of(team->size, 0, 1, p, i);
                worst = fmax(worst, fabs(delivered[at + i] - meant));
            }
        }
        first = step == 0 ? worst : first;
        /* Without feedback the error of the first step would come again in every step. */
        CHECK(worst <= 3.0 * first);
    }
    CHECK(first > 0.0);
    CHECK(worst > 1e-5 * STEPS * 1000.0 * team->size);
    add_residuals(team, dp, delivered);
    worst = 0.0;
    for (int p = 0; p < model->param_count; p++) {
        int64_t at = weft__dp_layout(dp)->offset[p];
        for (int64_t i = 0; i < model->params[p].count; i++) {
            double meant = STEPS * (double)sum_of(team->size, 0, 1, p, i);
            worst = fmax(worst, fabs(delivered[at + i] - meant));
        }
    }
    CHECK(worst <= 1e-5 * STEPS * 1000.0 * team->size); /* rounding of f32 only */
    free(delivered);
    weft__dp_destroy(dp);
    weft__model_destroy(model);
}

static void int8_loses_nothing_over_many_steps(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, run_feedback));
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 3}, run_feedback));
    }
}

/* ---- agreement ------------------------------------------------------------------------------- */

static void run_agree(team_t *team)
{
    char *memory;
    size_t bytes = 5 << 20;
    CHECK_OK(weft_malloc((void **)&memory, bytes));
    memset(memory, team->rank, bytes);
    CHECK_STATUS(weft__agree_check(memory, bytes, "the weights", team->comm), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "ranks 1 2 3");
    CHECK_OK(weft__agree_spread(memory, bytes, team->comm));
    CHECK_OK(weft__agree_check(memory, bytes, "the weights", team->comm));
    CHECK_EQ(memory[bytes - 1], 0);
    memory[bytes - 1] = team->rank == 2;
    CHECK_STATUS(weft__agree_check(memory, bytes, "the weights", team->comm), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "the weights: rank 2 has");
    CHECK_OK(weft_free(memory));
}

static void a_rank_that_differs_is_named(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = UNDER_TSAN}, run_agree));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_of_any_size_give_the_sum),
        cmocka_unit_test(only_the_last_micro_batch_exchanges),
        cmocka_unit_test(fresh_passes_start_without_zeros),
        cmocka_unit_test(naive_gives_the_sum_to_rank_0_and_hands_out),
        cmocka_unit_test(compressed_sums_are_near),
        cmocka_unit_test(a_broken_step_is_told),
        cmocka_unit_test(an_overflow_is_over_in_the_next_step),
        cmocka_unit_test(int8_loses_nothing_over_many_steps),
        cmocka_unit_test(a_rank_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
