/* Loss, throughput and what else metrics.jsonl has, over steps; several runs in one plot. */
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

#define POINTS_MOST 300 /* of a line */
#define POINTS_ALL 900  /* of the lines of one plot */
#define POINTS_LEAST 40 /* of a line, however many there are */
#define LINES_MOST 24   /* of a plot; later runs are told of */

typedef struct line {
    weft_column_t column;
    const char *name; /* if there is one run; behind the run's name otherwise, where it has several
                       * lines in the plot */
    bool points;
    int color; /* if there is one run */
} line_t;

typedef struct view {
    weft_plot_t plot;
    line_t lines[5]; /* of each run; those after the first one only where there is one run */
    int count;
} view_t;

#define STEPS                                                                                      \
    {                                                                                              \
        .label = "step"                                                                            \
    }

static const view_t views[] = {
    {.plot = {.title = "Loss", .x = STEPS, .y = {.label = "cross entropy, nats per token"}},
     .lines = {{WEFT_COLUMN_LOSS, "training", false, 0},
               {WEFT_COLUMN_EVAL_LOSS, "validation", true, 1}},
     .count = 2},
    {.plot = {.title = "Throughput",
              .x = STEPS,
              .y = {.label = "tokens/s, all ranks", .format = WEFT_NUMBER_SI, .from_zero = true}},
     .lines = {{WEFT_COLUMN_TOKENS_PER_S, NULL, false, 0}},
     .count = 1},
    {.plot = {.title = "Learning rate", .x = STEPS, .y = {.label = "", .from_zero = true}},
     .lines = {{WEFT_COLUMN_RATE, NULL, false, 0}},
     .count = 1},
    {.plot = {.title = "Gradient norm", .x = STEPS, .y = {.label = "before clipping"}},
     .lines = {{WEFT_COLUMN_NORM, NULL, false, 0}},
     .count = 1},
    {.plot = {.title = "Where a step's time goes beside computing",
              .x = STEPS,
              .y = {.label = "of the step", .format = WEFT_NUMBER_PERCENT, .from_zero = true}},
     .lines = {{WEFT_COLUMN_COMM, "waiting for communication", false, 1},
               {WEFT_COLUMN_BUBBLE, "pipeline bubble", false, 3},
               {WEFT_COLUMN_TENSOR, "tensor parallel", false, 4},
               {WEFT_COLUMN_EXCHANGE, "exchange of gradients", false, 2},
               {WEFT_COLUMN_UPDATE, "optimizer", false, 6}},
     .count = 5},
    {.plot = {.title = "Model FLOPs utilization (MFU)",
              .x = STEPS,
              .y = {.label = "of the peak", .format = WEFT_NUMBER_PERCENT, .from_zero = true}},
     .lines = {{WEFT_COLUMN_MFU, NULL, false, 0}},
     .count = 1},
    {.plot = {.title = "Loss scale", .x = STEPS, .y = {.label = "", .scale = WEFT_AXIS_LOG2}},
     .lines = {{WEFT_COLUMN_SCALE, NULL, false, 0}},
     .count = 1},
};

/* ---- plots ---------------------------------------------------------------------------------- */

/* Points of one column, without the steps that have none. */
typedef struct thinned {
    char name[160]; /* if there are several runs */
    double x[POINTS_MOST], y[POINTS_MOST];
    size_t count;
} thinned_t;

static weft_status_t thin(const weft_input_t *input, weft_column_t column, size_t most,
                          thinned_t *thinned)
{
    double *x, *y;
    size_t count = 0;
    WEFT_TRY(weft__values_alloc(&x, 2 * input->count, sizeof(*x)));
    y = x + input->count;
    for (size_t i = 0; i < input->count; i++) {
        double value = input->columns[column][i];
        /* a loss that is not finite is a gap; other columns may have one value in many steps */
        if (!isnan(value) || column == WEFT_COLUMN_LOSS) {
            x[count] = input->columns[WEFT_COLUMN_STEP][i];
            y[count++] = value;
        }
    }
    thinned->count = weft__series_thin(x, y, count, most, thinned->x, thinned->y);
    free(x);
    return WEFT_OK;
}

