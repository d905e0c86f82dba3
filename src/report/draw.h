/* What the plots draw with: the frame with its axes, and short forms of elements. */
#ifndef WEFT_REPORT_DRAW_H
#define WEFT_REPORT_DRAW_H

#include <stdio.h>

#include "report/number.h"

#define WEFT_DRAW_WIDTH 560 /* of every drawing but heat maps; the page scales it */
#define WEFT_DRAW_CHAR 6.7  /* about what a character of a label takes */

/* The part of the drawing that the axes enclose. */
typedef struct weft_frame {
    double left, top, width, height;
} weft_frame_t;

void weft__draw_open(FILE *out, const char *title, double width, double height);
void weft__draw_close(FILE *out);

/* A coordinate: one decimal, none if it is 0. */
void weft__draw_at(FILE *out, double value);

/* `name`="coordinate" with a space before it. */
void weft__draw_attribute(FILE *out, const char *name, double value);

/* Open <text class="CLASS" x= y=>; write the text, then weft__draw_text_end. */
void weft__draw_text(FILE *out, const char *class, double x, double y);
void weft__draw_text_end(FILE *out);

void weft__draw_line(FILE *out, const char *class, double x1, double y1, double x2, double y2);

/* The axis below or beside the frame, ready, with its ticks, grid lines and label. */
void weft__draw_x_axis(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis);
void weft__draw_y_axis(FILE *out, const weft_frame_t *frame, const weft_axis_t *axis);

/* How many characters the longest tick has. */
int weft__draw_tick_length(const weft_axis_t *axis);

/* The marker of a color, centred at x, y: every color has a shape of its own. Moves of a path. */
void weft__draw_marker(FILE *out, int color, double x, double y);

#endif
