/* ctest: timeout=120 tsan */
/* Benchmarks of training compute what training does, under every plan, and account for all of their
 * time. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fixture.h"
#include "comm/harness.h"
#include "train/benchmark.h"
#include "train/loop.h"

enum { STEPS = 4 };

static char model_path[512];

static const char model_text[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, "
    "\"n_embd\": 32, \"n_head\": 4, \"n_positions\": 16, \"vocab_size\": 61, "
    "\"activation_function\": \"gelu_new\"}";

/* One for all ranks of a process: reading the machine is for one thread. */
static weft_train_config_t base_config;
static weft_setup_t base;
static pthread_mutex_t base_lock = PTHREAD_MUTEX_INITIALIZER;

static void open_base(void)
{
    static bool there;
    pthread_mutex_lock(&base_lock);
    if (!there) {
        bool help;
        char *argv[] = {"weft train", "--benchmark", "--device", "cpu", "--model",
                        model_path,   "--steps",     "4",        NULL};
        CHECK_STATUS(weft__train_parse(8, argv, &base_config, &help), WEFT_OK);
        CHECK_STATUS(weft__setup_open(&base_config, &base), WEFT_OK);
        there = true;
    }
    pthread_mutex_unlock(&base_lock);
}

typedef struct plan {
    int dp, pp, tp, zero;
} plan_t;

/* A batch of 8 in any case. */
static void vary(const plan_t *plan, weft_train_config_t *config, weft_setup_t *setup)
{
    *config = base_config;
    config->ranks = plan->dp * plan->pp * plan->tp;
    config->dp = plan->dp;
    config->pp = plan->pp;
    config->tp = plan->tp;
    config->zero = plan->zero;
    config->batch = 8;
    config->micro_batch = config->accumulate = 0;
    config->eval_batches = 1;
    CHECK_STATUS(weft__setup_vary(&base, config, setup), WEFT_OK);
}

static void check_result(const weft_benchmark_result_t *r, int steps)
{
    CHECK_EQ(r->steps, steps);
    double sum = r->time.compute + r->time.communication + r->time.bubble + r->time.imbalance +
                 r->time.optimizer + r->time.data + r->time.rest;
    CHECK(r->time.step > 0 && fabs(sum - r->time.step) < 1e-9 + 1e-6 * r->time.step);
    CHECK(r->time.compute > 0 && r->time.communication >= 0 && r->time.bubble >= 0);
    CHECK(r->time.imbalance >= 0 && r->time.optimizer > 0);
    /* What nothing accounts for is little of it. */
    CHECK(r->time.rest > -0.02 * r->time.step);
    CHECK(fabs(r->tokens_per_s - r->tokens / r->time.step) < 1e-6 * r->tokens_per_s);
    CHECK(r->memory[WEFT_MEMORY_WEIGHTS] > 0 && r->memory[WEFT_MEMORY_ACTIVATIONS] > 0);
    CHECK(r->memory_peak >= r->memory[WEFT_MEMORY_WEIGHTS]);
}

/* The loss of the last of some steps, by the loop of training. */
static double train_normally(const plan_t *plan, weft_comm_h comm)
{
    weft_train_config_t config;
    weft_setup_t setup;
    weft_train_result_t result;
    vary(plan, &config, &setup);
    config.steps = STEPS;
    CHECK_STATUS(weft__train_run(&setup, comm, NULL, &result), WEFT_OK);
    CHECK_EQ(result.step, STEPS);
    weft__setup_close(&setup);
    return result.loss;
}

static void run_benchmark(const plan_t *plan, weft_comm_h comm, double loss[STEPS])
{
    weft_train_config_t config;
    weft_setup_t setup;
    weft_benchmark_t *benchmark;
    weft_benchmark_options_t options = {.setup = &setup};
    vary(plan, &config, &setup);
    CHECK_STATUS(weft__benchmark_open(&options, comm, &benchmark), WEFT_OK);
    /* In two parts, whose steps follow each other. */
    CHECK_STATUS(weft__benchmark_run(benchmark, 1), WEFT_OK);
    const weft_benchmark_result_t *result = weft__benchmark_result(benchmark);
    check_result(result, 1);
    loss[0] = result->loss[0];
    CHECK_STATUS(weft__benchmark_run(benchmark, STEPS - 1), WEFT_OK);
    check_result(result, STEPS - 1);
    CHECK(isnan(result->mfu)); /* nobody asked for it */
    CHECK(plan->pp == 1 ? result->time.bubble == 0
                        : result->time.bubble + result->time.imbalance > 0);
    for (int i = 1; i < STEPS; i++) {
        loss[i] = result->loss[i - 1];
    }
    weft__benchmark_close(benchmark);
    weft__setup_close(&setup);
}

