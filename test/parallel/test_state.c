/* State has no plan in it: what was saved under one plan goes on under any other, bit for bit in
 * weights and moments. A model that fits no rank alone trains where plans spread it. */
/* ctest: timeout=120 labels=plans */
#include <math.h>
#include <stdlib.h>

#include "parallel/plans.h"

/* Whole tensors, by parameter and kind. */
typedef struct saved {
    const weft_model_t *model;
    float *values[128][3];
} saved_t;

static weft_worker_t *open_worker(const plan_run_t *run, weft_comm_h comm)
{
    weft_worker_options_t options = plan_options(run);
    const weft_compute_t *compute;
    weft_worker_t *worker;
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft__worker_create(&options, comm, compute, &worker));
    return worker;
}

static double step(weft_worker_t *worker, const plan_run_t *run, int number, weft_comm_h comm)
{
    int32_t tokens[2][PLAN_BATCH * PLAN_LENGTH];
    weft_model_config_t config = plan_config(run->model);
    int64_t count = PLAN_BATCH / run->plan.dp;
    weft_worker_result_t result;
    double sum;
    plan_tokens(&config, number, weft__worker_mesh(worker)->index[WEFT_AXIS_DATA] * count, count,
                tokens[0], tokens[1]);
    weft_worker_input_t input = {.step = (uint64_t)number,
                                 .hyper = plan_hyper(number),
                                 .tokens = tokens[0],
                                 .targets = tokens[1]};
    CHECK_OK(weft__worker_queue(worker, &input));
    CHECK_OK(weft__worker_settle(worker, &result));
    CHECK_OK(weft_allreduce(&result.loss_sum, &sum, 1, WEFT_F64, WEFT_SUM, comm, NULL));
    return sum / (PLAN_BATCH * PLAN_LENGTH);
}

/* Every rank has all of it afterwards, as if it had read a file. */
static void save(weft_worker_t *worker, weft_comm_h comm, saved_t *saved)
{
    saved->model = weft__worker_whole(worker);
    CHECK(saved->model->param_count <= 128);
    for (int i = 0; i < saved->model->param_count; i++) {
        size_t count = (size_t)saved->model->params[i].count;
        for (int what = 0; what < 3; what++) {
            float *values = calloc(count, sizeof(float));
            CHECK(values != NULL);
            CHECK_OK(weft__worker_gather(worker, i, (weft_state_kind_t)what, values));
            CHECK_OK(weft_broadcast(values, values, count, WEFT_F32, 0, comm, NULL));
            saved->values[i][what] = values;
        }
    }
}

static void drop(saved_t *saved)
{
    for (int i = 0; i < 128; i++) {
        for (int what = 0; what < 3; what++) {
            free(saved->values[i][what]);
        }
    }
    *saved = (saved_t){0};
}

static weft_status_t read_saved(void *arg, const weft_param_t *param, weft_state_kind_t what,
                                float *whole)
{
    const saved_t *saved = arg;
    int index = weft__model_param(saved->model, param->key);
    CHECK(index >= 0);
    memcpy(whole, saved->values[index][what],
           (size_t)saved->model->params[index].count * sizeof(float));
    return WEFT_OK;
}

static void compare(const saved_t *a, const saved_t *b, int count, const weft_model_t *model)
{
    for (int i = 0; i < count; i++) {
        for (int what = 0; what < 3; what++) {
            CHECK(memcmp(a->values[i][what], b->values[i][what],
                         (size_t)model->params[i].count * sizeof(float)) == 0);
        }
    }
}

static plan_run_t run_of(plan_model_t model, int dp, int pp, int tp, int zero, int micro)
{
    plan_run_t run = {.model = model, .plan = weft__plan_single(1, PLAN_LENGTH), .bucket_bytes = 1};
    run.plan.dp = dp;
    run.plan.pp = pp;
    run.plan.tp = tp;
    run.plan.zero = zero;
    run.plan.micro_batches = micro;
    run.plan.micro_batch = PLAN_BATCH / dp / micro;
    return run;
}

