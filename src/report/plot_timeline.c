/* What ranks did when: a row for each of a rank's tracks, spans along the time. */
#include <math.h>
#include <string.h>

#include "report/draw.h"
#include "report/html.h"
#include "report/plot.h"

#define WIDTH 1120 /* over the whole page */
#define ROW 17
#define SPAN 13
#define GROUP_SPACE 7
#define LABEL_MOST 26 /* characters */
#define LEFT 236
#define TOP 8
#define NARROW 0.35 /* pixels; a narrower span right behind another one is not seen */

/* Where the rows begin, one after the other, in `y`; returns where they end. */
static bool begins_group(const weft_plot_timeline_t *timeline, int row)
{
    return row == 0 || strcmp(timeline->rows[row].group, timeline->rows[row - 1].group) != 0;
}

static double top_of(const weft_plot_timeline_t *timeline, int row)
{
    double y = TOP;
    for (int i = 1; i <= row; i++) {
        y += ROW + (i < timeline->row_count && begins_group(timeline, i) ? GROUP_SPACE : 0);
    }
    return y;
}

static void draw_rows(FILE *out, const weft_plot_timeline_t *timeline)
{
    for (int i = 0; i < timeline->row_count; i++) {
        const weft_plot_row_t *row = &timeline->rows[i];
        double y = top_of(timeline, i) + 12;
        if (begins_group(timeline, i)) {
            weft__draw_text(out, "s t", 2, y);
            weft__html_cut(out, row->group, 9);
            weft__draw_text_end(out);
        }
        weft__draw_text(out, "e", LEFT - 8, y);
        weft__html_cut(out, row->label, LABEL_MOST);
        weft__draw_text_end(out);
    }
}

static void draw_span(FILE *out, const weft_plot_span_t *span, double x, double width, double y)
{
    char text[WEFT_NUMBER_TEXT];
    fprintf(out, "<rect class=\"f c%d\"", span->color % WEFT_PLOT_COLORS);
    weft__draw_attribute(out, "x", x);
    weft__draw_attribute(out, "y", y);
    weft__draw_attribute(out, "width", width > NARROW ? width : NARROW);
    fprintf(out, " height=\"%d\"><title>", SPAN);
    weft__html_text(out, span->name);
    fprintf(out, ": %s ms", weft__number_text(text, span->end - span->start, WEFT_NUMBER_PLAIN));
    fprintf(out, " from %s</title></rect>\n",
            weft__number_text(text, span->start, WEFT_NUMBER_PLAIN));
}

static size_t draw_spans(FILE *out, const weft_plot_timeline_t *timeline, const weft_axis_t *axis,
                         double width)
{
    size_t left_out = 0;
    int row = -1;
    double y = 0, behind = 0;
    for (size_t i = 0; i < timeline->span_count; i++) {
        const weft_plot_span_t *span = &timeline->spans[i];
        if (span->row != row) {
            row = span->row;
            y = top_of(timeline, row) + (ROW - SPAN) / 2.0;
            behind = -1;
        }
        double from = weft__axis_at(axis, span->start), to = weft__axis_at(axis, span->end);
        double x = LEFT + width * from, wide = width * (to - from);
        if (wide < NARROW && x < behind + NARROW) {
            left_out++;
            continue;
        }
        draw_span(out, span, x, wide, y);
        behind = x + wide;
    }
    return left_out;
}

size_t weft__plot_timeline(FILE *out, const weft_plot_timeline_t *timeline)
{
    weft_axis_t axis = {.label = "milliseconds", .from_zero = true};
    double bottom = top_of(timeline, timeline->row_count);
    weft_frame_t frame = {LEFT, TOP - 3, WIDTH - LEFT - 20, bottom - TOP + 5};
    weft__axis_fit(&axis, &timeline->end, 1);
    weft__axis_ready(&axis, 10);
    axis.most = timeline->end; /* the step ends where the frame ends */
    while (axis.count > 1 && axis.ticks[axis.count - 1] > axis.most) {
        axis.count--;
    }
    weft__figure_open(out, timeline->title, timeline->note);
    weft__legend_open(out);
    for (int i = 0; i < timeline->legend_count; i++) {
        weft__legend_entry(out, &timeline->legend[i]);
    }
    weft__legend_close(out);
    weft__draw_open(out, timeline->title, WIDTH, bottom + 46);
    weft__draw_x_axis(out, &frame, &axis);
    draw_rows(out, timeline);
    size_t left_out = draw_spans(out, timeline, &axis, frame.width);
    weft__draw_close(out);
    weft__figure_close(out);
    return left_out;
}
