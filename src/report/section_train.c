/* Results of weft train --benchmark: throughput, where the time goes, memory by kind. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section.h"
#include "report/shares.h"
#include "report/values.h"

#define LINES_MOST 16
#define POINTS_MOST 300

/* ---- lines ---------------------------------------------------------------------------------- */

typedef struct lines {
    weft_series_t series[LINES_MOST];
    double x[LINES_MOST][POINTS_MOST], y[LINES_MOST][POINTS_MOST];
    int count;
} lines_t;

static weft_status_t add_line(lines_t *lines, const weft_input_t *input, const char *key,
                              bool several)
{
    const weft_json_value_t *list = weft__value_array(input->doc.root, key);
    double *values, *steps;
    size_t count;
    if (list == NULL || lines->count == LINES_MOST) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__value_list(list, &values, &count));
    weft_status_t status = weft__values_alloc(&steps, count, sizeof(*steps));
    if (status == WEFT_OK && count > 0) {
        int line = lines->count++;
        for (size_t i = 0; i < count; i++) {
            steps[i] = (double)(i + 1);
        }
        size_t kept = weft__series_thin(steps, values, count, POINTS_MOST, lines->x[line],
                                        lines->y[line]);
        lines->series[line] = (weft_series_t){.name = several ? input->label : NULL,
                                              .x = lines->x[line],
                                              .y = lines->y[line],
                                              .count = kept,
                                              .color = line};
    }
    if (status == WEFT_OK) {
        free(steps);
    }
    free(values);
    return status;
}

static weft_status_t draw_lines(const weft_report_t *report, const char *key,
                                const weft_plot_t *plot, FILE *out)
{
    bool several = weft__input_count(report, WEFT_INPUT_TRAIN) > 1;
    lines_t *lines;
    weft_status_t status = WEFT_OK;
    WEFT_TRY(weft__values_alloc(&lines, 1, sizeof(*lines)));
    for (const weft_input_t *input = NULL;
         status == WEFT_OK &&
         (input = weft__input_next(report, WEFT_INPUT_TRAIN, input)) != NULL;) {
        status = add_line(lines, input, key, several);
    }
    if (status == WEFT_OK && lines->count > 0) {
        weft__plot_lines(out, plot, lines->series, lines->count);
    }
    free(lines);
    return status;
}

/* ---- bars ----------------------------------------------------------------------------------- */

static weft_status_t draw_shares(const weft_report_t *report, const char *key, double sum,
                                 const weft_plot_t *plot, FILE *out)
{
    weft_shares_t *shares;
    WEFT_TRY(weft__values_alloc(&shares, 1, sizeof(*shares)));
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_TRAIN, input)) != NULL;) {
        weft__shares_add(shares, input->label, weft__value_object(input->doc.root, key), NAN, sum);
    }
    weft__shares_draw(shares, plot, out);
    free(shares);
    return WEFT_OK;
}

/* A plan may be a text, or an object of sizes. */
static void put_plan(const weft_json_value_t *value, FILE *out)
{
    char room[64];
    bool first = true;
    fputs("<td>", out);
    if (value != NULL && value->kind == WEFT_JSON_OBJECT) {
        for (const weft_json_value_t *key = weft__json_first(value); key != NULL;
             key = weft__json_next(value, key)) {
            fputs(first ? "" : ", ", out);
            weft__html_bytes(out, key->as.text, key->length);
            fputc(' ', out);
            weft__html_text(out, weft__value_shown(key + 1, room, sizeof(room)));
            first = false;
        }
    } else {
        weft__html_text(out, weft__value_shown(value, room, sizeof(room)));
    }
    fputs("</td>", out);
}

static weft_status_t write_row(const weft_input_t *input, FILE *out)
{
    const weft_json_value_t *root = input->doc.root;
    double *steps;
    size_t count;
    char text[WEFT_NUMBER_TEXT];
    WEFT_TRY(weft__value_list(weft__value_array(root, "step_ms"), &steps, &count));
    double median = weft__values_median(steps, count);
    free(steps);
    double rate = weft__value_number(root, "tokens_per_s"), mfu = weft__value_number(root, "mfu");
    double ranks = weft__value_number(root, "ranks");
    weft__html_row(out);
    weft__html_cell(out, input->label);
    put_plan(weft__json_get(root, "model"), out);
    put_plan(weft__json_get(root, "plan"), out);
    weft__html_number(out, ranks, weft__number_text(text, ranks, WEFT_NUMBER_PLAIN));
    weft__html_number(out, rate, weft__number_text(text, rate, WEFT_NUMBER_SI));
    weft__html_number(out, mfu, weft__number_text(text, mfu, WEFT_NUMBER_PERCENT));
    weft__html_number(out, median, weft__number_text(text, median, WEFT_NUMBER_PLAIN));
    weft__html_row_end(out);
    return WEFT_OK;
}

static weft_status_t write_table(const weft_report_t *report, FILE *out)
{
    static const char *const columns[] = {"file", "model",           "plan", "#ranks", "#tokens/s",
                                          "#MFU", "#step ms, median"};
    weft__html_table(out, columns, 7);
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_TRAIN, input)) != NULL;) {
        WEFT_TRY(write_row(input, out));
    }
    weft__html_table_end(out);
    return WEFT_OK;
}

weft_status_t weft__section_train(const weft_report_t *report, FILE *out)
{
    if (weft__input_count(report, WEFT_INPUT_TRAIN) == 0) {
        return WEFT_OK;
    }
    const weft_plot_t time = {.title = "Where a step's time goes",
                              .x = {.label = "of the step", .format = WEFT_NUMBER_PERCENT}};
    const weft_plot_t memory = {.title = "Memory of a rank, by kind",
                                .x = {.label = "bytes", .format = WEFT_NUMBER_BYTES}};
    const weft_plot_t steps = {.title = "Time of a step",
                               .x = {.label = "step", .whole = true},
                               .y = {.label = "milliseconds", .from_zero = true}};
    const weft_plot_t loss = {.title = "Loss of the benchmark",
                              .x = {.label = "step", .whole = true},
                              .y = {.label = "nats per token"}};
    WEFT_TRY(write_table(report, out));
    weft__grid_open(out);
    WEFT_TRY(draw_shares(report, "time", 1, &time, out));
    WEFT_TRY(draw_shares(report, "memory", NAN, &memory, out));
    WEFT_TRY(draw_lines(report, "step_ms", &steps, out));
    WEFT_TRY(draw_lines(report, "loss", &loss, out));
    weft__grid_close(out);
    return WEFT_OK;
}
