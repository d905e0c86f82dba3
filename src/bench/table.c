#include "bench/table.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weft__sample_median(const weft_sample_t *sample)
{
    double us[WEFT_REPEAT_MOST];
    int n = sample->repeats;
    memcpy(us, sample->us, (size_t)n * sizeof(*us));
    qsort(us, (size_t)n, sizeof(*us), by_value);
    return n == 0 ? 0 : n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
}

/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
static double bus_factor(const char *collective, int ranks)
{
    double n = ranks;
    if (strcmp(collective, "allreduce") == 0) {
        return 2 * (n - 1) / n;
    }
    bool whole = strcmp(collective, "broadcast") == 0 || strcmp(collective, "reduce") == 0 ||
                 strcmp(collective, "sendrecv") == 0 || strcmp(collective, "copy") == 0;
    return whole ? 1 : (n - 1) / n;
}

static void print_head(const char *collective)
{
    printf("#\n# %s\n", collective);
    printf("#%43s  %-34s  %-34s\n", "", "          out of place", "            in place");
    printf("#%11s %11s %6s %6s %4s", "size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; i++) {
        printf("  %9s %8s %8s %6s", "time", "algbw", "busbw", "#wrong");
    }
    printf("\n#%11s %11s %6s %6s %4s", "(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; i++) {
        printf("  %9s %8s %8s %6s", "(us)", "(GB/s)", "(GB/s)", "");
    }
    printf("\n");
}

static void print_sample(weft_table_t *table, const weft_row_t *row, const weft_sample_t *sample)
{
    double us = weft__sample_median(sample);
    double algbw = us > 0 ? (double)row->bytes / us / 1e3 : 0;
    double busbw = algbw * bus_factor(row->collective, table->ranks);
    char wrong[24] = "-";
    if (table->bench->check) {
        snprintf(wrong, sizeof(wrong), "%zu", sample->wrong);
    }
    printf("  %9.*f %8.2f %8.2f %6s", us < 100 ? 2 : 1, us, algbw, busbw, wrong);
    table->busbw_sum += busbw;
    table->busbw_rows++;
}

static void json_sample(weft_table_t *table, const weft_row_t *row, const weft_sample_t *sample,
                        bool in_place)
{
    weft_json_t *json = &table->result.json;
    weft__json_object(json, NULL);
    weft__json_string(json, "collective", row->collective);
    weft__json_uint(json, "bytes", row->asked);
    weft__json_uint(json, "moved_bytes", row->bytes);
    weft__json_uint(json, "count", row->count);
    weft__json_string(json, "type", weft_dtype_name(table->bench->type));
    weft__json_string(json, "op", weft_op_name(table->bench->op));
    weft__json_string(json, "algorithm", weft__algo_name(row->choice.algo));
    weft__json_bool(json, "in_place", in_place);
    weft__sample_write(json, "us", sample);
    weft__json_double(json, "bus_factor", bus_factor(row->collective, table->ranks));
    weft__json_int(json, "iters", sample->iters);
    if (table->bench->check) {
        weft__json_uint(json, "wrong", sample->wrong);
    } else {
        weft__json_string(json, "wrong", NULL);
    }
    weft__json_end(json);
}

void weft__table_row(weft_table_t *table, const weft_row_t *row)
{
    if (!table) {
        return;
    }
    if (!table->last || strcmp(table->last, row->collective) != 0) {
        print_head(row->collective);
        table->last = row->collective;
    }
    bool reduces = strstr(row->collective, "reduce") != NULL;
    bool rooted = strcmp(row->collective, "broadcast") == 0 ||
                  strcmp(row->collective, "reduce") == 0 ||
                  strcmp(row->collective, "gather") == 0 || strcmp(row->collective, "scatter") == 0;
    printf(" %11zu %11zu %6s %6s %4d", row->bytes, row->count, weft_dtype_name(table->bench->type),
           reduces ? weft_op_name(table->bench->op) : "none", rooted ? table->bench->root : -1);
    print_sample(table, row, &row->out_of_place);
    if (row->has_in_place) {
        print_sample(table, row, &row->in_place);
    }
    if (table->bench->explain) {
        printf("   %s: %s", weft__algo_name(row->choice.algo), row->choice.why);
    }
    printf("\n");
    fflush(stdout);
    if (table->result.file) {
        json_sample(table, row, &row->out_of_place, false);
        if (row->has_in_place) {
            json_sample(table, row, &row->in_place, true);
        }
    }
}

weft_status_t weft__table_close(weft_table_t *table, weft_status_t status, size_t wrong)
{
    if (table->bench->check && status == WEFT_OK) {
        printf("#\n# wrong elements: %zu %s\n", wrong, wrong ? "FAILED" : "(all results verified)");
    }
    if (table->busbw_rows > 0 && status == WEFT_OK) {
        printf("# average bus bandwidth: %.2f GB/s\n", table->busbw_sum / table->busbw_rows);
    }
    fflush(stdout);
    return weft__samples_close(&table->result, status, wrong);
}
