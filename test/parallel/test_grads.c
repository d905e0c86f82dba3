/* ctest: timeout=120 tsan */
/* The exchange of gradients that the test makes itself: whatever the buckets, the order and the way
 * of sharing, whoever owns a gradient ends with its sum. */
#include <setjmp.h>

#include "comm/harness.h"

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "parallel/agree.h"
#include "parallel/zero.h"

typedef struct plan {
    weft_zero_options_t options;
    int stage;
    bool lean;
    int micros, steps;
    double tolerance; /* relative to the largest magnitude */
    bool overflows;   /* in the first step, of which nothing must be left in the next */
} plan_t;

/* One rank's state of a tiny model. */
typedef struct rig {
    weft_model_t *model;
    weft_plan_t plan;
    weft_meter_t meter;
    weft_ledger_t ledger;
    weft_zero_t zero;
    double *squares;
} rig_t;

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

static void open_rig(rig_t *rig, const team_t *team, const plan_t *plan)
{
    const weft_compute_t *compute;
    weft_zero_options_t options = plan->options;
    *rig = (rig_t){.model = make_model(), .plan = weft__plan_single(1, 8)};
    rig->plan.dp = team->size;
    rig->plan.zero = plan->stage;
    rig->plan.lean = plan->lean;
    rig->plan.micro_batches = plan->micros;
    weft__meter_open(&rig->meter, NULL, NULL);
    options.plan = &rig->plan;
    options.meter = &rig->meter;
    options.dp_index = team->rank;
    options.dp_comm = options.weights_comm = team->comm;
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft__zero_open(&rig->zero, rig->model, compute, &options, &rig->ledger));
    rig->squares = calloc((size_t)rig->zero.pieces.squares, sizeof(double));
    rig->zero.squares = rig->squares;
    CHECK(rig->squares != NULL);
}

static void close_rig(rig_t *rig)
{
    weft__zero_close(&rig->zero);
    weft__meter_close(&rig->meter);
    weft__model_destroy(rig->model);
    free(rig->squares);
}

/* What micro-batch `micro` of a rank adds to element `i` of a parameter in a step: whole numbers,
 * so that sums are exact, unless they are compressed. */
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

static void add_param(const team_t *team, rig_t *rig, int p, int step, int micro)
{
    weft_zero_t *zero = &rig->zero;
    float *grad = zero->grad_views[p];
    bool backward = rig->model->params[p].key.layer >= 0; /* the head's have theirs from forward */
    bool written = weft__grads_fresh(zero, backward, micro == 0) &&
                   weft__grad_is_written(rig->model, p);
    for (int64_t i = 0; i < rig->model->params[p].count; i++) {
        float part = part_of(team->rank, step, micro, p, i);
        grad[i] = written ? part : grad[i] + part;
    }
}

/* As backward does: ranges of parameters from the last to the first. */
static void backward(const team_t *team, rig_t *rig, int step, int micro)
{
    for (int end = rig->model->param_count; end > 0;) {
        int count = 1 + (end * 7 + step) % 4;
        int first = end > count ? end - count : 0;
        for (int p = end - 1; p >= first; p--) {
            CHECK_OK(weft__grads_use(&rig->zero, rig->zero.layout.bucket_of[p]));
            add_param(team, rig, p, step, micro);
        }
        weft__grads_ready(&rig->zero, first, end - first);
        end = first;
    }
}

/* Where this rank looks for the sum of an element of the layout; NULL: another rank does. */
static const float *sum_at(const weft_zero_t *zero, int bucket, int64_t at)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    int64_t size = b->count / zero->shards, shard = (at - b->first) / size;
    const float *all = (const float *)(const void *)zero->all_grads;
    const float *shards = (const float *)(const void *)zero->grad_shards;
    if (zero->own == WEFT_OWN_NONE || (zero->own == WEFT_OWN_SHARDS && shard != zero->rank)) {
        return NULL;
    }
    return zero->lean ? shards + b->first / zero->shards + (at - b->first) % size : all + at;
}

