/* Lines over an axis, with markers where there are few points. */
#include <math.h>

#include "report/draw.h"
#include "report/html.h"
#include "report/plot.h"

#define HEIGHT 290
#define MARKERS_MOST 70 /* a longer line has none */

/* ---- thinning ------------------------------------------------------------------------------- */

/* The least and greatest finite values of [from, to): returns how many indices, in order. */
static int extremes(const double *y, size_t from, size_t to, size_t at[2])
{
    size_t least = to, most = to;
    for (size_t i = from; i < to; i++) {
        if (isfinite(y[i])) {
            least = least == to || y[i] < y[least] ? i : least;
            most = most == to || y[i] > y[most] ? i : most;
        }
    }
    if (least == to || least == most) { /* a gap, or one value */
        at[0] = least == to ? from : least;
        return 1;
    }
    at[0] = least < most ? least : most;
    at[1] = least < most ? most : least;
    return 2;
}

size_t weft__series_thin(const double *x, const double *y, size_t count, size_t most,
                         double *keep_x, double *keep_y)
{
    size_t kept = 0;
    if (count <= most) {
        for (; kept < count; kept++) {
            keep_x[kept] = x[kept];
            keep_y[kept] = y[kept];
        }
        return kept;
    }
    size_t runs = (most - 2) / 2, inner = count - 2;
    keep_x[kept] = x[0];
    keep_y[kept++] = y[0];
    for (size_t run = 0; run < runs; run++) {
        size_t at[2];
        size_t from = 1 + (size_t)((double)inner * (double)run / (double)runs);
        size_t to = 1 + (size_t)((double)inner * (double)(run + 1) / (double)runs);
        int found = extremes(y, from, to < count - 1 ? to : count - 1, at);
        for (int i = 0; i < found; i++) {
            keep_x[kept] = x[at[i]];
            keep_y[kept++] = y[at[i]];
        }
    }
    keep_x[kept] = x[count - 1];
    keep_y[kept++] = y[count - 1];
    return kept;
}

/* ---- drawing -------------------------------------------------------------------------------- */

typedef struct lines {
    weft_axis_t x, y;
    weft_frame_t frame;
} lines_t;

static double x_of(const lines_t *lines, double value)
{
    return lines->frame.left + lines->frame.width * weft__axis_at(&lines->x, value);
}

static double y_of(const lines_t *lines, double value)
{
    return lines->frame.top + lines->frame.height * (1 - weft__axis_at(&lines->y, value));
}

static bool shows(const lines_t *lines, const weft_series_t *series, size_t i)
{
    return weft__axis_shows(&lines->x, series->x[i]) && weft__axis_shows(&lines->y, series->y[i]);
}

static void draw_path(FILE *out, const lines_t *lines, const weft_series_t *series)
{
    bool pen_down = false;
    fprintf(out, "<path class=\"l c%d%s\" d=\"", series->color % WEFT_PLOT_COLORS,
            series->points   ? " no"
            : series->dashed ? " d"
                             : "");
    for (size_t i = 0; i < series->count; i++) {
        if (!shows(lines, series, i)) {
            pen_down = false;
            continue;
        }
        fputc(pen_down ? 'L' : 'M', out);
        weft__draw_at(out, x_of(lines, series->x[i]));
        fputc(' ', out);
        weft__draw_at(out, y_of(lines, series->y[i]));
        pen_down = true;
    }
    fputs("\" data-n=\"", out);
    weft__html_text(out, series->name);
    fputs("\" data-v=\"", out);
    for (size_t i = 0; i < series->count; i++) {
        if (shows(lines, series, i)) {
            fprintf(out, "%.10g,%.5g ", series->x[i], series->y[i]);
        }
    }
    fputs("\"/>\n", out);
}

static void draw_error_bars(FILE *out, const lines_t *lines, const weft_series_t *series)
{
    fprintf(out, "<path class=\"l c%d w\" d=\"", series->color % WEFT_PLOT_COLORS);
    for (size_t i = 0; i < series->count; i++) {
        if (shows(lines, series, i) && weft__axis_shows(&lines->y, series->low[i]) &&
            weft__axis_shows(&lines->y, series->high[i])) {
            fputc('M', out);
            weft__draw_at(out, x_of(lines, series->x[i]));
            fputc(' ', out);
            weft__draw_at(out, y_of(lines, series->low[i]));
            fputc('V', out);
            weft__draw_at(out, y_of(lines, series->high[i]));
        }
    }
    fputs("\"/>\n", out);
}

