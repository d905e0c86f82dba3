/* Bars from the left, and ratios with intervals: rows with a label each. */
#include <math.h>

#include "report/draw.h"
#include "report/html.h"
#include "report/plot.h"

#define ROW 24          /* pixels from row to row */
#define BAR 14          /* of them the bar's */
#define LABEL_MOST 34   /* characters; longer labels are cut, and whole in the <title> */
#define TEXT_WIDTH 62.0 /* for the number behind a bar */

static double left_of(int longest)
{
    int length = longest < LABEL_MOST ? longest : LABEL_MOST;
    return 12 + WEFT_DRAW_CHAR * length;
}

static void draw_label(FILE *out, const weft_frame_t *frame, int row, const char *label)
{
    weft__draw_text(out, "e", frame->left - 7, frame->top + (row + 0.5) * ROW + 4);
    if (weft__html_length(label) > LABEL_MOST) {
        fputs("<title>", out);
        weft__html_text(out, label);
        fputs("</title>", out);
    }
    weft__html_cut(out, label, LABEL_MOST);
    weft__draw_text_end(out);
}

/* ---- bars ----------------------------------------------------------------------------------- */

static double part_of(const weft_bar_t *bar, int part)
{
    double value = bar->parts[part];
    return isfinite(value) && value > 0 ? value : 0;
}

static double sum_of(const weft_bar_t *bar, int part_count)
{
    double sum = 0;
    for (int i = 0; i < part_count; i++) {
        sum += part_of(bar, i);
    }
    return sum;
}

static void draw_parts(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis,
                       const weft_bar_part_t *parts, int part_count, const weft_bar_t *bar, int row)
{
    char text[WEFT_NUMBER_TEXT];
    double sum = 0;
    for (int i = 0; i < part_count; i++) {
        double value = part_of(bar, i);
        double from = frame->width * weft__axis_at(axis, sum);
        double to = frame->width * weft__axis_at(axis, sum + value);
        sum += value;
        if (to - from < 0.05) {
            continue;
        }
        fprintf(out, "<rect class=\"f c%d b\"", parts[i].color % WEFT_PLOT_COLORS);
        weft__draw_attribute(out, "x", frame->left + from);
        weft__draw_attribute(out, "y", frame->top + row * ROW + (ROW - BAR) / 2.0);
        weft__draw_attribute(out, "width", to - from);
        fprintf(out, " height=\"%d\"><title>", BAR);
        weft__html_text(out, bar->label);
        if (parts[i].name != NULL) {
            fputs(", ", out);
            weft__html_text(out, parts[i].name);
        }
        fprintf(out, ": %s</title></rect>\n", weft__number_text(text, value, axis->format));
    }
}

static void draw_bar(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis,
                     const weft_bar_t *bar, int part_count, int row)
{
    char text[WEFT_NUMBER_TEXT];
    double sum = sum_of(bar, part_count), middle = frame->top + (row + 0.5) * ROW;
    double end = frame->left + frame->width * weft__axis_at(axis, sum);
    if (bar->high > bar->low) {
        double low = frame->left + frame->width * weft__axis_at(axis, bar->low);
        double high = frame->left + frame->width * weft__axis_at(axis, bar->high);
        weft__draw_line(out, "i", low, middle, high, middle);
        end = high > end ? high : end;
    }
    draw_label(out, frame, row, bar->label);
    weft__draw_text(out, "s", end + 5, middle + 4);
    weft__html_text(out,
                    bar->text != NULL ? bar->text : weft__number_text(text, sum, axis->format));
    weft__draw_text_end(out);
}

static void fit_bars(weft_axis_t *axis, const weft_bar_t *bars, int count, int part_count,
                     int *longest)
{
    axis->from_zero = true;
    for (int i = 0; i < count; i++) {
        double ends[] = {sum_of(&bars[i], part_count), bars[i].high};
        int length = weft__html_length(bars[i].label);
        weft__axis_fit(axis, ends, 2);
        *longest = length > *longest ? length : *longest;
    }
    weft__axis_ready(axis, 6);
}

void weft__plot_bars(FILE *out, const weft_plot_t *plot, const weft_bar_part_t *parts,
                     int part_count, const weft_bar_t *bars, int count)
{
    weft_axis_t axis = plot->x;
    int longest = 0;
    fit_bars(&axis, bars, count, part_count, &longest);
    double left = left_of(longest);
    weft_frame_t frame = {left, 6, WEFT_DRAW_WIDTH - left - TEXT_WIDTH, count * ROW};
    weft__figure_open(out, plot->title, plot->note);
    if (parts[0].name != NULL) {
        weft__legend_open(out);
        for (int i = 0; i < part_count; i++) {
            weft__legend_entry(
                out, &(weft_legend_entry_t){.name = parts[i].name, .color = parts[i].color});
        }
        weft__legend_close(out);
    }
    weft__draw_open(out, plot->title, WEFT_DRAW_WIDTH, frame.height + 48);
    weft__draw_x_axis(out, &frame, &axis);
    for (int i = 0; i < count; i++) {
        draw_parts(out, &frame, &axis, parts, part_count, &bars[i], i);
        draw_bar(out, &frame, &axis, &bars[i], part_count, i);
    }
    weft__draw_close(out);
    weft__figure_close(out);
}

