/* Memory: what is predicted is what is allocated and what the device's pool saw; stages of ZeRO
 * take what their formulas say, measured; a model that fits no rank alone trains where a plan
 * spreads it. */
/* ctest: timeout=120 labels=plans */
#include <math.h>
#include <stdlib.h>

#include "parallel/plans.h"

/* A model with many more weights than activations. */
static weft_worker_options_t large(int dp, int pp, int tp, int zero)
{
    plan_run_t run = {.model = PLAN_LLAMA, .bucket_bytes = 1};
    run.plan = weft__plan_single(1, PLAN_LENGTH);
    run.plan.dp = dp;
    run.plan.pp = pp;
    run.plan.tp = tp;
    run.plan.zero = zero;
    weft_worker_options_t options = plan_options(&run);
    options.model.layers = 4;
    options.model.width = 192;
    options.model.head_dim = 12;
    options.model.ffn = 768;
    options.type = WEFT_BF16;
    options.grad_type = WEFT_BF16;
    return options;
}

static void one_step(weft_worker_t *worker, const weft_worker_options_t *options)
{
    int32_t tokens[2][PLAN_BATCH * PLAN_LENGTH];
    weft_worker_result_t result;
    plan_tokens(&options->model, 0, 0, 1, tokens[0], tokens[1]);
    weft_worker_input_t input = {.hyper = plan_hyper(0), .tokens = tokens[0], .targets = tokens[1]};
    CHECK_OK(weft__worker_queue(worker, &input));
    CHECK_OK(weft__worker_settle(worker, &result));
    CHECK(result.finite);
}

/* Bytes of each kind of state in bf16 with an optimizer in f32, of y parameters on n ranks. */
static void formula(int zero, double y, double n, double kinds[WEFT_MEMORY_KINDS])
{
    kinds[WEFT_MEMORY_WEIGHTS] = zero >= 3 ? 2 * y / n : 2 * y;
    kinds[WEFT_MEMORY_GRADIENTS] = zero >= 2 ? 2 * y / n : 2 * y;
    kinds[WEFT_MEMORY_OPTIMIZER] = zero >= 1 ? 12 * y / n : 12 * y;
}

static void check_near(int zero, int ranks, const char *what, double measured, double expected)
{
    if (!(fabs(measured / expected - 1) <= 0.05)) {
        FAIL("ZeRO-%d on %d ranks has %.0f bytes of %s, the formula says %.0f", zero, ranks,
             measured, what, expected);
    }
}

/* By kind, and together: what the pool handed out, less activations and buffers as they were
 * stated. */
static void check_state(int zero, int ranks, const weft_ledger_t *ledger, double seen, double y)
{
    static const double sums[][2] = {{16, 0}, {4, 12}, {2, 14}, {0, 16}}; /* Y, Y/N */
    static const char *const names[] = {"weights", "gradients", "optimizer state"};
    double kinds[WEFT_MEMORY_KINDS];
    formula(zero, y, ranks, kinds);
    for (int kind = WEFT_MEMORY_WEIGHTS; kind <= WEFT_MEMORY_OPTIMIZER; kind++) {
        check_near(zero, ranks, names[kind], (double)ledger->bytes[kind], kinds[kind]);
    }
    double other = (double)(ledger->bytes[WEFT_MEMORY_ACTIVATIONS] +
                            ledger->bytes[WEFT_MEMORY_BUFFERS]);
    check_near(zero, ranks, "state by the pool", seen - other,
               sums[zero][0] * y + sums[zero][1] * y / ranks);
}

static void stages_take_what_they_should(team_t *team)
{
    const weft_compute_t *compute;
    int device;
    weft__compute_threads(1);
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft_comm_device(team->comm, &device));
    for (int zero = 0; zero <= 3; zero++) {
        weft_worker_options_t options = large(team->size, 1, 1, zero);
        weft_ledger_t predicted;
        weft_worker_t *worker;
        weft_pool_stats_t before, after;
        team_note("ZeRO-%d", zero);
        CHECK_OK(weft__worker_predict(&options, compute, team->rank, &predicted));
        CHECK_OK(weft_pool_stats(device, &before));
        CHECK_OK(weft__worker_create(&options, team->comm, compute, &worker));
        one_step(worker, &options); /* with weights of zero, which cost no time to make */
        CHECK_OK(weft_pool_stats(device, &after));
        const weft_ledger_t *ledger = weft__worker_ledger(worker);
        for (int kind = 0; kind < WEFT_MEMORY_KINDS; kind++) {
            CHECK_EQ(ledger->bytes[kind], predicted.bytes[kind]);
        }
        double seen = (double)(after.in_use - before.in_use);
        CHECK(fabs(seen / (double)weft__ledger_total(ledger) - 1) < 0.02);
        check_state(zero, team->size, ledger, seen, (double)weft__config_params(&options.model));
        weft__worker_destroy(worker);
    }
}

/* With this much memory a rank cannot hold the model alone. */
static const char cap[] = "WEFT_DEVICE_MEMORY=24M";

static void does_not_fit_alone(team_t *team)
{
    weft_worker_options_t options = large(1, 1, 1, 0);
    const weft_compute_t *compute;
    weft_worker_t *worker;
    CHECK_OK(weft__compute(&compute));
    CHECK_STATUS(weft__worker_create(&options, team->comm, compute, &worker), WEFT_ERR_NO_MEMORY);
}

static void fits_when_spread(team_t *team)
{
    const weft_worker_options_t plans[] = {large(4, 1, 1, 3), large(1, 2, 2, 0), large(1, 4, 1, 0)};
    weft__compute_threads(1);
    for (int i = 0; i < 3; i++) {
        const weft_compute_t *compute;
        weft_worker_t *worker;
        CHECK_OK(weft__compute(&compute));
        CHECK_OK(weft__worker_create(&plans[i], team->comm, compute, &worker));
        CHECK_OK(weft__worker_start(worker, 1));
        one_step(worker, &plans[i]);
        weft__worker_destroy(worker);
    }
}

int main(void)
{
    bool ok = true;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        ok = team_run(&(team_plan_t){.ranks = ranks, .procs = 1}, stages_take_what_they_should) &&
             ok;
    }
    ok = team_run(&(team_plan_t){.ranks = 1, .env = cap}, does_not_fit_alone) && ok;
    ok = team_run(&(team_plan_t){.ranks = 4, .env = cap}, fits_when_spread) && ok;
    return ok ? 0 : 1;
}
