/* The table that weft bench prints, and the same as JSON. */
#ifndef WEFT_BENCH_TABLE_H
#define WEFT_BENCH_TABLE_H

#include "bench/samples.h"
#include "comm/tuner.h"

typedef struct weft_row {
    const char *collective;
    size_t asked; /* the size that was asked for */
    size_t bytes; /* what it came to in whole elements per block */
    size_t count; /* elements of a block */
    weft_choice_t choice;
    bool has_in_place;
    weft_sample_t out_of_place, in_place;
} weft_row_t;

typedef struct weft_table {
    const weft_bench_t *bench;
    int ranks;
    const char *last; /* collective of the last row */
    double busbw_sum;
    int busbw_rows;
    weft_result_t result;
} weft_table_t;

/* Print a row and write it to the JSON file. A NULL table (other ranks) does nothing. */
void weft__table_row(weft_table_t *table, const weft_row_t *row);

/* Print the closing line, finish the file. */
weft_status_t weft__table_close(weft_table_t *table, weft_status_t status, size_t wrong);

#endif
