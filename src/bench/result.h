/* The file of results that --json asks for: an object with what was run where, its "results", and
 * at the end how many of them were wrong. */
#ifndef WEFT_BENCH_RESULT_H
#define WEFT_BENCH_RESULT_H

#include "base/json.h"
#include "base/output.h"
#include "bench/bench.h"

#define WEFT_REPEAT_MOST 64

typedef struct weft_sample {
    double us[WEFT_REPEAT_MOST]; /* time of a call, one per timed loop */
    int repeats, iters;
    size_t wrong;
} weft_sample_t;

/* Median of the timed loops; 0 without any. */
double weft__sample_median(const weft_sample_t *sample);

typedef struct weft_result {
    weft_output_t *file; /* NULL: none was asked for */
    weft_json_t json;    /* inside the array of results */
} weft_result_t;

/* Say on stdout what is measured with, and on what. Create bench->json, if there is one, and write
 * everything up to the array. */
weft_status_t weft__result_open(weft_result_t *result, const weft_bench_t *bench, int ranks);

/* The times of a sample as an array; nothing if there are none. */
void weft__result_times(weft_json_t *json, const char *key, const weft_sample_t *sample);

/* End the array, say how many results were `wrong`, and let the file appear. If `status` is a
 * failure, what stood there stays. Returns the first failure. */
weft_status_t weft__result_close(weft_result_t *result, weft_status_t status, size_t wrong);

#endif
