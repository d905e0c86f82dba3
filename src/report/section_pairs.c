/* Two ways of one task: ratios with their intervals and verdicts. From weft pairs, and from the
 * pairs of weft bench, which have no intervals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section.h"
#include "report/values.h"

#define LABEL_BYTES 160
#define ROWS_MOST 60 /* of a plot; more go into further ones */

typedef struct row {
    const weft_input_t *input;
    const char *group, *name, *way, *baseline;
    double bytes, us, baseline_us; /* NaN: not known */
    double ratio, low, high, wrong;
    weft_verdict_t verdict;
    const char *verdict_text;
    char label[LABEL_BYTES];
} row_t;

typedef struct rows {
    row_t *at;
    size_t count, room, unreadable;
} rows_t;

/* ---- reading -------------------------------------------------------------------------------- */

static double median_of(const weft_json_value_t *object, const char *key)
{
    double *numbers;
    size_t count;
    if (weft__value_list(weft__json_get(object, key), &numbers, &count) != WEFT_OK) {
        return NAN;
    }
    double median = weft__values_median(numbers, count);
    free(numbers);
    return median;
}

static weft_verdict_t verdict_of(const char *text)
{
    return strcmp(text, "faster") == 0     ? WEFT_VERDICT_FASTER
           : strcmp(text, "slower") == 0   ? WEFT_VERDICT_SLOWER
           : strcmp(text, "the same") == 0 ? WEFT_VERDICT_SAME
           : strcmp(text, "noisy") == 0    ? WEFT_VERDICT_NOISY
                                           : WEFT_VERDICT_NONE;
}

static weft_status_t add(rows_t *rows, const row_t *row)
{
    if (rows->count == rows->room) {
        size_t room = rows->room == 0 ? 64 : 2 * rows->room;
        row_t *at = realloc(rows->at, room * sizeof(*at));
        if (at == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu pairs", room);
        }
        rows->at = at;
        rows->room = room;
    }
    row_t *kept = &rows->at[rows->count++];
    char size[WEFT_NUMBER_TEXT] = "";
    *kept = *row;
    if (row->bytes > 0) {
        weft__number_text(size, row->bytes, WEFT_NUMBER_BYTES);
    }
    snprintf(kept->label, LABEL_BYTES, "%.90s%s%.40s%s%s", row->name,
             row->way[0] != '\0' ? ": " : "", row->way, size[0] != '\0' ? ", " : "", size);
    return WEFT_OK;
}

static weft_status_t read_ways(rows_t *rows, const weft_json_value_t *pair, row_t row)
{
    const weft_json_value_t *ways = weft__value_array(pair, "ways");
    rows->unreadable += ways == NULL;
    for (const weft_json_value_t *way = ways != NULL ? weft__json_first(ways) : NULL; way != NULL;
         way = weft__json_next(ways, way)) {
        row.way = weft__value_text(way, "name");
        row.us = weft__value_number(way, "median_us");
        row.us = isnan(row.us) ? median_of(way, "us") : row.us;
        row.ratio = weft__value_number(way, "ratio");
        row.ratio = isnan(row.ratio) ? row.baseline_us / row.us : row.ratio;
        row.low = weft__value_number(way, "low");
        row.high = weft__value_number(way, "high");
        row.verdict_text = weft__value_text(way, "verdict");
        row.verdict = verdict_of(row.verdict_text);
        WEFT_TRY(add(rows, &row));
    }
    return WEFT_OK;
}

static weft_status_t read_pairs(rows_t *rows, const weft_input_t *input)
{
    const weft_json_value_t *pairs = weft__value_array(input->doc.root, "pairs");
    for (const weft_json_value_t *pair = pairs != NULL ? weft__json_first(pairs) : NULL;
         pair != NULL; pair = weft__json_next(pairs, pair)) {
        row_t row = {.input = input,
                     .group = weft__value_text(pair, "group"),
                     .name = weft__value_text(pair, "name"),
                     .baseline = weft__value_text(pair, "baseline"),
                     .bytes = weft__value_number(pair, "bytes"),
                     .baseline_us = weft__value_number(pair, "baseline_median_us"),
                     .wrong = weft__value_number(pair, "wrong")};
        row.baseline_us = isnan(row.baseline_us) ? median_of(pair, "baseline_us") : row.baseline_us;
        WEFT_TRY(read_ways(rows, pair, row));
    }
    return WEFT_OK;
}