/* ---- ratios --------------------------------------------------------------------------------- */

/* Colors of verdicts: nothing to say, blue, orange, grey, violet; each has a shape of its own. */
static const int verdict_color[] = {[WEFT_VERDICT_NONE] = 0,
                                    [WEFT_VERDICT_FASTER] = 0,
                                    [WEFT_VERDICT_SLOWER] = 1,
                                    [WEFT_VERDICT_SAME] = 7,
                                    [WEFT_VERDICT_NOISY] = 3};
static const char *const verdict_name[] = {[WEFT_VERDICT_NONE] = "no verdict",
                                           [WEFT_VERDICT_FASTER] = "faster",
                                           [WEFT_VERDICT_SLOWER] = "slower",
                                           [WEFT_VERDICT_SAME] = "the same",
                                           [WEFT_VERDICT_NOISY] = "noisy"};

static void draw_ratio(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis,
                       const weft_ratio_t *row, int number)
{
    char text[WEFT_NUMBER_TEXT], low[WEFT_NUMBER_TEXT], high[WEFT_NUMBER_TEXT];
    double middle = frame->top + (number + 0.5) * ROW;
    int color = verdict_color[row->verdict];
    bool interval = weft__axis_shows(axis, row->low) && weft__axis_shows(axis, row->high);
    draw_label(out, frame, number, row->label);
    if (!weft__axis_shows(axis, row->ratio)) {
        return;
    }
    double x = frame->left + frame->width * weft__axis_at(axis, row->ratio);
    if (interval) {
        fprintf(out, "<g class=\"c%d\">", color);
        weft__draw_line(out, "l", frame->left + frame->width * weft__axis_at(axis, row->low),
                        middle, frame->left + frame->width * weft__axis_at(axis, row->high),
                        middle);
        fputs("</g>", out);
    }
    fprintf(out, "<path class=\"f c%d\" d=\"", color);
    weft__draw_marker(out, color, x, middle);
    fputs("\"><title>", out);
    weft__html_text(out, row->label);
    fprintf(out, ": %s", weft__number_text(text, row->ratio, WEFT_NUMBER_PLAIN));
    if (interval) {
        fprintf(out, " (%s to %s)", weft__number_text(low, row->low, WEFT_NUMBER_PLAIN),
                weft__number_text(high, row->high, WEFT_NUMBER_PLAIN));
    }
    fprintf(out, "%s%s</title></path>\n", row->verdict == WEFT_VERDICT_NONE ? "" : ", ",
            row->verdict == WEFT_VERDICT_NONE ? "" : verdict_name[row->verdict]);
    weft__draw_text(out, "s", frame->left + frame->width + 8, middle + 4);
    fputs(weft__number_text(text, row->ratio, WEFT_NUMBER_PLAIN), out);
    weft__draw_text_end(out);
}

static void draw_verdicts(FILE *out, const weft_ratio_t *rows, int count)
{
    bool seen[WEFT_VERDICTS] = {false}, any = false;
    for (int i = 0; i < count; i++) {
        seen[rows[i].verdict] = true;
        any = any || rows[i].verdict != WEFT_VERDICT_NONE;
    }
    if (any) {
        weft__legend_open(out);
        for (int i = WEFT_VERDICT_FASTER; i < WEFT_VERDICTS; i++) {
            if (seen[i]) {
                weft__legend_entry(out, &(weft_legend_entry_t){.name = verdict_name[i],
                                                               .color = verdict_color[i],
                                                               .line = true,
                                                               .marker = true});
            }
        }
        weft__legend_close(out);
    }
}

void weft__plot_ratios(FILE *out, const weft_plot_t *plot, const weft_ratio_t *rows, int count)
{
    weft_axis_t axis = plot->x;
    int longest = 0;
    const double one = 1; /* always in sight: the same */
    weft__axis_fit(&axis, &one, 1);
    for (int i = 0; i < count; i++) {
        const double values[] = {rows[i].ratio, rows[i].low, rows[i].high};
        int length = weft__html_length(rows[i].label);
        weft__axis_fit(&axis, values, 3);
        longest = length > longest ? length : longest;
    }
    weft__axis_ready(&axis, 7);
    double left = left_of(longest);
    weft_frame_t frame = {left, 6, WEFT_DRAW_WIDTH - left - TEXT_WIDTH, count * ROW};
    weft__figure_open(out, plot->title, plot->note);
    draw_verdicts(out, rows, count);
    weft__draw_open(out, plot->title, WEFT_DRAW_WIDTH, frame.height + 48);
    weft__draw_x_axis(out, &frame, &axis);
    double x = frame.left + frame.width * weft__axis_at(&axis, 1);
    weft__draw_line(out, "r", x, frame.top, x, frame.top + frame.height);
    for (int i = 0; i < count; i++) {
        draw_ratio(out, &frame, &axis, &rows[i], i);
    }
    weft__draw_close(out);
    weft__figure_close(out);
}
