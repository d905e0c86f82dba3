/* Plots as SVG inside a page (page.h has the colours): lines, bars, ratios with intervals, heat
 * maps, timelines. A plot is a <figure> with its title, a legend of HTML that wraps, and the
 * drawing. Marks carry their value as <title>, which browsers show without scripts; lines carry
 * theirs in data-v, which the page's script shows.
 *
 *     weft_plot_t plot = {.title = "loss", .x = {.label = "step"}, .y = {.label = "nats"}};
 *     weft__plot_lines(out, &plot, series, count);
 *
 * What cannot be drawn on an axis (not finite, 0 on a logarithmic one) is left out: a line has a
 * gap there. Writing fails late: whoever owns `out` asks it at the end. */
#ifndef WEFT_REPORT_PLOT_H
#define WEFT_REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/number.h"

#define WEFT_PLOT_COLORS 8 /* c0 to c7 of the page; later ones begin again */

/* What figures have in common. */
typedef struct weft_plot {
    const char *title;
    const char *note; /* a sentence below the title; NULL: none */
    weft_axis_t x, y; /* what is marked "set" */
    double reference; /* a line across at this value of the axis of values; 0: none */
} weft_plot_t;

void weft__figure_open(FILE *out, const char *title, const char *note);
void weft__figure_close(FILE *out);

/* One entry of a legend. */
typedef struct weft_legend_entry {
    const char *name;
    int color;
    bool line, dashed, marker; /* a line, with a marker; a field if it is no line */
} weft_legend_entry_t;

void weft__legend_open(FILE *out);
void weft__legend_entry(FILE *out, const weft_legend_entry_t *entry);
void weft__legend_close(FILE *out);

/* ---- lines ---------------------------------------------------------------------------------- */

typedef struct weft_series {
    const char *name;
    const double *x, *y;
    const double *low, *high; /* error bars; NULL: none */
    size_t count;
    int color;
    bool dashed;
    bool points; /* no line between them */
} weft_series_t;

void weft__plot_lines(FILE *out, const weft_plot_t *plot, const weft_series_t *series, int count);

/* Choose at most `most` (4 or more) of the points, for a plot of some hundred pixels: of each run
 * of neighbours the least and the greatest value, so that no peak is lost, and the first and last.
 * Into `keep_x` and `keep_y` (room for `most`); returns how many. Values that are not finite stay
 * as gaps where a whole run has no other. */
size_t weft__series_thin(const double *x, const double *y, size_t count, size_t most,
                         double *keep_x, double *keep_y);

/* ---- bars ----------------------------------------------------------------------------------- */

/* One bar, from the left, of parts that are stacked. */
typedef struct weft_bar {
    const char *label;
    const double *parts; /* `part_count` of the plot; NaN or below 0: 0 */
    double low, high;    /* error bar of the sum; both 0: none */
    const char *text;    /* beside it; NULL: the sum */
} weft_bar_t;

/* The parts of bars; without a name they have no legend. */
typedef struct weft_bar_part {
    const char *name;
    int color;
} weft_bar_part_t;

/* plot->x is the axis of values. */
void weft__plot_bars(FILE *out, const weft_plot_t *plot, const weft_bar_part_t *parts,
                     int part_count, const weft_bar_t *bars, int count);

/* ---- ratios with intervals ------------------------------------------------------------------ */

typedef enum weft_verdict {
    WEFT_VERDICT_NONE,
    WEFT_VERDICT_FASTER,
    WEFT_VERDICT_SLOWER,
    WEFT_VERDICT_SAME,
    WEFT_VERDICT_NOISY, /* cannot be told */
    WEFT_VERDICTS
} weft_verdict_t;

typedef struct weft_ratio {
    const char *label;
    double ratio;
    double low, high; /* NaN: no interval */
    weft_verdict_t verdict;
} weft_ratio_t;

/* plot->x is the axis of ratios. */
void weft__plot_ratios(FILE *out, const weft_plot_t *plot, const weft_ratio_t *rows, int count);

/* ---- heat map ------------------------------------------------------------------------------- */

typedef struct weft_heat {
    const char *title, *note, *unit;
    int size;                 /* rows and columns; ranks */
    const double *values;     /* [from * size + to]; NaN: nothing */
    const bool *marked;       /* cells with a frame around; NULL: none */
    const char *const *texts; /* what else is told of a cell; NULL, or NULL for a cell: nothing */
} weft_heat_t;

void weft__plot_heat(FILE *out, const weft_heat_t *heat);

/* ---- timeline ------------------------------------------------------------------------------- */

typedef struct weft_plot_row {
    const char *group, *label; /* the group's name is written where it changes */
} weft_plot_row_t;

typedef struct weft_plot_span {
    int row, color;
    double start, end; /* milliseconds */
    const char *name;
} weft_plot_span_t;

typedef struct weft_plot_timeline {
    const char *title, *note;
    double end; /* from 0 */
    const weft_plot_row_t *rows;
    int row_count;
    const weft_plot_span_t *spans; /* by row, then start */
    size_t span_count;
    const weft_legend_entry_t *legend;
    int legend_count;
} weft_plot_timeline_t;

/* Spans narrower than a part of a pixel, right behind another one, are not drawn; returns how many
 * those are. */
size_t weft__plot_timeline(FILE *out, const weft_plot_timeline_t *timeline);

#endif
