/* Running the pairs of training: see train.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/train/train.h"
#include "comm/comm.h"
#include "train/benchmark.h"

enum { CHECK_STEPS = 3 };

/* A configuration that is ready to run. */
typedef struct variant {
    weft_train_config_t config;
    weft_setup_t setup;
} variant_t;

typedef struct state {
    const weft_train_pair_t *train;
    weft_setup_t base; /* model and device */
    weft_comm_h team;  /* of the ranks that take part; NULL: this one does not */
    weft_comm_h alone; /* rank 0: of itself */
    int ranks;         /* that take part */
    variant_t variants[WEFT_PAIR_WAYS];
    weft_benchmark_t *benchmarks[WEFT_PAIR_WAYS]; /* NULL: not of this rank */
} state_t;

/* ---- what is trained ---------------------------------------------------------------------- */

/* Large enough that a step is more than its calls, and small enough for a laptop; on a GPU a few
 * times that. Sizes divide by 4, layers by 8. */
static weft_model_config_t model_for(bool gpus)
{
    int width = gpus ? 768 : 64, heads = gpus ? 12 : 4;
    return (weft_model_config_t){.family = WEFT_GPT2,
                                 .layers = 8,
                                 .width = width,
                                 .heads = heads,
                                 .kv_heads = heads,
                                 .head_dim = width / heads,
                                 .ffn = 4 * width,
                                 .vocab = gpus ? 8192 : 257,
                                 .context = gpus ? 512 : 32,
                                 .norm_eps = 1e-5f,
                                 .tied = true,
                                 .init_std = 0.02f,
                                 .bos_token = -1,
                                 .eos_token = -1};
}

static weft_status_t describe_base(weft_setup_t *base)
{
    *base = (weft_setup_t){0};
    WEFT_TRY(weft_device_kind(&base->device));
    base->model = model_for(strcmp(base->device, "cuda") == 0);
    base->gathers_beside = true;
    return WEFT_OK;
}

/* How many of `size` ranks a shape takes. */
static int ranks_for(weft_train_shape_t shape, int size)
{
    int ranks = 1;
    while (shape != WEFT_SHAPE_DATA && 2 * ranks <= size && ranks < 8) {
        ranks *= 2;
    }
    return shape == WEFT_SHAPE_DATA ? size : ranks;
}

static weft_status_t read_options(const char *options, weft_train_config_t *config)
{
    return options != NULL ? weft__train_read_text(options, "a pair", config) : WEFT_OK;
}

/* The defaults of weft train --benchmark. */
static weft_status_t start_config(weft_train_config_t *config)
{
    char name[] = "weft pairs", benchmark[] = "--benchmark";
    char *argv[] = {name, benchmark, NULL};
    bool help;
    return weft__train_parse(2, argv, config, &help);
}

static weft_status_t make_variant(const state_t *s, int way, uint64_t seed, variant_t *v)
{
    const weft_train_pair_t *train = s->train;
    weft_train_config_t *config = &v->config;
    WEFT_TRY(start_config(config));
    WEFT_TRY(read_options(train->common, config));
    WEFT_TRY(read_options(train->ways[way].options, config));
    int inner = s->ranks < 4 ? s->ranks : 4;
    config->ranks = s->ranks;
    config->pp = train->shape == WEFT_SHAPE_PIPELINE ? inner : 1;
    config->tp = train->shape == WEFT_SHAPE_TENSOR ? inner : 1;
    config->dp = s->ranks / (config->pp * config->tp);
    config->accumulate = config->accumulate > 0 ? config->accumulate : 1;
    config->seed = (int)(seed % INT32_MAX);
    return weft__setup_vary(&s->base, config, &v->setup);
}

/* The same batches on one rank, without anything that a plan can ask for. */
static weft_status_t make_reference(const state_t *s, const weft_train_config_t *of, variant_t *v)
{
    weft_train_config_t *config = &v->config;
    WEFT_TRY(start_config(config));
    config->ranks = config->dp = config->pp = config->tp = 1;
    config->micro_batch = of->micro_batch;
    config->accumulate = of->batch / of->micro_batch;
    config->seed = of->seed;
    return weft__setup_vary(&s->base, config, &v->setup);
}

static void free_variant(variant_t *v)
{
    if (v->setup.config != NULL) {
        weft__setup_close(&v->setup);
    }
    weft__train_free(&v->config);
}

/* The team is a communicator of its own: pair.c, which breaks the one above, does not know it. */
static weft_status_t pass(const state_t *s, weft_status_t status)
{
    if (status != WEFT_OK) {
        weft__comm_break(s->team);
    }
    return status;
}

/* ---- opening ------------------------------------------------------------------------------ */

static weft_status_t open_ways(weft_pair_run_t *run, state_t *s)
{
    for (int i = 0; i < weft__pair_ways(run->pair); i++) {
        variant_t *v = &s->variants[i];
        weft_benchmark_options_t options = {.setup = &v->setup};
        WEFT_TRY(make_variant(s, i, run->seed, v));
        if (s->team == NULL) {
            continue;
        }
        WEFT_TRY(weft__benchmark_open(&options, s->team, &s->benchmarks[i]));
        const weft_benchmark_result_t *result = weft__benchmark_result(s->benchmarks[i]);
        for (int k = 0; k < WEFT_MEMORY_KINDS && s->train->memory; k++) {
            run->held[i] += k != WEFT_MEMORY_HOST ? result->memory[k] : 0;
        }
    }
    return WEFT_OK;
}