static void draw_markers(FILE *out, const lines_t *lines, const weft_series_t *series)
{
    char x[WEFT_NUMBER_TEXT], y[WEFT_NUMBER_TEXT];
    for (size_t i = 0; i < series->count; i++) {
        if (!shows(lines, series, i)) {
            continue;
        }
        fprintf(out, "<path class=\"f c%d\" d=\"", series->color % WEFT_PLOT_COLORS);
        weft__draw_marker(out, series->color, x_of(lines, series->x[i]), y_of(lines, series->y[i]));
        fputs("\"><title>", out);
        weft__html_text(out, series->name);
        fprintf(out, " %s: %s</title></path>\n",
                weft__number_text(x, series->x[i], lines->x.format),
                weft__number_text(y, series->y[i], lines->y.format));
    }
}

static void fit(lines_t *lines, const weft_series_t *series, int count)
{
    for (int i = 0; i < count; i++) {
        weft__axis_fit(&lines->x, series[i].x, series[i].count);
        weft__axis_fit(&lines->y, series[i].y, series[i].count);
        if (series[i].low != NULL) {
            weft__axis_fit(&lines->y, series[i].low, series[i].count);
            weft__axis_fit(&lines->y, series[i].high, series[i].count);
        }
    }
    double least = lines->x.least, most = lines->x.most;
    bool narrow = lines->x.scale == WEFT_AXIS_LINEAR && most > least;
    weft__axis_ready(&lines->y, 6);
    weft__axis_ready(&lines->x, 7);
    if (narrow) { /* a line goes from edge to edge: ticks stay inside */
        lines->x.least = least;
        lines->x.most = most;
        int kept = 0;
        for (int i = 0; i < lines->x.count; i++) {
            double tick = lines->x.ticks[i], room = 1e-9 * (most - least);
            if (tick >= least - room && tick <= most + room) {
                lines->x.ticks[kept++] = tick;
            }
        }
        lines->x.count = kept;
    }
}

static void draw_series(FILE *out, const lines_t *lines, const weft_series_t *series)
{
    if (series->low != NULL) {
        draw_error_bars(out, lines, series);
    }
    draw_path(out, lines, series);
    if (series->points || series->count <= MARKERS_MOST) {
        draw_markers(out, lines, series);
    }
}

static void draw_legend(FILE *out, const weft_series_t *series, int count)
{
    weft__legend_open(out);
    for (int i = 0; i < count; i++) {
        const weft_legend_entry_t entry = {
            .name = series[i].name,
            .color = series[i].color,
            .line = !series[i].points,
            .dashed = series[i].dashed,
            .marker = series[i].points || series[i].count <= MARKERS_MOST,
        };
        weft__legend_entry(out, &entry);
    }
    weft__legend_close(out);
}

/* What the page's script needs to find the point below the pointer. */
static void draw_hover(FILE *out, const lines_t *lines)
{
    static const char *const scales[] = {"linear", "log", "log"};
    static const char *const formats[] = {"plain", "si", "bytes", "percent"};
    const weft_axis_t *x = &lines->x;
    fprintf(out, "<rect class=\"hover\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
            lines->frame.left, lines->frame.top, lines->frame.width, lines->frame.height);
    fprintf(out, " data-x=\"%.10g %.10g %s %s\" data-y=\"%s\" data-l=\"", x->least, x->most,
            scales[x->scale], formats[x->format], formats[lines->y.format]);
    weft__html_text(out, x->label);
    fputs("\"/>\n", out);
}

void weft__plot_lines(FILE *out, const weft_plot_t *plot, const weft_series_t *series, int count)
{
    lines_t lines = {.x = plot->x, .y = plot->y};
    fit(&lines, series, count);
    double left = 14 + WEFT_DRAW_CHAR * weft__draw_tick_length(&lines.y);
    lines.frame = (weft_frame_t){left, 24, WEFT_DRAW_WIDTH - left - 22, HEIGHT - 24 - 42};
    weft__figure_open(out, plot->title, plot->note);
    if (count > 1 || series[0].name != NULL) {
        draw_legend(out, series, count);
    }
    weft__draw_open(out, plot->title, WEFT_DRAW_WIDTH, HEIGHT);
    weft__draw_y_axis(out, &lines.frame, &lines.y);
    weft__draw_x_axis(out, &lines.frame, &lines.x);
    if (plot->reference != 0 && plot->reference >= lines.y.least &&
        plot->reference <= lines.y.most) {
        double y = y_of(&lines, plot->reference);
        weft__draw_line(out, "r", lines.frame.left, y, lines.frame.left + lines.frame.width, y);
    }
    draw_hover(out, &lines);
    for (int i = 0; i < count; i++) {
        draw_series(out, &lines, &series[i]);
    }
    weft__draw_close(out);
    weft__figure_close(out);
}
