/* The table of pairs, and the same as JSON. */
#include <stdio.h>

#include "bench/pair.h"

static void print_head(const weft_pair_table_t *table, const weft_pair_t *pair)
{
    printf("#\n# %s%s%s: %s\n# microseconds: median of %d loops (least..most)\n", pair->target,
           pair->name ? ", " : "", pair->name ? pair->name : "", pair->text, table->bench->repeat);
    const char *way = !pair->other ? "time" : pair->way ? pair->way : "one-sided";
    printf("#%11s %30s", "bytes", way);
    if (pair->other) {
        printf(" %30s %6s", pair->other, "ratio");
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

static void json_row(weft_json_t *json, const weft_pair_row_t *row)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "target", row->pair->target);
    weft__json_string(json, "name", row->pair->name);
    weft__json_uint(json, "bytes", row->bytes);
    weft__json_string(json, "other", row->pair->other);
    weft__sample_write(json, "us", &row->one_sided);
    weft__sample_write(json, "other_us", &row->two_sided);
    weft__sample_write(json, "copy_us", &row->copy);
    weft__json_int(json, "iters", row->one_sided.iters);
    weft__json_uint(json, "wrong", row->wrong);
    weft__json_end(json);
}

void weft__pair_table_row(weft_pair_table_t *table, const weft_pair_row_t *row)
{
    const weft_pair_t *pair = row->pair;
    if (table->last != pair) {
        print_head(table, pair);
        table->last = pair;
    }
    double us = weft__sample_median(&row->one_sided);
    if (pair->max > 0) {
        printf(" %11zu", row->bytes);
    } else {
        printf(" %11s", "-");
    }
    print_sample(&row->one_sided);
    if (pair->other) {
        print_sample(&row->two_sided);
        printf(" %6.2f", us > 0 ? weft__sample_median(&row->two_sided) / us : 0);
    }
    if (pair->copy) {
        printf(" %11.3f", weft__sample_median(&row->copy));
    }
    if (pair->max > 0) {
        printf(" %8.2f", us > 0 ? (double)row->bytes / us / 1e3 : 0);
    } else {
        printf(" %8s", "-");
    }
    printf(table->bench->check ? " %6zu\n" : "      -\n", row->wrong);
    fflush(stdout);
    if (table->result.file) {
        json_row(&table->result.json, row);
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