static void check_sums(const team_t *team, const plan_t *plan, const rig_t *rig, int step)
{
    const weft_zero_t *zero = &rig->zero;
    double squares = 0.0, expected_squares = 0.0, most = 1000.0 * team->size * plan->micros;
    for (int p = 0; p < rig->model->param_count; p++) {
        for (int64_t i = 0; i < rig->model->params[p].count; i++) {
            const float *sum = sum_at(zero, zero->layout.bucket_of[p], zero->layout.offset[p] + i);
            float expected = sum_of(team->size, step, plan->micros, p, i);
            if (sum != NULL && !(fabs((double)*sum - (double)expected) <= plan->tolerance * most)) {
                FAIL("step %d, %s[%lld] is %g, not %g", step, rig->model->params[p].name,
                     (long long)i, (double)*sum, (double)expected);
            }
            expected_squares += sum != NULL ? (double)*sum * (double)*sum : 0.0;
        }
    }
    for (int64_t i = 0; i < zero->pieces.squares; i++) {
        squares += rig->squares[i];
    }
    CHECK(fabs(squares - expected_squares) <= 1e-9 * expected_squares);
}

static void one_step(const team_t *team, const plan_t *plan, rig_t *rig, int step)
{
    bool overflows = plan->overflows && step == 0;
    weft__meter_step(&rig->meter, step % 2);
    CHECK_OK(weft__grads_begin(&rig->zero));
    for (int micro = 0; micro < plan->micros; micro++) {
        weft__grads_micro(&rig->zero, micro + 1 == plan->micros);
        for (int p = 0; p < rig->model->param_count && overflows; p++) {
            *(float *)rig->zero.grad_views[p] = INFINITY; /* in all buckets */
        }
        backward(team, rig, step, micro);
    }
    CHECK_OK(weft__grads_finish(&rig->zero));
    if (!overflows) {
        check_sums(team, plan, rig, step);
    }
    double seconds[WEFT_STRETCHES];
    weft__meter_take(&rig->meter, step % 2, seconds);
    CHECK(seconds[WEFT_STRETCH_EXCHANGE] >= 0.0);
}

static void run_plan(team_t *team)
{
    const plan_t *plan = team->arg;
    rig_t rig;
    open_rig(&rig, team, plan);
    for (int step = 0; step < plan->steps; step++) {
        team_note("step %d", step);
        one_step(team, plan, &rig, step);
    }
    close_rig(&rig);
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
    const plan_t plan = {.options = {.bucket_bytes = 10000, .overlap = true}, .micros = 1};
    rig_t rig;
    open_rig(&rig, team, &plan);
    one_step(team, &plan, &rig, 0);
    team_meet(team); /* or one that is ahead breaks it for those who are still there */
    float *memory = (float *)(void *)rig.zero.all_grads;
    weft_status_t status = team->rank == 0 ? weft_barrier(team->comm, NULL)
                                           : weft_allreduce(memory, memory, 1, WEFT_F32, WEFT_SUM,
                                                            team->comm, NULL);
    CHECK_EQ(status, WEFT_ERR_MISMATCH);
    CHECK_STATUS(weft__grads_finish(&rig.zero), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "different calls");
    close_rig(&rig);
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
    run_teams((plan_t){.options = {.bucket_bytes = 0}, .micros = 2});
}

static void every_way_of_sharing_gives_the_sum(void **state)
{
    (void)state;
    for (int stage = 1; stage <= 3; stage++) {
        run_teams((plan_t){.options = {.bucket_bytes = 10000, .overlap = stage != 2},
                           .stage = stage,
                           .micros = 2});
        run_teams((plan_t){.options = {.bucket_bytes = 1, .overlap = stage != 2},
                           .stage = stage,
                           .lean = stage > 1,
                           .micros = stage});
    }
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
        run_teams((plan_t){.options = {.bucket_bytes = 1 << 20, .compress = (weft_compress_t)kind},
                           .steps = 2,
                           .tolerance = near[kind],
                           .overflows = true});
    }
}

/* ---- the baseline ---------------------------------------------------------------------------- */

