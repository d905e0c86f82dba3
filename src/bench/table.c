#include "bench/table.h"

#include <math.h>
#include <string.h>

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

/* A barrier moves nothing: it has no size, no bandwidth and no place. */
static bool is_barrier(const char *collective)
{
    return strcmp(collective, "barrier") == 0;
}

static void print_head(const char *collective)
{
    printf("#\n# %s\n", collective);
    if (is_barrier(collective)) {
        printf("#%9s %9s %9s %6s\n#%9s %9s %9s\n", "time", "least", "most", "#wrong", "(us)",
               "(us)", "(us)");
        return;
    }
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

static int decimals(double us)
{
    return us < 100 ? 2 : 1;
}

static void print_barrier(const weft_table_t *table, const weft_sample_t *sample)
{
    double least = INFINITY, most = 0, us = weft__sample_median(sample);
    for (int i = 0; i < sample->repeats; i++) {
        least = fmin(least, sample->us[i]);
        most = fmax(most, sample->us[i]);
    }
    printf(" %9.*f %9.*f %9.*f ", decimals(us), us, decimals(least), least, decimals(most), most);
    if (table->bench->check) {
        printf("%6zu", sample->wrong);
    } else {
        printf("%6s", "-");
    }
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
    printf("  %9.*f %8.2f %8.2f %6s", decimals(us), us, algbw, busbw, wrong);
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

static void print_row(weft_table_t *table, const weft_row_t *row)
{
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
    if (is_barrier(row->collective)) {
        print_barrier(table, &row->out_of_place);
    } else {
        print_row(table, row);
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
