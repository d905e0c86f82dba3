/* Times of a benchmark, and the file that weft bench --json makes of them (topo/result.h): its
 * "results", and at the end how many of them were wrong. */
#ifndef WEFT_BENCH_SAMPLES_H
#define WEFT_BENCH_SAMPLES_H

#include "bench/bench.h"
#include "topo/result.h"

#define WEFT_REPEAT_MOST 64  /* that a user may ask for */
#define WEFT_SAMPLE_MOST 512 /* that there is room for */

typedef struct weft_sample {
    double us[WEFT_SAMPLE_MOST]; /* time of a call, one per timed loop */
    int repeats, iters;
    size_t wrong;
} weft_sample_t;

/* Median of the timed loops; 0 without any. */
double weft__sample_median(const weft_sample_t *sample);

/* The times of a sample as an array; nothing if there are none. */
void weft__sample_write(weft_json_t *json, const char *key, const weft_sample_t *sample);

/* The head of a result of this process's device; the caller fills in kind, path, command and
 * machine. */
weft_result_head_t weft__samples_head(int ranks, bool threads);

/* "# weft 0.1.0, commit ...": what is measured with, and on what, as lines on stdout. */
void weft__samples_print_head(const weft_result_head_t *head);

/* Print the head. Create bench->json, if there is one, and write everything up to the array. */
weft_status_t weft__samples_open(weft_result_t *result, const weft_bench_t *bench, int ranks);

/* End the array, say how many results were `wrong`, and let the file appear. If `status` is a
 * failure, what stood there stays. Returns the first failure. */
weft_status_t weft__samples_close(weft_result_t *result, weft_status_t status, size_t wrong);

#endif