weft_status_t weft__train_pair_open(weft_pair_run_t *run)
{
    state_t *s;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*s), (void **)&s));
    s->train = (const weft_train_pair_t *)(const void *)run->pair; /* its first member */
    s->ranks = ranks_for(s->train->shape, run->size);
    WEFT_TRY(describe_base(&s->base));
    WEFT_TRY(weft_comm_split(run->comm, run->rank < s->ranks ? 0 : -1, run->rank, &s->team, NULL));
    WEFT_TRY(weft_comm_split(run->comm, run->rank == 0 ? 0 : -1, 0, &s->alone, NULL));
    return pass(s, open_ways(run, s));
}

void weft__train_pair_close(weft_pair_run_t *run)
{
    state_t *s = run->ctx;
    for (int i = 0; i < WEFT_PAIR_WAYS; i++) {
        weft__benchmark_close(s->benchmarks[i]);
        free_variant(&s->variants[i]);
    }
    weft_comm_destroy(s->alone);
    weft_comm_destroy(s->team);
}

/* ---- rounds ------------------------------------------------------------------------------- */

static weft_status_t run_way(weft_pair_run_t *run, int way, int rounds)
{
    const state_t *s = run->ctx;
    int steps = s->train->ways[way].steps > 0 ? s->train->ways[way].steps : 1;
    weft_benchmark_t *benchmark = s->benchmarks[way];
    return benchmark != NULL ? pass(s, weft__benchmark_run(benchmark, rounds * steps)) : WEFT_OK;
}

weft_status_t weft__train_pair_way_0(weft_pair_run_t *run, int rounds)
{
    return run_way(run, 0, rounds);
}

weft_status_t weft__train_pair_way_1(weft_pair_run_t *run, int rounds)
{
    return run_way(run, 1, rounds);
}

weft_status_t weft__train_pair_way_2(weft_pair_run_t *run, int rounds)
{
    return run_way(run, 2, rounds);
}

weft_status_t weft__train_pair_way_3(weft_pair_run_t *run, int rounds)
{
    return run_way(run, 3, rounds);
}

/* ---- checking ----------------------------------------------------------------------------- */

/* The losses of the first steps. */
static weft_status_t train(weft_setup_t *setup, weft_comm_h comm, double loss[CHECK_STEPS])
{
    weft_benchmark_t *benchmark;
    weft_benchmark_options_t options = {.setup = setup};
    WEFT_TRY(weft__benchmark_open(&options, comm, &benchmark));
    weft_status_t status = weft__benchmark_run(benchmark, CHECK_STEPS);
    if (status == WEFT_OK) {
        memcpy(loss, weft__benchmark_result(benchmark)->loss, CHECK_STEPS * sizeof(double));
    } else {
        weft__comm_break(comm); /* before closing, which leaves */
    }
    weft__benchmark_close(benchmark);
    return status;
}

/* By rank 0, for all. */
static weft_status_t find_reference(weft_pair_run_t *run, const weft_train_config_t *of,
                                    double loss[CHECK_STEPS])
{
    const state_t *s = run->ctx;
    variant_t reference = {0};
    weft_status_t status = WEFT_OK;
    if (run->rank == 0) {
        status = make_reference(s, of, &reference);
        status = status == WEFT_OK ? train(&reference.setup, s->alone, loss) : status;
        free_variant(&reference);
    }
    WEFT_TRY(status);
    return weft_broadcast(loss, loss, CHECK_STEPS, WEFT_F64, 0, run->comm, NULL);
}

static size_t count_wrong(const state_t *s, const double *loss, const double *reference,
                          const double *baseline)
{
    double bound = s->variants[0].setup.type == WEFT_F32 ? 1e-4 : 5e-3;
    size_t wrong = 0;
    for (int i = 0; i < CHECK_STEPS; i++) {
        bool near = fabs(loss[i] - reference[i]) <= bound * reference[i]; /* false for NaN */
        wrong += !near || (s->train->exact && loss[i] != baseline[i]);
    }
    return wrong;
}

weft_status_t weft__train_pair_check(weft_pair_run_t *run, size_t *wrong_p)
{
    const state_t *s = run->ctx;
    double baseline[CHECK_STEPS], reference[CHECK_STEPS] = {0};
    int batch = 0; /* that the reference is of */
    *wrong_p = 0;
    for (int i = 0; i < weft__pair_ways(run->pair); i++) {
        double loss[CHECK_STEPS];
        variant_t v = {0};
        weft_status_t status = make_variant(s, i, run->seed, &v);
        if (status == WEFT_OK && v.config.batch != batch) {
            status = find_reference(run, &v.config, reference);
            batch = v.config.batch;
        }
        if (status == WEFT_OK && s->team != NULL) {
            status = train(&v.setup, s->team, loss);
        }
        free_variant(&v);
        WEFT_TRY(pass(s, status));
        if (s->team != NULL) {
            if (i == 0) {
                memcpy(baseline, loss, sizeof(baseline));
            }
            *wrong_p += count_wrong(s, loss, reference, baseline);
        }
    }
    return WEFT_OK;
}
