/* The table that weft bench prints, and the same as JSON. */
#ifndef WEFT_BENCH_TABLE_H
#define WEFT_BENCH_TABLE_H

#include "bench/bench.h"
#include "comm/tuner.h"

#define WEFT_REPEAT_MOST 64

typedef struct weft_sample {
    double us[WEFT_REPEAT_MOST]; /* time of a call, one per timed loop */
    int repeats, iters;
    size_t wrong;
} weft_sample_t;

/* Median of the timed loops; 0 without any. */
double weft__sample_median(const weft_sample_t *sample);

typedef struct weft_row {
    const char *collective;
    size_t asked; /* the size that was asked for */
    size_t bytes; /* what it came to in whole elements per block */
    size_t count; /* elements of a block */
    weft_choice_t choice;
    bool has_in_place;
    weft_sample_t out_of_place, in_place;
} weft_row_t;

typedef struct weft_table weft_table_t;

weft_status_t weft__table_open(const weft_bench_t *bench, int ranks, weft_table_t **table_p);

/* Print a row and write it to the JSON file. A NULL table (other ranks) does nothing. */
void weft__table_row(weft_table_t *table, const weft_row_t *row);

/* Print the closing line, finish the file. */
weft_status_t weft__table_close(weft_table_t *table, weft_status_t status, size_t wrong);

#endif