static bool has_values(const thinned_t *thinned)
{
    for (size_t i = 0; i < thinned->count; i++) {
        if (isfinite(thinned->y[i])) {
            return true;
        }
    }
    return false;
}

static weft_status_t gather(const weft_report_t *report, const view_t *view, int runs,
                            thinned_t *points, weft_series_t *series, int *count_p)
{
    int wanted = runs == 1 ? view->count : view->lines[0].column == WEFT_COLUMN_LOSS ? 2 : 1;
    int lines = 0, run = 0;
    size_t most = POINTS_ALL / (size_t)(runs == 1 ? view->count : wanted * runs);
    most = most < POINTS_LEAST ? POINTS_LEAST : most > POINTS_MOST ? POINTS_MOST : most;
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_METRICS, input)) != NULL; run++) {
        for (int i = 0; i < wanted && lines < LINES_MOST; i++) {
            const line_t *line = &view->lines[i];
            WEFT_TRY(thin(input, line->column, most, &points[lines]));
            if (has_values(&points[lines])) {
                snprintf(points[lines].name, sizeof(points[lines].name), "%.120s%s%s", input->label,
                         wanted > 1 ? ", " : "", wanted > 1 ? line->name : "");
                series[lines] = (weft_series_t){.name = runs == 1 ? line->name : points[lines].name,
                                                .x = points[lines].x,
                                                .y = points[lines].y,
                                                .count = points[lines].count,
                                                .color = runs == 1 ? line->color : run,
                                                .points = line->points};
                lines++;
            }
        }
    }
    *count_p = lines;
    return WEFT_OK;
}

static weft_status_t draw_view(const weft_report_t *report, const view_t *view, int runs, FILE *out)
{
    thinned_t *points;
    weft_series_t series[LINES_MOST];
    int count = 0;
    WEFT_TRY(weft__values_alloc(&points, LINES_MOST, sizeof(*points)));
    weft_status_t status = gather(report, view, runs, points, series, &count);
    if (status == WEFT_OK && count > 0) {
        weft__plot_lines(out, &view->plot, series, count);
    }
    free(points);
    return status;
}

/* ---- figures in a row ----------------------------------------------------------------------- */

typedef struct summary {
    double steps, loss, eval_loss, tokens_per_s, mfu, memory, tokens;
} summary_t;

static double last_of(const weft_input_t *input, weft_column_t column)
{
    for (size_t i = input->count; i > 0; i--) {
        if (!isnan(input->columns[column][i - 1])) {
            return input->columns[column][i - 1];
        }
    }
    return NAN;
}

static double greatest_of(const weft_input_t *input, weft_column_t column)
{
    double most = NAN;
    for (size_t i = 0; i < input->count; i++) {
        most = fmax(most, input->columns[column][i]);
    }
    return most;
}

static weft_status_t middle_of(const weft_input_t *input, weft_column_t column, double *out_p)
{
    double *values;
    size_t count = 0;
    WEFT_TRY(weft__values_alloc(&values, input->count, sizeof(*values)));
    for (size_t i = 0; i < input->count; i++) {
        if (!isnan(input->columns[column][i])) {
            values[count++] = input->columns[column][i];
        }
    }
    *out_p = weft__values_median(values, count);
    free(values);
    return WEFT_OK;
}

static weft_status_t summarize(const weft_input_t *input, summary_t *summary)
{
    summary->steps = last_of(input, WEFT_COLUMN_STEP);
    summary->loss = last_of(input, WEFT_COLUMN_LOSS);
    summary->eval_loss = last_of(input, WEFT_COLUMN_EVAL_LOSS);
    summary->memory = greatest_of(input, WEFT_COLUMN_MEMORY);
    summary->tokens = last_of(input, WEFT_COLUMN_TOKENS);
    WEFT_TRY(middle_of(input, WEFT_COLUMN_MFU, &summary->mfu));
    return middle_of(input, WEFT_COLUMN_TOKENS_PER_S, &summary->tokens_per_s);
}

typedef struct figure {
    const char *name, *column;
    size_t offset;
    weft_number_format_t format;
} figure_t;