/* weft bench halo: times of one way, and of the other one where there is one. */
static weft_status_t read_bench(rows_t *rows, const weft_input_t *input)
{
    const weft_json_value_t *results = weft__value_array(input->doc.root, "results");
    for (const weft_json_value_t *at = results != NULL ? weft__json_first(results) : NULL;
         at != NULL; at = weft__json_next(results, at)) {
        if (weft__json_get(at, "target") == NULL) {
            continue;
        }
        row_t row = {.input = input,
                     .group = "weft bench",
                     .name = weft__value_text(at, "target"),
                     .way = weft__value_text(at, "name"),
                     .baseline = weft__value_text(at, "other"),
                     .bytes = weft__value_number(at, "bytes"),
                     .us = median_of(at, "us"),
                     .baseline_us = median_of(at, "other_us"),
                     .low = NAN,
                     .high = NAN,
                     .wrong = weft__value_number(at, "wrong"),
                     .verdict_text = ""};
        row.ratio = row.us > 0 ? row.baseline_us / row.us : NAN;
        WEFT_TRY(add(rows, &row));
    }
    return WEFT_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Rows of one group of one file, ROWS_MOST at a time, where there is a ratio. */
static void draw_group(const rows_t *rows, size_t from, size_t to, weft_ratio_t *ratios, FILE *out)
{
    const row_t *first = &rows->at[from];
    bool intervals = false;
    char title[300];
    int count = 0;
    snprintf(title, sizeof(title), "%.120s%s%.120s", first->group,
             first->group[0] != '\0' ? ", " : "", first->input->label);
    weft_plot_t plot = {.title = title,
                        .x = {.label = "times as fast as the baseline",
                              .scale = WEFT_AXIS_LOG10,
                              .format = WEFT_NUMBER_PLAIN}};
    for (size_t i = from; i < to; i++) {
        const row_t *row = &rows->at[i];
        if (!isnan(row->ratio)) {
            ratios[count++] = (weft_ratio_t){row->label, row->ratio, row->low, row->high,
                                             row->verdict};
            intervals = intervals || !isnan(row->low);
        }
    }
    /* weft pairs compares inside each block; weft bench has no blocks */
    plot.note = first->input->kind == WEFT_INPUT_BENCH ? "Ratio of the medians."
                : intervals ? "Median of the ratios of the blocks, and its 95% interval."
                            : "Median of the ratios of the blocks.";
    for (int at = 0; at < count; at += ROWS_MOST) {
        weft__plot_ratios(out, &plot, ratios + at, count - at < ROWS_MOST ? count - at : ROWS_MOST);
    }
}

static weft_status_t draw_groups(const rows_t *rows, FILE *out)
{
    weft_ratio_t *ratios;
    WEFT_TRY(weft__values_alloc(&ratios, rows->count, sizeof(*ratios)));
    weft__grid_open(out);
    for (size_t from = 0, to; from < rows->count; from = to) {
        for (to = from + 1; to < rows->count && rows->at[to].input == rows->at[from].input &&
                            strcmp(rows->at[to].group, rows->at[from].group) == 0;
             to++) {
        }
        draw_group(rows, from, to, ratios, out);
    }
    weft__grid_close(out);
    free(ratios);
    return WEFT_OK;
}

static void put_us(FILE *out, double us)
{
    char text[WEFT_NUMBER_TEXT];
    weft__html_number(out, us, weft__number_text(text, us, WEFT_NUMBER_PLAIN));
}

static void write_row(const row_t *row, FILE *out)
{
    char text[WEFT_NUMBER_TEXT], more[WEFT_NUMBER_TEXT], interval[80] = "";
    weft__html_row(out);
    weft__html_cell(out, row->input->label);
    weft__html_cell(out, row->group);
    weft__html_cell(out, row->name);
    weft__html_cell(out, row->way);
    weft__html_cell(out, row->baseline);
    double bytes = row->bytes > 0 ? row->bytes : NAN;
    weft__html_number(out, bytes, weft__number_text(text, bytes, WEFT_NUMBER_BYTES));
    put_us(out, row->us);
    put_us(out, row->baseline_us);
    put_us(out, row->ratio);
    if (!isnan(row->low) && !isnan(row->high)) {
        snprintf(interval, sizeof(interval), "%s to %s",
                 weft__number_text(text, row->low, WEFT_NUMBER_PLAIN),
                 weft__number_text(more, row->high, WEFT_NUMBER_PLAIN));
    }
    weft__html_cell(out, interval);
    weft__html_cell(out, row->verdict_text);
    weft__html_number(out, row->wrong, weft__number_text(text, row->wrong, WEFT_NUMBER_PLAIN));
    weft__html_row_end(out);
}

static void write_table(const rows_t *rows, FILE *out)
{
    static const char *const columns[] = {"file",     "group",        "pair",    "way",
                                          "baseline", "#size",        "#us",     "#baseline us",
                                          "#ratio",   "95% interval", "verdict", "#wrong"};
    weft__html_table(out, columns, 12);
    for (size_t i = 0; i < rows->count; i++) {
        write_row(&rows->at[i], out);
    }
    weft__html_table_end(out);
}

weft_status_t weft__section_pairs(const weft_report_t *report, FILE *out)
{
    rows_t rows = {0};
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < report->count && status == WEFT_OK; i++) {
        const weft_input_t *input = &report->inputs[i];
        status = input->kind == WEFT_INPUT_PAIRS   ? read_pairs(&rows, input)
                 : input->kind == WEFT_INPUT_BENCH ? read_bench(&rows, input)
                                                   : WEFT_OK;
    }
    if (rows.unreadable > 0) {
        char text[100];
        snprintf(text, sizeof(text),
                 "Pairs without ways that can be shown, which are left out: %zu.", rows.unreadable);
        weft__note(out, text);
    }
    if (status == WEFT_OK && rows.count > 0) {
        status = draw_groups(&rows, out);
        write_table(&rows, out);
    }
    free(rows.at);
    return status;
}