static void run_naive(team_t *team)
{
    const plan_t plan = {.options = {.bucket_bytes = 10000, .naive = true}, .micros = 2};
    rig_t rig;
    float norm[2] = {(float)team->rank, (float)team->rank};
    open_rig(&rig, team, &plan);
    CHECK((rig.zero.m != NULL) == (team->rank == 0)); /* only rank 0 has optimizer state */
    for (int step = 0; step < 2; step++) {
        one_step(team, &plan, &rig, step);
        size_t bytes = (size_t)rig.zero.layout.total * sizeof(float);
        memset(rig.zero.weights, team->rank, bytes);
        CHECK_OK(rig.zero.exchange->updated(&rig.zero, norm));
        CHECK_OK(weft__agree_check(rig.zero.weights, bytes, "the weights", team->comm));
        CHECK(norm[0] == 0.0f && norm[1] == 0.0f);
    }
    close_rig(&rig);
}

static void naive_gives_the_sum_to_rank_0_and_hands_out(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, run_naive));
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 3}, run_naive));
    }
}

/* ---- error feedback -------------------------------------------------------------------------- */

/* What all ranks keep back, of what they sent and of their parts of each bucket's sum. */
static void add_residuals(const team_t *team, const weft_zero_t *zero, double *delivered)
{
    const weft_layout_t *layout = &zero->layout;
    int64_t count;
    const float *residuals = weft__grads_residuals(zero, &count);
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

/* The most by which what was delivered in `steps` steps is off. */
static double worst_of(const team_t *team, const rig_t *rig, const double *delivered, int steps)
{
    double worst = 0.0;
    for (int p = 0; p < rig->model->param_count; p++) {
        int64_t at = rig->zero.layout.offset[p];
        for (int64_t i = 0; i < rig->model->params[p].count; i++) {
            double meant = steps * (double)sum_of(team->size, 0, 1, p, i);
            worst = fmax(worst, fabs(delivered[at + i] - meant));
        }
    }
    return worst;
}

/* The same gradients in every step: what was delivered in all of them together must not drift from
 * what was meant, and what is missing must be in the residuals. */
static void run_feedback(team_t *team)
{
    enum { STEPS = 40 };
    const plan_t plan = {.options = {.bucket_bytes = 20000, .compress = WEFT_COMPRESS_INT8},
                         .micros = 1};
    rig_t rig;
    open_rig(&rig, team, &plan);
    int64_t total = rig.zero.layout.total;
    const float *sums = (const float *)(const void *)rig.zero.all_grads;
    double *delivered = calloc((size_t)total, sizeof(double)), worst = 0.0, first = 0.0;
    double rounding = 1e-5 * STEPS * 1000.0 * team->size; /* of f32 */
    CHECK(delivered != NULL);
    for (int step = 0; step < STEPS; step++) {
        weft__meter_step(&rig.meter, 0);
        CHECK_OK(weft__grads_begin(&rig.zero));
        weft__grads_micro(&rig.zero, true);
        backward(team, &rig, 0, 0); /* of step 0, always */
        CHECK_OK(weft__grads_finish(&rig.zero));
        for (int64_t i = 0; i < total; i++) {
            delivered[i] += (double)sums[i];
        }
        worst = worst_of(team, &rig, delivered, step + 1);
        first = step == 0 ? worst : first;
        /* Without feedback the error of the first step would come again in every step. */
        CHECK(worst <= 3.0 * first);
    }
    CHECK(first > 0.0);
    CHECK(worst > rounding);
    add_residuals(team, &rig.zero, delivered);
    CHECK(worst_of(team, &rig, delivered, STEPS) <= rounding);
    free(delivered);
    close_rig(&rig);
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
    memset(memory, 0, bytes);
    CHECK_OK(weft__agree_check(memory, bytes, "the weights", team->comm));
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
        cmocka_unit_test(every_way_of_sharing_gives_the_sum),
        cmocka_unit_test(naive_gives_the_sum_to_rank_0_and_hands_out),
        cmocka_unit_test(compressed_sums_are_near),
        cmocka_unit_test(a_broken_step_is_told),
        cmocka_unit_test(an_overflow_is_over_in_the_next_step),
        cmocka_unit_test(int8_loses_nothing_over_many_steps),
        cmocka_unit_test(a_rank_that_differs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
