/* The table of pairs, and the same as JSON. */
#include <stdio.h>

#include "bench/pair.h"

/* Two ways stand side by side; of a chain every way has a line. */
static bool is_chain(const weft_pair_t *pair)
{
    return weft__pair_ways(pair) > 2;
}

static void print_head(const weft_pair_table_t *table, const weft_pair_t *pair)
{
    int ways = weft__pair_ways(pair);
    printf("#\n# %s%s%s: %s\n# microseconds: median of %d loops (least..most)\n", pair->target,
           pair->name ? ", " : "", pair->name ? pair->name : "", pair->text, table->bench->repeat);
    printf("#%11s", "bytes");
    if (is_chain(pair)) {
        printf(" %-20s %30s %6s", "way", "time", "ratio");
    } else if (ways == 2) {
        printf(" %30s %30s %6s", pair->ways[1].name, pair->ways[0].name, "ratio");
    } else {
        printf(" %30s", "time");
    }
    if (pair->copy) {
        printf(" %11s", "copy");
    }
    printf(" %8s %6s\n", "GB/s", "#wrong");
}

static void print_sample(const weft_sample_t *sample)
{
    double least = sample->us[0], most = sample->us[0], median = weft__sample_median(sample);
    for (int i = 1; i < sample->repeats; i++) {
        least = sample->us[i] < least ? sample->us[i] : least;
        most = sample->us[i] > most ? sample->us[i] : most;
    }
    int digits = most < 10 ? 3 : most < 1000 ? 1 : 0;
    char spread[32];
    snprintf(spread, sizeof(spread), "(%.*f..%.*f)", digits, least, digits, most);
    printf(" %11.*f %18s", digits, median, spread);
}

/* A result for each way that is held against the baseline, or of the only one. */
static void json_row(weft_json_t *json, const weft_pair_row_t *row, int way)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "target", row->pair->target);
    weft__json_string(json, "name", row->pair->name);
    weft__json_uint(json, "bytes", row->bytes);
    weft__json_string(json, "other", way > 0 ? row->pair->ways[0].name : NULL);
    weft__sample_write(json, "us", &row->ways[way]);
    if (way > 0) {
        weft__sample_write(json, "other_us", &row->ways[0]);
    }
    weft__sample_write(json, "copy_us", &row->copy);
    weft__json_string(json, "way", row->pair->ways[way].name);
    weft__json_int(json, "iters", row->ways[way].iters);
    weft__json_uint(json, "wrong", row->wrong);
    weft__json_end(json);
}

static void print_bytes(const weft_pair_row_t *row)
{
    if (row->pair->max > 0) {
        printf(" %11zu", row->bytes);
    } else {
        printf(" %11s", "-");
    }
}

/* What follows the times. */
static void print_rest(const weft_pair_table_t *table, const weft_pair_row_t *row, int way)
{
    double us = weft__sample_median(&row->ways[way]);
    if (row->pair->copy) {
        printf(" %11.3f", weft__sample_median(&row->copy));
    }
    if (row->pair->max > 0) {
        printf(" %8.2f", us > 0 ? (double)row->bytes / us / 1e3 : 0);
    } else {
        printf(" %8s", "-");
    }
    printf(table->bench->check ? " %6zu\n" : "      -\n", row->wrong);
}

static void print_chain(const weft_pair_table_t *table, const weft_pair_row_t *row)
{
    for (int way = 0; way < weft__pair_ways(row->pair); way++) {
        print_bytes(row);
        printf(" %-20s", row->pair->ways[way].name);
        if (row->absent[way]) {
            printf(" left out: %s\n", row->absent[way]);
            continue;
        }
        print_sample(&row->ways[way]);
        printf(" %6.2f", weft__pair_ratio(row, way));
        print_rest(table, row, way);
    }
}

static void print_two(const weft_pair_table_t *table, const weft_pair_row_t *row)
{
    int way = weft__pair_ways(row->pair) - 1;
    print_bytes(row);
    if (row->absent[way]) {
        printf(" left out: %s\n", row->absent[way]);
        return;
    }
    print_sample(&row->ways[way]);
    if (way > 0) {
        print_sample(&row->ways[0]);
        printf(" %6.2f", weft__pair_ratio(row, way));
    }
    print_rest(table, row, way);
}

void weft__pair_table_row(weft_pair_table_t *table, const weft_pair_row_t *row)
{
    const weft_pair_t *pair = row->pair;
    int ways = weft__pair_ways(pair);
    if (table->last != pair) {
        print_head(table, pair);
        table->last = pair;
    }
    if (is_chain(pair)) {
        print_chain(table, row);
    } else {
        print_two(table, row);
    }
    fflush(stdout);
    for (int way = ways > 1 ? 1 : 0; table->result.file && way < ways; way++) {
        if (!row->absent[way]) {
            json_row(&table->result.json, row, way);
        }
    }
}

weft_status_t weft__pair_table_close(weft_pair_table_t *table, weft_status_t status, size_t wrong)
{
    if (table->bench->check && status == WEFT_OK) {
        printf("#\n# wrong results: %zu %s\n", wrong, wrong ? "FAILED" : "(all verified)");
    }
    fflush(stdout);
    return weft__samples_close(&table->result, status, wrong);
}
