/* The file of results that --json asks for: an object with what was run where, its "results", and at
 * the end how many of them were wrong. */
#ifndef WEFT_BENCH_RESULT_H
#define WEFT_BENCH_RESULT_H

#include "base/json.h"
#include "bench/bench.h"

typedef struct weft_result {
    FILE *file; /* NULL: none was asked for */
    const char *path;
    weft_json_t json; /* inside the array of results */
} weft_result_t;

/* Create bench->json and write everything up to the array; without one do nothing. */
weft_status_t weft__result_open(weft_result_t *result, const weft_bench_t *bench, int ranks);

/* End the array, say how many results were `wrong`, close the file. */
weft_status_t weft__result_close(weft_result_t *result, size_t wrong);

#endif
