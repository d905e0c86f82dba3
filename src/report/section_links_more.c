#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section_links.h"
#include "report/values.h"

#define LABEL_BYTES 120
#define BARS_MOST 64 /* of a plot */
#define LINES_MOST 8
#define POINTS_MOST 64

/* Bars of one part each. */
typedef struct bars {
    weft_bar_t at[BARS_MOST];
    double values[BARS_MOST];
    char labels[BARS_MOST][LABEL_BYTES];
    int count;
    int more; /* did not fit */
} bars_t;

static void add_bar(bars_t *bars, double value, const char *before, const char *after)
{
    if (isnan(value)) {
        return;
    }
    if (bars->count == BARS_MOST) {
        bars->more++;
        return;
    }
    int i = bars->count++;
    snprintf(bars->labels[i], LABEL_BYTES, "%.50s%.50s", before, after);
    bars->values[i] = value;
    bars->at[i] = (weft_bar_t){.label = bars->labels[i], .parts = &bars->values[i]};
}

static void draw_bars(const bars_t *bars, const char *title, const char *note, FILE *out)
{
    char more[200];
    weft_plot_t plot = {.title = title, .note = note, .x = {.label = "GB/s"}};
    if (bars->more > 0) {
        snprintf(more, sizeof(more), "%s %d more are not shown.", note, bars->more);
        plot.note = more;
    }
    if (bars->count > 0) {
        weft__plot_bars(out, &plot, &(weft_bar_part_t){.name = NULL}, 1, bars->at, bars->count);
    }
}

static void draw_permutations(const weft_json_value_t *root, bars_t *bars, FILE *out)
{
    const weft_json_value_t *list = weft__value_array(root, "permutations");
    *bars = (bars_t){.count = 0};
    for (const weft_json_value_t *at = list != NULL ? weft__json_first(list) : NULL; at != NULL;
         at = weft__json_next(list, at)) {
        char room[64];
        add_bar(bars, weft__value_number(at, "gbs"), "shift by ",
                weft__value_shown(weft__json_get(at, "shift"), room, sizeof(room)));
    }
    draw_bars(bars, "Shifted permutations", "Every rank sends to the one so many ranks on.", out);
}

static void draw_exchange(const weft_json_value_t *root, bars_t *bars, FILE *out)
{
    const weft_json_value_t *object = weft__value_object(root, "alltoall");
    const weft_json_value_t *list = weft__value_array(object, "gbs");
    double sum = weft__value_number(object, "sum_gbs"), number;
    char note[100] = "", text[WEFT_NUMBER_TEXT];
    int rank = 0;
    *bars = (bars_t){.count = 0};
    for (const weft_json_value_t *at = list != NULL ? weft__json_first(list) : NULL; at != NULL;
         at = weft__json_next(list, at), rank++) {
        snprintf(text, sizeof(text), "%d", rank);
        number = NAN;
        weft__json_to_double(at, &number);
        add_bar(bars, isfinite(number) ? number : NAN, "rank ", text);
    }
    if (!isnan(sum)) {
        snprintf(note, sizeof(note), "All ranks together: %s GB/s.",
                 weft__number_text(text, sum, WEFT_NUMBER_PLAIN));
    }
    draw_bars(bars, "All-to-all, by rank", note, out);
}

static void draw_memory(const weft_json_value_t *root, bars_t *bars, FILE *out)
{
    const weft_json_value_t *list = weft__value_array(root, "memory");
    *bars = (bars_t){.count = 0};
    for (const weft_json_value_t *at = list != NULL ? weft__json_first(list) : NULL; at != NULL;
         at = weft__json_next(list, at)) {
        char before[60];
        snprintf(before, sizeof(before), "%.40s ", weft__value_text(at, "where"));
        add_bar(bars, weft__value_number(at, "gbs"), before, weft__value_text(at, "what"));
    }
    draw_bars(bars, "Memory, by where it lies", "", out);
}

/* ---- all-reduce by algorithm ---------------------------------------------------------------- */

typedef struct lines {
    weft_series_t series[LINES_MOST];
    double x[LINES_MOST][POINTS_MOST], y[LINES_MOST][POINTS_MOST];
    int count;
} lines_t;

static void add_point(lines_t *lines, const weft_json_value_t *point)
{
    const char *name = weft__value_text(point, "algorithm");
    double bytes = weft__value_number(point, "bytes"), us = weft__value_number(point, "us");
    int i = 0;
    while (i < lines->count && strcmp(lines->series[i].name, name) != 0) {
        i++;
    }
    if (i == LINES_MOST || isnan(bytes) || isnan(us)) {
        return;
    }
    if (i == lines->count) {
        lines->series[lines->count++] = (weft_series_t){
            .name = name, .x = lines->x[i], .y = lines->y[i], .color = i};
    }
    size_t at = lines->series[i].count;
    if (at < POINTS_MOST) {
        lines->x[i][at] = bytes;
        lines->y[i][at] = us;
        lines->series[i].count++;
    }
}

static weft_status_t draw_algorithms(const weft_json_value_t *root, FILE *out)
{
    const weft_json_value_t *list = weft__value_array(root, "allreduce");
    lines_t *lines;
    const weft_plot_t plot = {
        .title = "All-reduce, by algorithm",
        .x = {.label = "size", .scale = WEFT_AXIS_LOG2, .format = WEFT_NUMBER_BYTES},
        .y = {.label = "microseconds", .scale = WEFT_AXIS_LOG10}};
    WEFT_TRY(weft__values_alloc(&lines, 1, sizeof(*lines)));
    for (const weft_json_value_t *at = list != NULL ? weft__json_first(list) : NULL; at != NULL;
         at = weft__json_next(list, at)) {
        add_point(lines, at);
    }
    if (lines->count > 0) {
        weft__plot_lines(out, &plot, lines->series, lines->count);
    }
    free(lines);
    return WEFT_OK;
}

weft_status_t weft__links_more(const weft_json_value_t *root, FILE *out)
{
    bars_t *bars;
    WEFT_TRY(weft__values_alloc(&bars, 1, sizeof(*bars)));
    weft__grid_open(out);
    draw_permutations(root, bars, out);
    draw_exchange(root, bars, out);
    draw_memory(root, bars, out);
    weft_status_t status = draw_algorithms(root, out);
    weft__grid_close(out);
    free(bars);
    return status;
}