/* What is above the peak is shown, and says what is wrong. */
static void above_the_peak(team_t *team)
{
    const plan_t plan = {1, 1, 1, 0};
    double step_s[] = {0.1}, loss[] = {4};
    weft_benchmark_result_t result = {.steps = 1, .step_s = step_s, .loss = loss, .time.step = 0.1};
    weft_train_config_t config;
    weft_setup_t setup;
    (void)team;
    open_base();
    vary(&plan, &config, &setup);
    CHECK(weft__benchmark_mfu(132, 100) == 1.32);
    CHECK(isnan(weft__benchmark_mfu(132, 0)));
    for (int above = 0; above < 2; above++) {
        char *text;
        size_t length;
        FILE *out = open_memstream(&text, &length);
        CHECK(out != NULL);
        result.mfu = weft__benchmark_mfu(above ? 132 : 98, 100);
        weft__benchmark_print(&setup, &result, out);
        fclose(out);
        CHECK_TEXT(text, above ? "MFU          132.0%  (above 100%: the peak that it is a share of "
                                 "is set too low)\n"
                               : "MFU          98.0%\n");
        free(text);
    }
    weft__setup_close(&setup);
}

/* One rank: bit for bit what training computes, twice in one process. */
static void like_training(team_t *team)
{
    const plan_t plan = {1, 1, 1, 0};
    double first[STEPS], second[STEPS];
    open_base();
    double loss = train_normally(&plan, team->comm);
    run_benchmark(&plan, team->comm, first);
    run_benchmark(&plan, team->comm, second);
    for (int i = 0; i < STEPS; i++) {
        CHECK(first[i] == second[i] && first[i] > 3 && first[i] < 5); /* about ln 61 = 4.11 */
    }
    CHECK(first[STEPS - 1] == loss);
}

/* Several plans on communicators of several sizes in one job: the same numbers as one rank. */
static void under_plans(team_t *team)
{
    static const plan_t plans[] = {{1, 1, 1, 0}, {2, 1, 1, 0}, {1, 2, 1, 0}, {1, 1, 2, 0},
                                   {2, 1, 1, 3}, {4, 1, 1, 1}, {2, 1, 2, 0}, {2, 2, 1, 2}};
    double one[STEPS] = {0};
    open_base();
    for (size_t p = 0; p < sizeof(plans) / sizeof(plans[0]); p++) {
        const plan_t *plan = &plans[p];
        int ranks = plan->dp * plan->pp * plan->tp;
        double loss[STEPS];
        weft_comm_h group;
        if (ranks > team->size) {
            continue;
        }
        team_note("dp %d pp %d tp %d zero %d", plan->dp, plan->pp, plan->tp, plan->zero);
        CHECK_STATUS(
            weft_comm_split(team->comm, team->rank < ranks ? 0 : -1, team->rank, &group, NULL),
            WEFT_OK);
        if (group != NULL) {
            run_benchmark(plan, group, loss);
            weft_comm_destroy(group);
        }
        for (int i = 0; i < STEPS && group != NULL && team->rank == 0; i++) {
            one[i] = p == 0 ? loss[i] : one[i];
            CHECK(fabs(loss[i] - one[i]) <= 1e-4 * one[i]);
        }
    }
}

static void one_rank_computes_what_training_does(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 1}, like_training));
}

static void mfu_above_100_percent_is_shown(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 1}, above_the_peak));
}

static void threads_2(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 2, .procs = 1}, under_plans));
}

static void threads_4(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, under_plans));
}

static void processes_4(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 4}, under_plans));
}

static int make_model(void **state)
{
    (void)state;
    snprintf(model_path, sizeof(model_path), "%s", in_scratch("model.json"));
    write_file(model_path, model_text, strlen(model_text));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_computes_what_training_does),
        cmocka_unit_test(mfu_above_100_percent_is_shown),
        cmocka_unit_test(threads_2),
        cmocka_unit_test(threads_4),
        cmocka_unit_test(processes_4),
    };
    return cmocka_run_group_tests(tests, make_model, NULL);
}
