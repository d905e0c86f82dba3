/* A heat map of ranks against ranks. */
#include <math.h>
#include <string.h>

#include "report/draw.h"
#include "report/html.h"
#include "report/plot.h"

#define SHADES 9     /* h0 to h8 of the page */
#define SIZE 340.0   /* of the cells together */
#define TEXT_MOST 12 /* ranks; above it cells are too small for numbers */
#define LEFT 34
#define TOP 30

typedef struct range {
    double least, most;
} range_t;

static range_t range_of(const weft_heat_t *heat)
{
    range_t range = {NAN, NAN};
    for (int i = 0; i < heat->size * heat->size; i++) {
        if (isfinite(heat->values[i])) {
            range.least = fmin(range.least, heat->values[i]);
            range.most = fmax(range.most, heat->values[i]);
        }
    }
    return range;
}

/* From the least to the most; where these are close, noise is not made to look like a structure. */
static int shade_of(const range_t *range, double value)
{
    double middle = range->least / 2 + range->most / 2;
    double least = fmin(range->least, middle - fabs(middle) * 0.15);
    double most = fmax(range->most, middle + fabs(middle) * 0.15);
    double at = most > least ? (value - least) / (most - least) : 0.5;
    int shade = (int)(at * SHADES);
    return shade < 0 ? 0 : shade >= SHADES ? SHADES - 1 : shade;
}

/* Few characters: it must fit into a cell. */
static void put_value(FILE *out, double value)
{
    char text[WEFT_NUMBER_TEXT];
    double size = fabs(value);
    if (size >= 1e5 || (size < 0.01 && size > 0)) {
        snprintf(text, sizeof(text), "%.0e", value);
    } else {
        snprintf(text, sizeof(text), "%.*f", size < 1 ? 2 : size < 100 ? 1 : 0, value);
    }
    fputs(text, out);
}

static void draw_cell(FILE *out, const weft_heat_t *heat, const range_t *range, int from, int to)
{
    char text[WEFT_NUMBER_TEXT];
    int at = from * heat->size + to;
    double value = heat->values[at], side = SIZE / heat->size;
    double x = LEFT + to * side, y = TOP + from * side;
    if (!isfinite(value)) {
        return;
    }
    bool marked = heat->marked != NULL && heat->marked[at];
    fprintf(out, "<g class=\"h%d%s\"><rect", shade_of(range, value), marked ? " slow" : "");
    weft__draw_attribute(out, "x", x + (marked ? 2 : 0.5));
    weft__draw_attribute(out, "y", y + (marked ? 2 : 0.5));
    weft__draw_attribute(out, "width", side - (marked ? 4 : 1));
    weft__draw_attribute(out, "height", side - (marked ? 4 : 1));
    fputs("/>", out);
    if (heat->size <= TEXT_MOST) {
        weft__draw_text(out, "m", x + side / 2, y + side / 2 + 4);
        put_value(out, value);
        fputs("</text>", out);
    }
    fprintf(out, "<title>%d \xE2\x86\x92 %d: %s ", from, to,
            weft__number_text(text, value, WEFT_NUMBER_PLAIN));
    weft__html_text(out, heat->unit);
    if (heat->texts != NULL && heat->texts[at] != NULL) {
        fputs(", ", out);
        weft__html_text(out, heat->texts[at]);
    }
    fputs("</title></g>\n", out);
}

static void draw_numbers(FILE *out, const weft_heat_t *heat)
{
    double side = SIZE / heat->size;
    int stride = (int)ceil(heat->size * 16 / SIZE); /* so many that they do not touch */
    weft__draw_text(out, "s", LEFT, 12);
    fputs("to rank \xE2\x86\x92", out);
    weft__draw_text_end(out);
    weft__draw_text(out, "s", 0, TOP - 7);
    fputs("from", out);
    weft__draw_text_end(out);
    for (int i = 0; i < heat->size; i += stride) {
        weft__draw_text(out, "m", LEFT + (i + 0.5) * side, TOP - 6);
        fprintf(out, "%d", i);
        weft__draw_text_end(out);
        weft__draw_text(out, "e", LEFT - 6, TOP + (i + 0.5) * side + 4);
        fprintf(out, "%d", i);
        weft__draw_text_end(out);
    }
}

/* The shades from the least to the most value. */
static void draw_scale(FILE *out, const weft_heat_t *heat, const range_t *range)
{
    double top = TOP + SIZE + 12;
    for (int i = 0; i < SHADES; i++) {
        double value = range->least + (range->most - range->least) * (i + 0.5) / SHADES;
        fprintf(out, "<rect class=\"h%d\" x=\"%d\" y=\"%.0f\" width=\"14\" height=\"12\"/>",
                shade_of(range, value), LEFT + 100 + 14 * i, top);
    }
    weft__draw_text(out, "e", LEFT + 94, top + 10);
    put_value(out, range->least);
    weft__draw_text_end(out);
    weft__draw_text(out, "s", LEFT + 106 + 14 * SHADES, top + 10);
    put_value(out, range->most);
    fputc(' ', out);
    weft__html_text(out, heat->unit);
    weft__draw_text_end(out);
}

void weft__plot_heat(FILE *out, const weft_heat_t *heat)
{
    range_t range = range_of(heat);
    weft__figure_open(out, heat->title, heat->note);
    weft__draw_open(out, heat->title, LEFT + SIZE + 6, TOP + SIZE + 30);
    draw_numbers(out, heat);
    for (int i = 0; i < heat->size * heat->size; i++) {
        draw_cell(out, heat, &range, i / heat->size, i % heat->size);
    }
    if (isfinite(range.least)) {
        draw_scale(out, heat, &range);
    }
    weft__draw_close(out);
    weft__figure_close(out);
}