/* Two steps under one plan, two more under each of the others. */
static void resumes_elsewhere(team_t *team)
{
    for (int m = PLAN_GPT2; m <= PLAN_LLAMA; m++) {
        plan_run_t runs[] = {run_of(m, 2, 2, 2, 1, 2), run_of(m, 8, 1, 1, 3, 1),
                             run_of(m, 1, 4, 2, 0, 8), run_of(m, 4, 1, 2, 2, 2),
                             run_of(m, 1, 1, 8, 0, 1), run_of(m, 8, 1, 1, 0, 2)};
        runs[1].plan.offload = true;
        runs[3].plan.sequence_parallel = true;
        saved_t saved = {0}, again = {0};
        weft__compute_threads(1);
        weft_worker_t *first = open_worker(&runs[0], team->comm);
        CHECK_OK(weft__worker_start(first, 3));
        step(first, &runs[0], 0, team->comm);
        step(first, &runs[0], 1, team->comm);
        save(first, team->comm, &saved);
        double expected[2] = {step(first, &runs[0], 2, team->comm),
                              step(first, &runs[0], 3, team->comm)};
        for (size_t i = 1; i < sizeof(runs) / sizeof(runs[0]); i++) {
            char name[320];
            team_note("%s", plan_name(&runs[i], name, sizeof(name)));
            weft_worker_t *other = open_worker(&runs[i], team->comm);
            CHECK_OK(weft__worker_load(other, read_saved, &saved, true));
            save(other, team->comm, &again);
            compare(&saved, &again, again.model->param_count, again.model);
            drop(&again);
            for (int s = 0; s < 2; s++) {
                double loss = step(other, &runs[i], 2 + s, team->comm);
                CHECK(fabs(loss / expected[s] - 1) < 1e-4);
            }
            weft__worker_destroy(other);
        }
        weft__worker_destroy(first);
        drop(&saved);
    }
}

/* Validation is the loss that training would have, without changing anything. */
static void evaluates(team_t *team)
{
    plan_run_t run = run_of(PLAN_LLAMA, 2, 2, 2, 3, 4);
    int32_t tokens[2][PLAN_BATCH * PLAN_LENGTH];
    weft_model_config_t config = plan_config(run.model);
    double mine, sum;
    weft__compute_threads(1);
    weft_worker_t *worker = open_worker(&run, team->comm);
    CHECK_OK(weft__worker_start(worker, 3));
    plan_tokens(&config, 0, weft__worker_mesh(worker)->index[WEFT_AXIS_DATA] * (PLAN_BATCH / 2),
                PLAN_BATCH / 2, tokens[0], tokens[1]);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft__worker_evaluate(worker, tokens[0], tokens[1], &mine));
        CHECK_OK(weft_allreduce(&mine, &sum, 1, WEFT_F64, WEFT_SUM, team->comm, NULL));
    }
    double trained = step(worker, &run, 0, team->comm);
    CHECK(fabs(sum / (PLAN_BATCH * PLAN_LENGTH) / trained - 1) < 1e-6);
    weft__worker_destroy(worker);
}

/* The host may be one step ahead, not two; and there is nothing to settle twice. */
static void two_steps_may_be_under_way(team_t *team)
{
    plan_run_t run = run_of(PLAN_GPT2, 2, 1, 1, 0, 1);
    int32_t tokens[2][PLAN_BATCH * PLAN_LENGTH];
    weft_model_config_t config = plan_config(run.model);
    weft_worker_result_t results[3];
    weft__compute_threads(1);
    weft_worker_t *worker = open_worker(&run, team->comm), *ahead = open_worker(&run, team->comm);
    CHECK_OK(weft__worker_start(worker, 3));
    CHECK_OK(weft__worker_start(ahead, 3));
    double loss = step(worker, &run, 0, team->comm);
    plan_tokens(&config, 0, team->rank * (PLAN_BATCH / 2), PLAN_BATCH / 2, tokens[0], tokens[1]);
    weft_worker_input_t input = {.hyper = plan_hyper(0), .tokens = tokens[0], .targets = tokens[1]};
    CHECK_OK(weft__worker_queue(ahead, &input));
    input.step = 1;
    input.hyper = plan_hyper(1);
    CHECK_OK(weft__worker_queue(ahead, &input));
    CHECK_STATUS(weft__worker_queue(ahead, &input), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "2 steps are under way: settle one first");
    CHECK_OK(weft__worker_settle(ahead, &results[0]));
    CHECK_OK(weft__worker_settle(ahead, &results[1]));
    CHECK_STATUS(weft__worker_settle(ahead, &results[2]), WEFT_ERR_INVALID);
    double sums[2] = {results[0].loss_sum, results[1].loss_sum};
    CHECK_OK(weft_allreduce(sums, sums, 2, WEFT_F64, WEFT_SUM, team->comm, NULL));
    CHECK(sums[0] / (PLAN_BATCH * PLAN_LENGTH) == loss);
    CHECK(sums[1] < sums[0]); /* the same tokens after an update */
    weft__worker_destroy(ahead);
    weft__worker_destroy(worker);
}

int main(void)
{
    bool ok = team_run(&(team_plan_t){.ranks = 8, .procs = 1, .limit_s = 60}, resumes_elsewhere);
    ok = team_run(&(team_plan_t){.ranks = 8, .procs = 1}, evaluates) && ok;
    ok = team_run(&(team_plan_t){.ranks = 2, .procs = 1}, two_steps_may_be_under_way) && ok;
    return ok ? 0 : 1;
}
