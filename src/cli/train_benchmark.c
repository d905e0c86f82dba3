#include "cli/train_benchmark.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "bench/samples.h"
#include "cli/ranks.h"
#include "parallel/timeline.h"
#include "train/benchmark.h"
#include "train/record.h"
#include "train/tracing.h"

typedef struct benchmark {
    weft_setup_t *setup;
    char **typed;
} benchmark_t;

static weft_status_t measure(weft_setup_t *setup, weft_comm_h comm, weft_trace_t *trace,
                             bool speaks, weft_result_t *result)
{
    weft_benchmark_options_t options = {.setup = setup, .trace = trace, .mfu = true};
    weft_benchmark_t *benchmark;
    WEFT_TRY(weft__benchmark_open(&options, comm, &benchmark));
    weft_status_t status = weft__benchmark_run(benchmark, WEFT_BENCHMARK_WARM_UP);
    if (status == WEFT_OK) {
        status = weft__benchmark_run(benchmark, setup->config->steps);
    }
    if (status == WEFT_OK && speaks) {
        weft__benchmark_print(setup, weft__benchmark_result(benchmark), stdout);
    }
    if (status == WEFT_OK && result->file != NULL) {
        weft__benchmark_write(setup, weft__benchmark_result(benchmark), &result->json);
    }
    weft__benchmark_close(benchmark);
    return status;
}

static weft_status_t run(void *ctx, weft_comm_h comm, int *exit_p)
{
    const benchmark_t *b = ctx;
    const weft_train_config_t *config = b->setup->config;
    weft_result_t result = {.file = NULL};
    weft_trace_t *trace = NULL;
    int rank;
    (void)exit_p;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    if (rank == 0) {
        weft_result_head_t head = weft__samples_head(config->ranks, false);
        head.kind = "train";
        head.path = config->json;
        head.command = b->typed;
        head.machine = &b->setup->machine;
        WEFT_TRY(weft__result_open(&result, &head));
        weft__samples_print_head(&head);
        fflush(stdout);
    }
    weft_status_t status = weft__tracing_open(config->trace, comm, &trace);
    if (status == WEFT_OK) {
        status = measure(b->setup, comm, trace, rank == 0, &result);
    }
    weft_tracks_t tracks = weft__tracks;
    tracks.about = weft__record_describe;
    tracks.ctx = b->setup;
    status = weft__tracing_close(config->trace, &tracks, comm, trace, status);
    return weft__result_close(&result, status);
}

int weft__train_benchmark(weft_setup_t *setup, char **typed)
{
    benchmark_t benchmark = {.setup = setup, .typed = typed};
    const weft_ranks_t ranks = {.name = "weft train",
                                .ranks = setup->config->ranks,
                                .bind = strcmp(weft__settings()->bind, "none") != 0,
                                .typed = typed,
                                .outputs = {{"--json", setup->config->json, false},
                                            {"--trace", setup->config->trace, false}},
                                .run = run,
                                .ctx = &benchmark};
    return weft__ranks_run(&ranks);
}
