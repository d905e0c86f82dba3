/* Training steps on made-up tokens, to be timed: `weft train --benchmark`, and what `weft scaling`
 * and the training pairs of `weft pairs` are made of.
 *
 *     weft__benchmark_open(&options, comm, &benchmark)
 *     weft__benchmark_run(benchmark, 3)                   warm-up
 *     weft__benchmark_run(benchmark, 20)
 *     weft__benchmark_result(benchmark)                   of these 20
 *     weft__benchmark_close(benchmark)
 *
 * It runs what a training run does, step by step, with the same numbers: the worker, the feed of
 * tokens and the statistics are the same code (trainer.h). Nothing is read or written. A process
 * may have several, one after the other or at the same time, on communicators of any size: the
 * ranks of `comm` are all that take part.
 *
 * Everything but the result is collective over `comm`. After a failure it can only be closed, and
 * `comm` should be aborted. */
#ifndef WEFT_TRAIN_BENCHMARK_H
#define WEFT_TRAIN_BENCHMARK_H

#include <stdio.h>

#include <weft/comm.h>

#include "base/trace.h"
#include "parallel/memory.h"
#include "train/breakdown.h"
#include "train/setup.h"

#define WEFT_BENCHMARK_WARM_UP 3 /* steps: memory is touched, buffers and algorithms are chosen */

typedef struct weft_benchmark weft_benchmark_t;

typedef struct weft_benchmark_options {
    weft_setup_t *setup; /* resolved, of --benchmark or weft__setup_vary, for the ranks of `comm`;
                          * must outlive the benchmark, which opens and closes its data */
    weft_trace_t *trace; /* or NULL */
    bool mfu;            /* find the peak first, which may have to be measured */
} weft_benchmark_options_t;

/* The same on all ranks. */
typedef struct weft_benchmark_result {
    int steps;            /* of the last run */
    const double *step_s; /* seconds of each, mean over ranks */
    const double *loss;   /* of each, over all ranks */
    double tokens;        /* of a step, over all ranks */
    double tokens_per_s;
    double mfu;            /* NaN if it was not asked for; above 1 if the peak is set too low */
    weft_breakdown_t time; /* of a step, mean over steps */

    /* Of the rank that has most: bytes by kind, and the measured peak of its device. */
    uint64_t memory[WEFT_MEMORY_KINDS];
    uint64_t memory_peak;
} weft_benchmark_result_t;

weft_status_t weft__benchmark_open(const weft_benchmark_options_t *options, weft_comm_h comm,
                                   weft_benchmark_t **benchmark_p);
void weft__benchmark_close(weft_benchmark_t *benchmark);

/* Train `steps` steps more. */
weft_status_t weft__benchmark_run(weft_benchmark_t *benchmark, int steps);

/* Operations a second as a share of the peak's, as it is: above 1 the peak is set too low, and that
 * is not hidden. NaN without a peak. */
double weft__benchmark_mfu(double rate, double peak);

/* Of the last run; valid until the next one. */
const weft_benchmark_result_t *weft__benchmark_result(const weft_benchmark_t *benchmark);

/* "dp 2 x tp 4, zero 1": what a resolved configuration asks for that is not the default. Returns
 * text. */
const char *weft__benchmark_plan(const weft_train_config_t *config, char *text, size_t room);

/* What `weft train --benchmark` prints; as members of the object that is open in `json`. */
void weft__benchmark_print(const weft_setup_t *setup, const weft_benchmark_result_t *result,
                           FILE *out);
void weft__benchmark_write(const weft_setup_t *setup, const weft_benchmark_result_t *result,
                           weft_json_t *json);

#endif