static const figure_t figures[] = {
    {"steps", "#steps", offsetof(summary_t, steps), WEFT_NUMBER_PLAIN},
    {"loss, last step", "#last loss", offsetof(summary_t, loss), WEFT_NUMBER_PLAIN},
    {"validation loss, last", "#validation loss", offsetof(summary_t, eval_loss),
     WEFT_NUMBER_PLAIN},
    {"tokens/s, median", "#tokens/s", offsetof(summary_t, tokens_per_s), WEFT_NUMBER_SI},
    {"MFU, median", "#MFU", offsetof(summary_t, mfu), WEFT_NUMBER_PERCENT},
    {"peak memory of a rank", "#peak memory", offsetof(summary_t, memory), WEFT_NUMBER_BYTES},
    {"tokens seen", "#tokens", offsetof(summary_t, tokens), WEFT_NUMBER_SI},
};
#define FIGURES ((int)(sizeof(figures) / sizeof(figures[0])))

static double figure_of(const summary_t *summary, int figure)
{
    double value;
    memcpy(&value, (const char *)summary + figures[figure].offset, sizeof(value));
    return value;
}

static weft_status_t write_tiles(const weft_input_t *input, FILE *out)
{
    char text[WEFT_NUMBER_TEXT];
    summary_t summary;
    WEFT_TRY(summarize(input, &summary));
    weft__tiles_open(out);
    for (int i = 0; i < FIGURES; i++) {
        double value = figure_of(&summary, i);
        if (isfinite(value)) {
            weft__tile(out, weft__number_text(text, value, figures[i].format), figures[i].name);
        }
    }
    weft__tiles_close(out);
    return WEFT_OK;
}

static weft_status_t write_table(const weft_report_t *report, FILE *out)
{
    const char *columns[FIGURES + 1] = {"run"};
    char text[WEFT_NUMBER_TEXT];
    for (int i = 0; i < FIGURES; i++) {
        columns[i + 1] = figures[i].column;
    }
    weft__html_table(out, columns, FIGURES + 1);
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_METRICS, input)) != NULL;) {
        summary_t summary;
        WEFT_TRY(summarize(input, &summary));
        weft__html_row(out);
        weft__html_cell(out, input->label);
        for (int i = 0; i < FIGURES; i++) {
            double value = figure_of(&summary, i);
            weft__html_number(out, value, weft__number_text(text, value, figures[i].format));
        }
        weft__html_row_end(out);
    }
    weft__html_table_end(out);
    return WEFT_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void write_notes(const weft_report_t *report, int runs, FILE *out)
{
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_METRICS, input)) != NULL;) {
        size_t lost = 0;
        char text[4400];
        for (size_t i = 0; i < input->count; i++) {
            lost += isnan(input->columns[WEFT_COLUMN_LOSS][i]);
        }
        if (lost > 0) {
            snprintf(text, sizeof(text), "%s: the loss of %zu step%s is not finite: a gap there.",
                     input->path, lost, lost == 1 ? "" : "s");
            weft__note(out, text);
        }
        if (input->torn) {
            snprintf(text, sizeof(text),
                     "%s: the last line is cut short, as a killed run leaves it; it is not shown.",
                     input->path);
            weft__note(out, text);
        }
    }
    if (runs > LINES_MOST) {
        char text[100];
        snprintf(text, sizeof(text), "Plots show the first %d runs of %d.", LINES_MOST, runs);
        weft__note(out, text);
    }
}

weft_status_t weft__section_metrics(const weft_report_t *report, FILE *out)
{
    int runs = weft__input_count(report, WEFT_INPUT_METRICS);
    if (runs == 0) {
        return WEFT_OK;
    }
    if (runs == 1) {
        WEFT_TRY(write_tiles(weft__input_next(report, WEFT_INPUT_METRICS, NULL), out));
    } else {
        WEFT_TRY(write_table(report, out));
    }
    write_notes(report, runs, out);
    weft__grid_open(out);
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        WEFT_TRY(draw_view(report, &views[i], runs, out));
    }
    weft__grid_close(out);
    return WEFT_OK;
}
