#include "report/draw.h"

#include <math.h>
#include <string.h>

#include "report/html.h"
#include "report/plot.h"

void weft__draw_open(FILE *out, const char *title, double width, double height)
{
    /* narrower than that it scrolls, so that it can still be read */
    fprintf(out, "<svg role=\"img\" viewBox=\"0 0 %.0f %.0f\" style=\"min-width: %.0fpx\"", width,
            height, 0.72 * width);
    fputs(" aria-label=\"", out);
    weft__html_text(out, title);
    fputs("\">\n", out);
}

void weft__draw_close(FILE *out)
{
    fputs("</svg>\n", out);
}

void weft__draw_at(FILE *out, double value)
{
    double tenths = nearbyint(value * 10);
    if (fmod(tenths, 10) == 0) {
        fprintf(out, "%.0f", tenths / 10 + 0.0); /* no -0 */
    } else {
        fprintf(out, "%.1f", tenths / 10);
    }
}

void weft__draw_attribute(FILE *out, const char *name, double value)
{
    fprintf(out, " %s=\"", name);
    weft__draw_at(out, value);
    fputc('"', out);
}

void weft__draw_text(FILE *out, const char *class, double x, double y)
{
    fprintf(out, "<text class=\"%s\"", class);
    weft__draw_attribute(out, "x", x);
    weft__draw_attribute(out, "y", y);
    fputc('>', out);
}

void weft__draw_text_end(FILE *out)
{
    fputs("</text>\n", out);
}

void weft__draw_line(FILE *out, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(out, "<path class=\"%s\" d=\"M", class);
    weft__draw_at(out, x1);
    fputc(' ', out);
    weft__draw_at(out, y1);
    fputc('L', out);
    weft__draw_at(out, x2);
    fputc(' ', out);
    weft__draw_at(out, y2);
    fputs("\"/>\n", out);
}

int weft__draw_tick_length(const weft_axis_t *axis)
{
    char text[WEFT_NUMBER_TEXT];
    int longest = 0;
    for (int i = 0; i < axis->count; i++) {
        int length = (int)strlen(weft__axis_text(axis, i, text));
        longest = length > longest ? length : longest;
    }
    return longest;
}

void weft__draw_x_axis(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis)
{
    char text[WEFT_NUMBER_TEXT];
    double bottom = frame->top + frame->height;
    for (int i = 0; i < axis->count; i++) {
        double x = frame->left + frame->width * weft__axis_at(axis, axis->ticks[i]);
        weft__draw_line(out, "g", x, frame->top, x, bottom + 4);
        weft__draw_text(out, "m", x, bottom + 17);
        fputs(weft__axis_text(axis, i, text), out);
        weft__draw_text_end(out);
    }
    weft__draw_line(out, "a", frame->left, bottom, frame->left + frame->width, bottom);
    weft__draw_text(out, "m", frame->left + frame->width / 2, bottom + 34);
    weft__html_text(out, axis->label);
    weft__draw_text_end(out);
}

void weft__draw_y_axis(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis)
{
    char text[WEFT_NUMBER_TEXT];
    for (int i = 0; i < axis->count; i++) {
        double y = frame->top + frame->height * (1 - weft__axis_at(axis, axis->ticks[i]));
        weft__draw_line(out, "g", frame->left, y, frame->left + frame->width, y);
        weft__draw_text(out, "e", frame->left - 6, y + 4);
        fputs(weft__axis_text(axis, i, text), out);
        weft__draw_text_end(out);
    }
    weft__draw_text(out, "s", 2, 12); /* level, above the axis: nothing to turn one's head for */
    weft__html_text(out, axis->label);
    weft__draw_text_end(out);
}

void weft__draw_marker(FILE *out, int color, double x, double y)
{
    static const char *const shapes[WEFT_PLOT_COLORS] = {
        "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0", /* circle */
        "m-3-3h6v6h-6z",                               /* square */
        "m0-4l4 7h-8z",                                /* triangle */
        "m0-4.5l4 4.5l-4 4.5l-4-4.5z",                 /* diamond */
        "m0 4l4-7h-8z",                                /* triangle that stands on its point */
        "m-4-1.3h2.7v-2.7h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7z", /* plus */
        "m-4-2h8v4h-8z",                                             /* flat */
        "m-2-4h4v8h-4z",                                             /* tall */
    };
    fputc('M', out);
    weft__draw_at(out, x);
    fputc(' ', out);
    weft__draw_at(out, y);
    fputs(shapes[color % WEFT_PLOT_COLORS], out);
}
